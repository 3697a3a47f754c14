//! **Marks** of groups: each carries who made it in its name, so that what a killed runner left is found and removed, and
//! nothing else.
//!
//! ```text
//! containment-run-<pid>-<start time>-<random>
//! ```
//! The start time is that of the process in clock ticks since the boot (proc_pid_stat(5), field 22). A group is left over
//! when no process of that id and start time runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::sys::process::start_time;

/// First part of every group's name.
const PREFIX: &str = "containment-run-";
/// Most folders that are looked into for one name.
const MOST_FOLDERS: usize = 4_096;

/// A name for a group of this process.
pub(super) fn name() -> io::Result<String> {
    let own = std::process::id();
    let start = start_time(own)?.ok_or(io::ErrorKind::NotFound)?;
    let random = ledger::bytes::key::random_bytes::<4>().map_err(io::Error::other)?;
    let random = ledger::bytes::hash::to_hex(&random);
    Ok(format!("{PREFIX}{own}-{start}-{random}"))
}

/// The process that a name belongs to; `None` for a name that is no mark.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (pid, start, random) = (parts.next()?, parts.next()?, parts.next()?);
    let fits = parts.next().is_none()
        && random.len() == 8
        && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let owner = (pid.parse().ok()?, start.parse().ok()?);
    fits.then_some(owner)
}

/// Removes what dead runners left directly below the first of each pair, and, by its name, anywhere below the second, which
/// is the hierarchy's root: the same run's groups have one name, and of another hierarchy's the parent may be another by now.
/// What still has processes stays for the next time. Returns how many were removed.
pub(super) fn sweep(places: &[(PathBuf, PathBuf)]) -> usize {
    let mut dead = Vec::new();
    for (parent, _) in places {
        let Ok(entries) = fs::read_dir(parent) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let Some((pid, start)) = owner(&name) else {
                continue;
            };
            // A process that cannot be told about is taken for alive.
            let is_dead = matches!(start_time(pid), Ok(found) if found != Some(start));
            if is_dead && !dead.contains(&name) {
                dead.push(name);
            }
        }
    }
    let mut removed = 0;
    for name in dead {
        for (parent, root) in places {
            let here = parent.join(&name);
            let folder = if here.is_dir() {
                Some(here)
            } else {
                find_below(root, &name)
            };
            if folder.is_some_and(|folder| fs::remove_dir(folder).is_ok()) {
                removed += 1;
            }
        }
    }
    removed
}

/// Looks for a folder of this name, the nearest to the root first.
fn find_below(root: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = std::collections::VecDeque::from([root.to_owned()]);
    let mut looked = 0;
    while let Some(folder) = folders.pop_front() {
        looked += 1;
        if looked > MOST_FOLDERS {
            return None;
        }
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name() == name {
                return Some(entry.path());
            }
            folders.push_back(entry.path());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_it_is() {
        let name = name().unwrap();
        let start = start_time(std::process::id()).unwrap().unwrap();
        assert_eq!(owner(&name), Some((std::process::id(), start)));
        for other in [
            "containment-run-1-2",
            "containment-run-1-2-0123456789",
            "containment-run-1-2-0123456g",
            "containment-run-x-2-01234567",
            "containment-run-1-2-01234567-1",
            "containment-probe-1-2-01234567",
            "user.slice",
        ] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn only_what_dead_runners_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let start = start_time(pid).unwrap().unwrap_or(1);
        child.wait().unwrap();
        let dead = format!("{PREFIX}{pid}-{start}-00000000");
        let alive = name().unwrap();
        for path in ["pids/own", "memory/gone/deep", "memory/own"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        for path in [
            format!("pids/own/{dead}"),
            format!("memory/gone/deep/{dead}"),
            format!("pids/own/{alive}"),
            "pids/own/other".to_owned(),
        ] {
            fs::create_dir(at(&path)).unwrap();
        }
        let places = [
            (at("pids/own"), at("pids")),
            (at("memory/own"), at("memory")),
        ];
        assert_eq!(sweep(&places), 2);
        assert!(!at(&format!("memory/gone/deep/{dead}")).exists());
        let mut left: Vec<_> = fs::read_dir(at("pids/own"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = vec![alive, "other".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
        assert_eq!(sweep(&places), 0);
        // Not a group any more, or somebody else's to remove.
        assert_eq!(sweep(&[(at("none"), at("none"))]), 0);
    }
}
