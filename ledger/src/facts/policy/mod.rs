//! **Policy**: the document that names the controls a workload must run under, and their limits.
//!
//! ```json
//! {
//!   "id": "report",
//!   "enforcement": { "mode": "strict", "requiredControls": ["network", "timeout"] },
//!   "network": { "mode": "none" },
//!   "resources": { "timeoutMs": 30000 }
//! }
//! ```
//!
//! [`Policy::parse`] reads it and collects every mistake with its place; [`Changes`] is what a command line
//! adds; the [`EffectivePolicy`] that results is the blob a `start` record names. Environment values are in
//! none of what is kept: the blob has their names only.
//!
//! This module knows what a policy says, not what a host can do: compiling it is the runner's part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::control::Control;
use crate::bytes::canon::U53;
use crate::facts::words::words;

mod bind;
mod capabilities;
mod catalogue;
mod changes;
mod check;
mod defaults;
mod effective;
mod json;
mod nearest;
mod problem;
mod read;
mod reader;
#[cfg(test)]
mod schema;
pub mod syscalls;
#[cfg(test)]
mod tests;
pub mod units;

pub use bind::{Bind, BindError, HostPort, HostPortError};
pub use capabilities::CAPABILITIES;
pub use catalogue::{CATALOGUE, Catalogued, DEFAULT_POLICY, UnknownPolicy};
pub use changes::{ApplyChangesError, Changes};
pub use check::Contradiction;
pub use defaults::{
    DEFAULT_PROFILE, DEFAULT_PROTECT, OVERFLOW_ID, PROTECTED_FOLDERS, PROTECTED_IN_HOMES,
};
pub use effective::{EffectivePolicy, EffectiveProcess, ReadEffectivePolicyError};
pub use problem::{Problem, ProblemCode, ReadPolicyError};
pub use read::MAX_POLICY_BYTES;

/// A text that is none of the words a field takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found {found:?}, expected one of {}", expected.join(", "))]
pub struct UnknownWord {
    found: String,
    expected: &'static [&'static str],
}

macro_rules! policy_words {
    ($(#[$meta:meta])* $kind:ident { $($variant:ident $word:literal $meaning:literal,)+ }) => {
        words! { $(#[$meta])* $kind { $(#[doc = $meaning] $variant $word,)+ } }

        impl std::str::FromStr for $kind {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                let found = Self::ALL.iter().copied().find(|word| word.as_str() == text);
                found.ok_or_else(|| UnknownWord {
                    found: json::shorten(text),
                    expected: &[$($word,)+],
                })
            }
        }
    };
}

policy_words! {
    /// What happens when a required control cannot be declared.
    Mode {
        Strict "strict" "The run is refused.",
        BestEffort "best-effort" "The run takes place and the gap is recorded.",
    }
}

policy_words! {
    /// What the workload's file tree is built from.
    Root {
        Ephemeral "ephemeral" "System folders read-only, a short list of /etc, and empty writable places of its own.",
        HostReadonly "host-readonly" "The host's tree read-only, with secrets masked.",
        Custom "custom" "The folder in `path`, read-only.",
    }
}

policy_words! {
    /// Which network the workload reaches.
    NetworkMode {
        None "none" "No network at all.",
        Loopback "loopback" "A loopback of its own.",
        Allowlist "allowlist" "The listed hosts, through the runner.",
        Unrestricted "unrestricted" "The host's network.",
    }
}

policy_words! {
    /// How an allowlist is offered to the workload.
    Channel {
        Socket "socket" "A unix socket for each listed host.",
        Proxy "proxy" "An HTTP CONNECT proxy on the sandbox's loopback.",
    }
}

policy_words! {
    /// Whether a workload may build sandboxes of its own.
    Nesting {
        Allow "allow" "It may; mechanisms that break nested sandboxes are left out.",
        Deny "deny" "It may not.",
    }
}

/// The document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// For whom and for what this policy is, in a sentence or two.
    #[serde(default)]
    pub description: String,
    /// Device nodes.
    #[serde(default)]
    pub devices: Devices,
    /// Which controls must and should be in force.
    pub enforcement: Enforcement,
    /// Files and folders.
    #[serde(default)]
    pub filesystem: Filesystem,
    /// Its name: 1 to 64 of a-z, 0-9 and -.
    pub id: String,
    /// Whether the workload may build sandboxes of its own.
    #[serde(default = "deny")]
    pub nesting: Nesting,
    /// The network.
    #[serde(default)]
    pub network: Network,
    /// Identity and environment.
    #[serde(default)]
    pub process: Process,
    /// Limits.
    #[serde(default)]
    pub resources: Resources,
    /// System calls.
    #[serde(default)]
    pub syscalls: Syscalls,
}

#[cfg(test)]
const fn deny() -> Nesting {
    Nesting::Deny
}

/// Which controls must and should be in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Enforcement {
    /// What happens when a required control cannot be declared.
    pub mode: Mode,
    /// Must be declared.
    pub required_controls: Vec<Control>,
    /// Should be declared; a run without is `reduced`.
    pub wanted_controls: Vec<Control>,
}

