//! A process that tells which signals it got (signalfd(2)), without a program or a thread of its own.
//!
//! It shares no memory with its maker and allocates nothing. It has three descriptors: the pipe whose other end its maker
//! holds, so that it ends with it, the pipe for its reports, and the signalfd.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow};

use super::check;
use super::clone::clone3;
use super::process;

/// Bytes of a report.
const REPORT: usize = 12;

/// What it says of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The signal.
    pub signal: u32,
    /// Who sent it, as its pid namespace numbers processes; 0 for one that it cannot see.
    pub sender: u32,
    /// How (`SI_USER`, `SI_QUEUE`, …).
    pub code: i32,
}

/// The process; it ends when this is dropped, or when the process that made it ends.
#[derive(Debug)]
pub struct Canary {
    /// Its id.
    pub pid: libc::pid_t,
    /// Refers to it whatever happens to its id.
    pub pidfd: OwnedFd,
    reports: OwnedFd,
    _life: OwnedFd,
}

impl Canary {
    /// Makes one in a session of its own, which process listings call `name` (at most 15 bytes), with `folder` as its
    /// working folder.
    ///
    /// # Errors
    /// Those of pipe2, pthread_sigmask and clone3. It ends at once where it cannot enter `folder`.
    pub fn new(name: &CStr, folder: &CStr) -> io::Result<Self> {
        let (end, life) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let (reports, report) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        // The child begins with what is blocked here: no signal acts on it before it listens.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let mut pidfd: RawFd = -1;
        // The child branch only makes raw system calls and never returns.
        let made = clone3(0, &mut pidfd, None);
        if let Ok(0) = made {
            child(name, folder, end.as_raw_fd(), report.as_raw_fd());
        }
        before.thread_set_mask()?;
        let pid = made?;
        // SAFETY: clone3 stored a new descriptor of ours.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok(Self {
            pid,
            pidfd,
            reports,
            _life: life,
        })
    }

    /// Where its reports can be waited for.
    #[must_use]
    pub const fn reports(&self) -> &OwnedFd {
        &self.reports
    }

    /// The next report that is there already.
    ///
    /// # Errors
    /// `WouldBlock` when there is none, `UnexpectedEof` when the process is gone and there will be none.
    pub fn next_report(&self) -> io::Result<Report> {
        let mut bytes = [0_u8; REPORT];
        // A write of this size to a pipe is whole or not at all (pipe(7), PIPE_BUF).
        if nix::unistd::read(&self.reports, &mut bytes)? < REPORT {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let [signal, sender, code] =
            [0, 4, 8].map(|at| std::array::from_fn(|byte| bytes[at + byte]));
        Ok(Report {
            signal: u32::from_ne_bytes(signal),
            sender: u32::from_ne_bytes(sender),
            code: i32::from_ne_bytes(code),
        })
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let _ = process::kill(&self.pidfd, libc::SIGKILL);
        let _ = process::wait(&self.pidfd);
    }
}

fn child(name: &CStr, folder: &CStr, life: RawFd, report: RawFd) -> ! {
    let _ = watch(name, folder, life, report);
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(0) }
}

