//! The process that will build a sandbox, before there is a plan for it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::mechanism::Outcomes;
use crate::mechanism::group::Group;
use crate::mechanism::owners::HostIds;
use crate::sys::starter::Starter;

/// The workload's ends of its standard streams.
#[derive(Debug)]
pub struct Streams {
    /// 0; absent with a terminal.
    pub stdin: Option<OwnedFd>,
    /// 1; absent with a terminal.
    pub stdout: Option<OwnedFd>,
    /// 2; absent with a terminal.
    pub stderr: Option<OwnedFd>,
}

/// A process that waits for what it is to build, or has been asked for. Dropped, it is ended.
#[derive(Debug)]
pub struct Begun {
    process: Option<Waiting>,
    asked: Option<Asked>,
    /// Kinds of namespaces that it has.
    pub namespaces: libc::c_int,
    /// Kinds of namespaces that it was to have.
    pub wanted: libc::c_int,
    /// Its ids on the host; absent without a user namespace.
    pub ids: Option<HostIds>,
    /// What was found out so far.
    pub outcomes: Outcomes,
    /// The workload's streams once more, for a second attempt.
    pub spare: Option<Streams>,
    /// Control groups for its tree. They go after the process.
    pub group: Option<Group>,
}

/// The process of a [`Begun`].
#[derive(Debug)]
pub struct Waiting {
    /// Its id in this process's pid namespace.
    pub pid: i32,
    /// Refers to it whatever happens to its id.
    pub pidfd: OwnedFd,
    /// Its end of this talks to it.
    pub control: UnixStream,
}

/// A process that a starter makes meanwhile.
#[derive(Debug)]
pub struct Asked {
    /// Who makes it.
    pub starter: Starter,
    /// Its end of this will talk to it.
    pub control: UnixStream,
    /// What it gets as standard streams, for another attempt.
    pub streams: Streams,
}

impl Begun {
    /// A process in these namespaces, of which nothing else is known yet.
    #[must_use]
    pub fn new(process: Waiting, namespaces: libc::c_int) -> Self {
        Self::of(Some(process), None, namespaces)
    }

    /// One that is being made.
    #[must_use]
    pub fn asked(asked: Asked, namespaces: libc::c_int) -> Self {
        Self::of(None, Some(asked), namespaces)
    }

    fn of(process: Option<Waiting>, asked: Option<Asked>, namespaces: libc::c_int) -> Self {
        Self {
            process,
            asked,
            namespaces,
            wanted: namespaces,
            ids: None,
            outcomes: Outcomes::default(),
            spare: None,
            group: None,
        }
    }

    /// The process, once it is made.
    pub fn set(&mut self, process: Waiting) {
        self.process = Some(process);
    }

    /// The process, which is then the caller's to end.
    pub fn take(&mut self) -> Option<Waiting> {
        self.process.take()
    }

    /// The one that is being made, whose answer is then the caller's to take.
    pub fn take_asked(&mut self) -> Option<Asked> {
        self.asked.take()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            asked.starter.discard();
        }
        if let Some(process) = self.process.take() {
            // Gone already is as good.
            let _ = crate::sys::process::kill(&process.pidfd, libc::SIGKILL);
            let _ = crate::sys::process::wait(&process.pidfd);
        }
    }
}
