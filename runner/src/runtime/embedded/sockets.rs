//! Unix sockets of the host, for a sandbox in which `ipc` is left out.
//!
//! They are looked for in the six places where programs put them (home, /tmp, /var/tmp, /dev/shm, the runtime folder,
//! the folder above the caller's), there and in the folders directly below, and shown one by one: no file of the host
//! is seen beside them.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::plan::{Plan, Shape};

/// Most entries that are looked at, and most sockets that are shown.
const MAX_ENTRIES: usize = 20_000;
const MAX_SHOWN: usize = 64;
/// Where a sandbox has memory or a folder of its own, whatever its tree is built on.
const OWN: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// The sockets that the plan's tree does not show already.
pub(super) fn to_show(plan: &Plan) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    for place in places(plan) {
        look(&place, 1, &mut left, &mut found);
    }
    found.sort();
    found.dedup();
    found.retain(|path| may_show(plan, path));
    found.truncate(MAX_SHOWN);
    found
}

fn places(plan: &Plan) -> Vec<PathBuf> {
    let job = &plan.job;
    let runtime = job
        .caller_environment
        .iter()
        .find(|(name, _)| name == "XDG_RUNTIME_DIR")
        .map(|(_, value)| PathBuf::from(value));
    let above = job.caller_cwd.as_deref().and_then(Path::parent);
    let mut places: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).to_vec();
    places.extend(job.home.clone());
    places.extend(runtime);
    places.extend(above.map(Path::to_owned));
    places.retain(|place| place.is_absolute());
    places
}

/// Sockets in a folder and, `depth` steps down, below it. What cannot be listed shows none.
fn look(folder: &Path, depth: usize, left: &mut usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_socket() {
            found.push(entry.path());
        } else if kind.is_dir() && depth > 0 {
            look(&entry.path(), depth - 1, left, found);
        }
    }
}

fn may_show(plan: &Plan, path: &Path) -> bool {
    let is_own = OWN.iter().any(|own| path.starts_with(own));
    let has_room = match &plan.tree.shape {
        Shape::Ephemeral => true,
        Shape::HostReadOnly | Shape::Custom(_) | Shape::Host => is_own,
    };
    has_room && plan.tree.inside(path).is_none() && !is_evidence(plan, path)
}

/// An agent's socket holds a key.
fn is_evidence(plan: &Plan, path: &Path) -> bool {
    let inode = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    let own = inode(path);
    plan.job
        .evidence
        .iter()
        .any(|evidence| path.starts_with(evidence) || own.is_none() || inode(evidence) == own)
}

/// Sockets directly in the host's /dev or in a folder there.
pub(super) fn in_devices() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    look(Path::new("/dev"), 1, &mut left, &mut found);
    found
}
