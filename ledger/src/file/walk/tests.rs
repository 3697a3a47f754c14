use std::fs;
use std::io::Cursor;

use super::*;
use crate::bytes::canon::U53;
use crate::bytes::key::{Base64, KeyId, LocalKey, Signer};
use crate::bytes::time::{Clock, Stamp};
use crate::finding::Class;
use crate::proof::checkpoint::Checkpoint;
use crate::record::{
    Close, Custody, ExpectedTree, Genesis, KeyChange, KeyChangeReason, Note, Recovery,
    RecoveryCause, Tool,
};

pub(super) fn key(first: u8) -> LocalKey {
    LocalKey::from_seed(&[first; 32]).unwrap()
}

/// A chain that is signed as a runner would, and its tree.
pub(super) struct Maker {
    pub(super) key: LocalKey,
    pub(super) lines: Vec<Vec<u8>>,
    previous: Hash,
    tree: Frontier,
}

impl Maker {
    pub(super) fn new() -> Self {
        Self::with_standby(None)
    }

    pub(super) fn with_standby(standby: Option<KeyId>) -> Self {
        let mut maker = Self {
            key: key(1),
            lines: Vec::new(),
            previous: Hash::ZERO,
            tree: Frontier::new(),
        };
        let public_key = Base64(maker.key.public().to_bytes());
        maker.push(Body::Genesis(Genesis {
            custody: Custody::File,
            origin: "example.com/walk".parse().unwrap(),
            public_key,
            standby,
            tool: Tool {
                name: "tests".to_owned(),
                version: "1".to_owned(),
            },
        }));
        maker
    }

    fn record(&self, body: Body) -> Vec<u8> {
        let stamp = Stamp {
            time: "2026-11-29T21:22:00.123456Z".parse().unwrap(),
            clock: Clock {
                boot_id: "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f".parse().unwrap(),
                since_boot_us: U53::ZERO,
            },
        };
        let sequence = U53::new(self.tree.size()).unwrap();
        let record = Record::new(body, stamp, Hash::of(b"walk"), sequence, self.previous);
        record.to_signed_line(&self.key).unwrap()
    }

    fn push(&mut self, body: Body) {
        let line = self.record(body);
        self.previous = Hash::leaf(&line);
        self.tree.push(self.previous);
        self.lines.push(line);
    }

    pub(super) fn note(&mut self, text: &str) {
        let text = text.to_owned();
        self.push(Body::Note(Note { text }));
    }

    pub(super) fn rotate(&mut self, to: LocalKey) {
        let sequence = self.tree.size();
        let id = to.public().id();
        let possession = to
            .sign(crate::bytes::key::Message::Possession {
                ledger: &Hash::of(b"walk"),
                sequence,
                previous: &self.previous,
                key: &id,
            })
            .unwrap();
        self.push(Body::Key(KeyChange {
            custody: Custody::File,
            possession: Some(possession),
            public_key: Base64(to.public().to_bytes()),
            reason: KeyChangeReason::Routine,
            standby: None,
        }));
        self.key = to;
    }

    /// The standby key signs from here on.
    pub(super) fn take_over(&mut self, standby: LocalKey) {
        self.key = standby;
        let public_key = Base64(self.key.public().to_bytes());
        self.push(Body::Key(KeyChange {
            custody: Custody::File,
            possession: None,
            public_key,
            reason: KeyChangeReason::Loss,
            standby: None,
        }));
    }

    fn checkpoint(&self) -> String {
        let checkpoint = Checkpoint {
            origin: "example.com/walk".to_owned(),
            size: self.tree.size(),
            root: self.tree.root(),
        };
        checkpoint.sign(&self.key).unwrap().to_string()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.lines.join(&b'\n');
        bytes.push(b'\n');
        bytes
    }

    fn walk(&self) -> Walked {
        walked(self.bytes(), None)
    }
}

fn walked(bytes: Vec<u8>, given: Option<&str>) -> Walked {
    let mut source = Source::from_reader("-", Box::new(Cursor::new(bytes)));
    let given = given.map(|note| Given {
        name: "given",
        bytes: note.as_bytes(),
    });
    walk(&mut source, given, &mut ()).unwrap()
}

/// Codes above an observation.
fn codes(walked: Walked) -> Vec<Code> {
    let list = walked.findings.into_list().into_iter();
    list.map(|finding| finding.code)
        .filter(|code| code.class() != Class::Observation)
        .collect()
}

#[test]
fn a_refused_genesis_gives_no_key() {
    let mut maker = Maker::new();
    maker.note("a");
    maker.note("b");
    let mut bytes = maker.bytes();
    // The last character of the signature's text that carries whole bits.
    let at = maker.lines[0].len() - 10;
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    let walked = walked(bytes, None);
    assert_eq!(walked.chain.keys(), []);
    assert_eq!(walked.chain.ledger(), None);
    let list = walked.findings.into_list();
    let unknown: Vec<_> = list
        .iter()
        .filter(|finding| finding.code == Code::KeyUnknown)
        .collect();
    assert_eq!((unknown.len(), unknown[0].count), (1, 2));
}

