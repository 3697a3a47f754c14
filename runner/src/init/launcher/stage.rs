//! Where a launcher's program finds mounts that this process was handed: a folder that only its mount namespace shows.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::mount::MsFlags;
use nix::sys::stat::Mode;

use crate::init::wire::planted_number;
use crate::sys::{descriptor, mount};

/// No sandbox shows anything of what is there (`plan::tree`), and there is such a folder everywhere.
const STAGE: &str = "/sys";

/// The path of a planted mount, or of what lies below it.
pub(super) fn place(index: u32, below: &[u8]) -> Vec<u8> {
    let mut path = format!("{STAGE}/{index}").into_bytes();
    if !below.is_empty() {
        path.push(b'/');
        path.extend_from_slice(below);
    }
    path
}

/// Attaches all that was planted. This process must have a mount namespace of its own.
///
/// # Errors
/// The kernel's.
pub(super) fn attach(count: u32) -> io::Result<()> {
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    nix::mount::mount(none, "/", none, private, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = Some("mode=755,size=1m");
    nix::mount::mount(Some("stage"), STAGE, Some("tmpfs"), flags, options)?;
    for index in 0..count {
        let planted = descriptor::take_planted(planted_number(index as usize))?;
        let path = PathBuf::from(format!("{STAGE}/{index}"));
        let is_folder = File::from(planted.try_clone()?).metadata()?.is_dir();
        if is_folder {
            std::fs::create_dir(&path)?;
        } else {
            File::create(&path)?;
        }
        let target = open(&path)?;
        mount::attach(planted.as_fd(), target.as_fd())?;
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}
