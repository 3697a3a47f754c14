//! The workload's own process: made before "go" with everything applied, so that what it will run under
//! is known and recorded before it runs.

use std::ffi::CString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hasher;
use ledger::facts::execution::NotExecuted;
use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, setrlimit};

use super::OwnTerminal;
use super::wire::{ProgramReport, ProgramSpec, Spec};
use crate::mechanism::{Failure, Outcomes, landlock};
use crate::sys::{descriptor, fault, filter, identity, process, terminal};

/// How much likelier than pid 1 the workload is to be killed for lack of memory (proc_pid_oom_score_adj(5)).
const OOM_SCORE: &str = "500";

/// What stands ready for "go".
pub(super) struct Prepared {
    pub(super) report: ProgramReport,
    pub(super) waiting: Option<Waiting>,
    pub(super) terminal: Option<OwnedFd>,
}

/// The workload's process, one step before execve.
pub(super) struct Waiting {
    pid: i32,
    go: OwnedFd,
    status: OwnedFd,
}

impl Waiting {
    pub(super) const fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it execute its program; the error is the kernel's number.
    pub(super) fn go(&self) -> Result<(), i32> {
        let fallback = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        nix::unistd::write(&self.go, &[1]).map_err(|errno| errno as i32)?;
        let mut status = std::fs::File::from(self.status.try_clone().map_err(fallback)?);
        let mut errno = Vec::new();
        // The descriptor closes on exec: nothing to read means that it executes.
        status.read_to_end(&mut errno).map_err(fallback)?;
        match <[u8; 4]>::try_from(errno.as_slice()) {
            Ok(errno) => Err(i32::from_le_bytes(errno)),
            Err(_) => Ok(()),
        }
    }
}

/// Finds the program and makes the process.
pub(super) fn prepare(
    spec: &Spec,
    program: &ProgramSpec,
    own_terminal: Option<OwnTerminal>,
    outcomes: &mut Outcomes,
) -> Result<Prepared, Failure> {
    let unusable = |reason, errno: Option<i32>, what: String| Prepared {
        report: ProgramReport::Unusable {
            reason,
            errno,
            what,
        },
        waiting: None,
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
    let path = match find(program) {
        Ok(path) => path,
        Err((reason, errno)) => {
            let name = program
                .argv
                .first()
                .map(|name| String::from_utf8_lossy(name).into_owned());
            return Ok(unusable(reason, errno, name.unwrap_or_default()));
        }
    };
    let sha256 = hash(&path);
    let waiting = spawn(spec, program, &path, own_terminal.as_ref(), outcomes)?;
    Ok(Prepared {
        report: ProgramReport::Found { path, sha256 },
        waiting: Some(waiting),
        terminal: own_terminal.map(|own| own.master),
    })
}

/// As execvp(3) would, with the workload's own rights: a path as it is, a name along PATH.
fn find(program: &ProgramSpec) -> Result<PathBuf, (NotExecuted, Option<i32>)> {
    let name = program.argv.first().map(Vec::as_slice).unwrap_or_default();
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    let usable = |path: &Path| -> Result<(), nix::errno::Errno> {
        let metadata = std::fs::metadata(path).map_err(|error| {
            nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
        })?;
        if metadata.is_dir() {
            return Err(nix::errno::Errno::EISDIR);
        }
        nix::unistd::access(path, nix::unistd::AccessFlags::X_OK)
    };
    let judge = |errno: nix::errno::Errno| {
        let reason = match errno {
            nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR => NotExecuted::NotFound,
            _ => NotExecuted::NotExecutable,
        };
        (reason, Some(errno as i32))
    };
    if name.as_os_str().as_bytes().contains(&b'/') {
        return usable(name).map(|()| name.to_owned()).map_err(judge);
    }
    let path = program
        .environment
        .iter()
        .find_map(|variable| variable.strip_prefix(b"PATH="));
    let mut found = nix::errno::Errno::ENOENT;
    for folder in path
        .unwrap_or_default()
        .split(|byte| *byte == b':')
        .filter(|folder| !folder.is_empty())
    {
        let candidate = Path::new(std::ffi::OsStr::from_bytes(folder)).join(name);
        match usable(&candidate) {
            Ok(()) if !name.as_os_str().is_empty() => return Ok(candidate),
            Ok(()) | Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR) => {}
            Err(errno) => found = errno,
        }
    }
    Err(judge(found))
}

