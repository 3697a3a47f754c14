//! A ledger that is being written is no finding.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::bytes::time::{Clock, Stamp};
use ledger::facts::control::Controls;
use ledger::facts::execution::{
    Execution, Outcome, PolicyRef, Program, RunId, RunResult, RuntimeUsed, Start, Verdict, Workload,
};
use ledger::facts::host::{CgroupFacts, CgroupLayout, HostFacts, RunnerFacts};
use ledger::facts::list::{List, Sealable};
use ledger::facts::policy::Policy;
use ledger::file::source::Source;
use ledger::file::store::{
    Durability, KeyChoice, OpenOptions, SEGMENT_RECORDS, Store, segment_name,
};
use ledger::record::{Body, Note, Tool};
use verify::rules::{Demands, verify};

const BOOT: &str = "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f";

fn stamp() -> Stamp {
    Stamp {
        time: "2026-11-29T12:00:00.000000Z".parse().unwrap(),
        clock: Clock {
            boot_id: BOOT.parse().unwrap(),
            since_boot_us: U53::from(1),
        },
    }
}

fn host() -> HostFacts {
    HostFacts {
        architecture: "x86_64".to_owned(),
        boot_id: BOOT.parse().unwrap(),
        cgroup: CgroupFacts {
            delegated: vec![],
            layout: CgroupLayout::V2,
        },
        container: vec![],
        distribution: None,
        gid: 0,
        groups: vec![],
        kernel: "6.18.0".to_owned(),
        landlock_abi: None,
        lsms: None,
        runner: RunnerFacts {
            file: None,
            sha256: Hash::of(b"runner"),
            version: "0.1.0".to_owned(),
        },
        swap_bytes: None,
        sysctls: std::collections::BTreeMap::new(),
        uid: 0,
        unmeasured: None,
    }
}

fn start(run: RunId, host: U53, policy: Hash) -> Start {
    Start {
        controls: Controls::default(),
        host,
        key_reachable: None,
        matrix: None,
        policy: PolicyRef {
            id: "p".to_owned(),
            sha256: policy,
        },
        run,
        runtime: RuntimeUsed {
            id: "embedded".to_owned(),
            launch: None,
            sha256: None,
            tier: None,
            version: "0.1.0".to_owned(),
        },
        workload: Workload {
            argv: Sealable::Clear(List::Inline(vec!["w".to_owned()])),
            id: "w".to_owned(),
            program: Program {
                path: "/w".to_owned(),
                sha256: None,
            },
        },
    }
}

fn execution(start: U53) -> Execution {
    Execution {
        artifacts: None,
        cleanup: None,
        observed: None,
        result: RunResult {
            duration_us: Some(U53::from(1_000)),
            errno: None,
            exit_code: Some(0),
            outcome: Outcome::Exited,
            reason: None,
            signal: None,
            stderr: None,
            stdout: None,
        },
        start,
        unmeasured: None,
        verdict: Verdict::AsRequested,
    }
}

/// One run for each word to go on, its end kept by this durability.
fn write_runs(store: &mut Store, policy: Hash, end: Durability, go: Receiver<u128>) {
    for number in go {
        let run = RunId::from_bytes(number.to_be_bytes());
        let lock = store.begin_run(run).unwrap();
        store.ready(&stamp()).unwrap();
        let host = store.host(&host(), &stamp()).unwrap();
        let begun = Body::Start(Box::new(start(run, host, policy)));
        let begun = store
            .append(begun, None, &stamp(), Durability::Deferred)
            .unwrap();
        let ended = Body::Execution(Box::new(execution(begun.sequence)));
        store.append(ended, None, &stamp(), end).unwrap();
        drop(lock);
    }
}

fn open(at: &Path) -> Store {
    let (dir, keys) = (at.join("ledger"), at.join("keys"));
    let options = OpenOptions {
        dir: &dir,
        key: KeyChoice::Own,
        key_folder: &keys,
        accept_rollback: false,
        tool: Tool {
            name: "test".into(),
            version: "1".into(),
        },
        host_name: "host",
        create: true,
    };
    Store::open(&options, &stamp()).unwrap()
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
        let note = Body::Note(Note {
            text: "n".to_owned(),
        });
        store
            .append(note, None, &stamp(), Durability::Deferred)
            .unwrap();
    }
    let note = Body::Note(Note {
        text: "kept".to_owned(),
    });
    store
        .append(note, None, &stamp(), Durability::Durable)
        .unwrap();
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
