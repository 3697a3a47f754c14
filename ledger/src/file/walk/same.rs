//! The result of a walk is the same for any number of threads and any size of batches.

use std::fs;
use std::io::{self, Cursor};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::tests::{Maker, key};
use super::*;
use crate::bytes::key::Signer as _;

/// Everything that a walk says, a visitor's view included.
fn told(
    size: BatchSize,
    threads: usize,
    source: &mut Source,
    given: Option<&[u8]>,
) -> Result<String, String> {
    #[derive(Default)]
    struct Seen(String);

    impl Visitor for Seen {
        fn verified(
            &mut self,
            shown: &Shown<'_>,
            findings: &mut Findings,
        ) -> Result<(), ReadError> {
            // What a rule finds stands between what the walk finds.
            findings.push(shown.finding(Code::ControlNotApplied, "seen"));
            self.0 += &format!("{shown:?}\n");
            Ok(())
        }

        fn unverified(&mut self, sequence: u64) {
            self.0 += &format!("unverified {sequence}\n");
        }
    }

    let given = given.map(|bytes| Given {
        name: "given",
        bytes,
    });
    let mut seen = Seen::default();
    let threads = NonZeroUsize::new(threads).unwrap();
    match walk_by(size, threads, source, given, &mut seen) {
        Ok(walked) => {
            let lists = (walked.chain, walked.root, walked.completeness, walked.tally);
            let findings = walked.findings.into_list();
            Ok(format!("{}{lists:?}\n{findings:#?}", seen.0))
        }
        Err(error) => Err(format!("{}{error:?}", seen.0)),
    }
}

/// Holds every way of walking against the one line after another.
fn all_the_same(
    name: &str,
    source: &dyn Fn() -> Source,
    given: Option<&[u8]>,
) -> Result<String, String> {
    let expected = told(BatchSize::USUAL, 1, &mut source(), given);
    for lines in [1, 2, 3, 7, 64] {
        let bytes = 1 << 20;
        for threads in [1, 2, 3, 8] {
            let size = BatchSize { lines, bytes };
            let found = told(size, threads, &mut source(), given);
            assert!(
                found == expected,
                "{name}: {threads} threads, batches of {lines} lines: {found:#?}, expected {expected:#?}"
            );
        }
    }
    expected
}

fn of_bytes(bytes: &[u8]) -> Source {
    Source::from_reader("-", Box::new(Cursor::new(bytes.to_vec())))
}

fn vectors() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger");
    let entries = fs::read_dir(all).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn over_every_vector() {
    let mut seen = 0;
    for vector in vectors() {
        let given = fs::read(vector.join("given-checkpoint")).ok();
        let open = || Source::open(&vector.join("ledger")).unwrap();
        let told = all_the_same(&vector.display().to_string(), &open, given.as_deref());
        assert!(told.is_ok(), "{told:?}");
        seen += 1;
    }
    assert!(seen >= 55, "only {seen} vectors found");
}

/// A ledger whose key changes every few records, by rotation and once by the standby key.
fn rotated() -> Maker {
    let standby = key(200);
    let mut maker = Maker::with_standby(Some(standby.public().id()));
    for n in 0..60 {
        maker.note(&format!("note {n}"));
        if n % 7 == 3 {
            maker.rotate(key(10 + n));
        }
        if n == 40 {
            maker.take_over(key(200));
        }
    }
    maker
}

#[test]
fn over_rotations_within_a_batch() {
    let bytes = rotated().bytes();
    let told = all_the_same("rotated", &|| of_bytes(&bytes), None).unwrap();
    assert!(told.contains("verified: 71"), "{told}");
    assert!(!told.contains("SignatureInvalid") && !told.contains("KeyUnknown"));
}

#[test]
fn over_records_signed_by_a_key_that_is_not_active_any_more() {
    let mut maker = Maker::new();
    (0..5).for_each(|_| maker.note("before"));
    maker.rotate(key(2));
    maker.note("by the new key");
    let new = std::mem::replace(&mut maker.key, key(1));
    (0..5).for_each(|_| maker.note("by the old key"));
    maker.key = new;
    maker.note("by the new key");
    let bytes = maker.bytes();
    let told = all_the_same("old key", &|| of_bytes(&bytes), None).unwrap();
    assert!(
        told.contains("KeyUnknown") && told.contains("count: 5"),
        "{told}"
    );
}

