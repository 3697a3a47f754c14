//! What a sandbox needs of this host, each thing tried for real, for `runner doctor`.
//!
//! Every attempt runs in a process and in namespaces of its own and leaves nothing behind.

use std::fmt;
use std::fs;
use std::io;

use ledger::facts::host::HostFacts;

use crate::sys::attempt::{Attempt, attempt};
use crate::sys::{errno_name, kernel};

mod ids;

pub(crate) use ids::map_workload_ids;
use ids::other_ids;

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its name, as a word (`user-namespace`).
    pub name: &'static str,
    /// What a sandbox needs it for.
    pub purpose: &'static str,
    /// What was done to find out.
    pub tried: String,
    /// What came of it.
    pub finding: Finding,
    /// The sysctl, package or setting that would change it; absent when it works, or nothing is known.
    pub advice: Option<String>,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It works; with a detail where there is one (`ABI 7`).
    Works(Option<String>),
    /// It does not.
    Fails {
        /// The name of the kernel's error (`EPERM`), or why there was none.
        error: String,
    },
    /// It could not be tried because something before it does not work, or is not needed here.
    NotTried {
        /// Why.
        reason: String,
    },
}

impl Finding {
    /// Whether it was tried and works.
    #[must_use]
    pub const fn works(&self) -> bool {
        matches!(self, Self::Works(_))
    }

    fn of(result: &io::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Works(None),
            Err(error) => Self::Fails {
                error: errno_name(error),
            },
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works(None) => f.write_str("works"),
            Self::Works(Some(detail)) => write!(f, "works ({detail})"),
            Self::Fails { error } => write!(f, "does not work: {error}"),
            Self::NotTried { reason } => write!(f, "not tried: {reason}"),
        }
    }
}

/// Kinds of namespaces beside the user namespace.
const KINDS: &[(&str, libc::c_int, &str, &str)] = &[
    (
        "mount-namespace",
        libc::CLONE_NEWNS,
        "CLONE_NEWNS",
        "files: a tree of its own",
    ),
    (
        "pid-namespace",
        libc::CLONE_NEWPID,
        "CLONE_NEWPID",
        "process: no processes of the host",
    ),
    (
        "network-namespace",
        libc::CLONE_NEWNET,
        "CLONE_NEWNET",
        "network: no network of the host",
    ),
    (
        "ipc-namespace",
        libc::CLONE_NEWIPC,
        "CLONE_NEWIPC",
        "ipc: no IPC objects of the host",
    ),
    (
        "uts-namespace",
        libc::CLONE_NEWUTS,
        "CLONE_NEWUTS",
        "a host name of its own",
    ),
    (
        "cgroup-namespace",
        libc::CLONE_NEWCGROUP,
        "CLONE_NEWCGROUP",
        "no control group paths of the host",
    ),
];

/// Tries everything a sandbox needs, in the order in which a launch needs it.
#[must_use]
pub fn try_all(facts: &HostFacts) -> Vec<Capability> {
    let user = user_namespace(facts);
    let has_user = user.finding.works();
    let mut all = vec![user];
    all.extend(KINDS.iter().map(|kind| namespace(*kind, has_user, facts)));
    all.extend([
        in_sandbox(
            "fresh-proc",
            Attempt::FreshProc,
            "process: a /proc of its own",
            "mount proc at /proc",
            has_user,
        ),
        in_sandbox(
            "tmpfs",
            Attempt::Tmpfs,
            "filesystem: empty writable places",
            "mount tmpfs at /tmp",
            has_user,
        ),
        in_sandbox(
            "read-only-trees",
            Attempt::ReadOnlyTree,
            "filesystem: read-only with everything mounted below",
            "open_tree /usr, mount_setattr read-only, recursive",
            has_user,
        ),
        other_ids(facts, has_user),
        landlock(),
        seccomp(
            "system-call-filter",
            "syscalls: denied calls fail",
            "SECCOMP_RET_ERRNO",
            libc::SECCOMP_RET_ERRNO,
            "a kernel with CONFIG_SECCOMP_FILTER",
        ),
        seccomp(
            "system-call-notification",
            "syscalls: denied calls are counted",
            "SECCOMP_RET_USER_NOTIF",
            libc::SECCOMP_RET_USER_NOTIF,
            "Linux 5.0",
        ),
        terminal(),
    ]);
    all
}

