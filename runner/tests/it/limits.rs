//! Limits on memory, tasks, CPU time and room, by control groups and sizes: what a workload runs into, what is recorded of it,
//! and what is left.

mod left;
mod unwritable;

use std::process::Command;

use ledger::facts::execution::Observed;

use crate::evidence::Run;
use crate::signals::assert_killed_by;
use crate::world::{Ran, World, is_root, no_groups, no_sandbox, program, ready, sandboxes, skip};

/// A caller who can have limits, and a runtime to have them in.
pub(crate) struct Limited {
    pub(crate) world: World,
    pub(crate) runtime: &'static str,
    flags: &'static str,
    is_root: bool,
}

impl Limited {
    fn command(&self, flags: &str, workload: &[&str]) -> Command {
        self.world
            .exec_command(&format!("{} {flags}", self.flags), workload)
    }

    fn exec(&self, flags: &str, workload: &[&str]) -> Ran {
        eprintln!("{}, root: {}: {flags}", self.runtime, self.is_root);
        Ran::of(self.command(flags, workload).output().unwrap())
    }
}

/// Every such pair that can be had here: whoever runs the tests and, where that is root, an ordinary user. Says what cannot.
pub(crate) fn limited(test: &str) -> Vec<Limited> {
    let mut all = Vec::new();
    if let Some(why) = no_sandbox() {
        skip(test, why);
        return all;
    }
    for (runtime, flags) in sandboxes(test) {
        let user = is_root().then(|| World::of_user(test, &[])).flatten();
        let own = Some((World::new(), is_root()));
        for (world, is_root) in own.into_iter().chain(user.map(|user| (user, false))) {
            match no_groups(&world) {
                Some(why) => skip(test, format!("{runtime}, root: {is_root}: {why}")),
                None => all.push(Limited {
                    world,
                    runtime,
                    flags,
                    is_root,
                }),
            }
        }
    }
    all
}

/// What opens files to build the sandbox does so before.
#[test]
fn however_few_files_may_be_open_all_is_in_force_and_the_program_runs() {
    let world = ready!();
    let declared = |most: u32| {
        let policy = world.policy(|policy| policy["resources"]["openFiles"] = most.into());
        let flags = format!("--runtime embedded -P {}", policy.display());
        world.exec(&flags, &["true"]).ended(0);
        let declared = world.last().start.controls.declared;
        let backups = declared.into_iter().map(|one| (one.control, one.backup));
        backups.collect::<Vec<_>>()
    };
    let usual = declared(64);
    // A program with libraries needs one beside its streams.
    for most in 4..=9 {
        assert_eq!(declared(most), usual, "{most}");
    }
}

/// The same where python3 is.
fn limited_with_python(test: &str) -> Vec<Limited> {
    if program("python3").is_none() {
        skip(test, "no python3");
        return Vec::new();
    }
    limited(test)
}

/// Four processes with 24 MiB each at once.
const FOUR: &str = "
import os
until, kept_open = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        os.close(kept_open)
        kept = bytearray(24 << 20)
        for at in range(0, len(kept), 4096): kept[at] = 1
        os.read(until, 1)
        os._exit(0)
os.wait()
";

/// Touches so many MiB, 40 at a time.
const TOUCH: &str = "
import sys
kept = []
for _ in range(0, int(sys.argv[1]), 8):
    part = bytearray(8 << 20)
    for at in range(0, len(part), 4096): part[at] = 1
    kept.append(part)
";

/// Makes processes and threads in turn until there can be no more, and says how many there are.
const COUNT: &str = "
import os, sys, threading
gate = threading.Event()
count = 1
try:
    while count < 64:
        if count % 2:
            reader, writer = os.pipe()
            if os.fork() == 0:
                os.close(writer); os.read(reader, 1); os._exit(0)
            globals().setdefault('kept', []).append(writer)
        else:
            threading.Thread(target=gate.wait, daemon=True).start()
        count += 1
except (BlockingIOError, RuntimeError) as error:
    print(count, type(error).__name__, flush=True)
os._exit(0)
";

/// Eight processes that are busy for a second.
const BURN: &str = "
import os, time
for _ in range(3): os.fork()
end = time.monotonic() + 1
while time.monotonic() < end: pass
";

fn observed(run: &Run) -> Observed {
    run.execution.observed.clone().unwrap()
}

fn declared(run: &Run, control: &str) -> (String, String) {
    let declared = &run.start.controls.declared;
    let one = declared
        .iter()
        .find(|one| one.control.as_str() == control)
        .unwrap_or_else(|| panic!("{control}: {:?}", run.start.controls.unsupported));
    (one.mechanism.clone(), one.value.clone().unwrap_or_default())
}

