//! A writer killed at every call to the disk while it passes the border of a segment.
//!
//! The writer is this test program again. It says each record that was acknowledged; whoever opens the ledger next goes
//! on behind all of those.

use std::path::{Path, PathBuf};
use std::process::Command;

use ledger::bytes::hash::Hash;
use ledger::file::store::{Durability, SEGMENT_RECORDS, segment_name};
use ledger::finding::Code;
use ledger::record::{Content, parse_line};

use crate::support::{append, note, open, walked};

/// Names the folder for [`a_writer`].
const VARIABLE: &str = "LEDGER_TEST_WRITER";
/// Calls to the disk, in the words of the ledger.
const CALLS: [&str; 7] = [
    "before lock",
    "before create",
    "before write",
    "during write",
    "before sync",
    "before sync the folder",
    "before rename",
];

/// Not a test of its own: appends the last record of a segment and the first of the next, and says each.
#[test]
fn a_writer() {
    let Some(at) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return;
    };
    let mut store = open(&at);
    for _ in 0..2 {
        let appended = note(&mut store, "of the writer");
        println!("acknowledged {} {}", appended.sequence, appended.hash);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to);
        } else {
            // With its mode: a key is its owner's alone.
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

/// The records from `first` on: numbers, names, and whether each links to the one before.
fn records_from(at: &Path, first: u64) -> Vec<(u64, Hash)> {
    let mut records: Vec<(u64, Hash)> = Vec::new();
    for index in 0..2 {
        let path = at.join("ledger/records").join(segment_name(index));
        let bytes = std::fs::read(path).unwrap_or_default();
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let skipped = if index == 0 {
            usize::try_from(first).unwrap()
        } else {
            0
        };
        for line in lines.iter().skip(skipped) {
            let parsed = parse_line(line.strip_suffix(b"\n").expect("half a line"));
            let Ok(Content::Record(record)) = parsed.content else {
                panic!("no record");
            };
            if let Some((sequence, hash)) = records.last() {
                assert_eq!(
                    (record.sequence.value(), record.previous),
                    (sequence + 1, *hash)
                );
            }
            records.push((record.sequence.value(), parsed.hash));
        }
    }
    records
}

#[test]
fn a_writer_may_die_at_the_border_of_a_segment() {
    use std::os::unix::process::ExitStatusExt as _;
    let place = tempfile::tempdir().unwrap();
    let (made, at) = (place.path().join("made"), place.path().join("at"));
    std::fs::create_dir(&made).unwrap();
    let mut store = open(&made);
    while store.size() < SEGMENT_RECORDS - 2 {
        append(&mut store, "before", Durability::Deferred);
    }
    note(&mut store, "the last before");
    let before = store.size() - 1;
    drop(store);
    // While the original is where it was, no copy is written to.
    let kept = place.path().join("kept");
    std::fs::rename(&made, &kept).unwrap();
    let mut kills = 0;
    for point in CALLS {
        for number in 1.. {
            let context = format!("{point} #{number}");
            let _ = std::fs::remove_dir_all(&at);
            copy(&kept, &at);
            let output = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "kills::a_writer",
                    "--nocapture",
                    "--test-threads=1",
                ])
                .env(VARIABLE, &at)
                .env("RUNNER_KILL", format!("{point}=KILL#{number}"))
                .output()
                .unwrap();
            let killed = output.status.signal() == Some(9);
            assert!(killed || output.status.success(), "{context}: {output:#?}");
            let text = String::from_utf8(output.stdout).unwrap();
            let acknowledged: Vec<(u64, Hash)> = text
                .lines()
                .filter_map(|line| line.split_once("acknowledged ")?.1.split_once(' '))
                .map(|(sequence, hash)| (sequence.parse().unwrap(), hash.parse().unwrap()))
                .collect();
            let mut store = open(&at);
            note(&mut store, "next");
            let size = store.size();
            drop(store);
            let records = records_from(&at, before);
            assert_eq!(records[0].0, before, "{context}");
            assert_eq!(records.last().unwrap().0, size - 1, "{context}");
            for known in acknowledged {
                assert!(records.contains(&known), "{context}: {known:?}");
            }
            if killed {
                kills += 1;
                continue;
            }
            // A point that is never passed would test nothing.
            assert!(number > 1, "{point}: never passed");
            break;
        }
        // The last of each, whole.
        let findings = walked(&at.join("ledger")).findings.into_list();
        assert!(
            findings
                .iter()
                .all(|finding| finding.code == Code::Recovered),
            "{findings:#?}"
        );
    }
    println!("{kills} killed");
    assert!(kills > 30, "{kills}");
}
