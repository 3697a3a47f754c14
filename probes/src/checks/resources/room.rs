//! Room in files: in memory and on disk.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::writing::{own_path, writable_folders};
use super::{budget, write_until};
use crate::cause::Cause;
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys::{self, Ended};
use crate::tally::Tally;

/// A file system of a limited size, or the end of whoever wrote too much of it.
pub(crate) const DENIED_TMPFS: &[&str] = &["SIGKILL", "ENOMEM", "ENOSPC", "EDQUOT", "EFBIG"];
pub(crate) const DENIED_DISK: &[&str] = &["ENOSPC", "EDQUOT", "EFBIG"];

/// A file in a folder that has no name any more when anything is written to it.
fn nameless(folder: &Path, parameters: &Parameters) -> Result<File, Cause> {
    let path = own_path(folder, parameters);
    let file = File::create_new(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Writes in a child, which may not survive it; the room is free again when this returns.
fn written(mut file: File, bytes: u64) -> Result<(), Cause> {
    let ended = sys::in_child(|| {
        let _best_effort = fs::write("/proc/self/oom_score_adj", "1000");
        match write_until(&mut file, bytes) {
            Ok(()) => 0,
            Err(Cause::Errno(number)) => number,
            Err(Cause::None | Cause::Signal(_)) => 255,
        }
    })?;
    match ended {
        Ended::Code(0) => Ok(()),
        Ended::Code(number) => Err(Cause::Errno(number)),
        Ended::Signal(number) => Err(Cause::Signal(number)),
    }
}

/// Memory by files: in every folder of its own that lies in memory, and in a file without any folder.
pub(crate) fn tmpfs(parameters: &Parameters) -> Seen {
    let (budget, twice) = match budget(parameters) {
        Ok(bound) => bound,
        Err(seen) => return seen,
    };
    let mut tally = Tally::new(DENIED_TMPFS);
    let half = sys::memory_file().and_then(|file| written(file, budget / 2));
    match sys::memory_file() {
        Ok(file) => tally.attempt(format!("memfd of {twice} bytes"), written(file, twice)),
        Err(cause) => tally.note(format!("memfd {cause}")),
    }
    for folder in distinct_folders(parameters) {
        if sys::lies_in_memory(&folder) {
            let answer = nameless(&folder, parameters).and_then(|file| written(file, twice));
            tally.attempt(folder.display().to_string(), answer);
        }
    }
    tally.finish(Twin::of(half.is_ok()))
}

/// The areas that it may write to, one of each file system.
pub(crate) fn disk(parameters: &Parameters) -> Seen {
    let (budget, twice) = match budget(parameters) {
        Ok(bound) => bound,
        Err(seen) => return seen,
    };
    let mut tally = Tally::new(DENIED_DISK);
    let mut half = Err(Cause::None);
    for folder in distinct_folders(parameters) {
        half = half
            .or_else(|_| nameless(&folder, parameters).and_then(|file| written(file, budget / 2)));
        let answer = nameless(&folder, parameters).and_then(|file| written(file, twice));
        tally.attempt(format!("{} {twice} bytes", folder.display()), answer);
    }
    tally.finish(Twin::of(half.is_ok()))
}

fn distinct_folders(parameters: &Parameters) -> Vec<std::path::PathBuf> {
    let mut seen = Vec::new();
    let mut folders = writable_folders(parameters);
    folders.retain(|folder| match fs::metadata(folder) {
        Ok(found) if !seen.contains(&found.dev()) => {
            seen.push(found.dev());
            true
        }
        _ => false,
    });
    folders
}
