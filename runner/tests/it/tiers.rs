//! Hosts that allow less: in which tier a run is, what it declares there, and that this holds. All cells: `table/tiers.rs`.

mod docker;
mod inside;
mod places;
mod podman;
mod untouched;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ledger::facts::execution::Outcome;

use crate::world::{PATIENCE, Ran, World, is_root, program, skip, until};

/// A world of each caller, changed so that `tier` is all there is; none where the host does not lend itself to that.
fn worlds(test: &str, tier: &str) -> Vec<World> {
    let mut worlds = vec![World::new()];
    if is_root() {
        worlds.extend(World::of_user(test, &[]));
    }
    let mut less = Vec::new();
    for mut world in worlds {
        if tier == "landlock" {
            world = world.without_namespaces();
        } else if let Err(reason) = world.with_masks() {
            skip(test, reason);
            continue;
        }
        let found = world.run("--json doctor").json()["tier"].clone();
        if found == tier {
            less.push(world);
        } else {
            skip(test, format!("the tier here is {found}, not {tier}"));
        }
    }
    less
}

/// What `landlock` can declare of the test policy.
const LANDLOCKED: [&str; 8] = [
    "network",
    "filesystem",
    "environment",
    "privilege",
    "syscalls",
    "output",
    "devices",
    "files",
];

/// A strict policy of what there is, with nothing to protect below writable folders.
fn policy(world: &World, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let path = world.policy(|policy| {
        policy["enforcement"]["requiredControls"] = LANDLOCKED.to_vec().into();
        policy["filesystem"]["protect"] = Vec::<String>::new().into();
        // What cannot be had is not asked for.
        for (part, limit) in [("resources", "timeoutMs"), ("filesystem", "maxWorkspaceMb")] {
            policy[part].as_object_mut().unwrap().remove(limit);
        }
        change(policy);
    });
    format!("-P {}", path.display())
}

#[test]
fn without_a_fresh_proc_the_default_policy_runs_and_says_what_it_has() {
    let test = "without_a_fresh_proc_the_default_policy_runs_and_says_what_it_has";
    for world in worlds(test, "no-proc") {
        let planned = world.run("plan -- true").ended(0);
        assert!(
            planned.out.contains("in the tier no-proc"),
            "{}",
            planned.out
        );
        assert!(
            planned.out.contains("pid-namespace, empty /proc"),
            "{}",
            planned.out
        );
        let json = world.run("--json plan -- true").json();
        assert_eq!(json["runtime"]["tier"], "no-proc");
        let script = "ls -A /proc; ! true >/proc/new; ! unshare --user true; sleep 1000 & exit 7";
        let ran = world.sh("", script, &[]).ended(7);
        assert_eq!(ran.out, "");
        let run = world.last();
        assert_eq!(run.start.runtime.tier.as_deref(), Some("no-proc"));
        let declared = &run.start.controls.declared;
        let by = |control: &str| {
            let one = declared.iter().find(|one| one.control.as_str() == control);
            one.map(|one| one.mechanism.clone()).unwrap_or_default()
        };
        assert_eq!(by("process"), "pid-namespace, empty /proc");
        assert!(by("privilege").contains("seccomp"), "{}", by("privilege"));
        // Somebody survived, and nobody can count there.
        assert_eq!(run.execution.cleanup, None);
        world.exec("-q", &["true"]).ended(0);
        let cleanup = world.last().execution.cleanup.unwrap();
        assert_eq!(cleanup.survivors_killed.unwrap().value(), 0);
    }
}

#[test]
fn without_a_fresh_proc_privilege_rests_on_the_filter() {
    let test = "without_a_fresh_proc_privilege_rests_on_the_filter";
    for world in worlds(test, "no-proc") {
        let world = world.with("RUNNER_FAULT", "base-filter=void");
        world.exec("", &["true"]).ended(126);
        let run = world.last();
        for control in ["privilege", "network", "filesystem"] {
            let reason = run.reason(control).unwrap();
            assert!(reason.starts_with("no-effect"), "{control}: {reason}");
        }
        assert_eq!(run.reason("process"), None);
    }
}

#[test]
fn a_proc_that_is_left_in_place_is_seen() {
    let test = "a_proc_that_is_left_in_place_is_seen";
    // Whatever the switch takes away from the whole tier, it is read back there.
    let world = crate::world::ready!();
    if world.run("--json doctor").json()["tier"] != "full" {
        return skip(test, "another tier");
    }
    let world = world.with("RUNNER_FAULT", "proc=void");
    world.exec("--runtime embedded", &["true"]).ended(126);
    let run = world.last();
    assert!(run.reason("process").unwrap().starts_with("no-effect"));
}

