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
    let mounts = own_mounts()?;
    let mut look = Look {
        pieces: &pieces(evidence, &mounts),
        mounts: &mounts,
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

/// Something that no workload may see, and what of the host shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// Where it is, at the host's own path.
    pub(crate) place: PathBuf,
    /// It is a file system of the kernel that is mounted there, and no evidence.
    pub(crate) is_kernel: bool,
}

/// Places of the host held against others by what they are and not by how they are called, where nothing can be covered.
pub(crate) struct Held {
    mounts: Vec<Mount>,
    pieces: Vec<Piece>,
}

impl Held {
    /// Evidence, also such as is not there yet: a run makes some.
    ///
    /// # Errors
    /// The mounts of this process cannot be read.
    pub(crate) fn evidence(evidence: &[PathBuf]) -> Result<Self, TreeError> {
        let mounts = own_mounts()?;
        let mut all = pieces(evidence, &mounts);
        let missing = evidence.iter().filter(|path| !path.exists());
        all.extend(missing.filter_map(|path| Some(Piece::at(to_be(path)?, &mounts))));
        Ok(Self {
            mounts,
            pieces: all,
        })
    }

    /// One place.
    ///
    /// # Errors
    /// The mounts of this process cannot be read.
    pub(crate) fn place(path: &Path) -> Result<Self, TreeError> {
        let mounts = own_mounts()?;
        Ok(Self {
            pieces: vec![Piece::at(real(path), &mounts)],
            mounts,
        })
    }

    fn look(&self) -> Look<'_> {
        Look {
            mounts: &self.mounts,
            pieces: &self.pieces,
            found: Covered::default(),
        }
    }

    /// The first of these that a folder or file shows, else the first file system of the kernel below it.
    pub(crate) fn shown_by(&self, path: &Path) -> Option<Unseen> {
        let path = real(path);
        let mut look = self.look();
        look.through(&path, &path, &[]);
        let found = look.found;
        let evidence = found.places.iter().find(|it| !found.kernel.contains(it));
        evidence.or(found.kernel.first()).map(|place| Unseen {
            place: place.clone(),
            is_kernel: found.kernel.contains(place),
        })
    }

    /// Whether one of these is a folder, or lies in it.
    pub(crate) fn is_below(&self, folder: &Path) -> bool {
        let folder = real(folder);
        let Some(shown) = part(&self.mounts, &folder) else {
            return false;
        };
        let inode = inode(&folder);
        let mut pieces = self.pieces.iter();
        pieces.any(|piece| piece.below(&folder, inode, &shown).is_some())
    }

    /// Which of these a place is, or lies in.
    pub(crate) fn around(&self, path: &Path) -> Option<&Path> {
        let path = real(path);
        let shown = part(&self.mounts, &path)?;
        let mut pieces = self.pieces.iter();
        let around = pieces.find(|piece| piece.holds(&path, &shown))?;
        Some(&around.path)
    }
}

fn own_mounts() -> Result<Vec<Mount>, TreeError> {
    mounts::read(Path::new("/proc/self/mountinfo")).map_err(TreeError::Mounts)
}

/// A path without links; as it is where there is nothing, or nothing that this process gets to.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Where something that is not there would be: the links on the way are followed as far as there is a way.
fn to_be(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut above = path.ancestors().skip(1);
    let (above, real) = above.find_map(|it| Some((it, std::fs::canonicalize(it).ok()?)))?;
    Some(join(&real, path.strip_prefix(above).ok()?))
}

struct Look<'a> {
    mounts: &'a [Mount],
    pieces: &'a [Piece],
    found: Covered,
}

impl Look<'_> {
    /// Refuses a source that shows nothing but what must not be seen.
    fn refuse(&self, source: &Path) -> Result<(), TreeError> {
        if let Some(mount) = mount_of(self.mounts, source).filter(|mount| mount.is_kernel()) {
            return Err(TreeError::Kernel {
                path: source.to_owned(),
                kind: mount.kind.clone(),
            });
        }
        let Some(shown) = part(self.mounts, source) else {
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
        let below = mounts::below(self.mounts, source).filter(|mount| mount.target != *source);
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
                None => part(self.mounts, place),
            };
            let Some(shown) = shown else { continue };
            // A file system elsewhere may not answer; what is mounted is known without asking it.
            let inode = submount.is_none().then(|| inode(place)).flatten();
            for piece in self.pieces {
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

    fn held(evidence: &str) -> Held {
        let mounts = vec![
            mount("8:1", "/", "/", "ext4"),
            mount("0:5", "/", "/proc", "proc"),
            mount("8:2", "/", "/no-such/data", "ext4"),
            mount("8:2", "/ledger/records", "/no-such/r", "ext4"),
            mount("8:2", "/ledger", "/no-such/m/x", "ext4"),
            mount("0:9", "/", "/no-such/m/proc", "proc"),
        ];
        Held {
            pieces: vec![Piece::at(evidence.into(), &mounts)],
            mounts,
        }
    }

    #[test]
    fn evidence_and_kernel_file_systems_are_refused_under_any_name() {
        let held = held("/no-such/data/ledger");
        let look = held.look();
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
        let held = held("/no-such/data/ledger/keys");
        let mut look = held.look();
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

    #[test]
    fn places_are_told_by_what_they_are() {
        let held = held("/no-such/data/ledger/keys");
        let place = |path: &str| held.shown_by(Path::new(path));
        let evidence = |place: &str| {
            Some(Unseen {
                place: place.into(),
                is_kernel: false,
            })
        };
        let keys = "/no-such/data/ledger/keys";
        assert_eq!(place("/no-such/data"), evidence(keys));
        assert_eq!(place("/no-such/m"), evidence("/no-such/m/x/keys"));
        assert_eq!(place("/no-such/r"), None);
        assert_eq!(place("/no-such/m/proc"), None);
        let around = |path: &str| held.around(Path::new(path));
        for path in ["/no-such/data/ledger/keys/a", "/no-such/m/x/keys"] {
            assert_eq!(around(path), Some(Path::new(keys)), "{path}");
        }
        assert_eq!(around("/no-such/m"), None);
        for (path, is_below) in [
            ("/no-such/data/ledger", true),
            ("/no-such/m/x", true),
            ("/no-such/m/x/keys", true),
            ("/no-such/m/x/keys/below", false),
            ("/no-such/r", false),
        ] {
            assert_eq!(held.is_below(Path::new(path)), is_below, "{path}");
        }
    }

    #[test]
    fn evidence_that_is_yet_to_be_made_is_held_where_it_will_be() {
        let base = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(base.path()).unwrap();
        std::fs::create_dir(real.join("state")).unwrap();
        std::os::unix::fs::symlink("state", real.join("link")).unwrap();
        let held = Held::evidence(&[real.join("link/ledger/default")]).unwrap();
        let place = real.join("state/ledger/default");
        let is_kernel = false;
        assert_eq!(held.shown_by(&real), Some(Unseen { place, is_kernel }));
        assert_eq!(held.shown_by(&real.join("other")), None);
    }
}
