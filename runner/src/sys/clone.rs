//! New processes in new namespaces: clone3(2), and the few steps between it and exec.
//!
//! The child shares no memory with the parent and allocates nothing: it waits until its id maps are
//! written, resets signals, puts its descriptors in place, and executes its program from a read-only
//! mount, so that nobody can write to the program through /proc/PID/exe.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{check, identity, mount};

/// Descriptors are duplicated to numbers from here on before they are put in place.
const HIGH: RawFd = 10;

/// The program that the child executes.
#[derive(Debug)]
pub enum Image {
    /// A descriptor that nobody can write through: a detached read-only mount of the file, or a sealed memfd.
    Sealed(OwnedFd),
    /// A path, of which the child makes a detached read-only mount in its new mount namespace.
    Path(CString),
}

/// What a new process is to be.
#[derive(Debug)]
pub struct Child<'a> {
    /// `CLONE_NEW*`.
    pub namespaces: libc::c_int,
    /// Its program.
    pub image: Image,
    /// argv[0].
    pub name: &'a CStr,
    /// Descriptors it gets as 0, 1, 2, …, in this order.
    pub descriptors: Vec<OwnedFd>,
    /// A control group of version 2 in which it is made.
    pub group: Option<OwnedFd>,
}

/// A process that has been made and waits for [`Held::release`].
#[derive(Debug)]
pub struct Held {
    /// Its id in this process's pid namespace.
    pub pid: libc::pid_t,
    /// Refers to it whatever happens to its id.
    pub pidfd: OwnedFd,
    release: OwnedFd,
}

impl Held {
    /// Lets the child go on, once its id maps are written. Dropping it instead ends the child.
    ///
    /// # Errors
    /// The child is gone.
    pub fn release(self) -> io::Result<(libc::pid_t, OwnedFd)> {
        nix::unistd::write(&self.release, &[1])?;
        Ok((self.pid, self.pidfd))
    }
}

/// Exit status of a child that failed before exec; the control descriptor says where.
pub const FAILED_BEFORE_EXEC: i32 = 96;

/// Where a child failed before exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stage {
    /// Its maps were never written.
    Release = 1,
    /// The read-only mount of its program.
    Image = 2,
    /// Keeping capabilities over exec.
    Capabilities = 3,
    /// execveat itself.
    Exec = 4,
}

impl Stage {
    /// Reads what [`spawn`]'s child wrote.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::Release),
            2 => Some(Self::Image),
            3 => Some(Self::Capabilities),
            4 => Some(Self::Exec),
            _ => None,
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Release => "waiting for its id maps",
            Self::Image => "mounting its program read-only",
            Self::Capabilities => "keeping its capabilities",
            Self::Exec => "executing its program",
        })
    }
}

/// First four bytes of a child's message that it failed before exec: a length that no frame has.
pub const FAILURE_MARK: u32 = u32::MAX;

/// Forks into new namespaces: 0 in the child, which must only make raw system calls and never return.
pub(super) fn clone3(
    flags: libc::c_int,
    pidfd: &mut RawFd,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<libc::pid_t> {
    // SAFETY: an all-zero clone_args is valid: no stack, no thread-local storage.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (flags | libc::CLONE_PIDFD) as u64;
    args.pidfd = std::ptr::from_mut(pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    make_in(&mut args, group);
    clone(&mut args)
}

/// Forks as `args` say: 0 in the child. The filters of some container engines answer clone3(2) with ENOSYS, as if the kernel were
/// an old one; what needs no more than it has is made by clone(2) then.
pub(super) fn clone(args: &mut libc::clone_args) -> io::Result<libc::pid_t> {
    // SAFETY: without CLONE_VM this is fork; the caller's child branch only makes raw system calls.
    let forked = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut *args,
            size_of::<libc::clone_args>(),
        )
    });
    let by_number = args.flags | args.exit_signal;
    let forked = match forked {
        Err(error)
            if error.raw_os_error() == Some(libc::ENOSYS) && args.flags & INTO_CGROUP == 0 =>
        {
            // The descriptor is stored where the parent's thread id would be (clone(2), CLONE_PIDFD); no stack, no thread-local storage.
            // SAFETY: as above; the one pointer is that of the arguments, or null where it is not written to.
            check(unsafe {
                libc::syscall(libc::SYS_clone, by_number, 0_u64, args.pidfd, 0_u64, 0_u64)
            })
        }
        forked => forked,
    };
    forked.map(|pid| pid as libc::pid_t)
}

