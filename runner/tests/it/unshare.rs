//! The unshare runtime: network and process, and nothing that it does not do.

use crate::matrix::{some_rows, verdicts};
use crate::world::{World, is_root, program, ready, skip};

const DECLARED: [&str; 2] = ["network", "process"];

fn is_honest(world: &World) {
    let rows = [
        "network",
        "process",
        "filesystem",
        "syscalls",
        "ipc",
        "user",
    ];
    let suite = some_rows(world, &rows);
    let ran = world.run(&format!(
        "matrix --json --strict --runtime unshare --suite {suite} --require network=contained"
    ));
    let ran = ran.ended(0);
    let found = verdicts(&ran);
    for (check, (verdict, reason)) in &found {
        assert_ne!(verdict, "false-guarantee", "{check}: {reason}");
        let control = check.split('/').next().unwrap();
        if DECLARED.contains(&control) {
            let fine = verdict == "contained"
                || (verdict == "not-applicable" && reason == "host-forbids")
                || (check == "process/pid1" && reason == "baseline-contained");
            assert!(fine, "{check} is {verdict} ({reason})");
        }
    }
    for check in ["filesystem/read", "syscalls/calibration", "ipc/unix"] {
        assert_eq!(found[check].0, "escaped", "{check}");
    }
    for check in ["process/visibility", "process/signal", "process/survival"] {
        assert_eq!(found[check].0, "contained", "{check}");
    }
}

#[test]
fn unshare_contains_network_and_process_and_says_no_more() {
    let world = ready!();
    if program("unshare").is_none() {
        return skip(
            "unshare_contains_network_and_process",
            "no unshare (util-linux)",
        );
    }
    is_honest(&world);
}

#[test]
fn unshare_is_honest_for_an_ordinary_user() {
    const TEST: &str = "unshare_is_honest_for_an_ordinary_user";
    let _ = ready!();
    if program("unshare").is_none() || !is_root() {
        return skip(
            TEST,
            "no unshare (util-linux), or the other test is this one",
        );
    }
    if let Some(world) = World::of_user(TEST, &[]) {
        is_honest(&world);
    }
}

#[test]
fn what_unshare_does_not_do_is_refused_where_it_is_requested() {
    let world = ready!();
    if program("unshare").is_none() {
        return skip("what_unshare_does_not_do", "no unshare (util-linux)");
    }
    let ran = world.exec("--runtime unshare", &["true"]).ended(126);
    assert!(
        ran.err.contains("refused, record 3: filesystem, ")
            && ran.err.contains(", files: not-isolated;"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("ipc: sockets-shared"), "{}", ran.err);
    let flags = "--runtime unshare --best-effort --env A=b";
    let ran = world.sh(flags, "echo $A $$; exit 5", &[]).ended(5);
    // It is the first process of its namespace.
    assert_eq!(ran.out, "b 1\n");
    let run = world.last();
    assert_eq!(run.execution.verdict.as_str(), "controls-missing");
    let declared: Vec<&str> = run
        .start
        .controls
        .declared
        .iter()
        .map(|one| one.control.as_str())
        .collect();
    assert_eq!(declared, DECLARED);
    assert_eq!(run.start.key_reachable, Some(true));
    assert!(run.start.runtime.sha256.is_some());
    assert_eq!(run.start.runtime.id, "unshare");
}

#[test]
fn where_unshare_cannot_the_workload_does_not_run() {
    let mut world = ready!();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces";
    if let Err(reason) = world.confined("--map-current-user", script) {
        return skip("where_unshare_cannot", reason);
    }
    let policy = world.policy(|policy| {
        policy["enforcement"]["requiredControls"] = serde_json::json!(["network", "process"]);
    });
    let flags = format!("--runtime unshare -P {}", policy.display());
    let ran = world.exec(&flags, &["echo", "ran"]).ended(126);
    assert_eq!(ran.out, "");
    assert!(
        ran.err.contains("unshare failed: No space left on device"),
        "{}",
        ran.err
    );
    assert_eq!(world.last().start.controls.declared, []);
}

#[test]
fn what_it_cannot_show_is_refused_and_not_planned() {
    let world = World::new();
    if program("unshare").is_none() {
        return skip(
            "what_it_cannot_show_is_refused_and_not_planned",
            "no unshare",
        );
    }
    let folder = world.folder("shown");
    for flag in ["--read", "--write"] {
        for (command, code) in [("exec", 125), ("plan", 2)] {
            let line = format!(
                "{command} --runtime unshare --best-effort {flag} {} -- true",
                folder.display()
            );
            let ran = world.run(&line).ended(code);
            assert!(
                ran.says("shows the host's files as they are"),
                "{}",
                ran.err
            );
        }
    }
    let planned = world
        .run("plan --runtime unshare --best-effort -- true")
        .ended(0);
    assert!(
        planned.out.contains("files: the host's as they are"),
        "{}",
        planned.out
    );
    assert!(!planned.out.contains("/workspace and"), "{}", planned.out);
}