fn has_a_fifth(run: &Run) {
    let used = observed(run).cpu_us.unwrap().value();
    let wall = run.execution.result.duration_us.unwrap().value();
    // Eight of them would use all there is. A period may stick out at either end.
    assert!(
        used <= wall / 5 + 2 * 20_000 + 10_000,
        "{used} of {wall} us"
    );
}

#[test]
fn what_stays_below_its_limits_runs_as_requested_and_is_measured() {
    for on in limited_with_python("what_stays_below_its_limits") {
        let flags = "--memory 96M --processes 8 --cpu 1.5";
        on.exec(flags, &["python3", "-c", TOUCH, "40"]).ended(0);
        let run = on.world.last();
        assert_eq!(run.execution.verdict.as_str(), "as-requested");
        let (mechanism, value) = declared(&run, "memory");
        assert!(mechanism.starts_with("cgroup-v"), "{mechanism}");
        assert!(value.starts_with("96 MiB"), "{value}");
        let (mechanism, value) = declared(&run, "processes");
        assert!(
            mechanism.ends_with("pids.max") && value == "8 tasks",
            "{mechanism} {value}"
        );
        let (_, value) = declared(&run, "cpu");
        assert_eq!(value, "1.5 of a CPU, 150 ms in 100 ms");
        let seen = observed(&run);
        assert!(
            seen.source.starts_with("procfs cgroup-v"),
            "{}",
            seen.source
        );
        assert_eq!(seen.oom_kills.map(|kills| kills.value()), Some(0));
        let named = |field: &str| {
            let unmeasured = run.execution.unmeasured.iter().flatten();
            unmeasured.filter(|gap| gap.field == field).count() == 1
        };
        // A figure, or why there is none.
        match seen.memory_peak_bytes {
            Some(peak) => assert!((40 << 20..=96 << 20).contains(&peak.value()), "{peak}"),
            None => assert!(named("observed.memoryPeakBytes")),
        }
        match seen.pids_peak {
            Some(peak) => assert!((1..=8).contains(&peak.value()), "{peak}"),
            None => assert!(named("observed.pidsPeak")),
        }
        assert!(seen.cpu_us.unwrap().value() > 0);
    }
}

#[test]
fn who_runs_out_of_memory_is_killed_and_that_is_said() {
    for on in limited_with_python("who_runs_out_of_memory") {
        let ran = on
            .exec("--memory 48M", &["python3", "-c", TOUCH, "160"])
            .ended(128 + 9);
        assert_killed_by(&on.world, on.runtime, 9);
        let how = match on.runtime {
            "bwrap" => "exit status 137",
            _ => "signal 9",
        };
        let said = format!("{how}; memory ran out at its limit of 48 MiB");
        assert!(ran.err.contains(&said), "{}", ran.err);
        let seen = observed(&on.world.last());
        assert_eq!(seen.oom_kills.unwrap().value(), 1);
        assert!(
            seen.memory_peak_bytes
                .is_none_or(|peak| peak.value() <= 48 << 20)
        );

        // A child's end is said too where the program goes on.
        let script = "python3 -c \"$1\" 160; echo went on";
        let ran = on.exec("--memory 48M", &["sh", "-c", script, "sh", TOUCH]);
        let ran = ran.ended(0);
        assert_eq!(ran.out, "went on\n");
        assert!(
            ran.err.contains("as-requested (memory ran out"),
            "{}",
            ran.err
        );

        // Four that are small enough each, and keep what they have until one of them is gone.
        on.exec("--memory 48M", &["python3", "-c", FOUR]);
        assert!(observed(&on.world.last()).oom_kills.unwrap().value() > 0);
    }
}

#[test]
fn files_in_memory_are_memory() {
    for on in limited("files_in_memory_are_memory") {
        // Larger than the limit, each and all together.
        let script = "for place in /tmp /var/tmp /workspace /dev/shm; do
            head -c 30000000 /dev/zero >$place/file || echo refused
        done; echo over";
        let ran = on.exec("--memory 32M", &["sh", "-c", script]);
        let run = on.world.last();
        let seen = observed(&run);
        assert!(
            seen.memory_peak_bytes
                .is_none_or(|peak| peak.value() <= 32 << 20)
        );
        assert!(
            seen.oom_kills.unwrap().value() > 0 || ran.out.contains("refused"),
            "{ran:#?}"
        );
        // No folder is larger than the limit, whatever the policy allows it.
        let ran = on.exec(
            "--memory 32M",
            &["stat", "-fc", "%b %S", "/tmp", "/workspace"],
        );
        for line in ran.ended(0).out.lines() {
            let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
            let bytes = numbers.next().unwrap() * numbers.next().unwrap();
            assert_eq!(bytes, 32 << 20, "{line}");
        }
    }
}

