//! What a reader is given: the lines of a ledger folder, of a bundle, of one `.jsonl` file, or of a stream.
//!
//! A live ledger is not tampering (TRUST.md §6): the stored checkpoint is copied, the lengths of the
//! segments and the runs that are alive are noted under the shared lock, and nothing past those lengths is
//! read. Where the lock
//! cannot be had, the checkpoint comes first and an unfinished last line is given a second to be
//! finished. Nothing here follows a symbolic link below the folder, opens a FIFO, or keeps more than one
//! line in memory.

mod attachments;
mod lines;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

pub(in crate::file) use attachments::hash_of;
pub use attachments::{Attachments, BlobState, RunState, TornFile};
pub use lines::{Line, Lines, LongLine};

use crate::file::bundle;
use crate::file::store::NAMES;
use crate::finding::{Code, Finding, Place};
use lines::{Input, Segment};

/// Most of a stored or given checkpoint that is read: one byte more than a note may have.
const CHECKPOINT_BYTES: u64 = 64 * 1024 + 1;
/// How often, and after what pause, a lock or an unfinished tail is looked at again.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// An evidence file could not be read. This says nothing about the evidence.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}", path.display())]
pub struct ReadError {
    /// What was tried.
    pub operation: &'static str,
    /// Which file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

/// Why a path could not be opened as a ledger.
#[derive(Debug, thiserror::Error)]
pub enum OpenSourceError {
    /// Nothing is there.
    #[error("{} does not exist", .0.display())]
    NotFound(PathBuf),
    /// A folder that holds other things and no records.
    #[error("{} is not a ledger: it has no folder records, and it holds {found:?}", path.display())]
    NotALedger {
        /// The folder.
        path: PathBuf,
        /// One name in it that no ledger has.
        found: String,
    },
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A ledger as it was at one moment, ready to be read once from its first line to its last.
#[derive(Debug)]
pub struct Source {
    /// The lines.
    pub lines: Lines,
    /// The stored `checkpoint`, at most one byte more than a note may have; absent when there is none.
    pub checkpoint: Option<Vec<u8>>,
    /// Blobs, torn files and run locks.
    pub attachments: Attachments,
    /// What is wrong with the folder or the bundle itself.
    pub findings: Vec<Finding>,
    /// What a bundle says of itself; absent for anything else.
    pub bundle: Option<BundleHead>,
}

/// The first line of a bundle; nothing where it could not be read.
#[derive(Clone, Debug)]
pub struct BundleHead(pub(in crate::file) Option<bundle::Header>);

impl Source {
    /// Opens a ledger folder, a bundle (told by its first line), or any other file as lines.
    ///
    /// # Errors
    /// Nothing there, a folder that is no ledger, or something that cannot be read.
    pub fn open(path: &Path) -> Result<Self, OpenSourceError> {
        let at = |operation, source: io::Error| ReadError {
            operation,
            path: path.to_owned(),
            source,
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(OpenSourceError::NotFound(path.to_owned()));
            }
            Err(error) => return Err(at("open", error).into()),
        };
        let metadata = file.metadata().map_err(|error| at("stat", error))?;
        if metadata.is_dir() {
            return Self::open_folder(path, file.into());
        }
        let length = metadata.is_file().then_some(metadata.len());
        let again = match length {
            Some(_) => Some(file.try_clone().map_err(|error| at("open", error))?),
            None => None,
        };
        Ok(Self::of_lines(
            &path.display().to_string(),
            Box::new(file.take(length.unwrap_or(u64::MAX))),
            again.map(|file| (file, path.to_owned())),
        ))
    }

    /// The lines of a stream; `name` stands in the places of findings. The files in a bundle that comes so are held against
    /// their names as they pass, and are not there for the records.
    #[must_use]
    pub fn from_reader(name: &str, reader: Box<dyn Read + Send>) -> Self {
        Self::of_lines(name, reader, None)
    }

    fn of_lines(name: &str, reader: Box<dyn Read + Send>, again: Option<(File, PathBuf)>) -> Self {
        let mut lines = Lines::of_stream(name, reader);
        if lines
            .peek()
            .is_some_and(|first| first.bytes.starts_with(bundle::PREFIX))
        {
            return bundle::begin(lines, again);
        }
        Self {
            lines,
            checkpoint: None,
            attachments: Attachments::none(),
            findings: Vec::new(),
            bundle: None,
        }
    }

