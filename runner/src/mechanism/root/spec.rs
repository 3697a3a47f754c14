//! What a tree is made of, as it is told to the process that builds it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the tree is made of, in order; parents are made as needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootSpec {
    /// Put in place one after the other.
    pub entries: Vec<Entry>,
    /// Folders or files, as the workload sees them, that only init's own masks may cover.
    pub masks: Vec<Mask>,
}

/// One thing in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    #[serde(with = "path_bytes")]
    pub path: PathBuf,
    /// What.
    pub what: What,
}

/// The kinds of things in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// An empty folder.
    Folder,
    /// A file with this content.
    File {
        /// What it holds.
        content: Vec<u8>,
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link(#[serde(with = "path_bytes")] PathBuf),
    /// A file system in memory, empty.
    Memory {
        /// Permission bits.
        mode: u32,
        /// Size cap in bytes; the kernel's default (half of memory) without.
        bytes: Option<u64>,
    },
    /// Something of the host.
    Bind {
        /// What of it.
        source: Source,
        /// No writes to it or to anything mounted below it.
        read_only: bool,
        /// It is a device node.
        device: bool,
        /// It may be missing.
        optional: bool,
    },
    /// A proc of the new pid namespace.
    Processes,
    /// Pseudo-terminals of its own.
    Terminals,
    /// POSIX message queues of the new IPC namespace.
    MessageQueues,
}

/// What of the host is brought in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// What init finds at this path, before the new root covers anything.
    Path(#[serde(with = "path_bytes")] PathBuf),
    /// A detached mount that was planted at this descriptor number.
    Planted(i32),
}

/// How something is covered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mask {
    /// Bound onto itself, read-only.
    ReadOnly(#[serde(with = "path_bytes")] PathBuf),
    /// Covered by an empty read-only folder or by /dev/null.
    Empty(#[serde(with = "path_bytes")] PathBuf),
}

/// Paths as bytes: they need not be UTF-8.
pub mod path_bytes {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    /// Writes the bytes of a path.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    /// Reads the bytes of a path.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
    }
}
