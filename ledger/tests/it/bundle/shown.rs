//! What a bundle shows, and what it leaves out.

use super::*;

#[test]
fn every_selection_verifies_and_says_how_much_it_shows() {
    let place = Place::new(60, 1);
    let size = walked(&place.dir()).tally.records;
    let rotations = place.bundle(Selection::All);
    let keys: Vec<u64> = groups(&lines(&rotations))
        .iter()
        .filter(|(_, record)| matches!(record.body, Body::Key(_) | Body::Genesis(_)))
        .map(|(_, record)| record.sequence.value())
        .collect();
    assert!(keys.len() > 5);
    let (run, start) = runs(&place)[4];
    for (selection, expected) in [
        (Selection::All, size),
        (Selection::Last(1), keys.len() as u64 + 3),
        (Selection::Last(4), keys.len() as u64 + 9),
        (Selection::Last(1_000), size),
        (Selection::Run(run), keys.len() as u64 + 3),
    ] {
        let written = place.write(selection, &[]);
        assert_eq!(
            (written.records, written.size),
            (expected, size),
            "{selection:?}"
        );
        assert_eq!((written.files, written.clear), (1, 0));
        let bundle = fs::read(place.file()).unwrap();
        assert_eq!(written.bytes, bundle.len() as u64);
        let numbers = shown(&bundle);
        assert!(
            keys.iter().all(|key| numbers.contains(key)),
            "{selection:?}"
        );
        if let Selection::Run(_) = selection {
            assert!(numbers.contains(&start) && numbers.contains(&(start + 1)));
        }
        for walked in [of_file(&place.file()), walked_stream(bundle.clone())] {
            let extract = walked.extract.unwrap();
            let withheld = size - expected;
            assert_eq!(
                extract,
                Extract {
                    shown: expected,
                    withheld
                }
            );
            assert_eq!(walked.tally.verified, expected);
            assert_eq!(walked.completeness.status, Assured::NotEstablished);
            is_good(walked);
        }
        assert_eq!(
            place.bundle(selection),
            bundle,
            "the same ledger gives the same bytes"
        );
    }
}

#[test]
fn all_of_a_ledger_is_as_good_as_the_ledger() {
    let place = Place::new(60, 2);
    let of_ledger = walked(&place.dir());
    place.bundle(Selection::All);
    let of_bundle = of_file(&place.file());
    assert_eq!(of_bundle.root, of_ledger.root);
    assert_eq!(of_bundle.chain.head(), of_ledger.chain.head());
    assert_eq!(of_bundle.chain.keys(), of_ledger.chain.keys());
    let checkpoint = fs::read(place.dir().join("checkpoint")).unwrap();
    let given = Given {
        name: "given",
        bytes: &checkpoint,
    };
    let mut source = Source::open(&place.file()).unwrap();
    let with = walk(&mut source, Some(given), &mut ()).unwrap();
    assert_eq!(with.completeness.by, Some(CompleteBy::Given));
    assert!(with.completeness.covers_head());
    // Of a part it is never said that it is whole; the same checkpoint does not contradict it.
    place.bundle(Selection::Last(1));
    let mut source = Source::open(&place.file()).unwrap();
    let part = walk(&mut source, Some(given), &mut ()).unwrap();
    assert_eq!(part.completeness.status, Assured::NotEstablished);
    assert_eq!(part.root, of_ledger.root);
    is_good(part);
}

#[test]
fn a_given_checkpoint_that_contradicts_or_cannot_be_compared_is_said() {
    let place = Place::new(60, 3);
    place.bundle(Selection::Last(1));
    let given = |bytes: &[u8]| {
        let given = Given {
            name: "given",
            bytes,
        };
        let mut source = Source::open(&place.file()).unwrap();
        walk(&mut source, Some(given), &mut ()).unwrap()
    };
    let (size, origin) = {
        let walked = of_file(&place.file());
        let size = walked.extract.unwrap();
        let origin = walked.chain.origin().unwrap().as_str().to_owned();
        (size.shown + size.withheld, origin)
    };
    let sign = |size, root| {
        let checkpoint = ledger::proof::checkpoint::Checkpoint {
            origin: origin.clone(),
            size,
            root,
        };
        checkpoint.sign(&place.key()).unwrap().to_string()
    };
    let fork = given(sign(size, Hash::of(b"fork")).as_bytes());
    assert_eq!(fork.findings.count(Code::CheckpointFork), 1);
    let longer = given(sign(size + 1, Hash::of(b"longer")).as_bytes());
    assert_eq!(longer.findings.worst(), Some(Class::Observation));
    assert_eq!(longer.findings.count(Code::CompletenessNotEstablished), 1);
    let other = Place::new(10, 99);
    let theirs = fs::read(other.dir().join("checkpoint")).unwrap();
    assert_eq!(given(&theirs).findings.count(Code::LedgerReplaced), 1);
}

#[test]
fn withheld_values_are_left_out_with_nothing_else() {
    let place = Place::new(20, 4);
    let all = place.bundle(Selection::All);
    let count = |bundle: &[u8], text: &str| {
        let text = text.as_bytes();
        bundle.windows(text.len()).filter(|it| *it == text).count()
    };
    let runs = runs(&place).len();
    assert_eq!(count(&all, r#""stdout":["#), runs);
    let values = [Value::Argv, Value::Launch, Value::Stderr, Value::Stdout];
    let names = [
        r#""argv":["#,
        r#""launch":["#,
        r#""stderr":["#,
        r#""stdout":["#,
    ];
    for (at, value) in values.into_iter().enumerate() {
        assert_eq!(place.write(Selection::All, &[value]).clear, 0);
        let part = fs::read(place.file()).unwrap();
        for (other, name) in names.into_iter().enumerate() {
            let expected = if other == at { 0 } else { runs };
            assert_eq!(count(&part, name), expected, "{value:?} {name}");
        }
        let walked = of_file(&place.file());
        assert_eq!(walked.findings.count(Code::OpeningWithheld), runs as u64);
        is_good(walked);
    }
    place.write(Selection::All, &values);
    assert_eq!(count(&fs::read(place.file()).unwrap(), r#"{"open":"#), 0);
    is_good(of_file(&place.file()));
}
