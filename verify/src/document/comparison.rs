//! A comparison of matrices as one JSON document.

use std::collections::BTreeMap;

use ledger::bytes::text::{clean, clean_json};
use ledger::facts::matrix::table::Row;
use ledger::facts::matrix::{CellReason, CellVerdict};
use ledger::finding::Code;
use serde::Serialize;

use crate::diff::{Change, Comparison, Difference};

const SCHEMA: &str = "verify/diff/v1";

/// The document; its fields are an API.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonDocument<'a> {
    schema: &'static str,
    exit_code: u8,
    fingerprints: &'a [Difference],
    cells: Vec<Cell<'a>>,
    summary: BTreeMap<&'static str, usize>,
    /// Why there is no comparison, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Cell<'a> {
    change: Change,
    /// What this change is as a finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    runtime: &'a str,
    check: &'a str,
    a: Option<Found<'a>>,
    b: Option<Found<'a>>,
}

#[derive(Debug, Serialize)]
struct Found<'a> {
    verdict: CellVerdict,
    reason: Option<CellReason>,
    declared: bool,
    detail: &'a str,
}

impl<'a> Found<'a> {
    fn of(row: &'a Row) -> Self {
        Self {
            verdict: row.verdict,
            reason: row.reason,
            declared: row.declared,
            detail: &row.detail,
        }
    }
}

impl<'a> ComparisonDocument<'a> {
    /// The document of a comparison.
    #[must_use]
    pub fn of(comparison: &'a Comparison<'a>, exit_code: u8) -> Self {
        let cells = comparison.cells.iter().filter_map(|pair| {
            let row = pair.either()?;
            Some(Cell {
                change: pair.change,
                code: (pair.change == Change::Regressed).then_some(Code::Regression),
                runtime: &row.runtime,
                check: &row.check,
                a: pair.a.map(Found::of),
                b: pair.b.map(Found::of),
            })
        });
        let count = |change: Change| (change.as_str(), comparison.count(change));
        Self {
            schema: SCHEMA,
            exit_code,
            fingerprints: &comparison.fingerprints,
            cells: cells.collect(),
            summary: Change::ALL.into_iter().map(count).collect(),
            error: None,
        }
    }

    /// The document when there is nothing to compare.
    #[must_use]
    pub fn of_failure(exit_code: u8, error: &str) -> Self {
        Self {
            schema: SCHEMA,
            exit_code,
            fingerprints: &[],
            cells: Vec::new(),
            summary: BTreeMap::new(),
            error: Some(clean(error)),
        }
    }

    /// One line of JSON, with its newline.
    ///
    /// # Errors
    /// None that these types can cause.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|json| clean_json(&json) + "\n")
    }
}
