//! What the program `verify` tells of a changed ledger.

use std::fs;
use std::path::Path;

use ledger::record::{Opening, parse_line};
use proptest::prelude::*;

use super::model::{Model, change};
use super::real::{Real, SEGMENT, content, is_opening, real};
use crate::verifier::{NO_VERIFIER, Verdict, verdict, verifier};
use crate::world::skip;

/// `verify`, and the ledger that it is asked about; `None`, said on stderr, where one of them is not there.
fn with_verifier(test: &str) -> Option<(&'static Path, &'static Real)> {
    let real = real(test)?;
    if verifier().is_none() {
        skip(test, NO_VERIFIER);
    }
    Some((verifier()?, real))
}

/// The first line of the records that an invalid finding names.
fn first_line(verdict: &Verdict) -> Option<u64> {
    let invalid = verdict.findings().filter(|it| it["severity"] == "invalid");
    let here = invalid.filter(|finding| finding["place"]["file"] == SEGMENT);
    here.filter_map(|finding| finding["place"]["line"].as_u64())
        .min()
}

#[test]
fn verify_names_the_place_of_any_change() {
    let test = "tamper::verify_names_the_place_of_any_change";
    let Some((verify, real)) = with_verifier(test) else {
        return;
    };
    verdict(verify, real.folder(&real.lines).path(), None).is(0, &[]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    });
    let checked = runner.run(&change(), |change| {
        let lines = change.made(real);
        let model = Model::of(real, &lines);
        let folder = real.folder(&lines);
        // The stored checkpoint knows how many records there were.
        let verdict = verdict(verify, folder.path(), None);
        let expected = if model.shorter {
            10
        } else {
            i32::from(model.code())
        };
        prop_assert_eq!(verdict.code, expected, "{:?}: {:#?}", model, verdict);
        prop_assert_eq!(first_line(&verdict), model.first, "{:#?}", verdict);
        let codes = verdict.codes();
        prop_assert!(!model.shorter || codes.contains(&"tail-truncated"));
        prop_assert_eq!(codes.contains(&"torn-tail"), model.torn);
        // Records are told in their order.
        let chain = verdict.findings().filter(|it| {
            let code = it["code"].as_str().unwrap();
            code.starts_with("record-") || code.starts_with("chain-") || code == "signature-invalid"
        });
        let lines = chain.map(|finding| finding["place"]["line"].as_u64());
        prop_assert!(lines.is_sorted(), "{:#?}", verdict);
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}\n{runner}");
    }
}

#[test]
fn without_a_checkpoint_a_missing_end_is_a_matter_of_completeness() {
    let test = "tamper::without_a_checkpoint_a_missing_end_is_a_matter_of_completeness";
    let Some((verify, real)) = with_verifier(test) else {
        return;
    };
    let folder = real.folder(&real.lines[..real.lines.len() - 1]);
    let stored = folder.path().join("checkpoint");
    let kept = folder.path().join("elsewhere");
    fs::rename(&stored, &kept).unwrap();
    let alone = verdict(verify, folder.path(), None);
    alone.is(0, &[]).finding("completeness-not-established");
    assert_eq!(
        alone.document["assurance"]["completeness"]["status"],
        "not-established"
    );
    let given = verdict(verify, folder.path(), Some(&kept));
    given.is(10, &["tail-truncated"]);
    assert_eq!(
        given.finding("tail-truncated")["expected"],
        "15 records or more"
    );
    assert_eq!(
        given.document["assurance"]["completeness"]["status"],
        "broken"
    );
}

#[test]
fn verify_names_a_changed_blob_or_checkpoint() {
    let test = "tamper::verify_names_a_changed_blob_or_checkpoint";
    let Some((verify, real)) = with_verifier(test) else {
        return;
    };
    let blobs = real.blobs();
    assert!(blobs.len() >= 3, "{blobs:?}");
    for path in blobs {
        let name = path.to_string_lossy().replace(['/', '\\'], "");
        let name = name.strip_prefix("blobs").unwrap();
        // The record that names it first; for a sealed value its opening does.
        let holds = |line: &&Vec<u8>| String::from_utf8_lossy(line).contains(name);
        let line = content(real.lines.iter().find(holds).unwrap());
        let sequence = match is_opening(line) {
            true => Opening::parse(line).unwrap().sequence.value(),
            false => parse_line(line).head.unwrap().sequence,
        };
        let good = &real.files[path];
        for bit in [0, good.len() * 3, good.len() * 8 - 1] {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let folder = real.folder_with(path, &bytes);
            let verdict = verdict(verify, folder.path(), None);
            let finding = verdict.is(10, &["blob-mismatch"]).finding("blob-mismatch");
            assert_eq!(finding["sequence"], sequence, "{verdict:#?}");
        }
        let longer = [good.as_slice(), b"\n"].concat();
        for bytes in [&good[..good.len() - 1], &longer, b""] {
            let folder = real.folder_with(path, bytes);
            verdict(verify, folder.path(), None).is(10, &["blob-mismatch"]);
        }
        let folder = real.folder(&real.lines);
        fs::remove_file(folder.path().join(path)).unwrap();
        let verdict = verdict(verify, folder.path(), None);
        let finding = verdict.is(11, &["blob-missing"]).finding("blob-missing");
        assert_eq!(finding["sequence"], sequence, "{verdict:#?}");
    }
    let good = &real.files[Path::new("checkpoint")];
    for at in (0..good.len()).step_by(17) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        let folder = real.folder_with(Path::new("checkpoint"), &bytes);
        let verdict = verdict(verify, folder.path(), None);
        let finding = verdict
            .is(10, &["checkpoint-invalid"])
            .finding("checkpoint-invalid");
        assert_eq!(finding["place"]["file"], "checkpoint");
    }
}

#[test]
fn what_is_derived_changes_no_verdict_and_is_made_again() {
    let world = crate::world::ready!();
    world.exec("-q", &["true"]).ended(0);
    let ledger = world.ledger();
    for name in ["tip", "tree", "lock"] {
        let length = fs::read(ledger.join(name)).unwrap().len();
        for part in 0..6 {
            let mut bytes = fs::read(ledger.join(name)).unwrap();
            match bytes.get_mut(length * part / 6) {
                Some(byte) => *byte ^= 1 << part,
                None => bytes = vec![0xa5; 7],
            }
            fs::write(ledger.join(name), &bytes).unwrap();
            world.evidence();
            if let Some(verify) = verifier() {
                verdict(verify, &ledger, None).is(0, &[]);
            } else {
                skip(
                    "tamper::what_is_derived_changes_no_verdict_and_is_made_again",
                    NO_VERIFIER,
                );
            }
            let before = world.evidence().records.len();
            world.run("note remark").ended(0);
            let again = world.run("note remark").ended(0);
            assert!(
                !again.err.contains("again"),
                "{name}, part {part}: {again:#?}"
            );
            assert_eq!(world.evidence().records.len(), before + 2);
        }
    }
}
