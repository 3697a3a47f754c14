//! What was tried with a file, and what the system said.

use std::fmt;
use std::fs::FileType;
use std::io;
use std::path::PathBuf;

/// What was tried with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `mkdir`
    CreateFolder,
    /// `open` with O_CREAT
    Create,
    /// `open`
    Open,
    /// `read`, `pread`
    Read,
    /// `readdir`
    List,
    /// `fstat`, `stat`
    Inspect,
    /// `write`, `pwrite`
    Write,
    /// `ftruncate`
    Truncate,
    /// `fdatasync`, `fsync` of a file
    SyncData,
    /// `fsync` of a folder
    SyncFolder,
    /// `rename`
    Rename,
    /// `unlink`
    Remove,
    /// `flock`
    Lock,
}

impl Operation {
    /// The verb for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CreateFolder => "create the folder",
            Self::Create => "create",
            Self::Open => "open",
            Self::Read => "read",
            Self::List => "list",
            Self::Inspect => "inspect",
            Self::Write => "write",
            Self::Truncate => "truncate",
            Self::SyncData => "sync",
            Self::SyncFolder => "sync the folder",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::Lock => "lock",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A file operation that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}", path.display())]
pub struct FileError {
    /// What was tried.
    pub operation: Operation,
    /// With which file.
    pub path: PathBuf,
    /// The system's answer.
    #[source]
    pub source: io::Error,
}

/// Something stands where a regular file belongs. It is neither followed, waited for nor written to.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0} stands there, expected a regular file")]
pub struct NotRegular(pub(super) &'static str);

impl NotRegular {
    /// `None` for a regular file.
    pub(super) fn of(kind: FileType) -> Option<Self> {
        use std::os::unix::fs::FileTypeExt as _;
        if kind.is_file() {
            return None;
        }
        Some(Self(if kind.is_dir() {
            "a folder"
        } else if kind.is_symlink() {
            "a symbolic link"
        } else if kind.is_fifo() {
            "a named pipe"
        } else if kind.is_socket() {
            "a socket"
        } else {
            "a device"
        }))
    }
}

impl From<NotRegular> for io::Error {
    fn from(what: NotRegular) -> Self {
        Self::new(io::ErrorKind::InvalidInput, what)
    }
}

impl FileError {
    /// Whether something else stands where a regular file belongs.
    #[must_use]
    pub fn is_not_regular(&self) -> bool {
        let inner = self.source.get_ref();
        inner.is_some_and(|inner| inner.is::<NotRegular>())
    }
}
