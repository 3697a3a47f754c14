//! Whatever is changed in a ledger of real executions is found, at the place where it was changed.
//!
//! The ledgers are made here by the runner, two by one key. One model ([`Model`]) says where a change must be found
//! first, whatever made it; every test asks it.

mod model;
mod real;
mod told;

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;

use ledger::file::chain::Chain;
use ledger::file::source::Source;
use ledger::file::walk::{Given, walk};
use ledger::finding::{Code, Finding};
use ledger::record::{Content, Opening, parse_line};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use model::{Model, change};
use real::{Real, content, is_opening, of_lines, real};

/// What a line that is not the runner's any more is called.
const CHANGED: [Code; 4] = [
    Code::RecordMalformed,
    Code::RecordNotCanonical,
    Code::SignatureInvalid,
    Code::KeyUnknown,
];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_change_is_found_where_it_was_made(change in change()) {
        let Some(real) = real("tamper::every_change_is_found_where_it_was_made") else {
            return Ok(());
        };
        let lines = change.made(real);
        Model::of(real, &lines).holds(of_lines(&lines))?;
    }
}

/// The codes of the findings at a line.
fn codes_at(list: &[Finding], line: usize) -> Vec<Code> {
    let here = |finding: &&Finding| {
        let place = finding.place.as_ref();
        place.and_then(|place| place.line) == Some(line as u64)
    };
    list.iter()
        .filter(here)
        .map(|finding| finding.code)
        .collect()
}

/// Walks changed lines, held against the model; what was found.
#[track_caller]
fn found(real: &Real, lines: &[Vec<u8>]) -> Vec<Finding> {
    Model::of(real, lines).holds(of_lines(lines)).unwrap()
}

#[test]
fn every_bit_of_a_record_and_of_an_opening_counts() {
    let Some(real) = real("tamper::every_bit_of_a_record_and_of_an_opening_counts") else {
        return;
    };
    let flips = |line: &'static [u8]| {
        (0..line.len() * 8).map(move |bit| {
            let mut bytes = line.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            (bit, bytes)
        })
    };
    // Genesis and the last record, each at its place in the chain.
    let mut chain = Chain::new();
    let records: Vec<&Vec<u8>> = real.lines.iter().filter(|line| !is_opening(line)).collect();
    for (index, line) in records.iter().enumerate() {
        let line = content(line);
        if index == 0 || index + 1 == records.len() {
            for (bit, bytes) in flips(line) {
                let mut codes = BTreeSet::new();
                let parsed = parse_line(&bytes);
                chain.clone().step(&parsed, &bytes, &mut |finding| {
                    codes.insert(finding.code);
                });
                let named = CHANGED.iter().any(|code| codes.contains(code));
                assert!(named, "record {index}, bit {bit}: {codes:?}");
            }
        }
        chain.step(&parse_line(line), line, &mut |finding| {
            panic!("{finding:?}")
        });
    }
    // The shortest opening.
    let pairs = real.lines.windows(2).filter(|pair| is_opening(&pair[0]));
    let pair = pairs.min_by_key(|pair| pair[0].len()).unwrap();
    let Ok(Content::Record(record)) = parse_line(content(&pair[1])).content else {
        panic!("no record");
    };
    assert_eq!(
        Opening::parse(content(&pair[0])).unwrap().fits(&record),
        Ok(())
    );
    for (bit, bytes) in flips(content(&pair[0])) {
        let fits = Opening::parse(&bytes).is_ok_and(|opening| opening.fits(&record).is_ok());
        assert!(!fits, "opening, bit {bit}");
    }
}

#[test]
fn what_is_deleted_repeated_or_mixed_in_is_named() {
    let Some(real) = real("tamper::what_is_deleted_repeated_or_mixed_in_is_named") else {
        return;
    };
    for (index, line) in real.lines.iter().enumerate() {
        let at = index + 1;
        let mut lines = real.lines.clone();
        lines.remove(index);
        let list = found(real, &lines);
        let sequence = match is_opening(line) {
            true => Opening::parse(content(line)).unwrap().sequence.value(),
            false => parse_line(content(line)).head.unwrap().sequence,
        };
        if is_opening(line) {
            assert_eq!(list.len(), 1, "{list:#?}");
            assert_eq!(list[0].code, Code::OpeningWithheld);
            assert_eq!(list[0].sequence, Some(sequence));
        } else if index == 0 {
            assert!(
                codes_at(&list, 1).contains(&Code::GenesisMissing),
                "{list:#?}"
            );
        } else if at == real.lines.len() {
            // Nothing behind it misses it: only a checkpoint can.
            assert!(list.is_empty(), "{list:#?}");
        } else {
            let gap = list
                .iter()
                .find(|it| it.code == Code::ChainSequenceGap)
                .unwrap();
            assert_eq!(gap.expected, Some(sequence.to_string()));
            assert_eq!(gap.sequence, Some(sequence + 1));
        }
        let mut lines = real.lines.clone();
        lines.insert(index, line.clone());
        let list = found(real, &lines);
        let expected = match (is_opening(line), index) {
            (true, _) => Code::OpeningMismatch,
            (false, 0) => Code::GenesisRepeated,
            (false, _) => Code::ChainSequenceGap,
        };
        assert!(
            codes_at(&list, at + 1).contains(&expected),
            "{at}: {list:#?}"
        );
    }
    let last = real.sibling.len() - 1;
    for (index, line) in real.sibling.iter().enumerate() {
        for replaces in [false, true] {
            let mut lines = real.lines.clone();
            match replaces {
                true => lines[index] = line.clone(),
                false => lines.insert(index, line.clone()),
            }
            let list = found(real, &lines);
            let (at, expected) = match (is_opening(line), index) {
                (true, _) => (index + 1, Code::OpeningMismatch),
                // It begins the sibling, and what follows is not of it.
                (false, 0) => (2, Code::LedgerMismatch),
                (false, _) => (index + 1, Code::LedgerMismatch),
            };
            assert!(
                codes_at(&list, at).contains(&expected),
                "{index} of {last}: {list:#?}"
            );
        }
    }
}

#[test]
fn every_bit_of_a_checkpoint_counts() {
    let Some(real) = real("tamper::every_bit_of_a_checkpoint_counts") else {
        return;
    };
    let good = &real.files[Path::new("checkpoint")];
    // Genesis has the key; the rest is not needed to tell a good note from a bad one.
    let judged = |bytes: &[u8]| {
        let genesis = Cursor::new(real.lines[0].clone());
        let mut source = Source::from_reader("-", Box::new(genesis));
        let given = Given {
            name: "given",
            bytes,
        };
        let findings = walk(&mut source, Some(given), &mut ()).unwrap().findings;
        findings.codes().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(judged(good), [Code::TailTruncated]);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let codes = judged(&bytes);
        let bad = [vec![Code::CheckpointInvalid], vec![Code::LedgerReplaced]];
        assert!(bad.contains(&codes), "bit {bit}: {codes:?}");
    }
}
