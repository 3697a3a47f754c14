//! Kernel, distribution, security modules, swap and ids.

use std::path::Path;

use ledger::bytes::canon::U53;

use super::{Gaps, GatherHostError, is_absent};
use crate::sys::{errno_name, kernel as ask};

/// Release and machine (uname(2)).
pub(super) fn kernel() -> Result<(String, String), GatherHostError> {
    let name = nix::sys::utsname::uname().map_err(|errno| GatherHostError::Kernel {
        what: "its name",
        source: errno.into(),
    })?;
    let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
    Ok((text(name.release()), text(name.machine())))
}

/// Effective ids and the supplementary groups, sorted.
pub(super) fn ids() -> Result<(u32, u32, Vec<u32>), GatherHostError> {
    let groups = nix::unistd::getgroups().map_err(|errno| GatherHostError::Kernel {
        what: "supplementary groups",
        source: errno.into(),
    })?;
    let mut groups: Vec<u32> = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    groups.sort_unstable();
    groups.dedup();
    Ok((
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
        groups,
    ))
}

/// `ID` and `VERSION_ID` of os-release(5).
pub(super) fn distribution(gaps: &mut Gaps) -> Option<String> {
    let mut read = |path| gaps.read("distribution", Path::new(path));
    let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"))?;
    distribution_of(&text)
}

fn distribution_of(os_release: &str) -> Option<String> {
    let value = |key: &str| {
        let line = os_release
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        let text = line.trim().trim_matches(['"', '\'']);
        (!text.is_empty()).then(|| text.to_owned())
    };
    let id = value("ID")?;
    Some(match value("VERSION_ID") {
        Some(version) => format!("{id} {version}"),
        None => id,
    })
}

pub(super) fn landlock_abi(gaps: &mut Gaps) -> Option<u32> {
    match ask::landlock_abi() {
        Ok(abi) => Some(abi),
        // Without it, or with it switched off at boot: that is a fact, not a failure to find out.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP)) => None,
        Err(error) => {
            gaps.note(
                "landlockAbi",
                format!("landlock_create_ruleset: {}", errno_name(&error)),
            );
            None
        }
    }
}

/// From securityfs where it is mounted, else from the kernel itself (Linux 6.8).
pub(super) fn lsms(gaps: &mut Gaps) -> Option<Vec<String>> {
    let path = Path::new("/sys/kernel/security/lsm");
    let unread = match std::fs::read_to_string(path) {
        Ok(text) => return Some(text.trim().split(',').map(str::to_owned).collect()),
        Err(error) => error,
    };
    match ask::security_modules() {
        Ok(ids) => Some(ids.into_iter().map(lsm_name).collect()),
        Err(error) => {
            let file = if is_absent(&unread) {
                "ENOENT".to_owned()
            } else {
                errno_name(&unread)
            };
            gaps.note(
                "lsms",
                format!(
                    "{}: {file}; lsm_list_modules: {}",
                    path.display(),
                    errno_name(&error)
                ),
            );
            None
        }
    }
}

/// The label under which a security module holds this process (apparmor(7), selinux(8)): for two runners of one
/// user it can be another.
pub(super) fn confinement(gaps: &mut Gaps) -> Option<String> {
    let path = Path::new("/proc/self/attr/current");
    match crate::sys::pseudo::read_text(path) {
        Ok(text) => label_of(&text),
        // EINVAL: no module in force has labels.
        Err(error) if is_absent(&error) || error.raw_os_error() == Some(libc::EINVAL) => None,
        Err(error) => {
            gaps.failed("confinement", path, &error);
            None
        }
    }
}

/// AppArmor ends it with a line feed, SELinux with a NUL.
fn label_of(text: &str) -> Option<String> {
    let label = text.trim_end_matches(['\n', '\0']);
    (!label.is_empty()).then(|| label.to_owned())
}

/// Names of `LSM_ID_*` (linux/lsm.h), as securityfs writes them.
fn lsm_name(id: u64) -> String {
    const FIRST: u64 = 100;
    const NAMES: &[&str] = &[
        "capability",
        "selinux",
        "smack",
        "tomoyo",
        "apparmor",
        "yama",
        "loadpin",
        "safesetid",
        "lockdown",
        "bpf",
        "landlock",
        "ima",
        "evm",
        "ipe",
    ];
    let name = id
        .checked_sub(FIRST)
        .and_then(|at| NAMES.get(usize::try_from(at).ok()?));
    name.map_or_else(|| format!("lsm-{id}"), |name| (*name).to_owned())
}

pub(super) fn swap_bytes(gaps: &mut Gaps) -> Option<U53> {
    let path = Path::new("/proc/meminfo");
    let text = gaps.read("swapBytes", path)?;
    let swap = swap_of(&text);
    if swap.is_none() {
        gaps.note(
            "swapBytes",
            format!("{}: no line SwapTotal in kB", path.display()),
        );
    }
    swap
}

fn swap_of(meminfo: &str) -> Option<U53> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("SwapTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    U53::new(kibibytes.checked_mul(1024)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_in_its_usual_forms() {
        assert_eq!(
            distribution_of("NAME=x\nID=debian\nVERSION_ID=\"12\"\n").as_deref(),
            Some("debian 12")
        );
        assert_eq!(
            distribution_of("ID='arch'\nVERSION_ID=\n").as_deref(),
            Some("arch")
        );
        assert_eq!(distribution_of("ID_LIKE=debian\nVERSION_ID=1\n"), None);
    }

    #[test]
    fn a_label_as_each_module_writes_it() {
        for (text, label) in [
            ("unconfined\n", Some("unconfined")),
            (
                "restricted//&:ns:x (enforce)\n",
                Some("restricted//&:ns:x (enforce)"),
            ),
            (
                "unconfined_u:unconfined_r:unconfined_t:s0\0",
                Some("unconfined_u:unconfined_r:unconfined_t:s0"),
            ),
            ("", None),
            ("\n", None),
        ] {
            assert_eq!(label_of(text).as_deref(), label, "{text:?}");
        }
    }

    #[test]
    fn swap_is_absent_where_it_is_not_told() {
        assert_eq!(
            swap_of("MemTotal: 1 kB\nSwapTotal:       2048 kB\n"),
            U53::new(2 << 20)
        );
        assert_eq!(swap_of("SwapTotal: 0 kB\n"), Some(U53::ZERO));
        assert_eq!(swap_of("MemTotal: 1 kB\n"), None);
        assert_eq!(swap_of("SwapTotal: 5 MB\n"), None);
    }

    #[test]
    fn security_modules_by_number() {
        assert_eq!(lsm_name(100), "capability");
        assert_eq!(lsm_name(110), "landlock");
        assert_eq!(lsm_name(7), "lsm-7");
        assert_eq!(lsm_name(u64::MAX), format!("lsm-{}", u64::MAX));
    }
}
