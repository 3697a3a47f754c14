//! A matrix as it is shown: the same table and the same document from whoever measured and from whoever checked.
//!
//! ```text
//! matrix 57  policy containment-audit, uid 0, Linux 6.18.0 x86_64
//!
//!                             embedded          native
//! network/tcp4                ✓ contained       ○ escaped
//! memory/touch                ✗ false-guarantee ? inconclusive
//!
//! ✗ false-guarantee, embedded, declared
//!   why  the attack succeeded although the runtime declares the control
//!   do   do not rely on it here; `verify explain false-guarantee`
//!     memory/touch              peak memory: changed
//! ```
//!
//! No colours here: whoever has them gives a function that paints.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::advice;
use super::{CellReason, CellVerdict};
use crate::bytes::hash::Hash;
use crate::bytes::text::{clean_json, excerpt};
use crate::facts::execution::{PolicyRef, RuntimeUsed};
use crate::facts::host::HostFacts;

pub use super::advice::Tone;

/// `schema` of the document.
pub const MATRIX_SCHEMA: &str = "runner/matrix/v1";

/// Columns that a table takes at most.
const WIDTH: usize = 80;
/// Columns of a check's id.
const CHECK: usize = 28;
/// Columns of a runtime: glyph, space, the longest verdict, space.
const RUNTIME: usize = 17;

/// A matrix with its verdicts.
#[derive(Clone, Debug)]
pub struct Table {
    /// The host on which it was measured.
    pub host: HostFacts,
    /// The policy under which the probes ran.
    pub policy: PolicyRef,
    /// The cells, by runtime and check in the order of the suite.
    pub rows: Vec<Row>,
    /// The runtimes as their runs were started, each once.
    pub runtimes: Vec<RuntimeUsed>,
    /// Sequence of the matrix record; absent before there is one.
    pub sequence: Option<u64>,
    /// SHA-256 of the suite's blob.
    pub suite: Hash,
}

/// One check in one runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The check, such as `network/tcp4`.
    pub check: String,
    /// Whether the runtime declared the control.
    pub declared: bool,
    /// What led to the verdict.
    pub detail: String,
    /// Why it is not a plain one.
    pub reason: Option<CellReason>,
    /// The runtime.
    pub runtime: String,
    /// Why the runtime does not declare the control, where that is known.
    pub undeclared: Option<String>,
    /// What was found.
    pub verdict: CellVerdict,
}

impl Row {
    /// The control of the check: what stands before its slash.
    #[must_use]
    pub fn dimension(&self) -> &str {
        self.check.split('/').next().unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    host: &'a HostFacts,
    cells: Vec<CellDocument<'a>>,
    summary: Summary<'a>,
}

#[derive(Serialize)]
struct CellDocument<'a> {
    runtime: &'a str,
    dimension: &'a str,
    check: &'a str,
    declared: bool,
    verdict: CellVerdict,
    reason: Option<CellReason>,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    undeclared: Option<&'a str>,
}

#[derive(Serialize)]
struct Summary<'a> {
    sequence: Option<u64>,
    policy: &'a PolicyRef,
    suite: Hash,
    runtimes: BTreeMap<&'a str, BTreeMap<&'static str, u64>>,
}

impl Table {
    /// The document `runner/matrix/v1`: one line of JSON, with its newline.
    ///
    /// # Errors
    /// None that these types can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let cells = self.rows.iter().map(|row| CellDocument {
            runtime: &row.runtime,
            dimension: row.dimension(),
            check: &row.check,
            declared: row.declared,
            verdict: row.verdict,
            reason: row.reason,
            detail: &row.detail,
            undeclared: row.undeclared.as_deref(),
        });
        let mut runtimes = BTreeMap::<_, BTreeMap<_, u64>>::new();
        for row in &self.rows {
            let counts = runtimes.entry(row.runtime.as_str()).or_default();
            *counts.entry(row.verdict.as_str()).or_default() += 1;
        }
        let document = Document {
            schema: MATRIX_SCHEMA,
            host: &self.host,
            cells: cells.collect(),
            summary: Summary {
                sequence: self.sequence,
                policy: &self.policy,
                suite: self.suite,
                runtimes,
            },
        };
        Ok(clean_json(&serde_json::to_string(&document)?) + "\n")
    }

    /// The table for people, in 80 columns, `paint`ed: what is measured first, then each cell that is not contained,
    /// why, and what to do.
    #[must_use]
    pub fn to_text(&self, paint: &dyn Fn(Tone, &str) -> String) -> String {
        let mut text = Text {
            text: String::new(),
            paint,
        };
        // Writing to a String cannot fail.
        let _ = text.head(self);
        let _ = text.grid(self);
        let _ = text.open_cells(self);
        text.text
    }
}

