//! Which folders and keys are taken, and which are refused.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_ledger_is_begun_with_its_own_key() {
    let place = Place::new();
    let mut store = place.open();
    let key = place
        .keys()
        .join(format!("{}.pem", store.public_key().id()));
    assert_eq!(store.key_file(), Some(key.as_path()));
    assert_eq!(store.custody(), Some(Custody::File));
    assert!(matches!(store.notices()[..], [Notice::Began { .. }]));
    assert!(store.notices().is_empty());
    assert_eq!(
        store.evidence_paths(),
        [place.dir(), place.keys(), key.clone()]
    );
    let records = place.walk_covered();
    assert_eq!(records.len(), 1);
    let Body::Genesis(genesis) = &records[0].body else {
        panic!("no genesis");
    };
    assert_eq!(&genesis.origin, store.origin());
    assert!(genesis.origin.as_str().starts_with("host/"));
    assert_eq!(records[0].ledger, *store.id());
    for file in [
        "records/00000000.jsonl",
        "checkpoint",
        "tree",
        "tip",
        "lock",
    ] {
        assert_eq!(mode(&place.dir().join(file)), 0o600, "{file}");
    }
    for folder in [place.dir(), place.dir().join("records"), place.keys()] {
        assert_eq!(mode(&folder), 0o700, "{folder:?}");
    }
    assert_eq!((mode(&key), mode(&place.heads())), (0o600, 0o600));
}

#[test]
fn a_ledger_is_opened_again() {
    let place = Place::new();
    let id = *place.open().id();
    let mut store = place.open();
    assert_eq!(*store.id(), id);
    assert_eq!(store.size(), 1);
    assert!(store.notices().is_empty());
    let described = describe(&place.dir()).unwrap();
    assert_eq!((described.ledger, described.size), (id, 1));
    assert_eq!(&described.key, store.public_key());
}

#[test]
fn another_folder_is_refused_and_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.dir()).unwrap();
    std::fs::write(place.dir().join("thesis.tex"), "x").unwrap();
    let error = place.try_open().unwrap_err();
    assert!(matches!(&error, OpenLedgerError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("thesis.tex"));
    assert_eq!(std::fs::read_dir(place.dir()).unwrap().count(), 1);
    assert!(!place.keys().exists());
}

#[test]
fn a_file_is_no_folder_and_nothing_is_made_unasked() {
    let place = Place::new();
    let closed = |options: &mut OpenOptions<'_>| options.create = false;
    assert!(matches!(
        place.try_open_with(closed),
        Err(OpenLedgerError::Missing(_))
    ));
    assert!(!place.dir().exists());
    assert!(matches!(
        describe(&place.dir()),
        Err(OpenLedgerError::Missing(_))
    ));
    std::fs::create_dir(place.dir()).unwrap();
    assert!(matches!(
        place.try_open_with(closed),
        Err(OpenLedgerError::Missing(_))
    ));
    std::fs::remove_dir(place.dir()).unwrap();
    std::fs::write(place.dir(), "x").unwrap();
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::NotAFolder(_))
    ));
}

#[test]
fn a_beginning_that_was_cut_short_is_begun_again() {
    let place = Place::new();
    std::fs::create_dir_all(place.dir().join("records")).unwrap();
    std::fs::write(place.dir().join("genesis.new"), "{\"key\":\"").unwrap();
    std::fs::write(place.dir().join("lock"), "").unwrap();
    place.open();
    assert_eq!(place.walk_covered().len(), 1);
    assert!(!place.dir().join("genesis.new").exists());
}

#[test]
fn later_segments_without_the_first_are_no_ledger() {
    let place = Place::new();
    std::fs::create_dir_all(place.dir().join("records")).unwrap();
    std::fs::write(place.segment(1), "").unwrap();
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::FirstSegmentMissing(_))
    ));
    std::fs::remove_file(place.segment(1)).unwrap();
    for bytes in ["", "no record\n"] {
        std::fs::write(place.segment(0), bytes).unwrap();
        assert!(matches!(
            place.try_open(),
            Err(OpenLedgerError::Genesis { .. })
        ));
    }
}

