//! Two sets of matrices compared, cell by cell: what became worse, what better.
//!
//! Fingerprints come first (host record without its boot, policy, suite, runtimes): where they differ, a change of a
//! cell may be the host's and not the sandbox's. Of each runtime the newest matrix of a side counts.
//!
//! ```text
//! false-guarantee < escaped < inconclusive < contained     down this line is a regression
//! not-applicable                                           above escaped, beside the rest
//! ```
//!
//! Up from the first two to `inconclusive` is neither: nobody knows what became of the escape.
//!
//! A cell that stands on one side only is no regression, and is named.

mod launch;

use std::collections::{BTreeMap, BTreeSet};

use ledger::facts::execution::RuntimeUsed;
use ledger::facts::host::HostFacts;
use ledger::facts::matrix::CellVerdict;
use ledger::facts::matrix::table::{Row, Table};
use serde::Serialize;
use serde_json::Value;

/// How a cell changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Less is contained, or it is no longer shown.
    Regressed,
    /// More is contained, or it is shown to be.
    Improved,
    /// Neither; the reason, or what is declared, is another, or what became of an escape is not known.
    Changed,
    /// Only the first side has it.
    OnlyA,
    /// Only the second side has it.
    OnlyB,
    /// Nothing changed.
    Same,
}

impl Change {
    /// Every one, worst first.
    pub const ALL: [Self; 6] = [
        Self::Regressed,
        Self::Improved,
        Self::Changed,
        Self::OnlyA,
        Self::OnlyB,
        Self::Same,
    ];

    /// In words for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Regressed => "regressed",
            Self::Improved => "improved",
            Self::Changed => "reason changed",
            Self::OnlyA => "only in A",
            Self::OnlyB => "only in B",
            Self::Same => "same",
        }
    }

    fn of(a: &Row, b: &Row) -> Self {
        use CellVerdict as V;
        let place = |verdict| match verdict {
            V::FalseGuarantee => 0,
            V::Escaped => 1,
            V::Inconclusive => 2,
            V::Contained => 3,
            V::NotApplicable => 4,
        };
        let apart = (place(a.verdict), place(b.verdict));
        match apart {
            // Whether the question arises is the host's matter, unless it now comes out as an escape, or did.
            (4, 2..) | (2.., 4) if a.verdict != b.verdict => Self::Changed,
            // An escape that nobody could look for again is not mended.
            (..2, 2) => Self::Changed,
            (from, to) if to < from => Self::Regressed,
            (from, to) if to > from => Self::Improved,
            _ if (a.reason, a.declared) != (b.reason, b.declared) => Self::Changed,
            _ => Self::Same,
        }
    }
}

/// A fact that the two sides do not share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Which fact.
    pub what: String,
    /// On the first side; absent when there is none.
    pub a: Option<String>,
    /// On the second side.
    pub b: Option<String>,
}

/// One cell on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// How it changed.
    pub change: Change,
    /// On the first side.
    pub a: Option<&'a Row>,
    /// On the second side.
    pub b: Option<&'a Row>,
}

impl<'a> Pair<'a> {
    /// The cell, on whichever side it stands.
    #[must_use]
    pub fn either(&self) -> Option<&'a Row> {
        self.a.or(self.b)
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// Facts that differ.
    pub fingerprints: Vec<Difference>,
    /// Every cell, the worst changes first.
    pub cells: Vec<Pair<'a>>,
}

impl Comparison<'_> {
    /// How many cells changed so.
    #[must_use]
    pub fn count(&self, change: Change) -> usize {
        let cells = self.cells.iter();
        cells.filter(|pair| pair.change == change).count()
    }
}

/// What one side shows of a runtime.
struct Side<'a> {
    table: &'a Table,
    used: Option<&'a RuntimeUsed>,
    rows: Vec<&'a Row>,
}

/// By runtime, of the newest matrix that has it.
fn side(tables: &[Table]) -> BTreeMap<&str, Side<'_>> {
    let mut side = BTreeMap::new();
    for table in tables {
        let runtimes: BTreeSet<_> = table.rows.iter().map(|row| row.runtime.as_str()).collect();
        for runtime in runtimes {
            let rows = table.rows.iter().filter(|row| row.runtime == runtime);
            let newest = Side {
                table,
                used: table.runtimes.iter().find(|used| used.id == runtime),
                rows: rows.collect(),
            };
            side.insert(runtime, newest);
        }
    }
    side
}

