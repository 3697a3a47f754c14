//! The workload's own process: made before "go" with everything applied, so that what it will run under
//! is known and recorded before it runs.

mod becoming;
mod found;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;

use ledger::facts::execution::NotExecuted;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use super::OwnTerminal;
use super::module;
use super::patience::read_full;
use super::wire::{Listening, ProgramReport, ProgramSpec, Spec};
use crate::mechanism::{Failure, Outcomes, seccomp};
use crate::sys::process;
use becoming::{Call, apply, become_workload};
pub(super) use found::{find, hash, usable};

/// How much likelier than pid 1 the workload is to be killed for lack of memory (proc_pid_oom_score_adj(5)).
pub(super) const OOM_SCORE: &str = "500";
/// The same where nothing inside can raise its own, without a /proc that it may write to: as high as it gets.
const SCORE_WITHOUT_PROC: &str = "1000";
/// Longest report of the workload's process, in bytes; a dozen outcomes stay far below.
const MAX_REPORT: usize = 1 << 20;
/// Room for a report that is made without asking the kernel for memory.
const USUAL_REPORT: usize = 64 << 10;
/// Flag of a process that was forked and has executed nothing (PF_FORKNOEXEC, include/linux/sched.h; the F of ps(1)).
/// The kernel alone takes it away, in execve(2), and /proc/PID/stat shows it until the process is reaped.
const FORKED_NO_EXEC: u64 = 0x40;

/// What stands ready for "go".
pub(super) struct Prepared {
    pub(super) report: ProgramReport,
    /// What a program that runs a module said.
    pub(super) said: Option<Vec<u8>>,
    pub(super) waiting: Option<Waiting>,
    pub(super) listening: Listening,
    pub(super) terminal: Option<OwnTerminal>,
}

/// The workload's process, one step before execve.
pub(super) struct Waiting {
    pid: i32,
    go: OwnedFd,
    status: OwnedFd,
    /// Where a program that runs a module speaks: it is executed already.
    module: Option<OwnedFd>,
}

impl Waiting {
    pub(super) const fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it execute its program, and returns when that is certain.
    pub(super) fn go(&self, control: &UnixStream) -> Result<(), NotStarted> {
        // EPIPE when it died while it waited.
        nix::unistd::write(&self.go, &[1]).map_err(|_| NotStarted::Lost)?;
        if let Some(module) = &self.module {
            return if module::begins(control, module) {
                Ok(())
            } else {
                Err(NotStarted::Lost)
            };
        }
        let mut errno = [0; 4];
        match read_full(control, self.status.as_fd(), &mut errno) {
            Ok(4) => Err(NotStarted::Errno(i32::from_le_bytes(errno))),
            // The descriptor closes on exec, and also when the process dies: the end alone proves nothing.
            Ok(0) if has_executed(self.pid) => Ok(()),
            Ok(_) | Err(_) => Err(NotStarted::Lost),
        }
    }

    /// What a program that runs a module says; `None` for any other, which has not been executed yet.
    fn said(&self, path: &Path, control: &UnixStream) -> Result<Option<Vec<u8>>, Failure> {
        let Some(module) = &self.module else {
            return Ok(None);
        };
        let mut errno = [0; 4];
        // The descriptor closes on exec.
        if let Ok(4) = read_full(control, self.status.as_fd(), &mut errno) {
            let error = io::Error::from_raw_os_error(i32::from_le_bytes(errno));
            return Err(Failure::call(format!("execute {}", path.display()), &error));
        }
        module::read(control, module).map(Some)
    }
}

/// Why the workload's process did not become the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotStarted {
    /// The kernel would not execute the program.
    Errno(i32),
    /// The process died first, or nothing shows that it executed anything.
    Lost,
}

/// Whether a child that is not reaped yet has executed a program, by the kernel's own flag. Where no /proc of this pid
/// namespace could be had, a child that has just died counts as not started when it may have died before.
fn has_executed(pid: i32) -> bool {
    if super::has_own_proc() {
        let stat = crate::sys::pseudo::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        return flags(&stat).is_some_and(|flags| flags & FORKED_NO_EXEC == 0);
    }
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(nix::unistd::Pid::from_raw(pid)), look) {
        Ok(WaitStatus::StillAlive) => true,
        Ok(WaitStatus::Exited(_, status)) => status != super::FAILED,
        _ => false,
    }
}

