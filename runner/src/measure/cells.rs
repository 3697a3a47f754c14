//! A matrix as it is shown: its cells and what there is to say about each.

use ledger::facts::matrix::{Cell, CellReason, CellVerdict};

/// One cell, with what a record of it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The cell.
    pub cell: Cell,
    /// What led to the verdict.
    pub detail: String,
    /// Why the runtime does not declare the control; absent where it does, or where nothing is said.
    pub undeclared: Option<String>,
}

impl Shown {
    /// The control of its check.
    #[must_use]
    pub fn control(&self) -> &str {
        self.cell.check.split('/').next().unwrap_or_default()
    }

    /// The check's name within the control.
    #[must_use]
    pub fn check(&self) -> &str {
        self.cell.check.split('/').nth(1).unwrap_or_default()
    }

    /// What whoever reads it can do about it; `None` for what is contained.
    #[must_use]
    pub fn what_to_do(&self) -> Option<&'static str> {
        Some(match (self.cell.verdict, self.cell.reason) {
            (CellVerdict::Contained, _) => return None,
            (CellVerdict::FalseGuarantee, _) => {
                "do not rely on this control in this runtime here; report it, the record is the evidence"
            }
            (CellVerdict::Escaped, _) if self.cell.declared => {
                "do not rely on this control in this runtime here"
            }
            (CellVerdict::Escaped, _) => {
                "an honest gap: use another runtime or host where this control matters (`runner doctor`)"
            }
            (_, Some(CellReason::HostForbids)) => {
                "nothing: this host does not let anybody do it, sandbox or not"
            }
            (_, Some(CellReason::PlanRefused)) => {
                "measure under a policy of mode best-effort, such as containment-audit"
            }
            (_, Some(CellReason::RuntimeRunsNoPrograms)) => "nothing: the question does not arise",
            (_, Some(CellReason::SelfReported)) => {
                "believe it as far as you believe the probe; nothing outside confirms it"
            }
            (_, Some(CellReason::BaselineContained | CellReason::AblationContained)) => {
                "measure where the attack works without a sandbox; here it shows nothing"
            }
            (_, Some(CellReason::NotCalibrated)) => {
                "run it with its baseline; without an arm that escapes it shows nothing"
            }
            (_, Some(CellReason::PathPresent)) => {
                "find out where this interface or route leads: no traffic was seen on it"
            }
            (
                _,
                Some(
                    CellReason::OracleUnavailable
                    | CellReason::OracleDisagrees
                    | CellReason::InstrumentMissing
                    | CellReason::NoOutput
                    | CellReason::TwinFailed
                    | CellReason::UnexpectedError,
                ),
            ) => {
                "the measurement failed: its lines are in the probe record, docs/probes.md says what it needs"
            }
            (_, None) => "nothing is known about it",
        })
    }
}
