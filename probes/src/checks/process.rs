//! Seeing and touching the runner's canary process.

use std::fs;
use std::time::Duration;

use crate::cause::{Cause, EBADF, ESRCH};
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys::{self, Ended};
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &["ESRCH", "EPERM", "EACCES", "ENOENT"];
pub(crate) const DENIED_VISIBILITY: &[&str] = &["ESRCH"];

fn canaries(parameters: &Parameters) -> Result<Vec<i32>, Seen> {
    let numbers = parameters.all("pid").map(|text| text.parse::<i32>());
    let found: Result<Vec<i32>, _> = numbers.collect();
    match found {
        // 0 and less are groups, 1 is nobody's canary.
        Ok(found) if !found.is_empty() && found.iter().all(|pid| *pid > 1) => Ok(found),
        Ok(_) | Err(_) => Err(Seen::missing("no pid= of a process was given")),
    }
}

fn comm(pid: &str) -> Option<String> {
    let text = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}

/// Whether the number is that of another process here: numbers inside count for themselves.
fn is_another(pid: i32, parameters: &Parameters) -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    match (comm(&pid.to_string()), parameters.first("comm")) {
        (Some(found), Some(wanted)) => found != wanted.chars().take(15).collect::<String>(),
        _ => pid == own,
    }
}

/// Every process that /proc shows; `None` without one.
fn listed() -> Option<Vec<String>> {
    let names = fs::read_dir("/proc").ok()?.flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pids: Vec<_> = names
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    (!pids.is_empty()).then_some(pids)
}

pub(crate) fn visibility(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED_VISIBILITY);
    let canaries = match canaries(parameters) {
        Ok(canaries) => canaries,
        Err(seen) => return seen,
    };
    let listed = listed();
    match &listed {
        Some(pids) => {
            let first = comm("1").unwrap_or_else(|| "unknown".to_owned());
            tally.note(format!("{} processes, pid 1 is {first}", pids.len()));
        }
        None => tally.note("no /proc"),
    }
    // Under whatever number, the canary has its name.
    for wanted in parameters.all("comm") {
        let short: String = wanted.chars().take(15).collect();
        let seen = listed
            .iter()
            .flatten()
            .find(|pid| comm(pid).as_ref() == Some(&short));
        if let Some(pid) = seen {
            tally.escaped(format!("/proc/{pid} is {wanted}"));
        }
    }
    for pid in canaries {
        if is_another(pid, parameters) {
            tally.refused(
                format!("{pid} is another process here"),
                Cause::Errno(ESRCH),
            );
            continue;
        }
        for (what, answer) in [
            ("kill", sys::send_signal(pid, 0)),
            ("getpgid", sys::group_of(pid)),
            ("sched_getaffinity", sys::affinity_of(pid)),
        ] {
            match answer {
                Err(Cause::Errno(ESRCH)) => tally.refused(what, Cause::Errno(ESRCH)),
                // Not allowed, and there.
                Err(Cause::Errno(crate::cause::EPERM)) => {
                    tally.escaped(format!("{what} {pid} EPERM"))
                }
                answer => tally.attempt(format!("{what} {pid}"), answer),
            }
        }
    }
    // Its own entry, and its own number: without /proc nothing that is absent there is known to be absent.
    let own = std::process::id();
    let own_is_listed = listed.is_some_and(|pids| pids.contains(&own.to_string()));
    let own_answers = i32::try_from(own).is_ok_and(|own| sys::send_signal(own, 0).is_ok());
    tally.finish(Twin::of(own_is_listed && own_answers))
}

pub(crate) fn signal(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let canaries = match canaries(parameters) {
        Ok(canaries) => canaries,
        Err(seen) => return seen,
    };
    for pid in canaries {
        if is_another(pid, parameters) {
            tally.refused(
                format!("{pid} is another process here"),
                Cause::Errno(ESRCH),
            );
            continue;
        }
        tally.attempt(format!("kill {pid}"), sys::send_signal(pid, sys::SIGUSR1));
        let by_descriptor = sys::call(sys::PIDFD_OPEN, [pid.into(), 0, 0, 0])
            .and_then(|fd| sys::call(sys::PIDFD_SEND_SIGNAL, [fd as _, sys::SIGUSR1.into(), 0, 0]));
        tally.attempt(format!("pidfd {pid}"), by_descriptor);
    }
    tally.finish(Twin::of(own_child_gets_a_signal()))
}

fn own_child_gets_a_signal() -> bool {
    match sys::child() {
        Ok(None) => {
            std::thread::sleep(Duration::from_secs(5));
            sys::exit_now(0)
        }
        Ok(Some(pid)) => {
            let sent = sys::send_signal(pid, sys::SIGTERM).is_ok();
            sent && sys::wait(pid, true) == Ok(Some(Ended::Signal(sys::SIGTERM)))
        }
        Err(_) => false,
    }
}

/// Its memory and its descriptors.
pub(crate) fn memory(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let canaries = match canaries(parameters) {
        Ok(canaries) => canaries,
        Err(seen) => return seen,
    };
    for pid in canaries {
        if is_another(pid, parameters) {
            tally.refused(
                format!("{pid} is another process here"),
                Cause::Errno(ESRCH),
            );
            continue;
        }
        tally.attempt(format!("process_vm_readv {pid}"), sys::look_into(pid));
        let taken = sys::call(sys::PIDFD_OPEN, [pid.into(), 0, 0, 0])
            .and_then(|fd| sys::call(sys::PIDFD_GETFD, [fd as _, 0, 0, 0]));
        match taken {
            // It may look, and there is no such descriptor.
            Err(Cause::Errno(EBADF)) => tally.escaped(format!("pidfd_getfd {pid}")),
            answer => tally.attempt(format!("pidfd_getfd {pid}"), answer),
        }
        tally.attempt(
            format!("/proc/{pid}/mem"),
            fs::File::open(format!("/proc/{pid}/mem")),
        );
        // Last: a process that is traced has no other tracer. In a child, with whom it ends.
        let traced = sys::in_child(|| match sys::seize(pid) {
            Ok(()) => 0,
            Err(Cause::Errno(number)) => number,
            Err(_) => 255,
        });
        match traced {
            Ok(Ended::Code(0)) => tally.escaped(format!("ptrace {pid}")),
            Ok(Ended::Code(number)) => tally.refused("ptrace", Cause::Errno(number)),
            Ok(Ended::Signal(number)) => tally.refused("ptrace", Cause::Signal(number)),
            Err(cause) => tally.refused("ptrace", cause),
        }
    }
    // Its own memory it may read, by either way.
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let twin = sys::look_into(own).is_ok() || fs::File::open("/proc/self/mem").is_ok();
    tally.finish(Twin::of(twin))
}
