//! Whatever happens between appends, the chain stays one.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Append { by: usize, durable: bool },
    Begin { by: usize },
    Ready { by: usize },
    Reopen { by: usize },
    Delete(&'static str),
    Blank(&'static str),
    Tear { bytes: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let by = 0..3usize;
    let derived = prop::sample::select(vec!["tip", "tree", "lock", "checkpoint", "heads"]);
    let blank = prop::sample::select(vec!["tip", "tree", "checkpoint", "heads"]);
    prop_oneof![
        4 => (by.clone(), any::<bool>()).prop_map(|(by, durable)| Step::Append { by, durable }),
        2 => by.clone().prop_map(|by| Step::Begin { by }),
        1 => by.clone().prop_map(|by| Step::Ready { by }),
        2 => by.prop_map(|by| Step::Reopen { by }),
        2 => derived.prop_map(Step::Delete),
        1 => blank.prop_map(Step::Blank),
        1 => (1..200u64).prop_map(|bytes| Step::Tear { bytes }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_interleaving_keeps_one_unbroken_chain(steps in prop::collection::vec(step(), 1..40)) {
        let place = Place::new();
        let mut stores: Vec<Store> = (0..3).map(|_| place.open()).collect();
        let mut kept: Vec<Hash> = vec![stores[0].head()];
        let mut torn = false;
        for step in steps {
            match step {
                Step::Append { by, durable } => {
                    let durability = if durable { Durability::Durable } else { Durability::Deferred };
                    let appended = stores[by].append(note("x"), None, &stamp(), durability).unwrap();
                    kept.push(appended.hash);
                    torn = false;
                }
                Step::Begin { by } => {
                    let (body, opened) = start(run_id());
                    let appended = stores[by]
                        .append(body, Some(opened), &stamp(), Durability::Deferred)
                        .unwrap();
                    kept.push(appended.hash);
                    torn = false;
                }
                Step::Ready { by } => {
                    stores[by].ready(&stamp()).unwrap();
                    torn = false;
                }
                Step::Reopen { by } => {
                    stores[by] = place.open();
                    torn = false;
                }
                Step::Delete(name) | Step::Blank(name) => {
                    let path = match name {
                        "heads" => match place.keys().read_dir().unwrap().find_map(|entry| {
                            let path = entry.unwrap().path();
                            path.extension().is_some_and(|e| e == "heads").then_some(path)
                        }) {
                            Some(path) => path,
                            None => continue,
                        },
                        name => place.dir().join(name),
                    };
                    if matches!(step, Step::Delete(_)) {
                        let _ = std::fs::remove_file(path);
                    } else if path.exists() {
                        let length = std::fs::metadata(&path).unwrap().len();
                        std::fs::write(&path, vec![0; usize::try_from(length).unwrap()]).unwrap();
                    }
                }
                // A writer that died in the middle of its write.
                Step::Tear { bytes } if !torn => {
                    let line = lines(&place.dir()).pop().unwrap();
                    let half = &line[..usize::try_from(bytes).unwrap().min(line.len() - 1)];
                    place.push(half);
                    torn = true;
                }
                Step::Tear { .. } => {}
            }
        }
        let last = say(&mut place.open(), "last");
        kept.push(last.hash);
        let records = place.walk_covered();
        let hashes: Vec<_> = lines(&place.dir())
            .iter()
            .filter(|line| !line.starts_with(OPENING_PREFIX))
            .map(|line| Hash::leaf(line))
            .collect();
        prop_assert_eq!(hashes.len(), records.len());
        // Every record that an append gave back is there, in that order.
        let mut left = hashes.iter();
        for hash in &kept {
            prop_assert!(left.any(|there| there == hash), "{} is missing", hash);
        }
    }
}
