//! The command line.

mod arguments;
mod error;
mod explain;
mod matrix;
mod output;
mod threads;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use ledger::bytes::text::{clean, clean_lines};
use ledger::file::source::{Source, read_checkpoint};
use ledger::file::walk::Given;

use crate::document::Document;
use crate::report::human::{self, Style};
use crate::rules::{self, Demands, Verification};
use arguments::{Asked, Cli, Command, Format, Output};
use error::{TYPE_PATH, Told, USAGE, VerifyError, WriteResultError, chain};
use explain::explain;
use output::{give, print, replace};

/// Runs `verify` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    // With a handler a limit on the size of files (setrlimit(2), RLIMIT_FSIZE) makes writes fail, which can be told; without, it ends this
    // process. Where none can be set that stays so.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
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
    if error.kind() == ErrorKind::MissingRequiredArgument {
        eprintln!("\n{TYPE_PATH}");
    }
    USAGE.into()
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
        Some(Command::Matrix { ledgers }) => return matrix::matrix(cli, ledgers),
        Some(Command::Diff { a, b }) => return matrix::diff(cli, a, b),
        Some(Command::Report(_)) => return Err(VerifyError::Later("verify report".to_owned())),
        None => {}
    }
    let [path] = cli.paths.as_slice() else {
        return Err(VerifyError::Paths(paths().collect()));
    };
    let verification = verified(cli, path, false)?;
    show(cli, &verification)?;
    Ok(verification.exit_code)
}

/// Checks one ledger whole; with `matrices` what was measured comes along.
fn verified(cli: &Cli, path: &Path, matrices: bool) -> Result<Verification, VerifyError> {
    if path.extension().is_some_and(|it| it == "tlog-proof") {
        return Err(VerifyError::Later("a .tlog-proof file".to_owned()));
    }
    let checkpoint = match &cli.checkpoint {
        Some(path) => Some((
            path.display().to_string(),
            read_checkpoint(path).map_err(VerifyError::no_checkpoint)?,
        )),
        None => None,
    };
    let mut source = if path == Path::new("-") {
        Source::from_reader("-", Box::new(io::stdin()))
    } else {
        Source::open(path).map_err(VerifyError::not_opened)?
    };
    let demands = Demands {
        checkpoint: checkpoint
            .as_ref()
            .map(|(name, bytes)| Given { name, bytes }),
        require_checkpoint: cli.require_checkpoint,
        matrices,
    };
    let threads = threads::within_limits(cli.threads());
    rules::verify_with(threads, &mut source, demands).map_err(VerifyError::Read)
}

fn show(cli: &Cli, verification: &Verification) -> Result<(), WriteResultError> {
    give(cli, |format, color| match format {
        Format::Json => Document::of(verification).to_json(),
        Format::Human => Ok(human::write(verification, style(cli, color))),
    })
}

const fn style(cli: &Cli, color: bool) -> Style {
    Style {
        color,
        all: cli.all,
        quiet: cli.quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
