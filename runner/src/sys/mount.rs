//! Mounts by descriptor (open_tree(2), move_mount(2), mount_setattr(2), fsopen(2); Linux 5.2 and 5.12).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{check, fault};

const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x04;
const MOVE_MOUNT_T_EMPTY_PATH: libc::c_uint = 0x40;
const AT_RECURSIVE: libc::c_uint = 0x8000;

/// Attributes of mounts (`MOUNT_ATTR_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// No writes.
    pub read_only: bool,
    /// No device nodes.
    pub no_dev: bool,
    /// No set-user-id programs.
    pub no_suid: bool,
    /// No programs.
    pub no_exec: bool,
}

impl Attributes {
    fn bits(self) -> u64 {
        let mut bits = 0;
        for (on, bit) in [
            (self.read_only, libc::MOUNT_ATTR_RDONLY),
            (self.no_dev, libc::MOUNT_ATTR_NODEV),
            (self.no_suid, libc::MOUNT_ATTR_NOSUID),
            (self.no_exec, libc::MOUNT_ATTR_NOEXEC),
        ] {
            if on {
                bits |= bit;
            }
        }
        bits
    }
}

fn owned(value: libc::c_long) -> OwnedFd {
    // SAFETY: called with a descriptor that the kernel just made for us alone.
    unsafe { OwnedFd::from_raw_fd(value as RawFd) }
}

/// A detached copy of the mount at `path` below `dir`; of everything mounted below it too when `recursive`. An
/// empty path means `dir` itself.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN over the mount namespace, EINVAL for a mount of another namespace.
pub fn clone_tree(
    dir: Option<BorrowedFd<'_>>,
    path: &CStr,
    recursive: bool,
) -> io::Result<OwnedFd> {
    let mut flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH as libc::c_uint;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    let dir = dir.map_or(libc::AT_FDCWD, |dir| dir.as_raw_fd());
    // SAFETY: path is a C string that outlives the call.
    check(unsafe { libc::syscall(libc::SYS_open_tree, dir, path.as_ptr(), flags) }).map(owned)
}

/// As [`clone_tree`] for one file, from a raw path, between clone and exec: no allocation, no drop.
///
/// # Safety
/// `path` must point to a C string.
pub(super) unsafe fn clone_file_raw(path: *const libc::c_char) -> io::Result<RawFd> {
    // SAFETY: by this function's contract.
    check(unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            path,
            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC,
        )
    })
    .map(|fd| fd as RawFd)
}

/// Adds attributes to a mount (to all below it too when `recursive`); never takes one away.
///
/// # Errors
/// ENOSYS before Linux 5.12; EPERM for locked attributes.
pub fn restrict(mount: BorrowedFd<'_>, attributes: Attributes, recursive: bool) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: attributes.bits(),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    set_attributes(mount.as_raw_fd(), &attr, recursive)
}

pub(super) fn restrict_raw_read_only(mount: RawFd) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    set_attributes(mount, &attr, false)
}

/// Maps the owners of a detached mount's files by the maps of a user namespace.
///
/// # Errors
/// EINVAL where the file system does not support it, ENOSYS before Linux 5.12.
pub fn map_owners(
    mount: BorrowedFd<'_>,
    user_namespace: BorrowedFd<'_>,
    recursive: bool,
) -> io::Result<()> {
    fault::guard("idmap", || {
        let attr = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_IDMAP,
            attr_clr: 0,
            propagation: 0,
            userns_fd: user_namespace.as_raw_fd() as u64,
        };
        set_attributes(mount.as_raw_fd(), &attr, recursive)
    })
}

fn set_attributes(mount: RawFd, attr: &libc::mount_attr, recursive: bool) -> io::Result<()> {
    // The switch makes a kernel before 5.12 of this one, so that the fallbacks can be tested.
    if fault::of("mount-setattr").is_some() {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let mut flags = libc::AT_EMPTY_PATH as libc::c_uint;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    // SAFETY: the empty C string and attr outlive the call; the size is attr's own.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount,
            c"".as_ptr(),
            flags,
            attr,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Attaches a detached mount at the place that `target` is open on.
///
/// # Errors
/// The kernel's.
pub fn attach(mount: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both paths are empty C strings that outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            target.as_raw_fd(),
            c"".as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// A new detached file system of type `kind` with `options`, mounted with `attributes`.
///
/// # Errors
/// The kernel's (EPERM for a type that the user namespace may not mount).
pub fn new_filesystem(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: Attributes,
) -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    const SET_STRING: libc::c_uint = 1;
    const CREATE: libc::c_uint = 6;
    // SAFETY: kind is a C string that outlives the call.
    let context = owned(check(unsafe {
        libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC)
    })?);
    for (name, value) in options {
        // SAFETY: name and value are C strings that outlive the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                SET_STRING,
                name.as_ptr(),
                value.as_ptr(),
                0,
            )
        })?;
    }
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: CREATE takes no key and no value.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            CREATE,
            none,
            none,
            0,
        )
    })?;
    // SAFETY: three integers.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            attributes.bits() as libc::c_uint,
        )
    })
    .map(owned)
}

/// Makes the directory `root` this process's root and drops the old one (pivot_root(2), `.`, `.`).
///
/// # Errors
/// The kernel's.
pub fn pivot_into(root: BorrowedFd<'_>) -> io::Result<()> {
    fault::guard("pivot-root", || {
        nix::unistd::fchdir(root.as_fd())?;
        nix::unistd::pivot_root(".", ".")?;
        nix::mount::umount2(".", nix::mount::MntFlags::MNT_DETACH)?;
        nix::unistd::chdir("/")?;
        Ok(())
    })
}

/// Whether the kernel has mount_setattr(2) (Linux 5.12).
#[must_use]
pub fn has_set_attributes() -> bool {
    let attr = libc::mount_attr {
        attr_set: 0,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    !matches!(set_attributes(-1, &attr, false), Err(error) if error.raw_os_error() == Some(libc::ENOSYS))
}

/// The id of the mount that a name in a folder shows (statx(2), `STX_MNT_ID`, Linux 5.8), links not followed; `None` where the
/// kernel does not say.
///
/// # Errors
/// The kernel's, such as ENOENT.
pub fn id_of(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<u64>> {
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;
    // SAFETY: an all-zero statx is valid.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (folder, name, wanted) = (folder.as_raw_fd(), name.as_ptr(), libc::STATX_MNT_ID);
    // SAFETY: the name is a C string and the result is writable for the duration of the call.
    let done = unsafe { libc::statx(folder, name, flags, wanted, &raw mut found) };
    check(done.into())?;
    Ok((found.stx_mask & libc::STATX_MNT_ID != 0).then_some(found.stx_mnt_id))
}
