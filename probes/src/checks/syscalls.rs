//! Whether a filter of system calls is in force, by a harmless call that the policy denies.

use std::ffi::c_long;
use std::process::Command;

use crate::cause::{Cause, EFAULT, EINVAL};
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys::{self, Ended};
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &["EPERM", "ENOSYS", "SIGSYS", "EACCES"];

/// Argument with which this program is run again, to make one call.
pub(crate) const AGAIN: &str = "call-again";

/// A call in a child: a filter may end whoever makes it.
fn guarded(make: impl FnOnce() -> Result<i64, Cause>) -> Result<(), Cause> {
    let ended = sys::in_child(|| match make() {
        Ok(_) => 0,
        Err(Cause::Errno(number)) => number,
        Err(Cause::None | Cause::Signal(_)) => 255,
    })?;
    match ended {
        Ended::Code(0) => Ok(()),
        Ended::Code(number) => Err(Cause::Errno(number)),
        Ended::Signal(number) => Err(Cause::Signal(number)),
    }
}

/// By the number itself: the C library's getcpu() makes no system call.
fn denied_call(number: c_long) -> Result<i64, Cause> {
    sys::call(number, [0; 4])
}

fn twin() -> Twin {
    let own = i64::from(std::process::id());
    Twin::of(sys::call(sys::GETPID, [0; 4]) == Ok(own))
}

/// Whether the runner says (`call=none`) that the policy denies nothing that could be tried without harm: then a call that
/// succeeds shows nothing.
fn is_none_denied(parameters: &Parameters) -> bool {
    parameters.first("call") == Some("none")
}

fn none_denied() -> Seen {
    Seen::missing("the policy denies no harmless call, such as getcpu")
}

/// getcpu, or the calls that the runner names by number because this runtime's own filter denies them; each with its name, and
/// what is no number refused.
fn calls(parameters: &Parameters, tally: &mut Tally) -> Vec<(String, c_long)> {
    if parameters.first("call").is_none() || is_none_denied(parameters) {
        return vec![("getcpu".to_owned(), sys::GETCPU)];
    }
    let mut calls = Vec::new();
    for text in parameters.all("call") {
        match text.parse::<u16>() {
            Ok(number) => calls.push((text.to_owned(), number.into())),
            Err(_) => tally.refused(format!("call={text} is no number"), Cause::Errno(EINVAL)),
        }
    }
    calls
}

pub(crate) fn calibration(parameters: &Parameters) -> Seen {
    if is_none_denied(parameters) {
        return none_denied();
    }
    let mut tally = Tally::new(DENIED);
    for (name, number) in calls(parameters, &mut tally) {
        tally.attempt(name, guarded(|| denied_call(number)));
    }
    tally.finish(twin())
}

/// The same call by the machine's other doors.
pub(crate) fn alternate(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    for (_, number) in calls(parameters, &mut tally) {
        tally.attempt("x32", guarded(|| sys::by_x32(number)));
    }
    if parameters.first("call").is_some() && !is_none_denied(parameters) {
        // Behind this door calls have other numbers.
        return tally.finish(twin());
    }
    match guarded(sys::by_interrupt) {
        // A kernel without the door.
        Err(Cause::Signal(11)) => tally.note("int 0x80 SIGSEGV"),
        answer => tally.attempt("int 0x80", answer),
    }
    tally.finish(twin())
}

/// The same call by a thread, and by this program executed again.
pub(crate) fn after_exec(parameters: &Parameters) -> Seen {
    if is_none_denied(parameters) {
        return none_denied();
    }
    let mut tally = Tally::new(DENIED);
    let calls = calls(parameters, &mut tally);
    for (_, number) in &calls {
        let number = *number;
        let by_thread = || {
            let thread = std::thread::Builder::new()
                .spawn(move || denied_call(number))
                .map_err(Cause::from)?;
            thread.join().unwrap_or(Err(Cause::Signal(6)))
        };
        tally.attempt("thread", guarded(by_thread));
    }
    let Some(own) = std::env::args_os().next() else {
        return Seen::missing("no name of this program");
    };
    for (_, number) in &calls {
        let mut again = Command::new(&own);
        match again.arg(AGAIN).arg(number.to_string()).status() {
            Ok(status) => {
                use std::os::unix::process::ExitStatusExt;
                let answer = match (status.code(), status.signal()) {
                    (Some(0), _) => Ok(()),
                    (Some(number), _) => Err(Cause::Errno(number)),
                    (None, Some(number)) => Err(Cause::Signal(number)),
                    (None, None) => Err(Cause::None),
                };
                tally.attempt("exec", answer);
            }
            Err(error) => {
                return Seen::missing(format!(
                    "this program cannot be run again: {}",
                    Cause::from(error)
                ));
            }
        }
    }
    tally.finish(twin())
}

/// What this program does when it was executed again, with the number of the call.
pub(crate) fn again(number: Option<&str>) -> i32 {
    let number = number.and_then(|number| number.parse::<u16>().ok());
    let Some(number) = number else {
        return EINVAL;
    };
    match denied_call(number.into()) {
        Ok(_) => 0,
        Err(Cause::Errno(number)) => number,
        Err(Cause::None | Cause::Signal(_)) => 255,
    }
}

/// Calls that came late and that lists of names forget. A null pointer is looked at only behind the filter.
pub(crate) fn new(_parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    for (name, number) in [
        ("io_uring_setup", sys::IO_URING_SETUP),
        ("fsopen", sys::FSOPEN),
    ] {
        let answer = guarded(|| denied_call(number));
        match answer {
            Err(Cause::Errno(EFAULT | EINVAL)) => tally.escaped(name),
            answer => tally.attempt(name, answer),
        }
    }
    tally.finish(twin())
}
