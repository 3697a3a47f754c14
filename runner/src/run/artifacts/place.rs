//! Where the workload can write, and what was there before it ran.

use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hasher;
use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::time::{ClockId, clock_gettime};

use super::problems::{Problems, TOO_MANY};
use super::walk::{Budget, Ground, Opener, walk};
use super::{Limits, Pace, Pacer};

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
    pub(super) root: OwnedFd,
    pub(super) inside: PathBuf,
    pub(super) before: Option<Snapshot>,
    pub(super) hidden: Vec<PathBuf>,
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
    /// called before the workload may run, and `now` read ([`FileTime::now`]) before this is called. A snapshot that
    /// `pace` stops is incomplete, and the scan says so.
    pub fn existing(
        root: OwnedFd,
        inside: impl Into<PathBuf>,
        now: FileTime,
        limits: &Limits,
        pace: &dyn Fn() -> Pace,
    ) -> Self {
        Self::existing_with(None, root, inside.into(), now, limits, pace)
    }

    pub(super) fn existing_with(
        opener: Option<Opener>,
        root: OwnedFd,
        inside: PathBuf,
        now: FileTime,
        limits: &Limits,
        pace: &dyn Fn() -> Pace,
    ) -> Self {
        let ground = Ground {
            place: root.as_fd(),
            inside: inside.as_os_str().as_bytes(),
            covered: &[],
            opener,
        };
        let before = Some(Snapshot::take(ground, now, limits, pace));
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
pub(super) struct Snapshot {
    /// Sorted: a table of hashes would take twice as much, and four times while it grows.
    known: Vec<[u8; 16]>,
    taken: FileTime,
    /// Whether all was seen.
    pub(super) complete: bool,
}

impl Snapshot {
    fn take(ground: Ground<'_>, taken: FileTime, limits: &Limits, pace: &dyn Fn() -> Pace) -> Self {
        let mut known = Vec::new();
        let mut problems = Problems::default();
        let pacer = Pacer::new(pace);
        let mut budget = Budget::of(limits, &pacer);
        let walked = walk(ground, &mut budget, &mut problems, &mut |_, entry| {
            // What changes in the same tick of the clock could look the same afterwards.
            if FileTime::changed(entry.stat) < taken {
                known.push(digest(entry.path, entry.stat));
            }
            ControlFlow::Continue(())
        });
        known.sort_unstable();
        Self {
            known,
            taken,
            complete: walked.is_continue() && !problems.says(TOO_MANY),
        }
    }

    pub(super) fn has_changed(&self, path: &[u8], stat: &FileStat) -> bool {
        self.known.binary_search(&digest(path, stat)).is_err()
            && (self.complete || FileTime::changed(stat) >= self.taken)
    }
}

/// Names one state of one path.
pub(super) fn digest(path: &[u8], stat: &FileStat) -> [u8; 16] {
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
