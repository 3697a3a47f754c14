//! What verified records must say about each other, and about what they refer to.
//!
//! Verdicts are computed again from the recorded facts, and a stored one is only compared. Nothing that
//! was not measured counts as passed: a check that looked at nothing is `not-checked`.

mod assurance;
mod blobs;
mod columns;
mod denied;
mod guarantees;
mod items;
mod limits;
mod matrices;
mod measured;
mod policies;
mod probes;
mod references;
mod runs;
mod suites;

use std::num::NonZeroUsize;

use ledger::bytes::time::{Clock, Timestamp};
use ledger::facts::control::Control;
use ledger::facts::execution::Outcome;
use ledger::facts::matrix::table::Table;
use ledger::file::source::{Attachments, ReadError, Source};
use ledger::file::walk::{Findings, Given, Shown, Visitor, walk_with};
use ledger::finding::{Code, Finding};
use ledger::record::Body;

pub use assurance::{Check, CheckStatus, Verification};
use blobs::Blobs;
use denied::Listening;
pub use denied::{Denials, Denied};
use guarantees::Guarantees;
use policies::Policies;
use probes::{Begun, Probes};
use references::{Hosts, Kind, Kinds};
use runs::{OnPurpose, Runs};
use suites::Suites;

/// What is asked beyond the records themselves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demands<'a> {
    /// A checkpoint from outside the ledger.
    pub checkpoint: Option<Given<'a>>,
    /// The newest record must be covered by something outside the ledger, or by its close.
    pub require_checkpoint: bool,
    /// The newest matrices are to be given, to be shown or compared.
    pub matrices: bool,
}

/// Checks a ledger whole, in this thread alone.
///
/// # Errors
/// A file cannot be read; that says nothing about the evidence.
pub fn verify(source: &mut Source, demands: Demands<'_>) -> Result<Verification, ReadError> {
    verify_with(NonZeroUsize::MIN, source, demands)
}

/// As [`verify`], with up to so many threads; the result is the same.
///
/// # Errors
/// A file cannot be read; that says nothing about the evidence.
pub fn verify_with(
    threads: NonZeroUsize,
    source: &mut Source,
    demands: Demands<'_>,
) -> Result<Verification, ReadError> {
    let mut rules = Rules::new(source.attachments.clone(), demands.matrices);
    let mut walked = walk_with(threads, source, demands.checkpoint, &mut rules)?;
    let (counts, matrices, denials) = rules.finish(&mut walked.findings)?;
    if demands.require_checkpoint && walked.tally.records > 0 && !walked.completeness.covers_head()
    {
        walked.findings.push(
            Finding::new(
                Code::CheckpointRequired,
                "the newest record is covered by no checkpoint from outside the ledger",
            )
            .help("give one with --checkpoint, or do without --require-checkpoint"),
        );
    }
    Ok(Verification::new(
        walked, &counts, matrices, denials, source,
    ))
}

/// How many things the rules compared.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    references: u64,
    verdicts: u64,
    runs: u64,
    strict: u64,
    limits: u64,
    users: u64,
    hosts: u64,
    clocks: u64,
    blobs: u64,
    cells: u64,
    guarantees: u64,
}

/// The rules, fed record by record.
struct Rules {
    counts: Counts,
    kinds: Kinds,
    hosts: Hosts,
    runs: Runs,
    blobs: Blobs,
    policies: Policies,
    suites: Suites,
    probes: Probes,
    guarantees: Guarantees,
    listening: Listening,
    before: Option<Moment>,
}

/// The two clocks of one record.
#[derive(Clone, Debug)]
struct Moment {
    time: Timestamp,
    clock: Clock,
}

/// How far apart a record's two clocks may have been read, in microseconds.
const READ_APART_US: i64 = 100_000;

impl Moment {
    /// Whether the wall clock was set back between the two. Within one boot, a moment that lies as far back by
    /// the boot clock, which nothing sets, was only taken early and appended late.
    fn stepped_back(&self, next: &Self) -> bool {
        let back = self.time.unix_micros() - next.time.unix_micros();
        if back <= 0 || self.clock.boot_id != next.clock.boot_id {
            return back > 0;
        }
        let late = self.clock.since_boot_us.value();
        let late = late.saturating_sub(next.clock.since_boot_us.value());
        let late = i64::try_from(late).unwrap_or(i64::MAX);
        back > late.saturating_add(READ_APART_US)
    }
}

