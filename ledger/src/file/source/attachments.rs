//! What stands beside the records: blobs, torn files, run locks. A stream has none of them.

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::{Folder, Opened, ReadError};
use crate::bytes::hash::{Hash, Hasher};
use crate::facts::execution::RunId;
use crate::file::bundle::{BlobReader, Files};

/// Looks up files of the ledger's folder, or of a bundle, by content hash.
#[derive(Clone, Debug)]
pub struct Attachments {
    place: Place,
    runs: Arc<LiveRuns>,
}

#[derive(Clone, Debug)]
enum Place {
    Nowhere,
    Folder(Folder),
    Bundle(Arc<Files>),
}

/// What stands at the name of a file.
enum Found {
    /// There is nowhere to look.
    NotChecked,
    Missing,
    Foreign,
    /// A file of that length, and where it is for messages.
    File(BlobReader, u64, PathBuf),
}

/// The runs that were alive when the lengths of the segments were noted.
#[derive(Debug, Default)]
pub(super) struct LiveRuns {
    held: HashSet<RunId>,
    /// Their locks could not be looked at; who asks about one of them gets the error.
    unknown: HashSet<RunId>,
}

/// What a blob turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobState {
    /// There is nowhere to look.
    NotChecked,
    /// Nothing stands at its name.
    Missing,
    /// A link, a FIFO or the like stands at its name.
    Foreign,
    /// Its length is not what the record says.
    Size {
        /// What the record says.
        expected: u64,
        /// What the file has.
        found: u64,
    },
    /// Its content has another hash.
    Content(Hash),
    /// It is what its name says.
    Good {
        /// Its length in bytes.
        size: u64,
        /// Its content, when it is no longer than was asked for.
        content: Option<Vec<u8>>,
    },
}

/// Bytes that a recovery set aside.
#[derive(Debug)]
pub enum TornFile {
    /// There is nowhere to look.
    NotChecked,
    /// It is there, a regular file of this length.
    Found(BlobReader, u64),
    /// Nothing, or something else than a regular file, stands at its name.
    Missing,
}

/// Whether somebody holds a run's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// There is nowhere to look.
    NotChecked,
    /// A living runner holds it.
    Held,
    /// Nobody does.
    Free,
}

impl Attachments {
    pub(in crate::file) fn none() -> Self {
        Self {
            place: Place::Nowhere,
            runs: Arc::default(),
        }
    }

    pub(in crate::file) fn bundled(files: Arc<Files>) -> Self {
        Self {
            place: Place::Bundle(files),
            runs: Arc::default(),
        }
    }

    pub(super) fn of(folder: Folder, runs: LiveRuns) -> Self {
        Self {
            place: Place::Folder(folder),
            runs: Arc::new(runs),
        }
    }

    /// Whether there is somewhere to look.
    #[must_use]
    pub const fn are_here(&self) -> bool {
        !matches!(self.place, Place::Nowhere)
    }

    /// Opens the file of that hash below these folders; a bundle has no folders.
    fn find(&self, folders: &[&str], name: &str, hash: &Hash) -> Result<Found, ReadError> {
        let folder = match &self.place {
            Place::Nowhere => return Ok(Found::NotChecked),
            Place::Bundle(files) => {
                return Ok(match files.open(hash) {
                    Some((reader, size)) => Found::File(reader, size, files.path.clone()),
                    None => Found::Missing,
                });
            }
            Place::Folder(folder) => folder,
        };
        let (folder, opened) = folder.open_below(folders, name)?;
        let file = match opened {
            Opened::File(fd) => File::from(fd),
            Opened::Missing => return Ok(Found::Missing),
            Opened::Foreign => return Ok(Found::Foreign),
        };
        let facts = file.metadata();
        let size = facts
            .map_err(|source| folder.error("stat", name, source))?
            .len();
        Ok(Found::File(file.into(), size, folder.path.join(name)))
    }

