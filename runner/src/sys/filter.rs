//! Installing a seccomp filter (seccomp(2), Documentation/userspace-api/seccomp_filter.rst).

use std::io;
use std::os::fd::RawFd;

use super::{check, fault, notify};

/// One BPF instruction as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Jump when true.
    pub jt: u8,
    /// Jump when false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

#[repr(C)]
struct Program {
    len: libc::c_ushort,
    filter: *const Instruction,
}

/// Whether this thread is under a filter already, and with it all that it starts; also where that cannot be known (`PR_GET_SECCOMP`,
/// prctl(2): a filter may deny the question).
#[must_use]
pub fn is_under_one() -> bool {
    // SAFETY: an option without pointers; the kernel reads no memory of this process.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP) };
    mode != 0
}

/// Puts a filter on this thread in the name of a mechanism; the thread must have no_new_privs set.
///
/// # Errors
/// EACCES without no_new_privs, EINVAL for a program that the kernel does not accept.
pub fn install(mechanism: &'static str, program: &[Instruction]) -> io::Result<()> {
    fault::guard(mechanism, || set(program, 0).map(drop))
}

/// The same with a listener, who hears of the calls that the program hands over (`SECCOMP_RET_USER_NOTIF`): the number of
/// its descriptor. Nothing is allocated.
///
/// # Errors
/// EBUSY where a filter of this thread has a listener already, EINVAL before Linux 5.0; the filter is not installed then.
pub fn install_reporting(mechanism: &'static str, program: &[Instruction]) -> io::Result<RawFd> {
    // What is taken away is the filter, which is tried without a listener then.
    if fault::of(mechanism).is_some() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let mut answer = Err(io::Error::from_raw_os_error(libc::EINVAL));
    for flags in notify::FLAGS {
        answer = set(program, flags).map(|number| number as RawFd);
        match &answer {
            // A flag that this kernel does not know.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            _ => break,
        }
    }
    answer
}

fn set(program: &[Instruction], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let len = libc::c_ushort::try_from(program.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = Program {
        len,
        filter: program.as_ptr(),
    };
    // SAFETY: the program and its instructions outlive the call, which copies them.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags as libc::c_uint,
            &raw const program,
        )
    })
}
