//! Bubblewrap missing, removed, refused by the kernel, hanging on to nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use ledger::facts::execution::Outcome;

use super::with_bwrap;
use crate::world::{Ran, World, install, install_script, program, skip, until};

/// A world whose PATH has a folder of its own first, and only this one with `alone`.
pub(super) fn first_in_path(world: World, alone: bool) -> (World, PathBuf) {
    let bin = world.folder("bin");
    let path = if alone {
        bin.display().to_string()
    } else {
        format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display())
    };
    (world.with("PATH", path), bin)
}

/// A bubblewrap that says what the real one is, and does `otherwise` when it is to build something.
fn fake(bin: &std::path::Path, otherwise: &str) {
    let real = program("bwrap").unwrap();
    let real = real.display();
    let text = format!(
        "#!/bin/sh\ncase $1 in --version|--help) exec {real} \"$@\";; esac\n{otherwise}\nexec {real} \"$@\"\n"
    );
    install_script(&text, &bin.join("bwrap"));
}

/// A world in which bubblewrap ends with these words where it is told `option`.
pub(super) fn refuses(world: World, option: &str, words: &str) -> World {
    let (world, bin) = first_in_path(world, false);
    let otherwise = format!("case \" $* \" in *' {option} '*) echo '{words}' >&2; exit 1;; esac");
    fake(&bin, &otherwise);
    world
}

#[test]
fn where_bubblewrap_is_missing_nothing_runs_and_all_of_them_say_so() {
    let world = with_bwrap!();
    let (world, _) = first_in_path(world, true);
    for (flags, code) in [("", 126), ("--best-effort", 125)] {
        let planned = world.run(&format!("plan --runtime bwrap {flags} -- /bin/true"));
        let planned = planned.ended(code);
        assert!(planned.out.contains("runtime-missing"), "{}", planned.out);
        let ran = world.exec(&format!("--runtime bwrap {flags}"), &["/bin/true"]);
        let ran = ran.ended(code);
        for word in [
            "runtime-missing",
            "no bwrap in PATH",
            "install the package bubblewrap",
        ] {
            // Once for all controls.
            assert_eq!(ran.err.matches(word).count(), 1, "{flags}: {}", ran.err);
        }
        // That would not help.
        assert!(!ran.err.contains("--best-effort runs"), "{}", ran.err);
        let run = world.last();
        assert_eq!(run.execution.verdict.as_str(), "not-executed");
        assert_eq!(run.start.controls.declared, []);
        assert!(
            run.reason("network")
                .unwrap()
                .starts_with("runtime-missing")
        );
        assert_eq!(run.start.runtime.version, "none");
    }
    let rows = world.run("--json runtimes").ended(0).json();
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["id"] == "bwrap");
    assert_eq!(row.unwrap()["available"], false);
    let found = world.run("--json doctor").json();
    let capabilities = found["capabilities"].as_array().unwrap();
    let row = capabilities
        .iter()
        .find(|row| row["name"] == "bwrap")
        .unwrap();
    assert_eq!(row["works"], false);
    assert!(row["advice"].as_str().unwrap().contains("bubblewrap"));
    // A runtime that is not there fails no matrix.
    let suite = crate::matrix::some_rows(&world, &["environment"]);
    let ran = world
        .run(&format!("matrix --strict --suite {suite}"))
        .ended(0);
    assert!(
        ran.err.contains("not measured: bwrap: runtime-missing"),
        "{}",
        ran.err
    );
    assert!(
        ran.out.contains("embedded") && !ran.out.contains("bwrap"),
        "{}",
        ran.out
    );
}

#[test]
fn bubblewrap_that_goes_between_doctor_and_exec_is_missed() {
    let world = with_bwrap!();
    let (world, bin) = first_in_path(world, true);
    install(&program("bwrap").unwrap(), &bin.join("bwrap"));
    let found = world.run("--json doctor").json();
    let capabilities = found["capabilities"].as_array().unwrap();
    let row = capabilities
        .iter()
        .find(|row| row["name"] == "bwrap")
        .unwrap();
    assert_eq!(row["works"], true, "{row}");
    world.exec("--runtime bwrap", &["/bin/true"]).ended(0);
    std::fs::remove_file(bin.join("bwrap")).unwrap();
    let ran = world.exec("--runtime bwrap", &["/bin/true"]).ended(126);
    assert!(ran.err.contains("runtime-missing"), "{}", ran.err);
}

