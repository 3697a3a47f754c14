//! What the runner and pid 1 say to each other, over a socket pair: each message its length, then its
//! content in postcard's form (both sides are the same program, and the filters alone would be 20 KB of JSON).
//!
//! ```text
//! runner ── Spec ──► init        what to build, once
//! runner ◄─ TreeReport ─ init    the tree stands, or why not
//! runner ◄─ Report ── init       what took effect; a terminal's master may follow
//! runner ── DenyYourself ──►     where it could not come to listen; then a Report again
//! runner ── Go, Signal, End ──►
//! runner ◄─ Started, ExecFailed or NotStarted, then Ended
//! ```
//! Where a launcher's program builds the sandbox, a LauncherReport stands in the place of the TreeReport, and Build comes
//! between it and the Report. When the runner's end closes, pid 1 ends, and with it the tree.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ledger::facts::execution::NotExecuted;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::mechanism::identity::IdentitySpec;
use crate::mechanism::landlock::LandlockSpec;
use crate::mechanism::protect::ProtectSpec;
use crate::mechanism::root::{RootSpec, path_bytes};
use crate::mechanism::{Failure, Outcomes};
use crate::sys::clone::{FAILURE_MARK, Stage};
use crate::sys::errno_name;
use crate::sys::filter::Instruction;
use crate::sys::process::Ended;

/// Number of pid 1's control descriptor.
pub const CONTROL: RawFd = 3;
/// Planted descriptors get numbers from here on, in their order; each arrives at the number between.
const PLANTED: RawFd = CONTROL + 2;
/// Number of the first folder of a program that runs a module, behind the three that it talks by.
const MODULE_FOLDERS: RawFd = 6;
/// argv[0] by which this program knows that it is pid 1 of a sandbox.
pub const INIT_NAME: &std::ffi::CStr = c"containment-init";
/// Longest message; a plan with every possible flag stays far below.
const MAX_MESSAGE: u32 = 16 << 20;
/// Bytes that say how long a message is.
const LENGTH: usize = size_of::<u32>();

/// What pid 1 is to build and run. What is absent is not built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Ids to take.
    pub identity: Option<IdentitySpec>,
    /// The tree to build and enter.
    pub root: Option<RootSpec>,
    /// Protected paths of writable folders.
    pub protect: Vec<ProtectSpec>,
    /// Switch the loopback device of an own network namespace on.
    pub loopback: bool,
    /// Set the host name of an own UTS namespace.
    pub host_name: bool,
    /// Allow no user namespace below.
    pub deny_user_namespaces: bool,
    /// Give every capability up.
    pub give_up_privilege: bool,
    /// A session of its own; else a process group in the caller's.
    pub session: bool,
    /// A session keyring of its own.
    pub session_keyring: bool,
    /// Close every descriptor but the standard streams.
    pub close_descriptors: bool,
    /// Limit on open files of each process.
    pub open_files: Option<u64>,
    /// Filters that every workload has.
    pub base: Vec<Vec<Instruction>>,
    /// The policy's filter for the workload.
    pub seccomp: Option<Vec<Instruction>>,
    /// Have what that filter denies handed over to the runner, where it can be.
    pub reporting: bool,
    /// Landlock for the workload.
    pub landlock: Option<LandlockSpec>,
    /// A terminal of its own.
    pub terminal: bool,
    /// Pid 1 of a pid namespace: its end ends the tree. Else it reaps and kills its descendants itself.
    pub owns_tree: bool,
    /// A terminal follows the planted descriptors, to be pid 1's controlling one.
    pub caller_terminal: bool,
    /// Leave alone what the workload started, when it ends: for a measurement that must show what ending it is good for.
    pub leaves_tree: bool,
    /// Doors of control groups of version 1 that follow first, each by the mechanisms that are lost where pid 1 cannot come in.
    pub groups: Vec<Vec<String>>,
    /// Pid 1 is in a control group of its own, or will be when it has come in: its control group namespace begins there.
    pub own_group: bool,
    /// Descriptors that follow, each by itself.
    pub planted: u32,
    /// What to run; absent for a trial that stops at the report.
    pub program: Option<ProgramSpec>,
    /// Who may look into this process by its user id alone, still may: nothing of the kernel's lets the runner read it back otherwise.
    pub stays_dumpable: bool,
    /// Let a program of somebody else's build the tree and what else it can, instead of this one.
    pub launcher: Option<LauncherSpec>,
    /// The program runs a module inside itself and is told this, in a form of its own: it is executed before "go".
    pub order: Option<Vec<u8>>,
    /// The tests' switch ([`crate::sys::fault`]).
    pub fault: Option<String>,
}

