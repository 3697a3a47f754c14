//! What `--strict` and `--require` make of a matrix: pure, over its cells.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use ledger::facts::control::Control;
use ledger::facts::matrix::{Cell, CellReason, CellVerdict};

/// `[RUNTIME:]CHECK|CONTROL=VERDICT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Of this runtime alone.
    pub runtime: Option<String>,
    /// A check (`network/tcp4`) or a control, which stands for all its checks.
    pub target: String,
    /// What must have been found.
    pub verdict: CellVerdict,
}

/// A text that is no requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRequirementError {
    /// No `=`.
    #[error(
        "{0:?} has no `=`; expected [RUNTIME:]CHECK|CONTROL=VERDICT, such as network=contained"
    )]
    Form(String),
    /// No such verdict.
    #[error("unknown verdict {found:?}; expected one of {expected}")]
    Verdict {
        /// What was found.
        found: String,
        /// All of them.
        expected: String,
    },
    /// No control of this name.
    #[error("{0}; a check is CONTROL/CHECK, such as network/tcp4")]
    Target(ledger::facts::control::UnknownControl),
    /// Nothing stands before a `:` or behind a `/`.
    #[error(
        "{0:?} has no {1}; expected [RUNTIME:]CHECK|CONTROL=VERDICT, such as embedded:network/tcp4=contained"
    )]
    Empty(String, &'static str),
}

/// What a requirement asks for and nobody will measure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownCellError {
    /// Of the runtime.
    #[error("{requirement}: {runtime} is not measured; measured are {measured}")]
    Runtime {
        /// Whose it is.
        requirement: String,
        /// What it names.
        runtime: String,
        /// All that are.
        measured: String,
    },
    /// Of the check or the control.
    #[error("{requirement}: the suite has no check of {target}{known}")]
    Target {
        /// Whose it is.
        requirement: String,
        /// What it names.
        target: String,
        /// `; of network it has …`, where it has any of that control.
        known: String,
    },
}

impl FromStr for Requirement {
    type Err = ParseRequirementError;

    fn from_str(text: &str) -> Result<Self, ParseRequirementError> {
        let (subject, verdict) = text
            .rsplit_once('=')
            .ok_or_else(|| ParseRequirementError::Form(text.to_owned()))?;
        let (runtime, target) = match subject.split_once(':') {
            Some((runtime, target)) => (Some(runtime.to_owned()), target),
            None => (None, subject),
        };
        let empty = |what| ParseRequirementError::Empty(text.to_owned(), what);
        if runtime.as_ref().is_some_and(String::is_empty) {
            return Err(empty("runtime before its `:`"));
        }
        let known = control_of(target).parse::<Control>();
        known.map_err(ParseRequirementError::Target)?;
        if target.ends_with('/') {
            return Err(empty("check behind its `/`"));
        }
        let found = CellVerdict::ALL
            .iter()
            .find(|known| known.as_str() == verdict);
        let verdict = *found.ok_or_else(|| {
            let all: Vec<_> = CellVerdict::ALL
                .iter()
                .map(|known| known.as_str())
                .collect();
            ParseRequirementError::Verdict {
                found: verdict.to_owned(),
                expected: all.join(", "),
            }
        })?;
        Ok(Self {
            runtime,
            target: target.to_owned(),
            verdict,
        })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(runtime) = &self.runtime {
            write!(f, "{runtime}:")?;
        }
        write!(f, "{}={}", self.target, self.verdict)
    }
}

fn control_of(check: &str) -> &str {
    check.split('/').next().unwrap_or_default()
}

impl Requirement {
    /// Holds it against what is going to be measured: the runtimes that were named, installed or not, and the checks of the
    /// suite.
    ///
    /// # Errors
    /// No cell can be meant.
    pub fn is_measurable(
        &self,
        runtimes: &[String],
        checks: &[&str],
    ) -> Result<(), UnknownCellError> {
        if let Some(runtime) = &self.runtime
            && !runtimes.contains(runtime)
        {
            return Err(UnknownCellError::Runtime {
                requirement: self.to_string(),
                runtime: runtime.clone(),
                measured: runtimes.join(", "),
            });
        }
        if checks.iter().any(|check| self.is_about(check)) {
            return Ok(());
        }
        let control = control_of(&self.target);
        let siblings = checks.iter().filter(|check| control_of(check) == control);
        let known: Vec<&str> = siblings.copied().collect();
        Err(UnknownCellError::Target {
            requirement: self.to_string(),
            target: self.target.clone(),
            known: match known.as_slice() {
                [] => String::new(),
                known => format!("; of {control} it has {}", known.join(", ")),
            },
        })
    }

    fn is_about(&self, check: &str) -> bool {
        check == self.target || control_of(check) == self.target
    }

