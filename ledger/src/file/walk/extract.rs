//! The records of a bundle held against its checkpoint, one by one.

use super::Findings;
use crate::bytes::hash::Hash;
use crate::file::bundle::{Header, Proof};
use crate::file::chain::Chain;
use crate::finding::{Code, Finding, Place};
use crate::proof::checkpoint::Checkpoint;
use crate::proof::inclusion::root_from;
use crate::record::ParsedLine;

/// How much of its ledger a bundle shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extract {
    /// Record lines, refused ones too.
    pub shown: u64,
    /// Records that its checkpoint covers and that are not shown.
    pub withheld: u64,
}

/// The proofs of one walk.
pub(super) struct Proofs {
    header: Option<Header>,
    /// Size and root of the bundle's checkpoint; whether the ledger's key signed it is judged at the end.
    tree: Option<(u64, Hash)>,
    pending: Option<(Proof, Place)>,
    shown: u64,
    gap: bool,
}

impl Proofs {
    pub(super) fn new(header: Option<Header>, checkpoint: Option<&Checkpoint>) -> Self {
        Self {
            header,
            tree: checkpoint.map(|checkpoint| (checkpoint.size, checkpoint.root)),
            pending: None,
            shown: 0,
            gap: false,
        }
    }

    /// Takes the proof of the next record.
    pub(super) fn take(&mut self, proof: Proof, place: Place, findings: &mut Findings) {
        if let Some(earlier) = self.pending.replace((proof, place)) {
            findings.push(stray(earlier));
        }
    }

    /// What keeps the record that follows the proof from being shown to stand at its place. A line whose number cannot be
    /// read is refused anyway.
    pub(super) fn unproven(&mut self, parsed: &ParsedLine) -> Option<Finding> {
        self.shown += 1;
        let pending = self.pending.take();
        let sequence = parsed.head.as_ref()?.sequence;
        let unproven = |message: &str| Finding::new(Code::ChainPreviousMismatch, message);
        let Some((proof, _)) = pending else {
            return Some(unproven("no proof stands before the record"));
        };
        if proof.index.value() != sequence {
            return Some(
                unproven("the proof is of another place than the record's")
                    .versus(sequence, proof.index),
            );
        }
        let Some((size, root)) = self.tree else {
            return Some(unproven("no checkpoint says what the proof should lead to"));
        };
        match root_from(parsed.hash, sequence, size, &proof.hashes()) {
            Some(found) if found == root => None,
            Some(found) => Some(
                unproven("the proof does not lead from the record to the checkpoint's root")
                    .versus(root, found),
            ),
            None => Some(unproven(
                "the proof does not fit the record's place in a tree of the checkpoint's size",
            )),
        }
    }

    /// Whether records are left out up to the one that was just looked at.
    pub(super) fn gap(&mut self, sequence: u64) -> bool {
        self.gap |= sequence.checked_add(1) != Some(self.shown);
        self.gap
    }

    /// What the bundle says of itself, held against what was in it.
    pub(super) fn finish(self, chain: &Chain, findings: &mut Findings) -> Extract {
        if let Some(stray_one) = self.pending {
            findings.push(stray(stray_one));
        }
        let size = self.tree.map_or(0, |(size, _)| size);
        if let Some(header) = &self.header {
            let records = header.records.value();
            if records != self.shown {
                let (code, message) = if records > self.shown {
                    (
                        Code::TailTruncated,
                        "the bundle was cut: it has fewer records than its header says",
                    )
                } else {
                    (
                        Code::RecordMalformed,
                        "the bundle has more records than its header says",
                    )
                };
                findings.push(Finding::new(code, message).versus(
                    format!("{records} records"),
                    format!("{} records", self.shown),
                ));
            }
            if self.tree.is_some() && header.size.value() != size {
                findings.push(
                    Finding::new(
                        Code::RecordMalformed,
                        "the bundle's header says another size than its checkpoint",
                    )
                    .versus(size, header.size),
                );
            }
            if let Some(ledger) = chain.ledger().filter(|ledger| **ledger != header.ledger) {
                findings.push(
                    Finding::new(
                        Code::LedgerMismatch,
                        "the bundle's header names another ledger",
                    )
                    .versus(ledger, header.ledger),
                );
            }
        }
        if let Some(closed) = chain.closed_at().filter(|at| at.saturating_add(1) < size) {
            findings.push(
                Finding::new(
                    Code::RecordAfterClose,
                    "the checkpoint covers records after the one that closed the ledger",
                )
                .at(closed)
                .versus(
                    format!("{} records", closed.saturating_add(1)),
                    format!("{size} records"),
                ),
            );
        }
        Extract {
            shown: self.shown,
            withheld: size.saturating_sub(self.shown),
        }
    }
}

fn stray((proof, place): (Proof, Place)) -> Finding {
    Finding::new(
        Code::RecordMalformed,
        format!(
            "the proof of record {} stands there without the record",
            proof.index
        ),
    )
    .in_place(place)
}
