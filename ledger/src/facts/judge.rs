//! **Judge**: from what was recorded of a check to its verdict. Pure and total: the runner that fills a matrix and the
//! verifier that checks it call the same function on the same facts (PROBES.md §1).
//!
//! ```text
//! escaped        the controller saw it, or nobody outside can and a line bound to the run says so
//! contained      refused with an expected error AND the controller, whose instrument worked, saw nothing
//!                AND the twin succeeded AND the attack escapes bare or without this control
//! anything else  inconclusive, or not applicable where a fact of the host explains it
//! ```

use super::execution::{NotExecuted, Outcome};
use super::host::HostFacts;
use super::matrix::{CellReason, CellVerdict};
use super::measurement::{Observation, ProbeRun, Saw, proof};
use super::probe::{ProbeLine, ProbeResult, Twin};
use super::suite::{Check, MODULES, Oracle, Probe, TwinKind};

/// One run of a probe, with its lines, which a record may keep in a blob.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The body of its record.
    pub run: &'a ProbeRun,
    /// What it printed.
    pub lines: &'a [String],
}

/// What is to be judged: one check in one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The row of the suite.
    pub probe: &'a Probe,
    /// Its check.
    pub check: &'a Check,
    /// The host.
    pub host: &'a HostFacts,
    /// Whether the start of the arm `run` declares the control.
    pub declared: bool,
    /// The runtime.
    pub runtime: &'a str,
    /// The arm without a sandbox.
    pub baseline: Option<Seen<'a>>,
    /// The arm without this control.
    pub ablation: Option<Seen<'a>>,
    /// The arm that is judged.
    pub run: Option<Seen<'a>>,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What was found.
    pub verdict: CellVerdict,
    /// Why it is not a plain one.
    pub reason: Option<CellReason>,
    /// What led to it, for people.
    pub detail: String,
}

/// What one arm shows.
enum Sight {
    Escaped(String),
    Contained(String),
    Neither(CellReason, String),
}

/// Judges.
#[must_use]
pub fn judge(question: &Question<'_>) -> Judged {
    let inconclusive = |reason, detail: String| Judged {
        verdict: CellVerdict::Inconclusive,
        reason: Some(reason),
        detail,
    };
    let not_applicable = |reason, detail: String| Judged {
        verdict: CellVerdict::NotApplicable,
        reason: Some(reason),
        detail,
    };
    if question.runtime == MODULES && !question.check.module && question.probe.is_own() {
        let text = "the suite's module does not try it".to_owned();
        return not_applicable(CellReason::RuntimeRunsNoPrograms, text);
    }
    let Some(run) = question.run else {
        return inconclusive(CellReason::NoOutput, "it was not run".to_owned());
    };
    let result = &run.run.execution.result;
    if result.outcome == Outcome::NotExecuted {
        let detail = match result.reason {
            Some(NotExecuted::Refused) => {
                let text = "the runtime cannot do what the policy asks for".to_owned();
                return not_applicable(CellReason::PlanRefused, text);
            }
            Some(reason) => format!("the probe was not executed: {reason:?}"),
            None => "the probe was not executed".to_owned(),
        };
        return inconclusive(CellReason::InstrumentMissing, detail);
    }
    let sight = look(question, run);
    if let Sight::Escaped(detail) = sight {
        return Judged {
            verdict: if question.declared {
                CellVerdict::FalseGuarantee
            } else {
                CellVerdict::Escaped
            },
            reason: None,
            detail,
        };
    }
    // Whatever it says: it is not a program of ours.
    if !question.probe.is_own() {
        let detail = match sight {
            Sight::Contained(detail) | Sight::Neither(_, detail) | Sight::Escaped(detail) => detail,
        };
        return inconclusive(CellReason::SelfReported, detail);
    }
    let arms = [question.baseline, question.ablation].map(|arm| {
        arm.filter(|arm| arm.run.execution.result.outcome != Outcome::NotExecuted)
            .map(|arm| look(question, arm))
    });
    let can_escape = arms
        .iter()
        .any(|arm| matches!(arm, Some(Sight::Escaped(_))));
    if !can_escape {
        let missing = question
            .check
            .needs
            .iter()
            .find_map(|need| need.missing_on(question.host));
        if let Some(fact) = missing {
            return not_applicable(CellReason::HostForbids, fact);
        }
    }
    match (sight, arms) {
        (Sight::Neither(reason, detail), _) => inconclusive(reason, detail),
        (Sight::Contained(detail) | Sight::Escaped(detail), _) if can_escape => Judged {
            verdict: CellVerdict::Contained,
            reason: None,
            detail,
        },
        (_, [Some(Sight::Contained(detail)), _]) => {
            inconclusive(CellReason::BaselineContained, detail)
        }
        (_, [_, Some(Sight::Contained(detail))]) => {
            inconclusive(CellReason::AblationContained, detail)
        }
        (
            _,
            [Some(Sight::Neither(reason, detail)), _] | [_, Some(Sight::Neither(reason, detail))],
        ) => {
            let detail = format!("no arm escaped: {reason}, {detail}");
            inconclusive(CellReason::NotCalibrated, detail)
        }
        (_, _) => inconclusive(CellReason::NotCalibrated, "no other arm was run".to_owned()),
    }
}

