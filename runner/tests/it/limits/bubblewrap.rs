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
