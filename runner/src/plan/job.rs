//! **Job**: what is to run, beside what the policy says.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use ledger::facts::control::Control;
use ledger::facts::policy::Policy;

use super::DEFAULT_PATH;

/// What is to run.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The program's name or path, and its arguments.
    pub argv: Vec<OsString>,
    /// The folder to start in, as asked for (`-C`).
    pub cwd: Option<PathBuf>,
    /// The caller's own folder, used when it is visible inside.
    pub caller_cwd: Option<PathBuf>,
    /// The caller's home folder.
    pub home: Option<PathBuf>,
    /// A folder to show read-only at /workload.
    pub workload: Option<PathBuf>,
    /// Values to show as files under /run/secrets.
    pub secrets: Vec<Secret>,
    /// Run as host root (`--as-root`).
    pub as_root: bool,
    /// Give it a terminal of its own (`-t`).
    pub terminal: bool,
    /// What stands on its standard input.
    pub input: Input,
    /// The caller's environment, for what the policy lets through.
    pub caller_environment: Vec<(OsString, OsString)>,
    /// Host paths that no workload may reach: ledger, keys, state.
    pub evidence: Vec<PathBuf>,
    /// The one control whose mechanisms are left out, for a measurement that must show what they are good for. `None` for
    /// everything else.
    pub ablate: Option<Control>,
    /// A terminal that whoever launches the workload is to have as its controlling one, for a measurement that must show that
    /// the workload does not get it. `None` for everything else: then that is the runner's own, if it has one.
    pub caller_terminal: Option<Arc<OwnedFd>>,
    /// It is a probe of a measurement.
    pub measured: bool,
}

impl Job {
    /// Whether the mechanisms of `control` are to be left out.
    #[must_use]
    pub fn leaves_out(&self, control: Control) -> bool {
        self.ablate == Some(control)
    }
}

/// What stands on a workload's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing: /dev/null.
    #[default]
    Nothing,
    /// The caller's own.
    Callers,
}

/// A value that appears inside as a file and nowhere else.
#[derive(Clone)]
pub struct Secret {
    /// Its name, and the file's.
    pub name: String,
    /// Its value.
    pub value: Vec<u8>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({}, {} bytes)", self.name, self.value.len())
    }
}

/// The workload's whole environment, sorted: what the policy sets, what it lets through, and the few variables
/// that programs need; with `environment` left out, all that the caller has below those.
pub(crate) fn environment(policy: &Policy, job: &Job) -> Vec<(OsString, OsString)> {
    let mut variables = std::collections::BTreeMap::from([
        (OsString::from("HOME"), OsString::from("/workspace")),
        (OsString::from("PATH"), OsString::from(DEFAULT_PATH)),
        (OsString::from("LANG"), OsString::from("C.UTF-8")),
        (OsString::from("TMPDIR"), OsString::from("/tmp")),
    ]);
    if job.terminal {
        let term = job
            .caller_environment
            .iter()
            .find(|(name, _)| name == "TERM");
        let term = term.map_or_else(|| OsString::from("xterm"), |(_, value)| value.clone());
        variables.insert("TERM".into(), term);
    }
    variables.extend(chosen(policy, job));
    variables.into_iter().collect()
}

/// The variables that are chosen alone, sorted: what the policy sets and lets through; with `environment` left out, all that the
/// caller has below those.
pub(crate) fn chosen(policy: &Policy, job: &Job) -> Vec<(OsString, OsString)> {
    let mut variables = std::collections::BTreeMap::new();
    for (name, value) in &job.caller_environment {
        if policy
            .process
            .allowed_environment
            .iter()
            .any(|allowed| name == allowed.as_str())
            || job.leaves_out(Control::Environment)
        {
            variables.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in &policy.process.environment {
        variables.insert(name.into(), value.into());
    }
    variables.into_iter().collect()
}
