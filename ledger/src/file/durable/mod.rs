//! Every call by which the store touches the disk, in one place.
//!
//! The system calls of one acknowledged record, in their order:
//!
//! ```text
//! flock(lock)                                      one writer at a time
//! pwrite(segment)                                  opening and record together
//! fdatasync(segment)                               from here on the record is kept
//! pwrite(checkpoint.new) rename(checkpoint)        not synced: an empty one counts as absent
//! pwrite(tree) write(tip.new) rename(tip)          caches, not synced
//! pwrite(….heads.new) rename(….heads)              not synced
//! ```
//!
//! A new name in a folder is durable only once the folder is synced; [`sync_folder`] does that for
//! segments, blobs, keys and set-aside bytes. What cannot be promised: that a disk which acknowledges a flush
//! has written it, or that another program leaves the files alone.
//!
//! A failed `fdatasync` says that something was lost, and a second call would say that all is well. Whoever
//! gets [`Operation::SyncData`] back stops and reads the file again. And the bytes that were lost can still be read,
//! by this process and by others, until memory runs short: so whoever acknowledges a record writes everything again
//! that stands before it and that nobody has acknowledged ([`write_again`]).

mod fault;
pub(super) mod refused;
mod replace;

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, Read as _, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

#[cfg(test)]
pub(super) use fault::{Disk, Hole, Rule, What, Which};
pub use refused::{FileError, NotExpected, Operation};
pub(super) use replace::{Durability, rename_new, replace};

use super::kill;

/// Mode of every file that the store makes: for its owner alone.
const FILE_MODE: u32 = 0o600;
/// Mode of every folder that the store makes.
const FOLDER_MODE: u32 = 0o700;

/// Opens a regular file and nothing else: a named pipe would keep this waiting, a link would lead elsewhere.
fn open_regular(
    operation: Operation,
    path: &Path,
    options: &mut OpenOptions,
) -> Result<File, FileError> {
    use rustix::fs::OFlags;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    attempt(operation, path, || {
        let opened = options.custom_flags(flags.cast_signed()).open(path);
        let kind = match &opened {
            Ok(file) => file.metadata()?.file_type(),
            Err(_) => match std::fs::symlink_metadata(path) {
                Ok(facts) => facts.file_type(),
                Err(_) => return opened,
            },
        };
        match NotExpected::file(kind) {
            Some(what) => Err(what.into()),
            None => opened,
        }
    })
}

/// Removes what stands where a file belongs that can be made again and is no regular file. A folder is left
/// alone and said: what is in it is somebody's.
pub(super) fn make_way(path: &Path) -> Result<(), FileError> {
    match inspect_name(path)?.and_then(|facts| NotExpected::file(facts.file_type())) {
        None => Ok(()),
        Some(what) if what.is_folder() => attempt(Operation::Open, path, || Err(what.into())),
        Some(_) => remove(path),
    }
}

