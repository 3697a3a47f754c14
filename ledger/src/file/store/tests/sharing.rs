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
