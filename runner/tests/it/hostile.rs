//! Workloads that do what they can to hold up the runner, to make it grow, to lead it astray, or to falsify the record.
//!
//! Each run is watched from outside: it must end (how fast is not asserted, only that it is not for ever), in memory that
//! does not grow with what the workload does, and its record must be right or say what could not be seen.

mod artifacts;
mod endings;
mod output;
mod processes;
mod readers;
mod resources;
mod trees;

pub(crate) mod misdeeds;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ledger::facts::execution::Artifact;
use ledger::facts::list::List;

use crate::evidence::Run;
use crate::world::{Ran, World};

/// A run that takes longer hangs. None comes near it.
const HANG: Duration = Duration::from_secs(60);
/// What the runner's own memory may come to, whatever the workload does: VmHWM of proc_pid_status(5), in KiB. An unoptimized
/// build comes to 10 MiB for `true`.
const FLAT: u64 = 24 << 10;

/// A run under watch.
struct Watched {
    child: Child,
    began: Instant,
    peak: u64,
}

impl Watched {
    fn start(command: &mut Command) -> Self {
        Self {
            child: command.spawn().unwrap(),
            began: Instant::now(),
            peak: 0,
        }
    }

    /// Waits for the end; the exit status.
    #[track_caller]
    fn wait(&mut self) -> Option<i32> {
        let status = loop {
            self.peak = self.peak.max(peak_memory(self.child.id()).unwrap_or(0));
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.began.elapsed() > HANG {
                self.child.kill().unwrap();
                panic!("the runner did not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        assert!(self.peak > 0, "its memory was never seen");
        assert!(self.peak < FLAT, "{} KiB", self.peak);
        status.code()
    }

    /// Reads what it prints, and waits for the end.
    #[track_caller]
    fn finish(mut self) -> Ran {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let out = std::thread::spawn(move || read_all(out));
        let err = std::thread::spawn(move || read_all(err));
        let code = self.wait();
        let (bytes, err) = (out.join().unwrap(), err.join().unwrap());
        Ran {
            code,
            out: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
            err: String::from_utf8_lossy(&err).into_owned(),
        }
    }
}

fn read_all(from: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes).unwrap();
    }
    bytes
}

/// The most memory that a process had at one time, in KiB; `None` when it has ended.
fn peak_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // Before it executes the runner it is this program.
    if !status.starts_with("Name:\trunner\n") {
        return None;
    }
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Runs a shell script under watch; `$1` and on are arguments.
#[track_caller]
fn sh(world: &World, flags: &str, script: &str, arguments: &[&Path]) -> Ran {
    Watched::start(&mut sh_command(world, flags, script, arguments)).finish()
}

fn sh_command(world: &World, flags: &str, script: &str, arguments: &[&Path]) -> Command {
    let mut command = world.exec_command(flags, &["sh", "-c", script, "sh"]);
    command.args(arguments);
    command
}

/// Commits misdeeds in a sandbox under watch.
#[track_caller]
fn misdeeds(world: &World, flags: &str, list: &[&str]) -> Ran {
    Watched::start(&mut crate::probe::command_inside(world, flags, list)).finish()
}

/// Quiet, and under a strict policy with these changes.
fn strict(world: &World, change: impl FnOnce(&mut serde_json::Value)) -> String {
    format!("-q -P {}", world.policy(change).display())
}

/// The newest run; everything that is not about its end must be as in any other.
#[track_caller]
fn outcome(world: &World) -> (Run, String) {
    let run = world.last();
    let result = &run.execution.result;
    let word = serde_json::to_value(result.outcome).unwrap();
    let word = word.as_str().unwrap();
    let text = match (result.exit_code, result.signal) {
        (Some(code), None) => format!("{word} {code}"),
        (None, Some(signal)) => format!("{word} {signal}"),
        (None, None) => word.to_owned(),
        both => panic!("{both:?}"),
    };
    (run, text)
}

/// What a run left, from its record or the blob that the record names.
#[track_caller]
fn artifacts(world: &World, run: &Run) -> Vec<Artifact> {
    match run.execution.artifacts.clone().unwrap() {
        List::Inline(list) => list,
        List::Blob(list) => {
            let name = list.blob.to_string();
            let path = world
                .ledger()
                .join("blobs")
                .join(&name[..2])
                .join(&name[2..]);
            let text = std::fs::read(path).unwrap();
            let items: Vec<Artifact> = serde_json::from_slice(&text).unwrap();
            assert_eq!(items.len() as u64, list.count.value());
            assert_eq!(ledger::bytes::hash::Hash::of(&text), list.blob);
            assert_eq!(ledger::bytes::canon::to_canonical(&items).unwrap(), text);
            items
        }
    }
}

/// What the newest run could not see, as its record says it.
fn unmeasured(run: &Run) -> Vec<&str> {
    let list = run.execution.unmeasured.iter().flatten();
    list.map(|entry| entry.reason.as_str()).collect()
}

/// Its own stdout and stderr are nobody's.
fn unheard(command: &mut Command) -> &mut Command {
    command.stdout(Stdio::null()).stderr(Stdio::null())
}
