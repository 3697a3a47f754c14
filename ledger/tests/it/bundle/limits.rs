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

#[test]
fn one_record_is_shown_with_what_it_refers_to() {
    let place = Place::new(24, 11);
    let all = groups(&lines(&place.bundle(Selection::All)));
    let (at, last) = all
        .iter()
        .enumerate()
        .rev()
        .find(|(_, (_, it))| matches!(it.body, Body::Execution(_)))
        .unwrap();
    let sequence = last.1.sequence.value();
    assert_eq!(sequence, at as u64);
    let bundle = place.bundle(Selection::Record(sequence));
    let shown = shown(&bundle);
    let Body::Execution(execution) = &last.1.body else {
        unreachable!()
    };
    assert!(shown.contains(&sequence) && shown.contains(&execution.start.value()));
    is_good(of_bytes(&place, &bundle));
    let size = all.len() as u64;
    let error = write(&place.dir(), Selection::Record(size), &[], &place.file()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the ledger holds no record of that number"
    );
    assert_eq!(fs::read(place.file()).unwrap(), bundle);
}

#[test]
fn whether_a_bundle_can_be_written_is_found_by_trying_and_leaves_nothing() {
    let place = Place::new(6, 12);
    let names = || -> Vec<_> {
        let entries = fs::read_dir(place.at.path()).unwrap();
        let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    try_to_write(&place.dir(), &place.file()).unwrap();
    // Before there is a ledger, too.
    try_to_write(&place.at.path().join("later"), &place.file()).unwrap();
    assert_eq!(names(), before);
    fs::write(place.file(), "kept").unwrap();
    try_to_write(&place.dir(), &place.file()).unwrap();
    assert_eq!(fs::read(place.file()).unwrap(), b"kept");
    let no = |to: &Path| try_to_write(&place.dir(), to).unwrap_err();
    let inside = place.dir().join("bundle");
    assert!(matches!(no(&inside), WriteBundleError::InTheLedger(_)));
    assert!(matches!(no(place.at.path()), WriteBundleError::NotAFile(_)));
    let nowhere = place.at.path().join("none/bundle");
    assert!(matches!(no(&nowhere), WriteBundleError::File(_)));
}
