//! What was started under which controls (`start`), and what came of it (`execution`).

mod output;
mod violation;

pub use output::Output;
pub use violation::{InOrder, UNNAMED, Violation, Word};

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize as DeDeserialize, Deserializer};
use serde::{Deserialize, Serialize};

use super::control::{Control, Controls};
use super::list::{List, Sealable};
use crate::bytes::canon::U53;
use crate::bytes::hash::{Hash, from_hex, to_hex};

/// Names one run: 32 random lower-case hexadecimal digits, also the name of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId([u8; 16]);

impl RunId {
    /// Takes 16 random bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl FromStr for RunId {
    type Err = crate::bytes::hash::HexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        from_hex(text).map(Self)
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> DeDeserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Body of a `start` record: appended once the effect is known and before the workload may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Start {
    /// What was asked and what this launch gave.
    pub controls: Controls,
    /// Sequence of the host record in force.
    pub host: U53,
    /// The workload could have read the signing key (native and the like); absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_reachable: Option<bool>,
    /// Sequence of the newest matrix for this uid, tier, runtime and policy id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<U53>,
    /// The policy in force.
    pub policy: PolicyRef,
    /// This run's id.
    pub run: RunId,
    /// What isolates.
    pub runtime: RuntimeUsed,
    /// What runs.
    pub workload: Workload,
}

/// A policy by name and by content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyRef {
    /// The policy's id.
    pub id: String,
    /// SHA-256 of its blob: the JCS of the effective policy, environment values left out.
    pub sha256: Hash,
}

/// The runtime of one launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuntimeUsed {
    /// `embedded`, `native`, …
    pub id: String,
    /// The runtime's full command line; absent when nothing was launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Sealable<List<String>>>,
    /// SHA-256 of the runtime's program, where it is not the runner itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Hash>,
    /// How much of the runtime this host allowed (`full`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The runtime's version; of a template also which document it is ([`RuntimeUsed::TEMPLATE`]).
    pub version: String,
}

impl RuntimeUsed {
    /// What stands in the version of a template before the first 16 digits of its document's SHA-256: two documents of one
    /// `id` are two runtimes.
    pub const TEMPLATE: &'static str = "template:";

    /// Names of the runtimes that are no template's.
    pub const BUILT_IN: [&'static str; 5] = ["embedded", "native", "bwrap", "unshare", "wasi"];
    /// Those of them that host facts may make do with less.
    const TIERED: [&'static str; 3] = ["embedded", "bwrap", "unshare"];

    /// What in it contradicts itself; `None` when it is in order.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        if self.tier.is_some() && !Self::TIERED.contains(&self.id.as_str()) {
            return Some("tier stands only with the runtimes embedded, bwrap and unshare");
        }
        let (version, document) = self.version.split_once(Self::TEMPLATE)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_one = document.len() == 16 && document.bytes().all(is_digit);
        if !is_one || version.trim_end().is_empty() || !version.ends_with(' ') {
            return Some(
                "version of a template is its program's, a blank, `template:` and 16 digits of SHA-256",
            );
        }
        Self::BUILT_IN
            .contains(&self.id.as_str())
            .then_some("version names no template of a runtime that is built in")
    }

    /// What tells it from others of the same `id` that another matrix is of: its tier, or the document of a template.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        let document = || {
            let at = self.version.rfind(Self::TEMPLATE)?;
            self.version.get(at..)
        };
        self.tier.as_deref().or_else(document)
    }
}

/// What was to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Arguments, the program's name first; bytes that are not text as `\xhh`.
    pub argv: Sealable<List<String>>,
    /// Name of the workload: the program's file name, or a manifest's id.
    pub id: String,
    /// The file that was executed.
    pub program: Program,
}

/// The file that was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Program {
    /// Its path as the workload sees it, or the name that was asked for when it was not found.
    pub path: String,
    /// SHA-256 of its content; absent when it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Hash>,
}

/// Body of an `execution` record: what became of the run that `start` opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Execution {
    /// Files found in writable places at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<List<Artifact>>,
    /// What was removed after the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// Figures seen from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
    /// How it ended.
    pub result: RunResult,
    /// Sequence of its start record.
    pub start: U53,
    /// What could not be measured, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<Vec<Unmeasured>>,
    /// Recomputed from the rest by every reader and only compared.
    pub verdict: Verdict,
    /// System calls that the policy's filter denied, by name; absent where nobody listened. No verdict rests on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violations: Option<List<Violation>>,
}

