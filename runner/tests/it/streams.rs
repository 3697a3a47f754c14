//! Output, live and capped, and input: DESIGN.md §4.1, §6.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use ledger::bytes::hash::Hash;

use crate::faults::with_planted;
use crate::probe::inside;
use crate::world::{Ran, ready, until};

#[test]
fn output_is_passed_on_while_the_workload_runs() {
    let world = ready!();
    let folder = world.folder("out");
    let script =
        r#"echo first; echo other >&2; until [ -e "$1/go" ]; do sleep 0.01; done; echo second"#;
    let flags = format!("-q --write {}", folder.display());
    let workload = ["sh", "-c", script, "sh", folder.to_str().unwrap()];
    let mut child = world.exec_command(&flags, &workload).spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (mut first, mut other) = ([0; 6], [0; 6]);
    out.read_exact(&mut first).unwrap();
    err.read_exact(&mut other).unwrap();
    assert_eq!((&first, &other), (b"first\n", b"other\n"));
    // It could not have been said had the runner waited for the end.
    std::fs::write(folder.join("go"), "").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\n");
    assert!(child.wait().unwrap().success());
    let stdout = world.last().stdout.unwrap();
    assert_eq!(stdout.text.as_deref(), Some("first\nsecond\n"));
}

#[test]
fn output_past_the_cap_is_cut_and_said_once() {
    let world = ready!();
    let policy = world.policy(|policy| policy["resources"]["outputBytes"] = 8192.into());
    let script = "yes 0123456 | head -c 100000; echo done >&2; exit 3";
    let ran = world
        .sh(&format!("-q -P {}", policy.display()), script, &[])
        .ended(3);
    assert_eq!(ran.bytes.len(), 8192);
    assert_eq!(ran.err.matches("past its cap").count(), 1, "{}", ran.err);
    let all: Vec<u8> = b"0123456\n".iter().copied().cycle().take(100_000).collect();
    assert_eq!(ran.bytes, all[..8192]);
    let run = world.last();
    let stdout = run.stdout.as_ref().unwrap();
    assert_eq!((stdout.bytes.value(), stdout.kept.value()), (100_000, 8192));
    assert_eq!(stdout.sha256, Hash::of(&all));
    let blob = stdout.blob.unwrap().to_string();
    let path = world
        .ledger()
        .join("blobs")
        .join(&blob[..2])
        .join(&blob[2..]);
    assert_eq!(std::fs::read(path).unwrap(), all[..8192]);
    assert_eq!(run.stderr.as_ref().unwrap().text.as_deref(), Some("done\n"));
    assert!(run.declares("output"));
}

#[test]
fn bytes_that_are_no_text_come_through() {
    let world = ready!();
    let ran = world
        .sh(
            "",
            r"printf '\000\377\200x\n'; printf 'tab\there\n' >&2",
            &[],
        )
        .ended(0);
    assert_eq!(ran.bytes, b"\0\xff\x80x\n");
    let run = world.last();
    let stdout = run.stdout.unwrap();
    assert_eq!(
        (stdout.text, stdout.base64.as_deref()),
        (None, Some("AP+AeAo="))
    );
    assert_eq!(stdout.sha256, Hash::of(b"\0\xff\x80x\n"));
    assert_eq!(run.stderr.unwrap().text.as_deref(), Some("tab\there\n"));
    // Nothing is a fact, too.
    world.exec("", &["true"]).ended(0);
    let stdout = world.last().stdout.unwrap();
    assert_eq!((stdout.bytes.value(), stdout.sha256), (0, Hash::of(b"")));
}

#[test]
fn a_closed_output_costs_nothing_but_itself() {
    let world = ready!();
    let workload = ["sh", "-c", "yes | head -c 300000; exit 4"];
    let mut command = world.exec_command("", &workload);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(4), "{ran:#?}");
    assert_eq!(world.last().stdout.unwrap().bytes.value(), 300_000);
    // Closed from the beginning.
    let mut command = world.command(["-q"]);
    command
        .args(["exec", "--", "sh", "-c", "echo x; exit 4"])
        .stdout(Stdio::null());
    assert_eq!(command.status().unwrap().code(), Some(4));
}

