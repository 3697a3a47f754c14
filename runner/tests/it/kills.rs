//! SIGKILL of the runner, of pid 1 and of workloads, at every point that has a name and at random moments.
//!
//! After each: the next run works without help, the killed run is recorded as interrupted, everything verifies, nothing
//! that was acknowledged is missing, and no process, mount, placeholder or temporary file is left.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledger::bytes::hash::Hash;
use ledger::finding::{Class, Code};
use ledger::record::{Body, Content, parse_line};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use runner::sys::fault::POINTS;
use runner::sys::process::children_of;

use crate::evidence::walked;
use crate::world::{Ran, World, ready, skip, until};

/// Calls to the disk, in the words of the ledger, before each of which a run is killed.
const CALLS: [&str; 9] = [
    "before lock",
    "before create the folder",
    "before create",
    "before write",
    "during write",
    "before sync",
    "before sync the folder",
    "before rename",
    "before remove",
];

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

/// Kills `attempt` at the first, the second, … passage of each point until it is not passed that often. Returns how
/// many were killed.
fn kill_at_all(calls: &[&str], mut attempt: impl FnMut(&str, u32) -> bool) -> u32 {
    let mut kills = 0;
    for point in calls {
        let mut number = 1;
        while attempt(point, number) {
            number += 1;
        }
        // A point that is never passed would test nothing.
        assert!(number > 1, "{point}: never passed");
        kills += number - 1;
    }
    println!("{kills} killed");
    kills
}

#[test]
fn whoever_begins_a_ledger_may_die_at_every_call_to_the_disk() {
    let _ = ready!();
    let (last, calls) = CALLS.split_last().unwrap();
    assert_eq!(*last, "before remove", "there is nothing to remove yet");
    let kills = kill_at_all(calls, |point, number| {
        let killing = Killing::new();
        let mut command = killing.world.command(["note", "first"]);
        command.env("RUNNER_KILL", format!("{point}=KILL#{number}"));
        let output = command.output().unwrap();
        if output.status.signal() != Some(9) {
            Ran::of(output).ended(0);
            return false;
        }
        killing.world.run("note next").ended(0);
        killing.is_sound(&format!("{point} #{number}"));
        verifies(&killing.world);
        true
    });
    assert!(kills > 50, "{kills}");
}

#[test]
fn a_run_may_die_at_every_call_to_the_disk() {
    let _ = ready!();
    let killing = Killing::new();
    killing.is_well("the first run");
    let mut run = 0;
    let kills = kill_at_all(&CALLS, |point, number| {
        if point == "before remove" {
            // A lock is removed only where its run was killed.
            killing.kill_at("after start record");
        }
        // A policy of its own: its blob is not there yet.
        run += 1;
        let mut command = killing.command(false, &format!("--env V{run}=x"));
        command.env("RUNNER_KILL", format!("{point}=KILL#{number}"));
        let killed = killing.is_killed(&mut command);
        killing.is_well(&format!("{point} #{number}"));
        killed
    });
    assert!(kills > 40, "{kills}");
    verifies(&killing.world);
    // Not all had begun, and not all of those had not ended.
    let outcomes = killing.outcomes();
    assert!(outcomes.contains(&"interrupted"), "{outcomes:?}");
}

#[test]
fn a_runner_killed_at_a_named_point_takes_its_sandbox_along() {
    let _ = ready!();
    let killing = Killing::new();
    killing.is_well("the first run");
    for point in POINTS {
        let before = killing.outcomes().len();
        let mut command = killing.command(*point == "after go" || *point == "during output", "");
        command.env("RUNNER_KILL", format!("{point}=STOP"));
        let mut child = command.spawn().unwrap();
        assert!(
            has_stopped(&child),
            "{point}: {:?}",
            child.wait_with_output()
        );
        if *point == "during output" {
            // The whole tree is there: pid 1, the shell, its child.
            until("the tree", || tree(pid(&child)).len() >= 3);
        }
        let tree = tree(pid(&child));
        let lives = matches!(
            *point,
            "after launch" | "after start record" | "before go" | "after go" | "during output"
        );
        assert!(!tree.is_empty() || !lives, "{point}");
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{point}");
        // The next run waits for the end of what was left: no wait here.
        killing.is_well(point);
        let alive: Vec<_> = tree.iter().filter(|process| process.is_alive()).collect();
        assert!(alive.is_empty(), "{point}: {alive:?}");
        let recorded: Vec<_> = killing.outcomes().drain(before..).collect();
        let expected: &[&str] = match *point {
            "before launch" | "after launch" => &["reduced"],
            "after execution record" | "before exit" => &["reduced", "reduced"],
            _ => &["interrupted", "reduced"],
        };
        assert_eq!(recorded, expected, "{point}");
    }
    verifies(&killing.world);
}

