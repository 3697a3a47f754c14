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

/// Something stands where a file or folder belongs. It is neither followed, waited for nor written to.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{found} stands there, expected {expected}")]
pub struct NotExpected {
    found: &'static str,
    expected: &'static str,
}

fn name_of(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    if kind.is_file() {
        "a file"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

impl NotExpected {
    /// `None` for a regular file.
    pub(super) fn file(kind: FileType) -> Option<Self> {
        (!kind.is_file()).then(|| Self {
            found: name_of(kind),
            expected: "a regular file",
        })
    }

    /// Something that is no folder.
    pub(super) fn folder(kind: FileType) -> Self {
        Self {
            found: name_of(kind),
            expected: "a folder",
        }
    }

    /// Whether a folder stands where a file belongs.
    pub(super) fn is_folder(self) -> bool {
        self.found == "a folder"
    }
}

impl From<NotExpected> for io::Error {
    fn from(what: NotExpected) -> Self {
        Self::new(io::ErrorKind::InvalidInput, what)
    }
}

impl FileError {
    /// Whether something else stands where a file or a folder belongs.
    #[must_use]
    pub fn is_not_regular(&self) -> bool {
        let inner = self.source.get_ref();
        inner.is_some_and(|inner| inner.is::<NotExpected>())
    }
}

impl miette::Diagnostic for FileError {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new("ledger::file"))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        use io::ErrorKind as Kind;
        let path = self.path.display();
        if self.is_not_regular() {
            let text = format!("find out who put it there, and move it away: {path}");
            return Some(Box::new(text));
        }
        let text = match self.source.kind() {
            Kind::PermissionDenied => self.who_may(),
            Kind::ReadOnlyFilesystem => format!(
                "{path} is on a file system that is mounted read-only: mount it for writing, or keep the ledger elsewhere"
            ),
            Kind::StorageFull => format!(
                "make room on the file system of {path}; what is recorded stays, and the next run goes on from there"
            ),
            Kind::QuotaExceeded => format!(
                "this user's quota on the file system of {path} is used up: make room, or have it raised; what is recorded stays"
            ),
            Kind::NotADirectory => format!("a part of {path} that should be a folder is none"),
            _ if self.operation == Operation::Lock => {
                "this file system does not lock: put the ledger on a local file system".to_owned()
            }
            _ => return None,
        };
        Some(Box::new(text))
    }
}

impl FileError {
    /// Whom the file belongs to, or the nearest folder above it that can be seen.
    fn who_may(&self) -> String {
        use std::os::unix::fs::MetadataExt as _;
        let found = self.path.ancestors().find_map(|at| {
            let facts = std::fs::symlink_metadata(at).ok()?;
            Some((at, facts.uid(), facts.mode() & 0o7777))
        });
        match found {
            Some((at, uid, mode)) => format!(
                "{} belongs to user {uid} and has mode {mode:04o}: run this as that user, let this one in, or name another place",
                at.display()
            ),
            None => format!(
                "this user may not look into the folder of {}",
                self.path.display()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use miette::Diagnostic as _;

    use super::*;

    fn help_for(path: PathBuf, operation: Operation, errno: i32) -> Option<String> {
        let source = io::Error::from_raw_os_error(errno);
        let error = FileError {
            operation,
            path,
            source,
        };
        error.help().map(|help| help.to_string())
    }

    #[test]
    fn help_is_about_what_happened() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join("lock");
        use std::os::unix::fs::MetadataExt as _;
        let uid = std::fs::metadata(at.path()).unwrap().uid();
        let errno = |error: rustix::io::Errno| error.raw_os_error();
        let refused = errno(rustix::io::Errno::ACCESS);
        // The lock is missing: the folder says who may make it.
        let folder = help_for(path.clone(), Operation::Open, refused).unwrap();
        assert!(folder.starts_with(&format!("{} belongs to user {uid}", at.path().display())));
        std::fs::write(&path, "").unwrap();
        let file = help_for(path.clone(), Operation::Open, refused).unwrap();
        assert!(
            file.starts_with(&format!("{} belongs", path.display())),
            "{file}"
        );
        let read_only = errno(rustix::io::Errno::ROFS);
        let text = help_for(path.clone(), Operation::Open, read_only).unwrap();
        assert!(text.contains("read-only"), "{text}");
        let full = errno(rustix::io::Errno::NOSPC);
        let text = help_for(path.clone(), Operation::Open, full).unwrap();
        assert!(text.contains("make room"), "{text}");
        let broken = errno(rustix::io::Errno::IO);
        assert_eq!(help_for(path.clone(), Operation::Open, broken), None);
        let no_locks = errno(rustix::io::Errno::NOLCK);
        let text = help_for(path, Operation::Lock, no_locks).unwrap();
        assert!(text.contains("local file system"), "{text}");
    }
}
