//! Runs: a start and its end, and what the two must say together.

use std::collections::{BTreeMap, HashMap};

use ledger::facts::control::{Control, Controls, Declared};
use ledger::facts::execution::{Execution, Outcome, RunId, Start, Verdict};
use ledger::file::source::{Attachments, ReadError, RunState};
use ledger::file::walk::{Findings, Shown};
use ledger::finding::{Code, Finding};

use super::limits::Limits;
use super::policies::PolicyFacts;
use super::{ControlSet, Counts};

/// Most different reasons for an undeclared control that are told apart.
const REASONS: usize = 1_000;

/// Runs that began and have not ended yet, and what is told at the end.
pub(super) struct Runs {
    attachments: Attachments,
    open: HashMap<u64, OpenRun>,
    not_applied: BTreeMap<(Control, String), Seen>,
    key_reachable: Option<Seen>,
}

/// What of a start is needed until its end.
struct OpenRun {
    run: RunId,
    requested: ControlSet,
    wanted: ControlSet,
    declared: ControlSet,
    limits: Limits,
    policy: Option<PolicyFacts>,
}

/// How often something was seen, and where first.
#[derive(Clone, Copy)]
struct Seen {
    first: u64,
    count: u64,
}

impl Seen {
    const fn once(first: u64) -> Self {
        Self { first, count: 1 }
    }
}

impl Runs {
    pub(super) fn new(attachments: Attachments) -> Self {
        Self {
            attachments,
            open: HashMap::new(),
            not_applied: BTreeMap::new(),
            key_reachable: None,
        }
    }

    pub(super) fn begin(&mut self, sequence: u64, start: &Start, policy: Option<PolicyFacts>) {
        let controls = &start.controls;
        let run = OpenRun {
            run: start.run,
            requested: ControlSet::of(&controls.requested),
            wanted: ControlSet::of(&controls.wanted),
            declared: ControlSet::of(controls.declared.iter().map(|it| &it.control)),
            limits: Limits::of(controls),
            policy,
        };
        let missing = run.requested.union(run.wanted).without(run.declared);
        for control in missing.list() {
            let reason = controls
                .unsupported
                .iter()
                .find(|it| it.control == control)
                .map_or("no reason given", |it| &it.reason);
            let room = self.not_applied.len() < REASONS;
            let cause = (control, reason.to_owned());
            if room || self.not_applied.contains_key(&cause) {
                let seen = self.not_applied.entry(cause);
                seen.and_modify(|seen| seen.count += 1)
                    .or_insert(Seen::once(sequence));
            }
        }
        if start.key_reachable == Some(true) {
            match &mut self.key_reachable {
                Some(seen) => seen.count += 1,
                None => self.key_reachable = Some(Seen::once(sequence)),
            }
        }
        self.open.insert(sequence, run);
    }

    pub(super) fn end(
        &mut self,
        shown: &Shown<'_>,
        execution: &Execution,
        counts: &mut Counts,
        findings: &mut Findings,
    ) {
        let start = execution.start.value();
        let Some(run) = self.open.remove(&start) else {
            return;
        };
        counts.runs += 1;
        counts.verdicts += 1;
        let verdict = Verdict::of(&run.controls(), &execution.result);
        if verdict != execution.verdict {
            findings.push(
                shown
                    .finding(
                        Code::VerdictMismatch,
                        "the stored verdict is not what the recorded facts give",
                    )
                    .versus(verdict, execution.verdict),
            );
        }
        if execution.result.outcome != Outcome::NotExecuted {
            run.check_strict(shown, start, counts, findings);
        }
        run.limits.check(shown, execution, counts, findings);
    }

    /// Tells what became of runs without an end, and what was counted.
    pub(super) fn finish(
        self,
        counts: &mut Counts,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        let mut open: Vec<_> = self.open.into_iter().collect();
        open.sort_unstable_by_key(|(sequence, _)| *sequence);
        for (sequence, run) in open {
            counts.runs += 1;
            let finding = if self.attachments.run(&run.run)? == RunState::Held {
                Finding::new(
                    Code::WriteInProgress,
                    format!("run {} is still going on", run.run),
                )
            } else {
                Finding::new(
                    Code::RunUnfinished,
                    format!("run {} has a start and no end", run.run),
                )
                .help("the next run of runner on this ledger records that it was interrupted")
            };
            findings.push(finding.at(sequence));
        }
        for ((control, reason), seen) in self.not_applied {
            let message = format!(
                "{control} was asked for and not applied ({reason}) in {}",
                runs(seen)
            );
            findings.push(counted(Code::ControlNotApplied, message, seen));
        }
        if let Some(seen) = self.key_reachable {
            let message = format!(
                "the workload could have read the signing key in {}",
                runs(seen)
            );
            findings.push(
                counted(Code::KeyReachable, message, seen)
                    .help("rotate the key after such runs, or keep it in an agent"),
            );
        }
        Ok(())
    }
}

impl OpenRun {
    /// The part of the controls that decides a verdict.
    fn controls(&self) -> Controls {
        Controls {
            declared: self
                .declared
                .list()
                .into_iter()
                .map(|control| Declared {
                    backup: None,
                    control,
                    mechanism: String::new(),
                    value: None,
                })
                .collect(),
            requested: self.requested.list(),
            unsupported: Vec::new(),
            wanted: self.wanted.list(),
        }
    }

    /// Under a strict policy nothing runs without what was requested.
    fn check_strict(
        &self,
        shown: &Shown<'_>,
        start: u64,
        counts: &mut Counts,
        findings: &mut Findings,
    ) {
        let Some(policy) = self.policy else { return };
        counts.strict += 1;
        let missing = policy.required.union(self.requested).without(self.declared);
        if policy.strict && missing != ControlSet::default() {
            findings.push(
                shown
                    .finding(
                        Code::ControlMissingUnderStrict,
                        format!(
                            "the run of start {start} went on under a strict policy without {}",
                            missing.names()
                        ),
                    )
                    .versus("declared, or refused", "executed"),
            );
        }
    }
}

fn runs(seen: Seen) -> String {
    match seen.count {
        1 => format!("the run of start {}", seen.first),
        count => format!("{count} runs, the first of start {}", seen.first),
    }
}

fn counted(code: Code, message: String, seen: Seen) -> Finding {
    let mut finding = Finding::new(code, message).at(seen.first);
    finding.count = seen.count;
    finding
}
