//! Waiting, only as long as the runner lives: a pid 1 that waits for something else would outlive it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether the runner's end of the control socket is closed.
pub(super) fn is_alone(control: &UnixStream) -> bool {
    // An end of the stream is told without being asked for (poll(2), POLLHUP).
    let mut list = [PollFd::new(control.as_fd(), PollFlags::empty())];
    matches!(poll(&mut list, PollTimeout::ZERO), Ok(count) if count > 0)
}

/// Fills `buffer` from a pipe, or up to the pipe's end; how much was read.
///
/// # Errors
/// Reading failed, or EPIPE when the runner is gone.
pub(super) fn read_full(
    control: &UnixStream,
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let mut list = [
            PollFd::new(from, PollFlags::POLLIN),
            PollFd::new(control.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut list, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let [data, end] = list.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
        if end {
            return Err(Errno::EPIPE.into());
        }
        if data {
            match nix::unistd::read(from, rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_to_the_length_or_to_its_end() {
        let (control, _runner) = UnixStream::pair().unwrap();
        let (from, to) = nix::unistd::pipe().unwrap();
        nix::unistd::write(&to, b"abcdef").unwrap();
        let mut buffer = [0; 4];
        assert_eq!(
            read_full(&control, from.as_fd(), &mut buffer).unwrap(),
            4,
            "the writer need not end"
        );
        assert_eq!(&buffer, b"abcd");
        drop(to);
        assert_eq!(read_full(&control, from.as_fd(), &mut buffer).unwrap(), 2);
    }

    #[test]
    fn nobody_waits_for_a_pipe_when_the_runner_is_gone() {
        let (control, runner) = UnixStream::pair().unwrap();
        let (from, _to) = nix::unistd::pipe().unwrap();
        assert!(!is_alone(&control));
        drop(runner);
        assert!(is_alone(&control));
        let error = read_full(&control, from.as_fd(), &mut [0; 4]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    }
}
