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
//! Memory stays flat: one line at a time, the frontier of the tree, the keys, and at most 1,000 findings of
//! each code.

mod checkpoints;
mod findings;
mod openings;
mod recoveries;

use std::ops::Deref;

pub use checkpoints::{Assured, CompleteBy, Completeness, Given};
pub use findings::{Findings, KEPT_PER_CODE};

use crate::bytes::hash::Hash;
use crate::file::chain::{Chain, Standing};
use crate::file::source::{Line, ReadError, Source};
use crate::finding::{Code, Finding, Place};
use crate::proof::tree::Frontier;
use crate::record::{Body, Content, LineProblem, Opening, ParsedLine, Record, parse_line};
use checkpoints::Checkpoints;
use openings::{Openings, Pending};
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

/// Sees the records of a walk in their order.
pub trait Visitor {
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
    /// Root of the tree over all record lines.
    pub root: Hash,
    /// How far the ledger is known to be whole.
    pub completeness: Completeness,
    /// How much was looked at.
    pub tally: Tally,
    /// Everything that was found.
    pub findings: Findings,
}

/// Walks a source to its end.
///
/// # Errors
/// A file cannot be read; that says nothing about the evidence.
pub fn walk(
    source: &mut Source,
    given: Option<Given<'_>>,
    visitor: &mut dyn Visitor,
) -> Result<Walked, ReadError> {
    let mut findings = Findings::default();
    source
        .findings
        .drain(..)
        .for_each(|finding| findings.push(finding));
    let mut walk = Walk {
        chain: Chain::new(),
        tree: Frontier::new(),
        checkpoints: Checkpoints::new(source.checkpoint.as_deref(), given),
        openings: Openings::default(),
        recoveries: Recoveries::default(),
        tally: Tally::default(),
        findings,
    };
    let mut torn = None;
    while let Some(line) = source
        .lines
        .next(&mut |finding| walk.findings.push(finding))?
    {
        if line.torn {
            torn = Some(line);
        } else if line.is_opening() {
            walk.openings.take(&line, &mut walk.findings);
        } else {
            walk.record_line(&line, source, visitor)?;
        }
    }
    walk.tail(torn.as_ref());
    Ok(walk.finish())
}

struct Walk<'a> {
    chain: Chain,
    tree: Frontier,
    checkpoints: Checkpoints<'a>,
    openings: Openings,
    recoveries: Recoveries,
    tally: Tally,
    findings: Findings,
}

impl Walk<'_> {
    fn record_line(
        &mut self,
        line: &Line,
        source: &Source,
        visitor: &mut dyn Visitor,
    ) -> Result<(), ReadError> {
        let parsed = parse(line);
        let sequence = parsed
            .head
            .as_ref()
            .map_or(self.chain.next(), |head| head.sequence);
        let place = line.place();
        let before = is_recovery(&parsed).then(|| self.chain.clone());
        let findings = &mut self.findings;
        let standing = self.chain.step(&parsed, &line.bytes, &mut |finding| {
            findings.push(finding.in_place(place.clone()));
        });
        self.tree.push(parsed.hash);
        self.checkpoints.at(&self.tree);
        self.tally.records += 1;
        let pending: Option<Pending> = self.openings.pending();
        let (Standing::Verified, Ok(Content::Record(record))) = (standing, parsed.content) else {
            self.tally.unread += u64::from(standing == Standing::Unread);
            Openings::before_unverified(pending, parsed.head.as_ref(), &mut self.findings);
            visitor.unverified(sequence);
            return Ok(());
        };
        self.tally.verified += 1;
        let record = Verified(*record);
        if let (Body::Recovery(recovery), Some(before)) = (&record.body, &before) {
            self.recoveries.judge(
                recovery,
                sequence,
                before,
                &source.attachments,
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
        visitor.verified(&shown, &mut self.findings)
    }

    /// A last line without newline, or a last opening without record: what a crash leaves.
    /// One that is longer than a record may be is not: no writer begins such a line.
    fn tail(&mut self, torn: Option<&Line>) {
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
        self.findings.push(
            Finding::new(Code::TornTail, message)
                .in_place(place)
                .help("the next run of runner on this ledger recovers it and says so"),
        );
    }

    fn finish(mut self) -> Walked {
        let outcome = self.checkpoints.judge(&self.chain, &mut self.findings);
        self.recoveries
            .finish(&outcome.contradicted, &mut self.findings);
        self.tally.openings = self.openings.checked;
        self.tally.checkpoints = outcome.checked;
        self.tally.recoveries = self.recoveries.checked;
        self.tally.recoveries_not_checked = self.recoveries.not_checked;
        self.openings.finish(&mut self.findings);
        Walked {
            root: self.tree.root(),
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

/// Reads a line; one that was too long to keep is known by hash and length alone.
fn parse(line: &Line) -> ParsedLine {
    match line.long {
        None => parse_line(&line.bytes),
        Some(long) => ParsedLine {
            hash: long.hash,
            frame: None,
            head: None,
            content: Err(vec![LineProblem::TooLarge(long.length)]),
        },
    }
}

#[cfg(test)]
mod tests;
