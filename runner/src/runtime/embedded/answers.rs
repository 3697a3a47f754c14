//! What the embedded runtime intends for each control.

use ledger::facts::control::Control;
use ledger::facts::policy::{Nesting, NetworkMode, Policy};

use super::ablation;
use crate::mechanism::identity::DEFAULT_INSIDE;
use crate::mechanism::owners::{self, HostIds};
use crate::mechanism::seccomp::Architecture;
use crate::plan::{Answer, Intent, Job, Reason, Why};

/// What the workload's process calls between the filter and its program (`init/workload/becoming.rs`, `become_workload`): without
/// one of them nothing can be started.
const LAUNCH_CALLS: [&str; 4] = ["execve", "exit_group", "read", "write"];

/// In the tier `no-proc`: what is otherwise, there.
pub(super) fn without_proc(control: Control, policy: &Policy, job: &Job) -> Answer {
    match (control, answer(control, policy, job)) {
        (Control::Process, Answer::Intends(_)) => {
            Answer::Intends(Intent::by("pid-namespace, empty /proc"))
        }
        // The limit on their number is written to /proc/sys, which is read-only in most containers.
        (Control::Privilege, Answer::Intends(_)) if policy.nesting == Nesting::Deny => {
            Answer::Intends(Intent::by(NO_PRIVILEGE_BY_FILTER))
        }
        (_, usual) => usual,
    }
}

/// Where user namespaces are denied by a filter.
pub(super) const NO_PRIVILEGE_BY_FILTER: &str =
    "no capabilities, no_new_privs, no user namespaces (seccomp)";

pub(in crate::runtime) fn answer(control: Control, policy: &Policy, job: &Job) -> Answer {
    let cannot = |reason: Reason| Answer::Cannot(reason.into());
    if job.leaves_out(control) {
        return cannot(if ablation::is_possible(control, job) {
            Reason::ABLATED
        } else {
            Reason::ABLATION_NOT_POSSIBLE
        });
    }
    // Host root that may mount finds the files of its own groups, and writes to them.
    let limits = [Control::Memory, Control::Processes, Control::Cpu];
    if limits.contains(&control) && policy.nesting == Nesting::Allow {
        if job.as_root {
            return cannot(Reason::RUNS_AS_ROOT);
        }
        // An ordinary user's groups are its own, and so the workload's. It may mount them in a sandbox of its own; `nsdelegate`
        // keeps a cgroup namespace from the limits of its root, and not one further below that has the same mount.
        if !nix::unistd::geteuid().is_root() {
            return cannot(Reason::LIMITS_IN_REACH);
        }
    }
    // What is written to memory counts as memory, whose limit is raised then.
    if control == Control::Memory && job.leaves_out(Control::Disk) {
        return Answer::Cannot(Why {
            reason: Reason::ABLATED,
            detail: Some("with disk".to_owned()),
        });
    }
    let intends = |mechanism: &'static str| Answer::Intends(Intent::by(mechanism));
    let limited = |mechanism: &'static str, unit: &str| match policy.limit_of(control) {
        Some((_, Some(limit))) => {
            Answer::Intends(Intent::by(mechanism).limited(format!("{limit}{unit}")))
        }
        _ => cannot(Reason::POLICY_SETS_NO_LIMIT),
    };
    match control {
        Control::Network => match policy.network.mode {
            // The host's network namespace holds the abstract sockets that are to be reached.
            NetworkMode::None | NetworkMode::Loopback if job.leaves_out(Control::Ipc) => {
                Answer::Intends(
                    Intent::by("seccomp, unix sockets alone")
                        .limited("none")
                        .backed("landlock"),
                )
            }
            NetworkMode::None => Answer::Intends(
                Intent::by("network-namespace")
                    .limited("none")
                    .backed("landlock"),
            ),
            NetworkMode::Loopback => {
                Answer::Intends(Intent::by("network-namespace").limited("own loopback"))
            }
            NetworkMode::Allowlist => cannot(Reason::NEEDS_EGRESS),
            NetworkMode::Unrestricted => cannot(Reason::POLICY_ALLOWS_ALL),
        },
        Control::Filesystem => {
            let intent = Intent::by("mount-namespace pivot_root");
            Answer::Intends(if policy.nesting == Nesting::Deny {
                intent.backed("landlock")
            } else {
                intent
            })
        }
        Control::Process => intends("pid-namespace, fresh /proc"),
        Control::Environment => {
            intends("execve with the policy's and the runner's variables alone")
        }
        // Host root needs no capability to have one.
        Control::Privilege if job.as_root || ablation::is_host_root(job) => {
            cannot(Reason::RUNS_AS_ROOT)
        }
        Control::Privilege if !policy.process.capabilities.is_empty() => {
            cannot(Reason::KEEPS_CAPABILITIES)
        }
        Control::Privilege => intends("no capabilities, no_new_privs"),
        Control::Memory | Control::Processes | Control::Cpu => {
            crate::plan::answer_limit(control, policy)
                .unwrap_or_else(|| cannot(Reason::POLICY_SETS_NO_LIMIT))
        }
        Control::Disk => answer_disk(policy, job),
        Control::Syscalls => answer_syscalls(policy),
        Control::Timeout => limited("kill of the pid namespace", " ms"),
        Control::Output => limited("runner-cap", " bytes"),
        Control::Devices => intends("minimal /dev, nodev mounts"),
        Control::User if job.as_root => cannot(Reason::RUNS_AS_ROOT),
        Control::User => answer_user(policy),
        Control::Ipc if !ablation::has_own_network(policy, job) => match policy.nesting {
            // Abstract sockets belong to the network namespace, which is the host's.
            Nesting::Deny => intends("ipc-namespace, landlock scope, own root"),
            Nesting::Allow => cannot(Reason::ABSTRACT_SOCKETS_SHARED),
        },
        Control::Ipc => intends("ipc-namespace, network-namespace, own root"),
        Control::Descriptors => intends("close_range"),
        Control::Terminal => intends(if job.terminal {
            "new session, own pseudo-terminal"
        } else {
            "new session, no terminal"
        }),
        Control::Files => limited("RLIMIT_NOFILE", ""),
    }
}

