//! Using resources up: open files, memory, tasks, CPU time, disk. Everything has an absolute cap of its own, whatever the
//! runner asks for, and what could take the machine along is never run bare (PROBES.md §1 rule 8).

mod room;

use std::fs::File;
use std::io::{PipeReader, Read, Write, pipe};
use std::time::{Duration, Instant};

use crate::cause::{Cause, EAGAIN, EMFILE, ENOMEM};
use crate::line::{Claim, Seen, Twin};
use crate::parameters::Parameters;
use crate::sys::{self, Ended, Limit};

pub(crate) use room::{DENIED_DISK, DENIED_TMPFS, disk, tmpfs};

pub(crate) const DENIED_FILES: &[&str] = &["EMFILE"];
pub(crate) const DENIED_MEMORY: &[&str] = &["SIGKILL", "ENOMEM"];
pub(crate) const DENIED_TASKS: &[&str] = &["EAGAIN"];
/// To get less time than one could use is no error.
pub(crate) const DENIED_CPU: &[&str] = &["none"];

/// Most memory or disk that is ever used at once, in bytes.
pub(crate) const MOST_BYTES: u64 = 256 << 20;
/// Most tasks that ever live at once.
const MOST_TASKS: u64 = 128;
/// Most files that are ever open at once.
const MOST_FILES: u64 = 65_536;

/// What the runner says, and what is tried: more than it, below the cap.
fn bound(
    parameters: &Parameters,
    key: &str,
    more: fn(u64) -> u64,
    most: u64,
) -> Result<(u64, u64), Seen> {
    let Some(limit) = parameters.number(key).filter(|limit| *limit > 0) else {
        return Err(Seen::missing(format!("no {key}= was given")));
    };
    let tried = more(limit);
    if tried > most {
        let text = format!("{tried} would be needed to pass {limit}, the cap is {most}");
        return Err(Seen::missing(text));
    }
    Ok((limit, tried))
}

/// Twice as much, as the limit and what else is used must be passed for sure.
pub(super) fn budget(parameters: &Parameters) -> Result<(u64, u64), Seen> {
    bound(
        parameters,
        "bytes",
        |limit| limit.saturating_mul(2),
        MOST_BYTES,
    )
}

fn answer(claim: Claim, cause: Cause, twin: bool, detail: String) -> Seen {
    Seen {
        claim,
        cause,
        twin: Twin::of(twin),
        detail,
    }
}

pub(crate) fn files(parameters: &Parameters) -> Seen {
    let (limit, tried) = match bound(
        parameters,
        "limit",
        |limit| limit.saturating_add(32),
        MOST_FILES,
    ) {
        Ok(bound) => bound,
        Err(seen) => return seen,
    };
    // What a process may raise itself is no limit.
    let raised = sys::limit(sys::RLIMIT_NOFILE).and_then(|Limit { hard, .. }| {
        sys::set_limit(sys::RLIMIT_NOFILE, Limit { soft: hard, hard })
    });
    let mut open = Vec::new();
    let cause = loop {
        if open.len() as u64 >= tried {
            break Cause::None;
        }
        match sys::duplicate(1) {
            Ok(fd) => open.push(fd),
            Err(cause) => break cause,
        }
    };
    let (count, raised) = (
        open.len() as u64,
        raised.map_or_else(|cause| cause.to_string(), |()| "raised".to_owned()),
    );
    drop(open);
    let detail = format!("{count} files opened, limit {limit}, soft limit {raised}");
    let twin = count >= limit / 2;
    match cause {
        Cause::None => answer(Claim::Escaped, Cause::None, twin, detail),
        Cause::Errno(EMFILE) if count > limit => answer(Claim::Escaped, Cause::None, twin, detail),
        cause => answer(Claim::Contained, cause, twin, detail),
    }
}

/// Fills memory with what cannot be compressed or shared, and keeps it until `wait` ends.
fn fill(bytes: u64, seed: u64, wait: impl FnOnce()) -> i32 {
    let words = usize::try_from(bytes / 8).unwrap_or(0);
    let mut memory: Vec<u64> = Vec::new();
    if memory.try_reserve_exact(words).is_err() {
        return ENOMEM;
    }
    let mut state = seed | 1;
    memory.extend((0..words).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }));
    // Nobody may find that it is never read.
    std::hint::black_box(&memory);
    wait();
    0
}

