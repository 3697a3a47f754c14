//! Which host ids a workload gets, and mounts on which the caller's files are its own
//! (user_namespaces(7); mount_setattr(2), ID-mapped mounts).
//!
//! A workload never has host uid 0. Started as root, its ids inside map to a free unprivileged host id, and
//! folders come in as idmapped mounts, so that the caller's files look and stay the caller's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::identity::IdentitySpec;
use super::{Failure, mounts};
use crate::host::account::{FIRST_HOST_ID, HOST_IDS, user_name};
use crate::sys::clone::Placeholder;
use crate::sys::{errno_name, mount};

/// Where a host id is locked while a workload has it.
const LOCKS: &str = "/run/containment-ledger/ids";

/// How ids inside map to ids of the host.
#[derive(Debug)]
pub enum HostIds {
    /// Started as root: a locked, otherwise unused id.
    Allocated {
        /// The host's user and group id.
        id: u32,
        /// Held while the workload lives.
        lock: File,
    },
    /// Started as root with `--as-root`: host root itself.
    Root,
    /// Started by a user: the user's own ids, nothing else mapped.
    Own {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// Started by a user with subordinate ranges: the user's own ids, and groups can be dropped.
    Subordinate {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// First subordinate user id.
        sub_uid: u32,
        /// First subordinate group id.
        sub_gid: u32,
    },
}

/// Why no host id was to be had.
#[derive(Debug, thiserror::Error)]
pub enum ChooseIdsError {
    /// The lock folder cannot be made or read.
    #[error("cannot lock a host id in {LOCKS}")]
    Locks(#[source] io::Error),
    /// /etc/passwd or /etc/subuid cannot be read.
    #[error("cannot read {path}")]
    Tables {
        /// The file.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Every id of the range is in use.
    #[error("all {HOST_IDS} host ids from {FIRST_HOST_ID} on are in use")]
    Exhausted,
}

impl HostIds {
    /// Chooses ids for one run of this process.
    ///
    /// # Errors
    /// Only for root: no free id can be locked.
    pub fn choose(as_root: bool) -> Result<Self, ChooseIdsError> {
        let (uid, gid) = (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        );
        if uid == 0 {
            return if as_root { Ok(Self::Root) } else { allocate() };
        }
        if has_other_groups(gid)
            && let (Some(sub_uid), Some(sub_gid)) = (
                subordinate("/etc/subuid", uid),
                subordinate("/etc/subgid", uid),
            )
            && helper("newuidmap").is_some()
            && helper("newgidmap").is_some()
        {
            return Ok(Self::Subordinate {
                uid,
                gid,
                sub_uid,
                sub_gid,
            });
        }
        Ok(Self::Own { uid, gid })
    }

    /// The workload's user id as the host sees it.
    #[must_use]
    pub const fn host_uid(&self) -> u32 {
        match self {
            Self::Allocated { id, .. } => *id,
            Self::Root => 0,
            Self::Own { uid, .. } | Self::Subordinate { uid, .. } => *uid,
        }
    }

    /// The workload's group id as the host sees it.
    #[must_use]
    pub const fn host_gid(&self) -> u32 {
        match self {
            Self::Allocated { id, .. } => *id,
            Self::Root => 0,
            Self::Own { gid, .. } | Self::Subordinate { gid, .. } => *gid,
        }
    }

    /// Whether init may drop supplementary groups under these maps.
    #[must_use]
    pub const fn can_drop_groups(&self) -> bool {
        !matches!(self, Self::Own { .. })
    }

    /// One line for the record: which ids map where.
    #[must_use]
    pub fn describe(&self, inside: &IdentitySpec) -> String {
        format!(
            "uid {} is host {}, gid {} is host {}",
            inside.uid,
            self.host_uid(),
            inside.gid,
            self.host_gid()
        )
    }

    /// Writes the maps of a process in a new user namespace.
    ///
    /// # Errors
    /// The kernel, or newuidmap, refuses.
    pub fn write_maps(&self, pid: libc::pid_t, inside: &IdentitySpec) -> Result<(), Failure> {
        let write = |name: &str, text: String| {
            let path = format!("/proc/{pid}/{name}");
            std::fs::write(&path, &text).map_err(|error| {
                Failure::call(format!("write {:?} to {name}", text.trim()), &error)
            })
        };
        match self {
            Self::Allocated { .. } | Self::Root => {
                write("uid_map", format!("{} {} 1\n", inside.uid, self.host_uid()))?;
                write("gid_map", format!("{} {} 1\n", inside.gid, self.host_gid()))
            }
            Self::Own { uid, gid } => {
                write("setgroups", "deny".to_owned())?;
                write("uid_map", format!("{} {uid} 1\n", inside.uid))?;
                write("gid_map", format!("{} {gid} 1\n", inside.gid))
            }
            Self::Subordinate {
                uid,
                gid,
                sub_uid,
                sub_gid,
            } => {
                map_by_helper("newuidmap", pid, inside.uid, *uid, *sub_uid)?;
                map_by_helper("newgidmap", pid, inside.gid, *gid, *sub_gid)
            }
        }
    }
}

/// Whether this process has groups beside its own.
#[must_use]
pub fn has_other_groups(gid: u32) -> bool {
    // getgroups fails only for a buffer that is too small, which nix sizes itself.
    nix::unistd::getgroups().map_or(true, |groups| {
        groups.iter().any(|group| group.as_raw() != gid)
    })
}

fn allocate() -> Result<HostIds, ChooseIdsError> {
    let taken = taken_ranges()?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(LOCKS)
        .map_err(ChooseIdsError::Locks)?;
    // Begin at a place of this process's own, so that concurrent runs rarely meet.
    let first = std::process::id() % HOST_IDS;
    for step in 0..HOST_IDS {
        let id = FIRST_HOST_ID + (first + step) % HOST_IDS;
        if taken.iter().any(|(from, count)| {
            id >= *from && u64::from(id) < u64::from(*from) + u64::from(*count)
        }) {
            continue;
        }
        let lock = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(Path::new(LOCKS).join(id.to_string()))
            .map_err(ChooseIdsError::Locks)?;
        match lock.try_lock() {
            Ok(()) => return Ok(HostIds::Allocated { id, lock }),
            Err(std::fs::TryLockError::WouldBlock) => {}
            Err(std::fs::TryLockError::Error(error)) => return Err(ChooseIdsError::Locks(error)),
        }
    }
    Err(ChooseIdsError::Exhausted)
}

/// Host ids that accounts or subordinate ranges use already, as (first, count).
fn taken_ranges() -> Result<Vec<(u32, u32)>, ChooseIdsError> {
    let mut taken = Vec::new();
    for path in ["/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid"] {
        let text = match std::fs::read(path) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(ChooseIdsError::Tables { path, source }),
        };
        for line in text.lines() {
            let mut fields = line
                .split(':')
                .skip(if path.starts_with("/etc/sub") { 1 } else { 2 });
            let Some(first) = fields.next().and_then(|field| field.parse().ok()) else {
                continue;
            };
            let count = if path.starts_with("/etc/sub") {
                fields
                    .next()
                    .and_then(|field| field.parse().ok())
                    .unwrap_or(1)
            } else {
                1
            };
            taken.push((first, count));
        }
    }
    Ok(taken)
}

/// First id of the user's subordinate range in `path` (subuid(5)).
fn subordinate(path: &str, uid: u32) -> Option<u32> {
    let name = user_name(uid);
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let owner = fields.next()?;
        let first = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.trim().parse().ok()?;
        (count > 0 && (Some(owner) == name.as_deref() || owner == uid.to_string())).then_some(first)
    })
}

