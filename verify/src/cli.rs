//! The command line.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Parser, Subcommand, ValueEnum};
use ledger::file::source::{OpenSourceError, ReadError, Source, read_checkpoint};
use ledger::file::walk::Given;
use ledger::finding::{Class, Code, UnknownCode};
use miette::Diagnostic;

use crate::document::Document;
use crate::report::human::{self, Style};
use crate::rules::{self, Demands, Verification};
use ledger::bytes::text::{clean, clean_lines};

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
#[command(
    name = "verify",
    version,
    subcommand_negates_reqs = true,
    subcommand_precedence_over_arg = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// A ledger folder, a .jsonl file of record lines, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A checkpoint of this ledger that was kept elsewhere
    #[arg(long, value_name = "FILE", global = true)]
    checkpoint: Option<PathBuf>,
    /// Exit 11 unless the newest record is covered by a given checkpoint or the ledger is closed
    #[arg(long, global = true)]
    require_checkpoint: bool,
    /// What to print on standard output: human or json
    #[arg(long, value_name = "FORMAT", default_value = "human", global = true)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", global = true)]
    json: bool,
    /// Write the result to a file too; may be given several times
    #[arg(long, value_name = "FORMAT=FILE", global = true)]
    output: Vec<Output>,
    /// Show every finding and every check
    #[arg(long, global = true)]
    all: bool,
    /// Print the verdict line alone
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Colours
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    color: Color,
    #[command(flatten)]
    later: Later,
}

