//! THE run: one linear function from a policy to an execution record.

use std::io;

use ledger::bytes::canon::{U53, WriteLineError};
use ledger::bytes::hash::Hash;
use ledger::bytes::key::{PrivateKeyError, random_bytes};
use ledger::bytes::time::Stamp;
use ledger::facts::control::{Controls, Unsupported};
use ledger::facts::execution::{
    Cleanup, Execution, NotExecuted, Observed, Outcome, PolicyRef, RunId, RunResult, Verdict,
};
use ledger::facts::host::HostFacts;
use ledger::facts::policy::{Mode, Policy};
use ledger::file::durable::FileError;
use ledger::file::store::{Appended, OpenLedgerError, RunLock, Store};

use super::artifacts::{INTERRUPTED, Limits, Pace};
use super::observe::Places;
use super::output::Stream;
use super::record::{RecordError, Recorder};
use super::relay::Stdin;
use super::remains;
use super::signals::Signals;
use super::streams::{self, Measured};
use super::supervise::{End, Seen};
use crate::host::GatherHostError;
use crate::plan::{self, CompileError, Job, Launch, LaunchError, Plan, Program, Runtime};
use crate::sys::fault;
use crate::sys::process::Ended;

/// What is to be run and how.
pub struct Request<'a> {
    /// The policy in force, command line merged in.
    pub policy: Policy,
    /// What is to run.
    pub job: Job,
    /// What isolates.
    pub runtime: &'a dyn Runtime,
    /// Facts of this host; those that the ledger knows may be believed where they cannot have changed.
    pub host: &'a dyn Fn(Option<&HostFacts>) -> Result<HostFacts, GatherHostError>,
    /// Both clocks, now.
    pub now: &'a dyn Fn() -> io::Result<Stamp>,
    /// Record argv and output as they are, not sealed.
    pub clear: bool,
    /// The caller's standard input.
    pub stdin: Stdin,
}

/// The ledger of a run: opened when it is needed first, which is while pid 1 builds the sandbox.
pub struct Ledger<'a> {
    store: Option<Store>,
    open: &'a dyn Fn() -> Result<Store, OpenLedgerError>,
}

impl<'a> Ledger<'a> {
    /// A ledger that `open` opens.
    #[must_use]
    pub fn to_open(open: &'a dyn Fn() -> Result<Store, OpenLedgerError>) -> Self {
        Self { store: None, open }
    }

    /// The open ledger.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn store(&mut self) -> Result<&mut Store, OpenLedgerError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => (self.open)()?,
        };
        Ok(self.store.insert(store))
    }
}

impl std::fmt::Debug for Ledger<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ledger").field(&self.store).finish()
    }
}

/// What happens during a run, for whoever watches.
#[derive(Debug)]
pub enum Event<'a> {
    /// The start record stands; the workload runs.
    Started {
        /// The run.
        run: RunId,
        /// Its start record.
        start: Appended,
        /// What took effect.
        controls: &'a Controls,
    },
    /// Something did not go as intended and cost no control.
    Remark(&'a str),
    /// The execution record is on the disk; what follows is not to wait for a reader longer than this.
    Recorded {
        /// For [`super::write_until`].
        until: Option<std::time::Duration>,
    },
    /// A stream passed its cap; the rest is counted and hashed, not passed on.
    Cut(Stream),
    /// The execution record is on the disk.
    Ended {
        /// The run.
        run: RunId,
        /// Its start record.
        start: Appended,
        /// Its execution record.
        end: Appended,
        /// What it says.
        body: &'a Execution,
    },
}

/// Whoever watches a run.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);
}

/// A run that is recorded.
#[derive(Debug)]
pub struct Finished {
    /// Its start record.
    pub start: Appended,
    /// Its execution record.
    pub end: Appended,
    /// What the execution record says.
    pub body: Execution,
    /// What was asked and what was in force.
    pub controls: Controls,
    /// What the program was, and what stood in its way.
    pub program: String,
    /// Why it was refused or could not be launched, for people.
    pub obstacle: Option<String>,
    /// The signal by which the operator ended it.
    pub ended_by: Option<i32>,
}

