//! Everything but records, blobs, checkpoints and torn bytes can be deleted and is made again.

use super::*;

fn with_some_records() -> Place {
    let place = Place::new();
    let mut store = place.open();
    store.host(&host_facts("6.1"), &stamp()).unwrap();
    begin(&mut store, run_id());
    for n in 0..5 {
        say(&mut store, &format!("note {n}"));
    }
    place
}

fn rebuilt(store: &mut Store) -> bool {
    let notices = store.notices();
    notices
        .iter()
        .any(|notice| matches!(notice, Notice::Rebuilt { .. }))
}

/// The ledger goes on, and what was made again is what was there.
fn goes_on(place: &Place, expect_rebuilt: bool, what: &str) {
    let mut store = place.open();
    assert_eq!(rebuilt(&mut store), expect_rebuilt, "{what}");
    let host = store.host(&host_facts("6.1"), &stamp()).unwrap();
    assert_eq!(host.value(), 1, "{what}");
    assert_eq!(store.state.open.len(), 1, "{what}");
    say(&mut store, what);
    place.walk_covered();
    drop(store);
    let mut store = place.open();
    assert!(!rebuilt(&mut store), "{what}: not made again twice");
}

#[test]
fn each_derived_file_can_be_deleted() {
    for (name, expect_rebuilt) in [("tip", true), ("tree", true), ("lock", false)] {
        let place = with_some_records();
        std::fs::remove_file(place.dir().join(name)).unwrap();
        goes_on(&place, expect_rebuilt, name);
    }
    let place = with_some_records();
    std::fs::remove_file(place.heads()).unwrap();
    goes_on(&place, false, "heads");
    let place = with_some_records();
    std::fs::create_dir_all(place.dir().join("runs")).unwrap();
    std::fs::remove_dir_all(place.dir().join("runs")).unwrap();
    goes_on(&place, false, "runs");
}

#[test]
fn all_derived_files_can_be_deleted_at_once() {
    let place = with_some_records();
    for name in ["tip", "tree", "lock", "checkpoint"] {
        std::fs::remove_file(place.dir().join(name)).unwrap();
    }
    std::fs::remove_file(place.heads()).unwrap();
    goes_on(&place, true, "all");
}

#[test]
fn a_checkpoint_that_a_crash_left_counts_as_absent() {
    for bytes in [vec![], vec![0; 200]] {
        let place = with_some_records();
        std::fs::write(place.dir().join("checkpoint"), &bytes).unwrap();
        goes_on(&place, false, "blank checkpoint");
    }
}

#[test]
fn any_flipped_byte_of_tip_or_tree_is_noticed_or_harmless() {
    for name in ["tip", "tree"] {
        let place = with_some_records();
        let path = place.dir().join(name);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            std::fs::write(&path, &bytes).unwrap();
            let store = place.open();
            let (size, root) = (store.state.size(), store.state.root());
            assert_eq!((size, root), covered(&place.dir()), "{name} byte {at}");
            assert_eq!(store.state.host.unwrap().sequence.value(), 1);
            assert_eq!(store.state.open.len(), 1);
        }
    }
}

#[test]
fn caches_that_fell_behind_are_extended_not_made_again() {
    let place = with_some_records();
    let keep = |name: &str| std::fs::read(place.dir().join(name)).unwrap();
    let (tip, tree) = (keep("tip"), keep("tree"));
    let mut store = place.open();
    for n in 0..9 {
        say(&mut store, &format!("more {n}"));
    }
    drop(store);
    std::fs::write(place.dir().join("tip"), &tip).unwrap();
    goes_on(&place, false, "old tip");
    std::fs::write(place.dir().join("tip"), &tip).unwrap();
    std::fs::write(place.dir().join("tree"), &tree).unwrap();
    goes_on(&place, false, "old tip and tree");
    std::fs::write(place.dir().join("tree"), &tree).unwrap();
    goes_on(&place, true, "old tree alone");
}

