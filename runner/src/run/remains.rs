//! What a runner that was killed may leave for a moment: the processes of its sandbox.
//!
//! Pid 1 sees that its runner is gone and ends, and the kernel ends the tree with it. Until then the tree lives although
//! nobody holds the run's lock: the next runner would record the run as interrupted, and remove the places that
//! are mounted over, while the workload still acts. So pid 1 is noted in the lock's file, and who opens the ledger next waits
//! for its end, which is the end of all.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ledger::file::store::RunLock;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::relay::timeout;
use crate::init::wire;
use crate::sys::process;

/// How long the end of all trees is waited for: far more than the kernel needs for one of thousands of processes.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer is no note.
const MAX_NOTE: u64 = 64;

/// `<run> <pid>`, of one length: the file may hold the note of an earlier run.
fn text(run: &str, init_pid: i32) -> String {
    format!("{run} {init_pid:<11}\n")
}

/// Notes who is pid 1 of a run.
///
/// # Errors
/// The file system refuses.
pub(super) fn note(lock: &RunLock, init_pid: i32) -> io::Result<()> {
    let text = text(&lock.run().to_string(), init_pid);
    let mut left = text.as_bytes();
    while !left.is_empty() {
        let written = nix::unistd::write(lock, left)?;
        left = left.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Waits, for a while, until no tree is alive whose runner is not. Returns the pids 1 of those that still are.
///
/// # Errors
/// The folder of run locks cannot be read, or the kernel does not tell.
pub fn await_end(runs: &Path) -> io::Result<Vec<i32>> {
    let until = Instant::now() + PATIENCE;
    let entries = match std::fs::read_dir(runs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut alive = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(run) = name.and_then(|name| name.strip_suffix(".lock")) else {
            continue;
        };
        // What is no file is the ledger's to say.
        let mut options = File::options();
        options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let Ok(file) = options.open(&path) else {
            continue;
        };
        // The lock last: whoever asks for it at the same moment would take the run for one that goes on.
        if let Some(pid) = noted(&file, run)?
            && let Some(init) = find(pid)?
            && is_free(&file)?
            && !ends(&init, until)?
        {
            alive.push(pid);
        }
    }
    Ok(alive)
}

/// Who is pid 1 of a run; nobody as long as it is not noted.
fn noted(file: &File, run: &str) -> io::Result<Option<i32>> {
    let mut text = String::new();
    match file.take(MAX_NOTE).read_to_string(&mut text) {
        Ok(_) => Ok(text
            .split_once(' ')
            .filter(|(of, _)| *of == run)
            .and_then(|(_, pid)| pid.trim_end().parse().ok())
            .filter(|pid| *pid > 1)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether no runner keeps the run alive.
fn is_free(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The process, if it is a pid 1 of ours and not somebody who has its number now.
fn find(pid: i32) -> io::Result<Option<OwnedFd>> {
    let found = match process::open(pid) {
        Ok(found) => found,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Empty once its memory is gone, which is before its tree is.
    let ours = match std::fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) => line.is_empty() || line.starts_with(wire::INIT_NAME.to_bytes()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => false,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
        Err(error) => return Err(error),
    };
    Ok(ours.then_some(found))
}

/// Whether a process ends before the moment.
fn ends(process: &OwnedFd, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut list = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        match poll(&mut list, timeout(Some(left))) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    /// A process that looks like a pid 1 and ends with its standard input.
    fn pid_1() -> std::process::Child {
        let mut command = Command::new("cat");
        command.arg0(wire::INIT_NAME.to_str().unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().unwrap()
    }

    #[test]
    fn only_a_pid_1_whose_runner_is_gone_is_waited_for() {
        let at = tempfile::tempdir().unwrap();
        assert_eq!(await_end(&at.path().join("none")).unwrap(), [0; 0]);
        let mut child = pid_1();
        let pid = child.id().cast_signed();
        let path = at.path().join("run.lock");
        std::fs::write(&path, text("run", pid)).unwrap();
        // Somebody holds the lock: the run goes on.
        let held = File::open(&path).unwrap();
        held.lock().unwrap();
        assert_eq!(await_end(at.path()).unwrap(), [0; 0]);
        drop(held);
        let file = File::open(&path).unwrap();
        assert!(is_free(&file).unwrap());
        assert_eq!(noted(&file, "run").unwrap(), Some(pid));
        let init = find(pid).unwrap().unwrap();
        assert!(!ends(&init, Instant::now()).unwrap());
        // Its end ends the wait.
        let input = child.stdin.take();
        let waiting = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| await_end(at.path()));
            drop(input);
            child.wait().unwrap();
            waiting.join().unwrap()
        });
        assert_eq!(waiting.unwrap(), [0; 0]);
        assert!(find(pid).unwrap().is_none());
        // Nobody's number, no number, and a process that is none of ours.
        for text in [
            "",
            "x",
            "7\n",
            "earlier 7\n",
            "run -1\n",
            "run 1\n",
            "run 99999999999999999999999\n",
            "run \u{e9}\n",
        ] {
            std::fs::write(&path, text).unwrap();
            let file = File::open(&path).unwrap();
            assert_eq!(noted(&file, "run").unwrap(), None, "{text:?}");
        }
        assert!(find(std::process::id().cast_signed()).unwrap().is_none());
    }
}
