//! One kernel operation tried in a child of its own, in namespaces of its own, so that nothing of it stays.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::check;
use super::clone::clone3;
use super::process::{self, Ended};

/// What the child tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Nothing: the namespaces alone.
    Namespaces,
    /// Mount a fresh /proc over the old one; needs new mount and pid namespaces.
    FreshProc,
    /// Mount an empty tmpfs; needs a new mount namespace.
    Tmpfs,
    /// Copy the mounts at /usr and make all of them read-only at once; needs a new mount namespace.
    ReadOnlyTree,
    /// Drop every supplementary group.
    DropGroups,
    /// Become a user and group of this number, without groups beside.
    TakeId(u32),
}

/// Exit status of a child whose parent did not let it go on.
const ABANDONED: i32 = 250;

/// Makes a child in new namespaces (`CLONE_NEW*`), calls `prepare` with its id (to write its id maps), and lets
/// it try.
///
/// # Errors
/// Those of clone3, of `prepare`, or of the attempt itself.
pub fn attempt(
    namespaces: libc::c_int,
    what: Attempt,
    prepare: impl FnOnce(libc::pid_t) -> io::Result<()>,
) -> io::Result<()> {
    let (wait, go) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let mut pidfd: RawFd = -1;
    // The child branch only makes raw system calls and never returns.
    let pid = clone3(namespaces, &mut pidfd, None)?;
    if pid == 0 {
        child(what, wait.as_raw_fd(), go.as_raw_fd());
    }
    // SAFETY: clone3 stored a new descriptor of ours.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let prepared = prepare(pid).and_then(|()| Ok(nix::unistd::write(&go, &[1])?));
    drop(go);
    let ended = process::wait(&pidfd);
    prepared?;
    match ended? {
        Ended::Exited(0) => Ok(()),
        Ended::Exited(errno) => Err(io::Error::from_raw_os_error(errno.into())),
        Ended::Signaled(signal) => Err(io::Error::other(format!(
            "the attempt died of signal {signal}"
        ))),
    }
}

/// The errno of the first failed call is the exit status; every one of Linux is below 134.
fn child(what: Attempt, wait: RawFd, go: RawFd) -> ! {
    let mut byte = 0_u8;
    // The parent's end must be the only one, or its death would not be seen.
    // SAFETY: two numbers of ours; byte is one writable byte.
    let read = unsafe {
        libc::close(go);
        libc::read(wait, (&raw mut byte).cast(), 1)
    };
    let status = if read == 1 {
        match what.make() {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    } else {
        ABANDONED
    };
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(status) }
}

impl Attempt {
    // Between fork and exit: no allocation, raw system calls only.
    fn make(self) -> io::Result<libc::c_long> {
        match self {
            Self::Namespaces => Ok(0),
            Self::FreshProc => private_mounts().and_then(|_| mount(c"proc", c"/proc")),
            Self::Tmpfs => private_mounts().and_then(|_| mount(c"tmpfs", c"/tmp")),
            Self::ReadOnlyTree => {
                let flags = (libc::O_CLOEXEC | libc::AT_RECURSIVE) as libc::c_uint | 1; // OPEN_TREE_CLONE
                // SAFETY: a C string that lives for ever.
                let tree = check(unsafe {
                    libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, c"/usr".as_ptr(), flags)
                })?;
                let attributes = libc::mount_attr {
                    attr_set: libc::MOUNT_ATTR_RDONLY,
                    attr_clr: 0,
                    propagation: 0,
                    userns_fd: 0,
                };
                let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
                // SAFETY: the path is a C string and attributes outlive the call, which reads their size.
                check(unsafe {
                    libc::syscall(
                        libc::SYS_mount_setattr,
                        tree,
                        c"".as_ptr(),
                        flags,
                        &raw const attributes,
                        size_of::<libc::mount_attr>(),
                    )
                })
            }
            // SAFETY: no groups are read from the null pointer when the count is 0.
            Self::DropGroups => check(unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>())
            }),
            Self::TakeId(id) => {
                Self::DropGroups.make()?;
                // SAFETY: integers; the raw calls act on this thread, which is the only one.
                check(unsafe { libc::syscall(libc::SYS_setresgid, id, id, id) })?;
                // SAFETY: as above.
                check(unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) })
            }
        }
    }
}

fn private_mounts() -> io::Result<libc::c_long> {
    let none = std::ptr::null::<libc::c_char>();
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the target is a C string, the other pointers may be null for a change of propagation.
    check(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, std::ptr::null()) }.into())
}

fn mount(kind: &std::ffi::CStr, target: &std::ffi::CStr) -> io::Result<libc::c_long> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: C strings that live for ever; no options.
    check(
        unsafe {
            libc::mount(
                kind.as_ptr(),
                target.as_ptr(),
                kind.as_ptr(),
                flags,
                std::ptr::null(),
            )
        }
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_reports_its_error_and_a_failed_preparation_ends_it() {
        attempt(0, Attempt::Namespaces, |_| Ok(())).unwrap();
        // A fresh user namespace without maps may not drop groups, whoever asks.
        match attempt(libc::CLONE_NEWUSER, Attempt::DropGroups, |_| Ok(())) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            other => panic!("{other:?}"),
        }
        let refused = attempt(0, Attempt::Namespaces, |_| Err(io::Error::other("no")));
        assert_eq!(refused.unwrap_err().to_string(), "no");
    }
}
