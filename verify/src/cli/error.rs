//! Why there is no result: what is said, and with which exit code.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use ledger::bytes::text::clean;
use ledger::file::source::{OpenSourceError, ReadError};
use ledger::finding::UnknownCode;
use miette::Diagnostic;

pub(super) const INTERNAL: u8 = 1;
pub(super) const USAGE: u8 = 2;

/// What to type to check a ledger.
pub(super) const TYPE_PATH: &str = "type `verify PATH`; PATH is a ledger folder, a .jsonl file of record lines, or - for standard input";

/// Why there is no verdict.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub(super) enum VerifyError {
    #[error("failed to open the ledger")]
    #[diagnostic(code(verify::not_a_ledger), help("{TYPE_PATH}"))]
    NotALedger(#[source] OpenSourceError),
    #[error("failed to read the evidence; this is no verdict about it")]
    #[diagnostic(
        code(verify::unreadable),
        help("check permissions and the file system, then run verify again")
    )]
    Read(#[source] ReadError),
    #[error("failed to read the given checkpoint; this is no verdict about the evidence")]
    #[diagnostic(
        code(verify::checkpoint_unreadable),
        help("check its permissions and that it is a file, then run verify again")
    )]
    Checkpoint(#[source] ReadError),
    #[error("failed to find the given checkpoint")]
    #[diagnostic(
        code(verify::checkpoint_unreadable),
        help(
            "type --checkpoint FILE, where FILE is a checkpoint of this ledger that was kept elsewhere"
        )
    )]
    NoCheckpoint(#[source] ReadError),
    #[error("expected one ledger, found {}", .0.join(", "))]
    #[diagnostic(
        code(verify::usage),
        help("`verify PATH` checks one ledger; give each its own call")
    )]
    Paths(Vec<String>),
    #[error("a command takes no ledger, found {0}")]
    #[diagnostic(code(verify::usage), help("`verify PATH`, or `verify explain [CODE]`"))]
    PathAndCommand(String),
    #[error("a checkpoint is of one ledger, found several")]
    #[diagnostic(
        code(verify::usage),
        help("check each with its own checkpoint first: `verify PATH --checkpoint FILE`")
    )]
    OneCheckpoint,
    #[error("standard input is one ledger, found - for both")]
    #[diagnostic(code(verify::usage), help("name the other by its path"))]
    OneInput,
    #[error("{0} needs a later version of verify")]
    #[diagnostic(
        code(verify::needs_later_version),
        help("nothing was checked: leave it out to check what this version can")
    )]
    Later(String),
    #[error(transparent)]
    #[diagnostic(code(verify::unknown_code), help("`verify explain` lists every code"))]
    UnknownCode(#[from] UnknownCode),
    #[error("failed to write the result")]
    #[diagnostic(
        code(verify::result_not_written),
        help("name a file that can be written to, in a folder that exists: --output FORMAT=FILE")
    )]
    Write(#[from] WriteResultError),
}

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteResultError {
    #[error("cannot write {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot write to standard output")]
    Stdout(#[source] io::Error),
    #[error("cannot write the result as JSON")]
    Json(#[from] serde_json::Error),
}

impl VerifyError {
    /// Why a path was not opened: what is there but cannot be read may well be a ledger.
    pub(super) fn not_opened(error: OpenSourceError) -> Self {
        match error {
            OpenSourceError::Read(error) => Self::Read(error),
            OpenSourceError::NotFound(_) | OpenSourceError::NotALedger { .. } => {
                Self::NotALedger(error)
            }
        }
    }

    /// Why there is no given checkpoint.
    pub(super) fn no_checkpoint(error: ReadError) -> Self {
        match error.source.kind() {
            io::ErrorKind::NotFound => Self::NoCheckpoint(error),
            _ => Self::Checkpoint(error),
        }
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Read(_) | Self::Checkpoint(_) | Self::Write(_) => INTERNAL,
            Self::NotALedger(_)
            | Self::NoCheckpoint(_)
            | Self::Paths(_)
            | Self::PathAndCommand(_)
            | Self::OneCheckpoint
            | Self::OneInput
            | Self::Later(_)
            | Self::UnknownCode(_) => USAGE,
        }
    }
}

/// An error and its causes as they are shown: without hostile text.
#[derive(Debug)]
pub(super) struct Told {
    text: String,
    code: Option<String>,
    help: Option<String>,
    cause: Option<Box<Told>>,
}

impl Told {
    pub(super) fn of(error: &VerifyError) -> Self {
        Self {
            code: error.code().map(|it| it.to_string()),
            help: error.help().map(|it| clean(&it.to_string())),
            ..Self::cause_of(error)
        }
    }

    fn cause_of(error: &dyn Error) -> Self {
        Self {
            text: clean(&error.to_string()),
            code: None,
            help: None,
            cause: error.source().map(|it| Box::new(Self::cause_of(it))),
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Told {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref();
        cause.map(|cause| cause as &(dyn Error + 'static))
    }
}

impl Diagnostic for Told {
    fn code(&self) -> Option<Box<dyn fmt::Display + '_>> {
        let code = self.code.as_ref()?;
        Some(Box::new(code))
    }

    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        let help = self.help.as_ref()?;
        Some(Box::new(help))
    }
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
