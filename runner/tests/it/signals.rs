//! Signals to the runner reach the workload, and exit statuses say how it ended: DESIGN.md §6.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::{Ran, World, ready, runtimes, sandboxes};

/// A workload that has said `ready`.
struct Ready {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Ready {
    /// In a process group of the runner's own.
    fn start(world: &World, flags: &str, script: &str) -> Self {
        use std::os::unix::process::CommandExt as _;
        let mut command = world.exec_command(flags, &["sh", "-c", script]);
        command.process_group(0);
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, out }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    fn end(mut self) -> Ran {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let mut ran = Ran::of(self.child.wait_with_output().unwrap());
        ran.out = rest;
        ran
    }
}

/// Bubblewrap says how its child ended in the way of a shell.
#[track_caller]
pub(crate) fn assert_killed_by(world: &World, runtime: &str, number: u8) {
    let run = world.last();
    let result = &run.execution.result;
    let expected = match runtime {
        "bwrap" => (Some(128 + number), None),
        _ => (None, Some(number)),
    };
    assert_eq!((result.exit_code, result.signal), expected, "{runtime}");
    assert_eq!(run.execution.verdict.as_str(), "failed", "{runtime}");
}

/// The shell's own wait is what a signal interrupts; `sleep` ends with the workload.
const WAIT: &str = "echo ready; sleep 600 & while :; do wait; done";

#[test]
fn signals_are_passed_on() {
    for (name, signal) in [
        ("TERM", Signal::SIGTERM),
        ("INT", Signal::SIGINT),
        ("HUP", Signal::SIGHUP),
        ("USR1", Signal::SIGUSR1),
        ("USR2", Signal::SIGUSR2),
    ] {
        let world = ready!();
        for (runtime, flags) in runtimes("signals_are_passed_on") {
            let script = format!("trap 'echo got {name}; exit 7' {name}; {WAIT}");
            let ready = Ready::start(&world, flags, &script);
            ready.signal(signal);
            let ran = ready.end().ended(7);
            assert_eq!(ran.out, format!("got {name}\n"), "{runtime}");
            let result = world.last().execution.result;
            assert_eq!(result.exit_code, Some(7), "{runtime}");
        }
    }
}

/// As a terminal does it for Ctrl-C, and timeout(1).
#[test]
fn a_signal_to_the_runners_whole_group_is_the_workloads_to_handle() {
    for (runtime, flags) in runtimes("a_signal_to_the_runners_whole_group") {
        let world = ready!();
        for (name, signal) in [("INT", Signal::SIGINT), ("QUIT", Signal::SIGQUIT)] {
            let script = format!("trap 'echo got {name}; exit 7' {name}; {WAIT}");
            let ready = Ready::start(&world, flags, &script);
            let group = Pid::from_raw(ready.child.id().try_into().unwrap());
            nix::sys::signal::killpg(group, signal).unwrap();
            let ran = ready.end().ended(7);
            assert_eq!(ran.out, format!("got {name}\n"), "{runtime}");
        }
    }
}

#[test]
fn a_signal_that_nobody_handles_ends_the_workload_and_shows_in_the_status() {
    let world = ready!();
    for (runtime, flags) in sandboxes("a_signal_that_nobody_handles") {
        let ready = Ready::start(&world, flags, "echo ready; exec sleep 600");
        ready.signal(Signal::SIGTERM);
        ready.end().ended(128 + 15);
        assert_killed_by(&world, runtime, 15);
    }
}

#[test]
fn a_second_interrupt_kills_what_ignores_the_first() {
    let world = ready!();
    let script = format!("trap 'echo not yet' INT; trap '' TERM; {WAIT}");
    for (runtime, flags) in runtimes("a_second_interrupt_kills") {
        let mut ready = Ready::start(&world, flags, &script);
        ready.signal(Signal::SIGINT);
        assert_eq!(ready.line(), "not yet\n", "{runtime}");
        ready.signal(Signal::SIGINT);
        ready.end().ended(128 + 2);
        let verdict = world.last().execution.verdict;
        assert_eq!(verdict.as_str(), "interrupted", "{runtime}");
    }
}

#[test]
fn exit_statuses_are_the_workloads_own() {
    let world = ready!();
    for (runtime, flags) in sandboxes("exit_statuses_are_the_workloads_own") {
        let flags = format!("-q {flags}");
        for status in [0, 1, 2, 77, 124, 125, 126, 127, 128, 255] {
            world
                .sh(&flags, &format!("exit {status}"), &[])
                .ended(status);
            let result = world.last().execution.result;
            assert_eq!(result.exit_code.map(i32::from), Some(status), "{runtime}");
        }
        for (name, number) in [("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("USR1", 10)] {
            world
                .sh(&flags, &format!("kill -{name} $$; sleep 600"), &[])
                .ended(128 + i32::from(number));
            assert_killed_by(&world, runtime, number);
        }
        world.sh(&flags, "exec /etc/passwd", &[]).ended(126);
    }
}

#[test]
fn a_program_is_looked_up_inside() {
    let world = ready!();
    let folder = world.folder("tools");
    let tool = world.file("tools/tool-of-the-host", "#!/bin/sh\necho ran\n");
    let plain = world.file("tools/plain", "#!/bin/sh\n");
    // A file that the kernel does not take for a program.
    let broken = world.file("tools/broken", "\0\0\0\0");
    for (path, mode) in [(&tool, 0o755), (&plain, 0o644), (&broken, 0o755)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let shown = format!("--read {}", folder.display());
    let way_out = format!("`{shown} -- {}` would show and run it", tool.display());
    let world = world.with("PATH", &path);

    for (runtime, flags) in sandboxes("a_program_is_looked_up_inside") {
        let shown = format!("{flags} {shown}");
        // Outside only: 127, and which --read would show it.
        let ran = world.exec(flags, &["tool-of-the-host"]).ended(127);
        assert!(ran.err.contains(&way_out), "{runtime}: {}", ran.err);
        let ran = world.exec(flags, &[tool.as_os_str()]).ended(127);
        assert!(ran.err.contains(&way_out), "{runtime}: {}", ran.err);
        assert_eq!(world.last().execution.verdict.as_str(), "not-executed");
        // The caller's PATH is not the workload's.
        world.exec(&shown, &["tool-of-the-host"]).ended(127);
        let ran = world.exec(&format!("{shown} --env PATH={path}"), &["tool-of-the-host"]);
        assert_eq!(ran.ended(0).out, "ran\n");

        let ran = world.exec(&shown, &[plain.as_os_str()]).ended(127);
        let says = ran.err.contains("not executable") && ran.err.contains("EACCES");
        assert!(says, "{runtime}: {}", ran.err);
        let ran = world.exec(&shown, &[broken.as_os_str()]).ended(127);
        assert!(ran.err.contains("ENOEXEC"), "{runtime}: {}", ran.err);
        world.exec(&shown, &[folder.as_os_str()]).ended(127);
        world.exec(flags, &["no-such-program"]).ended(127);
        world.exec(flags, &[""]).ended(127);
    }
    for run in world.evidence().runs() {
        let refused = run.execution.verdict.as_str() == "not-executed";
        assert_eq!(refused, run.execution.result.reason.is_some());
    }
}

#[test]
fn a_folder_to_start_in_must_be_there_inside() {
    let world = ready!();
    let folder = world.folder("in");
    for (runtime, flags) in sandboxes("a_folder_to_start_in_must_be_there_inside") {
        let starts_in = |more: &str| {
            let ran = world.exec(&format!("{flags} {more}"), &["pwd"]);
            ran.ended(0).out.trim_end().to_owned()
        };
        let shown = folder.display();
        assert_eq!(
            starts_in(&format!("--read {shown} -C {shown}")),
            shown.to_string()
        );
        let ran = world.exec(&format!("{flags} -C /no/such/folder"), &["pwd"]);
        let ran = ran.ended(125);
        assert!(
            ran.err.contains("/no/such/folder"),
            "{runtime}: {}",
            ran.err
        );
        // The caller's own folder, where it is shown.
        let work = world.path("home/work").display().to_string();
        assert_eq!(starts_in(&format!("--read {work}")), work);
        assert_eq!(starts_in(""), "/workspace");
    }
}

#[test]
fn only_a_regular_file_is_a_program() {
    let _ = ready!();
    let user = World::of_user("only_a_regular_file_is_a_program", &[]);
    for world in [Some(World::new()), user].into_iter().flatten() {
        let folder = world.folder("in");
        let pipe = folder.join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::empty()).unwrap();
        let long = world.file("in/long", "");
        let file = std::fs::File::options().write(true).open(&long).unwrap();
        file.set_len(200 << 30).unwrap();
        drop(file);
        let mode: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        for path in [&pipe, &long] {
            std::fs::set_permissions(path, mode.clone()).unwrap();
        }
        for (runtime, flags) in sandboxes("only_a_regular_file_is_a_program") {
            let flags = format!("{flags} --read {}", folder.display());
            // Nobody writes to the pipe, and nobody waits for it.
            let ran = world.exec(&flags, &[pipe.as_os_str()]).ended(127);
            assert!(ran.err.contains("EACCES"), "{runtime}: {}", ran.err);
            let ran = world.exec(&flags, &[long.as_os_str()]).ended(127);
            assert!(ran.err.contains("ENOEXEC"), "{runtime}: {}", ran.err);
        }
    }
}
