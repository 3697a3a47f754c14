//! From "go" to the end of the tree: streams, signals, the deadline.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::time::{ClockId, clock_gettime};

use super::output::{Capture, Stream};
use super::relay::{Forward, Input, STALL, read_ready, set_nonblocking, timeout};
use super::signals::Signals;
use super::violations::Violations;
use crate::init::wire::{self, FromInit, ToInit};
use crate::sys::fault;
use crate::sys::process::{self, Ended};
use crate::sys::terminal;

/// How long a tree without a pid namespace may take to be killed by its own pid 1.
const GRACE: Duration = Duration::from_secs(1);
/// What is read from a stream after the end at most; no pipe holds as much, so beyond it someone who is not of
/// the tree goes on writing.
const DRAINED: usize = 16 << 20;
/// How much is read from a stream at once.
const BUFFER: usize = 64 << 10;

/// How a run ended, as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The main process ended.
    Main(Ended),
    /// The deadline came first.
    Deadline,
    /// The operator ended it, by this signal.
    Operator(i32),
    /// The kernel would not execute the program.
    NotExecutable(i32),
    /// The workload's process ended before it executed the program.
    NotStarted,
    /// Pid 1 ended without a word.
    Lost(Ended),
}

/// What was seen of a run.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) end: End,
    pub(super) duration: Duration,
    pub(super) survivors: Option<u32>,
    /// When the run is to be over, by [`boot_time`]: at its deadline, or when the operator ended it.
    pub(super) due: Option<Duration>,
    /// How long after the deadline this process saw that it is over; absent without a deadline.
    pub(super) late: Option<Duration>,
}

/// One stream of the workload and where it goes.
pub(super) struct Channel<'a> {
    pub(super) from: Option<OwnedFd>,
    /// A terminal that nobody inside has open just now: poll(2) would return at once, and for nothing.
    pub(super) hung_up: bool,
    pub(super) stream: Stream,
    pub(super) capture: Capture<'a>,
    pub(super) forward: Forward,
}

/// Everything that is watched.
pub(super) struct Watch<'a> {
    pub(super) init: &'a OwnedFd,
    /// The first process of the tree's pid namespace, where that is not `init`.
    pub(super) first: Option<&'a OwnedFd>,
    pub(super) control: &'a UnixStream,
    /// A process that ends by itself and is to be reaped.
    pub(super) leaving: Option<&'a OwnedFd>,
    pub(super) owns_tree: bool,
    pub(super) channels: Vec<Channel<'a>>,
    /// The caller's input, and where it goes.
    pub(super) input: Option<Input>,
    /// The workload's terminal, whose size follows the caller's.
    pub(super) terminal: Option<BorrowedFd<'a>>,
    pub(super) deadline: Option<Duration>,
    /// What was denied, and who waits to be told so.
    pub(super) violations: Violations,
    pub(super) signals: Signals,
}

/// Time since boot: it goes on while the machine sleeps, and never steps.
pub(super) fn boot_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_BOOTTIME)?.into())
}

struct State {
    end: Option<End>,
    ended_at: Option<Duration>,
    survivors: Option<u32>,
    /// When pid 1 is killed although it was told to end its tree.
    give_up_at: Option<Duration>,
    interrupts: u32,
    /// Whether the workload executes its program.
    started: bool,
}

