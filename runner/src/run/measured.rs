//! A run whose end is a `probe` record: what the probe printed, and what was seen from outside.

use std::sync::Arc;
use std::time::Duration;

use ledger::bytes::canon::escape_bytes;
use ledger::bytes::hash::Hash;
use ledger::facts::control::{Control, Controls};
use ledger::facts::execution::{Execution, RuntimeUsed};
use ledger::facts::measurement::{Observation, ProbeRun};
use ledger::facts::probe::{MAX_PROBE_LINE_BYTES, Nonce, ProbeName};
use ledger::facts::suite::Arm;

use super::output::Stream;
use super::stop::Stop;

/// Most lines of a probe that are recorded; a suite's own program writes one for each check.
const MAX_LINES: usize = 512;
/// Most bytes of each stream of a probe that are looked at.
pub(super) const LOOKED_AT: usize = 1 << 20;

/// What makes a run one of a probe.
pub struct Measure<'a> {
    /// The control that was left out.
    pub ablated: Option<Control>,
    /// Under what it runs.
    pub arm: Arm,
    /// The run's secret.
    pub nonce: Nonce,
    /// The row of the suite.
    pub probe: ProbeName,
    /// SHA-256 of the suite's blob.
    pub suite: Hash,
    /// Ends it early. Signals to this process are not for a probe: it may be one of several that run side by side.
    pub stop: Arc<Stop>,
    /// Called once, when the tree is dead.
    pub observe: &'a mut dyn FnMut(&Printed<'_>) -> Vec<Observation>,
}

/// A run of a probe as it was seen from outside.
#[derive(Debug)]
pub struct Printed<'a> {
    /// The first mebibyte of its standard output.
    pub stdout: &'a [u8],
    /// The same of its standard error.
    pub stderr: &'a [u8],
    /// Whether the end of the kernel's pid namespace ended the whole tree.
    pub tree_ended: bool,
    /// How long after its deadline the runner saw that it was over; absent where the runner kept no deadline.
    pub late: Option<Duration>,
    /// Streams that passed their cap.
    pub cut: &'a [Stream],
    /// What was asked and what was in force.
    pub controls: &'a Controls,
    /// What will be recorded of the run.
    pub execution: &'a Execution,
}

/// A run of a probe as it is recorded, with its lines, which the record may keep in a blob.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The body of the record, its list of lines as it stands there.
    pub run: ProbeRun,
    /// The lines.
    pub lines: Vec<String>,
    /// The runtime as its start record says it.
    pub runtime: RuntimeUsed,
}

/// Begins the one line that is kept of a probe that printed none: the last of its standard error.
pub const STDERR: &str = "stderr: ";

/// What a probe printed, line by line; without any line, the last one of its standard error.
pub(super) fn lines(stdout: &[u8], stderr: &[u8]) -> Vec<String> {
    let whole = |bytes: &'_ [u8]| -> Vec<String> {
        let lines = bytes.split(|byte| *byte == b'\n');
        lines
            .filter(|line| !line.is_empty())
            .map(|line| {
                let shown = line.get(..MAX_PROBE_LINE_BYTES).unwrap_or(line);
                let mut text = escape_bytes(shown);
                if shown.len() < line.len() {
                    text.push_str(&format!("… ({} bytes)", line.len()));
                }
                text
            })
            .collect()
    };
    let mut all = whole(stdout);
    if all.is_empty() {
        let last = whole(stderr).pop();
        return last
            .map(|line| format!("{STDERR}{line}"))
            .into_iter()
            .collect();
    }
    let more = all.len().saturating_sub(MAX_LINES);
    if more > 0 {
        all.truncate(MAX_LINES);
        all.push(format!("… {more} more lines"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_as_they_are_and_what_is_left_out_is_said() {
        assert_eq!(lines(b"a\n\nb\\\xff\n", b"err"), ["a", r"b\x5c\xff"]);
        assert_eq!(lines(b"", b"one\ntwo\n"), ["stderr: two"]);
        assert!(lines(b"", b"").is_empty());
        let many = lines(&b"x\n".repeat(600), b"");
        assert_eq!(many.len(), MAX_LINES + 1);
        assert_eq!(many.last().unwrap(), "… 88 more lines");
        let long = lines(&[b'y'; 3_000], b"");
        assert!(long[0].ends_with("… (3000 bytes)"), "{}", long[0]);
    }
}
