//! How long a run that is over, or about to be, waits for those who read what it has to say: for the workload's output, for
//! the runner's own lines, for events. And how long it looks at what the workload left.
//!
//! A run may overrun its deadline by two seconds, whatever the workload left and whoever does not read.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::artifacts::{INTERRUPTED, OUT_OF_TIME, Pace};
use super::relay::{Forward, STALL, Unblocked, Use, timeout};
use super::signals::Signals;
use super::supervise::boot_time;

/// How long after a run is due files are still hashed.
const HASHING: Duration = Duration::from_millis(500);
/// How long after that moment what the workload left is still listed.
const LISTING: Duration = Duration::from_millis(1000);
/// How long after it a caller that does not read is waited for.
const READING: Duration = Duration::from_millis(1250);
/// How long after it lines of the runner's own may take: the last, within the two seconds that a run may overrun its
/// deadline.
const SPEAKING: Duration = Duration::from_millis(1500);

/// What the caller has not read yet when a run has ended. Dropped, it waits until that is read, as long as the run's
/// deadline allows, or a signal ends it.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) forwards: Vec<Forward>,
    /// When the run is to be over, by [`boot_time`].
    pub(super) due: Option<Duration>,
    /// The operator, not the deadline, wants it to be over.
    pub(super) by_operator: bool,
    pub(super) signals: Signals,
}

impl Unread {
    /// What there is still time for.
    pub(super) fn pace(&self) -> Pace {
        let late = if self.by_operator {
            INTERRUPTED
        } else {
            OUT_OF_TIME
        };
        let by_time = match (self.due, boot_time()) {
            (None, _) => Pace::Whole,
            (Some(due), Ok(now)) if now < due.saturating_add(HASHING) => Pace::Whole,
            (Some(due), Ok(now)) if now < due.saturating_add(LISTING) => Pace::NoHashes(late),
            (Some(_), _) => Pace::Stop(late),
        };
        match (by_time, self.signals.ends()) {
            (Pace::Stop(reason), _) => Pace::Stop(reason),
            (_, 0) => by_time,
            (_, 1) => Pace::NoHashes(INTERRUPTED),
            (_, _) => Pace::Stop(INTERRUPTED),
        }
    }

    /// Until when lines of the runner's own may wait for their reader.
    pub(super) fn speak_until(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_add(SPEAKING))
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let until = self.due.map(|due| due.saturating_add(READING));
        pass_on_rest(&mut self.forwards, Some(&self.signals), until);
    }
}

/// Writes what waits, until nothing does, a signal asks for the end, or it is `until` by [`boot_time`].
fn pass_on_rest(forwards: &mut [Forward], signals: Option<&Signals>, until: Option<Duration>) {
    loop {
        for forward in &mut *forwards {
            forward.write_now();
            if !forward.is_waiting() && forward.gone_on.is_some() {
                // The thread sees the end, and ends.
                forward.to = None;
            }
        }
        if signals.is_some_and(|signals| signals.ends() > 0) {
            return;
        }
        let patience = match (until, boot_time()) {
            (None, _) => None,
            (Some(until), Ok(now)) if now < until => Some(until.saturating_sub(now)),
            (Some(_), _) => return,
        };
        if wait(forwards, signals, patience).is_none() {
            return;
        }
    }
}

/// Waits for room, a signal, or the end of a thread; `None` when there is nothing to wait for.
fn wait(
    forwards: &mut [Forward],
    signals: Option<&Signals>,
    patience: Option<Duration>,
) -> Option<()> {
    let stalled = forwards.iter().any(Forward::is_stalled);
    let mut list = Vec::new();
    let mut threads = Vec::new();
    for (index, forward) in forwards.iter().enumerate() {
        if let Some(room) = forward.room() {
            list.push(PollFd::new(room, PollFlags::POLLOUT));
        } else if let Some(gone_on) = forward.gone_on.as_ref().filter(|_| !forward.is_waiting()) {
            threads.push((index, list.len()));
            list.push(PollFd::new(gone_on.as_fd(), PollFlags::POLLIN));
        }
    }
    if list.is_empty() && !stalled {
        return None;
    }
    list.extend(signals.map(|signals| PollFd::new(signals.fd(), PollFlags::POLLIN)));
    let time = if stalled {
        Some(patience.map_or(STALL, |patience| patience.min(STALL)))
    } else {
        patience
    };
    match poll(&mut list, timeout(time)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(_) => return None,
    }
    let ended: Vec<usize> = threads
        .into_iter()
        .filter(|(_, at)| {
            let events = list.get(*at).and_then(PollFd::revents);
            events.is_some_and(|events| !events.is_empty())
        })
        .map(|(index, _)| index)
        .collect();
    for index in ended {
        if let Some(forward) = forwards.get_mut(index) {
            forward.gone_on = None;
        }
    }
    Some(())
}

/// The moment after `time`, for [`write_until`]; `None` when the clock cannot be read.
#[must_use]
pub fn moment_in(time: Duration) -> Option<Duration> {
    boot_time().ok().map(|now| now.saturating_add(time))
}

/// Writes to a descriptor of the caller's, and waits for its reader no longer than until `until` (time since boot,
/// CLOCK_BOOTTIME); without a limit as write(2) waits.
///
/// # Errors
/// It cannot be written to, or its reader took too long; then a part may be written.
pub fn write_until(to: BorrowedFd<'_>, bytes: &[u8], until: Option<Duration>) -> io::Result<()> {
    let to = Unblocked::new(to, Use::Write)?;
    let mut forwards = [Forward::over(Some(to))];
    let [forward] = &mut forwards;
    forward.add(bytes);
    pass_on_rest(&mut forwards, None, until);
    let [forward] = &forwards;
    match (&forward.failed, forward.is_waiting()) {
        (Some(errno), _) => Err((*errno).into()),
        (None, true) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "its reader does not read",
        )),
        (None, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;

    #[test]
    fn a_reader_that_does_not_read_is_waited_for_until_the_moment() {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let until = || moment_in(Duration::from_millis(10));
        write_until(write.as_fd(), b"first", until()).unwrap();
        let error = write_until(write.as_fd(), &[0; 1 << 20], until()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // Its own description still waits: only the runner's does not.
        let flags = OFlag::from_bits_retain(fcntl(&write, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK));
        let mut begin = [0; 5];
        nix::unistd::read(&read, &mut begin).unwrap();
        assert_eq!(&begin, b"first");
        drop(read);
        let error = write_until(write.as_fd(), b"x", until()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn without_a_moment_everything_is_written() {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            File::from(read).read_to_end(&mut all).unwrap();
            all
        });
        write_until(write.as_fd(), &[7; 300_000], None).unwrap();
        drop(write);
        assert_eq!(reader.join().unwrap(), [7; 300_000]);
    }

    #[test]
    fn a_thread_passes_on_what_cannot_be_opened_anew() {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let through = Unblocked::through_thread(write.as_fd(), Use::Write).unwrap();
        let mut forwards = [Forward::over(Some(through))];
        forwards[0].add(b"by a thread");
        pass_on_rest(&mut forwards, None, None);
        assert!(!forwards[0].is_waiting() && forwards[0].gone_on.is_none());
        drop((write, forwards));
        let mut all = String::new();
        File::from(read).read_to_string(&mut all).unwrap();
        assert_eq!(all, "by a thread");
    }
}
