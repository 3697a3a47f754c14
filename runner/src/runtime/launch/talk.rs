//! What is said between the runner and pid 1 before "go", and the wait for it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::{ENDING, LATE, REPORT_WITHIN, before_report, hand_over, system};
use crate::init::wire::{self, Listening, Report, Spec, ToInit, TreeReport};
use crate::mechanism::group::Group;
use crate::plan::{LaunchError, unheard};
use crate::sys::deaf::is_deaf;
use crate::sys::errno_name;
use crate::sys::notify::Listener;

/// What pid 1 said in the end, its terminal, and who listens.
pub(super) type Said = (Report, Option<OwnedFd>, Result<Listener, String>);

/// Sends the specification; takes the report, and the terminal and the listener that may follow it.
pub(super) fn exchange(
    (control, pid): (&UnixStream, i32),
    spec: &Spec,
    group: Option<&Group>,
    (planted, terminal): (&[OwnedFd], Option<&OwnedFd>),
    meanwhile: &mut dyn FnMut(),
    look: impl FnOnce(&TreeReport),
) -> Result<Said, LaunchError> {
    let until = Instant::now() + REPORT_WITHIN;
    let limit = |limit| {
        let read = control.set_read_timeout(limit);
        read.and_then(|()| control.set_write_timeout(limit))
            .map_err(system("limit the wait for pid 1"))
    };
    // Of each read and write; where most of the time is spent is the wait for the first byte.
    limit(Some(REPORT_WITHIN))?;
    hand_over(control, spec, group, planted.iter().chain(terminal))?;
    meanwhile();
    await_report(control, until)?;
    let tree: TreeReport = wire::receive(control).map_err(|error| before_report(&error))?;
    if tree.fatal.is_none() {
        look(&tree);
    }
    await_word(control, until, late(spec))?;
    let mut report: Report = wire::receive(control).map_err(|error| before_report(&error))?;
    let terminal = take_terminal(control, &report)?;
    let mut listener = listen(pid, &report.listening);
    if let (Err(_), Listening::At { .. }) = (&listener, &report.listening) {
        // Nothing may run under a filter that hands its calls over to nobody.
        wire::send(control, &ToInit::DenyYourself).map_err(|error| before_report(&error))?;
        await_report(control, until)?;
        report = wire::receive(control).map_err(|error| before_report(&error))?;
        if let Listening::At { .. } = report.listening {
            return Err(LaunchError::Step {
                what: "pid 1 made a filter that was not to be".to_owned(),
            });
        }
    }
    if report.fatal.is_some() {
        listener = Err(unheard::NO_FILTER.to_owned());
    }
    limit(None)?;
    Ok((report, terminal, listener))
}

/// The terminal that follows a report, where it says so.
pub(in crate::runtime) fn take_terminal(
    control: &UnixStream,
    report: &Report,
) -> Result<Option<OwnedFd>, LaunchError> {
    let received = report
        .terminal
        .then(|| wire::receive_descriptor(control))
        .transpose();
    received.map_err(|error| LaunchError::Step {
        what: format!("take the terminal: {error}"),
    })
}

/// Comes to listen where the workload's process, the only child of `init`, says that it can be done.
fn listen(init: i32, listening: &Listening) -> Result<Listener, String> {
    let fetch = |number| {
        let pid = crate::runtime::read_back::only_child(init)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Listener::fetch(&crate::sys::process::open(pid)?, number)
    };
    match listening {
        Listening::NotAsked => Err(unheard::NO_FILTER.to_owned()),
        Listening::Refused(errno) => Err(match errno.as_str() {
            "EBUSY" => unheard::ANOTHER_LISTENER.to_owned(),
            "EINVAL" => unheard::KERNEL.to_owned(),
            errno => format!("{}: {errno}", unheard::REFUSED),
        }),
        Listening::At { number } => fetch(*number)
            .map_err(|error| format!("{}: {}", unheard::NOT_PASSED, errno_name(&error))),
    }
}

/// What it means that the last report does not come in time.
const fn late(spec: &Spec) -> &'static str {
    match spec.order {
        Some(_) => "the module is not compiled and ready within 60 s",
        None => LATE,
    }
}

/// Waits until pid 1 says something or ends; an operator who has enough, or the limit, ends the wait.
pub(in crate::runtime) fn await_report(
    control: &UnixStream,
    until: Instant,
) -> Result<(), LaunchError> {
    await_word(control, until, LATE)
}

/// The same, with what it means that nothing is said.
fn await_word(control: &UnixStream, until: Instant, late: &str) -> Result<(), LaunchError> {
    // Blocked by the run, so that they wait here; where they are not blocked, they end this process themselves.
    // In a thread that leaves them to another one, none of them.
    let mut ending = SigSet::empty();
    if !is_deaf() {
        ENDING.iter().for_each(|signal| ending.add(*signal));
    }
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let signals = SignalFd::with_flags(&ending, flags)
        .map_err(|errno| system("receive signals by descriptor")(errno.into()))?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LaunchError::Step {
                what: late.to_owned(),
            });
        }
        let mut list = [
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        // Rounded up: waking before the moment would only spin.
        let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1));
        match poll(&mut list, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("wait for pid 1")(errno.into())),
        }
        let [spoke, signal] =
            list.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
        if signal
            && let Some(info) = signals
                .read_signal()
                .map_err(|errno| system("receive a signal")(errno.into()))?
        {
            return Err(LaunchError::Interrupted {
                signal: i32::try_from(info.ssi_signo).unwrap_or(libc::SIGTERM),
            });
        }
        if spoke {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;

    #[test]
    fn the_wait_for_a_report_ends_with_a_signal_a_limit_or_a_word() {
        let far = Instant::now() + REPORT_WITHIN;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let error = await_report(&ours, Instant::now()).unwrap_err();
        assert!(error.to_string().contains("in time"), "{error}");

        // Of this thread alone.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTERM);
        blocked.thread_block().unwrap();
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        let error = await_report(&ours, far).unwrap_err();
        let signal = libc::SIGTERM;
        assert!(matches!(error, LaunchError::Interrupted { signal: found } if found == signal));

        drop(theirs);
        await_report(&ours, far).unwrap();
    }
}
