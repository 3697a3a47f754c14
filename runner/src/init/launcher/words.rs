//! What a launcher's program said before it ended: there is no workload whose words they could be.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// What is told of it at most, in bytes.
const MAX_WORDS: usize = 1 << 10;

/// A second reader of the pipe that is to be the workload's standard error; `None` where that is none.
pub(super) fn reader() -> io::Result<Option<File>> {
    use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let metadata = stderr.metadata()?;
    if !metadata.file_type().is_fifo() {
        return Ok(None);
    }
    let mode = metadata.permissions().mode();
    let permit = |mode| stderr.set_permissions(std::fs::Permissions::from_mode(mode));
    permit(mode | 0o400)?;
    let mut options = File::options();
    let opened = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(format!("/proc/self/fd/{}", stderr.as_raw_fd()));
    permit(mode)?;
    opened.map(Some)
}

/// What is there to be read, as one line.
pub(super) fn said(by: &str, reader: Option<&mut File>, master: Option<&OwnedFd>) -> String {
    let mut said = Vec::new();
    if let Some(reader) = reader {
        // What cannot be read was not said.
        let _ = reader.take(MAX_WORDS as u64).read_to_end(&mut said);
    }
    if let Some(master) = master {
        let mut buffer = [0; MAX_WORDS];
        if fcntl(master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_ok()
            && let Ok(count) = nix::unistd::read(master, &mut buffer)
        {
            said.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
    }
    let said = String::from_utf8_lossy(&said);
    let said: Vec<&str> = said.lines().map(str::trim).collect();
    let said = said.join("; ").replace(char::is_control, " ");
    let said = said.strip_prefix(&format!("{by}: ")).unwrap_or(&said);
    if said.is_empty() {
        "it ended without a word".to_owned()
    } else {
        said.to_owned()
    }
}
