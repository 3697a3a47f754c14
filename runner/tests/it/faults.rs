//! Each mechanism taken away, by a call that fails and by one that has no effect: acceptance 5.
//!
//! The first must cost the controls that rest on it, with a reason. The second must be found by reading back; where
//! that cannot be, [`Rests::Nothing`] says why. The calls of bubblewrap are its own, and no switch is in them: what it leaves
//! undone is taken away in `bwrap::obedience`.

use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use runner::sys::fault::MECHANISMS;

use crate::bwrap::with_bwrap;
use crate::world::{Ran, SUPPORTED, World, is_root, program, ready, sandboxes, skip};

/// What a mechanism is for.
enum Rests {
    /// These controls.
    On(&'static [&'static str]),
    /// No control, or none here; why.
    Nothing(&'static str),
    /// The whole launch: without it no sandbox is built, and nothing is declared.
    Everything,
}

use Rests::{Everything, Nothing, On};

/// What rests on a mechanism when its call fails.
fn when_it_fails(mechanism: &str) -> Rests {
    match mechanism {
        "namespace-network" => On(&["network", "ipc"]),
        "namespace-ipc" => On(&["ipc"]),
        "namespace-uts" => Nothing("no control speaks of the host's name"),
        "namespace-cgroup" => Nothing("no control speaks of the names of control groups"),
        "namespace-pid" | "namespace-mount" | "pivot-root" | "read-only" | "proc-mask" => {
            Everything
        }
        "mount-setattr" if is_root() => Everything,
        "mount-setattr" => Nothing("older kernels have another way"),
        "proc" => On(&["process"]),
        "protect" => On(&["filesystem"]),
        "idmap" if is_root() => Everything,
        "idmap" => Nothing("a user's files are its own without a map"),
        // The others have none to drop; [`world`] gives root one where it can.
        "set-groups" if is_root() && program("setpriv").is_some() => On(&["user"]),
        "set-groups" => Nothing("this user has no other groups to drop"),
        "set-ids" if is_root() => Everything,
        "set-ids" => On(&["user", "privilege"]),
        "capabilities" | "bounding-set" | "userns-limit" => On(&["privilege"]),
        // The kernel takes a filter only from who cannot gain privilege (seccomp(2)).
        "no-new-privs" => On(&["network", "filesystem", "privilege", "syscalls"]),
        "new-session" => On(&["terminal"]),
        "limit-files" => On(&["files"]),
        "close-descriptors" => On(&["descriptors"]),
        "group-memory" | "group-pids" | "group-cpu" => Nothing("this policy sets no such limit"),
        "landlock" => Nothing("it stands behind the namespaces, which decide"),
        "base-filter" => On(&["network", "filesystem"]),
        "seccomp" => On(&["syscalls"]),
        "listener" => Nothing("denied calls fail whether anybody hears of them or not"),
        other => panic!("{other} has no entry"),
    }
}

/// What rests on a mechanism when its call reports success and does nothing.
fn when_it_is_void(mechanism: &str) -> Rests {
    match mechanism {
        "namespace-pid" => On(&["process", "timeout"]),
        "pivot-root" | "read-only" | "proc-mask" => On(&["filesystem"]),
        "idmap" if is_root() => On(&["user"]),
        "set-ids" if !is_root() => Nothing("inside, this user has its ids from the map already"),
        "landlock" => Nothing("no file of /proc shows whether Landlock restricts a process"),
        other => when_it_fails(other),
    }
}

/// What rests under bwrap on the calls that are not bubblewrap's.
fn under_bwrap(mechanism: &str, kind: &str) -> Rests {
    match (mechanism, kind) {
        ("namespace-network" | "namespace-ipc" | "namespace-uts" | "namespace-cgroup", _)
        | ("namespace-pid" | "namespace-mount" | "pivot-root" | "read-only" | "proc", _)
        | ("proc-mask" | "bounding-set" | "no-new-privs" | "userns-limit", _)
        | ("new-session" | "base-filter" | "seccomp", _) => Nothing("bubblewrap makes this call"),
        ("landlock" | "listener", _) => Nothing("bubblewrap knows nothing of it"),
        ("set-ids" | "capabilities", _) if is_root() => Everything,
        ("set-ids" | "set-groups" | "capabilities" | "idmap" | "mount-setattr", _)
            if !is_root() =>
        {
            Nothing("nobody but root takes another id first, or maps owners")
        }
        ("set-groups", _) if program("setpriv").is_none() => when_it_fails(mechanism),
        // The launcher builds nothing where one of its own steps fails.
        ("idmap" | "set-groups" | "close-descriptors", "fail") => Everything,
        ("idmap" | "set-groups", _) => On(&["user"]),
        ("close-descriptors", _) => On(&["descriptors"]),
        ("protect" | "limit-files" | "mount-setattr", _) => when_it_fails(mechanism),
        ("group-memory" | "group-pids" | "group-cpu", _) => when_it_fails(mechanism),
        other => panic!("{other:?} has no entry"),
    }
}