/// What a workload may write to is in memory, and of a size, unless a folder of the host is shown writable.
fn answer_disk(policy: &Policy, job: &Job) -> Answer {
    let Some((_, Some(limit))) = policy.limit_of(Control::Disk) else {
        return Answer::Cannot(Reason::POLICY_SETS_NO_LIMIT.into());
    };
    let shown = policy.filesystem.writable.first();
    if let Some(bind) = shown {
        return Answer::Cannot(Why {
            reason: Reason::NEEDS_QUOTA,
            detail: Some(format!("{} is writable", bind.source)),
        });
    }
    // Without a root of its own the workload has the host's folders.
    if job.leaves_out(Control::Filesystem) {
        return Answer::Cannot(Reason::NEEDS_QUOTA.into());
    }
    Answer::Intends(Intent::by("tmpfs size").limited(format!("{limit} MiB in each own folder")))
}

pub(super) fn answer_syscalls(policy: &Policy) -> Answer {
    let cannot = |reason: Reason| Answer::Cannot(reason.into());
    if Architecture::native().is_none() {
        return cannot(Reason::NO_FILTER_FOR_ARCHITECTURE);
    }
    let allow = &policy.syscalls.allow;
    let denied = policy.syscalls.denied();
    let is_open = |call: &&str| {
        if allow.is_empty() {
            !denied.contains(call)
        } else {
            allow.iter().any(|name| name == call)
        }
    };
    if !LAUNCH_CALLS.iter().all(is_open) {
        return cannot(Reason::LAUNCH_CALLS_DENIED);
    }
    if !allow.is_empty() {
        return Answer::Intends(
            Intent::by("seccomp").limited(format!("{} calls allowed", allow.len())),
        );
    }
    match denied.len() {
        0 => cannot(Reason::POLICY_ALLOWS_ALL),
        count => Answer::Intends(Intent::by("seccomp").limited(format!("{count} calls denied"))),
    }
}

fn answer_user(policy: &Policy) -> Answer {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let inside = policy.process.user.unwrap_or(DEFAULT_INSIDE);
    let intent = Intent::by("user-namespace");
    if uid.is_root() {
        return Answer::Intends(intent.limited(format!("{inside} inside, an unused id outside")));
    }
    let keeps = owners::has_other_groups(gid.as_raw())
        && !HostIds::choose(false).is_ok_and(|ids| ids.can_drop_groups());
    if keeps {
        return Answer::Cannot(Reason::SUPPLEMENTARY_GROUPS_KEPT.into());
    }
    Answer::Intends(intent.limited(format!("{inside} inside, {uid} outside")))
}
