//! The walk: reads a source from its first line to its last and says everything that is wrong with it.
//!
//! It never stops at a finding. A refused line still advances hash and position (TRUST.md §2). Only what
//! the walk verified becomes [`Verified`], and only `Verified` reaches a [`Visitor`]: rules, reports and
//! matrices cannot be made from anything else.
//!
//! ```compile_fail
//! // Nobody else makes one.
//! let record = ledger::file::walk::Verified("mine");
//! ```
//!
//! What can be said of a line alone (nearly all the work) may be done by several threads; everything else is
//! done in the order of the lines, so that the result is the same for any number of them.
//!
//! Records of a bundle need not be contiguous: what shows that one stands at its place is its proof under the bundle's
//! checkpoint, and without it nothing is `Verified`. Memory stays flat:
//! some batches of lines, the frontier of the tree, the keys, and at most 1,000 findings of each code.

mod checkpoints;
mod extract;
mod findings;
mod openings;
mod read;
mod recoveries;
mod turns;

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

pub use checkpoints::{Assured, CompleteBy, Completeness, Given};
pub use extract::Extract;
pub use findings::{Findings, KEPT_PER_CODE};

use crate::bytes::hash::Hash;
use crate::bytes::key::PublicKey;
use crate::file::bundle::Proof;
use crate::file::chain::{Chain, Checked, Standing, form_finding};
use crate::file::source::{Attachments, Line, Lines, ReadError, Source};
use crate::finding::{Code, Finding, Place};
use crate::proof::tree::Frontier;
use crate::record::{Body, Content, LineProblem, Opening, ParsedLine, Record};
use checkpoints::Checkpoints;
use extract::Proofs;
use openings::{Openings, Pending};
use read::{Batch, BatchSize, Read, gather};
use recoveries::Recoveries;

/// Something that the walk found to be the ledger's own: form, signature, key and links hold.
#[derive(Debug)]
pub struct Verified<T>(T);

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A verified record and what is known about its line.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The record.
    pub record: &'a Verified<Record>,
    /// The values that it seals, where an opening that fits stands before it.
    pub opening: Option<&'a Verified<Opening>>,
    /// Its hash.
    pub hash: Hash,
    /// Where its line stands.
    pub place: &'a Place,
}

impl Shown<'_> {
    /// A finding about this record.
    #[must_use]
    pub fn finding(&self, code: Code, message: impl Into<String>) -> Finding {
        Finding::new(code, message)
            .at(self.record.sequence.value())
            .in_place(self.place.clone())
    }
}

/// Sees the records of a walk in their order, one at a time, though not always from the same thread.
pub trait Visitor: Send {
    /// A record that verified.
    ///
    /// # Errors
    /// Something that the record refers to cannot be read.
    fn verified(&mut self, shown: &Shown<'_>, findings: &mut Findings) -> Result<(), ReadError>;

    /// A line that did not verify, or that needs a newer reader, stands at this number.
    fn unverified(&mut self, sequence: u64);
}

/// Looks at nothing.
impl Visitor for () {
    fn verified(&mut self, _: &Shown<'_>, _: &mut Findings) -> Result<(), ReadError> {
        Ok(())
    }

    fn unverified(&mut self, _: u64) {}
}

/// How many things each of the walk's checks looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Record lines, refused ones too.
    pub records: u64,
    /// Records that verified.
    pub verified: u64,
    /// Records whose kind or version needs a newer reader.
    pub unread: u64,
    /// Opening lines.
    pub openings: u64,
    /// Checkpoints, stored and given.
    pub checkpoints: u64,
    /// Recovery records.
    pub recoveries: u64,
    /// Recovery records whose set-aside bytes cannot be looked at here.
    pub recoveries_not_checked: u64,
}

/// What a walk came to.
#[derive(Debug)]
pub struct Walked {
    /// Ids, keys and head.
    pub chain: Chain,
    /// Root of the tree over all record lines; where some are left out, what the bundle's checkpoint says.
    pub root: Hash,
    /// How much of its ledger a bundle shows; absent for anything else.
    pub extract: Option<Extract>,
    /// How far the ledger is known to be whole.
    pub completeness: Completeness,
    /// How much was looked at.
    pub tally: Tally,
    /// Everything that was found.
    pub findings: Findings,
}

/// Walks a source to its end, in this thread alone.
///
/// # Errors
/// A file cannot be read; that says nothing about the evidence.
pub fn walk(
    source: &mut Source,
    given: Option<Given<'_>>,
    visitor: &mut dyn Visitor,
) -> Result<Walked, ReadError> {
    walk_with(NonZeroUsize::MIN, source, given, visitor)
}

