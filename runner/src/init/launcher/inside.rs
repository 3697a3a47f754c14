//! Looking for the workload's program in a sandbox from outside, as the workload would find it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use crate::init::wire::{ProgramReport, ProgramSpec};
use crate::init::workload;

/// The program, in the root of the process that will become it.
///
/// # Errors
/// Its root cannot be opened.
pub(super) fn find(
    control: &UnixStream,
    workload: i32,
    program: &ProgramSpec,
) -> io::Result<ProgramReport> {
    let root = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(format!("/proc/{workload}/root"))?;
    let open = |path: &Path| -> Result<OwnedFd, Errno> {
        // Links are followed as if the root were this process's own.
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        openat2(&root, &program.cwd.join(path), how)
    };
    let by_number = |fd: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let usable = |path: &Path| workload::usable(&by_number(&open(path)?));
    Ok(match workload::find(program, &usable) {
        Ok(path) => {
            let sha256 = open(&path).ok();
            let sha256 = sha256.and_then(|fd| workload::hash(&by_number(&fd), control));
            ProgramReport::Found { path, sha256 }
        }
        Err((reason, errno)) => {
            let name = program.argv.first();
            let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
            ProgramReport::Unusable {
                reason,
                errno,
                what: name.unwrap_or_default(),
            }
        }
    })
}
