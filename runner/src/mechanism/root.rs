//! The file tree that a workload sees: a new root of its own, everything in it put there by name.
//!
//! Sources are opened before the new root covers anything; mounts are restricted before they are attached;
//! targets are resolved inside the new root, so no link in a brought-in folder leads a mount elsewhere.

use std::ffi::{CStr, CString};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::mount::MsFlags;
use nix::sys::stat::Mode;

use super::{Failure, Outcomes, mounts};
use crate::sys::fault;
use crate::sys::mount::{self, Attributes};

mod inside;
mod spec;

pub(super) use inside::open_inside;
use inside::{attach, folder, parent};
pub use spec::*;

/// The tree, attached somewhere in this mount namespace and not yet this process's root.
#[derive(Debug)]
pub struct NewRoot {
    root: OwnedFd,
    /// Masks that were not put in place because the workload cannot get to what they would cover.
    pub unreachable: Vec<PathBuf>,
}

impl NewRoot {
    /// The folder that will be `/`.
    #[must_use]
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// Builds the tree.
///
/// # Errors
/// The first thing that could not be put in place: without it the tree is not what was asked for.
pub fn build(spec: &RootSpec, outcomes: &mut Outcomes) -> Result<NewRoot, Failure> {
    nix::mount::mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(|errno| {
        let failure = Failure::call("make mounts private", &errno.into());
        outcomes.note("namespace-mount", Err(failure.clone()));
        failure
    })?;
    let mut sources = Vec::with_capacity(spec.entries.len());
    for entry in &spec.entries {
        sources.push(open_source(entry)?);
    }
    let root = new_memory(0o755, None)?;
    let place = ["/tmp", "/usr", "/"]
        .iter()
        .find(|path| Path::new(path).is_dir())
        .copied()
        .unwrap_or("/");
    let at = open_path(place).map_err(|error| Failure::call(format!("open {place}"), &error))?;
    mount::attach(root.as_fd(), at.as_fd())
        .map_err(|error| Failure::call("attach the new root", &error))?;
    for (entry, source) in spec.entries.iter().zip(sources) {
        put(&root, entry, source, outcomes)?;
    }
    let mut unreachable = Vec::new();
    for mask in &spec.masks {
        let covered = cover(&root, mask);
        outcomes.note("proc-mask", covered.clone().map(drop));
        if covered? == Covered::Unreachable {
            let (Mask::ReadOnly(path) | Mask::Empty(path)) = mask;
            unreachable.push(path.clone());
        }
    }
    Ok(NewRoot { root, unreachable })
}

/// Makes the tree this process's root; what is in the root folder itself can no longer change.
pub fn enter(new: &NewRoot, outcomes: &mut Outcomes) -> Result<(), Failure> {
    let read_only = Attributes {
        read_only: true,
        no_dev: true,
        no_suid: true,
        no_exec: false,
    };
    let sealed = fault::guard("read-only", || {
        restrict_here(new.root.as_fd(), Path::new("/"), read_only, false)
    });
    outcomes.note(
        "read-only",
        sealed.map_err(|error| Failure::call("make the root folder read-only", &error)),
    );
    let entered = mount::pivot_into(new.root.as_fd());
    let entered = entered.map_err(|error| Failure::call("pivot_root", &error));
    outcomes.note("pivot-root", entered.clone());
    entered
}

fn open_source(entry: &Entry) -> Result<Option<OwnedFd>, Failure> {
    let What::Bind {
        source, optional, ..
    } = &entry.what
    else {
        return Ok(None);
    };
    let opened = match source {
        Source::Path(path) => super::owners::clone_path(path, true),
        Source::Planted(number) => crate::sys::descriptor::take_planted(*number),
    };
    match opened {
        Ok(tree) => Ok(Some(tree)),
        Err(error) if *optional && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let from = match source {
                Source::Path(path) => path.display().to_string(),
                Source::Planted(number) => format!("descriptor {number}"),
            };
            Err(Failure::call(
                format!("bring in {from} for {}", entry.path.display()),
                &error,
            ))
        }
    }
}

