//! The probe program and module where sandboxes can show it.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hash;
use ledger::bytes::key::random_bytes;

use super::error::MatrixError;
use crate::measure::arms::{MODULE_NAME, PROGRAM_NAME};
use crate::measure::program::{MODULE, PROGRAM};
use crate::runtime::embedded::Embedded;
use crate::runtime::scratch::Scratch;
use crate::sys::identity;

/// The probe program and module as files that sandboxes can show: in a folder of their own, named by the program's content. Where
/// root has no right to mount, workloads of another id come to them only by the path itself: where that leads through a folder of
/// root's alone they lie in a temporary one, which goes with the second of the two.
pub(super) fn keep_program(
    state: &Path,
    sha256: &Hash,
) -> Result<(PathBuf, Option<Scratch>), MatrixError> {
    let needs_way = nix::unistd::geteuid().is_root()
        && (!identity::is_effective(identity::CAP_SYS_ADMIN)
            || Embedded::default().tier_by_trying() == "landlock");
    if !needs_way || is_open(state) {
        return keep_in(state, sha256).map(|folder| (folder, None));
    }
    let random = random_bytes().map_err(|error| io::Error::other(error.to_string()));
    let made = random.and_then(|random| {
        let mut scratch = Scratch::new(random);
        scratch.make()?;
        Ok(scratch)
    });
    let place = std::env::temp_dir();
    let scratch = made.map_err(cannot("make a folder in", &place))?;
    let folder = keep_in(&scratch.path(), sha256)?;
    Ok((folder, Some(scratch)))
}

/// Whether everybody may pass through a folder and all above it. One that is not there yet is made by the rest.
fn is_open(folder: &Path) -> bool {
    let found = folder.ancestors().filter_map(|above| above.metadata().ok());
    found
        .into_iter()
        .all(|found| found.permissions().mode() & 0o001 != 0)
}

fn keep_in(state: &Path, sha256: &Hash) -> Result<PathBuf, MatrixError> {
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
