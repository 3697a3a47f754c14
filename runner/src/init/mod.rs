//! Pid 1 inside: builds the sandbox around itself, reports what took effect, waits for "go", runs the
//! workload as another process, reaps, passes signals on, and ends with it.
//!
//! It is the runner's own program, executed again from a mount that nobody can write to, with an empty
//! environment and no key in its memory. It never becomes the workload: pid 1 ignores default signals.

mod launcher;
mod module;
mod patience;
pub mod wire;
mod workload;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::mechanism::{Failure, Outcomes, group, identity, protect, root};
use crate::sys::reserve::Reserve;
use crate::sys::{descriptor, fault, network, process, starter, terminal};
use wire::{FromInit, Listening, Report, Spec, ToInit, TreeReport};

/// Exit status of a pid 1 that could not do its work; the runner has the reason from the report.
const FAILED: i32 = 97;

/// Whether this process was executed to be pid 1 of a sandbox.
#[must_use]
pub fn is_requested() -> bool {
    std::env::args_os()
        .next()
        .is_some_and(|name| name.as_encoded_bytes() == wire::INIT_NAME.to_bytes())
}

/// Is pid 1 until the end.
pub fn run() -> ! {
    let Ok(control) = descriptor::take_planted(wire::CONTROL) else {
        eprintln!("containment-init is started by runner, not by hand");
        process::exit_now(FAILED)
    };
    // It may have been started before there is a sandbox: then it returns in the process that was made for one.
    let status = match starter::serve(UnixStream::from(control)) {
        Ok(control) => serve(&control),
        Err(_) => FAILED,
    };
    process::exit_now(status)
}

fn serve(control: &UnixStream) -> i32 {
    let Ok(spec) = wire::receive::<Spec>(control) else {
        return FAILED;
    };
    let mut outcomes = Outcomes::default();
    // Before anything is built or forked, so that all of it counts.
    if enter_groups(&spec, control, &mut outcomes).is_err() {
        return FAILED;
    }
    if wire::receive_planted(control, spec.planted).is_err() {
        return FAILED;
    }
    if spec.caller_terminal && take_caller_terminal(control).is_err() {
        return FAILED;
    }
    fault::set(spec.fault.clone());
    if !spec.owns_tree && nix::sys::prctl::set_child_subreaper(true).is_err() {
        return FAILED;
    }
    if let (Some(launcher), Some(program)) = (&spec.launcher, &spec.program) {
        return launcher::serve(control, &spec, launcher, program);
    }
    let mut unreachable = Vec::new();
    let built = build(&spec, &mut outcomes, &mut unreachable);
    let tree = TreeReport {
        fatal: built.as_ref().err().cloned(),
        unreachable,
    };
    // The runner looks at the tree while the workload's process is made.
    if wire::send(control, &tree).is_err() {
        end_tree(&spec);
        return FAILED;
    }
    let prepared = built.and_then(|own_terminal| {
        if let Some(program) = &spec.program {
            workload::prepare(&spec, program, own_terminal, control, &mut outcomes).map(Some)
        } else {
            Ok(None)
        }
    });
    let (mut prepared, mut fatal) = match prepared {
        Ok(prepared) => (prepared, None),
        Err(failure) => (None, Some(failure)),
    };
    let mut handed_over = false;
    loop {
        let own = prepared
            .as_ref()
            .and_then(|prepared| prepared.terminal.as_ref())
            .filter(|_| !handed_over);
        let report = Report {
            outcomes: outcomes.clone(),
            fatal,
            program: prepared.as_ref().map(|prepared| prepared.report.clone()),
            said: prepared.as_ref().and_then(|prepared| prepared.said.clone()),
            terminal: own.is_some(),
            listening: prepared
                .as_ref()
                .map_or(Listening::NotAsked, |prepared| prepared.listening.clone()),
        };
        let mut said = wire::send(control, &report);
        if let (Ok(()), Some(own)) = (&said, own) {
            said = wire::send_descriptor(control, &own.master);
            handed_over = true;
        }
        if said.is_err() {
            end_tree(&spec);
            return FAILED;
        }
        // The runner reads back from outside and appends the start record meanwhile.
        match wire::receive::<ToInit>(control) {
            Ok(ToInit::Go) => break,
            Ok(ToInit::DenyYourself) => {}
            _ => {
                end_tree(&spec);
                return 0;
            }
        }
        let again = match (prepared.take(), &spec.program) {
            (Some(prepared), Some(program)) => prepared
                .again(&spec, program, control, &mut outcomes)
                .map(Some),
            _ => Ok(None),
        };
        (prepared, fatal) = match again {
            Ok(prepared) => (prepared, None),
            Err(failure) => (None, Some(failure)),
        };
    }
    // From here on the closed socket ends the tree. The signal would also come when only the thread that forked
    // this process ends.
    if spec.owns_tree && nix::sys::prctl::set_pdeathsig(None).is_err() {
        return FAILED;
    }
    let Some(waiting) = prepared.and_then(|prepared| prepared.waiting) else {
        return FAILED;
    };
    let started = waiting.go(control);
    let said = match started {
        Ok(()) => wire::send(control, &FromInit::Started),
        Err(workload::NotStarted::Errno(errno)) => {
            wire::send(control, &FromInit::ExecFailed(errno))
        }
        Err(workload::NotStarted::Lost) => wire::send(control, &FromInit::NotStarted),
    };
    if said.is_err() || started.is_err() {
        end_tree(&spec);
        return 0;
    }
    let main = waiting.pid();
    let pass_on = |signal| {
        // The group may have just ended.
        let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(main), signal);
    };
    let status = match supervise(control, main, &pass_on) {
        Ok(Some((how, survivors))) => {
            // The runner may be gone; the tree ends either way.
            let _ = wire::send(control, &FromInit::Ended { how, survivors });
            0
        }
        Ok(None) => 0,
        Err(_) => FAILED,
    };
    end_tree(&spec);
    status
}

