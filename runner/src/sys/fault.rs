//! A switch that takes one mechanism away, for tests alone.
//!
//! `RUNNER_FAULT=<mechanism>=fail|void[,…]`: the mechanism's call fails with EPERM, or reports success and does
//! nothing. Compiled only with the `faults` feature, which only the crate's own tests turn on.

use std::io;

/// Mechanisms that the switch knows; a test walks the list.
pub const MECHANISMS: &[&str] = &[
    "namespace-network",
    "namespace-ipc",
    "namespace-uts",
    "namespace-cgroup",
    "namespace-pid",
    "namespace-mount",
    "mount-setattr",
    "pivot-root",
    "read-only",
    "proc",
    "proc-mask",
    "protect",
    "idmap",
    "set-groups",
    "set-ids",
    "capabilities",
    "bounding-set",
    "no-new-privs",
    "userns-limit",
    "new-session",
    "limit-files",
    "group-memory",
    "group-pids",
    "group-cpu",
    "close-descriptors",
    "landlock",
    "base-filter",
    "seccomp",
    "listener",
];

/// Points of a run at which [`point`] can end it, in their order; a test walks the list. Those of the ledger are in
/// [`ledger::file::kill`].
pub const POINTS: &[&str] = &[
    "before launch",
    "after launch",
    "after start record",
    "before go",
    "after go",
    "during output",
    "before execution record",
    "after execution record",
    "before exit",
];

/// What the switch does to a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its call fails with EPERM.
    Fail,
    /// Its call reports success and has no effect.
    Void,
}

#[cfg(feature = "faults")]
mod switch {
    use super::Fault;
    use std::sync::OnceLock;

    static SWITCH: OnceLock<String> = OnceLock::new();

    /// Takes the switch from the environment; init, whose environment is empty, gets it handed in.
    pub fn set(text: Option<String>) {
        let text = text.or_else(|| std::env::var("RUNNER_FAULT").ok());
        let _ = SWITCH.set(text.unwrap_or_default());
    }

    /// The switch as text.
    pub fn text() -> Option<String> {
        SWITCH.get().filter(|text| !text.is_empty()).cloned()
    }

    /// The control that is to be left out of an ordinary run (`RUNNER_ABLATE=<control>`).
    #[must_use]
    pub fn left_out() -> Option<String> {
        std::env::var("RUNNER_ABLATE").ok()
    }

    pub(super) fn of(mechanism: &str) -> Option<Fault> {
        SWITCH
            .get()?
            .split(',')
            .find_map(|item| match item.split_once('=') {
                Some((name, "fail")) if name == mechanism => Some(Fault::Fail),
                Some((name, "void")) if name == mechanism => Some(Fault::Void),
                _ => None,
            })
    }
}

#[cfg(not(feature = "faults"))]
mod switch {
    /// Nothing to set: this binary has no switch.
    pub fn set(_: Option<String>) {}

    /// This binary has no switch.
    #[must_use]
    pub const fn text() -> Option<String> {
        None
    }

    /// This binary has no switch.
    #[must_use]
    pub const fn left_out() -> Option<String> {
        None
    }

    pub(super) const fn of(_: &str) -> Option<super::Fault> {
        None
    }
}

pub use switch::{left_out, set, text};

/// What the switch says about `mechanism`; always `None` in binaries built for use.
#[must_use]
pub fn of(mechanism: &'static str) -> Option<Fault> {
    debug_assert!(MECHANISMS.contains(&mechanism), "{mechanism}");
    switch::of(mechanism)
}

/// Ends or stops this process where `RUNNER_KILL` says so ([`ledger::file::kill`]); nothing in binaries built for use.
pub fn point(name: &'static str) {
    debug_assert!(POINTS.contains(&name), "{name}");
    ledger::file::kill::at(name);
}

/// Runs the call that gives `mechanism` its effect, unless the switch says otherwise.
///
/// # Errors
/// The call's own error, or EPERM from the switch.
pub fn guard(mechanism: &'static str, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match of(mechanism) {
        None => call(),
        Some(Fault::Void) => Ok(()),
        Some(Fault::Fail) => Err(io::Error::from_raw_os_error(libc::EPERM)),
    }
}
