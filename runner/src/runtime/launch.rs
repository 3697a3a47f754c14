//! What the runtimes that start pid 1 themselves share: making it, its specification and its report.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::init::wire::{
    self, Listening, ProgramReport, ProgramSpec, Report, Spec, ToInit, TreeReport, WireError,
};
use crate::mechanism::group::{Group, Resource};
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{Asked, Begun, Job, LaunchError, Plan, Program, Streams, Waiting, unheard};
use crate::sys::clone::{self, Child, Image, SpawnError, Stage};
use crate::sys::deaf::is_deaf;
use crate::sys::errno_name;
use crate::sys::identity;
use crate::sys::mount;
use crate::sys::notify::Listener;
use crate::sys::starter::{ForkError, Forked, Starter};

/// How long pid 1 may take to build the sandbox, hash the program and report: far more than it takes, unless a call
/// waits for something that does not come.
pub(super) const REPORT_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end what it has started, in milliseconds.
const LEAVE_WITHIN_MS: u16 = 2_000;
/// What it means that it takes longer.
const LATE: &str = "pid 1 did not report in time";
/// Signals that end a launch: there is no workload yet to pass them on to.
pub(super) const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// Pid 1 after its report, before "go".
#[derive(Debug)]
pub(super) struct Init {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) control: UnixStream,
    pub(super) report: Report,
    pub(super) terminal: Option<OwnedFd>,
    /// Hears what the policy's filter denies, else why nobody does.
    pub(super) listener: Result<Listener, String>,
}

fn system(attempt: &'static str) -> impl Fn(io::Error) -> LaunchError {
    move |source| LaunchError::System { attempt, source }
}

/// A program is prepared in a mount namespace: who may make none is told so, as where a sandbox's own are made.
fn unprepared(attempt: &'static str) -> impl Fn(io::Error) -> LaunchError {
    move |source| match source.raw_os_error() {
        Some(libc::EPERM | libc::ENOSPC | libc::EUSERS) => LaunchError::Namespaces {
            errno: errno_name(&source),
        },
        _ => system(attempt)(source),
    }
}

/// Makes pid 1 in `namespaces` and lets `map` write its maps. It starts its program and waits.
pub(super) fn begin(
    namespaces: libc::c_int,
    streams: Streams,
    map: impl FnOnce(i32) -> Result<(), Failure>,
) -> Result<Begun, LaunchError> {
    begin_in(None, namespaces, streams, map)
}

/// The same in a control group of version 2, where one is given.
pub(super) fn begin_in(
    group: Option<BorrowedFd<'_>>,
    namespaces: libc::c_int,
    streams: Streams,
    map: impl FnOnce(i32) -> Result<(), Failure>,
) -> Result<Begun, LaunchError> {
    let image = image(namespaces & libc::CLONE_NEWUSER != 0)
        .map_err(unprepared("prepare the program of pid 1"))?;
    begin_as(image, group, namespaces, streams, map)
}

/// Makes a process that stands beside a sandbox of somebody else's. No workload gets to see it, so its program need not be a copy.
/// With a control group of version 2 it is made in that.
pub(super) fn begin_beside(
    group: Option<BorrowedFd<'_>>,
    namespaces: libc::c_int,
    streams: Streams,
) -> Result<Begun, LaunchError> {
    let prepare = || -> io::Result<Image> {
        if let Some(mounted) = sealed_mount()? {
            return Ok(Image::Sealed(mounted));
        }
        Ok(Image::Sealed(std::fs::File::open("/proc/self/exe")?.into()))
    };
    let image = prepare().map_err(unprepared("prepare the launcher's program"))?;
    begin_as(image, group, namespaces, streams, |_| Ok(()))
}

