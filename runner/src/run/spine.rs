//! THE run: one linear function from a policy to an execution record.

use std::io;
use std::os::fd::OwnedFd;

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::bytes::key::random_bytes;
use ledger::bytes::time::Stamp;
use ledger::facts::control::Control;
use ledger::facts::execution::{
    Cleanup, Execution, NotExecuted, Observed, Outcome, PolicyRef, RunId, RunResult, Unmeasured,
    Verdict,
};
use ledger::facts::host::HostFacts;
use ledger::file::store::RunLock;

use super::artifacts::{INTERRUPTED, Limits, Pace};
use super::measured::Measure;
use super::observe::Places;
use super::record::{RecordError, Recorder, Streams};
use super::refusal::{NoRun, missing, not_executed, obstacle, stands_in_the_way};
use super::remains;
use super::request::{Event, Finished, Ledger, Observer, Request, RunError, system};
use super::signals::Signals;
use super::streams::{self, Measured};
use super::supervise::{End, Seen};
use super::violations::{Violations, micros};
use crate::host::GatherHostError;
use crate::mechanism::group::{Figures, Group};
use crate::plan::{self, Launch, Plan, Program};
use crate::sys::fault;
use crate::sys::filter;
use crate::sys::process::{self, Ended};

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
        evidence,
        mut job,
        runtime,
        host,
        now,
        clear,
        stdin,
        measure,
    } = request;
    let is_probe = measure.is_some();
    let stop = measure.as_ref().map(|measure| measure.stop.clone());
    let mut measure = Some(measure);
    let now = || now().map_err(system("read the clocks"));
    let signals = match stop {
        Some(stop) => Signals::by(stop),
        None => Signals::block().map_err(system("receive signals by descriptor"))?,
    };
    let (inner, outer) = streams::connect(job.terminal, stdin).map_err(system("make pipes"))?;
    // Pid 1 starts while the plan is made; it waits for the plan.
    let begun = runtime.begin(&policy, &job, inner);
    job.evidence = evidence();
    let plan = plan::compile(policy, job, runtime)?;
    if plan.is_refused() {
        drop(begun);
        let announced = signals
            .allowed(|| announce(ledger, &plan, host, clear, measure.take().flatten(), &now))
            .map_err(system("let signals through"))?;
        let (mut recorder, _lock) = announced?;
        let no_run = NoRun {
            controls: plan.controls_of_nothing(),
            reason: NotExecuted::Refused,
            errno: None,
            obstacle: missing(&plan.missing()),
            // Without its program it runs nothing at all.
            runs_without: runtime.is_missing().is_none(),
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
            let measure = measure.take().flatten();
            let allowed = signals.allowed(|| announce(ledger, &plan, host, clear, measure, &now));
            let allowed = allowed.map_err(system("let signals through"));
            announced = Some(allowed.and_then(|announced| announced));
        }
    };
    // Before anything is put into a folder of the caller's: who has enough of waiting for the ledger leaves nothing there.
    if plan.tree.binds.iter().any(|bind| plan.tree.protects(bind)) {
        announce_once();
    }
    let launched = runtime.launch(&plan, begun, &mut announce_once);
    // A launch that failed early did not come to it.
    announce_once();
    let (mut launch, (mut recorder, lock)) = match (launched, announced) {
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
    let violations = Violations::new(launch.effect.take_listener());
    let store = &mut *recorder.store;
    let measured = outer
        .watch(&plan, &launch, violations, store, signals, is_probe)
        .map_err(system("watch the workload"))?;
    let Measured {
        seen,
        stdout,
        stderr,
        remembered,
        mut unmeasured,
        violations,
        cut,
        unread,
    } = measured;
    let host_uid = launch.effect.host_uid;
    // Its last process is gone with it, or pid 1 was the last one.
    let rests_on_the_namespace = [Control::Process, Control::Timeout]
        .iter()
        .any(|control| launch.effect.declares(*control));
    let tree_ended = launch.effect.owns_tree
        && rests_on_the_namespace
        && matches!(seen.end, End::Main(_) | End::Deadline)
        && launch.first.as_ref().is_none_or(process::has_ended);
    let program = match &launch.effect.program {
        Program::Found { path, .. } | Program::Unusable { path, .. } => path.clone(),
    };
    let (init, leaving) = (launch.init, launch.leaving);
    // Of its own groups, which go when the last process has.
    let group = launch.group;
    let figures = group.as_ref().map(Group::figures);
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
    let observed = observed(host_uid, figures, &mut unmeasured);
    let denied = match violations {
        // What never ran called nothing.
        _ if result.outcome == Outcome::NotExecuted => None,
        Ok(denied) => {
            // Of two answers the kernel takes the stricter one, and that is never the one that asks.
            if filter::is_under_one() {
                unmeasured.push(about_violations(Execution::OUTER_FILTER));
            }
            Some(denied)
        }
        Err(reason) => {
            unmeasured.push(about_violations(reason));
            None
        }
    };
    let violations = denied.clone().map(|list| recorder.short_list(list));
    let mut body = Execution {
        artifacts: Some(artifacts),
        cleanup: seen.survivors.map(|count| Cleanup {
            survivors_killed: Some(count.into()),
        }),
        observed,
        verdict: Verdict::of(&controls, &result),
        result,
        start: start.sequence,
        unmeasured: (!unmeasured.is_empty()).then_some(unmeasured),
        violations: violations.transpose().map_err(lost)?,
    };
    let (stdout, stderr) = if body.result.outcome == Outcome::NotExecuted {
        (None, None)
    } else {
        (stdout, stderr)
    };
    fault::point("before execution record");
    let streams = Streams {
        stdout,
        stderr,
        remembered,
        cut: cut.clone(),
        tree_ended,
        late: seen.late,
    };
    let ended = recorder.end(body.clone(), streams, &now()?);
    fault::point("after execution record");
    // Waited for already, or nearly gone: nothing of the sandbox is left when this returns.
    reap(&init, leaving.as_ref());
    let removed = group.map_or(Ok(()), Group::remove);
    let (ended, probed) = ended.map_err(lost)?;
    drop(lock);
    // The record stands; from here on a caller that does not read holds up nothing but itself.
    let until = unread.speak_until();
    drop(unread);
    observer.event(&Event::Recorded { until });
    if let Err(failure) = removed {
        observer.event(&Event::Remark(&format!(
            "a control group is left: {failure}"
        )));
    }
    for stream in cut {
        observer.event(&Event::Cut(stream));
    }
    if let Some(denied) = denied.filter(|denied| !denied.is_empty()) {
        observer.event(&Event::Denied(&denied));
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
        runs_without: false,
        ended_by,
        probed,
    })
}

