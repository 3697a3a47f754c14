//! Probe runs that cells of a matrix may still refer to, and what their starts said.
//!
//! Bounded: what is kept of all of them together is at most [`BUDGET`] bytes, and the oldest go first. A run under the
//! policy, or without one control, counts for one matrix: once a matrix named it, it goes, so that an old
//! measurement cannot stand in for one that was made since. A baseline says something about the host, and stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::bytes::hash::Hash;
use ledger::bytes::text::excerpt;
use ledger::facts::control::Control;
use ledger::facts::execution::{RuntimeUsed, Start};
use ledger::facts::host::HostFacts;
use ledger::facts::judge::Seen;
use ledger::facts::list::{List, Sealable};
use ledger::facts::measurement::ProbeRun;
use ledger::facts::probe::ProbeLine;

/// Most that is kept of probe runs, in bytes of their text. One matrix of the runner's own suite needs about a
/// hundredth.
const BUDGET: usize = 16 << 20;
/// Most lines of one run that are no probe lines and are counted.
const MALFORMED: usize = 1_000;
/// Characters of arguments that are shown.
const SHOWN: usize = 80;

/// What is kept of a start until its end, and of a probe's longer.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    /// The facts that the start names; absent when that reference is wrong.
    pub(super) host: Option<Arc<HostFacts>>,
    /// The runtime; its launch only where it is clear and stands in the record.
    pub(super) runtime: RuntimeUsed,
    /// The policy's id.
    pub(super) policy: String,
    /// The matrix that it names.
    pub(super) matrix: Option<u64>,
    /// What this launch applied, and by which mechanism.
    pub(super) declared: Vec<(Control, String)>,
    /// SHA-256 of the program.
    pub(super) program: Option<Hash>,
    /// What the program got as arguments; absent where that is sealed, or does not stand in the record.
    pub(super) arguments: Option<Arguments>,
}

/// Arguments as far as they are compared, in few bytes whatever their length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    hash: Hash,
    /// Their beginning, for people.
    pub(super) shown: String,
}

impl Arguments {
    pub(super) fn of(words: &[String]) -> Self {
        // No word of a command line has a NUL.
        let text: String = words.iter().map(|word| format!("{word}\0")).collect();
        let shown = match words {
            [] => "no arguments".to_owned(),
            words => format!("arguments {}", excerpt(&words.join(" "), SHOWN)),
        };
        Self {
            hash: Hash::of(text.as_bytes()),
            shown,
        }
    }
}

impl Begun {
    pub(super) fn of(start: &Start, host: Option<Arc<HostFacts>>) -> Self {
        let mut runtime = start.runtime.clone();
        runtime
            .launch
            .take_if(|launch| !matches!(launch, Sealable::Clear(List::Inline(_))));
        let declared = start.controls.declared.iter();
        Self {
            host,
            runtime,
            policy: start.policy.id.clone(),
            matrix: start.matrix.map(|matrix| matrix.value()),
            declared: declared
                .map(|it| (it.control, it.mechanism.clone()))
                .collect(),
            program: start.workload.program.sha256,
            arguments: match &start.workload.argv {
                Sealable::Clear(List::Inline(words)) => {
                    Some(Arguments::of(words.get(1..).unwrap_or_default()))
                }
                Sealable::Clear(List::Blob(_)) | Sealable::Sealed(_) => None,
            },
        }
    }

    /// The mechanism by which a control is declared.
    pub(super) fn mechanism(&self, control: Control) -> Option<&str> {
        let mut declared = self.declared.iter();
        declared.find_map(|(it, mechanism)| (*it == control).then_some(mechanism.as_str()))
    }
}

/// A probe run that ended.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) run: ProbeRun,
    pub(super) lines: Vec<String>,
    pub(super) begun: Begun,
    size: usize,
}

impl Kept {
    /// Keeps what a judge looks at. `lines` are those of the record, wherever they stood.
    pub(super) fn new(run: &ProbeRun, lines: Vec<String>, begun: Begun) -> Self {
        let mut execution = run.execution.clone();
        (execution.result.stdout, execution.result.stderr) = (None, None);
        (execution.artifacts, execution.violations) = (None, None);
        let run = ProbeRun {
            execution,
            lines: List::Inline(Vec::new()),
            ablated: run.ablated,
            arm: run.arm,
            controller: run.controller.clone(),
            nonce: run.nonce.clone(),
            probe: run.probe.clone(),
            suite: run.suite,
        };
        let overhead = size_of::<Self>();
        let of_lines: usize = lines.iter().map(|line| line.len() + overhead / 8).sum();
        let seen = run.controller.iter();
        let of_seen: usize = seen
            .map(|it| it.check.len() + it.expected.as_ref().map_or(0, String::len) + overhead / 4)
            .sum();
        let of_launch: usize = match &begun.runtime.launch {
            Some(Sealable::Clear(List::Inline(words))) => words.iter().map(String::len).sum(),
            _ => 0,
        };
        let of_controls = begun.declared.iter().map(|(_, mechanism)| mechanism.len());
        let size = overhead + of_lines + of_seen + of_launch + of_controls.sum::<usize>();
        Self {
            run,
            lines,
            begun,
            size,
        }
    }

    pub(super) fn seen(&self) -> Seen<'_> {
        Seen {
            run: &self.run,
            lines: &self.lines,
        }
    }
}

/// Lines of a probe as a judge needs them, from a list that may be long: those that are no probe lines are only
/// counted.
#[derive(Debug, Default)]
pub(super) struct LinesRead {
    pub(super) lines: Vec<String>,
    malformed: usize,
    size: usize,
}

impl LinesRead {
    pub(super) fn take(&mut self, line: String) {
        if line.parse::<ProbeLine>().is_ok() {
            // More than may be kept is as good as nothing: the run goes at once, and no cell can rest on it.
            if self.size <= BUDGET {
                self.size += line.len();
                self.lines.push(line);
            }
        } else if self.malformed < MALFORMED {
            self.malformed += 1;
            self.lines.push(String::new());
        }
    }
}

/// Probe runs by the sequence of their record.
#[derive(Debug, Default)]
pub(super) struct Probes {
    kept: BTreeMap<u64, Kept>,
    size: usize,
}

impl Probes {
    pub(super) fn keep(&mut self, sequence: u64, kept: Kept) {
        self.size += kept.size;
        if let Some(before) = self.kept.insert(sequence, kept) {
            self.size -= before.size;
        }
        while self.size > BUDGET
            && let Some((_, oldest)) = self.kept.pop_first()
        {
            self.size -= oldest.size;
        }
    }

    pub(super) fn find(&self, sequence: u64) -> Option<&Kept> {
        self.kept.get(&sequence)
    }

    /// A matrix named it.
    pub(super) fn remove(&mut self, sequence: u64) {
        if let Some(kept) = self.kept.remove(&sequence) {
            self.size -= kept.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_bounded() {
        let mut read = LinesRead::default();
        for _ in 0..2_000 {
            read.take("x".repeat(1_000));
        }
        assert_eq!(read.lines.len(), MALFORMED);
        let line = format!(
            "probe=p dimension=network result=error detail={}",
            "x".repeat(1_000)
        );
        for _ in 0..20_000 {
            read.take(line.clone());
        }
        let size: usize = read.lines.iter().map(String::len).sum();
        assert!(size > BUDGET && size < BUDGET + 2 * line.len(), "{size}");
    }
}
