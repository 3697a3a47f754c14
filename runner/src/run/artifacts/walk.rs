//! Walks a tree that may be hostile: no link is followed, no mount is crossed, nothing but directories is
//! opened, and neither depth nor width costs more descriptors or memory than the limits say.
//!
//! A directory's names are read whole and sorted before anything in it is looked at, so the order is the
//! same on every file system. At most 33 directories are held open (the place itself and the deepest 32);
//! an ancestor beyond that is opened again as `..` of its child and believed only when it is still the
//! directory, by device and inode, that the walk came through.

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use super::problems::{CHANGED, OTHER_MOUNT, Problems, TOO_MANY, UNREADABLE};
use super::{Limits, Pacer};
use crate::sys::mount;

/// How many of the deepest directories stay open, the place itself apart.
const HELD: usize = 32;

/// Names are read in portions of so many between two looks at the pace.
const PORTION: usize = 1024;

/// What is left of the walk's limits.
pub(super) struct Budget<'a> {
    /// Names that may still be read.
    entries: u64,
    /// Memory for names that is still free, in bytes.
    held_bytes: u64,
    longest_path: usize,
    pacer: &'a Pacer<'a>,
}

impl<'a> Budget<'a> {
    pub(super) const fn of(limits: &Limits, pacer: &'a Pacer<'a>) -> Self {
        Self {
            entries: limits.entries,
            held_bytes: limits.held_bytes,
            longest_path: limits.longest_path,
            pacer,
        }
    }
}

/// The names in one directory, packed: each alone would take several times its length.
#[derive(Default)]
struct Names {
    /// Each ends with a zero.
    bytes: Vec<u8>,
    /// Where they begin; the next one to look at last.
    starts: Vec<u32>,
    /// What they took of the budget.
    cost: u64,
}

impl Names {
    /// Adds one; `false` when the budget does not allow it.
    fn add(&mut self, name: &CStr, budget: &mut Budget<'_>) -> bool {
        let bytes = name.to_bytes_with_nul();
        let cost = (bytes.len() + size_of::<u32>()) as u64;
        let Ok(start) = u32::try_from(self.bytes.len()) else {
            return false;
        };
        if budget.entries == 0 || budget.held_bytes < cost {
            return false;
        }
        budget.entries -= 1;
        budget.held_bytes -= cost;
        self.cost += cost;
        self.bytes.extend_from_slice(bytes);
        self.starts.push(start);
        true
    }

    fn at(bytes: &[u8], start: u32) -> &CStr {
        let rest = bytes.get(start as usize..).unwrap_or_default();
        CStr::from_bytes_until_nul(rest).unwrap_or_default()
    }

    fn sort(&mut self) {
        let Self { bytes, starts, .. } = self;
        starts.sort_unstable_by(|a, b| Self::at(bytes, *b).cmp(Self::at(bytes, *a)));
    }

    fn next(&mut self) -> Option<CString> {
        let start = self.starts.pop()?;
        Some(Self::at(&self.bytes, start).to_owned())
    }
}

/// Something that is no directory.
pub(super) struct Entry<'a> {
    /// Its path as the workload saw it.
    pub(super) path: &'a [u8],
    /// What `lstat` says.
    pub(super) stat: &'a FileStat,
    source: Source<'a>,
}

enum Source<'a> {
    Named(Opener, &'a Dir, &'a CStr),
    /// The place is itself no directory.
    Place(BorrowedFd<'a>),
}

impl Entry<'_> {
    /// A descriptor of what its name leads to now; a regular file's is readable.
    pub(super) fn open(&self) -> Result<OwnedFd, Errno> {
        match self.source {
            Source::Named(opener, dir, name) => opener.open(dir, name, OFlag::empty()),
            Source::Place(place) => place.try_clone_to_owned().map_err(|error| {
                error
                    .raw_os_error()
                    .map_or(Errno::UnknownErrno, Errno::from_raw)
            }),
        }
    }
}

/// How names are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opener {
    /// openat2(2), Linux 5.6: links, mounts and magic links are refused by the kernel.
    Resolve,
    /// openat(2) with `O_NOFOLLOW`. A directory on another device counts as another mount; a bind mount of
    /// the same device goes unnoticed.
    NoFollow,
}