#[test]
fn caches_of_another_ledger_are_made_again() {
    let (place, other) = (with_some_records(), with_some_records());
    for name in ["tip", "tree"] {
        std::fs::copy(other.dir().join(name), place.dir().join(name)).unwrap();
    }
    goes_on(&place, true, "caches of another ledger");
}

#[test]
fn appending_reads_no_old_record() {
    let place = with_some_records();
    let bytes = std::fs::read(place.segment(0)).unwrap();
    let mut damaged = bytes.clone();
    let end = bytes.len() - 10;
    damaged[..end].fill(b'#');
    std::fs::write(place.segment(0), &damaged).unwrap();
    let mut store = place.open();
    assert!(!rebuilt(&mut store));
    say(&mut store, "blind to what was before");
    let mut whole = bytes.clone();
    let now = std::fs::read(place.segment(0)).unwrap();
    whole.extend_from_slice(&now[bytes.len()..]);
    std::fs::write(place.segment(0), whole).unwrap();
    place.walk_covered();
}

#[test]
fn heads_that_cannot_be_read_are_absent_with_a_warning() {
    let place = with_some_records();
    std::fs::write(place.heads(), [0; 64]).unwrap();
    let mut store = place.open();
    assert!(matches!(
        store.notices()[..],
        [Notice::HeadsUnreadable { .. }]
    ));
    say(&mut store, "x");
    drop(store);
    assert!(place.open().notices().is_empty());
}

#[test]
fn a_checkpoint_that_no_crash_leaves_is_refused() {
    let place = with_some_records();
    let path = place.dir().join("checkpoint");
    let whole = std::fs::read_to_string(&path).unwrap();
    let other = with_some_records();
    let of_another = std::fs::read_to_string(other.dir().join("checkpoint")).unwrap();
    for (defect, text) in [
        ("cut", whole[..whole.len() - 1].to_owned()),
        ("another ledger's", of_another),
        ("another size", whole.replace("\n8\n", "\n7\n")),
        ("a larger size", whole.replace("\n8\n", "\n9\n")),
        ("garbage", "x".to_owned()),
    ] {
        assert_ne!(text, whole, "{defect}");
        std::fs::write(&path, text).unwrap();
        let error = place.try_open().unwrap_err();
        assert!(
            matches!(error, OpenLedgerError::Find(FindError::Checkpoint(_))),
            "{defect}: {error}"
        );
    }
    std::fs::remove_file(&path).unwrap();
    say(&mut place.open(), "once it is moved away");
}

#[test]
fn the_newest_host_is_read_from_its_signed_line_alone() {
    let place = Place::new();
    let mut store = place.open();
    assert_eq!(store.newest_host().unwrap(), None);
    store.host(&host_facts("6.1"), &stamp()).unwrap();
    store.host(&host_facts("6.2"), &stamp()).unwrap();
    assert_eq!(store.newest_host().unwrap(), Some(host_facts("6.2")));
    drop(store);
    let store = place.open();
    assert_eq!(store.newest_host().unwrap(), Some(host_facts("6.2")));
    // Somebody who can write to the folder changes what the record says.
    let text = std::fs::read_to_string(place.segment(0)).unwrap();
    std::fs::write(place.segment(0), text.replace("\"6.2\"", "\"6.3\"")).unwrap();
    assert_eq!(store.newest_host().unwrap(), None);
    std::fs::write(place.segment(0), &text[..text.len() / 2]).unwrap();
    assert_eq!(store.newest_host().unwrap(), None);
}

fn fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::from(0o600), 0).unwrap();
}

type Put<'a> = Box<dyn Fn(&Path) + 'a>;

/// Puts something else where a derived file was: a named pipe, a link to `victim`, a dangling link.
fn others(victim: &Path) -> [(&'static str, Put<'_>); 3] {
    use std::os::unix::fs::symlink;
    [
        ("pipe", Box::new(fifo)),
        ("link", Box::new(move |path| symlink(victim, path).unwrap())),
        (
            "dangling link",
            Box::new(move |path| symlink(victim.with_extension("none"), path).unwrap()),
        ),
    ]
}

