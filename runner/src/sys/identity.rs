//! Ids, capabilities and the privilege switches of one thread (credentials(7), capabilities(7), prctl(2)).

use std::io;

use super::{check, fault};

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;
/// Highest capability number that is tried; the kernel answers EINVAL past its own last one.
const LAST_CAPABILITY: libc::c_ulong = 63;

const SECBIT_NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;

fn prctl(option: libc::c_int, a: libc::c_ulong, b: libc::c_ulong) -> io::Result<libc::c_long> {
    // SAFETY: the options used in this file take integers only.
    check(unsafe { libc::prctl(option, a, b, 0 as libc::c_ulong, 0 as libc::c_ulong) }.into())
}

/// Mounting, and mapping the owners of what is mounted (capabilities(7)).
pub const CAP_SYS_ADMIN: u32 = 21;
/// Looking into every process of this user namespace (capabilities(7)).
pub const CAP_SYS_PTRACE: u32 = 19;

/// Whether this thread has a capability now; not where the kernel does not say.
#[must_use]
pub fn is_effective(capability: u32) -> bool {
    let header = CapHeader {
        version: CAP_VERSION_3,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 writes two CapData.
    let got =
        check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) });
    let word = data
        .get(capability as usize / 32)
        .map_or(0, |data| data.effective);
    got.is_ok() && word >> (capability % 32) & 1 == 1
}

/// Drops every supplementary group.
///
/// # Errors
/// EPERM where the user namespace says `deny`.
pub fn drop_groups() -> io::Result<()> {
    fault::guard("set-groups", || {
        // SAFETY: no groups are read from the null pointer when the count is 0.
        check(unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) })
            .map(drop)
    })
}

/// Becomes `uid` and `gid` in every sense, keeping capabilities for the mounts that follow.
///
/// # Errors
/// An id that the user namespace does not map.
pub fn become_ids(uid: u32, gid: u32) -> io::Result<()> {
    fault::guard("set-ids", || {
        prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0)?;
        // SAFETY: three integers; the raw calls act on this thread, which is the only one.
        check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
        // SAFETY: as above.
        check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })?;
        Ok(())
    })
}

/// Empties the bounding set.
///
/// # Errors
/// EPERM without CAP_SETPCAP.
pub fn clear_bounding_set() -> io::Result<()> {
    fault::guard("bounding-set", || {
        for capability in 0..=LAST_CAPABILITY {
            match prctl(libc::PR_CAPBSET_DROP, capability, 0) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}

/// Empties the ambient, inheritable, permitted and effective sets.
///
/// # Errors
/// The kernel's.
pub fn clear_capabilities() -> io::Result<()> {
    fault::guard("capabilities", || {
        prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
            0,
        )?;
        let header = CapHeader {
            version: CAP_VERSION_3,
            pid: 0,
        };
        let data = [CapData::default(); 2];
        // SAFETY: header and both data elements are valid for the duration of the call.
        check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })
            .map(drop)
    })
}

/// Makes every permitted capability inheritable and ambient, so that it survives execve. Callable between clone and exec:
/// no allocation.
///
/// # Errors
/// The kernel's.
pub fn keep_capabilities_over_exec() -> io::Result<()> {
    let header = CapHeader {
        version: CAP_VERSION_3,
        pid: 0,
    };
    let mut data = [CapData::default(); 2];
    // SAFETY: header and both data elements are valid for the duration of the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) })?;
    for set in &mut data {
        set.inheritable = set.permitted;
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })?;
    let permitted = u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32;
    for capability in 0..=LAST_CAPABILITY {
        if permitted >> capability & 1 == 1 {
            prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong,
                capability,
            )?;
        }
    }
    Ok(())
}

/// No exec gives this thread or its children more than it has (no_new_privs).
///
/// # Errors
/// The kernel's.
pub fn set_no_new_privs() -> io::Result<()> {
    fault::guard("no-new-privs", || {
        prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map(drop)
    })
}

/// Whether others of the same id may look into this process (PR_SET_DUMPABLE).
///
/// # Errors
/// The kernel's.
pub fn set_dumpable(on: bool) -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, on.into(), 0).map(drop)
}

/// Begins a session without a controlling terminal.
///
/// # Errors
/// EPERM for a group leader.
pub fn new_session() -> io::Result<()> {
    fault::guard("new-session", || {
        // SAFETY: no arguments.
        check(unsafe { libc::setsid() }.into()).map(drop)
    })
}

/// Joins a new, anonymous session keyring (keyctl(2), KEYCTL_JOIN_SESSION_KEYRING); kernels without keys have none to
/// inherit.
///
/// # Errors
/// The kernel's.
pub fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    let anonymous = std::ptr::null::<libc::c_char>();
    // SAFETY: a null name asks for an anonymous keyring.
    let joined = check(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) });
    match joined {
        Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => Err(error),
        _ => Ok(()),
    }
}
