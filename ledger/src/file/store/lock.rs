//! Who writes now (`lock`), and which runs are alive (`runs/<run>.lock`).
//!
//! A file can be removed while somebody holds its lock, and the next one locks another: so whoever writes holds the ledger's
//! folder, too, where the file system locks folders. NFS does not: an exclusive lock takes a descriptor to write there (flock(2)).
//!
//! Both are `flock` locks of an open file: the kernel lets go of them when the last process that holds the
//! file open dies, so a lock that is free says that nobody is there any more. A child that was forked and
//! not executed holds its parent's files: it closes them (they are close-on-exec) or lives on as their owner.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::layout::Layout;
use crate::facts::execution::RunId;
use crate::file::durable::{self, FileError};

/// How long another writer is waited for without a word.
const SILENT: Duration = Duration::from_secs(1);

/// The lock around every append.
#[derive(Debug)]
pub(super) struct LedgerLock {
    path: PathBuf,
    file: File,
    root: PathBuf,
    /// The ledger's folder, open; absent where the file system does not lock folders.
    folder: Option<File>,
    /// Says that another writer is waited for; absent when nobody asked for it, and once that was said.
    say_waiting: Option<fn(&Path)>,
}

/// Why a ledger could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// Two open files held the lock at once: this file system does not lock.
    #[error("{}: two holders got the lock at once, this file system does not lock", .0.display())]
    DoesNotLock(PathBuf),
}

impl miette::Diagnostic for LockError {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new("ledger::open::lock"))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        match self {
            Self::File(error) if error.is_not_regular() => {
                let path = error.path.display();
                let text = format!("look at {path} and remove it; it is made again");
                Some(Box::new(text))
            }
            Self::File(error) => error.help(),
            Self::DoesNotLock(_) => Some(Box::new(LOCAL)),
        }
    }
}

const LOCAL: &str = "put the ledger on a local file system";

impl LedgerLock {
    /// Opens the lock file and holds that it locks. The lock is free afterwards.
    pub(super) fn open(layout: &Layout, say_waiting: Option<fn(&Path)>) -> Result<Self, LockError> {
        let path = layout.lock();
        let file = durable::open_or_create(&path)?;
        let mut lock = Self {
            path,
            file,
            root: layout.root().to_owned(),
            folder: lockable_folder(layout.root())?,
            say_waiting,
        };
        lock.acquire()?;
        let second = durable::open_or_create(&lock.path)?;
        let both = durable::try_lock(&second, &lock.path)?;
        lock.release()?;
        if both {
            return Err(LockError::DoesNotLock(lock.path));
        }
        Ok(lock)
    }

    /// Waits for the lock. When the file was removed or replaced meanwhile, others lock the new one: so
    /// does this. Who held the old one may still write: then the folder is waited for. Nothing is held after an error.
    pub(super) fn acquire(&mut self) -> Result<(), FileError> {
        let acquired = self.acquire_both();
        if acquired.is_err() {
            // The error is what there is to say; the kernel lets go of it with this process at the latest.
            let _ = durable::unlock(&self.file, &self.path);
        }
        acquired
    }

    fn acquire_both(&mut self) -> Result<(), FileError> {
        loop {
            wait(&self.file, &self.path, &self.root, &mut self.say_waiting)?;
            let held = durable::inspect(&self.file, &self.path)?;
            let named = durable::inspect_name(&self.path)?;
            if named.is_some_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
                break;
            }
            self.file = durable::open_or_create(&self.path)?;
        }
        match &self.folder {
            Some(folder) => wait(folder, &self.root, &self.root, &mut self.say_waiting),
            None => Ok(()),
        }
    }

    pub(super) fn release(&self) -> Result<(), FileError> {
        let folder = match &self.folder {
            Some(folder) => durable::unlock(folder, &self.root),
            None => Ok(()),
        };
        durable::unlock(&self.file, &self.path)?;
        folder
    }
}