#[test]
fn an_old_checkpoint_holds_after_a_rotation_and_only_by_the_key_of_its_size() {
    let mut maker = Maker::new();
    maker.note("a");
    let before = maker.checkpoint();
    let old = key(1);
    maker.rotate(key(2));
    let after = maker.checkpoint();
    maker.note("b");
    let bytes = maker.bytes();
    for (note, through) in [(&before, 1), (&after, 2)] {
        let walked = walked(bytes.clone(), Some(note));
        assert_eq!(walked.completeness.through, Some(through));
        assert_eq!(codes(walked), []);
    }
    // The old key, after it was replaced.
    let late = Maker {
        key: old,
        lines: vec![],
        previous: Hash::ZERO,
        tree: maker.tree.clone(),
    };
    assert_eq!(
        codes(walked(bytes, Some(&late.checkpoint()))),
        [Code::CheckpointInvalid]
    );
}

#[test]
fn two_histories_by_one_key_are_a_fork() {
    let mut one = Maker::new();
    one.note("a");
    let mut other = Maker::new();
    other.note("b");
    let walked = walked(one.bytes(), Some(&other.checkpoint()));
    assert_eq!(walked.completeness.status, Assured::Broken);
    assert_eq!(codes(walked), [Code::CheckpointFork]);
}

#[test]
fn a_given_checkpoint_is_truncated_replaced_or_invalid() {
    let mut maker = Maker::new();
    maker.note("a");
    let bytes = maker.bytes();
    maker.note("b");
    let longer = maker.checkpoint();
    assert_eq!(
        codes(walked(bytes.clone(), Some(&longer))),
        [Code::TailTruncated]
    );
    assert_eq!(codes(walked(vec![], Some(&longer))), [Code::TailTruncated]);
    maker.key = key(9);
    let stranger = maker.checkpoint();
    let replaced = walked(bytes.clone(), Some(&stranger));
    let list = replaced.findings.into_list();
    assert_eq!(list[0].code, Code::LedgerReplaced);
    let help = list[0].help.as_deref().unwrap();
    assert!(help.starts_with("signed by example.com/walk+"), "{help}");
    for bad in ["", "nonsense", &longer.replace("\n3\n", "\n03\n")] {
        let walked = walked(bytes.clone(), Some(bad));
        assert_eq!(codes(walked), [Code::CheckpointInvalid], "{bad:?}");
    }
    // A known key that fails.
    let forged = longer.replace("\n3\n", "\n2\n");
    assert_eq!(
        codes(walked(bytes, Some(&forged))),
        [Code::CheckpointInvalid]
    );
}

#[test]
fn a_given_checkpoint_of_no_records_shows_nothing() {
    let mut maker = Maker::new();
    maker.note("x");
    let empty = Checkpoint {
        origin: maker.checkpoint().lines().next().unwrap().to_owned(),
        size: 0,
        root: Frontier::new().root(),
    };
    let empty = empty.sign(&maker.key).unwrap().to_string();
    let walked = walked(maker.bytes(), Some(&empty));
    assert_eq!(walked.completeness.status, Assured::NotEstablished);
    assert_eq!(
        (walked.completeness.by, walked.completeness.after),
        (None, 2)
    );
    assert!(!walked.completeness.covers_head());
    assert_eq!(codes(walked), []);
}

#[test]
fn a_torn_line_that_is_longer_than_a_record_is_no_crash() {
    let mut maker = Maker::new();
    maker.note("x");
    for (length, expected) in [
        (65_535, vec![Code::TornTail]),
        (65_536, vec![Code::RecordTooLarge, Code::TornTail]),
        (1 << 20, vec![Code::RecordTooLarge, Code::TornTail]),
    ] {
        for start in [&b"x"[..], br#"{"open":"#] {
            let mut bytes = maker.bytes();
            let end = bytes.len() + length;
            bytes.extend_from_slice(start);
            bytes.resize(end, b'x');
            let walked = walked(bytes, None);
            assert_eq!(codes(walked), expected, "{length}");
        }
    }
}

#[test]
fn the_standby_key_takes_over_and_says_so() {
    let standby = key(5);
    let mut maker = Maker::with_standby(Some(standby.public().id()));
    maker.note("a");
    maker.take_over(standby);
    maker.note("b");
    let walked = maker.walk();
    assert_eq!(walked.chain.keys().len(), 2);
    assert_eq!(walked.chain.standby(), None);
    assert_eq!(codes(walked), []);
}

#[test]
fn a_closed_ledger_is_complete_until_something_follows() {
    let mut maker = Maker::new();
    maker.push(Body::Close(Close {
        reason: "done".to_owned(),
    }));
    let walked = maker.walk();
    assert!(walked.completeness.covers_head());
    assert_eq!(walked.completeness.by, Some(CompleteBy::Closed));
    maker.note("late");
    let walked = maker.walk();
    assert_eq!(walked.completeness.status, Assured::NotEstablished);
    assert_eq!(codes(walked), [Code::RecordAfterClose]);
}

