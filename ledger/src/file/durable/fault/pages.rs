//! What of each file is in memory alone, and what becomes of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use super::super::Operation;
use super::rule::Rule;
use super::schedule;

/// Bytes of one file that are in memory alone.
#[derive(Debug)]
struct Pages {
    file: File,
    /// Written since the last flush.
    dirty: Vec<Range<u64>>,
    /// A flush failed to write them, and they count as written: another flush leaves them out (fsync(2), since
    /// Linux 4.13).
    lost: Vec<Range<u64>>,
}

thread_local! {
    /// By device and inode.
    static PAGES: RefCell<Option<HashMap<(u64, u64), Pages>>> = const { RefCell::new(None) };
}

fn with(file: &File, work: impl FnOnce(&mut Pages)) {
    PAGES.with_borrow_mut(|all| {
        let Some(all) = all else { return };
        let facts = file.metadata().unwrap();
        let pages = all.entry((facts.dev(), facts.ino())).or_insert_with(|| {
            // An open file of its own: a copy of this one would hold its lock.
            let own = format!("/proc/self/fd/{}", file.as_raw_fd());
            Pages {
                file: File::options().read(true).write(true).open(own).unwrap(),
                dirty: vec![],
                lost: vec![],
            }
        });
        work(pages);
    });
}

/// A write took so many bytes, at `offset` or at the file's position.
pub(in super::super) fn wrote(file: &File, offset: Option<u64>, written: usize) {
    with(file, |pages| {
        let end = match offset {
            Some(offset) => offset + written as u64,
            None => rustix::fs::tell(file).unwrap(),
        };
        let range = end - written as u64..end;
        without(&mut pages.lost, &range);
        pages.dirty.push(range);
    });
}

/// A file has no more than `length` bytes now.
pub(in super::super) fn cut(file: &File, length: u64) {
    with(file, |pages| {
        without(&mut pages.dirty, &(length..u64::MAX));
        without(&mut pages.lost, &(length..u64::MAX));
    });
}

/// A flush of a file is about to be made, or to fail.
pub(super) fn flush(file: &File, answer: &io::Result<()>) {
    with(file, |pages| match answer {
        Ok(()) => pages.dirty.clear(),
        // Nothing was done yet.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(_) => pages.lost.append(&mut pages.dirty),
    });
}

/// Takes `cut` out of every range.
fn without(ranges: &mut Vec<Range<u64>>, cut: &Range<u64>) {
    let left = ranges.iter().flat_map(|range| {
        let before = range.start..range.end.min(cut.start);
        let behind = range.start.max(cut.end)..range.end;
        [before, behind]
    });
    *ranges = left.filter(|range| range.start < range.end).collect();
}

/// What a file has where bytes were never written to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum Hole {
    /// Zeros.
    Zeros,
    /// Nothing, if they stood at its end; else zeros.
    Nothing,
}

/// A disk with faults, for the calls of this thread, until it is dropped.
#[derive(Debug)]
pub(in crate::file) struct Disk(());

impl Disk {
    /// From now on.
    pub(in crate::file) fn with(rules: impl IntoIterator<Item = Rule>) -> Self {
        schedule::set_own(rules);
        PAGES.set(Some(HashMap::new()));
        Self(())
    }

    /// Other rules from now on; what is in memory alone stays there.
    #[expect(clippy::unused_self, reason = "it speaks of the disk there is")]
    pub(in crate::file) fn then(&self, rules: impl IntoIterator<Item = Rule>) {
        schedule::set_own(rules);
    }

    /// Every call since the rules were given.
    #[expect(clippy::unused_self, reason = "it speaks of the disk there is")]
    pub(in crate::file) fn calls(&self) -> Vec<(Operation, PathBuf)> {
        schedule::own_calls()
    }

    /// How many calls had another answer.
    #[expect(clippy::unused_self, reason = "it speaks of the disk there is")]
    pub(in crate::file) fn hits(&self) -> u64 {
        schedule::own_hits()
    }

    /// Memory runs short: what failed flushes lost is read from the disk, where it never was. Returns how many
    /// bytes that are.
    pub(in crate::file) fn evict(&self, hole: Hole) -> u64 {
        self.drop_pages(hole, |pages| std::mem::take(&mut pages.lost))
    }

    /// The power goes: nothing stays but what was flushed. Returns how many bytes are gone.
    pub(in crate::file) fn power_loss(&self, hole: Hole) -> u64 {
        self.drop_pages(hole, |pages| {
            let mut gone = std::mem::take(&mut pages.lost);
            gone.append(&mut pages.dirty);
            gone
        })
    }

    #[expect(clippy::unused_self, reason = "it speaks of the disk there is")]
    fn drop_pages(&self, hole: Hole, gone: impl Fn(&mut Pages) -> Vec<Range<u64>>) -> u64 {
        PAGES.with_borrow_mut(|all| {
            let mut bytes = 0;
            for pages in all.iter_mut().flat_map(HashMap::values_mut) {
                let mut ranges = gone(pages);
                ranges.sort_by_key(|range| std::cmp::Reverse(range.end));
                for range in ranges {
                    let length = pages.file.metadata().unwrap().len();
                    let (start, end) = (range.start.min(length), range.end.min(length));
                    bytes += end - start;
                    if hole == Hole::Nothing && end == length {
                        pages.file.set_len(start).unwrap();
                    } else {
                        let zeros = vec![0; usize::try_from(end - start).unwrap()];
                        pages.file.write_all_at(&zeros, start).unwrap();
                    }
                }
            }
            bytes
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        schedule::forget_own();
        PAGES.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut() {
        let mut ranges = vec![0..10, 20..30];
        without(&mut ranges, &(5..25));
        assert_eq!(ranges, [0..5, 25..30]);
        without(&mut ranges, &(0..5));
        assert_eq!(ranges.len(), 1);
        let mut ranges = vec![0..30, 40..50];
        without(&mut ranges, &(10..20));
        assert_eq!(ranges, [0..10, 20..30, 40..50]);
    }
}
