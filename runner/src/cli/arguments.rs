//! What `exec` and `plan` take, and what that asks for.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use ledger::facts::control::Control;
use ledger::facts::execution::RuntimeUsed;
use ledger::facts::policy::{
    Bind, Changes, DEFAULT_MODULE_POLICY, DEFAULT_POLICY, HostPort, NetworkMode, Policy, units,
};
use ledger::facts::suite::MODULES;

use super::choose::{choose_runtime, load_policy, native_is_allowed};
use super::command_line::CommandLineError;
use crate::plan::{Input, Job, Runtime, Secret};
use crate::runtime::auto::{AUTO, Auto};

/// Exit statuses, for `exec --help`.
const STATUSES: &str = "Exit status: the workload's own; 124 deadline; 125 the runner failed, pid 1 of the sandbox was killed, or the \
record cannot be kept, and wrong usage; 126 refused, a requested control is not available; 127 program not found or not executable; 128+n the \
workload ended by signal n, or the operator ended the run by a second INT or TERM, n being that one. \
--events tells them apart where a workload uses these numbers itself. stdout is the workload's, so --json changes nothing \
here: see --events.";

/// The same for `plan --help`.
pub(super) const PLAN_STATUSES: &str = "Exit status: 0 exec would run it, as far as can be told before: plan tries this host's \
namespaces, and looks neither for the program nor for the folder of -C; 126 exec would refuse; 125 no sandbox can be built here, and no \
control is required that would make it a refusal; 2 wrong usage.";

/// What `exec` and `plan` take.
#[derive(Debug, Args)]
#[command(after_help = STATUSES)]
pub(super) struct ExecArgs {
    /// A policy of the catalogue, or a file
    /// [default: standard; with --runtime wasi: module]
    #[arg(short = 'P', long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// What isolates: auto, embedded, bwrap, unshare, wasi (for WebAssembly modules), native, or a template, named by its file
    #[arg(long, value_name = "RUNTIME|FILE", default_value = "auto")]
    pub(super) runtime: String,
    /// Show a file or folder read-only
    #[arg(long, value_name = "SRC[:DST]", action = ArgAction::Append)]
    read: Vec<String>,
    /// Show a file or folder writable
    #[arg(long, value_name = "SRC[:DST]", action = ArgAction::Append)]
    write: Vec<String>,
    /// Start in this folder, as the workload sees it; with --runtime wasi, where its path is looked for
    #[arg(short = 'C', value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Which network is reachable: none, loopback, allowlist or unrestricted
    #[arg(long, value_name = "MODE")]
    network: Option<NetworkMode>,
    /// Allow this destination; refused, allowlists need a forwarder that this version does not have
    #[arg(long, value_name = "HOST:PORT", action = ArgAction::Append)]
    allow: Vec<HostPort>,
    /// Limit memory of the whole tree, such as 512M; makes the control required
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Limit CPU time, in CPUs, such as 0.5; makes the control required
    #[arg(long, value_name = "CPUS")]
    cpu: Option<String>,
    /// Limit tasks; makes the control required
    #[arg(long, value_name = "N")]
    processes: Option<u32>,
    /// Kill the whole tree after this time, such as 30s
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Started as root: map the workload to host root. user and privilege are then not declared, and a policy that
    /// requires them refuses without --best-effort. For other users it changes only that: the host id stays theirs
    #[arg(long)]
    as_root: bool,
    /// Go on with a ledger that lost records; a record says so, and verify gives 10 from then on
    #[arg(long)]
    pub(super) accept_rollback: bool,
    /// Set a variable, or pass the caller's on
    #[arg(long, value_name = "K[=V]", action = ArgAction::Append)]
    env: Vec<String>,
    /// Show the value of the caller's variable NAME as /run/secrets/NAME; only the name is recorded
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    secret: Vec<String>,
    /// Pass a terminal's input on
    #[arg(short)]
    pub(super) interactive: bool,
    /// Give the workload a terminal of its own
    #[arg(short)]
    pub(super) terminal: bool,
    /// Require controls
    #[arg(long, value_name = "CONTROL,…", value_delimiter = ',', action = ArgAction::Append)]
    require: Vec<Control>,
    /// Run and record even when a requested control is not available
    #[arg(long)]
    best_effort: bool,
    /// Record arguments and output as they are, instead of sealed
    #[arg(long)]
    pub(super) clear: bool,
    /// Allow the native runtime and templates, which isolate nothing by themselves
    #[arg(long)]
    allow_native: bool,
    /// Write events as JSON lines to a descriptor or file
    #[arg(long, value_name = "FD|FILE")]
    pub(super) events: Option<String>,
    /// Show a folder read-only at /workload
    #[arg(long, value_name = "DIR")]
    workload: Option<PathBuf>,
    /// The same as `plan`: run and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(super) command: Vec<OsString>,
}

