//! A ledger that is being written is no finding.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use ledger::bytes::hash::Hash;
use ledger::facts::execution::{RunId, Start, Verdict};
use ledger::facts::policy::Policy;
use ledger::file::source::Source;
use ledger::file::store::{Durability, SEGMENT_RECORDS, Store, segment_name};
use ledger::record::Body;
use verify::rules::{Demands, verify};

use crate::support::records::{execution, host, start};
use crate::support::{append, open, stamp};

/// One run for each word to go on, its end kept by this durability.
fn write_runs(store: &mut Store, policy: Hash, end: Durability, go: Receiver<u128>) {
    for number in go {
        let run = RunId::from_bytes(number.to_be_bytes());
        let lock = store.begin_run(run).unwrap();
        store.ready(&stamp()).unwrap();
        let host = store.host(&host(), &stamp()).unwrap();
        let begun = Body::Start(Box::new(Start {
            host,
            run,
            ..start(policy)
        }));
        let begun = store
            .append(begun, None, &stamp(), Durability::Deferred)
            .unwrap();
        let ended = Body::Execution(Box::new(execution(begun.sequence, Verdict::AsRequested)));
        store.append(ended, None, &stamp(), end).unwrap();
        drop(lock);
    }
}

fn put_policy(store: &mut Store) -> Hash {
    let text = br#"{"id": "p", "enforcement": {"mode": "best-effort"}}"#;
    let policy = Policy::parse("p.json", text).unwrap();
    store.put_blob(&policy.effective_blob().unwrap()).unwrap()
}

/// Verifies a ledger `times` times while one of `writers` writes a run to it each time; how many records there were
/// in the end.
fn watch(at: &Path, writers: u8, times: u128) -> u64 {
    let policy = put_policy(&mut open(at));
    let mut records = 0;
    std::thread::scope(|scope| {
        let say: Vec<_> = (0..writers)
            .map(|writer| {
                let (say, go) = sync_channel(1);
                // Some write checkpoints meanwhile.
                let end = match writer {
                    0 => Durability::Durable,
                    _ => Durability::Deferred,
                };
                scope.spawn(move || write_runs(&mut open(at), policy, end, go));
                say
            })
            .collect();
        for (number, say) in (0..times).zip(say.iter().cycle()) {
            say.send(number).unwrap();
            let mut source = Source::open(&at.join("ledger")).unwrap();
            let result = verify(&mut source, Demands::default()).unwrap();
            assert_eq!(result.exit_code, 0, "{:#?}", result.findings);
            assert!(
                result.records >= records,
                "{} after {records}",
                result.records
            );
            records = result.records;
        }
        drop(say);
    });
    records
}

#[test]
fn a_ledger_that_is_being_written_verifies_at_every_moment() {
    for writers in (1..=4).cycle().take(40) {
        let at = tempfile::tempdir().unwrap();
        let records = watch(at.path(), writers, 25);
        assert!(records > 30, "{records}: nothing was written meanwhile");
    }
}

/// As an ordinary user: who may not lock reads without.
#[test]
fn without_the_lock_it_verifies_as_well() {
    use std::os::unix::fs::PermissionsExt as _;
    let at = tempfile::tempdir().unwrap();
    let mut store = open(at.path());
    let policy = put_policy(&mut store);
    let lock = at.path().join("ledger/lock");
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o0)).unwrap();
    if std::fs::File::open(&lock).is_ok() {
        eprintln!("SKIPPED: without_the_lock_it_verifies_as_well: root may open every file");
        return;
    }
    let (say, go) = sync_channel(1);
    std::thread::scope(|scope| {
        let store = &mut store;
        scope.spawn(move || write_runs(store, policy, Durability::Durable, go));
        for number in 0..100 {
            say.send(number).unwrap();
            let mut source = Source::open(&at.path().join("ledger")).unwrap();
            let result = verify(&mut source, Demands::default()).unwrap();
            assert_eq!(result.exit_code, 0, "{:#?}", result.findings);
        }
        drop(say);
    });
}

/// The next segment is begun while others read.
#[test]
fn a_ledger_verifies_while_it_passes_the_border_of_a_segment() {
    let at = tempfile::tempdir().unwrap();
    let mut store = open(at.path());
    while store.size() < SEGMENT_RECORDS - 5 {
        append(&mut store, "n", Durability::Deferred);
    }
    append(&mut store, "kept", Durability::Durable);
    drop(store);
    let records = watch(at.path(), 2, 6);
    assert!(records > SEGMENT_RECORDS, "{records}");
    assert!(
        at.path()
            .join("ledger/records")
            .join(segment_name(1))
            .exists()
    );
}