/// A world whose run uses every mechanism: read and written folders, a planted descriptor, a group.
fn world(runtime: &str, mechanism: &str) -> (World, String) {
    let mut world = World::new();
    world.in_a_group();
    let (read, write) = (world.folder("in"), world.folder("out"));
    let policy = world.policy(|policy| {
        // Landlock, which nested sandboxes do without, would set no_new_privs itself.
        if mechanism == "no-new-privs" {
            policy["nesting"] = "allow".into();
        }
    });
    let flags = format!(
        "--runtime {runtime} -P {} -C / --read {} --write {}",
        policy.display(),
        read.display(),
        write.display()
    );
    (world, flags)
}

fn exec(world: &World, fault: &str, flags: &str) -> Ran {
    let mut command = world.exec_command(flags, &["sh", "-c", "id -u"]);
    command.env("RUNNER_FAULT", fault);
    with_planted(&mut command);
    Ran::of(command.output().unwrap())
}

/// Leaves descriptor 7 open in the program that is run.
#[allow(unsafe_code, reason = "descriptors are planted between fork and exec")]
pub(crate) fn with_planted(command: &mut std::process::Command) {
    let file = std::fs::File::open("/etc/hostname").or_else(|_| std::fs::File::open("/etc/passwd"));
    let file = file.unwrap();
    // SAFETY: dup2 is async-signal-safe and the closure owns the file.
    unsafe {
        command.pre_exec(move || {
            // Where it has this number already, dup2 changes nothing: it would close at exec.
            let planted = match file.as_raw_fd() {
                7 => libc::fcntl(7, libc::F_SETFD, 0),
                other => libc::dup2(other, 7),
            };
            if planted < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Checks one mechanism under both policies; `kind` is `fail` or `void`.
fn check(runtime: &str, mechanism: &str, kind: &str, rests: &Rests) {
    let fault = format!("{mechanism}={kind}");
    let (world, flags) = world(runtime, mechanism);
    let ran = exec(&world, &fault, &format!("{flags} --best-effort"));
    let run = world.last();
    let lost: Vec<&str> = SUPPORTED
        .into_iter()
        .filter(|control| !run.declares(control))
        .collect();
    for control in &lost {
        let reason = run.reason(control);
        assert!(
            reason.is_some_and(|reason| !reason.is_empty()),
            "{fault}: {control}"
        );
    }
    let uid = run
        .execution
        .observed
        .as_ref()
        .and_then(|observed| observed.uid);
    assert_ne!(uid, Some(0), "{fault}: the workload was host root");
    match rests {
        Nothing(why) => {
            assert_eq!(lost, [""; 0], "{fault}: {why}");
            assert_eq!(ran.code, Some(0), "{fault}: {ran:#?}");
        }
        Everything => {
            assert_eq!(lost, SUPPORTED, "{fault}: {ran:#?}");
            assert_eq!(run.execution.verdict.as_str(), "not-executed", "{fault}");
            assert!(matches!(ran.code, Some(125 | 126)), "{fault}: {ran:#?}");
        }
        On(controls) => {
            for control in *controls {
                assert!(
                    lost.contains(control),
                    "{fault}: {control} is declared: {ran:#?}"
                );
                let reason = run.reason(control).unwrap();
                let expected: &[&str] = match (kind, *control) {
                    // A fresh /proc takes a pid namespace, and a filter no_new_privs.
                    ("void", "process" | "syscalls") => &["no-effect", "mechanism-failed"],
                    ("void", _) if mechanism == "no-new-privs" => {
                        &["no-effect", "mechanism-failed"]
                    }
                    ("void", _) => &["no-effect", "protect-failed"],
                    _ => &[
                        "mechanism-failed",
                        "namespace-refused",
                        "protect-failed",
                        "no-effect",
                    ],
                };
                assert!(
                    expected.iter().any(|word| reason.starts_with(word)),
                    "{fault}: {control}: {reason}"
                );
            }
            assert!(ran.err.contains("not in force"), "{fault}: {}", ran.err);
        }
    }

    let ran = exec(&world, &fault, &flags);
    if matches!(rests, Nothing(_)) {
        assert_eq!(ran.code, Some(0), "{fault}: {ran:#?}");
        return;
    }
    assert_eq!(ran.code, Some(126), "{fault}, strict: {ran:#?}");
    let run = world.last();
    assert_eq!(run.execution.verdict.as_str(), "not-executed", "{fault}");
    assert!(run.start.controls.declared.is_empty(), "{fault}");
    assert!(!run.start.controls.unsupported.is_empty(), "{fault}");
}

#[test]
fn without_a_fault_everything_is_declared() {
    let _ = ready!();
    for (runtime, _) in sandboxes("without_a_fault_everything_is_declared") {
        let (world, flags) = world(runtime, "");
        let ran = exec(&world, "", &flags).ended(0);
        assert_eq!(ran.out, "1000\n");
        let run = world.last();
        for control in SUPPORTED {
            let reason = run.reason(control);
            assert!(run.declares(control), "{runtime}: {control}: {reason:?}");
        }
    }
}

/// Checks every mechanism, and fails after the last one.
fn check_all(runtime: &str, kind: &str, rests: impl Fn(&str) -> Rests + std::panic::RefUnwindSafe) {
    let wrong: Vec<&str> = MECHANISMS
        .iter()
        .copied()
        .filter(|mechanism| {
            let rests = || check(runtime, mechanism, kind, &rests(mechanism));
            std::panic::catch_unwind(rests).is_err()
        })
        .collect();
    assert_eq!(wrong, [""; 0], "{runtime}, {kind}");
}

#[test]
fn a_call_that_fails_costs_the_controls_that_rest_on_it() {
    let _ = ready!();
    check_all("embedded", "fail", when_it_fails);
}

#[test]
fn a_call_without_effect_is_found_by_reading_back() {
    let _ = ready!();
    check_all("embedded", "void", when_it_is_void);
}

#[test]
fn calls_beside_bubblewrap_are_reached_and_no_other_is() {
    let _ = with_bwrap!();
    for kind in ["fail", "void"] {
        check_all("bwrap", kind, |mechanism| under_bwrap(mechanism, kind));
    }
}

#[test]
fn a_backup_that_failed_is_not_named() {
    let _ = ready!();
    let (world, flags) = world("embedded", "");
    let backup = |world: &World| {
        let declared = world.last().start.controls.declared;
        declared
            .into_iter()
            .filter(|control| control.backup.is_some())
            .count()
    };
    exec(&world, "", &flags).ended(0);
    if backup(&world) == 0 {
        return skip(
            "a_backup_that_failed_is_not_named",
            "no Landlock of ABI 2 or higher here",
        );
    }
    let ran = exec(&world, "landlock=fail", &flags).ended(0);
    assert_eq!(backup(&world), 0);
    assert!(ran.err.contains("Landlock"), "{}", ran.err);
}

/// Before Linux 5.12 there is no mount_setattr: what it does is done mount by mount, or not claimed.
#[test]
fn without_mount_setattr_submounts_are_still_read_only() {
    let _ = ready!();
    const TEST: &str = "without_mount_setattr_submounts_are_still_read_only";
    if is_root() {
        // Owners cannot be mapped then, which root's folders need: refused, with what to do.
        let (world, flags) = world("embedded", "");
        let ran = exec(&world, "mount-setattr=fail", &flags).ended(126);
        assert!(ran.err.contains("chown"), "{}", ran.err);
        // Without folders everything is there, by older calls.
        let world = World::new();
        let policy = world.policy(|_| {});
        exec(
            &world,
            "mount-setattr=fail",
            &format!("--runtime embedded -P {}", policy.display()),
        )
        .ended(0);
        let run = world.last();
        for control in SUPPORTED {
            assert!(
                run.declares(control),
                "{control}: {:?}",
                run.reason(control)
            );
        }
        let script = r#"for path in /usr/x /etc/x /proc/sys/kernel/core_pattern; do (: >>"$path") 2>/dev/null && echo "$path"; done; :"#;
        let mut command = world.exec_command("", &["sh", "-c", script]);
        let ran = Ran::of(
            command
                .env("RUNNER_FAULT", "mount-setattr=fail")
                .output()
                .unwrap(),
        );
        assert_eq!(ran.ended(0).out, "");
        return;
    }
    let mut world = World::new();
    let folder = world.folder("in/below");
    let mounts =
        r#"mount -t tmpfs -o noatime none "$1/in/below"; echo content >"$1/in/below/file""#;
    if let Err(reason) = world.mounted(mounts) {
        return skip(TEST, reason);
    }
    let world = world.with("RUNNER_FAULT", "mount-setattr=fail");
    let flags = format!("--read {}", world.path("in").display());
    let script = r#"cat "$1/file"; (: >>"$1/file") 2>&1; (: >"$1/new") 2>&1; :"#;
    let ran = world.sh(&flags, script, &[Path::new(&folder)]).ended(0);
    assert!(ran.out.starts_with("content\n"), "{}", ran.out);
    assert_eq!(
        ran.out.matches("Read-only file system").count(),
        2,
        "{}",
        ran.out
    );
    assert!(world.last().declares("filesystem"));
}
