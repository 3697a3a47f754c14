//! Processes by descriptor (pidfd_send_signal(2), waitid(2)), and the workload's fork.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};

use super::check;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Ended {
    /// With this status.
    Exited(u8),
    /// By this signal.
    Signaled(u8),
}

/// Sends a signal to the process that `pidfd` refers to.
///
/// # Errors
/// ESRCH when it is gone.
pub fn kill(pidfd: &OwnedFd, signal: libc::c_int) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a null siginfo means the same as kill(2).
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            none,
            0,
        )
    })
    .map(drop)
}

/// A descriptor of a process that runs (pidfd_open(2)).
///
/// # Errors
/// ESRCH when there is none.
pub fn open(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: two numbers.
    let opened = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let number = RawFd::try_from(opened).map_err(io::Error::other)?;
    // SAFETY: the kernel made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Limits the open files of another process, soft and hard (prlimit(2)).
///
/// # Errors
/// EPERM for a process of another user, or for a limit above its hard one.
pub fn limit_open_files(pid: libc::pid_t, limit: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    let none = std::ptr::null_mut();
    // SAFETY: the new limit outlives the call, and the old one is not asked for.
    check(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const limit, none) }.into())
        .map(drop)
}

/// Waits for the child that `pidfd` refers to.
///
/// # Errors
/// ECHILD when it is no child of this process.
pub fn wait(pidfd: &OwnedFd) -> io::Result<Ended> {
    loop {
        // SAFETY: an all-zero siginfo_t is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: info is writable for the duration of the call.
        let done = check(
            unsafe {
                libc::waitid(
                    libc::P_PIDFD,
                    pidfd.as_raw_fd() as libc::id_t,
                    &raw mut info,
                    libc::WEXITED,
                )
            }
            .into(),
        );
        match done {
            Ok(_) => return Ok(ended(&info)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the process that `pidfd` refers to has ended, waited for or not (pidfd_open(2)).
#[must_use]
pub fn has_ended(pidfd: &OwnedFd) -> bool {
    use std::os::fd::AsFd as _;
    let mut list = [nix::poll::PollFd::new(
        pidfd.as_fd(),
        nix::poll::PollFlags::POLLIN,
    )];
    nix::poll::poll(&mut list, nix::poll::PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Reaps one child that has ended, whichever; `None` when none has.
///
/// # Errors
/// Any but "no children".
pub fn reap() -> io::Result<Option<(libc::pid_t, Ended)>> {
    // SAFETY: an all-zero siginfo_t is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: info is writable for the duration of the call.
    let done = check(
        unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG) }
            .into(),
    );
    match done {
        Ok(_) => {
            // SAFETY: waitid filled the child fields, or left them zero when nobody had ended.
            let pid = unsafe { info.si_pid() };
            Ok((pid != 0).then(|| (pid, ended(&info))))
        }
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        Err(error) => Err(error),
    }
}

fn ended(info: &libc::siginfo_t) -> Ended {
    // SAFETY: waitid filled the child fields.
    let status = unsafe { info.si_status() };
    let low = (status & 0xff) as u8;
    if info.si_code == libc::CLD_EXITED {
        Ended::Exited(low)
    } else {
        Ended::Signaled(low & 0x7f)
    }
}

/// Whether this process ignores a signal.
#[must_use]
pub fn is_ignored(signal: nix::sys::signal::Signal) -> bool {
    // SAFETY: an all-zero sigaction is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set; action is writable for the duration of the call.
    let asked =
        unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// The children of a process (proc_pid_task(5), `children`; kernels without CONFIG_PROC_CHILDREN are asked for the
/// parent of every process).
///
/// # Errors
/// /proc cannot be read.
pub fn children_of(pid: libc::pid_t) -> io::Result<Vec<libc::pid_t>> {
    match super::pseudo::read_text(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(text) => {
            return Ok(text
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process that ended meanwhile is nobody's child.
        let Ok(stat) = super::pseudo::read(format!("/proc/{child}/stat")) else {
            continue;
        };
        let stat = String::from_utf8_lossy(&stat);
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(pid) {
            children.push(child);
        }
    }
    Ok(children)
}

/// Forks this single-threaded process; `None` in the child.
///
/// # Errors
/// EAGAIN, ENOMEM.
pub fn fork() -> io::Result<Option<libc::pid_t>> {
    // SAFETY: init has one thread, so the child may do whatever the parent could.
    match check(unsafe { libc::fork() }.into())? {
        0 => Ok(None),
        pid => Ok(Some(pid as libc::pid_t)),
    }
}

/// Ends this process at once: no destructors, no exit handlers.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Replaces this process; returns only the error.
#[must_use]
pub fn execute(path: &CString, argv: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([std::ptr::null()])
            .collect()
    };
    let (argv, environment) = (pointers(argv), pointers(environment));
    // SAFETY: null-terminated arrays of C strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Unblocks every signal and sets each to its default, before a workload is executed.
pub fn default_signals() {
    // The kernel's own structure, at its longest: SIG_DFL, no flags, an empty mask.
    let default = [0_u64; 4];
    for signal in 1..=64 {
        let none = std::ptr::null_mut::<u64>();
        // Not by the C library, which leaves out two that are its own (nptl(7)) and can be ignored all the same.
        // SAFETY: a signal's number, a structure that outlives the call, and the size of the kernel's set; KILL and STOP
        // answer EINVAL.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, none, 8) };
    }
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

/// When a process began, in clock ticks since the boot (proc_pid_stat(5), field 22); `None` when there is no such process, or a
/// dead one that nobody has waited for.
///
/// # Errors
/// /proc does not tell.
pub fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let stat = match super::pseudo::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&stat);
    // The name in brackets may hold anything; field 3 follows the last one.
    let fields = text.rsplit_once(") ").map(|(_, fields)| fields);
    if fields.is_some_and(|fields| fields.starts_with(['Z', 'X'])) {
        return Ok(None);
    }
    let start = fields.and_then(|fields| fields.split(' ').nth(19)?.parse().ok());
    start
        .map(Some)
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no start time")))
}
