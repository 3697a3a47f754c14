//! Crashes and hands: what is completed, dropped, set aside, refused, accepted.

use super::*;
use crate::bytes::key::{Base64, Message};
use crate::record::{ExpectedTree, KeyChange, KeyChangeReason, Recovery, RecoveryCause};

/// A ledger with three acknowledged records and a deferred start with its opening behind them.
fn with_deferred_start() -> (Place, u64) {
    let place = Place::new();
    let mut store = place.open();
    say(&mut store, "one");
    say(&mut store, "two");
    let acknowledged = std::fs::metadata(place.segment(0)).unwrap().len();
    begin(&mut store, run_id());
    (place, acknowledged)
}

fn differs(error: &OpenLedgerError, how: impl Fn(&Difference) -> bool) -> bool {
    matches!(error, OpenLedgerError::Differs { difference, .. } if how(difference))
}

fn recoveries(records: &[Record]) -> Vec<&Recovery> {
    records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Recovery(recovery) => Some(recovery),
            _ => None,
        })
        .collect()
}

fn every_file(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(every_file(&path));
        } else {
            files.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

#[test]
fn a_write_that_was_cut_short_is_recovered() {
    let (place, acknowledged) = with_deferred_start();
    let whole = std::fs::read(place.segment(0)).unwrap();
    let tail = &whole[usize::try_from(acknowledged).unwrap()..];
    let opening = tail.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let derived = every_file(&place.dir());
    let keys = every_file(&place.keys());
    // Every byte of the opening and of the ends of the record, and some between.
    let interesting =
        |cut: &usize| *cut < opening + 12 || cut.is_multiple_of(17) || *cut > tail.len() - 4;
    for cut in (0..tail.len()).filter(interesting) {
        for (path, bytes) in derived.iter().chain(&keys) {
            std::fs::write(path, bytes).unwrap();
        }
        let _ = std::fs::remove_dir_all(place.dir().join("torn"));
        place.cut((tail.len() - cut) as u64);
        let mut store = place.open();
        let notices = store.notices();
        let records = place.walk();
        let recoveries = recoveries(&records);
        if cut == 0 {
            assert!(notices.is_empty() && records.len() == 3);
        } else if (OPENING_PREFIX.len()..=opening).contains(&cut) {
            assert!(matches!(notices[..], [Notice::DroppedOpening]), "{cut}");
            assert!(recoveries.is_empty() && records.len() == 3);
        } else if cut == tail.len() - 1 {
            assert!(
                matches!(notices[..], [Notice::CompletedLine { sequence: 3 }]),
                "{notices:?}"
            );
            assert_eq!(records.len(), 4);
            assert_eq!(std::fs::read(place.segment(0)).unwrap(), whole);
        } else {
            // The first bytes of an opening are those of no value yet.
            let torn = &tail[if cut < opening { 0 } else { opening }..cut];
            let hash = Hash::of(torn);
            let expected = Recovery {
                bytes: U53::new(torn.len() as u64),
                cause: RecoveryCause::Torn,
                expected: None,
                file: Some(format!("torn/{hash}")),
                sha256: Some(hash),
            };
            assert_eq!(recoveries, [&expected], "{cut}");
            assert_eq!(records.len(), 4);
            let kept = std::fs::read(place.dir().join("torn").join(hash.to_string()));
            assert_eq!(kept.unwrap(), torn);
            let [Notice::SetAside { sequence: 3, .. }] = notices[..] else {
                panic!("{notices:?}");
            };
            place.walk_covered();
        }
        if cut != tail.len() - 1 {
            // Secrets of a record that never was are nowhere.
            for (path, bytes) in every_file(&place.dir()) {
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains("secret"), "{cut}: {path:?}");
            }
        }
        say(&mut store, "goes on");
        place.walk_covered();
    }
}

#[test]
fn zeros_behind_the_last_record_are_set_aside() {
    let place = Place::new();
    say(&mut place.open(), "one");
    place.push(&[0; 4096]);
    let mut store = place.open();
    let records = place.walk_covered();
    assert_eq!(recoveries(&records).len(), 1);
    assert_eq!(recoveries(&records)[0].bytes, U53::new(4096));
    say(&mut store, "two");
    assert!(place.open().notices().is_empty());
    assert_eq!(place.walk_covered().len(), 4);
}

