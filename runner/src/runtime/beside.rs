//! What the runtimes share that are programs of somebody else's beside the sandbox: the talk with the launcher
//! (`init::launcher`) until the gate stands.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use ledger::facts::control::Control;

use super::launch;
use crate::init::wire::{self, LauncherReport, Report, Spec, ToInit};
use crate::mechanism::group::Group;
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{LaunchError, Plan, Reason, Why};
use crate::sys::process;

/// What the launcher said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) made: LauncherReport,
    pub(super) report: Report,
    pub(super) terminal: Option<OwnedFd>,
    /// The sandbox's first process.
    pub(super) first: OwnedFd,
}

/// Hands the launcher its specification and takes what it says; `not_built` says what it means that there is no sandbox.
pub(super) fn exchange(
    control: &UnixStream,
    spec: &Spec,
    group: Option<&Group>,
    (planted, plan): (&[OwnedFd], &Plan),
    meanwhile: &mut dyn FnMut(),
    not_built: &dyn Fn(&Failure, Outcomes) -> LaunchError,
) -> Result<Said, LaunchError> {
    let until = Instant::now() + launch::REPORT_WITHIN;
    let others = planted.iter().chain(plan.job.caller_terminal.as_deref());
    launch::hand_over(control, spec, group, others)?;
    meanwhile();
    launch::await_report(control, until)?;
    let made: LauncherReport =
        wire::receive(control).map_err(|error| launch::before_report(&error))?;
    if let Some(failure) = made.fatal {
        return Err(not_built(&failure, Outcomes::default()));
    }
    // It waits, alone in its namespaces: this is the place to put it under what is to hold for all that will run there.
    let first = process::open(made.first);
    if let Err(error) = wire::send(control, &ToInit::Build) {
        return Err(launch::before_report(&error));
    }
    launch::await_report(control, until)?;
    let report: Report = wire::receive(control).map_err(|error| launch::before_report(&error))?;
    if let Some(failure) = report.fatal {
        return Err(not_built(&failure, report.outcomes));
    }
    // Where it was gone by then the launcher has just said why.
    let first = first.map_err(|error| LaunchError::Step {
        what: Failure::call("find the sandbox's first process", &error).to_string(),
    })?;
    let terminal = launch::take_terminal(control, &report)?;
    Ok(Said {
        made,
        report,
        terminal,
        first,
    })
}

/// What it means that the program could not build the sandbox: which intended controls rest on that.
pub(super) fn not_built(
    plan: &Plan,
    failure: &Failure,
    outcomes: Outcomes,
    rests_on_it: impl Fn(Control) -> bool,
) -> LaunchError {
    let what = failure.to_string();
    let controls = plan.intended.keys().copied();
    let lost = controls.filter(|control| rests_on_it(*control));
    let lost = lost.map(|control| {
        let why = Why {
            reason: Reason::LAUNCHER_FAILED,
            detail: Some(what.clone()),
        };
        (control, why)
    });
    LaunchError::Mechanism {
        lost: lost.collect(),
        what,
        outcomes,
    }
}
