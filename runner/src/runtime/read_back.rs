//! Looking at a sandbox from outside, before "go": calls that succeeded without effect are found here.
//!
//! Everything is read from the runner's own /proc; a fact that cannot be read counts as not in effect.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::mechanism::{Failure, Outcomes, mounts};
use crate::sys::pseudo;

/// What must be seen.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Namespaces that must differ from the runner's: mechanism and file below /proc/PID/ns.
    pub(super) namespaces: Vec<(&'static str, &'static str)>,
    /// The workload's ids on the host.
    pub(super) ids: Option<(u32, u32)>,
    /// No capability, and none to be had.
    pub(super) no_privilege: bool,
    /// How many filters every workload has.
    pub(super) base_filters: usize,
    /// How many filters are the runner's own.
    pub(super) inherited_filters: usize,
    /// The policy's filter.
    pub(super) seccomp: bool,
    /// RLIMIT_NOFILE.
    pub(super) open_files: Option<u64>,
    /// A session of its own.
    pub(super) session: bool,
    /// Who begins it, where that is not the workload's process.
    pub(super) leader: Option<i32>,
    /// A root in memory.
    pub(super) own_root: bool,
    /// Places that must be read-only with everything below but the writable ones.
    pub(super) read_only: Vec<PathBuf>,
    /// Places that may be written.
    pub(super) writable: Vec<PathBuf>,
    /// Places that must be covered by a read-only mount, where they exist.
    pub(super) masks: Vec<PathBuf>,
    /// Protected places below writable ones.
    pub(super) protected: Vec<PathBuf>,
    /// Folders that must be mount points, so that nobody can move them.
    pub(super) pinned: Vec<PathBuf>,
    /// Places whose owners must be mapped.
    pub(super) mapped: Vec<PathBuf>,
    /// What is at /proc.
    pub(super) processes: Processes,
    /// Folders in memory, and how much each may hold.
    pub(super) sizes: Vec<(PathBuf, u64)>,
}

/// What is at /proc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Processes {
    /// Whatever it is.
    #[default]
    Any,
    /// A proc file system.
    Own,
    /// No mount: a folder of the root in memory, which is empty.
    Nothing,
}

/// What is read from the workload's process.
const WORKLOAD: [&str; 7] = [
    "set-ids",
    "set-groups",
    "capabilities",
    "bounding-set",
    "no-new-privs",
    "base-filter",
    "seccomp",
];

/// Notes in `outcomes` what of pid 1's namespaces and tree has no effect.
pub(super) fn tree(init: i32, expected: &Expected, outcomes: &mut Outcomes) {
    for (mechanism, name) in &expected.namespaces {
        outcomes.note(mechanism, differs(init, name));
    }
    let mounted = read_mounts(init, expected, outcomes);
    if let Err(failure) = mounted {
        outcomes.note("pivot-root", Err(failure.clone()));
        outcomes.note("read-only", Err(failure));
    }
}

/// Notes in `outcomes` what of the workload's process has no effect, of pid 1 when nothing `runs`; returns the
/// workload's user id as the host sees it.
pub(super) fn workload(
    init: i32,
    expected: &Expected,
    runs: bool,
    outcomes: &mut Outcomes,
) -> Option<u32> {
    let workload = if runs {
        match only_child(init) {
            Some(pid) => pid,
            None => {
                let failure = Failure::no_effect("find the workload's process");
                for mechanism in WORKLOAD {
                    outcomes.note(mechanism, Err(failure.clone()));
                }
                return None;
            }
        }
    } else {
        init
    };
    if runs {
        read_session_and_limits(workload, expected, outcomes);
    }
    match read_status(workload, expected, runs, outcomes) {
        Ok(uid) => Some(uid),
        Err(failure) => {
            for mechanism in WORKLOAD {
                outcomes.note(mechanism, Err(failure.clone()));
            }
            None
        }
    }
}

/// Whether a process has a namespace of its own.
pub(super) fn differs(init: i32, name: &str) -> Result<(), Failure> {
    let inode = |path: String| {
        std::fs::metadata(&path)
            .map(|metadata| metadata.ino())
            .map_err(|error| Failure::call(format!("read {path}"), &error))
    };
    if inode(format!("/proc/self/ns/{name}"))? == inode(format!("/proc/{init}/ns/{name}"))? {
        return Err(Failure::no_effect(format!("make a {name} namespace")));
    }
    Ok(())
}

/// The workload's process: pid 1's only child before "go".
pub(super) fn only_child(init: i32) -> Option<i32> {
    crate::sys::process::children_of(init)
        .ok()?
        .first()
        .copied()
}

