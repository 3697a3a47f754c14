//! A run that does not come about: why, and the two records that say so.

use ledger::bytes::time::Stamp;
use ledger::facts::control::{Controls, Unsupported};
use ledger::facts::execution::{Execution, NotExecuted, Outcome, RunResult, Verdict};
use ledger::facts::policy::Mode;

use super::record::{Recorder, Streams};
use super::request::{Finished, RunError};
use crate::plan::{self, Launch, LaunchError, Plan, Program, Runtime};

/// Why a workload does not run.
pub(super) struct NoRun {
    pub(super) controls: Controls,
    pub(super) reason: NotExecuted,
    pub(super) errno: Option<i32>,
    pub(super) obstacle: String,
    /// Whether it would run without the controls that are missing.
    pub(super) runs_without: bool,
}

/// A requested control that was lost under a strict policy, or a program that cannot run.
pub(super) fn stands_in_the_way(
    plan: &Plan,
    launch: &Launch,
    controls: &Controls,
) -> Option<NoRun> {
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
            runs_without: true,
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
            runs_without: false,
        }),
        Program::Found { .. } => None,
    }
}

/// `memory, cpu: REASON; disk: ANOTHER`.
pub(super) fn missing(gaps: &[Unsupported]) -> String {
    let said: Vec<String> = plan::by_reason(gaps)
        .iter()
        .map(|(reason, controls)| format!("{}: {reason}", controls.join(", ")))
        .collect();
    said.join("; ")
}

/// What a launch that did not come about means under this policy.
pub(super) fn obstacle(plan: &Plan, error: &LaunchError) -> NoRun {
    let mut controls = plan.controls_of_nothing();
    let strict = plan.policy.enforcement.mode == Mode::Strict;
    let mut words: Vec<String> = Vec::new();
    let reason = match error {
        LaunchError::Namespaces { errno } => {
            let word = format!("{} ({errno})", plan::Reason::NO_USER_NAMESPACE);
            for gap in &mut controls.unsupported {
                if plan.intended.contains_key(&gap.control) {
                    gap.reason.clone_from(&word);
                }
            }
            words.push(word);
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
                    words.push(why.reason.to_string());
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
        LaunchError::Refused { control, why, .. } => {
            let word = why.to_string();
            for gap in controls
                .unsupported
                .iter_mut()
                .filter(|gap| gap.control == *control)
            {
                gap.reason.clone_from(&word);
            }
            words.push(word);
            NotExecuted::Refused
        }
        LaunchError::Interrupted { .. }
        | LaunchError::Maps(_)
        | LaunchError::Step { .. }
        | LaunchError::System { .. } => NotExecuted::LaunchFailed,
    };
    // One mechanism can cost several controls.
    words.dedup();
    words.push(chain(error));
    NoRun {
        controls,
        reason,
        errno: None,
        obstacle: words.join(": "),
        runs_without: false,
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// A reason with a further detail; its word stays the first.
fn also(reason: &str, detail: &str) -> String {
    match reason.strip_suffix(')') {
        Some(open) => format!("{open}; {detail})"),
        None => format!("{reason} ({detail})"),
    }
}

/// Records a run that did not come about.
pub(super) fn not_executed(
    recorder: &mut Recorder<'_, '_>,
    plan: &Plan,
    runtime: &dyn Runtime,
    no_run: NoRun,
    now: &dyn Fn() -> Result<Stamp, RunError>,
) -> Result<Finished, RunError> {
    let NoRun {
        mut controls,
        reason,
        errno,
        mut obstacle,
        runs_without,
    } = no_run;
    let is_runtimes = matches!(reason, NotExecuted::Refused | NotExecuted::LaunchFailed);
    if let Some(instead) = runtime.instead().filter(|_| is_runtimes) {
        for gap in &mut controls.unsupported {
            gap.reason = also(&gap.reason, &instead);
        }
        obstacle = format!("{obstacle}; runtime {}, {instead}", runtime.id());
    }
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
        violations: None,
    };
    let (end, probed) = recorder.end(body.clone(), Streams::default(), &now()?)?;
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
        runs_without,
        ended_by: None,
        probed,
    })
}
