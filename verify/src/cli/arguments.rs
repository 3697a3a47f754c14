//! What may stand on the command line, and what was asked for where it cannot be read.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;

use clap::{Parser, Subcommand, ValueEnum};

/// Checks a containment ledger: form, signatures, chain, checkpoints, and whether what was declared and
/// what happened agree. Offline, and without trusting the program that wrote it.
///
/// Exit codes: 0 verified; 1 internal error, or a file cannot be read or written; 2 usage, or not a ledger; 10 evidence invalid; 11 cannot be
/// proven; 12 evidence valid, what was declared and what happened disagree; 13 no records.
#[derive(Debug, Parser)]
#[command(
    name = "verify",
    version,
    subcommand_negates_reqs = true,
    subcommand_precedence_over_arg = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// A ledger folder, a bundle, a .jsonl file of record lines, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    pub(super) paths: Vec<PathBuf>,
    /// A checkpoint of this ledger that was kept elsewhere
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) checkpoint: Option<PathBuf>,
    /// Exit 11 unless the newest record is covered by a given checkpoint or the ledger is closed
    #[arg(long, global = true)]
    pub(super) require_checkpoint: bool,
    /// What to print on standard output: human or json
    #[arg(long, value_name = "FORMAT", default_value = "human", global = true)]
    pub(super) format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", global = true)]
    pub(super) json: bool,
    /// Write the result to a file too; may be given several times
    #[arg(long, value_name = "FORMAT=FILE", global = true)]
    pub(super) output: Vec<Output>,
    /// Show every finding and every check, and the system calls that were denied
    #[arg(long, global = true)]
    pub(super) all: bool,
    /// How many threads read the lines; 1 starts none. As many as there are processors, unless given. The
    /// result is the same. Fewer, where the memory that a process may have (ulimit -v) is too small for them
    #[arg(long, value_name = "N", value_parser = threads, global = true)]
    pub(super) threads: Option<NonZeroUsize>,
    /// Print the verdict line alone
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Colours
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub(super) color: Color,
    #[command(flatten)]
    pub(super) later: Later,
}

/// Options of later versions: refused, never ignored.
#[derive(Debug, clap::Args)]
pub(super) struct Later {
    #[arg(long, value_name = "FILE", hide = true, global = true)]
    pub(super) trust: Option<OsString>,
    #[arg(long, value_name = "FILE", hide = true, global = true)]
    pub(super) revoked: Option<OsString>,
    #[arg(long, hide = true, global = true)]
    pub(super) require_trust: bool,
    #[arg(long, value_name = "DURATION", hide = true, global = true)]
    pub(super) max_age: Option<OsString>,
    #[arg(long, value_name = "STATE", hide = true, global = true)]
    pub(super) since: Option<OsString>,
    #[arg(long, value_name = "STATE", hide = true, global = true)]
    pub(super) save_state: Option<OsString>,
}

impl Later {
    pub(super) fn used(&self) -> Option<&'static str> {
        [
            (self.trust.is_some(), "--trust"),
            (self.revoked.is_some(), "--revoked"),
            (self.require_trust, "--require-trust"),
            (self.max_age.is_some(), "--max-age"),
            (self.since.is_some(), "--since"),
            (self.save_state.is_some(), "--save-state"),
        ]
        .into_iter()
        .find_map(|(used, name)| used.then_some(name))
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Explain a finding code; without one, list them
    Explain {
        /// The code
        code: Option<String>,
    },
    /// Show what was measured: the newest matrices of ledgers that verify
    ///
    /// A document runner/matrix/v1 for each, a line each, with --format json. Exit codes as of `verify PATH`; 13
    /// without a matrix.
    Matrix {
        /// Ledger folders, .jsonl files or bundles
        #[arg(required = true, value_name = "PATH")]
        ledgers: Vec<PathBuf>,
    },
    /// Compare the newest matrices of two ledgers
    ///
    /// First what differs in host, policy, suite and runtimes; then what regressed, improved, changed its reason or
    /// is only here. Exit codes: 0 nothing regressed; 12 something did; 10 or 11 where a ledger is invalid or
    /// unproven; 13 without a matrix.
    Diff {
        /// The earlier ledger, or a bundle of it
        a: PathBuf,
        /// The later ledger, or a bundle of it
        b: PathBuf,
    },
    #[command(hide = true, disable_help_flag = true)]
    Report(Rest),
}

/// Whatever follows a command of a later version.
#[derive(Debug, clap::Args)]
pub(super) struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) rest: Vec<OsString>,
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    const EXPECTED: &str = "expected a whole number from 1 on, such as --threads 4";
    text.parse().map_err(|_| EXPECTED.to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Human,
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            "jsonl" | "sarif" | "junit" | "github" | "markdown" | "html" => Err(format!(
                "format {text} needs a later version of verify; this one writes human and json"
            )),
            _ => Err("expected human or json".to_owned()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) format: Format,
    pub(super) file: PathBuf,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((format, file)) if !file.is_empty() => Ok(Self {
                format: format.parse()?,
                file: file.into(),
            }),
            _ => Err("expected FORMAT=FILE, such as --output json=result.json".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    Auto,
    Always,
    Never,
}

impl Cli {
    /// How many threads read the lines.
    pub(super) fn threads(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(|| {
            // Where the system does not say, one is always there.
            thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
        })
    }
}

impl Color {
    pub(super) fn on_stdout(self) -> bool {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if set("NO_COLOR") => false,
            Self::Auto if set("FORCE_COLOR") => true,
            Self::Auto => io::stdout().is_terminal(),
        }
    }
}

/// What arguments that could not be read ask for all the same.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) json: bool,
    pub(super) outputs: Vec<Output>,
}

impl Asked {
    pub(super) fn of(arguments: impl Iterator<Item = OsString>) -> Self {
        let mut asked = Self::default();
        let mut before = String::new();
        for argument in arguments {
            // An option's value that is no text was refused already.
            let argument = argument.to_string_lossy().into_owned();
            if argument == "--" {
                break;
            }
            asked.json |= argument == "--json"
                || argument == "--format=json"
                || (before == "--format" && argument == "json");
            let output = match before.as_str() {
                "--output" => Some(argument.as_str()),
                _ => argument.strip_prefix("--output="),
            };
            asked
                .outputs
                .extend(output.and_then(|it| it.parse::<Output>().ok()));
            before = argument;
        }
        asked
    }
}
