//! Which namespaces a sandbox gets, and which it can be built without.

use ledger::facts::control::Control;
use ledger::facts::policy::Policy;

use super::ablation;
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{Job, LaunchError};
use crate::sys::clone::Placeholder;
use crate::sys::fault::{self, Fault};

/// A namespace that a sandbox can be built without, at the price of a control.
pub(in crate::runtime) struct Optional {
    pub(in crate::runtime) mechanism: &'static str,
    pub(in crate::runtime) flag: libc::c_int,
    pub(in crate::runtime) file: &'static str,
}

pub(in crate::runtime) const OPTIONAL: [Optional; 4] = [
    Optional {
        mechanism: "namespace-network",
        flag: libc::CLONE_NEWNET,
        file: "net",
    },
    Optional {
        mechanism: "namespace-ipc",
        flag: libc::CLONE_NEWIPC,
        file: "ipc",
    },
    Optional {
        mechanism: "namespace-uts",
        flag: libc::CLONE_NEWUTS,
        file: "uts",
    },
    Optional {
        mechanism: "namespace-cgroup",
        flag: libc::CLONE_NEWCGROUP,
        file: "cgroup",
    },
];
pub(in crate::runtime) const NEEDED: libc::c_int =
    libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;

/// The namespaces that a job is to have.
pub(in crate::runtime) fn wanted(policy: &Policy, job: &Job) -> libc::c_int {
    let mut wanted = NEEDED;
    for namespace in &OPTIONAL {
        let is_wanted = match namespace.flag {
            libc::CLONE_NEWNET => ablation::has_own_network(policy, job),
            libc::CLONE_NEWIPC => !job.leaves_out(Control::Ipc),
            _ => true,
        };
        if is_wanted {
            wanted |= namespace.flag;
        }
    }
    wanted
}

/// The namespaces of `wanted` that this host makes, found by trying when all together are refused; notes the
/// refused ones.
pub(in crate::runtime) fn possible_namespaces(
    wanted: libc::c_int,
    outcomes: &mut Outcomes,
) -> Result<libc::c_int, LaunchError> {
    let mut possible = wanted;
    for namespace in &OPTIONAL {
        match fault::of(namespace.mechanism) {
            Some(Fault::Void) => possible &= !namespace.flag,
            Some(Fault::Fail) if wanted & namespace.flag != 0 => {
                possible &= !namespace.flag;
                let error = std::io::Error::from_raw_os_error(libc::EPERM);
                outcomes.note(namespace.mechanism, Err(Failure::call("clone3", &error)));
            }
            _ => {}
        }
    }
    for (mechanism, flag) in [
        ("namespace-pid", libc::CLONE_NEWPID),
        ("namespace-mount", libc::CLONE_NEWNS),
    ] {
        match fault::of(mechanism) {
            Some(Fault::Void) => possible &= !flag,
            Some(Fault::Fail) => {
                return Err(LaunchError::Namespaces {
                    errno: "EPERM".to_owned(),
                });
            }
            None => {}
        }
    }
    Ok(possible)
}

/// Which of the optional namespaces are refused, each tried alone beside the needed ones.
pub(in crate::runtime) fn drop_refused(
    flags: libc::c_int,
    outcomes: &mut Outcomes,
) -> Result<libc::c_int, LaunchError> {
    let refused = |error: &std::io::Error| LaunchError::Namespaces {
        errno: crate::sys::errno_name(error),
    };
    drop(Placeholder::new(NEEDED).map_err(|error| refused(&error))?);
    let mut possible = flags;
    for namespace in &OPTIONAL {
        if flags & namespace.flag == 0 {
            continue;
        }
        if let Err(error) = Placeholder::new(NEEDED | namespace.flag) {
            possible &= !namespace.flag;
            outcomes.note(namespace.mechanism, Err(Failure::call("clone3", &error)));
        }
    }
    Ok(possible)
}