/// Runs the workload to its end. `cut` is told of each stream that passes its cap.
pub(super) fn supervise(watch: &mut Watch<'_>, cut: &mut dyn FnMut(Stream)) -> io::Result<Seen> {
    for channel in &watch.channels {
        if let Some(from) = &channel.from {
            set_nonblocking(from.as_fd())?;
        }
    }
    let began = boot_time()?;
    let deadline = watch.deadline.map(|limit| began.saturating_add(limit));
    fault::point("before go");
    if wire::send(watch.control, &ToInit::Go).is_err() {
        let how = process::wait(watch.init)?;
        return Ok(Seen {
            end: End::Lost(how),
            duration: Duration::ZERO,
            survivors: None,
            due: deadline,
            late: None,
        });
    }
    fault::point("after go");
    let mut state = State {
        end: None,
        ended_at: None,
        survivors: None,
        give_up_at: None,
        interrupts: 0,
        started: false,
    };
    let mut spoke_last = false;
    let mut buffer = vec![0; BUFFER];
    loop {
        let now = boot_time()?;
        if state.end.is_none() && deadline.is_some_and(|deadline| now >= deadline) {
            state.end = Some(End::Deadline);
            state.ended_at = Some(now);
            end_tree(watch, &mut state, now)?;
        }
        if state.give_up_at.is_some_and(|at| now >= at) {
            state.give_up_at = None;
            kill(watch.init)?;
        }
        let until = [deadline.filter(|_| state.end.is_none()), state.give_up_at]
            .into_iter()
            .flatten()
            .min();
        let ready = wait(
            watch,
            until.map(|until| until.saturating_sub(now)),
            spoke_last,
            state.started,
        )?;
        if ready.left
            && let Some(leaving) = watch.leaving.take()
        {
            process::wait(leaving)?;
        }
        if ready.signal {
            take_signals(watch, &mut state)?;
        }
        if ready.control {
            spoke_last |= !take_message(watch.control, &mut state)?;
        }
        if ready.denied {
            watch
                .violations
                .answer(&|| Ok(boot_time()?.saturating_sub(began)))?;
        }
        pass_output(watch, &ready, &mut buffer, cut)?;
        pass_input(watch, &ready, &mut buffer);
        // Pid 1 was alone, and has closed what it had: it is past its last step, and the kernel takes its namespaces apart.
        // What follows need not wait for that, only whoever says that everything is gone.
        let alone = spoke_last && state.survivors == Some(0);
        if ready.init || alone {
            break;
        }
    }
    let how = match state.end {
        Some(_) if state.survivors == Some(0) => None,
        _ => Some(process::wait(watch.init)?),
    };
    // Words that were said just before the end.
    while !spoke_last && take_message(watch.control, &mut state)? {}
    // The tree is dead: what is in the pipes is all there will be.
    drain(watch, &mut buffer, cut)?;
    let ended = match state.ended_at {
        Some(at) => at,
        None => boot_time()?,
    };
    let due = match state.end {
        Some(End::Operator(_)) => Some(deadline.map_or(ended, |deadline| deadline.min(ended))),
        _ => deadline,
    };
    Ok(Seen {
        end: match (state.end, how) {
            (Some(end), _) => end,
            (None, Some(how)) => End::Lost(how),
            (None, None) => return Err(io::Error::other("pid 1 ended, and nothing says how")),
        },
        duration: ended.saturating_sub(began),
        survivors: state.survivors,
        due,
        late: deadline.map(|deadline| ended.saturating_sub(deadline)),
    })
}

#[derive(Default)]
struct Ready {
    init: bool,
    left: bool,
    control: bool,
    signal: bool,
    denied: bool,
    input: bool,
    input_room: bool,
    from: Vec<bool>,
    room: Vec<bool>,
}

fn wait(
    watch: &Watch<'_>,
    time: Option<Duration>,
    control_closed: bool,
    started: bool,
) -> io::Result<Ready> {
    let forwards = watch.channels.iter().map(|channel| &channel.forward);
    let stalled = forwards
        .chain(watch.input.as_ref().map(|input| &input.to))
        .any(Forward::is_stalled)
        || watch.channels.iter().any(|channel| channel.hung_up);
    let time = match time {
        Some(time) if stalled => Some(time.min(STALL)),
        None if stalled => Some(STALL),
        time => time,
    };
    let kept = watch.signals.has_kept();
    let time = if kept { Some(Duration::ZERO) } else { time };
    let mut list = vec![
        PollFd::new(watch.init.as_fd(), PollFlags::POLLIN),
        PollFd::new(watch.signals.fd(), PollFlags::POLLIN),
    ];
    let control = push(
        &mut list,
        (!control_closed).then(|| watch.control.as_fd()),
        PollFlags::POLLIN,
    );
    let leaving = watch.leaving.map(OwnedFd::as_fd);
    let left = push(&mut list, leaving, PollFlags::POLLIN);
    let denied = push(&mut list, watch.violations.more(), PollFlags::POLLIN);
    // A key that sends a signal is for the workload, and not for the process that is about to become it.
    let for_nobody = watch.terminal.is_some() && !started;
    let input = watch.input.as_ref().filter(|_| !for_nobody);
    let input_at = push(&mut list, input.and_then(Input::more), PollFlags::POLLIN);
    let input_room = push(
        &mut list,
        input.and_then(|input| input.to.room()),
        PollFlags::POLLOUT,
    );
    let mut from = Vec::new();
    let mut room = Vec::new();
    for channel in &watch.channels {
        let open = channel.from.as_ref();
        let open = open.filter(|_| !channel.forward.is_full() && !channel.hung_up);
        from.push(push(
            &mut list,
            open.map(|from| from.as_fd()),
            PollFlags::POLLIN,
        ));
        room.push(push(&mut list, channel.forward.room(), PollFlags::POLLOUT));
    }
    match poll(&mut list, timeout(time)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let is_ready = |at: Option<usize>| {
        at.and_then(|at| list.get(at))
            .and_then(PollFd::revents)
            .is_some_and(|events| !events.is_empty())
    };
    Ok(Ready {
        init: is_ready(Some(0)),
        signal: kept || is_ready(Some(1)),
        control: is_ready(control),
        left: is_ready(left),
        denied: is_ready(denied),
        input: is_ready(input_at),
        input_room: is_ready(input_room),
        from: from.into_iter().map(is_ready).collect(),
        room: room.into_iter().map(is_ready).collect(),
    })
}

fn push<'fd>(
    list: &mut Vec<PollFd<'fd>>,
    fd: Option<BorrowedFd<'fd>>,
    flags: PollFlags,
) -> Option<usize> {
    list.push(PollFd::new(fd?, flags));
    Some(list.len() - 1)
}

