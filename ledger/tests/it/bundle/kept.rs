//! Files that go with the records.

use super::*;

#[test]
fn a_file_of_many_pieces_comes_back() {
    let place = Place::new(8, 14);
    let mut store = reopen(place.at.path());
    let long: Vec<u8> = (0..60_000u32).flat_map(u32::to_le_bytes).collect();
    let hash = store.put_blob(&long).unwrap();
    let output = ledger::facts::execution::Output {
        base64: None,
        blob: Some(hash),
        bytes: ledger::bytes::canon::U53::saturating(long.len() as u64),
        kept: ledger::bytes::canon::U53::saturating(long.len() as u64),
        sha256: hash,
        text: None,
    };
    let bundle = place.bundle(Selection::Last(1));
    let groups = groups(&lines(&bundle));
    let Some(Body::Start(start)) = groups.iter().rev().map(|(_, it)| &it.body).nth(1) else {
        panic!("no start");
    };
    let mut start = start.clone();
    start.run = RunId::from_bytes([9; 16]);
    start.workload.argv =
        ledger::facts::list::Sealable::Clear(ledger::facts::list::List::Inline(vec![
            "w".to_owned(),
        ]));
    let Some(Body::Execution(execution)) = groups.last().map(|(_, it)| &it.body) else {
        panic!("no execution");
    };
    let mut execution = execution.clone();
    let deferred = ledger::file::store::Durability::Deferred;
    let lock = store.begin_run(start.run).unwrap();
    let appended = store
        .append(Body::Start(start), None, &stamp(), deferred)
        .unwrap();
    execution.start = appended.sequence;
    execution.result.stdout = Some(ledger::facts::list::Sealable::Clear(output));
    let durable = ledger::file::store::Durability::Durable;
    store
        .append(Body::Execution(execution), None, &stamp(), durable)
        .unwrap();
    drop(lock);
    let written = place.write(Selection::Last(1), &[Value::Stdout, Value::Argv]);
    assert_eq!((written.files, written.clear), (2, 2));
    let source = Source::open(&place.file()).unwrap();
    let mut content = Vec::new();
    let reader = source.attachments.blob_reader(&hash).unwrap();
    reader.unwrap().read_to_end(&mut content).unwrap();
    assert_eq!(content, long);
    is_good(of_file(&place.file()));
}

#[test]
fn a_recovery_goes_with_what_it_set_aside() {
    let place = Place::new(20, 20);
    let mut store = reopen(place.at.path());
    // So that the record before the recovery is not shown.
    note(&mut store, "left out");
    drop(store);
    let segment = place.dir().join("records/00000000.jsonl");
    let mut bytes = fs::read(&segment).unwrap();
    bytes.extend(br#"{"key":"half a line"#);
    fs::write(&segment, bytes).unwrap();
    reopen(place.at.path()).sync_checkpoint(&stamp()).unwrap();
    // As it is read from the cache, and from the records where that is gone.
    for again in [false, true] {
        if again {
            fs::remove_file(place.dir().join("tip")).unwrap();
            reopen(place.at.path()).sync_checkpoint(&stamp()).unwrap();
        }
        let written = place.write(Selection::Last(1), &[]);
        assert_eq!(
            (written.files, written.size - written.records > 1),
            (2, true)
        );
        let walked = of_file(&place.file());
        assert_eq!(walked.findings.count(Code::Recovered), 1);
        assert_eq!(walked.tally.recoveries_not_checked, 0);
        is_good(walked);
    }
    let all = lines(&fs::read(place.file()).unwrap());
    let torn = Hash::of(br#"{"key":"half a line"#).to_string();
    let at = all
        .iter()
        .position(|line| is(line, r#"{"at":"#) && String::from_utf8_lossy(line).contains(&torn));
    let mut without = all.clone();
    without.remove(at.unwrap());
    let walked = of_bytes(&place, &counted(without));
    assert_eq!(walked.findings.count(Code::RecoveryUnexplained), 1);
}
