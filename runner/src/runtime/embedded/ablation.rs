//! One control left out, the others as they are: what that means for each.
//!
//! | control | left out by | what stands in for the others |
//! |---|---|---|
//! | network | the host's network namespace, sockets of every family | ipc: Landlock keeps abstract sockets inside |
//! | filesystem | the host's tree in place of a root of its own, writable where its permissions say so; evidence stays covered | ipc: no unix socket can be made, so none of the tree's can be connected to |
//! | process | the host's /proc; the pid namespace stays, for the end of the tree rests on it, so signals do not get out; the user namespace keeps their root, fd and environ closed | |
//! | environment | every variable of the caller | |
//! | privilege | capabilities kept in the user namespace, also over exec, no no_new_privs, user namespaces below | Landlock keeps mounts as they are |
//! | syscalls | no filter of the policy's | |
//! | timeout, output, files | no limit | |
//! | devices | the host's /dev, its /dev/shm, /dev/pts and /dev/mqueue apart; sockets in it covered | |
//! | user | root inside: host root for root, whose `privilege` goes with it, the caller for a user; groups are kept | |
//! | ipc | the host's IPC and network namespaces and session keyring; unix sockets in the six places where programs put them | network: a filter allows unix sockets alone |
//! | descriptors | what the launcher holds without close-on-exec stays open | |
//! | terminal | the caller's session, with its controlling terminal | |
//! | memory, processes, cpu | four times the limit, at most 512 MiB and 256 tasks: what a probe uses is half of that | |
//! | disk | four times the size of own folders and the limit on memory, which they count as | |
//!
//! A mechanism that stands in is needed for the declaration ([`stands_in`]): where it is missing, as Landlock under
//! `nesting: allow`, the control that rests on it is not declared either.

use ledger::facts::control::Control;
use ledger::facts::policy::{NetworkMode, Policy};

use crate::mechanism::identity::IdentitySpec;
use crate::mechanism::owners::{ChooseIdsError, HostIds};
use crate::mechanism::seccomp::Families;
use crate::plan::{Job, LaunchError, Plan};
use crate::sys::clone::Placeholder;

use super::{error_chain, namespaces};

/// Whether `control` can be left out of this job.
pub(in crate::runtime) fn is_possible(control: Control, job: &Job) -> bool {
    // They would be written into the host's own /run.
    control != Control::Filesystem || job.secrets.is_empty()
}

/// Whether the sandbox has a network namespace of its own.
pub(in crate::runtime) fn has_own_network(policy: &Policy, job: &Job) -> bool {
    policy.network.mode != NetworkMode::Unrestricted
        && !job.leaves_out(Control::Network)
        && !job.leaves_out(Control::Ipc)
}

/// Whether leaving out `user` makes the workload host root.
pub(in crate::runtime) fn is_host_root(job: &Job) -> bool {
    job.leaves_out(Control::User) && nix::unistd::geteuid().is_root()
}

/// The ids on the host.
pub(in crate::runtime) fn host_ids(job: &Job) -> Result<HostIds, LaunchError> {
    let ids = HostIds::choose(job.as_root || is_host_root(job)).map_err(not_chosen)?;
    Ok(match ids {
        // Groups are kept.
        HostIds::Subordinate { uid, gid, .. } if job.leaves_out(Control::User) => {
            HostIds::Own { uid, gid }
        }
        ids => ids,
    })
}

/// Ids are for a namespace: where none can be made, that is what is wrong, whatever else is.
fn not_chosen(error: ChooseIdsError) -> LaunchError {
    match Placeholder::new(namespaces::NEEDED) {
        Err(refused) => LaunchError::Namespaces {
            errno: crate::sys::errno_name(&refused),
        },
        Ok(_) => LaunchError::Step {
            what: error_chain(&error),
        },
    }
}

/// The ids inside where `user` is left out: root's, or where the policy itself says that, the caller's.
pub(in crate::runtime) fn inside(policy: &Policy, ids: &HostIds) -> IdentitySpec {
    let other = |said: Option<u32>, callers: u32| if said == Some(0) { callers } else { 0 };
    IdentitySpec {
        uid: other(policy.process.user, ids.host_uid()),
        gid: other(policy.process.group, ids.host_gid()),
        drop_groups: false,
    }
}

/// Which sockets a workload may make.
pub(in crate::runtime) fn families(policy: &Policy, job: &Job) -> Families {
    let restricted =
        policy.network.mode != NetworkMode::Unrestricted && !job.leaves_out(Control::Network);
    match (restricted, job.ablate) {
        (true, Some(Control::Ipc)) => Families::Unix,
        (true, Some(Control::Filesystem)) => Families::HeldNotUnix,
        (false, Some(Control::Filesystem)) => Families::NotUnix,
        (true, _) => Families::Held,
        (false, _) => Families::All,
    }
}

/// What `control` rests on beside its usual mechanisms while another one is left out.
pub(in crate::runtime) fn stands_in(control: Control, plan: &Plan) -> Option<&'static str> {
    match (plan.job.ablate?, control) {
        (Control::Privilege, Control::Filesystem | Control::Devices) => Some("landlock"),
        // They rest on covers of kernel file systems.
        (Control::Privilege, Control::Network | Control::Process)
            if !plan.tree.kernel.is_empty() =>
        {
            Some("landlock")
        }
        (Control::Filesystem, Control::Ipc) => Some("base-filter"),
        (_, _) => None,
    }
}
