//! How control groups are laid out, and which controllers the runner may use (cgroups(7)).
//!
//! For the host record version 1 hierarchies are looked at, never touched. Of version 2 a subtree counts as delegated
//! when a throwaway group could be made in it; that is tried only in the runner's own group or in its user's manager, and
//! only where the group belongs to the user, or, for root, where systemd marked it as delegated or there is no systemd.
//! [`hierarchies`] is what limits are made from.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ledger::facts::host::{CgroupFacts, CgroupLayout};
use nix::unistd::{AccessFlags, access};

use super::Gaps;
use crate::sys::errno_name;

/// Controllers that limits are made of; where none of them is offered there is nothing to try.
const USED: &[&str] = &["cpu", "memory", "pids"];

/// The group that a runner is in, in a scope that it got from a service manager.
pub const OWN_GROUP: &str = "containment-runner";

pub(super) fn facts(gaps: &mut Gaps) -> CgroupFacts {
    let Some(mounts) = gaps.read("cgroup", Path::new("/proc/self/mountinfo")) else {
        return CgroupFacts {
            delegated: Vec::new(),
            layout: CgroupLayout::None,
        };
    };
    let layout = layout(&mounts);
    let delegated = match subtree(&mounts, gaps) {
        Some(subtree) => subtree.controllers,
        None => Vec::new(),
    };
    CgroupFacts { delegated, layout }
}

/// A mount of a control group hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    version: u8,
    root: &'a str,
    point: &'a str,
    /// Of version 1 its controllers are among them.
    options: &'a str,
}

/// Lines of mountinfo (proc_pid_mountinfo(5)): root and mount point are fields 4 and 5, type, source and options of the
/// file system follow ` - `.
fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let version = match kind.split(' ').next()? {
            "cgroup" => 1,
            "cgroup2" => 2,
            _ => return None,
        };
        let mut fields = place.split(' ').skip(3);
        Some(Mount {
            version,
            root: fields.next()?,
            point: fields.next()?,
            options: kind.split(' ').nth(2)?,
        })
    })
}

/// A hierarchy of control groups as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// 1 or 2.
    pub version: u8,
    /// Its controllers, of version 1; those of version 2 stand in its files, and differ from group to group.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub point: PathBuf,
    /// This process's own group, as a folder.
    pub own: PathBuf,
    /// The same as /proc/PID/cgroup says it.
    pub name: String,
}

/// The hierarchies of control groups in which this process has a group that it can see, from the texts of
/// /proc/self/mountinfo and /proc/self/cgroup.
#[must_use]
pub fn hierarchies(mountinfo: &str, membership: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mounts(mountinfo) {
        // `4:memory:/user/1`; `0::/user/1` is version 2.
        let line = membership.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let fits = if mount.version == 2 {
                controllers.is_empty()
            } else {
                !controllers.is_empty()
                    && controllers
                        .split(',')
                        .all(|name| mount.options.split(',').any(|option| option == name))
            };
            fits.then_some((controllers, path))
        });
        let Some((controllers, name)) = line else {
            continue;
        };
        let Some(own) = below(&mount, name) else {
            continue;
        };
        let known = |one: &Hierarchy| one.version == mount.version && one.name == name;
        let controllers: Vec<String> = controllers
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        // Mounted twice.
        if found
            .iter()
            .any(|one| known(one) && one.controllers == controllers)
        {
            continue;
        }
        found.push(Hierarchy {
            version: mount.version,
            controllers,
            point: mount.point.into(),
            own,
            name: name.to_owned(),
        });
    }
    found
}

fn layout(mountinfo: &str) -> CgroupLayout {
    let has = |version| mounts(mountinfo).any(|mount| mount.version == version);
    match (has(1), has(2)) {
        (false, false) => CgroupLayout::None,
        (true, false) => CgroupLayout::V1,
        (true, true) => CgroupLayout::Hybrid,
        (false, true) => CgroupLayout::V2,
    }
}

/// A version 2 group that the runner may make groups in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subtree {
    pub(super) path: PathBuf,
    pub(super) controllers: Vec<String>,
}

/// The first of the runner's own group and its user's manager in which a group can be made.
fn subtree(mountinfo: &str, gaps: &mut Gaps) -> Option<Subtree> {
    let mount = mounts(mountinfo).find(|mount| mount.version == 2)?;
    let membership = gaps.read("cgroup.delegated", Path::new("/proc/self/cgroup"))?;
    let own = own_group(&mount, &membership)?;
    let uid = nix::unistd::geteuid().as_raw();
    let manager = format!("user.slice/user-{uid}.slice/user@{uid}.service");
    let candidates = [own, Path::new(mount.point).join(manager)];
    candidates
        .into_iter()
        // What a run got for itself alone is no fact of the host.
        .filter(|path| !path.ends_with(OWN_GROUP))
        .find_map(|path| usable(path, uid, gaps))
}

/// The `0::` line of /proc/self/cgroup, below the mount.
fn own_group(mount: &Mount<'_>, membership: &str) -> Option<PathBuf> {
    let path = membership
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    below(mount, path)
}