/// The parent of a process (proc_pid_stat(5)).
pub(super) fn parent_of(pid: i32) -> Option<i32> {
    let stat = pseudo::read_text(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

/// The real user id of a process as the host sees it; `None` when it cannot be read.
pub(super) fn uid_of(pid: i32) -> Option<u32> {
    let text = pseudo::read_text(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read_status(
    workload: i32,
    expected: &Expected,
    runs: bool,
    outcomes: &mut Outcomes,
) -> Result<u32, Failure> {
    let path = format!("/proc/{workload}/status");
    let text =
        pseudo::read_text(&path).map_err(|error| Failure::call(format!("read {path}"), &error))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.strip_prefix(':'))
            .map(str::trim)
            .ok_or_else(|| Failure::no_effect(format!("read {name} in {path}")))
    };
    let numbers = |name: &str| -> Result<Vec<u32>, Failure> {
        Ok(field(name)?
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect())
    };
    let uids = numbers("Uid")?;
    let gids = numbers("Gid")?;
    let groups = numbers("Groups")?;
    if let Some((uid, gid)) = expected.ids {
        let taken =
            uids.iter().all(|found| *found == uid) && gids.iter().all(|found| *found == gid);
        let taken = if taken {
            Ok(())
        } else {
            Err(Failure::no_effect("take the workload's ids"))
        };
        outcomes.note("set-ids", taken);
        let alone = groups.iter().all(|found| *found == gid);
        let alone = if alone {
            Ok(())
        } else {
            Err(Failure::no_effect("drop supplementary groups"))
        };
        outcomes.note("set-groups", alone);
    }
    let is_zero = |name: &str| field(name).map(|value| value.bytes().all(|digit| digit == b'0'));
    if expected.no_privilege {
        let mut none = true;
        for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            none &= is_zero(name)?;
        }
        let held = |none: bool, attempt: &str| {
            if none {
                Ok(())
            } else {
                Err(Failure::no_effect(attempt))
            }
        };
        outcomes.note("capabilities", held(none, "empty the capability sets"));
        outcomes.note(
            "bounding-set",
            held(is_zero("CapBnd")?, "empty the bounding set"),
        );
        outcomes.note(
            "no-new-privs",
            held(field("NoNewPrivs")? == "1", "set no_new_privs"),
        );
    }
    if runs {
        read_filters(
            field("Seccomp")?,
            field("Seccomp_filters").ok(),
            expected,
            outcomes,
        );
    }
    uids.first()
        .copied()
        .ok_or_else(|| Failure::no_effect(format!("read Uid in {path}")))
}

/// Filters are only counted (since Linux 5.9), but each kind comes in a number of its own.
fn read_filters(mode: &str, count: Option<&str>, expected: &Expected, outcomes: &mut Outcomes) {
    let wanted = expected.base_filters + usize::from(expected.seccomp);
    let count: Option<usize> = count.and_then(|count| count.parse().ok());
    let count = match (mode, count) {
        // What this process runs under itself (a container's filter) is inherited.
        ("2", Some(count)) => count.saturating_sub(expected.inherited_filters),
        // Before 5.9: some filter is all that is known.
        ("2", None) => wanted,
        _ => 0,
    };
    let held = |is: bool, attempt: &str| {
        if is {
            Ok(())
        } else {
            Err(Failure::no_effect(attempt))
        }
    };
    let has_policys = count >= wanted || count == usize::from(expected.seccomp);
    if expected.seccomp {
        outcomes.note(
            "seccomp",
            held(count > 0 && has_policys, "install the filter"),
        );
    }
    let has_base = count >= wanted || count == expected.base_filters;
    if expected.base_filters > 0 {
        outcomes.note(
            "base-filter",
            held(count > 0 && has_base, "install the base filter"),
        );
    }
}

/// Filters that this process runs under itself, and with it all that it starts.
pub(super) fn inherited_filters() -> usize {
    let text = pseudo::read_text("/proc/self/status").ok();
    let count = text.as_ref().and_then(|text| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp_filters:"))?;
        line.trim().parse().ok()
    });
    // Unknown: then every filter that is seen may be an inherited one.
    count.unwrap_or(usize::MAX)
}

fn read_session_and_limits(workload: i32, expected: &Expected, outcomes: &mut Outcomes) {
    if expected.session {
        let read = || -> io::Result<bool> {
            let stat = pseudo::read_text(format!("/proc/{workload}/stat"))?;
            let session = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.split(' ').nth(3));
            let leader = expected.leader.unwrap_or(workload);
            Ok(session == Some(leader.to_string().as_str()))
        };
        outcomes.note("new-session", held(read(), "begin a session"));
    }
    if let Some(limit) = expected.open_files {
        let read = || -> io::Result<bool> {
            let limits = pseudo::read_text(format!("/proc/{workload}/limits"))?;
            let line = limits
                .lines()
                .find_map(|line| line.strip_prefix("Max open files"));
            let mut values = line
                .unwrap_or_default()
                .split_whitespace()
                .map(|value| value.parse::<u64>().ok());
            Ok(values.next().flatten() == Some(limit) && values.next().flatten() == Some(limit))
        };
        outcomes.note("limit-files", held(read(), "limit open files"));
    }
    let read = || -> io::Result<bool> {
        let mut closing = true;
        for entry in std::fs::read_dir(format!("/proc/{workload}/fdinfo"))? {
            let entry = entry?;
            let number: i32 = entry
                .file_name()
                .to_string_lossy()
                .parse()
                .map_err(io::Error::other)?;
            if number > 2 {
                let info = pseudo::read_text(entry.path())?;
                let flags = info
                    .lines()
                    .find_map(|line| line.strip_prefix("flags:"))
                    .unwrap_or_default();
                let flags = i32::from_str_radix(flags.trim(), 8).map_err(io::Error::other)?;
                closing &= flags & libc::O_CLOEXEC != 0;
            }
        }
        Ok(closing)
    };
    outcomes.note("close-descriptors", held(read(), "close descriptors"));
}

