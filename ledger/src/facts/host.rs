//! Facts of one host that decide what a sandbox can do there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::execution::Unmeasured;
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::bytes::time::BootId;

/// Body of a `host` record: written once per boot and whenever it differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostFacts {
    /// Machine architecture (`uname -m`).
    pub architecture: String,
    /// Which boot these facts belong to.
    pub boot_id: BootId,
    /// How control groups are laid out and what the runner may use of them.
    pub cgroup: CgroupFacts,
    /// What a security module with labels (AppArmor, SELinux, Smack) confines the runner as, `unconfined` too;
    /// absent where none has labels, or where it could not be read and `unmeasured` says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confinement: Option<String>,
    /// Signs that this host is itself a container.
    pub container: Vec<String>,
    /// `ID` and `VERSION_ID` of os-release; absent without such a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// Effective group id of the runner.
    pub gid: u32,
    /// Supplementary groups of the runner.
    pub groups: Vec<u32>,
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Landlock ABI that the kernel answers; absent when it has no Landlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landlock_abi: Option<u32>,
    /// Active security modules; absent when securityfs does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lsms: Option<Vec<String>>,
    /// The runner that measured this.
    pub runner: RunnerFacts,
    /// Swap in bytes; absent when /proc does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<U53>,
    /// Deciding sysctls that exist here, by name.
    pub sysctls: BTreeMap<String, String>,
    /// Effective user id of the runner.
    pub uid: u32,
    /// Facts that could not be read, and why; absent when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<Vec<Unmeasured>>,
}

/// How control groups are laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CgroupFacts {
    /// Controllers of a v2 subtree that the runner may write to.
    pub delegated: Vec<String>,
    /// Which hierarchies are mounted.
    pub layout: CgroupLayout,
}

/// Which control group hierarchies are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// None.
    None,
    /// Version 1 alone.
    V1,
    /// Version 1 controllers beside a version 2 tree.
    Hybrid,
    /// Version 2 alone.
    V2,
}

/// The runner's own version and program hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunnerFacts {
    /// Which file that was: device, inode, size and time of its last change (ctime). While a later run of the
    /// same boot finds the same, the file need not be hashed again. Absent where the file system's times
    /// do not show every change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// SHA-256 of the program file.
    pub sha256: Hash,
    /// Its version.
    pub version: String,
}
