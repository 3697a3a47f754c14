//! What `runner-wasi` is told and says. It has the same shapes (`runner/wasi/src/talk.rs`), and is a crate of its own.

use serde::{Deserialize, Serialize};

/// What is to be run, and under what. Paths, arguments and variables are bytes, as the kernel has them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Order {
    /// The module's path on the host.
    pub(super) module: Vec<u8>,
    /// The module's arguments, its own name first.
    pub(super) arguments: Vec<Vec<u8>>,
    /// `NAME=value`, each.
    pub(super) environment: Vec<Vec<u8>>,
    /// The folders that it sees.
    pub(super) folders: Vec<Folder>,
    /// Most bytes of its memories and tables together.
    pub(super) memory_bytes: Option<u64>,
    /// After how long it is stopped, in milliseconds.
    pub(super) deadline_ms: Option<u64>,
}

/// A folder of the host that the module sees.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Folder {
    /// Where it is open.
    pub(super) descriptor: i32,
    /// As the module sees it.
    pub(super) target: Vec<u8>,
    /// The module may change what is in it.
    pub(super) writable: bool,
}

/// What stands ready.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Report {
    /// A module that can begin.
    Ready(Ready),
    /// The module cannot be run, whatever it is run under.
    Unusable(Unusable),
    /// What was asked for cannot be given.
    Failed(String),
}

/// What will hold, as it was applied.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Ready {
    /// SHA-256 of the bytes that were compiled, in hexadecimal.
    pub(super) sha256: String,
    /// The engine.
    pub(super) engine: String,
    /// Functions that the module imports, all of WASI preview 1.
    pub(super) imports: usize,
    /// The names of its variables.
    pub(super) environment: Vec<String>,
    /// The folders that are open, each with whether it is writable.
    pub(super) folders: Vec<(String, bool)>,
    /// The limit that each growth of a memory or table is held against.
    pub(super) memory_bytes: Option<u64>,
    /// The deadline that the compiled code looks at.
    pub(super) deadline_ms: Option<u64>,
}

/// Why a module cannot be run.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Unusable {
    /// There is none by that path; else there is one, and it is none that can be run.
    pub(super) is_missing: bool,
    /// The kernel's answer.
    pub(super) errno: Option<i32>,
    /// What is wrong.
    pub(super) what: String,
}
