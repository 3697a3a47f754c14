//! The command line.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};
use ledger::file::source::{OpenSourceError, ReadError, Source, read_checkpoint};
use ledger::file::walk::Given;
use ledger::finding::{Code, UnknownCode};
use miette::Diagnostic;

use crate::document::Document;
use crate::report::human::{self, Style};
use crate::rules::{self, Demands, Verification};

const INTERNAL: u8 = 1;
const USAGE: u8 = 2;

/// Pages of docs/codes, by code.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// Checks a containment ledger: form, signatures, chain, checkpoints, and whether what was declared and
/// what was measured agree. Offline, and without trusting the program that wrote it.
///
/// Exit codes: 0 verified; 1 internal error; 2 usage, or not a ledger; 10 evidence invalid; 11 cannot be
/// proven; 12 evidence valid, declared and effective disagree; 13 no records.
#[derive(Debug, Parser)]
#[command(name = "verify", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// A ledger folder, a .jsonl file of record lines, or - for standard input
    #[arg(required = true)]
    path: Option<PathBuf>,
    /// A checkpoint of this ledger that was kept elsewhere
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Exit 11 unless the newest record is covered by a given checkpoint or the ledger is closed
    #[arg(long)]
    require_checkpoint: bool,
    /// What to print on standard output: human or json
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write the result to a file too; may be given several times
    #[arg(long, value_name = "FORMAT=FILE")]
    output: Vec<Output>,
    /// Show every finding and every check
    #[arg(long)]
    all: bool,
    /// Print the verdict line alone
    #[arg(short, long)]
    quiet: bool,
    /// Colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Color,
    #[command(flatten)]
    later: Later,
}

/// Options of later versions: refused, never ignored.
#[derive(Debug, clap::Args)]
struct Later {
    #[arg(long, value_name = "FILE", hide = true)]
    trust: Option<OsString>,
    #[arg(long, value_name = "FILE", hide = true)]
    revoked: Option<OsString>,
    #[arg(long, hide = true)]
    require_trust: bool,
    #[arg(long, value_name = "DURATION", hide = true)]
    max_age: Option<OsString>,
    #[arg(long, value_name = "STATE", hide = true)]
    since: Option<OsString>,
    #[arg(long, value_name = "STATE", hide = true)]
    save_state: Option<OsString>,
}

impl Later {
    fn used(&self) -> Option<&'static str> {
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
enum Command {
    /// Explain a finding code; without one, list them
    Explain {
        /// The code
        code: Option<String>,
    },
    #[command(hide = true, disable_help_flag = true)]
    Matrix(Rest),
    #[command(hide = true, disable_help_flag = true)]
    Diff(Rest),
    #[command(hide = true, disable_help_flag = true)]
    Report(Rest),
}

/// Whatever follows a command of a later version.
#[derive(Debug, clap::Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
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
struct Output {
    format: Format,
    file: PathBuf,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((format, file)) if !file.is_empty() => Ok(Self {
                format: format.parse()?,
                file: file.into(),
            }),
            _ => Err("expected FORMAT=FILE".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    fn on_stdout(self) -> bool {
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

/// Why there is no verdict.
#[derive(Debug, thiserror::Error, Diagnostic)]
enum VerifyError {
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
enum WriteResultError {
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
    fn exit_code(&self) -> u8 {
        match self {
            Self::NotALedger(OpenSourceError::Read(_)) | Self::Read(_) | Self::Write(_) => INTERNAL,
            Self::Checkpoint(error) if !is_missing(error) => INTERNAL,
            Self::NotALedger(_) | Self::Checkpoint(_) | Self::Later(_) | Self::UnknownCode(_) => {
                USAGE
            }
        }
    }
}

/// Runs `verify` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            if code == USAGE && asks_for_json(std::env::args_os()) {
                let text = error.render().to_string();
                let first = text.lines().next().unwrap_or_default();
                let why = first.strip_prefix("error: ").unwrap_or(first);
                failed(code, why.to_owned());
            }
            // Help into a closed pipe is no error.
            let _ = error.print();
            return code.into();
        }
    };
    let json = cli.json || cli.format == Format::Json;
    match run(cli) {
        Ok(code) => code.into(),
        Err(error) => {
            let code = error.exit_code();
            if json {
                failed(code, chain(&error));
            }
            eprintln!("{:?}", miette::Report::new(error));
            code.into()
        }
    }
}

/// Whether arguments that could not be read ask for JSON all the same.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut before = OsString::new();
    for argument in arguments {
        if argument == "--json"
            || argument == "--format=json"
            || (before == "--format" && argument == "json")
        {
            return true;
        }
        before = argument;
    }
    false
}