#[test]
fn what_is_no_regular_file_in_place_of_a_cache_is_replaced() {
    for name in ["tip", "tree", "tip.new", "checkpoint.new"] {
        let place = with_some_records();
        let victim = place.at.path().join("victim");
        std::fs::write(&victim, "mine").unwrap();
        for (what, put) in others(&victim) {
            let path = place.dir().join(name);
            let _ = std::fs::remove_file(&path);
            put(&path);
            goes_on(
                &place,
                !name.ends_with(".new"),
                &format!("{what} as {name}"),
            );
            assert_eq!(std::fs::read(&victim).unwrap(), b"mine", "{what} as {name}");
            assert!(!victim.with_extension("none").exists(), "{what} as {name}");
        }
        let path = place.dir().join(name);
        let _ = std::fs::remove_file(&path);
        if !name.ends_with(".new") {
            std::fs::create_dir(&path).unwrap();
            let error = place.try_open().unwrap_err();
            assert!(
                says(&error).contains("a folder stands there"),
                "{name}: {}",
                says(&error)
            );
        }
    }
}

fn says(error: &dyn std::error::Error) -> String {
    let above = error.source().map(says);
    format!("{error}: {}", above.unwrap_or_default())
}

#[test]
fn what_is_no_regular_file_in_place_of_lock_checkpoint_or_records_is_refused() {
    for name in ["lock", "checkpoint", "records/00000000.jsonl"] {
        let place = with_some_records();
        let path = place.dir().join(name);
        let victim = place.at.path().join("victim");
        std::fs::rename(&path, &victim).unwrap();
        let before = std::fs::read(&victim).unwrap();
        for (what, put) in others(&victim) {
            put(&path);
            if name.starts_with("records") && what == "dangling link" {
                // As good as missing.
                assert!(place.try_open().is_err());
            } else {
                let error = place.try_open().unwrap_err();
                assert!(
                    says(&error).contains("stands there"),
                    "{what}: {}",
                    says(&error)
                );
            }
            std::fs::remove_file(&path).unwrap();
            assert_eq!(std::fs::read(&victim).unwrap(), before, "{what} as {name}");
        }
        std::fs::create_dir(&path).unwrap();
        let error = place.try_open().unwrap_err();
        assert!(
            says(&error).contains("a folder stands there"),
            "{}",
            says(&error)
        );
    }
}

#[test]
fn a_pipe_in_place_of_a_run_lock_or_a_key_keeps_nobody_waiting() {
    let place = with_some_records();
    std::fs::create_dir_all(place.dir().join("runs")).unwrap();
    fifo(&place.dir().join("runs").join("x.lock"));
    goes_on(&place, false, "run lock");
    assert!(!place.dir().join("runs").join("x.lock").exists());
    let path = place.at.path().join("key.pem");
    fifo(&path);
    assert!(matches!(
        read_key_file(&path),
        Err(KeyFileError::NotAFile(_))
    ));
}