fn look(question: &Question<'_>, seen: Seen<'_>) -> Sight {
    let check = question.check;
    let id = question.probe.check_id(check);
    let mut observations = seen
        .run
        .controller
        .iter()
        .filter(|observation| observation.check == id);
    let observed = observations.clone().next();
    if let Some(escape) = observations.find(|observation| is_escape(observation)) {
        let expected = escape.expected.as_deref().unwrap_or("the controller");
        return Sight::Escaped(format!("{expected}: {}", escape.saw));
    }
    let line = match own_line(question, seen, &id) {
        Ok(line) => line,
        Err(detail) => return Sight::Neither(CellReason::NoOutput, detail),
    };
    let errno = line
        .errno
        .as_ref()
        .map_or_else(|| "none".to_owned(), ToString::to_string);
    let said = line
        .detail
        .as_ref()
        .map_or_else(String::new, |detail| format!(", {detail}"));
    let detail = format!("{errno}{said}");
    let outside = check.oracle != Oracle::Line;
    let works = observed.is_some_and(|observed| {
        observed.alive_before && observed.alive_after && observed.saw != Saw::Unavailable
    });
    match line.result {
        ProbeResult::Error => {
            let names = |reason: CellReason| {
                let text = line.detail.as_ref().map(ToString::to_string);
                text.is_some_and(|text| text.starts_with(reason.as_str()))
            };
            let reason = if names(CellReason::PathPresent) {
                CellReason::PathPresent
            } else {
                CellReason::InstrumentMissing
            };
            Sight::Neither(reason, detail)
        }
        ProbeResult::Escaped if !outside => Sight::Escaped(detail),
        _ if outside && !works => Sight::Neither(CellReason::OracleUnavailable, detail),
        ProbeResult::Escaped => Sight::Neither(CellReason::OracleDisagrees, detail),
        ProbeResult::Contained => {
            let expected = line
                .errno
                .as_ref()
                .is_some_and(|errno| check.denied.contains(errno));
            if !expected {
                return Sight::Neither(CellReason::UnexpectedError, detail);
            }
            let twin = match check.twin {
                TwinKind::Allowed => line.twin == Some(Twin::Ok),
                // What shows that the probe ran is the line's proof; the listener is among `works`.
                TwinKind::Instrument => true,
            };
            if twin {
                Sight::Contained(detail)
            } else {
                Sight::Neither(CellReason::TwinFailed, detail)
            }
        }
    }
}

const fn is_escape(observation: &Observation) -> bool {
    matches!(observation.saw, Saw::Nonce | Saw::Changed | Saw::Signal)
}

/// The one line about this check that is bound to this run.
fn own_line(question: &Question<'_>, seen: Seen<'_>, id: &str) -> Result<ProbeLine, String> {
    let (mut found, mut unbound, mut malformed) = (Vec::new(), 0, 0);
    for text in seen.lines {
        let Ok(line) = text.parse::<ProbeLine>() else {
            malformed += 1;
            continue;
        };
        if line.probe != question.probe.id || line.check_id().as_deref() != Some(id) {
            continue;
        }
        if !question.probe.is_own() || is_bound(&line, seen.run, id) {
            found.push(line);
        } else {
            unbound += 1;
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let outcome = seen.run.execution.result.outcome;
            Err(format!(
                "no line about it that is bound to this run ({unbound} not bound, {malformed} malformed; {outcome:?})"
            ))
        }
        more => Err(format!("{more} lines about it")),
    }
}

fn is_bound(line: &ProbeLine, run: &ProbeRun, id: &str) -> bool {
    match (&line.nonce, &line.errno, line.twin, &line.detail) {
        (Some(nonce), Some(errno), Some(twin), Some(detail)) => {
            nonce.to_string() == proof(&run.nonce, id, line.result, errno, twin, detail)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
