//! What the cells of one matrix must say together, each for itself being right.
//!
//! A row of the suite is run once under each arm, for all of its checks; so its cells name the same records, and none
//! looks better for a record that it does not name. A column is one runtime, and no measurement uses a secret twice.

use std::collections::BTreeMap;

use ledger::bytes::canon::U53;
use ledger::bytes::text::excerpt;
use ledger::facts::execution::{Outcome, RuntimeUsed};
use ledger::facts::matrix::Cell;
use ledger::facts::suite::Arm;
use ledger::finding::Code;

use super::matrices::{BARE, Reading};

impl Reading<'_> {
    /// Holds the cells against each other.
    pub(super) fn together(&mut self, cells: &[Cell]) {
        self.rows(cells);
        self.columns(cells);
        self.secrets(cells);
    }

    /// All cells of a row name the same records, and one for each arm that is always run. Baselines may be left out
    /// (`--no-baseline`), of all rows.
    fn rows(&mut self, cells: &[Cell]) {
        let Some(suite) = self.suite else { return };
        let mut rows = BTreeMap::new();
        let mut with_baseline = None;
        for cell in cells {
            let Some((row, _)) = suite.find(&cell.check) else {
                continue;
            };
            let key = (cell.runtime.as_str(), row.id.as_str());
            let first = *rows.entry(key).or_insert(cell);
            if named(first) != named(cell) {
                let expected = format!("{}, as {} of the same row", said(first), first.check);
                self.mismatch(cell, &expected, &said(cell));
            }
            if !std::ptr::eq(first, cell) {
                continue;
            }
            if !row.is_tried_in(&cell.runtime) {
                if named(cell) != [None; 3] {
                    self.mismatch(cell, "no record, as no module can try it", &said(cell));
                }
                continue;
            }
            // That a plain verdict without it rests on nothing is told of the cell.
            if cell.run.is_none() && cell.reason.is_some() {
                self.mismatch(cell, "a probe record of the arm run", "none");
            }
            if cell.runtime == BARE {
                continue;
            }
            if cell.ablation.is_none() && row.arms.contains(&Arm::Ablation) {
                self.mismatch(cell, "a probe record of the arm ablation", "none");
            }
            if row.arms.contains(&Arm::Baseline) {
                let before = *with_baseline.get_or_insert(cell);
                if before.baseline.is_some() != cell.baseline.is_some() {
                    let expected = format!(
                        "{} of the arm baseline, as {} {}",
                        record(before.baseline),
                        before.runtime,
                        before.check
                    );
                    self.mismatch(cell, &expected, &record(cell.baseline));
                }
            }
        }
    }

    /// A column is measured in one runtime: one version, one program, one tier. Without the control it is that version, too;
    /// a template may leave a control out by another program, and a tier may rest on it.
    fn columns(&mut self, cells: &[Cell]) {
        let probes = self.probes;
        let mut columns = BTreeMap::new();
        for cell in cells {
            for sequence in [cell.run, cell.ablation].into_iter().flatten() {
                let Some(kept) = probes.find(sequence.value()) else {
                    continue;
                };
                // Of what did not begin the runner may not know program and tier.
                if kept.run.execution.result.outcome == Outcome::NotExecuted {
                    continue;
                }
                let used = &kept.begun.runtime;
                let column = columns.entry((cell.runtime.as_str(), kept.run.arm));
                let (first, known, told) = column.or_insert((sequence, used, false));
                if !*told && !is_same(kept.run.arm, known, used) {
                    *told = true;
                    let found = (sequence, used);
                    self.other_runtime(&cell.runtime, (*first, known), found);
                }
            }
        }
        let without = columns.iter().filter(|((_, arm), _)| *arm == Arm::Ablation);
        for ((runtime, _), (sequence, used, _)) in without {
            if let Some((first, known, _)) = columns.get(&(*runtime, Arm::Run))
                && known.version != used.version
            {
                self.other_runtime(runtime, (*first, known), (*sequence, used));
            }
        }
    }

    fn other_runtime(
        &mut self,
        runtime: &str,
        (first, known): (U53, &RuntimeUsed),
        (sequence, used): (U53, &RuntimeUsed),
    ) {
        let message = format!("{runtime}: its runs are in more than one runtime");
        let finding = self.shown.finding(Code::MatrixMismatch, message);
        self.findings.push(finding.versus(
            format!("{}, as in record {first}", shown(known)),
            format!("{}, in record {sequence}", shown(used)),
        ));
    }

    /// Each run has a secret of its own: who knows one already can print lines that are bound to it.
    fn secrets(&mut self, cells: &[Cell]) {
        let probes = self.probes;
        let mut secrets = BTreeMap::new();
        for sequence in cells.iter().flat_map(named).flatten() {
            let Some(kept) = probes.find(sequence.value()) else {
                continue;
            };
            let secret = kept.run.nonce.to_string();
            let first = *secrets.entry(secret).or_insert(sequence);
            if first != sequence {
                let message = format!("record {sequence} has the secret of another run");
                let finding = self.shown.finding(Code::MatrixMismatch, message);
                self.findings.push(finding.versus(
                    "a secret of its own for each run",
                    format!("that of record {first}"),
                ));
            }
        }
    }
}

const fn named(cell: &Cell) -> [Option<U53>; 3] {
    [cell.baseline, cell.ablation, cell.run]
}

fn record(sequence: Option<U53>) -> String {
    sequence.map_or_else(|| "none".to_owned(), |it| format!("record {it}"))
}

fn said(cell: &Cell) -> String {
    let [baseline, ablation, run] = named(cell).map(record);
    format!("baseline {baseline}, ablation {ablation}, run {run}")
}

/// What the runs of an arm share.
fn is_same(arm: Arm, a: &RuntimeUsed, b: &RuntimeUsed) -> bool {
    a.version == b.version && (arm != Arm::Run || (a.sha256, &a.tier) == (b.sha256, &b.tier))
}

fn shown(used: &RuntimeUsed) -> String {
    let mut text = format!("version {}", excerpt(&used.version, 40));
    if let Some(hash) = used.sha256 {
        text.push_str(&format!(", program {hash}"));
    }
    if let Some(tier) = &used.tier {
        text.push_str(&format!(", tier {}", excerpt(tier, 40)));
    }
    text
}
