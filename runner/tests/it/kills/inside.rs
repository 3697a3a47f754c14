//! Kills and stops inside: of pid 1, of the workload and what it started, and trees that do not end at once.

use nix::sys::signal::Signal;
use runner::sys::process::children_of;

use super::{
    Killing, Process, has_init, has_stopped, init_of, marked, pid, signal, tree, verifies,
};
use crate::world::{Ran, ready, until};

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
    let init = init_of(&child);
    let mut all = tree(init);
    all.extend(Process::find(init));
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
    let init = init_of(&child);
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
        let init = init_of(&child);
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
fn a_pid_1_killed_before_there_is_a_workload_is_no_missing_control() {
    let _ = ready!();
    let killing = Killing::new();
    killing.is_well("the first run");
    let lock = std::fs::File::open(killing.world.ledger().join("lock")).unwrap();
    // The runner waits for the ledger while pid 1 builds, and reads back what is not there any more.
    lock.lock().unwrap();
    // Without a written folder: for one that is protected the ledger is opened before pid 1 builds anything.
    let child = killing.world.exec_command("", &["true"]).spawn().unwrap();
    until("pid 1", || !children_of(pid(&child)).unwrap().is_empty());
    until("pid 1 in its namespaces", || has_init(&child));
    let init = init_of(&child);
    until("the sandbox", || {
        let pid = children_of(init).unwrap_or_default();
        !pid.is_empty()
    });
    signal(init, Signal::SIGKILL);
    until("the end of pid 1", || Process::find(init).is_none());
    lock.unlock().unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(125), "{ran:#?}");
    assert!(ran.err.contains("pid 1"), "{ran:#?}");
    assert!(!ran.err.contains("refused"), "{ran:#?}");
    assert_eq!(killing.outcomes().last(), Some(&"not-executed"));
    killing.is_well("a pid 1 that was killed early");
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
        // The child of pid 1 is the shell, whose child is another.
        until("the tree", || tree(pid(&child)).len() >= 4);
        let mut at = init_of(&child);
        for _ in 0..depth {
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
