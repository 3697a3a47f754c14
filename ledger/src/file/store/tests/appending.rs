//! What one append does.

use std::io::Write as _;

use super::*;

#[test]
fn a_durable_record_is_covered_by_the_checkpoint() {
    let place = Place::new();
    let mut store = place.open();
    for n in 1..=10 {
        let appended = say(&mut store, &format!("note {n}"));
        assert_eq!(appended.sequence.value(), n);
        assert_eq!(appended.hash, store.head());
        assert_eq!(place.walk_covered().len() as u64, n + 1);
    }
    let line = std::fs::read_to_string(place.heads()).unwrap();
    assert!(line.contains("\"size\":11}"), "{line}");
    assert!(
        store
            .notices()
            .iter()
            .all(|n| matches!(n, Notice::Began { .. }))
    );
}

#[test]
fn a_deferred_record_is_covered_with_the_next_durable_one() {
    let place = Place::new();
    let mut store = place.open();
    let sequence = begin(&mut store, run_id());
    assert_eq!(covered(&place.dir()).0, 1);
    assert_eq!(place.walk().len(), 2);
    store
        .append(execution(sequence), None, &stamp(), Durability::Durable)
        .unwrap();
    assert_eq!(place.walk_covered().len(), 3);
}

#[test]
fn an_opening_stands_directly_before_its_record() {
    let place = Place::new();
    let mut store = place.open();
    begin(&mut store, run_id());
    let lines = lines(&place.dir());
    assert_eq!(lines.len(), 3);
    assert!(lines[1].starts_with(OPENING_PREFIX));
    assert!(Opening::parse(&lines[1]).is_ok());
}

#[test]
fn an_opening_that_does_not_fit_writes_nothing() {
    let place = Place::new();
    let mut store = place.open();
    let before = std::fs::read(place.segment(0)).unwrap();
    let (_, opened) = start(run_id());
    let refused = store.append(note("x"), Some(opened), &stamp(), Durability::Durable);
    assert!(matches!(refused, Err(AppendError::Opening(_))));
    let too_long = note(&"x".repeat(70_000));
    let refused = store.append(too_long, None, &stamp(), Durability::Durable);
    assert!(matches!(refused, Err(AppendError::Record(_))));
    assert_eq!(std::fs::read(place.segment(0)).unwrap(), before);
    say(&mut store, "goes on");
    assert_eq!(place.walk_covered().len(), 2);
}

#[test]
fn records_of_the_store_itself_are_not_appended_by_others() {
    let place = Place::new();
    let mut store = place.open();
    let genesis = place.walk()[0].body.clone();
    for body in [genesis, Body::Close(Close { reason: "x".into() })] {
        let refused = store.append(body, None, &stamp(), Durability::Durable);
        assert!(matches!(refused, Err(AppendError::Kind(_))));
    }
}

#[test]
fn a_host_is_recorded_once_and_whenever_it_differs() {
    let place = Place::new();
    let mut store = place.open();
    let first = store.host(&host_facts("6.1"), &stamp()).unwrap();
    assert_eq!(store.host(&host_facts("6.1"), &stamp()).unwrap(), first);
    say(&mut store, "between");
    drop(store);
    let mut store = place.open();
    assert_eq!(store.host(&host_facts("6.1"), &stamp()).unwrap(), first);
    let second = store.host(&host_facts("6.2"), &stamp()).unwrap();
    assert_eq!(second.value(), 3);
    // Another process, which has not seen it, appends no third.
    let mut other = place.open();
    assert_eq!(other.host(&host_facts("6.2"), &stamp()).unwrap(), second);
    assert_eq!(place.walk().len(), 4);
}

#[test]
fn nothing_follows_a_close() {
    let place = Place::new();
    let mut store = place.open();
    say(&mut store, "x");
    let appended = store.close("done", &stamp()).unwrap();
    assert_eq!(place.walk_covered().len(), 3);
    for mut store in [store, place.open()] {
        let refused = store.append(note("y"), None, &stamp(), Durability::Durable);
        assert!(matches!(refused, Err(AppendError::Closed(2))));
        assert!(matches!(store.ready(&stamp()), Err(AppendError::Closed(2))));
        assert!(matches!(
            store.close("again", &stamp()),
            Err(CloseError::Append(AppendError::Closed(2)))
        ));
        assert!(matches!(
            store.host(&host_facts("6.1"), &stamp()),
            Err(AppendError::Closed(2))
        ));
    }
    assert_eq!(appended.sequence.value(), 2);
    assert_eq!(place.walk_covered().len(), 3);
}

#[test]
fn a_close_by_another_process_is_seen() {
    let place = Place::new();
    let (mut one, mut two) = (place.open(), place.open());
    one.close("done", &stamp()).unwrap();
    let refused = two.append(note("y"), None, &stamp(), Durability::Durable);
    assert!(matches!(refused, Err(AppendError::Closed(1))));
}

