//! What a workload left in the places it could write to.
//!
//! A [`Place`] is a descriptor of a folder (or file) as the host has it, and the path under which the
//! workload saw it. In a fresh place, made for the run, everything is an artifact; in one that existed
//! before, what changed is: a snapshot taken before the run keeps 16 bytes an entry, a digest of path,
//! device, inode, mode, size, mtime and ctime. The workload can set an mtime back but not a ctime. What the
//! snapshot could not read counts as changed. What was deleted, and folders themselves, are no artifacts.
//!
//! The workload is dead when a place is scanned, but everything in it is its work: names that are no text,
//! trees of any depth, links to anywhere, pipes nobody writes to, files of 10 TB without a byte in them.
//! Only directories and regular files are opened, never through a link or into another mount; a hash is that
//! of the descriptor that was looked at. Whatever could not be seen is said in `unmeasured`, with one of the
//! reasons below, and never left out silently.

mod problems;
mod walk;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ledger::bytes::canon::{U53, escape_bytes};
use ledger::bytes::hash::{Hash, Hasher};
use ledger::facts::execution::{Artifact, FileKind, Unmeasured};
use nix::errno::Errno;
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::time::{ClockId, clock_gettime};

use self::problems::Problems;
pub use self::problems::{
    CHANGED, INTERRUPTED, OTHER_MOUNT, OVER_BUDGET, SNAPSHOT_INCOMPLETE, TOO_MANY, UNREADABLE,
};
use self::walk::{Budget, Entry, Ground, Opener, file_type, walk, without_end_slash};

/// How much a scan, or a snapshot, may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Names read in all places together.
    pub entries: u64,
    /// Bytes of those names.
    pub name_bytes: u64,
    /// Artifacts listed.
    pub artifacts: usize,
    /// Bytes of their paths.
    pub path_bytes: usize,
    /// Bytes hashed.
    pub hashed_bytes: u64,
}

impl Default for Limits {
    /// A million names of 64 MiB, 100,000 artifacts with 32 MiB of paths, 1 GiB hashed.
    fn default() -> Self {
        Self {
            entries: 1_000_000,
            name_bytes: 64 << 20,
            artifacts: 100_000,
            path_bytes: 32 << 20,
            hashed_bytes: 1 << 30,
        }
    }
}

/// A moment as file systems write it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds of the second.
    pub nanoseconds: i64,
}

