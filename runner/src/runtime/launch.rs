//! What the runtimes that start pid 1 themselves share: making it, its specification and its report.

mod image;
mod talk;
mod words;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::init::wire::{self, Report, Spec, TreeReport, WireError};
use crate::mechanism::group::{Group, Resource};
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{Asked, Begun, LaunchError, Streams, Waiting};
use crate::sys::clone::{self, Child, Image, SpawnError, Stage};
use crate::sys::errno_name;
use crate::sys::identity;
use crate::sys::notify::Listener;
use crate::sys::starter::{ForkError, Forked, Starter};
use image::{image, sealed_mount};
use talk::exchange;
pub(super) use talk::{await_report, take_terminal};
pub(super) use words::{as_words, bare, callers_folder, found, program};

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
