//! Ctrl-C and its like while several runs go on: they are ended, what was planted for them is removed, and nothing more is
//! begun. Once more, and this program is gone at once; what it leaves is removed by the next measurement.

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::report;
use crate::run::Stop;
use crate::sys::process::is_ignored;

/// The signals that ask for the end.
const ENDING: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// While it is there, these signals stop what looks at the [`Stop`]. Dropped, they act as before.
#[derive(Debug)]
pub(super) struct Interrupts {
    first: Arc<AtomicI32>,
    watcher: Option<(JoinHandle<()>, OwnedFd)>,
    before: SigSet,
}

impl Interrupts {
    /// Listens from now on. To be called before there are threads that should not be interrupted.
    pub(super) fn watch(stop: Arc<Stop>) -> io::Result<Self> {
        let mut set = SigSet::empty();
        // One that is ignored (nohup(1)) stays so.
        let heard = ENDING.into_iter().filter(|signal| !is_ignored(*signal));
        heard.for_each(|signal| set.add(signal));
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let (over, end) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let first = Arc::new(AtomicI32::new(0));
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        // From here on, dropped, it gives the mask back.
        let mut interrupts = Self {
            first: first.clone(),
            watcher: None,
            before,
        };
        let watcher = std::thread::Builder::new()
            .name("interrupts".to_owned())
            .spawn(move || listen(&fd, &over, &set, &stop, &first))?;
        interrupts.watcher = Some((watcher, end));
        Ok(interrupts)
    }

    /// The first signal that came.
    pub(super) fn signal(&self) -> Option<Signal> {
        Signal::try_from(self.first.load(Ordering::Relaxed)).ok()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        if let Some((watcher, end)) = self.watcher.take() {
            drop(end);
            // It does nothing but wait.
            let _ = watcher.join();
        }
        // It was the mask a moment ago.
        let _ = self.before.thread_set_mask();
    }
}

fn listen(fd: &SignalFd, over: &OwnedFd, set: &SigSet, stop: &Stop, first: &AtomicI32) {
    loop {
        let mut list = [
            PollFd::new(fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(over.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut list, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let [_, over] = &list;
        if over.any() == Some(true) {
            return;
        }
        while let Ok(Some(info)) = fd.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(libc::SIGTERM);
            if first.swap(number, Ordering::Relaxed) == 0 {
                if io::stderr().is_terminal() {
                    // Over the line that says how far it is. A terminal that is gone is no reason to fail.
                    let _ = write!(io::stderr(), "\r\u{1b}[K");
                }
                report::notice_line("ending the runs under way; once more to leave at once");
                stop.ask();
            } else if let Ok(signal) = Signal::try_from(number) {
                // As if nobody had listened.
                let _ = set.thread_unblock();
                let _ = raise(signal);
            }
        }
    }
}