/// Most threads that a walk starts: what each has under way is memory.
pub const MAX_THREADS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// As [`walk`], with up to so many threads (at most [`MAX_THREADS`]), this one among them; the result is the
/// same. A source that is short is read by this one alone.
///
/// # Errors
/// A file cannot be read; that says nothing about the evidence.
pub fn walk_with(
    threads: NonZeroUsize,
    source: &mut Source,
    given: Option<Given<'_>>,
    visitor: &mut dyn Visitor,
) -> Result<Walked, ReadError> {
    walk_by(BatchSize::USUAL, threads, source, given, visitor)
}

fn walk_by(
    size: BatchSize,
    threads: NonZeroUsize,
    source: &mut Source,
    given: Option<Given<'_>>,
    visitor: &mut dyn Visitor,
) -> Result<Walked, ReadError> {
    let mut findings = Findings::default();
    source
        .findings
        .drain(..)
        .for_each(|finding| findings.push(finding));
    let checkpoints = Checkpoints::new(source.checkpoint.as_deref(), given);
    let proofs = source
        .bundle
        .as_ref()
        .map(|head| Proofs::new(head.0.clone(), checkpoints.stored()));
    let mut walk = Walk {
        chain: if proofs.is_some() {
            Chain::with_gaps()
        } else {
            Chain::new()
        },
        tree: Frontier::new(),
        checkpoints,
        proofs,
        openings: Openings::default(),
        recoveries: Recoveries::default(),
        tally: Tally::default(),
        findings,
        torn: None,
        attachments: &source.attachments,
        visitor,
    };
    let lines = &mut source.lines;
    // The first batch shows the key, and often it is all.
    let mut given = gather(lines, size);
    let mut alone = true;
    while !given.is_empty() && alone {
        for one in given {
            let read = one.read(walk.key().as_ref());
            walk.take(read)?;
        }
        given = gather(lines, size);
        alone = threads == NonZeroUsize::MIN;
    }
    if !given.is_empty() {
        walk.take_all(size, threads.min(MAX_THREADS), given, lines)?;
    }
    walk.tail();
    Ok(walk.finish())
}

struct Walk<'a> {
    chain: Chain,
    tree: Frontier,
    checkpoints: Checkpoints<'a>,
    /// Only for a bundle.
    proofs: Option<Proofs>,
    openings: Openings,
    recoveries: Recoveries,
    tally: Tally,
    findings: Findings,
    torn: Option<Line>,
    attachments: &'a Attachments,
    visitor: &'a mut dyn Visitor,
}

