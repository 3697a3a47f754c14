//! What pid 1 is told to run, and what it found.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use ledger::bytes::canon::escape_bytes;
use ledger::facts::execution::NotExecuted;

use crate::init::wire::{ProgramReport, ProgramSpec, Spec};
use crate::plan::{Job, Plan, Program};

/// The folder in which a program starts where nothing is moved: the caller's own.
pub(in crate::runtime) fn callers_folder(job: &Job) -> PathBuf {
    let asked = job.cwd.clone().or_else(|| job.caller_cwd.clone());
    asked.unwrap_or_else(|| "/".into())
}

/// A specification that isolates nothing.
pub(in crate::runtime) fn bare(plan: &Plan, program: ProgramSpec) -> Spec {
    Spec {
        identity: None,
        root: None,
        protect: Vec::new(),
        loopback: false,
        host_name: false,
        deny_user_namespaces: false,
        give_up_privilege: false,
        session: false,
        session_keyring: false,
        close_descriptors: false,
        open_files: None,
        base: Vec::new(),
        seccomp: None,
        reporting: false,
        landlock: None,
        terminal: plan.job.terminal,
        owns_tree: false,
        caller_terminal: plan.job.caller_terminal.is_some(),
        leaves_tree: false,
        groups: Vec::new(),
        own_group: false,
        planted: 0,
        program: Some(program),
        stays_dumpable: false,
        launcher: None,
        order: None,
        fault: crate::sys::fault::text(),
    }
}

/// Variables as execve(2) takes them.
pub(in crate::runtime) fn as_words(environment: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    let all = environment.iter();
    all.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// What pid 1 is to run.
pub(in crate::runtime) fn program(plan: &Plan) -> ProgramSpec {
    ProgramSpec {
        argv: plan
            .job
            .argv
            .iter()
            .map(|argument| argument.as_bytes().to_vec())
            .collect(),
        environment: as_words(&plan.environment),
        cwd: plan.cwd.clone(),
    }
}

/// The program as it stands in the effect.
pub(in crate::runtime) fn found(plan: &Plan, report: Option<&ProgramReport>) -> Program {
    let asked = plan
        .job
        .argv
        .first()
        .map(|name| escape_bytes(name.as_bytes()))
        .unwrap_or_default();
    match report {
        Some(ProgramReport::Found { path, sha256 }) => Program::Found {
            path: escape_bytes(path.as_os_str().as_bytes()),
            sha256: sha256.as_deref().and_then(|hash| hash.parse().ok()),
        },
        Some(ProgramReport::Unusable {
            reason,
            errno,
            what,
        }) => {
            let path = if *reason == NotExecuted::LaunchFailed {
                what.clone()
            } else {
                asked
            };
            Program::Unusable {
                path,
                reason: *reason,
                errno: *errno,
            }
        }
        None => Program::Unusable {
            path: asked,
            reason: NotExecuted::LaunchFailed,
            errno: None,
        },
    }
}
