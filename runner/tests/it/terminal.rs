//! The workload's terminal is its own: SANDBOX.md §3. The caller's is played by a pseudo-terminal of the test.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::signals::assert_killed_by;
use crate::world::{Ran, ready, runtimes, sandboxes, until};

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

    fn modes(&self) -> Termios {
        tcgetattr(&self.terminal.slave).unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits until the runner has stopped itself.
    fn stops(&self) {
        let stopped = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        let how = waitid(Id::Pid(self.pid()), stopped).unwrap();
        assert!(matches!(how, WaitStatus::Stopped(..)), "{how:?}");
    }

    fn ends(mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        drop(self.terminal.slave);
        status.code()
    }
}

#[test]
fn a_workload_gets_a_terminal_of_its_own_with_the_callers_size() {
    let script = "test -t 0 && test -t 1 && test -t 2 && tty; stty size; : </dev/tty && echo controlling; echo typed?; read line; echo \"got <$line>\"; exit 6";
    for (runtime, flags) in runtimes("a_workload_gets_a_terminal_of_its_own") {
        let world = ready!();
        let flags = format!("{flags} -t -q");
        let mut caller = Caller::start(world.exec_command(&flags, &["sh", "-c", script]));
        if runtime == "embedded" {
            caller.sees("/dev/pts/0");
        }
        caller.sees("31 97");
        caller.sees("controlling");
        caller.sees("typed?");
        caller.types("some words\n");
        caller.sees("got <some words>");
        assert_eq!(caller.ends(), Some(6), "{runtime}");
        let run = world.last();
        assert!(run.declares("terminal") || runtime == "unshare");
        // Both streams are one.
        assert!(run.stdout.unwrap().bytes.value() > 0);
        assert!(run.stderr.is_none());
    }
}

/// What keys send, by name and by the key.
const KEYS: [(&str, &str); 3] = [("INT", "\x03"), ("QUIT", "\x1c"), ("TSTP", "\x1a")];

#[test]
fn keys_reach_the_workload_and_not_the_runner_nor_what_isolates() {
    let traps: Vec<String> = KEYS
        .iter()
        .map(|(name, _)| format!("trap 'echo got {name}' {name}; "))
        .collect();
    let script = format!(
        "{}trap 'exit 9' USR1; echo ready; while :; do sleep 0.1; done",
        traps.concat()
    );
    for (runtime, flags) in runtimes("keys_reach_the_workload") {
        let world = ready!();
        let flags = format!("{flags} -t -q");
        let mut caller = Caller::start(world.exec_command(&flags, &["sh", "-c", &script]));
        caller.sees("ready");
        // Each twice in a row: there is no count for what is typed.
        for (name, key) in KEYS {
            for _ in 0..2 {
                caller.types(key);
                caller.sees(&format!("got {name}"));
            }
        }
        caller.signal(Signal::SIGUSR1);
        assert_eq!(caller.ends(), Some(9), "{runtime}");
        assert_eq!(world.last().execution.result.exit_code, Some(9));
    }
}

#[test]
fn a_key_that_nobody_handles_ends_the_workload_or_does_nothing() {
    for (runtime, flags) in sandboxes("a_key_that_nobody_handles") {
        let world = ready!();
        let flags = format!("{flags} -t -q");
        for (key, number) in [("\x03", 2), ("\x1c", 3)] {
            let wait = ["sh", "-c", "echo ready; exec sleep 600"];
            let mut caller = Caller::start(world.exec_command(&flags, &wait));
            caller.sees("ready");
            caller.types(key);
            // The second one finds nobody.
            caller.types(key);
            assert_eq!(caller.ends(), Some(128 + i32::from(number)), "{runtime}");
            assert_killed_by(&world, runtime, number);
        }
        // Nobody would continue what was stopped, so the kernel stops nothing here (setpgid(2), orphaned process groups).
        let script = "echo ready; read line; echo \"got <$line>\"; exit 6";
        let mut caller = Caller::start(world.exec_command(&flags, &["sh", "-c", script]));
        caller.sees("ready");
        caller.types("\x1a");
        caller.types("went on\n");
        caller.sees("got <went on>");
        assert_eq!(caller.ends(), Some(6), "{runtime}");
    }
}

/// Before "go" a signal is kept, and what is typed waits: the process that is to become the workload gets neither.
#[test]
fn a_key_before_the_workload_runs_is_the_workloads() {
    let script = ["sh", "-c", "exec sleep 600"];
    for (runtime, flags) in sandboxes("a_key_before_the_workload_runs") {
        let flags = format!("{flags} -t -q");
        for point in ["after start record", "before go"] {
            let world = ready!();
            let mut command = world.exec_command(&flags, &script);
            command.env("RUNNER_KILL", format!("{point}=STOP"));
            let mut caller = Caller::start(command);
            caller.stops();
            if caller.modes().local_flags.contains(LocalFlags::ISIG) {
                // As the terminal does it, whose key is a signal to the runner still.
                caller.signal(Signal::SIGINT);
            } else {
                caller.types("\x03");
            }
            caller.signal(Signal::SIGCONT);
            assert_eq!(caller.ends(), Some(128 + 2), "{runtime}, {point}");
            assert_killed_by(&world, runtime, 2);
        }
    }
}

/// What somebody on the way blocks or ignores is not the workload's to inherit.
#[test]
fn the_workload_begins_with_no_signal_blocked_or_ignored() {
    let wanted = ["grep", "-E", "^(Sig|Shd)(Pnd|Blk|Ign)", "/proc/self/status"];
    let world = ready!();
    for (runtime, flags) in runtimes("the_workload_begins_with_no_signal_blocked") {
        for more in ["-q", "-q -t"] {
            let mut command = world.exec_command(&format!("{flags} {more}"), &wanted);
            deaf(&mut command);
            let ran = Ran::of(command.output().unwrap()).ended(0);
            let sets: Vec<&str> = ran.out.lines().collect();
            assert_eq!(sets.len(), 4, "{}", ran.out);
            for set in sets {
                assert!(
                    set.ends_with("\t0000000000000000"),
                    "{runtime} {more}: {}",
                    ran.out
                );
            }
        }
    }
}

/// Has a program start with the keys' signals ignored and blocked.
#[allow(unsafe_code, reason = "signals are set between fork and exec")]
fn deaf(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: signal and sigprocmask are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            let mut all = SigSet::empty();
            for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP] {
                libc::signal(signal as libc::c_int, libc::SIG_IGN);
                all.add(signal);
            }
            Ok(all.thread_block()?)
        });
    }
}

#[test]
fn the_size_follows_and_the_callers_terminal_is_given_back() {
    let world = ready!();
    let script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done";
    let mut caller = Caller::start(world.exec_command("-t -q", &["sh", "-c", script]));
    caller.sees("ready");
    assert!(
        !caller.modes().local_flags.contains(LocalFlags::ICANON),
        "the relay is raw"
    );
    set_size(&caller, 44, 133);
    caller.signal(Signal::SIGWINCH);
    caller.sees("44 133");
    caller.child.wait().unwrap();
    assert!(
        caller
            .modes()
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
        world.last().stdout.unwrap().text.as_deref(),
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
    let text = world.last().stdout.unwrap().text.unwrap();
    assert!(!text.contains("terminal"), "{text}");
}

#[test]
fn a_terminal_needs_no_terminal_outside() {
    let world = ready!();
    let ran = world.sh("-t -q", "test -t 1 && echo on a terminal", &[]);
    assert_eq!(ran.ended(0).out, "on a terminal\r\n");
    until("the record is there", || world.evidence().runs().len() == 1);
}
