//! Each check runs in a child of its own with a deadline: whatever it does to itself, its line is printed.

use std::io::{PipeReader, Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::cause::{Cause, ETIMEDOUT};
use crate::line::{Claim, Seen, Twin};
use crate::parameters::Parameters;
use crate::sys::{self, Ended};

/// How long one check may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
/// How long one may that fills hundreds of mebibytes, for which a limit of the sandbox's may leave it half a CPU and less.
pub(crate) const FILLING: Duration = Duration::from_secs(20);

/// Longest message of a child.
const MAX_MESSAGE_BYTES: usize = 4_096;

/// By which descriptor a child answers; none in a process that is no such child.
static ANSWERS_BY: AtomicI32 = AtomicI32::new(-1);

/// Whether this child opened a descriptor to answer by it.
pub(crate) fn answers_by(fd: RawFd) -> bool {
    ANSWERS_BY.load(Ordering::Relaxed) == fd
}

/// A check that was started.
pub(crate) struct Started {
    pid: i32,
    answer: PipeReader,
    deadline: Duration,
    until: Instant,
}

/// Starts a check.
pub(crate) fn start(
    attack: fn(&Parameters) -> Seen,
    parameters: &Parameters,
    deadline: Duration,
) -> Result<Started, Cause> {
    let until = Instant::now() + deadline;
    let (answer, mut tell) = pipe()?;
    match sys::child()? {
        Some(pid) => Ok(Started {
            pid,
            answer,
            deadline,
            until,
        }),
        None => {
            drop(answer);
            ANSWERS_BY.store(tell.as_raw_fd(), Ordering::Relaxed);
            sys::own_group();
            let seen = std::panic::catch_unwind(|| attack(parameters));
            let Ok(seen) = seen else {
                std::process::abort();
            };
            // A child that cannot tell ends without: the parent says so.
            let told = tell.write_all(&encode(&seen));
            sys::exit_now(i32::from(told.is_err()));
        }
    }
}

impl Started {
    /// What the check said, or how its child ended without saying anything.
    pub(crate) fn finish(mut self) -> Seen {
        let mut message = Vec::new();
        let mut ended = None;
        let seen = loop {
            if message.ends_with(b"\n") {
                break decode(&message);
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("no answer within {} ms", self.deadline.as_millis());
                break Seen::error(Cause::Errno(ETIMEDOUT), text);
            }
            if message.len() >= MAX_MESSAGE_BYTES {
                break Seen::error(Cause::None, "the check's answer is too long");
            }
            // In slices: a grandchild that holds the pipe must not hide that the child is gone.
            let slice = i32::try_from(left.as_millis()).unwrap_or(50).clamp(1, 50);
            if sys::readable(self.answer.as_raw_fd(), slice) {
                let mut part = [0; 1_024];
                match self.answer.read(&mut part) {
                    Ok(0) => ended = ended.or_else(|| sys::wait(self.pid, true).ok().flatten()),
                    Ok(count) => message.extend(part.iter().take(count)),
                    Err(error) => break Seen::error(error.into(), "the check's answer"),
                }
            } else if ended.is_none() {
                ended = sys::wait(self.pid, false).ok().flatten();
                // What it wrote before it ended is still in the pipe.
                if ended.is_some() && sys::readable(self.answer.as_raw_fd(), 0) {
                    continue;
                }
            }
            match ended {
                Some(Ended::Signal(number)) if !message.ends_with(b"\n") => {
                    let text = "the check was ended by a signal";
                    break Seen::error(Cause::Signal(number), text);
                }
                Some(Ended::Code(code)) if !message.ends_with(b"\n") => {
                    let text = format!("the check ended with code {code} and without an answer");
                    break Seen::error(Cause::None, text);
                }
                _ => {}
            }
        };
        // All that it started and that stayed in its group, too. What is gone already is no fault.
        let _gone = sys::send_signal(-self.pid, sys::SIGKILL);
        if ended.is_none() {
            let _gone = sys::send_signal(self.pid, sys::SIGKILL);
            let _reaped = sys::wait(self.pid, true);
        }
        seen
    }
}

/// `<claim> <twin> <kind of cause> <number> <detail>\n`.
fn encode(seen: &Seen) -> Vec<u8> {
    let (kind, number) = match seen.cause {
        Cause::None => ('n', 0),
        Cause::Errno(number) => ('e', number),
        Cause::Signal(number) => ('s', number),
    };
    // At most 4 bytes each: it fits the message, and the line takes fewer.
    let detail: String = seen.detail.chars().take(1_000).collect();
    let detail = detail.replace('\n', " ");
    let (claim, twin) = (seen.claim.as_str(), seen.twin.as_str());
    format!("{claim} {twin} {kind} {number} {detail}\n").into_bytes()
}

fn decode(message: &[u8]) -> Seen {
    let text = String::from_utf8_lossy(message);
    let mut words = text.trim_end_matches('\n').splitn(5, ' ');
    let mut read = || -> Option<Seen> {
        let (claim, twin) = (words.next()?, words.next()?);
        let (kind, number) = (words.next()?, words.next()?.parse().ok()?);
        Some(Seen {
            claim: Claim::ALL
                .into_iter()
                .find(|known| known.as_str() == claim)?,
            twin: Twin::ALL.into_iter().find(|known| known.as_str() == twin)?,
            cause: match kind {
                "n" => Cause::None,
                "e" => Cause::Errno(number),
                "s" => Cause::Signal(number),
                _ => return None,
            },
            detail: words.next()?.to_owned(),
        })
    };
    read().unwrap_or_else(|| Seen::error(Cause::None, "the check's answer cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::of;

    const SHORT: Duration = Duration::from_millis(300);

    fn run(attack: fn(&Parameters) -> Seen, deadline: Duration) -> Seen {
        start(attack, &of(&[]), deadline).unwrap().finish()
    }

    #[test]
    fn an_answer_arrives_as_it_was_given() {
        let seen = run(
            |_| Seen {
                claim: Claim::Contained,
                cause: Cause::Errno(13),
                twin: Twin::Ok,
                detail: "a b\u{e9}".repeat(10),
            },
            DEADLINE,
        );
        assert_eq!(seen.claim, Claim::Contained);
        assert_eq!((seen.cause, seen.twin), (Cause::Errno(13), Twin::Ok));
        assert_eq!(seen.detail, "a b\u{e9}".repeat(10));
    }

    #[test]
    fn a_check_that_hangs_is_an_error() {
        let hang = |_: &Parameters| loop {
            std::thread::sleep(Duration::from_secs(1));
        };
        let seen = run(hang, SHORT);
        assert_eq!(seen.claim, Claim::Error);
        assert_eq!(
            (seen.cause, seen.twin),
            (Cause::Errno(ETIMEDOUT), Twin::None)
        );
    }

    #[test]
    fn a_check_that_dies_is_an_error_by_its_signal() {
        let die = |_: &Parameters| {
            sys::send_signal(std::process::id() as i32, 9).unwrap();
            Seen::missing("alive")
        };
        let seen = run(die, DEADLINE);
        assert_eq!((seen.claim, seen.cause), (Claim::Error, Cause::Signal(9)));
    }

    #[test]
    fn a_check_that_ends_without_a_word_is_an_error() {
        let seen = run(|_| sys::exit_now(7), DEADLINE);
        assert_eq!((seen.claim, seen.cause), (Claim::Error, Cause::None));
        assert!(seen.detail.contains("code 7"), "{}", seen.detail);
    }

    #[test]
    fn a_grandchild_that_holds_the_pipe_hides_nothing() {
        let leave_one = |_: &Parameters| {
            if sys::child().unwrap().is_none() {
                std::thread::sleep(Duration::from_secs(60));
                sys::exit_now(0);
            }
            sys::exit_now(3)
        };
        let seen = run(leave_one, DEADLINE);
        assert!(seen.detail.contains("code 3"), "{}", seen.detail);
    }

    #[test]
    fn a_check_that_panics_is_an_error() {
        let seen = run(|_| panic!("on purpose"), DEADLINE);
        assert_eq!((seen.claim, seen.cause), (Claim::Error, Cause::Signal(6)));
    }
}
