//! Processes outside are out of sight, and nothing of a run outlives it: SANDBOX.md §3.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use crate::probe::inside;
use crate::starter::children;
use crate::world::{Ran, World, at_best, program, ready, runtimes, skip, until};

/// A text that is in the argv of a workload's processes and of no other.
pub(crate) fn marker(world: &World) -> String {
    let name = world.path("").file_name().unwrap().display().to_string();
    let number: String = name.bytes().map(|byte| format!("{byte:03}")).collect();
    // Also a time that sleep(1) takes: a day and a bit.
    format!("86400.{number}")
}

/// Processes of the host that have this argument, the runner itself apart.
pub(crate) fn living(marker: &str) -> Vec<PathBuf> {
    let has_marker = |path: &Path| {
        let text = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let mut arguments = text.split(|byte| *byte == 0);
        let runner = arguments
            .next()
            .is_some_and(|name| name.ends_with(b"runner"));
        !runner && arguments.any(|argument| argument == marker.as_bytes())
    };
    let all = std::fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().unwrap().as_encoded_bytes()[0].is_ascii_digit())
        .filter(|path| has_marker(path))
        .collect()
}

/// Leaves processes behind in every way: in a session of its own, orphaned twice, holding the output open. Goes on when
/// all five sleep: shells that are still on the way there carry the marker too, and end.
const FORKS: &str = r#"setsid sleep "$1" & (setsid sh -c 'sleep "$1" & sleep "$1"' sh "$1" >/dev/null 2>&1 &)
    (trap '' TERM INT HUP; sleep "$1") & nohup sleep "$1" >/dev/null 2>&1 &
    marked() { grep -lx sleep /proc/[0-9]*/comm 2>/dev/null | while read -r p; do grep -lz "^$1$" "${p%comm}cmdline" 2>/dev/null; done; }
    until [ "$(marked "$1" | wc -l)" -ge 5 ]; do :; done; echo forked; "#;

fn forks(end: &str) -> String {
    format!("{FORKS}{end}")
}

#[test]
fn processes_of_the_host_are_neither_seen_nor_signalled() {
    let world = ready!();
    let ran = world.sh(
        "",
        "ls /proc | grep -c '^[0-9]'; cat /proc/1/comm; echo $$",
        &[],
    );
    let out = ran.ended(0).out;
    let lines: Vec<&str> = out.lines().collect();
    let count: usize = lines[0].parse().unwrap();
    assert!((2..10).contains(&count), "{out}");
    // Pid 1 is not the workload.
    assert_eq!(lines[2], "2");

    let own = std::process::id();
    let answers = inside(&world, "", &[&format!("kill:{own}"), "kill:1"]);
    assert_eq!(answers[&format!("kill:{own}")], "ESRCH");
    let run = world.last();
    assert!(run.declares("process"));
}

#[test]
fn pid_1_survives_what_the_workload_sends_it() {
    let world = ready!();
    let ran = world.sh(
        "",
        "kill -9 1; kill -TERM 1; kill -STOP 1; sh -c 'exit 3'; echo $?",
        &[],
    );
    assert_eq!(ran.ended(0).out, "3\n");
}

#[test]
fn the_whole_tree_is_dead_when_the_main_process_has_ended() {
    let world = ready!();
    let marker = marker(&world);
    let ran = world
        .sh("", &forks("exit 5"), &[Path::new(&marker)])
        .ended(5);
    assert_eq!(living(&marker), Vec::<PathBuf>::new());
    assert_eq!(ran.out, "forked\n");
    let cleanup = world.last().execution.cleanup.unwrap();
    assert!(
        cleanup.survivors_killed.unwrap().value() >= 5,
        "{cleanup:?}"
    );
}

#[test]
fn the_whole_tree_is_dead_at_the_deadline() {
    let world = ready!();
    let marker = marker(&world);
    // A slow host gets more time to come so far that there is a tree.
    for timeout in ["3s", "10s", "60s"] {
        let flags = format!("--timeout {timeout}");
        let ran = world
            .sh(&flags, &forks("wait; wait"), &[Path::new(&marker)])
            .ended(124);
        assert_eq!(living(&marker), Vec::<PathBuf>::new());
        if ran.out == "forked\n" {
            break;
        }
        assert_ne!(timeout, "60s", "{ran:#?}");
    }
    let run = world.last();
    assert_eq!(run.execution.verdict.as_str(), "timeout");
    assert!(run.declares("timeout"));
}

fn spawn(world: &World, marker: &str) -> Child {
    let script = forks("wait");
    let workload = ["sh", "-c", &script, "sh", marker];
    let mut command = world.exec_command("", &workload);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn the_whole_tree_dies_with_a_killed_runner() {
    let world = ready!();
    let marker = marker(&world);
    let mut runner = spawn(&world, &marker);
    until("the workload has forked", || living(&marker).len() >= 6);
    runner.kill().unwrap();
    runner.wait().unwrap();
    until("the workload is dead", || living(&marker).is_empty());

    // The next run says what became of it.
    world.exec("", &["true"]).ended(0);
    let runs = world.evidence().runs();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].execution.verdict.as_str(), "interrupted");
    assert_eq!(runs[0].argv.last(), Some(&marker));
    assert_eq!(runs[1].execution.verdict.as_str(), at_best(&world));
}

