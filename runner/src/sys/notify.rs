//! Hearing of the calls that a filter hands over, and denying them (seccomp_unotify(2)).
//!
//! What is looked at is the number and the registers that the kernel copied. Nobody follows a pointer: what it points to is the
//! workload's to change at any moment, and no decision rests on it, as there is none to take.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{check, fault};

/// A call that was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Its number.
    pub number: u32,
    /// What stood in the registers of its arguments.
    pub arguments: [u64; 6],
}

/// What came of a turn at the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This call was denied.
    Denied(Denied),
    /// Nobody waits.
    Nothing,
    /// Who waited is gone, or was interrupted before its answer came, and may call again: it was not denied now.
    Vanished,
    /// Nobody is left whom the filter is for.
    Over,
}

/// The descriptor by which a filter hands calls over.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    /// As long as this kernel's `struct seccomp_notif` at least.
    request: Vec<u64>,
    /// The same for `struct seccomp_notif_resp`.
    response: Vec<u64>,
}

/// Flag with which who was heard waits for the answer killably (Linux 5.19): signals interrupt it only until it is heard.
const KILLABLE: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;

impl Listener {
    /// Takes descriptor `number` of another process, which got it when it installed its filter (pidfd_getfd(2)).
    ///
    /// # Errors
    /// EPERM where this process may not look into that one, ENOSYS before Linux 5.6.
    pub fn fetch(process: &OwnedFd, number: RawFd) -> io::Result<Self> {
        if fault::of("listener").is_some() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // SAFETY: three integers.
        let fetched =
            check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })?;
        let fetched = RawFd::try_from(fetched).map_err(io::Error::other)?;
        // SAFETY: the kernel just made this descriptor for us alone, closed on exec.
        Self::new(unsafe { OwnedFd::from_raw_fd(fetched) })
    }

    /// Listens at the descriptor that [`super::filter::install_reporting`] gave.
    ///
    /// # Errors
    /// EINVAL before Linux 5.0.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let mut sizes = libc::seccomp_notif_sizes {
            seccomp_notif: 0,
            seccomp_notif_resp: 0,
            seccomp_data: 0,
        };
        // SAFETY: sizes is writable for the duration of the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_GET_NOTIF_SIZES,
                0 as libc::c_uint,
                &raw mut sizes,
            )
        })?;
        let words = |kernels: u16, ours: usize| usize::from(kernels).max(ours).div_ceil(8);
        let request = words(sizes.seccomp_notif, size_of::<libc::seccomp_notif>());
        let response = words(
            sizes.seccomp_notif_resp,
            size_of::<libc::seccomp_notif_resp>(),
        );
        Ok(Self {
            fd,
            request: vec![0; request],
            response: vec![0; response],
        })
    }

    /// Takes one call that waits, and denies it with EPERM. It never waits itself. A call counts as denied when its answer was
    /// taken: who is interrupted between the two (by its death; before Linux 5.19 also by a signal, or while it is frozen) may be
    /// made to call again, and would count twice.
    ///
    /// # Errors
    /// The kernel's; the descriptor is of no use then.
    pub fn turn(&mut self) -> io::Result<Turn> {
        match self.receive()? {
            Ok(request) => self.deny(&request),
            Err(turn) => Ok(turn),
        }
    }

    /// Takes one call that waits, or says why there is none.
    fn receive(&mut self) -> io::Result<Result<libc::seccomp_notif, Turn>> {
        let mut list = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut list, PollTimeout::ZERO) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let events = list[0].revents().unwrap_or(PollFlags::empty());
        if !events.contains(PollFlags::POLLIN) {
            return Ok(Err(if events.is_empty() {
                Turn::Nothing
            } else {
                Turn::Over
            }));
        }
        // The kernel takes only what is zero.
        self.request.fill(0);
        match self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, true) {
            Ok(()) => {}
            // The caller is no more, or this process was interrupted before it took anything.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                return Ok(Err(Turn::Vanished));
            }
            Err(error) => return Err(error),
        }
        // SAFETY: the buffer is aligned to 8 bytes, at least as long as the struct, and of plain integers.
        Ok(Ok(unsafe {
            self.request.as_ptr().cast::<libc::seccomp_notif>().read()
        }))
    }

    /// Answers a call that was taken with EPERM.
    fn deny(&mut self, request: &libc::seccomp_notif) -> io::Result<Turn> {
        self.response.fill(0);
        let response = libc::seccomp_notif_resp {
            id: request.id,
            val: 0,
            error: -libc::EPERM,
            flags: 0,
        };
        // SAFETY: the buffer is aligned to 8 bytes, at least as long as the struct, and of plain integers.
        unsafe {
            self.response
                .as_mut_ptr()
                .cast::<libc::seccomp_notif_resp>()
                .write(response);
        }
        loop {
            match self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, false) {
                Ok(()) => break,
                Err(error) => match error.raw_os_error() {
                    // Interrupted on the way: who waits would wait forever.
                    Some(libc::EINTR) => {}
                    // Nobody waits under this number any more.
                    Some(libc::ENOENT) => return Ok(Turn::Vanished),
                    _ => return Err(error),
                },
            }
        }
        Ok(Turn::Denied(Denied {
            number: request.data.nr.cast_unsigned(),
            arguments: request.data.args,
        }))
    }

    fn control(&mut self, operation: libc::Ioctl, is_request: bool) -> io::Result<()> {
        let buffer = if is_request {
            self.request.as_mut_ptr()
        } else {
            self.response.as_mut_ptr()
        };
        // SAFETY: the buffer is as long as this kernel's struct, and stays for the duration of the call.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), operation, buffer) }.into()).map(drop)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Flags of a filter with a listener, those first under which it waits best.
pub(super) const FLAGS: [libc::c_ulong; 2] = [
    libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | KILLABLE,
    libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::filter::{self, Instruction};
    use crate::sys::process::{self, Ended};

    /// Hands getppid over, and lets everything else through.
    fn program() -> Vec<Instruction> {
        let op = |code, jt, jf, k| Instruction { code, jt, jf, k };
        let number = u32::try_from(libc::SYS_getppid).unwrap();
        vec![
            op(0x20, 0, 0, 0),
            op(0x15, 0, 1, number),
            op(0x06, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
            op(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]
    }

    fn getppid(argument: u64) -> i32 {
        // SAFETY: integers; the call takes none of them.
        let answer = unsafe { libc::syscall(libc::SYS_getppid, argument, 0, 0, 0, 0, 0) };
        if answer == -1 {
            io::Error::last_os_error().raw_os_error().unwrap()
        } else {
            0
        }
    }

    /// A child under the filter, whose listener is this process's; `act` is what it does, its result its exit status.
    fn child(act: impl FnOnce() -> i32) -> (i32, Option<Listener>) {
        let (read, write) = nix::unistd::pipe().unwrap();
        let (wait, go) = nix::unistd::pipe().unwrap();
        let text = program();
        match process::fork().unwrap() {
            None => {
                let _ = nix::sys::prctl::set_no_new_privs();
                // Nothing is allocated here: another thread may hold that lock.
                let number = filter::install_reporting("seccomp", &text).unwrap_or(-1);
                let told = number.to_le_bytes();
                let _ = nix::unistd::write(&write, &told);
                let _ = nix::unistd::read(&wait, &mut [0]);
                process::exit_now(act())
            }
            Some(pid) => {
                let mut told = [0; 4];
                nix::unistd::read(&read, &mut told).unwrap();
                let number = i32::from_le_bytes(told);
                let pidfd = process::open(pid).unwrap();
                let listener = (number >= 0).then(|| Listener::fetch(&pidfd, number).unwrap());
                nix::unistd::write(&go, &[1]).unwrap();
                (pid, listener)
            }
        }
    }

    fn wait(listener: &Listener) {
        let mut list = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut list, 30_000u16).unwrap();
    }

    fn ended(pid: i32) -> Ended {
        use nix::sys::wait::{WaitStatus, waitpid};
        match waitpid(nix::unistd::Pid::from_raw(pid), None).unwrap() {
            WaitStatus::Exited(_, code) => Ended::Exited(u8::try_from(code).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_call_that_is_handed_over_is_denied_and_seen_as_it_was_made() {
        let (pid, listener) = child(|| getppid(u64::MAX - 7));
        let Some(mut listener) = listener else {
            eprintln!("SKIPPED: this kernel or a filter around this test hands no calls over");
            return;
        };
        wait(&listener);
        let Turn::Denied(denied) = listener.turn().unwrap() else {
            panic!("nothing was denied");
        };
        assert_eq!(i64::from(denied.number), libc::SYS_getppid);
        assert_eq!(denied.arguments[0], u64::MAX - 7);
        assert_eq!(ended(pid), Ended::Exited(libc::EPERM as u8));
        // Linux 5.9 says so; before that there is nothing to hear.
        assert!(matches!(
            listener.turn().unwrap(),
            Turn::Over | Turn::Nothing
        ));
    }

    #[test]
    fn who_is_gone_before_its_turn_holds_nothing_up() {
        let (pid, listener) = child(|| getppid(0));
        let Some(mut listener) = listener else {
            eprintln!("SKIPPED: this kernel or a filter around this test hands no calls over");
            return;
        };
        wait(&listener);
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(pid, None).unwrap();
        assert!(!matches!(listener.turn().unwrap(), Turn::Denied(_)));
    }

    #[test]
    fn who_dies_before_the_answer_was_not_denied() {
        let (pid, listener) = child(|| getppid(0));
        let Some(mut listener) = listener else {
            eprintln!("SKIPPED: this kernel or a filter around this test hands no calls over");
            return;
        };
        wait(&listener);
        let Ok(request) = listener.receive().unwrap() else {
            panic!("nobody called");
        };
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(pid, None).unwrap();
        assert_eq!(listener.deny(&request).unwrap(), Turn::Vanished);
    }
}
