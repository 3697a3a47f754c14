//! What bubblewrap said, beside what is seen.

use ledger::facts::control::Control;
use ledger::facts::policy::Nesting;

use super::answers::NO_USER_NAMESPACES;
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{LaunchError, Plan};
use crate::runtime::beside;
use crate::runtime::embedded::prepared::Prepared;
use crate::runtime::program::Installed;

/// Bubblewrap ends at the first thing that it cannot do, and the gate ran: so it did what it was told. Reading back comes after
/// this and takes away what it does not find.
pub(super) fn said_by_launcher(
    plan: &Plan,
    program: &Installed,
    prepared: &Prepared,
    outcomes: &mut Outcomes,
) {
    outcomes.note("proc-mask", Ok(()));
    let protected = match &prepared.unprotected {
        Some(what) => Err(Failure {
            attempt: "make protected paths ready".to_owned(),
            error: what.clone(),
        }),
        None => Ok(()),
    };
    outcomes.note("protect", protected);
    let denies = prepared.spec.deny_user_namespaces && plan.policy.nesting == Nesting::Deny;
    if denies && NO_USER_NAMESPACES.iter().all(|option| program.has(option)) {
        // It tried, and ends where one can still be made.
        outcomes.note("userns-limit", Ok(()));
    }
    if plan.job.terminal {
        outcomes.note("terminal", Ok(()));
    }
}

/// What stands for a mistake in what was asked, and not for a control that is not to be had here.
const MISTAKES: [&str; 4] = [
    "Can't chdir to",
    "Can't find source path",
    "Can't create file at",
    "Can't mkdir",
];

/// Whether what bubblewrap said is about its network namespace (`bwrap: loopback: Failed RTM_NEWADDR: …`).
pub(super) fn is_network(said: &str) -> bool {
    said.starts_with("bwrap: loopback:")
}

/// What it means that bubblewrap could not build the sandbox.
pub(super) fn not_built(plan: &Plan, failure: &Failure, outcomes: Outcomes) -> LaunchError {
    let is_mistake = MISTAKES
        .iter()
        .any(|mistake| failure.error.starts_with(mistake));
    if is_mistake {
        return LaunchError::Step {
            what: failure.to_string(),
        };
    }
    let is_network = is_network(&failure.to_string());
    let rests_on_network = |control| matches!(control, Control::Network | Control::Ipc);
    beside::not_built(plan, failure, outcomes, |control| {
        !is_network || rests_on_network(control)
    })
}
