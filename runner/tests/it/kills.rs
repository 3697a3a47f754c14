//! SIGKILL of the runner, of pid 1 and of workloads, at every point that has a name and at random moments.
//!
//! After each: the next run works without help, the killed run is recorded as interrupted, everything verifies, nothing
//! that was acknowledged is missing, and no process, mount, placeholder or temporary file is left.

mod inside;
pub(crate) mod moments;
mod points;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::bytes::hash::Hash;
use ledger::finding::{Class, Code};
use ledger::record::{Body, Content, parse_line};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use runner::sys::process::children_of;

use crate::evidence::walked;
use crate::world::{Ran, World, skip, until};

/// A text that stands in the arguments of one test's workloads and nowhere else.
fn marker() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("marker-{}-{number}-", std::process::id())
}

/// Processes with `marker` in their arguments.
fn marked(marker: &str) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        // Gone meanwhile is gone.
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        crate::world::contains(&line, marker)
    })
    .collect()
}

/// One process for ever: its number and when it began (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: i32,
    began: u64,
}

impl Process {
    fn find(pid: i32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let began = fields.get(19)?.parse().ok()?;
        (!matches!(fields[0], "Z" | "X")).then_some(Self { pid, began })
    }

    fn is_alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }
}

/// Every process below one, itself left out.
fn tree(pid: i32) -> BTreeSet<Process> {
    let mut found = BTreeSet::new();
    let mut below = children_of(pid).unwrap_or_default();
    while let Some(pid) = below.pop() {
        found.extend(Process::find(pid));
        below.extend(children_of(pid).unwrap_or_default());
    }
    found
}

/// Pid 1 of a runner's sandbox: the child that is the first process of its pid namespace (proc_pid_status(5), NSpid).
fn init_of(child: &Child) -> i32 {
    find_init(child).expect("no pid 1")
}

fn has_init(child: &Child) -> bool {
    find_init(child).is_some()
}

fn find_init(child: &Child) -> Option<i32> {
    let is_init = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        ids.is_some_and(|ids| ids.split_whitespace().next_back() == Some("1"))
    };
    let children = children_of(pid(child)).unwrap();
    children.into_iter().find(is_init)
}

