//! Readers that do not read: of the output, of the runner's own lines, of its events.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Watched, outcome, sh_command, unheard};
use crate::world::{World, ready, until};

/// Writes until a pipe takes no more; how much went in.
fn fill(pipe: impl AsFd) -> usize {
    let flags = OFlag::from_bits_retain(fcntl(&pipe, FcntlArg::F_GETFL).unwrap());
    fcntl(&pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    let mut filled = 0;
    // The last room is smaller than a piece.
    for piece in [&[b'#'; 4096][..], b"#"] {
        while let Ok(count) = nix::unistd::write(&pipe, piece) {
            filled += count;
        }
    }
    fcntl(&pipe, FcntlArg::F_SETFL(flags)).unwrap();
    assert!(filled > 0);
    filled
}

/// A pipe that is full, and that nobody reads as long as its other end is kept.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    fill(&write);
    (read, write)
}

/// A named pipe that somebody has open and does not read.
fn unread_fifo(world: &World) -> (PathBuf, File) {
    let path = world.path("events");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    if crate::world::is_root() {
        // Another owner: the runner cannot do without the caller's rights here either.
        std::os::unix::fs::chown(&path, Some(61_234), None).unwrap();
    }
    let open = File::options().read(true).write(true).open(&path).unwrap();
    (path, open)
}

#[test]
fn full_streams_do_not_hold_up_the_deadline() {
    let _ = ready!();
    // The second one may not open the caller's pipes anew.
    let user = World::of_user("hostile::readers::full_streams", &[]);
    for world in [Some(World::new()), user].into_iter().flatten() {
        for (script, code, how) in [
            ("sleep 600", 124, "timeout"),
            ("yes & yes >&2", 124, "timeout"),
            ("yes | head -c 200000; echo err >&2; exit 4", 4, "exited 4"),
        ] {
            let ((unread_out, out), (unread_err, err)) = (full_pipe(), full_pipe());
            // Not quiet: the runner has something to say, before the run and after it.
            let mut command = sh_command(&world, "--timeout 1s", script, &[]);
            command.stdout(Stdio::from(out)).stderr(Stdio::from(err));
            let code_seen = Watched::start(&mut command).wait();
            drop((unread_out, unread_err));
            assert_eq!(code_seen, Some(code), "{script}");
            assert_eq!(outcome(&world).1, how);
        }
        let output = outcome(&world).0.stdout.unwrap();
        assert_eq!(output.bytes.value(), 200_000);
    }
}

#[test]
fn a_terminal_of_its_own_does_not_hold_up_the_deadline() {
    let world = ready!();
    for script in [
        "trap '' HUP INT TERM; stty raw -echo; while :; do yes; done",
        "exec <&- >&- 2>&-; sleep 600",
        "stty -isig stop undef; kill -STOP 0",
        "(setsid sh -c 'exec 3<>/dev/pts/0; yes >&3' &); exec >&- 2>&-; sleep 600",
    ] {
        let mut command = sh_command(&world, "-q -t --timeout 1s", script, &[]);
        assert_eq!(
            Watched::start(unheard(&mut command)).wait(),
            Some(124),
            "{script}"
        );
        assert_eq!(outcome(&world).1, "timeout");
    }
    // What is printed after all of them were closed is seen, too.
    let script =
        "exec <&- >&- 2>&-; sleep 0.2; echo again >/dev/tty; sleep 0.2; echo last >/dev/tty";
    let ran = Watched::start(&mut sh_command(&world, "-q -t", script, &[]))
        .finish()
        .ended(0);
    assert_eq!(ran.out, "again\r\nlast\r\n");
    assert_eq!(outcome(&world).0.stdout.unwrap().bytes.value(), 13);
    // Nor does one whose screen nobody reads.
    let (unread, out) = full_pipe();
    let mut command = sh_command(&world, "-q -t --timeout 1s", "yes", &[]);
    assert_eq!(
        Watched::start(command.stdout(Stdio::from(out))).wait(),
        Some(124)
    );
    drop(unread);
    assert_eq!(outcome(&world).1, "timeout");
}