/// Has the child made in a control group of version 2 (clone(2), CLONE_INTO_CGROUP).
pub(super) fn make_in(args: &mut libc::clone_args, group: Option<BorrowedFd<'_>>) {
    if let Some(group) = group {
        args.flags |= INTO_CGROUP;
        args.cgroup = group.as_raw_fd().unsigned_abs().into();
    }
}

/// CLONE_INTO_CGROUP, beyond what an int holds.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// Why there is no child.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// Its descriptors could not be made ready.
    #[error("make its descriptors ready")]
    Prepare(#[source] io::Error),
    /// The kernel refused.
    #[error("clone3")]
    Clone(#[source] io::Error),
}

impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        // What F_DUPFD answers where no number is as high (fcntl(2)).
        Self::Prepare(match error.raw_os_error() {
            Some(libc::EINVAL) => io::Error::from_raw_os_error(libc::EMFILE),
            _ => error,
        })
    }
}

impl From<nix::errno::Errno> for SpawnError {
    fn from(errno: nix::errno::Errno) -> Self {
        Self::Prepare(errno.into())
    }
}

/// Makes the child; it waits until it is released. Descriptor 3 must be a stream to this process: failures
/// before exec are written there as mark, [`Stage`] and errno (12 bytes).
///
/// # Errors
/// Those of clone3 where namespaces are not to be had (EPERM, ENOSPC, EINVAL), or those of what comes before.
pub fn spawn(child: Child<'_>) -> Result<Held, SpawnError> {
    if child.descriptors.len() > HIGH as usize {
        return Err(SpawnError::Prepare(io::ErrorKind::InvalidInput.into()));
    }
    let (wait, release) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let mut high = Vec::with_capacity(child.descriptors.len());
    for descriptor in &child.descriptors {
        high.push(super::descriptor::duplicate_above(
            std::os::fd::AsFd::as_fd(descriptor),
            HIGH,
        )?);
    }
    let wait = super::descriptor::duplicate_above(std::os::fd::AsFd::as_fd(&wait), HIGH)?;
    let image = match child.image {
        Image::Sealed(fd) => Image::Sealed(super::descriptor::duplicate_above(
            std::os::fd::AsFd::as_fd(&fd),
            HIGH,
        )?),
        path => path,
    };
    let mut pidfd: RawFd = -1;
    let group = child.group.as_ref().map(std::os::fd::AsFd::as_fd);
    match clone3(child.namespaces, &mut pidfd, group).map_err(SpawnError::Clone)? {
        0 => {
            // In the child, before exec: raw system calls only, and never a return.
            let failed = enter(
                &image,
                child.name,
                &high,
                (wait.as_raw_fd(), release.as_raw_fd()),
                child.namespaces != 0,
            );
            report_failure(failed)
        }
        pid => {
            // SAFETY: clone3 stored a new descriptor of ours.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Held {
                pid,
                pidfd,
                release,
            })
        }
    }
}

