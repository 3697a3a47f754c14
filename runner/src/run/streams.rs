//! Both sides of a workload's standard streams.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use ledger::bytes::hash::{Hash, Hasher};
use ledger::facts::control::Control;
use ledger::facts::execution::{Output, Unmeasured, Violation};
use ledger::file::store::Store;
use nix::sys::stat::Mode;

use super::measured::LOOKED_AT;
use super::output::{Blob, Capture, Stream};
use super::patience::Unread;
use super::record::StoreBlob;
use super::relay::{Forward, Input, RawMode, Stdin};
use super::signals::Signals;
use super::supervise::{Channel, End, Seen, Watch, supervise};
use super::violations::Violations;
use crate::plan::{Launch, Plan, Streams};
use crate::sys::terminal;

/// The runner's sides.
#[derive(Debug, Default)]
pub(super) struct Outer {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    /// The caller's input, and the pipe it goes into; without a pipe it goes into the terminal.
    input: Option<(OwnedFd, Option<OwnedFd>)>,
}

/// What was seen and captured of a run.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) seen: Seen,
    pub(super) stdout: Option<Output>,
    pub(super) stderr: Option<Output>,
    /// The first bytes of both streams of a probe.
    pub(super) remembered: [Vec<u8>; 2],
    pub(super) unmeasured: Vec<Unmeasured>,
    /// What was denied; else why that is not known.
    pub(super) violations: Result<Vec<Violation>, String>,
    /// Streams that passed their cap, in that order.
    pub(super) cut: Vec<Stream>,
    /// What is still to be passed on; wait for that only when the record is written.
    pub(super) unread: Unread,
}

/// Keeps nothing but the hash.
struct Unkept(Hasher);

impl io::Write for Unkept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Blob for Unkept {
    fn commit(self: Box<Self>) -> io::Result<Hash> {
        Ok(self.0.finish())
    }
}

/// Makes both sides.
pub(super) fn connect(own_terminal: bool, stdin: Stdin) -> io::Result<(Streams, Outer)> {
    // The workload may be another user, and open /dev/stdin or /dev/stderr: its own end, in its direction.
    let pipe = |mode| -> io::Result<(OwnedFd, OwnedFd)> {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        nix::sys::stat::fchmod(&read, Mode::from_bits_truncate(mode))?;
        Ok((read, write))
    };
    let mut inner = Streams {
        stdin: None,
        stdout: None,
        stderr: None,
    };
    let mut outer = Outer::default();
    match stdin {
        Stdin::Nothing => {}
        Stdin::Relayed(from) if own_terminal => outer.input = Some((from, None)),
        Stdin::Relayed(from) => {
            let (read, write) = pipe(0o444)?;
            inner.stdin = Some(read);
            outer.input = Some((from, Some(write)));
        }
    }
    if !own_terminal {
        let (read, write) = pipe(0o222)?;
        (outer.stdout, inner.stdout) = (Some(read), Some(write));
        let (read, write) = pipe(0o222)?;
        (outer.stderr, inner.stderr) = (Some(read), Some(write));
    }
    Ok((inner, outer))
}

impl Outer {
    /// Says "go", and watches until the tree is dead.
    pub(super) fn watch(
        self,
        plan: &Plan,
        launch: &Launch,
        violations: Violations,
        store: &mut Store,
        signals: Signals,
        is_probe: bool,
    ) -> io::Result<Measured> {
        let cap = if launch.effect.declares(Control::Output) {
            plan.policy.resources.output_bytes
        } else {
            None
        };
        let cap = cap.map(|bytes| bytes.value());
        // Two captures share one store; each opens at most one blob.
        let store = Mutex::new(store);
        let capture = |stream| {
            if is_probe {
                // Its lines are the record: nothing of its output is kept beside them.
                let open = || Ok(Box::new(Unkept(Hasher::plain())) as Box<dyn Blob + Send>);
                return Capture::new(stream, cap, open).remembering(LOOKED_AT);
            }
            Capture::new(stream, cap, || {
                let mut store = store
                    .lock()
                    .map_err(|_| io::Error::other("a blob writer panicked"))?;
                let writer = store.blob_writer().map_err(io::Error::other)?;
                Ok(Box::new(StoreBlob(writer)) as Box<dyn Blob + Send>)
            })
        };
        let mut channels = Vec::new();
        let mut raw = None;
        let stdin = io::stdin();
        let (stdout, stderr) = (io::stdout(), io::stderr());
        let mut input = None;
        let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
        let (stdout, stderr) = if is_probe {
            (nowhere.as_fd(), nowhere.as_fd())
        } else {
            (stdout.as_fd(), stderr.as_fd())
        };
        if let Some(master) = &launch.terminal {
            let from = Some(master.try_clone()?);
            let forward = Forward::new(stdout);
            channels.push(Channel {
                from,
                hung_up: false,
                stream: Stream::Stdout,
                capture: capture(Stream::Stdout),
                forward,
            });
            if !is_probe {
                raw = RawMode::set(stdin.as_fd())?;
            }
            if let Ok((rows, columns)) = terminal::window_size(stdin.as_fd()) {
                terminal::set_window_size(master.as_fd(), rows, columns)?;
            }
            if let Some((from, _)) = self.input {
                input = Some(Input::new(from.as_fd(), master.try_clone()?)?);
            }
        } else {
            for (from, stream, to) in [
                (self.stdout, Stream::Stdout, stdout),
                (self.stderr, Stream::Stderr, stderr),
            ] {
                let forward = Forward::new(to);
                channels.push(Channel {
                    from,
                    hung_up: false,
                    stream,
                    capture: capture(stream),
                    forward,
                });
            }
            if let Some((from, Some(to))) = self.input {
                input = Some(Input::new(from.as_fd(), to)?);
            }
        }
        let mut watch = Watch {
            init: &launch.init,
            first: launch.first.as_ref(),
            control: &launch.control,
            leaving: launch.leaving.as_ref(),
            owns_tree: launch.effect.owns_tree,
            channels,
            input,
            terminal: launch.terminal.as_ref().map(|master| master.as_fd()),
            deadline: plan
                .policy
                .resources
                .timeout_ms
                .filter(|_| !plan.job.leaves_out(Control::Timeout))
                .map(|limit| Duration::from_millis(limit.value())),
            violations,
            signals,
        };
        let mut cut = Vec::new();
        let seen = supervise(&mut watch, &mut |stream| cut.push(stream));
        drop(raw);
        let seen = seen?;
        let mut measured = Measured {
            violations: watch.violations.finish(seen.duration),
            stdout: None,
            stderr: None,
            remembered: [Vec::new(), Vec::new()],
            unmeasured: Vec::new(),
            cut,
            unread: Unread {
                forwards: Vec::new(),
                due: seen.due,
                by_operator: matches!(seen.end, End::Operator(_)),
                signals: watch.signals,
            },
            seen,
        };
        for channel in watch.channels {
            let captured = channel.capture.finish();
            measured.unmeasured.extend(captured.unmeasured);
            measured.unread.forwards.push(channel.forward);
            let [out, err] = &mut measured.remembered;
            let (output, remembered) = match channel.stream {
                Stream::Stdout => (&mut measured.stdout, out),
                Stream::Stderr => (&mut measured.stderr, err),
            };
            *output = Some(captured.output);
            *remembered = captured.remembered;
        }
        Ok(measured)
    }
}