/// This process is the one to end when memory is short; it may say so of itself.
fn volunteer() {
    let _best_effort = std::fs::write("/proc/self/oom_score_adj", "1000");
}

fn touched(bytes: u64) -> Result<Ended, Cause> {
    sys::in_child(|| {
        volunteer();
        fill(bytes, 0x9e37_79b9, || {})
    })
}

fn cause_of(ended: Ended) -> Option<Cause> {
    match ended {
        Ended::Code(0) => None,
        Ended::Code(number) => Some(Cause::Errno(number)),
        Ended::Signal(number) => Some(Cause::Signal(number)),
    }
}

/// One process, half the budget and then twice.
pub(crate) fn touch(parameters: &Parameters) -> Seen {
    let (budget, twice) = match budget(parameters) {
        Ok(bound) => bound,
        Err(seen) => return seen,
    };
    let half = touched(budget / 2);
    let twin = half == Ok(Ended::Code(0));
    match touched(twice).map(cause_of) {
        Ok(None) => answer(
            Claim::Escaped,
            Cause::None,
            twin,
            format!("{twice} bytes touched, budget {budget}"),
        ),
        Ok(Some(cause)) => answer(
            Claim::Contained,
            cause,
            twin,
            format!("{twice} bytes refused, half of {budget}: {half:?}"),
        ),
        Err(cause) => Seen::error(cause, "instrument-missing: no child"),
    }
}

/// Four processes, each half the budget, all at once: a limit of each address space lets them pass.
pub(crate) fn children(parameters: &Parameters) -> Seen {
    let (budget, twice) = match budget(parameters) {
        Ok(bound) => bound,
        Err(seen) => return seen,
    };
    let twin = touched(budget / 2) == Ok(Ended::Code(0));
    let attempt = || -> Result<Vec<Ended>, Cause> {
        let (mut filled, tell) = pipe()?;
        let (gate, open) = pipe()?;
        let mut pids = Vec::new();
        for number in 0..4_u64 {
            match sys::child()? {
                None => {
                    drop(open);
                    volunteer();
                    let code = fill(twice / 4, 0x51ed_270b + number, move || {
                        let _told = (&tell).write_all(b"1");
                        // Held on to, it would hide that another one was killed.
                        drop(tell);
                        wait_at(&gate);
                    });
                    sys::exit_now(code);
                }
                Some(pid) => pids.push(pid),
            }
        }
        drop(tell);
        // Until each has told, or is gone.
        let _told = filled.by_ref().take(4).read_to_end(&mut Vec::new());
        drop(open);
        pids.into_iter()
            .map(|pid| sys::wait(pid, true)?.ok_or(Cause::Errno(crate::cause::ECHILD)))
            .collect()
    };
    match attempt() {
        Ok(all) => match all.iter().find_map(|ended| cause_of(*ended)) {
            None => answer(
                Claim::Escaped,
                Cause::None,
                twin,
                format!("4 processes hold {twice} bytes, budget {budget}"),
            ),
            Some(cause) => answer(
                Claim::Contained,
                cause,
                twin,
                format!("4 processes of {} bytes: {all:?}", twice / 4),
            ),
        },
        Err(cause) => Seen::error(cause, "instrument-missing: no children"),
    }
}

/// Blocks until the other end is closed.
fn wait_at(mut gate: &PipeReader) {
    let _ended = gate.read(&mut [0]);
}

/// Processes that all live until they were counted.
pub(crate) fn forks(parameters: &Parameters) -> Seen {
    tasks(parameters, |tried| {
        let (gate, open) = pipe()?;
        let mut pids = Vec::new();
        let cause = loop {
            if pids.len() as u64 >= tried {
                break Cause::None;
            }
            match sys::child() {
                Ok(None) => {
                    drop(open);
                    wait_at(&gate);
                    sys::exit_now(0);
                }
                Ok(Some(pid)) => pids.push(pid),
                Err(cause) => break cause,
            }
        };
        drop(open);
        for pid in &pids {
            sys::wait(*pid, true)?;
        }
        Ok((pids.len() as u64, cause))
    })
}