#[test]
fn over_changed_deleted_and_repeated_lines() {
    let good = rotated().lines;
    for at in 0..good.len() {
        let mut lines = good.clone();
        match at % 4 {
            0 => {
                let byte = (at * 31) % lines[at].len();
                lines[at][byte] ^= 1;
            }
            1 => drop(lines.remove(at)),
            2 => lines.insert(at, good[(at * 7) % good.len()].clone()),
            _ => lines[at] = vec![b'x'; 70_000],
        }
        let bytes = lines.join(&b'\n');
        let told = all_the_same(&format!("line {at}"), &|| of_bytes(&bytes), None);
        assert!(told.is_ok());
    }
}

#[test]
fn over_more_findings_than_are_kept() {
    let mut maker = Maker::new();
    for n in 0..1_100 {
        maker.note(&format!("note {n}"));
    }
    // Every note's text differs from what was signed, and every third line is none.
    let text = String::from_utf8(maker.bytes()).unwrap();
    let text = text.replace("\"note ", "\"nope ");
    let lines: Vec<_> = text.lines().collect();
    let bytes = lines
        .chunks(3)
        .flat_map(|lines| [lines, &["x"]].concat())
        .collect::<Vec<_>>()
        .join("\n");
    let expected = told(BatchSize::USUAL, 1, &mut of_bytes(bytes.as_bytes()), None).unwrap();
    assert!(expected.contains("100 more of this code"), "{expected}");
    for (lines, threads) in [(1, 2), (5, 3), (100, 8), (128, 2)] {
        let bytes_each = 1 << 20;
        let size = BatchSize {
            lines,
            bytes: bytes_each,
        };
        let found = told(size, threads, &mut of_bytes(bytes.as_bytes()), None).unwrap();
        assert!(found == expected, "{threads} threads, {lines} lines");
    }
}

/// Fails where its bytes end.
struct Broken(Cursor<Vec<u8>>);

impl io::Read for Broken {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::from_raw_os_error(5)),
            read => Ok(read),
        }
    }
}

#[test]
fn over_a_source_that_cannot_be_read_on() {
    let bytes = rotated().bytes();
    for keep in [0, 1, bytes.len() / 2, bytes.len() - 1, bytes.len()] {
        let kept = bytes.get(..keep).unwrap().to_vec();
        let open = || Source::from_reader("-", Box::new(Broken(Cursor::new(kept.clone()))));
        let told = all_the_same("broken", &open, None).unwrap_err();
        assert!(told.contains("code: 5"), "{told}");
        let seen = told.matches("Shown").count();
        let whole = kept.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(seen, whole, "all lines before the error are taken");
    }
}

#[test]
fn what_the_visitor_cannot_read_ends_the_walk_at_its_record() {
    struct Stops(u64);

    impl Visitor for Stops {
        fn verified(&mut self, shown: &Shown<'_>, _: &mut Findings) -> Result<(), ReadError> {
            self.0 += 1;
            match shown.record.sequence.value() {
                30 => Err(ReadError {
                    operation: "read",
                    path: "blob".into(),
                    source: io::Error::from_raw_os_error(5),
                }),
                _ => Ok(()),
            }
        }

        fn unverified(&mut self, _: u64) {}
    }

    let bytes = rotated().bytes();
    for threads in [1, 2, 8] {
        let threads = NonZeroUsize::new(threads).unwrap();
        let size = BatchSize {
            lines: 3,
            bytes: 1 << 20,
        };
        let mut visitor = Stops(0);
        let result = walk_by(size, threads, &mut of_bytes(&bytes), None, &mut visitor);
        assert_eq!(result.unwrap_err().path, Path::new("blob"));
        assert_eq!(visitor.0, 31);
    }
}