/// SHA-256 of a file in hexadecimal; `None` when the workload may not read it.
fn hash(path: &Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?;
    let mut hasher = Hasher::plain();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Some(hasher.finish().to_string()),
            Ok(count) => hasher.update(buffer.get(..count)?),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

fn spawn(
    spec: &Spec,
    program: &ProgramSpec,
    path: &Path,
    own_terminal: Option<&OwnTerminal>,
    outcomes: &mut Outcomes,
) -> Result<Waiting, Failure> {
    let failed = |error: io::Error| Failure::call("make the workload's process", &error);
    let (go_read, go) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let (status, status_write) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let (report, report_write) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    match process::fork().map_err(failed)? {
        None => {
            // Else this process would keep its own "go" and its own end of the report from closing.
            drop((go, status, report));
            become_workload(
                spec,
                program,
                path,
                own_terminal,
                go_read,
                report_write,
                &status_write,
            )
        }
        Some(pid) => {
            drop((go_read, status_write, report_write));
            let mut text = Vec::new();
            std::fs::File::from(report)
                .read_to_end(&mut text)
                .map_err(failed)?;
            let applied: Outcomes = serde_json::from_slice(&text)
                .map_err(|_| Failure::no_effect("read what the workload's process applied"))?;
            outcomes.merge(applied);
            Ok(Waiting { pid, go, status })
        }
    }
}

fn become_workload(
    spec: &Spec,
    program: &ProgramSpec,
    path: &Path,
    own_terminal: Option<&OwnTerminal>,
    go: OwnedFd,
    report: OwnedFd,
    status: &OwnedFd,
) -> ! {
    let mut outcomes = Outcomes::default();
    apply(spec, own_terminal, &mut outcomes);
    let text = serde_json::to_vec(&outcomes).unwrap_or_default();
    if std::fs::File::from(report).write_all(&text).is_err() {
        process::exit_now(super::FAILED);
    }
    // The end of the pipe without a byte means that pid 1 is gone or was told to end.
    let mut byte = [0];
    if !matches!(nix::unistd::read(&go, &mut byte), Ok(1)) {
        process::exit_now(super::FAILED);
    }
    let strings = |list: &[Vec<u8>]| -> Result<Vec<CString>, io::Error> {
        list.iter()
            .map(|bytes| CString::new(bytes.as_slice()).map_err(io::Error::from))
            .collect()
    };
    let executed = strings(&program.argv).and_then(|argv| {
        let environment = strings(&program.environment)?;
        let path = CString::new(path.as_os_str().as_bytes())?;
        Err::<(), _>(process::execute(&path, &argv, &environment))
    });
    let errno = executed
        .err()
        .and_then(|error| error.raw_os_error())
        .unwrap_or(libc::EINVAL);
    let _ = nix::unistd::write(status, &errno.to_le_bytes());
    process::exit_now(127)
}

/// What holds for the workload alone, the filter last.
fn apply(spec: &Spec, own_terminal: Option<&OwnTerminal>, outcomes: &mut Outcomes) {
    process::default_signals();
    // Raising one's own score takes a dumpable process; nothing hostile runs yet.
    let score = identity::set_dumpable(true)
        .and_then(|()| std::fs::write("/proc/self/oom_score_adj", OOM_SCORE))
        .and_then(|()| identity::set_dumpable(false));
    outcomes.note(
        "oom-score",
        score.map_err(|error| Failure::call("raise the OOM score", &error)),
    );
    let session = identity::new_session().map_err(|error| Failure::call("begin a session", &error));
    outcomes.note("new-session", session);
    if let Some(own) = own_terminal {
        outcomes.note(
            "terminal",
            take_terminal(own).map_err(|error| Failure::call("take the terminal", &error)),
        );
    }
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    if let Some(limit) = spec.open_files {
        let limited = fault::guard("limit-files", || {
            Ok(setrlimit(Resource::RLIMIT_NOFILE, limit, limit)?)
        });
        outcomes.note(
            "limit-files",
            limited.map_err(|error| Failure::call(format!("RLIMIT_NOFILE {limit}"), &error)),
        );
    }
    let closed = descriptor::close_on_exec_from(3);
    outcomes.note(
        "close-descriptors",
        closed.map_err(|error| Failure::call("close descriptors", &error)),
    );
    if let Some(rules) = &spec.landlock {
        outcomes.note("landlock", landlock::restrict(rules));
    }
    if spec.give_up_privilege {
        // The session keyring of whoever started the runner holds keys of the host.
        let own = identity::new_session_keyring();
        outcomes.note(
            "session-keyring",
            own.map_err(|error| Failure::call("join a new session keyring", &error)),
        );
    }
    for program in &spec.base {
        let installed = filter::install("base-filter", program);
        outcomes.note(
            "base-filter",
            installed.map_err(|error| Failure::call("install the base filter", &error)),
        );
    }
    if let Some(program) = &spec.seccomp {
        let installed = filter::install("seccomp", program);
        outcomes.note(
            "seccomp",
            installed.map_err(|error| Failure::call("install the filter", &error)),
        );
    }
}

fn take_terminal(own: &OwnTerminal) -> io::Result<()> {
    terminal::make_controlling(own.slave.as_fd())?;
    nix::unistd::dup2_stdin(&own.slave)?;
    nix::unistd::dup2_stdout(&own.slave)?;
    nix::unistd::dup2_stderr(&own.slave)?;
    debug_assert!(own.slave.as_raw_fd() > 2);
    Ok(())
}