#[test]
fn a_ledger_is_not_closed_while_a_run_is_alive() {
    let place = Place::new();
    let mut store = place.open();
    let run = run_id();
    let alive = store.begin_run(run).unwrap();
    assert!(store.begin_run(run).is_err());
    let sequence = begin(&mut store, run);
    let refused = place.open().close("done", &stamp());
    assert!(
        matches!(refused, Err(CloseError::RunOpen { run: open, start })
            if open == run && start == sequence)
    );
    store
        .append(execution(sequence), None, &stamp(), Durability::Durable)
        .unwrap();
    drop(alive);
    store.close("done", &stamp()).unwrap();
    assert_eq!(place.walk_covered().len(), 4);
}

#[test]
fn a_run_that_somebody_closed_gets_no_second_end() {
    let place = Place::new();
    let mut store = place.open();
    let alive = store.begin_run(run_id()).unwrap();
    let sequence = begin(&mut store, alive.run());
    // Whoever removes what says that it lives has it taken for dead.
    std::fs::remove_dir_all(place.dir().join("runs")).unwrap();
    place.open().ready(&stamp()).unwrap();
    let second = store.append(execution(sequence), None, &stamp(), Durability::Durable);
    assert!(matches!(second, Err(AppendError::Ended(start)) if start == sequence));
    // Nothing was written, and the ledger goes on.
    let other = U53::from(77);
    let none = store.append(execution(other), None, &stamp(), Durability::Durable);
    assert!(matches!(none, Err(AppendError::Ended(start)) if start == other));
    store
        .append(note("x"), None, &stamp(), Durability::Durable)
        .unwrap();
    let kinds: Vec<_> = place
        .walk_covered()
        .iter()
        .map(|record| record.body.kind())
        .collect();
    assert_eq!(kinds, ["genesis", "start", "execution", "note"]);
}

#[test]
fn a_run_whose_runner_died_is_closed_as_interrupted() {
    let place = Place::new();
    let mut store = place.open();
    let (alive, dead) = (run_id(), run_id());
    let kept = store.begin_run(alive).unwrap();
    let lock = store.begin_run(dead).unwrap();
    let first = begin(&mut store, alive);
    let second = begin(&mut store, dead);
    store.ready(&stamp()).unwrap();
    assert_eq!(place.walk().len(), 3, "both are alive");
    // What a killed runner leaves: the file, and nobody who holds it.
    let path = place.dir().join("runs").join(format!("{dead}.lock"));
    drop(lock);
    std::fs::write(&path, "").unwrap();
    let mut other = place.open();
    other.ready(&stamp()).unwrap();
    other.ready(&stamp()).unwrap();
    assert!(!path.exists());
    let notices = other.notices();
    assert!(
        matches!(notices[..], [Notice::ClosedRun { run, start }]
            if run == dead && start == second.value()),
        "{notices:?}"
    );
    let records = place.walk();
    assert_eq!(records.len(), 4);
    let Body::Execution(end) = &records[3].body else {
        panic!("no execution");
    };
    assert_eq!(end.start, second);
    assert_eq!(end.result.outcome, Outcome::Interrupted);
    assert_eq!(end.verdict, Verdict::Interrupted);
    drop(kept);
    other.ready(&stamp()).unwrap();
    let records = place.walk();
    assert!(matches!(&records[4].body, Body::Execution(end) if end.start == first));
}

fn left_in(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn the_next_run_takes_the_lock_file_of_the_one_before() {
    use std::os::unix::fs::MetadataExt as _;
    let place = Place::new();
    let mut store = place.open();
    let runs = place.dir().join("runs");
    let inode = |name: &str| std::fs::metadata(runs.join(name)).unwrap().ino();
    let first = store.begin_run(run_id()).unwrap();
    let file = inode(&format!("{}.lock", first.run()));
    // A child that was forked meanwhile holds the file open.
    let held = std::os::fd::AsFd::as_fd(&first)
        .try_clone_to_owned()
        .unwrap();
    drop(first);
    assert_eq!(inode("spare"), file);
    let second = store.begin_run(run_id()).unwrap();
    assert_eq!(inode(&format!("{}.lock", second.run())), file);
    let third = store.begin_run(run_id()).unwrap();
    drop((second, third, held));
    assert_eq!(left_in(&runs), ["spare"]);
}

#[test]
fn what_dead_processes_left_in_runs_is_swept() {
    let place = Place::new();
    let mut store = place.open();
    let kept = store.begin_run(run_id()).unwrap();
    let mut blob = store.blob_writer().unwrap();
    blob.write_all(b"half").unwrap();
    let runs = place.dir().join("runs");
    std::fs::write(runs.join("00.lock"), "").unwrap();
    std::fs::write(runs.join("00.blob"), "half").unwrap();
    place.open();
    assert_eq!(left_in(&runs).len(), 2, "what is held stays");
    drop((kept, blob));
    assert_eq!(left_in(&runs), ["spare"]);
}

#[test]
fn blobs_are_named_by_their_content() {
    let place = Place::new();
    let mut store = place.open();
    let content = vec![7; 100_000];
    let hash = store.put_blob(&content).unwrap();
    assert_eq!(store.put_blob(&content).unwrap(), hash);
    let path = place.dir().join(blob_name(&hash));
    assert_eq!(std::fs::read(&path).unwrap(), content);
    // A blob that is damaged is written again.
    std::fs::write(&path, b"damaged").unwrap();
    store.put_blob(&content).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);

    let mut writer = store.blob_writer().unwrap();
    writer.write_all(b"bit ").unwrap();
    writer.write_all(b"by bit").unwrap();
    let hash = writer.commit().unwrap();
    assert_eq!(hash, Hash::of(b"bit by bit"));
    assert_eq!(
        std::fs::read(place.dir().join(blob_name(&hash))).unwrap(),
        b"bit by bit"
    );
    drop(store.blob_writer().unwrap());
    assert!(left_in(&place.dir().join("runs")).is_empty());
}

