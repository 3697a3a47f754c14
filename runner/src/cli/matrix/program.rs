//! The probe program and module where sandboxes can show it.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hash;

use super::error::MatrixError;
use crate::measure::arms::{MODULE_NAME, PROGRAM_NAME};
use crate::measure::program::{MODULE, PROGRAM};

/// The probe program and module as files that sandboxes can show: in a folder of their own, named by the program's content.
pub(super) fn keep_program(state: &Path, sha256: &Hash) -> Result<PathBuf, MatrixError> {
    let folder = state.join("probes").join(sha256.to_string());
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&folder)
        .map_err(cannot("make the folder", &folder))?;
    remove_unfinished(&folder);
    for (name, content) in [(PROGRAM_NAME, PROGRAM), (MODULE_NAME, MODULE)] {
        keep_file(&folder, name, content)?;
    }
    Ok(folder)
}

fn cannot<'a>(attempt: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> MatrixError + 'a {
    move |source| MatrixError::Program {
        attempt,
        path: path.to_owned(),
        source,
    }
}

fn keep_file(folder: &Path, name: &str, content: &[u8]) -> Result<(), MatrixError> {
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(found) if found == content => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot("read", &path)(error)),
    }
    let new = folder.join(format!("{UNFINISHED}{}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o755)
            .open(&new)?;
        file.write_all(content)
    };
    let written = write()
        .map_err(cannot("write", &new))
        .and_then(|()| std::fs::rename(&new, &path).map_err(cannot("write", &path)));
    if written.is_err() {
        // What cannot be removed either is removed by a later measurement.
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// First part of the name of a program that is being written; the rest is its writer's process id.
const UNFINISHED: &str = "probe.";

/// Removes what writers left that are dead. What cannot be looked at is in nobody's way.
fn remove_unfinished(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let writer = name
            .to_str()
            .and_then(|name| name.strip_prefix(UNFINISHED)?.parse::<u32>().ok());
        let is_dead = writer.is_some_and(|pid| {
            crate::sys::process::start_time(pid).is_ok_and(|start| start.is_none())
        });
        if is_dead {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