impl Execution {
    /// What in it contradicts itself; `None` when it is in order. What a list says that stands in a blob is not looked at.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        let denied = match &self.violations {
            Some(_) if self.result.outcome == Outcome::NotExecuted => {
                Some("violations stand only with what ran")
            }
            Some(_) if self.unheard().is_some() => {
                Some("violations are listed or unmeasured, and not both")
            }
            None if self.is_partly_heard() => {
                Some("outer-filter stands only beside violations that are listed")
            }
            Some(List::Inline(list)) => {
                let mut order = InOrder::within(self.result.duration_us);
                list.iter().find_map(|violation| order.take(violation))
            }
            Some(List::Blob(_)) | None => None,
        };
        self.result.disorder().or(denied)
    }

    /// What stands beside [`Self::violations`] under `unmeasured` where the list need not be all: a filter around the runner denies
    /// a call before anybody hears of it.
    pub const OUTER_FILTER: &'static str = "outer-filter";

    /// Why nobody knows what was denied, where it says so.
    #[must_use]
    pub fn unheard(&self) -> Option<&str> {
        let mut about = self.about_violations();
        about.find(|reason| *reason != Self::OUTER_FILTER)
    }

    /// Whether it says that more may have been denied than is listed.
    #[must_use]
    pub fn is_partly_heard(&self) -> bool {
        self.about_violations()
            .any(|reason| reason == Self::OUTER_FILTER)
    }

    fn about_violations(&self) -> impl Iterator<Item = &str> {
        let unmeasured = self.unmeasured.as_deref().unwrap_or_default().iter();
        let about = unmeasured.filter(|it| it.field == "violations");
        about.map(|it| it.reason.as_str())
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunResult {
    /// Wall time from "go" to the end of the main process, in microseconds of CLOCK_BOOTTIME.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<U53>,
    /// The kernel's answer, for `not-executable` and `launch-failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// Exit status, for `exited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it did not run, for `not-executed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<NotExecuted>,
    /// Signal number, for `signaled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// Standard error; absent when it was not captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Sealable<Output>>,
    /// Standard output; absent when it was not captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Sealable<Output>>,
}

impl RunResult {
    /// What in it contradicts its outcome or itself; `None` when it is in order.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        let outcome = self.outcome;
        if self.exit_code.is_some() != (outcome == Outcome::Exited) {
            return Some("exitCode stands exactly with exited");
        }
        if self.signal.is_some() != (outcome == Outcome::Signaled) {
            return Some("signal stands exactly with signaled");
        }
        if self.reason.is_some() != (outcome == Outcome::NotExecuted) {
            return Some("reason stands exactly with not-executed");
        }
        if self.errno.is_some() && outcome != Outcome::NotExecuted {
            return Some("errno stands only with not-executed");
        }
        let streams = [&self.stderr, &self.stdout];
        streams
            .into_iter()
            .flatten()
            .find_map(|output| match output {
                Sealable::Clear(output) => output.disorder(),
                Sealable::Sealed(_) => None,
            })
    }
}

/// The ways a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The main process exited by itself.
    Exited,
    /// The main process died of a signal.
    Signaled,
    /// The deadline came first.
    Timeout,
    /// The runner was stopped or died before the end was seen.
    Interrupted,
    /// The workload never ran.
    NotExecuted,
}

/// Why a workload never ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotExecuted {
    /// A requested control could not be declared.
    Refused,
    /// No such program inside.
    NotFound,
    /// The kernel would not execute the program.
    NotExecutable,
    /// The sandbox itself could not be built.
    LaunchFailed,
}

/// A file that the workload left in a writable place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Artifact {
    /// Its length in bytes; absent for what is no regular file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<U53>,
    /// What it is.
    pub kind: FileKind,
    /// Its path as the workload saw it.
    pub path: String,
    /// SHA-256 of its content; absent for what is no regular file or was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Hash>,
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A symbolic link; never followed.
    Symlink,
    /// A named pipe; never opened.
    Fifo,
    /// A socket.
    Socket,
    /// A device node.
    Device,
}

/// What was ended and removed after the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cleanup {
    /// Processes of the tree that outlived the main process and were killed with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survivors_killed: Option<U53>,
}

/// Figures about the tree, seen from outside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observed {
    /// CPU time in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<U53>,
    /// Highest memory use in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<U53>,
    /// Processes killed for lack of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<U53>,
    /// Highest number of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_peak: Option<U53>,
    /// Where the figures come from (`procfs`, `cgroup-v2`).
    pub source: String,
    /// The workload's user id as the host sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

