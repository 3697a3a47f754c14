//! What a tree is made of: its ground, what of the host it shows, and why it cannot be laid out.

use std::path::{Path, PathBuf};

/// What a tree is built on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// System folders read-only, a short list of /etc, empty writable places.
    #[default]
    Ephemeral,
    /// The host's tree read-only, secrets covered.
    HostReadOnly,
    /// A folder of the host as root, read-only.
    Custom(PathBuf),
    /// The host's tree as it is, its devices and kernel file systems apart: `filesystem` left out.
    Host,
}

/// One thing of the host that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// On the host, links resolved.
    pub source: PathBuf,
    /// As the workload sees it.
    pub target: PathBuf,
    /// The workload may not write there.
    pub read_only: bool,
}

/// Why files cannot be laid out as asked.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum TreeError {
    /// A source is not there.
    #[error("cannot show {path}", path = path.display())]
    #[diagnostic(
        code(runner::plan::no_source),
        help("give an existing file or folder to --read or --write")
    )]
    Source {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A source is a symbolic link and the policy does not follow those.
    #[error("{path} is a symbolic link to {to}", path = path.display(), to = to.display())]
    #[diagnostic(
        code(runner::plan::symlink),
        help("name the folder itself, or set filesystem.followSymlinks")
    )]
    Symlink {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        to: PathBuf,
    },
    /// A target is not a plain absolute path, or is one that the sandbox needs.
    #[error("cannot show anything at {path}", path = path.display())]
    #[diagnostic(
        code(runner::plan::target),
        help(
            "a place inside is an absolute path without `..`, and not /, /proc, /dev, /sys or below those"
        )
    )]
    Target {
        /// The path.
        path: PathBuf,
    },
    /// Two things at one place.
    #[error("{first} and {second} are both to stand at {target}", first = first.display(), second = second.display(), target = target.display())]
    #[diagnostic(code(runner::plan::twice))]
    Twice {
        /// One source.
        first: PathBuf,
        /// The other.
        second: PathBuf,
        /// The place.
        target: PathBuf,
    },
    /// A source is a ledger, a key, or something in one.
    #[error("cannot show {path}: it belongs to the evidence at {evidence}", path = path.display(), evidence = evidence.display())]
    #[diagnostic(
        code(runner::plan::evidence),
        help(
            "no workload sees a ledger or a key; show another folder, or a copy of what is public in it"
        )
    )]
    Evidence {
        /// The source.
        path: PathBuf,
        /// The ledger, folder of keys, key or agent's socket.
        evidence: PathBuf,
    },
    /// A source is on a kernel file system.
    #[error("cannot show {path}: it is on a file system of the kernel ({kind})", path = path.display())]
    #[diagnostic(
        code(runner::plan::kernel),
        help(
            "the host's {kind} tells about its processes, devices or network; a sandbox has a /proc of its own"
        )
    )]
    Kernel {
        /// The source.
        path: PathBuf,
        /// Type of the file system.
        kind: String,
    },
    /// Something in `devices.allow` cannot be shown as a device.
    #[error("cannot allow the device {path}: {why}", path = path.display())]
    #[diagnostic(
        code(runner::plan::device),
        help("name a device node, or a folder of them, in devices.allow")
    )]
    Device {
        /// The path.
        path: PathBuf,
        /// What is there instead.
        why: String,
    },
    /// The mounts of this process cannot be read, so it is not known what a source shows.
    #[error("cannot read /proc/self/mountinfo")]
    #[diagnostic(code(runner::plan::mounts))]
    Mounts(#[source] std::io::Error),
}

/// Places that belong to the sandbox itself.
pub(super) const OWN: [&str; 3] = ["/proc", "/dev", "/sys"];
/// The host's, where `filesystem` is left out.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
/// What every sandbox has of its own in /dev: allowing it changes nothing.
pub const OWN_DEVICES: [&str; 8] = [
    "/dev/fd",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
    "/dev/mqueue",
];
/// Places where a sandbox on the host's tree has something of its own, or nothing.
pub(super) const NOT_THE_HOSTS: [&str; 9] = [
    "/proc",
    "/dev",
    "/sys",
    "/tmp",
    "/var/tmp",
    "/run",
    "/boot",
    "/workspace",
    "/workload",
];

/// System folders that the ephemeral tree shows.
pub const SYSTEM: [&str; 11] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/ostree",
    "/sysroot/ostree",
];

pub(super) fn join(base: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() {
        base.to_owned()
    } else {
        base.join(below)
    }
}