/// A group by its folder.
fn below(mount: &Mount<'_>, path: &str) -> Option<PathBuf> {
    // In a group namespace paths outside it begin with /.. and lie outside the mount.
    let below = path.strip_prefix(mount.root.trim_end_matches('/'))?;
    let is_below = below.is_empty() || below.starts_with('/');
    if !is_below || below.split('/').any(|part| part == "..") {
        return None;
    }
    Some(Path::new(mount.point).join(below.trim_start_matches('/')))
}

fn usable(path: PathBuf, uid: u32, gaps: &mut Gaps) -> Option<Subtree> {
    let owner = fs::symlink_metadata(&path).ok()?.uid();
    if owner != uid || (uid == 0 && !is_given_to_root(&path)) {
        return None;
    }
    let text = gaps.read("cgroup.delegated", &path.join("cgroup.controllers"))?;
    let mut controllers: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    controllers.sort();
    let files = ["", "cgroup.procs", "cgroup.subtree_control"];
    let writable = files
        .iter()
        .all(|file| access(&path.join(file), AccessFlags::W_OK).is_ok());
    if !controllers.iter().any(|name| USED.contains(&name.as_str())) || !writable {
        return None;
    }
    let throwaway = path.join(format!("runner-try-{}", std::process::id()));
    match fs::create_dir(&throwaway) {
        Ok(()) => {
            if let Err(error) = fs::remove_dir(&throwaway) {
                gaps.note(
                    "cgroup.delegated",
                    format!("{}: {}", throwaway.display(), errno_name(&error)),
                );
            }
            Some(Subtree { path, controllers })
        }
        Err(error) => {
            gaps.note(
                "cgroup.delegated",
                format!("mkdir {}: {}", path.display(), errno_name(&error)),
            );
            None
        }
    }
}

/// Whether a version 2 group was given to root to make groups in: systemd says who owns a group below it by an attribute;
/// without systemd every group is root's.
#[must_use]
pub fn is_given_to_root(path: &Path) -> bool {
    let has_systemd = Path::new("/run/systemd/system").exists();
    let marked = ["trusted.delegate", "user.delegate"];
    !has_systemd
        || marked
            .iter()
            .any(|name| crate::sys::kernel::attribute_is_one(path, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "30 24 0:26 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
        31 24 0:27 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw\n\
        32 24 0:28 / /proc rw - proc proc rw\n";

    #[test]
    fn layouts() {
        let line = |number: usize| HYBRID.lines().nth(number).unwrap();
        assert_eq!(layout(HYBRID), CgroupLayout::Hybrid);
        assert_eq!(layout(line(0)), CgroupLayout::V1);
        assert_eq!(layout(line(1)), CgroupLayout::V2);
        assert_eq!(layout(line(2)), CgroupLayout::None);
        assert_eq!(layout("garbage - cgroup2"), CgroupLayout::None);
    }

    #[test]
    fn the_own_group_is_found_below_the_mount() {
        let at = |root, path: &str| {
            let mount = Mount {
                version: 2,
                root,
                point: "/sys/fs/cgroup",
                options: "rw",
            };
            own_group(&mount, &format!("3:cpu:/x\n0::{path}\n"))
                .map(|path| path.display().to_string())
        };
        assert_eq!(at("/", "/a/b").as_deref(), Some("/sys/fs/cgroup/a/b"));
        assert_eq!(at("/", "/").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(
            at("/docker/1", "/docker/1/x").as_deref(),
            Some("/sys/fs/cgroup/x")
        );
        assert_eq!(
            at("/docker/1", "/docker/1").as_deref(),
            Some("/sys/fs/cgroup/")
        );
        assert_eq!(at("/docker/1", "/docker/10"), None);
        assert_eq!(at("/docker/1", "/other"), None);
        assert_eq!(at("/", "/../up"), None);
    }

    #[test]
    fn hierarchies_are_told_with_the_own_group_in_each() {
        let membership = "5:cpu,cpuacct:/a\n4:pids:/b/c\n1:name=systemd:/d\n0::/e\n";
        let mounts = "30 24 0:26 / /c/pids rw - cgroup cgroup rw,pids\n\
            31 24 0:27 / /c/unified rw - cgroup2 cgroup2 rw\n\
            32 24 0:28 / /c/cpu rw shared:3 - cgroup cgroup rw,cpu,cpuacct\n\
            33 24 0:28 / /again rw - cgroup cgroup rw,cpu,cpuacct\n\
            34 24 0:29 /b /c/inner rw - cgroup cgroup rw,memory\n";
        let found: Vec<String> = hierarchies(mounts, membership)
            .into_iter()
            .map(|one| {
                let (version, own) = (one.version, one.own.display());
                format!("{version} {} {own}", one.controllers.join("+"))
            })
            .collect();
        assert_eq!(
            found,
            [
                "1 pids /c/pids/b/c",
                "2  /c/unified/e",
                "1 cpu+cpuacct /c/cpu/a"
            ]
        );
        // In a group namespace, of a group outside of it, and without groups at all.
        assert!(hierarchies(mounts, "4:pids:/../x\n").is_empty());
        assert!(hierarchies("", membership).is_empty());
    }

    #[test]
    fn no_throwaway_group_is_left() {
        let mut gaps = Gaps::default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        if let Some(subtree) = subtree(&mounts, &mut gaps) {
            let name = format!("runner-try-{}", std::process::id());
            assert!(!subtree.path.join(name).exists());
            assert!(!subtree.controllers.is_empty());
        }
    }
}
