//! Files that are written so that a crash leaves the old or the new.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_and_folders_are_for_their_owner_alone() {
    let at = tempfile::tempdir().unwrap();
    let folder = at.path().join("a/b");
    create_folders(&folder).unwrap();
    create_folders(&folder).unwrap();
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&at.path().join("a")), 0o700);
    let file = folder.join("file");
    replace(&file, b"one", Durability::Synced).unwrap();
    replace(&file, b"two", Durability::Unsynced).unwrap();
    assert_eq!(read(&file).unwrap().unwrap(), b"two");
    assert_eq!(mode(&file), 0o600);
    assert_eq!(list(&folder).unwrap(), ["file", "file.new"]);
}

#[test]
fn whoever_may_read_a_file_may_read_what_replaces_it() {
    let at = tempfile::tempdir().unwrap();
    let file = at.path().join("file");
    replace(&file, b"a", Durability::Unsynced).unwrap();
    assert_eq!(mode(&file), 0o600);
    let opened = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&file, opened).unwrap();
    for text in ["b", "c", "longer", "longest", "x"] {
        replace(&file, text.as_bytes(), Durability::Unsynced).unwrap();
        assert_eq!(mode(&file), 0o644, "{text}");
    }
    replace(&file, b"synced", Durability::Synced).unwrap();
    assert_eq!(mode(&file), 0o644);
}

#[test]
fn two_files_take_turns_while_the_length_stays() {
    use std::os::unix::fs::MetadataExt as _;
    let at = tempfile::tempdir().unwrap();
    let file = at.path().join("file");
    let inode = || std::fs::metadata(&file).unwrap().ino();
    replace(&file, b"a", Durability::Unsynced).unwrap();
    let first = inode();
    replace(&file, b"b", Durability::Unsynced).unwrap();
    let second = inode();
    assert_ne!(first, second);
    replace(&file, b"c", Durability::Unsynced).unwrap();
    assert_eq!(inode(), first);
    assert_eq!(read(&file).unwrap().unwrap(), b"c");
    // Another length, a second name and a torn leftover never show.
    for text in ["longer", "x", "longer", "y"] {
        replace(&file, text.as_bytes(), Durability::Unsynced).unwrap();
        assert_eq!(read(&file).unwrap().unwrap(), text.as_bytes());
    }
    let other = at.path().join("other");
    std::fs::hard_link(at.path().join("file.new"), &other).unwrap();
    let kept = std::fs::read(&other).unwrap();
    replace(&file, b"z", Durability::Unsynced).unwrap();
    replace(&file, b"w", Durability::Unsynced).unwrap();
    assert_eq!(read(&file).unwrap().unwrap(), b"w");
    assert_eq!(std::fs::read(&other).unwrap(), kept);
}

#[test]
fn missing_is_told_from_unreadable() {
    let at = tempfile::tempdir().unwrap();
    assert!(read(&at.path().join("none")).unwrap().is_none());
    assert!(list(&at.path().join("none")).unwrap().is_empty());
    let error = read(at.path()).unwrap_err();
    assert_eq!(error.operation, Operation::Read);
    assert_eq!(
        error.to_string(),
        format!("cannot read {}", at.path().display())
    );
}

#[test]
fn a_lock_is_held_by_one_open_file() {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("lock");
    let (one, two) = (
        open_or_create(&path).unwrap(),
        open_or_create(&path).unwrap(),
    );
    lock(&one, &path).unwrap();
    assert!(!try_lock(&two, &path).unwrap());
    unlock(&one, &path).unwrap();
    assert!(try_lock(&two, &path).unwrap());
}