impl Walk<'_> {
    /// The key that may sign the next record.
    fn key(&self) -> Option<PublicKey> {
        self.chain.active().map(|active| active.key)
    }

    /// Takes these lines and all that follow them, read by several threads.
    fn take_all(
        &mut self,
        size: BatchSize,
        threads: NonZeroUsize,
        first: Vec<read::Given>,
        lines: &mut Lines,
    ) -> Result<(), ReadError> {
        let key = Mutex::new(self.key());
        let mut first = Some(first);
        let next = || {
            let given = first.take().unwrap_or_else(|| gather(lines, size));
            let key = *key.lock().unwrap_or_else(PoisonError::into_inner);
            (!given.is_empty()).then_some(Batch { given, key })
        };
        let take = |batch: Vec<Read>| {
            for read in batch {
                self.take(read)?;
            }
            *key.lock().unwrap_or_else(PoisonError::into_inner) = self.key();
            Ok(())
        };
        turns::in_order(threads, next, Batch::read, take)
    }

    /// Takes what comes next in the source.
    fn take(&mut self, read: Read) -> Result<(), ReadError> {
        match read {
            Read::Record {
                line,
                parsed,
                checked,
            } => self.record_line(&line, *parsed, checked.as_deref())?,
            Read::Opening { line, read } => self.openings.take(&line, *read, &mut self.findings),
            Read::Proof { line, read } => match read {
                Ok(proof) => self.proofs_take(proof, line.place()),
                Err(problem) => self
                    .findings
                    .push(form_finding(&problem).in_place(line.place())),
            },
            Read::Torn(line) => self.torn = Some(line),
            Read::Finding(finding) => self.findings.push(finding),
            Read::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn proofs_take(&mut self, proof: Proof, place: Place) {
        if self.openings.is_pending() {
            self.findings.push(
                Finding::new(
                    Code::RecordMalformed,
                    "a proof stands between an opening and its record",
                )
                .in_place(place.clone()),
            );
        }
        if let Some(proofs) = &mut self.proofs {
            proofs.take(proof, place, &mut self.findings);
        }
    }

    fn record_line(
        &mut self,
        line: &Line,
        parsed: ParsedLine,
        checked: Option<&Checked>,
    ) -> Result<(), ReadError> {
        let sequence = parsed
            .head
            .as_ref()
            .map_or(self.chain.next(), |head| head.sequence);
        let place = line.place();
        let before = is_recovery(&parsed).then(|| match (&self.proofs, &parsed.head) {
            (Some(_), Some(head)) => self.chain.just_before(head),
            _ => self.chain.clone(),
        });
        let unproven = match &mut self.proofs {
            Some(proofs) => proofs.unproven(&parsed),
            None => None,
        };
        let findings = &mut self.findings;
        let mut report = |finding: Finding| findings.push(finding.in_place(place.clone()));
        let standing = self
            .chain
            .step_proven(&parsed, &line.bytes, checked, unproven, &mut report);
        // With a gap in it there is no tree.
        let gap = self
            .proofs
            .as_mut()
            .is_some_and(|proofs| proofs.gap(sequence));
        if !gap {
            self.tree.push(parsed.hash);
            self.checkpoints.at(&self.tree);
        }
        self.tally.records += 1;
        let pending: Option<Pending> = self.openings.pending();
        let (Standing::Verified, Ok(Content::Record(record))) = (standing, parsed.content) else {
            self.tally.unread += u64::from(standing == Standing::Unread);
            Openings::before_unverified(pending, parsed.head.as_ref(), &mut self.findings);
            self.visitor.unverified(sequence);
            return Ok(());
        };
        self.tally.verified += 1;
        let record = Verified(*record);
        if let (Body::Recovery(recovery), Some(before)) = (&record.body, &before) {
            self.recoveries.judge(
                recovery,
                sequence,
                before,
                self.attachments,
                &mut self.findings,
            )?;
        }
        let opening = self.openings.before(pending, &record, &mut self.findings);
        let shown = Shown {
            record: &record,
            opening: opening.as_ref(),
            hash: parsed.hash,
            place: &place,
        };
        self.visitor.verified(&shown, &mut self.findings)
    }

    /// A last line without newline, or a last opening without record: what a crash leaves.
    /// One that is longer than a record may be is not: no writer begins such a line.
    fn tail(&mut self) {
        let torn = self.torn.as_ref();
        if let Some((line, long)) = torn.and_then(|line| Some((line, line.long?))) {
            self.findings.push(
                Finding::new(
                    Code::RecordTooLarge,
                    LineProblem::TooLarge(long.length).to_string(),
                )
                .in_place(line.place()),
            );
        }
        let (place, message) = match (torn, self.openings.pending()) {
            (Some(line), _) => (line.place(), "the last line has no newline"),
            (None, Some(pending)) => {
                if let Some(stray) = pending.stray(self.chain.next()) {
                    self.findings.push(stray);
                }
                (
                    pending.place(),
                    "the last line is an opening, and its record does not follow",
                )
            }
            (None, None) => return,
        };
        let finding = if self.proofs.is_some() {
            // A bundle gets its name when it is whole: no crash leaves half a line in one, and no run recovers it.
            Finding::new(Code::RecordMalformed, message)
        } else {
            Finding::new(Code::TornTail, message)
                .help("the next run of runner on this ledger recovers it and says so")
        };
        self.findings.push(finding.in_place(place));
    }

    fn finish(mut self) -> Walked {
        let extract = self
            .proofs
            .take()
            .map(|proofs| proofs.finish(&self.chain, &mut self.findings));
        let outcome = self
            .checkpoints
            .judge(&self.chain, extract.as_ref(), &mut self.findings);
        self.recoveries
            .finish(&outcome.contradicted, &mut self.findings);
        self.tally.openings = self.openings.checked;
        self.tally.checkpoints = outcome.checked;
        self.tally.recoveries = self.recoveries.checked;
        self.tally.recoveries_not_checked = self.recoveries.not_checked;
        self.openings.finish(&mut self.findings);
        Walked {
            root: match (&extract, outcome.stored_root) {
                (Some(extract), Some(root)) if extract.withheld > 0 => root,
                _ => self.tree.root(),
            },
            extract,
            chain: self.chain,
            completeness: outcome.completeness,
            tally: self.tally,
            findings: self.findings,
        }
    }
}

fn is_recovery(parsed: &ParsedLine) -> bool {
    matches!(&parsed.content, Ok(Content::Record(record)) if matches!(record.body, Body::Recovery(_)))
}

#[cfg(test)]
mod same;
#[cfg(test)]
mod tests;
