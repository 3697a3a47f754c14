//! Records of one plain run, to be changed where a test needs another.
//!
//! Unit tests include this file too.

#![allow(dead_code, reason = "whoever includes this file uses a part of it")]

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::facts::control::Controls;
use ledger::facts::execution::{
    Execution, Outcome, PolicyRef, Program, RunId, RunResult, RuntimeUsed, Start, Unmeasured,
    Verdict, Workload,
};
use ledger::facts::host::{CgroupFacts, CgroupLayout, HostFacts, RunnerFacts};
use ledger::facts::list::{List, Sealable};

/// The boot in which every record of these tests is made.
pub(crate) const BOOT: &str = "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f";

pub(crate) fn host() -> HostFacts {
    HostFacts {
        architecture: "x86_64".to_owned(),
        boot_id: BOOT.parse().unwrap(),
        cgroup: CgroupFacts {
            delegated: vec![],
            layout: CgroupLayout::V2,
        },
        confinement: None,
        container: vec![],
        distribution: None,
        gid: 0,
        groups: vec![],
        kernel: "6.18.0".to_owned(),
        landlock_abi: None,
        lsms: None,
        runner: RunnerFacts {
            file: None,
            sha256: Hash::of(b"runner"),
            version: "0.1.0".to_owned(),
        },
        swap_bytes: None,
        sysctls: std::collections::BTreeMap::new(),
        uid: 0,
        unmeasured: None,
    }
}

/// A start that asks for no control; its host record is number 1.
pub(crate) fn start(policy: Hash) -> Start {
    Start {
        controls: Controls::default(),
        host: U53::from(1),
        key_reachable: None,
        matrix: None,
        policy: PolicyRef {
            id: "p".to_owned(),
            sha256: policy,
        },
        run: RunId::from_bytes([3; 16]),
        runtime: RuntimeUsed {
            id: "embedded".to_owned(),
            launch: None,
            sha256: None,
            tier: None,
            version: "0.1.0".to_owned(),
        },
        workload: Workload {
            argv: Sealable::Clear(List::Inline(vec!["w".to_owned()])),
            id: "w".to_owned(),
            program: Program {
                path: "/w".to_owned(),
                sha256: None,
            },
        },
    }
}

/// The end of a run that exited with 0 after a millisecond; nobody heard what was denied.
pub(crate) fn execution(start: impl Into<U53>, verdict: Verdict) -> Execution {
    Execution {
        artifacts: None,
        cleanup: None,
        observed: None,
        result: RunResult {
            duration_us: Some(U53::from(1_000)),
            errno: None,
            exit_code: Some(0),
            outcome: Outcome::Exited,
            reason: None,
            signal: None,
            stderr: None,
            stdout: None,
        },
        start: start.into(),
        unmeasured: Some(vec![Unmeasured {
            field: "violations".to_owned(),
            reason: "no-filter".to_owned(),
        }]),
        verdict,
        violations: None,
    }
}