#[test]
fn n_tasks_are_n_of_the_workload() {
    for on in limited_with_python("n_tasks_are_n") {
        let ran = on
            .exec("--processes 16", &["python3", "-c", COUNT])
            .ended(0);
        assert!(ran.out.starts_with("16 "), "{ran:#?}");
        let run = on.world.last();
        assert!(
            observed(&run)
                .pids_peak
                .is_none_or(|peak| peak.value() == 16)
        );
        // One is enough for a program that stays alone.
        on.exec("--processes 1", &["true"]).ended(0);

        // A bomb that nobody counts.
        let bomb = "bomb() { bomb | bomb & }; bomb; sleep 0.3";
        on.exec("--processes 24 --timeout 20s", &["bash", "-c", bomb]);
        let run = on.world.last();
        assert!(run.execution.result.exit_code.is_some());
        assert!(
            observed(&run)
                .pids_peak
                .is_none_or(|peak| peak.value() <= 24)
        );
    }
}

#[test]
fn a_burner_gets_its_share() {
    for on in limited_with_python("a_burner_gets_its_share") {
        on.exec("--cpu 0.2", &["python3", "-c", BURN]).ended(0);
        let run = on.world.last();
        has_a_fifth(&run);
    }
}

#[test]
fn the_groups_have_no_names_inside() {
    for on in limited("the_groups_have_no_names_inside") {
        let flags = "--memory 96M --processes 8 --cpu 1";
        let ran = on.exec(flags, &["cat", "/proc/self/cgroup"]).ended(0);
        for line in ran.out.lines() {
            assert!(line.ends_with(":/"), "{}", ran.out);
        }
        let ran = on.exec(flags, &["ls", "/sys"]);
        assert_ne!(ran.code, Some(0), "{ran:#?}");
    }
}

#[test]
fn too_little_for_the_sandbox_itself_is_said() {
    for on in limited_with_python("too_little_for_the_sandbox") {
        let ran = on.exec("--memory 1M", &["python3", "-c", TOUCH, "8"]);
        assert_ne!(ran.code, Some(0));
        assert!(
            ran.err
                .contains("memory limit of 1 MiB leaves the sandbox itself no room")
                || ran.err.contains("memory ran out at its limit of 1 MiB"),
            "{ran:#?}"
        );
    }
}

#[test]
fn host_root_that_may_mount_has_its_own_limits_in_reach() {
    let all = limited("host_root_that_may_mount_has_its_own_limits_in_reach");
    for on in all.iter().filter(|on| on.is_root) {
        for (nesting, holds) in [("deny", true), ("allow", false)] {
            let policy = on.world.policy(|policy| policy["nesting"] = nesting.into());
            let flags = format!(
                "--as-root --best-effort --memory 64M --processes 20 --cpu 1 -P {}",
                policy.display()
            );
            on.exec(&flags, &["true"]).ended(0);
            let run = on.world.last();
            for control in ["memory", "processes", "cpu"] {
                let case = format!("{} {nesting} {control}", on.runtime);
                assert_eq!(run.declares(control), holds, "{case}");
                let reason = run.reason(control);
                assert_eq!(reason, (!holds).then_some("runs-as-root"), "{case}");
            }
        }
    }
}

#[test]
fn a_users_workload_that_may_nest_has_its_own_limits_in_reach() {
    const TEST: &str = "a_users_workload_that_may_nest_has_its_own_limits_in_reach";
    let _ = ready!();
    let own = Some(World::new());
    let user = is_root().then(|| World::of_user(TEST, &[])).flatten();
    for (world, is_root) in own
        .zip(Some(is_root()))
        .into_iter()
        .chain(user.map(|it| (it, false)))
    {
        for nesting in ["allow", "deny"] {
            let policy = world.policy(|policy| policy["nesting"] = nesting.into());
            for (runtime, flags) in sandboxes(TEST) {
                let flags = format!("{flags} --memory 64M -P {}", policy.display());
                let planned = world.run(&format!("plan {flags} -- true")).out;
                let in_reach = !is_root && nesting == "allow";
                let said = planned.contains("limits-in-reach");
                assert_eq!(
                    said, in_reach,
                    "{runtime}, root: {is_root}, {nesting}: {planned}"
                );
            }
        }
    }
}

