//! From an entry to an artifact: kinds, sizes, and the hashes of regular files that hold still.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use ledger::bytes::canon::{U53, escape_bytes};
use ledger::bytes::hash::{Hash, Hasher};
use ledger::facts::execution::{Artifact, FileKind};
use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::place::digest;
use super::problems::{CHANGED, OTHER_MOUNT, OVER_BUDGET, Problems, UNREADABLE};
use super::walk::{Entry, file_type};
use super::{Pace, Pacer};

/// Reads files, as many bytes as it may.
pub(super) struct Reader<'a> {
    pub(super) left: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) pacer: &'a Pacer<'a>,
}

/// Why a file has no hash.
enum NoHash {
    /// There is no time for it, or for any other.
    Pace(&'static str),
    /// What is with this one.
    Path(&'static str, Option<Errno>),
}

impl Reader<'_> {
    /// `None` for what has no kind in the record.
    pub(super) fn artifact(
        &mut self,
        entry: &Entry<'_>,
        problems: &mut Problems,
    ) -> Option<Artifact> {
        let stat = entry.stat;
        let kind = match file_type(stat) {
            SFlag::S_IFREG => FileKind::File,
            SFlag::S_IFLNK => FileKind::Symlink,
            SFlag::S_IFIFO => FileKind::Fifo,
            SFlag::S_IFSOCK => FileKind::Socket,
            SFlag::S_IFBLK | SFlag::S_IFCHR => FileKind::Device,
            _ => {
                problems.say_errno(UNREADABLE, entry.path, Errno::EOPNOTSUPP);
                return None;
            }
        };
        let artifact = Artifact {
            bytes: None,
            kind,
            path: escape_bytes(entry.path),
            sha256: None,
        };
        if kind != FileKind::File {
            return Some(artifact);
        }
        let sha256 = match self.hash(entry) {
            Ok(hash) => Some(hash),
            Err(NoHash::Pace(reason)) => {
                problems.say_once(reason);
                None
            }
            Err(NoHash::Path(reason, None)) => {
                problems.say(reason, entry.path);
                None
            }
            Err(NoHash::Path(reason, Some(error))) => {
                problems.say_errno(reason, entry.path, error);
                None
            }
        };
        Some(Artifact {
            bytes: u64::try_from(stat.st_size).ok().and_then(U53::new),
            sha256,
            ..artifact
        })
    }

    /// The SHA-256 of a regular file that stays as its entry says from before the first byte is read until
    /// after the last.
    fn hash(&mut self, entry: &Entry<'_>) -> Result<Hash, NoHash> {
        self.in_time()?;
        let bytes = entry.stat.st_size.cast_unsigned();
        if bytes > self.left {
            return Err(NoHash::Path(OVER_BUDGET, None));
        }
        let changed = || NoHash::Path(CHANGED, None);
        let unreadable = |error| NoHash::Path(UNREADABLE, Some(error));
        let same = |file: &File| match fstat(file) {
            Ok(stat) if digest(b"", &stat) == digest(b"", entry.stat) => Ok(()),
            Ok(_) => Err(changed()),
            Err(error) => Err(unreadable(error)),
        };
        let file = match entry.open() {
            Ok(file) => File::from(file),
            Err(Errno::EXDEV) => return Err(NoHash::Path(OTHER_MOUNT, None)),
            Err(Errno::ENOENT | Errno::ELOOP | Errno::ENXIO) => return Err(changed()),
            Err(error) => return Err(unreadable(error)),
        };
        same(&file)?;
        let mut hasher = Hasher::plain();
        let mut at = 0;
        while at <= bytes {
            self.in_time()?;
            match file.read_at(&mut self.buffer, at) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(self.buffer.get(..read).unwrap_or_default());
                    at += read as u64;
                    self.left = self.left.saturating_sub(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let error = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
                    return Err(unreadable(error));
                }
            }
        }
        if at != bytes {
            return Err(changed());
        }
        same(&file)?;
        Ok(hasher.finish())
    }

    fn in_time(&self) -> Result<(), NoHash> {
        match self.pacer.now() {
            Pace::Whole => Ok(()),
            Pace::NoHashes(reason) | Pace::Stop(reason) => Err(NoHash::Pace(reason)),
        }
    }
}