struct Text<'a> {
    text: String,
    paint: &'a dyn Fn(Tone, &str) -> String,
}

impl Text<'_> {
    fn head(&mut self, table: &Table) -> fmt::Result {
        let name = table
            .sequence
            .map_or_else(|| "matrix".to_owned(), |it| format!("matrix {it}"));
        let host = &table.host;
        writeln!(
            self.text,
            "{name}  policy {}, uid {}, Linux {} {}",
            excerpt(&table.policy.id, 24),
            host.uid,
            excerpt(&host.kernel, 16),
            excerpt(&host.architecture, 8)
        )
    }

    fn grid(&mut self, table: &Table) -> fmt::Result {
        let mut checks = Vec::new();
        let mut runtimes = Vec::new();
        let mut cells = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for row in &table.rows {
            let (check, runtime) = (row.check.as_str(), row.runtime.as_str());
            if seen.insert(("check", check)) {
                checks.push(check);
            }
            if seen.insert(("runtime", runtime)) {
                runtimes.push(runtime);
            }
            cells.insert((check, runtime), row.verdict);
        }
        for runtimes in runtimes.chunks((WIDTH - CHECK) / (RUNTIME + 1)) {
            let mut line = " ".repeat(CHECK);
            for runtime in runtimes {
                line.push_str(&format!("{:<RUNTIME$} ", excerpt(runtime, RUNTIME)));
            }
            writeln!(self.text, "\n{}", line.trim_end())?;
            for check in &checks {
                let mut line = format!("{:<CHECK$}", excerpt(check, CHECK - 1));
                let last = runtimes.len().saturating_sub(1);
                for (at, runtime) in runtimes.iter().enumerate() {
                    let cell = cells.get(&(*check, *runtime)).map_or_else(
                        || (Tone::Plain, "not measured".to_owned()),
                        |verdict| (verdict.tone(), format!("{} {verdict}", verdict.glyph())),
                    );
                    line.push_str(&(self.paint)(cell.0, &cell.1));
                    if at != last {
                        let used = cell.1.chars().count();
                        line.push_str(&" ".repeat((RUNTIME + 1).saturating_sub(used)));
                    }
                }
                writeln!(self.text, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }

    /// Cells of one runtime that are open for one reason stand together.
    fn open_cells(&mut self, table: &Table) -> fmt::Result {
        let mut groups = BTreeMap::<_, Vec<&Row>>::new();
        for row in &table.rows {
            if row.verdict != CellVerdict::Contained {
                let place = match row.verdict {
                    CellVerdict::FalseGuarantee => 0,
                    CellVerdict::Inconclusive => 1,
                    CellVerdict::Escaped | CellVerdict::Contained => 2,
                    CellVerdict::NotApplicable => 3,
                };
                let declared = match (row.declared, &row.undeclared) {
                    (true, _) => "declared".to_owned(),
                    (false, Some(why)) => format!("not declared: {}", excerpt(why, 30)),
                    (false, None) => "not declared".to_owned(),
                };
                let key = (place, &row.runtime, row.reason, declared);
                groups.entry(key).or_default().push(row);
            }
        }
        for ((_, runtime, reason, declared), rows) in groups {
            let Some(first) = rows.first() else { continue };
            let verdict = first.verdict;
            let mut title = format!("{} {verdict}", verdict.glyph());
            if let Some(reason) = reason {
                title.push_str(&format!(": {reason}"));
            }
            let title = (self.paint)(verdict.tone(), &title);
            writeln!(self.text, "\n{title}, {}, {declared}", excerpt(runtime, 24))?;
            let (why, what) = advice::of(verdict, reason);
            self.wrapped("why", why)?;
            self.wrapped("do", what)?;
            for row in rows {
                let check = excerpt(&row.check, CHECK - 4);
                let width = CHECK - 3;
                let detail = excerpt(&row.detail, WIDTH - CHECK - 1);
                let line = format!("    {check:<width$}{detail}");
                writeln!(self.text, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }

    fn wrapped(&mut self, name: &str, words: &str) -> fmt::Result {
        let mut line = format!("  {name:<4}");
        for word in words.split(' ') {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                writeln!(self.text, "{line}")?;
                line = " ".repeat(6);
            }
            line.push(' ');
            line.push_str(word);
        }
        writeln!(self.text, "{line}")
    }
}

#[cfg(test)]
mod tests;
