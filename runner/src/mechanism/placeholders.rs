//! Empty files and folders that are made so that a place is there to be mounted over, and removed afterwards.
//!
//! The kernel detaches a mount whose place is unlinked in another mount namespace, so a run must not remove what
//! another one still has mounted. Every run therefore holds a shared `flock` on each place it mounts over; only
//! who gets an exclusive one removes it. What is made is written to a journal in the runner's state folder
//! first, locked while the run lives: a later run removes what a killed one left.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

use super::protect::open_strictly;
use super::root::path_bytes;

/// A journal line without an inode counts for something that was made this near to it.
const NEAR_SECONDS: i64 = 5;
/// How often a place is tried that somebody has locked or replaced at this moment.
const TRIES: u32 = 200;

/// The folder of journals; `None` where neither `XDG_STATE_HOME` nor `HOME` names an absolute folder.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("containment-ledger/placeholders"))
}

/// Makes the folder of journals, for its owner alone; before a plan is made, so that it is covered in there.
///
/// # Errors
/// There is no place for it, or it cannot be made.
pub fn prepare() -> io::Result<PathBuf> {
    let folder = folder().ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME")
    })?;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// One line of a journal: what is about to be made, and again with its inode once it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    #[serde(with = "path_bytes")]
    path: PathBuf,
    folder: bool,
    /// Seconds since 1970.
    at: i64,
    /// Device and inode number.
    inode: Option<(u64, u64)>,
}

/// What a run made, and what it keeps others from removing.
#[derive(Debug, Default)]
pub struct Placeholders {
    /// Shared locks on what is mounted over.
    shared: Vec<File>,
    journal: Option<File>,
}

impl Placeholders {
    /// Removes what killed runs left behind, and begins with nothing made.
    #[must_use]
    pub fn begin() -> Self {
        sweep();
        Self::default()
    }

    /// Makes what is missing of `paths` below the host folder `folder`, and returns the paths that are there then.
    /// Where the caller may not write, the workload may not either, and what is missing stays missing; so does
    /// what `wanted` does not want made.
    ///
    /// # Errors
    /// The folder cannot be opened, a path leads over a symbolic link, somebody else holds a lock on it, or there is
    /// no place for the journal.
    pub fn make(
        &mut self,
        folder: &Path,
        paths: &[String],
        wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Vec<String>> {
        let mut present: Vec<String> = Vec::with_capacity(paths.len());
        for path in paths {
            let last_is_folder = is_folder_name(path);
            let below = Path::new(path);
            if let Some(at) = self.ready(folder, below, last_is_folder, wanted(path))? {
                let at = at.to_string_lossy().into_owned();
                if !present.contains(&at) {
                    present.push(at);
                }
            }
        }
        Ok(present)
    }

    /// Makes the place of a mount that lies below a writable host folder.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn mount_point(&mut self, folder: &Path, below: &Path, is_folder: bool) -> io::Result<()> {
        self.ready(folder, below, is_folder, true).map(drop)
    }

