//! Runs of a matrix side by side: their order, their end by Ctrl-C, and what is left of those that were killed.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ledger::facts::execution::Outcome;
use ledger::record::Body;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::evidence::walked;
use crate::kills::moments::Numbers;
use crate::matrix::{objects_to_nothing_else, some_rows, verdicts_in_order};
use crate::world::{PATIENCE, Ran, World, install_script, ready, skip, until};

/// What the records say, also while runs go on.
fn bodies(world: &World) -> Vec<Body> {
    let (evidence, _) = walked(&world.ledger());
    let records = evidence.records.into_iter();
    records.map(|(record, _)| record.body).collect()
}

#[test]
fn runs_overlap_and_the_matrix_is_in_the_order_of_the_suite() {
    let world = ready!();
    let rows = ["network", "environment", "timeout", "ipc", "descriptors"];
    let suite = some_rows(&world, &rows);
    let ran = world
        .run(&format!("matrix --json --runtime embedded --suite {suite}"))
        .ended(0);
    let order = verdicts_in_order(&ran);
    let mut controls: Vec<&str> = order
        .iter()
        .map(|id| id.split('/').next().unwrap())
        .collect();
    controls.dedup();
    assert_eq!(controls, rows);
    // Some run began before the one that began before it had ended.
    let kinds: Vec<&str> = bodies(&world).iter().map(Body::kind).collect();
    let pairs: Vec<&[&str]> = kinds.windows(2).collect();
    assert!(pairs.contains(&["start", "start"].as_slice()), "{kinds:?}");
    let started = kinds.iter().filter(|kind| **kind == "start").count();
    let probes = kinds.iter().filter(|kind| **kind == "probe").count();
    assert_eq!([started, probes], [15, 15]);
    objects_to_nothing_else(&world);
}

#[test]
fn who_holds_the_only_key_measures_one_after_the_other() {
    let world = ready!();
    let suite = some_rows(&world, &["environment", "ipc"]);
    let folder = world.path("ephemeral");
    let command = format!(
        "matrix --json --runtime embedded --suite {suite} --key ephemeral --ledger {}",
        folder.display()
    );
    let ran = world.run(&command).ended(0);
    assert_eq!(verdicts_in_order(&ran).len(), 4, "{ran:#?}");
}

/// A third party's suite whose only probe says that it runs, and stays.
fn staying(world: &World) -> (PathBuf, PathBuf) {
    let folder = world.folder("staying");
    let script = "#!/bin/sh\necho probe=stay dimension=files check=stay result=contained errno=none\nexec sleep 1000\n";
    let program = folder.join("probe.sh");
    install_script(script, &program);
    let suite = r#"{"schema":"containment-ledger/suite/v1","probes":[{"id":"stay","control":"files","risk":"controlled",
"program":{"path":"probe.sh"},"arguments":[],"arms":["baseline","run"],"checks":[{"check":"stay","oracle":"line","twin":"allowed","denied":["none"]}]}]}"#;
    world.file("staying/suite.json", suite);
    (folder, program)
}

