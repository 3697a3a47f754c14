//! Nothing can be changed unseen, and every way of reading gives the same answer.

use std::fs;
use std::io::{Cursor, Read};

use ledger::file::source::Source;
use ledger::file::walk::{Shown, Visitor, Walked, walk};
use ledger::finding::{Class, Code, Finding};
use proptest::prelude::*;

use crate::support::{vectors, walked_stream};

fn lines_of(vector: &str) -> Vec<u8> {
    let path = vectors().join(vector);
    fs::read(path.join("ledger/records/00000000.jsonl")).unwrap()
}

fn is_clean(walked: &Walked) -> bool {
    !walked.findings.any(Class::Invalid) && !walked.findings.any(Class::Unproven)
}

#[test]
fn every_flipped_bit_is_found() {
    for vector in ["valid", "key_rotated", "opening_valid"] {
        let good = lines_of(vector);
        assert!(is_clean(&walked_stream(good.clone())), "{vector}");
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(!is_clean(&walked_stream(bytes)), "{vector}: byte {at}");
        }
    }
}

proptest! {
    #[test]
    fn any_other_byte_is_found(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = lines_of("opening_valid");
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(!is_clean(&walked_stream(bytes)));
    }

    #[test]
    fn cut_anywhere_it_is_torn_shorter_or_empty(at in any::<prop::sample::Index>()) {
        let whole = lines_of("opening_valid");
        let at = at.index(whole.len());
        let walked = walked_stream(whole[..at].to_vec());
        prop_assert!(!walked.findings.any(Class::Invalid));
        let ends_with_record = at == 0 || whole[..at].ends_with(b"\"}\n");
        prop_assert_eq!(walked.findings.count(Code::TornTail) == 0, ends_with_record);
    }

    #[test]
    fn hostile_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
        let walked = walked_stream(bytes);
        prop_assert!(walked.tally.records <= lines);
        prop_assert_eq!(walked.tally.verified, 0);
    }
}

#[test]
fn a_deleted_repeated_or_swapped_line_is_found() {
    let good = lines_of("valid");
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    for at in 0..lines.len() {
        let mut deleted = lines.clone();
        deleted.remove(at);
        // Without something outside, nobody can miss the last record.
        let walked = walked_stream(deleted.concat());
        assert_eq!(is_clean(&walked), at + 1 == lines.len(), "deleted {at}");
        let mut repeated = lines.clone();
        repeated.insert(at, lines[at]);
        assert!(
            !is_clean(&walked_stream(repeated.concat())),
            "repeated {at}"
        );
        for other in at + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(at, other);
            assert!(
                !is_clean(&walked_stream(swapped.concat())),
                "swapped {at} {other}"
            );
        }
    }
}

#[derive(Default)]
struct Seen(Vec<(u64, String)>);

impl Visitor for Seen {
    fn verified(
        &mut self,
        shown: &Shown<'_>,
        _: &mut ledger::file::walk::Findings,
    ) -> Result<(), ledger::file::source::ReadError> {
        let record = shown.record;
        self.0
            .push((record.sequence.value(), record.body.kind().to_owned()));
        Ok(())
    }

    fn unverified(&mut self, sequence: u64) {
        self.0.push((sequence, "unverified".to_owned()));
    }
}

/// Findings without their places, which name the source.
fn told(walked: Walked) -> Vec<Finding> {
    let mut list = walked.findings.into_list();
    list.iter_mut().for_each(|finding| {
        finding.place = finding.place.take().map(|mut place| {
            place.file.clear();
            place
        });
    });
    list
}

#[test]
fn streams_and_folders_agree() {
    for entry in fs::read_dir(vectors()).unwrap() {
        let folder = entry.unwrap().path().join("ledger");
        // A stream has one segment, no stored checkpoint and nothing set aside.
        if folder.join("records/00000001.jsonl").exists()
            || folder.join("checkpoint").exists()
            || folder.join("torn").exists()
        {
            continue;
        }
        let (mut one, mut two, mut three) = (Seen::default(), Seen::default(), Seen::default());
        let file = folder.join("records/00000000.jsonl");
        let from_folder = walk(&mut Source::open(&folder).unwrap(), None, &mut one).unwrap();
        let from_file = walk(&mut Source::open(&file).unwrap(), None, &mut two).unwrap();
        let mut stream = Source::from_reader("-", Box::new(fs::File::open(&file).unwrap()));
        let from_stream = walk(&mut stream, None, &mut three).unwrap();
        assert_eq!(one.0, two.0, "{}", folder.display());
        assert_eq!(one.0, three.0);
        assert_eq!(from_folder.root, from_file.root);
        assert_eq!(from_folder.chain, from_stream.chain);
        let told_by_folder = told(from_folder);
        assert_eq!(told_by_folder, told(from_file));
        assert_eq!(told_by_folder, told(from_stream));
    }
}

#[test]
fn a_huge_line_is_hashed_and_not_kept() {
    let huge = std::io::repeat(b'a').take(64 * 1024 * 1024);
    let bytes = Cursor::new(b"\n".to_vec());
    let mut source = Source::from_reader("-", Box::new(huge.chain(bytes)));
    let line = source.lines.next(&mut |_| {}).unwrap().unwrap();
    assert!(line.bytes.capacity() <= 2 * 65_536);
    assert_eq!(line.long.unwrap().length, 64 * 1024 * 1024);
    let mut hasher = ledger::bytes::hash::Hasher::leaf();
    (0..64).for_each(|_| hasher.update(&[b'a'; 1024 * 1024]));
    assert_eq!(line.long.unwrap().hash, hasher.finish());
}

#[test]
fn a_line_one_byte_too_long_keeps_its_hash() {
    for length in [65_535usize, 65_536, 65_537, 131_072, 200_000] {
        let bytes = vec![b'x'; length];
        let whole = [bytes.clone(), b"\n".to_vec()].concat();
        let mut source = Source::from_reader("-", Box::new(Cursor::new(whole)));
        let line = source.lines.next(&mut |_| {}).unwrap().unwrap();
        let hash = ledger::bytes::hash::Hash::leaf(&bytes);
        assert_eq!(
            line.long.map(|long| long.hash),
            (length > 65_535).then_some(hash)
        );
    }
}
