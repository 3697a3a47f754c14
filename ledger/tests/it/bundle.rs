//! Bundles: what one holds, that it is the same each time, and that nothing in it can be changed, cut, moved or left out.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hash;
use ledger::facts::execution::RunId;
use ledger::file::bundle::{Bundled, GatherError, Selection, Value, WriteBundleError, write};
use ledger::file::source::{BlobState, Source};
use ledger::file::store::{blob_name, read_key_file};
use ledger::file::walk::{Assured, CompleteBy, Extract, Given, Walked, walk};
use ledger::finding::{Class, Code};
use ledger::record::{Body, Content, Record, parse_line};

use crate::made::{self, Shape};
use crate::support::{is_good, note, reopen, stamp, walked, walked_stream};

/// A made ledger with caches and a checkpoint on the disk.
pub(crate) struct Place {
    at: tempfile::TempDir,
}

impl Place {
    /// Runs of two records each, the key changed after every third.
    pub(crate) fn new(records: u64, seed: u64) -> Self {
        let at = tempfile::tempdir().unwrap();
        let shape = Shape {
            rotate_every: Some(3),
        };
        let (dir, keys) = (at.path().join("ledger"), at.path().join("keys"));
        made::folder(&dir, &keys, records, seed, shape).unwrap();
        reopen(at.path()).sync_checkpoint(&stamp()).unwrap();
        Self { at }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.at.path().join("ledger")
    }

    fn file(&self) -> PathBuf {
        self.at.path().join("bundle")
    }

    fn write(&self, selection: Selection, withhold: &[Value]) -> Bundled {
        write(&self.dir(), selection, withhold, &self.file()).unwrap()
    }

    pub(crate) fn bundle(&self, selection: Selection) -> Vec<u8> {
        self.write(selection, &[]);
        fs::read(self.file()).unwrap()
    }

    fn key(&self) -> ledger::bytes::key::LocalKey {
        let mut files = fs::read_dir(self.at.path().join("keys")).unwrap();
        let pem = files
            .find_map(|entry| {
                let path = entry.unwrap().path();
                path.extension()
                    .is_some_and(|it| it == "pem")
                    .then_some(path)
            })
            .unwrap();
        read_key_file(&pem).unwrap()
    }
}

/// The lines of a bundle, without their newlines.
pub(crate) fn lines(bundle: &[u8]) -> Vec<Vec<u8>> {
    let text = bundle.strip_suffix(b"\n").unwrap();
    text.split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

pub(crate) fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    bytes
}

pub(crate) fn is(line: &[u8], prefix: &str) -> bool {
    line.starts_with(prefix.as_bytes())
}

/// The lines of each record, its proof first, with the record that they hold.
pub(crate) fn groups(lines: &[Vec<u8>]) -> Vec<(std::ops::Range<usize>, Record)> {
    let mut groups = Vec::new();
    let mut begin = 0;
    for (at, line) in lines.iter().enumerate() {
        if is(line, r#"{"index":"#) {
            begin = at;
        }
        if is(line, r#"{"key":"#) {
            let Ok(Content::Record(record)) = parse_line(line).content else {
                panic!("no record: {}", String::from_utf8_lossy(line));
            };
            groups.push((begin..at + 1, *record));
        }
    }
    groups
}

/// The bundle with its header saying so many records and files.
pub(crate) fn with_header(mut lines: Vec<Vec<u8>>, records: usize, files: usize) -> Vec<u8> {
    let mut header: serde_json::Value = serde_json::from_slice(&lines[0]).unwrap();
    header["records"] = records.into();
    header["files"] = files.into();
    lines[0] = serde_json::to_vec(&header).unwrap();
    joined(&lines)
}