fn spawned(world: &World, arguments: &str) -> Child {
    let mut command = world.command(arguments.split_whitespace());
    command.spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

#[test]
fn ctrl_c_ends_the_runs_under_way_and_leaves_nothing() {
    let world = ready!();
    let (suite, _) = staying(&world);
    let command = format!("matrix --runtime embedded --suite {}", suite.display());
    for (sent, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let before = bodies(world_begun(&world)).len();
        let child = spawned(&world, &command);
        let pid = child.id();
        until("the probe is started", || {
            let new = bodies(&world).split_off(before);
            new.iter().any(|body| matches!(body, Body::Start(_)))
        });
        signal(&child, sent);
        let ran = Ran::of(child.wait_with_output().unwrap()).ended(code);
        assert!(ran.err.contains("1 of 2 runs"), "{ran:#?}");
        assert!(ran.err.contains(sent.as_str()), "{ran:#?}");
        // It is recorded that the run was ended, and no other was begun.
        let new = bodies(&world).split_off(before);
        let outcomes: Vec<Outcome> = new
            .iter()
            .filter_map(|body| match body {
                Body::Probe(probe) => Some(probe.execution.result.outcome),
                _ => None,
            })
            .collect();
        assert_eq!(outcomes, [Outcome::Interrupted]);
        assert!(!new.iter().any(|body| matches!(body, Body::Matrix(_))));
        assert_eq!(left(&world, &[pid]), Vec::<String>::new());
    }
    objects_to_nothing_else(&world);
}

/// A world whose ledger was begun.
fn world_begun(world: &World) -> &World {
    if !world.ledger().exists() {
        world.run("exec -q -- /bin/true").ended(0);
    }
    world
}

#[test]
fn ctrl_c_ends_all_runs_side_by_side() {
    let world = ready!();
    let suite = some_rows(&world, &["timeout", "filesystem", "process", "ipc"]);
    world_begun(&world);
    let records = world.ledger().join("records/00000000.jsonl");
    let size = || std::fs::metadata(&records).unwrap().len();
    let (ran, before, pid) = loop {
        let (before, began) = (bodies(&world).len(), size());
        let child = spawned(
            &world,
            &format!("matrix --runtime embedded --suite {suite}"),
        );
        let pid = child.id();
        until("a probe is started", || size() > began);
        signal(&child, Signal::SIGINT);
        let ran = Ran::of(child.wait_with_output().unwrap());
        // On a busy machine this one may look too late.
        if ran.code != Some(0) {
            break (ran, before, pid);
        }
    };
    let ran = ran.ended(130);
    assert!(ran.err.contains("of 12 runs of embedded"), "{ran:#?}");
    let kinds: Vec<&str> = bodies(&world)[before..].iter().map(Body::kind).collect();
    let count = |wanted: &str| kinds.iter().filter(|kind| **kind == wanted).count();
    // Each that was begun has its end; one that was not let begin has no start, and says so.
    assert!(count("start") <= count("probe"), "{kinds:?}");
    assert_eq!(count("matrix"), 0, "{kinds:?}");
    assert_eq!(left(&world, &[pid]), Vec::<String>::new());
    // And the next one goes on.
    world
        .run(&format!(
            "matrix -q --runtime embedded --suite {}",
            some_rows(&world, &["ipc"])
        ))
        .ended(0);
    objects_to_nothing_else(&world);
}

#[test]
fn a_signal_that_the_caller_ignores_stays_ignored() {
    let world = ready!();
    let suite = some_rows(&world, &["timeout"]);
    let before = bodies(world_begun(&world)).len();
    let runner = world.command(["matrix", "--runtime", "embedded", "--suite", &suite]);
    let mut shell = world.command([""; 0]);
    // The same with SIGHUP ignored, as nohup(1) has it.
    let words = std::iter::once(runner.get_program()).chain(runner.get_args());
    let words: Vec<_> = words.map(std::ffi::OsStr::to_owned).collect();
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    command.args(words).env_clear();
    for (name, value) in shell.get_envs() {
        command.env(name, value.unwrap());
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    shell.stdin(Stdio::null());
    let child = command.spawn().unwrap();
    until("a probe is started", || {
        let new = bodies(&world).split_off(before);
        new.iter().any(|body| matches!(body, Body::Start(_)))
    });
    signal(&child, Signal::SIGHUP);
    Ran::of(child.wait_with_output().unwrap()).ended(0);
}

/// What is left of runners with these process ids: files, sockets, groups, and what is written down of them.
pub(crate) fn left(world: &World, pids: &[u32]) -> Vec<String> {
    // Of one process for ever: its start time follows. Other programs have numbers in their names, too.
    let is_theirs = |name: &str| {
        let is_of = |pid| name.contains(&format!("-{pid}-"));
        name.contains("containment-") && pids.iter().any(is_of)
    };
    let mut left = Vec::new();
    let mut folders = vec![
        world.path("home"),
        world.path("home/work"),
        "/".into(),
        "/tmp".into(),
        "/var/tmp".into(),
        "/dev/shm".into(),
        world.ledger(),
        world.keys(),
        world.path("state/containment-ledger/planted"),
    ];
    folders.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    let probes = world.path("state/containment-ledger/probes");
    folders.extend(
        std::fs::read_dir(probes)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path()),
    );
    for folder in folders {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if is_theirs(&path.file_name().unwrap().to_string_lossy()) {
                left.push(path.display().to_string());
            }
        }
    }
    // Unix sockets, those of the abstract name space too (proc_net(5)), and what is mounted.
    for table in ["/proc/net/unix", "/proc/self/mountinfo"] {
        let text = std::fs::read_to_string(table).unwrap();
        left.extend(
            text.lines()
                .filter(|line| is_theirs(line))
                .map(str::to_owned),
        );
    }
    let mut groups = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = groups.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if is_theirs(&name) {
                    left.push(entry.path().display().to_string());
                }
                groups.push(entry.path());
            }
        }
    }
    left
}

/// Says to the test program, run again, as whom it is to measure: what a run leaves behind becomes a child of that program,
/// which has no other.
const AGAIN: &str = "MATRICES_ARE_KILLED_AS";
/// How many matrices are made, and every how manyth is killed.
const MATRICES: u32 = 100;
const KILLED: u32 = 5;

#[test]
fn nothing_is_left_of_a_hundred_matrices_of_which_twenty_were_killed() {
    let _ = ready!();
    in_a_process_of_its_own(
        "nothing_is_left_of_a_hundred_matrices_of_which_twenty_were_killed",
        || Some(World::new()),
    );
}

