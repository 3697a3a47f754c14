//! Which system calls fail inside: SANDBOX.md §4. Denied ones give EPERM and the workload lives to tell.

use crate::probe::{inside, run_inside};
use crate::world::{World, ready};

#[test]
fn denied_calls_give_eperm_and_others_work() {
    let world = ready!();
    let policy = world.policy(|_| {});
    let denied = [
        "getcpu",
        "ptrace",
        "bpf",
        "add_key",
        "keyctl",
        "io_uring_setup",
        "mount",
        "umount2",
        "pivot_root",
        "unshare",
        "setns",
        "reboot",
        "swapon",
        "init_module",
        "perf_event_open",
        "open_by_handle_at",
    ];
    let allowed = ["getpid", "fork", "sched_yield"];
    let profile = ledger::facts::policy::DEFAULT_PROFILE;
    let denied: Vec<&str> = denied
        .into_iter()
        .filter(|name| *name == "getcpu" || profile.contains(name))
        .collect();
    assert!(
        denied.len() > 5,
        "the default profile denies {denied:?} alone"
    );
    let mut attempts = denied.clone();
    attempts.extend(allowed);
    let answers = inside(&world, &format!("-P {}", policy.display()), &attempts);
    for name in denied {
        assert_eq!(answers[name], "EPERM", "{name}");
    }
    for name in allowed {
        assert_eq!(answers[name], "ok", "{name}");
    }
    assert!(world.last().declares("syscalls"));
}

#[test]
fn a_call_that_no_policy_denies_works() {
    let world = ready!();
    let answers = inside(&world, "", &["getcpu"]);
    assert_eq!(answers["getcpu"], "ok");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn other_ways_to_number_calls_give_eperm() {
    let world = ready!();
    // x32 getcpu and getpid; i386 getpid (20) and getcpu (318).
    let attempts = ["x32:309", "x32:39", "i386:20", "i386:318"];
    for name in attempts {
        let answers = inside(&world, "", &[name]);
        assert_eq!(answers[name], "EPERM", "{name}");
    }
}

#[test]
fn an_allow_list_leaves_what_it_lists() {
    let world = ready!();
    let policy = |calls: Vec<String>| {
        world.policy(|policy| policy["syscalls"] = serde_json::json!({ "allow": calls }))
    };
    let all = || {
        ledger::facts::policy::syscalls::all()
            .iter()
            .map(|call| call.name.to_owned())
    };
    let but_two = all()
        .filter(|name| !["getcpu", "sched_yield"].contains(&name.as_str()))
        .collect();
    let flags = format!("-P {}", policy(but_two).display());
    let answers = inside(&world, &flags, &["getcpu", "sched_yield", "getpid", "fork"]);
    assert_eq!(answers["getcpu"], "EPERM");
    assert_eq!(answers["sched_yield"], "EPERM");
    assert_eq!(answers["getpid"], "ok");
    assert_eq!(answers["fork"], "ok");

    let no_launch = all().filter(|name| name != "execve").collect();
    let flags = format!("-P {}", policy(no_launch).display());
    let ran = run_inside(&world, &flags, &["getpid"]).ended(125);
    assert!(ran.err.contains("without execve"), "{}", ran.err);
}

#[test]
fn no_namespaces_below_the_sandbox() {
    let world = ready!();
    let ran = world.sh("", "unshare --user true 2>/dev/null || echo refused", &[]);
    assert_eq!(ran.ended(0).out, "refused\n");
    assert!(world.last().declares("privilege"));
}

/// Worlds of root and of an ordinary user, as far as they can be had.
fn worlds(test: &str) -> Vec<World> {
    [Some(World::new()), World::of_user(test, &[])]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn a_filter_that_nobody_asked_for_by_name_is_said_where_it_is_not_in_force() {
    let world = ready!();
    let with = |deny: &str| {
        let policy = world.policy(|policy| {
            policy["enforcement"] = serde_json::json!({"requiredControls": ["network"]});
            policy["syscalls"] = serde_json::json!({"deny": [deny]});
        });
        let ran = world.exec(&format!("-P {}", policy.display()), &["true"]);
        (ran.ended(0), world.last())
    };
    // Starting a program takes it.
    let (ran, run) = with("write");
    assert!(ran.err.contains("not in force: "), "{}", ran.err);
    assert_eq!(run.reason("syscalls"), Some("launch-calls-denied"));
    assert_eq!(run.execution.verdict.as_str(), "reduced");
    let (_, run) = with("ptrace");
    assert!(run.declares("syscalls"));
}

#[test]
fn the_calls_that_a_launch_takes_are_enough_and_needed() {
    let _ = ready!();
    for world in worlds("the_calls_that_a_launch_takes_are_enough_and_needed") {
        let policy = |syscalls: serde_json::Value| {
            world.policy(|policy| policy["syscalls"] = syscalls.clone())
        };
        // Executed, under the filter; what its own loader lacks is the policy's doing.
        let four = ["execve", "exit_group", "read", "write"];
        let flags = policy(serde_json::json!({ "allow": four }));
        world.exec(&format!("-P {}", flags.display()), &["true"]);
        let run = world.last();
        assert!(run.declares("syscalls"));
        assert_eq!(run.execution.verdict.as_str(), "failed");
        assert!(run.execution.result.reason.is_none());

        // The policy itself must leave execve open.
        for call in ["exit_group", "read", "write"] {
            let flags = policy(serde_json::json!({ "deny": [call] }));
            let flags = format!("-P {}", flags.display());
            let ran = world.exec(&flags, &["true"]).ended(126);
            assert!(ran.err.contains("launch-calls-denied"), "{}", ran.err);
            // Without the filter it runs, and the record says so.
            let flags = format!("{flags} --best-effort");
            world.exec(&flags, &["true"]).ended(0);
            let reason = world.last().reason("syscalls").map(str::to_owned);
            assert_eq!(reason.as_deref(), Some("launch-calls-denied"), "{call}");
        }
    }
}