/// The same of threads.
pub(crate) fn threads(parameters: &Parameters) -> Seen {
    tasks(parameters, |tried| {
        let (gate, open) = pipe()?;
        let gate = std::sync::Arc::new(gate);
        let mut handles = Vec::new();
        let cause = loop {
            if handles.len() as u64 >= tried {
                break Cause::None;
            }
            let gate = gate.clone();
            let made = std::thread::Builder::new()
                .stack_size(65_536)
                .spawn(move || wait_at(&gate));
            match made {
                Ok(handle) => handles.push(handle),
                Err(error) => break error.into(),
            }
        };
        drop(open);
        let count = handles.len() as u64;
        for handle in handles {
            let _ended = handle.join();
        }
        Ok((count, cause))
    })
}

fn tasks(parameters: &Parameters, make: fn(u64) -> Result<(u64, Cause), Cause>) -> Seen {
    let (limit, tried) = match bound(
        parameters,
        "limit",
        |limit| limit.saturating_add(8),
        MOST_TASKS,
    ) {
        Ok(bound) => bound,
        Err(seen) => return seen,
    };
    match make(tried) {
        Ok((count, cause)) => {
            let detail = format!("{count} at once, limit {limit}");
            let twin = count >= limit / 2;
            match cause {
                Cause::None => answer(Claim::Escaped, Cause::None, twin, detail),
                Cause::Errno(EAGAIN) if count > limit => {
                    answer(Claim::Escaped, Cause::None, twin, detail)
                }
                cause => answer(Claim::Contained, cause, twin, detail),
            }
        }
        Err(cause) => Seen::error(cause, "instrument-missing: counting failed"),
    }
}

/// How long the processors are kept busy.
const BUSY: Duration = Duration::from_millis(800);
/// Most threads that are.
const MOST_BUSY: u64 = 8;

/// CPU time for each second, in milliseconds: what is asked for is more than the quota.
pub(crate) fn cpu(parameters: &Parameters) -> Seen {
    let Some(quota) = parameters.number("millis").filter(|quota| *quota > 0) else {
        return Seen::missing("no millis= was given");
    };
    let wanted = quota / 1_000 + 1;
    if wanted > MOST_BUSY {
        return Seen::missing(format!(
            "{wanted} threads would be needed, the cap is {MOST_BUSY}"
        ));
    }
    let began = Instant::now();
    let burn = move || {
        let mut state = 1_u64;
        while began.elapsed() < BUSY {
            for _ in 0..10_000 {
                state = std::hint::black_box(
                    state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1),
                );
            }
        }
    };
    let handles: Vec<_> = (0..wanted)
        .map_while(|_| std::thread::Builder::new().spawn(burn).ok())
        .collect();
    let busy = handles.len();
    for handle in handles {
        let _ended = handle.join();
    }
    let wall = u64::try_from(began.elapsed().as_micros())
        .unwrap_or(u64::MAX)
        .max(1);
    let used = match sys::cpu_time() {
        Ok(used) => used.saturating_mul(1_000) / wall,
        Err(cause) => return Seen::error(cause, "instrument-missing: CPU time"),
    };
    let detail = format!("{used} ms of CPU a second by {busy} threads, quota {quota}");
    let twin = used >= quota / 4;
    // A quota is kept over periods of 100 ms, the last of which may stick out. Much less than the quota is no containment:
    // somebody else had the processors.
    match used {
        _ if used < quota.saturating_mul(3) / 4 => {
            Seen::missing(format!("the machine was too busy to say: {detail}"))
        }
        _ if used <= quota.saturating_mul(5) / 4 => {
            answer(Claim::Contained, Cause::None, twin, detail)
        }
        _ if used >= quota.saturating_mul(3) / 2 => {
            answer(Claim::Escaped, Cause::None, twin, detail)
        }
        _ => Seen::missing(format!("too near to the quota to say: {detail}")),
    }
}

/// Writes what cannot be compressed, until so many bytes are there or something refuses.
pub(super) fn write_until(file: &mut File, bytes: u64) -> Result<(), Cause> {
    let mut part = vec![0_u8; 1 << 20];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        for word in part.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_ne_bytes());
        }
        let now = part.get(..left.min(part.len())).unwrap_or(&part);
        file.write_all(now)?;
        left -= now.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