fn helper(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

fn map_by_helper(
    name: &str,
    pid: libc::pid_t,
    inside: u32,
    own: u32,
    subordinate: u32,
) -> Result<(), Failure> {
    let attempt = format!(
        "{name} {pid} {inside} {own} 1 {} {subordinate} 1",
        u64::from(inside) + 1
    );
    let path = helper(name).ok_or_else(|| Failure {
        attempt: attempt.clone(),
        error: "ENOENT".to_owned(),
    })?;
    let output = Command::new(path)
        .args(attempt.split(' ').skip(1))
        .env_clear()
        .output()
        .map_err(|error| Failure::call(attempt.clone(), &error))?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure {
            attempt,
            error: said,
        })
    }
}

/// Why a folder could not be brought in with mapped owners.
#[derive(Debug, thiserror::Error)]
pub enum MapOwnersError {
    /// The source cannot be read or copied.
    #[error("cannot bring in {path}: {error}", path = path.display())]
    Source {
        /// The folder or file.
        path: PathBuf,
        /// The error's name.
        error: String,
    },
    /// The user namespace that the maps stand in could not be made.
    #[error("cannot make a user namespace for id maps: {0}")]
    Namespace(Failure),
    /// A kernel file system lies below the source, and none of those maps owners.
    #[error(
        "{path} is a file system of the kernel ({kind}), which cannot be shown with mapped owners ({error}); show the folders beside it instead of {source_path}",
        path = path.display(), source_path = source_path.display()
    )]
    Kernel {
        /// Where it is mounted.
        path: PathBuf,
        /// Its type.
        kind: String,
        /// The error's name.
        error: String,
        /// What was to be shown.
        source_path: PathBuf,
    },
    /// A file system refuses mapped owners.
    #[error(
        "{path} is on a file system that refuses mapped owners ({error}); give the folder to the id by `chown -R {id}:{id} {path}`, or run with --as-root, which makes user and privilege unsupported",
        path = path.display()
    )]
    Refused {
        /// The folder, or the submount below it.
        path: PathBuf,
        /// The error's name.
        error: String,
        /// The workload's host id.
        id: u32,
    },
}