fn begin_as(
    image: Image,
    group: Option<BorrowedFd<'_>>,
    namespaces: libc::c_int,
    streams: Streams,
    map: impl FnOnce(i32) -> Result<(), Failure>,
) -> Result<Begun, LaunchError> {
    let group = group
        .map(|group| group.try_clone_to_owned())
        .transpose()
        .map_err(system("copy descriptors"))?;
    let (ours, theirs) = UnixStream::pair().map_err(system("make a socket pair"))?;
    let descriptors = vec![
        or_null(streams.stdin).map_err(system("open /dev/null"))?,
        or_null(streams.stdout).map_err(system("open /dev/null"))?,
        or_null(streams.stderr).map_err(system("open /dev/null"))?,
        OwnedFd::from(theirs),
    ];
    let child = Child {
        namespaces,
        image,
        name: wire::INIT_NAME,
        descriptors,
        group,
    };
    let held = clone::spawn(child).map_err(|error| match error {
        SpawnError::Clone(error) => LaunchError::Namespaces {
            errno: errno_name(&error),
        },
        SpawnError::Prepare(source) => system("make the descriptors of pid 1")(source),
    })?;
    map(held.pid).map_err(LaunchError::Maps)?;
    let (pid, pidfd) = held.release().map_err(system("release pid 1"))?;
    let control = ours;
    let process = Waiting {
        pid,
        pidfd,
        control,
    };
    Ok(Begun::new(process, namespaces))
}

/// Starts a process that will fork pid 1, if one can be had from which nobody can write to this program. An ordinary user
/// cannot make the read-only mount without the namespaces; and who may not look into every process could not read
/// back a pid 1 whose program was executed out here (ptrace(2), access mode checks, rule for undumpable processes).
pub(super) fn starter() -> Option<Starter> {
    if !nix::unistd::geteuid().is_root() || !identity::is_effective(identity::CAP_SYS_PTRACE) {
        return None;
    }
    match image(true) {
        Ok(Image::Sealed(image)) => Starter::start(image, wire::INIT_NAME).ok(),
        Ok(Image::Path(_)) | Err(_) => None,
    }
}

/// Asks it for pid 1 in `namespaces`, and in a control group of version 2 where one is given; the streams come back when it
/// cannot be asked.
pub(super) fn ask(
    starter: Starter,
    group: Option<BorrowedFd<'_>>,
    namespaces: libc::c_int,
    streams: Streams,
) -> Result<Asked, Streams> {
    let ask = || -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let null = or_null(None)?;
        let [stdin, stdout, stderr] = [&streams.stdin, &streams.stdout, &streams.stderr]
            .map(|stream| stream.as_ref().unwrap_or(&null).as_fd());
        starter.ask(namespaces, [stdin, stdout, stderr, theirs.as_fd()], group)?;
        Ok(ours)
    };
    match ask() {
        Ok(control) => Ok(Asked {
            starter,
            control,
            streams,
        }),
        Err(_) => Err(streams),
    }
}

/// Takes the starter's answer and lets `map` write the maps; an error is `None` when there is no answer.
pub(super) fn answer(
    starter: &Starter,
    control: UnixStream,
    map: impl FnOnce(i32) -> Result<(), Failure>,
) -> Result<Waiting, Option<LaunchError>> {
    match starter.stream() {
        Ok(stream) => {
            await_report(stream, Instant::now() + REPORT_WITHIN).map_err(Some)?;
        }
        Err(_) => return Err(None),
    }
    let Forked { pid, pidfd } = match starter.answer() {
        Ok(forked) => forked,
        Err(ForkError::Refused(error)) => {
            return Err(Some(LaunchError::Namespaces {
                errno: errno_name(&error),
            }));
        }
        Err(ForkError::Gone(_)) => return Err(None),
    };
    if let Err(failure) = map(pid) {
        end(&pidfd);
        return Err(Some(LaunchError::Maps(failure)));
    }
    Ok(Waiting {
        pid,
        pidfd,
        control,
    })
}