/// Comes into the control groups whose doors follow, and makes the one it is in the root of its control group namespace:
/// what clone3 made begins where the runner was (cgroup_namespaces(7)).
fn enter_groups(
    spec: &Spec,
    control: &UnixStream,
    outcomes: &mut Outcomes,
) -> Result<(), wire::WireError> {
    for mechanisms in &spec.groups {
        let door = wire::receive_descriptor(control)?;
        if let Err(error) = group::enter(door.as_fd()) {
            for mechanism in mechanisms {
                outcomes.note(
                    mechanism,
                    Err(Failure::call("enter a control group", &error)),
                );
            }
        }
    }
    if spec.own_group {
        let kind = nix::sched::CloneFlags::CLONE_NEWCGROUP;
        let begun = fault::guard("namespace-cgroup", || Ok(nix::sched::unshare(kind)?));
        outcomes.note(
            "namespace-cgroup",
            begun.map_err(|error| Failure::call("unshare control groups", &error)),
        );
    }
    Ok(())
}

/// Begins a session with the terminal that comes.
fn take_caller_terminal(control: &UnixStream) -> Result<(), wire::WireError> {
    let terminal = wire::receive_descriptor(control)?;
    nix::unistd::setsid().map_err(io::Error::from)?;
    terminal::make_controlling(terminal.as_fd())?;
    Ok(())
}

/// Everything but the workload. The first thing without which there is no sandbox ends it.
fn build(
    spec: &Spec,
    outcomes: &mut Outcomes,
    unreachable: &mut Vec<PathBuf>,
) -> Result<Option<OwnTerminal>, Failure> {
    // Before anything is another's: who is not the owner of its own entries there opens none.
    if has_empty_proc(spec) {
        workload::keep_score();
    }
    if let Some(ids) = &spec.identity {
        identity::take(ids, outcomes);
    }
    // After the maps are written; from here on only the runner may look inside.
    crate::sys::identity::set_dumpable(spec.stays_dumpable)
        .map_err(|error| Failure::call("switch dumpable off", &error))?;
    if spec.owns_tree {
        // Until "go", also while a call of the build waits for a file system that does not answer. After the change of ids,
        // which would undo it (prctl(2), PR_SET_PDEATHSIG).
        let bound = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from);
        bound.map_err(|error| Failure::call("end with the runner", &error))?;
    }
    if spec.host_name {
        let named = nix::unistd::sethostname("sandbox").map_err(io::Error::from);
        // A filter around this process may deny it, as in containers; no control rests on a name.
        outcomes.note(
            "host-name",
            named.map_err(|error| Failure::call("set the host name", &error)),
        );
    }
    if spec.loopback {
        network::loopback_up().map_err(|error| Failure::call("switch loopback on", &error))?;
    }
    let new_root = match &spec.root {
        Some(tree) => Some(root::build(tree, outcomes)?),
        None => None,
    };
    if let Some(new_root) = &new_root {
        unreachable.clone_from(&new_root.unreachable);
        for folder in &spec.protect {
            let done = protect::apply(new_root.folder(), folder);
            outcomes.note("protect", done);
        }
        // Before /proc/sys is entered by the mask's path: the mask is attached in the new tree alone, and
        // the old tree's /proc is still this process's.
        if spec.deny_user_namespaces {
            identity::deny_user_namespaces(outcomes);
        }
        root::enter(new_root, outcomes)?;
    }
    drop(new_root);
    let own_terminal = if spec.terminal {
        Some(OwnTerminal::open()?)
    } else {
        None
    };
    if spec.give_up_privilege {
        identity::give_up_privilege(outcomes);
    } else if spec.identity.is_some() {
        identity::keep_privilege(outcomes);
    }
    Ok(own_terminal)
}

