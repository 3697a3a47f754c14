//! The process that starts pid 1's program before there is a sandbox: it leaves nothing, and what it cannot do is done
//! without it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::evidence::Run;
use crate::world::{Ran, is_root, program, ready, skip, until};

/// Children of a process, living or not yet waited for.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect()
}

#[test]
fn nothing_but_pid_1_stays_beside_the_runner() {
    let world = ready!();
    let go = world.folder("go");
    let script = "touch /go/here; while [ -e /go/here ]; do sleep 0.02; done";
    let flags = format!("-q --write {}:/go", go.display());
    let mut command = world.exec_command(&flags, &["sh", "-c", script]);
    let mut runner = command.spawn().unwrap();
    until("the workload runs", || go.join("here").exists());
    until("one child is left", || children(runner.id()).len() == 1);
    let init = children(runner.id())[0];
    let status = std::fs::read_to_string(format!("/proc/{init}/status")).unwrap();
    assert!(!status.contains("zombie"), "{status}");
    // It has nothing of the starter's: its standard streams, the way to the runner, and what it opened itself. (Only root
    // may look.)
    if is_root() {
        let descriptors = std::fs::read_dir(format!("/proc/{init}/fd")).unwrap();
        let targets: Vec<String> = descriptors
            .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap())
            .map(|target| target.display().to_string())
            .collect();
        assert!(
            targets.iter().all(|target| !target.contains("runner")),
            "{targets:?}"
        );
    }
    std::fs::remove_file(go.join("here")).unwrap();
    assert!(runner.wait().unwrap().success());
}

#[test]
fn a_kind_of_namespace_that_the_kernel_refuses_is_named_and_the_rest_stands() {
    let test = "a_kind_of_namespace_that_the_kernel_refuses_is_named_and_the_rest_stands";
    let world = ready!();
    if !is_root() {
        return skip(test, "only root maps all ids into a user namespace");
    }
    let (Some(_), Some(_)) = (program("unshare"), program("sh")) else {
        return skip(test, "no unshare (util-linux)");
    };
    // In a user namespace of the test's own that may make no network namespaces, and in which it is root.
    let exec = world.exec_command("-q --best-effort", &["true"]);
    let inner = "exec unshare -pf --mount-proc sh -c 'echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"' sh \"$@\"";
    let outer = format!("read go; {inner}");
    let mut command = Command::new("unshare");
    command.args(["-Um", "sh", "-c", &outer, "sh"]);
    command.arg(exec.get_program()).args(exec.get_args());
    for (name, value) in exec.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let map = |file: &str| std::fs::write(format!("/proc/{pid}/{file}"), "0 0 4000000000");
    // Its namespace is there once the file can be written: before that it is this process's own.
    let own = std::fs::read_link("/proc/self/ns/user").unwrap();
    until("it has a user namespace", || {
        std::fs::read_link(format!("/proc/{pid}/ns/user")).is_ok_and(|found| found != own)
    });
    map("uid_map").unwrap();
    map("gid_map").unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let run = world.last();
    for control in ["network", "ipc"] {
        assert!(!run.declares(control), "{text}");
        let reason = run.reason(control).unwrap();
        assert!(reason.contains("clone3: ENOSPC"), "{reason}");
    }
    for control in ["filesystem", "process", "privilege", "user"] {
        assert!(run.declares(control), "{control}: {text}");
    }
}

/// The program under a shell that prepares the process first.
fn after(preparation: &str, exec: &Command) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{preparation}; exec \"$@\"");
    command.args(["-c", &script, "sh"]);
    command.arg(exec.get_program()).args(exec.get_args());
    for (name, value) in exec.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[test]
fn a_caller_that_ignores_its_children_changes_nothing() {
    let world = ready!();
    let exec = world.exec_command("", &["echo", "hi"]);
    let ran = Ran::of(after("trap '' CHLD", &exec).output().unwrap()).ended(0);
    assert_eq!(ran.out, "hi\n");
}

#[test]
fn few_descriptors_are_enough_and_too_few_are_said() {
    let world = ready!();
    world.exec("-q", &["true"]).ended(0);
    let exec = world.exec_command("-q", &["true"]);
    Ran::of(after("ulimit -S -n 64", &exec).output().unwrap()).ended(0);
    let ran = Ran::of(after("ulimit -S -n 8", &exec).output().unwrap()).ended(125);
    assert!(
        ran.err.contains("EMFILE") || ran.err.contains("Too many open files"),
        "{ran:#?}"
    );
}

#[test]
fn root_that_may_not_look_into_every_process_gets_the_whole_sandbox() {
    let test = "root_that_may_not_look_into_every_process_gets_the_whole_sandbox";
    let world = ready!();
    if !is_root() {
        return skip(test, "only root has capabilities to do without");
    }
    if program("setpriv").is_none() {
        return skip(test, "no setpriv (util-linux)");
    }
    world.exec("-q", &["true"]).ended(0);
    let whole = world.last();
    let exec = world.exec_command("-q", &["true"]);
    let drops = "set -- setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace \"$@\"";
    Ran::of(after(drops, &exec).output().unwrap()).ended(0);
    let declared = |run: &Run| -> Vec<_> {
        let declared = run.start.controls.declared.iter();
        declared.map(|declared| declared.control).collect()
    };
    assert_eq!(declared(&world.last()), declared(&whole));
}