/// Waits for the lock of an open file, and says once that another writer of the folder is waited for when that takes long.
fn wait(
    file: &File,
    path: &Path,
    folder: &Path,
    say_waiting: &mut Option<fn(&Path)>,
) -> Result<(), FileError> {
    if durable::try_lock(file, path)? {
        return Ok(());
    }
    let Some(say) = *say_waiting else {
        return durable::lock(file, path);
    };
    // flock(2) knows no time limit. Whoever speaks is gone before this returns: no run is begun beside a thread.
    let (locked, said) = thread::scope(|scope| {
        let (over, is_over) = channel::<()>();
        let speak = move || {
            let late = is_over.recv_timeout(SILENT) == Err(RecvTimeoutError::Timeout);
            if late {
                say(folder);
            }
            late
        };
        // Where the system gives no thread, the wait is as long and nothing is said.
        let speaker = thread::Builder::new().spawn_scoped(scope, speak);
        let locked = durable::lock(file, path);
        drop(over);
        let said = speaker.is_ok_and(|speaker| speaker.join().unwrap_or(true));
        (locked, said)
    });
    if said {
        *say_waiting = None;
    }
    locked
}

/// The folder, where it can be locked.
fn lockable_folder(path: &Path) -> Result<Option<File>, FileError> {
    let Some(folder) = durable::open_named(path)? else {
        return Ok(None);
    };
    match durable::try_lock(&folder, path) {
        Ok(true) => durable::unlock(&folder, path)?,
        // Somebody writes: it can.
        Ok(false) => {}
        Err(error) if does_not_lock_folders(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(folder))
}

fn does_not_lock_folders(error: &FileError) -> bool {
    let answers = [
        Errno::BADF,
        Errno::INVAL,
        Errno::ISDIR,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
    ];
    let answer = error.source.raw_os_error();
    answers
        .iter()
        .any(|errno| answer == Some(errno.raw_os_error()))
}

/// Says that a run is alive, for as long as it is kept. Then its file becomes the spare one that the next run takes:
/// giving a file another name is much quicker than removing it and making one.
#[derive(Debug)]
pub struct RunLock {
    run: RunId,
    path: PathBuf,
    spare: PathBuf,
    file: File,
}

impl RunLock {
    /// Callers hold the ledger's lock: between making the file and locking it nobody must take it for dead.
    pub(super) fn take(layout: &Layout, run: RunId) -> Result<Self, FileError> {
        durable::create_folders(&layout.runs())?;
        let (path, spare) = (layout.run_lock(&run), layout.spare_lock());
        let is_file = durable::inspect_name(&spare)?.is_some_and(|facts| facts.is_file());
        let reused = if is_file && durable::rename_new(&spare, &path)? {
            durable::make_way(&path)?;
            durable::open_to_write(&path)?
        } else {
            None
        };
        let file = match reused {
            Some(file) => file,
            None => durable::create_new(&path)?,
        };
        durable::lock(&file, &path)?;
        Ok(Self {
            run,
            path,
            spare,
            file,
        })
    }

    /// The run that is alive.
    #[must_use]
    pub const fn run(&self) -> RunId {
        self.run
    }
}

impl AsFd for RunLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // What stays behind is swept when the ledger is opened next. A child that still holds the file open must not keep
        // the next run waiting.
        let _ = durable::unlock(&self.file, &self.path);
        if durable::rename(&self.path, &self.spare).is_err() {
            let _ = durable::remove(&self.path);
        }
    }
}

/// Whether somebody keeps this run alive. A lock file that is gone keeps nothing.
pub(super) fn is_alive(layout: &Layout, run: &RunId) -> Result<bool, FileError> {
    let path = layout.run_lock(run);
    match durable::open_to_write(&path)? {
        Some(file) => Ok(!durable::try_lock(&file, &path)?),
        None => Ok(false),
    }
}

/// Removes what dead processes left in `runs`: locks and half-written blobs that nobody holds. Callers hold
/// the ledger's lock.
pub(super) fn sweep(layout: &Layout) -> Result<(), FileError> {
    let spare = layout.spare_lock();
    for name in durable::list(&layout.runs())? {
        let path = layout.runs().join(name);
        if path == spare {
            continue;
        }
        durable::make_way(&path)?;
        if let Some(file) = durable::open_to_write(&path)?
            && durable::try_lock(&file, &path)?
        {
            durable::remove(&path)?;
        }
    }
    Ok(())
}
