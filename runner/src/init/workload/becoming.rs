//! What the workload's process does itself between its fork and execve(2): it puts itself under what holds for it alone, reports
//! that, waits for "go", and executes the program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::sys::resource::{Resource, setrlimit};

use super::{Applied, OOM_SCORE, SCORE_WITHOUT_PROC};
use crate::init::OwnTerminal;
use crate::init::wire::{Listening, ProgramSpec, Spec};
use crate::mechanism::{Failure, group, landlock};
use crate::sys::filter::Instruction;
use crate::sys::{descriptor, errno_name, fault, filter, identity, process, terminal};

/// What is passed to execve(2), made before the filter stands.
pub(super) struct Call {
    pub(super) path: io::Result<CString>,
    pub(super) argv: io::Result<Vec<CString>>,
    pub(super) environment: io::Result<Vec<CString>>,
}

impl Call {
    pub(super) fn new(program: &ProgramSpec, path: &Path) -> Self {
        let strings = |list: &[Vec<u8>]| -> io::Result<Vec<CString>> {
            list.iter()
                .map(|bytes| CString::new(bytes.as_slice()).map_err(io::Error::from))
                .collect()
        };
        Self {
            path: CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from),
            argv: strings(&program.argv),
            environment: strings(&program.environment),
        }
    }

    /// Returns only the error.
    pub(super) fn execute(&self) -> i32 {
        match (&self.path, &self.argv, &self.environment) {
            (Ok(path), Ok(argv), Ok(environment)) => process::execute(path, argv, environment)
                .raw_os_error()
                .unwrap_or(libc::EINVAL),
            _ => libc::EINVAL,
        }
    }
}

/// Reports, waits for "go" and executes the program; returns only the error. The filter stands already: what is called
/// from here on, and by the caller after it, is write, read, execve and exit_group, and nothing else. Whoever adds a call
/// adds it to the list of the embedded runtime's answers: denied, it would fail, or wait for a listener who does not listen yet.
/// Without `go` the program is executed at once.
pub(super) fn become_workload(
    call: &Call,
    applied: &Applied,
    text: &mut Vec<u8>,
    go: Option<&OwnedFd>,
    report: &OwnedFd,
) -> i32 {
    text.extend_from_slice(&[0; 4]);
    if serde_json::to_writer(&mut *text, applied).is_err() {
        return libc::EINVAL;
    }
    let length = u32::try_from(text.len() - 4).unwrap_or(u32::MAX);
    if let Some(head) = text.first_chunk_mut() {
        *head = length.to_le_bytes();
    }
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        match nix::unistd::write(report, rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return errno as i32,
        }
    }
    let Some(go) = go else {
        return call.execute();
    };
    // The end of the pipe without a byte means that pid 1 is gone or was told to end.
    match nix::unistd::read(go, &mut [0]) {
        Ok(1) => call.execute(),
        Ok(_) => libc::EPIPE,
        Err(errno) => errno as i32,
    }
}

/// What holds for the workload alone, the filter last: `reporting`, where that can be had.
pub(super) fn apply(
    spec: &Spec,
    reporting: Option<&[Instruction]>,
    own_terminal: Option<&OwnTerminal>,
    raised: Option<io::Result<()>>,
    applied: &mut Applied,
) {
    let outcomes = &mut applied.outcomes;
    process::default_signals();
    // Raising one's own score takes a dumpable process; nothing hostile runs yet.
    let stands_alone = spec.landlock.as_ref().is_some_and(|it| it.alone.is_some());
    let text = if stands_alone {
        SCORE_WITHOUT_PROC
    } else {
        OOM_SCORE
    };
    let score = raised.unwrap_or_else(|| {
        identity::set_dumpable(true)
            .and_then(|()| std::fs::write("/proc/self/oom_score_adj", text))
            .and_then(|()| identity::set_dumpable(spec.stays_dumpable))
    });
    outcomes.note(
        "oom-score",
        score.map_err(|error| Failure::call("raise the OOM score", &error)),
    );
    if spec.session {
        let session =
            identity::new_session().map_err(|error| Failure::call("begin a session", &error));
        outcomes.note("new-session", session);
    } else {
        // Signals that are passed on go to a group.
        let own = nix::unistd::Pid::from_raw(0);
        let group = nix::unistd::setpgid(own, own).map_err(io::Error::from);
        outcomes.note(
            "process-group",
            group.map_err(|error| Failure::call("make a process group", &error)),
        );
    }
    if let Some(own) = own_terminal {
        outcomes.note(
            "terminal",
            take_terminal(own, spec.session)
                .map_err(|error| Failure::call("take the terminal", &error)),
        );
    }
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    if let Err(error) = process::leave_real_time() {
        let failure = Failure::call("leave real-time scheduling", &error);
        outcomes.note(group::Resource::Cpu.mechanism(), Err(failure));
    }
    if spec.close_descriptors {
        let closed = descriptor::close_on_exec_from(3);
        outcomes.note(
            "close-descriptors",
            closed.map_err(|error| Failure::call("close descriptors", &error)),
        );
    }
    if let Some(rules) = &spec.landlock {
        outcomes.note("landlock", landlock::restrict(rules));
    }
    if spec.session_keyring {
        // The session keyring of whoever started the runner holds keys of the host.
        let own = identity::new_session_keyring();
        outcomes.note(
            "session-keyring",
            own.map_err(|error| Failure::call("join a new session keyring", &error)),
        );
    }
    // After all that opens something here, and before what may deny the call.
    if let Some(limit) = spec.open_files {
        let limited = fault::guard("limit-files", || {
            Ok(setrlimit(Resource::RLIMIT_NOFILE, limit, limit)?)
        });
        outcomes.note(
            "limit-files",
            limited.map_err(|error| Failure::call(format!("RLIMIT_NOFILE {limit}"), &error)),
        );
    }
    for program in &spec.base {
        let installed = filter::install("base-filter", program);
        outcomes.note(
            "base-filter",
            installed.map_err(|error| Failure::call("install the base filter", &error)),
        );
    }
    let Some(program) = &spec.seccomp else {
        return;
    };
    // Noted before: once the filter stands, a call for memory may be one that it denies. A failure takes it back.
    outcomes.note("seccomp", Ok(()));
    if let Some(reporting) = reporting {
        match filter::install_reporting("seccomp", reporting) {
            Ok(number) => {
                applied.listening = Listening::At { number };
                return;
            }
            Err(error) => applied.listening = Listening::Refused(errno_name(&error)),
        }
    }
    if let Err(error) = filter::install("seccomp", program) {
        let failure = Failure::call("install the filter", &error);
        outcomes.note("seccomp", Err(failure));
    }
}

fn take_terminal(own: &OwnTerminal, leads_session: bool) -> io::Result<()> {
    if leads_session {
        terminal::make_controlling(own.slave.as_fd())?;
    }
    nix::unistd::dup2_stdin(&own.slave)?;
    nix::unistd::dup2_stdout(&own.slave)?;
    nix::unistd::dup2_stderr(&own.slave)?;
    debug_assert!(own.slave.as_raw_fd() > 2);
    Ok(())
}
