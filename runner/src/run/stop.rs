//! **Stop**: how another thread ends runs that are under way.
//!
//! Signals to the process cannot: each is taken by one thread alone, whichever comes first, and several runs may go on
//! side by side.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Asked once, it stays asked.
#[derive(Debug)]
pub struct Stop {
    asked: OwnedFd,
    ask: OwnedFd,
}

impl Stop {
    /// One that nobody has asked for.
    ///
    /// # Errors
    /// Those of pipe2.
    pub fn new() -> io::Result<Self> {
        let (asked, ask) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { asked, ask })
    }

    /// Ends every run that looks here, now and later.
    pub fn ask(&self) {
        // A pipe that is full says it already.
        let _ = nix::unistd::write(&self.ask, &[1]);
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let mut list = [PollFd::new(self.asked.as_fd(), PollFlags::POLLIN)];
        poll(&mut list, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Readable once it was asked for, and from then on.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }

    /// Never readable: to wait for by whoever knows already.
    pub(super) fn nothing(&self) -> BorrowedFd<'_> {
        self.ask.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_asked_it_stays_asked() {
        let stop = Stop::new().unwrap();
        assert!(!stop.is_asked());
        for _ in 0..100_000 {
            stop.ask();
        }
        assert!(stop.is_asked() && stop.is_asked());
        let mut list = [
            PollFd::new(stop.fd(), PollFlags::POLLIN),
            PollFd::new(stop.nothing(), PollFlags::POLLIN),
        ];
        assert_eq!(poll(&mut list, PollTimeout::ZERO), Ok(1));
        assert_eq!(list[1].any(), Some(false));
    }
}
