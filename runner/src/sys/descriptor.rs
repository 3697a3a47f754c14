//! Descriptors: moving, closing, passing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{check, fault};

/// A copy of `fd` numbered `at_least` or higher, closed on exec.
///
/// # Errors
/// The kernel's, for lack of descriptors.
pub fn duplicate_above(fd: BorrowedFd<'_>, at_least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with F_DUPFD_CLOEXEC takes two integers and returns a new descriptor.
    let new =
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, at_least) }.into())?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(new as RawFd) })
}

/// A copy of `fd` numbered `at_least` or higher that every program executed from now on inherits.
///
/// # Errors
/// The kernel's, for lack of descriptors.
pub fn duplicate_leaking(fd: BorrowedFd<'_>, at_least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with F_DUPFD takes two integers and returns a new descriptor.
    let new = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, at_least) }.into())?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(new as RawFd) })
}

/// Whether a descriptor closes on exec.
///
/// # Errors
/// EBADF.
pub fn is_cloexec(fd: &impl AsRawFd) -> io::Result<bool> {
    // SAFETY: F_GETFD only looks the number up.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }.into())?;
    Ok(flags & libc::c_long::from(libc::FD_CLOEXEC) != 0)
}

/// Gives a descriptor a number, at which [`take_planted`] finds it.
///
/// # Errors
/// The kernel's, for lack of descriptors.
pub fn plant(fd: OwnedFd, number: RawFd) -> io::Result<()> {
    // SAFETY: dup3 takes integers; by agreement nothing in this process owns the number.
    check(unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) }.into()).map(drop)
}

/// Takes a descriptor that was planted at a known number by whoever executed this process.
///
/// # Errors
/// There is no such descriptor.
pub fn take_planted(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only looks the number up.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) }.into())?;
    // SAFETY: the descriptor is open, and by agreement nothing else in this process owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    set_cloexec(&fd, true)?;
    Ok(fd)
}

/// Says whether a descriptor closes on exec.
///
/// # Errors
/// The kernel's.
pub fn set_cloexec(fd: &impl AsRawFd, on: bool) -> io::Result<()> {
    let flags = if on { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: F_SETFD takes an integer.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, flags) }.into()).map(drop)
}

/// Waits until no other process has a lock on a file, and takes it (fcntl(2), F_SETLKW).
///
/// # Errors
/// The kernel's.
pub fn wait_for_lock(file: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: an all-zero flock is valid: the whole file.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    loop {
        // SAFETY: F_SETLKW reads one flock.
        let done = check(
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const whole) }.into(),
        );
        match done {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// Marks every descriptor from `first` on to be closed on exec (close_range(2), Linux 5.11; 5.9 and 5.10 know
/// the call but not the flag, so there each one in /proc/self/fd is marked).
///
/// # Errors
/// The kernel's.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    fault::guard("close-descriptors", || {
        // SAFETY: close_range takes three integers; CLOEXEC closes nothing now.
        let done = check(unsafe {
            libc::syscall(
                libc::SYS_close_range,
                first as libc::c_uint,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        });
        match done {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                for entry in std::fs::read_dir("/proc/self/fd")? {
                    let number = entry?.file_name().to_string_lossy().parse::<RawFd>();
                    if let Ok(number) = number.map_err(io::Error::other)
                        && number >= first
                    {
                        // SAFETY: F_SETFD takes an integer; the directory's own descriptor may be gone (EBADF).
                        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
                    }
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    })
}
