//! What a command line can say wrong about policies, runtimes and workloads.

use std::io;
use std::path::PathBuf;

use ledger::facts::policy::{ApplyChangesError, ReadPolicyError, UnknownPolicy};

use super::events::OpenEventsError;
use super::report;
use crate::runtime::template::ReadTemplateError;

/// Why a command line cannot be carried out.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum CommandLineError {
    /// No such policy.
    #[error(transparent)]
    #[diagnostic(
        code(runner::exec::policy),
        help("`runner policies` lists the catalogue; a file needs a `/` or `.json` in its name")
    )]
    UnknownPolicy(#[from] UnknownPolicy),
    /// The policy file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    #[diagnostic(code(runner::exec::policy_file))]
    PolicyFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The policy is wrong.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Policy(#[from] ReadPolicyError),
    /// The command line contradicts the policy.
    #[error(transparent)]
    #[diagnostic(code(runner::exec::contradiction))]
    Changes(#[from] ApplyChangesError),
    /// A folder to start in that the runtime cannot be told.
    #[error("-C {folder}: the template {runtime} has no {{workdir}}, and so no way to start there", folder = folder.display())]
    #[diagnostic(code(runner::exec::folder))]
    Folder {
        /// What was given.
        folder: PathBuf,
        /// The runtime.
        runtime: String,
    },
    /// A flag's value.
    #[error("--{flag} {value:?}: {why}")]
    #[diagnostic(code(runner::exec::value))]
    Value {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such runtime, or not now.
    #[error("{0}")]
    #[diagnostic(code(runner::exec::runtime), help("`runner runtimes` lists them"))]
    Runtime(String),
    /// Not without being told.
    #[error("the native runtime isolates nothing")]
    #[diagnostic(
        code(runner::exec::native),
        help("say --allow-native, or set RUNNER_ALLOW_NATIVE=1, if that is meant")
    )]
    Native,
    /// Not without being told.
    #[error("a runtime template isolates nothing by itself: its command runs as the caller")]
    #[diagnostic(
        code(runner::exec::template),
        help("say --allow-native, or set RUNNER_ALLOW_NATIVE=1, if that is meant")
    )]
    NotAllowed,
    /// No runtime template.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Template(#[from] ReadTemplateError),
    /// The events cannot be written.
    #[error(transparent)]
    #[diagnostic(code(runner::exec::events))]
    Events(#[from] OpenEventsError),
}

/// Says why a command line cannot be carried out, a policy's mistakes one by one.
pub(super) fn say(error: CommandLineError) {
    match error {
        CommandLineError::Policy(error) => report::policy_error(error),
        other => report::diagnostic(other),
    }
}
