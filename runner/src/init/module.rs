//! A program that runs a module of somebody's inside itself (`runner-wasi`): it is executed before "go", is told what to apply,
//! says what it applied, and waits for "go" itself. What it says is the runner's to read; here it is passed on as it is.
//!
//! ```text
//! descriptor 3  a file: what is to be run, and under what
//! descriptor 4  a pipe: it writes what stands ready, once, and a byte when the module begins
//! descriptor 5  a pipe: a byte lets the module begin; its end means that nobody waits any more
//! from 6 on     the folders that the module sees, opened by the runner (`O_PATH`)
//! ```

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::patience::read_full;
use super::wire;
use crate::mechanism::Failure;
use crate::sys::descriptor;

/// The numbers that it knows its descriptors by.
const ORDER: RawFd = 3;
const REPORT: RawFd = 4;
const GO: RawFd = 5;
/// Above these, and below any limit.
const ABOVE: RawFd = 16;
/// Longest report, in bytes: a policy with every possible folder stays far below.
const MAX_REPORT: usize = 1 << 20;

/// What the program will have.
pub(super) struct Theirs {
    order: OwnedFd,
    report: OwnedFd,
    folders: Vec<OwnedFd>,
}

/// Makes them, with the end that is read here; the folders were planted.
pub(super) fn connect(order: &[u8], folders: u32) -> io::Result<(Theirs, OwnedFd)> {
    let mut file = File::from(memfd_create(c"containment-order", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(order)?;
    let (ours, report) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let folders = (0..folders as usize)
        .map(|index| descriptor::take_planted(wire::planted_number(index)))
        .collect::<io::Result<_>>()?;
    let theirs = Theirs {
        order: file.into(),
        report,
        folders,
    };
    Ok((theirs, ours))
}

/// A copy that is in nobody's way, also where a program has this many folders.
pub(super) fn moved(fd: &OwnedFd, folders: u32) -> io::Result<OwnedFd> {
    let above = ABOVE.max(wire::module_folder(folders as usize));
    descriptor::duplicate_above(fd.as_fd(), above)
}

/// Has the kernel end this process when its parent ends, however that ends and whatever this process does then: stopped or busy,
/// it would stay behind where no pid namespace ends with that. In the process that will execute the program, which keeps it.
pub(super) fn end_with(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have ended before.
    if nix::unistd::getppid() == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

impl Theirs {
    /// Gives each its number, in the process that will execute the program.
    pub(super) fn place(&self, go: &OwnedFd) -> io::Result<()> {
        let all = [(&self.order, ORDER), (&self.report, REPORT), (go, GO)];
        let folders = self.folders.iter().enumerate();
        let folders = folders.map(|(index, fd)| (fd, wire::module_folder(index)));
        let count = u32::try_from(self.folders.len()).map_err(io::Error::other)?;
        // One may have the number of another.
        let all: Vec<_> = all
            .into_iter()
            .chain(folders)
            .map(|(fd, number)| (moved(fd, count), number))
            .collect();
        for (fd, number) in all {
            descriptor::plant(fd?, number)?;
            descriptor::set_cloexec(&number, false)?;
        }
        Ok(())
    }
}

/// What it says stands ready.
pub(super) fn read(control: &UnixStream, from: &OwnedFd) -> Result<Vec<u8>, Failure> {
    let attempt = "hear what the module's program applied";
    let fill = |buffer: &mut [u8]| match read_full(control, from.as_fd(), buffer) {
        Ok(count) if count == buffer.len() => Ok(()),
        Ok(_) => Err(Failure {
            attempt: attempt.to_owned(),
            error: "it ended first".to_owned(),
        }),
        Err(error) => Err(Failure::call(attempt, &error)),
    };
    let mut length = [0; 4];
    fill(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_REPORT {
        return Err(Failure {
            attempt: attempt.to_owned(),
            error: format!("it says {length} bytes"),
        });
    }
    let mut text = vec![0; length];
    fill(&mut text)?;
    Ok(text)
}

/// Whether it says that the module begins.
pub(super) fn begins(control: &UnixStream, from: &OwnedFd) -> bool {
    matches!(read_full(control, from.as_fd(), &mut [0]), Ok(1))
}
