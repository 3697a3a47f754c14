//! Names in a ledger folder (DESIGN.md §4).

use std::path::{Path, PathBuf};

use crate::bytes::hash::Hash;
use crate::facts::execution::RunId;
use crate::file::durable::{self, FileError};

/// Records in one segment: a full segment is a perfect Merkle subtree.
pub const SEGMENT_RECORDS: u64 = 8192;

/// What may stand in a folder that is or becomes a ledger.
pub(in crate::file) const NAMES: [&str; 13] = [
    "records",
    "blobs",
    "checkpoint",
    "checkpoint.new",
    "checkpoints",
    "genesis.new",
    "genesis.next",
    "lock",
    "runs",
    "tip",
    "tip.new",
    "torn",
    "tree",
];

/// Where everything of one ledger is.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// `root` is absolute, so that a later change of the working folder changes nothing.
    pub(super) const fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn records(&self) -> PathBuf {
        self.root.join("records")
    }

    pub(super) fn segment(&self, index: u64) -> PathBuf {
        self.records().join(segment_name(index))
    }

    /// The first segment before it gets its name.
    pub(super) fn genesis(&self) -> PathBuf {
        self.root.join("genesis.new")
    }

    /// The first segment while it is written.
    pub(super) fn genesis_next(&self) -> PathBuf {
        self.root.join("genesis.next")
    }

    pub(super) fn checkpoint(&self) -> PathBuf {
        self.root.join("checkpoint")
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.root.join("tree")
    }

    pub(super) fn tip(&self) -> PathBuf {
        self.root.join("tip")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// What the next run makes its lock of.
    pub(super) fn spare_lock(&self) -> PathBuf {
        self.runs().join("spare")
    }

    pub(super) fn run_lock(&self, run: &RunId) -> PathBuf {
        self.runs().join(format!("{run}.lock"))
    }

    /// The folders in it, whether they are there or not.
    pub(super) fn folders(&self) -> [PathBuf; 4] {
        let blobs = self.root.join("blobs");
        [self.records(), blobs, self.runs(), self.torn()]
    }

    pub(super) fn torn(&self) -> PathBuf {
        self.root.join("torn")
    }

    pub(super) fn blob(&self, hash: &Hash) -> PathBuf {
        self.root.join(blob_name(hash))
    }

    /// Names that belong to no ledger; a folder with some and without `records` is somebody else's.
    pub(super) fn foreign(&self) -> Result<Vec<String>, FileError> {
        let names = durable::list(&self.root)?;
        Ok(names
            .iter()
            .map(|name| name.to_string_lossy().into_owned())
            .filter(|name| !NAMES.contains(&name.as_str()))
            .collect())
    }
}

/// File name of a segment: its index with eight digits.
#[must_use]
pub fn segment_name(index: u64) -> String {
    format!("{index:08}.jsonl")
}

/// Where a blob is, relative to the ledger folder: `blobs/<2 hex>/<62 hex>`.
#[must_use]
pub fn blob_name(hash: &Hash) -> PathBuf {
    let hex = hash.to_string();
    let (first, rest) = hex.split_at(2);
    Path::new("blobs").join(first).join(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(segment_name(0), "00000000.jsonl");
        assert_eq!(segment_name(122), "00000122.jsonl");
        let name = blob_name(&Hash::of(b"abc"));
        assert!(name.starts_with("blobs/ba"));
        assert_eq!(name.file_name().unwrap().len(), 62);
    }
}