/// Why a run could not be recorded, or not begun.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum RunError {
    /// No plan.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Compile(#[from] CompileError),
    /// The ledger cannot be opened.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Ledger(#[from] OpenLedgerError),
    /// The record cannot be kept.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    /// The workload ran, and what came of it is not recorded.
    #[error(
        "the workload ran, and its execution record is lost: only record {start} says that it began"
    )]
    #[diagnostic(code(runner::run::lost))]
    Lost {
        /// Its start record.
        start: U53,
        /// Why.
        #[source]
        #[diagnostic_source]
        source: RecordError,
    },
    /// The effective policy cannot be written.
    #[error("cannot write the effective policy")]
    #[diagnostic(code(runner::run::policy))]
    Policy(#[from] WriteLineError),
    /// No random bytes.
    #[error(transparent)]
    #[diagnostic(code(runner::run::random))]
    Random(#[from] PrivateKeyError),
    /// The ledger's newest host record cannot be read.
    #[error("cannot read the ledger")]
    #[diagnostic(code(runner::run::newest_host))]
    NewestHost(#[from] FileError),
    /// The host does not tell what it is.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Host(#[from] GatherHostError),
    /// The runner's own system calls failed.
    #[error("cannot {attempt}")]
    #[diagnostic(code(runner::run::system))]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The error.
        source: io::Error,
    },
}

fn system(attempt: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::System { attempt, source }
}

/// Runs a workload and records it.
///
/// # Errors
/// Nothing was run, or its record could not be kept; a workload that fails is no error.
pub fn execute(
    request: Request<'_>,
    ledger: &mut Ledger<'_>,
    observer: &mut dyn Observer,
) -> Result<Finished, RunError> {
    let Request {
        policy,
        job,
        runtime,
        host,
        now,
        clear,
        stdin,
    } = request;
    let now = || now().map_err(system("read the clocks"));
    let signals = Signals::block().map_err(system("receive signals by descriptor"))?;
    let (inner, outer) = streams::connect(job.terminal, stdin).map_err(system("make pipes"))?;
    // Pid 1 starts while the plan is made; it waits for the plan.
    let begun = runtime.begin(&policy, &job, inner);
    let plan = plan::compile(policy, job, runtime)?;
    if plan.is_refused() {
        drop(begun);
        let announced = signals
            .allowed(|| announce(ledger, &plan, host, clear, &now))
            .map_err(system("let signals through"))?;
        let (mut recorder, _lock) = announced?;
        let no_run = NoRun {
            controls: plan.controls_of_nothing(),
            reason: NotExecuted::Refused,
            errno: None,
            obstacle: missing(&plan.missing()),
        };
        return not_executed(&mut recorder, &plan, runtime, no_run, &now);
    }
    fault::point("before launch");
    // The ledger is opened, and what the start record refers to written, while pid 1 builds the sandbox. The workload
    // waits for the start record.
    let mut ledger = Some(ledger);
    let mut announced = None;
    let mut announce_once = || {
        if let Some(ledger) = ledger.take() {
            let allowed = signals.allowed(|| announce(ledger, &plan, host, clear, &now));
            let allowed = allowed.map_err(system("let signals through"));
            announced = Some(allowed.and_then(|announced| announced));
        }
    };
    let launched = runtime.launch(&plan, begun, &mut announce_once);
    // A launch that failed early did not come to it.
    announce_once();
    let (launch, (mut recorder, lock)) = match (launched, announced) {
        (Ok(launch), Some(Ok(announced))) => (launch, announced),
        (Ok(launch), Some(Err(error))) => {
            end(&launch);
            return Err(error);
        }
        (Err(error), Some(Ok((mut recorder, _lock)))) => {
            return not_executed(&mut recorder, &plan, runtime, obstacle(&plan, &error), &now);
        }
        (Err(_), Some(Err(error))) => return Err(error),
        (launched, None) => {
            if let Ok(launch) = &launched {
                end(launch);
            }
            let source = io::Error::other("it was not tried");
            return Err(system("announce the run")(source));
        }
    };
    fault::point("after launch");
    let run = recorder.run;
    let controls = launch.effect.controls(&plan);
    if let Some(no_run) = stands_in_the_way(&plan, &launch, &controls) {
        end(&launch);
        return not_executed(&mut recorder, &plan, runtime, no_run, &now);
    }
    if let Err(error) = remains::note(&lock, launch.init_pid) {
        end(&launch);
        return Err(system("note pid 1 in the lock of the run")(error));
    }
    for remark in &launch.effect.remarks {
        observer.event(&Event::Remark(remark));
    }
    let limits = Limits::default();
    let places = Places::remember(&plan, &launch, &limits, &|| {
        // The signal is the workload's, which runs as soon as the snapshot ends.
        if signals.end_is_asked() {
            Pace::Stop(INTERRUPTED)
        } else {
            Pace::Whole
        }
    });
    let start = recorder.start(
        &plan,
        runtime,
        Some(&launch.effect),
        controls.clone(),
        &now()?,
    );
    let start = match start {
        Ok(start) => start,
        Err(error) => {
            end(&launch);
            return Err(error.into());
        }
    };
    fault::point("after start record");
    observer.event(&Event::Started {
        run,
        start,
        controls: &controls,
    });
    let measured = outer
        .watch(&plan, &launch, recorder.store, signals)
        .map_err(system("watch the workload"))?;
    let Measured {
        seen,
        stdout,
        stderr,
        mut unmeasured,
        cut,
        unread,
    } = measured;
    let host_uid = launch.effect.host_uid;
    let program = match &launch.effect.program {
        Program::Found { path, .. } | Program::Unusable { path, .. } => path.clone(),
    };
    let init = launch.init;
    // Before the scan: what the launch put on the host for the time of the run goes with it.
    drop((
        launch.held,
        launch.control,
        launch.terminal,
        launch.workspace,
    ));
    let lost = |source| RunError::Lost {
        start: start.sequence,
        source,
    };
    let (artifacts, unseen) = places
        .list(&limits, &|| unread.pace(), &mut recorder)
        .map_err(lost)?;
    unmeasured.extend(unseen);
    let result = result(&seen);
    let mut body = Execution {
        artifacts: Some(artifacts),
        cleanup: seen.survivors.map(|count| Cleanup {
            survivors_killed: Some(count.into()),
        }),
        observed: host_uid.map(|uid| Observed {
            cpu_us: None,
            memory_peak_bytes: None,
            oom_kills: None,
            pids_peak: None,
            source: "procfs".to_owned(),
            uid: Some(uid),
        }),
        verdict: Verdict::of(&controls, &result),
        result,
        start: start.sequence,
        unmeasured: (!unmeasured.is_empty()).then_some(unmeasured),
    };
    let (stdout, stderr) = if body.result.outcome == Outcome::NotExecuted {
        (None, None)
    } else {
        (stdout, stderr)
    };
    fault::point("before execution record");
    let ended = recorder.execution(body.clone(), stdout, stderr, &now()?);
    fault::point("after execution record");
    // Waited for already, or nearly gone: nothing of the sandbox is left when this returns.
    let _ = crate::sys::process::wait(&init);
    let ended = ended.map_err(lost)?;
    drop(lock);
    // The record stands; from here on a caller that does not read holds up nothing but itself.
    let until = unread.speak_until();
    drop(unread);
    observer.event(&Event::Recorded { until });
    for stream in cut {
        observer.event(&Event::Cut(stream));
    }
    observer.event(&Event::Ended {
        run,
        start,
        end: ended,
        body: &body,
    });
    let obstacle = match seen.end {
        End::NotExecutable(errno) => {
            body.result.errno = Some(errno);
            Some(program.clone())
        }
        End::NotStarted => Some(format!("nothing shows that {program} was executed")),
        _ => None,
    };
    let ended_by = match seen.end {
        End::Operator(signal) => Some(signal),
        _ => None,
    };
    Ok(Finished {
        start,
        end: ended,
        body,
        controls,
        program,
        obstacle,
        ended_by,
    })
}

/// Opens the ledger if it is not, makes sure that a record could be kept, writes what a start record refers to, and
/// marks the run as alive.
fn announce<'a>(
    ledger: &'a mut Ledger<'_>,
    plan: &Plan,
    host: &dyn Fn(Option<&HostFacts>) -> Result<HostFacts, GatherHostError>,
    clear: bool,
    now: &dyn Fn() -> Result<Stamp, RunError>,
) -> Result<(Recorder<'a>, RunLock), RunError> {
    let store = ledger.store()?;
    store.ready(&now()?).map_err(RecordError::from)?;
    let facts = host(store.newest_host()?.as_ref())?;
    let blob = plan.policy.effective_blob()?;
    let sha256 = store.put_blob(&blob).map_err(RecordError::from)?;
    debug_assert_eq!(sha256, Hash::of(&blob));
    let policy = PolicyRef {
        id: plan.policy.id.clone(),
        sha256,
    };
    let run = RunId::from_bytes(random_bytes()?);
    let host = store.host(&facts, &now()?).map_err(RecordError::from)?;
    let lock = store.begin_run(run).map_err(RecordError::from)?;
    let recorder = Recorder {
        store,
        run,
        host,
        policy,
        clear,
    };
    Ok((recorder, lock))
}

