//! Kills and signals at points that have a name: every call to the disk, and every step of a run.

use std::os::unix::process::ExitStatusExt as _;

use runner::sys::fault::POINTS;

use super::{Killing, has_stopped, pid, tree, verifies};
use crate::world::{Ran, ready, until};

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
        // A policy of its own: its blob is not there yet. The folder for it may be, by its hash: then the next has another.
        let attempts = if number == 1 { 8 } else { 1 };
        (0..attempts).any(|_| {
            run += 1;
            let mut command = killing.command(false, &format!("--env V{run}=x"));
            command.env("RUNNER_KILL", format!("{point}=KILL#{number}"));
            let killed = killing.is_killed(&mut command);
            killing.is_well(&format!("{point} #{number}"));
            killed
        })
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