#[test]
fn a_key_file_signs_and_another_one_does_not() {
    let place = Place::new();
    let (one, two) = (
        place.at.path().join("one.pem"),
        place.at.path().join("two.pem"),
    );
    let id = create_key_file(&one).unwrap().id();
    let other = create_key_file(&two).unwrap().id();
    let with = |path: &Path| {
        let key = KeyChoice::File(path.to_owned());
        place.try_open_with(|options| options.key = key)
    };
    let mut store = with(&one).unwrap();
    say(&mut store, "signed by a file");
    assert_eq!(store.public_key().id(), id);
    assert_eq!(store.key_file(), Some(one.as_path()));
    // The heads are in the key folder nevertheless.
    assert!(place.heads().ends_with(format!("{id}.heads")));
    with(&one).unwrap();
    let error = with(&two).unwrap_err();
    assert!(
        matches!(&error, OpenLedgerError::KeyOfAnother { found, expected, .. }
            if *found == other && *expected == id),
        "{error}"
    );
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::KeyMissing { id: missing, .. }) if missing == id
    ));
    assert!(matches!(
        with(&place.at.path().join("none.pem")),
        Err(OpenLedgerError::Key(KeyFileError::Missing(_)))
    ));
    std::fs::set_permissions(&one, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(
        with(&one),
        Err(OpenLedgerError::Key(KeyFileError::ReadableByOthers { .. }))
    ));
    assert_eq!(place.walk_covered().len(), 2);
}

#[test]
fn a_key_that_others_can_read_signs_nothing() {
    let place = Place::new();
    let key = place.open().key_file().unwrap().to_owned();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::Key(KeyFileError::ReadableByOthers { .. }))
    ));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(place.keys(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        place.try_open(),
        Err(OpenLedgerError::Key(
            KeyFileError::FolderWritableByOthers { .. }
        ))
    ));
}

#[test]
fn an_ephemeral_key_begins_a_ledger_that_ends_with_it() {
    let place = Place::new();
    let ephemeral = |options: &mut OpenOptions<'_>| options.key = KeyChoice::Ephemeral;
    let mut store = place.try_open_with(ephemeral).unwrap();
    say(&mut store, "one");
    say(&mut store, "two");
    assert_eq!(
        (store.key_file(), store.custody()),
        (None, Some(Custody::Ephemeral))
    );
    drop(store);
    assert!(matches!(
        place.try_open_with(ephemeral),
        Err(OpenLedgerError::Ephemeral(_))
    ));
    assert!(matches!(place.try_open(), Err(OpenLedgerError::KeyGone(_))));
    assert_eq!(place.walk_covered().len(), 3);
}

#[test]
fn a_relative_folder_stays_where_it_was() {
    let place = Place::new();
    let store = place.open();
    assert!(store.root().is_absolute());
}

#[test]
fn a_ledger_that_is_refused_leaves_no_folder() {
    let place = Place::new();
    say(&mut place.open(), "kept");
    std::fs::remove_dir_all(place.dir()).unwrap();
    // By its own path, and through a link to the folder above.
    let link = place.at.path().join("link");
    std::os::unix::fs::symlink(place.at.path(), &link).unwrap();
    for dir in [place.dir(), link.join("ledger")] {
        let refused = place.try_open_at(&dir, |_| {});
        assert!(matches!(refused, Err(OpenLedgerError::Differs { .. })));
        assert!(!place.dir().exists());
    }
    let refused = place.try_open_at(&place.at.path().join("new/one"), |options| {
        options.key = KeyChoice::File(place.at.path().join("no such key"));
    });
    assert!(matches!(refused, Err(OpenLedgerError::Key(_))));
    assert!(!place.at.path().join("new").exists());
    say(&mut place.accept(), "goes on");
    place.walk_covered();
}

#[test]
fn a_beginning_that_was_cut_short_goes_on_with_its_key_alone() {
    let place = Place::new();
    say(&mut place.open(), "of another ledger");
    let genesis = std::fs::read(place.segment(0)).unwrap();
    let genesis = genesis.split_inclusive(|byte| *byte == b'\n').next();
    let begin = |name: &str| {
        let dir = place.at.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("genesis.new"), genesis.unwrap()).unwrap();
        let store = place.try_open_at(&dir, |_| {}).unwrap();
        assert!(!dir.join("genesis.new").exists());
        walk(&dir);
        store.public_key().id()
    };
    let other = place.open().public_key().id();
    // Its key acknowledged something: it is another ledger's, and both stay.
    assert_ne!(begin("new"), other);
    // It did not: nobody else has it.
    std::fs::remove_file(place.heads_of(&other)).unwrap();
    assert_eq!(begin("newer"), other);
}

#[test]
fn a_beginning_cut_short_twice_goes_on_with_the_first_ones_key() {
    let place = Place::new();
    let kept = place.open().public_key().id();
    let genesis = std::fs::read(place.segment(0)).unwrap();
    // The first died before the segment had its name; the second while it wrote another one.
    std::fs::remove_file(place.heads_of(&kept)).unwrap();
    let dir = place.at.path().join("again");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("genesis.new"), &genesis).unwrap();
    std::fs::write(dir.join("genesis.next"), "{\"key\":\"").unwrap();
    let store = place.try_open_at(&dir, |_| {}).unwrap();
    assert_eq!(store.public_key().id(), kept);
    for name in ["genesis.new", "genesis.next"] {
        assert!(!dir.join(name).exists(), "{name}");
    }
    walk(&dir);
}
