//! Whose a ledger is, for those who only read.

use std::path::Path;

use super::error::OpenLedgerError;
use super::found::FindError;
use super::layout::Layout;
use super::open::{no_genesis, refuse_what_is_no_ledger};
use super::state::State;
use super::tail;
use crate::bytes::hash::Hash;
use crate::bytes::key::PublicKey;
use crate::file::durable;
use crate::record::{Custody, Origin};

/// What a ledger says about itself, for reading only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The ledger's id.
    pub ledger: Hash,
    /// Its name in checkpoints.
    pub origin: Origin,
    /// The key that may sign next.
    pub key: PublicKey,
    /// Where it is kept.
    pub custody: Custody,
    /// Records that verify from the first on.
    pub size: u64,
    /// The record that closed it.
    pub closed_at: Option<u64>,
}

/// Reads all records of a ledger and says whose it is. Nothing is written and no key is needed; findings
/// are `verify`'s business, so this stops at the first record that does not verify.
///
/// # Errors
/// There is no ledger, or it cannot be read.
pub fn describe(dir: &Path) -> Result<Description, OpenLedgerError> {
    let layout = Layout::new(durable::absolute(dir)?);
    refuse_what_is_no_ledger(&layout, false)?;
    let mut state = State::default();
    let ending = tail::read_on(&layout, &mut state, &mut |state| {
        state.forget_fresh();
        Ok(())
    })
    .map_err(FindError::from)?;
    let chain = &state.chain;
    match (chain.ledger(), chain.origin(), chain.active()) {
        (Some(ledger), Some(origin), Some(active)) => Ok(Description {
            ledger: *ledger,
            origin: origin.clone(),
            key: active.key,
            custody: active.custody,
            size: chain.lines(),
            closed_at: chain.closed_at(),
        }),
        _ => Err(no_genesis(&layout, &state, &ending, None)),
    }
}