/// A requested control that was lost under a strict policy, or a program that cannot run.
fn stands_in_the_way(plan: &Plan, launch: &Launch, controls: &Controls) -> Option<NoRun> {
    let is_lost = |gap: &&Unsupported| controls.requested.contains(&gap.control);
    let lost: Vec<Unsupported> = controls
        .unsupported
        .iter()
        .filter(is_lost)
        .cloned()
        .collect();
    if plan.policy.enforcement.mode == Mode::Strict && !lost.is_empty() {
        let mut controls = controls.clone();
        controls.declared.clear();
        let obstacle = missing(&lost);
        return Some(NoRun {
            controls,
            reason: NotExecuted::Refused,
            errno: None,
            obstacle,
        });
    }
    match &launch.effect.program {
        Program::Unusable {
            path,
            reason,
            errno,
        } => Some(NoRun {
            controls: plan.controls_of_nothing(),
            reason: *reason,
            errno: *errno,
            obstacle: path.clone(),
        }),
        Program::Found { .. } => None,
    }
}

/// Ends a launch that is not to go on, and waits for it.
pub(crate) fn end(launch: &Launch) {
    // Gone already is as good.
    let _ = crate::sys::process::kill(&launch.init, libc::SIGKILL);
    let _ = crate::sys::process::wait(&launch.init);
}

