//! What a launcher's program is handed by descriptor, its command line, and its start.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use super::{gate, stage};
use crate::init::wire::{LauncherReport, LauncherSpec, Spec, Word};
use crate::init::{FAILED, OwnTerminal};
use crate::sys::{descriptor, identity, process, terminal};

/// What a terminal's keys send to its foreground process group (termios(3): VINTR, VQUIT, VSUSP).
pub(super) const KEYS: [Signal; 3] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP];

/// What the program is handed by descriptor.
pub(super) struct Handed {
    pub(super) theirs: Vec<OwnedFd>,
    contents: Vec<i32>,
    status: i32,
    hold: i32,
    gate: i32,
    image: i32,
    their_lock: i32,
    pub(super) ours: Ours,
}

/// This process's ends.
pub(super) struct Ours {
    pub(super) gate: UnixStream,
    pub(super) lock: File,
    pub(super) status: OwnedFd,
    pub(super) hold: OwnedFd,
}

impl Handed {
    pub(super) fn new(launcher: &LauncherSpec) -> io::Result<Self> {
        let (gate, their_gate) = UnixStream::pair()?;
        let (status, theirstatus) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let (their_hold, hold) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let mut theirs = vec![
            theirstatus,
            their_hold,
            OwnedFd::from(their_gate),
            gate::image()?,
            gate::memory(c"containment-lock", b"")?,
        ];
        let lock = theirs.last().map(OwnedFd::try_clone).transpose()?;
        let lock = File::from(lock.ok_or(io::ErrorKind::InvalidData)?);
        for content in &launcher.contents {
            theirs.push(gate::memory(c"containment-content", content)?);
        }
        let numbers: Vec<i32> = theirs.iter().map(|fd| fd.as_raw_fd()).collect();
        let [
            status_number,
            hold_number,
            gate_number,
            image,
            their_lock,
            contents @ ..,
        ] = numbers.as_slice()
        else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        Ok(Self {
            contents: contents.to_vec(),
            status: *status_number,
            hold: *hold_number,
            gate: *gate_number,
            image: *image,
            their_lock: *their_lock,
            theirs,
            ours: Ours {
                gate,
                lock,
                status,
                hold,
            },
        })
    }

    /// The whole command line; what it leaves out is reported.
    pub(super) fn command(
        &self,
        launcher: &LauncherSpec,
        report: &mut LauncherReport,
    ) -> Vec<Vec<u8>> {
        let mut argv = vec![launcher.program.as_os_str().as_bytes().to_vec()];
        for step in &launcher.steps {
            if let Some((covered, inside)) = &step.covers {
                let path = self.word(covered);
                let path = Path::new(std::ffi::OsStr::from_bytes(&path));
                if std::fs::symlink_metadata(path).is_err_and(|error| is_out_of_reach(&error)) {
                    let inside = std::ffi::OsStr::from_bytes(inside);
                    report.unreachable.push(PathBuf::from(inside));
                    continue;
                }
            }
            argv.extend(step.words.iter().map(|word| self.word(word)));
        }
        argv.push(b"--".to_vec());
        argv.push(format!("/proc/self/fd/{}", self.image).into_bytes());
        let numbers = [self.gate, self.image, self.their_lock];
        argv.extend(numbers.map(|number| number.to_string().into_bytes()));
        argv
    }

    fn word(&self, word: &Word) -> Vec<u8> {
        match word {
            Word::Text(text) => text.clone(),
            Word::Planted(index, below) => stage::place(*index, below),
            Word::Content(index) => {
                let number = self.contents.get(*index as usize).copied();
                number.unwrap_or(-1).to_string().into_bytes()
            }
            Word::Status => self.status.to_string().into_bytes(),
            Word::Hold => self.hold.to_string().into_bytes(),
        }
    }

    /// Starts the program; its own ends of everything close with that.
    pub(super) fn spawn(
        &self,
        spec: &Spec,
        own_terminal: Option<&OwnTerminal>,
        launcher: &LauncherSpec,
        argv: &[Vec<u8>],
    ) -> io::Result<i32> {
        let path = CString::new(launcher.program.as_os_str().as_bytes())?;
        let argv: Vec<CString> = argv
            .iter()
            .map(|word| CString::new(word.as_slice()))
            .collect::<Result<_, _>>()?;
        if let Some(pid) = process::fork()? {
            return Ok(pid);
        }
        let error = match self.enter(spec, own_terminal) {
            Ok(()) => process::execute(&path, &argv, &[]),
            Err(error) => error,
        };
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL).to_le_bytes();
        let [a, b, c, d] = errno;
        let gate = self.theirs.get(2);
        let _ = gate.map(|gate| nix::unistd::write(gate, &[b'e', a, b, c, d]));
        process::exit_now(FAILED)
    }

    /// What holds for the program and all that it starts.
    fn enter(&self, spec: &Spec, own_terminal: Option<&OwnTerminal>) -> io::Result<()> {
        process::default_signals();
        // With a terminal the program stands in its foreground group beside the workload, whose keys those are: the gate lets
        // them act again for the workload alone.
        let mut keys = SigSet::empty();
        KEYS.iter().for_each(|signal| keys.add(*signal));
        keys.thread_set_mask()?;
        // Whatever ends this process: nothing of the sandbox outlives it.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        match own_terminal {
            // A session that the program began would have no terminal.
            Some(own) => {
                identity::new_session()?;
                terminal::make_controlling(own.slave.as_fd())?;
                nix::unistd::dup2_stdin(&own.slave)?;
                nix::unistd::dup2_stdout(&own.slave)?;
                nix::unistd::dup2_stderr(&own.slave)?;
            }
            None => nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?,
        }
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        if spec.close_descriptors {
            descriptor::close_on_exec_from(3)?;
        }
        for descriptor in &self.theirs {
            descriptor::set_cloexec(descriptor, false)?;
        }
        Ok(())
    }
}

fn is_out_of_reach(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}