#[test]
fn bubblewrap_that_goes_between_the_plan_and_its_start_is_missed() {
    let world = with_bwrap!();
    let (world, bin) = first_in_path(world, false);
    fake(&bin, "");
    let path = bin.join("bwrap");
    let text = std::fs::read_to_string(&path).unwrap();
    // The last that the plan asks of it is its help.
    let text = text.replace("#!/bin/sh\n", "#!/bin/sh\n[ $1 = --help ] && rm \"$0\"\n");
    install_script(&text.replace("\"$0\"", &path.display().to_string()), &path);
    let ran = world.exec("--runtime bwrap", &["true"]);
    // It is hashed after it was asked, so it is missed there.
    let ran = ran.ended(126);
    assert!(ran.err.contains("runtime-missing"), "{}", ran.err);
}

#[test]
fn what_bubblewrap_says_reaches_the_user_and_the_record() {
    let world = with_bwrap!();
    let (world, bin) = first_in_path(world, false);
    let words = "No permissions to creating new namespace";
    fake(&bin, &format!("echo 'bwrap: {words}' >&2; exit 1"));
    for (flags, code) in [("", 126), ("--best-effort", 125)] {
        let ran = world.exec(&format!("--runtime bwrap {flags}"), &["true"]);
        let ran = ran.ended(code);
        assert!(ran.err.contains(&format!("bwrap: {words}")), "{}", ran.err);
        let run = world.last();
        assert_eq!(run.execution.verdict.as_str(), "not-executed");
        assert_eq!(run.start.controls.declared, []);
        let reason = run.reason("filesystem").unwrap();
        assert_eq!(reason, format!("launcher-failed (bwrap: {words})"));
        let planned = world.run(&format!("plan --runtime bwrap {flags} -- true"));
        assert!(planned.ended(code).out.contains("launcher-failed"));
    }
    let found = world.run("--json doctor").json();
    let capabilities = found["capabilities"].as_array().unwrap();
    let row = capabilities
        .iter()
        .find(|row| row["name"] == "bwrap")
        .unwrap();
    assert_eq!(row["works"], false, "{row}");
    assert!(row["error"].as_str().unwrap().contains(words), "{row}");
}

#[test]
fn a_network_that_cannot_be_set_up_costs_the_network_alone() {
    let world = with_bwrap!();
    let words = "loopback: Failed RTM_NEWADDR: Operation not permitted";
    let world = refuses(world, "--unshare-net", &format!("bwrap: {words}"));
    let ran = world.exec("--runtime bwrap", &["true"]).ended(126);
    assert!(ran.err.contains(words), "{}", ran.err);
    let reason = format!("launcher-failed (bwrap: {words})");
    let run = world.last();
    assert_eq!(run.reason("network"), Some(reason.as_str()));
    assert_eq!(run.reason("filesystem"), Some("not-launched"));
    // Who takes less gets less, and the record says it.
    let ran = world
        .exec("--runtime bwrap --best-effort", &["true"])
        .ended(0);
    assert!(
        ran.err.contains("not in force: ") && ran.err.contains(words),
        "{}",
        ran.err
    );
    let run = world.last();
    assert_eq!(run.execution.verdict.as_str(), "controls-missing");
    assert!(!run.declares("network") && !run.declares("ipc"));
    assert!(run.declares("filesystem") && run.declares("process"));
    assert!(
        run.reason("network")
            .unwrap()
            .starts_with("namespace-refused")
    );
}

