//! Bundles that are not what was written.

use super::*;

#[test]
fn every_changed_byte_is_found() {
    let place = Place::new(8, 5);
    let bundle = place.bundle(Selection::Last(1));
    let header = lines(&bundle)[0].len();
    // Every byte of the short lines, and enough of the long ones.
    for at in (0..bundle.len()).filter(|at| *at < 1_500 || at % 23 == 0) {
        let mut changed = bundle.clone();
        changed[at] ^= 1;
        let walked = of_bytes(&place, &changed);
        let worst = walked.findings.worst();
        // Another version of the format is not read.
        let newer = at < header && worst == Some(Class::Unproven);
        assert!(
            worst == Some(Class::Invalid) || newer,
            "byte {at} of {}: {:?}",
            String::from_utf8_lossy(&changed[at.saturating_sub(40)..(at + 40).min(changed.len())]),
            codes(&walked)
        );
    }
}

#[test]
fn every_cut_is_found() {
    let place = Place::new(20, 6);
    let bundle = place.bundle(Selection::Last(2));
    let ends = (0..bundle.len()).filter(|at| bundle[*at] == b'\n');
    for end in ends.flat_map(|end| [end.saturating_sub(9), end, end + 1]) {
        if end == bundle.len() {
            continue;
        }
        let walked = of_bytes(&place, &bundle[..end]);
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "at {end}");
        if end > bundle.len() * 2 / 3 {
            assert!(codes(&walked).contains("tail-truncated"), "at {end}");
        }
    }
}

#[test]
fn lines_in_another_order_twice_or_missing_are_found() {
    let place = Place::new(20, 7);
    let all = lines(&place.bundle(Selection::Last(2)));
    let invalid = |what: &str, lines: &[Vec<u8>]| {
        let walked = of_bytes(&place, &joined(lines));
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "{what}");
    };
    for at in 0..all.len() {
        let mut twice = all.clone();
        twice.insert(at, all[at].clone());
        invalid(&format!("twice: line {at}"), &twice);
        if at > 0 {
            let mut swapped = all.clone();
            swapped.swap(at - 1, at);
            invalid(&format!("swapped: lines {} and {at}", at - 1), &swapped);
        }
        let mut without = all.clone();
        let gone = without.remove(at);
        if is(&gone, r#"{"open":"#) {
            let walked = of_bytes(&place, &joined(&without));
            assert_eq!(walked.findings.worst(), Some(Class::Observation));
            assert!(walked.findings.count(Code::OpeningWithheld) > 0);
        } else {
            invalid(&format!("without line {at}"), &without);
        }
    }
    for pair in groups(&all).windows(2) {
        let (one, two) = (pair[0].0.clone(), pair[1].0.clone());
        let moved = [
            &all[..one.start],
            &all[two.clone()],
            &all[one],
            &all[two.end..],
        ]
        .concat();
        let walked = of_bytes(&place, &joined(&moved));
        assert!(walked.findings.count(Code::ChainSequenceGap) > 0);
    }
}

#[test]
fn what_no_reader_can_do_without_is_missed() {
    let place = Place::new(60, 8);
    let all = lines(&place.bundle(Selection::Last(2)));
    for (range, record) in groups(&all) {
        let mut without = all.clone();
        without.drain(range);
        let walked = of_bytes(&place, &counted(without));
        let found = codes(&walked);
        let expected = match &record.body {
            Body::Genesis(_) => "genesis-missing",
            // The last one is missed by the checkpoint, which its key signed.
            Body::Key(_) if found.contains("checkpoint-invalid") => "checkpoint-invalid",
            Body::Key(_) => "key-unknown",
            // What refers to it is missed by the rules, which read what records mean.
            _ => continue,
        };
        assert!(found.contains(expected), "{}: {found:?}", record.sequence);
        assert_eq!(walked.findings.worst(), Some(Class::Invalid));
    }
}

#[test]
fn records_of_another_ledger_do_not_fit_in() {
    let (place, other) = (Place::new(60, 9), Place::new(60, 10));
    let own = lines(&place.bundle(Selection::Last(2)));
    let theirs = lines(&other.bundle(Selection::Last(2)));
    let (own_groups, their_groups) = (groups(&own), groups(&theirs));
    for ((range, _), (their_range, _)) in own_groups.iter().zip(&their_groups) {
        let mut spliced = own.clone();
        spliced.splice(range.clone(), theirs[their_range.clone()].to_vec());
        let walked = of_bytes(&place, &joined(&spliced));
        let found = codes(&walked);
        assert!(found.contains("chain-previous-mismatch"), "{found:?}");
    }
    // With the other's checkpoint, too.
    let mut spliced = own;
    spliced[1] = theirs[1].clone();
    let found = of_bytes(&place, &joined(&spliced));
    assert!(found.findings.count(Code::CheckpointInvalid) > 0);
}

