//! The command line: a file per command.
//!
//! Machine output goes to stdout, prose and progress to stderr. Exit codes are those of DESIGN.md §6.

mod bundle;
mod choose;
mod close;
mod completions;
mod doctor;
mod events;
mod exec;
mod interrupt;
mod key;
mod ledger;
mod listing;
mod matrix;
mod note;
mod plan;
mod report;
mod status;
mod trial;
mod validate;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

/// A negative answer.
const NEGATIVE: u8 = 1;
/// Wrong usage of a command other than exec.
const USAGE: u8 = 2;
/// The runner itself failed, or the record cannot be kept; wrong usage of exec too.
pub(crate) const FAILED: u8 = 125;

/// Runs untrusted workloads in sandboxes and writes what happened into a signed ledger.
#[derive(Debug, Parser)]
#[command(name = "runner", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// The ledger folder [default: $RUNNER_LEDGER, else $XDG_STATE_HOME/containment-ledger/default]
    #[arg(long, global = true, value_name = "DIR")]
    ledger: Option<PathBuf>,
    /// The signing key: a PKCS#8 file, or `ephemeral` [default: the ledger's own]
    #[arg(long, global = true, value_name = "KEY")]
    key: Option<String>,
    /// When to colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    /// Say less on stderr
    #[arg(short, long, global = true, action = ArgAction::SetTrue)]
    quiet: bool,
    /// How machine output looks
    #[arg(long, global = true, value_name = "FORMAT", default_value = "human")]
    format: Format,
    /// The same as --format json
    #[arg(long, global = true, action = ArgAction::SetTrue)]
    json: bool,
}

impl Global {
    fn is_json(&self) -> bool {
        self.json || self.format == Format::Json
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ColorChoice {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Human,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a workload in a sandbox and record it
    Exec(Box<exec::ExecArgs>),
    /// Say what would be intended, and what not and why; runs and writes nothing, and looks for no program
    #[command(after_help = exec::PLAN_STATUSES)]
    Plan(Box<exec::ExecArgs>),
    /// Say what this host allows, found by trying
    Doctor,
    /// List the runtimes
    Runtimes(listing::RuntimesArgs),
    /// List the policies of the catalogue, or show one
    Policies(listing::PoliciesArgs),
    /// Check policies and suites of probes, and what this runner has for them
    Validate(validate::ValidateArgs),
    /// Add a signed remark to the ledger
    Note(note::NoteArgs),
    /// Make or show keys
    Key(key::KeyArgs),
    /// Write records of the ledger, and what they rest on, into one file for somebody else
    Bundle(bundle::BundleArgs),
    /// Close the ledger: nothing may follow
    Close(close::CloseArgs),
    /// Write a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// Write man pages into a folder
    Man(completions::ManArgs),
    /// Measure what the runtimes of this host really contain, by attacking them
    #[command(alias = "escape")]
    Matrix(matrix::MatrixArgs),
    /// Needs checkpoints that leave the machine, which this version does not have
    #[command(hide = true)]
    Checkpoint(Later),
    /// Needs inclusion proofs, which this version does not have
    #[command(hide = true)]
    Prove(Later),
    /// Needs redaction, which this version does not have
    #[command(hide = true)]
    Redact(Later),
    /// Needs services, which this version does not have
    #[command(hide = true)]
    Service(Later),
}

/// The command line of `runner exec` alone: describing the other commands takes longer than reading the line.
#[derive(Debug, Parser)]
#[command(name = "runner")]
struct ExecCli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: ExecCommand,
}

#[derive(Debug, Subcommand)]
enum ExecCommand {
    Exec(Box<exec::ExecArgs>),
}

/// Reads a command line of `exec`; `None` for any other, and for one with a mistake, which [`Cli`] can explain.
fn read_exec(arguments: &[OsString]) -> Option<Cli> {
    let ExecCli { global, command } = ExecCli::try_parse_from(arguments).ok()?;
    let ExecCommand::Exec(args) = command;
    let command = Command::Exec(args);
    Some(Cli { global, command })
}

/// A command of a later version, with whatever follows it.
#[derive(Debug, Args)]
struct Later {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Parses and runs the command line of this process; its exit status.
#[must_use]
pub fn main() -> u8 {
    crate::sys::fault::set(None);
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let read = match read_exec(&arguments) {
        Some(cli) => Ok(cli),
        None => Cli::try_parse_from(&arguments),
    };
    let status = match read {
        Ok(cli) => run(cli),
        Err(error) => {
            report::usage(&error);
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
                _ if is_exec(&arguments) => FAILED,
                _ => USAGE,
            }
        }
    };
    // Whatever the answer was, whoever asked did not get it.
    if report::output_is_lost() {
        FAILED
    } else {
        status
    }
}

/// Whether the command meant is exec, whose wrong usage must not look like a workload's status.
fn is_exec(arguments: &[OsString]) -> bool {
    let commands: Vec<String> = Cli::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let named = arguments.iter().skip(1).find(|argument| {
        commands
            .iter()
            .any(|name| argument.as_os_str() == name.as_str())
    });
    named.is_some_and(|name| name == "exec")
}

fn run(cli: Cli) -> u8 {
    report::set_color(cli.global.color);
    let Cli { global, command } = cli;
    match command {
        Command::Exec(args) if args.dry_run => plan::run(&global, *args),
        Command::Exec(args) => exec::run(&global, *args),
        Command::Plan(args) => plan::run(&global, *args),
        Command::Doctor => doctor::run(&global),
        Command::Runtimes(args) => listing::runtimes(&global, &args),
        Command::Policies(args) => listing::policies(&global, &args),
        Command::Validate(args) => validate::run(&global, &args),
        Command::Note(args) => note::run(&global, args),
        Command::Key(args) => key::run(&global, args),
        Command::Bundle(args) => bundle::run(&global, &args),
        Command::Close(args) => close::run(&global, args),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
        Command::Matrix(args) => matrix::run(&global, &args),
        Command::Checkpoint(later) => needs("checkpoint", "witnesses", &later),
        Command::Prove(later) => needs("prove", "inclusion proofs", &later),
        Command::Redact(later) => needs("redact", "redaction", &later),
        Command::Service(later) => needs("service", "services", &later),
    }
}

fn needs(command: &str, what: &str, later: &Later) -> u8 {
    let given = if later.rest.is_empty() { "" } else { " …" };
    report::error_line(&format!(
        "`runner {command}{given}` needs {what}, which this version does not have"
    ));
    USAGE
}