fn enter(
    image: &Image,
    name: &CStr,
    descriptors: &[OwnedFd],
    (wait, release): (RawFd, RawFd),
    has_namespaces: bool,
) -> (Stage, i32) {
    let errno = || io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // Another thread's child, made meanwhile, may wait as this one does and hold the parent's end of this one's pipe, as this
    // one holds that one's: neither would see the death of the parent. So it ends with it, until it executes its program.
    end_with_parent(true);
    // The parent's end of the pipe must be the only one, or its death would not be seen.
    // SAFETY: closing a number of ours in a process that never returns to safe code.
    unsafe { libc::close(release) };
    // Descriptors first, so that 3 can carry a failure.
    for (at, descriptor) in descriptors.iter().enumerate() {
        // SAFETY: dup2 takes two integers; sources are numbered HIGH and above, so none is overwritten.
        unsafe { libc::dup2(descriptor.as_raw_fd(), at as RawFd) };
    }
    let mut byte = 0u8;
    // SAFETY: byte is one writable byte.
    if unsafe { libc::read(wait, (&raw mut byte).cast(), 1) } != 1 {
        return (Stage::Release, errno());
    }
    reset_signals();
    let fd = match image {
        Image::Sealed(fd) => fd.as_raw_fd(),
        Image::Path(path) => {
            // SAFETY: path is a C string.
            let mounted = unsafe { mount::clone_file_raw(path.as_ptr()) };
            match mounted.and_then(|fd| mount::restrict_raw_read_only(fd).map(|()| fd)) {
                Ok(fd) => fd,
                Err(_) => return (Stage::Image, errno()),
            }
        }
    };
    // Who stays where the caller is starts programs with the caller's capabilities, and not with ambient ones that these need not
    // expect: a sandbox that empties the bounding set alone would leave its workload those.
    if has_namespaces && identity::keep_capabilities_over_exec().is_err() {
        return (Stage::Capabilities, errno());
    }
    // From here on the program sees by its descriptors that the parent is gone; the signal would also come when only the thread
    // that made this process ends.
    end_with_parent(false);
    let argv = [name.as_ptr(), std::ptr::null()];
    let envp = [std::ptr::null::<libc::c_char>()];
    // SAFETY: argv and envp are null-terminated arrays of C strings.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            fd,
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    (Stage::Exec, errno())
}

/// Between fork and exec: whether this process is killed when the thread that made it ends (prctl(2)).
fn end_with_parent(ends: bool) {
    let signal = if ends { libc::SIGKILL } else { 0 };
    // SAFETY: two integers; it fails for no valid signal.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

fn report_failure((stage, errno): (Stage, i32)) -> ! {
    let mut message = [0u8; 12];
    message[..4].copy_from_slice(&FAILURE_MARK.to_le_bytes());
    message[4..8].copy_from_slice(&(stage as u32).to_le_bytes());
    message[8..].copy_from_slice(&errno.to_le_bytes());
    // SAFETY: message is 12 readable bytes.
    unsafe { libc::write(3, message.as_ptr().cast(), message.len()) };
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(FAILED_BEFORE_EXEC) }
}

/// Every signal to its default and none blocked; handlers and ignores of the parent do not travel.
fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL for a signal number; KILL and STOP answer EINVAL.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero sigset_t is the empty set.
    let empty: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: empty outlives the call.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const empty, std::ptr::null_mut()) };
}

/// A process that only waits, in a new user namespace of which a descriptor is wanted; it ends when the value
/// is dropped.
#[derive(Debug)]
pub struct Placeholder {
    /// Its id.
    pub pid: libc::pid_t,
    pidfd: OwnedFd,
    _release: OwnedFd,
}

impl Placeholder {
    /// Makes one in new namespaces of the kinds in `namespaces`.
    ///
    /// # Errors
    /// Those of clone3.
    pub fn new(namespaces: libc::c_int) -> io::Result<Self> {
        let (wait, release) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let mut pidfd: RawFd = -1;
        match clone3(namespaces, &mut pidfd, None)? {
            0 => {
                // SAFETY: raw system calls on numbers of ours, then the end of this process.
                unsafe {
                    // Another one may hold the maker's end of this one's pipe, as this one holds that one's.
                    end_with_parent(true);
                    libc::close(release.as_raw_fd());
                    let mut byte = 0u8;
                    libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
                    libc::_exit(0)
                }
            }
            pid => {
                // SAFETY: clone3 stored a new descriptor of ours.
                let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
                Ok(Self {
                    pid,
                    pidfd,
                    _release: release,
                })
            }
        }
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        let _ = super::process::kill(&self.pidfd, libc::SIGKILL);
        let _ = super::process::wait(&self.pidfd);
    }
}