/// The one document on standard output, without a verdict. The same is said on standard error, so that
/// nothing is lost where it cannot be written.
fn failed(code: u8, why: String) {
    if let Ok(text) = Document::of_failure(code, why).to_json() {
        let _ = print(&text);
    }
}

fn run(cli: Cli) -> Result<u8, VerifyError> {
    match &cli.command {
        Some(Command::Explain { code }) => return explain(code.as_deref()),
        Some(Command::Matrix(_)) => return Err(VerifyError::Later("verify matrix".to_owned())),
        Some(Command::Diff(_)) => return Err(VerifyError::Later("verify diff".to_owned())),
        Some(Command::Report(_)) => return Err(VerifyError::Later("verify report".to_owned())),
        None => {}
    }
    if let Some(name) = cli.later.used() {
        return Err(VerifyError::Later(name.to_owned()));
    }
    let path = cli.path.as_deref().unwrap_or(Path::new("-"));
    if path.extension().is_some_and(|it| it == "tlog-proof") {
        return Err(VerifyError::Later("a .tlog-proof file".to_owned()));
    }
    let checkpoint = match &cli.checkpoint {
        Some(path) => Some((
            path.display().to_string(),
            read_checkpoint(path).map_err(VerifyError::Checkpoint)?,
        )),
        None => None,
    };
    let mut source = if path == Path::new("-") {
        Source::from_reader("-", Box::new(io::stdin()))
    } else {
        Source::open(path).map_err(VerifyError::NotALedger)?
    };
    let demands = Demands {
        checkpoint: checkpoint
            .as_ref()
            .map(|(name, bytes)| Given { name, bytes }),
        require_checkpoint: cli.require_checkpoint,
    };
    let verification = rules::verify(&mut source, demands).map_err(VerifyError::Read)?;
    show(&cli, &verification)?;
    Ok(verification.exit_code)
}

fn show(cli: &Cli, verification: &Verification) -> Result<(), WriteResultError> {
    let text = |format, color| match format {
        Format::Json => Document::of(verification).to_json(),
        Format::Human => Ok(human::write(
            verification,
            Style {
                color,
                all: cli.all,
                quiet: cli.quiet,
            },
        )),
    };
    for output in &cli.output {
        let error = |source| WriteResultError::File {
            path: output.file.clone(),
            source,
        };
        fs::write(&output.file, text(output.format, false)?).map_err(error)?;
    }
    let format = if cli.json { Format::Json } else { cli.format };
    print(&text(format, cli.color.on_stdout())?)
}

/// Writes to standard output; a reader that went away is no error.
fn print(text: &str) -> Result<(), WriteResultError> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(WriteResultError::Stdout(error))
        }
        _ => Ok(()),
    }
}

fn explain(code: Option<&str>) -> Result<u8, VerifyError> {
    let text = match code {
        Some(name) => {
            let code: Code = name.parse()?;
            page(code).map_or_else(
                || format!("# {code}\n\n{}\n", code.meaning()),
                str::to_owned,
            )
        }
        None => {
            let line = |code: &Code| {
                let class = code.class().as_str();
                format!("{code:<28} {class:<13} {}\n", code.meaning())
            };
            Code::ALL.iter().map(line).collect()
        }
    };
    print(&text)?;
    Ok(0)
}

/// The page of a code, as in docs/codes.
fn page(code: Code) -> Option<&'static str> {
    PAGES
        .iter()
        .find_map(|(name, page)| (*name == code.as_str()).then_some(*page))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let missing: Vec<_> = Code::ALL
            .iter()
            .filter(|code| page(**code).is_none())
            .map(|code| code.as_str())
            .collect();
        assert!(
            missing.is_empty(),
            "pages missing in docs/codes: {missing:?}"
        );
        for (name, page) in PAGES {
            assert!(
                name.parse::<Code>().is_ok(),
                "docs/codes/{name}.md explains no code"
            );
            assert!(
                page.contains(name),
                "docs/codes/{name}.md does not name its code"
            );
        }
    }
}