/// Takes one message; `false` when there will be no more.
fn take_message(control: &UnixStream, state: &mut State) -> io::Result<bool> {
    match wire::receive::<FromInit>(control) {
        Ok(FromInit::Started) => {
            state.started = true;
            Ok(true)
        }
        Ok(FromInit::ExecFailed(errno)) => {
            state.end.get_or_insert(End::NotExecutable(errno));
            Ok(true)
        }
        Ok(FromInit::NotStarted) => {
            state.end.get_or_insert(End::NotStarted);
            Ok(true)
        }
        Ok(FromInit::Ended { how, survivors }) => {
            if state.end.is_none() {
                state.end = Some(End::Main(how));
                state.ended_at = Some(boot_time()?);
                state.survivors = survivors;
            }
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

fn take_signals(watch: &Watch<'_>, state: &mut State) -> io::Result<()> {
    while let Some(number) = watch.signals.next()? {
        if number == libc::SIGWINCH
            && let Some(inner) = watch.terminal
        {
            if let Ok((rows, columns)) = terminal::window_size(io::stdin().as_fd()) {
                terminal::set_window_size(inner, rows, columns)?;
            }
            continue;
        }
        if matches!(number, libc::SIGINT | libc::SIGTERM) {
            state.interrupts += 1;
            if state.interrupts > 1 && state.end.is_none() {
                let now = boot_time()?;
                state.end = Some(End::Operator(number));
                state.ended_at = Some(now);
                end_tree(watch, state, now)?;
                continue;
            }
        }
        // The workload may have just ended.
        let _ = wire::send(watch.control, &ToInit::Signal(number));
    }
    Ok(())
}

fn end_tree(watch: &Watch<'_>, state: &mut State, now: Duration) -> io::Result<()> {
    if watch.owns_tree {
        kill(watch.first.unwrap_or(watch.init))?;
        if watch.first.is_none() {
            return Ok(());
        }
        // The program that made the sandbox waits for that, but where somebody stopped it: who started it ends it, too, and is
        // ended itself where it does not come to it.
    }
    // Without a pid namespace pid 1 kills its descendants itself.
    let _ = wire::send(watch.control, &ToInit::End);
    state.give_up_at = Some(now.saturating_add(GRACE));
    Ok(())
}

fn kill(init: &OwnedFd) -> io::Result<()> {
    match process::kill(init, libc::SIGKILL) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        done => done,
    }
}

fn pass_output(
    watch: &mut Watch<'_>,
    ready: &Ready,
    buffer: &mut [u8],
    cut: &mut dyn FnMut(Stream),
) -> io::Result<()> {
    for (channel, (from, room)) in watch
        .channels
        .iter_mut()
        .zip(ready.from.iter().zip(&ready.room))
    {
        if *room || channel.forward.is_stalled() {
            channel.forward.write_ready();
        }
        if *from || channel.hung_up {
            read_some(channel, buffer, cut)?;
        }
    }
    Ok(())
}

/// Reads once; how much, 0 when there is nothing more now.
fn read_some(
    channel: &mut Channel<'_>,
    buffer: &mut [u8],
    cut: &mut dyn FnMut(Stream),
) -> io::Result<usize> {
    let Some(from) = &channel.from else {
        return Ok(0);
    };
    let count = match read_ready(from.as_fd(), buffer) {
        Ok(Some(count)) => count,
        Ok(None) => {
            channel.from = None;
            return Ok(0);
        }
        // It may be opened again.
        Err(error) if error.raw_os_error() == Some(libc::EIO) => {
            channel.hung_up = true;
            return Ok(0);
        }
        Err(error) => return Err(error),
    };
    channel.hung_up = false;
    let bytes = buffer.get(..count).unwrap_or_default();
    let taken = channel.capture.take(bytes);
    fault::point("during output");
    channel
        .forward
        .add(bytes.get(..taken.forward).unwrap_or_default());
    if taken.cut {
        cut(channel.stream);
    }
    Ok(count)
}

fn drain(watch: &mut Watch<'_>, buffer: &mut [u8], cut: &mut dyn FnMut(Stream)) -> io::Result<()> {
    for channel in &mut watch.channels {
        let mut drained = 0;
        while drained < DRAINED {
            match read_some(channel, buffer, cut)? {
                0 => break,
                count => drained += count,
            }
        }
        channel.forward.write_now();
    }
    Ok(())
}

fn pass_input(watch: &mut Watch<'_>, ready: &Ready, buffer: &mut [u8]) {
    let Some(input) = &mut watch.input else {
        return;
    };
    if ready.input_room || input.to.is_stalled() {
        input.to.write_ready();
    }
    if ready.input {
        input.read_ready(buffer);
    }
    if input.is_over() {
        // The workload sees the end.
        watch.input = None;
    }
}
