//! `runner exec`: run a workload in a sandbox and record it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};
use ledger::facts::control::Control;
use ledger::facts::execution::{NotExecuted, Outcome, Verdict, Violation};
use ledger::facts::policy::{
    ApplyChangesError, Bind, Changes, DEFAULT_POLICY, HostPort, NetworkMode, Policy,
    ReadPolicyError, UnknownPolicy, units,
};

use super::choose::{choose_runtime, load_policy, native_is_allowed};
use super::events::{Events, OpenEventsError};
use super::status::status;
use super::{FAILED, Global, ledger as ledgers, report};
use crate::plan::{Input, Job, Reason, Runtime, Secret};
use crate::run::{Event, Finished, Ledger, Observer, Request, Stdin, execute};
use crate::runtime::auto::{AUTO, Auto};
use crate::runtime::template::ReadTemplateError;

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
    #[arg(short = 'P', long, value_name = "NAME|FILE", default_value = DEFAULT_POLICY)]
    pub(super) policy: String,
    /// What isolates: auto, embedded, bwrap, unshare, native, or a template, named by its file
    #[arg(long, value_name = "RUNTIME|FILE", default_value = "auto")]
    pub(super) runtime: String,
    /// Show a file or folder read-only
    #[arg(long, value_name = "SRC[:DST]", action = ArgAction::Append)]
    read: Vec<String>,
    /// Show a file or folder writable
    #[arg(long, value_name = "SRC[:DST]", action = ArgAction::Append)]
    write: Vec<String>,
    /// Start in this folder, as the workload sees it
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
    accept_rollback: bool,
    /// Set a variable, or pass the caller's on
    #[arg(long, value_name = "K[=V]", action = ArgAction::Append)]
    env: Vec<String>,
    /// Show the value of the caller's variable NAME as /run/secrets/NAME; only the name is recorded
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    secret: Vec<String>,
    /// Pass a terminal's input on
    #[arg(short)]
    interactive: bool,
    /// Give the workload a terminal of its own
    #[arg(short)]
    terminal: bool,
    /// Require controls
    #[arg(long, value_name = "CONTROL,…", value_delimiter = ',', action = ArgAction::Append)]
    require: Vec<Control>,
    /// Run and record even when a requested control is not available
    #[arg(long)]
    best_effort: bool,
    /// Record arguments and output as they are, instead of sealed
    #[arg(long)]
    clear: bool,
    /// Allow the native runtime and templates, which isolate nothing by themselves
    #[arg(long)]
    allow_native: bool,
    /// Write events as JSON lines to a descriptor or file
    #[arg(long, value_name = "FD|FILE")]
    events: Option<String>,
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

/// Why a command line cannot be carried out.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum ExecError {
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

