//! **Tier**: how much of this runtime a host allows, found by trying what a launch does.
//!
//! | tier | where | instead |
//! |---|---|---|
//! | `full` | namespaces, and a fresh /proc in them | |
//! | `no-proc` | something is mounted over a part of /proc, as in a container; then the kernel mounts no fresh one in a user namespace (mount_too_revealing, fs/namespace.c) | an empty folder: the outer /proc is never shown |
//! | `landlock` | no user namespaces in which anything can be mounted | Landlock and filters around a process among the others |

use std::path::Path;

use super::namespaces::NEEDED;
use crate::host::capability;
use crate::mechanism::mounts;
use crate::sys::attempt::Attempt;
use crate::sys::{errno_name, kernel, pseudo};

/// The first ABI of Landlock that knows of truncating; before it, what may not be written could be emptied.
const LEAST_ABI: u32 = 3;
/// Where the kernel itself makes empty places for mounts, which reveal nothing (proc_create_mount_point).
const MOUNT_POINTS: [&str; 3] = ["/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd", "/proc/xen"];

/// How much of this runtime is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum Tier {
    /// All of it.
    Full,
    /// No /proc.
    NoProc,
    /// No namespaces.
    Landlock {
        /// The kernel's answer to who asked for some.
        errno: String,
    },
}

impl Tier {
    /// The tier of this process on this host. Where no sign of trouble is to be seen nothing is tried: a launch tries everything, and
    /// takes some milliseconds less.
    pub(in crate::runtime) fn of_this_process() -> Self {
        if may_be_refused() || has_something_over_proc() {
            Self::tried()
        } else {
            Self::Full
        }
    }

    /// The same, whatever signs there are.
    pub(in crate::runtime) fn tried() -> Self {
        match capability::in_namespaces(NEEDED, Attempt::Tmpfs) {
            Err(error) if kernel::landlock_abi().is_ok_and(|abi| abi >= LEAST_ABI) => {
                Self::Landlock {
                    errno: errno_name(&error),
                }
            }
            // Where there is neither, a launch says what it was that refused.
            Err(_) => Self::Full,
            Ok(()) if !has_something_over_proc() => Self::Full,
            Ok(()) => match capability::in_namespaces(NEEDED, Attempt::FreshProc) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => Self::NoProc,
                Ok(()) | Err(_) => Self::Full,
            },
        }
    }

    /// As it stands in records.
    pub(in crate::runtime) const fn name(&self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NoProc => "no-proc",
            Self::Landlock { .. } => "landlock",
        }
    }

    /// Whether there are namespaces.
    pub(in crate::runtime) const fn has_namespaces(&self) -> bool {
        !matches!(self, Self::Landlock { .. })
    }
}

/// Whether it is worth trying: with nothing over a part of this process's /proc a fresh one shows no more than that does. Who
/// cannot tell tries.
fn has_something_over_proc() -> bool {
    let proc = Path::new("/proc");
    let reveals = |mount: &mounts::Mount| {
        mount.target != proc
            && !MOUNT_POINTS
                .iter()
                .any(|own| mount.target == Path::new(own))
    };
    mounts::read(Path::new("/proc/self/mountinfo")).map_or(true, |all| {
        mounts::at(&all, proc).is_none() || mounts::below(&all, proc).any(reveals)
    })
}

/// Whether something on this host may refuse namespaces: then they are tried before a launch, which by itself is the trial
/// everywhere else. None of these signs decides anything.
fn may_be_refused() -> bool {
    let is =
        |path: &str, value: &str| pseudo::read_text(path).is_ok_and(|text| text.trim() == value);
    let status = pseudo::read_text("/proc/self/status").unwrap_or_default();
    // A filter around this process, as around all of a container's.
    let is_filtered = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp:"))
        .is_none_or(|mode| mode.trim() != "0");
    // What a security module lets it do (AppArmor, SELinux), unless that is everything.
    let is_confined = pseudo::read_text("/proc/self/attr/current")
        .is_ok_and(|label| !label.is_empty() && !label.starts_with("unconfined"));
    is_filtered
        || is_confined
        || !Path::new("/proc/self/ns/user").exists()
        || is("/proc/sys/user/max_user_namespaces", "0")
        || is("/proc/sys/kernel/unprivileged_userns_clone", "0")
        || is(
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_signs_is_not_worse_than_it_is_found_to_be_by_trying() {
        // The signs are worth something only where nothing else refuses: whatever is assumed without a trial is what one finds.
        assert_eq!(Tier::of_this_process(), Tier::tried());
    }

    #[test]
    fn each_tier_has_a_name_of_its_own() {
        let errno = "EPERM".to_owned();
        let all = [Tier::Full, Tier::NoProc, Tier::Landlock { errno }];
        let names = all.each_ref().map(Tier::name);
        assert_eq!(names, ["full", "no-proc", "landlock"]);
        let has = all.each_ref().map(Tier::has_namespaces);
        assert_eq!(has, [true, true, false]);
    }
}
