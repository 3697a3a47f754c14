//! What this kernel answers about itself (landlock_create_ruleset(2), seccomp(2), lsm_list_modules(2)).

use std::io;

use super::check;

/// The Landlock ABI that the kernel offers.
///
/// # Errors
/// ENOSYS without Landlock, EOPNOTSUPP when it is built in and switched off at boot, EPERM where a filter
/// denies the call.
pub fn landlock_abi() -> io::Result<u32> {
    const VERSION: libc::c_uint = 1; // LANDLOCK_CREATE_RULESET_VERSION
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the kernel takes no attributes: a null pointer of size 0.
    let abi =
        check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION) })?;
    u32::try_from(abi).map_err(io::Error::other)
}

/// Whether a seccomp filter may return `action` (`SECCOMP_RET_*`).
///
/// # Errors
/// EOPNOTSUPP for an action that this kernel does not know, ENOSYS or EINVAL without filters.
pub fn seccomp_action(action: u32) -> io::Result<()> {
    // SAFETY: the kernel reads one u32 that outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0 as libc::c_uint,
            &raw const action,
        )
    })
    .map(drop)
}

/// Numbers of the active security modules (`LSM_ID_*` of linux/lsm.h), in the order they are asked.
///
/// # Errors
/// ENOSYS before Linux 6.8.
pub fn security_modules() -> io::Result<Vec<u64>> {
    // The same number on every architecture; the libc crate has no name for it.
    const SYS_LSM_LIST_MODULES: libc::c_long = 461;
    let mut ids = [0_u64; 64];
    let mut bytes = size_of_val(&ids) as u32;
    // SAFETY: ids is writable for `bytes` bytes, and bytes is a writable u32, for the duration of the call.
    let count = check(unsafe {
        libc::syscall(
            SYS_LSM_LIST_MODULES,
            ids.as_mut_ptr(),
            &raw mut bytes,
            0 as libc::c_uint,
        )
    })?;
    let count = usize::try_from(count).map_err(io::Error::other)?;
    Ok(ids.get(..count).unwrap_or(&ids).to_vec())
}

/// The names of the extended attributes of `path`, each ended by a zero byte; none where the file system has none. A link is
/// not followed.
///
/// # Errors
/// The kernel's, ERANGE for more than 64 KiB of names.
pub fn attribute_names(path: &std::path::Path) -> io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let mut names = vec![0_u8; 64 << 10];
    // SAFETY: a C string, and a buffer of the length that is given.
    let length = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    match check(length as libc::c_long) {
        Ok(length) => {
            names.truncate(length as usize);
            Ok(names)
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether an extended attribute of `path` exists and reads `1`.
#[must_use]
pub fn attribute_is_one(path: &std::path::Path, name: &str) -> bool {
    use std::os::unix::ffi::OsStrExt as _;
    let (Ok(path), Ok(name)) = (
        std::ffi::CString::new(path.as_os_str().as_bytes()),
        std::ffi::CString::new(name),
    ) else {
        return false;
    };
    let mut value = [0_u8; 2];
    // SAFETY: two C strings, and a buffer of the length that is given.
    let read = unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    read == 1 && value[0] == b'1'
}