    /// Checks the blob of that hash; its length is compared before anything is read. The content is
    /// handed out when it is at most `keep` bytes long.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn blob(
        &self,
        hash: &Hash,
        expected: Option<u64>,
        keep: u64,
    ) -> Result<BlobState, ReadError> {
        let text = hash.to_string();
        let (two, name) = text.split_at(2);
        let (file, size, path) = match self.find(&["blobs", two], name, hash)? {
            Found::NotChecked => return Ok(BlobState::NotChecked),
            Found::Missing => return Ok(BlobState::Missing),
            Found::Foreign => return Ok(BlobState::Foreign),
            Found::File(file, size, path) => (file, size, path),
        };
        if let Some(expected) = expected
            && size != expected
        {
            return Ok(BlobState::Size {
                expected,
                found: size,
            });
        }
        let mut content = (size <= keep).then(Vec::new);
        let found = hash_of(&mut file.take(size + 1), content.as_mut()).map_err(|source| {
            let operation = "read";
            ReadError {
                operation,
                path,
                source,
            }
        })?;
        Ok(if found == *hash {
            BlobState::Good { size, content }
        } else {
            BlobState::Content(found)
        })
    }

    /// Opens a blob again for reading its content as a stream; only after [`Self::blob`] found it good.
    ///
    /// # Errors
    /// It cannot be opened any more.
    pub fn blob_reader(&self, hash: &Hash) -> Result<Option<BlobReader>, ReadError> {
        let text = hash.to_string();
        let (two, name) = text.split_at(2);
        match self.find(&["blobs", two], name, hash)? {
            Found::File(file, ..) => Ok(Some(file)),
            Found::NotChecked | Found::Missing | Found::Foreign => Ok(None),
        }
    }

    /// Opens `torn/<hash>`.
    ///
    /// # Errors
    /// It is there and cannot be opened.
    pub fn torn(&self, hash: &Hash) -> Result<TornFile, ReadError> {
        Ok(match self.find(&["torn"], &hash.to_string(), hash)? {
            Found::NotChecked => TornFile::NotChecked,
            Found::Missing | Found::Foreign => TornFile::Missing,
            Found::File(file, size, _) => TornFile::Found(file, size),
        })
    }

    /// Whether a living runner held the lock of that run when the lengths of the segments were noted: a
    /// start whose end is past those lengths belongs to such a run.
    ///
    /// # Errors
    /// The lock is there and cannot be opened.
    pub fn run(&self, run: &RunId) -> Result<RunState, ReadError> {
        let Place::Folder(folder) = &self.place else {
            return Ok(RunState::NotChecked);
        };
        if self.runs.held.contains(run) {
            return Ok(RunState::Held);
        }
        if self.runs.unknown.contains(run) {
            return folder.run(run);
        }
        Ok(RunState::Free)
    }
}

impl Folder {
    fn run(&self, run: &RunId) -> Result<RunState, ReadError> {
        let name = format!("{run}.lock");
        let (folder, opened) = self.open_below(&["runs"], &name)?;
        let Opened::File(fd) = opened else {
            return Ok(RunState::Free);
        };
        match File::from(fd).try_lock_shared() {
            Ok(()) => Ok(RunState::Free),
            Err(TryLockError::WouldBlock) => Ok(RunState::Held),
            Err(TryLockError::Error(source)) => Err(folder.error("lock", &name, source)),
        }
    }

    /// Notes who is alive now.
    pub(super) fn live_runs(&self) -> Result<LiveRuns, ReadError> {
        let mut runs = LiveRuns::default();
        let Opened::File(fd) = self.open("runs", OFlags::DIRECTORY)? else {
            return Ok(runs);
        };
        let folder = Self {
            fd: Arc::new(fd),
            path: self.path.join("runs"),
        };
        for name in folder.names()? {
            let Some(run) = name
                .strip_suffix(".lock")
                .and_then(|run| run.parse::<RunId>().ok())
            else {
                continue;
            };
            match self.run(&run) {
                Ok(RunState::Held) => {
                    runs.held.insert(run);
                }
                Ok(_) => {}
                Err(_) => {
                    runs.unknown.insert(run);
                }
            }
        }
        Ok(runs)
    }
}

/// SHA-256 of what a reader gives; the bytes are kept too where a place for them is given.
pub(in crate::file) fn hash_of(
    reader: &mut dyn Read,
    mut kept: Option<&mut Vec<u8>>,
) -> io::Result<Hash> {
    let mut hasher = Hasher::plain();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => {
                let part = buffer.get(..count).unwrap_or(&buffer);
                hasher.update(part);
                if let Some(kept) = &mut kept {
                    kept.extend_from_slice(part);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