/// Files and folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Filesystem {
    /// Whether a source that is a symbolic link is followed; refused otherwise.
    pub follow_symlinks: bool,
    /// How much the workload may write to places of its own (/workspace, /tmp), in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_workspace_mb: Option<U53>,
    /// The folder of root `custom`, an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Paths below each writable folder that stay read-only.
    pub protect: Vec<String>,
    /// What is shown read-only.
    pub read_only: Vec<Bind>,
    /// What the file tree is built from.
    pub root: Root,
    /// What the workload may change on the host.
    pub writable: Vec<Bind>,
}

/// The network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Network {
    /// How an allowlist is offered; the runtime chooses when it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<Channel>,
    /// Whether names of the listed hosts resolve inside.
    pub dns: bool,
    /// The allowlist.
    pub hosts: Vec<HostPort>,
    /// What is reachable.
    pub mode: NetworkMode,
}

/// Limits; a limit that is not given is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Resources {
    /// CPU time of the whole tree in thousandths of one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<U53>,
    /// Memory of the whole tree in MiB, swap included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<U53>,
    /// Open files of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<U53>,
    /// Bytes of each output stream that are passed on and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<U53>,
    /// Tasks in the tree at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<U53>,
    /// Wall time in milliseconds, after which the whole tree is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<U53>,
}

/// Identity and environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Process {
    /// Variables that pass from the runner's own environment, by name.
    pub allowed_environment: Vec<String>,
    /// Capabilities that the workload keeps (`CAP_NET_BIND_SERVICE`).
    pub capabilities: Vec<String>,
    /// Variables that are set; their values are never recorded.
    pub environment: BTreeMap<String, String>,
    /// Group id inside; 1000 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// User id inside; 1000 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// System calls. With an empty `allow` every call but the denied ones is open; otherwise only the allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Syscalls {
    /// The only calls that are open.
    pub allow: Vec<String>,
    /// Calls that fail with EPERM.
    pub deny: Vec<String>,
    /// A named list of denied calls, added to `deny`: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// Device nodes beyond the harmless ones (null, zero, full, random, urandom, tty).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Devices {
    /// Paths below /dev.
    pub allow: Vec<String>,
}

impl Syscalls {
    /// Names of profiles.
    pub const PROFILES: &'static [&'static str] = &["default"];

    /// Every denied call, the profile's and the listed ones, sorted.
    #[must_use]
    pub fn denied(&self) -> Vec<&str> {
        let profile: &[&str] = match self.profile.as_deref() {
            Some("default") => DEFAULT_PROFILE,
            _ => &[],
        };
        let mut denied: Vec<&str> = profile.to_vec();
        denied.extend(self.deny.iter().map(String::as_str));
        denied.sort_unstable();
        denied.dedup();
        denied
    }
}

impl Enforcement {
    /// Whether `control` is asked for, as a must or as a wish.
    #[must_use]
    pub fn asks_for(&self, control: Control) -> bool {
        self.required_controls.contains(&control) || self.wanted_controls.contains(&control)
    }
}

impl Policy {
    /// The document as people read it: indented, every field with its value in force.
    ///
    /// The environment's values are part of the document and so of this text.
    ///
    /// # Errors
    /// The policy cannot be written as JSON, which no policy that was read can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }

    /// Controls that it sets a limit or system calls for and asks for in neither list: they are wanted all the same, so that a
    /// setting that is not in force is said.
    #[must_use]
    pub fn set_unasked(&self) -> Vec<Control> {
        let syscalls = &self.syscalls;
        let filters = !(syscalls.allow.is_empty() && syscalls.denied().is_empty());
        let is_set = |control: Control| match control {
            Control::Syscalls => filters,
            control => matches!(self.limit_of(control), Some((_, Some(_)))),
        };
        let all = Control::ALL.iter().copied();
        all.filter(|control| is_set(*control) && !self.enforcement.asks_for(*control))
            .collect()
    }

    /// The setting that `control` takes its limit from, and the limit; `None` where it needs none.
    #[must_use]
    pub const fn limit_of(&self, control: Control) -> Option<(&'static str, Option<U53>)> {
        let resources = &self.resources;
        match control {
            Control::Memory => Some(("resources.memoryMb", resources.memory_mb)),
            Control::Processes => Some(("resources.processes", resources.processes)),
            Control::Cpu => Some(("resources.cpuMillis", resources.cpu_millis)),
            Control::Timeout => Some(("resources.timeoutMs", resources.timeout_ms)),
            Control::Output => Some(("resources.outputBytes", resources.output_bytes)),
            Control::Files => Some(("resources.openFiles", resources.open_files)),
            Control::Disk => Some((
                "filesystem.maxWorkspaceMb",
                self.filesystem.max_workspace_mb,
            )),
            Control::Network
            | Control::Filesystem
            | Control::Process
            | Control::Environment
            | Control::Privilege
            | Control::Syscalls
            | Control::Devices
            | Control::User
            | Control::Ipc
            | Control::Descriptors
            | Control::Terminal => None,
        }
    }
}