impl ExecArgs {
    /// The policy with this command line on top.
    pub(super) fn policy(&self) -> Result<Policy, ExecError> {
        let wrong = |flag, value: &str, why: String| ExecError::Value {
            flag,
            value: value.to_owned(),
            why,
        };
        let policy = load_policy(&self.policy)?;
        let binds = |flag: &'static str, list: &[String]| -> Result<Vec<Bind>, ExecError> {
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
    pub(super) fn job(&self, evidence: Vec<PathBuf>) -> Result<Job, ExecError> {
        let mut secrets = Vec::new();
        for name in &self.secret {
            use std::os::unix::ffi::OsStringExt as _;
            let wrong = |why: &str| ExecError::Value {
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
        })
    }

    /// The control that the tests' switch leaves out.
    fn ablate(&self) -> Result<Option<Control>, ExecError> {
        let read = |name: String| {
            name.parse::<Control>().map_err(|error| ExecError::Value {
                flag: "ablate",
                value: name,
                why: error.to_string(),
            })
        };
        crate::sys::fault::left_out().map(read).transpose()
    }

    /// The runtimes that may be meant, by preference.
    pub(super) fn runtimes(&self) -> Result<Vec<Box<dyn Runtime>>, ExecError> {
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
    fn refuse_what_is_not_shown(&self, runtime: &dyn Runtime) -> Result<(), ExecError> {
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
            Some((flag, value)) => Err(ExecError::Value {
                flag,
                value: value.clone(),
                why: format!(
                    "the runtime {} shows the host's files as they are, and no others",
                    runtime.id()
                ),
            }),
        }
    }

    /// The runtime that is meant.
    pub(super) fn runtime(&self) -> Result<Box<dyn Runtime>, ExecError> {
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

pub(super) fn run(global: &Global, args: ExecArgs) -> u8 {
    match prepare_and_run(global, &args) {
        Ok(code) => code,
        Err(Failure::Exec(error)) => {
            say(error);
            FAILED
        }
        Err(Failure::Ledger(error)) => fail(error),
        Err(Failure::Run(error)) => fail(error),
        Err(Failure::Io(error)) => {
            report::error_line(&error.to_string());
            FAILED
        }
    }
}

/// Says why a command line cannot be carried out, a policy's mistakes one by one.
pub(super) fn say(error: ExecError) {
    match error {
        ExecError::Policy(error) => report::policy_error(error),
        other => report::diagnostic(other),
    }
}

fn fail(error: impl miette::Diagnostic + Send + Sync + 'static) -> u8 {
    report::diagnostic(error);
    FAILED
}

enum Failure {
    Exec(ExecError),
    Ledger(ledgers::LedgerError),
    Run(crate::run::RunError),
    Io(io::Error),
}

/// How long a line may wait for its reader until the run is recorded: signals are the workload's meanwhile, and it is the
/// deadline's time.
const BEFORE_END: Duration = Duration::from_millis(500);

fn prepare_and_run(global: &Global, args: &ExecArgs) -> Result<u8, Failure> {
    report::wait_within(BEFORE_END);
    let runtime = args.runtime().map_err(Failure::Exec)?;
    runtime.get_ready();
    let policy = args.policy().map_err(Failure::Exec)?;
    // What cannot be carried out is said before a ledger is begun.
    let job = args.job(Vec::new()).map_err(Failure::Exec)?;
    let mut events = args
        .events
        .as_deref()
        .map(Events::open)
        .transpose()
        .map_err(|error| Failure::Exec(error.into()))?;
    let place = ledgers::Place::of(global).map_err(Failure::Ledger)?;
    let stamp = ledgers::stamp().map_err(Failure::Ledger)?;
    // The launch already sweeps places that a killed run's tree may have mounted.
    place.await_remains();
    let open = || place.open(global, true, args.accept_rollback, &stamp);
    let mut ledger = Ledger::to_open(&open);
    if !place.is_begun() {
        // What a plan keeps out of reach must be there when the plan is made.
        ledger
            .store()
            .map_err(|error| Failure::Ledger(error.into()))?;
    }
    let stdin = Stdin::choose(args.interactive || args.terminal).map_err(Failure::Io)?;
    let now = || crate::host::now(&stamp.clock.boot_id).map_err(io::Error::other);
    let request = Request {
        policy,
        evidence: &|| ledgers::evidence(global, true),
        job,
        runtime: runtime.as_ref(),
        host: &crate::host::gather,
        now: &now,
        clear: args.clear,
        stdin,
        measure: None,
    };
    let mut watcher = Watcher {
        quiet: global.quiet,
        events: events.as_mut(),
    };
    let finished = execute(request, &mut ledger, &mut watcher).map_err(Failure::Run)?;
    let store = ledger
        .store()
        .map_err(|error| Failure::Ledger(error.into()))?;
    ledgers::tell(global, store);
    if let Some(events) = &mut events {
        events.end(&finished);
    }
    tell(global, args, &finished, store.root());
    crate::sys::fault::point("before exit");
    Ok(status(&finished))
}

fn tell(global: &Global, args: &ExecArgs, finished: &Finished, folder: &Path) {
    let result = &finished.body.result;
    let sequence = finished.end.sequence;
    if result.outcome == Outcome::NotExecuted {
        let obstacle = finished.obstacle.as_deref().unwrap_or_default();
        let program = &finished.program;
        let text = match result.reason {
            Some(NotExecuted::Refused) => format!(
                "refused, record {sequence}: {obstacle}\n  way out: docs/gaps.md says what each reason means{}{}",
                doctor_hint(obstacle),
                if finished.runs_without {
                    "; --best-effort runs without and records it"
                } else {
                    ""
                }
            ),
            Some(NotExecuted::NotFound) => format!(
                "not found inside, record {sequence}: {program}{}",
                show_how(&args.command)
            ),
            Some(NotExecuted::NotExecutable) => {
                format!(
                    "not executable, record {sequence}: {program} ({})",
                    errno(result.errno)
                )
            }
            Some(NotExecuted::LaunchFailed) | None => {
                let mut text = format!("could not launch, record {sequence}: {obstacle}");
                let hint = doctor_hint(obstacle);
                if !hint.is_empty() {
                    text.push_str("\n  way out: docs/gaps.md says what each reason means");
                    text.push_str(hint);
                }
                text
            }
        };
        report::error_line(&text);
        return;
    }
    let lost = &finished.controls.unsupported;
    if !lost.is_empty() {
        report::warning_line(&format!("not in force: {}", super::plan::by_reason(lost)));
    }
    if !global.quiet {
        let verdict = finished.body.verdict;
        let how = match (verdict, result.exit_code, result.signal) {
            (Verdict::Failed, Some(code), _) => Some(format!("exit status {code}")),
            (Verdict::Failed, _, Some(signal)) => Some(format!("signal {signal}")),
            _ => None,
        };
        let why: Vec<String> = how.into_iter().chain(out_of_memory(finished)).collect();
        let what = match why.as_slice() {
            [] => String::new(),
            why => format!(" ({})", why.join("; ")),
        };
        report::notice_line(&format!(
            "record {sequence}: {verdict}{what}, in {}",
            folder.display()
        ));
    }
}

/// That memory ran out, in words: a signal or a status of the workload's own does not tell.
fn out_of_memory(finished: &Finished) -> Option<String> {
    let kills = finished.body.observed.as_ref()?.oom_kills?.value();
    if kills == 0 {
        return None;
    }
    let declared = &finished.controls.declared;
    let limit = declared
        .iter()
        .find(|declared| declared.control == Control::Memory)
        .and_then(|declared| declared.value.as_deref());
    let limit = limit.map_or_else(String::new, |limit| format!(" at its limit of {limit}"));
    let processes = if kills == 1 { "process" } else { "processes" };
    Some(format!(
        "memory ran out{limit}, the kernel killed {kills} {processes}"
    ))
}

/// Most denied calls that are named on the line about them; the record has all.
const NAMED: usize = 8;

/// What was denied, the most frequent first.
fn denied_calls(list: &[Violation]) -> String {
    let mut calls: Vec<&Violation> = list.iter().collect();
    calls.sort_by_key(|it| (std::cmp::Reverse(it.count.value()), &it.call));
    let named = calls.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|it| format!("{} {}", it.call, it.count))
        .collect();
    let others = match calls.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    format!("denied system calls: {}{others}", named.join(", "))
}

/// The doctor knows about what the kernel refused, not about what this version lacks.
fn doctor_hint(obstacle: &str) -> &'static str {
    let of_this_host = [
        Reason::NO_USER_NAMESPACE,
        Reason::NAMESPACE_REFUSED,
        Reason::MECHANISM_FAILED,
        Reason::SUPPLEMENTARY_GROUPS_KEPT,
        Reason::RUNTIME_MISSING,
        Reason::LAUNCHER_FAILED,
        Reason::NO_RESOURCE_GROUPS,
        Reason::RESOURCE_GROUPS_NOT_WRITABLE,
        Reason::CONTROLLER_NOT_DELEGATED,
    ];
    if of_this_host
        .iter()
        .any(|reason| obstacle.contains(reason.as_str()))
    {
        ", and `runner doctor` what on this host stands in the way"
    } else {
        ""
    }
}

fn errno(number: Option<i32>) -> String {
    number.map_or_else(String::new, |number| {
        crate::sys::errno_name(&io::Error::from_raw_os_error(number))
    })
}

/// Where the program is outside, and which --read would show it.
fn show_how(command: &[OsString]) -> String {
    let Some(name) = command.first().map(Path::new) else {
        return String::new();
    };
    let found = if name.components().count() > 1 {
        std::path::absolute(name).ok().filter(|path| path.is_file())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|path| is_program(path))
    };
    found.map_or_else(String::new, |path| {
        let folder = path.parent().unwrap_or(Path::new("/")).display();
        format!(
            "\n  it exists outside: `--read {folder} -- {}` would show and run it",
            path.display()
        )
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Tells people and programs what happens.
struct Watcher<'a> {
    quiet: bool,
    events: Option<&'a mut Events>,
}

impl Observer for Watcher<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(events) = &mut self.events {
            events.write(event);
        }
        match event {
            Event::Remark(text) if !self.quiet => report::notice_line(text),
            Event::Cut(stream) => report::warning_line(&format!(
                "{stream} is past its cap; the rest is counted and hashed, not shown"
            )),
            Event::Denied(list) if !self.quiet => report::notice_line(&denied_calls(list)),
            Event::Recorded { until } => report::wait_until(*until),
            Event::Remark(_) | Event::Denied(_) | Event::Started { .. } | Event::Ended { .. } => {}
        }
    }
}
