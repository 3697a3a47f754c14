//! **Marks**: what a run plants carries the run's own name, which is written down before anything is planted, so that what
//! a killed runner left is found and removed, and nothing else.
//!
//! ```text
//! <state>/planted/containment-probe-<pid>-<start time>-<random>     a list of paths, each ended by a zero byte
//! <place>/containment-probe-<pid>-<start time>-<random>             what was planted there
//! ```
//!
//! The list is locked while its owner lives. It is dead when nobody holds the lock AND no process of that id and start
//! time (proc_pid_stat(5), field 22) runs.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::sys::process::start_time;

/// First part of every planted name.
pub const PREFIX: &str = "containment-probe-";
/// The folder of lists, below the state folder.
const LISTS: &str = "planted";

/// What could not be written down, planted or removed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("cannot {attempt} {}", path.display())]
#[diagnostic(code(runner::measure::mark))]
pub struct MarkError {
    /// What was attempted.
    pub attempt: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub source: io::Error,
}

pub(super) fn cannot<'a>(
    attempt: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> MarkError + 'a {
    move |source| MarkError {
        attempt,
        path: path.to_owned(),
        source,
    }
}

/// A run's own name and its list; dropped, everything on the list is removed, and then the list.
#[derive(Debug)]
pub struct Mark {
    name: String,
    list: PathBuf,
    paths: Vec<PathBuf>,
    _lock: File,
}

impl Mark {
    /// Writes down that something may be planted in each of `places`; `random` makes the name unique.
    ///
    /// # Errors
    /// The list cannot be kept.
    pub fn new(state: &Path, random: &str, places: &[PathBuf]) -> Result<Self, MarkError> {
        let own = std::process::id();
        let start = start_time(own)
            .map_err(cannot("read", Path::new("/proc/self/stat")))?
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            .map_err(cannot("find this process in", Path::new("/proc")))?;
        let name = format!("{PREFIX}{own}-{start}-{random}");
        let folder = state.join(LISTS);
        fs::create_dir_all(&folder).map_err(cannot("make the folder", &folder))?;
        let list = folder.join(&name);
        let paths: Vec<PathBuf> = places.iter().map(|place| place.join(&name)).collect();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&list)
            .map_err(cannot("write", &list))?;
        // A list that is empty or ends in the middle names nothing that was planted: planting begins after it.
        let written = file.lock().and_then(|()| {
            let mut bytes = Vec::new();
            for path in &paths {
                bytes.extend(path.as_os_str().as_bytes());
                bytes.push(0);
            }
            file.write_all(&bytes)
        });
        if let Err(source) = written {
            let _ = fs::remove_file(&list);
            return Err(cannot("write", &list)(source));
        }
        Ok(Self {
            name,
            list,
            paths,
            _lock: file,
        })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where something may be planted, in the order of the places.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // What cannot be removed now stays on its list: for `sweep_own`, or the sweep of a later measurement.
        let left = self.paths.iter().filter(|path| remove(path).is_err());
        if left.count() == 0 {
            let _ = fs::remove_file(&self.list);
        }
    }
}

/// Removes what dead owners planted; gives the names of their runs, and what could not be removed.
///
/// # Errors
/// The lists cannot be read.
pub fn sweep(state: &Path) -> Result<(Vec<String>, Vec<MarkError>), MarkError> {
    sweep_those(state, |owner| Ok(!owner.is_alive()?))
}

/// Removes what this process planted and could not remove when each run had ended, as where it had too many files open: now that
/// nothing is measured any more. What a [`Mark`] still stands for is locked, and stays.
///
/// # Errors
/// The lists cannot be read.
pub fn sweep_own(state: &Path) -> Result<Vec<MarkError>, MarkError> {
    let own = std::process::id();
    let is_own = |owner: &Owner| Ok(owner.pid == own && owner.is_alive()?);
    sweep_those(state, is_own).map(|(_, left)| left)
}

/// Whether what a process planted is to be removed.
type Choice<'a> = &'a dyn Fn(&Owner) -> io::Result<bool>;

fn sweep_those(
    state: &Path,
    is_meant: impl Fn(&Owner) -> io::Result<bool>,
) -> Result<(Vec<String>, Vec<MarkError>), MarkError> {
    let folder = state.join(LISTS);
    let (mut swept, mut problems) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((swept, problems)),
        Err(error) => return Err(cannot("read the folder", &folder)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(cannot("read the folder", &folder))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let Some(owner) = Owner::of(&name) else {
            continue;
        };
        match sweep_one(&entry.path(), &name, &owner, &is_meant) {
            Ok(true) => swept.push(name),
            Ok(false) => {}
            Err(problem) => problems.push(problem),
        }
    }
    swept.sort();
    Ok((swept, problems))
}

fn sweep_one(
    list: &Path,
    name: &str,
    owner: &Owner,
    is_meant: Choice<'_>,
) -> Result<bool, MarkError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(list);
    let file = match file {
        Ok(file) => file,
        // Its owner, or another sweep, removed it just now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(cannot("open", list)(error)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(false),
        Err(fs::TryLockError::Error(error)) => return Err(cannot("lock", list)(error)),
    }
    if !is_meant(owner).map_err(cannot("tell whether its owner lives of", list))? {
        return Ok(false);
    }
    let bytes = fs::read(list).map_err(cannot("read", list))?;
    for path in bytes.split_inclusive(|byte| *byte == 0) {
        let Some(path) = path.strip_suffix(&[0]) else {
            break;
        };
        let path = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
        if path.is_absolute() && path.file_name() == Some(OsStr::new(name)) {
            remove(&path).map_err(cannot("remove", &path))?;
        }
    }
    fs::remove_file(list).map_err(cannot("remove", list))?;
    Ok(true)
}

/// Removes a planted tree; a link in its place is removed itself.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// The process that a name belongs to.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    start: u64,
}

impl Owner {
    /// `None` for a name that is no mark.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let (pid, start, random) = (parts.next()?, parts.next()?, parts.next()?);
        let fits = parts.next().is_none()
            && !random.is_empty()
            && random.bytes().all(|byte| byte.is_ascii_hexdigit());
        let owner = Self {
            pid: pid.parse().ok()?,
            start: start.parse().ok()?,
        };
        fits.then_some(owner)
    }

    fn is_alive(&self) -> io::Result<bool> {
        Ok(start_time(self.pid)? == Some(self.start))
    }
}

#[cfg(test)]
mod tests;
