//! Protected paths below writable folders ([`crate::mechanism::protect`]).
//!
//! Bubblewrap follows links in what it binds. So each path is looked at before, and what came of it is compared afterwards with
//! what the path leads to: who may write there could have put a link in between.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::{Folders, Line, place, text};
use crate::init::wire::Spec;
use crate::mechanism::Failure;
use crate::mechanism::root::What;
use crate::sys::fault;

/// What is to be found inside.
#[derive(Debug)]
pub(in crate::runtime::bwrap) struct Protected {
    /// A folder of the host.
    folder: PathBuf,
    /// A path below it, over which no link leads.
    below: PathBuf,
    /// Where the workload sees that.
    inside: PathBuf,
}

/// Adds what keeps protected paths as they are.
/// What comes beside it is why one of them could not be, where one could not.
pub(super) fn protect(
    line: &mut Line,
    spec: &Spec,
    folders: &Folders<'_>,
) -> (Vec<Protected>, Result<(), Failure>) {
    let mut all = Vec::new();
    let mut done = Ok(());
    for folder in &spec.protect {
        let mut bound = BTreeSet::new();
        let pinned = folder.pinned.iter().map(|path| (path, false));
        for (path, protected) in pinned.chain(folder.paths.iter().map(|path| (path, true))) {
            let path = (folder.folder.as_path(), Path::new(path), protected);
            let mut one = None;
            let asked = fault::guard("protect", || {
                one = each(line, folders, path, &mut bound)?;
                Ok(())
            });
            match asked {
                Ok(()) => all.extend(one),
                Err(error) => {
                    let at = folder.folder.join(path.1);
                    done = Err(Failure::call(format!("protect {}", at.display()), &error));
                }
            }
        }
    }
    (all, done)
}

/// Binds every folder on the way onto itself, and the last one read-only when it is to be protected.
fn each(
    line: &mut Line,
    folders: &Folders<'_>,
    (folder, path, protected): (&Path, &Path, bool),
    bound: &mut BTreeSet<PathBuf>,
) -> io::Result<Option<Protected>> {
    let shown = folders.entries.iter().rev();
    let shown = shown.filter(|entry| entry.path == folder);
    let mut sources = shown.filter_map(|entry| match &entry.what {
        What::Bind { source, .. } => Some(source),
        _ => None,
    });
    let (Some(source), Some(host)) = (sources.next(), folders.of(folder)) else {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    };
    let mut at = PathBuf::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        at.push(component);
        let last = components.peek().is_none();
        let found = std::fs::symlink_metadata(host.path.join(&at))?;
        if found.is_symlink() {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let read_only = protected && (last || !found.is_dir());
        if !read_only && bound.contains(&at) {
            continue;
        }
        let option = if read_only { "--ro-bind" } else { "--bind" };
        line.add(vec![
            text(option),
            place(source, &at),
            text(folder.join(&at)),
        ]);
        bound.insert(at.clone());
        if read_only {
            return Ok(Some(Protected {
                folder: host.path,
                inside: folder.join(&at),
                below: at,
            }));
        }
    }
    Ok(None)
}

/// Whether what a process sees at the protected places is what was to be protected.
pub(in crate::runtime::bwrap) fn are_themselves(
    first: i32,
    all: &[Protected],
) -> Result<(), Failure> {
    if all.is_empty() {
        return Ok(());
    }
    let path = format!("/proc/{first}/root");
    let root = open(Path::new(&path)).map_err(|error| Failure::call("open its root", &error))?;
    for one in all {
        let attempt = || format!("protect {}", one.inside.display());
        let inode = |base: BorrowedFd<'_>, path: &Path, how| {
            let place = below(base, path, how)?;
            let found = std::fs::File::from(place).metadata()?;
            Ok::<_, io::Error>((found.dev(), found.ino()))
        };
        let strictly = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let meant = open(&one.folder)
            .and_then(|folder| inode(folder.as_fd(), &one.below, strictly))
            .map_err(|error| Failure::call(attempt(), &error))?;
        let inside = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let seen = inode(root.as_fd(), &one.inside, inside)
            .map_err(|error| Failure::call(attempt(), &error))?;
        if seen != meant {
            return Err(Failure::no_effect(attempt()));
        }
    }
    Ok(())
}

fn open(folder: &Path) -> io::Result<std::fs::File> {
    let mut options = std::fs::File::options();
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    options.read(true).custom_flags(flags).open(folder)
}

fn below(base: BorrowedFd<'_>, path: &Path, resolve: ResolveFlag) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(resolve);
    Ok(openat2(base, path, how)?)
}