#[test]
fn full_events_do_not_hold_up_the_deadline() {
    let world = ready!();
    let (path, mut fifo) = unread_fifo(&world);
    fill(&fifo);
    let flags = format!("--timeout 1s --events {}", path.display());
    for (script, code) in [("sleep 600", 124), ("exit 3", 3)] {
        let ran = Watched::start(&mut sh_command(&world, &flags, script, &[])).finish();
        let ran = ran.ended(code);
        assert_eq!(
            ran.err.matches("cannot write events").count(),
            1,
            "{ran:#?}"
        );
    }
    assert_eq!(outcome(&world).1, "exited 3");
    // Nothing is left of a line, let alone half of one.
    fcntl(&fifo, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut seen = Vec::new();
    let error = fifo.read_to_end(&mut seen).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(seen.iter().all(|byte| *byte == b'#'));
}

#[test]
fn events_that_are_read_late_are_whole() {
    let world = ready!();
    let (path, mut fifo) = unread_fifo(&world);
    let flags = format!("-q --events {}", path.display());
    Watched::start(&mut sh_command(&world, &flags, "exit 3", &[]))
        .finish()
        .ended(3);
    fcntl(&fifo, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut seen = Vec::new();
    fifo.read_to_end(&mut seen).unwrap_err();
    let lines: Vec<serde_json::Value> = seen
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.first().unwrap()["event"], "started");
    assert_eq!(lines.last().unwrap()["exitCode"], 3);
}

/// Without a deadline in sight, too, whoever presses Ctrl-C often enough has an end.
#[test]
fn interrupts_end_a_run_that_nobody_reads() {
    let world = ready!();
    for script in [
        "sleep 600",
        "trap '' INT TERM; while :; do sleep 1; done",
        "yes",
    ] {
        let _again = std::fs::remove_file(world.path("events"));
        let ((unread_out, out), (unread_err, err)) = (full_pipe(), full_pipe());
        let (path, fifo) = unread_fifo(&world);
        fill(&fifo);
        let flags = format!("--events {}", path.display());
        let mut command = sh_command(&world, &flags, script, &[]);
        command.stdout(Stdio::from(out)).stderr(Stdio::from(err));
        let before = if world.ledger().is_dir() {
            world.evidence().runs().len()
        } else {
            0
        };
        let mut run = Watched::start(&mut command);
        let pid = Pid::from_raw(run.child.id().try_into().unwrap());
        // It has begun: the start record stands, and signals are the workload's.
        until("the run has begun", || {
            let runs = std::fs::read_dir(world.ledger().join("runs"));
            let open = runs.map_or(0, |entries| entries.count());
            open > 0
                && world
                    .evidence()
                    .records
                    .iter()
                    .filter(|(record, _)| record.body.kind() == "start")
                    .count()
                    > before
        });
        until("it has ended", || {
            let ended = run.child.try_wait().unwrap().is_some();
            if !ended {
                kill(pid, Signal::SIGINT).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            ended
        });
        drop((unread_out, unread_err));
        // The record stands, now or when the next run finds that this one is dead.
        crate::world::Ran::of(world.exec_command("-q", &["true"]).output().unwrap()).ended(0);
        let runs = world.evidence().runs();
        assert_eq!(runs.len(), before + 2, "{script}");
    }
}

#[test]
fn a_reader_that_is_gone_costs_nothing() {
    let world = ready!();
    let (path, fifo) = unread_fifo(&world);
    let flags = format!("--events {}", path.display());
    let script = "echo ready; read line; yes | head -c 300000; exit 4";
    let mut command = sh_command(&world, &flags, script, &[]);
    let mut run = Watched::start(command.stdin(Stdio::piped()));
    let mut out = run.child.stdout.take().unwrap();
    out.read_exact(&mut [0; 6]).unwrap();
    drop((out, fifo, run.child.stderr.take()));
    run.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(run.wait(), Some(4));
    let (run, how) = outcome(&world);
    assert_eq!(
        (how.as_str(), run.stdout.unwrap().bytes.value()),
        ("exited 4", 300_006)
    );
}
