//! Terminals: making one the controlling terminal (ioctl_tty(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// Makes `terminal` the controlling terminal of this session leader.
///
/// # Errors
/// EPERM when it already has one.
pub fn make_controlling(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes an integer.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }.into()).map(drop)
}

/// Opens the other end of a pseudo-terminal without a path (TIOCGPTPEER, Linux 4.13).
///
/// # Errors
/// The kernel's.
pub fn peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes open flags and returns a new descriptor.
    let fd = check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) }.into())?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Allows the other end of a new devpts pseudo-terminal to be opened (TIOCSPTLCK 0).
///
/// # Errors
/// The kernel's.
pub fn unlock(master: BorrowedFd<'_>) -> io::Result<()> {
    let zero: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads one integer.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const zero) }.into())
        .map(drop)
}

/// The window size of a terminal, as rows and columns.
///
/// # Errors
/// ENOTTY.
pub fn window_size(terminal: BorrowedFd<'_>) -> io::Result<(u16, u16)> {
    // SAFETY: an all-zero winsize is valid.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: TIOCGWINSZ writes one winsize.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) }.into())?;
    Ok((size.ws_row, size.ws_col))
}

/// Sets the window size of a terminal.
///
/// # Errors
/// ENOTTY.
pub fn set_window_size(terminal: BorrowedFd<'_>, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads one winsize.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }.into())
        .map(drop)
}
