//! A process that has started before it is known what for, and forks into new namespaces when that is asked.
//!
//! Executing a program and starting its C library takes as long as making all namespaces. Done here, in the
//! time in which the caller reads its policy, both are over when the namespaces are wanted: the new process is
//! a fork of one that runs the right program from a place that nobody can write to, with an empty environment
//! and nothing of the caller's memory, and it is the caller's child (`CLONE_PARENT`, clone(2)), not the starter's.
//!
//! ```text
//! caller ── mark, kinds of namespaces, descriptors 0 to 3 of the new process, a control group's ──► starter
//! caller ◄─ mark, its id or the errno negated ── starter
//! ```
//! The starter ends when the caller's end closes.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recv, recvmsg, sendmsg};

use super::clone::{self, Child, Image, SpawnError};
use super::{check, descriptor, process};

/// Begins a request and an answer; no length of a message is this, nor is it [`clone::FAILURE_MARK`], which a process
/// writes that does not come to be a starter.
const MARK: u32 = u32::MAX - 1;
/// Mark and kinds of namespaces; mark and answer.
const MESSAGE: usize = 8;
/// Standard streams and the new process's own control descriptor, which gets the starter's number.
const DESCRIPTORS: usize = 4;
/// Number of the starter's descriptor of its image. It stays open until the starter ends: the mount is taken apart when the last
/// one closes, which waits for the whole machine (synchronize_rcu), and nobody waits for the starter then.
const IMAGE: RawFd = DESCRIPTORS as RawFd;

/// A starter, from the caller's side. Dropped, it is ended and waited for.
#[derive(Debug)]
pub struct Starter(Option<Running>);

#[derive(Debug)]
struct Running {
    stream: UnixStream,
    process: OwnedFd,
}

/// A process that a starter forked: a child of this process.
#[derive(Debug)]
pub struct Forked {
    /// Its id in this process's pid namespace.
    pub pid: libc::pid_t,
    /// Refers to it whatever happens to its id.
    pub pidfd: OwnedFd,
}

