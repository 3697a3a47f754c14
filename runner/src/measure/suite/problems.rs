//! Everything that is wrong with a suite, each with its place: the form, the rows against each other, and the rows against
//! what the runner plants, watches and carries along.

use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::Arc;

use ledger::facts::control::Control;
use ledger::facts::suite::{Arm, Check, MAX_ROWS, Oracle, Probe, Risk, SUITE_SCHEMA, Suite};
use miette::{NamedSource, SourceSpan};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::rules::{Mistake, OBJECTS, mistakes};
use crate::runtime::document::list_for_object;

/// One mistake in a suite; rendered by miette it shows the line.
#[derive(Clone, Debug, thiserror::Error, miette::Diagnostic)]
#[error("found {found}, expected {expected}")]
#[diagnostic(code(runner::suite::problem), help("docs/probes.md describes suites"))]
pub struct Problem {
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
    /// The line, from 1 on.
    pub line: usize,
    #[source_code]
    source_code: Arc<NamedSource<String>>,
    #[label("here")]
    span: SourceSpan,
}

/// Whether a check of a control can be seen so: what is planted for the control has something for that oracle to look at.
#[must_use]
pub fn has_oracle(control: Control, oracle: Oracle) -> bool {
    let of: &[Control] = match oracle {
        Oracle::Line => Control::ALL,
        Oracle::Listener => &[
            Control::Network,
            Control::Process,
            Control::User,
            Control::Ipc,
            Control::Descriptors,
            Control::Terminal,
        ],
        Oracle::Secret => &[
            Control::Filesystem,
            Control::Environment,
            Control::Descriptors,
        ],
        Oracle::Canary => &[Control::Filesystem],
        Oracle::Signal => &[Control::Process],
        Oracle::Host => &[
            Control::Process,
            Control::Timeout,
            Control::Output,
            Control::User,
            Control::Terminal,
        ],
    };
    of.contains(&control)
}

/// What is wrong with a suite of the runner's own probes, third parties' programs, which stand in `folder`, or both; `own` is
/// the table of the runner's own.
#[must_use]
pub fn problems(name: &str, text: &str, folder: &Path, own: &Suite) -> Vec<Problem> {
    let mut reader = Reader::new(name, text);
    if let Some(at) = list_for_object(text, &OBJECTS) {
        reader.say(at..at + 1, "a list".to_owned(), "an object".to_owned());
        return reader.problems;
    }
    let suite: Suite = match serde_json::from_str(text) {
        Ok(suite) => suite,
        Err(error) => {
            reader.syntax(&error);
            return reader.problems;
        }
    };
    // What can be read as a suite can be read as its places.
    let Ok(places) = serde_json::from_str::<SuitePlaces<'_>>(text) else {
        return reader.problems;
    };
    reader.suite(&suite, &places, folder, own);
    reader.problems
}

/// What the runner's own suite leaves out: a control without a check is one of which nobody can say whether it holds.
#[must_use]
pub fn without_a_check(name: &str, text: &str, suite: &Suite) -> Vec<Problem> {
    let mut reader = Reader::new(name, text);
    let whole = text.trim_end();
    for control in Control::ALL {
        if suite.probes.iter().all(|probe| probe.control != *control) {
            let last = whole.len().saturating_sub(1)..whole.len();
            let found = format!("no probe that attacks {control}");
            reader.say(last, found, "one for each control".to_owned());
        }
    }
    reader.problems
}

/// Where the parts of a suite stand: each is a piece of the text.
#[derive(Deserialize)]
struct SuitePlaces<'a> {
    #[serde(borrow)]
    schema: &'a RawValue,
    probes: Vec<ProbePlaces<'a>>,
}

#[derive(Deserialize)]
struct ProbePlaces<'a> {
    #[serde(borrow)]
    arguments: &'a RawValue,
    arms: &'a RawValue,
    checks: Vec<CheckPlaces<'a>>,
    id: &'a RawValue,
    #[serde(default)]
    program: Option<&'a RawValue>,
    risk: &'a RawValue,
}

