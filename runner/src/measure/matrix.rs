//! From the rows of a suite to the cells of a matrix, and its record.

use ledger::bytes::canon::U53;
use ledger::facts::execution::RuntimeUsed;
use ledger::facts::host::HostFacts;
use ledger::facts::judge::{Question, Seen, judge};
use ledger::facts::matrix::Cell;
use ledger::facts::matrix::table::Row;
use ledger::facts::suite::{Arm, Check, Probe};

use super::arms::{ArmError, ArmRecord, Bench};
use crate::plan::Runtime;
use crate::run::Ledger;

/// What happens while a matrix is made.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The runtime.
    pub runtime: &'a str,
    /// The row.
    pub probe: &'a str,
    /// The arm.
    pub arm: Arm,
    /// Runs done before this one.
    pub done: usize,
    /// Runs in all.
    pub all: usize,
}

/// What came of one runtime.
#[derive(Debug, Default)]
pub struct Measured {
    /// Its cells, as the matrix record keeps them.
    pub cells: Vec<Cell>,
    /// The same as they are shown.
    pub rows: Vec<Row>,
    /// The runtime as the first run of the arm `run` was started.
    pub runtime: Option<RuntimeUsed>,
}

impl Bench<'_> {
    /// Measures one runtime: every row under each of its arms.
    ///
    /// # Errors
    /// A run could not be recorded; what was recorded before stays.
    pub fn measure(
        &self,
        runtime: &dyn Runtime,
        host: &HostFacts,
        ledger: &mut Ledger<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Measured, ArmError> {
        let rows = &self.suite.suite.probes;
        let all = rows.iter().map(|row| row.arms.len()).sum();
        let mut done = 0;
        let mut measured = Measured::default();
        for probe in rows {
            let mut records: [Option<ArmRecord>; 3] = [None, None, None];
            let [baseline, ablation, run] = &mut records;
            for (arm, record) in [
                (Arm::Baseline, baseline),
                (Arm::Ablation, ablation),
                (Arm::Run, run),
            ] {
                if !probe.arms.contains(&arm) {
                    continue;
                }
                progress(Progress {
                    runtime: runtime.id(),
                    probe: probe.id.as_str(),
                    arm,
                    done,
                    all,
                });
                // Bare is bare: the runtime without isolation needs no other arm without it.
                if !(runtime.id() == "native" && arm != Arm::Run) {
                    *record = self.run(runtime, probe, arm, ledger)?;
                }
                done += 1;
            }
            for check in &probe.checks {
                let (cell, row) = judged(runtime.id(), host, probe, check, &records);
                measured.cells.push(cell);
                measured.rows.push(row);
            }
            let [_, _, run] = records;
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