/// Hands pid 1 the specification and the descriptors that it names, and takes its reports; `meanwhile` is called while
/// it builds its tree, `look` once that stands, while it makes the workload's process.
pub(super) fn build(
    begun: &mut Begun,
    spec: &Spec,
    (planted, terminal): (&[OwnedFd], Option<&OwnedFd>),
    meanwhile: &mut dyn FnMut(),
    look: impl FnOnce(i32, &TreeReport),
) -> Result<Init, LaunchError> {
    let Some(Waiting {
        pid,
        pidfd,
        control,
    }) = begun.take()
    else {
        return Err(LaunchError::Step {
            what: "pid 1 was built with before".to_owned(),
        });
    };
    let said = exchange(
        (&control, pid),
        spec,
        begun.group.as_ref(),
        (planted, terminal),
        meanwhile,
        |tree| look(pid, tree),
    );
    let (report, terminal, listener) = match said {
        Ok(said) => said,
        Err(error) => {
            if spec.order.is_some() {
                leave(&control, &pidfd);
            } else {
                end(&pidfd);
            }
            return Err(of_memory(error, begun.group.as_ref()));
        }
    };
    if let Some(failure) = &report.fatal {
        let what = failure.to_string();
        end(&pidfd);
        return Err(not_built(what, report.outcomes));
    }
    Ok(Init {
        pid,
        pidfd,
        control,
        report,
        terminal,
        listener,
    })
}

/// What it means that pid 1 ended without a report.
pub(super) fn before_report(error: &WireError) -> LaunchError {
    let mut outcomes = Outcomes::default();
    if let WireError::Gone = error {
        let what = "pid 1 was killed or ended before the workload could run".to_owned();
        return not_built(what, outcomes);
    }
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

pub(super) fn not_built(what: String, outcomes: Outcomes) -> LaunchError {
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

/// The same error, with the limit on memory named where it was that.
pub(super) fn of_memory(error: LaunchError, group: Option<&Group>) -> LaunchError {
    let ran_out = group.filter(|group| group.ran_out_of_memory() == Some(true));
    match (error, ran_out) {
        (LaunchError::Step { what }, Some(group)) => {
            let limit = group.kept(Resource::Memory);
            let limit = limit.map_or_else(String::new, |kept| format!(" of {}", kept.value));
            LaunchError::Step {
                what: format!("{what}: the memory limit{limit} leaves the sandbox itself no room"),
            }
        }
        (error, _) => error,
    }
}

/// Sends a specification and the descriptors that follow it.
pub(super) fn hand_over<'a>(
    control: &UnixStream,
    spec: &Spec,
    group: Option<&Group>,
    others: impl Iterator<Item = &'a OwnedFd>,
) -> Result<(), LaunchError> {
    let mut sent = wire::send(control, spec);
    let doors = group.into_iter().flat_map(Group::doors);
    for (_, door) in doors.take(spec.groups.len()) {
        sent = sent.and_then(|()| wire::send_descriptor(control, door));
    }
    for descriptor in others {
        sent = sent.and_then(|()| wire::send_descriptor(control, descriptor));
    }
    match sent {
        // Why it is gone is what it said last.
        Ok(()) | Err(WireError::Gone) => Ok(()),
        Err(error) => Err(before_report(&error)),
    }
}

/// What pid 1 said in the end, its terminal, and who listens.
type Said = (Report, Option<OwnedFd>, Result<Listener, String>);

/// Sends the specification; takes the report, and the terminal and the listener that may follow it.
fn exchange(
    (control, pid): (&UnixStream, i32),
    spec: &Spec,
    group: Option<&Group>,
    (planted, terminal): (&[OwnedFd], Option<&OwnedFd>),
    meanwhile: &mut dyn FnMut(),
    look: impl FnOnce(&TreeReport),
) -> Result<Said, LaunchError> {
    let until = Instant::now() + REPORT_WITHIN;
    let limit = |limit| {
        let read = control.set_read_timeout(limit);
        read.and_then(|()| control.set_write_timeout(limit))
            .map_err(system("limit the wait for pid 1"))
    };
    // Of each read and write; where most of the time is spent is the wait for the first byte.
    limit(Some(REPORT_WITHIN))?;
    hand_over(control, spec, group, planted.iter().chain(terminal))?;
    meanwhile();
    await_report(control, until)?;
    let tree: TreeReport = wire::receive(control).map_err(|error| before_report(&error))?;
    if tree.fatal.is_none() {
        look(&tree);
    }
    await_word(control, until, late(spec))?;
    let mut report: Report = wire::receive(control).map_err(|error| before_report(&error))?;
    let terminal = if report.terminal {
        let received = wire::receive_descriptor(control);
        Some(received.map_err(|error| LaunchError::Step {
            what: format!("take the terminal: {error}"),
        })?)
    } else {
        None
    };
    let mut listener = listen(pid, &report.listening);
    if let (Err(_), Listening::At { .. }) = (&listener, &report.listening) {
        // Nothing may run under a filter that hands its calls over to nobody.
        wire::send(control, &ToInit::DenyYourself).map_err(|error| before_report(&error))?;
        await_report(control, until)?;
        report = wire::receive(control).map_err(|error| before_report(&error))?;
        if let Listening::At { .. } = report.listening {
            return Err(LaunchError::Step {
                what: "pid 1 made a filter that was not to be".to_owned(),
            });
        }
    }
    if report.fatal.is_some() {
        listener = Err(unheard::NO_FILTER.to_owned());
    }
    limit(None)?;
    Ok((report, terminal, listener))
}

/// Comes to listen where the workload's process, the only child of `init`, says that it can be done.
fn listen(init: i32, listening: &Listening) -> Result<Listener, String> {
    let fetch = |number| {
        let pid = super::read_back::only_child(init)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        Listener::fetch(&crate::sys::process::open(pid)?, number)
    };
    match listening {
        Listening::NotAsked => Err(unheard::NO_FILTER.to_owned()),
        Listening::Refused(errno) => Err(match errno.as_str() {
            "EBUSY" => unheard::ANOTHER_LISTENER.to_owned(),
            "EINVAL" => unheard::KERNEL.to_owned(),
            errno => format!("{}: {errno}", unheard::REFUSED),
        }),
        Listening::At { number } => fetch(*number)
            .map_err(|error| format!("{}: {}", unheard::NOT_PASSED, errno_name(&error))),
    }
}

/// What it means that the last report does not come in time.
const fn late(spec: &Spec) -> &'static str {
    match spec.order {
        Some(_) => "the module is not compiled and ready within 60 s",
        None => LATE,
    }
}