#[test]
fn what_cannot_be_renewed_is_said_and_the_record_is_kept() {
    let place = Place::new();
    let mut store = place.open();
    store.notices();
    // A folder where the checkpoint should go.
    std::fs::remove_file(place.dir().join("checkpoint")).unwrap();
    std::fs::create_dir_all(place.dir().join("checkpoint/x")).unwrap();
    say(&mut store, "kept");
    let notices = texts(&store.notices());
    assert!(
        notices.len() == 1 && notices[0].contains("checkpoint could not be renewed"),
        "{notices:?}"
    );
    assert_eq!(place.walk().len(), 2);
    std::fs::remove_dir_all(place.dir().join("checkpoint")).unwrap();
    say(&mut store, "and covered");
    assert_eq!(place.walk_covered().len(), 3);
}

#[test]
fn segments_roll() {
    let place = Place::new();
    let mut store = place.open();
    for _ in 2..SEGMENT_RECORDS {
        store
            .append(note("x"), None, &stamp(), Durability::Deferred)
            .unwrap();
    }
    say(&mut store, "the last of the first segment");
    assert!(!place.segment(1).exists());
    // Something endless where the next segment goes.
    std::os::unix::fs::symlink("/dev/zero", place.segment(1)).unwrap();
    let refused = store.append(note("x"), None, &stamp(), Durability::Durable);
    assert!(matches!(
        refused,
        Err(AppendError::Read(ReadRecordsError::File(error))) if error.is_not_regular()
    ));
    std::fs::remove_file(place.segment(1)).unwrap();
    let refused = store.append(note("x"), None, &stamp(), Durability::Durable);
    assert!(matches!(refused, Err(AppendError::Stopped)));
    assert!(matches!(store.ready(&stamp()), Err(AppendError::Stopped)));

    let mut store = place.open();
    assert_eq!(store.size(), SEGMENT_RECORDS);
    // As a crash leaves it between making the segment and writing to it, or in the middle of that.
    std::fs::write(place.segment(1), "").unwrap();
    store.ready(&stamp()).unwrap();
    say(&mut store, "the first of the next segment");
    let count = |index| {
        let text = std::fs::read_to_string(place.segment(index)).unwrap();
        text.lines().count() as u64
    };
    assert_eq!((count(0), count(1)), (SEGMENT_RECORDS, 1));
    say(&mut place.open(), "by caches");
    std::fs::remove_file(place.dir().join("tip")).unwrap();
    say(&mut place.open(), "by a walk");
    assert_eq!(count(1), 3);
    assert_eq!(place.walk_covered().len() as u64, SEGMENT_RECORDS + 3);

    lost_segments(&place);

    // A full segment that goes on.
    std::fs::remove_file(place.dir().join("tip")).unwrap();
    place.push(b"surplus\n");
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::Find(FindError::Read(
            ReadRecordsError::Surplus(_)
        )))
    ));
}

/// A ledger of one full segment and three records loses the second segment, and something stands where a third
/// one would.
fn lost_segments(place: &Place) {
    let text = std::fs::read(place.segment(1)).unwrap();
    let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::remove_file(place.segment(1)).unwrap();
    std::fs::write(place.segment(2), &text[first..]).unwrap();
    let error = place.try_open().unwrap_err();
    assert!(
        matches!(&error, OpenLedgerError::Differs { difference, .. }
            if matches!(**difference, Difference::Shorter { found: SEGMENT_RECORDS, .. })),
        "{error}"
    );
    let text_of = error.to_string();
    assert!(
        text_of.contains("says 8195 (last sequence 8194)"),
        "{text_of}"
    );
    assert!(!place.segment(1).exists() && place.segment(2).exists());
    // What stood behind it is set aside, once that is accepted.
    say(&mut place.accept(), "goes on");
    assert!(!place.segment(2).exists());
    let aside = place
        .dir()
        .join("torn")
        .join(Hash::of(&text[first..]).to_string());
    assert_eq!(std::fs::read(aside).unwrap(), &text[first..]);
    assert_eq!(place.walk_covered().len() as u64, SEGMENT_RECORDS + 2);
}
