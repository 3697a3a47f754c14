//! Appending to a large ledger costs what it costs on a small one: nothing old is opened or read.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use ledger::file::store::{Durability, Notice, SEGMENT_RECORDS, Store, segment_name};
use ledger::proof::tree::{stored_count, stored_index};

use crate::made::{self, Shape};
use crate::support::{append, is_good, reopen, walked, walked_stream};

const SEED: u64 = 7;
const HASH_BYTES: u64 = 32;

fn is_rebuilt(store: &mut Store) -> bool {
    let notices = store.notices();
    notices
        .iter()
        .any(|notice| matches!(notice, Notice::Rebuilt { .. }))
}

/// Keeps of `tree` only what a tree of `size` leaves needs: its complete subtrees, and its last leaf.
fn keep_frontier(tree: &Path, size: u64) -> u64 {
    let whole = fs::read(tree).unwrap();
    assert_eq!(whole.len() as u64, stored_count(size) * HASH_BYTES);
    let mut needed = vec![stored_index(0, size - 1)];
    let mut before = 0;
    for level in (0..u64::BITS).rev() {
        if size & (1 << level) != 0 {
            needed.push(stored_index(level, before >> level));
            before += 1 << level;
        }
    }
    let mut file = fs::File::create(tree).unwrap();
    file.set_len(whole.len() as u64).unwrap();
    for index in &needed {
        let at = index * HASH_BYTES;
        let from = usize::try_from(at).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&whole[from..from + 32]).unwrap();
    }
    needed.len() as u64
}

#[test]
fn appending_to_a_large_ledger_reads_none_of_it() {
    let at = tempfile::tempdir().unwrap();
    let (dir, keys) = (at.path().join("ledger"), at.path().join("keys"));
    let records = SEGMENT_RECORDS + 40;
    let made = made::folder(&dir, &keys, records, SEED, Shape::default()).unwrap();
    // Reads all of it once and makes the caches; this one is covered by checkpoint and `.heads`.
    let mut store = reopen(at.path());
    assert!(is_rebuilt(&mut store));
    append(&mut store, "appended", Durability::Durable);
    let size = made.size() + 1;
    assert_eq!(store.size(), size);

    // A store that is open: the full segment is away.
    let old = dir.join("records").join(segment_name(0));
    let away = at.path().join("away");
    fs::rename(&old, &away).unwrap();
    append(&mut store, "appended", Durability::Deferred);
    append(&mut store, "appended", Durability::Durable);
    drop(store);

    // A store that is opened: the full segment has no content, `tree` has only a few of its hashes.
    let length = fs::metadata(&away).unwrap().len();
    fs::File::create(&old).unwrap().set_len(length).unwrap();
    let tree = fs::read(dir.join("tree")).unwrap();
    let kept = keep_frontier(&dir.join("tree"), size + 2);
    assert!(kept <= 1 + u64::from(u64::BITS - size.leading_zeros()));
    assert!(fs::metadata(dir.join("tip")).unwrap().len() < 2_000);
    let mut store = reopen(at.path());
    assert!(!is_rebuilt(&mut store));
    append(&mut store, "appended", Durability::Durable);
    drop(store);
    assert_eq!(
        fs::read(&old).unwrap(),
        vec![0; usize::try_from(length).unwrap()]
    );

    // With the old segment back, all of it is one unbroken chain, and `tree` is what it would have been.
    fs::rename(&away, &old).unwrap();
    let now = fs::read(dir.join("tree")).unwrap();
    let walked = walked(&dir);
    assert_eq!(walked.tally.verified, size + 3);
    is_good(walked);
    let mut whole = tree.clone();
    whole.extend_from_slice(&now[tree.len()..]);
    fs::write(dir.join("tree"), whole).unwrap();
    assert!(!is_rebuilt(&mut reopen(at.path())));
}

#[test]
fn a_made_ledger_is_the_same_for_the_same_seed_and_verifies() {
    let shape = Shape {
        rotate_every: Some(3),
    };
    let lines = made::lines(24, SEED, shape).unwrap();
    assert_eq!(lines, made::lines(24, SEED, shape).unwrap());
    assert_ne!(lines, made::lines(24, SEED + 1, shape).unwrap());
    let walked = walked_stream(lines.clone());
    assert_eq!((walked.tally.verified, walked.findings.worst()), (24, None));
    assert_eq!(walked.chain.keys().len(), 4);
    // Of the size that real ones have.
    let each = lines.len() / 24;
    assert!((2_000..3_000).contains(&each), "{each} bytes a record");
}