/// A field that could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unmeasured {
    /// The field of the execution body.
    pub field: String,
    /// Why.
    pub reason: String,
}

/// What a run is worth as evidence; never the workload's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The workload never ran.
    NotExecuted,
    /// The end was not seen.
    Interrupted,
    /// A requested control was not declared; rules over every exit code.
    ControlsMissing,
    /// The deadline came first.
    Timeout,
    /// The main process failed or died of a signal.
    Failed,
    /// A wanted control was not declared.
    Reduced,
    /// Everything asked for was in force and the workload succeeded.
    AsRequested,
}

impl Verdict {
    /// The first that applies (DESIGN.md §4.1).
    #[must_use]
    pub fn of(controls: &Controls, result: &RunResult) -> Self {
        let missing = |list: &[Control]| list.iter().any(|control| !controls.declares(*control));
        match result.outcome {
            Outcome::NotExecuted => Self::NotExecuted,
            Outcome::Interrupted => Self::Interrupted,
            _ if missing(&controls.requested) => Self::ControlsMissing,
            Outcome::Timeout => Self::Timeout,
            Outcome::Signaled => Self::Failed,
            Outcome::Exited if result.exit_code != Some(0) => Self::Failed,
            Outcome::Exited if missing(&controls.wanted) => Self::Reduced,
            Outcome::Exited => Self::AsRequested,
        }
    }

    /// The word used in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotExecuted => "not-executed",
            Self::Interrupted => "interrupted",
            Self::ControlsMissing => "controls-missing",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::Reduced => "reduced",
            Self::AsRequested => "as-requested",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::control::Declared;

    fn result(outcome: Outcome, exit_code: Option<u8>) -> RunResult {
        RunResult {
            duration_us: None,
            errno: None,
            exit_code,
            outcome,
            reason: None,
            signal: None,
            stderr: None,
            stdout: None,
        }
    }

    #[test]
    fn fields_stand_with_their_outcome() {
        let reason = |outcome| RunResult {
            reason: Some(NotExecuted::LaunchFailed),
            errno: Some(1),
            ..result(outcome, None)
        };
        let signal = |outcome| RunResult {
            signal: Some(9),
            ..result(outcome, None)
        };
        for good in [
            result(Outcome::Exited, Some(3)),
            result(Outcome::Timeout, None),
            result(Outcome::Interrupted, None),
            signal(Outcome::Signaled),
            reason(Outcome::NotExecuted),
        ] {
            assert_eq!(good.disorder(), None, "{good:?}");
        }
        for bad in [
            result(Outcome::Exited, None),
            result(Outcome::Signaled, None),
            result(Outcome::NotExecuted, None),
            result(Outcome::Timeout, Some(0)),
            result(Outcome::Interrupted, Some(0)),
            signal(Outcome::Timeout),
            signal(Outcome::Interrupted),
            reason(Outcome::Timeout),
            RunResult {
                errno: Some(2),
                ..result(Outcome::Exited, Some(0))
            },
        ] {
            assert!(bad.disorder().is_some(), "{bad:?}");
        }
    }

    #[test]
    fn what_was_denied_stands_only_where_it_was_heard() {
        let ptrace = Violation {
            arguments: vec![Word(0); 4],
            call: "ptrace".into(),
            count: U53::from(1),
            first_us: U53::from(1_000),
            number: None,
        };
        let good = Execution {
            artifacts: None,
            cleanup: None,
            observed: None,
            result: RunResult {
                duration_us: Some(U53::from(1_000)),
                ..result(Outcome::Exited, Some(0))
            },
            start: U53::ZERO,
            unmeasured: None,
            verdict: Verdict::AsRequested,
            violations: Some(List::Inline(vec![ptrace])),
        };
        assert_eq!(good.disorder(), None);
        let of = |field: &str| {
            let reason = "r".to_owned();
            let field = field.to_owned();
            Some(vec![Unmeasured { field, reason }])
        };
        let mut other = good.clone();
        other.unmeasured = of("artifacts");
        assert_eq!((other.disorder(), other.unheard()), (None, None));
        let mut both = good.clone();
        both.unmeasured = of("violations");
        assert_eq!(both.unheard(), Some("r"));
        let outer = |from: &Execution| {
            let mut changed = from.clone();
            changed.unmeasured = of("violations");
            changed.unmeasured.as_mut().unwrap()[0].reason = "outer-filter".to_owned();
            changed
        };
        let partly = outer(&good);
        assert_eq!((partly.disorder(), partly.unheard()), (None, None));
        assert!(partly.is_partly_heard() && !good.is_partly_heard());
        let mut nothing = outer(&good);
        nothing.violations = None;
        let mut late = good.clone();
        late.result.duration_us = Some(U53::from(999));
        let mut never = good.clone();
        never.result = RunResult {
            reason: Some(NotExecuted::Refused),
            ..result(Outcome::NotExecuted, None)
        };
        let mut none = never.clone();
        none.violations = Some(List::Inline(Vec::new()));
        for bad in [both, late, never, none, nothing] {
            assert!(bad.disorder().is_some(), "{bad:?}");
        }
    }

