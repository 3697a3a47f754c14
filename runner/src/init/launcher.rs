//! A process beside the sandbox in place of pid 1: it starts a program of somebody else's that builds the sandbox, and does
//! for the runner what pid 1 does elsewhere, as far as that can be done from outside.
//!
//! The program executes the gate (`runner/gate/main.rs`) inside in place of the workload. What the runtime applies is applied by
//! then, so that it can be seen from outside before the start record; and neither the workload's arguments nor its environment
//! are given to the program, which reads variables of its own (`LD_PRELOAD`) out here.

mod gate;
mod handed;
mod inside;
mod stage;
mod words;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::Deserialize;

use super::patience::read_full;
use super::wire::{
    self, FromInit, LauncherReport, LauncherSpec, ProgramReport, ProgramSpec, Report, Spec, ToInit,
};
use super::workload::OOM_SCORE;
use super::{FAILED, OwnTerminal};
use crate::mechanism::{Failure, Outcomes};
use crate::sys::process::Ended;
use crate::sys::{fault, identity, process};
use handed::{Handed, Ours};

/// Longest description of what the program made, in bytes; a dozen numbers stay far below.
const MAX_STATUS: usize = 64 << 10;

/// Of the sandbox's first process: below [`OOM_SCORE`], above the program's own.
const FIRST_OOM_SCORE: &str = "250";

/// The program, and the sandbox that it builds.
struct Running {
    name: String,
    main: i32,
    first: Option<(i32, OwnedFd)>,
    gate: UnixStream,
    lock: File,
    /// Whether the gate is known to run.
    stands: bool,
    leaves_tree: bool,
    /// Whether it says by `status` what it made, and how the workload ended.
    says: bool,
    /// Kept open: the program writes to it at its end, too.
    status: OwnedFd,
    hold: Option<OwnedFd>,
    own_terminal: Option<OwnTerminal>,
    /// What was written to the standard error of a sandbox without a workload.
    words: Option<File>,
}

/// What the program says that it made.
#[derive(Debug, Deserialize)]
struct Made {
    #[serde(rename = "child-pid")]
    child_pid: i32,
}

/// What the program says at its end.
#[derive(Debug, Deserialize)]
struct End {
    #[serde(rename = "exit-code")]
    exit_code: Option<u8>,
}

/// Is the launcher of one sandbox until its end.
pub(super) fn serve(
    control: &UnixStream,
    spec: &Spec,
    launcher: &LauncherSpec,
    program: &ProgramSpec,
) -> i32 {
    let mut outcomes = Outcomes::default();
    let mut report = LauncherReport::default();
    // What a terminal or timeout(1) sends to the runner's group is for the runner to pass on.
    let own = Pid::from_raw(0);
    let leads = nix::unistd::getsid(None).is_ok_and(|session| session == Pid::this());
    if !leads && nix::unistd::setpgid(own, own).is_err() {
        return FAILED;
    }
    let started = start(control, spec, launcher, &mut report, &mut outcomes);
    report.fatal = started.as_ref().err().cloned();
    let said = wire::send(control, &report);
    let Ok(mut running) = started else {
        return FAILED;
    };
    // The runner looks at what was made.
    if said.is_err() || !matches!(wire::receive(control), Ok(ToInit::Build)) {
        running.end();
        return 0;
    }
    running.hold = None;
    let stands = running.look_inside(control, spec, program, &mut outcomes);
    let (found, fatal) = match stands {
        Ok(found) => (Some(found), None),
        Err(failure) => (None, Some(failure)),
    };
    let master = running.own_terminal.take().map(|own| own.master);
    let failed = fatal.is_some();
    let report = Report {
        outcomes,
        fatal,
        program: found.as_ref().map(|(report, _)| report.clone()),
        said: None,
        terminal: master.is_some() && !failed,
        listening: wire::Listening::NotAsked,
    };
    let mut said = wire::send(control, &report);
    if let (Ok(()), Some(master), false) = (&said, &master, failed) {
        said = wire::send_descriptor(control, master);
    }
    drop(master);
    let ready = match (said, found) {
        (Ok(()), Some((ProgramReport::Found { path, .. }, workload))) => Some((path, workload)),
        _ => None,
    };
    // The runner reads back from outside and appends the start record meanwhile.
    let told = wire::receive::<ToInit>(control);
    let (Some((path, workload)), Ok(ToInit::Go)) = (ready, told) else {
        running.end();
        return 0;
    };
    let started = gate::open(&running.gate, &running.lock, &path, program);
    let said = match started {
        Ok(()) => wire::send(control, &FromInit::Started),
        Err(gate::NotStarted::Errno(errno)) => wire::send(control, &FromInit::ExecFailed(errno)),
        Err(gate::NotStarted::Lost) => wire::send(control, &FromInit::NotStarted),
    };
    if said.is_err() || started.is_err() {
        running.end();
        return 0;
    }
    let pass_on = |signal| running.pass_on(workload, signal);
    let status = match super::supervise(control, running.main, &pass_on) {
        // Killed or replaced, it says nothing, and how it ended is nothing of the workload's: the runner is told of no end.
        Ok(Some((how, _))) if running.says && !running.passes_on(how) => 0,
        Ok(Some((how, survivors))) => {
            // The runner may be gone; the tree ends either way.
            let _ = wire::send(control, &FromInit::Ended { how, survivors });
            0
        }
        Ok(None) => 0,
        Err(_) => FAILED,
    };
    running.end();
    status
}

