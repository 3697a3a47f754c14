//! Where a ledger stands, and whether that is where it was acknowledged to stand.

use std::path::{Path, PathBuf};

use super::Folder;
use super::acknowledged::{self, Acknowledged, Difference, StoredCheckpointError};
use super::heads::{self, Heads};
use super::layout::Layout;
use super::state::State;
use super::tail::{self, Ending, ReadRecordsError};
use crate::file::durable::FileError;

/// A ledger as it was found.
pub(super) struct Found {
    pub(super) state: State,
    pub(super) ending: Ending,
    pub(super) heads: Heads,
    pub(super) acknowledged: Vec<Acknowledged>,
    pub(super) differences: Vec<Difference>,
}

/// Why it could not be found out where a ledger stands.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum FindError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// The records could not be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Read(#[from] ReadRecordsError),
    /// The stored checkpoint is none, or not this ledger's.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Checkpoint(#[from] StoredCheckpointError),
}

/// Reads on from `state` to the end, and holds the result against what was acknowledged.
pub(super) fn find(
    layout: &Layout,
    mut state: State,
    key_folder: &Path,
) -> Result<Found, FindError> {
    let ending = tail::read_on(layout, &mut state, &mut |state| state.write_tree(layout))?;
    state.write_tree(layout)?;
    let mut acknowledged = Vec::new();
    let mut heads = Heads::default();
    if let Some(active) = state.chain.active() {
        let file = heads::path(key_folder, &active.key.id());
        heads = heads::read(&file)?;
        acknowledged.extend(acknowledged::by_heads(&file, &heads, state.chain.ledger()));
        if let Some(signed) = acknowledged::stored_checkpoint(layout)? {
            acknowledged.push(acknowledged::by_checkpoint(layout, &signed, &state.chain)?);
        }
    }
    let mut differences = Vec::new();
    for known in &acknowledged {
        differences.extend(acknowledged::difference(known, &state, layout)?);
    }
    let size = state.size();
    if differences.is_empty() && acknowledged.iter().any(|known| known.size >= size) {
        state.settle();
    }
    Ok(Found {
        state,
        ending,
        heads,
        acknowledged,
        differences,
    })
}

/// What was acknowledged of a ledger in a folder that shows none: by `.heads`, and by the checkpoint in it.
pub(super) fn known_here(
    layout: &Layout,
    key_folder: &Path,
    folder: &Folder,
) -> Result<Option<Difference>, FindError> {
    let strangers = heads::known_at(key_folder, &folder.path)?;
    let mut differences: Vec<_> = strangers.iter().map(gone).collect();
    if let Some(signed) = acknowledged::stored_checkpoint(layout)? {
        let claim = signed.claim();
        differences.push(Difference::Shorter {
            source_file: layout.checkpoint(),
            expected: acknowledged::expected(claim.size, claim.root),
            found: 0,
        });
    }
    Ok(worst(differences))
}

pub(super) fn gone((file, line): &(PathBuf, heads::Line)) -> Difference {
    Difference::Gone {
        source_file: file.clone(),
        ledger: line.ledger,
        expected: acknowledged::expected(line.size, line.root),
    }
}

/// The difference that speaks of the most records.
pub(super) fn worst(differences: Vec<Difference>) -> Option<Difference> {
    differences
        .into_iter()
        .max_by_key(|difference| difference.expected().size)
}