#[test]
fn nothing_of_a_run_outlives_it() {
    let world = with_bwrap!();
    let seconds = format!("{}", 70_000 + std::process::id());
    let is_there = || {
        let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = entries.map(|entry| std::fs::read(entry.path().join("cmdline")));
        lines.filter_map(Result::ok).any(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == seconds.as_bytes())
        })
    };
    // At the end of the main process, and at the deadline.
    let script = format!("setsid sleep {seconds} & sleep 0.2");
    world.sh("--runtime bwrap", &script, &[]).ended(0);
    assert!(!is_there());
    let script = format!("setsid sleep {seconds} & sleep {seconds}");
    let ran = world.sh("--runtime bwrap --timeout 500ms", &script, &[]);
    ran.ended(124);
    assert!(!is_there());
    // When the runner is killed, and when the process beside the sandbox is.
    for launcher in [false, true] {
        let mut runner = world
            .exec_command("--runtime bwrap", &["sh", "-c", &script])
            .spawn()
            .unwrap();
        until("the workload runs", is_there);
        if launcher {
            let children = format!("/proc/{0}/task/{0}/children", runner.id());
            let children = std::fs::read_to_string(children).unwrap();
            for child in children.split_whitespace() {
                let child = nix::unistd::Pid::from_raw(child.parse().unwrap());
                nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
            }
            runner.wait().unwrap();
            let result = world.last().execution.result;
            assert_eq!(result.outcome, Outcome::Interrupted);
        } else {
            runner.kill().unwrap();
            runner.wait().unwrap();
        }
        until("the workload is gone", || !is_there());
    }
}

/// Processes with this name below a process.
fn below(pid: u32, name: &str) -> Vec<i32> {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    let mut found = Vec::new();
    for child in children {
        let comm = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        if comm.trim() == name {
            found.push(i32::try_from(child).unwrap());
        }
        found.extend(below(child, name));
    }
    found
}

#[test]
fn the_end_of_bubblewrap_is_not_the_workloads() {
    let world = with_bwrap!();
    let mut runner = world
        .exec_command("-q --runtime bwrap", &["sh", "-c", "echo ready; sleep 600"])
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = runner.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let of_bubblewrap = below(runner.id(), "bwrap");
    let [outer, inner] = of_bubblewrap[..] else {
        panic!("{of_bubblewrap:?}");
    };
    // Where memory runs out, who is killed first: the workload, then what holds its files, then who says how it ended.
    let likely = |pid: i32| -> i32 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        text.trim().parse().unwrap()
    };
    let workload = below(runner.id(), "sh")[0];
    let order = [workload, inner, outer].map(likely);
    assert!(order[0] > order[1] && order[1] > order[2], "{order:?}");
    let outer = nix::unistd::Pid::from_raw(outer);
    nix::sys::signal::kill(outer, nix::sys::signal::Signal::SIGKILL).unwrap();
    let ran = Ran::of(runner.wait_with_output().unwrap()).ended(125);
    let why = "the sandbox was killed, and nobody saw how the workload ended";
    assert!(ran.err.contains(why), "{ran:#?}");
    let result = world.last().execution.result;
    assert_eq!(result.outcome, Outcome::Interrupted);
    assert_eq!((result.signal, result.exit_code), (None, None));

    // Nor is a status that it makes up.
    let (world, bin) = first_in_path(world, false);
    let real = program("bwrap").unwrap();
    for status in ["0", "3"] {
        fake(&bin, &format!("{} \"$@\"; exit {status}", real.display()));
        let ran = world.exec("--runtime bwrap", &["sh", "-c", "exit 7"]);
        ran.ended(125);
        let result = world.last().execution.result;
        assert_eq!(result.outcome, Outcome::Interrupted, "{status}");
    }
}