/// The one door to the disk: names what was tried and where. A call that a signal interrupted is made again:
/// it did nothing (POSIX.1-2024, 2.3 Error Numbers, EINTR).
fn attempt<T>(
    operation: Operation,
    path: &Path,
    mut act: impl FnMut() -> io::Result<T>,
) -> Result<T, FileError> {
    loop {
        kill::before(operation);
        let result = fault::before(operation, path).and_then(|()| act());
        kill::after(operation);
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => {
                return result.map_err(|source| FileError {
                    operation,
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
}

/// A file whose writes pass by the faults that tests inject; each `write` and `pwrite` is one call. The retries
/// after a short or an interrupted one are those of the standard library, on top of this.
struct Written<'a> {
    file: &'a File,
    path: &'a Path,
}

impl Written<'_> {
    fn at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let most = fault::write(self.path, bytes.len())?;
        let bytes = bytes.get(..most).unwrap_or(bytes);
        let written = self.file.write_at(bytes, offset)?;
        fault::wrote(self.file, Some(offset), written);
        Ok(written)
    }

    fn all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Write for Written<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = fault::write(self.path, bytes.len())?;
        let written = self.file.write(bytes.get(..most).unwrap_or(bytes))?;
        fault::wrote(self.file, None, written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `None` instead of an error when the file is not there.
fn if_there<T>(result: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses anything but a folder, or nothing at all, where a folder of the ledger belongs; a link to one, too, for it
/// leads elsewhere.
pub(super) fn expect_folder(path: &Path) -> Result<(), FileError> {
    match inspect_name(path)? {
        Some(facts) if !facts.is_dir() => attempt(Operation::Open, path, || {
            Err(NotExpected::folder(facts.file_type()).into())
        }),
        _ => Ok(()),
    }
}

/// Makes a folder and those above it that are missing, each durable in the one above.
pub(super) fn create_folders(path: &Path) -> Result<(), FileError> {
    if attempt(Operation::Inspect, path, || path.try_exists())? {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        create_folders(above)?;
    }
    let made = attempt(Operation::CreateFolder, path, || {
        DirBuilder::new().mode(FOLDER_MODE).create(path)
    });
    match made {
        // Another process was faster.
        Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(above.unwrap_or(Path::new("."))),
    }
}

fn writable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(FILE_MODE);
    options
}

/// A file that did not exist before.
pub(super) fn create_new(path: &Path) -> Result<File, FileError> {
    attempt(Operation::Create, path, || {
        writable().read(true).create_new(true).open(path)
    })
}

/// An empty file, whatever was there before: for temporary files that a crash may have left.
pub(super) fn create_empty(path: &Path) -> Result<File, FileError> {
    make_way(path)?;
    open_regular(
        Operation::Create,
        path,
        writable().create(true).truncate(true),
    )
}

/// A file to write at places of, made when it is missing, its content kept.
pub(super) fn open_or_create(path: &Path) -> Result<File, FileError> {
    open_regular(
        Operation::Open,
        path,
        writable().read(true).create(true).truncate(false),
    )
}

/// A file to read and to write at places of; `None` when it is missing.
pub(super) fn open_to_write(path: &Path) -> Result<Option<File>, FileError> {
    if_there(open_regular(Operation::Open, path, writable().read(true)))
}

/// A file to read; `None` when it is missing.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>, FileError> {
    let mut options = OpenOptions::new();
    if_there(open_regular(Operation::Open, path, options.read(true)))
}

/// Whatever somebody names, to read, links followed; `None` when it is missing. What it is, is the caller's to
/// ask; a named pipe is not waited for.
pub(super) fn open_named(path: &Path) -> Result<Option<File>, FileError> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    if_there(attempt(Operation::Open, path, || {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags).open(path)
    }))
}

/// The whole content; `None` when the file is missing.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    let mut options = OpenOptions::new();
    let Some(mut file) = if_there(open_regular(Operation::Read, path, options.read(true)))? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    attempt(Operation::Read, path, || file.read_to_end(&mut bytes))?;
    Ok(Some(bytes))
}

/// Appends what an open file holds to `bytes`, but no more than `most`.
pub(super) fn read_most(
    file: &File,
    path: &Path,
    bytes: &mut Vec<u8>,
    most: u64,
) -> Result<(), FileError> {
    attempt(Operation::Read, path, || {
        file.take(most).read_to_end(bytes).map(|_| ())
    })
}

/// Fills `bytes` from `offset` on.
pub(super) fn read_at(
    file: &File,
    path: &Path,
    bytes: &mut [u8],
    offset: u64,
) -> Result<(), FileError> {
    attempt(Operation::Read, path, || file.read_exact_at(bytes, offset))
}

/// Appends the next line, its newline included, but no more than `most` bytes; 0 at the end of the file.
pub(super) fn read_line(
    reader: &mut impl BufRead,
    path: &Path,
    line: &mut Vec<u8>,
    most: usize,
) -> Result<usize, FileError> {
    attempt(Operation::Read, path, || {
        reader.by_ref().take(most as u64).read_until(b'\n', line)
    })
}

/// Moves to a place in an open file.
pub(super) fn seek(file: &mut impl Seek, path: &Path, offset: u64) -> Result<(), FileError> {
    attempt(Operation::Read, path, || {
        file.seek(SeekFrom::Start(offset)).map(|_| ())
    })
}

/// The path without symbolic links.
pub(super) fn canonical(path: &Path) -> Result<PathBuf, FileError> {
    attempt(Operation::Inspect, path, || path.canonicalize())
}

/// As [`canonical`], of a path whose last parts may be missing.
pub(super) fn canonical_to_be(path: &Path) -> Result<PathBuf, FileError> {
    let mut missing = Vec::new();
    let mut above = path;
    loop {
        if let Some(mut found) = if_there(canonical(above))? {
            found.extend(missing.iter().rev());
            return Ok(found);
        }
        match (above.parent(), above.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name);
                above = parent;
            }
            _ => return Ok(path.to_owned()),
        }
    }
}