    fn open_folder(path: &Path, folder: OwnedFd) -> Result<Self, OpenSourceError> {
        let folder = Folder {
            fd: Arc::new(folder),
            path: path.to_owned(),
        };
        let mut findings = Vec::new();
        // Held until lengths are noted; dropping the file lets it go.
        let lock = folder.lock()?;
        let mut checkpoint = folder.checkpoint(&mut findings)?;
        // Without the lock it may have been written over while it was read: two readings that agree are whole.
        for _ in 0..TRIES {
            if matches!(lock, Lock::Held(_)) || checkpoint.is_none() {
                break;
            }
            let again = folder.checkpoint(&mut Vec::new())?;
            if again == checkpoint {
                break;
            }
            checkpoint = again;
        }
        let records = folder.open("records", OFlags::DIRECTORY)?;
        let segments = match records {
            Opened::File(records) => {
                let records = Folder {
                    fd: Arc::new(records),
                    path: path.join("records"),
                };
                let noted = match lock {
                    Lock::Held(_) | Lock::Absent => records.segments()?,
                    Lock::Refused => records.settled()?,
                };
                Some((records, noted))
            }
            Opened::Foreign => {
                findings.push(foreign(
                    "records",
                    "a folder stands where the records should be",
                ));
                None
            }
            Opened::Missing => {
                folder.must_be_bare()?;
                None
            }
        };
        let mut runs = folder.live_runs()?;
        let lines = match segments {
            Some((records, mut noted)) => {
                // Without a lock: who is alive is known for a moment at which nothing was appended.
                for _ in 0..TRIES {
                    if matches!(lock, Lock::Held(_)) {
                        break;
                    }
                    let again = records.settled()?;
                    if again.segments == noted.segments {
                        break;
                    }
                    noted = again;
                    runs = folder.live_runs()?;
                }
                findings.append(&mut noted.findings);
                Lines::new(Input::folder(records, noted.segments))
            }
            None => Lines::new(Input::Nothing),
        };
        drop(lock);
        Ok(Self {
            lines,
            checkpoint,
            attachments: Attachments::of(folder, runs),
            findings,
            bundle: None,
        })
    }
}

/// A folder that is held open, and its path for messages.
#[derive(Clone, Debug)]
struct Folder {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// What stands at a name.
enum Opened {
    /// What was asked for.
    File(OwnedFd),
    /// Nothing.
    Missing,
    /// A symbolic link, a FIFO, a socket, a device, or a file where a folder should be or the reverse.
    Foreign,
}

/// Whether the writers' lock is held while the folder is looked at.
enum Lock {
    /// Held until dropped.
    Held(#[allow(dead_code, reason = "its descriptor is the lock")] File),
    /// No writer ever made one: nobody is writing.
    Absent,
    /// It may not be opened or locked here, or a writer does not let it go.
    Refused,
}

/// The segments as they are at one moment.
struct Noted {
    segments: Vec<Segment>,
    /// What else stands among them.
    findings: Vec<Finding>,
}

impl Folder {
    fn error(
        &self,
        operation: &'static str,
        name: &str,
        source: impl Into<io::Error>,
    ) -> ReadError {
        ReadError {
            operation,
            path: self.path.join(name),
            source: source.into(),
        }
    }

    /// Opens a regular file, or with `DIRECTORY` a folder, without following a link or waiting.
    fn open(&self, name: &str, extra: OFlags) -> Result<Opened, ReadError> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = match openat(&*self.fd, name, flags | extra, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Opened::Missing),
            Err(Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => return Ok(Opened::Foreign),
            Err(error) => return Err(self.error("open", name, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| self.error("stat", name, error))?;
        let wanted = if extra.contains(OFlags::DIRECTORY) {
            FileType::Directory
        } else {
            FileType::RegularFile
        };
        if FileType::from_raw_mode(stat.st_mode) == wanted {
            Ok(Opened::File(fd))
        } else {
            Ok(Opened::Foreign)
        }
    }

    /// As [`Self::open`], for a file below folders of this one.
    fn open_below(&self, folders: &[&str], name: &str) -> Result<(Self, Opened), ReadError> {
        let mut here = self.clone();
        for folder in folders {
            match here.open(folder, OFlags::DIRECTORY)? {
                Opened::File(fd) => {
                    here = Self {
                        fd: Arc::new(fd),
                        path: here.path.join(folder),
                    };
                }
                other => return Ok((here, other)),
            }
        }
        let opened = here.open(name, OFlags::empty())?;
        Ok((here, opened))
    }

    fn lock(&self) -> Result<Lock, ReadError> {
        let file = match self.open("lock", OFlags::empty()) {
            Ok(Opened::File(fd)) => File::from(fd),
            Ok(Opened::Missing) => return Ok(Lock::Absent),
            Ok(Opened::Foreign) => return Ok(Lock::Refused),
            Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Lock::Refused);
            }
            Err(error) => return Err(error),
        };
        // An append takes a millisecond or two.
        let mut pause = Duration::from_millis(1);
        for _ in 0..TRIES {
            match file.try_lock_shared() {
                Ok(()) => return Ok(Lock::Held(file)),
                Err(std::fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(pause);
                    pause = PAUSE.min(pause * 2);
                }
                Err(std::fs::TryLockError::Error(_)) => return Ok(Lock::Refused),
            }
        }
        Ok(Lock::Refused)
    }

