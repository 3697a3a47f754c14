//! The program of pid 1: this one, so that no workload can write to it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use crate::sys::clone::Image;
use crate::sys::mount;

/// This program, so that nobody can write to it through /proc/PID/exe: a read-only mount of the file, made here as
/// root, else by the child in its mount namespace; a sealed copy in memory where the kernel has no mount_setattr or
/// where there is no mount namespace.
pub(super) fn image(in_user_namespace: bool) -> io::Result<Image> {
    if !in_user_namespace || !mount::has_set_attributes() {
        return sealed_copy();
    }
    if let Some(mounted) = sealed_mount()? {
        return Ok(Image::Sealed(mounted));
    }
    let path = std::fs::read_link("/proc/self/exe")?;
    Ok(Image::Path(CString::new(path.into_os_string().into_vec())?))
}

/// A read-only mount of this program, where this process may make one: root of a container mostly may not.
pub(super) fn sealed_mount() -> io::Result<Option<OwnedFd>> {
    if !nix::unistd::geteuid().is_root() || !mount::has_set_attributes() {
        return Ok(None);
    }
    let tree = match mount::clone_tree(None, c"/proc/self/exe", false) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Ok(None),
        tree => tree?,
    };
    let attributes = mount::Attributes {
        read_only: true,
        ..mount::Attributes::default()
    };
    mount::restrict(tree.as_fd(), attributes, false)?;
    Ok(Some(tree))
}

fn sealed_copy() -> io::Result<Image> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC and need none.
    let executable = MFdFlags::from_bits_retain(libc::MFD_EXEC);
    let copy = memfd_create(c"containment-init", flags | executable)
        .or_else(|_| memfd_create(c"containment-init", flags))?;
    let mut to = std::fs::File::from(copy);
    io::copy(&mut std::fs::File::open("/proc/self/exe")?, &mut to)?;
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE;
    fcntl(&to, FcntlArg::F_ADD_SEALS(seals))?;
    // A descriptor that is open for writing cannot be executed (ETXTBSY).
    let read_only = std::fs::File::open(format!("/proc/self/fd/{}", to.as_raw_fd()))?;
    Ok(Image::Sealed(read_only.into()))
}
