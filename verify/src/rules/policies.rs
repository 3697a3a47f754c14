//! Policies that starts name: read once from their blobs.

use std::collections::HashMap;

use ledger::bytes::hash::Hash;
use ledger::facts::execution::PolicyRef;
use ledger::facts::policy::{EffectivePolicy, MAX_POLICY_BYTES, Mode};
use ledger::file::source::ReadError;
use ledger::file::walk::{Findings, Shown};
use ledger::finding::Code;

use super::ControlSet;
use super::blobs::Blobs;

/// Longest policy blob that is read, in bytes: no document that may be given has defaults that make it twice
/// as long. A longer blob is no policy, and no run counts as checked against it.
const POLICY_BYTES: u64 = 2 * MAX_POLICY_BYTES as u64;
/// Most policies that are remembered; later ones are read again.
const REMEMBERED: usize = 10_000;

/// What the rules need of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PolicyFacts {
    /// Whether a run may go on when something requested is not declared.
    pub(super) strict: bool,
    /// What it requires.
    pub(super) required: ControlSet,
}

/// The policies seen so far; `None` for one that could not be read.
#[derive(Debug, Default)]
pub(super) struct Policies(HashMap<Hash, Option<PolicyFacts>>);

impl Policies {
    pub(super) fn read(
        &mut self,
        shown: &Shown<'_>,
        policy: &PolicyRef,
        blobs: &mut Blobs,
        findings: &mut Findings,
    ) -> Result<Option<PolicyFacts>, ReadError> {
        if let Some(known) = self.0.get(&policy.sha256) {
            return Ok(*known);
        }
        let content = blobs.content(shown, &policy.sha256, POLICY_BYTES, findings)?;
        let facts = content.and_then(|bytes| match EffectivePolicy::read(&bytes) {
            Ok(read) => Some(PolicyFacts {
                strict: read.enforcement.mode == Mode::Strict,
                required: ControlSet::of(&read.enforcement.required_controls),
            }),
            Err(error) => {
                let message = format!("the policy's blob is no policy: {error}");
                findings.push(shown.finding(Code::BlobMismatch, message));
                None
            }
        });
        if self.0.len() < REMEMBERED {
            self.0.insert(policy.sha256, facts);
        }
        Ok(facts)
    }
}
