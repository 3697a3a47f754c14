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
//!
//! Memory is bounded by the [`Limits`], not by what is there: artifacts are handed on one by one, names are
//! held for the folders on the way down alone. Time is bounded by a [`Pace`] that is asked again and again.

mod place;
mod problems;
mod reader;
mod walk;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use ledger::facts::execution::{Artifact, Unmeasured};

pub use self::place::{FileTime, Place, ReadClockError};
use self::problems::Problems;
pub use self::problems::{
    CHANGED, INCOMPLETE, INTERRUPTED, OTHER_MOUNT, OUT_OF_TIME, OVER_BUDGET, SNAPSHOT_INCOMPLETE,
    TOO_MANY, UNREADABLE,
};
use self::reader::Reader;
use self::walk::{Budget, Ground, Opener, walk, without_end_slash};

/// How much a scan, or a snapshot, may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Names read in all places together.
    pub entries: u64,
    /// Memory for names at one time, in bytes: each takes its length and 5.
    pub held_bytes: u64,
    /// Artifacts listed.
    pub artifacts: u64,
    /// Bytes of their paths.
    pub path_bytes: u64,
    /// Longest path that is listed, in bytes; what lies deeper is not entered.
    pub longest_path: usize,
    /// Bytes hashed.
    pub hashed_bytes: u64,
}

impl Default for Limits {
    /// A million names, 8 MiB of them at one time; 100,000 artifacts with 32 MiB of paths of 64 KiB at most; 1 GiB
    /// hashed.
    fn default() -> Self {
        Self {
            entries: 1_000_000,
            held_bytes: 8 << 20,
            artifacts: 100_000,
            path_bytes: 32 << 20,
            longest_path: 64 << 10,
            hashed_bytes: 1 << 30,
        }
    }
}

/// How much of a scan there is still time for; it only ever becomes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// All of it.
    Whole,
    /// The list, without further hashes; why.
    NoHashes(&'static str),
    /// Nothing more; why.
    Stop(&'static str),
}

/// Asks for the pace, and no more once it was told to stop.
struct Pacer<'a> {
    ask: &'a dyn Fn() -> Pace,
    stopped: Cell<Option<&'static str>>,
}

impl<'a> Pacer<'a> {
    const fn new(ask: &'a dyn Fn() -> Pace) -> Self {
        Self {
            ask,
            stopped: Cell::new(None),
        }
    }

    fn now(&self) -> Pace {
        if let Some(reason) = self.stopped.get() {
            return Pace::Stop(reason);
        }
        let pace = (self.ask)();
        if let Pace::Stop(reason) = pace {
            self.stopped.set(Some(reason));
        }
        pace
    }

    /// Whether to give up; then the list is known to be incomplete, and why.
    fn says_stop(&self, problems: &mut Problems) -> bool {
        let Pace::Stop(reason) = self.now() else {
            return false;
        };
        problems.say_once(reason);
        problems.say_once(INCOMPLETE);
        true
    }
}

/// Lists what the workload left in `places`, to be called when the workload is dead: each artifact goes to `found`,
/// place by place in the order of their paths, and in each as the walk comes to it, which is the same on every file
/// system: names bytewise, and what is in a folder where the folder's name stands. `found` can break it off.
///
/// Returns what could not be seen, for the field `artifacts`; the reason is one of this module's words, where it
/// concerns a path followed by `: ` and the path or, after a few paths, the number of further ones.
///
/// `pace` is asked before every entry, every 64 KiB that are hashed, and every 1024 names that are read.
#[must_use]
pub fn scan(
    places: &[Place],
    limits: &Limits,
    pace: &dyn Fn() -> Pace,
    found: &mut dyn FnMut(Artifact) -> ControlFlow<()>,
) -> Vec<Unmeasured> {
    scan_with(None, places, limits, pace, found)
}

fn scan_with(
    opener: Option<Opener>,
    places: &[Place],
    limits: &Limits,
    pace: &dyn Fn() -> Pace,
    found: &mut dyn FnMut(Artifact) -> ControlFlow<()>,
) -> Vec<Unmeasured> {
    let others = places.iter().map(|place| &place.inside);
    let covered: Vec<&[u8]> = others
        .chain(places.iter().flat_map(|place| &place.hidden))
        .map(|path| without_end_slash(path.as_os_str().as_bytes()))
        .collect();
    let pacer = Pacer::new(pace);
    let mut problems = Problems::default();
    let mut budget = Budget::of(limits, &pacer);
    let mut listed = 0;
    let mut path_bytes = 0u64;
    let mut reader = Reader {
        left: limits.hashed_bytes,
        buffer: vec![0; 64 << 10],
        pacer: &pacer,
    };
    let mut ordered: Vec<&Place> = places.iter().collect();
    ordered.sort_by_key(|place| place.inside.as_os_str());
    for place in ordered {
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
                path_bytes = path_bytes.saturating_add(entry.path.len() as u64);
                if listed == limits.artifacts || path_bytes > limits.path_bytes {
                    problems.say_once(TOO_MANY);
                    return ControlFlow::Break(());
                }
                match reader.artifact(&entry, problems) {
                    Some(artifact) => {
                        listed += 1;
                        found(artifact)
                    }
                    None => ControlFlow::Continue(()),
                }
            },
        );
        if walked.is_break() {
            break;
        }
    }
    problems.into_unmeasured()
}

#[cfg(test)]
mod tests;