#[test]
fn whoever_opens_the_ledger_next_waits_for_the_end_of_a_tree() {
    let _ = ready!();
    let killing = Killing::new();
    killing.is_well("the first run");
    let mut command = killing.command(true, "");
    command.env("RUNNER_KILL", "during output=STOP");
    let mut child = command.spawn().unwrap();
    assert!(has_stopped(&child));
    until("the tree", || tree(pid(&child)).len() >= 3);
    let all = tree(pid(&child));
    let init = children_of(pid(&child)).unwrap()[0];
    // A pid 1 that cannot act at once, as on a machine under load.
    signal(init, Signal::SIGSTOP);
    child.kill().unwrap();
    child.wait().unwrap();
    let next = killing.world.command(["note", "next"]).spawn().unwrap();
    assert!(all.iter().all(|process| process.is_alive()));
    signal(init, Signal::SIGCONT);
    let next = Ran::of(next.wait_with_output().unwrap()).ended(0);
    assert!(!next.err.contains("does not end"), "{next:#?}");
    assert!(all.iter().all(|process| !process.is_alive()));
    killing.is_well("a stopped pid 1");
}

#[test]
fn a_tree_that_does_not_end_is_said() {
    let _ = ready!();
    let killing = Killing::new();
    let mut command = killing.command(true, "");
    command.env("RUNNER_KILL", "during output=STOP");
    let mut child = command.spawn().unwrap();
    assert!(has_stopped(&child));
    let init = children_of(pid(&child)).unwrap()[0];
    signal(init, Signal::SIGSTOP);
    child.kill().unwrap();
    child.wait().unwrap();
    let next = killing.world.run("note next").ended(0);
    assert!(
        next.err.contains(&format!("kill -KILL {init}")),
        "{next:#?}"
    );
    signal(init, Signal::SIGKILL);
    until("the end of the tree", || marked(&killing.marker).is_empty());
    assert_eq!(killing.outcomes(), ["interrupted"]);
    killing.is_well("a tree that did not end");
}

/// Numbers that look random and are the same each time (xorshift64*, Vigna 2016).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

#[test]
fn a_runner_may_be_killed_at_any_moment() {
    let _ = ready!();
    const KILLS: u32 = 200;
    const EACH: u32 = 20;
    let seed = std::env::var("RUNNER_TEST_SEED").map_or(0x5eed_0f17, |text| text.parse().unwrap());
    println!("RUNNER_TEST_SEED={seed}");
    let mut numbers = Numbers(seed);
    let killing = Killing::new();
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let began = Instant::now();
            assert!(!killing.is_killed(&mut killing.command(false, "")));
            began.elapsed()
        })
        .collect();
    times.sort();
    let median = u64::try_from(times[times.len() / 2].as_micros()).unwrap();
    let mut limit = median;
    let (mut killed, mut ended) = (0, 0);
    while killed < KILLS {
        // The first moments of each batch are those of a ledger that is begun.
        let killing = Killing::new();
        let until = killed + EACH;
        while killed < until {
            let mut child = killing.command(false, "").spawn().unwrap();
            std::thread::sleep(Duration::from_micros(numbers.below(limit)));
            child.kill().unwrap();
            let status = child.wait().unwrap();
            if status.signal() == Some(9) {
                killed += 1;
            } else {
                assert_eq!(status.code(), Some(0));
                ended += 1;
                // The machine has less to do than when the median was taken.
                limit = (limit - limit / 10).max(1_000);
            }
            assert!(ended < 5 * KILLS, "only {killed} were killed in time");
        }
        killing.is_well(&format!("seed {seed}, {killed} killed"));
        verifies(&killing.world);
    }
    println!("{killed} killed, {ended} ended before, limit {median} to {limit} µs");
}

#[test]
fn a_killed_pid_1_is_never_an_exit() {
    let _ = ready!();
    let killing = Killing::new();
    killing.is_well("the first run");
    for point in [
        "after launch",
        "after start record",
        "before go",
        "after go",
        "during output",
    ] {
        let mut command = killing.command(true, "");
        command.env("RUNNER_KILL", format!("{point}=STOP"));
        let child = command.spawn().unwrap();
        assert!(has_stopped(&child), "{point}");
        let init = children_of(pid(&child)).unwrap()[0];
        signal(init, Signal::SIGKILL);
        until("the end of pid 1", || Process::find(init).is_none());
        signal(pid(&child), Signal::SIGCONT);
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(125), "{point}: {ran:#?}");
        let result = killing.world.last().execution.result;
        assert!(
            result.exit_code.is_none() && result.signal.is_none(),
            "{point}"
        );
        assert_eq!(killing.outcomes().last(), Some(&"interrupted"), "{point}");
        killing.is_well(point);
    }
    verifies(&killing.world);
}