/// Makes detached mounts on which a folder's owner is the workload. For root alone: the caller must have
/// CAP_SYS_ADMIN over the file systems.
#[derive(Debug)]
pub struct OwnerMaps {
    id: u32,
    namespaces: BTreeMap<(u32, u32), OwnedFd>,
}

impl OwnerMaps {
    /// For workloads with this host id.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            id,
            namespaces: BTreeMap::new(),
        }
    }

    /// A detached copy of `path` and all mounts below, on which the owner of `path` is the workload.
    ///
    /// # Errors
    /// The source is not there, or one of its file systems refuses mapped owners.
    pub fn bring_in(&mut self, path: &Path) -> Result<OwnedFd, MapOwnersError> {
        let source = |error: io::Error| MapOwnersError::Source {
            path: path.to_owned(),
            error: errno_name(&error),
        };
        let opened = open_without_links(path).map_err(source)?;
        let tree = mount::clone_tree(Some(opened.as_fd()), c"", true);
        let tree = tree.map_err(|error| match error.raw_os_error() {
            // Root of a container, mostly: it may not mount.
            Some(libc::EPERM) => MapOwnersError::Refused {
                path: path.to_owned(),
                error: errno_name(&error),
                id: self.id,
            },
            _ => source(error),
        })?;
        let metadata = File::from(opened).metadata().map_err(source)?;
        let id = self.id;
        let namespace = self.namespace(metadata.uid(), metadata.gid())?;
        if let Err(error) = mount::map_owners(tree.as_fd(), namespace.as_fd(), true) {
            let refusing = refusing_mount(path, namespace);
            let error = errno_name(&error);
            return Err(match refusing {
                Some((refusing, Some(kind))) => MapOwnersError::Kernel {
                    path: refusing,
                    kind,
                    error,
                    source_path: path.to_owned(),
                },
                refusing => MapOwnersError::Refused {
                    path: refusing.map_or_else(|| path.to_owned(), |(path, _)| path),
                    error,
                    id,
                },
            });
        }
        Ok(tree)
    }

    fn namespace(&mut self, uid: u32, gid: u32) -> Result<&OwnedFd, MapOwnersError> {
        use std::collections::btree_map::Entry;
        let id = self.id;
        match self.namespaces.entry((uid, gid)) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let failed = |attempt: &str, error: &io::Error| {
                    MapOwnersError::Namespace(Failure::call(attempt, error))
                };
                let holder = Placeholder::new(libc::CLONE_NEWUSER)
                    .map_err(|error| failed("clone3", &error))?;
                for (name, on_disk) in [("uid_map", uid), ("gid_map", gid)] {
                    std::fs::write(
                        format!("/proc/{}/{name}", holder.pid),
                        format!("{on_disk} {id} 1\n"),
                    )
                    .map_err(|error| failed(name, &error))?;
                }
                let namespace = File::open(format!("/proc/{}/ns/user", holder.pid))
                    .map_err(|error| failed("open the namespace", &error))?;
                Ok(place.insert(namespace.into()))
            }
        }
    }
}

/// A detached copy of what is mounted at a path. The path must be free of links (as `canonicalize` leaves it):
/// if somebody has put one there since, this fails instead of following it.
///
/// # Errors
/// ELOOP for a link, and the kernel's.
pub fn clone_path(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let opened = open_without_links(path)?;
    mount::clone_tree(Some(opened.as_fd()), c"", recursive)
}

/// What is at a path that must be free of links, open to be looked at and handed over (`O_PATH`).
///
/// # Errors
/// ELOOP for a link, and the kernel's.
pub fn open_without_links(path: &Path) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok(openat2(nix::fcntl::AT_FDCWD, path, how)?)
}

/// Which mount at or below `path` cannot be mapped, and its type if that is one of the kernel's own: mapping is all
/// or nothing, so each is tried alone.
fn refusing_mount(path: &Path, namespace: &OwnedFd) -> Option<(PathBuf, Option<String>)> {
    let mounts = mounts::read(Path::new("/proc/self/mountinfo")).ok()?;
    let below = mounts::below(&mounts, path).map(|mount| {
        let kind = mount.is_kernel().then(|| mount.kind.clone());
        (mount.target.clone(), kind)
    });
    let refuses = |target: &Path| {
        clone_path(target, false)
            .is_ok_and(|tree| mount::map_owners(tree.as_fd(), namespace.as_fd(), false).is_err())
    };
    // The source itself is listed among the mounts only where it is a mount point. A kernel file system comes first:
    // whatever is done about the others, it stays in the way.
    let (kernel, files): (Vec<_>, Vec<_>) = below
        .chain(std::iter::once((path.to_owned(), None)))
        .partition(|(_, kind)| kind.is_some());
    let mut all = kernel.into_iter().chain(files);
    all.find(|(target, _)| refuses(target))
}