/// Why there is no forked process.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The kernel's answer to clone3.
    #[error("clone3")]
    Refused(#[source] io::Error),
    /// The starter does not answer: it is gone.
    #[error("the process that was to fork is gone")]
    Gone(#[source] io::Error),
}

impl Starter {
    /// Starts a program that will call [`serve`] on its descriptor 3. `image` must be one that nobody can write to.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(image: OwnedFd, name: &std::ffi::CStr) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let null = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        let kept = image.try_clone()?;
        let held = clone::spawn(Child {
            namespaces: 0,
            image: Image::Sealed(image),
            name,
            descriptors: vec![
                null.try_clone()?.into(),
                null.try_clone()?.into(),
                null.into(),
                theirs.into(),
                kept,
            ],
            group: None,
        })
        .map_err(|error| match error {
            SpawnError::Prepare(error) | SpawnError::Clone(error) => error,
        })?;
        let (_, process) = held.release()?;
        Ok(Self(Some(Running {
            stream: ours,
            process,
        })))
    }

    /// Asks for a process in new namespaces of these kinds (`CLONE_NEW*`) with these descriptors as 0 to 3, made in a control
    /// group of version 2 where one is given. It goes on in [`serve`], which returns there.
    ///
    /// # Errors
    /// The starter is gone.
    pub fn ask(
        &self,
        namespaces: libc::c_int,
        descriptors: [BorrowedFd<'_>; DESCRIPTORS],
        group: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let numbers: Vec<RawFd> = descriptors
            .into_iter()
            .chain(group)
            .map(|descriptor| descriptor.as_raw_fd())
            .collect();
        let mut request = [0; MESSAGE];
        request[..4].copy_from_slice(&MARK.to_le_bytes());
        request[4..].copy_from_slice(&namespaces.to_le_bytes());
        let sent = sendmsg::<()>(
            self.stream()?.as_raw_fd(),
            &[IoSlice::new(&request)],
            &[ControlMessage::ScmRights(&numbers)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        if sent == MESSAGE {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// What came of the request, waiting for it.
    ///
    /// # Errors
    /// There is no such process, and why.
    pub fn answer(&self) -> Result<Forked, ForkError> {
        let mut answer = [0; MESSAGE];
        let read = self
            .stream()
            .and_then(|mut stream| stream.read_exact(&mut answer));
        read.map_err(ForkError::Gone)?;
        let [a, b, c, d, answer @ ..] = answer;
        if u32::from_le_bytes([a, b, c, d]) != MARK {
            return Err(ForkError::Gone(io::ErrorKind::InvalidData.into()));
        }
        match i32::from_le_bytes(answer) {
            pid if pid > 0 => Ok(Forked {
                pid,
                // A child that nobody else waits for: the id is still its own.
                pidfd: process::open(pid).map_err(ForkError::Gone)?,
            }),
            errno => Err(ForkError::Refused(io::Error::from_raw_os_error(-errno))),
        }
    }

    /// Ends the starter, without waiting for that: it is to be waited for by the descriptor.
    #[must_use]
    pub fn let_go(mut self) -> Option<OwnedFd> {
        let process = self.0.take().map(|running| running.process)?;
        end(&process);
        Some(process)
    }

    /// Ends the starter, and with it the process that it may have forked and nobody took the answer of; both are waited for.
    pub fn discard(self) {
        if let Some(running) = &self.0 {
            end(&running.process);
            // It may have been forked until now, and is said then.
            let _ = process::wait(&running.process);
        }
        if let Ok(forked) = self.answer() {
            end(&forked.pidfd);
            let _ = process::wait(&forked.pidfd);
        }
    }

    /// The stream on which the answer comes, to wait for it.
    ///
    /// # Errors
    /// The starter was let go.
    pub fn stream(&self) -> io::Result<&UnixStream> {
        let running = self.0.as_ref();
        running
            .map(|running| &running.stream)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        if let Some(Running { process, .. }) = self.0.take() {
            end(&process);
            let _ = process::wait(&process);
        }
    }
}

/// It has nothing to finish, and somebody may have stopped it.
fn end(process: &OwnedFd) {
    // Gone already is as good.
    let _ = process::kill(process, libc::SIGKILL);
}

/// Forks on request, in a process that was executed with `control` as a descriptor of its own, until something other than a
/// request comes. Returns the stream on which that comes: the same one, or in a forked process its own.
///
/// # Errors
/// The caller is gone.
pub fn serve(control: UnixStream) -> io::Result<UnixStream> {
    let mut asked = false;
    loop {
        let mut word = [0; 4];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_WAITALL;
        match recv(control.as_raw_fd(), &mut word, flags) {
            Ok(4) => {}
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(nix::errno::Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        if u32::from_le_bytes(word) != MARK {
            return Ok(control);
        }
        if !asked {
            // A signal to the whole group is the caller's to answer.
            SigSet::all().thread_block()?;
            asked = true;
        }
        let (namespaces, mut descriptors) = receive(&control)?;
        let group = descriptors.split_off(DESCRIPTORS).pop();
        let answer = match fork(namespaces, group.as_ref().map(OwnedFd::as_fd)) {
            Ok(0) => {
                drop((control, group));
                return take_place(descriptors);
            }
            Ok(pid) => pid,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        drop((descriptors, group));
        let words = [MARK.to_le_bytes(), answer.to_le_bytes()];
        (&control).write_all(words.as_flattened())?;
    }
}

fn receive(control: &UnixStream) -> io::Result<(libc::c_int, Vec<OwnedFd>)> {
    let mut request = [0; MESSAGE];
    let mut slices = [IoSliceMut::new(&mut request)];
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS + 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_WAITALL;
    let message = recvmsg::<()>(control.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let bytes = message.bytes;
    let mut descriptors = Vec::with_capacity(DESCRIPTORS + 1);
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = part {
            for number in numbers {
                descriptors.push(descriptor::take_planted(number)?);
            }
        }
    }
    let Some(namespaces) = request.last_chunk().copied().map(i32::from_le_bytes) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if bytes == MESSAGE && (DESCRIPTORS..=DESCRIPTORS + 1).contains(&descriptors.len()) {
        Ok((namespaces, descriptors))
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Forks into new namespaces a child of the caller's: 0 in it.
fn fork(namespaces: libc::c_int, group: Option<BorrowedFd<'_>>) -> io::Result<libc::pid_t> {
    // SAFETY: an all-zero clone_args is valid: no stack, no thread-local storage.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    // The signal at its end is that of the starter's own (clone(2), CLONE_PARENT).
    args.flags = (namespaces | libc::CLONE_PARENT) as u64;
    clone::make_in(&mut args, group);
    // In a process of one thread.
    clone::clone(&mut args)
}

/// Gives the descriptors their numbers, the last of them the starter's own, and lets signals through.
fn take_place(descriptors: Vec<OwnedFd>) -> io::Result<UnixStream> {
    let mut number = 0;
    for descriptor in &descriptors {
        // Each arrived above these numbers, which are all taken in the starter.
        if descriptor.as_raw_fd() < DESCRIPTORS as RawFd {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: dup2 takes two integers; the streams are nobody's values, and the control stream's value is gone.
        check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into())?;
        number += 1;
    }
    drop((descriptors, descriptor::take_planted(IMAGE)?));
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    descriptor::take_planted(number - 1).map(UnixStream::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starter_that_is_gone_is_an_error_and_no_wait() {
        // A program that does not serve: it ends at once.
        let image = std::fs::File::open("/bin/true").unwrap();
        let starter = Starter::start(image.into(), c"true").unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        // It may be gone already.
        let _ = starter.ask(0, [null.as_fd(); DESCRIPTORS], None);
        let error = starter.answer().unwrap_err();
        assert!(matches!(error, ForkError::Gone(_)), "{error:?}");
        let process = starter.let_go().unwrap();
        process::wait(&process).unwrap();
    }

    #[test]
    fn what_fails_before_it_is_a_starter_is_no_refusal_of_the_kernel() {
        let text = tempfile::NamedTempFile::new().unwrap();
        let image = std::fs::File::open(text.path()).unwrap();
        let starter = Starter::start(image.into(), c"no program").unwrap();
        // The mark of its failure came, whose first word reads as EPERM.
        let error = starter.answer().unwrap_err();
        assert!(matches!(error, ForkError::Gone(_)), "{error:?}");
    }

    #[test]
    fn a_starter_that_was_stopped_ends_all_the_same() {
        let image = std::fs::File::open("/bin/sleep").unwrap();
        let starter = Starter::start(image.into(), c"sleep").unwrap();
        let running = starter.0.as_ref().unwrap();
        process::kill(&running.process, libc::SIGSTOP).unwrap();
        drop(starter);
    }

    #[test]
    fn whoever_is_not_asked_goes_on_with_its_own_stream() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"\x05\0\0\0hello").unwrap();
        let mut same = serve(theirs).unwrap();
        let mut read = [0; 9];
        same.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"\x05\0\0\0hello");
        drop(ours);
        assert!(serve(same).is_err(), "nobody is there to go on for");
    }

    #[test]
    fn a_request_without_its_descriptors_is_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let request = [MARK.to_le_bytes(), [0; 4]].concat();
        (&ours).write_all(&request).unwrap();
        // In a thread of its own: signals are blocked there from the first request on.
        let served = std::thread::spawn(|| serve(theirs)).join().unwrap();
        assert_eq!(served.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