impl Rules {
    fn new(attachments: Attachments, matrices: bool) -> Self {
        Self {
            counts: Counts::default(),
            kinds: Kinds::default(),
            hosts: Hosts::default(),
            runs: Runs::new(attachments.clone()),
            blobs: Blobs::new(attachments),
            policies: Policies::default(),
            suites: Suites::default(),
            probes: Probes::default(),
            guarantees: Guarantees::new(matrices),
            listening: Listening::default(),
            before: None,
        }
    }

    fn clock(&mut self, shown: &Shown<'_>, findings: &mut Findings) {
        let moment = Moment {
            time: shown.record.time,
            clock: shown.record.clock.clone(),
        };
        if let Some(before) = self.before.replace(moment.clone()) {
            self.counts.clocks += 1;
            if before.stepped_back(&moment) {
                findings.push(
                    shown
                        .finding(Code::ClockStep, "the wall clock went backwards")
                        .versus(format!("{} or later", before.time), moment.time),
                );
            }
        }
    }

    fn finish(
        mut self,
        findings: &mut Findings,
    ) -> Result<(Counts, Vec<Table>, Denials), ReadError> {
        self.runs.finish(&mut self.counts, findings)?;
        self.blobs.finish(&mut self.counts);
        let matrices = self.guarantees.finish(findings);
        let denials = self.listening.finish(findings);
        Ok((self.counts, matrices, denials))
    }
}

impl Visitor for Rules {
    fn verified(&mut self, shown: &Shown<'_>, findings: &mut Findings) -> Result<(), ReadError> {
        self.clock(shown, findings);
        let sequence = shown.record.sequence.value();
        let kind = match &shown.record.body {
            Body::Host(facts) => {
                self.hosts.put(sequence, facts);
                Kind::Host
            }
            Body::Start(start) => {
                self.counts.references += 1;
                let mut host = None;
                if self
                    .kinds
                    .expect(shown, "host", start.host.value(), Kind::Host, findings)
                {
                    host = self.hosts.facts(start.host.value());
                    self.counts.hosts += 1;
                    self.hosts.check(shown, start.host.value(), findings);
                }
                if let Some(matrix) = start.matrix {
                    self.counts.references += 1;
                    self.kinds
                        .expect(shown, "matrix", matrix.value(), Kind::Matrix, findings);
                }
                self.blobs.of_start(shown, start, findings)?;
                let policy = self
                    .policies
                    .read(shown, &start.policy, &mut self.blobs, findings)?;
                let begun = Begun::of(start, host);
                self.runs.begin(sequence, start, policy, begun);
                Kind::Start
            }
            Body::Execution(execution) => {
                self.counts.references += 1;
                let start = execution.start.value();
                let denied = self.blobs.of_execution(shown, execution, findings)?;
                if self
                    .kinds
                    .expect(shown, "start", start, Kind::Start, findings)
                {
                    self.kinds.put(start, Kind::Ended);
                    let (counts, none) = (&mut self.counts, OnPurpose::default());
                    let ended = self.runs.end(shown, execution, none, counts, findings);
                    if let Some(begun) = ended {
                        self.listening.check(shown, execution, &begun, findings);
                        self.listening.add(execution, denied.as_deref());
                        if execution.result.outcome != Outcome::NotExecuted {
                            self.guarantees.relies(start, &begun, counts);
                        }
                    }
                }
                Kind::Other
            }
            Body::Probe(run) => {
                self.probe(shown, run, findings)?;
                Kind::Probe
            }
            Body::Matrix(matrix) => {
                self.matrix(shown, matrix, findings)?;
                Kind::Matrix
            }
            Body::Genesis(_)
            | Body::Note(_)
            | Body::Key(_)
            | Body::Recovery(_)
            | Body::Close(_) => Kind::Other,
        };
        self.kinds.put(sequence, kind);
        Ok(())
    }

    fn unverified(&mut self, sequence: u64) {
        self.kinds.put_new(sequence, Kind::Unverified);
    }
}

/// A set of controls in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ControlSet(u32);

impl ControlSet {
    fn of<'a>(controls: impl IntoIterator<Item = &'a Control>) -> Self {
        Self(
            controls
                .into_iter()
                .fold(0, |bits, control| bits | 1 << (*control as u32)),
        )
    }

    const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn list(self) -> Vec<Control> {
        let all = Control::ALL.iter().copied();
        all.filter(|control| self.0 & 1 << (*control as u32) != 0)
            .collect()
    }

    fn names(self) -> String {
        let names: Vec<_> = self.list().iter().map(|control| control.as_str()).collect();
        names.join(", ")
    }
}

#[cfg(test)]
mod tests;
