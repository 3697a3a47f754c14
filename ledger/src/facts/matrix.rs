//! **Matrix**: what the runtimes of one host contain, cell by cell: the body of a `matrix` record.

mod advice;
pub mod table;

use serde::{Deserialize, Serialize};

use super::execution::PolicyRef;
use super::list::List;
use super::words::words;
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;

/// Body of a `matrix` record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Matrix {
    /// The cells, by runtime and check in the order of the suite.
    pub cells: List<Cell>,
    /// Sequence of the host record in force.
    pub host: U53,
    /// The policy under which the probes ran.
    pub policy: PolicyRef,
    /// SHA-256 of the suite's blob.
    pub suite: Hash,
}

impl Matrix {
    /// What in it contradicts itself; `None` when it is in order.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        let List::Inline(cells) = &self.cells else {
            return None;
        };
        let plain = |cell: &Cell| {
            matches!(
                cell.verdict,
                CellVerdict::Contained | CellVerdict::Escaped | CellVerdict::FalseGuarantee
            )
        };
        cells
            .iter()
            .any(|cell| cell.reason.is_some() == plain(cell))
            .then_some("reason stands exactly with inconclusive and not-applicable")
    }
}

/// One check in one runtime. The verdict is recomputed from the records that it names; the stored one is only compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cell {
    /// Sequence of the probe record of the arm `ablation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ablation: Option<U53>,
    /// Sequence of the probe record of the arm `baseline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<U53>,
    /// The check, such as `network/tcp4`.
    pub check: String,
    /// Whether the runtime declared the control in the arm `run`.
    pub declared: bool,
    /// Why the verdict is not a plain one; absent for `contained`, `escaped` and `false-guarantee`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<CellReason>,
    /// Sequence of the probe record of the arm `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<U53>,
    /// The runtime.
    pub runtime: String,
    /// What was found.
    pub verdict: CellVerdict,
}

words! {
    /// What was found of one check in one runtime.
    CellVerdict {
        /// The attack was refused, by the sandbox: without it, it succeeds.
        Contained "contained",
        /// The attack succeeded, and the runtime does not declare the control.
        Escaped "escaped",
        /// The attack succeeded, and the runtime declares the control.
        FalseGuarantee "false-guarantee",
        /// Neither is shown.
        Inconclusive "inconclusive",
        /// The question does not arise here.
        NotApplicable "not-applicable",
    }
}

words! {
    /// Why a verdict is not a plain one (PROBES.md §1 rules 1 and 5).
    CellReason {
        /// The attack does not succeed without a sandbox either.
        BaselineContained "baseline-contained",
        /// The attack does not succeed without this control either.
        AblationContained "ablation-contained",
        /// No arm shows that the attack can succeed.
        NotCalibrated "not-calibrated",
        /// The allowed operation of the same kind failed, too.
        TwinFailed "twin-failed",
        /// The probe and the controller say different things.
        OracleDisagrees "oracle-disagrees",
        /// The controller's instrument did not work.
        OracleUnavailable "oracle-unavailable",
        /// The probe said nothing about this check.
        NoOutput "no-output",
        /// The attack ended with an error that is no refusal.
        UnexpectedError "unexpected-error",
        /// Something that the probe needs is not there.
        InstrumentMissing "instrument-missing",
        /// Nothing came through, and there is a way out.
        PathPresent "path-present",
        /// A third party's word.
        SelfReported "self-reported",
        /// The host does not let anybody do it.
        HostForbids "host-forbids",
        /// The runtime refused the plan.
        PlanRefused "plan-refused",
        /// The runtime runs no programs.
        RuntimeRunsNoPrograms "runtime-runs-no-programs",
    }
}
