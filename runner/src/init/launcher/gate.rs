//! The gate's other side (`runner/gate/main.rs` has the words).

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::init::wire::ProgramSpec;
use crate::sys::descriptor;

/// The program that waits inside.
static GATE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate"));
/// The gate's own limit.
const ROOM: usize = 8 << 20;

/// Why the gate did not become the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotStarted {
    /// The kernel would not execute the program.
    Errno(i32),
    /// The gate ended first.
    Lost,
}

/// A file in memory, closed on exec, at its beginning.
pub(super) fn memory(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// The gate as a file that nobody can write to.
pub(super) fn image() -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_EXEC and need none.
    let executable = MFdFlags::from_bits_retain(libc::MFD_EXEC);
    let name = c"containment-gate";
    let made = memfd_create(name, flags | executable).or_else(|_| memfd_create(name, flags))?;
    let mut file = File::from(made);
    file.write_all(GATE)?;
    let seals = SealFlag::F_SEAL_SEAL
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_WRITE;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    // A descriptor that is open for writing cannot be executed (ETXTBSY).
    let read_only = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(read_only.into())
}

/// What the gate is told; `None` when it has no room for that.
fn message(path: &Path, program: &ProgramSpec) -> Option<Vec<u8>> {
    let path = path.as_os_str().as_bytes();
    let strings = program.argv.iter().map(Some).chain([None]);
    let strings = strings.chain(program.environment.iter().map(Some).chain([None]));
    let strings: Vec<Option<&[u8]>> = std::iter::once(Some(path))
        .chain(strings.map(|string| string.map(Vec::as_slice)))
        .collect();
    let mut texts = Vec::new();
    let mut message = Vec::new();
    for string in &strings {
        let offset = match string {
            Some(string) => {
                let offset = strings.len() * 8 + texts.len();
                texts.extend_from_slice(string);
                texts.push(0);
                offset as u64
            }
            None => u64::MAX,
        };
        message.extend_from_slice(&offset.to_le_bytes());
    }
    message.extend_from_slice(&texts);
    if message.len() > ROOM {
        return None;
    }
    let first_variable = program.argv.len() + 2;
    let head = [message.len(), strings.len(), first_variable];
    let head = head.map(|number| (number as u64).to_le_bytes());
    Some([head.concat(), message].concat())
}

/// Lets the gate become the workload, and returns when that is certain. `lock` is this process's own descriptor of the file
/// that the gate has a lock on.
pub(super) fn open(
    mut gate: &UnixStream,
    lock: &File,
    path: &Path,
    program: &ProgramSpec,
) -> Result<(), NotStarted> {
    let Some(message) = message(path, program) else {
        return Err(NotStarted::Errno(libc::E2BIG));
    };
    // EPIPE when it died while it waited.
    gate.write_all(&message).map_err(|_| NotStarted::Lost)?;
    descriptor::wait_for_lock(lock).map_err(|_| NotStarted::Lost)?;
    // Whatever it had to say is there by now.
    let mut answer = [0; 5];
    let said = gate.set_nonblocking(true).map(|()| {
        let mut said = 0;
        while let Some(rest) = answer.get_mut(said..).filter(|rest| !rest.is_empty()) {
            match gate.read(rest) {
                Ok(0) | Err(_) => break,
                Ok(count) => said += count,
            }
        }
        said
    });
    match said {
        Ok(1) if answer[0] == b'x' => Ok(()),
        Ok(5) if answer[0] == b'x' => {
            let [_, a, b, c, d] = answer;
            Err(NotStarted::Errno(i32::from_le_bytes([a, b, c, d])))
        }
        Ok(_) | Err(_) => Err(NotStarted::Lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::patience::read_full;
    use std::os::fd::AsFd as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    /// Starts the gate as a launcher's program would, and opens it.
    fn through(
        argv: &[&str],
        environment: &[&str],
        path: &str,
    ) -> (Result<(), NotStarted>, String) {
        let bytes = |list: &[&str]| list.iter().map(|text| text.as_bytes().to_vec()).collect();
        let program = ProgramSpec {
            argv: bytes(argv),
            environment: bytes(environment),
            cwd: "/".into(),
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let image = image().unwrap();
        let lock = File::from(memory(c"test-lock", b"").unwrap());
        let leak = |fd: std::os::fd::BorrowedFd<'_>| descriptor::duplicate_leaking(fd, 3).unwrap();
        let (theirs, image) = (leak(theirs.as_fd()), leak(image.as_fd()));
        let their_lock = leak(lock.as_fd());
        let mut command = Command::new(format!("/proc/self/fd/{}", image.as_raw_fd()));
        let numbers = [&theirs, &image, &their_lock].map(|fd| fd.as_raw_fd().to_string());
        command.arg0("gate").args(numbers);
        let child = command
            .env("SECRET_OF_THE_LAUNCHER", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // That others hold them open changes nothing.
        drop(image);
        let (control, _runner) = UnixStream::pair().unwrap();
        let mut ready = [0];
        assert_eq!(read_full(&control, ours.as_fd(), &mut ready).unwrap(), 1);
        assert_eq!(ready, *b"r");
        let opened = open(&ours, &lock, Path::new(path), &program);
        let output = child.wait_with_output().unwrap();
        drop((theirs, their_lock));
        (opened, String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn the_gate_becomes_the_workload_with_its_arguments_and_variables_alone() {
        let script = "echo \"$0|$1|$2|$#\"; env; ls -l /proc/self/fd";
        let argv = ["sh", "-c", script, "zero", "a b", "--"];
        let (opened, said) = through(&argv, &["A=1", "PATH=/usr/bin:/bin"], "/bin/sh");
        assert_eq!(opened, Ok(()));
        assert!(said.starts_with("zero|a b|--|2\n"), "{said}");
        assert!(said.contains("A=1\n") && !said.contains("SECRET"), "{said}");
        assert!(!said.contains("containment-gate"), "{said}");
        assert!(!said.contains("test-lock"), "{said}");
    }

    #[test]
    fn what_the_kernel_would_not_execute_is_told() {
        let (opened, said) = through(&["x"], &[], "/etc/passwd");
        assert_eq!(opened, Err(NotStarted::Errno(libc::EACCES)));
        assert_eq!(said, "");
    }

    #[test]
    fn what_the_gate_has_no_room_for_is_not_begun() {
        let program = ProgramSpec {
            argv: vec![vec![b'a'; ROOM]],
            environment: Vec::new(),
            cwd: "/".into(),
        };
        assert!(message(Path::new("/bin/true"), &program).is_none());
    }
}
