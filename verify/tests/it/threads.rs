//! The result is the same, byte for byte, for any number of threads.

use std::fs;
use std::io::Cursor;
use std::num::NonZeroUsize;
use std::process::{Command, Output};

use ledger::file::source::Source;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use verify::document::Document;
use verify::rules::{Demands, verify_with};

use crate::made::{self, Shape};
use crate::support::{vectors, verify};

/// Enough for several batches: a batch holds at most 128 lines.
const RECORDS: u64 = 330;
const ROTATING: Shape = Shape {
    rotate_every: Some(23),
};

fn document(lines: &[u8], threads: usize) -> String {
    let mut source = Source::from_reader("-", Box::new(Cursor::new(lines.to_vec())));
    let threads = NonZeroUsize::new(threads).unwrap();
    let result = verify_with(threads, &mut source, Demands::default()).unwrap();
    Document::of(&result).to_json().unwrap()
}

fn all_the_same(lines: &[u8]) -> String {
    let expected = document(lines, 1);
    for threads in [2, 3, 8] {
        assert_eq!(document(lines, threads), expected, "{threads} threads");
    }
    expected
}

fn run(vector: &std::path::Path, format: &str, threads: &str) -> Output {
    let mut command = verify();
    command.arg(vector.join("ledger")).arg("--all");
    command.args(["--format", format, "--threads", threads]);
    let given = vector.join("given-checkpoint");
    if given.exists() {
        command.arg("--checkpoint").arg(given);
    }
    command.output().unwrap()
}

#[test]
fn through_the_binary_over_every_vector() {
    for entry in fs::read_dir(vectors()).unwrap() {
        let vector = entry.unwrap().path();
        for format in ["human", "json"] {
            let one = run(&vector, format, "1");
            assert!(!one.stdout.is_empty() && one.stderr.is_empty());
            assert_eq!(run(&vector, format, "3"), one, "{}", vector.display());
        }
    }
}

#[test]
fn a_long_ledger_with_rotations() {
    let lines = made::lines(RECORDS, 3, ROTATING).unwrap();
    let text = all_the_same(&lines);
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(result["records"], RECORDS);
    // The key changes in most batches, and every record is good.
    assert_eq!(result["exitCode"], 0, "{text}");
    assert!(
        result["assurance"]["identity"]["keys"]
            .as_array()
            .unwrap()
            .len()
            > 5
    );
}

#[test]
fn no_threads_and_too_many() {
    let vector = vectors().join("valid");
    assert_eq!(run(&vector, "json", "0").status.code(), Some(2));
    assert_eq!(run(&vector, "json", "x").status.code(), Some(2));
    assert_eq!(run(&vector, "json", "1000000").status.code(), Some(0));
}

#[test]
fn under_a_limit_of_memory_it_uses_fewer() {
    let at = tempfile::tempdir().unwrap();
    let records = at.path().join("records.jsonl");
    fs::write(&records, made::lines(2_000, 4, Shape::default()).unwrap()).unwrap();
    let run = |command: &mut Command| {
        command
            .args(["--json", "--threads", "64"])
            .output()
            .unwrap()
    };
    let expected = run(verify().arg(&records));
    assert_eq!(expected.status.code(), Some(0));
    // In KiB: for this thread alone, and for some others.
    for limit in ["40000", "100000", "200000", "400000"] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v \"$0\" && exec \"$@\"", limit]);
        let found = run(command.arg(verify().get_program()).arg(&records));
        assert_eq!(found, expected, "ulimit -v {limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 8,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_ledger_that_was_tampered_with(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>()), 1..12),
    ) {
        let made = made::lines(RECORDS, 5, ROTATING).unwrap();
        let mut lines: Vec<Vec<u8>> = made.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.pop();
        for (at, kind, value) in changes {
            let at = at.index(lines.len());
            match kind {
                0 => {
                    let byte = usize::from(value) * 7 % lines[at].len();
                    lines[at][byte] ^= 1 << (value % 8);
                }
                1 => drop(lines.remove(at)),
                2 => {
                    let other = lines[(at + usize::from(value)) % lines.len()].clone();
                    lines.insert(at, other);
                }
                _ => {
                    let other = (at + usize::from(value)) % lines.len();
                    lines.swap(at, other);
                }
            }
        }
        all_the_same(&lines.join(&b'\n'));
    }
}
