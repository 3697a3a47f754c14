//! Numbers of Linux on x86_64 and aarch64.

use std::ffi::{c_int, c_long};

pub(crate) const RLIMIT_NOFILE: c_int = 7;
pub(crate) const RLIMIT_MSGQUEUE: c_int = 12;
pub(crate) const SIGUSR1: c_int = 10;
pub(crate) const SIGKILL: c_int = 9;
pub(crate) const SIGTERM: c_int = 15;
pub(crate) const O_NONBLOCK: c_int = 0o4000;
pub(crate) const O_CLOEXEC: c_int = 0o2_000_000;
pub(crate) const O_DIRECTORY: c_int = if cfg!(target_arch = "aarch64") {
    0o40_000
} else {
    0o200_000
};
pub(crate) const AF_INET: c_int = 2;
pub(crate) const AF_NETLINK: c_int = 16;
pub(super) const SOCK_CLOEXEC: c_int = 0o2_000_000;

/// System calls whose numbers are the same everywhere (5.1 and later).
pub(crate) const PIDFD_SEND_SIGNAL: c_long = 424;
pub(crate) const IO_URING_SETUP: c_long = 425;
pub(crate) const FSOPEN: c_long = 430;
pub(crate) const PIDFD_OPEN: c_long = 434;
pub(crate) const PIDFD_GETFD: c_long = 438;
pub(crate) const LANDLOCK_CREATE_RULESET: c_long = 444;
pub(crate) const LANDLOCK_RESTRICT_SELF: c_long = 446;
/// Those that have a number for each machine.
pub(crate) const GETCPU: c_long = if cfg!(target_arch = "x86_64") {
    309
} else {
    168
};
pub(crate) const GETPID: c_long = if cfg!(target_arch = "x86_64") {
    39
} else {
    172
};
pub(crate) const SECCOMP: c_long = if cfg!(target_arch = "x86_64") {
    317
} else {
    277
};
pub(crate) const CAPSET: c_long = if cfg!(target_arch = "x86_64") {
    126
} else {
    91
};
pub(crate) const KILL: c_long = if cfg!(target_arch = "x86_64") {
    62
} else {
    129
};
pub(crate) const MEMFD_CREATE: c_long = if cfg!(target_arch = "x86_64") {
    319
} else {
    279
};
