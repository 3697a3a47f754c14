//! What the runtimes that start pid 1 themselves share: making it, its specification and its report.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;

use crate::init::wire::{self, ProgramReport, ProgramSpec, Report, Spec, WireError};
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{LaunchError, Plan, Program, Streams};
use crate::sys::clone::{self, Child, Image, Stage};
use crate::sys::mount;

/// Pid 1 after its report, before "go".
#[derive(Debug)]
pub(super) struct Init {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) control: UnixStream,
    pub(super) report: Report,
    pub(super) terminal: Option<OwnedFd>,
}

fn system(attempt: &'static str) -> impl Fn(io::Error) -> LaunchError {
    move |source| LaunchError::System { attempt, source }
}

/// Makes pid 1 in `namespaces`, lets `map` write its maps, and hands it the specification. `planted` stand at the
/// numbers after the control descriptor, in this order.
pub(super) fn start(
    namespaces: libc::c_int,
    prepared: Prepared,
    map: impl FnOnce(i32) -> Result<(), Failure>,
    spec: &Spec,
) -> Result<Init, LaunchError> {
    let (ours, theirs) = UnixStream::pair().map_err(system("make a socket pair"))?;
    let Prepared { streams, planted } = prepared;
    let mut descriptors = vec![
        or_null(streams.stdin).map_err(system("open /dev/null"))?,
        or_null(streams.stdout).map_err(system("open /dev/null"))?,
        or_null(streams.stderr).map_err(system("open /dev/null"))?,
        OwnedFd::from(theirs),
    ];
    descriptors.extend(planted);
    let image = image(namespaces & libc::CLONE_NEWUSER != 0)
        .map_err(system("prepare the program of pid 1"))?;
    let child = Child {
        namespaces,
        image,
        name: wire::INIT_NAME,
        descriptors,
    };
    let held = clone::spawn(child).map_err(|error| LaunchError::Namespaces {
        errno: crate::sys::errno_name(&error),
    })?;
    map(held.pid).map_err(|failure| LaunchError::Step {
        what: failure.to_string(),
    })?;
    let (pid, pidfd) = held.release().map_err(system("release pid 1"))?;
    let report = match exchange(&ours, spec) {
        Ok(report) => report,
        Err(error) => {
            end(&pidfd);
            return Err(before_report(&error));
        }
    };
    if let Some(failure) = &report.fatal {
        let what = failure.to_string();
        end(&pidfd);
        return Err(not_built(what, report.outcomes));
    }
    let terminal = if report.terminal {
        let received = wire::receive_descriptor(&ours);
        Some(received.map_err(|error| LaunchError::Step {
            what: format!("take the terminal: {error}"),
        })?)
    } else {
        None
    };
    Ok(Init {
        pid,
        pidfd,
        control: ours,
        report,
        terminal,
    })
}

/// What it means that pid 1 ended without a report.
fn before_report(error: &WireError) -> LaunchError {
    let mut outcomes = Outcomes::default();
    if let WireError::BeforeExec {
        stage: Some(Stage::Image),
        errno,
    } = error
    {
        // A mount is all that this step makes, in the namespace that this process has for it.
        let errno = io::Error::from_raw_os_error(*errno);
        let failure = Failure::call(Stage::Image.to_string(), &errno);
        outcomes.note("namespace-mount", Err(failure));
    }
    not_built(error.to_string(), outcomes)
}

fn not_built(what: String, outcomes: Outcomes) -> LaunchError {
    if outcomes.any_failed() {
        LaunchError::Mechanism {
            what,
            outcomes,
            lost: BTreeMap::new(),
        }
    } else {
        LaunchError::Step { what }
    }
}

fn exchange(control: &UnixStream, spec: &Spec) -> Result<Report, WireError> {
    match wire::send(control, spec) {
        Ok(()) | Err(WireError::Gone) => {}
        Err(error) => return Err(error),
    }
    wire::receive(control)
}

/// Ends pid 1 and waits for it.
pub(super) fn end(pidfd: &OwnedFd) {
    // Gone already is as good.
    let _ = crate::sys::process::kill(pidfd, libc::SIGKILL);
    let _ = crate::sys::process::wait(pidfd);
}

fn or_null(stream: Option<OwnedFd>) -> io::Result<OwnedFd> {
    match stream {
        Some(stream) => Ok(stream),
        None => Ok(std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?
            .into()),
    }
}

