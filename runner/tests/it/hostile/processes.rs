//! Trees of processes, processes that leave theirs, and signals against pid 1 and against everybody.

use std::path::Path;

use super::{misdeeds, outcome, sh, strict};
use crate::process::{living, marker};
use crate::world::ready;

/// Flags for a deadline that comes while a tree stands.
const SOON: &str = "-q --timeout 2s";

#[test]
fn daemons_that_write_on_hold_nothing_up() {
    let world = ready!();
    let marker = marker(&world);
    // Out of the session, orphaned twice, and never silent.
    let script = r#"
        (setsid sh -c 'trap "" TERM INT HUP PIPE; (while :; do echo more; echo more >&2; done) & sleep "$1" & exit' sh "$1" &)
        until [ "$(grep -lx sleep /proc/[0-9]*/comm 2>/dev/null | wc -l)" -ge 1 ]; do :; done
        exit 4"#;
    let ran = sh(&world, "-q", script, &[Path::new(&marker)]).ended(4);
    let (run, how) = outcome(&world);
    assert_eq!(how, "exited 4");
    assert!(
        run.execution
            .cleanup
            .unwrap()
            .survivors_killed
            .unwrap()
            .value()
            >= 2
    );
    assert!(living(&marker).is_empty());
    // All that came out before the tree was dead is in the record and came through.
    let stdout = run.stdout.unwrap();
    assert_eq!(stdout.bytes.value(), ran.bytes.len() as u64);
    assert_eq!(stdout.sha256, ledger::bytes::hash::Hash::of(&ran.bytes));
}

#[test]
fn a_tree_of_forks_is_dead_at_its_end() {
    let world = ready!();
    let ran = misdeeds(&world, "-q", &["do:forks:300"]).ended(0);
    assert!(ran.out.contains("probe do:forks:300=ok"), "{ran:#?}");
    let (run, how) = outcome(&world);
    assert_eq!(how, "exited 0");
    let killed = run.execution.cleanup.unwrap().survivors_killed.unwrap();
    // How many had been made when the first one ended is a race.
    assert!(killed.value() >= 2, "{killed}");
    assert!(living("do:forks:300").is_empty());
}

#[test]
fn processes_that_fork_without_pause_end_at_the_deadline() {
    let world = ready!();
    misdeeds(&world, SOON, &["do:orphans:8"]).ended(124);
    assert_eq!(outcome(&world).1, "timeout");
    // The same with shells, each of a thousand rounds.
    let script = "for i in 1 2 3 4; do (for a in $(seq 1000); do (:) & (:); done; sleep 600) & done; while :; do wait; done";
    sh(&world, SOON, script, &[]).ended(124);
    assert_eq!(outcome(&world).1, "timeout");
}

#[test]
fn no_signal_from_inside_reaches_pid_1() {
    let world = ready!();
    let list = ["do:kill-init", "do:kill-init", "fork", "do:kill-init"];
    let ran = misdeeds(&world, &strict(&world, |_| {}), &list).ended(0);
    assert_eq!(ran.out.matches("do:kill-init=ok").count(), 3, "{ran:#?}");
    assert!(ran.out.contains("probe fork=ok"), "{ran:#?}");
    assert_eq!(outcome(&world).1, "exited 0");
}

#[test]
fn signals_to_everybody_reach_the_workload_alone() {
    let world = ready!();
    sh(&world, "-q", "sh -c 'kill -KILL -1'; exit 3", &[]).ended(128 + 9);
    assert_eq!(outcome(&world).1, "signaled 9");
    sh(&world, "-q", "sh -c 'kill -KILL 0'; exit 3", &[]).ended(128 + 9);
    assert_eq!(outcome(&world).1, "signaled 9");
    // Who ignores them outlives them; nobody else does.
    let script = "sleep 600 & trap '' TERM; kill -TERM -1; wait; exit 5";
    sh(&world, "-q", script, &[]).ended(5);
    assert_eq!(outcome(&world).1, "exited 5");
}

#[test]
fn without_isolation_a_killed_pid_1_is_said() {
    let world = ready!();
    let flags = "-q -P minimal --runtime native --allow-native --best-effort --timeout 20s";
    let ran = sh(&world, flags, "kill -KILL $PPID; exit 3", &[]);
    assert_ne!(ran.code, Some(0));
    let (run, how) = outcome(&world);
    assert_eq!(how, "interrupted", "{ran:#?}");
    assert!(run.execution.result.exit_code.is_none());
}
