//! What a ledger's stored checkpoint covers, for those who only read: no key and no lock is needed, for what is read is
//! held against the checkpoint.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::acknowledged::{StoredCheckpointError, by_checkpoint, stored_checkpoint};
use super::error::OpenLedgerError;
use super::layout::Layout;
use super::open::refuse_what_is_no_ledger;
use super::state::{State, TreeFile};
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::file::durable::{self, FileError};
use crate::proof::checkpoint::SignedCheckpoint;

/// How often, and after what pause, files that a writer is about to renew are looked at again.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// A ledger up to what its checkpoint covers.
#[derive(Debug)]
pub(in crate::file) struct Covered {
    layout: Layout,
    pub(in crate::file) checkpoint: SignedCheckpoint,
    pub(in crate::file) ledger: Hash,
    /// The records that no reader can do without, whatever else is of interest: genesis, every change of the key, every
    /// recovery, and the close.
    pub(in crate::file) always: Vec<u64>,
    /// Records behind those that are covered.
    pub(in crate::file) behind: u64,
    tree: TreeFile,
}

/// Why nothing can be said of what a checkpoint covers.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum CoveredError {
    /// There is no ledger.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Open(#[from] OpenLedgerError),
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// The stored checkpoint is none of this ledger.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Checkpoint(#[from] StoredCheckpointError),
    /// There is no checkpoint.
    #[error("{} is not there or empty: nothing says what the ledger holds", .0.display())]
    #[diagnostic(
        code(ledger::covered::none),
        help("the next record renews it, `runner note` for one; that needs the ledger's key")
    )]
    NoCheckpoint(PathBuf),
    /// The caches are missing, or not those of the checkpoint.
    #[error("{} and {} do not show the tree of {size} records that the checkpoint speaks of", tip.display(), tree.display())]
    #[diagnostic(
        code(ledger::covered::caches),
        help(
            "remove both: whoever opens the ledger for writing next makes them again, which needs its key"
        )
    )]
    Caches {
        /// The one file.
        tip: PathBuf,
        /// The other.
        tree: PathBuf,
        /// The checkpoint's size.
        size: u64,
    },
}

impl Covered {
    /// Reads checkpoint, `tip` and the few hashes of `tree` that make the root; puts the checkpoint on the disk.
    pub(in crate::file) fn read(dir: &Path) -> Result<Self, CoveredError> {
        let layout = Layout::new(durable::absolute(dir)?);
        refuse_what_is_no_ledger(&layout, false)?;
        let mut tries = TRIES;
        let covered = loop {
            match Self::once(&layout) {
                // A writer renews the three one after the other.
                Err(CoveredError::Caches { .. } | CoveredError::Checkpoint(_)) if tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(PAUSE);
                }
                result => break result?,
            }
        };
        let path = layout.checkpoint();
        if let Some(file) = durable::open_to_read(&path)? {
            durable::sync_data(&file, &path)?;
        }
        Ok(covered)
    }

    fn once(layout: &Layout) -> Result<Self, CoveredError> {
        let Some(checkpoint) = stored_checkpoint(layout)? else {
            return Err(CoveredError::NoCheckpoint(layout.checkpoint()));
        };
        let claim = checkpoint.claim();
        let size = claim.size;
        let caches = || CoveredError::Caches {
            tip: layout.tip(),
            tree: layout.tree(),
            size,
        };
        let (Some(state), Some(tree)) = (State::load(layout)?, TreeFile::open(layout)?) else {
            return Err(caches());
        };
        by_checkpoint(layout, &checkpoint, &state.chain)?;
        if state.size() < size || !tree.holds(size) || tree.frontier(size)?.root() != claim.root {
            return Err(caches());
        }
        let chain = &state.chain;
        let mut always: Vec<u64> = chain
            .keys()
            .iter()
            .map(|key| key.from.saturating_sub(1))
            .collect();
        always.extend(
            state
                .recoveries
                .iter()
                .map(|recovery: &U53| recovery.value()),
        );
        always.extend(chain.closed_at());
        always.retain(|sequence| *sequence < size);
        Ok(Self {
            ledger: *chain.ledger().ok_or_else(caches)?,
            behind: state.size() - size,
            always,
            layout: layout.clone(),
            checkpoint,
            tree,
        })
    }

    pub(in crate::file) fn size(&self) -> u64 {
        self.checkpoint.claim().size
    }

    /// The proof of one of the covered records.
    pub(in crate::file) fn prove(&self, sequence: u64) -> Result<Option<Vec<Hash>>, FileError> {
        self.tree.prove(sequence, self.size())
    }

    pub(in crate::file) fn segment(&self, index: u64) -> PathBuf {
        self.layout.segment(index)
    }

    pub(in crate::file) fn blob(&self, hash: &Hash) -> PathBuf {
        self.layout.blob(hash)
    }

    pub(in crate::file) fn torn(&self, hash: &Hash) -> PathBuf {
        self.layout.torn().join(hash.to_string())
    }
}
