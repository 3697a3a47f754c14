//! Runs: a start and its end, and what the two must say together.

use std::collections::{BTreeMap, HashMap};

use ledger::facts::control::{Control, Controls, Declared};
use ledger::facts::execution::{Execution, Outcome, RunId, Start, Verdict};
use ledger::facts::suite::Arm;
use ledger::file::source::{Attachments, ReadError, RunState};
use ledger::file::walk::{Findings, Shown};
use ledger::finding::{Code, Finding};

use super::limits::Limits;
use super::policies::PolicyFacts;
use super::probes::Begun;
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
    missing: Vec<(Control, String)>,
    begun: Begun,
}

/// What left a control out on purpose: an arm of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnPurpose {
    pub(super) arm: Option<Arm>,
    pub(super) ablated: Option<Control>,
}

impl OnPurpose {
    /// The arm is there to be without controls: nothing was lost by that.
    fn is_without(self) -> bool {
        matches!(self.arm, Some(Arm::Baseline | Arm::Ablation))
    }

    fn left_out(self) -> ControlSet {
        match self.arm {
            Some(Arm::Baseline) => ControlSet::of(Control::ALL),
            Some(Arm::Ablation) => ControlSet::of(&self.ablated),
            Some(Arm::Run) | None => ControlSet::default(),
        }
    }
}

/// How often something was seen, and where first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Seen {
    pub(super) const fn once(first: u64) -> Self {
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

    pub(super) fn begin(
        &mut self,
        sequence: u64,
        start: &Start,
        policy: Option<PolicyFacts>,
        begun: Begun,
    ) {
        let controls = &start.controls;
        let requested = ControlSet::of(&controls.requested);
        let wanted = ControlSet::of(&controls.wanted);
        let declared = ControlSet::of(controls.declared.iter().map(|it| &it.control));
        let missing = requested.union(wanted).without(declared).list();
        let reason = |control: Control| {
            let mut unsupported = controls.unsupported.iter();
            unsupported
                .find(|it| it.control == control)
                .map_or("no reason given", |it| &it.reason)
                .to_owned()
        };
        if start.key_reachable == Some(true) {
            match &mut self.key_reachable {
                Some(seen) => seen.count += 1,
                None => self.key_reachable = Some(Seen::once(sequence)),
            }
        }
        let run = OpenRun {
            run: start.run,
            requested,
            wanted,
            declared,
            limits: Limits::of(controls),
            policy,
            missing: missing.into_iter().map(|it| (it, reason(it))).collect(),
            begun,
        };
        self.open.insert(sequence, run);
    }

    /// Compares an end with its start, and gives what is known of the start.
    pub(super) fn end(
        &mut self,
        shown: &Shown<'_>,
        execution: &Execution,
        on_purpose: OnPurpose,
        counts: &mut Counts,
        findings: &mut Findings,
    ) -> Option<Begun> {
        let start = execution.start.value();
        let mut run = self.open.remove(&start)?;
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
            run.check_strict(shown, start, on_purpose.left_out(), counts, findings);
        }
        run.limits.check(shown, execution, counts, findings);
        if !on_purpose.is_without() {
            self.missed(start, std::mem::take(&mut run.missing));
        }
        Some(run.begun)
    }

    fn missed(&mut self, start: u64, missing: Vec<(Control, String)>) {
        for cause in missing {
            let room = self.not_applied.len() < REASONS;
            if room || self.not_applied.contains_key(&cause) {
                let seen = self.not_applied.entry(cause).or_insert(Seen {
                    first: start,
                    count: 0,
                });
                seen.first = seen.first.min(start);
                seen.count += 1;
            }
        }
    }

    /// Tells what became of runs without an end, and what was counted.
    pub(super) fn finish(
        mut self,
        counts: &mut Counts,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_unstable_by_key(|(sequence, _)| *sequence);
        for (sequence, run) in open {
            counts.runs += 1;
            self.missed(sequence, run.missing);
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
                    .help("expected of a measurement's bare runs; after others, begin a ledger with a key of its own if the workload is not trusted"),
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
        left_out: ControlSet,
        counts: &mut Counts,
        findings: &mut Findings,
    ) {
        let Some(policy) = self.policy else { return };
        counts.strict += 1;
        let missing = policy.required.union(self.requested);
        let missing = missing.without(self.declared).without(left_out);
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

/// Names the runs.
pub(super) fn runs(seen: Seen) -> String {
    match seen.count {
        1 => format!("the run of start {}", seen.first),
        count => format!("{count} runs, the first of start {}", seen.first),
    }
}

/// One finding for all of them.
pub(super) fn counted(code: Code, message: String, seen: Seen) -> Finding {
    let mut finding = Finding::new(code, message).at(seen.first);
    finding.count = seen.count;
    finding
}