/// Compares; the tables of each side stand in the order of their records.
#[must_use]
pub fn compare<'a>(a: &'a [Table], b: &'a [Table]) -> Comparison<'a> {
    let (left, right) = (side(a), side(b));
    let mut fingerprints = BTreeSet::new();
    let mut cells = Vec::new();
    let runtimes: BTreeSet<_> = left.keys().chain(right.keys()).copied().collect();
    for runtime in runtimes {
        let (a, b) = (left.get(runtime), right.get(runtime));
        if let (Some(a), Some(b)) = (a, b) {
            fingerprints.extend(differences(&facts(runtime, a), &facts(runtime, b)));
            let launches = [a, b].map(|side| side.used.and_then(|used| used.launch.as_ref()));
            fingerprints.extend(launch::difference(runtime, launches));
        } else {
            fingerprints.insert(Difference {
                what: format!("runtime {runtime}"),
                a: a.map(version),
                b: b.map(version),
            });
        }
        let rows = |side: Option<&Side<'a>>| side.map_or_else(Vec::new, |side| side.rows.clone());
        let (a, b) = (rows(a), rows(b));
        let find = |rows: &[&'a Row], check: &str| {
            let mut rows = rows.iter().copied();
            rows.find(|row| row.check == check)
        };
        cells.extend(a.iter().map(|row| {
            let other = find(&b, &row.check);
            Pair {
                change: other.map_or(Change::OnlyA, |other| Change::of(row, other)),
                a: Some(row),
                b: other,
            }
        }));
        let only = b.iter().filter(|row| find(&a, &row.check).is_none());
        cells.extend(only.map(|row| Pair {
            change: Change::OnlyB,
            a: None,
            b: Some(row),
        }));
    }
    // Sides without a runtime in common stand on hosts all the same.
    if !left.keys().any(|runtime| right.contains_key(runtime))
        && let (Some(a), Some(b)) = (a.last(), b.last())
    {
        fingerprints.extend(differences(&facts_of(a), &facts_of(b)));
    }
    cells.sort_by_key(|pair| pair.change);
    Comparison {
        fingerprints: fingerprints.into_iter().collect(),
        cells,
    }
}

fn differences(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<Difference> {
    let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let both = names.into_iter().map(|what| Difference {
        what: what.clone(),
        a: a.get(what).cloned(),
        b: b.get(what).cloned(),
    });
    both.filter(|it| it.a != it.b).collect()
}

/// How a runtime that only one side has is named.
fn version(side: &Side<'_>) -> String {
    match side.used {
        Some(used) => format!("version {}", used.version),
        None => "measured".to_owned(),
    }
}

/// Under what a matrix was measured, fact by fact.
fn facts_of(table: &Table) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    host(&table.host, &mut facts);
    facts.insert("policy".to_owned(), table.policy.id.clone());
    let content = table.policy.sha256.to_string();
    facts.insert("policy sha256".to_owned(), content);
    facts.insert("suite".to_owned(), table.suite.to_string());
    facts
}

/// The fingerprint of one side, fact by fact.
fn facts(runtime: &str, side: &Side<'_>) -> BTreeMap<String, String> {
    let mut facts = facts_of(side.table);
    let Some(used) = side.used else { return facts };
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(format!("{runtime} {name}"), value);
        }
    };
    put("version", Some(used.version.clone()));
    put("tier", used.tier.clone());
    put("program", used.sha256.map(|hash| hash.to_string()));
    facts
}

/// A host's facts by their names in its record, without the boot and the program file that only this boot knows.
fn host(host: &HostFacts, facts: &mut BTreeMap<String, String>) {
    // These types cannot fail to be written as JSON.
    let value = serde_json::to_value(host).unwrap_or(Value::Null);
    flatten("host", &value, facts);
    facts.remove("host bootId");
    facts.remove("host runner file");
}

fn flatten(name: &str, value: &Value, facts: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                flatten(&format!("{name} {field}"), value, facts);
            }
        }
        Value::String(text) => {
            facts.insert(name.to_owned(), text.clone());
        }
        value => {
            facts.insert(name.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests;
