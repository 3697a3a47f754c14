//! Bytes between the caller's streams and the workload's, without ever blocking on a slow reader.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::PollTimeout;
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::stat::{Mode, SFlag};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// How much is written, or read, at once.
const CHUNK: usize = 64 << 10;
/// When so much waits to be written, the source is left alone until some of it is gone.
pub(super) const HIGH_WATER: usize = 256 << 10;

/// How bytes get to, or from, a descriptor without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The open file description is the runner's own and does not block, or it is a file, where nobody can keep
    /// it waiting.
    Plain,
    /// A socket: each call says that it does not wait.
    Socket,
}

/// A descriptor of the caller's, made so that using it never waits, without a change to the caller's own flags.
#[derive(Debug)]
pub(super) struct Unblocked {
    fd: OwnedFd,
    way: Way,
    /// Closed when everything that was written has gone on: a thread passes it on.
    gone_on: Option<OwnedFd>,
}

/// What is done with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

impl Unblocked {
    pub(super) fn new(of: BorrowedFd<'_>, what: Use) -> io::Result<Self> {
        let stat = nix::sys::stat::fstat(of)?;
        let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
        let plain = |fd| Self {
            fd,
            way: Way::Plain,
            gone_on: None,
        };
        match kind {
            SFlag::S_IFSOCK => {
                return Ok(Self {
                    way: Way::Socket,
                    ..plain(of.try_clone_to_owned()?)
                });
            }
            SFlag::S_IFCHR if of.is_terminal() => {}
            SFlag::S_IFIFO => {}
            _ => return Ok(plain(of.try_clone_to_owned()?)),
        }
        // A description of the runner's own, with flags of its own. Not where the caller's was not made for
        // this, or is another user's.
        let allowed = match (
            OFlag::from_bits_retain(fcntl(of, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE,
            what,
        ) {
            (OFlag::O_RDWR, _) => true,
            (mode, Use::Read) => mode == OFlag::O_RDONLY,
            (mode, Use::Write) => mode == OFlag::O_WRONLY,
        };
        if !allowed {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let mode = match what {
            Use::Read => OFlag::O_RDONLY,
            Use::Write => OFlag::O_WRONLY,
        };
        let path = format!("/proc/self/fd/{}", of.as_raw_fd());
        let flags = mode | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        match nix::fcntl::open(path.as_str(), flags, Mode::empty()) {
            Ok(fd) => Ok(plain(fd)),
            // Nobody reads the pipe: what a write would say, too.
            Err(Errno::ENXIO) => Err(io::Error::from_raw_os_error(libc::EPIPE)),
            Err(_) => Self::through_thread(of, what),
        }
    }

    /// A pipe, and a thread that may wait at its other end.
    pub(super) fn through_thread(of: BorrowedFd<'_>, what: Use) -> io::Result<Self> {
        let of = File::from(of.try_clone_to_owned()?);
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let (ended, ends) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let (own, from, to) = match what {
            Use::Read => (read, of, File::from(write)),
            Use::Write => (write, File::from(read), of),
        };
        set_nonblocking(own.as_fd())?;
        // Signals are for the thread that asked for them by descriptor, or lets them act.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let spawned = std::thread::Builder::new().spawn(move || {
            pass_on(from, to);
            drop(ends);
        });
        before.thread_set_mask()?;
        spawned?;
        Ok(Self {
            fd: own,
            way: Way::Plain,
            gone_on: (what == Use::Write).then_some(ended),
        })
    }
}

/// Copies until either side ends; what goes wrong closes both, which the other side of the pipe sees.
fn pass_on(mut from: File, mut to: File) {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if to
                    .write_all(buffer.get(..count).unwrap_or_default())
                    .is_err()
                {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Bytes that wait to be written to a descriptor, which never blocks.
#[derive(Debug)]
pub(super) struct Forward {
    /// `None` when the reader is gone, and what comes is dropped, or when all was handed to the thread.
    pub(super) to: Option<OwnedFd>,
    way: Way,
    pub(super) gone_on: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    /// It said that there was room and took nothing.
    stalled: bool,
    /// Why it was closed.
    pub(super) failed: Option<Errno>,
}

impl Forward {
    /// To a descriptor of the caller's. One that cannot be written to counts as closed.
    pub(super) fn new(to: BorrowedFd<'_>) -> Self {
        Self::over(Unblocked::new(to, Use::Write).ok())
    }

    pub(super) fn over(to: Option<Unblocked>) -> Self {
        let (to, way, gone_on) = match to {
            Some(to) => (Some(to.fd), to.way, to.gone_on),
            None => (None, Way::Plain, None),
        };
        Self {
            to,
            way,
            gone_on,
            waiting: VecDeque::new(),
            stalled: false,
            failed: None,
        }
    }

    /// To a pipe or terminal of the runner's own.
    pub(super) fn own(to: OwnedFd) -> io::Result<Self> {
        set_nonblocking(to.as_fd())?;
        Ok(Self {
            to: Some(to),
            way: Way::Plain,
            gone_on: None,
            waiting: VecDeque::new(),
            stalled: false,
            failed: None,
        })
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.to.is_some() {
            self.waiting.extend(bytes);
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.to.is_none()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= HIGH_WATER
    }

    /// Whether to try again in a moment: poll(2) would return at once, and for nothing.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled && self.is_waiting()
    }

    /// What becomes ready when more can be written.
    pub(super) fn room(&self) -> Option<BorrowedFd<'_>> {
        let to = self.to.as_ref()?;
        (self.is_waiting() && !self.stalled).then(|| to.as_fd())
    }

    /// Writes what the descriptor takes; an error other than "try again" closes this side.
    pub(super) fn write_ready(&mut self) {
        let Some(to) = &self.to else {
            return;
        };
        let (first, _) = self.waiting.as_slices();
        let chunk = first.get(..CHUNK.min(first.len())).unwrap_or_default();
        if chunk.is_empty() {
            return;
        }
        let written = match self.way {
            Way::Plain => nix::unistd::write(to, chunk),
            Way::Socket => send(
                to.as_raw_fd(),
                chunk,
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            ),
        };
        self.stalled = matches!(written, Ok(0) | Err(Errno::EAGAIN));
        match written {
            Ok(written) => {
                self.waiting.drain(..written);
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(errno) => {
                self.failed = Some(errno);
                self.to = None;
                self.waiting.clear();
            }
        }
    }

    /// Writes what is taken at once.
    pub(super) fn write_now(&mut self) {
        let mut before = usize::MAX;
        while self.is_waiting() && self.waiting.len() < before {
            before = self.waiting.len();
            self.write_ready();
        }
    }
}

/// How long a descriptor that takes nothing is left alone.
pub(super) const STALL: Duration = Duration::from_millis(20);

/// For poll(2), rounded up: waking before the moment would only spin.
pub(super) fn timeout(time: Option<Duration>) -> PollTimeout {
    time.map_or(PollTimeout::NONE, |time| {
        PollTimeout::try_from(time.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
    })
}

/// Bytes that the caller has for the workload.
#[derive(Debug)]
pub(super) struct Input {
    /// `None` at its end.
    from: Option<Unblocked>,
    pub(super) to: Forward,
}

impl Input {
    pub(super) fn new(from: BorrowedFd<'_>, to: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            from: Some(Unblocked::new(from, Use::Read)?),
            to: Forward::own(to)?,
        })
    }

    /// What becomes ready when there is more to read, and room for it.
    pub(super) fn more(&self) -> Option<BorrowedFd<'_>> {
        let from = self.from.as_ref().filter(|_| !self.to.is_full())?;
        Some(from.fd.as_fd())
    }

    /// Whether nothing is left to pass on, or nobody to take it.
    pub(super) fn is_over(&self) -> bool {
        self.to.is_closed() || (self.from.is_none() && !self.to.is_waiting())
    }

    /// Reads what is there.
    pub(super) fn read_ready(&mut self, buffer: &mut [u8]) {
        let Some(from) = &self.from else {
            return;
        };
        let read = match from.way {
            Way::Plain => nix::unistd::read(&from.fd, buffer),
            Way::Socket => recv(from.fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT),
        };
        match read {
            Ok(count) if count > 0 => self.to.add(buffer.get(..count).unwrap_or_default()),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            // Its end, or a terminal whose other end is closed.
            Ok(_) | Err(_) => self.from = None,
        }
    }
}

/// Reads what is there from a descriptor that does not block; `None` at the end of the stream. EIO is said by a terminal whose
/// other end is closed everywhere.
pub(super) fn read_ready(from: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match nix::unistd::read(from, buffer) {
        Ok(0) => Ok(None),
        Ok(count) => Ok(Some(count)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(Some(0)),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes reads of a descriptor of the runner's own return at once.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// What becomes of the caller's standard input.
#[derive(Debug)]
pub enum Stdin {
    /// The workload gets /dev/null.
    Nothing,
    /// The runner reads it and passes bytes on through a pipe. A descriptor of the caller's never becomes
    /// descriptor 0 inside: whoever has it can open it anew, for writing too, by `/proc/self/fd/0`.
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
            SFlag::S_IFREG | SFlag::S_IFIFO | SFlag::S_IFSOCK => Self::Relayed(copy()?),
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
        tcsetattr(terminal, SetArg::TCSANOW, &raw)?;
        Ok(Some(Self {
            terminal: terminal.try_clone_to_owned()?,
            before,
        }))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        debug_assert!(self.terminal.as_raw_fd() >= 0);
        let _ = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before);
    }
}
