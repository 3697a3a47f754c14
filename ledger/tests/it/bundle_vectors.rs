//! The bundles under `schema/vectors/bundle`, one defect each: made here from a made ledger, checked in, and compared.
//!
//! `WRITE_VECTORS=1 cargo test -p ledger --test it` writes them again.

use std::fs;
use std::path::Path;

use ledger::file::bundle::Selection;
use ledger::record::Body;

use crate::bundle::{Place, counted, groups, is, joined, lines};
use crate::support::vectors;

type Lines = Vec<Vec<u8>>;

/// A vector: its name, the bundle, the exit code, and one of the findings.
type Vector = (&'static str, Vec<u8>, u8, &'static str);

fn changed(lines: &Lines, at: usize, from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(lines[at].clone()).unwrap();
    let changed = text.replacen(from, to, 1);
    assert_ne!(changed, text, "{from}");
    let mut lines = lines.clone();
    lines[at] = changed.into_bytes();
    joined(&lines)
}

fn without(lines: &Lines, range: std::ops::Range<usize>) -> Lines {
    let mut lines = lines.clone();
    lines.drain(range);
    lines
}

fn all() -> Vec<Vector> {
    let place = Place::new(24, 1);
    let whole = place.bundle(Selection::All);
    let part = place.bundle(Selection::Last(2));
    let own = lines(&part);
    let theirs = lines(&Place::new(24, 2).bundle(Selection::Last(2)));
    let of = groups(&own);
    let last = of.last().unwrap().0.clone();
    let before = of[of.len() - 2].0.clone();
    let key = of.iter().find(|(_, it)| matches!(it.body, Body::Key(_)));
    let key = key.unwrap().0.clone();
    let host = of.iter().find(|(_, it)| matches!(it.body, Body::Host(_)));
    let host = host.unwrap().0.clone();
    let piece = own.iter().position(|line| is(line, r#"{"at":"#)).unwrap();
    let mut spliced = own.clone();
    spliced.splice(
        last.clone(),
        theirs[groups(&theirs).last().unwrap().0.clone()].to_vec(),
    );
    let mut moved = own.clone();
    moved[last.start] = own[before.start].clone();
    let reordered = [
        &own[..before.start],
        &own[last.clone()],
        &own[before.clone()],
    ]
    .concat();
    let mut twice = own.clone();
    twice.insert(last.end, own[last.end - 1].clone());
    let mut too_long = own.clone();
    too_long.insert(
        last.start,
        [br#"{"index":0,"proof":["#.as_slice(), &[b'a'; 70_000]].concat(),
    );
    let mut deep = own.clone();
    deep.insert(
        last.start,
        [br#"{"index":"#.as_slice(), &[b'['; 2_000]].concat(),
    );
    let mut garbage = own[..1].to_vec();
    garbage.extend((0..50u32).map(|n| format!("nothing of the kind, {n}").into_bytes()));
    let cut = joined(&own[..last.start]);
    let end = part.len() - 40;
    let mut other_checkpoint = own.clone();
    other_checkpoint[1] = theirs[1].clone();
    let opening = (0..own.len()).rev().find(|at| is(&own[*at], r#"{"open":"#));
    let opening = opening.unwrap();
    let mut newer = own.clone();
    newer[0] = String::from_utf8(own[0].clone())
        .unwrap()
        .replace("/v1\"", "/v2\"")
        .into_bytes();
    vec![
        ("valid_part", part.clone(), 0, ""),
        ("valid_whole", whole, 0, ""),
        (
            "opening_withheld",
            joined(&without(&own, opening..opening + 1)),
            0,
            "",
        ),
        (
            "record_changed",
            changed(&own, last.end - 1, "\"exitCode\":0", "\"exitCode\":1"),
            10,
            "signature-invalid",
        ),
        (
            "opening_changed",
            changed(&own, opening, " is done", " was done"),
            10,
            "opening-mismatch",
        ),
        ("cut_after_a_record", cut, 10, "tail-truncated"),
        (
            "cut_in_a_record",
            part[..end].to_vec(),
            10,
            "tail-truncated",
        ),
        (
            "bytes_behind_it",
            [&part[..], b"x"].concat(),
            10,
            "record-malformed",
        ),
        (
            "records_reordered",
            joined(&reordered),
            10,
            "chain-sequence-gap",
        ),
        (
            "record_of_another_ledger",
            joined(&spliced),
            10,
            "ledger-mismatch",
        ),
        (
            "proof_for_another_index",
            joined(&moved),
            10,
            "chain-previous-mismatch",
        ),
        (
            "proof_missing",
            joined(&without(&own, last.start..last.start + 1)),
            10,
            "chain-previous-mismatch",
        ),
        (
            "rotation_left_out",
            counted(without(&own, key)),
            10,
            "key-unknown",
        ),
        (
            "genesis_left_out",
            counted(without(&own, of[0].0.clone())),
            10,
            "genesis-missing",
        ),
        (
            "host_left_out",
            counted(without(&own, host)),
            10,
            "reference-invalid",
        ),
        ("line_twice", joined(&twice), 10, "chain-previous-mismatch"),
        ("line_too_long", joined(&too_long), 10, "record-too-large"),
        ("line_too_deep", joined(&deep), 10, "record-malformed"),
        ("garbage", joined(&garbage), 10, "record-malformed"),
        (
            "blob_piece_lies",
            changed(&own, piece, "\"bytes\":\"ey", "\"bytes\":\"fy"),
            10,
            "blob-mismatch",
        ),
        (
            "blob_left_out",
            counted(without(&own, piece..piece + 1)),
            11,
            "blob-missing",
        ),
        (
            "checkpoint_of_another_ledger",
            joined(&other_checkpoint),
            10,
            "checkpoint-invalid",
        ),
        (
            "checkpoint_left_out",
            joined(&without(&own, 1..2)),
            10,
            "checkpoint-invalid",
        ),
        ("newer_format", joined(&newer), 11, "record-version-unknown"),
    ]
}

fn compare(path: &Path, bytes: &[u8]) {
    if std::env::var_os("WRITE_VECTORS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let here = fs::read(path).unwrap();
    assert!(
        here == bytes,
        "{} differs from what this code makes",
        path.display()
    );
}

#[test]
fn bundle_vectors_are_what_this_code_makes() {
    let folder = vectors().parent().unwrap().join("bundle");
    let all = all();
    for (name, bundle, exit_code, code) in &all {
        let any_of = if code.is_empty() {
            "[]".to_owned()
        } else {
            format!("[\n  {code:?}\n ]")
        };
        let expected = format!("{{\n \"exitCode\": {exit_code},\n \"anyOf\": {any_of}\n}}\n");
        compare(&folder.join(name).join("bundle"), bundle);
        compare(
            &folder.join(name).join("expected.json"),
            expected.as_bytes(),
        );
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), all.len());
}
