//! Installing a seccomp filter (seccomp(2), Documentation/userspace-api/seccomp_filter.rst).

use std::io;

use super::{check, fault};

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

/// Puts a filter on this thread in the name of a mechanism; the thread must have no_new_privs set.
///
/// # Errors
/// EACCES without no_new_privs, EINVAL for a program that the kernel does not accept.
pub fn install(mechanism: &'static str, program: &[Instruction]) -> io::Result<()> {
    fault::guard(mechanism, || {
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
                0 as libc::c_uint,
                &raw const program,
            )
        })
        .map(drop)
    })
}
