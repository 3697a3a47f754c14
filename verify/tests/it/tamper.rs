//! Every file of a ledger that is evidence counts, with every byte; what is changed is named.
//!
//! The vectors have one of each: openings, blobs, set-aside bytes, checkpoints, rotations, a close. What is done to the
//! lines of ledgers of real executions is among the tests of `runner`, which can make them.

use std::fs;
use std::path::{Path, PathBuf};

use ledger::file::source::Source;
use ledger::finding::{Class, Code, Finding};
use verify::rules::{Demands, Verification, verify};

use crate::support::vectors;

/// Vectors that verify, whose every byte counts.
const WHOLE: [&str; 7] = [
    "closed",
    "key_rotated",
    "opening_valid",
    "recovery_of_torn_line",
    "standby_recovery",
    "valid",
    "valid_with_checkpoint",
];

/// A copy of a vector's ledger, and the names of its files.
struct Copy {
    at: tempfile::TempDir,
    files: Vec<PathBuf>,
}

impl Copy {
    fn of(vector: &str) -> Self {
        let from = vectors().join(vector).join("ledger");
        let mut copy = Self {
            at: tempfile::tempdir().unwrap(),
            files: vec![],
        };
        copy.gather(&from, Path::new(""));
        copy.files.sort();
        copy
    }

    fn gather(&mut self, from: &Path, below: &Path) {
        fs::create_dir_all(self.at.path().join(below)).unwrap();
        for entry in fs::read_dir(from.join(below)).unwrap() {
            let name = below.join(entry.unwrap().file_name());
            if from.join(&name).is_dir() {
                self.gather(from, &name);
            } else {
                fs::copy(from.join(&name), self.at.path().join(&name)).unwrap();
                self.files.push(name);
            }
        }
    }

    fn verified(&self) -> Verification {
        let mut source = Source::open(self.at.path()).unwrap();
        verify(&mut source, Demands::default()).unwrap()
    }
}

fn names(findings: &[Finding], file: &str, any_of: &[Code]) -> bool {
    findings.iter().any(|finding| {
        let here = finding.place.as_ref().map(|place| place.file.as_str());
        any_of.contains(&finding.code) && (here == Some(file) || finding.code == Code::BlobMismatch)
    })
}

/// What a changed byte of a file may be called; the first that applies to a line stands for the rest.
fn codes_of(file: &str) -> &'static [Code] {
    match file.split('/').next() {
        Some("records") => &[
            Code::RecordNotCanonical,
            Code::RecordMalformed,
            Code::SignatureInvalid,
            Code::KeyUnknown,
            Code::OpeningMismatch,
        ],
        Some("blobs") => &[Code::BlobMismatch],
        Some("torn") => &[Code::RecoveryUnexplained],
        Some("checkpoint") => &[Code::CheckpointInvalid],
        other => panic!("what is {other:?} in a ledger?"),
    }
}

#[test]
fn every_byte_of_every_file_counts_and_is_named() {
    let mut kinds = std::collections::BTreeSet::new();
    for vector in WHOLE {
        let copy = Copy::of(vector);
        assert_eq!(copy.verified().exit_code, 0, "{vector}");
        for name in &copy.files {
            let path = copy.at.path().join(name);
            let file = name.to_str().unwrap();
            kinds.insert(file.split('/').next().unwrap().to_owned());
            let good = fs::read(&path).unwrap();
            // Every seventh byte, and the last ones all.
            let (last, ends) = (good.len() - 1, good.len().saturating_sub(4));
            for at in (0..ends).step_by(7).chain(ends..good.len()) {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << (at % 8);
                fs::write(&path, &bytes).unwrap();
                let found = copy.verified();
                let place = format!("{vector}: {file}, byte {at}: {:#?}", found.findings);
                if file.starts_with("records/") && at == last {
                    // The last newline: as a crash leaves it, unless a checkpoint or a close knows better.
                    assert!(matches!(found.exit_code, 10 | 11), "{place}");
                    assert!(names(&found.findings, file, &[Code::TornTail]), "{place}");
                } else {
                    assert_eq!(found.exit_code, 10, "{place}");
                    assert!(names(&found.findings, file, codes_of(file)), "{place}");
                }
                let classes: Vec<Class> = found.findings.iter().map(|it| it.code.class()).collect();
                assert!(classes.is_sorted(), "{place}");
            }
            fs::write(&path, &good).unwrap();
        }
    }
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["blobs", "checkpoint", "records", "torn"]);
}

#[test]
fn a_file_that_is_gone_is_named_where_something_speaks_of_it() {
    for vector in WHOLE {
        let copy = Copy::of(vector);
        for name in &copy.files {
            let path = copy.at.path().join(name);
            let good = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            let found = copy.verified();
            let file = name.to_str().unwrap();
            let (code, named) = match file.split('/').next() {
                Some("blobs") => (11, Some(Code::BlobMissing)),
                Some("torn") => (10, Some(Code::RecoveryUnexplained)),
                // A stored checkpoint is only the ledger's own word.
                Some("checkpoint") => (0, None),
                _ if copy.files.iter().any(|other| other.ends_with("checkpoint")) => {
                    (10, Some(Code::TailTruncated))
                }
                _ => (13, None),
            };
            let shown = format!("{vector}: {file}: {:#?}", found.findings);
            assert_eq!(found.exit_code, code, "{shown}");
            let says = |code| found.findings.iter().any(|finding| finding.code == code);
            assert!(named.is_none_or(says), "{shown}");
            fs::write(&path, &good).unwrap();
        }
    }
}

#[test]
fn a_checkpoint_kept_elsewhere_counts_with_every_bit() {
    let copy = Copy::of("valid_with_checkpoint");
    let good = fs::read(copy.at.path().join("checkpoint")).unwrap();
    let judged = |bytes: &[u8]| {
        let mut source = Source::open(copy.at.path()).unwrap();
        let given = ledger::file::walk::Given {
            name: "given",
            bytes,
        };
        let demands = Demands {
            checkpoint: Some(given),
            require_checkpoint: true,
            ..Demands::default()
        };
        verify(&mut source, demands).unwrap()
    };
    assert_eq!(judged(&good).exit_code, 0);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at * 5 % 8);
        let found = judged(&bytes);
        let codes = [Code::CheckpointInvalid, Code::LedgerReplaced];
        assert!(
            found.exit_code == 10 && names(&found.findings, "given", &codes),
            "byte {at}: {:#?}",
            found.findings
        );
    }
}