/// The ninth field of /proc/PID/stat (proc_pid_stat(5)); the second is a name that may hold anything.
fn flags(stat: &[u8]) -> Option<u64> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_ends + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// Finds the program and makes the process.
pub(super) fn prepare(
    spec: &Spec,
    program: &ProgramSpec,
    own_terminal: Option<OwnTerminal>,
    control: &UnixStream,
    outcomes: &mut Outcomes,
) -> Result<Prepared, Failure> {
    let unusable = |reason, errno: Option<i32>, what: String| Prepared {
        report: ProgramReport::Unusable {
            reason,
            errno,
            what,
        },
        said: None,
        waiting: None,
        listening: Listening::NotAsked,
        terminal: None,
    };
    if let Err(error) = std::env::set_current_dir(&program.cwd) {
        let what = format!("no folder {} inside", program.cwd.display());
        return Ok(unusable(
            NotExecuted::LaunchFailed,
            error.raw_os_error(),
            what,
        ));
    }
    let path = match find(program, &usable) {
        Ok(path) => path,
        Err((reason, errno)) => {
            let name = program
                .argv
                .first()
                .map(|name| String::from_utf8_lossy(name).into_owned());
            return Ok(unusable(reason, errno, name.unwrap_or_default()));
        }
    };
    let own = own_terminal.as_ref();
    let (waiting, report) = spawn(spec, program, &path, own)?;
    // Meanwhile the process puts itself under what the policy says.
    let sha256 = hash(&path, control);
    let Applied {
        outcomes: applied,
        listening,
    } = read_report(control, &report)?;
    outcomes.merge(applied);
    let said = waiting.said(&path, control)?;
    Ok(Prepared {
        report: ProgramReport::Found { path, sha256 },
        said,
        waiting: Some(waiting),
        listening,
        terminal: own_terminal,
    })
}

impl Prepared {
    /// Ends the process that waits, and makes it once more, for a filter that denies by itself.
    pub(super) fn again(
        self,
        spec: &Spec,
        program: &ProgramSpec,
        control: &UnixStream,
        outcomes: &mut Outcomes,
    ) -> Result<Self, Failure> {
        let (Some(waiting), ProgramReport::Found { path, .. }) = (&self.waiting, &self.report)
        else {
            return Ok(self);
        };
        let pid = nix::unistd::Pid::from_raw(waiting.pid);
        // It is not reaped yet, so the number is its own.
        let ended = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)
            .and_then(|()| nix::sys::wait::waitpid(pid, None));
        ended.map_err(|errno| {
            Failure::call("end the workload's first process", &io::Error::from(errno))
        })?;
        let spec = Spec {
            reporting: false,
            ..spec.clone()
        };
        let (waiting, report) = spawn(&spec, program, path, self.terminal.as_ref())?;
        let applied = read_report(control, &report)?;
        outcomes.merge(applied.outcomes);
        Ok(Self {
            waiting: Some(waiting),
            listening: applied.listening,
            ..self
        })
    }
}

/// This process's own score and what it was, where there will be no /proc by which another process could write its own.
static OWN_SCORE: OnceLock<(File, String)> = OnceLock::new();

/// Keeps it open. Where that fails the workload is not likelier to be killed than pid 1, and says so.
pub(super) fn keep_score() {
    let open = || -> io::Result<(File, String)> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .open("/proc/self/oom_score_adj")?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((file, text))
    };
    if let Ok(own) = open() {
        let _ = OWN_SCORE.set(own);
    }
}

/// Sets it for a process that is forked, which has what this one has then; without a text sets it back.
fn score(text: Option<&str>) -> Option<io::Result<()>> {
    let (file, before) = OWN_SCORE.get()?;
    // At the beginning: elsewhere the kernel takes no number.
    let text = text.unwrap_or(before);
    Some(file.write_all_at(text.as_bytes(), 0))
}

