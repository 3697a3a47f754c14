//! Every way to end: statuses, signals, being stopped.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Watched, outcome, sh, sh_command};
use crate::world::{at_best, ready, until};

#[test]
fn every_status_is_the_workloads_own() {
    let world = ready!();
    let best = at_best(&world);
    for status in [0, 1, 124, 125, 126, 127, 255] {
        sh(&world, "-q", &format!("exit {status}"), &[]).ended(status);
        let (run, how) = outcome(&world);
        assert_eq!(how, format!("exited {status}"));
        assert!(run.execution.result.reason.is_none());
        let failed = if status == 0 { best } else { "failed" };
        assert_eq!(run.execution.verdict.as_str(), failed);
    }
}

#[test]
fn every_signal_that_kills_is_named() {
    let world = ready!();
    // The last one is of the real-time kind, and has no name.
    for signal in [1, 4, 6, 8, 9, 11, 13, 14, 15, 31, 34, 64] {
        let script = format!("kill -{signal} $$; sleep 600");
        sh(&world, "-q", &script, &[]).ended(128 + signal);
        assert_eq!(outcome(&world).1, format!("signaled {signal}"));
    }
}

#[test]
fn who_stops_is_ended_by_the_deadline() {
    let world = ready!();
    for script in [
        "kill -STOP $$; exit 3",
        "kill -TSTP 0; kill -STOP 0; exit 3",
        // Everybody but pid 1 and the one who says so.
        "sleep 600 & sh -c 'kill -STOP -1'; exit 3",
    ] {
        sh(&world, "-q --timeout 1s", script, &[]).ended(124);
        assert_eq!(outcome(&world).1, "timeout");
    }
}

#[test]
fn who_stops_is_ended_by_the_second_interrupt() {
    let world = ready!();
    let out = world.folder("out");
    let flags = format!("-q --write {}:/w", out.display());
    let script = ": >/w/ready; kill -STOP $$; exit 3";
    let mut run = Watched::start(&mut sh_command(&world, &flags, script, &[]));
    until("it is about to stop", || out.join("ready").exists());
    let pid = Pid::from_raw(run.child.id().try_into().unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    // The same signal twice before it was taken is one signal.
    until("it has ended", || {
        let ended = run.child.try_wait().unwrap().is_some();
        if !ended {
            kill(pid, Signal::SIGTERM).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        ended
    });
    let how = outcome(&world).1;
    // Before it stopped, the first signal was enough.
    assert!(
        ["interrupted", "signaled 2", "signaled 15"].contains(&how.as_str()),
        "{how}"
    );
    let _ = run.child.wait();
}

#[test]
fn who_ignores_everything_is_ended_by_the_deadline() {
    let world = ready!();
    let script =
        "trap '' TERM INT HUP QUIT USR1 USR2 PIPE ALRM; echo deaf; while :; do sleep 600; done";
    for flags in [
        "-q --timeout 1s",
        "-q --timeout 1s -P minimal --runtime native --allow-native --best-effort",
    ] {
        let ran = sh(&world, flags, script, &[]).ended(124);
        assert_eq!(ran.out, "deaf\n");
        assert_eq!(outcome(&world).1, "timeout");
    }
}