#[test]
fn without_namespaces_the_default_policy_is_refused_by_plan_and_exec() {
    let test = "without_namespaces_the_default_policy_is_refused_by_plan_and_exec";
    for world in worlds(test, "landlock") {
        let planned = world.run("plan -- true").ended(126);
        assert!(
            planned.out.contains("in the tier landlock"),
            "{}",
            planned.out
        );
        let ran = world.exec("", &["true"]).ended(126);
        assert!(ran.err.contains("no-user-namespace (EPERM)"), "{}", ran.err);
        let run = world.last();
        for control in ["process", "timeout"] {
            assert_eq!(run.reason(control), Some("no-user-namespace (EPERM)"));
        }
        assert_eq!(run.reason("ipc"), Some(SOCKETS_SHARED));
        // Without them it runs, and they are missing in what is recorded.
        world.run("plan --best-effort -- true").ended(0);
        world.exec("--best-effort", &["true"]).ended(0);
        let run = world.last();
        assert_eq!(run.start.runtime.tier.as_deref(), Some("landlock"));
        assert_eq!(run.execution.verdict.as_str(), "controls-missing");
        assert_eq!(run.reason("user"), Some("no-user-namespace (EPERM)"));
        for control in ["process", "user", "ipc", "timeout", "terminal", "disk"] {
            assert!(!run.declares(control), "{control}");
        }
    }
}

/// Why `ipc` is not declared in the tier `landlock`.
const SOCKETS_SHARED: &str = "sockets-shared (no-user-namespace: EPERM)";

#[test]
fn without_namespaces_sockets_of_the_host_are_in_reach_and_all_say_so() {
    let test = "without_namespaces_sockets_of_the_host_are_in_reach_and_all_say_so";
    let Some(python) = program("python3") else {
        return skip(test, "no python3");
    };
    for world in worlds(test, "landlock") {
        let path = world.path("listening");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        for (path, mode) in [(&path, 0o777), (&world.path(""), 0o755)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        }
        let script = format!(
            "import socket; socket.socket(socket.AF_UNIX).connect({:?}); print('connected')",
            path.to_str().unwrap()
        );
        let words = "unix sockets of the host can be connected to by their paths";
        let doctor = world.run("doctor");
        assert!(doctor.out.contains(words), "{}", doctor.out);
        let flags = policy(&world, |_| {});
        let ran = world
            .exec(&flags, &[python.to_str().unwrap(), "-c", &script])
            .ended(0);
        assert_eq!(ran.out, "connected\n");
        assert!(!world.last().declares("ipc"));
        // Who requires it gets no run.
        let flags = policy(&world, |policy| {
            let required = policy["enforcement"]["requiredControls"].as_array_mut();
            required.unwrap().push("ipc".into());
        });
        let planned = world.run(&format!("plan {flags} -- true")).ended(126);
        assert!(planned.out.contains(SOCKETS_SHARED), "{}", planned.out);
        assert!(planned.out.contains(words), "{}", planned.out);
        let ran = world.exec(&flags, &["true"]).ended(126);
        assert!(ran.err.contains(SOCKETS_SHARED), "{}", ran.err);
        let run = world.last();
        assert_eq!(run.execution.result.outcome, Outcome::NotExecuted);
        assert_eq!(run.reason("ipc"), Some(SOCKETS_SHARED));
    }
}

