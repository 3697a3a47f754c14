//! The workload's terminal is its own: SANDBOX.md §3. The caller's is played by a pseudo-terminal of the test.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;

use crate::evidence::Run;
use crate::world::{World, ready, until};

/// A caller at a terminal.
struct Caller {
    child: Child,
    keyboard: File,
    terminal: OpenptyResult,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

const SIZE: Winsize = Winsize {
    ws_row: 31,
    ws_col: 97,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

impl Caller {
    fn start(mut command: Command) -> Self {
        let terminal = openpty(&SIZE, None).unwrap();
        let end = || Stdio::from(terminal.slave.try_clone().unwrap());
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut master = File::from(terminal.master.try_clone().unwrap());
        let keyboard = master.try_clone().unwrap();
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = master.read(&mut buffer) {
                if count == 0 || send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            keyboard,
            terminal,
            screen,
            seen: String::new(),
        }
    }

    /// Waits until the screen shows a text.
    fn sees(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let more = self.screen.recv_timeout(Duration::from_secs(60));
            let more = more.unwrap_or_else(|_| panic!("no {text:?} on the screen: {}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
        let at = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..at);
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    fn ends(mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        drop(self.terminal.slave);
        status.code()
    }
}

fn last(world: &World) -> Run {
    world.last()
}

#[test]
fn a_workload_gets_a_terminal_of_its_own_with_the_callers_size() {
    let world = ready!();
    let script = "test -t 0 && test -t 1 && test -t 2 && tty; stty size; : </dev/tty && echo controlling; echo typed?; read line; echo \"got <$line>\"; exit 6";
    let mut caller = Caller::start(world.exec_command("-t -q", &["sh", "-c", script]));
    caller.sees("/dev/pts/0");
    caller.sees("31 97");
    caller.sees("controlling");
    caller.sees("typed?");
    caller.types("some words\n");
    caller.sees("got <some words>");
    assert_eq!(caller.ends(), Some(6));
    let run = last(&world);
    assert!(run.declares("terminal"));
    // Both streams are one.
    assert!(run.stdout.unwrap().bytes.value() > 0);
    assert!(run.stderr.is_none());
}

#[test]
fn keys_reach_the_workload_and_not_the_runner() {
    let world = ready!();
    let script = "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.1; done";
    let mut caller = Caller::start(world.exec_command("-t -q", &["sh", "-c", script]));
    caller.sees("ready");
    caller.types("\x03");
    caller.sees("interrupted");
    assert_eq!(caller.ends(), Some(9));
    assert_eq!(last(&world).execution.result.exit_code, Some(9));
}

#[test]
fn the_size_follows_and_the_callers_terminal_is_given_back() {
    let world = ready!();
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done";
    let mut caller = Caller::start(world.exec_command("-t -q", &["sh", "-c", script]));
    let modes = |caller: &Caller| tcgetattr(&caller.terminal.slave).unwrap();
    caller.sees("ready");
    assert!(
        !modes(&caller).local_flags.contains(LocalFlags::ICANON),
        "the relay is raw"
    );
    set_size(&caller, 44, 133);
    let pid = Pid::from_raw(caller.child.id().try_into().unwrap());
    kill(pid, Signal::SIGWINCH).unwrap();
    caller.sees("44 133");
    caller.child.wait().unwrap();
    assert!(
        modes(&caller)
            .local_flags
            .contains(LocalFlags::ICANON | LocalFlags::ECHO)
    );
    assert_eq!(caller.ends(), Some(0));
}

#[allow(unsafe_code, reason = "nix has no TIOCSWINSZ")]
fn set_size(caller: &Caller, rows: u16, columns: u16) {
    use std::os::fd::AsRawFd as _;
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ..SIZE
    };
    // SAFETY: the descriptor is open and size outlives the call.
    let set = unsafe {
        libc::ioctl(
            caller.keyboard.as_raw_fd(),
            libc::TIOCSWINSZ,
            &raw const size,
        )
    };
    assert_eq!(set, 0);
}

#[test]
fn without_a_flag_a_terminal_never_becomes_the_workloads() {
    let world = ready!();
    let script = "readlink /proc/self/fd/0; for fd in 0 1 2; do test -t $fd && echo terminal $fd; done; (: </dev/tty) 2>/dev/null && echo controlling; echo end";
    let mut caller = Caller::start(world.exec_command("-q", &["sh", "-c", script]));
    caller.sees("/dev/null\r\nend\r\n");
    assert_eq!(caller.ends(), Some(0));
    assert_eq!(
        last(&world).stdout.unwrap().text.as_deref(),
        Some("/dev/null\nend\n")
    );
}

#[test]
fn interactive_input_is_relayed_and_is_no_terminal() {
    let world = ready!();
    let script = "test -t 0 && echo terminal; echo ready; read line; echo \"got <$line>\"";
    let mut caller = Caller::start(world.exec_command("-i -q", &["sh", "-c", script]));
    caller.sees("ready");
    caller.types("words\n");
    caller.sees("got <words>");
    assert_eq!(caller.ends(), Some(0));
    let text = last(&world).stdout.unwrap().text.unwrap();
    assert!(!text.contains("terminal"), "{text}");
}

#[test]
fn a_terminal_needs_no_terminal_outside() {
    let world = ready!();
    let ran = world.sh("-t -q", "test -t 1 && echo on a terminal", &[]);
    assert_eq!(ran.ended(0).out, "on a terminal\r\n");
    until("the record is there", || world.evidence().runs().len() == 1);
}