/// Waits until pid 1 says something or ends; an operator who has enough, or the limit, ends the wait.
pub(super) fn await_report(control: &UnixStream, until: Instant) -> Result<(), LaunchError> {
    await_word(control, until, LATE)
}

/// The same, with what it means that nothing is said.
fn await_word(control: &UnixStream, until: Instant, late: &str) -> Result<(), LaunchError> {
    // Blocked by the run, so that they wait here; where they are not blocked, they end this process themselves.
    // In a thread that leaves them to another one, none of them.
    let mut ending = SigSet::empty();
    if !is_deaf() {
        ENDING.iter().for_each(|signal| ending.add(*signal));
    }
    let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
    let signals = SignalFd::with_flags(&ending, flags)
        .map_err(|errno| system("receive signals by descriptor")(errno.into()))?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LaunchError::Step {
                what: late.to_owned(),
            });
        }
        let mut list = [
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        // Rounded up: waking before the moment would only spin.
        let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1));
        match poll(&mut list, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(system("wait for pid 1")(errno.into())),
        }
        let [spoke, signal] =
            list.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
        if signal
            && let Some(info) = signals
                .read_signal()
                .map_err(|errno| system("receive a signal")(errno.into()))?
        {
            return Err(LaunchError::Interrupted {
                signal: i32::try_from(info.ssi_signo).unwrap_or(libc::SIGTERM),
            });
        }
        if spoke {
            return Ok(());
        }
    }
}