/// As root a user namespace is not needed for the others, but this host is judged as a sandbox is built: in one.
fn namespaces(kinds: libc::c_int, what: Attempt) -> io::Result<()> {
    in_namespaces(libc::CLONE_NEWUSER | kinds, what)
}

/// Tries something in new namespaces of these kinds, a user namespace among them, as its root.
///
/// # Errors
/// Those of clone3, of writing the maps, or of the attempt itself.
pub(crate) fn in_namespaces(kinds: libc::c_int, what: Attempt) -> io::Result<()> {
    attempt(kinds, what, map_own_ids)
}

/// Maps the caller to root inside, which an ordinary user may (user_namespaces(7)).
fn map_own_ids(pid: libc::pid_t) -> io::Result<()> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    fs::write(format!("/proc/{pid}/uid_map"), format!("0 {uid} 1"))?;
    fs::write(format!("/proc/{pid}/gid_map"), format!("0 {gid} 1"))
}

fn user_namespace(facts: &HostFacts) -> Capability {
    let result = namespaces(0, Attempt::Namespaces);
    Capability {
        name: "user-namespace",
        purpose: "everything else, for who is not root",
        tried: "clone3 with CLONE_NEWUSER, write uid_map and gid_map".to_owned(),
        advice: result
            .as_ref()
            .err()
            .map(|error| user_namespace_advice(error, facts)),
        finding: Finding::of(&result),
    }
}

fn user_namespace_advice(error: &io::Error, facts: &HostFacts) -> String {
    let is = |name: &str, value: &str| facts.sysctls.get(name).is_some_and(|found| found == value);
    let advice = if is("user.max_user_namespaces", "0") {
        "sysctl user.max_user_namespaces=15000"
    } else if is("kernel.unprivileged_userns_clone", "0") {
        "sysctl kernel.unprivileged_userns_clone=1"
    } else if is("kernel.apparmor_restrict_unprivileged_userns", "1") {
        "an AppArmor profile with `userns,` for this program, or sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    } else if error.raw_os_error() == Some(libc::ENOSPC) {
        "a higher user.max_user_namespaces, or fewer levels of nesting"
    } else if !facts.container.is_empty() {
        "a container that allows it: another seccomp profile, or a user namespace for the container"
    } else {
        "a kernel with CONFIG_USER_NS; a security module or filter may deny the call too"
    };
    advice.to_owned()
}

fn namespace(
    (name, kind, flag, purpose): (&'static str, libc::c_int, &str, &'static str),
    has_user: bool,
    facts: &HostFacts,
) -> Capability {
    let tried = format!("clone3 with CLONE_NEWUSER and {flag}");
    if !has_user {
        return without_user_namespace(name, purpose, tried);
    }
    let result = namespaces(kind, Attempt::Namespaces);
    let advice = result
        .as_ref()
        .err()
        .map(|error| match error.raw_os_error() {
            Some(libc::ENOSPC) => format!(
                "a higher sysctl user.max_{}_namespaces",
                name.split('-').next().unwrap_or(name)
            ),
            Some(libc::EINVAL) => format!("a kernel with namespaces of this kind ({flag})"),
            _ => user_namespace_advice(error, facts),
        });
    Capability {
        name,
        purpose,
        tried,
        finding: Finding::of(&result),
        advice,
    }
}

fn without_user_namespace(name: &'static str, purpose: &'static str, tried: String) -> Capability {
    let reason = "there is no user namespace to try it in".to_owned();
    Capability {
        name,
        purpose,
        tried,
        finding: Finding::NotTried { reason },
        advice: None,
    }
}