    #[test]
    fn a_runtime_has_a_tier_or_a_document_or_neither() {
        let used = |id: &str, tier: Option<&str>, version: &str| RuntimeUsed {
            id: id.to_owned(),
            launch: None,
            sha256: None,
            tier: tier.map(str::to_owned),
            version: version.to_owned(),
        };
        let document = "1.1.5 template:0f1e2d3c4b5a6978";
        for good in [
            used("embedded", Some("full"), "0.1.0"),
            used("embedded", None, "0.1.0"),
            used("bwrap", Some("full"), "0.8.0"),
            used("native", None, "0.1.0"),
            used("runc", None, document),
            used("runc", None, "none template:0f1e2d3c4b5a6978"),
            // What wrote it knew no documents.
            used("runc", None, "1.1.5"),
        ] {
            assert_eq!(good.disorder(), None, "{good:?}");
        }
        for bad in [
            used("runc", Some("full"), document),
            used("wasi", Some("full"), "48"),
            used("native", Some("full"), "0.1.0"),
            used("embedded", None, document),
            used("wasi", None, document),
            used("runc", None, "1.1.5 template:0f1e"),
            used("runc", None, "1.1.5 template:0F1E2D3C4B5A6978"),
            used("runc", None, "1.1.5 template:0f1e2d3c4b5a69780"),
            used("runc", None, "1.1.5template:0f1e2d3c4b5a6978"),
            used("runc", None, "template:0f1e2d3c4b5a6978"),
            used("runc", None, " template:0f1e2d3c4b5a6978"),
            used(
                "runc",
                None,
                &format!("{document} template:0f1e2d3c4b5a6978"),
            ),
        ] {
            assert!(bad.disorder().is_some(), "{bad:?}");
        }
    }

    #[test]
    fn verdict_table() {
        let declared = |controls: &[Control]| {
            controls
                .iter()
                .map(|control| Declared {
                    backup: None,
                    control: *control,
                    mechanism: "m".into(),
                    value: None,
                })
                .collect::<Vec<_>>()
        };
        let full = Controls {
            declared: declared(&[Control::Network, Control::Memory]),
            requested: vec![Control::Network],
            unsupported: vec![],
            wanted: vec![Control::Memory],
        };
        let no_wanted = Controls {
            declared: declared(&[Control::Network]),
            ..full.clone()
        };
        let no_requested = Controls {
            declared: vec![],
            ..full.clone()
        };
        let table = [
            (&full, Outcome::Exited, Some(0), Verdict::AsRequested),
            (&full, Outcome::Exited, Some(3), Verdict::Failed),
            (&full, Outcome::Exited, None, Verdict::Failed),
            (&full, Outcome::Signaled, None, Verdict::Failed),
            (&full, Outcome::Timeout, None, Verdict::Timeout),
            (&full, Outcome::Interrupted, None, Verdict::Interrupted),
            (&full, Outcome::NotExecuted, None, Verdict::NotExecuted),
            (&no_wanted, Outcome::Exited, Some(0), Verdict::Reduced),
            (&no_wanted, Outcome::Exited, Some(1), Verdict::Failed),
            (&no_wanted, Outcome::Timeout, None, Verdict::Timeout),
            (
                &no_requested,
                Outcome::Exited,
                Some(0),
                Verdict::ControlsMissing,
            ),
            (
                &no_requested,
                Outcome::Exited,
                Some(7),
                Verdict::ControlsMissing,
            ),
            (
                &no_requested,
                Outcome::Timeout,
                None,
                Verdict::ControlsMissing,
            ),
            (
                &no_requested,
                Outcome::Interrupted,
                None,
                Verdict::Interrupted,
            ),
            (
                &no_requested,
                Outcome::NotExecuted,
                None,
                Verdict::NotExecuted,
            ),
        ];
        for (controls, outcome, code, verdict) in table {
            assert_eq!(
                Verdict::of(controls, &result(outcome, code)),
                verdict,
                "{outcome:?} {code:?}"
            );
        }
    }
}