/// A ledger whose record 2 sets these bytes aside, in a folder.
fn recovered(torn: &dyn Fn(&Maker) -> Vec<u8>, kept: bool) -> Vec<Code> {
    let mut maker = Maker::new();
    maker.note("a");
    let torn = torn(&maker);
    let hash = Hash::of(&torn);
    maker.push(Body::Recovery(Recovery {
        bytes: U53::new(torn.len() as u64),
        cause: RecoveryCause::Torn,
        expected: None,
        file: Some(format!("torn/{hash}")),
        sha256: Some(hash),
    }));
    maker.note("b");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("records")).unwrap();
    fs::write(path("records/00000000.jsonl"), maker.bytes()).unwrap();
    if kept {
        fs::create_dir(path("torn")).unwrap();
        fs::write(path(&format!("torn/{hash}")), torn).unwrap();
    }
    let mut source = Source::open(folder.path()).unwrap();
    let walked = walk(&mut source, None, &mut ()).unwrap();
    assert_eq!(walked.findings.count(Code::Recovered), 1);
    codes(walked)
}

#[test]
fn a_recovery_sets_aside_only_what_is_no_next_record() {
    let note = |maker: &Maker| {
        maker.record(Body::Note(Note {
            text: "lost".to_owned(),
        }))
    };
    let half = |maker: &Maker| note(maker)[..200].to_vec();
    assert_eq!(recovered(&half, true), []);
    assert_eq!(recovered(&half, false), [Code::RecoveryUnexplained]);
    assert_eq!(recovered(&note, true), [Code::RecoveryUnexplained]);
    let after_garbage =
        |maker: &Maker| [b"\0\0\0\n".to_vec(), note(maker), b"\n".to_vec()].concat();
    assert_eq!(recovered(&after_garbage, true), [Code::RecoveryUnexplained]);
    // A later record whose forerunner is lost cannot be kept.
    let later = |maker: &Maker| {
        let mut ahead = Maker {
            key: key(1),
            lines: vec![],
            previous: maker.previous,
            tree: maker.tree.clone(),
        };
        ahead.note("lost");
        [vec![0; 40], b"\n".to_vec(), note(&ahead)].concat()
    };
    assert_eq!(recovered(&later, true), []);
}

#[test]
fn an_accepted_rollback_is_never_explained() {
    let mut maker = Maker::new();
    maker.push(Body::Recovery(Recovery {
        bytes: None,
        cause: RecoveryCause::RollbackAccepted,
        expected: Some(ExpectedTree {
            root: Hash::of(b"root"),
            size: U53::from(7),
        }),
        file: None,
        sha256: None,
    }));
    assert_eq!(codes(maker.walk()), [Code::RecoveryUnexplained]);
}

#[test]
fn openings_that_wait_for_a_record_at_the_end_are_a_torn_tail() {
    let maker = Maker::new();
    let opening = br#"{"open":{"argv":["00000000000000000000000000000000",[]]},"sequence":1}"#;
    let mut bytes = maker.bytes();
    bytes.extend_from_slice(opening);
    assert_eq!(codes(walked(bytes.clone(), None)), [Code::TornTail]);
    bytes.push(b'\n');
    assert_eq!(codes(walked(bytes, None)), [Code::TornTail]);
    // That of another record is none that a crash left.
    let moved = opening.map(|byte| if byte == b'1' { b'0' } else { byte });
    let bytes = [maker.bytes(), moved.to_vec(), b"\n".to_vec()].concat();
    let list = walked(bytes, None).findings.into_list();
    assert_eq!(list[0].code, Code::OpeningMismatch);
    assert_eq!(list[0].place.as_ref().and_then(|place| place.line), Some(2));
    assert_eq!(list[1].code, Code::TornTail);
}

#[test]
fn an_opening_before_a_record_that_seals_nothing_is_a_mismatch() {
    let mut maker = Maker::new();
    maker.note("a");
    for opening in [
        r#"{"open":{"argv":["00000000000000000000000000000000",[]]},"sequence":1}"#.to_owned(),
        r#"{"open":{"argv":["00000000000000000000000000000000",[]]},"sequence":2}"#.to_owned(),
        r#"{"open":{},"sequence":1}"#.to_owned(),
        r#"{"open":{"other":["00000000000000000000000000000000",[]]},"sequence":1}"#.to_owned(),
        r#"{"open":"#.to_owned(),
        format!("{{\"open\":{}", "[".repeat(100_000)),
    ] {
        let lines = [&maker.lines[0], opening.as_bytes(), &maker.lines[1], b""];
        let walked = walked(lines.join(&b'\n'), None);
        assert_eq!(walked.tally.verified, 2);
        assert_eq!(codes(walked), [Code::OpeningMismatch]);
    }
}
