//! Places below a writable folder that stay read-only: what is written there runs later on the host
//! (git hooks, editor settings, shell start files).
//!
//! A protected path is bound onto itself read-only, and every folder between it and the writable folder is
//! bound onto itself too: the kernel refuses to rename or remove a mount point, so nobody can move the
//! folder away and make another. A path that is not there is made empty first, by whoever starts the run, and
//! removed afterwards ([`super::placeholders`]); else the workload could make it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use serde::{Deserialize, Serialize};

use super::{Failure, root};
use crate::sys::fault;
use crate::sys::mount::{self, Attributes};

/// Protected paths of one writable folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectSpec {
    /// The writable folder as the workload sees it.
    #[serde(with = "root::path_bytes")]
    pub folder: PathBuf,
    /// Paths below it (`.git/hooks`) that become read-only.
    pub paths: Vec<String>,
    /// Folders below it that stay writable and where they are: evidence is covered below them, and moving
    /// them away would leave its place free.
    pub pinned: Vec<String>,
}

/// Makes the protected paths read-only, before the new root is entered.
///
/// # Errors
/// A path is missing, leads over a symbolic link, or cannot be bound.
pub fn apply(new_root: BorrowedFd<'_>, spec: &ProtectSpec) -> Result<(), Failure> {
    let mut bound = BTreeSet::new();
    for path in &spec.pinned {
        let full = spec.folder.join(path);
        fault::guard("protect", || {
            bind_each(new_root, &spec.folder, Path::new(path), false, &mut bound)
        })
        .map_err(|error| Failure::call(format!("pin {}", full.display()), &error))?;
    }
    for path in &spec.paths {
        let full = spec.folder.join(path);
        fault::guard("protect", || {
            bind_each(new_root, &spec.folder, Path::new(path), true, &mut bound)
        })
        .map_err(|error| Failure::call(format!("protect {}", full.display()), &error))?;
    }
    Ok(())
}

/// Binds every folder on the way onto itself, and the last one read-only when it is to be protected.
fn bind_each(
    new_root: BorrowedFd<'_>,
    folder: &Path,
    path: &Path,
    protect: bool,
    bound: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let mut at = PathBuf::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        at.push(component);
        let last = components.peek().is_none();
        // Re-opened from the top at each step: earlier steps have mounted over what is there.
        let base = root::open_inside(new_root, folder, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        let place = open_strictly(base.as_fd(), &at)?;
        let is_folder = std::fs::File::from(place.try_clone()?).metadata()?.is_dir();
        // `.git` can be a file that names another folder; then that file is what decides.
        let read_only = protect && (last || !is_folder);
        // Each bind copies the mounts below: once is enough, and more would multiply them.
        if !read_only && bound.contains(&at) {
            continue;
        }
        let itself = mount::clone_tree(Some(place.as_fd()), c"", true)?;
        if read_only {
            let attributes = Attributes {
                read_only: true,
                no_dev: true,
                no_suid: true,
                no_exec: false,
            };
            match mount::restrict(itself.as_fd(), attributes, true) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                    mount::attach(itself.as_fd(), place.as_fd())?;
                    root::restrict_here(new_root, &folder.join(&at), attributes, true)?;
                    return Ok(());
                }
                done => done?,
            }
        }
        mount::attach(itself.as_fd(), place.as_fd())?;
        bound.insert(at.clone());
        if read_only {
            return Ok(());
        }
    }
    Ok(())
}

/// Opens a path below a folder in which somebody hostile may have made links: none is followed.
pub(super) fn open_strictly(base: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let opened = openat2(base, path, how)?;
    let metadata = std::fs::File::from(opened.try_clone()?).metadata()?;
    if metadata.is_symlink() {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    Ok(opened)
}