#[test]
fn what_another_process_left_half_written_is_recovered_at_the_next_append() {
    let (place, _) = with_deferred_start();
    let mut store = place.open();
    store.notices();
    place.push(b"{\"key\":\"half");
    say(&mut store, "goes on");
    let records = place.walk_covered();
    assert_eq!(recoveries(&records).len(), 1);
    assert!(matches!(store.notices()[..], [Notice::SetAside { .. }]));
    // A whole record without its newline, too.
    store
        .append(note("x"), None, &stamp(), Durability::Deferred)
        .unwrap();
    drop(store);
    let mut store = place.open();
    store
        .append(note("y"), None, &stamp(), Durability::Deferred)
        .unwrap();
    let mut other = place.open();
    let last = std::fs::read(place.segment(0)).unwrap();
    std::fs::write(place.segment(0), &last[..last.len() - 1]).unwrap();
    assert!(matches!(
        other.append(note("z"), None, &stamp(), Durability::Durable),
        Err(AppendError::Read(ReadRecordsError::Shrunk { .. }))
    ));
    assert!(matches!(
        other.append(note("z"), None, &stamp(), Durability::Durable),
        Err(AppendError::Stopped)
    ));
    say(&mut place.open(), "z");
    place.walk_covered();
}

#[test]
fn a_record_behind_torn_bytes_is_not_set_aside() {
    let (place, acknowledged) = with_deferred_start();
    let whole = std::fs::read(place.segment(0)).unwrap();
    let (before, tail) = whole.split_at(usize::try_from(acknowledged).unwrap());
    std::fs::write(place.segment(0), [before, b"garbage\n", tail].concat()).unwrap();
    let error = place.try_open().unwrap_err();
    assert!(
        matches!(error, OpenLedgerError::Append(AppendError::Damaged { .. })),
        "{error}"
    );
    assert!(!place.dir().join("torn").exists());
}

#[test]
fn a_shortened_ledger_is_refused_and_left_as_it_is() {
    for forgetful in ["", "checkpoint", "heads"] {
        let place = Place::new();
        let mut store = place.open();
        (0..4).for_each(|n| {
            say(&mut store, &format!("note {n}"));
        });
        drop(store);
        let (size, root) = covered(&place.dir());
        let length = place.last_line_length();
        place.cut(length);
        let length = place.last_line_length();
        place.cut(length);
        match forgetful {
            "checkpoint" => std::fs::remove_file(place.dir().join("checkpoint")).unwrap(),
            "heads" => std::fs::remove_file(place.heads()).unwrap(),
            _ => {}
        }
        let evidence = || {
            let files = every_file(&place.dir()).into_iter();
            let derived = ["tree", "tip"];
            files
                .filter(|(path, _)| !derived.iter().any(|name| path.ends_with(name)))
                .chain(every_file(&place.keys()))
                .collect::<Vec<_>>()
        };
        let before = evidence();
        let error = place.try_open().unwrap_err();
        let text = error.to_string();
        assert!(
            differs(&error, |difference| matches!(
                difference,
                Difference::Shorter { found: 3, .. }
            )),
            "{text}"
        );
        assert!(text.contains("holds 3 records (last sequence 2)"), "{text}");
        assert!(text.contains("says 5 (last sequence 4)"), "{text}");
        let help = miette::Diagnostic::help(&error).unwrap().to_string();
        assert!(help.contains("--accept-rollback"), "{help}");
        assert_eq!(evidence(), before, "without {forgetful:?}");

        let mut store = place.accept();
        assert!(
            store
                .notices()
                .iter()
                .any(|notice| matches!(notice, Notice::RollbackAccepted { sequence: 3, .. }))
        );
        let records = place.walk_covered();
        let expected = Recovery {
            bytes: None,
            cause: RecoveryCause::RollbackAccepted,
            expected: Some(ExpectedTree {
                root,
                size: U53::new(size).unwrap(),
            }),
            file: None,
            sha256: None,
        };
        assert_eq!(recoveries(&records), [&expected]);
        say(&mut store, "goes on");
        drop(store);
        assert!(place.open().notices().is_empty());
        assert_eq!(place.walk_covered().len(), 5);
    }
}

