//! What one run of a probe was: the body of a `probe` record.

use serde::{Deserialize, Serialize};

use super::control::Control;
use super::execution::Execution;
use super::list::{List, Sealable};
use super::probe::{Detail, Errno, Nonce, ProbeName, ProbeResult, Twin};
use super::suite::Arm;
use super::words::words;
use crate::bytes::hash::{Hash, Hasher, to_hex};

/// Body of a `probe` record: facts alone. What they mean is judged ([`super::judge`]) by whoever reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbeRun {
    /// The control that was left out, in the arm `ablation` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ablated: Option<Control>,
    /// Under what it ran.
    pub arm: Arm,
    /// What the controller saw, which is outside: one for each check that has an oracle there.
    pub controller: Vec<Observation>,
    /// How the run ended, as for any workload.
    pub execution: Execution,
    /// What the probe printed, line by line, bytes that are not text as `\xhh`.
    pub lines: List<String>,
    /// The secret of this run, from which each line's `nonce=` is made ([`proof`]).
    pub nonce: Nonce,
    /// The row of the suite.
    pub probe: ProbeName,
    /// SHA-256 of the suite's blob.
    pub suite: Hash,
}

impl ProbeRun {
    /// What in it contradicts itself; `None` when it is in order.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        if self.ablated.is_some() != (self.arm == Arm::Ablation) {
            return Some("ablated stands exactly with the arm ablation");
        }
        let result = &self.execution.result;
        let streams = [&result.stderr, &result.stdout];
        if streams
            .into_iter()
            .flatten()
            .any(|output| matches!(output, Sealable::Sealed(_)))
        {
            return Some("nothing of a probe is sealed");
        }
        self.execution.disorder()
    }
}

/// What the controller saw of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observation {
    /// Its instrument worked after the run.
    pub alive_after: bool,
    /// Its instrument worked before the run.
    pub alive_before: bool,
    /// The check, such as `network/tcp4`.
    pub check: String,
    /// What there is to know for people: which listener, which file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What it saw.
    pub saw: Saw,
}

words! {
    /// What a controller saw.
    Saw {
        /// Nothing.
        Nothing "nothing",
        /// The run's own secret: at a listener, or printed.
        Nonce "nonce",
        /// What it had planted was changed, or a measured effect passed its bound.
        Changed "changed",
        /// A signal to its process.
        Signal "signal",
        /// Nothing can be said: the instrument could not be set up.
        Unavailable "unavailable",
    }
}

/// First bytes of what [`proof`] hashes.
const PROOF_PREFIX: &str = "containment-ledger/probe/v1";

/// The `nonce=` of a line: it shows that the program that was given `secret` computed this very answer. Copying every secret
/// that can be seen is not enough to make one.
///
/// The first 16 bytes of SHA-256 over seven lines, each ended by a newline: the prefix, the secret in hexadecimal, the check's
/// id, `result`, `errno`, `twin`, `detail`.
#[must_use]
pub fn proof(
    secret: &Nonce,
    check: &str,
    result: ProbeResult,
    errno: &Errno,
    twin: Twin,
    detail: &Detail,
) -> String {
    let text = format!("{PROOF_PREFIX}\n{secret}\n{check}\n{result}\n{errno}\n{twin}\n{detail}\n");
    let mut hasher = Hasher::plain();
    hasher.update(text.as_bytes());
    to_hex(&hasher.finish().as_bytes()[..16])
}