/// A program of somebody else's that builds a sandbox and executes the gate in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherSpec {
    /// Its path.
    #[serde(with = "path_bytes")]
    pub program: PathBuf,
    /// Its arguments, without the gate and what stands before that.
    pub steps: Vec<Step>,
    /// It has words for [`Word::Status`] and [`Word::Hold`], and its first process has the gate as its child; else the gate
    /// is the first process.
    pub says_what_it_made: bool,
    /// What it is handed by descriptor, each to be read from its beginning.
    pub contents: Vec<Vec<u8>>,
    /// Ids of the host to become before, and no group beside.
    pub ids: Option<(u32, u32)>,
}

/// Words of a command line that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Left out, and the place inside reported, where this cannot be got to: what it would cover.
    pub covers: Option<(Word, Vec<u8>)>,
    /// The words.
    pub words: Vec<Word>,
}

/// One word of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// As it is.
    Text(Vec<u8>),
    /// The path below a planted mount, which is attached where only the program sees it.
    Planted(u32, Vec<u8>),
    /// The number of the descriptor that holds one of the contents.
    Content(u32),
    /// The number of the descriptor to which the program writes what it makes.
    Status,
    /// The number of the descriptor on which the sandbox's first process waits to be let go.
    Hold,
}

/// What a launcher's program has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherReport {
    /// Why there will be no sandbox.
    pub fatal: Option<Failure>,
    /// The whole command line.
    pub argv: Vec<Vec<u8>>,
    /// The sandbox's first process, as the host sees it.
    pub first: i32,
    /// Places that were to be covered and that the workload cannot get to anyway.
    #[serde(with = "path_list")]
    pub unreachable: Vec<PathBuf>,
}

/// The number that a planted descriptor will have.
#[must_use]
pub fn planted_number(index: usize) -> RawFd {
    PLANTED.saturating_add(RawFd::try_from(index).unwrap_or(RawFd::MAX))
}

/// The number by which a program that runs a module knows a folder, in the order in which they were planted.
#[must_use]
pub fn module_folder(index: usize) -> RawFd {
    MODULE_FOLDERS.saturating_add(RawFd::try_from(index).unwrap_or(RawFd::MAX))
}

/// Takes the descriptors that follow a specification and gives them their numbers.
///
/// # Errors
/// One did not come, or there is no room for it.
pub fn receive_planted(stream: &UnixStream, count: u32) -> Result<(), WireError> {
    for index in 0..count as usize {
        let descriptor = receive_descriptor(stream)?;
        crate::sys::descriptor::plant(descriptor, planted_number(index))?;
    }
    Ok(())
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSpec {
    /// The name or path asked for, then the arguments.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`, each.
    pub environment: Vec<Vec<u8>>,
    /// The folder to start in.
    #[serde(with = "path_bytes")]
    pub cwd: PathBuf,
}

/// What pid 1 built around itself: from here on nothing of that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeReport {
    /// The step without which there is no sandbox, when it failed; nothing follows then but [`Report`].
    pub fatal: Option<Failure>,
    /// Places that were to be covered and that the workload cannot get to anyway.
    #[serde(with = "path_list")]
    pub unreachable: Vec<PathBuf>,
}

/// What stands ready for "go".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What became of each mechanism.
    pub outcomes: Outcomes,
    /// The step without which there is no sandbox, when it failed.
    pub fatal: Option<Failure>,
    /// The program, when one was asked for and the sandbox stands.
    pub program: Option<ProgramReport>,
    /// What a program that was given an order said about it, in a form of its own.
    pub said: Option<Vec<u8>>,
    /// The master of a terminal follows.
    pub terminal: bool,
    /// Where the runner hears what the policy's filter denies.
    pub listening: Listening,
}

/// Where the runner hears what the policy's filter denies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listening {
    /// Nowhere: it was not to be, or there is no such filter.
    NotAsked,
    /// Nowhere: the kernel would not have it so, with this error. The filter denies by itself.
    Refused(String),
    /// At this descriptor of the workload's process. Until the runner has it, that process must not be let go.
    At {
        /// The descriptor's number there.
        number: RawFd,
    },
}

/// Lists of paths as bytes.
mod path_list {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        paths: &[PathBuf],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| path.as_os_str().as_bytes()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<Vec<u8>>::deserialize(deserializer)?;
        Ok(paths
            .into_iter()
            .map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
            .collect())
    }
}