/// The kernel's clock for file times could not be read.
#[derive(Debug, thiserror::Error)]
#[error("read the clock CLOCK_REALTIME_COARSE")]
pub struct ReadClockError(#[from] Errno);

impl FileTime {
    /// The clock that the kernel stamps files with (CLOCK_REALTIME_COARSE, it advances by ticks): a file that
    /// changes from now on has a ctime that is not before this moment.
    ///
    /// # Errors
    /// The kernel has no such clock.
    pub fn now() -> Result<Self, ReadClockError> {
        let now = clock_gettime(ClockId::CLOCK_REALTIME_COARSE)?;
        Ok(Self {
            seconds: now.tv_sec(),
            nanoseconds: now.tv_nsec(),
        })
    }

    const fn changed(stat: &FileStat) -> Self {
        Self {
            seconds: stat.st_ctime,
            nanoseconds: stat.st_ctime_nsec,
        }
    }
}

/// Where the workload can write.
#[derive(Debug)]
pub struct Place {
    root: OwnedFd,
    inside: PathBuf,
    before: Option<Snapshot>,
    hidden: Vec<PathBuf>,
}

impl Place {
    /// A place that was empty when the run began: whatever is found is the workload's.
    ///
    /// `root` may be an `O_PATH` descriptor.
    pub fn fresh(root: OwnedFd, inside: impl Into<PathBuf>) -> Self {
        Self {
            root,
            inside: inside.into(),
            before: None,
            hidden: Vec::new(),
        }
    }

    /// A place with a past: only what changes from `now` on is the workload's.
    ///
    /// `root` may be an `O_PATH` descriptor, unless it is that of a file. Takes the snapshot, so this is to be
    /// called before the workload may run, and `now` read ([`FileTime::now`]) before this is called.
    pub fn existing(
        root: OwnedFd,
        inside: impl Into<PathBuf>,
        now: FileTime,
        limits: &Limits,
    ) -> Self {
        Self::existing_with(None, root, inside.into(), now, limits)
    }

    fn existing_with(
        opener: Option<Opener>,
        root: OwnedFd,
        inside: PathBuf,
        now: FileTime,
        limits: &Limits,
    ) -> Self {
        let ground = Ground {
            place: root.as_fd(),
            inside: inside.as_os_str().as_bytes(),
            covered: &[],
            opener,
        };
        let before = Some(Snapshot::take(ground, now, limits));
        Self {
            root,
            inside,
            before,
            hidden: Vec::new(),
        }
    }

    /// Without these folders, as the workload would have seen them: they were covered.
    #[must_use]
    pub fn without(mut self, hidden: &[PathBuf]) -> Self {
        self.hidden = hidden.to_vec();
        self
    }

    /// Its path as the workload sees it.
    #[must_use]
    pub fn inside(&self) -> &Path {
        &self.inside
    }
}

/// What was in a place before the run.
#[derive(Debug)]
struct Snapshot {
    known: HashSet<[u8; 16]>,
    taken: FileTime,
    /// Whether the limits sufficed.
    complete: bool,
}

impl Snapshot {
    fn take(ground: Ground<'_>, taken: FileTime, limits: &Limits) -> Self {
        let mut known = HashSet::new();
        let mut problems = Problems::default();
        let mut budget = Budget::of(limits);
        let _all_seen = walk(ground, &mut budget, &mut problems, &mut |_, entry| {
            // What changes in the same tick of the clock could look the same afterwards.
            if FileTime::changed(entry.stat) < taken {
                known.insert(digest(entry.path, entry.stat));
            }
            ControlFlow::Continue(())
        });
        Self {
            known,
            taken,
            complete: !problems.says(TOO_MANY),
        }
    }

    fn has_changed(&self, path: &[u8], stat: &FileStat) -> bool {
        !self.known.contains(&digest(path, stat))
            && (self.complete || FileTime::changed(stat) >= self.taken)
    }
}

/// Names one state of one path.
fn digest(path: &[u8], stat: &FileStat) -> [u8; 16] {
    let mut hasher = Hasher::plain();
    for field in [
        stat.st_dev,
        stat.st_ino,
        u64::from(stat.st_mode),
        stat.st_size.cast_unsigned(),
        stat.st_mtime.cast_unsigned(),
        stat.st_mtime_nsec.cast_unsigned(),
        stat.st_ctime.cast_unsigned(),
        stat.st_ctime_nsec.cast_unsigned(),
    ] {
        hasher.update(&field.to_be_bytes());
    }
    hasher.update(path);
    let mut digest = [0; 16];
    digest.copy_from_slice(hasher.finish().as_bytes().split_at(16).0);
    digest
}

impl Budget {
    const fn of(limits: &Limits) -> Self {
        Self {
            entries: limits.entries,
            name_bytes: limits.name_bytes,
        }
    }
}

/// What was found, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Ordered by path, bytewise.
    pub artifacts: Vec<Artifact>,
    /// For the field `artifacts`; the reason is one of this module's words, where it concerns a path followed
    /// by `: ` and the path or, after a few paths, the number of further ones.
    pub unmeasured: Vec<Unmeasured>,
}

/// Lists what the workload left in `places`. To be called when the workload is dead.
///
/// Once `interrupted` says so, what is left is listed without hashes; it is asked before every file and every
/// 128 KiB, and not again after it said so.
#[must_use]
pub fn scan(places: &[Place], limits: &Limits, interrupted: &dyn Fn() -> bool) -> Scan {
    scan_with(None, places, limits, interrupted)
}

