//! A switch that ends or stops this process at a named point, for tests alone.
//!
//! `RUNNER_KILL=<point>=<signal>[#<n>]`: when the point is passed for the n-th time (the first, unless said), the process
//! sends itself `KILL`, `STOP`, `TERM`, `INT` or `HUP`. Compiled only with the `faults` feature, which only tests turn
//! on.
//!
//! Points of this crate are `before <operation>` and `after <operation>` for every call that touches the disk, in
//! the words of [`Operation::as_str`](super::durable::Operation::as_str), and `during write`: half of the bytes are
//! written.

use std::fs::File;

use super::durable::refused::Operation;

#[cfg(feature = "faults")]
mod switch {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    struct Switch {
        point: String,
        signal: Signal,
        /// How many times the point is still to be passed, this one included.
        left: AtomicU64,
    }

    fn read() -> Option<Switch> {
        let text = std::env::var("RUNNER_KILL").ok()?;
        let (point, signal) = text.split_once('=')?;
        let (signal, left) = signal.split_once('#').unwrap_or((signal, "1"));
        Some(Switch {
            point: point.to_owned(),
            signal: match signal {
                "KILL" => Signal::KILL,
                "STOP" => Signal::STOP,
                "TERM" => Signal::TERM,
                "INT" => Signal::INT,
                "HUP" => Signal::HUP,
                _ => return None,
            },
            left: AtomicU64::new(left.parse().ok()?),
        })
    }

    /// Whether it is this point's turn.
    pub(super) fn is(point: &str) -> Option<Signal> {
        static SWITCH: OnceLock<Option<Switch>> = OnceLock::new();
        let switch = SWITCH.get_or_init(read).as_ref()?;
        let turn = switch.point == point && switch.left.fetch_sub(1, Ordering::Relaxed) == 1;
        turn.then_some(switch.signal)
    }

    pub(super) fn send(signal: Signal) {
        // Whoever tests sees that nothing was sent.
        let _ = kill_process(getpid(), signal);
    }
}

/// Nothing, unless it is this point's turn.
pub fn at(point: &str) {
    #[cfg(feature = "faults")]
    if let Some(signal) = switch::is(point) {
        switch::send(signal);
    }
    #[cfg(not(feature = "faults"))]
    let _ = point;
}

/// The point before a call that touches the disk.
pub(super) fn before(operation: Operation) {
    #[cfg(feature = "faults")]
    at(&format!("before {operation}"));
    #[cfg(not(feature = "faults"))]
    let _ = operation;
}

/// The point after a call that touches the disk.
pub(super) fn after(operation: Operation) {
    #[cfg(feature = "faults")]
    at(&format!("after {operation}"));
    #[cfg(not(feature = "faults"))]
    let _ = operation;
}

/// The point in the middle of a write at `offset`, or at the file's position.
pub(super) fn during_write(file: &File, bytes: &[u8], offset: Option<u64>) {
    #[cfg(feature = "faults")]
    if let Some(signal) = switch::is("during write") {
        use std::io::Write as _;
        use std::os::unix::fs::FileExt as _;
        let (half, mut file) = (bytes.get(..bytes.len() / 2).unwrap_or_default(), file);
        let _ = match offset {
            Some(offset) => file.write_all_at(half, offset),
            None => file.write_all(half),
        };
        switch::send(signal);
    }
    #[cfg(not(feature = "faults"))]
    let _ = (file, bytes, offset);
}