impl Opener {
    /// Opens `name` in `dir` for reading, without waiting and without following.
    pub(super) fn open(self, dir: impl AsFd, name: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        let flags = flags
            | OFlag::O_RDONLY
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK
            | OFlag::O_NOCTTY
            | OFlag::O_CLOEXEC;
        match self {
            Self::NoFollow => openat(dir, name, flags, Mode::empty()),
            Self::Resolve => {
                let how = OpenHow::new().flags(flags).resolve(
                    ResolveFlag::RESOLVE_BENEATH
                        | ResolveFlag::RESOLVE_NO_MAGICLINKS
                        | ResolveFlag::RESOLVE_NO_SYMLINKS
                        | ResolveFlag::RESOLVE_NO_XDEV,
                );
                match openat2(&dir, name, how) {
                    // Also the answer for what is moved out of the folder while it is opened (complete_walk, fs/namei.c). Then
                    // it is not there any more.
                    Err(Errno::EXDEV) if !is_other_mount(dir.as_fd(), name) => Err(Errno::ENOENT),
                    opened => opened,
                }
            }
        }
    }

    /// Opens a place anew and finds out what the kernel allows. Some container engines answer EPERM for
    /// calls they do not know.
    pub(super) fn for_place(place: BorrowedFd<'_>) -> Result<(Self, OwnedFd), Errno> {
        match Self::Resolve.open(place, c".", OFlag::O_DIRECTORY) {
            Ok(dir) => Ok((Self::Resolve, dir)),
            Err(Errno::ENOSYS | Errno::EPERM) => Self::NoFollow
                .open(place, c".", OFlag::O_DIRECTORY)
                .map(|dir| (Self::NoFollow, dir)),
            Err(error) => Err(error),
        }
    }
}

/// Whether a name shows another mount than its folder is on; also where the kernel does not tell mounts apart.
fn is_other_mount(dir: BorrowedFd<'_>, name: &CStr) -> bool {
    match (mount::id_of(dir, c""), mount::id_of(dir, name)) {
        (Ok(Some(folder)), Ok(Some(found))) => folder != found,
        (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => false,
        (Ok(_) | Err(_), Ok(_) | Err(_)) => true,
    }
}

/// Which directory it is, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(stat: &FileStat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// A directory that the walk is in.
struct Frame {
    /// `None` while it is too far up to be held open.
    dir: Option<Dir>,
    identity: Identity,
    /// Names still to look at.
    names: Names,
    /// How much of the path is this directory's.
    path_bytes: usize,
}

/// Where to walk.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    /// A descriptor of it, `O_PATH` or readable; a place that is a file must be readable.
    pub(super) place: BorrowedFd<'a>,
    /// Its path as the workload saw it.
    pub(super) inside: &'a [u8],
    /// Paths where the workload saw another place; what is below them here it did not see.
    pub(super) covered: &'a [&'a [u8]],
    /// How to open; `None` finds out.
    pub(super) opener: Option<Opener>,
}

