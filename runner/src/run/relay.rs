//! Bytes between the caller's streams and the workload's, without ever blocking on a slow reader.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::SFlag;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// A pipe that is ready takes this many bytes without blocking (pipe(7), PIPE_BUF).
const READY_BYTES: usize = 4096;
/// When so much waits to be written, the source is left alone until some of it is gone.
pub(super) const HIGH_WATER: usize = 256 << 10;

/// Bytes that wait to be written to a descriptor of the caller's.
#[derive(Debug)]
pub(super) struct Forward {
    to: OwnedFd,
    waiting: VecDeque<u8>,
    /// The reader is gone; what comes is dropped.
    closed: bool,
}

impl Forward {
    pub(super) fn new(to: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::from_owned(to.try_clone_to_owned()?))
    }

    pub(super) fn from_owned(to: OwnedFd) -> Self {
        Self {
            to,
            waiting: VecDeque::new(),
            closed: false,
        }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.waiting.extend(bytes);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= HIGH_WATER
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.to.as_fd()
    }

    /// Writes what a ready descriptor takes; an error other than "try again" closes this side.
    pub(super) fn write_ready(&mut self) {
        let (first, _) = self.waiting.as_slices();
        let chunk = first
            .get(..READY_BYTES.min(first.len()))
            .unwrap_or_default();
        match nix::unistd::write(&self.to, chunk) {
            Ok(written) => {
                self.waiting.drain(..written);
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => {
                self.closed = true;
                self.waiting.clear();
            }
        }
    }

    /// Writes everything that waits; gives up after `patience_ms` without progress.
    pub(super) fn flush(&mut self, patience_ms: Option<u16>) {
        while self.is_waiting() {
            let mut ready = [PollFd::new(self.to.as_fd(), PollFlags::POLLOUT)];
            match poll(
                &mut ready,
                patience_ms.map_or(PollTimeout::NONE, PollTimeout::from),
            ) {
                Ok(0) => return,
                Ok(_) => self.write_ready(),
                Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}

/// Reads what is there from a descriptor that does not block; `None` at the end of the stream.
pub(super) fn read_ready(from: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match nix::unistd::read(from, buffer) {
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(Some(0)),
        // A terminal whose other end is closed everywhere.
        Err(Errno::EIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes reads of a descriptor of the runner's own return at once.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// What becomes of the caller's standard input.
#[derive(Debug)]
pub enum Stdin {
    /// The workload gets /dev/null.
    Nothing,
    /// The workload gets the caller's own descriptor: a pipe or a file.
    Direct(OwnedFd),
    /// The runner reads it and passes bytes on: a terminal never becomes descriptor 0 inside.
    Relayed(OwnedFd),
}

impl Stdin {
    /// Decides by what the caller's standard input is: pipes and files pass, a terminal needs `interactive`.
    ///
    /// # Errors
    /// The descriptor cannot be examined or copied.
    pub fn choose(interactive: bool) -> io::Result<Self> {
        let stdin = io::stdin();
        let stat = match nix::sys::stat::fstat(&stdin) {
            Ok(stat) => stat,
            Err(Errno::EBADF) => return Ok(Self::Nothing),
            Err(errno) => return Err(errno.into()),
        };
        let copy = || stdin.as_fd().try_clone_to_owned();
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        Ok(match kind {
            SFlag::S_IFREG | SFlag::S_IFIFO => Self::Direct(copy()?),
            SFlag::S_IFSOCK => Self::Relayed(copy()?),
            SFlag::S_IFCHR if stdin.is_terminal() => {
                if interactive {
                    Self::Relayed(copy()?)
                } else {
                    Self::Nothing
                }
            }
            // Other devices, and folders, are ways to reach something.
            _ => Self::Nothing,
        })
    }
}

/// The caller's terminal in raw mode until dropped.
#[derive(Debug)]
pub(super) struct RawMode {
    terminal: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// Sets raw mode; `None` when the descriptor is no terminal.
    pub(super) fn set(terminal: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        if !terminal.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(terminal)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(terminal, SetArg::TCSADRAIN, &raw)?;
        Ok(Some(Self {
            terminal: terminal.try_clone_to_owned()?,
            before,
        }))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        debug_assert!(self.terminal.as_raw_fd() >= 0);
        let _ = tcsetattr(&self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}
