//! Many writers on one folder.

use super::*;

#[test]
fn two_stores_interleave() {
    let place = Place::new();
    let (mut one, mut two) = (place.open(), place.open());
    for n in 0..20 {
        let store = if n % 3 == 0 { &mut one } else { &mut two };
        let durability = if n % 2 == 0 {
            Durability::Durable
        } else {
            Durability::Deferred
        };
        let body = note(&format!("note {n}"));
        let appended = store.append(body, None, &stamp(), durability).unwrap();
        assert_eq!(appended.sequence.value(), n + 1);
    }
    say(&mut one, "last");
    assert_eq!(place.walk_covered().len(), 22);
    let mut store = place.open();
    assert_eq!((store.size(), store.head()), (22, one.head()));
    assert!(store.notices().is_empty());
}

#[test]
fn who_is_kept_waiting_is_told_once() {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    static TOLD: Mutex<Option<Sender<PathBuf>>> = Mutex::new(None);
    let (tell, told) = channel();
    *TOLD.lock().unwrap() = Some(tell);
    // By the file, and by the folder, which somebody holds whose file was removed.
    for what in ["lock", "."] {
        let place = Place::new();
        place.open();
        let held = std::fs::File::open(place.dir().join(what)).unwrap();
        held.lock().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let store = place.try_open_with(|options| {
                    options.say_waiting = Some(|folder| {
                        let tell = TOLD.lock().unwrap().clone().unwrap();
                        tell.send(folder.to_owned()).unwrap();
                    });
                });
                say(&mut store.unwrap(), "at last")
            });
            // It has nothing yet, and says what it waits for.
            assert_eq!(told.recv().unwrap(), place.dir(), "{what}");
            assert_eq!(place.walk().len(), 1);
            held.unlock().unwrap();
            assert_eq!(waiter.join().unwrap().sequence.value(), 1);
        });
        assert_eq!(told.try_iter().count(), 0, "{what}");
        assert_eq!(place.walk_covered().len(), 2);
    }
}

#[test]
fn who_writes_is_waited_for_also_when_its_lock_was_removed() {
    let place = Place::new();
    let mut first = place.open();
    let run = run_id();
    let _lock = first.begin_run(run).unwrap();
    first.ready(&stamp()).unwrap();
    first.host(&host_facts("6.1"), &stamp()).unwrap();
    let mine = begin(&mut first, run);
    let (mine, other, mut second) = std::thread::scope(|scope| {
        let mut others = None;
        let written = first.locked(|first| {
            first.catch_up(&stamp())?;
            std::fs::remove_file(place.dir().join("lock")).unwrap();
            let other = scope.spawn(|| {
                let mut second = place.open();
                let run = run_id();
                let lock = second.begin_run(run).unwrap();
                (begin(&mut second, run), second, lock)
            });
            // Time enough to write, were it not to wait.
            let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
            while std::time::Instant::now() < until && !other.is_finished() {
                std::thread::yield_now();
            }
            others = Some(other);
            first.write_record(execution(mine), None, &stamp(), Durability::Durable)
        });
        let (other, second, _) = others.unwrap().join().unwrap();
        (written.unwrap().sequence, other, second)
    });
    assert_eq!(other.value(), mine.value() + 1);
    let last = second.append(execution(other), None, &stamp(), Durability::Durable);
    assert_eq!(last.unwrap().sequence.value(), other.value() + 1);
    assert_eq!(place.walk_covered().len() as u64, other.value() + 2);
}

#[test]
fn sixteen_writers_make_one_chain() {
    const WRITERS: u64 = 16;
    const EACH: u64 = 12;
    let place = Place::new();
    let mut sequences = std::thread::scope(|scope| {
        // All begin at once, and only one of them begins the ledger.
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let place = &place;
                scope.spawn(move || {
                    let mut store = place.open();
                    let mut sequences = Vec::new();
                    for n in 0..EACH {
                        let run = run_id();
                        let lock = store.begin_run(run).unwrap();
                        store.ready(&stamp()).unwrap();
                        store.host(&host_facts("6.1"), &stamp()).unwrap();
                        let begun = begin(&mut store, run);
                        if n == EACH / 2 {
                            let _ = std::fs::remove_file(place.dir().join("lock"));
                        }
                        if writer % 4 == 0 && n % 4 == 3 {
                            store = place.open();
                        }
                        let end = execution(begun);
                        let ended = store
                            .append(end, None, &stamp(), Durability::Durable)
                            .unwrap();
                        drop(lock);
                        sequences.extend([begun.value(), ended.sequence.value()]);
                    }
                    sequences
                })
            })
            .collect();
        let writers = writers.into_iter();
        writers
            .flat_map(|writer| writer.join().unwrap())
            .collect::<Vec<_>>()
    });
    sequences.sort_unstable();
    let expected: Vec<_> = (2..2 + 2 * WRITERS * EACH).collect();
    assert_eq!(sequences, expected);
    let records = place.walk_covered();
    assert_eq!(records.len() as u64, 2 + 2 * WRITERS * EACH);
    let hosts = records
        .iter()
        .filter(|record| matches!(record.body, Body::Host(_)));
    assert_eq!(hosts.count(), 1);
    let mut store = place.open();
    assert!(store.notices().is_empty());
    assert!(store.state.open.is_empty());
    let left = std::fs::read_dir(place.dir().join("runs")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["spare"]);
}
