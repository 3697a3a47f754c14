//! Why nothing was measured, or not all of it told.

use std::io;
use std::path::PathBuf;

use ledger::bytes::canon::U53;
use ledger::file::bundle::WriteBundleError;
use nix::sys::signal::Signal;

use crate::cli::bundle::OfRecordError;
use crate::cli::command_line::CommandLineError;
use crate::cli::ledger as ledgers;
use crate::cli::{FAILED, USAGE};
use crate::measure::arms::ArmError;
use crate::measure::gate::{ParseRequirementError, UnknownCellError};
use crate::measure::plant::mark::MarkError;
use crate::measure::record::RecordMatrixError;
use crate::measure::suite::LoadSuiteError;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum MatrixError {
    /// The policy.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Policy(#[from] CommandLineError),
    /// The ledger.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Ledger(#[from] ledgers::LedgerError),
    /// The suite.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Suite(#[from] LoadSuiteError),
    /// A requirement.
    #[error("--require is not understood")]
    #[diagnostic(code(runner::matrix::require))]
    Requirement(#[from] ParseRequirementError),
    /// A requirement that nothing can meet.
    #[error(transparent)]
    #[diagnostic(
        code(runner::matrix::require_nothing),
        help(
            "`--runtime` names what is measured, `--suite` with what; docs/probes.md lists the checks"
        )
    )]
    UnknownCell(#[from] UnknownCellError),
    /// The host.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Host(#[from] crate::host::GatherHostError),
    /// A run.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Arm(#[from] ArmError),
    /// A runtime, or another one of its name, a second time: its cells could not be told from the first one's.
    #[error("--runtime: {0} is named twice, and a matrix has one column for each runtime")]
    #[diagnostic(
        code(runner::matrix::twice),
        help(
            "name each runtime once; give templates an `id` each; to measure again, run `runner matrix` again"
        )
    )]
    Twice(String),
    /// Ctrl-C and its like.
    #[error("ended by {signal}: {done} of {all} runs of {runtime} are recorded, and no matrix")]
    #[diagnostic(code(runner::matrix::interrupted))]
    Interrupted {
        /// By what.
        signal: Signal,
        /// The runtime that was being measured.
        runtime: String,
        /// Runs that are recorded, those that were ended with them.
        done: usize,
        /// Runs in all.
        all: usize,
    },
    /// Nobody would hear Ctrl-C.
    #[error("cannot listen to signals")]
    #[diagnostic(code(runner::matrix::signals))]
    Signals(#[source] io::Error),
    /// The record.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordMatrixError),
    /// The report's file, before anything is measured.
    #[error("nothing was measured: the report cannot be written")]
    #[diagnostic(code(runner::matrix::report_file))]
    ReportFile(
        #[source]
        #[diagnostic_source]
        WriteBundleError,
    ),
    /// The report, after the matrix was recorded.
    #[error("matrix {sequence} is recorded, its report is not written")]
    #[diagnostic(
        code(runner::matrix::report),
        help("`runner bundle --matrix -o FILE` writes it from the ledger")
    )]
    Report {
        /// The matrix.
        sequence: U53,
        /// Why.
        #[source]
        #[diagnostic_source]
        source: OfRecordError,
    },
    /// No runtime, no cell: that is no matrix.
    #[error("nothing was measured: none of the runtimes can be used here")]
    #[diagnostic(
        code(runner::matrix::nothing),
        help("`runner runtimes` lists what is installed, `runner doctor` what this host allows")
    )]
    Nothing,
    /// Where to listen.
    #[error("cannot list the addresses of this host")]
    #[diagnostic(code(runner::matrix::addresses))]
    Addresses(#[source] io::Error),
    /// What killed measurements left.
    #[error("cannot look for what killed measurements left")]
    #[diagnostic(code(runner::matrix::sweep))]
    Sweep(#[source] MarkError),
    /// The probe program cannot be put where sandboxes can show it.
    #[error("cannot {attempt} {path}, where the probe program is kept", path = path.display())]
    #[diagnostic(
        code(runner::matrix::program),
        help(
            "make room there and let it be written, or name another place for it with XDG_STATE_HOME"
        )
    )]
    Program {
        /// What was attempted.
        attempt: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl MatrixError {
    /// The exit status that says so.
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Interrupted { signal, .. } => {
                u8::try_from(*signal as i32).map_or(FAILED, |number| 128 + number)
            }
            Self::Policy(_)
            | Self::Suite(_)
            | Self::Requirement(_)
            | Self::UnknownCell(_)
            | Self::Twice(_) => USAGE,
            Self::Ledger(_)
            | Self::Host(_)
            | Self::Arm(_)
            | Self::Record(_)
            | Self::ReportFile(_)
            | Self::Report { .. }
            | Self::Nothing
            | Self::Addresses(_)
            | Self::Signals(_)
            | Self::Sweep(_)
            | Self::Program { .. } => FAILED,
        }
    }
}
