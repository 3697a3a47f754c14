//! The same limits around bubblewrap.

use super::*;

#[test]
fn limits_hold_in_bubblewrap_as_well() {
    let world = limited!("limits_hold_in_bubblewrap_as_well");
    if program("bwrap").is_none() {
        return skip("limits_hold_in_bubblewrap_as_well", "no bwrap (bubblewrap)");
    }
    let flags = "--runtime bwrap --memory 96M --processes 8 --cpu 1.5";
    world.exec(flags, &["python3", "-c", TOUCH, "40"]).ended(0);
    let run = world.last();
    assert_eq!(run.start.runtime.id, "bwrap");
    assert_eq!(run.execution.verdict.as_str(), "as-requested");
    for (control, beginning) in [
        ("memory", "96 MiB"),
        ("processes", "8 tasks"),
        ("cpu", "1.5 of a CPU"),
    ] {
        let (mechanism, value) = declared(&run, control);
        assert!(mechanism.starts_with("cgroup-v"), "{control}: {mechanism}");
        assert!(value.starts_with(beginning), "{control}: {value}");
    }
    let peak = observed(&run).memory_peak_bytes;
    assert!(peak.is_none_or(|peak| (40 << 20..=96 << 20).contains(&peak.value())));
    let ran = world.exec(flags, &["cat", "/proc/self/cgroup"]).ended(0);
    for line in ran.out.lines() {
        assert!(line.ends_with(":/"), "{}", ran.out);
    }

    // Bubblewrap says how its child ended in the way of a shell.
    let flags = "--runtime bwrap --memory 48M";
    let ran = world.exec(flags, &["python3", "-c", TOUCH, "160"]);
    let said = "exit status 137; memory ran out at its limit of 48 MiB";
    assert!(ran.ended(128 + 9).err.contains(said));
    assert_eq!(observed(&world.last()).oom_kills.unwrap().value(), 1);

    // Neither the launcher nor bubblewrap counts.
    let flags = "--runtime bwrap --processes 16";
    let ran = world.exec(flags, &["python3", "-c", COUNT]).ended(0);
    assert!(ran.out.starts_with("16 "), "{ran:#?}");

    let flags = "--runtime bwrap --cpu 0.2";
    world.exec(flags, &["python3", "-c", BURN]).ended(0);
    has_a_fifth(&world.last());
}

#[test]
fn too_little_for_bubblewrap_itself_is_said() {
    let world = limited!("too_little_for_bubblewrap_itself_is_said");
    if program("bwrap").is_none() {
        return skip("too_little_for_bubblewrap_itself_is_said", "no bwrap");
    }
    // Whether it gets as far as the workload is a matter of pages.
    let ran = world.exec(
        "--runtime bwrap --memory 1M",
        &["python3", "-c", TOUCH, "8"],
    );
    assert_ne!(ran.code, Some(0));
    assert!(
        ran.err
            .contains("memory limit of 1 MiB leaves the sandbox itself no room")
            || ran.err.contains("memory ran out at its limit of 1 MiB"),
        "{ran:#?}"
    );
}

#[test]
fn host_root_that_may_mount_has_its_own_limits_in_reach() {
    let world = limited!("host_root_that_may_mount_has_its_own_limits_in_reach");
    if !crate::world::is_root() {
        return skip("host_root_that_may_mount", "no root");
    }
    let limits = ["memory", "processes", "cpu"];
    for runtime in ["embedded", "bwrap"] {
        if runtime == "bwrap" && program("bwrap").is_none() {
            continue;
        }
        for (nesting, holds) in [("deny", true), ("allow", false)] {
            let policy = world.policy(|policy| policy["nesting"] = nesting.into());
            let flags = format!(
                "--runtime {runtime} --as-root --best-effort --memory 64M --processes 20 --cpu 1 -P {}",
                policy.display()
            );
            world.exec(&flags, &["true"]).ended(0);
            let run = world.last();
            for control in limits {
                assert_eq!(
                    run.declares(control),
                    holds,
                    "{runtime} {nesting} {control}"
                );
                let reason = run.reason(control);
                assert_eq!(reason, (!holds).then_some("runs-as-root"));
            }
        }
    }
}