/// Calls `visit` for everything on the ground that is no directory, in order of the names, until it breaks or
/// the budget is used up.
pub(super) fn walk(
    ground: Ground<'_>,
    budget: &mut Budget<'_>,
    problems: &mut Problems,
    visit: &mut dyn FnMut(&mut Problems, Entry<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut path = without_end_slash(ground.inside).to_vec();
    let place = match fstat(ground.place) {
        Ok(stat) => stat,
        Err(error) => {
            problems.say_errno(UNREADABLE, ground.inside, error);
            return ControlFlow::Continue(());
        }
    };
    if file_type(&place) != SFlag::S_IFDIR {
        let source = Source::Place(ground.place);
        let (path, stat) = (ground.inside, &place);
        return visit(problems, Entry { path, stat, source });
    }
    let opened = match ground.opener {
        None => Opener::for_place(ground.place),
        Some(opener) => opener
            .open(ground.place, c".", OFlag::O_DIRECTORY)
            .map(|dir| (opener, dir)),
    };
    let entered =
        opened.and_then(|(opener, dir)| Ok((opener, enter(dir, &path, budget, problems)?)));
    let (opener, mut stack) = match entered {
        Ok((opener, frame)) => (opener, vec![frame]),
        Err(error) => {
            problems.say_errno(UNREADABLE, ground.inside, error);
            return ControlFlow::Continue(());
        }
    };

    while let Some(frame) = stack.last_mut() {
        if budget.pacer.says_stop(problems) {
            return ControlFlow::Break(());
        }
        path.truncate(frame.path_bytes);
        let (Some(dir), Some(name)) = (&frame.dir, frame.names.next()) else {
            leave(&mut stack, &path, budget, problems);
            continue;
        };
        if path.len() + 1 + name.count_bytes() > budget.longest_path {
            problems.say_once(TOO_MANY);
            continue;
        }
        path.push(b'/');
        path.extend_from_slice(name.to_bytes());
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT;
        let stat = match fstatat(dir, name.as_c_str(), flags) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) => {
                problems.say(CHANGED, &path);
                continue;
            }
            Err(error) => {
                problems.say_errno(UNREADABLE, &path, error);
                continue;
            }
        };
        if file_type(&stat) != SFlag::S_IFDIR {
            let entry = Entry {
                path: &path,
                stat: &stat,
                source: Source::Named(opener, dir, &name),
            };
            visit(problems, entry)?;
            continue;
        }
        if ground.covered.contains(&path.as_slice()) {
            continue;
        }
        if opener == Opener::NoFollow && stat.st_dev != place.st_dev {
            problems.say(OTHER_MOUNT, &path);
            continue;
        }
        let entered = opener
            .open(dir, &name, OFlag::O_DIRECTORY)
            .and_then(|below| enter(below, &path, budget, problems));
        match entered {
            Ok(below) => {
                stack.push(below);
                // The place itself, at 0, is never closed.
                if let Some(far @ 1..) = stack.len().checked_sub(HELD + 1)
                    && let Some(far) = stack.get_mut(far)
                {
                    far.dir = None;
                }
            }
            Err(Errno::EXDEV) => problems.say(OTHER_MOUNT, &path),
            // It was a directory a moment ago.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => problems.say(CHANGED, &path),
            Err(error) => problems.say_errno(UNREADABLE, &path, error),
        }
    }
    ControlFlow::Continue(())
}

/// A folder's path as a prefix of what is in it.
pub(super) fn without_end_slash(mut path: &[u8]) -> &[u8] {
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    path
}

/// The file type bits of a mode.
pub(super) fn file_type(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Reads a directory's names. What could not be read is a problem; the names before it count.
fn enter(
    dir: OwnedFd,
    path: &[u8],
    budget: &mut Budget<'_>,
    problems: &mut Problems,
) -> Result<Frame, Errno> {
    let identity = Identity::of(&fstat(&dir)?);
    let mut dir = Dir::from_fd(dir)?;
    let mut names = Names::default();
    for entry in dir.iter() {
        if names.starts.len() % PORTION == PORTION - 1 && budget.pacer.says_stop(problems) {
            break;
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                problems.say_errno(UNREADABLE, path, error);
                break;
            }
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if !names.add(name, budget) {
            problems.say_once(TOO_MANY);
            break;
        }
    }
    names.sort();
    Ok(Frame {
        dir: Some(dir),
        identity,
        names,
        path_bytes: path.len(),
    })
}

/// Goes back to the parent. Where the way back is gone, what is left of the ancestors up to the nearest one
/// held open is given up, and said.
fn leave(stack: &mut Vec<Frame>, path: &[u8], budget: &mut Budget<'_>, problems: &mut Problems) {
    let Some(child) = stack.pop() else {
        return;
    };
    budget.held_bytes += child.names.cost;
    let Some(parent) = stack.last_mut() else {
        return;
    };
    if parent.dir.is_some() {
        return;
    }
    match up(child, parent.identity) {
        Ok(Some(dir)) => parent.dir = Some(dir),
        failed => {
            let above = path.get(..parent.path_bytes).unwrap_or(path);
            match failed {
                Err(error) => problems.say_errno(UNREADABLE, above, error),
                Ok(_) => problems.say(CHANGED, above),
            }
            while let Some(lost) = stack.pop_if(|frame| frame.dir.is_none()) {
                budget.held_bytes += lost.names.cost;
            }
        }
    }
}

/// The parent directory, when it is still the one that the walk came through.
fn up(child: Frame, parent: Identity) -> Result<Option<Dir>, Errno> {
    let Some(child) = child.dir else {
        return Ok(None);
    };
    let above = Opener::NoFollow.open(&child, c"..", OFlag::O_DIRECTORY)?;
    if Identity::of(&fstat(&above)?) != parent {
        return Ok(None);
    }
    Dir::from_fd(above).map(Some)
}