/// Opens the ledger if it is not, makes sure that a record could be kept, writes what a start record refers to, and
/// marks the run as alive.
fn announce<'a, 'm>(
    ledger: &'a mut Ledger<'_>,
    plan: &Plan,
    host: &dyn Fn(Option<&HostFacts>) -> Result<HostFacts, GatherHostError>,
    clear: bool,
    measure: Option<Measure<'m>>,
    now: &dyn Fn() -> Result<Stamp, RunError>,
) -> Result<(Recorder<'a, 'm>, RunLock), RunError> {
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
        measure,
        started: None,
    };
    Ok((recorder, lock))
}

/// Ends a launch that is not to go on, and waits for it.
pub(crate) fn end(launch: &Launch) {
    // Gone already is as good.
    for one in launch.first.iter().chain([&launch.init]) {
        let _ = process::kill(one, libc::SIGKILL);
    }
    reap(&launch.init, launch.leaving.as_ref());
}

/// Waits for the processes of a launch that nobody has waited for yet.
/// Why it is not known, or not all known, what was denied.
fn about_violations(reason: impl Into<String>) -> Unmeasured {
    Unmeasured {
        field: "violations".to_owned(),
        reason: reason.into(),
    }
}

fn reap(init: &OwnedFd, leaving: Option<&OwnedFd>) {
    for one in [Some(init), leaving].into_iter().flatten() {
        // ECHILD: reaped before.
        let _ = process::wait(one);
    }
}

/// What was seen of the tree from outside: its user by /proc, the rest by its own control groups.
fn observed(
    uid: Option<u32>,
    figures: Option<Figures>,
    unmeasured: &mut Vec<Unmeasured>,
) -> Option<Observed> {
    let figures = figures.unwrap_or_default();
    unmeasured.extend(figures.unmeasured.into_iter().map(|(field, reason)| {
        let field = field.to_owned();
        Unmeasured { field, reason }
    }));
    let sources: Vec<&str> = uid
        .map(|_| "procfs")
        .into_iter()
        .chain(figures.sources)
        .collect();
    let number = |figure: Option<u64>| figure.map(U53::saturating);
    (!sources.is_empty()).then(|| Observed {
        cpu_us: number(figures.cpu_us),
        memory_peak_bytes: number(figures.memory_peak_bytes),
        oom_kills: number(figures.oom_kills),
        pids_peak: number(figures.pids_peak),
        source: sources.join(" "),
        uid,
    })
}

fn result(seen: &Seen) -> RunResult {
    let mut result = RunResult {
        duration_us: Some(micros(seen.duration)),
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