fn missing(gaps: &[Unsupported]) -> String {
    let gaps: Vec<String> = gaps
        .iter()
        .map(|gap| format!("{}: {}", gap.control, gap.reason))
        .collect();
    gaps.join("; ")
}

/// What a launch that did not come about means under this policy.
fn obstacle(plan: &Plan, error: &LaunchError) -> NoRun {
    let mut controls = plan.controls_of_nothing();
    let strict = plan.policy.enforcement.mode == Mode::Strict;
    let reason = match error {
        LaunchError::Namespaces { errno } => {
            let word = format!("{} ({errno})", plan::Reason::NO_USER_NAMESPACE);
            for gap in &mut controls.unsupported {
                if plan.intended.contains_key(&gap.control) {
                    gap.reason.clone_from(&word);
                }
            }
            if strict && !plan.requested.is_empty() {
                NotExecuted::Refused
            } else {
                NotExecuted::LaunchFailed
            }
        }
        LaunchError::Mechanism { lost, .. } => {
            for gap in &mut controls.unsupported {
                if let Some(why) = lost.get(&gap.control) {
                    gap.reason = why.to_string();
                }
            }
            if strict
                && plan
                    .requested
                    .iter()
                    .any(|control| lost.contains_key(control))
            {
                NotExecuted::Refused
            } else {
                NotExecuted::LaunchFailed
            }
        }
        LaunchError::Refused { control, .. } => {
            let word = format!("{} (idmap)", plan::Reason::MECHANISM_FAILED);
            for gap in controls
                .unsupported
                .iter_mut()
                .filter(|gap| gap.control == *control)
            {
                gap.reason.clone_from(&word);
            }
            NotExecuted::Refused
        }
        LaunchError::Interrupted { .. }
        | LaunchError::Maps(_)
        | LaunchError::Step { .. }
        | LaunchError::System { .. } => NotExecuted::LaunchFailed,
    };
    NoRun {
        controls,
        reason,
        errno: None,
        obstacle: chain(error),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Why a workload does not run.
struct NoRun {
    controls: Controls,
    reason: NotExecuted,
    errno: Option<i32>,
    obstacle: String,
}

/// Records a run that did not come about.
fn not_executed(
    recorder: &mut Recorder<'_>,
    plan: &Plan,
    runtime: &dyn Runtime,
    no_run: NoRun,
    now: &dyn Fn() -> Result<Stamp, RunError>,
) -> Result<Finished, RunError> {
    let NoRun {
        controls,
        reason,
        errno,
        obstacle,
    } = no_run;
    let start = recorder.start(plan, runtime, None, controls.clone(), &now()?)?;
    let result = RunResult {
        duration_us: None,
        errno,
        exit_code: None,
        outcome: Outcome::NotExecuted,
        reason: Some(reason),
        signal: None,
        stderr: None,
        stdout: None,
    };
    let body = Execution {
        artifacts: None,
        cleanup: None,
        observed: None,
        verdict: Verdict::of(&controls, &result),
        result,
        start: start.sequence,
        unmeasured: None,
    };
    let end = recorder.execution(body.clone(), None, None, &now()?)?;
    let program = plan
        .job
        .argv
        .first()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    Ok(Finished {
        start,
        end,
        body,
        controls,
        program,
        obstacle: Some(obstacle),
        ended_by: None,
    })
}

fn result(seen: &Seen) -> RunResult {
    let micros = U53::saturating(u64::try_from(seen.duration.as_micros()).unwrap_or(u64::MAX));
    let mut result = RunResult {
        duration_us: Some(micros),
        errno: None,
        exit_code: None,
        outcome: Outcome::Interrupted,
        reason: None,
        signal: None,
        stderr: None,
        stdout: None,
    };
    match seen.end {
        End::Main(Ended::Exited(code)) => {
            result.outcome = Outcome::Exited;
            result.exit_code = Some(code);
        }
        End::Main(Ended::Signaled(signal)) => {
            result.outcome = Outcome::Signaled;
            result.signal = Some(signal);
        }
        End::Deadline => result.outcome = Outcome::Timeout,
        End::Operator(_) | End::Lost(_) => {}
        End::NotExecutable(errno) => {
            result.outcome = Outcome::NotExecuted;
            result.reason = Some(NotExecuted::NotExecutable);
            result.errno = Some(errno);
            result.duration_us = None;
        }
        End::NotStarted => {
            result.outcome = Outcome::NotExecuted;
            result.reason = Some(NotExecuted::LaunchFailed);
            result.duration_us = None;
        }
    }
    result
}
