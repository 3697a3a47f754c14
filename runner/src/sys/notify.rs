//! Hearing of the calls that a filter hands over, and denying them (seccomp_unotify(2)).
//!
//! What is looked at is the number and the registers that the kernel copied. Nobody follows a pointer: what it points to is the
//! workload's to change at any moment, and no decision rests on it, as there is none to take.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

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
    /// Who waited is gone, or was interrupted and will call again.
    Vanished,
    /// Nobody is left whom the filter is for.
    Over,
}

/// The descriptor by which a filter hands calls over.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    /// Who waits for an answer is interrupted by nothing but its death, and so never calls again because of that.
    killable: bool,
    /// As long as this kernel's `struct seccomp_notif` at least.
    request: Vec<u64>,
    /// The same for `struct seccomp_notif_resp`.
    response: Vec<u64>,
}

/// Flag with which a filter is installed so that its listener waits killably (Linux 5.19).
const KILLABLE: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;

impl Listener {
    /// Takes descriptor `number` of another process, which got it when it installed its filter (pidfd_getfd(2)).
    ///
    /// # Errors
    /// EPERM where this process may not look into that one, ENOSYS before Linux 5.6.
    pub fn fetch(process: &OwnedFd, number: RawFd, killable: bool) -> io::Result<Self> {
        if fault::of("listener").is_some() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // SAFETY: three integers.
        let fetched =
            check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })?;
        let fetched = RawFd::try_from(fetched).map_err(io::Error::other)?;
        // SAFETY: the kernel just made this descriptor for us alone, closed on exec.
        Self::new(unsafe { OwnedFd::from_raw_fd(fetched) }, killable)
    }

    /// Listens at the descriptor that [`super::filter::install_reporting`] gave.
    ///
    /// # Errors
    /// EINVAL before Linux 5.0.
    pub fn new(fd: OwnedFd, killable: bool) -> io::Result<Self> {
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
            killable,
            request: vec![0; request],
            response: vec![0; response],
        })
    }

    /// Takes one call that waits, and denies it with EPERM. It never waits itself.
    ///
    /// # Errors
    /// The kernel's; the descriptor is of no use then.
    pub fn turn(&mut self) -> io::Result<Turn> {
        let mut list = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut list, PollTimeout::ZERO) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let events = list[0].revents().unwrap_or(PollFlags::empty());
        if !events.contains(PollFlags::POLLIN) {
            return Ok(if events.is_empty() {
                Turn::Nothing
            } else {
                Turn::Over
            });
        }
        // The kernel takes only what is zero.
        self.request.fill(0);
        match self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, true) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Ok(Turn::Vanished),
            Err(error) => return Err(error),
        }
        // SAFETY: the buffer is aligned to 8 bytes, at least as long as the struct, and of plain integers.
        let request = unsafe { self.request.as_ptr().cast::<libc::seccomp_notif>().read() };
        self.response.fill(0);
        let response = libc::seccomp_notif_resp {
            id: request.id,
            val: 0,
            error: -libc::EPERM,
            flags: 0,
        };
        // SAFETY: as above.
        unsafe {
            self.response
                .as_mut_ptr()
                .cast::<libc::seccomp_notif_resp>()
                .write(response);
        }
        match self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, false) {
            Ok(()) => {}
            // It died of something else meanwhile: the call was made, and came to nothing.
            Err(error) if is_gone(&error) && self.killable => {}
            Err(error) if is_gone(&error) => return Ok(Turn::Vanished),
            Err(error) => return Err(error),
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

/// Flags of a filter with a listener, those first with which it waits best.
pub(super) const FLAGS: [(libc::c_ulong, bool); 2] = [
    (libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | KILLABLE, true),
    (libc::SECCOMP_FILTER_FLAG_NEW_LISTENER, false),
];

/// Whether it is the caller that is no more (ENOENT), or this process that was interrupted before it took anything.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR))
}

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
                let mut told = [0xff; 8];
                if let Ok((number, killable)) = filter::install_reporting("seccomp", &text) {
                    told[..4].copy_from_slice(&number.to_le_bytes());
                    told[4] = u8::from(killable);
                }
                let _ = nix::unistd::write(&write, &told);
                let _ = nix::unistd::read(&wait, &mut [0]);
                process::exit_now(act())
            }
            Some(pid) => {
                let mut told = [0; 8];
                nix::unistd::read(&read, &mut told).unwrap();
                let number = i32::from_le_bytes(*told.first_chunk().unwrap());
                let pidfd = process::open(pid).unwrap();
                let listener =
                    (number >= 0).then(|| Listener::fetch(&pidfd, number, told[4] == 1).unwrap());
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
}