#[test]
fn the_ledgers_own_key_cannot_put_another_record_in_its_place() {
    let place = Place::new(20, 11);
    let mut all = lines(&place.bundle(Selection::Last(1)));
    let (range, mut record) = groups(&all).pop().unwrap();
    let Body::Execution(execution) = &mut record.body else {
        panic!("the last record is {}", record.body.kind());
    };
    execution.result.exit_code = Some(0);
    execution.result.duration_us = Some(7.into());
    all[range.end - 1] = record.to_signed_line(&place.key()).unwrap();
    let walked = of_bytes(&place, &joined(&all));
    assert_eq!(walked.findings.count(Code::SignatureInvalid), 0);
    assert_eq!(walked.findings.count(Code::ChainPreviousMismatch), 1);
    assert_eq!(walked.tally.verified, walked.tally.records - 1);
}

#[test]
fn a_proof_for_another_index_is_none() {
    let place = Place::new(60, 12);
    let all = lines(&place.bundle(Selection::Last(3)));
    let groups = groups(&all);
    let number = |line: &[u8], from: u64, to: u64| -> Vec<u8> {
        let text = String::from_utf8(line.to_vec()).unwrap();
        let (from, to) = (format!("\"index\":{from},"), format!("\"index\":{to},"));
        text.replacen(&from, &to, 1).into_bytes()
    };
    for pair in groups.windows(2) {
        let (one, other) = (&pair[0], &pair[1]);
        let (n, m) = (one.1.sequence.value(), other.1.sequence.value());
        // Its number as it stands there, and as it should stand.
        for proof in [
            all[other.0.start].clone(),
            number(&all[other.0.start], m, n),
        ] {
            let mut changed = all.clone();
            changed[one.0.start] = proof;
            let walked = of_bytes(&place, &joined(&changed));
            assert_eq!(
                walked.findings.count(Code::ChainPreviousMismatch),
                1,
                "{n} {m}"
            );
        }
    }
}

#[test]
fn a_file_that_lies_is_said_and_not_there() {
    let place = Place::new(8, 13);
    // A policy of several pieces.
    let long: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let policy = runs_policy(&place);
    fs::write(place.dir().join(blob_name(&policy)), &long).unwrap();
    let error = write(&place.dir(), Selection::Last(1), &[], &place.file()).unwrap_err();
    assert!(matches!(error, WriteBundleError::Content(_)), "{error:?}");
    assert!(!place.file().exists());
    let names: Vec<_> = fs::read_dir(place.at.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "nothing half-written is left: {names:?}");

    let place = Place::new(8, 13);
    let all = lines(&place.bundle(Selection::Last(1)));
    let at = all.iter().position(|line| is(line, r#"{"at":"#)).unwrap();
    let piece: serde_json::Value = serde_json::from_slice(&all[at]).unwrap();
    let text = piece["bytes"].as_str().unwrap();
    let other_letter = if text.starts_with('e') { "f" } else { "e" };
    let changes: [(&str, serde_json::Value); 6] = [
        ("bytes", format!("{other_letter}{}", &text[1..]).into()),
        ("bytes", text[..text.len() - 4].into()),
        ("bytes", format!("{}*", &text[1..]).into()),
        ("size", (piece["size"].as_u64().unwrap() + 1).into()),
        ("at", 1.into()),
        ("blob", Hash::of(b"another").to_string().into()),
    ];
    for (field, value) in changes {
        let mut changed = piece.clone();
        changed[field] = value;
        let mut lines = all.clone();
        lines[at] = serde_json::to_vec(&changed).unwrap();
        let path = place.at.path().join("changed");
        fs::write(&path, joined(&lines)).unwrap();
        let mut source = Source::open(&path).unwrap();
        let state = source.attachments.blob(&policy, None, 1 << 20).unwrap();
        assert_eq!(state, BlobState::Missing, "{field}");
        let walked = walk(&mut source, None, &mut ()).unwrap();
        assert!(walked.findings.count(Code::BlobMismatch) > 0, "{field}");
    }
    let mut source = Source::open(&place.file()).unwrap();
    let state = source.attachments.blob(&policy, None, 1 << 20).unwrap();
    let content = fs::read(place.dir().join(blob_name(&policy))).unwrap();
    let size = content.len() as u64;
    assert_eq!(
        state,
        BlobState::Good {
            size,
            content: Some(content)
        }
    );
    is_good(walk(&mut source, None, &mut ()).unwrap());
}
