//! What a source would show that a workload must not see: evidence, and the host's kernel file systems.
//!
//! One folder can have several names: through a bind mount, or in another mount of its file system. A place is
//! therefore known by its path, by the device and inode of the folders above it, and by which part of which file
//! system is mounted there (proc_pid_mountinfo(5)).

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::shape::{Bind, NOT_THE_HOSTS, OWN, SHARED_MEMORY, SYSTEM, Shape, TreeError, join};
use crate::mechanism::mounts::{self, Mount};

/// Places inside that must be covered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Covered {
    /// All of them.
    pub(super) places: Vec<PathBuf>,
    /// Those of them that are kernel file systems of the host.
    pub(super) kernel: Vec<PathBuf>,
}

/// Part of a file system: what a mount of it shows under any name.
#[derive(Debug)]
struct Part {
    device: String,
    path: PathBuf,
}

impl Part {
    fn is_within(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// A piece of evidence, under every name that it can be known by.
struct Piece {
    path: PathBuf,
    part: Option<Part>,
    /// Device and inode of the path and of each folder above it.
    above: Vec<(PathBuf, (u64, u64))>,
}

impl Piece {
    fn at(path: PathBuf, mounts: &[Mount]) -> Self {
        let above = path.ancestors().filter_map(|ancestor| {
            let inode = inode(ancestor)?;
            Some((ancestor.to_owned(), inode))
        });
        Self {
            above: above.collect(),
            part: part(mounts, &path),
            path,
        }
    }

    /// The rest of this piece's path below a folder that shows it.
    fn below(&self, folder: &Path, inode: Option<(u64, u64)>, shown: &Part) -> Option<PathBuf> {
        if let Ok(rest) = self.path.strip_prefix(folder) {
            return Some(rest.to_owned());
        }
        let same = self
            .above
            .iter()
            .find(|(_, found)| Some(*found) == inode)
            .and_then(|(ancestor, _)| self.path.strip_prefix(ancestor).ok());
        let part = self.part.as_ref().filter(|part| part.is_within(shown));
        same.or_else(|| part.and_then(|part| part.path.strip_prefix(&shown.path).ok()))
            .map(Path::to_owned)
    }

    /// Whether a place is this piece or lies in it.
    fn holds(&self, place: &Path, shown: &Part) -> bool {
        let itself = self
            .above
            .iter()
            .find(|(path, _)| *path == self.path)
            .map(|(_, inode)| *inode);
        place.starts_with(&self.path)
            || self.part.as_ref().is_some_and(|part| shown.is_within(part))
            || (itself.is_some() && place.ancestors().any(|above| inode(above) == itself))
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The mount that a path without links lies on: of the longest targets above it the last one.
fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.target))
        .max_by_key(|mount| mount.target.components().count())
}

fn part(mounts: &[Mount], path: &Path) -> Option<Part> {
    let mount = mount_of(mounts, path)?;
    Some(Part {
        device: mount.device.clone(),
        path: join(&mount.root, path.strip_prefix(&mount.target).ok()?),
    })
}

/// What must be covered under a shape with these binds.
///
/// # Errors
/// The mounts of this process cannot be read; a source is evidence, or is on a kernel file system.
pub(super) fn covered(
    shape: &Shape,
    binds: &[Bind],
    evidence: &[PathBuf],
) -> Result<Covered, TreeError> {
    let path = Path::new("/proc/self/mountinfo");
    let mounts = mounts::read(path).map_err(TreeError::Mounts)?;
    let mut look = Look {
        pieces: pieces(evidence, &mounts),
        mounts,
        found: Covered::default(),
    };
    for bind in binds {
        look.refuse(&bind.source)?;
        look.through(&bind.source, &bind.target, &[]);
    }
    match shape {
        Shape::Ephemeral => {
            for system in SYSTEM.map(Path::new) {
                let is_link = std::fs::symlink_metadata(system).map(|found| found.is_symlink());
                if let (Ok(false), Ok(real)) = (is_link, std::fs::canonicalize(system)) {
                    look.through(&real, system, &[]);
                }
            }
        }
        Shape::HostReadOnly => look.through(Path::new("/"), Path::new("/"), &NOT_THE_HOSTS),
        Shape::Host => {
            look.through(Path::new("/"), Path::new("/"), &OWN);
            let memory = Path::new(SHARED_MEMORY);
            look.through(memory, memory, &[]);
        }
        Shape::Custom(root) => {
            look.refuse(root)?;
            look.through(root, Path::new("/"), &NOT_THE_HOSTS);
        }
    }
    let mut found = look.found;
    for list in [&mut found.places, &mut found.kernel] {
        list.sort();
        // What lies below a covered folder is out of reach with it.
        list.dedup_by(|below, above| below.starts_with(above));
    }
    let places = &found.places;
    found.kernel.retain(|place| places.contains(place));
    Ok(found)
}

/// Every piece of evidence that is there, and everything mounted below one.
fn pieces(evidence: &[PathBuf], mounts: &[Mount]) -> Vec<Piece> {
    let mut paths = Vec::new();
    for path in evidence {
        let Ok(real) = std::fs::canonicalize(path) else {
            continue;
        };
        let below = mounts::below(mounts, &real).map(|mount| mount.target.clone());
        paths.extend(below);
        paths.push(real);
    }
    paths.sort();
    paths.dedup();
    paths
        .into_iter()
        .map(|path| Piece::at(path, mounts))
        .collect()
}

struct Look {
    mounts: Vec<Mount>,
    pieces: Vec<Piece>,
    found: Covered,
}

impl Look {
    /// Refuses a source that shows nothing but what must not be seen.
    fn refuse(&self, source: &Path) -> Result<(), TreeError> {
        if let Some(mount) = mount_of(&self.mounts, source).filter(|mount| mount.is_kernel()) {
            return Err(TreeError::Kernel {
                path: source.to_owned(),
                kind: mount.kind.clone(),
            });
        }
        let Some(shown) = part(&self.mounts, source) else {
            return Ok(());
        };
        match self.pieces.iter().find(|piece| piece.holds(source, &shown)) {
            Some(piece) => Err(TreeError::Evidence {
                path: source.to_owned(),
                evidence: piece.path.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Finds what `source` and every mount below it show that must be covered, when it stands at `target`;
    /// nothing at or below `hidden`, where the sandbox has something of its own.
    fn through(&mut self, source: &Path, target: &Path, hidden: &[&str]) {
        let below = mounts::below(&self.mounts, source).filter(|mount| mount.target != *source);
        let below = below.map(|mount| (mount.target.as_path(), Some(mount)));
        for (place, submount) in std::iter::once((source, None)).chain(below) {
            let Ok(rest) = place.strip_prefix(source) else {
                continue;
            };
            let inside = join(target, rest);
            let mut cover = |at: PathBuf, is_kernel: bool| {
                if hidden.iter().any(|own| at.starts_with(own)) {
                    return;
                }
                if is_kernel {
                    self.found.kernel.push(at.clone());
                }
                self.found.places.push(at);
            };
            if submount.is_some_and(|mount| mount.is_kernel()) {
                cover(inside, true);
                continue;
            }
            let shown = match submount {
                Some(mount) => Some(Part {
                    device: mount.device.clone(),
                    path: mount.root.clone(),
                }),
                None => part(&self.mounts, place),
            };
            let Some(shown) = shown else { continue };
            // A file system elsewhere may not answer; what is mounted is known without asking it.
            let inode = submount.is_none().then(|| inode(place)).flatten();
            for piece in &self.pieces {
                if let Some(rest) = piece.below(place, inode, &shown) {
                    cover(join(&inside, &rest), false);
                } else if piece
                    .part
                    .as_ref()
                    .is_some_and(|part| shown.is_within(part))
                {
                    cover(inside.clone(), false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(device: &str, root: &str, target: &str, kind: &str) -> Mount {
        Mount {
            target: target.into(),
            options: vec!["rw".to_owned()],
            kind: kind.to_owned(),
            root: root.into(),
            device: device.to_owned(),
            size: None,
        }
    }

    fn look(evidence: &str) -> Look {
        let mounts = vec![
            mount("8:1", "/", "/", "ext4"),
            mount("0:5", "/", "/proc", "proc"),
            mount("8:2", "/", "/no-such/data", "ext4"),
            mount("8:2", "/ledger/records", "/no-such/r", "ext4"),
            mount("8:2", "/ledger", "/no-such/m/x", "ext4"),
            mount("0:9", "/", "/no-such/m/proc", "proc"),
        ];
        Look {
            pieces: vec![Piece::at(evidence.into(), &mounts)],
            mounts,
            found: Covered::default(),
        }
    }

    #[test]
    fn evidence_and_kernel_file_systems_are_refused_under_any_name() {
        let look = look("/no-such/data/ledger");
        for path in [
            "/no-such/data/ledger",
            "/no-such/data/ledger/a",
            "/no-such/r",
            "/no-such/m/x/y",
        ] {
            let refused = look.refuse(Path::new(path));
            assert!(matches!(refused, Err(TreeError::Evidence { .. })), "{path}");
        }
        for path in ["/proc", "/proc/self", "/no-such/m/proc/1"] {
            let refused = look.refuse(Path::new(path));
            assert!(matches!(refused, Err(TreeError::Kernel { .. })), "{path}");
        }
        for path in ["/", "/no-such/data", "/no-such/m", "/no-such/data/other"] {
            assert!(look.refuse(Path::new(path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn a_mount_below_a_source_shows_what_it_is_of() {
        let mut look = look("/no-such/data/ledger/keys");
        look.through(Path::new("/no-such/m"), Path::new("/m"), &[]);
        assert_eq!(look.found.kernel, [Path::new("/m/proc")]);
        assert_eq!(
            look.found.places,
            [Path::new("/m/x/keys"), Path::new("/m/proc")]
        );
        look.found = Covered::default();
        look.through(Path::new("/"), Path::new("/"), &["/proc", "/no-such/data"]);
        assert_eq!(
            look.found.places,
            [Path::new("/no-such/m/x/keys"), Path::new("/no-such/m/proc")]
        );
    }
}