fn put(
    root: &OwnedFd,
    entry: &Entry,
    source: Option<OwnedFd>,
    outcomes: &mut Outcomes,
) -> Result<(), Failure> {
    let path = &entry.path;
    let failed =
        |error: io::Error| Failure::call(format!("put {} in place", path.display()), &error);
    match &entry.what {
        What::Folder => folder(root, path).map(drop).map_err(failed),
        What::File { content, mode } => {
            let (parent, name) = parent(root, path).map_err(failed)?;
            let flags = OFlag::O_CREAT
                | OFlag::O_EXCL
                | OFlag::O_WRONLY
                | OFlag::O_CLOEXEC
                | OFlag::O_NOFOLLOW;
            let fd = openat(&parent, name, flags, Mode::from_bits_truncate(*mode))
                .map_err(|errno| failed(errno.into()))?;
            std::fs::File::from(fd).write_all(content).map_err(failed)
        }
        What::Link(to) => {
            let (parent, name) = parent(root, path).map_err(failed)?;
            nix::unistd::symlinkat(to, &parent, name).map_err(|errno| failed(errno.into()))
        }
        What::Memory { mode, bytes } => {
            let memory = new_memory(*mode, *bytes)?;
            attach(root, path, &memory, true).map_err(failed)
        }
        What::Bind {
            read_only,
            device,
            optional,
            ..
        } => {
            let Some(tree) = source else { return Ok(()) };
            match bind(root, path, &tree, *read_only, *device, outcomes) {
                // Removed since it was opened: the kernel attaches nothing that has no name any more.
                Err(_) if *optional && is_removed(tree.as_fd()) => Ok(()),
                done => done,
            }
        }
        What::Processes => {
            let attributes = Attributes {
                no_dev: true,
                no_suid: true,
                no_exec: true,
                read_only: false,
            };
            let mounted = fault::guard("proc", || {
                let processes = mount::new_filesystem(c"proc", &[], attributes)?;
                attach(root, path, &processes, true)
            });
            outcomes.note(
                "proc",
                mounted.map_err(|error| Failure::call("mount a fresh /proc", &error)),
            );
            folder(root, path).map(drop).map_err(failed)
        }
        What::Terminals => {
            let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
            let attributes = Attributes {
                no_suid: true,
                no_exec: true,
                ..Attributes::default()
            };
            let terminals =
                mount::new_filesystem(c"devpts", &options, attributes).map_err(failed)?;
            attach(root, path, &terminals, true).map_err(failed)
        }
        What::MessageQueues => {
            let attributes = Attributes {
                no_dev: true,
                no_suid: true,
                no_exec: true,
                read_only: false,
            };
            match mount::new_filesystem(c"mqueue", &[], attributes) {
                Ok(queues) => attach(root, path, &queues, true).map_err(failed),
                // Kernels without POSIX message queues have nothing to mount.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
                Err(error) => Err(failed(error)),
            }
        }
    }
}

/// Whether the last name of what a descriptor refers to is gone.
fn is_removed(fd: BorrowedFd<'_>) -> bool {
    nix::sys::stat::fstat(fd).is_ok_and(|found| found.st_nlink == 0)
}

fn bind(
    root: &OwnedFd,
    path: &Path,
    tree: &OwnedFd,
    read_only: bool,
    device: bool,
    outcomes: &mut Outcomes,
) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::call(format!("bind {}", path.display()), &error);
    let is_folder = is_folder(tree.as_fd()).map_err(failed)?;
    let attributes = Attributes {
        read_only,
        no_dev: !device,
        no_suid: true,
        no_exec: false,
    };
    let switched = fault::of("read-only");
    let early = match (read_only, switched) {
        (true, Some(fault::Fault::Void)) => Attributes {
            read_only: false,
            ..attributes
        },
        _ => attributes,
    };
    let mut result = match switched {
        Some(fault::Fault::Fail) if read_only => Err(io::Error::from_raw_os_error(libc::EPERM)),
        _ => mount::restrict(tree.as_fd(), early, true),
    };
    let unsupported = matches!(&result, Err(error) if error.raw_os_error() == Some(libc::ENOSYS));
    attach(root, path, tree, is_folder).map_err(failed)?;
    if unsupported {
        result = restrict_here(root.as_fd(), path, early, true);
    }
    let result =
        result.map_err(|error| Failure::call(format!("restrict {}", path.display()), &error));
    if read_only {
        outcomes.note("read-only", result.clone());
    }
    result
}

