//! What bubblewrap is to do for each control: what the embedded runtime does, but for Landlock and subordinate ids, of which it
//! knows nothing, and for what its version has no option.

use ledger::facts::control::Control;
use ledger::facts::policy::{Nesting, NetworkMode, Policy};

use crate::mechanism::owners;
use crate::plan::{Answer, Intent, Job, Reason, Why};
use crate::runtime::embedded::{ablation, answers};
use crate::runtime::program::Installed;

/// What the gate calls between the filter and the workload's program, beside what pid 1's child does.
const GATE_CALLS: [&str; 2] = ["fcntl", "rt_sigprocmask"];
/// A limit on a file system in memory.
pub(super) const SIZE: &str = "--size";
/// More than one filter.
pub(super) const FILTERS: &str = "--add-seccomp-fd";
/// No user namespaces below.
pub(super) const NO_USER_NAMESPACES: [&str; 2] = ["--disable-userns", "--assert-userns-disabled"];

/// Whether `control` can be left out of this job.
pub(super) fn can_leave_out(control: Control, job: &Job) -> bool {
    ablation::is_possible(control, job)
}

pub(super) fn answer(program: &Installed, control: Control, policy: &Policy, job: &Job) -> Answer {
    let usual = match answers::answer(control, policy, job) {
        Answer::Intends(intent) => Intent {
            backup: intent.backup.filter(|backup| *backup != "landlock"),
            ..intent
        },
        // Why something is not intended is the same here, but for the one way out that bubblewrap has not.
        cannot => return cannot,
    };
    let lacks = |option: &str| {
        Answer::Cannot(Why {
            reason: Reason::RUNTIME_LACKS_OPTION,
            detail: Some(format!("bubblewrap {} has no {option}", program.version)),
        })
    };
    let cannot = |reason: Reason| Answer::Cannot(reason.into());
    // What a root keeps in place, and what is read back by the number of filters, rests on the filters that every sandbox has.
    let rests_on_filters = matches!(
        control,
        Control::Network | Control::Filesystem | Control::Syscalls
    );
    if rests_on_filters && !program.has(FILTERS) {
        return lacks(FILTERS);
    }
    match control {
        Control::Network
            if policy.network.mode == NetworkMode::None && !job.leaves_out(Control::Ipc) =>
        {
            // It switches the loopback device on in any case.
            Answer::Intends(Intent::by("network-namespace").limited("own loopback"))
        }
        Control::Privilege if policy.nesting == Nesting::Deny => {
            match NO_USER_NAMESPACES
                .iter()
                .find(|option| !program.has(option))
            {
                Some(option) => lacks(option),
                None => Answer::Intends(usual),
            }
        }
        Control::Syscalls if GATE_CALLS.iter().any(|call| !is_open(policy, call)) => {
            Answer::Cannot(Why {
                reason: Reason::LAUNCH_CALLS_DENIED,
                detail: Some(format!(
                    "and {}, for this runtime",
                    GATE_CALLS.join(" and ")
                )),
            })
        }
        Control::Ipc if !ablation::has_own_network(policy, job) => {
            cannot(Reason::ABSTRACT_SOCKETS_SHARED)
        }
        Control::Disk if !program.has(SIZE) => lacks(SIZE),
        Control::User if keeps_groups() => cannot(Reason::SUPPLEMENTARY_GROUPS_KEPT),
        _ => Answer::Intends(usual),
    }
}

fn is_open(policy: &Policy, call: &str) -> bool {
    let allow = &policy.syscalls.allow;
    if allow.is_empty() {
        !policy.syscalls.denied().contains(&call)
    } else {
        allow.iter().any(|name| name == call)
    }
}

fn keeps_groups() -> bool {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    !uid.is_root() && owners::has_other_groups(gid.as_raw())
}