    fn checkpoint(&self, findings: &mut Vec<Finding>) -> Result<Option<Vec<u8>>, ReadError> {
        let file = match self.open("checkpoint", OFlags::empty())? {
            Opened::File(fd) => File::from(fd),
            Opened::Missing => return Ok(None),
            Opened::Foreign => {
                findings.push(
                    Finding::new(
                        Code::CheckpointInvalid,
                        "the stored checkpoint is not a regular file",
                    )
                    .in_place(place("checkpoint")),
                );
                return Ok(None);
            }
        };
        let mut bytes = Vec::new();
        file.take(CHECKPOINT_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| self.error("read", "checkpoint", error))?;
        Ok(Some(bytes))
    }

    /// Notes every segment and its length; what is no segment is a finding.
    fn segments(&self) -> Result<Noted, ReadError> {
        let (mut segments, mut others) = (Vec::new(), Vec::new());
        for name in self.names()? {
            let number = name
                .strip_suffix(".jsonl")
                .filter(|stem| stem.len() == 8 && stem.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|stem| stem.parse::<u64>().ok());
            let Some(number) = number else {
                others.push(name);
                continue;
            };
            let stat = statat(&*self.fd, &name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| self.error("stat", &name, error))?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                segments.push(Segment {
                    number,
                    length: u64::try_from(stat.st_size).unwrap_or(0),
                });
            } else {
                others.push(name);
            }
        }
        segments.sort_unstable_by_key(|segment| segment.number);
        others.sort_unstable();
        let other = |name: &String| {
            foreign(
                &format!("records/{name}"),
                "something that is no segment stands among the segments",
            )
        };
        Ok(Noted {
            findings: others.iter().map(other).collect(),
            segments,
        })
    }

    /// As [`Self::segments`] without a lock.
    fn settled(&self) -> Result<Noted, ReadError> {
        let mut noted = self.segments()?;
        if let Some(last) = noted.segments.last_mut() {
            self.settle(last)?;
        }
        Ok(noted)
    }

    fn names(&self) -> Result<Vec<String>, ReadError> {
        let error = |source| self.error("list", "", source);
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.fd).map_err(error)? {
            let entry = entry.map_err(error)?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    /// Without a lock: gives an unfinished last line a second to be finished.
    fn settle(&self, last: &mut Segment) -> Result<(), ReadError> {
        let name = last.name();
        for _ in 0..TRIES {
            let Opened::File(fd) = self.open(&name, OFlags::empty())? else {
                return Ok(());
            };
            let mut file = File::from(fd);
            let error = |source| self.error("read", &name, source);
            last.length = file.seek(SeekFrom::End(0)).map_err(error)?;
            if last.length == 0 {
                return Ok(());
            }
            let mut byte = [0];
            file.seek(SeekFrom::Start(last.length - 1)).map_err(error)?;
            file.read_exact(&mut byte).map_err(error)?;
            if byte == *b"\n" {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// A folder without `records` is an emptied ledger when it holds nothing else than ledgers do.
    fn must_be_bare(&self) -> Result<(), OpenSourceError> {
        match self
            .names()?
            .into_iter()
            .find(|name| !NAMES.contains(&name.as_str()))
        {
            None => Ok(()),
            Some(found) => Err(OpenSourceError::NotALedger {
                path: self.path.clone(),
                found,
            }),
        }
    }
}

/// Reads a checkpoint that is held outside the ledger: at most one byte more than a note may have.
///
/// # Errors
/// It is not there or cannot be read.
pub fn read_checkpoint(path: &Path) -> Result<Vec<u8>, ReadError> {
    let error = |operation, source| ReadError {
        operation,
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(|source| error("open", source))?;
    let mut bytes = Vec::new();
    file.take(CHECKPOINT_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|source| error("read", source))?;
    Ok(bytes)
}

fn place(file: &str) -> Place {
    Place {
        file: file.to_owned(),
        line: None,
    }
}

fn foreign(file: &str, message: &str) -> Finding {
    Finding::new(Code::SegmentUnexpected, message).in_place(place(file))
}

#[cfg(test)]
mod tests;