#[test]
fn without_namespaces_what_is_declared_holds() {
    let test = "without_namespaces_what_is_declared_holds";
    for world in worlds(test, "landlock") {
        let secret = world.file("home/secret", "a secret");
        let flags = policy(&world, |_| {});
        world.run(&format!("plan {flags} -- true")).ended(0);
        let script = r#"
            cat "$1" 2>/dev/null && exit 11
            ls / 2>/dev/null && exit 12
            true 2>/dev/null >"$1".new && exit 13
            echo words >file && cat file || exit 14
            chmod 600 file 2>/dev/null && exit 15
            unshare --user true 2>/dev/null && exit 16
            test -n "$2" && kill -0 $PPID 2>/dev/null && exit 17
            cat /proc/$PPID/cmdline 2>/dev/null && exit 18
            test "$HOME" = "$PWD" || exit 19
            echo >/dev/null || exit 20
            exit 0"#;
        // Signals are kept inside from this ABI on.
        let scopes = runner::sys::kernel::landlock_abi().unwrap() >= 6;
        let scopes = Path::new(if scopes { "scopes" } else { "" });
        let ran = world.sh(&flags, script, &[&secret, scopes]).ended(0);
        assert_eq!(ran.out, "words\n");
        let run = world.last();
        assert_eq!(run.start.runtime.tier.as_deref(), Some("landlock"));
        for control in LANDLOCKED {
            assert!(
                run.declares(control),
                "{control}: {:?}",
                run.reason(control)
            );
        }
        assert_eq!(run.execution.verdict.as_str(), "as-requested");
        assert_eq!(run.start.key_reachable, None);
        let uid = run.execution.observed.unwrap().uid.unwrap();
        assert_ne!(uid, 0);
        // The folder of its own went with the run.
        let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let own = run.start.runtime.launch;
        let own = format!("{own:?}");
        for entry in left {
            let name = entry.file_name().to_string_lossy().into_owned();
            assert!(
                !name.starts_with("tmp.containment-") || !own.contains(&name),
                "{name}"
            );
        }
    }
}

#[test]
fn without_namespaces_no_socket_of_the_internet_can_be_made() {
    let test = "without_namespaces_no_socket_of_the_internet_can_be_made";
    let Some(python) = program("python3") else {
        return skip(test, "no python3");
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "import socket\nfor family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):\n  try:\n    socket.socket(family).connect(('127.0.0.1', {port})); print('open')\n  except OSError as error: print(error.errno)\nsocket.socketpair(); print('pair')\n"
    );
    for world in worlds(test, "landlock") {
        let flags = policy(&world, |_| {});
        let python = python.to_str().unwrap();
        let ran = world.exec(&flags, &[python, "-c", &script]).ended(0);
        assert_eq!(ran.out, "1\n1\n1\npair\n");
    }
}

#[test]
fn without_namespaces_what_is_shown_stays_at_its_path() {
    let test = "without_namespaces_what_is_shown_stays_at_its_path";
    for world in worlds(test, "landlock") {
        let folder = world.folder("home/data");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&folder, mode).unwrap();
        std::fs::write(folder.join("in"), "shown").unwrap();
        // Root's workload is nobody, and passes through what is open to all.
        for place in ["", "home"] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(world.path(place), mode).unwrap();
        }
        let flags = policy(&world, |_| {});
        let shown = folder.display().to_string();
        let script = r#"cat "$1"/in; : 2>/dev/null >"$1"/out"#;
        let ran = world.sh(&format!("{flags} --read {shown}"), script, &[&folder]);
        assert_eq!((ran.out.as_str(), ran.code != Some(0)), ("shown", true));
        assert!(!folder.join("out").exists());
        world
            .sh(&format!("{flags} --write {shown}"), script, &[&folder])
            .ended(0);
        assert!(folder.join("out").exists());

        // What cannot be had is refused, with the reason.
        for (more, why) in [
            (format!("--read {shown}:/elsewhere"), " at /elsewhere"),
            (format!("--workload {shown}"), " at /workload"),
            (
                format!("--write {shown} --read {shown}/in"),
                "read-only below",
            ),
        ] {
            refused(&world, &format!("{flags} {more}"), why);
        }
        let protecting = policy(&world, |policy| {
            policy["filesystem"]["protect"] = vec![".git/hooks"].into();
        });
        refused(
            &world,
            &format!("{protecting} --write {shown}"),
            "protected paths",
        );
        let whole = policy(&world, |policy| {
            policy["filesystem"]["root"] = "host-readonly".into()
        });
        refused(&world, &whole, "a root other than");
    }
}

#[track_caller]
fn refused(world: &World, flags: &str, why: &str) {
    world.run(&format!("plan {flags} -- true")).ended(126);
    world.exec(flags, &["true"]).ended(126);
    let run = world.last();
    let reason = run.reason("filesystem").unwrap();
    assert!(
        reason.starts_with("no-mounts (") && reason.contains(why),
        "{reason}"
    );
}