#[test]
fn a_run_that_is_still_alive_is_not_closed_by_another() {
    let world = ready!();
    let marker = marker(&world);
    let mut runner = spawn(&world, &marker);
    until("the workload has forked", || living(&marker).len() >= 6);
    world.exec("", &["true"]).ended(0);
    assert_eq!(world.evidence().runs().len(), 1);
    assert!(living(&marker).len() >= 6);
    runner.kill().unwrap();
    runner.wait().unwrap();
    until("the workload is dead", || living(&marker).is_empty());
}

#[test]
fn a_survivor_that_holds_the_output_open_does_not_hold_the_run() {
    let world = ready!();
    let marker = marker(&world);
    let script = r#"setsid sleep "$1" & echo out; echo err >&2"#;
    let ran = world.sh("-q", script, &[Path::new(&marker)]).ended(0);
    assert_eq!(ran.out, "out\n");
    assert!(ran.err.starts_with("err\n"), "{}", ran.err);
    assert!(living(&marker).is_empty());
}

#[test]
fn objects_of_the_hosts_ipc_and_its_name_are_out_of_sight() {
    const TEST: &str = "objects_of_the_hosts_ipc_and_its_name_are_out_of_sight";
    let world = ready!();
    let (Some(ipcmk), Some(ipcrm)) = (program("ipcmk"), program("ipcrm")) else {
        return skip(TEST, "no ipcmk, ipcrm (util-linux)");
    };
    let made = Command::new(ipcmk).args(["-Q"]).output().unwrap();
    if !made.status.success() {
        return skip(TEST, String::from_utf8_lossy(&made.stderr));
    }
    let made = String::from_utf8(made.stdout).unwrap();
    let id = made.trim().rsplit(' ').next().unwrap().to_owned();
    let outside = std::fs::read_to_string("/proc/sysvipc/msg").unwrap();
    let ran = world.sh(
        "",
        "tail -n +2 /proc/sysvipc/msg; cat /proc/sys/kernel/hostname",
        &[],
    );
    let removed = Command::new(ipcrm).args(["-q", &id]).status().unwrap();
    assert!(removed.success());
    assert!(
        outside
            .lines()
            .any(|line| line.split_whitespace().nth(1) == Some(&id)),
        "{outside}"
    );
    assert_eq!(ran.ended(0).out, "sandbox\n");
    assert!(world.last().declares("ipc"));
}

#[test]
fn whoever_is_stopped_the_deadline_ends_the_run() {
    let _ = ready!();
    let all = runtimes("whoever_is_stopped_the_deadline_ends_the_run");
    std::thread::scope(|scope| {
        for (runtime, flags) in all {
            scope.spawn(move || stopped_one_by_one(runtime, flags));
        }
    });
}

/// The runner's child, that one's, and so on down to the workload, each in a run of its own.
fn stopped_one_by_one(runtime: &str, flags: &str) {
    let flags = format!("-q {flags} --timeout 3s");
    for depth in 1.. {
        let world = World::new();
        let marker = marker(&world);
        let workload = ["sh", "-c", "sleep 60; exit 5", "sh", &marker];
        let mut runner = world.exec_command(&flags, &workload).spawn().unwrap();
        until("the workload runs", || !living(&marker).is_empty());
        let first_child = |pid: &u32| children(*pid).first().copied();
        let chain: Vec<u32> = std::iter::successors(Some(runner.id()), first_child).collect();
        let stopped = chain.get(depth).map(|pid| {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(*pid).unwrap());
            nix::sys::signal::kill(pid, Signal::SIGSTOP)
        });
        let mut ended = None;
        until("the run ends", || {
            ended = runner.try_wait().unwrap();
            ended.is_some()
        });
        let code = ended.unwrap().code();
        assert_eq!(code, Some(124), "{runtime}, {depth} of {chain:?}");
        assert_eq!(living(&marker), Vec::<PathBuf>::new(), "{runtime}, {depth}");
        if stopped.is_none() {
            assert!(depth > 2, "{runtime}: {chain:?}");
            break;
        }
    }
}

#[test]
fn no_workload_has_or_takes_real_time_scheduling() {
    const TEST: &str = "no_workload_has_or_takes_real_time_scheduling";
    let world = ready!();
    let script =
        "grep 'realtime priority' /proc/self/limits; chrt -p $$; chrt -f 1 true && echo taken";
    let Some(chrt) = program("chrt") else {
        return skip(TEST, "no chrt (util-linux)");
    };
    for (runtime, flags) in runtimes(TEST) {
        let own = world.exec_command(flags, &["sh", "-c", script]);
        let mut commands = vec![own];
        // Started by somebody who has it.
        let mut from_it = Command::new(&chrt);
        from_it.args(["-f", "1"]);
        let may = from_it.args(["true"]).output().unwrap().status.success();
        if may {
            let mut other = Command::new(&chrt);
            other.args(["-f", "1"]);
            other
                .arg(commands[0].get_program())
                .args(commands[0].get_args());
            let variables = commands[0].get_envs();
            other.env_clear();
            other.envs(variables.filter_map(|(name, value)| Some((name, value?))));
            other.current_dir(world.path("home/work"));
            commands.push(other);
        } else {
            skip(TEST, "nobody here may have it");
        }
        for mut command in commands {
            let ran = Ran::of(command.output().unwrap());
            let lines: Vec<&str> = ran.out.lines().collect();
            let zeros = lines[0].split_whitespace().filter(|word| *word == "0");
            assert_eq!(zeros.count(), 2, "{runtime}: {ran:?}");
            assert!(ran.out.contains("SCHED_OTHER"), "{runtime}: {ran:?}");
            assert!(!ran.out.contains("taken"), "{runtime}: {ran:?}");
        }
    }
}