fn scan_with(
    opener: Option<Opener>,
    places: &[Place],
    limits: &Limits,
    interrupted: &dyn Fn() -> bool,
) -> Scan {
    let others = places.iter().map(|place| &place.inside);
    let covered: Vec<&[u8]> = others
        .chain(places.iter().flat_map(|place| &place.hidden))
        .map(|path| without_end_slash(path.as_os_str().as_bytes()))
        .collect();
    let mut problems = Problems::default();
    let mut budget = Budget::of(limits);
    let mut artifacts = Vec::new();
    let mut path_bytes = 0usize;
    let mut reader = Reader {
        left: limits.hashed_bytes,
        buffer: vec![0; 128 << 10],
        interrupted,
        stopped: false,
    };
    for place in places {
        let ground = Ground {
            place: place.root.as_fd(),
            inside: place.inside.as_os_str().as_bytes(),
            covered: &covered,
            opener,
        };
        if place.before.as_ref().is_some_and(|before| !before.complete) {
            problems.say(SNAPSHOT_INCOMPLETE, ground.inside);
        }
        let walked = walk(
            ground,
            &mut budget,
            &mut problems,
            &mut |problems, entry| {
                let before = place.before.as_ref();
                if before.is_some_and(|before| !before.has_changed(entry.path, entry.stat)) {
                    return ControlFlow::Continue(());
                }
                path_bytes = path_bytes.saturating_add(entry.path.len());
                if artifacts.len() == limits.artifacts || path_bytes > limits.path_bytes {
                    problems.say_once(TOO_MANY);
                    return ControlFlow::Break(());
                }
                artifacts.extend(reader.artifact(&entry, problems));
                ControlFlow::Continue(())
            },
        );
        if walked.is_break() {
            break;
        }
    }
    artifacts.sort_by(|a: &Artifact, b| a.path.as_bytes().cmp(b.path.as_bytes()));
    Scan {
        artifacts,
        unmeasured: problems.into_unmeasured(),
    }
}

/// Reads files, as many bytes as it may.
struct Reader<'a> {
    left: u64,
    buffer: Vec<u8>,
    interrupted: &'a dyn Fn() -> bool,
    stopped: bool,
}

impl Reader<'_> {
    fn is_stopped(&mut self) -> bool {
        self.stopped = self.stopped || (self.interrupted)();
        self.stopped
    }

    /// `None` for what has no kind in the record.
    fn artifact(&mut self, entry: &Entry<'_>, problems: &mut Problems) -> Option<Artifact> {
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
            Err((INTERRUPTED, _)) => {
                problems.say_once(INTERRUPTED);
                None
            }
            Err((reason, None)) => {
                problems.say(reason, entry.path);
                None
            }
            Err((reason, Some(error))) => {
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
    fn hash(&mut self, entry: &Entry<'_>) -> Result<Hash, (&'static str, Option<Errno>)> {
        if self.is_stopped() {
            return Err((INTERRUPTED, None));
        }
        let bytes = entry.stat.st_size.cast_unsigned();
        if bytes > self.left {
            return Err((OVER_BUDGET, None));
        }
        let unreadable = |error| (UNREADABLE, Some(error));
        let same = |file: &File| match fstat(file) {
            Ok(stat) if digest(b"", &stat) == digest(b"", entry.stat) => Ok(()),
            Ok(_) => Err((CHANGED, None)),
            Err(error) => Err(unreadable(error)),
        };
        let file = match entry.open() {
            Ok(file) => File::from(file),
            Err(Errno::EXDEV) => return Err((OTHER_MOUNT, None)),
            Err(Errno::ENOENT | Errno::ELOOP | Errno::ENXIO) => return Err((CHANGED, None)),
            Err(error) => return Err(unreadable(error)),
        };
        same(&file)?;
        let mut hasher = Hasher::plain();
        let mut at = 0;
        while at <= bytes {
            if self.is_stopped() {
                return Err((INTERRUPTED, None));
            }
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
            return Err((CHANGED, None));
        }
        same(&file)?;
        Ok(hasher.finish())
    }
}

#[cfg(test)]
mod tests;
