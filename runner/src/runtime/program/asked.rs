//! What a program prints, within a time and a size: it is somebody else's, and may do neither.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::runtime::launch::ENDING;
use crate::sys::deaf::is_deaf;
use crate::sys::{errno_name, process};

/// How long it may take: a thousand times what bubblewrap does.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much it may print.
const MAX_BYTES: usize = 1 << 20;

/// Which of its streams is listened to; the other one goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum Listen {
    Output,
    Errors,
}

/// Why there is no answer; `Refused` is the system's word, the others are its own fault.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::runtime) enum NoAnswer {
    Refused(String),
    TooLate,
    TooLong,
    Interrupted,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(errno) => f.write_str(errno),
            Self::TooLate => write!(f, "no answer within {} s", PATIENCE.as_secs()),
            Self::Interrupted => f.write_str("no answer before the operator had enough"),
            Self::TooLong => write!(f, "an answer of more than {MAX_BYTES} bytes"),
        }
    }
}

/// Runs it to its end, without input. One that does not end in time, or prints too much, is killed, and with it all that it
/// started but what made a group or session of its own.
pub(in crate::runtime) fn ask(
    command: &mut Command,
    listen: Listen,
) -> Result<(ExitStatus, String), NoAnswer> {
    let refused = |errno: Errno| NoAnswer::Refused(errno_name(&errno.into()));
    // It is not in the terminal's foreground group: who has enough ends it by this process, which then does as it would have.
    let mut ending = SigSet::empty();
    if !is_deaf() {
        ENDING.iter().for_each(|signal| ending.add(*signal));
    }
    let before = ending
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(refused)?;
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let enough = SignalFd::with_flags(&ending, flags).map_err(refused);
    let asked = enough.and_then(|enough| ask_with(command, listen, Stdio::null(), &enough));
    before.thread_set_mask().map_err(refused)?;
    asked
}

fn ask_with(
    command: &mut Command,
    listen: Listen,
    input: Stdio,
    enough: &SignalFd,
) -> Result<(ExitStatus, String), NoAnswer> {
    let refused = |error: &std::io::Error| NoAnswer::Refused(errno_name(error));
    command.stdin(input).process_group(0);
    let (out, err) = match listen {
        Listen::Output => (Stdio::piped(), Stdio::null()),
        Listen::Errors => (Stdio::null(), Stdio::piped()),
    };
    let mut child = command
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|error| refused(&error))?;
    let answered = answer(&mut child, enough);
    if answered.is_err() {
        // They may be gone already. Nobody waited for the first of them yet, so its number is no other's.
        let group = i32::try_from(child.id()).map(Pid::from_raw);
        let _ = group.map(|group| killpg(group, Signal::SIGKILL));
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| refused(&error))?;
    answered.map(|said| (status, String::from_utf8_lossy(&said).into_owned()))
}

fn answer(child: &mut Child, enough: &SignalFd) -> Result<Vec<u8>, NoAnswer> {
    let refused = |error: std::io::Error| NoAnswer::Refused(errno_name(&error));
    let until = Instant::now() + PATIENCE;
    let pid = i32::try_from(child.id()).map_err(|_| NoAnswer::Refused("ESRCH".to_owned()))?;
    let ended = process::open(pid).map_err(refused)?;
    let stream = match (child.stdout.take(), child.stderr.take()) {
        (Some(out), _) => OwnedFd::from(out),
        (None, Some(err)) => OwnedFd::from(err),
        (None, None) => return Err(NoAnswer::Refused("EBADF".to_owned())),
    };
    let mut stream = File::from(stream);
    let mut said = Vec::new();
    loop {
        await_readable(&stream, until, enough)?;
        let mut part = [0; 4_096];
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => said.extend(part.iter().take(count)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refused(error)),
        }
        if said.len() > MAX_BYTES {
            return Err(NoAnswer::TooLong);
        }
    }
    // It closed its stream, which is not its end.
    await_readable(&ended, until, enough)?;
    Ok(said)
}

fn await_readable(
    descriptor: &impl AsFd,
    until: Instant,
    enough: &SignalFd,
) -> Result<(), NoAnswer> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NoAnswer::TooLate);
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut list = [
            PollFd::new(descriptor.as_fd(), PollFlags::POLLIN),
            // Not read: it stays for whoever waits for it.
            PollFd::new(enough.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut list, timeout) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => {
                let [spoke, signal] =
                    list.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
                return if signal && !spoke {
                    Err(NoAnswer::Interrupted)
                } else {
                    Ok(())
                };
            }
            Err(errno) => return Err(NoAnswer::Refused(errno_name(&errno.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, listen: Listen) -> Result<(ExitStatus, String), NoAnswer> {
        ask(Command::new("sh").args(["-c", script]), listen)
    }

    #[test]
    fn one_stream_is_heard() {
        let script = "echo out; echo err >&2; exit 3";
        let (status, said) = sh(script, Listen::Output).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(3), "out\n"));
        let (_, said) = sh(script, Listen::Errors).unwrap();
        assert_eq!(said, "err\n");
        let none = ask(&mut Command::new("/no/such/program"), Listen::Output);
        assert_eq!(none.unwrap_err(), NoAnswer::Refused("ENOENT".to_owned()));
    }

    #[test]
    fn what_says_too_much_or_does_not_end_is_ended() {
        let endless = sh("while :; do echo yes; done", Listen::Output);
        assert_eq!(endless.unwrap_err(), NoAnswer::TooLong);
        let late = sh("exec >&- 2>&-; exec sleep 600", Listen::Output);
        assert_eq!(late.unwrap_err(), NoAnswer::TooLate);
        // What it started goes with it: the pipe, which only that has, ends.
        let (mut reads, writes) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exec 3<&0; sleep 600 & while :; do echo yes; done"]);
        let nobody = SignalFd::new(&SigSet::empty()).unwrap();
        let flooded = ask_with(&mut command, Listen::Output, writes.into(), &nobody);
        drop(command);
        assert_eq!(flooded.unwrap_err(), NoAnswer::TooLong);
        assert_eq!(reads.read(&mut [0]).unwrap(), 0);
        let silent = sh("exec sleep 600", Listen::Errors);
        assert_eq!(silent.unwrap_err(), NoAnswer::TooLate);
    }
}