#[test]
fn without_namespaces_nothing_that_holds_evidence_is_shown() {
    let test = "without_namespaces_nothing_that_holds_evidence_is_shown";
    for world in worlds(test, "landlock") {
        world.exec("--best-effort", &["true"]).ended(0);
        for place in ["state", "data"] {
            let flags = format!("--best-effort --read {}", world.path(place).display());
            let ran = world.exec(&flags, &["true"]).ended(126);
            assert!(ran.err.contains("no workload may see"), "{}", ran.err);
        }
        let world = world.with("SECRET", "value");
        let ran = world
            .exec("--best-effort --secret SECRET", &["true"])
            .ended(126);
        assert!(ran.err.contains("secret SECRET"), "{}", ran.err);
    }
}

#[test]
fn without_namespaces_what_had_no_effect_is_not_declared() {
    let test = "without_namespaces_what_had_no_effect_is_not_declared";
    for (fault, lost) in [
        ("landlock", &["filesystem", "devices"][..]),
        ("base-filter", &["network", "filesystem", "privilege"]),
        ("seccomp", &["syscalls"]),
        ("limit-files", &["files"]),
    ] {
        for how in ["void", "fail"] {
            for world in worlds(test, "landlock") {
                let world = world.with("RUNNER_FAULT", format!("{fault}={how}"));
                let flags = policy(&world, |_| {});
                world.exec(&flags, &["true"]).ended(126);
                let run = world.last();
                for control in LANDLOCKED {
                    let is_lost = run.reason(control).is_some();
                    assert_eq!(is_lost, lost.contains(&control), "{fault}={how}: {control}");
                }
            }
        }
    }
}

/// How many processes have `mark` among their arguments.
fn alive(mark: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let named = all.filter(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == mark.as_bytes())
        })
    });
    named.count()
}

#[test]
fn without_namespaces_the_tree_ends_with_its_deadline_and_with_its_runner() {
    let test = "without_namespaces_the_tree_ends_with_its_deadline_and_with_its_runner";
    for (at, world) in worlds(test, "landlock").into_iter().enumerate() {
        let mark = format!("{}.{at}5", 100_000 + std::process::id());
        let script = "(setsid sleep \"$1\" &) ; sleep \"$1\"";
        let ran = world.sh("--best-effort --timeout 1s", script, &[Path::new(&mark)]);
        ran.ended(124);
        until("the tree of a run past its deadline ends", || {
            alive(&mark) == 0
        });

        let words = ["sh", "-c", script, "sh", &mark];
        let own = world.path("temporary");
        std::fs::create_dir(&own).unwrap();
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o1777)).unwrap();
        let command = |words: &[&str]| {
            let mut command = world.exec_command("--best-effort", words);
            command.env("TMPDIR", &own);
            command
        };
        let mut child = command(&words).spawn().unwrap();
        // The shell itself has it as an argument, too.
        until("the workload runs", || alive(&mark) >= 3);
        child.kill().unwrap();
        child.wait().unwrap();
        until("the tree of a killed runner ends", || alive(&mark) == 0);
        // Its folder is left, and the next run removes it with its own.
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 1);
        Ran::of(command(&["true"]).output().unwrap()).ended(0);
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
    }
    assert!(PATIENCE.as_secs() > 1);
}

#[test]
fn root_without_the_right_to_mount_has_the_whole_of_it() {
    let test = "root_without_the_right_to_mount_has_the_whole_of_it";
    let Some(setpriv) = program("setpriv").filter(|_| is_root()) else {
        return skip(test, "not root, or no setpriv");
    };
    // The capabilities that engines of containers leave.
    let mut world = World::new();
    world.behind(&[
        setpriv.to_str().unwrap(),
        "--bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+sys_chroot,+setfcap",
        "--",
    ]);
    let caps = world.run("--json doctor").json();
    if caps["ready"] != true {
        return skip(test, "no namespaces for such a root");
    }
    world.exec("-q", &["true"]).ended(0);
    let run = world.last();
    assert!(run.declares("user") && run.declares("descriptors"));
    assert_ne!(run.execution.observed.unwrap().uid, Some(0));
    // What is shown read-only is shown as it is, what is writable cannot be: nobody's files would be made there.
    let shown = world.folder("home/shown");
    let open = |path: &Path| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    };
    for place in ["", "home"] {
        open(&world.path(place));
    }
    open(&shown);
    std::fs::write(shown.join("file"), "content").unwrap();
    let file = shown.join("file").display().to_string();
    let read = format!("--read {}", shown.display());
    let ran: Ran = world.exec(&read, &["cat", &file]).ended(0);
    assert_eq!(ran.out, "content");
    let ran = world.exec(&format!("--write {}", shown.display()), &["true"]);
    assert!(ran.ended(126).err.contains("chown"));
}
