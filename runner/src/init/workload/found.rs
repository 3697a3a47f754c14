//! The workload's program: looked for as execvp(3) would, and hashed.

use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hasher;
use ledger::facts::execution::NotExecuted;

use crate::init::patience::is_alone;
use crate::init::wire::ProgramSpec;

/// Longest program that is hashed, in bytes. Sparse files have any length; no program is near this one.
const MAX_HASHED: u64 = 1 << 30;

/// Whether a path could be executed.
pub(in crate::init) fn usable(path: &Path) -> Result<(), nix::errno::Errno> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    // As execve(2) answers; a pipe or a device is never opened to find out more.
    if !metadata.is_file() {
        return Err(nix::errno::Errno::EACCES);
    }
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK)
}

/// As execvp(3) would, with the workload's own rights: a path as it is, a name along PATH; `usable` looks at each.
pub(in crate::init) fn find(
    program: &ProgramSpec,
    usable: &dyn Fn(&Path) -> Result<(), nix::errno::Errno>,
) -> Result<PathBuf, (NotExecuted, Option<i32>)> {
    let name = program.argv.first().map(Vec::as_slice).unwrap_or_default();
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    let judge = |errno: nix::errno::Errno| {
        let reason = match errno {
            nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR => NotExecuted::NotFound,
            _ => NotExecuted::NotExecutable,
        };
        (reason, Some(errno as i32))
    };
    if name.as_os_str().as_bytes().contains(&b'/') {
        return usable(name).map(|()| name.to_owned()).map_err(judge);
    }
    let path = program
        .environment
        .iter()
        .find_map(|variable| variable.strip_prefix(b"PATH="));
    let mut found = nix::errno::Errno::ENOENT;
    for folder in path
        .unwrap_or_default()
        .split(|byte| *byte == b':')
        .filter(|folder| !folder.is_empty())
    {
        let candidate = Path::new(std::ffi::OsStr::from_bytes(folder)).join(name);
        match usable(&candidate) {
            Ok(()) if !name.as_os_str().is_empty() => return Ok(candidate),
            Ok(()) | Err(nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR) => {}
            Err(errno) => found = errno,
        }
    }
    Err(judge(found))
}

/// SHA-256 of a file in hexadecimal; `None` when the workload may not read it, when it is no regular file, when it is
/// longer than [`MAX_HASHED`], or when the runner is gone.
pub(in crate::init) fn hash(path: &Path, control: &UnixStream) -> Option<String> {
    // It may have become a pipe since it was found; opening one waits for its other end.
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_HASHED {
        return None;
    }
    let mut hasher = Hasher::plain();
    let mut hashed: u64 = 0;
    let mut buffer = vec![0; 256 << 10];
    while !is_alone(control) {
        match file.read(&mut buffer) {
            Ok(0) => return Some(hasher.finish().to_string()),
            Ok(count) => {
                hasher.update(buffer.get(..count)?);
                hashed += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        // It may grow meanwhile.
        if hashed > MAX_HASHED {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_pipes_nor_endless_files_are_hashed() {
        let (control, runner) = UnixStream::pair().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(hash(&pipe, &control), None);
        let long = folder.path().join("long");
        let file = std::fs::File::create(&long).unwrap();
        file.set_len(200 << 30).unwrap();
        assert_eq!(hash(&long, &control), None);
        let program = folder.path().join("program");
        std::fs::write(&program, "abc").unwrap();
        let found = hash(&program, &control).unwrap();
        assert!(found.contains("ba7816bf"), "{found}");
        // Not by closing it: a process that another test makes meanwhile may hold it, too.
        runner.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(hash(&program, &control), None);
    }
}
