//! Garbage, newer formats, and ledgers of which no bundle can be made.

use super::*;

#[test]
fn garbage_is_read_in_flat_memory_and_refused() {
    let place = Place::new(8, 15);
    let all = lines(&place.bundle(Selection::Last(1)));
    let good = all[0].clone();
    let head = || Cursor::new([good.clone(), b"\n".to_vec()].concat());
    let stream = |reader: Box<dyn Read + Send>| {
        let mut source = Source::from_reader("-", reader);
        walk(&mut source, None, &mut ()).unwrap()
    };
    // A line of 100 MB, long ones of each kind, deep JSON, and lines of nothing.
    for (at, begin) in [
        "",
        r#"{"checkpoint":""#,
        r#"{"at":0,"blob":""#,
        r#"{"index":1,"proof":["#,
        r#"{"open":{""#,
    ]
    .into_iter()
    .enumerate()
    {
        let length = if at == 0 { 100 << 20 } else { 1 << 20 };
        let long = Cursor::new(begin.to_owned()).chain(std::io::repeat(b'a').take(length));
        let walked = stream(Box::new(head().chain(long)));
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "{begin}");
    }
    for begin in [
        r#"{"checkpoint":"#,
        r#"{"at":"#,
        r#"{"index":0,"proof":"#,
        r#"{"key":"#,
    ] {
        let deep = [begin.as_bytes(), &[b'['; 60_000], b"\n"].concat();
        let walked = stream(Box::new(head().chain(Cursor::new(deep))));
        assert_eq!(walked.findings.worst(), Some(Class::Invalid), "{begin}");
    }
    let nothing = std::io::repeat(b'\n').take(1 << 17);
    let walked = stream(Box::new(head().chain(nothing)));
    assert!(walked.findings.count(Code::RecordMalformed) > 100_000);
    assert!(walked.findings.into_list().len() < 5_000);
    let deep_header = [b"{\"bundle\":".as_slice(), &[b'['; 1 << 20]].concat();
    assert_eq!(
        stream(Box::new(Cursor::new(deep_header))).findings.worst(),
        Some(Class::Invalid)
    );
}

#[test]
fn a_newer_format_is_not_read() {
    let place = Place::new(8, 16);
    let mut all = lines(&place.bundle(Selection::All));
    let header = String::from_utf8(all[0].clone()).unwrap();
    all[0] = header.replace("/v1", "/v2").into_bytes();
    let walked = of_bytes(&place, &joined(&all));
    assert_eq!(codes(&walked), ["record-version-unknown"].into());
    assert_eq!(walked.tally.records, 0);
}

#[test]
fn caches_that_are_wrong_or_missing_make_no_bundle() {
    let place = Place::new(20, 17);
    let old = place.bundle(Selection::Last(1));
    let tree = place.dir().join("tree");
    let hashes = fs::read(&tree).unwrap();
    let mut changed = hashes.clone();
    // The hash of the first leaf: no part of the root's own, but of proofs.
    changed[0] ^= 1;
    fs::write(&tree, &changed).unwrap();
    let error = write(&place.dir(), Selection::All, &[], &place.file()).unwrap_err();
    assert!(matches!(error, WriteBundleError::Unproven(_)), "{error:?}");
    assert_eq!(
        fs::read(place.file()).unwrap(),
        old,
        "what had the name stays"
    );
    assert_eq!(fs::read_dir(place.at.path()).unwrap().count(), 3);
    fs::write(&tree, &hashes[..64]).unwrap();
    let error = write(&place.dir(), Selection::All, &[], &place.file()).unwrap_err();
    assert!(matches!(error, WriteBundleError::Covered(_)), "{error:?}");
    reopen(place.at.path()).sync_checkpoint(&stamp()).unwrap();
    assert_eq!(
        place.bundle(Selection::Last(1)),
        old,
        "and whoever opens the ledger makes them anew"
    );
}

#[test]
fn no_key_is_needed() {
    let place = Place::new(20, 18);
    let expected = place.bundle(Selection::Last(1));
    fs::remove_dir_all(place.at.path().join("keys")).unwrap();
    assert_eq!(place.bundle(Selection::Last(1)), expected);
}

#[test]
fn what_is_not_there_is_said() {
    let place = Place::new(20, 19);
    let nothing = |selection| match write(&place.dir(), selection, &[], &place.file()) {
        Err(WriteBundleError::Gather(error)) => error,
        other => panic!("{other:?}"),
    };
    let run = RunId::from_bytes([0; 16]);
    assert!(matches!(
        nothing(Selection::Run(run)),
        GatherError::NoSuchRun(_)
    ));
    assert!(matches!(
        nothing(Selection::Matrix),
        GatherError::Nothing("matrix")
    ));
    let inside = place.dir().join("bundle");
    let error = write(&place.dir(), Selection::All, &[], &inside).unwrap_err();
    assert!(
        matches!(error, WriteBundleError::InTheLedger(_)),
        "{error:?}"
    );
    let error = write(&place.dir(), Selection::All, &[], place.at.path()).unwrap_err();
    assert!(matches!(error, WriteBundleError::NotAFile(_)), "{error:?}");
    let policy = runs_policy(&place);
    fs::remove_file(place.dir().join(blob_name(&policy))).unwrap();
    assert_eq!(place.write(Selection::All, &[]).missing, [policy]);
}