/// Starts the program and waits until it says what it makes.
fn start(
    control: &UnixStream,
    spec: &Spec,
    launcher: &LauncherSpec,
    report: &mut LauncherReport,
    outcomes: &mut Outcomes,
) -> Result<Running, Failure> {
    let failed =
        |attempt: &'static str| move |error: io::Error| Failure::call(attempt.to_owned(), &error);
    let words = words::reader().map_err(failed("open standard error"))?;
    let own_terminal = spec.terminal.then(OwnTerminal::open).transpose()?;
    if spec.planted > 0 {
        stage::attach(spec.planted).map_err(failed("attach the caller's folders"))?;
    }
    if let Some((uid, gid)) = launcher.ids {
        let taken = identity::drop_groups().and_then(|()| identity::become_ids(uid, gid));
        let taken = taken.and_then(|()| identity::clear_capabilities());
        taken.map_err(failed("become the workload's id"))?;
    }
    identity::set_dumpable(false).map_err(failed("switch dumpable off"))?;
    if spec.session_keyring {
        // The session keyring of whoever started the runner holds keys of the host.
        let own = identity::new_session_keyring();
        outcomes.note(
            "session-keyring",
            own.map_err(failed("join a new session keyring")),
        );
    }
    let handed = Handed::new(launcher).map_err(failed("make the launcher's descriptors"))?;
    let argv = handed.command(launcher, report);
    report.argv.clone_from(&argv);
    let main = handed
        .spawn(spec, own_terminal.as_ref(), launcher, &argv)
        .map_err(failed("start the launcher"))?;
    let Ours {
        gate,
        lock,
        status,
        hold,
    } = handed.ours;
    let name = launcher.program.file_name();
    let name = name.unwrap_or(launcher.program.as_os_str());
    let mut running = Running {
        name: name.to_string_lossy().into_owned(),
        main,
        first: None,
        gate,
        lock,
        stands: false,
        leaves_tree: spec.leaves_tree,
        says: launcher.says_what_it_made,
        status,
        hold: Some(hold),
        own_terminal,
        words,
    };
    drop(handed.theirs);
    let made = if launcher.says_what_it_made {
        running.await_made(control)
    } else {
        running
            .await_gate(control)
            .and_then(|()| running.only_child())
    };
    match made {
        Ok(pid) => {
            report.first = pid;
            Ok(running)
        }
        Err(failure) => {
            running.end();
            Err(failure)
        }
    }
}