fn pid(child: &Child) -> i32 {
    child.id().try_into().unwrap()
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Waits until a child has stopped itself; `false` when it has ended instead.
fn has_stopped(child: &Child) -> bool {
    let id = Id::Pid(Pid::from_raw(pid(child)));
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    matches!(waitid(id, flags).unwrap(), WaitStatus::Stopped(..))
}

/// The program `verify`: named by `VERIFY`, or built beside the runner.
fn verify() -> Option<PathBuf> {
    let named = std::env::var_os("VERIFY").map(PathBuf::from);
    let beside = || Some(Path::new(env!("CARGO_BIN_EXE_runner")).with_file_name("verify"));
    named.or_else(beside).filter(|path| path.is_file())
}

/// Codes of what the program `verify` finds wrong; `None` where there is no such program.
pub(crate) fn verdict_codes(world: &World) -> Option<Vec<String>> {
    let Some(verify) = verify() else {
        skip(
            "the program verify",
            "there is none beside the runner, and VERIFY names none",
        );
        return None;
    };
    let output = Command::new(verify)
        .args(["--format", "json"])
        .arg(world.ledger())
        .output()
        .unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let wrong = findings
        .iter()
        .filter(|finding| finding["severity"] != "observation");
    Some(
        wrong
            .map(|finding| finding["code"].as_str().unwrap().to_owned())
            .collect(),
    )
}

/// Fails unless the program `verify` finds nothing wrong.
pub(crate) fn verifies(world: &World) {
    let Some(verify) = verify() else {
        return skip(
            "the program verify",
            "there is none beside the runner, and VERIFY names none",
        );
    };
    let output = Command::new(verify).arg(world.ledger()).output().unwrap();
    assert!(output.status.success(), "{output:#?}");
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What a folder of keys holds of one ledger.
const KEY_FILES: [&str; 3] = ["heads", "heads.lock", "pem"];

/// What follows the id of the key, without the file that takes turns with `.heads`.
fn kinds(names: &[String]) -> Vec<&str> {
    let kinds = names.iter().map(|name| name.split_once('.').unwrap().1);
    kinds.filter(|kind| *kind != "heads.new").collect()
}

/// Fails unless a world has one key, and nothing left over beside it.
pub(crate) fn has_one_key(world: &World) {
    assert_eq!(kinds(&names(&world.keys())), KEY_FILES);
}

/// A world whose runs show a folder with places that are protected, and write their events to a file.
struct Killing {
    world: World,
    flags: String,
    marker: String,
    /// What the folder holds by itself.
    holds: Vec<String>,
}

impl Killing {
    fn new() -> Self {
        let world = World::new();
        let folder = world.folder("out");
        std::fs::create_dir(folder.join(".git")).unwrap();
        let events = world.path("events");
        let flags = format!("--write {} --events {}", folder.display(), events.display());
        Self {
            world,
            flags,
            marker: marker(),
            holds: vec![".git".to_owned()],
        }
    }

    /// A run that ends by itself, one that stays when `stays`.
    fn command(&self, stays: bool, flags: &str) -> Command {
        let script = if stays {
            "echo out; sleep 600 & wait"
        } else {
            "echo out; : & wait"
        };
        let workload = ["sh", "-c", script, &self.marker];
        let flags = format!("{} {flags}", self.flags);
        self.world.exec_command(&flags, &workload)
    }

    /// Whether a run was killed; else it ended as it should.
    fn is_killed(&self, command: &mut Command) -> bool {
        let output = command.output().unwrap();
        let killed = output.status.signal() == Some(9);
        if !killed {
            Ran::of(output).ended(0);
        }
        killed
    }

    /// A run that is killed when it passes a point.
    fn kill_at(&self, point: &str) {
        let mut command = self.command(false, "");
        command.env("RUNNER_KILL", format!("{point}=KILL"));
        assert!(self.is_killed(&mut command), "{point}");
    }

    /// What was acknowledged: records by number, and hashes.
    fn acknowledged(&self) -> Vec<(u64, Hash)> {
        let text = std::fs::read_to_string(self.world.path("events")).unwrap_or_default();
        // The last line may be half a line: nobody was told.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let events = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        events
            .filter_map(|event: serde_json::Value| {
                let sequence = event["sequence"].as_u64()?;
                Some((sequence, event["hash"].as_str()?.parse().unwrap()))
            })
            .collect()
    }

    /// Waits for children of a killed runner that had not executed pid 1 yet: they hold its locks until they see that
    /// it is gone, and what it left would be removed only by the run after the next one.
    fn await_unexecuted(&self) {
        let folders = [
            "state/containment-ledger/placeholders",
            "state/containment-ledger/default/runs",
        ];
        for folder in folders.map(|folder| self.world.path(folder)) {
            for name in names(&folder) {
                // Swept meanwhile is as good.
                let is_held = |path| File::open(path).is_ok_and(|file| file.try_lock().is_err());
                until("the end of a child", || !is_held(folder.join(&name)));
            }
        }
    }

    /// The next run works without help, and nothing is amiss then. `context` is what was done.
    #[track_caller]
    fn is_well(&self, context: &str) {
        self.await_unexecuted();
        let next = self.world.exec(&self.flags, &["true"]);
        assert_eq!(next.code, Some(0), "{context}: {next:#?}");
        assert!(!next.err.contains("does not end"), "{context}: {next:#?}");
        self.is_sound(context);
    }

    /// Nothing is amiss, and nothing left.
    #[track_caller]
    fn is_sound(&self, context: &str) {
        let (evidence, findings) = walked(&self.world.ledger());
        let bad = findings.iter().find(|finding| {
            finding.code.class() != Class::Observation || finding.code != Code::Recovered
        });
        assert_eq!(bad, None, "{context}");
        let mut open = BTreeSet::new();
        for (record, _) in &evidence.records {
            match &record.body {
                Body::Start(_) => assert!(open.insert(record.sequence), "{context}"),
                Body::Execution(execution) => assert!(open.remove(&execution.start), "{context}"),
                _ => {}
            }
        }
        assert!(open.is_empty(), "{context}: {open:?}");

        let hashes = self.hashes();
        for (sequence, hash) in self.acknowledged() {
            let found = hashes.get(usize::try_from(sequence).unwrap());
            assert_eq!(found, Some(&hash), "{context}: record {sequence}");
        }

        let ledger = self.world.ledger();
        let known = [
            "blobs",
            "checkpoint",
            "checkpoint.new",
            "lock",
            "records",
            "runs",
            "tip",
            "tip.new",
            "torn",
            "tree",
        ];
        let mut left = names(&ledger);
        left.retain(|name| !known.contains(&name.as_str()));
        assert_eq!(left, [""; 0], "{context}");
        let runs = names(&ledger.join("runs"));
        assert!(
            runs.iter().all(|name| name == "spare"),
            "{context}: {runs:?}"
        );
        let keys = names(&self.world.keys());
        assert_eq!(kinds(&keys), KEY_FILES, "{context}");

        let out = self.world.path("out");
        assert_eq!(names(&out), self.holds, "{context}");
        assert_eq!(names(&out.join(".git")), [""; 0], "{context}");
        let journals = self.world.path("state/containment-ledger/placeholders");
        assert_eq!(names(&journals), [""; 0], "{context}");
        assert_eq!(marked(&self.marker), [0; 0], "{context}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let base = self.world.path("");
        assert!(
            !mounts.contains(base.to_str().unwrap()),
            "{context}: {mounts}"
        );
    }

    /// The names of all records.
    fn hashes(&self) -> Vec<Hash> {
        let records = self.world.ledger().join("records");
        let mut hashes = Vec::new();
        for name in names(&records) {
            let bytes = std::fs::read(records.join(name)).unwrap();
            for line in bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let parsed = parse_line(line);
                if matches!(parsed.content, Ok(Content::Record(_))) {
                    hashes.push(parsed.hash);
                }
            }
        }
        hashes
    }

    fn outcomes(&self) -> Vec<&'static str> {
        let runs = walked(&self.world.ledger()).0.runs();
        runs.iter()
            .map(|run| run.execution.verdict.as_str())
            .collect()
    }
}