/// How many files the pieces of a bundle are of.
pub(crate) fn files(lines: &[Vec<u8>]) -> usize {
    let first = lines.iter().filter(|line| is(line, r#"{"at":0,"#));
    first.count()
}

/// As [`with_header`], as the lines themselves have it.
pub(crate) fn counted(lines: Vec<Vec<u8>>) -> Vec<u8> {
    let (records, files) = (groups(&lines).len(), files(&lines));
    with_header(lines, records, files)
}

fn codes(walked: &Walked) -> BTreeSet<&'static str> {
    let found = walked.findings.codes();
    found.map(|(code, _)| code.as_str()).collect()
}

fn of_file(path: &Path) -> Walked {
    walked(path)
}

fn of_bytes(place: &Place, bytes: &[u8]) -> Walked {
    let path = place.at.path().join("changed");
    fs::write(&path, bytes).unwrap();
    of_file(&path)
}

fn shown(bundle: &[u8]) -> Vec<u64> {
    let groups = groups(&lines(bundle));
    groups
        .iter()
        .map(|(_, record)| record.sequence.value())
        .collect()
}

fn runs(place: &Place) -> Vec<(RunId, u64)> {
    let bundle = place.bundle(Selection::All);
    let groups = groups(&lines(&bundle));
    let runs = groups.iter().filter_map(|(_, record)| match &record.body {
        Body::Start(start) => Some((start.run, record.sequence.value())),
        _ => None,
    });
    runs.collect()
}

#[test]
fn every_selection_verifies_and_says_how_much_it_shows() {
    let place = Place::new(60, 1);
    let size = walked(&place.dir()).tally.records;
    let rotations = place.bundle(Selection::All);
    let keys: Vec<u64> = groups(&lines(&rotations))
        .iter()
        .filter(|(_, record)| matches!(record.body, Body::Key(_) | Body::Genesis(_)))
        .map(|(_, record)| record.sequence.value())
        .collect();
    assert!(keys.len() > 5);
    let (run, start) = runs(&place)[4];
    for (selection, expected) in [
        (Selection::All, size),
        (Selection::Last(1), keys.len() as u64 + 3),
        (Selection::Last(4), keys.len() as u64 + 9),
        (Selection::Last(1_000), size),
        (Selection::Run(run), keys.len() as u64 + 3),
    ] {
        let written = place.write(selection, &[]);
        assert_eq!(
            (written.records, written.size),
            (expected, size),
            "{selection:?}"
        );
        assert_eq!((written.files, written.clear), (1, 0));
        let bundle = fs::read(place.file()).unwrap();
        assert_eq!(written.bytes, bundle.len() as u64);
        let numbers = shown(&bundle);
        assert!(
            keys.iter().all(|key| numbers.contains(key)),
            "{selection:?}"
        );
        if let Selection::Run(_) = selection {
            assert!(numbers.contains(&start) && numbers.contains(&(start + 1)));
        }
        for walked in [of_file(&place.file()), walked_stream(bundle.clone())] {
            let extract = walked.extract.unwrap();
            let withheld = size - expected;
            assert_eq!(
                extract,
                Extract {
                    shown: expected,
                    withheld
                }
            );
            assert_eq!(walked.tally.verified, expected);
            assert_eq!(walked.completeness.status, Assured::NotEstablished);
            is_good(walked);
        }
        assert_eq!(
            place.bundle(selection),
            bundle,
            "the same ledger gives the same bytes"
        );
    }
}

#[test]
fn all_of_a_ledger_is_as_good_as_the_ledger() {
    let place = Place::new(60, 2);
    let of_ledger = walked(&place.dir());
    place.bundle(Selection::All);
    let of_bundle = of_file(&place.file());
    assert_eq!(of_bundle.root, of_ledger.root);
    assert_eq!(of_bundle.chain.head(), of_ledger.chain.head());
    assert_eq!(of_bundle.chain.keys(), of_ledger.chain.keys());
    let checkpoint = fs::read(place.dir().join("checkpoint")).unwrap();
    let given = Given {
        name: "given",
        bytes: &checkpoint,
    };
    let mut source = Source::open(&place.file()).unwrap();
    let with = walk(&mut source, Some(given), &mut ()).unwrap();
    assert_eq!(with.completeness.by, Some(CompleteBy::Given));
    assert!(with.completeness.covers_head());
    // Of a part it is never said that it is whole; the same checkpoint does not contradict it.
    place.bundle(Selection::Last(1));
    let mut source = Source::open(&place.file()).unwrap();
    let part = walk(&mut source, Some(given), &mut ()).unwrap();
    assert_eq!(part.completeness.status, Assured::NotEstablished);
    assert_eq!(part.root, of_ledger.root);
    is_good(part);
}

#[test]
fn a_given_checkpoint_that_contradicts_or_cannot_be_compared_is_said() {
    let place = Place::new(60, 3);
    place.bundle(Selection::Last(1));
    let given = |bytes: &[u8]| {
        let given = Given {
            name: "given",
            bytes,
        };
        let mut source = Source::open(&place.file()).unwrap();
        walk(&mut source, Some(given), &mut ()).unwrap()
    };
    let (size, origin) = {
        let walked = of_file(&place.file());
        let size = walked.extract.unwrap();
        let origin = walked.chain.origin().unwrap().as_str().to_owned();
        (size.shown + size.withheld, origin)
    };
    let sign = |size, root| {
        let checkpoint = ledger::proof::checkpoint::Checkpoint {
            origin: origin.clone(),
            size,
            root,
        };
        checkpoint.sign(&place.key()).unwrap().to_string()
    };
    let fork = given(sign(size, Hash::of(b"fork")).as_bytes());
    assert_eq!(fork.findings.count(Code::CheckpointFork), 1);
    let longer = given(sign(size + 1, Hash::of(b"longer")).as_bytes());
    assert_eq!(longer.findings.worst(), Some(Class::Observation));
    assert_eq!(longer.findings.count(Code::CompletenessNotEstablished), 1);
    let other = Place::new(10, 99);
    let theirs = fs::read(other.dir().join("checkpoint")).unwrap();
    assert_eq!(given(&theirs).findings.count(Code::LedgerReplaced), 1);
}

#[test]
fn withheld_values_are_left_out_with_nothing_else() {
    let place = Place::new(20, 4);
    let all = place.bundle(Selection::All);
    let count = |bundle: &[u8], text: &str| {
        let text = text.as_bytes();
        bundle.windows(text.len()).filter(|it| *it == text).count()
    };
    let runs = runs(&place).len();
    assert_eq!(count(&all, r#""stdout":["#), runs);
    let values = [Value::Argv, Value::Launch, Value::Stderr, Value::Stdout];
    let names = [
        r#""argv":["#,
        r#""launch":["#,
        r#""stderr":["#,
        r#""stdout":["#,
    ];
    for (at, value) in values.into_iter().enumerate() {
        assert_eq!(place.write(Selection::All, &[value]).clear, 0);
        let part = fs::read(place.file()).unwrap();
        for (other, name) in names.into_iter().enumerate() {
            let expected = if other == at { 0 } else { runs };
            assert_eq!(count(&part, name), expected, "{value:?} {name}");
        }
        let walked = of_file(&place.file());
        assert_eq!(walked.findings.count(Code::OpeningWithheld), runs as u64);
        is_good(walked);
    }
    place.write(Selection::All, &values);
    assert_eq!(count(&fs::read(place.file()).unwrap(), r#"{"open":"#), 0);
    is_good(of_file(&place.file()));
}

#[test]
fn every_changed_byte_is_found() {
    let place = Place::new(8, 5);
    let bundle = place.bundle(Selection::Last(1));
    let header = lines(&bundle)[0].len();
    // Every byte of the short lines, and enough of the long ones.
    for at in (0..bundle.len()).filter(|at| *at < 1_500 || at % 23 == 0) {
        let mut changed = bundle.clone();
        changed[at] ^= 1;
        let walked = of_bytes(&place, &changed);
        let worst = walked.findings.worst();
        // Another version of the format is not read.
        let newer = at < header && worst == Some(Class::Unproven);
        assert!(
            worst == Some(Class::Invalid) || newer,
            "byte {at} of {}: {:?}",
            String::from_utf8_lossy(&changed[at.saturating_sub(40)..(at + 40).min(changed.len())]),
            codes(&walked)
        );
    }
}

#[test]
fn every_cut_is_found() {
    let place = Place::new(20, 6);
    let bundle = place.bundle(Selection::Last(2));
    let ends = (0..bundle.len()).filter(|at| bundle[*at] == b'\n');
    for end in ends.flat_map(|end| [end.saturating_sub(9), end, end + 1]) {
        if end == bundle.len() {
            continue;
        }
        let walked = of_bytes(&place, &bundle[..end]);
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "at {end}");
        if end > bundle.len() * 2 / 3 {
            assert!(codes(&walked).contains("tail-truncated"), "at {end}");
        }
    }
}

#[test]
fn lines_in_another_order_twice_or_missing_are_found() {
    let place = Place::new(20, 7);
    let all = lines(&place.bundle(Selection::Last(2)));
    let invalid = |what: &str, lines: &[Vec<u8>]| {
        let walked = of_bytes(&place, &joined(lines));
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "{what}");
    };
    for at in 0..all.len() {
        let mut twice = all.clone();
        twice.insert(at, all[at].clone());
        invalid(&format!("twice: line {at}"), &twice);
        if at > 0 {
            let mut swapped = all.clone();
            swapped.swap(at - 1, at);
            invalid(&format!("swapped: lines {} and {at}", at - 1), &swapped);
        }
        let mut without = all.clone();
        let gone = without.remove(at);
        if is(&gone, r#"{"open":"#) {
            let walked = of_bytes(&place, &joined(&without));
            assert_eq!(walked.findings.worst(), Some(Class::Observation));
            assert!(walked.findings.count(Code::OpeningWithheld) > 0);
        } else {
            invalid(&format!("without line {at}"), &without);
        }
    }
    for pair in groups(&all).windows(2) {
        let (one, two) = (pair[0].0.clone(), pair[1].0.clone());
        let moved = [
            &all[..one.start],
            &all[two.clone()],
            &all[one],
            &all[two.end..],
        ]
        .concat();
        let walked = of_bytes(&place, &joined(&moved));
        assert!(walked.findings.count(Code::ChainSequenceGap) > 0);
    }
}

#[test]
fn what_no_reader_can_do_without_is_missed() {
    let place = Place::new(60, 8);
    let all = lines(&place.bundle(Selection::Last(2)));
    for (range, record) in groups(&all) {
        let mut without = all.clone();
        without.drain(range);
        let walked = of_bytes(&place, &counted(without));
        let found = codes(&walked);
        let expected = match &record.body {
            Body::Genesis(_) => "genesis-missing",
            // The last one is missed by the checkpoint, which its key signed.
            Body::Key(_) if found.contains("checkpoint-invalid") => "checkpoint-invalid",
            Body::Key(_) => "key-unknown",
            // What refers to it is missed by the rules, which read what records mean.
            _ => continue,
        };
        assert!(found.contains(expected), "{}: {found:?}", record.sequence);
        assert_eq!(walked.findings.worst(), Some(Class::Invalid));
    }
}

#[test]
fn records_of_another_ledger_do_not_fit_in() {
    let (place, other) = (Place::new(60, 9), Place::new(60, 10));
    let own = lines(&place.bundle(Selection::Last(2)));
    let theirs = lines(&other.bundle(Selection::Last(2)));
    let (own_groups, their_groups) = (groups(&own), groups(&theirs));
    for ((range, _), (their_range, _)) in own_groups.iter().zip(&their_groups) {
        let mut spliced = own.clone();
        spliced.splice(range.clone(), theirs[their_range.clone()].to_vec());
        let walked = of_bytes(&place, &joined(&spliced));
        let found = codes(&walked);
        assert!(found.contains("chain-previous-mismatch"), "{found:?}");
    }
    // With the other's checkpoint, too.
    let mut spliced = own;
    spliced[1] = theirs[1].clone();
    let found = of_bytes(&place, &joined(&spliced));
    assert!(found.findings.count(Code::CheckpointInvalid) > 0);
}

#[test]
fn the_ledgers_own_key_cannot_put_another_record_in_its_place() {
    let place = Place::new(20, 11);
    let mut all = lines(&place.bundle(Selection::Last(1)));
    let (range, mut record) = groups(&all).pop().unwrap();
    let Body::Execution(execution) = &mut record.body else {
        panic!("the last record is {}", record.body.kind());
    };
    execution.result.exit_code = Some(0);
    execution.result.duration_us = Some(7.into());
    all[range.end - 1] = record.to_signed_line(&place.key()).unwrap();
    let walked = of_bytes(&place, &joined(&all));
    assert_eq!(walked.findings.count(Code::SignatureInvalid), 0);
    assert_eq!(walked.findings.count(Code::ChainPreviousMismatch), 1);
    assert_eq!(walked.tally.verified, walked.tally.records - 1);
}

#[test]
fn a_proof_for_another_index_is_none() {
    let place = Place::new(60, 12);
    let all = lines(&place.bundle(Selection::Last(3)));
    let groups = groups(&all);
    let number = |line: &[u8], from: u64, to: u64| -> Vec<u8> {
        let text = String::from_utf8(line.to_vec()).unwrap();
        let (from, to) = (format!("\"index\":{from},"), format!("\"index\":{to},"));
        text.replacen(&from, &to, 1).into_bytes()
    };
    for pair in groups.windows(2) {
        let (one, other) = (&pair[0], &pair[1]);
        let (n, m) = (one.1.sequence.value(), other.1.sequence.value());
        // Its number as it stands there, and as it should stand.
        for proof in [
            all[other.0.start].clone(),
            number(&all[other.0.start], m, n),
        ] {
            let mut changed = all.clone();
            changed[one.0.start] = proof;
            let walked = of_bytes(&place, &joined(&changed));
            assert_eq!(
                walked.findings.count(Code::ChainPreviousMismatch),
                1,
                "{n} {m}"
            );
        }
    }
}

#[test]
fn a_file_that_lies_is_said_and_not_there() {
    let place = Place::new(8, 13);
    // A policy of several pieces.
    let long: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let policy = runs_policy(&place);
    fs::write(place.dir().join(blob_name(&policy)), &long).unwrap();
    let error = write(&place.dir(), Selection::Last(1), &[], &place.file()).unwrap_err();
    assert!(matches!(error, WriteBundleError::Content(_)), "{error:?}");
    assert!(!place.file().exists());
    let names: Vec<_> = fs::read_dir(place.at.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "nothing half-written is left: {names:?}");

    let place = Place::new(8, 13);
    let all = lines(&place.bundle(Selection::Last(1)));
    let at = all.iter().position(|line| is(line, r#"{"at":"#)).unwrap();
    let piece: serde_json::Value = serde_json::from_slice(&all[at]).unwrap();
    let text = piece["bytes"].as_str().unwrap();
    let other_letter = if text.starts_with('e') { "f" } else { "e" };
    let changes: [(&str, serde_json::Value); 6] = [
        ("bytes", format!("{other_letter}{}", &text[1..]).into()),
        ("bytes", text[..text.len() - 4].into()),
        ("bytes", format!("{}*", &text[1..]).into()),
        ("size", (piece["size"].as_u64().unwrap() + 1).into()),
        ("at", 1.into()),
        ("blob", Hash::of(b"another").to_string().into()),
    ];
    for (field, value) in changes {
        let mut changed = piece.clone();
        changed[field] = value;
        let mut lines = all.clone();
        lines[at] = serde_json::to_vec(&changed).unwrap();
        let path = place.at.path().join("changed");
        fs::write(&path, joined(&lines)).unwrap();
        let mut source = Source::open(&path).unwrap();
        let state = source.attachments.blob(&policy, None, 1 << 20).unwrap();
        assert_eq!(state, BlobState::Missing, "{field}");
        let walked = walk(&mut source, None, &mut ()).unwrap();
        assert!(walked.findings.count(Code::BlobMismatch) > 0, "{field}");
    }
    let mut source = Source::open(&place.file()).unwrap();
    let state = source.attachments.blob(&policy, None, 1 << 20).unwrap();
    let content = fs::read(place.dir().join(blob_name(&policy))).unwrap();
    let size = content.len() as u64;
    assert_eq!(
        state,
        BlobState::Good {
            size,
            content: Some(content)
        }
    );
    is_good(walk(&mut source, None, &mut ()).unwrap());
}

fn runs_policy(place: &Place) -> Hash {
    let bundle = place.bundle(Selection::Last(1));
    fs::remove_file(place.file()).unwrap();
    let policy = groups(&lines(&bundle))
        .iter()
        .find_map(|(_, record)| match &record.body {
            Body::Start(start) => Some(start.policy.sha256),
            _ => None,
        });
    policy.unwrap()
}

#[test]
fn a_file_of_many_pieces_comes_back() {
    let place = Place::new(8, 14);
    let mut store = reopen(place.at.path());
    let long: Vec<u8> = (0..60_000u32).flat_map(u32::to_le_bytes).collect();
    let hash = store.put_blob(&long).unwrap();
    let output = ledger::facts::execution::Output {
        base64: None,
        blob: Some(hash),
        bytes: ledger::bytes::canon::U53::saturating(long.len() as u64),
        kept: ledger::bytes::canon::U53::saturating(long.len() as u64),
        sha256: hash,
        text: None,
    };
    let bundle = place.bundle(Selection::Last(1));
    let groups = groups(&lines(&bundle));
    let Some(Body::Start(start)) = groups.iter().rev().map(|(_, it)| &it.body).nth(1) else {
        panic!("no start");
    };
    let mut start = start.clone();
    start.run = RunId::from_bytes([9; 16]);
    start.workload.argv =
        ledger::facts::list::Sealable::Clear(ledger::facts::list::List::Inline(vec![
            "w".to_owned(),
        ]));
    let Some(Body::Execution(execution)) = groups.last().map(|(_, it)| &it.body) else {
        panic!("no execution");
    };
    let mut execution = execution.clone();
    let deferred = ledger::file::store::Durability::Deferred;
    let lock = store.begin_run(start.run).unwrap();
    let appended = store
        .append(Body::Start(start), None, &stamp(), deferred)
        .unwrap();
    execution.start = appended.sequence;
    execution.result.stdout = Some(ledger::facts::list::Sealable::Clear(output));
    let durable = ledger::file::store::Durability::Durable;
    store
        .append(Body::Execution(execution), None, &stamp(), durable)
        .unwrap();
    drop(lock);
    let written = place.write(Selection::Last(1), &[Value::Stdout, Value::Argv]);
    assert_eq!((written.files, written.clear), (2, 2));
    let source = Source::open(&place.file()).unwrap();
    let mut content = Vec::new();
    let reader = source.attachments.blob_reader(&hash).unwrap();
    reader.unwrap().read_to_end(&mut content).unwrap();
    assert_eq!(content, long);
    is_good(of_file(&place.file()));
}

#[test]
fn a_recovery_goes_with_what_it_set_aside() {
    let place = Place::new(20, 20);
    let mut store = reopen(place.at.path());
    // So that the record before the recovery is not shown.
    note(&mut store, "left out");
    drop(store);
    let segment = place.dir().join("records/00000000.jsonl");
    let mut bytes = fs::read(&segment).unwrap();
    bytes.extend(br#"{"key":"half a line"#);
    fs::write(&segment, bytes).unwrap();
    reopen(place.at.path()).sync_checkpoint(&stamp()).unwrap();
    // As it is read from the cache, and from the records where that is gone.
    for again in [false, true] {
        if again {
            fs::remove_file(place.dir().join("tip")).unwrap();
            reopen(place.at.path()).sync_checkpoint(&stamp()).unwrap();
        }
        let written = place.write(Selection::Last(1), &[]);
        assert_eq!(
            (written.files, written.size - written.records > 1),
            (2, true)
        );
        let walked = of_file(&place.file());
        assert_eq!(walked.findings.count(Code::Recovered), 1);
        assert_eq!(walked.tally.recoveries_not_checked, 0);
        is_good(walked);
    }
    let all = lines(&fs::read(place.file()).unwrap());
    let torn = Hash::of(br#"{"key":"half a line"#).to_string();
    let at = all
        .iter()
        .position(|line| is(line, r#"{"at":"#) && String::from_utf8_lossy(line).contains(&torn));
    let mut without = all.clone();
    without.remove(at.unwrap());
    let walked = of_bytes(&place, &counted(without));
    assert_eq!(walked.findings.count(Code::RecoveryUnexplained), 1);
}

#[test]
fn garbage_is_read_in_flat_memory_and_refused() {
    let place = Place::new(8, 15);
    let all = lines(&place.bundle(Selection::Last(1)));
    let good = all[0].clone();
    let head = || Cursor::new([good.clone(), b"\n".to_vec()].concat());
    let stream = |reader: Box<dyn Read + Send>| {
        let mut source = Source::from_reader("-", reader);
        walk(&mut source, None, &mut ()).unwrap()
    };
    // A line of 100 MB, long ones of each kind, deep JSON, and lines of nothing.
    for (at, begin) in [
        "",
        r#"{"checkpoint":""#,
        r#"{"at":0,"blob":""#,
        r#"{"index":1,"proof":["#,
        r#"{"open":{""#,
    ]
    .into_iter()
    .enumerate()
    {
        let length = if at == 0 { 100 << 20 } else { 1 << 20 };
        let long = Cursor::new(begin.to_owned()).chain(std::io::repeat(b'a').take(length));
        let walked = stream(Box::new(head().chain(long)));
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "{begin}");
    }
    for begin in [
        r#"{"checkpoint":"#,
        r#"{"at":"#,
        r#"{"index":0,"proof":"#,
        r#"{"key":"#,
    ] {
        let deep = [begin.as_bytes(), &[b'['; 60_000], b"\n"].concat();
        let walked = stream(Box::new(head().chain(Cursor::new(deep))));
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "{begin}");
    }
    let nothing = std::io::repeat(b'\n').take(1 << 17);
    let walked = stream(Box::new(head().chain(nothing)));
    assert!(walked.findings.count(Code::RecordMalformed) > 100_000);
    assert!(walked.findings.into_list().len() < 5_000);
    let deep_header = [b"{\"bundle\":".as_slice(), &[b'['; 1 << 20]].concat();
    assert_eq!(
        stream(Box::new(Cursor::new(deep_header))).findings.worst(),
        Some(Class::Invalid)
    );
}

#[test]
fn a_newer_format_is_not_read() {
    let place = Place::new(8, 16);
    let mut all = lines(&place.bundle(Selection::All));
    let header = String::from_utf8(all[0].clone()).unwrap();
    all[0] = header.replace("/v1", "/v2").into_bytes();
    let walked = of_bytes(&place, &joined(&all));
    assert_eq!(codes(&walked), ["record-version-unknown"].into());
    assert_eq!(walked.tally.records, 0);
}

#[test]
fn caches_that_are_wrong_or_missing_make_no_bundle() {
    let place = Place::new(20, 17);
    let old = place.bundle(Selection::Last(1));
    let tree = place.dir().join("tree");
    let hashes = fs::read(&tree).unwrap();
    let mut changed = hashes.clone();
    // The hash of the first leaf: no part of the root's own, but of proofs.
    changed[0] ^= 1;
    fs::write(&tree, &changed).unwrap();
    let error = write(&place.dir(), Selection::All, &[], &place.file()).unwrap_err();
    assert!(matches!(error, WriteBundleError::Unproven(_)), "{error:?}");
    assert_eq!(
        fs::read(place.file()).unwrap(),
        old,
        "what had the name stays"
    );
    assert_eq!(fs::read_dir(place.at.path()).unwrap().count(), 3);
    fs::write(&tree, &hashes[..64]).unwrap();
    let error = write(&place.dir(), Selection::All, &[], &place.file()).unwrap_err();
    assert!(matches!(error, WriteBundleError::Covered(_)), "{error:?}");
    reopen(place.at.path()).sync_checkpoint(&stamp()).unwrap();
    assert_eq!(
        place.bundle(Selection::Last(1)),
        old,
        "and whoever opens the ledger makes them anew"
    );
}

#[test]
fn no_key_is_needed() {
    let place = Place::new(20, 18);
    let expected = place.bundle(Selection::Last(1));
    fs::remove_dir_all(place.at.path().join("keys")).unwrap();
    assert_eq!(place.bundle(Selection::Last(1)), expected);
}

#[test]
fn what_is_not_there_is_said() {
    let place = Place::new(20, 19);
    let nothing = |selection| match write(&place.dir(), selection, &[], &place.file()) {
        Err(WriteBundleError::Gather(error)) => error,
        other => panic!("{other:?}"),
    };
    let run = RunId::from_bytes([0; 16]);
    assert!(matches!(
        nothing(Selection::Run(run)),
        GatherError::NoSuchRun(_)
    ));
    assert!(matches!(
        nothing(Selection::Matrix),
        GatherError::Nothing("matrix")
    ));
    let inside = place.dir().join("bundle");
    let error = write(&place.dir(), Selection::All, &[], &inside).unwrap_err();
    assert!(
        matches!(error, WriteBundleError::InTheLedger(_)),
        "{error:?}"
    );
    let error = write(&place.dir(), Selection::All, &[], place.at.path()).unwrap_err();
    assert!(matches!(error, WriteBundleError::NotAFile(_)), "{error:?}");
    let policy = runs_policy(&place);
    fs::remove_file(place.dir().join(blob_name(&policy))).unwrap();
    assert_eq!(place.write(Selection::All, &[]).missing, [policy]);
}