/// Lets pid 1 end and reap what it has started and that does not end by itself, where no pid namespace does; then ends it.
pub(super) fn leave(control: &UnixStream, pidfd: &OwnedFd) {
    // It takes this for the runner's end.
    let _ = control.shutdown(std::net::Shutdown::Both);
    let mut list = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    // What it started ends with it as well, only not waited for.
    let _ = poll(&mut list, PollTimeout::from(LEAVE_WITHIN_MS));
    end(pidfd);
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
    if let Some(mounted) = sealed_mount()? {
        return Ok(Image::Sealed(mounted));
    }
    let path = std::fs::read_link("/proc/self/exe")?;
    Ok(Image::Path(CString::new(path.into_os_string().into_vec())?))
}

/// A read-only mount of this program, where this process may make one: root of a container mostly may not.
fn sealed_mount() -> io::Result<Option<OwnedFd>> {
    if !nix::unistd::geteuid().is_root() || !mount::has_set_attributes() {
        return Ok(None);
    }
    let tree = match mount::clone_tree(None, c"/proc/self/exe", false) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Ok(None),
        tree => tree?,
    };
    let attributes = mount::Attributes {
        read_only: true,
        ..mount::Attributes::default()
    };
    mount::restrict(tree.as_fd(), attributes, false)?;
    Ok(Some(tree))
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

/// The folder in which a program starts where nothing is moved: the caller's own.
pub(super) fn callers_folder(job: &Job) -> PathBuf {
    let asked = job.cwd.clone().or_else(|| job.caller_cwd.clone());
    asked.unwrap_or_else(|| "/".into())
}

/// A specification that isolates nothing.
pub(super) fn bare(plan: &Plan, program: ProgramSpec) -> Spec {
    Spec {
        identity: None,
        root: None,
        protect: Vec::new(),
        loopback: false,
        host_name: false,
        deny_user_namespaces: false,
        give_up_privilege: false,
        session: false,
        session_keyring: false,
        close_descriptors: false,
        open_files: None,
        base: Vec::new(),
        seccomp: None,
        reporting: false,
        landlock: None,
        terminal: plan.job.terminal,
        owns_tree: false,
        caller_terminal: plan.job.caller_terminal.is_some(),
        leaves_tree: false,
        groups: Vec::new(),
        own_group: false,
        planted: 0,
        program: Some(program),
        stays_dumpable: false,
        launcher: None,
        order: None,
        fault: crate::sys::fault::text(),
    }
}

/// Variables as execve(2) takes them.
pub(super) fn as_words(environment: &[(std::ffi::OsString, std::ffi::OsString)]) -> Vec<Vec<u8>> {
    let all = environment.iter();
    all.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// What pid 1 is to run.
pub(super) fn program(plan: &Plan) -> ProgramSpec {
    ProgramSpec {
        argv: plan
            .job
            .argv
            .iter()
            .map(|argument| argument.as_bytes().to_vec())
            .collect(),
        environment: as_words(&plan.environment),
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

/// The same streams once more, for a start that may have to be tried again.
pub(super) fn again(streams: &Streams) -> Result<Streams, LaunchError> {
    let again = |stream: &Option<OwnedFd>| stream.as_ref().map(OwnedFd::try_clone).transpose();
    let copy = || -> io::Result<Streams> {
        Ok(Streams {
            stdin: again(&streams.stdin)?,
            stdout: again(&streams.stdout)?,
            stderr: again(&streams.stderr)?,
        })
    };
    copy().map_err(system("copy descriptors"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_report_ends_with_a_signal_a_limit_or_a_word() {
        let far = Instant::now() + REPORT_WITHIN;
        let (ours, theirs) = UnixStream::pair().unwrap();
        let error = await_report(&ours, Instant::now()).unwrap_err();
        assert!(error.to_string().contains("in time"), "{error}");

        // Of this thread alone.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTERM);
        blocked.thread_block().unwrap();
        nix::sys::signal::raise(Signal::SIGTERM).unwrap();
        let error = await_report(&ours, far).unwrap_err();
        let signal = libc::SIGTERM;
        assert!(matches!(error, LaunchError::Interrupted { signal: found } if found == signal));

        drop(theirs);
        await_report(&ours, far).unwrap();
    }
}
