//! The only unsafe code: system calls that std and nix do not offer safely.
//!
//! Each function is one kernel operation with a safe signature and the kernel's own error. Functions that
//! give a sandbox mechanism its effect ask [`fault`] first, so that tests can take one mechanism away.

#![allow(unsafe_code, reason = "this module is where unsafe lives")]

pub mod attempt;
pub mod canary;
pub mod clone;
pub mod deaf;
pub mod descriptor;
pub mod fault;
pub mod filter;
pub mod identity;
pub mod kernel;
pub mod mount;
pub mod network;
pub mod notify;
pub mod process;
pub mod pseudo;
pub mod reserve;
pub mod start;
pub mod starter;
pub mod terminal;

use std::io;

/// Turns the raw return value of a system call into a result.
fn check(value: libc::c_long) -> io::Result<libc::c_long> {
    if value < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// The name of an error number (`EPERM`), or its number where it has none.
#[must_use]
pub fn errno_name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => match nix::errno::Errno::from_raw(number) {
            nix::errno::Errno::UnknownErrno => number.to_string(),
            errno => format!("{errno:?}"),
        },
        None => error.kind().to_string(),
    }
}