#[test]
fn an_acknowledged_record_that_was_changed_is_refused() {
    let place = Place::new();
    let mut store = place.open();
    (0..3).for_each(|n| {
        say(&mut store, &format!("note {n}"));
    });
    drop(store);
    std::fs::remove_file(place.dir().join("tip")).unwrap();
    let text = std::fs::read_to_string(place.segment(0)).unwrap();
    std::fs::write(place.segment(0), text.replace("note 1", "note X")).unwrap();
    let error = place.try_open().unwrap_err().to_string();
    assert!(error.contains("record 2 does not verify"), "{error}");
    assert!(!place.dir().join("torn").exists());
    let mut store = place.accept();
    let records = place.walk_covered();
    let [recovery] = recoveries(&records)[..] else {
        panic!("one recovery");
    };
    assert_eq!(recovery.cause, RecoveryCause::RollbackAccepted);
    assert!(recovery.bytes.is_some() && recovery.expected.is_some());
    say(&mut store, "goes on");
    assert_eq!(place.walk_covered().len(), 4);
}

#[test]
fn another_history_of_the_same_key_is_refused() {
    let place = Place::new();
    let mut store = place.open();
    say(&mut store, "one");
    let fork = std::fs::read(place.segment(0)).unwrap();
    say(&mut store, "two");
    drop(store);
    let kept = every_file(&place.dir());
    let heads = std::fs::read(place.heads()).unwrap();
    // The same ledger goes on elsewhere, where nobody knows of record 2.
    std::fs::write(place.segment(0), &fork).unwrap();
    for name in ["checkpoint", "tip", "tree"] {
        std::fs::remove_file(place.dir().join(name)).unwrap();
    }
    std::fs::remove_file(place.heads()).unwrap();
    let mut store = place.open();
    say(&mut store, "other two");
    say(&mut store, "other three");
    drop(store);
    let other = std::fs::read(place.segment(0)).unwrap();
    for (path, bytes) in &kept {
        std::fs::write(path, bytes).unwrap();
    }
    std::fs::write(place.heads(), heads).unwrap();
    std::fs::write(place.segment(0), &other).unwrap();
    std::fs::remove_file(place.dir().join("tip")).unwrap();
    let error = place.try_open().unwrap_err();
    assert!(
        differs(&error, |difference| matches!(
            difference,
            Difference::Other { .. }
        )),
        "{error}"
    );
    say(&mut place.accept(), "goes on");
    assert_eq!(recoveries(&place.walk_covered()).len(), 1);
    say(&mut place.open(), "and on");
}

#[test]
fn an_emptied_folder_that_is_known_is_refused() {
    for how in ["removed", "emptied", "without records", "checkpoint alone"] {
        let place = Place::new();
        let mut store = place.open();
        say(&mut store, "one");
        let lost = *store.id();
        drop(store);
        match how {
            "without records" => std::fs::remove_file(place.segment(0)).unwrap(),
            "checkpoint alone" => {
                std::fs::remove_file(place.segment(0)).unwrap();
                std::fs::remove_file(place.heads()).unwrap();
            }
            _ => std::fs::remove_dir_all(place.dir()).unwrap(),
        }
        if how == "emptied" {
            std::fs::create_dir(place.dir()).unwrap();
        }
        let error = place.try_open().unwrap_err();
        let OpenLedgerError::Differs { difference, .. } = &error else {
            panic!("{how}: {error}");
        };
        assert_eq!(difference.expected().size.value(), 2);
        assert!(error.to_string().contains("last sequence 1"), "{error}");
        assert!(!place.segment(0).exists());
        let mut store = place.accept();
        assert_ne!(*store.id(), lost);
        say(&mut store, "a new one");
        let records = place.walk_covered();
        assert_eq!(records.len(), 3);
        assert_eq!(recoveries(&records).len(), 1);
        drop(store);
        assert!(place.open().notices().is_empty());
    }
}

