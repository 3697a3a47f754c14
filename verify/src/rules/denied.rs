//! What sandboxes denied: system calls, as the ends of runs list them.
//!
//! No verdict rests on it. A list is held against its start, and what the lists say is added up for people; runs of probes are not,
//! since they attack on purpose.

use std::collections::BTreeMap;

use ledger::facts::execution::{Execution, Outcome, Violation};
use ledger::file::walk::{Findings, Shown};
use ledger::finding::Code;

use super::probes::Begun;
use super::runs::{self, Seen};

/// The one runtime that hears of denied calls.
const HEARS: &str = "embedded";

/// How often a system call was denied in all runs together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Its name, or `unnamed` for all that have none.
    pub call: String,
    /// How often it was denied.
    pub count: u64,
    /// In how many runs.
    pub runs: u64,
    /// Start record of the first of them.
    pub first: u64,
}

/// What was denied, and of how many runs that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// Runs that were listened to, those of probes left out.
    pub heard: u64,
    /// Those of them of which more may have been denied than they list: a filter stood around the runner.
    pub partly: u64,
    /// Runs of which nobody knows what was denied in them, those left out that never ran.
    pub unheard: u64,
    /// What was denied most often first.
    pub calls: Vec<Denied>,
}

/// Adds up, and holds each list against its start.
#[derive(Debug, Default)]
pub(super) struct Listening {
    heard: u64,
    partly: u64,
    unheard: u64,
    calls: BTreeMap<String, Denied>,
    silent: Option<Seen>,
}

impl Listening {
    /// Holds an end against its start.
    pub(super) fn check(
        &mut self,
        shown: &Shown<'_>,
        execution: &Execution,
        begun: &Begun,
        findings: &mut Findings,
    ) {
        let (start, runtime) = (execution.start.value(), &begun.runtime.id);
        let hears = runtime == HEARS;
        if execution.violations.is_some() && !hears {
            findings.push(
                shown
                    .finding(
                        Code::ReferenceInvalid,
                        format!("denied calls are listed, and nobody could hear of them in the run of start {start}"),
                    )
                    .versus(format!("runtime {HEARS}"), format!("runtime {runtime}")),
            );
        }
        let ran = has_end(execution);
        let says = execution.violations.is_some() || execution.unheard().is_some();
        if hears && ran && !says {
            match &mut self.silent {
                Some(seen) => seen.count += 1,
                None => self.silent = Some(Seen::once(start)),
            }
        }
    }

    /// Adds what a run's list says; `None` where there is no list, or none that can be read.
    pub(super) fn add(&mut self, execution: &Execution, list: Option<&[Violation]>) {
        let Some(list) = list else {
            self.unheard += u64::from(has_end(execution));
            return;
        };
        self.heard += 1;
        self.partly += u64::from(execution.is_partly_heard());
        for violation in list {
            let denied = match self.calls.get_mut(&violation.call) {
                Some(denied) => denied,
                None => self.calls.entry(violation.call.clone()).or_insert(Denied {
                    call: violation.call.clone(),
                    count: 0,
                    runs: 0,
                    first: execution.start.value(),
                }),
            };
            denied.count = denied.count.saturating_add(violation.count.value());
            denied.runs += 1;
        }
    }

    /// What it comes to.
    pub(super) fn finish(self, findings: &mut Findings) -> Denials {
        if let Some(seen) = self.silent {
            let message = format!(
                "nothing says whether a system call was denied, nor why that is not known, in {}",
                runs::runs(seen)
            );
            findings.push(
                runs::counted(Code::ViolationsUnsaid, message, seen)
                    .help("records of a runner from before it listened are like that; of a newer one this is a fault"),
            );
        }
        let mut calls: Vec<Denied> = self.calls.into_values().collect();
        calls.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.call.cmp(&b.call)));
        Denials {
            heard: self.heard,
            partly: self.partly,
            unheard: self.unheard,
            calls,
        }
    }
}

/// Whether it ran, and somebody saw how it ended.
fn has_end(execution: &Execution) -> bool {
    !matches!(
        execution.result.outcome,
        Outcome::NotExecuted | Outcome::Interrupted
    )
}
