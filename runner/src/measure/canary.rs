//! **Canary**: a process of the controller's that tells which signals it got.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::canary::{Canary, Report};
use crate::sys::{errno_name, process};

/// The controller's own signal: one of the real-time signals, which are all delivered, however many wait.
const OWN: i32 = 50;
/// How long its report may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A process that runs on the host.
#[derive(Debug)]
pub struct Process {
    canary: Canary,
    comm: String,
    strange: Vec<String>,
    gone: bool,
}

impl Process {
    /// Makes one that process listings call `comm`, at most 15 bytes, and that works in `folder`.
    ///
    /// # Errors
    /// Those of clone3.
    pub fn new(comm: &str, folder: &Path) -> io::Result<Self> {
        let name = CString::new(comm)?;
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        Ok(Self {
            canary: Canary::new(&name, &folder)?,
            comm: comm.to_owned(),
            strange: Vec::new(),
            gone: false,
        })
    }

    /// Its id.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.canary.pid
    }

    /// Its name.
    #[must_use]
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// The controller's own call: a signal that is reported.
    ///
    /// # Errors
    /// Why it was not.
    pub fn alive(&mut self) -> io::Result<()> {
        process::kill(&self.canary.pidfd, OWN)?;
        let until = Instant::now() + PATIENCE;
        loop {
            if self.take()? {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let reports = self.canary.reports().as_fd();
            poll(&mut [PollFd::new(reports, PollFlags::POLLIN)], left)?;
        }
    }

    /// Signals that the controller did not send, as far as they are known: after [`Process::alive`] all that came before it.
    pub fn signals(&mut self) -> Vec<String> {
        // Whether it is gone is told below.
        let _ = self.take();
        let mut signals = self.strange.clone();
        if self.gone {
            signals.push("it was killed".to_owned());
        } else if let Some(state) = self.stopped() {
            signals.push(format!("it is in state {state}"));
        }
        signals
    }

    /// Reads the reports that are there; whether one of them is of the controller's own signal.
    fn take(&mut self) -> io::Result<bool> {
        let mut own = false;
        loop {
            match self.canary.next_report() {
                Ok(report) if is_own(&report) => own = true,
                Ok(report) => self.strange.push(name(&report)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(own),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.gone = true;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The state of a process that somebody stopped or traces (proc_pid_stat(5)).
    fn stopped(&self) -> Option<char> {
        let stat = crate::sys::pseudo::read(format!("/proc/{}/stat", self.pid())).ok()?;
        let text = String::from_utf8_lossy(&stat).into_owned();
        let state = text.rsplit_once(") ")?.1.chars().next()?;
        matches!(state, 'T' | 't').then_some(state)
    }
}

fn is_own(report: &Report) -> bool {
    report.signal == OWN as u32 && report.sender == std::process::id()
}

fn name(report: &Report) -> String {
    let number = i32::try_from(report.signal).unwrap_or(0);
    match nix::sys::signal::Signal::try_from(number) {
        Ok(signal) => signal.to_string(),
        Err(errno) => format!("{} ({})", report.signal, errno_name(&errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_signals_are_told_and_the_controllers_are_not() {
        let mut process = Process::new("cp-test", Path::new("/")).unwrap();
        process.alive().unwrap();
        assert_eq!(process.signals(), [""; 0]);
        let pid = nix::unistd::Pid::from_raw(process.pid());
        for signal in [nix::sys::signal::SIGTERM, nix::sys::signal::SIGHUP] {
            nix::sys::signal::kill(pid, signal).unwrap();
        }
        process.alive().unwrap();
        let mut signals = process.signals();
        signals.sort();
        assert_eq!(signals, ["SIGHUP", "SIGTERM"]);
    }

    #[test]
    fn a_killed_and_a_stopped_one_are_seen() {
        let mut process = Process::new("cp-test", Path::new("/")).unwrap();
        let pid = nix::unistd::Pid::from_raw(process.pid());
        nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).unwrap();
        while process.stopped().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(process.signals(), ["it is in state T"]);
        nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).unwrap();
        process.alive().unwrap_err();
        assert_eq!(process.signals(), ["it was killed"]);
    }
}