/// Options of later versions: refused, never ignored.
#[derive(Debug, clap::Args)]
struct Later {
    #[arg(long, value_name = "FILE", hide = true, global = true)]
    trust: Option<OsString>,
    #[arg(long, value_name = "FILE", hide = true, global = true)]
    revoked: Option<OsString>,
    #[arg(long, hide = true, global = true)]
    require_trust: bool,
    #[arg(long, value_name = "DURATION", hide = true, global = true)]
    max_age: Option<OsString>,
    #[arg(long, value_name = "STATE", hide = true, global = true)]
    since: Option<OsString>,
    #[arg(long, value_name = "STATE", hide = true, global = true)]
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
struct Told {
    text: String,
    code: Option<String>,
    help: Option<String>,
    cause: Option<Box<Told>>,
}

impl Told {
    fn of(error: &VerifyError) -> Self {
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

/// Runs `verify` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let json = cli.json || cli.format == Format::Json;
    match run(&cli) {
        Ok(code) => code.into(),
        Err(error) => {
            let code = error.exit_code();
            failed(code, &chain(&error), json, &cli.output);
            eprintln!("{:?}", miette::Report::new(Told::of(&error)));
            code.into()
        }
    }
}

/// Arguments that are no command line, or that ask for help.
fn refused(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Help into a closed pipe is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    let why = first.strip_prefix("error: ").unwrap_or(first);
    let asked = Asked::of(std::env::args_os().skip(1));
    failed(USAGE, why, asked.json, &asked.outputs);
    let shown = clean_lines(&text);
    if shown == text {
        let _ = error.print();
    } else {
        eprint!("{shown}");
    }
    USAGE.into()
}

/// What arguments that could not be read ask for all the same.
#[derive(Debug, Default)]
struct Asked {
    json: bool,
    outputs: Vec<Output>,
}

impl Asked {
    fn of(arguments: impl Iterator<Item = OsString>) -> Self {
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

/// The document without a verdict, everywhere where a result was asked for. The same is said on standard
/// error, so that nothing is lost where it cannot be written.
fn failed(code: u8, why: &str, json: bool, outputs: &[Output]) {
    let Ok(document) = Document::of_failure(code, why).to_json() else {
        return;
    };
    for output in outputs {
        let text = match output.format {
            Format::Json => document.clone(),
            Format::Human => format!("NO RESULT  {}\n", clean(why)),
        };
        let _ = replace(&output.file, &text);
    }
    if json {
        let _ = print(&document);
    }
}

fn run(cli: &Cli) -> Result<u8, VerifyError> {
    let paths = || cli.paths.iter().map(|path| path.display().to_string());
    if let (Some(_), Some(path)) = (&cli.command, paths().next()) {
        return Err(VerifyError::PathAndCommand(path));
    }
    if let Some(name) = cli.later.used() {
        return Err(VerifyError::Later(name.to_owned()));
    }
    match &cli.command {
        Some(Command::Explain { code }) => return explain(cli, code.as_deref()),
        Some(Command::Matrix(_)) => return Err(VerifyError::Later("verify matrix".to_owned())),
        Some(Command::Diff(_)) => return Err(VerifyError::Later("verify diff".to_owned())),
        Some(Command::Report(_)) => return Err(VerifyError::Later("verify report".to_owned())),
        None => {}
    }
    let [path] = cli.paths.as_slice() else {
        return Err(VerifyError::Paths(paths().collect()));
    };
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
    let mut source = if path.as_path() == Path::new("-") {
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
    show(cli, &verification)?;
    Ok(verification.exit_code)
}

fn show(cli: &Cli, verification: &Verification) -> Result<(), WriteResultError> {
    give(cli, |format, color| match format {
        Format::Json => Document::of(verification).to_json(),
        Format::Human => Ok(human::write(
            verification,
            Style {
                color,
                all: cli.all,
                quiet: cli.quiet,
            },
        )),
    })
}

/// Writes a text to every place where it was asked for.
fn give(
    cli: &Cli,
    text: impl Fn(Format, bool) -> Result<String, serde_json::Error>,
) -> Result<(), WriteResultError> {
    for output in &cli.output {
        let error = |source| WriteResultError::File {
            path: output.file.clone(),
            source,
        };
        replace(&output.file, &text(output.format, false)?).map_err(error)?;
    }
    let format = if cli.json { Format::Json } else { cli.format };
    print(&text(format, cli.color.on_stdout())?)
}

/// Writes a file whole or not at all: under another name, which is then given to it. What is no regular
/// file (a device, a pipe) is written to.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let (file, permissions) = match fs::metadata(file) {
        Ok(found) if found.is_file() => (fs::canonicalize(file)?, Some(found.permissions())),
        Ok(_) => return fs::write(file, text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (file.to_owned(), None),
        Err(error) => return Err(error),
    };
    let mut name = OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = file.with_file_name(name);
    let mut made = fs::File::create_new(&temporary)?;
    let written = made
        .write_all(text.as_bytes())
        .and_then(|()| permissions.map_or(Ok(()), |it| made.set_permissions(it)))
        .and_then(|()| made.sync_all())
        .and_then(|()| fs::rename(&temporary, &file));
    if written.is_err() {
        // What could not be written is told; the name beside it is only tidied up.
        let _ = fs::remove_file(&temporary);
    }
    written
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

/// A code as JSON.
#[derive(Debug, serde::Serialize)]
struct Explained {
    code: Code,
    severity: Class,
    meaning: &'static str,
    page: Option<&'static str>,
}

impl Explained {
    fn of(code: Code) -> Self {
        Self {
            code,
            severity: code.class(),
            meaning: code.meaning(),
            page: page(code),
        }
    }
}

fn explain(cli: &Cli, code: Option<&str>) -> Result<u8, VerifyError> {
    let code = code.map(str::parse::<Code>).transpose()?;
    let line = |code: &Code| {
        let class = code.class().as_str();
        format!("{code:<28} {class:<13} {}\n", code.meaning())
    };
    give(cli, |format, _| match (format, code) {
        (Format::Json, Some(code)) => serde_json::to_string(&Explained::of(code)).map(ended),
        (Format::Json, None) => {
            let all: Vec<_> = Code::ALL.iter().copied().map(Explained::of).collect();
            serde_json::to_string(&all).map(ended)
        }
        (Format::Human, Some(code)) => Ok(page(code).map_or_else(
            || format!("# {code}\n\n{}\n", code.meaning()),
            str::to_owned,
        )),
        (Format::Human, None) => Ok(Code::ALL.iter().map(line).collect()),
    })?;
    Ok(0)
}

fn ended(json: String) -> String {
    json + "\n"
}

/// The page of a code, as in docs/codes.
fn page(code: Code) -> Option<&'static str> {
    PAGES
        .iter()
        .find_map(|(name, page)| (*name == code.as_str()).then_some(*page))
}

fn chain(error: &dyn Error) -> String {
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