/// Restricts a mount that is attached already; before Linux 5.12 by a remount of each mountinfo entry.
pub(super) fn restrict_here(
    root: BorrowedFd<'_>,
    path: &Path,
    attributes: Attributes,
    recursive: bool,
) -> io::Result<()> {
    let target = open_inside(root, path, OFlag::O_PATH)?;
    match mount::restrict(target.as_fd(), attributes, recursive) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {}
        done => return done,
    }
    let host_path = std::fs::read_link(format!("/proc/self/fd/{}", target.as_raw_fd()))?;
    let all = mounts::read(Path::new("/proc/self/mountinfo"))?;
    for one in mounts::below(&all, &host_path) {
        if !recursive && one.target != host_path {
            continue;
        }
        // Flags that are set stay set: they may be locked.
        let mut flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
        for (on, flag) in [
            (attributes.read_only || one.has("ro"), MsFlags::MS_RDONLY),
            (attributes.no_dev || one.has("nodev"), MsFlags::MS_NODEV),
            (attributes.no_suid || one.has("nosuid"), MsFlags::MS_NOSUID),
            (attributes.no_exec || one.has("noexec"), MsFlags::MS_NOEXEC),
            (one.has("noatime"), MsFlags::MS_NOATIME),
            (one.has("nodiratime"), MsFlags::MS_NODIRATIME),
            (one.has("relatime"), MsFlags::MS_RELATIME),
        ] {
            if on {
                flags |= flag;
            }
        }
        nix::mount::mount(None::<&str>, &one.target, None::<&str>, flags, None::<&str>)?;
    }
    Ok(())
}

/// Whether there was something to cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covered {
    Done,
    /// It is not there, or init, which has every right that the workload has, cannot get to it.
    Unreachable,
}

fn cover(root: &OwnedFd, mask: &Mask) -> Result<Covered, Failure> {
    let (path, read_only) = match mask {
        Mask::ReadOnly(path) => (path, true),
        Mask::Empty(path) => (path, false),
    };
    let failed = |error: io::Error| Failure::call(format!("cover {}", path.display()), &error);
    let target = match open_inside(root.as_fd(), path, OFlag::O_PATH | OFlag::O_NOFOLLOW) {
        Ok(target) => target,
        Err(error) if is_out_of_reach(&error) => return Ok(Covered::Unreachable),
        Err(error) => return Err(failed(error)),
    };
    let is_folder = is_folder(target.as_fd()).map_err(failed)?;
    fault::guard("proc-mask", || {
        let over = if read_only {
            mount::clone_tree(Some(target.as_fd()), c"", true)?
        } else if is_folder {
            new_memory(0o555, Some(0)).map_err(|failure| io::Error::other(failure.to_string()))?
        } else {
            // The new root's own null device: it stands there before any mask.
            let null = open_inside(root.as_fd(), Path::new("/dev/null"), OFlag::O_PATH)?;
            mount::clone_tree(Some(null.as_fd()), c"", false)?
        };
        let attributes = Attributes {
            read_only: true,
            no_dev: is_folder || read_only,
            no_suid: true,
            no_exec: true,
        };
        let restricted = mount::restrict(over.as_fd(), attributes, true);
        mount::attach(over.as_fd(), target.as_fd())?;
        match restricted {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                restrict_here(root.as_fd(), path, attributes, true)
            }
            done => done,
        }
    })
    .map(|()| Covered::Done)
    .map_err(failed)
}

fn is_folder(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mode = nix::sys::stat::fstat(fd)?.st_mode;
    Ok(mode & libc::S_IFMT == libc::S_IFDIR)
}

fn is_out_of_reach(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}

fn new_memory(mode: u32, bytes: Option<u64>) -> Result<OwnedFd, Failure> {
    let failed = |error: io::Error| Failure::call("make a file system in memory", &error);
    let mode = CString::new(format!("{mode:o}")).map_err(|error| failed(error.into()))?;
    // tmpfs reads a size of 0 as "no limit"; one page is the least.
    let size = CString::new(bytes.map_or(String::new(), |bytes| bytes.max(4096).to_string()))
        .map_err(|error| failed(error.into()))?;
    // A file without content takes no room of the size, and about a KiB of the kernel's memory.
    let inodes =
        CString::new(bytes.map_or(String::new(), |bytes| (bytes / 1024).max(64).to_string()))
            .map_err(|error| failed(error.into()))?;
    let mut options: Vec<(&CStr, &CStr)> = vec![(c"mode", &mode)];
    if bytes.is_some() {
        options.push((c"size", &size));
        options.push((c"nr_inodes", &inodes));
    }
    let attributes = Attributes {
        no_dev: true,
        no_suid: true,
        ..Attributes::default()
    };
    mount::new_filesystem(c"tmpfs", &options, attributes).map_err(failed)
}

fn open_path(path: &str) -> io::Result<OwnedFd> {
    Ok(nix::fcntl::open(
        path,
        OFlag::O_PATH | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?)
}