fn held(read: io::Result<bool>, attempt: &str) -> Result<(), Failure> {
    match read {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::no_effect(attempt)),
        Err(error) => Err(Failure::call(format!("read back: {attempt}"), &error)),
    }
}

fn read_mounts(init: i32, expected: &Expected, outcomes: &mut Outcomes) -> Result<(), Failure> {
    if !expected.own_root {
        return Ok(());
    }
    let path = PathBuf::from(format!("/proc/{init}/mountinfo"));
    let all = mounts::read(&path)
        .map_err(|error| Failure::call(format!("read {}", path.display()), &error))?;
    let root = mounts::at(&all, Path::new("/"));
    let own = root.is_some_and(|mount| mount.kind == "tmpfs");
    outcomes.note(
        "pivot-root",
        if own {
            Ok(())
        } else {
            Err(Failure::no_effect("enter a root of its own"))
        },
    );
    let at_proc = mounts::at(&all, Path::new("/proc"));
    let as_expected = match expected.processes {
        Processes::Any => None,
        Processes::Own => Some((
            at_proc.is_some_and(|mount| mount.kind == "proc"),
            "mount a fresh /proc",
        )),
        Processes::Nothing => Some((at_proc.is_none(), "leave /proc empty")),
    };
    if let Some((is, attempt)) = as_expected {
        let held = if is {
            Ok(())
        } else {
            Err(Failure::no_effect(attempt))
        };
        outcomes.note("proc", held);
    }
    let mut writable_at = None;
    if !root.is_some_and(|mount| mount.has("ro")) {
        writable_at = Some(PathBuf::from("/"));
    }
    for place in &expected.read_only {
        let mut seen = false;
        for mount in mounts::below(&all, place) {
            seen |= mount.target == *place;
            // Shown through a writable place that lies deeper than this one.
            let excepted = expected
                .writable
                .iter()
                .any(|open| open.starts_with(place) && mount.target.starts_with(open));
            if !mount.has("ro") && !excepted {
                writable_at = Some(mount.target.clone());
            }
        }
        if !seen {
            writable_at = Some(place.clone());
        }
    }
    let read_only = writable_at.map_or(Ok(()), |at| {
        Err(Failure::no_effect(format!(
            "make {} read-only",
            at.display()
        )))
    });
    outcomes.note("read-only", read_only);
    if let Some(place) = not_covered(&all, &expected.masks) {
        outcomes.note(
            "proc-mask",
            Err(Failure::no_effect(format!("cover {}", place.display()))),
        );
    }
    if let Some(place) = not_covered(&all, &expected.protected) {
        outcomes.note(
            "protect",
            Err(Failure::no_effect(format!("protect {}", place.display()))),
        );
    }
    let mut pinned = expected.pinned.iter();
    if let Some(place) = pinned.find(|place| mounts::at(&all, place).is_none()) {
        let failure = Failure::no_effect(format!("pin {}", place.display()));
        outcomes.note("protect", Err(failure));
    }
    for place in &expected.mapped {
        let mapped = mounts::at(&all, place).is_some_and(|mount| mount.has("idmapped"));
        let mapped = if mapped {
            Ok(())
        } else {
            Err(Failure::no_effect(format!(
                "map owners of {}",
                place.display()
            )))
        };
        outcomes.note("idmap", mapped);
    }
    for (place, bytes) in &expected.sizes {
        let size = mounts::at(&all, place).and_then(|mount| mount.size);
        let held = if size.is_some_and(|size| size <= *bytes) {
            Ok(())
        } else {
            Err(Failure::no_effect(format!(
                "limit the size of {}",
                place.display()
            )))
        };
        outcomes.note("tmpfs-size", held);
    }
    Ok(())
}

fn not_covered<'a>(all: &[mounts::Mount], places: &'a [PathBuf]) -> Option<&'a PathBuf> {
    places
        .iter()
        .find(|place| !mounts::at(all, place).is_some_and(|mount| mount.has("ro")))
}