    /// Why it is missed; `None` when it holds. `contained`: every check that applies, and at least one; any other verdict: at
    /// least one.
    #[must_use]
    pub fn missed(&self, cells: &[Cell]) -> Option<String> {
        let named = |cell: &&Cell| {
            self.runtime
                .as_ref()
                .is_none_or(|runtime| *runtime == cell.runtime)
                && self.is_about(&cell.check)
        };
        let cells: Vec<&Cell> = cells.iter().filter(named).collect();
        if cells.is_empty() {
            return Some(format!("{self}: no such cell was measured"));
        }
        if self.verdict != CellVerdict::Contained {
            let found = cells.iter().any(|cell| cell.verdict == self.verdict);
            return (!found).then(|| format!("{self}: {}", found_instead(&cells)));
        }
        let applicable: Vec<&Cell> = cells
            .into_iter()
            .filter(|cell| cell.verdict != CellVerdict::NotApplicable)
            .collect();
        if applicable.is_empty() {
            return Some(format!("{self}: no check applies here"));
        }
        let others: Vec<&Cell> = applicable
            .into_iter()
            .filter(|cell| cell.verdict != CellVerdict::Contained)
            .collect();
        (!others.is_empty()).then(|| format!("{self}: {}", found_instead(&others)))
    }
}

fn found_instead(cells: &[&Cell]) -> String {
    let said: Vec<String> = cells
        .iter()
        .map(|cell| match cell.reason {
            Some(reason) => format!(
                "{} {} is {} ({reason})",
                cell.runtime, cell.check, cell.verdict
            ),
            None => format!("{} {} is {}", cell.runtime, cell.check, cell.verdict),
        })
        .collect();
    said.join(", ")
}

/// What `--strict` objects to: a false guarantee, a declared control of which no check came to a result, a runtime of those
/// that are available of which nothing did. What only the host forbids is no objection, and neither is an escape
/// that nobody declared to be impossible.
#[must_use]
pub fn objections(cells: &[Cell], available: &[String]) -> Vec<String> {
    let mut objections = Vec::new();
    for cell in cells {
        if cell.verdict == CellVerdict::FalseGuarantee {
            objections.push(format!(
                "{} declares {} and does not contain {}",
                cell.runtime,
                control_of(&cell.check),
                cell.check
            ));
        }
    }
    let mut unmeasured = BTreeSet::new();
    for runtime in available {
        let of: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.runtime == *runtime)
            .collect();
        if has_nothing(&of) && unmeasured.insert(runtime.as_str()) {
            objections.push(match of.is_empty() {
                true => format!("{runtime} is available, and nothing of it was measured"),
                false => format!("no check of {runtime} came to a result: {}", counted(&of)),
            });
        }
    }
    let declared: BTreeSet<(&str, &str)> = cells
        .iter()
        .filter(|cell| cell.declared && !unmeasured.contains(cell.runtime.as_str()))
        .map(|cell| (cell.runtime.as_str(), control_of(&cell.check)))
        .collect();
    for (runtime, control) in declared {
        let checks: Vec<&Cell> = cells
            .iter()
            .filter(|cell| cell.runtime == runtime && control_of(&cell.check) == control)
            .collect();
        if has_nothing(&checks) {
            objections.push(format!(
                "{runtime} declares {control}, and no check of it came to a result"
            ));
        }
    }
    objections
}

/// Whether none of these came to a result, though the host does not forbid them all.
fn has_nothing(cells: &[&Cell]) -> bool {
    let is_decided = |cell: &&Cell| {
        matches!(
            cell.verdict,
            CellVerdict::Contained | CellVerdict::Escaped | CellVerdict::FalseGuarantee
        )
    };
    let is_forbidden = |cell: &&Cell| cell.reason == Some(CellReason::HostForbids);
    cells.is_empty() || !(cells.iter().any(is_decided) || cells.iter().all(is_forbidden))
}