#[test]
fn own_folders_of_a_size_are_a_limit_where_nothing_of_the_hosts_is_writable() {
    let world = ready!();
    let policy = world.policy(|policy| {
        policy["filesystem"]["maxWorkspaceMb"] = 4.into();
        let required = &mut policy["enforcement"]["requiredControls"];
        required.as_array_mut().unwrap().push("disk".into());
    });
    // Everywhere that one may write to at all.
    let script = "
import os
for folder, _, _ in os.walk('/'):
    # A message queue is made by a file, and holds no file's content.
    if folder.startswith(('/proc', '/dev/mqueue')) or not os.access(folder, os.W_OK): continue
    try:
        with open(folder + '/filler', 'wb') as file:
            for _ in range(8): file.write(b'x' * (1 << 20)); file.flush()
        print('no end in', folder)
    # What is a device's, and no folder for files.
    except PermissionError: pass
    except OSError as error: print(folder, error.errno)
";
    if program("python3").is_none() {
        return skip("own_folders_of_a_size", "no python3");
    }
    for (runtime, flags) in sandboxes("own_folders_of_a_size") {
        let flags = format!("{flags} -C / -P {}", policy.display());
        let ran = world.exec(&flags, &["python3", "-c", script]).ended(0);
        let mut places: Vec<&str> = ran.out.lines().collect();
        places.sort_unstable();
        assert_eq!(
            places,
            ["/dev/shm 28", "/tmp 28", "/var/tmp 28", "/workspace 28"],
            "{runtime}"
        );
        let (mechanism, value) = declared(&world.last(), "disk");
        let said = match runtime {
            "bwrap" => "4 MiB in each own folder, files are not counted",
            _ => "4 MiB in each own folder",
        };
        assert_eq!((mechanism.as_str(), value.as_str()), ("tmpfs size", said));
        let ran = world
            .exec(&format!("{flags} --write ."), &["true"])
            .ended(126);
        assert!(ran.err.contains("disk: needs-quota"), "{}", ran.err);
    }
}

#[test]
fn a_limit_that_fails_or_has_no_effect_is_not_declared() {
    for on in limited("a_limit_that_fails") {
        for (mechanism, control, flags) in [
            ("group-memory", "memory", "--memory 64M"),
            ("group-pids", "processes", "--processes 9"),
            ("group-cpu", "cpu", "--cpu 0.5"),
        ] {
            for (kind, reason) in [("fail", "mechanism-failed"), ("void", "no-effect")] {
                let fault = format!("{mechanism}={kind}");
                let run = |flags: &str| {
                    let mut command = on.command(flags, &["true"]);
                    command.env("RUNNER_FAULT", &fault);
                    Ran::of(command.output().unwrap())
                };
                let ran = run(flags).ended(126);
                let said = format!("{control}: {reason} (");
                assert!(ran.err.contains(&said), "{fault}: {}", ran.err);
                let mut plan = on.world.command(["plan"]);
                plan.args(flags.split(' ')).args(["--", "true"]);
                let ran = Ran::of(plan.env("RUNNER_FAULT", &fault).output().unwrap());
                assert!(ran.ended(126).out.contains(reason), "{fault}");
                run(&format!("--best-effort {flags}")).ended(0);
                let run = on.world.last();
                assert_eq!(run.execution.verdict.as_str(), "controls-missing");
                assert!(run.reason(control).unwrap().starts_with(reason), "{fault}");
                for other in ["memory", "processes", "cpu"] {
                    assert_eq!(run.declares(other), other != control, "{fault}: {other}");
                }
            }
        }
    }
}

#[test]
fn who_can_have_no_groups_is_refused_and_told_what_would_help() {
    let test = "who_can_have_no_groups";
    let _ = ready!();
    let Some(world) = World::of_user(test, &[]) else {
        return;
    };
    if no_groups(&world).is_none() {
        return skip(test, "this user has groups of its own");
    }
    let reasons = [
        "resource-groups-not-writable",
        "no-resource-groups",
        "controller-not-delegated",
    ];
    let each = [
        ("--memory 64M", "memory"),
        ("--processes 9", "processes"),
        ("--cpu 0.5", "cpu"),
        ("--require memory", "memory"),
    ];
    let all = sandboxes(test).into_iter();
    for ((_, runtime), (flags, control)) in all.flat_map(|one| each.map(|limit| (one, limit))) {
        let flags = format!("{runtime} {flags}");
        let ran = world.exec(&flags, &["true"]).ended(126);
        let said = |reason: &&str| ran.err.contains(&format!("{control}: {reason}"));
        assert!(reasons.iter().any(said), "{}", ran.err);
        assert!(ran.err.contains("`runner doctor`"), "{}", ran.err);
        let run = world.last();
        assert_eq!(run.execution.verdict.as_str(), "not-executed");
        let ran = world.run(&format!("plan {flags} -- true")).ended(126);
        assert!(ran.out.contains(control), "{}", ran.out);
        world
            .exec(&format!("--best-effort {flags}"), &["true"])
            .ended(0);
        let run = world.last();
        assert_eq!(run.execution.verdict.as_str(), "controls-missing");
        let seen = observed(&run);
        assert_eq!(
            (seen.source.as_str(), seen.oom_kills, seen.cpu_us),
            ("procfs", None, None)
        );
    }
    let doctor = world.run("doctor");
    let advice = doctor.out.split("resource-groups").nth(1).unwrap();
    assert!(
        advice.contains("does not work") && advice.lines().count() > 2,
        "{}",
        doctor.out
    );
}