#[test]
fn a_workload_killed_from_outside_was_killed() {
    let _ = ready!();
    let killing = Killing::new();
    for (whose, depth, code) in [("main", 1, 137), ("grandchild", 2, 9)] {
        let script = "echo out; sh -c 'sleep 600; :' & wait $! && exit 1; exit 9";
        let workload = ["sh", "-c", script, &killing.marker];
        let child = killing
            .world
            .exec_command(&killing.flags, &workload)
            .spawn()
            .unwrap();
        let mut at = pid(&child);
        // The runner's child is pid 1, whose child is the shell, whose child is another.
        until("the tree", || tree(pid(&child)).len() >= 4);
        for _ in 0..=depth {
            at = children_of(at).unwrap()[0];
        }
        signal(at, Signal::SIGKILL);
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(code), "{whose}: {ran:#?}");
        let run = killing.world.last();
        let result = &run.execution.result;
        if depth == 1 {
            assert_eq!((result.signal, result.exit_code), (Some(9), None));
            let cleanup = run.execution.cleanup.unwrap();
            assert!(cleanup.survivors_killed.unwrap().value() >= 1);
        } else {
            assert_eq!((result.signal, result.exit_code), (None, Some(9)));
        }
        killing.is_well(whose);
    }
    verifies(&killing.world);
}

#[test]
fn another_run_that_goes_on_is_not_closed() {
    let _ = ready!();
    let killing = Killing::new();
    let go = killing.world.path("out/go");
    let script = "echo out; until [ -e \"$1/go\" ]; do sleep 0.01; done; rm \"$1/go\"";
    let out = killing.world.path("out");
    let workload = ["sh", "-c", script, &killing.marker, out.to_str().unwrap()];
    let mut command = killing.world.exec_command(&killing.flags, &workload);
    let long = command.spawn().unwrap();
    until("the first run's start", || {
        !killing.acknowledged().is_empty()
    });
    for point in [
        "before go",
        "after go",
        "during output",
        "before execution record",
    ] {
        killing.kill_at(point);
        let note = killing.world.run("note next").ended(0);
        assert_eq!(
            note.err.matches("recorded as interrupted").count(),
            1,
            "{point}: {note:#?}"
        );
        // Nothing may follow a close: refused, as long as the other run goes on.
        let close = killing.world.run("close end").ended(125);
        assert!(close.err.contains("still going on"), "{close:#?}");
    }
    assert_eq!(killing.outcomes(), ["interrupted"; 4]);
    std::fs::write(&go, "").unwrap();
    Ran::of(long.wait_with_output().unwrap()).ended(0);
    assert_eq!(killing.outcomes().last(), Some(&"reduced"));
    killing.is_well("the long run");
    verifies(&killing.world);
}

#[test]
fn a_signal_at_a_named_point_ends_the_run_and_is_recorded() {
    let _ = ready!();
    let killing = Killing::new();
    killing.is_well("the first run");
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        for point in POINTS {
            let before = killing.outcomes().len();
            let mut command = killing.command(
                matches!(
                    *point,
                    "after launch"
                        | "after start record"
                        | "before go"
                        | "after go"
                        | "during output"
                ),
                "",
            );
            command.env("RUNNER_KILL", format!("{point}={name}"));
            let output = command.output().unwrap();
            let context = format!("{name} {point}");
            let (code, verdict) = match *point {
                // Nothing has begun.
                "before launch" => (None, ""),
                // It is over.
                "before execution record" | "after execution record" => (Some(0), "reduced"),
                "before exit" => (None, "reduced"),
                _ => (Some(128 + number), "failed"),
            };
            assert_eq!(output.status.code(), code, "{context}: {output:#?}");
            if code.is_none() {
                assert_eq!(output.status.signal(), Some(number), "{context}");
            }
            let mut recorded = killing.outcomes();
            let expected: Vec<&str> = [verdict]
                .into_iter()
                .filter(|one| !one.is_empty())
                .collect();
            assert_eq!(recorded.split_off(before), expected, "{context}");
            killing.is_well(&context);
        }
    }
    verifies(&killing.world);
}