/// A run of a probe in the runtime of [`start`], and the matrix that names it.
fn measure(store: &mut Store) -> U53 {
    use crate::facts::list::List;
    use crate::facts::matrix::{Cell, CellVerdict, Matrix};
    use crate::facts::measurement::ProbeRun;
    use crate::facts::probe::Nonce;
    use crate::facts::suite::Arm;
    let host = store.host(&host_facts("6.1"), &stamp()).unwrap();
    let begun = begin(store, run_id());
    let Body::Execution(execution) = execution(begun) else {
        unreachable!()
    };
    let (Body::Start(of), _) = start(run_id()) else {
        unreachable!()
    };
    let probe = Body::Probe(Box::new(ProbeRun {
        ablated: None,
        arm: Arm::Run,
        controller: vec![],
        execution: *execution,
        lines: List::Inline(vec![]),
        nonce: Nonce::new(&[7; 16]).unwrap(),
        probe: "mine".parse().unwrap(),
        suite: Hash::of(b"suite"),
    }));
    let probe = store.append(probe, None, &stamp(), Durability::Deferred);
    let cell = Cell {
        ablation: None,
        baseline: None,
        check: "network/tcp4".to_owned(),
        declared: false,
        reason: None,
        run: Some(probe.unwrap().sequence),
        runtime: of.runtime.id.clone(),
        verdict: CellVerdict::Escaped,
    };
    let matrix = Body::Matrix(Box::new(Matrix {
        cells: List::Inline(vec![cell]),
        host,
        policy: of.policy.clone(),
        suite: Hash::of(b"suite"),
    }));
    let matrix = store.append(matrix, None, &stamp(), Durability::Durable);
    matrix.unwrap().sequence
}

/// The newest matrix for what [`start`] starts.
fn newest(store: &Store) -> Option<U53> {
    let (Body::Start(of), _) = start(run_id()) else {
        unreachable!()
    };
    let host = store.state.host.unwrap().sequence;
    store.newest_matrix(host, &of.runtime, &of.policy.id)
}

#[test]
fn the_newest_matrix_is_known_without_reading_and_made_again_with_the_rest() {
    let place = Place::new();
    let mut store = place.open();
    store.host(&host_facts("6.1"), &stamp()).unwrap();
    assert_eq!(newest(&store), None);
    let first = measure(&mut store);
    assert_eq!(newest(&store), Some(first));
    say(&mut store, "a note is no matrix");
    drop(store);
    let tip = place.dir().join("tip");
    let whole = std::fs::read_to_string(&tip).unwrap();
    assert_eq!(newest(&place.open()), Some(first), "by the tip");
    std::fs::remove_file(&tip).unwrap();
    let mut again = place.open();
    assert!(rebuilt(&mut again));
    assert_eq!(newest(&again), Some(first), "from the records");
    drop(again);
    assert_eq!(std::fs::read_to_string(&tip).unwrap(), whole);
    // Another process measures; this one reads on.
    let mut reader = place.open();
    let second = measure(&mut place.open());
    assert_eq!(newest(&reader), Some(first), "not read on yet");
    say(&mut reader, "reads on");
    assert_eq!(newest(&reader), Some(second));
    // Another host, another question.
    reader.host(&host_facts("6.2"), &stamp()).unwrap();
    let of_old = {
        let (Body::Start(of), _) = start(run_id()) else {
            unreachable!()
        };
        reader.newest_matrix(U53::new(1).unwrap(), &of.runtime, &of.policy.id)
    };
    assert_eq!(of_old, None, "the facts of a host that is not the newest");
}

#[test]
fn a_tip_of_before_matrices_or_recoveries_is_made_again() {
    let place = Place::new();
    let mut store = place.open();
    store.host(&host_facts("6.1"), &stamp()).unwrap();
    let matrix = measure(&mut store);
    drop(store);
    let tip = place.dir().join("tip");
    let whole = std::fs::read_to_string(&tip).unwrap();
    let line = whole.lines().next().unwrap();
    let matrices = line.find("\"matrices\":").unwrap();
    let end = line.find("\"offset\":").unwrap();
    let without = [
        format!("{}{}", &line[..matrices], &line[end..]),
        line.replace("\"recoveries\":[],", ""),
    ];
    for old in without {
        assert_ne!(old, line);
        let sum = Hash::of(old.as_bytes());
        std::fs::write(&tip, format!("{old}\n{sum}\n")).unwrap();
        let mut store = place.open();
        assert!(rebuilt(&mut store), "{old}");
        assert_eq!(newest(&store), Some(matrix));
        drop(store);
        assert_eq!(std::fs::read_to_string(&tip).unwrap(), whole);
    }
}
