//! What bubblewrap said, beside what is seen.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use ledger::facts::control::Control;
use ledger::facts::policy::Nesting;

use super::answers::NO_USER_NAMESPACES;
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{LaunchError, Plan};
use crate::runtime::beside;
use crate::runtime::embedded::prepared::Prepared;
use crate::runtime::program::Installed;
use crate::sys::{process, pseudo};

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

/// What of a process's status belongs to which mechanism (proc_pid_status(5)).
const STATUS: [(&str, &str); 12] = [
    ("Uid", "set-ids"),
    ("Gid", "set-ids"),
    ("Groups", "set-groups"),
    ("CapInh", "capabilities"),
    ("CapPrm", "capabilities"),
    ("CapEff", "capabilities"),
    ("CapAmb", "capabilities"),
    ("CapBnd", "bounding-set"),
    ("NoNewPrivs", "no-new-privs"),
    ("Seccomp", "seccomp"),
    ("Seccomp_filters", "seccomp"),
    ("Seccomp_filters", "base-filter"),
];

/// Which file below /proc/PID belongs to which mechanism: one object must stand behind it for both processes.
const PLACES: [(&str, &str); 7] = [
    ("ns/net", "namespace-network"),
    ("ns/mnt", "namespace-mount"),
    ("ns/ipc", "namespace-ipc"),
    ("ns/uts", "namespace-uts"),
    ("ns/pid", "namespace-pid"),
    ("ns/cgroup", "namespace-cgroup"),
    ("root", "pivot-root"),
];

/// How long it may take the first process to come to its filters: far more than it needs, on a machine that is very busy, too.
const TAKES_AT_MOST: Duration = Duration::from_secs(10);

/// Notes in what bubblewrap's first process and the gate differ. Namespaces and mounts are read back of the first one, and are the
/// workload's only where the gate is in the same; and the workload may write to the first one's memory (`/proc/1/mem`), as both
/// have one id, so what holds for the workload must hold for that one, too.
pub(super) fn are_one(first: i32, outcomes: &mut Outcomes) {
    let until = Instant::now() + TAKES_AT_MOST;
    let mut found = differences(first);
    // It comes to its own filters while the gate runs already; in all else it is what it stays. They are waited for also where
    // something else differs: what is told must not depend on who came first.
    let may_come = |list: &[(&str, &str)]| list.iter().any(|(name, _)| name.starts_with("Seccomp"));
    while matches!(&found, Ok(list) if may_come(list)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
        found = differences(first);
    }
    match found {
        Ok(list) => {
            for (name, mechanism) in list {
                let attempt = format!(
                    "keep the sandbox's first process and the workload's to the same ({name})"
                );
                outcomes.note(mechanism, Err(Failure::no_effect(attempt)));
            }
        }
        Err(failure) => {
            for (_, mechanism) in STATUS.iter().chain(&PLACES) {
                outcomes.note(mechanism, Err(failure.clone()));
            }
        }
    }
}

/// In what the first process differs from the gate.
fn differences(first: i32) -> Result<Vec<(&'static str, &'static str)>, Failure> {
    let status = |pid: i32| {
        let path = format!("/proc/{pid}/status");
        pseudo::read_text(&path).map_err(|error| Failure::call(format!("read {path}"), &error))
    };
    let gate = process::children_of(first)
        .map_err(|error| Failure::call("find the gate", &error))?
        .first()
        .copied()
        .ok_or_else(|| Failure::no_effect("find the gate"))?;
    let place = |pid: i32, name: &str| {
        let path = format!("/proc/{pid}/{name}");
        let found = std::fs::metadata(&path);
        found
            .map(|found| (found.dev(), found.ino()))
            .map_err(|error| Failure::call(format!("read {path}"), &error))
    };
    let mut apart = Vec::new();
    for (name, mechanism) in PLACES {
        if place(first, name)? != place(gate, name)? {
            apart.push((name, mechanism));
        }
    }
    let (first, gate) = (status(first)?, status(gate)?);
    let field = |text: &str, name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(known, _)| *known == name);
        found.map(|(_, value)| value.trim().to_owned())
    };
    let differs = |(name, _): &(&str, &str)| field(&first, name) != field(&gate, name);
    apart.extend(STATUS.into_iter().filter(differs));
    Ok(apart)
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