fn in_sandbox(
    name: &'static str,
    what: Attempt,
    purpose: &'static str,
    call: &str,
    has_user: bool,
) -> Capability {
    let tried = format!("in new user, mount and pid namespaces: {call}");
    if !has_user {
        return without_user_namespace(name, purpose, tried);
    }
    let result = namespaces(libc::CLONE_NEWNS | libc::CLONE_NEWPID, what);
    let advice = result.as_ref().err().map(|error| {
        let advice = match (what, error.raw_os_error()) {
            (Attempt::ReadOnlyTree, Some(libc::ENOSYS)) => "Linux 5.12",
            (Attempt::FreshProc, Some(libc::EPERM)) => {
                "an outer /proc with nothing mounted over parts of it (for a container: unmask its paths)"
            }
            _ => "a container or security module that allows mounts inside a user namespace",
        };
        advice.to_owned()
    });
    Capability {
        name,
        purpose,
        tried,
        finding: Finding::of(&result),
        advice,
    }
}

fn landlock() -> Capability {
    let answer = kernel::landlock_abi();
    let advice = match &answer {
        Ok(2..) => None,
        Ok(_) => {
            Some("Linux 5.19: ABI 1 denies renames between folders, so it is not used".to_owned())
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Some("`landlock` in the kernel's boot option lsm=".to_owned())
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            Some("Linux 5.13 with CONFIG_SECURITY_LANDLOCK".to_owned())
        }
        Err(_) => Some("a container or filter that allows landlock_create_ruleset".to_owned()),
    };
    let finding = match answer {
        Ok(abi @ 2..) => Finding::Works(Some(format!("ABI {abi}"))),
        Ok(abi) => Finding::Fails {
            error: format!("ABI {abi}"),
        },
        Err(error) => Finding::Fails {
            error: errno_name(&error),
        },
    };
    Capability {
        name: "landlock",
        purpose: "a second line behind the namespaces",
        tried: "landlock_create_ruleset, version".to_owned(),
        finding,
        advice,
    }
}

fn seccomp(
    name: &'static str,
    purpose: &'static str,
    word: &str,
    action: u32,
    advice: &str,
) -> Capability {
    let result = kernel::seccomp_action(action);
    Capability {
        name,
        purpose,
        tried: format!("seccomp SECCOMP_GET_ACTION_AVAIL {word}"),
        advice: result.is_err().then(|| advice.to_owned()),
        finding: Finding::of(&result),
    }
}

fn terminal() -> Capability {
    let opened = nix::pty::posix_openpt(nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_NOCTTY);
    let result = opened.map(drop).map_err(io::Error::from);
    Capability {
        name: "terminal",
        purpose: "terminal: -t gives the workload a terminal of its own",
        tried: "open /dev/ptmx".to_owned(),
        advice: result
            .is_err()
            .then(|| "a mounted /dev/pts, and /dev/ptmx".to_owned()),
        finding: Finding::of(&result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> HostFacts {
        super::super::gather(None).unwrap()
    }

    #[test]
    fn everything_is_tried_and_what_fails_says_what_would_help() {
        let all = try_all(&facts());
        let mut names: Vec<_> = all.iter().map(|capability| capability.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "one name, one thing");
        for capability in &all {
            println!(
                "{}: {} [{}] {:?}",
                capability.name, capability.finding, capability.tried, capability.advice
            );
            match &capability.finding {
                Finding::Works(_) => assert_eq!(capability.advice, None, "{capability:?}"),
                Finding::Fails { error } => {
                    assert!(
                        !error.is_empty() && capability.advice.is_some(),
                        "{capability:?}"
                    );
                }
                Finding::NotTried { .. } => assert!(!all[0].finding.works(), "{capability:?}"),
            }
        }
    }

    #[test]
    fn advice_names_the_switch_that_is_set() {
        let mut facts = facts();
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        facts
            .sysctls
            .insert("user.max_user_namespaces".into(), "1000".into());
        facts.sysctls.insert(
            "kernel.apparmor_restrict_unprivileged_userns".into(),
            "1".into(),
        );
        assert!(user_namespace_advice(&denied, &facts).contains("AppArmor"));
        facts
            .sysctls
            .insert("kernel.unprivileged_userns_clone".into(), "0".into());
        assert_eq!(
            user_namespace_advice(&denied, &facts),
            "sysctl kernel.unprivileged_userns_clone=1"
        );
        facts
            .sysctls
            .insert("user.max_user_namespaces".into(), "0".into());
        assert!(user_namespace_advice(&denied, &facts).contains("user.max_user_namespaces=15000"));
    }
}
