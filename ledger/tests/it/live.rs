//! A ledger that is being written verifies at every moment: what the store writes, the walk reads.

use std::sync::atomic::{AtomicBool, Ordering};

use ledger::file::source::Source;
use ledger::file::walk::{Walked, walk};
use ledger::finding::{Class, Code};

use crate::support::{is_good, note, open};

fn walked(at: &std::path::Path) -> Walked {
    let mut source = Source::open(&at.join("ledger")).unwrap();
    assert!(source.checkpoint.is_some());
    let walked = walk(&mut source, None, &mut ()).unwrap();
    assert_eq!(walked.tally.checkpoints, 1);
    walked
}

#[test]
fn a_live_ledger_is_not_tampering() {
    let at = tempfile::tempdir().unwrap();
    let mut store = open(at.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..150 {
                note(&mut store, &format!("note {n}"));
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut records = 0;
        while !done.load(Ordering::SeqCst) {
            let walked = walked(at.path());
            assert!(walked.tally.records >= records);
            records = walked.tally.records;
            assert_eq!(walked.tally.verified, records);
            is_good(walked);
        }
    });
    assert_eq!(walked(at.path()).tally.verified, 151);
}

#[test]
fn what_the_store_recovers_the_walk_shows() {
    let at = tempfile::tempdir().unwrap();
    note(&mut open(at.path()), "kept");
    let segment = at.path().join("ledger/records/00000000.jsonl");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes.extend_from_slice(b"{\"key\":\"half a li");
    std::fs::write(&segment, bytes).unwrap();
    assert_eq!(walked(at.path()).findings.count(Code::TornTail), 1);
    drop(open(at.path()));
    let walked = walked(at.path());
    assert_eq!(walked.findings.count(Code::Recovered), 1);
    assert_eq!(walked.findings.worst(), Some(Class::Observation));
    assert_eq!(walked.tally.recoveries, 1);
}
