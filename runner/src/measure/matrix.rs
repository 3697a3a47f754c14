//! From the rows of a suite to the cells of a matrix, and its record.

use ledger::bytes::canon::U53;
use ledger::facts::execution::RuntimeUsed;
use ledger::facts::host::HostFacts;
use ledger::facts::judge::{Question, Seen, judge};
use ledger::facts::matrix::Cell;
use ledger::facts::matrix::table::Row;
use ledger::facts::suite::{Arm, Check, Probe};

use super::arms::{ArmError, ArmRecord, Bench};
use super::lanes::{OpenMore, Progress, units};
use crate::plan::Runtime;
use crate::run::{Ledger, STDERR};

/// What came of one runtime.
#[derive(Debug, Default)]
pub struct Measured {
    /// Its cells, as the matrix record keeps them.
    pub cells: Vec<Cell>,
    /// The same as they are shown.
    pub rows: Vec<Row>,
    /// The runtime as the first run of the arm `run` was started.
    pub runtime: Option<RuntimeUsed>,
    /// The last that was said on standard error by the first run of the arm `run` that printed nothing else: mostly by
    /// what should have started the probe.
    pub said: Option<String>,
}

impl Bench<'_> {
    /// Measures one runtime: every row under each of its arms, side by side where that is possible (with `more` to open a
    /// ledger for each), and in the order of the suite whatever comes first.
    ///
    /// # Errors
    /// A run could not be recorded, or all were asked to stop; what was recorded before stays.
    pub fn measure(
        &self,
        runtime: &dyn Runtime,
        host: &HostFacts,
        ledger: &mut Ledger<'_>,
        more: Option<OpenMore<'_>>,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Measured, ArmError> {
        let rows = &self.suite.suite.probes;
        let units = units(rows, runtime);
        let mut records: Vec<[Option<ArmRecord>; 3]> = Vec::new();
        records.resize_with(rows.len(), Default::default);
        for (unit, record) in self.run_all(runtime, units, ledger, more, progress)? {
            let arm = match unit.arm {
                Arm::Baseline => 0,
                Arm::Ablation => 1,
                Arm::Run => 2,
            };
            if let Some(row) = records.get_mut(unit.row) {
                row[arm] = record;
            }
        }
        let mut measured = Measured::default();
        for (probe, records) in rows.iter().zip(records) {
            for check in &probe.checks {
                let (cell, row) = judged(runtime.id(), host, probe, check, &records);
                measured.cells.push(cell);
                measured.rows.push(row);
            }
            let [_, _, run] = records;
            if let (None, Some(run)) = (&measured.said, &run)
                && let [line] = run.probed.lines.as_slice()
            {
                measured.said = line.strip_prefix(STDERR).map(str::to_owned);
            }
            let used = run.map(|run| run.probed.runtime);
            measured.runtime = measured.runtime.take().or(used);
        }
        Ok(measured)
    }
}

fn judged(
    runtime: &str,
    host: &HostFacts,
    probe: &Probe,
    check: &Check,
    records: &[Option<ArmRecord>; 3],
) -> (Cell, Row) {
    let [baseline, ablation, run] = records.each_ref().map(|record| {
        record.as_ref().map(|record| Seen {
            run: &record.probed.run,
            lines: &record.probed.lines,
        })
    });
    let controls = records[2].as_ref().map(|record| &record.controls);
    let declared = controls.is_some_and(|controls| controls.declares(probe.control));
    let judged = judge(&Question {
        probe,
        check,
        host,
        declared,
        runtime,
        baseline,
        ablation,
        run,
    });
    let sequences = records
        .each_ref()
        .map(|record| record.as_ref().map(|record| record.sequence));
    let [baseline, ablation, run]: [Option<U53>; 3] = sequences;
    let undeclared = controls.filter(|_| !declared).and_then(|controls| {
        let mut gaps = controls.unsupported.iter();
        let gap = gaps.find(|gap| gap.control == probe.control);
        gap.map(|gap| gap.reason.clone())
    });
    let cell = Cell {
        ablation,
        baseline,
        check: probe.check_id(check),
        declared,
        reason: judged.reason,
        run,
        runtime: runtime.to_owned(),
        verdict: judged.verdict,
    };
    let row = Row {
        check: cell.check.clone(),
        declared,
        detail: judged.detail,
        reason: judged.reason,
        runtime: cell.runtime.clone(),
        undeclared,
        verdict: judged.verdict,
    };
    (cell, row)
}
