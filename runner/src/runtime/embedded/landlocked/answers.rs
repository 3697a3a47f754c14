//! What is intended for each control where there are no namespaces.

use std::path::Path;

use ledger::facts::control::Control;
use ledger::facts::policy::{Bind, NetworkMode, Policy, Root};

use super::super::{answers, error_chain};
use super::shown;
use crate::plan::{Answer, Held, Intent, Job, Reason, Why};

/// Whether anything is done for a control, which can then be left out.
pub(in crate::runtime::embedded) const fn serves(control: Control) -> bool {
    !matches!(
        control,
        Control::Process
            | Control::User
            | Control::Ipc
            | Control::Timeout
            | Control::Terminal
            | Control::Disk
    )
}

/// `errno` is the kernel's answer to who asked for namespaces.
pub(in crate::runtime::embedded) fn answer(
    control: Control,
    policy: &Policy,
    job: &Job,
    errno: &str,
) -> Answer {
    let cannot = |reason: Reason| Answer::Cannot(reason.into());
    let because = |reason: Reason, detail: String| {
        Answer::Cannot(Why {
            reason,
            detail: Some(detail),
        })
    };
    let no_namespace = || because(Reason::NO_USER_NAMESPACE, errno.to_owned());
    if job.leaves_out(control) {
        return cannot(if serves(control) {
            Reason::ABLATED
        } else {
            Reason::ABLATION_NOT_POSSIBLE
        });
    }
    let intends = |mechanism: &'static str| Answer::Intends(Intent::by(mechanism));
    match control {
        Control::Network => match policy.network.mode {
            NetworkMode::None => Answer::Intends(
                Intent::by("seccomp, unix sockets alone")
                    .limited("none")
                    .backed("landlock"),
            ),
            NetworkMode::Loopback => no_namespace(),
            NetworkMode::Allowlist => cannot(Reason::NEEDS_EGRESS),
            NetworkMode::Unrestricted => cannot(Reason::POLICY_ALLOWS_ALL),
        },
        Control::Filesystem => match not_as_asked(policy, job) {
            Some(detail) => because(Reason::NO_MOUNTS, detail),
            None => intends("landlock, seccomp"),
        },
        // It is the same list.
        Control::Devices if job.leaves_out(Control::Filesystem) => {
            because(Reason::ABLATED, "with filesystem".to_owned())
        }
        Control::Devices => intends("landlock"),
        Control::Privilege => match answers::answer(control, policy, job) {
            Answer::Intends(_) => intends(answers::NO_PRIVILEGE_BY_FILTER),
            no => no,
        },
        Control::Process | Control::User | Control::Timeout => no_namespace(),
        // Landlock does not look at who connects to a socket that has a path.
        Control::Ipc => because(
            Reason::SOCKETS_SHARED,
            format!("{}: {errno}", Reason::NO_USER_NAMESPACE),
        ),
        // A session without a terminal begins all the same. But nothing shows that it is that which keeps one away: those of the
        // host cannot be told from one of the workload's own, and so none can be opened.
        Control::Terminal => because(Reason::NO_MOUNTS, "no terminals of its own".to_owned()),
        Control::Disk => because(Reason::NO_MOUNTS, "no folder has a size".to_owned()),
        Control::Environment
        | Control::Memory
        | Control::Processes
        | Control::Syscalls
        | Control::Cpu
        | Control::Output
        | Control::Descriptors
        | Control::Files => answers::answer(control, policy, job),
    }
}

/// What of the files that a policy asks for cannot be had at the paths of the host.
fn not_as_asked(policy: &Policy, job: &Job) -> Option<String> {
    let files = &policy.filesystem;
    if files.root != Root::Ephemeral {
        return Some("a root other than ephemeral".to_owned());
    }
    let moved = |source: &str, target: &str| Path::new(source) != Path::new(target);
    let mut binds = files.read_only.iter().chain(&files.writable);
    let elsewhere = binds.find_map(|bind| {
        let target = bind.target.as_ref()?;
        moved(&bind.source, target).then(|| format!("{} at {target}", bind.source))
    });
    if elsewhere.is_some() {
        return elsewhere;
    }
    if let Some(folder) = &job.workload {
        return Some(format!("{} at /workload", folder.display()));
    }
    for read in files
        .read_only
        .iter()
        .filter(|_| !files.writable.is_empty())
    {
        // Landlock looks at the files behind the names: links and mounts give one file several.
        let held = match Held::place(Path::new(&read.source)) {
            Ok(held) => held,
            Err(error) => return Some(error_chain(&error)),
        };
        let shows = |above: &&Bind| held.is_below(Path::new(&above.source));
        if let Some(above) = files.writable.iter().find(shows) {
            return Some(format!("{} read-only below {}", read.source, above.source));
        }
    }
    if !files.protect.is_empty()
        && let Some(bind) = files
            .writable
            .iter()
            .find(|bind| Path::new(&bind.source).is_dir())
    {
        return Some(format!("protected paths below {}", bind.source));
    }
    // By these numbers a file is changed that may only be read, if it is a file that they are asked of.
    if let Some(device) = shown::other_devices(policy).next() {
        return Some(format!(
            "{device} among files, whose controls (ioctl) are not told from its own"
        ));
    }
    None
}