#[test]
fn bubblewrap_that_does_not_answer_is_as_good_as_none() {
    let world = with_bwrap!();
    let (world, bin) = first_in_path(world, false);
    let path = bin.join("bwrap");
    for (script, why) in [
        ("exec sleep 600", "no answer within 5 s"),
        ("exec cat /dev/zero", "an answer of more than"),
    ] {
        install_script(&format!("#!/bin/sh\n{script}\n"), &path);
        let ran = world.exec("--runtime bwrap", &["/bin/true"]).ended(126);
        assert!(ran.err.contains("runtime-missing"), "{}", ran.err);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
}

#[test]
fn a_program_that_is_another_one_by_now_is_not_recorded_as_the_one_that_was_hashed() {
    let world = with_bwrap!();
    let (world, bin) = first_in_path(world, false);
    fake(&bin, "echo '# more' >>\"$0\"");
    // Where it runs as the workload's id it must be able to.
    std::fs::set_permissions(bin.join("bwrap"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let ran = world.exec("--runtime bwrap", &["/bin/true"]).ended(125);
    assert!(
        ran.err.contains("changed while it was started"),
        "{}",
        ran.err
    );
    let run = world.last();
    assert_eq!(run.execution.result.outcome, Outcome::NotExecuted);
    assert_eq!(run.start.controls.declared, []);
}

/// A bubblewrap whose first process goes into namespaces of its own when the gate's process is made already.
const DECOY: &str = r##"#!/usr/bin/python3
import ctypes, os, sys, time
words = sys.argv[1:]
if words[0] in ("--version", "--help"):
    os.execv(REAL, ["bwrap"] + words)
libc = ctypes.CDLL(None, use_errno=True)
filters = []
for at, word in enumerate(words):
    if word == "--add-seccomp-fd":
        with os.fdopen(os.dup(int(words[at + 1])), "rb") as file:
            filters.append(file.read())
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("text", ctypes.c_void_p)]
def under_filters():
    libc.prctl(38, 1, 0, 0, 0)
    for text in filters:
        buffer = ctypes.create_string_buffer(text)
        program = Program(len(text) // 8, ctypes.cast(buffer, ctypes.c_void_p))
        libc.prctl(22, 2, ctypes.byref(program), 0, 0)
def number(option):
    return int(words[words.index(option) + 1])
def unshare(flags):
    if libc.unshare(flags):
        sys.exit(f"bwrap: unshare: errno {ctypes.get_errno()}")
payload = words[words.index("--") + 1:]
uid, gid = os.getuid(), os.getgid()
unshare(0x30000000)  # user, pid
for name, text in ("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1"):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
stands, say_stands = os.pipe()
first = os.fork()
if first == 0:
    os.setsid()
    may_go, let_go = os.pipe()
    if os.fork() == 0:
        os.read(may_go, 1)
        under_filters()
        os.execv(payload[0], payload)
    unshare(0x4E020000)  # net, ipc, uts, cgroup, mnt
    os.write(say_stands, b"x")
    os.read(number("--block-fd"), 1)
    os.write(let_go, b"x")
    time.sleep(0.2)  # bubblewrap's own, too, comes to its filters when the gate may run already
    under_filters()
    os.wait()
    os._exit(0)
os.read(stands, 1)
os.write(number("--json-status-fd"), b'{"child-pid": %d}' % first)
os.waitpid(first, 0)
"##;

#[test]
fn namespaces_that_only_the_first_process_has_are_nobodys() {
    const TEST: &str = "namespaces_that_only_the_first_process_has_are_nobodys";
    let world = with_bwrap!();
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip(TEST, "no /usr/bin/python3");
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let real = program("bwrap").unwrap();
    let (world, bin) = first_in_path(world, false);
    let path = bin.join("bwrap");
    install_script(&DECOY.replace("REAL", &format!("{real:?}")), &path);
    let script = format!(": </dev/tcp/127.0.0.1/{port} && echo connected");
    let ran = world.exec("--runtime bwrap", &["bash", "-c", &script]);
    assert_eq!(ran.ended(126).out, "");
    let reason = world.last().reason("network").unwrap().to_owned();
    assert!(reason.contains("(ns/net)"), "{reason}");
    // It does reach the host when it may run.
    let ran = world.exec("--runtime bwrap --best-effort", &["bash", "-c", &script]);
    let run = world.last();
    for control in ["network", "filesystem", "ipc", "devices"] {
        assert!(!run.declares(control), "{control}: {ran:#?}");
    }
    assert_eq!(ran.out, "connected\n", "{ran:#?}");
}