    /// Makes and locks every part of a path; `None` when it is not there and stays so.
    fn ready(
        &mut self,
        folder: &Path,
        path: &Path,
        last_is_folder: bool,
        make: bool,
    ) -> io::Result<Option<PathBuf>> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let base = nix::fcntl::open(folder, flags, Mode::empty())?;
        if !make && is_missing(base.as_fd(), path)? {
            return Ok(None);
        }
        let mut at = PathBuf::new();
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            at.push(component);
            let is_folder = components.peek().is_some() || last_is_folder;
            let mut tries = 0;
            let found = loop {
                match self.hold(base.as_fd(), &at) {
                    Ok(Some(found)) => break found,
                    Ok(None) => match self.make_one(folder, base.as_fd(), &at, is_folder) {
                        Ok(()) | Err(Errno::EEXIST | Errno::ENOENT) => {}
                        Err(Errno::EACCES | Errno::EROFS | Errno::EPERM) => return Ok(None),
                        Err(errno) => return Err(errno.into()),
                    },
                    // Who removes holds it for a moment only.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < TRIES => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Err(error) => return Err(error),
                }
                tries += 1;
                if tries > TRIES {
                    return Err(io::Error::from_raw_os_error(libc::EBUSY));
                }
            };
            if !found.is_dir() {
                // A `.git` that is a file decides by itself: nothing can stand below it.
                break;
            }
        }
        Ok(Some(at))
    }

    /// Takes a shared lock on what is there; `None` when nothing is, or something else by now.
    fn hold(&mut self, base: BorrowedFd<'_>, at: &Path) -> io::Result<Option<std::fs::Metadata>> {
        let found = match open_strictly(base, at) {
            Ok(found) => File::from(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let metadata = found.metadata()?;
        // What cannot be read is no placeholder: those can be by everybody.
        let Some(readable) = reopen(&found, &metadata)? else {
            return Ok(Some(metadata));
        };
        match locked(readable.try_lock_shared()) {
            Ok(()) => {}
            // Without locks nobody removes anything either.
            Err(error) if lacks_locks(&error) => return Ok(Some(metadata)),
            Err(error) => return Err(error),
        }
        match open_strictly(base, at).and_then(|again| File::from(again).metadata()) {
            Ok(again) if same(&again, &metadata) => {
                self.shared.push(readable);
                Ok(Some(metadata))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn make_one(
        &mut self,
        folder: &Path,
        base: BorrowedFd<'_>,
        at: &Path,
        is_folder: bool,
    ) -> Result<(), Errno> {
        let errno = |error: io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        let parent = match at.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => open_strictly(base, parent).map_err(errno)?,
            None => base.try_clone_to_owned().map_err(errno)?,
        };
        let name = at.file_name().ok_or(Errno::EINVAL)?;
        // Otherwise an entry for something that cannot be made at all would be written each time.
        nix::unistd::faccessat(
            &parent,
            ".",
            nix::unistd::AccessFlags::W_OK,
            nix::fcntl::AtFlags::AT_EACCESS,
        )?;
        let path = folder.join(at);
        let mut line = Line {
            path,
            folder: is_folder,
            at: now(),
            inode: None,
        };
        self.note(&line).map_err(errno)?;
        let made = if is_folder {
            nix::sys::stat::mkdirat(&parent, name, Mode::from_bits_truncate(0o755))
                .and_then(|()| open_strictly(base, at).map_err(errno))
        } else {
            let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR;
            let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            nix::fcntl::openat(&parent, name, flags, Mode::from_bits_truncate(0o644))
        };
        let made = File::from(made?);
        let metadata = made.metadata().map_err(errno)?;
        line.inode = Some((metadata.dev(), metadata.ino()));
        self.note(&line).map_err(errno)?;
        // Readable whatever the umask: whoever protects it must be able to lock it.
        let (open, mode) = if is_folder {
            let readable = reopen(&made, &metadata).map_err(errno)?;
            (readable, 0o755)
        } else {
            made.write_all_at(content(&line.path), 0).map_err(errno)?;
            (Some(made), 0o644)
        };
        if let Some(open) = open {
            let permissions = std::fs::Permissions::from_mode(mode);
            open.set_permissions(permissions).map_err(errno)?;
        }
        Ok(())
    }

    fn note(&mut self, line: &Line) -> io::Result<()> {
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(new_journal()?),
        };
        journal.write_all(&encode(line)?)
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        if self.journal.is_none() && self.shared.is_empty() {
            return;
        }
        // One after the other: who ends last finds what the others could not remove.
        let turn = turn();
        self.shared.clear();
        self.journal = None;
        drop(turn);
        sweep();
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

fn encode(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// What a placeholder holds: nothing, but git refuses a repository whose `commondir` is empty.
fn content(path: &Path) -> &'static [u8] {
    if path.ends_with(".git/commondir") {
        b".\n"
    } else {
        b""
    }
}

fn is_folder_name(path: &str) -> bool {
    path.ends_with('/') || ledger::facts::policy::PROTECTED_FOLDERS.contains(&path)
}

/// Whether nothing is there, under that name or instead of a folder on the way.
fn is_missing(base: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
    match open_strictly(base, path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        // A file on the way is what decides.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

fn same(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    a.dev() == b.dev() && a.ino() == b.ino()
}

/// A descriptor to lock and to read; `None` for what is neither a file nor a folder or may not be read.
fn reopen(found: &File, metadata: &std::fs::Metadata) -> io::Result<Option<File>> {
    if !metadata.is_file() && !metadata.is_dir() {
        return Ok(None);
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    match nix::fcntl::open(path.as_str(), flags, Mode::empty()) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(Errno::EACCES | Errno::EPERM) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// An error of trying to lock as any other error.
fn locked(tried: Result<(), TryLockError>) -> io::Result<()> {
    tried.map_err(|error| match error {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(error) => error,
    })
}

fn lacks_locks(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::EBADF)
    )
}

/// The folder of journals, held by one process at a time; given up when closed.
fn turn() -> Option<File> {
    let held = File::open(folder()?).ok()?;
    // Not below any folder that a workload sees: nobody but runners hold it, and those for moments.
    held.lock().ok()?;
    Some(held)
}

fn new_journal() -> io::Result<File> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let folder = prepare()?;
    // A sweep must not find it before it is locked.
    let _turn = turn();
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}.jsonl", std::process::id());
        let mut options = File::options();
        options.append(true).create_new(true).mode(0o600);
        match options.open(folder.join(name)) {
            Ok(file) => {
                locked(file.try_lock())?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes what the journals of runs that are over name, where nobody has it mounted.
fn sweep() {
    let Some(_turn) = turn() else { return };
    let names = folder().and_then(|folder| std::fs::read_dir(folder).ok());
    let mut journals = Vec::new();
    let mut lines: Vec<(usize, Line)> = Vec::new();
    for entry in names.into_iter().flatten().filter_map(Result::ok) {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let Ok(file) = options.open(entry.path()) else {
            continue;
        };
        if locked(file.try_lock()).is_err() {
            continue;
        }
        let mut of_this: Vec<Line> = Vec::new();
        for text in io::BufReader::new(&file).split(b'\n') {
            // The last line can be a torn one; what it was to say is not done yet.
            let Ok(line) = serde_json::from_slice::<Line>(&text.unwrap_or_default()) else {
                continue;
            };
            of_this.retain(|earlier| earlier.path != line.path);
            of_this.push(line);
        }
        let number = journals.len();
        lines.extend(of_this.into_iter().map(|line| (number, line)));
        journals.push((entry.path(), file));
    }
    // What lies deepest goes first, whoever made it.
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(line.path.components().count()));
    let mut kept: Vec<(usize, Line)> = Vec::new();
    for (number, line) in lines {
        let holds = kept
            .iter()
            .any(|(_, below)| below.path.starts_with(&line.path));
        if !remove(&line, holds) {
            kept.push((number, line));
        }
    }
    for (number, (path, file)) in journals.iter().enumerate() {
        let mut rest = Vec::new();
        for (_, line) in kept.iter().filter(|(of, _)| *of == number) {
            rest.extend(encode(line).unwrap_or_default());
        }
        if rest.is_empty() {
            let _ = std::fs::remove_file(path);
        } else if file.write_all_at(&rest, 0).is_ok() {
            let _ = file.set_len(rest.len() as u64);
        }
    }
}

/// Removes one placeholder; `false` when a later sweep has to try again. What was filled or replaced is no
/// placeholder any more and stays.
fn remove(line: &Line, holds_others: bool) -> bool {
    let Ok(top) = File::open("/") else {
        return false;
    };
    let (Some(parent), Some(name)) = (line.path.parent(), line.path.file_name()) else {
        return true;
    };
    let below = |path: &Path| path.strip_prefix("/").map(Path::to_owned).ok();
    let parent = match below(parent) {
        Some(path) if path.as_os_str().is_empty() => Ok(OwnedFd::from(top)),
        Some(path) => open_strictly(top.as_fd(), &path),
        None => return true,
    };
    let opened = parent.and_then(|parent| {
        let found = File::from(open_strictly(parent.as_fd(), Path::new(name))?);
        let metadata = found.metadata()?;
        Ok((parent, found, metadata))
    });
    let (parent, found, metadata) = match opened {
        Ok(opened) => opened,
        Err(error) => return !matches!(error.kind(), io::ErrorKind::PermissionDenied),
    };
    let is_it = match line.inode {
        Some(inode) => inode == (metadata.dev(), metadata.ino()),
        None => {
            metadata.uid() == nix::unistd::geteuid().as_raw()
                && (metadata.ctime() - line.at).abs() <= NEAR_SECONDS
        }
    };
    if !is_it || metadata.is_dir() != line.folder || !(metadata.is_dir() || metadata.is_file()) {
        return true;
    }
    let Ok(Some(readable)) = reopen(&found, &metadata) else {
        return true;
    };
    if locked(readable.try_lock()).is_err() {
        return false;
    }
    let again = open_strictly(parent.as_fd(), Path::new(name))
        .and_then(|again| File::from(again).metadata());
    if !again.is_ok_and(|again| same(&again, &metadata)) {
        return true;
    }
    let flag = if line.folder {
        UnlinkatFlags::RemoveDir
    } else {
        let content = content(&line.path);
        let mut holds = Vec::new();
        let most = content.len() as u64 + 1;
        let read = readable.take(most).read_to_end(&mut holds);
        // One that was not filled yet when its run was killed is one as well.
        if read.is_err() || !(holds == content || holds.is_empty()) {
            return true;
        }
        UnlinkatFlags::NoRemoveDir
    };
    match unlinkat(&parent, name, flag) {
        Ok(()) | Err(Errno::ENOENT) => true,
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => !holds_others,
        Err(_) => false,
    }
}
