//! The table of what this program can do: a row for each control, a check each line. `suite.json` says the same to the runner;
//! a test holds the two against each other.

mod descriptors;
mod devices;
mod endings;
mod environment;
mod filesystem;
mod ipc;
mod links;
mod network;
mod pid_one;
mod privilege;
mod process;
mod resources;
mod syscalls;
mod terminal;
mod traversal;
mod user;
mod writing;

use crate::line::Seen;
use crate::parameters::Parameters;

pub(crate) use syscalls::{AGAIN, again};

/// All checks of one control.
pub(crate) struct Row {
    pub(crate) control: &'static str,
    pub(crate) checks: &'static [Check],
    /// Whether they are started all at once, as they mostly wait.
    pub(crate) at_once: bool,
    /// What is done after all lines were printed.
    pub(crate) after: Option<fn(&Parameters)>,
}

/// One check.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// Errors with which a refused attack ends.
    #[cfg_attr(not(test), allow(dead_code, reason = "held against the suite's table"))]
    pub(crate) denied: &'static [&'static str],
    pub(crate) attack: fn(&Parameters) -> Seen,
}

macro_rules! rows {
    ($($control:literal ($at_once:literal, $after:expr) { $($name:literal $denied:expr, $attack:path;)+ })+) => {
        /// Every row, in the order of the controls.
        pub(crate) const ROWS: &[Row] = &[$(Row {
            control: $control,
            checks: &[$(Check { name: $name, denied: $denied, attack: $attack },)+],
            at_once: $at_once,
            after: $after,
        },)+];
    };
}

rows! {
    "network" (true, None) {
        "tcp4" network::DENIED, network::tcp4;
        "tcp6" network::DENIED, network::tcp6;
        "udp" network::DENIED, network::udp;
        "udp6" network::DENIED, network::udp6;
        "path" network::DENIED, network::path;
        "dns" network::DENIED, network::dns;
    }
    "filesystem" (false, None) {
        "read" filesystem::DENIED, filesystem::read;
        "tree" filesystem::DENIED_TREE, filesystem::tree;
        "write" writing::DENIED, writing::write;
        "traversal" filesystem::DENIED, traversal::traversal;
        "evidence" filesystem::DENIED, filesystem::evidence;
        "knobs" writing::DENIED_KNOBS, writing::knobs;
    }
    "process" (false, None) {
        "visibility" process::DENIED_VISIBILITY, process::visibility;
        "memory" process::DENIED, process::memory;
        "pid1" pid_one::DENIED, pid_one::pid1;
        "signal" process::DENIED, process::signal;
        "survival" endings::DENIED, endings::survival;
    }
    "environment" (false, None) {
        "inherited" environment::DENIED, environment::inherited;
    }
    "privilege" (false, None) {
        "capabilities" privilege::DENIED, privilege::capabilities;
        "no-new-privs" privilege::DENIED_NEW, privilege::no_new_privileges;
        "userns" privilege::DENIED_USERNS, privilege::userns;
    }
    "memory" (false, None) {
        "touch" resources::DENIED_MEMORY, resources::touch;
        "children" resources::DENIED_MEMORY, resources::children;
        "tmpfs" resources::DENIED_TMPFS, resources::tmpfs;
    }
    "processes" (false, None) {
        "fork" resources::DENIED_TASKS, resources::forks;
        "threads" resources::DENIED_TASKS, resources::threads;
    }
    "syscalls" (false, None) {
        "calibration" syscalls::DENIED, syscalls::calibration;
        "alternate" syscalls::DENIED, syscalls::alternate;
        "after-exec" syscalls::DENIED, syscalls::after_exec;
        "new" syscalls::DENIED, syscalls::new;
    }
    "cpu" (false, None) {
        "quota" resources::DENIED_CPU, resources::cpu;
    }
    "timeout" (false, Some(endings::linger)) {
        "deadline" endings::DENIED, endings::deadline;
    }
    "output" (false, Some(endings::flood)) {
        "cap" endings::DENIED, endings::cap;
    }
    "devices" (false, None) {
        "nodes" devices::DENIED, devices::nodes;
    }
    "user" (false, None) {
        "inside" user::DENIED, user::inside;
        "host" user::DENIED, user::host;
    }
    "ipc" (false, None) {
        "unix" ipc::DENIED, ipc::unix;
        "abstract" ipc::DENIED_ABSTRACT, ipc::abstracts;
        "host-sockets" ipc::DENIED, ipc::host_sockets;
    }
    "descriptors" (false, None) {
        "inherited" descriptors::DENIED, descriptors::inherited;
    }
    "terminal" (false, None) {
        "inject" terminal::DENIED, terminal::inject;
    }
    "files" (false, None) {
        "open" resources::DENIED_FILES, resources::files;
    }
    "disk" (false, None) {
        "quota" resources::DENIED_DISK, resources::disk;
    }
}

/// What was read, for the runner to search its secrets in: text where it is plain, else hexadecimal digits, the first 64 bytes.
pub(crate) fn show(bytes: &[u8]) -> String {
    let trimmed = bytes.trim_ascii();
    let short = trimmed.get(..64).unwrap_or(trimmed);
    if short.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        String::from_utf8_lossy(short).into_owned()
    } else {
        crate::line::hex(short)
    }
}

#[cfg(test)]
mod tests;
