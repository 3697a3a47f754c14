//! Control groups that are there and are not the caller's to make: those of WSL2 (version 2 alone, an ordinary user, no user
//! manager), and those of a container that shows them read-only.

use crate::world::{World, is_root, no_sandbox, program, skip};

/// Version 2 alone. Where the host has both versions the controllers are version 1's, and the file that says so is covered by
/// what it would say without that.
const VERSION_2_ALONE: &str = r#"
umount --recursive /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
if ! grep -qw memory /sys/fs/cgroup/cgroup.controllers; then
    echo cpuset cpu io memory pids >"$1/controllers"
    mount --bind "$1/controllers" /sys/fs/cgroup/cgroup.controllers
fi
"#;

/// A world whose groups are these; says why not where it cannot be made.
fn made(test: &str, world: Option<World>, more: &str) -> Option<World> {
    if let Some(reason) = no_sandbox() {
        skip(test, reason);
        return None;
    }
    if !is_root() {
        skip(
            test,
            "only root can mount control groups of version 2 alone",
        );
        return None;
    }
    let mut world = world?;
    match world.mounted(&format!("{VERSION_2_ALONE}{more}")) {
        Ok(()) => Some(world),
        Err(reason) => {
            skip(test, reason);
            None
        }
    }
}

/// What is required is refused with its reason and the way out, what can be done without is done and the gap recorded: under
/// each runtime that limits, for each limit. `doctor` and `plan` say the same.
fn says_that_nothing_can_be_limited(world: &World, found: &str) {
    let doctor = world.run("--json doctor").json();
    let all = doctor["capabilities"].as_array().unwrap().iter();
    let groups = all.filter(|one| one["name"] == "resource-groups");
    let groups: Vec<_> = groups.collect();
    assert_eq!(groups[0]["works"], false, "{groups:?}");
    let error = groups[0]["error"].as_str().unwrap();
    assert!(error.contains(found), "{error}");
    assert!(groups[0]["advice"].is_string(), "{groups:?}");
    let runtimes = ["embedded", "bwrap"].into_iter();
    let installed = |runtime: &&str| *runtime == "embedded" || program(runtime).is_some();
    for runtime in runtimes.filter(installed) {
        for (limit, control) in [
            ("--memory 64M", "memory"),
            ("--processes 16", "processes"),
            ("--cpu 0.5", "cpu"),
        ] {
            let flags = format!("--runtime {runtime} {limit}");
            let planned = world.run(&format!("plan {flags} -- true")).ended(126);
            assert!(planned.out.contains(found), "{}", planned.out);
            let ran = world.exec(&flags, &["echo", "ran"]).ended(126);
            assert_eq!(ran.out, "");
            let named = format!("{control}: resource-groups-not-writable ({found}");
            for words in [&named, "docs/gaps.md", "runner doctor", "--best-effort"] {
                assert!(ran.says(words), "{words}: {}", ran.err);
            }
            let run = world.last();
            assert_eq!(run.execution.verdict.as_str(), "not-executed");
            assert_eq!(run.start.controls.declared, []);

            let ran = world.exec(&format!("{flags} --best-effort"), &["echo", "ran"]);
            let ran = ran.ended(0);
            assert_eq!(ran.out, "ran\n");
            assert!(ran.says(&format!("not in force: {control}")), "{}", ran.err);
            let run = world.last();
            assert_eq!(run.execution.verdict.as_str(), "controls-missing");
            let reason = run.reason(control).unwrap();
            assert!(
                reason.starts_with("resource-groups-not-writable"),
                "{reason}"
            );
            let declared = &run.start.controls.declared;
            assert!(
                declared.iter().all(|one| one.control.as_str() != control),
                "{declared:?}"
            );
            // No group, no count of one.
            let seen = run.execution.observed.as_ref();
            assert_eq!(seen.and_then(|seen| seen.memory_peak_bytes), None);
        }
    }
    // Whoever asks for no limit has the rest, and the verdict says that something wanted is not there.
    world.exec("", &["true"]).ended(0);
    assert_eq!(world.last().execution.verdict.as_str(), "reduced");
}

#[test]
fn groups_of_version_2_that_nobody_delegated_are_told_and_not_taken_for_limits() {
    let test = "groups_of_version_2_that_nobody_delegated_are_told_and_not_taken_for_limits";
    let Some(world) = made(test, World::of_user(test, &[]), "") else {
        return;
    };
    let layout = world.run("--json doctor").json()["host"]["cgroup"]["layout"].clone();
    assert_eq!(layout, "v2");
    says_that_nothing_can_be_limited(&world, "/sys/fs/cgroup");
    let ran = world.exec("--memory 64M", &["true"]).ended(126);
    assert!(
        ran.says("EACCES; no service manager at /run/user/"),
        "{}",
        ran.err
    );
}

#[test]
fn groups_that_are_mounted_read_only_are_not_even_roots() {
    let test = "groups_that_are_mounted_read_only_are_not_even_roots";
    let more = "mount -o remount,bind,ro /sys/fs/cgroup";
    let Some(world) = made(test, is_root().then(World::new), more) else {
        return;
    };
    says_that_nothing_can_be_limited(&world, "/sys/fs/cgroup");
    let ran = world.exec("--memory 64M", &["true"]).ended(126);
    assert!(ran.says("EROFS"), "{}", ran.err);
}
