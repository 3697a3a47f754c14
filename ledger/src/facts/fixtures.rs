//! Values that tests of several modules start from.

use super::host::{CgroupFacts, CgroupLayout, HostFacts, RunnerFacts};
use crate::bytes::hash::Hash;

/// A host without anything special.
pub(crate) fn host() -> HostFacts {
    HostFacts {
        architecture: "x86_64".to_owned(),
        boot_id: "11111111-2222-4333-8444-555555555555".parse().unwrap(),
        cgroup: CgroupFacts {
            delegated: Vec::new(),
            layout: CgroupLayout::None,
        },
        confinement: None,
        container: Vec::new(),
        distribution: None,
        gid: 0,
        groups: Vec::new(),
        kernel: "6.1".to_owned(),
        landlock_abi: None,
        lsms: None,
        runner: RunnerFacts {
            file: None,
            sha256: Hash::of(b"runner"),
            version: "1".to_owned(),
        },
        swap_bytes: None,
        sysctls: std::collections::BTreeMap::new(),
        uid: 0,
        unmeasured: None,
    }
}
