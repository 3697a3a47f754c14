//! What a verdict means and what to do about it, in words for people.

use super::{CellReason, CellVerdict};

/// How a piece of text is to be shown, for whoever has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It is as it should be.
    Good,
    /// It is not what was promised.
    Bad,
    /// It is open, or an honest gap.
    Unsure,
    /// Neither.
    Plain,
}

impl CellVerdict {
    /// One character for it, as wide as a letter.
    #[must_use]
    pub const fn glyph(self) -> char {
        match self {
            Self::Contained => '\u{2713}',
            Self::Escaped => '\u{25cb}',
            Self::FalseGuarantee => '\u{2717}',
            Self::Inconclusive => '?',
            Self::NotApplicable => '-',
        }
    }

    /// How it is to be shown.
    #[must_use]
    pub const fn tone(self) -> Tone {
        match self {
            Self::Contained => Tone::Good,
            Self::FalseGuarantee => Tone::Bad,
            Self::Escaped | Self::Inconclusive => Tone::Unsure,
            Self::NotApplicable => Tone::Plain,
        }
    }
}

/// Why a cell is not `contained`, and what to do.
#[must_use]
pub(super) const fn of(
    verdict: CellVerdict,
    reason: Option<CellReason>,
) -> (&'static str, &'static str) {
    match (verdict, reason) {
        (CellVerdict::Contained, _) => (
            "the attack was refused here, and it succeeds without the sandbox",
            "nothing",
        ),
        (CellVerdict::Escaped, _) => (
            "the attack succeeded; nothing was promised, so it is an honest gap",
            "require the control (`--require`), or use a runtime that declares it",
        ),
        (CellVerdict::FalseGuarantee, _) => (
            "the attack succeeded although the runtime declares the control",
            "do not rely on it here; `verify explain false-guarantee`",
        ),
        (_, Some(reason)) => of_reason(reason),
        (_, None) => (
            "no reason is given",
            "verify the ledger: a record that says so is not in order",
        ),
    }
}

const fn of_reason(reason: CellReason) -> (&'static str, &'static str) {
    match reason {
        CellReason::BaselineContained => (
            "the attack does not succeed without a sandbox either, so its failure shows nothing",
            "give the host what the attack needs, and measure again",
        ),
        CellReason::AblationContained => (
            "the attack fails without this control too: something else stops it",
            "look at what else applies; this control is not shown to do it",
        ),
        CellReason::NotCalibrated => (
            "no other arm shows that the attack can succeed here",
            "see how the other arms ended, and measure again when the machine is less busy",
        ),
        CellReason::TwinFailed => (
            "an allowed operation of the same kind failed as well",
            "the sandbox may break more than it should; look at the detail",
        ),
        CellReason::OracleDisagrees => (
            "the probe says that it got out, and the controller saw nothing",
            "treat it as an escape until it is settled",
        ),
        CellReason::OracleUnavailable => (
            "the controller's own instrument did not work",
            "see what keeps the runner from listening or planting, and measure again",
        ),
        CellReason::NoOutput => (
            "the probe said nothing about this check that is bound to its run",
            "see how the run ended: a sandbox in which nothing runs contains nothing",
        ),
        CellReason::UnexpectedError => (
            "the attack ended with an error that is no refusal",
            "look at the error: the attack may not have been tried at all",
        ),
        CellReason::InstrumentMissing => (
            "something that the probe needs was not there",
            "provide what the detail names, and measure again",
        ),
        CellReason::PathPresent => (
            "nothing came through, and the sandbox still has a way out",
            "measure as root, where the way out itself can be tried",
        ),
        CellReason::SelfReported => (
            "a third party's probe says so, and nobody outside saw it",
            "nothing: a word alone is never a measurement",
        ),
        CellReason::HostForbids => (
            "the host lets nobody do it, with or without a sandbox",
            "nothing, as long as the host stays so",
        ),
        CellReason::PlanRefused => (
            "the runtime cannot do what the policy asks for, and ran nothing",
            "see `runner plan` for what is missing on this host",
        ),
        CellReason::RuntimeRunsNoPrograms => (
            "the runtime runs modules alone, and the suite's module does not try it: for most of it there is no function to try it with",
            "nothing, but that a module may compute, open files and fill a writable folder as far as nothing else limits it",
        ),
    }
}
