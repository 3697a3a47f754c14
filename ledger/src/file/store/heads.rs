//! `<key id>.heads`, beside the keys: what a key last acknowledged for each of its ledgers.
//!
//! It stands outside the ledger, so that a ledger folder that was cut short, emptied or replaced as a whole is
//! noticed before anything is signed. One canonical line per ledger:
//!
//! ```text
//! {"device":64768,"inode":131,"ledger":"<64 hex>","path":"/…/default","root":"<64 hex>","size":12}
//! ```
//!
//! It is replaced by rename under its own lock and not synced: after a crash it may be empty, which
//! counts as absent with a warning.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bytes::canon::{WriteLineError, to_canonical};
use crate::bytes::hash::Hash;
use crate::bytes::key::KeyId;
use crate::file::durable::{self, Durability, FileError};

/// What a key last acknowledged for one ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    /// Device of the ledger folder.
    pub(super) device: u64,
    /// Inode of the ledger folder.
    pub(super) inode: u64,
    /// The ledger's id.
    pub(super) ledger: Hash,
    /// Canonical path of the ledger folder.
    pub(super) path: String,
    /// Root of its tree.
    pub(super) root: Hash,
    /// How many records were acknowledged.
    pub(super) size: u64,
}

/// The content of one heads file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) lines: Vec<Line>,
    /// Something in the file is no such line.
    pub(super) unreadable: bool,
}

/// Where the heads of a key are.
pub(super) fn path(key_folder: &Path, key: &KeyId) -> PathBuf {
    key_folder.join(format!("{key}.heads"))
}

/// Reads a heads file; absent is empty.
pub(super) fn read(path: &Path) -> Result<Heads, FileError> {
    let bytes = durable::read(path)?;
    Ok(match bytes {
        None => Heads::default(),
        Some(bytes) if bytes.is_empty() => Heads {
            lines: vec![],
            unreadable: true,
        },
        Some(bytes) => parse(&bytes),
    })
}

pub(super) fn parse(bytes: &[u8]) -> Heads {
    let mut heads = Heads::default();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n").and_then(parse_line) {
            Some(line) => heads.lines.push(line),
            None => heads.unreadable = true,
        }
    }
    heads
}

/// Exactly what writing it gives.
fn parse_line(bytes: &[u8]) -> Option<Line> {
    let line = serde_json::from_slice(bytes).ok()?;
    let again = to_canonical(&line).ok()?;
    (again == bytes).then_some(line)
}

/// Why a heads file could not be renewed.
#[derive(Debug, thiserror::Error)]
pub enum WriteHeadsError {
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The line cannot be written.
    #[error(transparent)]
    Line(#[from] WriteLineError),
}

/// Puts a line in place of the ledger's earlier one.
pub(super) fn put(path: &Path, line: &Line) -> Result<(), WriteHeadsError> {
    change(path, |lines| {
        match lines.iter_mut().find(|old| old.ledger == line.ledger) {
            Some(old) => *old = line.clone(),
            None => lines.push(line.clone()),
        }
    })
}

/// Drops the line of a ledger that the operator gave up.
pub(super) fn forget(path: &Path, ledger: &Hash) -> Result<(), WriteHeadsError> {
    change(path, |lines| lines.retain(|line| line.ledger != *ledger))
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<Line>)) -> Result<(), WriteHeadsError> {
    if let Some(folder) = path.parent() {
        durable::create_folders(folder)?;
    }
    let lock_path = path.with_extension("heads.lock");
    let lock = durable::open_or_create(&lock_path)?;
    // Dropping the file lets go of the lock, whatever happens below.
    durable::lock(&lock, &lock_path)?;
    let mut lines = read(path)?.lines;
    change(&mut lines);
    let mut bytes = Vec::new();
    for line in &lines {
        bytes.extend(to_canonical(line)?);
        bytes.push(b'\n');
    }
    durable::replace(path, &bytes, Durability::Unsynced)?;
    Ok(())
}

/// Every line, of any key in the folder, that speaks of a ledger at `folder`, with the file it is in.
pub(super) fn known_at(key_folder: &Path, folder: &str) -> Result<Vec<(PathBuf, Line)>, FileError> {
    let mut known = Vec::new();
    for name in durable::list(key_folder)? {
        let path = key_folder.join(name);
        if path
            .extension()
            .is_some_and(|extension| extension == "heads")
        {
            let lines = read(&path)?.lines.into_iter();
            known.extend(
                lines
                    .filter(|line| line.path == folder)
                    .map(|line| (path.clone(), line)),
            );
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ledger: &[u8], path: &str, size: u64) -> Line {
        Line {
            device: 1,
            inode: u64::MAX,
            ledger: Hash::of(ledger),
            path: path.to_owned(),
            root: Hash::of(b"root"),
            size,
        }
    }

    #[test]
    fn one_line_per_ledger() {
        let at = tempfile::tempdir().unwrap();
        let key = KeyId(Hash::of(b"key"));
        let file = path(at.path(), &key);
        assert_eq!(read(&file).unwrap(), Heads::default());
        put(&file, &line(b"a", "/a", 1)).unwrap();
        put(&file, &line(b"b", "/b", 5)).unwrap();
        put(&file, &line(b"a", "/a", 2)).unwrap();
        let heads = read(&file).unwrap();
        assert_eq!(heads.lines, [line(b"a", "/a", 2), line(b"b", "/b", 5)]);
        assert!(!heads.unreadable);
        let known = known_at(at.path(), "/b").unwrap();
        assert_eq!(known, [(file.clone(), line(b"b", "/b", 5))]);
        forget(&file, &Hash::of(b"b")).unwrap();
        assert!(known_at(at.path(), "/b").unwrap().is_empty());
    }

    #[test]
    fn what_a_crash_leaves_is_unreadable_and_keeps_what_can_be_read() {
        let at = tempfile::tempdir().unwrap();
        let file = at.path().join("k.heads");
        put(&file, &line(b"a", "/a", 1)).unwrap();
        let whole = std::fs::read(&file).unwrap();
        for bytes in [
            vec![],
            vec![0; 40],
            whole[..whole.len() - 1].to_vec(),
            b"{}\n".to_vec(),
        ] {
            std::fs::write(&file, &bytes).unwrap();
            let heads = read(&file).unwrap();
            assert!(heads.unreadable && heads.lines.is_empty(), "{bytes:?}");
        }
        std::fs::write(&file, [whole.as_slice(), b"torn"].concat()).unwrap();
        let heads = read(&file).unwrap();
        assert!(heads.unreadable);
        assert_eq!(heads.lines, [line(b"a", "/a", 1)]);
    }
}
