//! Signals to the runner: for the workload as long as it lives, and then for the runner's own work.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::stop::Stop;
use crate::sys::deaf::Deaf;

/// Passed on to the workload's process group.
const PASSED: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];
/// End the runner's own work once the workload is dead.
const ENDING: [i32; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
/// How often whoever is asked to end is told: the second time it is not asked any more, but ended.
const TIMES: u32 = 2;

/// What is meant for the workload, and then for the runner's own work.
#[derive(Debug)]
pub(super) struct Signals {
    source: Source,
    /// What came before "go": it is for the workload.
    kept: RefCell<VecDeque<i32>>,
    /// How many asked for the end since the workload is dead.
    ends: Cell<u32>,
}

#[derive(Debug)]
enum Source {
    /// Signals that this process receives by descriptor from now on.
    /// Dropped, it takes what came and lets signals act as before.
    Process { fd: SignalFd, before: SigSet },
    /// Another thread's word, which no signal is for; and how often it was passed on.
    Thread {
        stop: Arc<Stop>,
        told: Cell<u32>,
        _deaf: Deaf,
    },
}

impl Signals {
    /// Blocks them for this process; children reset that.
    pub(super) fn block() -> io::Result<Self> {
        let mut set = SigSet::empty();
        PASSED.iter().for_each(|signal| set.add(*signal));
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self::from(Source::Process { fd, before }))
    }

    /// None but the end that another thread asks for.
    pub(super) fn by(stop: Arc<Stop>) -> Self {
        Self::from(Source::Thread {
            stop,
            told: Cell::new(0),
            _deaf: Deaf::begin(),
        })
    }

    fn from(source: Source) -> Self {
        Self {
            source,
            kept: RefCell::default(),
            ends: Cell::new(0),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Process { fd, .. } => fd.as_fd(),
            Source::Thread { stop, told, .. } if told.get() < TIMES => stop.fd(),
            Source::Thread { stop, .. } => stop.nothing(),
        }
    }

    /// Does something that may take long and of which nothing is lost when it is broken off: meanwhile the signals that
    /// end a run end this process at once, also one that came before.
    pub(super) fn allowed<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        if matches!(self.source, Source::Thread { .. }) {
            return Ok(work());
        }
        let mut ending = SigSet::empty();
        ENDING
            .iter()
            .filter_map(|number| Signal::try_from(*number).ok())
            .for_each(|signal| ending.add(signal));
        let blocked = ending.thread_swap_mask(SigmaskHow::SIG_UNBLOCK)?;
        let done = work();
        blocked.thread_set_mask()?;
        Ok(done)
    }

    /// Whether the operator wants an end before the workload has begun; the signal stays for the workload.
    pub(super) fn end_is_asked(&self) -> bool {
        let fd = match &self.source {
            Source::Process { fd, .. } => fd,
            Source::Thread { stop, .. } => return stop.is_asked(),
        };
        let mut kept = self.kept.borrow_mut();
        while let Ok(Some(info)) = fd.read_signal() {
            kept.extend(i32::try_from(info.ssi_signo));
        }
        kept.iter().any(|number| ENDING.contains(number))
    }

    /// How often the operator asked for an end since the workload is dead. To be asked only then, as this takes all
    /// signals.
    pub(super) fn ends(&self) -> u32 {
        let fd = match &self.source {
            Source::Process { fd, .. } => fd,
            Source::Thread { stop, .. } if stop.is_asked() => return TIMES,
            Source::Thread { .. } => return 0,
        };
        while let Ok(Some(info)) = fd.read_signal() {
            if i32::try_from(info.ssi_signo).is_ok_and(|number| ENDING.contains(&number)) {
                self.ends.set(self.ends.get().saturating_add(1));
            }
        }
        self.ends.get()
    }

    /// Whether some wait that poll(2) does not know of.
    pub(super) fn has_kept(&self) -> bool {
        !self.kept.borrow().is_empty()
    }

    /// The next one for the workload.
    pub(super) fn next(&self) -> io::Result<Option<i32>> {
        let fd = match &self.source {
            Source::Process { fd, .. } => fd,
            Source::Thread { stop, told, .. } => {
                let is_new = stop.is_asked() && told.get() < TIMES;
                told.set(told.get() + u32::from(is_new));
                return Ok(is_new.then_some(libc::SIGTERM));
            }
        };
        if let Some(number) = self.kept.borrow_mut().pop_front() {
            return Ok(Some(number));
        }
        let info = fd.read_signal()?;
        Ok(info.and_then(|info| i32::try_from(info.ssi_signo).ok()))
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Source::Process { before, .. } = &self.source {
            self.ends();
            // It was the mask a moment ago.
            let _ = before.thread_set_mask();
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn what_comes_before_go_is_kept_for_the_workload() {
        let signals = Signals::block().unwrap();
        assert!(!signals.end_is_asked());
        raise(Signal::SIGUSR1).unwrap();
        assert!(!signals.end_is_asked());
        raise(Signal::SIGTERM).unwrap();
        assert!(signals.end_is_asked() && signals.end_is_asked());
        assert!(signals.has_kept());
        raise(Signal::SIGHUP).unwrap();
        for expected in [libc::SIGUSR1, libc::SIGTERM, libc::SIGHUP] {
            assert_eq!(signals.next().unwrap(), Some(expected));
        }
        assert_eq!(signals.next().unwrap(), None);
        assert!(!signals.has_kept());
    }

    #[test]
    fn what_comes_after_the_workload_asks_for_the_end() {
        let signals = Signals::block().unwrap();
        assert_eq!(signals.ends(), 0);
        raise(Signal::SIGWINCH).unwrap();
        assert_eq!(signals.ends(), 0);
        raise(Signal::SIGINT).unwrap();
        assert_eq!(signals.ends(), 1);
        raise(Signal::SIGINT).unwrap();
        assert_eq!(signals.ends(), 2);
        // What was not asked for acts no more when this is dropped.
        raise(Signal::SIGTERM).unwrap();
    }

    #[test]
    fn another_thread_s_word_ends_the_workload_and_signals_do_nothing() {
        let stop = Arc::new(Stop::new().unwrap());
        let signals = Signals::by(stop.clone());
        let is_ready = || {
            let mut list = [nix::poll::PollFd::new(
                signals.fd(),
                nix::poll::PollFlags::POLLIN,
            )];
            nix::poll::poll(&mut list, nix::poll::PollTimeout::ZERO).unwrap() == 1
        };
        raise(Signal::SIGWINCH).unwrap();
        assert!(!signals.end_is_asked() && !is_ready() && signals.ends() == 0);
        assert_eq!(signals.next().unwrap(), None);
        stop.ask();
        assert!(signals.end_is_asked() && is_ready() && !signals.has_kept());
        for expected in [Some(libc::SIGTERM), Some(libc::SIGTERM), None] {
            assert_eq!(signals.next().unwrap(), expected);
        }
        // Nobody is woken again by what is known.
        assert!(!is_ready());
        assert_eq!(signals.ends(), TIMES);
    }
}