/// Between fork and exit: no allocation, raw system calls only.
fn watch(name: &CStr, folder: &CStr, life: RawFd, report: RawFd) -> io::Result<()> {
    const LIFE: RawFd = 0;
    const REPORTS: RawFd = 1;
    // Both are out of the way of the numbers that they get: whatever 0 and 1 are now is closed or copied over.
    // SAFETY: integers alone; the copies above 2 are closed by close_range.
    unsafe {
        let life = check(libc::fcntl(life, libc::F_DUPFD, 3).into())?;
        let report = check(libc::fcntl(report, libc::F_DUPFD, 3).into())?;
        check(libc::dup2(life as RawFd, LIFE).into())?;
        check(libc::dup2(report as RawFd, REPORTS).into())?;
    }
    close_from(2)?;
    // Ctrl-C at the terminal is no signal of a probe's.
    // SAFETY: no arguments.
    check(unsafe { libc::setsid() }.into())?;
    // SAFETY: folder is a C string.
    check(unsafe { libc::chdir(folder.as_ptr()) }.into())?;
    // SAFETY: name is a C string; the other arguments are not looked at.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) }.into())?;
    // SAFETY: an all-zero sigset_t is a valid value.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: all outlives both calls.
    let signals = check(
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::signalfd(-1, &raw const all, 0)
        }
        .into(),
    )? as RawFd;
    let wait = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let mut polled = [wait(LIFE), wait(signals)];
        // SAFETY: two pollfd that outlive the call.
        check(unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) }.into())?;
        // First, for then nobody reads: a report would be answered by SIGPIPE, which is one more to report.
        if polled[0].revents != 0 {
            return Ok(());
        }
        if polled[1].revents != 0 {
            // SAFETY: an all-zero siginfo is a valid value.
            let mut got: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            // SAFETY: got is writable for its size.
            check(unsafe {
                libc::read(signals, (&raw mut got).cast(), size_of_val(&got)) as libc::c_long
            })?;
            let mut bytes = [0_u8; REPORT];
            bytes[..4].copy_from_slice(&got.ssi_signo.to_ne_bytes());
            bytes[4..8].copy_from_slice(&got.ssi_pid.to_ne_bytes());
            bytes[8..].copy_from_slice(&got.ssi_code.to_ne_bytes());
            // A full pipe holds thousands of reports already.
            // SAFETY: bytes is readable for its length.
            unsafe { libc::write(REPORTS, bytes.as_ptr().cast(), bytes.len()) };
        }
    }
}

/// Closes every descriptor from `first` on (close_range(2), Linux 5.9); before that, one by one.
fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: close_range takes three integers.
    let closed =
        check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) });
    if closed.is_ok() {
        return Ok(());
    }
    // SAFETY: an all-zero rlimit is a valid value.
    let mut most: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: most is writable for the duration of the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut most) }.into())?;
    let most = RawFd::try_from(most.rlim_cur).unwrap_or(RawFd::MAX);
    for number in first..most {
        // SAFETY: closing a number in a process that never returns to safe code.
        unsafe { libc::close(number) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn report(canary: &Canary) -> io::Result<Report> {
        let mut polled = [PollFd::new(canary.reports().as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut polled, PollTimeout::from(20_000_u16))?, 1);
        canary.next_report()
    }

    #[test]
    fn every_signal_is_told_with_its_sender() {
        let canary = Canary::new(c"canary-of-test", c"/proc").unwrap();
        assert_eq!(
            canary.next_report().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, 50] {
            process::kill(&canary.pidfd, signal).unwrap();
            let expected = Report {
                signal: signal as u32,
                sender: std::process::id(),
                code: libc::SI_USER,
            };
            assert_eq!(report(&canary).unwrap(), expected);
        }
        let name = std::fs::read_to_string(format!("/proc/{}/comm", canary.pid)).unwrap();
        assert_eq!(name, "canary-of-test\n");
        let open = std::fs::read_dir(format!("/proc/{}/fd", canary.pid)).unwrap();
        assert_eq!(open.count(), 3, "it holds nothing of its maker's");
        let folder = std::fs::read_link(format!("/proc/{}/cwd", canary.pid)).unwrap();
        assert_eq!(folder, std::path::Path::new("/proc"));
        process::kill(&canary.pidfd, libc::SIGKILL).unwrap();
        assert_eq!(
            report(&canary).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_signal_beside_the_end_of_its_maker_does_not_keep_it() {
        let mut canary =
            std::mem::ManuallyDrop::new(Canary::new(c"canary-of-test", c"/proc").unwrap());
        process::kill(&canary.pidfd, libc::SIGSTOP).unwrap();
        process::kill(&canary.pidfd, libc::SIGTERM).unwrap();
        // What the kernel does when its maker ends.
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        canary._life = null();
        canary.reports = null();
        process::kill(&canary.pidfd, libc::SIGCONT).unwrap();
        let mut polled = [PollFd::new(canary.pidfd.as_fd(), PollFlags::POLLIN)];
        let ended = poll(&mut polled, PollTimeout::from(20_000_u16)).unwrap();
        drop(std::mem::ManuallyDrop::into_inner(canary));
        assert_eq!(ended, 1);
    }

    #[test]
    fn it_is_gone_when_dropped() {
        let canary = Canary::new(c"canary-of-test", c"/proc").unwrap();
        let pidfd = process::open(canary.pid).unwrap();
        drop(canary);
        let gone = process::kill(&pidfd, libc::SIGTERM).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