impl Running {
    fn await_made(&mut self, control: &UnixStream) -> Result<i32, Failure> {
        let mut text = Vec::new();
        loop {
            let mut byte = [0];
            match read_full(control, self.status.as_fd(), &mut byte) {
                Ok(1) => text.push(byte[0]),
                Ok(_) => return Err(self.why_it_ended()),
                Err(error) => return Err(Failure::call("read what was made", &error)),
            }
            if byte != *b"}" {
                continue;
            }
            match serde_json::from_slice::<Made>(&text) {
                Ok(made) if made.child_pid > 1 => {
                    let pid = made.child_pid;
                    return match process::open(pid) {
                        Ok(opened) => {
                            self.first = Some((pid, opened));
                            Ok(pid)
                        }
                        // It said why, and so does the program.
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                            Err(self.why_it_ended())
                        }
                        Err(error) => Err(Failure::call("find the first process", &error)),
                    };
                }
                Err(error) if error.is_eof() && text.len() < MAX_STATUS => {}
                Ok(_) | Err(_) => {
                    return Err(Failure {
                        attempt: format!("{} says what it made", self.name),
                        error: "not understood".to_owned(),
                    });
                }
            }
        }
    }

    /// Waits until the gate runs.
    fn await_gate(&mut self, control: &UnixStream) -> Result<(), Failure> {
        let mut byte = [0];
        match read_full(control, self.gate.as_fd(), &mut byte) {
            Ok(1) if byte == *b"r" => {}
            Ok(_) => return Err(self.why_it_ended()),
            Err(error) => return Err(Failure::call("wait for the gate", &error)),
        }
        // Nothing was said, and the workload's words are the runner's to read.
        self.words = None;
        self.stands = true;
        Ok(())
    }

    /// The program's child, which is the gate.
    fn only_child(&mut self) -> Result<i32, Failure> {
        let pid = child_of(self.main)?;
        let opened = process::open(pid);
        let opened = opened.map_err(|error| Failure::call("find the first process", &error))?;
        self.first = Some((pid, opened));
        Ok(pid)
    }

    /// Whether the program ended with the exit code that it says it passes on.
    fn passes_on(&self, how: Ended) -> bool {
        let told = self.told_end();
        matches!((how, told), (Ended::Exited(code), Some(told)) if code == told)
    }

    /// That code; `None` where it said nothing.
    fn told_end(&self) -> Option<u8> {
        // What there is was written before it ended.
        nix::fcntl::fcntl(&self.status, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
        let mut text = Vec::new();
        let mut part = [0; 512];
        while text.len() < MAX_STATUS {
            match nix::unistd::read(&self.status, &mut part) {
                Ok(0) | Err(Errno::EAGAIN) => break,
                Ok(count) => text.extend(part.iter().take(count)),
                Err(Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
        let said = serde_json::Deserializer::from_slice(&text).into_iter::<End>();
        said.filter_map(Result::ok).find_map(|end| end.exit_code)
    }

    /// Finds the program that the gate is to become; with it, the gate's process.
    fn look_inside(
        &mut self,
        control: &UnixStream,
        spec: &Spec,
        program: &ProgramSpec,
        outcomes: &mut Outcomes,
    ) -> Result<(ProgramReport, i32), Failure> {
        // A number that stands for nobody would be this process's own.
        let Some((first, _)) = self.first else {
            return Err(Failure::no_effect("find the first process"));
        };
        let workload = if self.stands {
            first
        } else {
            self.await_gate(control)?;
            child_of(first)?
        };
        // Where memory runs out the workload is killed, and not what says how it ended: after the workload the first process,
        // with which its files in memory go, and the program last.
        let mut raised = raise_score(workload, OOM_SCORE);
        if first != workload {
            raised = raised.and_then(|()| raise_score(first, FIRST_OOM_SCORE));
        }
        outcomes.note("oom-score", raised);
        if let Some(limit) = spec.open_files {
            // Of the first process as well: the workload may be able to write to its memory.
            let limited = fault::guard("limit-files", || {
                process::limit_open_files(workload, limit)?;
                process::limit_open_files(first, limit)
            });
            outcomes.note(
                "limit-files",
                limited.map_err(|error| Failure::call(format!("RLIMIT_NOFILE {limit}"), &error)),
            );
        }
        let report = inside::find(control, workload, program)
            .map_err(|error| Failure::call("look into the sandbox", &error))?;
        Ok((report, workload))
    }

    /// To the workload's process group; to its process alone where the program itself is in that group.
    fn pass_on(&self, workload: i32, signal: Signal) {
        let alive = self
            .first
            .as_ref()
            .is_some_and(|(_, first)| !process::has_ended(first));
        let workload = Pid::from_raw(workload);
        let Ok(group) = nix::unistd::getpgid(Some(workload)) else {
            return;
        };
        // It may have just ended.
        let _ = match group.as_raw() {
            own if own == self.main => nix::sys::signal::kill(workload, signal),
            _ if alive => nix::sys::signal::killpg(group, signal),
            _ => Ok(()),
        };
    }

    /// Ends the sandbox and waits until all of it is gone.
    fn end(&mut self) {
        if let Some((_, first)) = &self.first {
            // Gone already is as good.
            let _ = process::kill(first, libc::SIGKILL);
        }
        let _ = nix::sys::signal::kill(Pid::from_raw(self.main), Signal::SIGKILL);
        // The program, then the sandbox's first process, which comes to this one when its parent is gone. The first process of
        // a pid namespace ends when all of that has ended (pid_namespaces(7)).
        let _ = nix::sys::wait::waitpid(Pid::from_raw(self.main), None);
        if !self.leaves_tree {
            super::end_children();
        }
    }

    /// Waits for the end of the program, and says what it said.
    fn why_it_ended(&mut self) -> Failure {
        let mut errno = [0; 5];
        let unexecuted = self.gate.set_nonblocking(true).is_ok()
            && matches!(self.gate.read(&mut errno), Ok(5))
            && errno[0] == b'e';
        if unexecuted {
            let [_, a, b, c, d] = errno;
            let error = io::Error::from_raw_os_error(i32::from_le_bytes([a, b, c, d]));
            return Failure::call(format!("execute {}", self.name), &error);
        }
        // Nothing is left that could still write.
        let name = std::mem::take(&mut self.name);
        self.end();
        let master = self.own_terminal.as_ref().map(|own| &own.master);
        let said = words::said(&name, self.words.as_mut(), master);
        Failure {
            attempt: name,
            error: said,
        }
    }
}

/// How much likelier than others a process is to be killed for lack of memory (proc_pid_oom_score_adj(5)).
fn raise_score(pid: i32, score: &str) -> Result<(), Failure> {
    std::fs::write(format!("/proc/{pid}/oom_score_adj"), score)
        .map_err(|error| Failure::call("raise the OOM score", &error))
}

/// The one child of a process, which is the gate.
fn child_of(pid: i32) -> Result<i32, Failure> {
    let children = process::children_of(pid)
        .map_err(|error| Failure::call("find the gate's process", &error))?;
    match children.as_slice() {
        [child] => Ok(*child),
        _ => Err(Failure::no_effect("find the gate's process")),
    }
}