/// This program, so that nobody can write to it through /proc/PID/exe: a read-only mount of the file, made here as
/// root, else by the child in its mount namespace; a sealed copy in memory where the kernel has no mount_setattr or
/// where there is no mount namespace.
fn image(in_user_namespace: bool) -> io::Result<Image> {
    if !in_user_namespace || !mount::has_set_attributes() {
        return sealed_copy();
    }
    if nix::unistd::geteuid().is_root() {
        let tree = mount::clone_tree(None, c"/proc/self/exe", false)?;
        let attributes = mount::Attributes {
            read_only: true,
            ..mount::Attributes::default()
        };
        mount::restrict(tree.as_fd(), attributes, false)?;
        return Ok(Image::Sealed(tree));
    }
    let path = std::fs::read_link("/proc/self/exe")?;
    Ok(Image::Path(CString::new(path.into_os_string().into_vec())?))
}

fn sealed_copy() -> io::Result<Image> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC and need none.
    let executable = MFdFlags::from_bits_retain(libc::MFD_EXEC);
    let copy = memfd_create(c"containment-init", flags | executable)
        .or_else(|_| memfd_create(c"containment-init", flags))?;
    let mut to = std::fs::File::from(copy);
    io::copy(&mut std::fs::File::open("/proc/self/exe")?, &mut to)?;
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE;
    fcntl(&to, FcntlArg::F_ADD_SEALS(seals))?;
    // A descriptor that is open for writing cannot be executed (ETXTBSY).
    let read_only = std::fs::File::open(format!("/proc/self/fd/{}", to.as_raw_fd()))?;
    Ok(Image::Sealed(read_only.into()))
}

/// What pid 1 is to run.
pub(super) fn program(plan: &Plan) -> ProgramSpec {
    let variable = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
        [name.as_bytes(), b"=", value.as_bytes()].concat()
    };
    ProgramSpec {
        argv: plan
            .job
            .argv
            .iter()
            .map(|argument| argument.as_bytes().to_vec())
            .collect(),
        environment: plan.environment.iter().map(variable).collect(),
        cwd: plan.cwd.clone(),
    }
}

/// The program as it stands in the effect.
pub(super) fn found(plan: &Plan, report: Option<&ProgramReport>) -> Program {
    use ledger::bytes::canon::escape_bytes;
    use ledger::facts::execution::NotExecuted;
    let asked = plan
        .job
        .argv
        .first()
        .map(|name| escape_bytes(name.as_bytes()))
        .unwrap_or_default();
    match report {
        Some(ProgramReport::Found { path, sha256 }) => Program::Found {
            path: escape_bytes(path.as_os_str().as_bytes()),
            sha256: sha256.as_deref().and_then(|hash| hash.parse().ok()),
        },
        Some(ProgramReport::Unusable {
            reason,
            errno,
            what,
        }) => {
            let path = if *reason == NotExecuted::LaunchFailed {
                what.clone()
            } else {
                asked
            };
            Program::Unusable {
                path,
                reason: *reason,
                errno: *errno,
            }
        }
        None => Program::Unusable {
            path: asked,
            reason: NotExecuted::LaunchFailed,
            errno: None,
        },
    }
}

/// The number that a planted descriptor will have: they stand after the control descriptor.
pub(super) fn planted_number(index: usize) -> i32 {
    wire::CONTROL + 1 + i32::try_from(index).unwrap_or(i32::MAX - wire::CONTROL - 1)
}

/// Descriptors that pid 1 is to get.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The workload's standard streams.
    pub(super) streams: Streams,
    /// Detached mounts.
    pub(super) planted: Vec<OwnedFd>,
}

impl Prepared {
    /// A second set, for a start that may have to be tried again.
    pub(super) fn try_clone(&self) -> Result<Self, LaunchError> {
        let again = |stream: &Option<OwnedFd>| stream.as_ref().map(OwnedFd::try_clone).transpose();
        let copy = || -> io::Result<Self> {
            let Streams {
                stdin,
                stdout,
                stderr,
            } = &self.streams;
            let streams = Streams {
                stdin: again(stdin)?,
                stdout: again(stdout)?,
                stderr: again(stderr)?,
            };
            Ok(Self {
                streams,
                planted: self
                    .planted
                    .iter()
                    .map(OwnedFd::try_clone)
                    .collect::<io::Result<_>>()?,
            })
        };
        copy().map_err(system("copy descriptors"))
    }
}