#[test]
fn an_output_that_nobody_reads_does_not_hold_up_the_deadline() {
    let world = ready!();
    let workload = ["sh", "-c", "yes"];
    let mut child = world
        .exec_command("-q --timeout 1s", &workload)
        .spawn()
        .unwrap();
    let unread = child.stdout.take().unwrap();
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(124));
    drop(unread);
    assert_eq!(world.last().execution.verdict.as_str(), "timeout");
}

#[test]
fn a_terminal_that_nobody_reads_does_not_hold_up_the_deadline() {
    let world = ready!();
    let terminal = nix::pty::openpty(None, None).unwrap();
    let mut command = world.exec_command("-q --timeout 1s", &["yes"]);
    command.stdout(Stdio::from(terminal.slave.try_clone().unwrap()));
    assert_eq!(command.status().unwrap().code(), Some(124));
    assert_eq!(world.last().execution.verdict.as_str(), "timeout");
    // The caller's own flags are as they were.
    let flags = nix::fcntl::fcntl(&terminal.slave, nix::fcntl::FcntlArg::F_GETFL).unwrap();
    assert!(!nix::fcntl::OFlag::from_bits_retain(flags).contains(nix::fcntl::OFlag::O_NONBLOCK));
}

#[test]
fn the_record_does_not_wait_for_a_reader_and_a_signal_ends_the_waiting() {
    let world = ready!();
    let workload = ["sh", "-c", "head -c 220000 /dev/zero; exit 5"];
    let mut child = world.exec_command("-q", &workload).spawn().unwrap();
    let mut unread = child.stdout.take().unwrap();
    until("the execution record is there", || {
        world.ledger().is_dir() && world.evidence().runs().len() == 1
    });
    assert_eq!(world.last().stdout.unwrap().bytes.value(), 220_000);
    assert!(child.try_wait().unwrap().is_none(), "nothing was read yet");
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let mut rest = Vec::new();
    unread.read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 220_000);

    // A reader that comes late gets everything.
    let mut child = world.exec_command("-q", &workload).spawn().unwrap();
    until("the execution record is there", || {
        world.evidence().runs().len() == 2
    });
    let mut all = Vec::new();
    let mut late = child.stdout.take().unwrap();
    late.read_to_end(&mut all).unwrap();
    assert_eq!(
        (all.len(), child.wait().unwrap().code()),
        (220_000, Some(5))
    );
}

#[test]
fn a_file_as_input_is_no_way_to_write_it() {
    let world = ready!();
    let content = "x".repeat(1_000_000);
    let file = world.file("input", &content);
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&file, everyone).unwrap();
    let with_file = |script: &str| {
        let mut command = world.exec_command("-q", &["sh", "-c", script]);
        command.stdin(File::options().read(true).write(true).open(&file).unwrap());
        Ran::of(command.output().unwrap())
    };
    with_file("echo CHANGED >/proc/self/fd/0; echo CHANGED >&0; : >/dev/stdin");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    // All of it comes through, also to one who takes it late, or by name.
    assert_eq!(with_file("sleep 1; wc -c").ended(0).out.trim(), "1000000");
    assert_eq!(
        with_file("wc -c /dev/stdin").ended(0).out,
        "1000000 /dev/stdin\n"
    );
    // Who does not want it does not fail.
    assert_eq!(with_file("head -c 3; exec <&-; exit 4").ended(4).out, "xxx");
}