/// The path from the root, symbolic links kept.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, FileError> {
    attempt(Operation::Inspect, path, || std::path::absolute(path))
}

/// Names in a folder, sorted; none when the folder is missing.
pub(super) fn list(path: &Path) -> Result<Vec<OsString>, FileError> {
    let names = if_there(attempt(Operation::List, path, || {
        std::fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<Vec<_>>>()
    }))?;
    let mut names = names.unwrap_or_default();
    names.sort();
    Ok(names)
}

/// What an open file is.
pub(super) fn inspect(file: &File, path: &Path) -> Result<std::fs::Metadata, FileError> {
    attempt(Operation::Inspect, path, || file.metadata())
}

/// What stands at a path; `None` when nothing does.
pub(super) fn inspect_path(path: &Path) -> Result<Option<std::fs::Metadata>, FileError> {
    if_there(attempt(Operation::Inspect, path, || {
        std::fs::metadata(path)
    }))
}

/// What has a name, links not followed; `None` when nothing does.
pub(super) fn inspect_name(path: &Path) -> Result<Option<std::fs::Metadata>, FileError> {
    if_there(attempt(Operation::Inspect, path, || {
        std::fs::symlink_metadata(path)
    }))
}

/// Writes at the file's position.
pub(super) fn write(file: &File, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    kill::during_write(file, bytes, None);
    attempt(Operation::Write, path, || {
        Written { file, path }.write_all(bytes)
    })
}

/// Writes at the file's position what one call takes; returns how many bytes that were.
pub(super) fn write_some(file: &File, path: &Path, bytes: &[u8]) -> Result<usize, FileError> {
    attempt(Operation::Write, path, || {
        Written { file, path }.write(bytes)
    })
}

/// Writes from `offset` on.
pub(super) fn write_at(
    file: &File,
    path: &Path,
    bytes: &[u8],
    offset: u64,
) -> Result<(), FileError> {
    kill::during_write(file, bytes, Some(offset));
    attempt(Operation::Write, path, || {
        Written { file, path }.all_at(bytes, offset)
    })
}

/// Writes once more what stands in a file between two places, for the next [`sync_data`]. Nobody knows whether an
/// earlier one of another process failed: the kernel then keeps the bytes to be read, counts them as written and
/// leaves them out of later flushes (fsync(2)).
pub(super) fn write_again(file: &File, path: &Path, range: Range<u64>) -> Result<(), FileError> {
    let mut offset = range.start;
    while offset < range.end {
        let length = (range.end - offset).min(1 << 16);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(1 << 16)];
        read_at(file, path, &mut bytes, offset)?;
        write_at(file, path, &bytes, offset)?;
        offset += length;
    }
    Ok(())
}

/// Cuts the file to `length` bytes.
pub(super) fn truncate(file: &File, path: &Path, length: u64) -> Result<(), FileError> {
    attempt(Operation::Truncate, path, || {
        file.set_len(length)?;
        fault::cut(file, length);
        Ok(())
    })
}

/// The file's content is on the disk when this succeeds.
pub(super) fn sync_data(file: &File, path: &Path) -> Result<(), FileError> {
    attempt(Operation::SyncData, path, || {
        fault::sync(file, path)?;
        file.sync_data()
    })
}

/// The names in a folder are on the disk when this succeeds.
pub(super) fn sync_folder(path: &Path) -> Result<(), FileError> {
    attempt(Operation::SyncFolder, path, || File::open(path)?.sync_all())
}

/// Gives a file another name, replacing what had it.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    attempt(Operation::Rename, to, || std::fs::rename(from, to))
}

/// Removes a file; nothing to do when it is missing.
pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    if_there(attempt(Operation::Remove, path, || {
        std::fs::remove_file(path)
    }))
    .map(|_| ())
}

/// Waits until this open file alone holds the lock.
pub(super) fn lock(file: &File, path: &Path) -> Result<(), FileError> {
    attempt(Operation::Lock, path, || file.lock())
}

/// Takes the lock if it is free; `false` when another open file holds it.
pub(super) fn try_lock(file: &File, path: &Path) -> Result<bool, FileError> {
    attempt(Operation::Lock, path, || match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    })
}

/// Lets go of the lock.
pub(super) fn unlock(file: &File, path: &Path) -> Result<(), FileError> {
    attempt(Operation::Lock, path, || file.unlock())
}

#[cfg(test)]
mod tests;