impl ExecArgs {
    /// The policy with this command line on top.
    pub(super) fn policy(&self) -> Result<Policy, CommandLineError> {
        let wrong = |flag, value: &str, why: String| CommandLineError::Value {
            flag,
            value: value.to_owned(),
            why,
        };
        let default = if self.runtime == MODULES {
            DEFAULT_MODULE_POLICY
        } else {
            DEFAULT_POLICY
        };
        let policy = load_policy(self.policy.as_deref().unwrap_or(default))?;
        let binds = |flag: &'static str, list: &[String]| -> Result<Vec<Bind>, CommandLineError> {
            list.iter()
                .map(|text| bind(text).map_err(|why| wrong(flag, text, why)))
                .collect()
        };
        let mut changes = Changes {
            read: binds("read", &self.read)?,
            write: binds("write", &self.write)?,
            network: self.network,
            allow: self.allow.clone(),
            processes: self.processes.map(Into::into),
            require: self.require.clone(),
            best_effort: self.best_effort,
            ..Changes::default()
        };
        if let Some(text) = &self.memory {
            changes.memory_mb =
                Some(units::memory_mb(text).map_err(|why| wrong("memory", text, why.to_string()))?);
        }
        if let Some(text) = &self.cpu {
            changes.cpu_millis =
                Some(units::cpu_millis(text).map_err(|why| wrong("cpu", text, why.to_string()))?);
        }
        if let Some(text) = &self.timeout {
            changes.timeout_ms = Some(
                units::timeout_ms(text).map_err(|why| wrong("timeout", text, why.to_string()))?,
            );
        }
        for text in &self.env {
            match text.split_once('=') {
                Some((name, value)) => changes
                    .environment
                    .push((name.to_owned(), value.to_owned())),
                None if std::env::var_os(text).is_none() => {
                    return Err(wrong("env", text, "no such variable is set".to_owned()));
                }
                None => changes.allowed_environment.push(text.clone()),
            }
        }
        Ok(policy.with(changes)?)
    }

    /// What is to run.
    pub(super) fn job(&self, evidence: Vec<PathBuf>) -> Result<Job, CommandLineError> {
        let mut secrets = Vec::new();
        for name in &self.secret {
            use std::os::unix::ffi::OsStringExt as _;
            let wrong = |why: &str| CommandLineError::Value {
                flag: "secret",
                value: name.clone(),
                why: why.to_owned(),
            };
            if name.is_empty() || name.contains(['/', '\0', '=']) || name == "." || name == ".." {
                return Err(wrong("expected the name of a variable"));
            }
            let value = std::env::var_os(name).ok_or_else(|| wrong("no such variable is set"))?;
            secrets.push(Secret {
                name: name.clone(),
                value: value.into_vec(),
            });
        }
        Ok(Job {
            argv: self.command.clone(),
            cwd: self.cwd.clone(),
            caller_cwd: std::env::current_dir().ok(),
            home: std::env::var_os("HOME").map(PathBuf::from),
            workload: self.workload.clone(),
            secrets,
            as_root: self.as_root,
            terminal: self.terminal,
            input: Input::Callers,
            caller_environment: std::env::vars_os().collect(),
            evidence,
            ablate: self.ablate()?,
            caller_terminal: None,
            measured: false,
        })
    }

    /// The control that the tests' switch leaves out.
    fn ablate(&self) -> Result<Option<Control>, CommandLineError> {
        let read = |name: String| {
            name.parse::<Control>()
                .map_err(|error| CommandLineError::Value {
                    flag: "ablate",
                    value: name,
                    why: error.to_string(),
                })
        };
        crate::sys::fault::left_out().map(read).transpose()
    }

    /// The runtimes that may be meant, by preference.
    pub(super) fn runtimes(&self) -> Result<Vec<Box<dyn Runtime>>, CommandLineError> {
        let names = match self.runtime.as_str() {
            "auto" => AUTO.as_slice(),
            name => &[name],
        };
        let allowed = self.allow_native || native_is_allowed();
        let all = names.iter().map(|name| {
            let runtime = choose_runtime(name, allowed)?;
            self.refuse_what_is_not_shown(runtime.as_ref())?;
            Ok(runtime)
        });
        all.collect()
    }

    /// Whoever asks for a file to be shown, or shown read-only, by a runtime that shows none is told so.
    fn refuse_what_is_not_shown(&self, runtime: &dyn Runtime) -> Result<(), CommandLineError> {
        if let Some(folder) = self.cwd.as_ref().filter(|_| !runtime.starts_where_asked()) {
            return Err(CommandLineError::Folder {
                folder: folder.clone(),
                runtime: runtime.id().to_owned(),
            });
        }
        if runtime.shows_workload() {
            return Ok(());
        }
        let asked = [
            ("read", &self.read),
            ("write", &self.write),
            ("secret", &self.secret),
        ];
        match asked
            .iter()
            .find_map(|(flag, values)| Some((*flag, values.first()?)))
        {
            None => Ok(()),
            Some((flag, value)) => Err(CommandLineError::Value {
                flag,
                value: value.clone(),
                why: match RuntimeUsed::BUILT_IN.contains(&runtime.id()) {
                    true => format!(
                        "the runtime {} shows the host's files as they are, and no others",
                        runtime.id()
                    ),
                    false => format!(
                        "the template {} has no word by which it would be shown ({{read-source}} and the like)",
                        runtime.id()
                    ),
                },
            }),
        }
    }

    /// The runtime that is meant.
    pub(super) fn runtime(&self) -> Result<Box<dyn Runtime>, CommandLineError> {
        if self.runtime == "auto" {
            return Ok(Box::new(Auto::default()));
        }
        let runtime = choose_runtime(&self.runtime, self.allow_native || native_is_allowed())?;
        self.refuse_what_is_not_shown(runtime.as_ref())?;
        Ok(runtime)
    }
}

/// `SRC[:DST]` with SRC made absolute.
fn bind(text: &str) -> Result<Bind, String> {
    let (source, target) = match text.split_once(':') {
        Some((source, target)) => (source, Some(target)),
        None => (text, None),
    };
    if source.is_empty() {
        return Err("expected SRC or SRC:DST".to_owned());
    }
    let source = std::path::absolute(source).map_err(|error| error.to_string())?;
    let source = source.to_str().ok_or("the path is not UTF-8")?;
    let whole = target.map_or_else(|| source.to_owned(), |target| format!("{source}:{target}"));
    whole.parse::<Bind>().map_err(|error| error.to_string())
}
