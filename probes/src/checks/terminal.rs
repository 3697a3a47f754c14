//! Typing into a terminal that somebody else reads (CVE-2017-5226).

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys;
use crate::tally::Tally;

/// ENOTTY, ENXIO, ENOENT: there is no terminal.
pub(crate) const DENIED: &[&str] = &[
    "EIO", "EPERM", "ENOTTY", "ENXIO", "ENOENT", "EACCES", "EBADF",
];

const TIOCSTI: u64 = 0x5412;
const TIOCSPTLCK: u64 = 0x4004_5431;
const TIOCGPTPEER: i32 = 0x5441;

/// On every stream that this program was given, and on the terminal of its session. (TIOCLINUX answers nothing on a pty.)
pub(crate) fn inject(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let words = crate::line::hex(parameters.secret());
    for fd in 0..3 {
        tally.attempt(format!("stream {fd}"), push(fd, words.as_bytes()));
    }
    match OpenOptions::new().read(true).write(true).open("/dev/tty") {
        Ok(terminal) => {
            tally.attempt("/dev/tty", push(terminal.as_raw_fd(), words.as_bytes()));
        }
        Err(error) => tally.refused("/dev/tty", error),
    }
    tally.finish(Twin::of(own_terminal_works()))
}

fn push(fd: RawFd, words: &[u8]) -> Result<(), crate::cause::Cause> {
    for byte in words {
        sys::control(fd, TIOCSTI, &mut [*byte])?;
    }
    Ok(())
}

/// A terminal of its own: what is written at one side is read at the other.
fn own_terminal_works() -> bool {
    let work = || -> Result<bool, crate::cause::Cause> {
        let mut outer = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/ptmx")?;
        sys::control(outer.as_raw_fd(), TIOCSPTLCK, &mut 0_i32.to_ne_bytes())?;
        let mut inner = sys::peer_of(outer.as_raw_fd(), TIOCGPTPEER)?;
        inner.write_all(b"twin\n")?;
        let mut heard = [0; 4];
        let ready = sys::readable(outer.as_raw_fd(), 200);
        Ok(ready && outer.read_exact(&mut heard).is_ok() && &heard == b"twin")
    };
    work().unwrap_or(false)
}