/// Whether there will be no /proc.
fn has_empty_proc(spec: &Spec) -> bool {
    let entries = spec.root.iter().flat_map(|root| &root.entries);
    let mut at_proc = entries.filter(|entry| entry.path == std::path::Path::new("/proc"));
    at_proc.any(|entry| entry.what == root::What::Folder)
}

/// A pseudo-terminal of the sandbox's own devpts.
#[derive(Debug)]
pub(crate) struct OwnTerminal {
    master: OwnedFd,
    slave: OwnedFd,
}

impl OwnTerminal {
    fn open() -> Result<Self, Failure> {
        let open = || -> io::Result<Self> {
            let flags = nix::fcntl::OFlag::O_RDWR
                | nix::fcntl::OFlag::O_NOCTTY
                | nix::fcntl::OFlag::O_CLOEXEC;
            let master = nix::fcntl::open("/dev/ptmx", flags, nix::sys::stat::Mode::empty())?;
            terminal::unlock(master.as_fd())?;
            let slave = terminal::peer(master.as_fd())?;
            Ok(Self { master, slave })
        };
        open().map_err(|error| Failure::call("open a terminal", &error))
    }
}

type End = (process::Ended, Option<u32>);

/// Waits for the end of the main process, reaping everybody else and passing signals on; `None` when the runner is gone or says so.
fn supervise(control: &UnixStream, main: i32, pass_on: &dyn Fn(Signal)) -> io::Result<Option<End>> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children.thread_block()?;
    let signals = SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let reserve = Reserve::hold();
    loop {
        // Before waiting: somebody may have ended before the signal was blocked.
        while let Some((pid, how)) = process::reap()? {
            if pid == main {
                drop(reserve);
                return Ok(Some((how, count_others())));
            }
        }
        let mut waiting = [
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut waiting, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let spoke = waiting[0]
            .revents()
            .is_some_and(|events| !events.is_empty());
        while let Ok(Some(_)) = signals.read_signal() {}
        if spoke {
            match wire::receive::<ToInit>(control) {
                Ok(ToInit::Signal(number)) => {
                    if let Ok(signal) = Signal::try_from(number) {
                        pass_on(signal);
                    }
                }
                Ok(ToInit::Go | ToInit::Build | ToInit::DenyYourself) => {}
                Ok(ToInit::End) | Err(_) => return Ok(None),
            }
        }
    }
}

/// Living processes beside this one: whether there are any, by kill(2), which reaches every process of a pid namespace but
/// its first; how many, by the sandbox's own /proc, and where there is none nobody knows.
fn count_others() -> Option<u32> {
    let own = std::process::id().to_string();
    if own != "1" {
        return None;
    }
    let all = nix::unistd::Pid::from_raw(-1);
    if nix::sys::signal::kill(all, None) == Err(nix::errno::Errno::ESRCH) {
        return Some(0);
    }
    if !has_own_proc() {
        return None;
    }
    let mut count = 0;
    for entry in std::fs::read_dir("/proc").ok()? {
        let name = entry.ok()?.file_name();
        let name = name.to_string_lossy();
        if name.bytes().all(|byte| byte.is_ascii_digit()) && *name != *own {
            let stat =
                crate::sys::pseudo::read_text(format!("/proc/{name}/stat")).unwrap_or_default();
            let state = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.chars().next());
            if state.is_some_and(|state| state != 'Z' && state != 'X') {
                count += 1;
            }
        }
    }
    Some(count)
}

/// Whether /proc shows this process's own pid namespace. An empty folder, or the /proc of another one, counts nobody.
pub(crate) fn has_own_proc() -> bool {
    let own = std::fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

/// Without a pid namespace nobody else ends the tree: orphans come to this process, which kills and reaps until
/// there are none.
fn end_tree(spec: &Spec) {
    if !spec.owns_tree && !spec.leaves_tree {
        end_children();
    }
}

/// Ends all that descends from this process.
fn end_children() {
    let own = std::process::id().cast_signed();
    // Without a readable /proc there is nobody to name.
    while let Ok(pids) = process::children_of(own) {
        if pids.is_empty() {
            return;
        }
        // All are killed before one is waited for: those that still fork meanwhile would keep this process busy for ever.
        let pids = pids.into_iter().map(nix::unistd::Pid::from_raw);
        for pid in pids.clone() {
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
        }
        for pid in pids {
            let _ = nix::sys::wait::waitpid(pid, None);
        }
    }
}