#[test]
fn nothing_is_left_of_a_hundred_matrices_of_an_ordinary_user() {
    let _ = ready!();
    let name = "nothing_is_left_of_a_hundred_matrices_of_an_ordinary_user";
    if !crate::world::is_root() {
        return skip(name, "the other one is it");
    }
    in_a_process_of_its_own(name, || World::of_user(name, &[]));
}

fn in_a_process_of_its_own(name: &str, world: impl FnOnce() -> Option<World>) {
    let name = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    if std::env::var_os(AGAIN).is_some_and(|own| own == *name) {
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        if let Some(world) = world() {
            a_hundred(&world);
        }
        return;
    }
    let mut child = std::process::Command::new("/proc/self/exe")
        .args(["--exact", &name, "--nocapture"])
        .env(AGAIN, &name)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        println!("{}", line.unwrap());
    }
    assert!(child.wait().unwrap().success());
}

fn a_hundred(world: &World) {
    let seed = std::env::var("RUNNER_TEST_SEED").map_or(0x1ea7_0e55, |text| text.parse().unwrap());
    println!("RUNNER_TEST_SEED={seed}");
    let mut numbers = Numbers::new(seed);
    // Whatever is planted: files in six places, sockets of each kind, a process, descriptors, a terminal, variables.
    let suites: Vec<String> = [
        &["filesystem", "ipc"][..],
        &["process", "user"],
        &["descriptors", "terminal"],
        &["network", "environment"],
    ]
    .iter()
    .map(|rows| some_rows(world, rows))
    .collect();
    world_begun(world);
    let command = |suite: &str| {
        let mut command =
            world.command(["matrix", "-q", "--runtime", "embedded", "--suite", suite]);
        command.stdout(Stdio::null());
        command
    };
    // How long each takes here and now; what is killed is killed within that.
    let mut limits: Vec<Duration> = suites
        .iter()
        .map(|suite| {
            let began = Instant::now();
            Ran::of(command(suite).output().unwrap()).ended(0);
            began.elapsed()
        })
        .collect();
    let mut pids = Vec::new();
    let (mut done, mut killed, mut missed) = (0, 0, 0);
    while done < MATRICES {
        let at = usize::try_from(numbers.below(suites.len() as u64)).unwrap();
        let is_killed = done % KILLED == KILLED - 1;
        let mut child = command(&suites[at]).spawn().unwrap();
        pids.push(child.id());
        if !is_killed {
            Ran::of(child.wait_with_output().unwrap()).ended(0);
            done += 1;
            continue;
        }
        let limit = u64::try_from(limits[at].as_micros()).unwrap();
        std::thread::sleep(Duration::from_micros(numbers.below(limit)));
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.signal() == Some(9) {
            (done, killed) = (done + 1, killed + 1);
            everything_ends(&format!("all of {} ends, seed {seed}", pids.len()));
        } else {
            // It had ended already: the machine has less to do than before.
            Ran::of(output).ended(0);
            limits[at] = limits[at] * 9 / 10;
            missed += 1;
            assert!(missed < MATRICES, "only {killed} were killed in time");
        }
    }
    println!("{done} matrices, {killed} killed, {missed} ended before");
    assert_eq!((done, killed), (100, 20));
    Ran::of(command(&suites[3]).output().unwrap()).ended(0);
    everything_ends("every process ends");
    assert_eq!(left(world, &pids), Vec::<String>::new(), "seed {seed}");
    let state = world.path("state/containment-ledger");
    assert_eq!(names(&state.join("planted")), [""; 0]);
    for folder in names(&state.join("probes")) {
        assert_eq!(
            names(&state.join("probes").join(folder)),
            ["probe", "probe.wasm"]
        );
    }
    objects_to_nothing_else(world);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// Waits until this process has no child, and says what one does that does not end.
fn everything_ends(what: &str) {
    let until = Instant::now() + PATIENCE;
    while !is_childless() {
        if Instant::now() > until {
            panic!("did not happen: {what}: {:#?}", children());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What each child of this process is and waits for (proc(5)).
fn children() -> Vec<String> {
    let own = std::process::id();
    let read = |pid: &str, file: &str| {
        let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\0', " ")
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let pids = all.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    pids.filter(|pid| read(pid, "status").contains(&format!("PPid:\t{own}\n")))
        .map(|pid| {
            let files = ["cmdline", "status", "wchan", "syscall", "stack"];
            let texts = files.map(|file| format!("{file}: {}", read(&pid, file)));
            format!("{pid}: {}", texts.join("\n"))
        })
        .collect()
}

/// Whether this process has no child, after waiting for those that have ended: with each its sockets, namespaces and terminals
/// are gone.
fn is_childless() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) => return false,
            Ok(_) => {}
            Err(errno) => panic!("waitpid: {errno}"),
        }
    }
}
