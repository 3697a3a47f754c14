//! What was acknowledged before, by the ledger's own checkpoint and by `.heads`: a ledger that holds less or
//! something else has lost records, and nothing more is signed in it.

use std::path::{Path, PathBuf};

use super::heads;
use super::layout::Layout;
use super::state::{State, TreeFile};
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::file::chain::Chain;
use crate::file::durable::{self, FileError};
use crate::proof::checkpoint::{ReadCheckpointError, SignedCheckpoint, counts_as_absent};
use crate::record::ExpectedTree;

/// A size and a root that somebody was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acknowledged {
    /// The file that says so.
    pub(super) source: PathBuf,
    pub(super) size: u64,
    pub(super) root: Hash,
}

/// How a ledger is not what was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// Records are missing.
    #[error(
        "the ledger holds {found} records (last sequence {}), {} says {} (last sequence {}) with root {}",
        last(*found), source_file.display(), expected.size, last(expected.size.value()), expected.root
    )]
    Shorter {
        /// What says that there were more.
        source_file: PathBuf,
        /// What there was.
        expected: ExpectedTree,
        /// How many records there are.
        found: u64,
    },
    /// As many records or more, but other ones.
    #[error(
        "the first {} records are not those that {} speaks of: root {found}, expected {}",
        expected.size, source_file.display(), expected.root
    )]
    Other {
        /// What speaks of other records.
        source_file: PathBuf,
        /// What there was.
        expected: ExpectedTree,
        /// The root of as many records now.
        found: Hash,
    },
    /// Another ledger was kept in this folder.
    #[error(
        "{} knows ledger {ledger} in this folder, with {} records (last sequence {}) and root {}, and it is not there",
        source_file.display(), expected.size, last(expected.size.value()), expected.root
    )]
    Gone {
        /// What knows it.
        source_file: PathBuf,
        /// Its id.
        ledger: Hash,
        /// What there was.
        expected: ExpectedTree,
    },
}

fn last(size: u64) -> String {
    match size.checked_sub(1) {
        Some(last) => last.to_string(),
        None => "none".to_owned(),
    }
}

impl Difference {
    /// What there was.
    #[must_use]
    pub const fn expected(&self) -> &ExpectedTree {
        match self {
            Self::Shorter { expected, .. }
            | Self::Other { expected, .. }
            | Self::Gone { expected, .. } => expected,
        }
    }
}

pub(super) fn expected(size: u64, root: Hash) -> ExpectedTree {
    ExpectedTree {
        root,
        size: U53::saturating(size),
    }
}

/// Why the stored checkpoint could not be used.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum StoredCheckpointError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// Not a checkpoint.
    #[error("{} is not a checkpoint", path.display())]
    #[diagnostic(
        code(ledger::find::checkpoint),
        help(
            "no crash does this: find out who wrote it; the ledger goes on once it is moved away"
        )
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ReadCheckpointError,
    },
    /// A checkpoint of something else.
    #[error("{} is a checkpoint of {found:?}, expected {expected:?}", path.display())]
    #[diagnostic(
        code(ledger::find::checkpoint),
        help(
            "no crash does this: find out who wrote it; the ledger goes on once it is moved away"
        )
    )]
    Origin {
        /// The file.
        path: PathBuf,
        /// The ledger's origin.
        expected: String,
        /// The checkpoint's.
        found: String,
    },
    /// Signed by nobody who may.
    #[error("{} is not signed by the key that was active at size {size}", path.display())]
    #[diagnostic(
        code(ledger::find::checkpoint),
        help(
            "no crash does this: find out who wrote it; the ledger goes on once it is moved away"
        )
    )]
    Signature {
        /// The file.
        path: PathBuf,
        /// The size that it speaks of.
        size: u64,
    },
}

/// Reads the stored checkpoint; what a crash leaves of one counts as absent.
pub(super) fn stored_checkpoint(
    layout: &Layout,
) -> Result<Option<SignedCheckpoint>, StoredCheckpointError> {
    let path = layout.checkpoint();
    match durable::read(&path)? {
        None => Ok(None),
        Some(bytes) if counts_as_absent(&bytes) => Ok(None),
        Some(bytes) => SignedCheckpoint::parse(&bytes)
            .map(Some)
            .map_err(|source| StoredCheckpointError::Form { path, source }),
    }
}

/// What the stored checkpoint says, once its origin and signature hold.
pub(super) fn by_checkpoint(
    layout: &Layout,
    signed: &SignedCheckpoint,
    chain: &Chain,
) -> Result<Acknowledged, StoredCheckpointError> {
    let (path, claim) = (layout.checkpoint(), signed.claim());
    let expected = chain.origin().map_or("", |origin| origin.as_str());
    if claim.origin != expected {
        return Err(StoredCheckpointError::Origin {
            path,
            expected: expected.to_owned(),
            found: claim.origin.clone(),
        });
    }
    let size = claim.size;
    let signs = if size <= chain.lines() {
        chain
            .key_at(size)
            .is_some_and(|active| signed.signed_by(&active.key).is_ok())
    } else {
        // The rotation that named its key may be among the records that are missing, but then it is one of the
        // keys before.
        let mut keys = chain.keys().iter();
        keys.any(|active| signed.signed_by(&active.key).is_ok())
    };
    if !signs {
        return Err(StoredCheckpointError::Signature { path, size });
    }
    Ok(Acknowledged {
        source: path,
        size,
        root: claim.root,
    })
}

/// What `.heads` says of this ledger.
pub(super) fn by_heads(
    file: &Path,
    heads: &heads::Heads,
    ledger: Option<&Hash>,
) -> Option<Acknowledged> {
    let line = heads
        .lines
        .iter()
        .find(|line| Some(&line.ledger) == ledger)?;
    Some(Acknowledged {
        source: file.to_owned(),
        size: line.size,
        root: line.root,
    })
}

/// Holds a state, whose hashes `tree` has, against what was acknowledged.
pub(super) fn difference(
    acknowledged: &Acknowledged,
    state: &State,
    layout: &Layout,
) -> Result<Option<Difference>, FileError> {
    let Acknowledged { source, size, root } = acknowledged;
    let (source_file, expected) = (source.clone(), expected(*size, *root));
    if *size > state.size() {
        return Ok(Some(Difference::Shorter {
            source_file,
            expected,
            found: state.size(),
        }));
    }
    let found = if *size == state.size() {
        state.root()
    } else {
        match TreeFile::open(layout)? {
            Some(tree) if tree.holds(*size) => tree.frontier(*size)?.root(),
            // The cache is not what the state believes: as wrong as another root.
            _ => Hash::ZERO,
        }
    };
    Ok((found != *root).then_some(Difference::Other {
        source_file,
        expected,
        found,
    }))
}
