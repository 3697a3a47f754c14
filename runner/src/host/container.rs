//! Signs that this host is itself a container, or a guest of another system.

use std::fs;
use std::path::Path;

use ledger::facts::suite::FEW_CAPABILITIES;

use super::{Gaps, is_absent};
use crate::sys::errno_name;

/// Words in the control group path of pid 1 that container engines leave there.
const ENGINES: &[&str] = &[
    "docker",
    "kubepods",
    "libpod",
    "containerd",
    "crio",
    "lxc",
    "buildkit",
    "garden",
];

/// Each sign as a word, or as `where=what`; sorted.
pub(super) fn signs(kernel: &str, gaps: &mut Gaps) -> Vec<String> {
    let mut signs = Vec::new();
    for (path, sign) in [
        ("/.dockerenv", "dockerenv"),
        ("/run/.containerenv", "containerenv"),
    ] {
        match fs::symlink_metadata(path) {
            Ok(_) => signs.push(sign.to_owned()),
            Err(error) if is_absent(&error) => {}
            Err(error) => gaps.failed("container", Path::new(path), &error),
        }
    }
    if let Some(name) = gaps.read("container", Path::new("/run/systemd/container")) {
        signs.push(format!("systemd={}", word(&name)));
    }
    signs.extend(environment_of_pid_1(gaps));
    if let Some(text) = gaps.read("container", Path::new("/proc/1/cgroup")) {
        signs.extend(engine_of(&text));
    }
    if let Some(map) = gaps.read("container", Path::new("/proc/self/uid_map"))
        && is_nested(&map)
    {
        signs.push("user-namespace".to_owned());
    }
    if nix::unistd::geteuid().is_root() && has_few_capabilities(gaps) {
        signs.push(FEW_CAPABILITIES.to_owned());
    }
    if kernel.to_ascii_lowercase().contains("microsoft") {
        signs.push("wsl".to_owned());
    }
    signs.sort();
    signs
}

/// CAP_SYS_ADMIN, CAP_SYS_RESOURCE and CAP_MKNOD (linux/capability.h), as bits.
const OF_ROOT: u64 = 1 << 21 | 1 << 24 | 1 << 27;

/// Whether no program that root executes has any capability that makes it the machine's root (proc_pid_status(5)).
fn has_few_capabilities(gaps: &mut Gaps) -> bool {
    let status = gaps.read("container", Path::new("/proc/self/status"));
    status.is_some_and(|status| is_bounded(&status))
}

fn is_bounded(status: &str) -> bool {
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let bounding = bounding.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    bounding.is_some_and(|bounding| bounding & OF_ROOT == 0)
}

/// `container=` of pid 1 (systemd's container interface); only root may read it.
fn environment_of_pid_1(gaps: &mut Gaps) -> Option<String> {
    let path = Path::new("/proc/1/environ");
    match crate::sys::pseudo::read(path) {
        Ok(environment) => {
            let value = environment
                .split(|byte| *byte == 0)
                .find_map(|entry| entry.strip_prefix(b"container="))?;
            Some(format!(
                "environment={}",
                word(&String::from_utf8_lossy(value))
            ))
        }
        Err(error) => {
            gaps.note(
                "container",
                format!("{}: {}", path.display(), errno_name(&error)),
            );
            None
        }
    }
}

/// At most 40 harmless characters: the value is whatever somebody set.
fn word(text: &str) -> String {
    let keep = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.trim().chars().filter(keep).take(40).collect()
}

fn engine_of(cgroup: &str) -> Option<String> {
    let engine = ENGINES.iter().find(|engine| cgroup.contains(*engine))?;
    Some(format!("cgroup={engine}"))
}

/// Whether ids are mapped at all: the first user namespace maps every id to itself.
fn is_nested(uid_map: &str) -> bool {
    uid_map.split_whitespace().ne(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_told_apart() {
        assert!(!is_nested("         0          0 4294967295\n"));
        assert!(is_nested("         0       1000          1\n"));
        assert!(is_nested("0 0 4294967295\n5 5 1\n"));
        // Root alone, as itself: no other id is mapped. And a namespace that maps nothing.
        assert!(is_nested("         0          0          1\n"));
        assert!(is_nested(""));
        assert_eq!(
            engine_of("0::/docker/0a1b\n").as_deref(),
            Some("cgroup=docker")
        );
        assert_eq!(engine_of("0::/init.scope\n"), None);
        let status = |bounding: &str| format!("Name:\tx\nCapBnd:\t{bounding}\n");
        assert!(!is_bounded(&status("000001ffffffffff")));
        assert!(
            !is_bounded(&status("00000000a80425fb")),
            "a node can be made"
        );
        assert!(is_bounded(&status("00000000800405fb")));
        assert!(!is_bounded(""));
        assert_eq!(word("podman\n"), "podman");
        assert_eq!(word("\u{1b}[31mx"), "31mx");
        let signs = signs("5.15.0-microsoft-standard-WSL2", &mut Gaps::default());
        assert!(signs.contains(&"wsl".to_owned()) && signs.is_sorted());
    }
}