/// Makes the process; what it applied is to be read from the descriptor.
fn spawn(
    spec: &Spec,
    program: &ProgramSpec,
    path: &Path,
    own_terminal: Option<&OwnTerminal>,
) -> Result<(Waiting, OwnedFd), Failure> {
    let failed = |error: io::Error| Failure::call("make the workload's process", &error);
    let (go_read, go) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let (status, status_write) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let (report, report_write) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    // Those of any other program are used up by now.
    let folders = spec.order.as_ref().map_or(0, |_| spec.planted);
    let module = spec.order.as_deref();
    let module = module.map(|order| module::connect(order, folders));
    let (theirs, module) = module.transpose().map_err(failed)?.unzip();
    // Out of the way of the numbers that such a program knows.
    let status_write = module::moved(&status_write, folders).map_err(failed)?;
    let report_write = module::moved(&report_write, folders).map_err(failed)?;
    let raised = score(Some(SCORE_WITHOUT_PROC));
    let own = nix::unistd::Pid::this();
    let forked = process::fork();
    if !matches!(forked, Ok(None)) {
        // A process may lower what it has raised.
        let _ = score(None);
    }
    match forked.map_err(failed)? {
        None => {
            // Else this process would keep its own "go" and its own end of the report from closing.
            drop((go, status, report, module));
            let call = Call::new(program, path);
            let mut text = Vec::with_capacity(USUAL_REPORT);
            let policys = spec.seccomp.as_ref().filter(|_| spec.reporting);
            let reporting = policys.map(|program| seccomp::reporting(program));
            let mut applied = Applied::default();
            apply(
                spec,
                reporting.as_deref(),
                own_terminal,
                raised,
                &mut applied,
            );
            let (placed, go) = match &theirs {
                // It waits itself, and not only for "go": it is busy before.
                Some(theirs) => {
                    let placed = module::end_with(own).and_then(|()| theirs.place(&go_read));
                    (placed, None)
                }
                None => (Ok(()), Some(&go_read)),
            };
            let errno = match placed {
                Ok(()) => become_workload(&call, &applied, &mut text, go, &report_write),
                Err(error) => error.raw_os_error().unwrap_or(libc::EBADF),
            };
            let _ = nix::unistd::write(&status_write, &errno.to_le_bytes());
            process::exit_now(super::FAILED)
        }
        Some(pid) => {
            drop((go_read, status_write, report_write, theirs));
            let waiting = Waiting {
                pid,
                go,
                status,
                module,
            };
            Ok((waiting, report))
        }
    }
}

/// What the workload's process put itself under.
#[derive(Debug, Serialize, Deserialize)]
struct Applied {
    outcomes: Outcomes,
    listening: Listening,
}

impl Default for Applied {
    fn default() -> Self {
        Self {
            outcomes: Outcomes::default(),
            listening: Listening::NotAsked,
        }
    }
}

/// What the workload's process applied: its length in four bytes, then JSON. It is read to its length and not to the
/// pipe's end, which that process may not be allowed to bring about.
fn read_report(control: &UnixStream, report: &OwnedFd) -> Result<Applied, Failure> {
    let attempt = "read what the workload's process applied";
    let read = |buffer: &mut [u8]| match read_full(control, report.as_fd(), buffer) {
        Ok(count) if count == buffer.len() => Ok(()),
        Ok(_) => Err(Failure::no_effect(format!("{attempt}: it ended first"))),
        Err(error) => Err(Failure::call(attempt, &error)),
    };
    let mut length = [0; 4];
    read(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_REPORT {
        return Err(Failure::no_effect(format!("{attempt}: {length} bytes")));
    }
    let mut text = vec![0; length];
    read(&mut text)?;
    serde_json::from_slice(&text).map_err(|_| Failure::no_effect(attempt))
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// A child that does `act` once it is told to go.
    fn waiting(act: impl FnOnce(&OwnedFd)) -> Waiting {
        let (go_read, go) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let (status, status_write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        match process::fork().unwrap() {
            None => {
                let _ = nix::unistd::read(&go_read, &mut [0]);
                act(&status_write);
                process::exit_now(super::super::FAILED)
            }
            Some(pid) => Waiting {
                pid,
                go,
                status,
                module: None,
            },
        }
    }

    fn reap(waiting: &Waiting) {
        nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(waiting.pid), None).unwrap();
    }

    #[test]
    fn only_what_was_executed_counts_as_started() {
        let (control, _runner) = UnixStream::pair().unwrap();
        let call = |path: &str| Call {
            path: Ok(CString::new(path).unwrap()),
            argv: Ok(vec![CString::new("x").unwrap()]),
            environment: Ok(Vec::new()),
        };
        let (works, missing) = (call("/bin/true"), call("/no/such/program"));
        let child = waiting(|_| {
            let _ = works.execute();
        });
        assert_eq!(child.go(&control), Ok(()));
        reap(&child);
        let child = waiting(|status| {
            let _ = nix::unistd::write(status, &missing.execute().to_le_bytes());
        });
        assert_eq!(child.go(&control), Err(NotStarted::Errno(libc::ENOENT)));
        reap(&child);
        // It ends without a word, as when it may not even write.
        let child = waiting(|_| {});
        assert_eq!(child.go(&control), Err(NotStarted::Lost));
        reap(&child);
    }

    #[test]
    fn flags_are_read_behind_any_name() {
        let stat = b"7 (a) R 1 (b) S 1 7 7 0 -1 4194368 97 0 0";
        assert_eq!(flags(stat), Some(4_194_368));
        assert_eq!(flags(b"7 (a) S 1"), None);
        assert_eq!(flags(b""), None);
    }
}
