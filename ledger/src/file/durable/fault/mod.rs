//! Faults of the disk, for tests alone: what a full, broken or read-only disk answers, at a chosen call.
//!
//! Compiled only for the crate's own tests and with the feature `faults`, which only the tests of `runner` turn
//! on; every other build has the empty functions at the end of this file. Tests in this crate make a [`Disk`], which
//! concerns their own thread; a program that was built with the feature reads `LEDGER_FAULT` once:
//!
//! ```text
//! LEDGER_FAULT=RULE[;RULE…]    RULE = OPERATION[@PART OF THE PATH]:FROM[-UNTIL]:ANSWER
//! write@records:1:ENOSPC           the first write to a segment
//! space:3-:ENOSPC                  from the third call that needs room on
//! sync-data:1-4:EIO                calls 1, 2 and 3
//! write:2:short                    takes one byte less than it was given
//! write:2:cut=10,ENOSPC            takes 10 bytes, and the next one fails
//! ```
//!
//! OPERATION is an [`Operation`] with hyphens, `any`, or `space`: those that need room on the disk.

#[cfg(test)]
mod pages;
#[cfg(any(test, feature = "faults"))]
mod rule;
#[cfg(any(test, feature = "faults"))]
mod schedule;

#[cfg(not(any(test, feature = "faults")))]
mod switch {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    use super::super::Operation;

    #[expect(clippy::unnecessary_wraps, reason = "the other one can fail")]
    pub(in super::super) const fn before(_: Operation, _: &Path) -> io::Result<()> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "the other one can fail")]
    pub(in super::super) const fn write(_: &Path, length: usize) -> io::Result<usize> {
        Ok(length)
    }

    pub(in super::super) const fn wrote(_: &File, _: Option<u64>, _: usize) {}

    pub(in super::super) const fn cut(_: &File, _: u64) {}

    #[expect(clippy::unnecessary_wraps, reason = "the other one can fail")]
    pub(in super::super) const fn sync(_: &File, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(in crate::file) use pages::{Disk, Hole};
#[cfg(test)]
pub(in crate::file) use rule::{Rule, What, Which};
#[cfg(any(test, feature = "faults"))]
use schedule as switch;
pub(super) use switch::{before, cut, sync, write, wrote};