#[test]
fn a_named_pipe_as_input_is_no_way_to_write_it() {
    let world = ready!();
    let path = world.path("pipe");
    let all = nix::sys::stat::Mode::from_bits_truncate(0o666);
    nix::unistd::mkfifo(&path, all).unwrap();
    let mut both = File::options().read(true).write(true).open(&path).unwrap();
    both.write_all(b"in\n").unwrap();
    let script = "read line; echo \"got $line\"; echo CHANGED >/proc/self/fd/0; exit 0";
    let mut command = world.exec_command("-q", &["sh", "-c", script]);
    command.stdin(both.try_clone().unwrap());
    assert_eq!(Ran::of(command.output().unwrap()).ended(0).out, "got in\n");
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&both, nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
    let error = both.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn own_streams_can_be_opened_by_name() {
    let world = ready!();
    let script = "echo out >/dev/stdout; echo err >/dev/stderr";
    let ran = world.sh("-q", script, &[]).ended(0);
    assert_eq!(
        (ran.out.as_str(), ran.err.contains("err\n")),
        ("out\n", true)
    );
}

#[test]
fn events_to_a_number_are_for_a_descriptor() {
    let world = ready!();
    for number in ["5000000000", "77", "99999999999999999999"] {
        let ran = world
            .exec(&format!("--events {number}"), &["true"])
            .ended(125);
        assert!(ran.err.contains(number), "{}", ran.err);
        assert!(!world.path("home/work").join(number).exists());
    }
}

#[test]
fn pipes_and_files_pass_and_nothing_is_dev_null() {
    let world = ready!();
    let mut command = world.exec_command("-q", &["wc", "-c"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&[b'x'; 200_000]).unwrap());
    let ran = Ran::of(child.wait_with_output().unwrap()).ended(0);
    writer.join().unwrap();
    assert_eq!(ran.out.trim(), "200000");

    let file = world.file("input", "from a file\n");
    let mut command = world.exec_command("-q", &["cat"]);
    command.stdin(File::open(file).unwrap());
    assert_eq!(
        Ran::of(command.output().unwrap()).ended(0).out,
        "from a file\n"
    );

    assert_eq!(
        world
            .sh("-q", "readlink /proc/self/fd/0; cat", &[])
            .ended(0)
            .out,
        "/dev/null\n"
    );
}

#[test]
fn a_folder_as_input_is_no_way_out() {
    let world = ready!();
    world.file("home/canary", "SEEN");
    let script = "cat /proc/self/fd/0/canary /dev/stdin/canary; ls -A /proc/self/fd/0/; readlink /proc/self/fd/0";
    let mut command = world.exec_command("", &["sh", "-c", script]);
    command.stdin(File::open(world.path("home")).unwrap());
    let ran = Ran::of(command.output().unwrap());
    assert!(
        !ran.out.contains("SEEN") && !ran.out.contains("canary\n"),
        "{ran:#?}"
    );
    assert!(ran.out.contains("/dev/null"), "{ran:#?}");
}

#[test]
fn descriptors_of_the_caller_are_not_inherited() {
    let world = ready!();
    let mut command = world.exec_command(
        "",
        &[
            "sh",
            "-c",
            "ls /proc/self/fd | sort -n | tr '\\n' ' '; cat <&7",
        ],
    );
    with_planted(&mut command);
    let ran = Ran::of(command.output().unwrap());
    // 3 is the listing's own.
    assert_eq!(ran.out, "0 1 2 3 ", "{ran:#?}");
    assert_ne!(ran.code, Some(0));
    assert!(world.last().declares("descriptors"));
    let answers = inside(&world, "", &["descriptors"]);
    assert_eq!(answers["descriptors"], "0,1,2");
}

#[test]
fn events_are_json_lines_on_a_file() {
    let world = ready!();
    let file = world.path("events");
    world
        .sh(&format!("--events {}", file.display()), "exit 124", &[])
        .ended(124);
    until("both events are there", || {
        std::fs::read_to_string(&file).unwrap().lines().count() >= 2
    });
    let text = std::fs::read_to_string(&file).unwrap();
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.first().unwrap()["event"], "started");
    let ended = events.last().unwrap();
    assert_eq!(ended["event"], "ended");
    // What the status alone does not tell: this was no timeout.
    assert_eq!(
        (&ended["outcome"], &ended["exitCode"]),
        (&"exited".into(), &124.into())
    );
}