#[test]
fn a_ledger_in_the_place_of_another_is_refused() {
    let place = Place::new();
    let key = place.at.path().join("shared.pem");
    create_key_file(&key).unwrap();
    let choice = KeyChoice::File(key);
    let elsewhere = place.at.path().join("elsewhere");
    let open = |dir: &Path| place.try_open_at(dir, |options| options.key = choice.clone());
    let mut one = open(&place.dir()).unwrap();
    say(&mut one, "one");
    open(&elsewhere).unwrap();
    drop(one);
    let away = place.at.path().join("away");
    std::fs::rename(place.dir(), &away).unwrap();
    std::fs::rename(&elsewhere, place.dir()).unwrap();
    let error = open(&place.dir()).unwrap_err();
    assert!(
        differs(&error, |difference| matches!(
            difference,
            Difference::Gone { .. }
        )),
        "{error}"
    );
    // Once the first is known at its new place, nobody misses it here.
    open(&away).unwrap();
    say(&mut open(&place.dir()).unwrap(), "moved in");
    assert_eq!(place.walk_covered().len(), 2);
}

#[test]
fn a_copy_that_fell_behind_is_refused() {
    let place = Place::new();
    say(&mut place.open(), "one");
    let copy = every_file(&place.dir());
    say(&mut place.open(), "two");
    // A snapshot of the whole folder comes back; only `.heads` knows better.
    for (path, bytes) in &copy {
        std::fs::write(path, bytes).unwrap();
    }
    let error = place.try_open().unwrap_err().to_string();
    assert!(error.contains(".heads says 3"), "{error}");
}

#[test]
fn bytes_after_a_close_are_not_recovered() {
    let place = Place::new();
    place.open().close("done", &stamp()).unwrap();
    place.push(b"more");
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::Append(AppendError::Closed(1)))
    ));
    assert!(!place.dir().join("torn").exists());
}

#[test]
fn a_key_that_another_process_rotated_away_signs_no_more() {
    let place = Place::new();
    let mut store = place.open();
    say(&mut store, "one");
    let old = read_key_file(store.key_file().unwrap()).unwrap();
    let new = crate::bytes::key::LocalKey::generate().unwrap();
    let (id, head) = (new.public().id(), store.head());
    let possession = Message::Possession {
        ledger: store.id(),
        sequence: 2,
        previous: &head,
        key: &id,
    };
    let change = KeyChange {
        custody: Custody::File,
        possession: Some(new.sign(possession).unwrap()),
        public_key: Base64(new.public().to_bytes()),
        reason: KeyChangeReason::Routine,
        standby: None,
    };
    let record = Record::new(Body::Key(change), stamp(), *store.id(), U53::from(2), head);
    let mut line = record.to_signed_line(&old).unwrap();
    line.push(b'\n');
    place.push(&line);
    assert!(matches!(
        store.append(note("x"), None, &stamp(), Durability::Durable),
        Err(AppendError::KeyChanged { active, .. }) if active == id
    ));
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::KeyMissing { id: missing, .. }) if missing == id
    ));
    let path = place.keys().join(format!("{id}.pem"));
    std::fs::write(&path, new.to_pem().unwrap().as_bytes()).unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    say(&mut place.open(), "by the new key");
    assert_eq!(place.walk_covered().len(), 4);
}

#[test]
fn a_record_of_a_newer_program_is_not_appended_after() {
    let place = Place::new();
    let store = place.open();
    let key = read_key_file(store.key_file().unwrap()).unwrap();
    drop(store);
    let line = walk(&place.dir())[0].to_signed_line(&key).unwrap();
    let text = String::from_utf8(line).unwrap();
    let head = Hash::leaf(text.as_bytes());
    let newer = text
        .replace("\"kind\":\"genesis\"", "\"kind\":\"novelty\"")
        .replace("\"sequence\":0", "\"sequence\":1")
        .replace(
            &format!("\"previous\":\"{}\"", Hash::ZERO),
            &format!("\"previous\":\"{head}\""),
        );
    let inner = &newer[crate::record::RECORD_START..newer.len() - crate::record::RECORD_TAIL];
    let signature = key.sign(Message::Record(inner.as_bytes())).unwrap();
    let id = key.public().id();
    let line = format!("{{\"key\":\"{id}\",\"record\":{inner},\"signature\":\"{signature}\"}}\n");
    place.push(line.as_bytes());
    let error = place.try_open().unwrap_err();
    assert!(
        matches!(
            &error,
            OpenLedgerError::Find(FindError::Read(ReadRecordsError::Newer { sequence: 1, .. }))
        ),
        "{error}"
    );
}
