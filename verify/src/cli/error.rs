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

/// Why there is no verdict.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub(super) enum VerifyError {
    #[error("failed to open the ledger")]
    #[diagnostic(code(verify::not_a_ledger))]
    NotALedger(#[source] OpenSourceError),
    #[error("failed to read the evidence; this is no verdict about it")]
    #[diagnostic(
        code(verify::unreadable),
        help("check permissions and the file system, then run verify again")
    )]
    Read(#[source] ReadError),
    #[error("failed to read the given checkpoint")]
    #[diagnostic(code(verify::checkpoint_unreadable))]
    Checkpoint(#[source] ReadError),
    #[error("expected one ledger, found {}", .0.join(", "))]
    #[diagnostic(
        code(verify::usage),
        help("`verify PATH` checks one ledger; give each its own call")
    )]
    Paths(Vec<String>),
    #[error("a command takes no ledger, found {0}")]
    #[diagnostic(code(verify::usage), help("`verify PATH`, or `verify explain [CODE]`"))]
    PathAndCommand(String),
    #[error("{0} needs a later version of verify")]
    #[diagnostic(
        code(verify::needs_later_version),
        help("nothing was checked: leave it out to check what this version can")
    )]
    Later(String),
    #[error("{0}")]
    #[diagnostic(code(verify::unknown_code), help("`verify explain` lists every code"))]
    UnknownCode(#[from] UnknownCode),
    #[error("failed to write the result")]
    #[diagnostic(code(verify::result_not_written))]
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

fn is_missing(error: &ReadError) -> bool {
    error.source.kind() == io::ErrorKind::NotFound
}

impl VerifyError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::NotALedger(OpenSourceError::Read(_)) | Self::Read(_) | Self::Write(_) => INTERNAL,
            Self::Checkpoint(error) if !is_missing(error) => INTERNAL,
            Self::NotALedger(_)
            | Self::Checkpoint(_)
            | Self::Paths(_)
            | Self::PathAndCommand(_)
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