#[derive(Deserialize)]
struct CheckPlaces<'a> {
    #[serde(borrow)]
    check: &'a RawValue,
    denied: &'a RawValue,
    #[serde(default)]
    needs: Option<&'a RawValue>,
    oracle: &'a RawValue,
    twin: &'a RawValue,
}

struct Reader<'a> {
    text: &'a str,
    source: Arc<NamedSource<String>>,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn new(name: &str, text: &'a str) -> Self {
        let source = NamedSource::new(name, text.to_owned()).with_language("JSON");
        Self {
            text,
            source: Arc::new(source),
            problems: Vec::new(),
        }
    }

    fn say(&mut self, span: std::ops::Range<usize>, found: String, expected: String) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        self.problems.push(Problem {
            found,
            expected,
            line: before.matches('\n').count() + 1,
            source_code: Arc::clone(&self.source),
            span: span.into(),
        });
    }

    /// About a piece of the text.
    fn at(&mut self, piece: &RawValue, found: impl Into<String>, expected: impl Into<String>) {
        let start = piece.get().as_ptr().addr() - self.text.as_ptr().addr();
        let span = start..start + piece.get().len();
        self.say(span, found.into(), expected.into());
    }

    fn line_of(&self, piece: &RawValue) -> usize {
        let start = piece.get().as_ptr().addr() - self.text.as_ptr().addr();
        let before = self.text.get(..start).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }

    /// serde_json knows a line and a column, which is a byte of the line, and says what it expected.
    fn syntax(&mut self, error: &serde_json::Error) {
        let lines = self.text.split_inclusive('\n');
        let before: usize = lines
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum();
        let mut at = (before + error.column().saturating_sub(1)).min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let length = self.text.get(at..).and_then(|rest| rest.chars().next());
        let whole = error.to_string();
        let (what, _) = whole.rsplit_once(" at line ").unwrap_or((&whole, ""));
        let (found, expected) = what.split_once(", expected ").unwrap_or((what, "a suite"));
        let found = found.strip_prefix("found ").unwrap_or(found);
        let span = at..at + length.map_or(0, char::len_utf8);
        self.say(span, found.to_owned(), expected.to_owned());
    }

    fn suite(&mut self, suite: &Suite, places: &SuitePlaces<'_>, folder: &Path, own: &Suite) {
        if suite.schema != SUITE_SCHEMA {
            self.at(
                places.schema,
                format!("the schema {}", places.schema),
                format!("{SUITE_SCHEMA:?}"),
            );
        }
        let count = suite.probes.len();
        if !(1..=MAX_ROWS).contains(&count) {
            let whole = 0..self.text.len().min(1);
            let expected = format!("1 to {MAX_ROWS}");
            self.say(whole, format!("{count} probes"), expected);
        }
        let (mut ids, mut checks) = (BTreeMap::new(), BTreeMap::new());
        for (probe, place) in suite.probes.iter().zip(&places.probes) {
            let line = self.line_of(place.id);
            if let Some(first) = ids.insert(probe.id.to_string(), line) {
                let found = format!("the probe {} again", probe.id);
                self.at(
                    place.id,
                    found,
                    format!("each once; the first is in line {first}"),
                );
            }
            self.probe(probe, place);
            if let Some(program) = &probe.program {
                self.program(&program.path, place, folder);
            }
            for (check, place) in probe.checks.iter().zip(&place.checks) {
                let (id, line) = (probe.check_id(check), self.line_of(place.check));
                if let Some(first) = checks.insert(id.clone(), line) {
                    let expected = format!("each once; the first is in line {first}");
                    self.at(place.check, format!("the check {id} again"), expected);
                }
                self.check(probe.control, check, place);
            }
        }
        for mistake in mistakes(suite, own) {
            if let Some(piece) = place_of(&mistake, places) {
                self.at(piece, mistake.found, mistake.expected);
            }
        }
    }

    fn probe(&mut self, probe: &Probe, place: &ProbePlaces<'_>) {
        let count = probe.checks.len();
        if !(1..=MAX_ROWS).contains(&count) {
            let found = format!("{count} checks of probe {}", probe.id);
            self.at(place.id, found, format!("1 to {MAX_ROWS}"));
        }
        let has = |arm| probe.arms.contains(&arm);
        if !has(Arm::Run) {
            let found = format!("the arms {}", shown(place.arms));
            self.at(
                place.arms,
                found,
                "`run` among them: it is what a verdict is about",
            );
        }
        for arm in Arm::ALL {
            if probe.arms.iter().filter(|it| *it == arm).count() > 1 {
                let found = format!("the arm {arm} again");
                self.at(place.arms, found, "each once");
            }
        }
        if probe.risk == Risk::ResourceAbuse && has(Arm::Baseline) {
            let expected = "none: what uses something up is never run bare";
            self.at(
                place.arms,
                "the arm baseline with the risk resource-abuse",
                expected,
            );
        }
        // The word of a third party is never a measurement, whatever other arms show.
        if probe.is_own() && !has(Arm::Baseline) && !has(Arm::Ablation) {
            let expected =
                "baseline or ablation beside it: nothing else shows that the attack can succeed";
            self.at(
                place.arms,
                format!("the arms {}", shown(place.arms)),
                expected,
            );
        }
    }

    fn check(&mut self, control: Control, check: &Check, place: &CheckPlaces<'_>) {
        if check.denied.is_empty() {
            let found = format!("no denied error for the check {}", check.check);
            let expected = "the names with which a refusal ends, `none` where it ends without one";
            self.at(place.denied, found, expected);
        }
        if !has_oracle(control, check.oracle) {
            let can = Oracle::ALL.iter().filter(|it| has_oracle(control, **it));
            let can: Vec<_> = can.map(ToString::to_string).collect();
            let found = format!("the oracle {} for a check of {control}", check.oracle);
            self.at(place.oracle, found, format!("one of {}", can.join(", ")));
        }
    }

    /// A third party's program, which must be there and executable.
    fn program(&mut self, path: &str, place: &ProbePlaces<'_>, folder: &Path) {
        use std::os::unix::fs::PermissionsExt as _;
        let Some(place) = place.program else { return };
        let mut parts = Path::new(path).components();
        if path.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            let expected = "a file below the suite's folder, without `..`";
            self.at(place, format!("the program {path:?}"), expected);
            return;
        }
        let file = folder.join(path);
        let (found, expected) = match std::fs::metadata(&file) {
            Err(error) => {
                let errno = crate::sys::errno_name(&error);
                (format!("{errno} for {}", file.display()), "a program there")
            }
            Ok(facts) if !facts.is_file() => (
                format!("no regular file at {}", file.display()),
                "a program there",
            ),
            Ok(facts) if facts.permissions().mode() & 0o111 == 0 => (
                format!("no right to execute {}", file.display()),
                "one (chmod +x): it is started as it is",
            ),
            Ok(_) => return,
        };
        self.at(place, found, expected);
    }
}

/// Where the field of a mistake stands.
fn place_of<'a>(mistake: &Mistake, places: &SuitePlaces<'a>) -> Option<&'a RawValue> {
    let row = places.probes.get(mistake.row)?;
    let Some(check) = mistake.check else {
        return Some(match mistake.field {
            "arguments" => row.arguments,
            "arms" => row.arms,
            "risk" => row.risk,
            _ => row.id,
        });
    };
    let check = row.checks.get(check)?;
    Some(match mistake.field {
        "denied" => check.denied,
        "needs" => check.needs.unwrap_or(check.check),
        "oracle" => check.oracle,
        "twin" => check.twin,
        _ => check.check,
    })
}

/// A piece of the text on one line, cut where it is long.
fn shown(piece: &RawValue) -> String {
    let words: Vec<_> = piece.get().split_whitespace().collect();
    ledger::bytes::text::excerpt(&words.join(" "), 80)
}

#[cfg(test)]
mod tests;
