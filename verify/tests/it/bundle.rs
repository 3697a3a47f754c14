//! `verify` and bundles: every vector, the first line of the report, and what rules miss when something was left out.

use std::fs;
use std::path::Path;

use ledger::facts::execution::Verdict;
use ledger::facts::list::List;
use ledger::facts::matrix::Matrix;
use ledger::file::bundle::{Selection, write};
use ledger::file::store::{Durability, Store};
use ledger::record::{Body, Content, parse_line};
use serde_json::Value;

use crate::support::records::{execution, host, start};
use crate::support::{json, open, run, stamp, vectors, verify};

fn asked(path: &Path) -> (i32, Value) {
    let output = verify().arg(path).arg("--json").output().unwrap();
    let document = json(&output);
    assert_eq!(document["exitCode"], output.status.code().unwrap());
    (output.status.code().unwrap(), document)
}

fn has(document: &Value, code: &str) -> bool {
    let findings = document["findings"].as_array().unwrap();
    findings.iter().any(|finding| finding["code"] == code)
}

#[test]
fn every_vector_through_the_binary() {
    let folder = vectors().parent().unwrap().join("bundle");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let folder = entry.unwrap().path();
        let expected = fs::read(folder.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let (code, document) = asked(&folder.join("bundle"));
        assert_eq!(
            expected["exitCode"],
            code,
            "{}: {document:#}",
            folder.display()
        );
        let any_of = expected["anyOf"].as_array().unwrap();
        let any = any_of.iter().any(|it| has(&document, it.as_str().unwrap()));
        assert!(
            any || any_of.is_empty(),
            "{}: {document:#}",
            folder.display()
        );
        count += 1;
    }
    assert!(count >= 20, "only {count} vectors");
}

#[test]
fn the_first_line_says_how_much_is_withheld() {
    let folder = vectors().parent().unwrap().join("bundle");
    let first = |name: &str| {
        let (_, out, err) = run(verify().arg(folder.join(name).join("bundle")));
        assert_eq!(err, "");
        out.lines().next().unwrap().to_owned()
    };
    let (code, document) = asked(&folder.join("valid_part/bundle"));
    assert_eq!(code, 0);
    let (shown, withheld) = (&document["records"], &document["withheld"]);
    assert!(shown.as_u64() > Some(0) && withheld.as_u64() > Some(0));
    assert_eq!(
        first("valid_part"),
        format!("VERIFIED  consistent among the {shown} records shown; {withheld} withheld")
    );
    let (_, document) = asked(&folder.join("valid_whole/bundle"));
    let records = &document["records"];
    assert_eq!(document["withheld"], 0);
    assert_eq!(
        first("valid_whole"),
        format!("VERIFIED  {records} records, and all of it holds")
    );
    let changed = first("record_changed");
    assert!(
        changed.starts_with("INVALID") && changed.contains("withheld"),
        "{changed}"
    );
    // A folder has nothing of the kind.
    let (_, document) = asked(&vectors().join("valid/ledger"));
    assert!(document.get("withheld").is_none());
}

#[test]
fn nothing_of_a_bundle_that_comes_as_a_stream_is_taken_for_checked() {
    let bundle = vectors().parent().unwrap().join("bundle/valid_part/bundle");
    let output = verify()
        .args(["-", "--json"])
        .stdin(fs::File::open(&bundle).unwrap())
        .output()
        .unwrap();
    let document = json(&output);
    assert_eq!(document["exitCode"], 0);
    let status = |document: &Value, id: &str| {
        let checks = document["checks"].as_array().unwrap().clone();
        let check = checks.into_iter().find(|check| check["id"] == id);
        check.unwrap()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(&document, "blobs"), "not-checked");
    let (_, of_file) = asked(&bundle);
    assert_eq!(status(&of_file, "blobs"), "pass");
    assert_eq!(status(&of_file, "segments"), "not-checked");
}

fn append(store: &mut Store, body: Body) -> u64 {
    let appended = store.append(body, None, &stamp(), Durability::Durable);
    appended.unwrap().sequence.value()
}

/// A ledger with a matrix, notes, and one run whose start names the matrix.
fn measured(at: &Path) -> [u64; 4] {
    let mut store = open(at);
    let policy = store.put_blob(b"{}").unwrap();
    let host = append(&mut store, Body::Host(Box::new(host())));
    append(&mut store, crate::made::note("before"));
    let matrix = append(
        &mut store,
        Body::Matrix(Box::new(Matrix {
            cells: List::Inline(vec![]),
            host: ledger::bytes::canon::U53::saturating(host),
            policy: start(policy).policy,
            suite: policy,
        })),
    );
    append(&mut store, crate::made::note("between"));
    let mut named = start(policy);
    named.matrix = Some(ledger::bytes::canon::U53::saturating(matrix));
    let lock = store.begin_run(named.run).unwrap();
    let begun = append(&mut store, Body::Start(Box::new(named)));
    let begun_at = ledger::bytes::canon::U53::saturating(begun);
    let end = execution(begun_at, Verdict::AsRequested);
    let ended = append(&mut store, Body::Execution(Box::new(end)));
    drop(lock);
    append(&mut store, crate::made::note("after"));
    store.sync_checkpoint(&stamp()).unwrap();
    [host, matrix, begun, ended]
}

#[test]
fn what_a_run_rests_on_is_in_its_bundle_and_missed_when_it_is_left_out() {
    let at = tempfile::tempdir().unwrap();
    let [host, matrix, begun, ended] = measured(at.path());
    let path = at.path().join("bundle");
    for (selection, expected) in [
        (Selection::Last(1), vec![0, host, matrix, begun, ended]),
        (Selection::Matrix, vec![0, host, matrix]),
    ] {
        write(&at.path().join("ledger"), selection, &[], &path).unwrap();
        let bundle = fs::read_to_string(&path).unwrap();
        let numbers: Vec<u64> = bundle.lines().filter_map(number).collect();
        assert_eq!(numbers, expected, "{selection:?}");
    }
    write(&at.path().join("ledger"), Selection::Last(1), &[], &path).unwrap();
    let bundle = fs::read_to_string(&path).unwrap();
    let (_, whole) = asked(&path);
    assert!(!has(&whole, "reference-invalid"), "{whole:#}");
    for gone in [matrix, host, begun] {
        let lines: Vec<&str> = bundle.lines().collect();
        let at = lines
            .iter()
            .position(|line| number(line) == Some(gone))
            .unwrap();
        let header = lines[0].replace("\"records\":5", "\"records\":4");
        let without = [
            &[header.as_str()],
            &lines[1..at - 1],
            &lines[at + 1..],
            &[""],
        ]
        .concat();
        fs::write(&path, without.join("\n")).unwrap();
        let (code, document) = asked(&path);
        assert_eq!(code, 10, "without {gone}: {document:#}");
        assert!(
            has(&document, "reference-invalid"),
            "without {gone}: {document:#}"
        );
    }
}

fn number(line: &str) -> Option<u64> {
    if !line.starts_with(r#"{"key":"#) {
        return None;
    }
    match parse_line(line.as_bytes()).content {
        Ok(Content::Record(record)) => Some(record.sequence.value()),
        other => panic!("{other:?}"),
    }
}