/// `31 instrument-missing, 4 not-calibrated`.
fn counted(cells: &[&Cell]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for cell in cells {
        let why = cell
            .reason
            .map_or(cell.verdict.as_str(), CellReason::as_str);
        *counts.entry(why).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .into_iter()
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str) -> Cell {
        // runtime check declared verdict [reason]
        let words: Vec<&str> = text.split(' ').collect();
        let verdict = CellVerdict::ALL
            .iter()
            .find(|known| known.as_str() == words[3]);
        let reason = words.get(4).map(|word| {
            let known = CellReason::ALL.iter().find(|known| known.as_str() == *word);
            *known.unwrap()
        });
        Cell {
            ablation: None,
            baseline: None,
            check: words[1].to_owned(),
            declared: words[2] == "declared",
            reason,
            run: None,
            runtime: words[0].to_owned(),
            verdict: *verdict.unwrap(),
        }
    }

    fn cells(list: &[&str]) -> Vec<Cell> {
        list.iter().map(|text| cell(text)).collect()
    }

    const GOOD: &str = "embedded network/tcp4 declared contained";
    const FALSE: &str = "embedded network/udp declared false-guarantee";
    const GAP: &str = "embedded memory/touch undeclared escaped";
    const OPEN: &str = "embedded network/tcp6 declared inconclusive not-calibrated";
    const FORBIDDEN: &str = "embedded network/tcp6 declared not-applicable host-forbids";
    const REFUSED: &str = "embedded network/tcp6 declared not-applicable plan-refused";
    const UNSTARTED: &str = "embedded memory/touch declared inconclusive instrument-missing";
    const UNDECLARED: &str = "embedded cpu/quota undeclared inconclusive instrument-missing";
    const SILENT: &str = "native network/tcp4 undeclared inconclusive no-output";
    const NATIVE: &str = "native network/tcp4 undeclared escaped";

    #[test]
    fn strict_is_this_table() {
        for (list, available, count) in [
            (vec![GOOD], vec!["embedded"], 0),
            (vec![GOOD, GAP], vec!["embedded"], 0),
            (vec![GOOD, FALSE], vec!["embedded"], 1),
            (vec![GOOD, OPEN], vec!["embedded"], 0),
            (vec![OPEN], vec!["embedded"], 1),
            (vec![FORBIDDEN], vec!["embedded"], 0),
            (vec![FORBIDDEN, OPEN], vec!["embedded"], 1),
            (vec![REFUSED], vec!["embedded"], 1),
            (vec![GOOD], vec!["embedded", "bwrap"], 1),
            (vec![GOOD], vec![], 0),
            (vec![], vec!["embedded"], 1),
            (vec![NATIVE], vec!["native"], 0),
            (vec![FALSE, OPEN], vec!["embedded", "bwrap"], 2),
            // Declared or not, and whatever the reason: nothing is known of it.
            (vec![SILENT], vec!["native"], 1),
            (vec![UNSTARTED, UNDECLARED], vec!["embedded"], 1),
            (vec![UNSTARTED, FORBIDDEN, OPEN], vec!["embedded"], 1),
            (vec![GOOD, SILENT], vec!["embedded", "native"], 1),
            (vec![GAP, UNDECLARED], vec!["embedded"], 0),
        ] {
            let available: Vec<String> = available.into_iter().map(str::to_owned).collect();
            let found = objections(&cells(&list), &available);
            assert_eq!(found.len(), count, "{list:?}: {found:?}");
        }
    }

    #[test]
    fn of_whom_nothing_is_known_it_is_said_why() {
        let said = objections(&cells(&[UNSTARTED, UNDECLARED, OPEN]), &["embedded".into()]);
        assert_eq!(
            said,
            ["no check of embedded came to a result: 2 instrument-missing, 1 not-calibrated"]
        );
    }

    #[test]
    fn require_is_this_table() {
        for (text, list, holds) in [
            ("network=contained", vec![GOOD], true),
            ("network=contained", vec![GOOD, FORBIDDEN], true),
            ("network=contained", vec![GOOD, OPEN], false),
            ("network=contained", vec![GOOD, FALSE], false),
            ("network=contained", vec![FORBIDDEN], false),
            ("network=contained", vec![], false),
            ("network=contained", vec![GOOD, NATIVE], false),
            ("embedded:network=contained", vec![GOOD, NATIVE], true),
            ("network/tcp4=contained", vec![GOOD, OPEN], true),
            ("native:network=escaped", vec![NATIVE], true),
            ("native:network=escaped", vec![GOOD], false),
            ("memory=escaped", vec![GOOD, GAP], true),
            ("network=false-guarantee", vec![GOOD, FALSE], true),
            ("network=false-guarantee", vec![GOOD], false),
            ("network/tcp6=not-applicable", vec![FORBIDDEN], true),
            ("network=inconclusive", vec![GOOD, OPEN], true),
        ] {
            let requirement: Requirement = text.parse().unwrap();
            assert_eq!(requirement.to_string(), text);
            let missed = requirement.missed(&cells(&list));
            assert_eq!(missed.is_none(), holds, "{text} {list:?}: {missed:?}");
        }
    }

    #[test]
    fn what_is_no_requirement_says_what_is_expected() {
        let wrong = |text: &str| text.parse::<Requirement>().unwrap_err().to_string();
        assert!(wrong("network").contains("VERDICT"));
        assert!(wrong("network=safe").contains("false-guarantee"));
        assert!(wrong("net=contained").contains("network"));
        assert!(wrong(":network=contained").contains("no runtime before"));
        assert!(wrong("network/=contained").contains("no check behind"));
    }

    #[test]
    fn what_nobody_will_measure_is_said_before_measuring() {
        let runtimes = ["embedded".to_owned(), "bwrap".to_owned()];
        let checks = ["network/tcp4", "network/dns", "files/open"];
        for (text, said) in [
            ("network=contained", None),
            ("network/dns=contained", None),
            ("bwrap:files=escaped", None),
            ("nope:files=escaped", Some("measured are embedded, bwrap")),
            ("native:network=escaped", Some("native is not measured")),
            (
                "network/tcp=contained",
                Some("it has network/tcp4, network/dns"),
            ),
            ("cpu=contained", Some("has no check of cpu")),
        ] {
            let requirement: Requirement = text.parse().unwrap();
            let found = requirement.is_measurable(&runtimes, &checks);
            match said {
                None => assert_eq!(found, Ok(()), "{text}"),
                Some(said) => {
                    let found = found.unwrap_err().to_string();
                    assert!(
                        found.contains(said) && found.contains(text),
                        "{text}: {found}"
                    );
                }
            }
        }
    }
}
