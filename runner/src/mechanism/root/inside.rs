//! Places in a new root: found, and made where they are missing, as if it were `/`.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, mkdirat};

use crate::sys::mount;

/// Opens a path as if `root` were `/`: links lead nowhere else.
pub(in crate::mechanism) fn open_inside(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlag,
) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok(openat2(root, path, how)?)
}

/// Attaches `mounted` at `path`, made where it is missing.
pub(super) fn attach(
    root: &OwnedFd,
    path: &Path,
    mounted: &OwnedFd,
    is_folder: bool,
) -> io::Result<()> {
    let target = if is_folder {
        folder(root, path)?
    } else {
        file(root, path)?
    };
    mount::attach(mounted.as_fd(), target.as_fd())
}

/// The folder at `path` in the new root, made with its parents where it is missing.
pub(super) fn folder(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
    match open_inside(root.as_fd(), path, flags) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let parent = folder(root, above)?;
    mkdirat(&parent, name, Mode::from_bits_truncate(0o755))?;
    open_inside(root.as_fd(), path, flags)
}

/// The file at `path` in the new root, made empty where it is missing.
fn file(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    if let Ok(found) = open_inside(root.as_fd(), path, OFlag::O_PATH) {
        return Ok(found);
    }
    let (parent, name) = parent(root, path)?;
    let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    drop(openat(
        &parent,
        name,
        flags,
        Mode::from_bits_truncate(0o644),
    )?);
    open_inside(root.as_fd(), path, OFlag::O_PATH)
}

/// The folder that `path` is in, made where it is missing, and its name there.
pub(super) fn parent<'a>(root: &OwnedFd, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let above = path.parent().unwrap_or(Path::new("/"));
    debug_assert!(!name.as_bytes().is_empty());
    Ok((folder(root, above)?, name))
}
