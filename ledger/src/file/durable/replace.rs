//! Replacing a file's content whole.

use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::{
    FileError, Operation, attempt, create_empty, inspect, inspect_name, open_to_write, remove,
    rename, sync_data, sync_folder, write, write_at,
};

/// Gives a new file its blocks before it is written. ext4 writes the content of a file out at once when it is
/// renamed over another and has no blocks yet (ext4(5), auto_da_alloc): milliseconds for a file of which it
/// does not matter whether a crash leaves it empty. What cannot be reserved is written all the same.
fn reserve(file: &File, bytes: u64) {
    let _ = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
}

/// Whether a replaced file must survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum Durability {
    /// After a crash it may be the old one, the new one or empty.
    Unsynced,
    /// After a crash it may be anything: the content itself says whether it is whole.
    Derived,
    /// On the disk, name and content, when this succeeds.
    Synced,
}

/// Replaces a file's content whole: nobody who reads it under the lock ever gets half of it. Callers hold the lock
/// that keeps others from the same temporary file, `<path>.new`.
///
/// Making a file and giving up the one before costs more than writing it. So the two are kept and take turns, by
/// renameat2(2) with RENAME_EXCHANGE, as long as the content's length stays: written over in place, a file of one
/// block holds after a crash either what it held before or what was written.
pub(in crate::file) fn replace(
    path: &Path,
    bytes: &[u8],
    durability: Durability,
) -> Result<(), FileError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let most = match durability {
        Durability::Unsynced => BLOCK,
        Durability::Derived => PAGES,
        Durability::Synced => 0,
    };
    if bytes.len() <= most && take_turns(path, &temporary, bytes)? {
        return Ok(());
    }
    // A copy by hard link keeps what it has.
    remove(&temporary)?;
    let file = create_empty(&temporary)?;
    keep_mode(path, &file, &temporary)?;
    if durability != Durability::Synced {
        reserve(&file, bytes.len() as u64);
    }
    write(&file, &temporary, bytes)?;
    if durability == Durability::Synced {
        sync_data(&file, &temporary)?;
    }
    // What had the name becomes the temporary file of the next time.
    if durability == Durability::Synced || !exchange(&temporary, path)? {
        rename(&temporary, path)?;
    }
    match path.parent() {
        Some(folder) if durability == Durability::Synced => sync_folder(folder),
        _ => Ok(()),
    }
}

/// A block of any file system; what fits one is written as one.
const BLOCK: usize = 512;
/// Where half of it does no harm, writing over in place is worth it up to here.
const PAGES: usize = 16 << 10;

/// Writes over the earlier file, if there is one of this length, and gives it the name.
fn take_turns(path: &Path, earlier: &Path, bytes: &[u8]) -> Result<bool, FileError> {
    let Ok(Some(file)) = open_to_write(earlier) else {
        return Ok(false);
    };
    let facts = inspect(&file, earlier)?;
    if facts.len() != bytes.len() as u64 || facts.nlink() != 1 {
        return Ok(false);
    }
    keep_mode(path, &file, earlier)?;
    write_at(&file, earlier, bytes, 0)?;
    exchange(earlier, path)
}

/// Whoever was let in to read what has the name is let in to read what gets it.
fn keep_mode(path: &Path, file: &File, at: &Path) -> Result<(), FileError> {
    let Some(now) = inspect_name(path)?.filter(|facts| facts.is_file()) else {
        return Ok(());
    };
    let (now, own) = (now.permissions(), inspect(file, at)?.permissions());
    if now.mode() & 0o777 == own.mode() & 0o777 {
        return Ok(());
    }
    let mode = std::fs::Permissions::from_mode(now.mode() & 0o777);
    attempt(Operation::Create, at, || file.set_permissions(mode.clone()))
}

/// Swaps the names of two files; `false` where one is missing or no file, or the file system cannot.
fn exchange(one: &Path, other: &Path) -> Result<bool, FileError> {
    if !inspect_name(other)?.is_some_and(|facts| facts.is_file()) {
        return Ok(false);
    }
    rename_if(one, other, rustix::fs::RenameFlags::EXCHANGE)
}

/// renameat2(2) where it can be done as the flags say.
fn rename_if(from: &Path, to: &Path, flags: rustix::fs::RenameFlags) -> Result<bool, FileError> {
    use rustix::fs::{CWD, renameat_with};
    use rustix::io::Errno;
    const CANNOT: [Errno; 5] = [
        Errno::NOENT,
        Errno::EXIST,
        Errno::INVAL,
        Errno::NOSYS,
        Errno::OPNOTSUPP,
    ];
    let renamed = attempt(Operation::Rename, to, || {
        Ok(renameat_with(CWD, from, CWD, to, flags)?)
    });
    match renamed {
        Ok(()) => Ok(true),
        Err(error) => match Errno::from_io_error(&error.source) {
            Some(errno) if CANNOT.contains(&errno) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Gives a file a name that nothing has; `false` when the file is missing, something has the name, or the file system
/// cannot tell.
pub(in crate::file) fn rename_new(from: &Path, to: &Path) -> Result<bool, FileError> {
    use rustix::fs::RenameFlags;
    rename_if(from, to, RenameFlags::NOREPLACE)
}