/// The program as found inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramReport {
    /// It can be executed.
    Found {
        /// Its path inside.
        #[serde(with = "path_bytes")]
        path: PathBuf,
        /// SHA-256 of its content, in hexadecimal, when it could be read.
        sha256: Option<String>,
    },
    /// It cannot.
    Unusable {
        /// Why.
        reason: NotExecuted,
        /// The kernel's answer.
        errno: Option<i32>,
        /// What it was about.
        what: String,
    },
}

/// What the runner tells pid 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToInit {
    /// The sandbox's first process may go on and build (a launcher's alone).
    Build,
    /// Make the workload's process once more, with a filter that denies by itself, and report again: the runner could not
    /// get the descriptor at which it would have listened.
    DenyYourself,
    /// The start record stands: run the workload.
    Go,
    /// Pass this signal on.
    Signal(i32),
    /// End the tree now.
    End,
}

/// What pid 1 tells the runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromInit {
    /// The program was executed.
    Started,
    /// The kernel would not execute it.
    ExecFailed(i32),
    /// The workload's process ended before it executed anything, or nothing shows that it did.
    NotStarted,
    /// The main process ended.
    Ended {
        /// How.
        how: Ended,
        /// Processes that still ran then; absent when they could not be counted.
        survivors: Option<u32>,
    },
}

/// Why a message could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other side is gone.
    #[error("the other side is gone")]
    Gone,
    /// Pid 1 failed before it could speak.
    #[error(
        "pid 1 failed before it could speak, {}: {}",
        stage.map_or_else(|| "at an unknown step".to_owned(), |stage| stage.to_string()),
        errno_name(&io::Error::from_raw_os_error(*errno))
    )]
    BeforeExec {
        /// Where.
        stage: Option<Stage>,
        /// The kernel's answer.
        errno: i32,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not a message.
    #[error("not a message: {0}")]
    Form(#[from] postcard::Error),
    /// Longer than any message.
    #[error("a message of {0} bytes")]
    TooLong(u64),
}

/// Sends one message.
///
/// # Errors
/// The other side is gone.
pub fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> Result<(), WireError> {
    let mut frame = postcard::to_extend(message, vec![0; LENGTH])?;
    let length = frame.len() - LENGTH;
    let length = u32::try_from(length)
        .ok()
        .filter(|length| *length <= MAX_MESSAGE)
        .ok_or(WireError::TooLong(length as u64))?;
    frame[..LENGTH].copy_from_slice(&length.to_le_bytes());
    stream
        .write_all(&frame)
        .map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => WireError::Gone,
            _ => WireError::Io(error),
        })
}

/// Receives one message, waiting for it.
///
/// # Errors
/// The other side is gone, or failed before it could speak.
pub fn receive<T: DeserializeOwned>(mut stream: &UnixStream) -> Result<T, WireError> {
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => WireError::Gone,
        _ => WireError::Io(error),
    };
    let mut word = [0; LENGTH];
    stream.read_exact(&mut word).map_err(gone)?;
    let length = u32::from_le_bytes(word);
    if length == FAILURE_MARK {
        let mut stage = [0; 4];
        let mut errno = [0; 4];
        stream.read_exact(&mut stage).map_err(gone)?;
        stream.read_exact(&mut errno).map_err(gone)?;
        let stage = Stage::from_raw(u32::from_le_bytes(stage));
        return Err(WireError::BeforeExec {
            stage,
            errno: i32::from_le_bytes(errno),
        });
    }
    if length > MAX_MESSAGE {
        return Err(WireError::TooLong(length.into()));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).map_err(gone)?;
    Ok(postcard::from_bytes(&body)?)
}

/// Passes a descriptor (unix(7), SCM_RIGHTS).
///
/// # Errors
/// The other side is gone.
pub fn send_descriptor(stream: &UnixStream, descriptor: &OwnedFd) -> Result<(), WireError> {
    let numbers = [descriptor.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&numbers)];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &rights,
        MsgFlags::empty(),
        None,
    )
    .map_err(io::Error::from)?;
    Ok(())
}

/// Takes a passed descriptor.
///
/// # Errors
/// None came.
pub fn receive_descriptor(stream: &UnixStream) -> Result<OwnedFd, WireError> {
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), flags)
        .map_err(io::Error::from)?;
    for part in message.cmsgs().map_err(io::Error::from)? {
        if let ControlMessageOwned::ScmRights(numbers) = part
            && let Some(number) = numbers.first()
        {
            return Ok(crate::sys::descriptor::take_planted(*number)?);
        }
    }
    Err(WireError::Gone)
}
