//! A matrix record: what its cells name, and the judge run again on it.
//!
//! A cell is judged from records that verified: the probe runs that it names, their starts, the host, and the suite's
//! blob. What it stores is only compared. Where the suite cannot be read here (a stream has no blobs) nothing is
//! compared, and the stored verdict stands as what it is: the word of whoever signed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ledger::facts::control::Control;
use ledger::facts::execution::{Outcome, RuntimeUsed};
use ledger::facts::host::HostFacts;
use ledger::facts::judge::{Question, judge};
use ledger::facts::list::List;
use ledger::facts::matrix::table::Row;
use ledger::facts::matrix::{Cell, CellReason, CellVerdict, Matrix};
use ledger::facts::suite::{Arm, Check, MODULES, Probe, Suite};
use ledger::file::walk::{Findings, Shown};
use ledger::finding::Code;

use super::Counts;
use super::probes::{Arguments, Kept, Probes};
use super::references::{Kind, Kinds};

/// Most cells that are read of one matrix.
pub(super) const CELLS: usize = 65_536;
/// The runtime without isolation, in which baselines run.
pub(super) const BARE: &str = "native";

/// A cell as it was found to be.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) control: Control,
    /// By which mechanism the arm `run` declared the control.
    pub(super) mechanism: Option<String>,
    /// Whether the verdict was computed again; else it is the stored one.
    pub(super) again: bool,
    pub(super) row: Row,
}

/// What a matrix shows of one runtime.
#[derive(Debug, Default)]
pub(super) struct OfRuntime {
    /// Which of the matrix's runtimes it is, in the order of its cells.
    pub(super) place: usize,
    pub(super) cells: Vec<Judged>,
    /// What the starts of its runs declare, and by which mechanism.
    pub(super) declared: BTreeMap<Control, String>,
    /// The runtime as the first of its runs was started.
    pub(super) used: Option<RuntimeUsed>,
}

/// What is needed to look at a matrix.
pub(super) struct Reading<'a> {
    pub(super) shown: &'a Shown<'a>,
    pub(super) matrix: &'a Matrix,
    pub(super) host: Option<&'a Arc<HostFacts>>,
    pub(super) suite: Option<&'a Suite>,
    pub(super) kinds: &'a Kinds,
    pub(super) probes: &'a Probes,
    pub(super) counts: &'a mut Counts,
    pub(super) findings: &'a mut Findings,
}

impl<'a> Reading<'a> {
    /// Judges every cell, by runtime.
    pub(super) fn judge(&mut self, cells: &[Cell]) -> BTreeMap<String, OfRuntime> {
        let mut runtimes = BTreeMap::<String, OfRuntime>::new();
        let mut seen = BTreeSet::new();
        for cell in cells {
            if !seen.insert((cell.runtime.as_str(), cell.check.as_str())) {
                self.mismatch(cell, "it stands once", "it stands again");
                continue;
            }
            let control = cell.check.split('/').next().unwrap_or_default();
            let Ok(control) = control.parse::<Control>() else {
                self.mismatch(cell, "a check of a control", "no control of that name");
                continue;
            };
            let place = runtimes.len();
            let of = runtimes.entry(cell.runtime.clone());
            let of = of.or_insert_with(|| OfRuntime {
                place,
                ..OfRuntime::default()
            });
            let run = cell.run.and_then(|run| self.probes.find(run.value()));
            if let Some(run) = run.filter(|run| run.run.arm == Arm::Run) {
                for (control, mechanism) in &run.begun.declared {
                    of.declared.entry(*control).or_insert(mechanism.clone());
                }
                of.used.get_or_insert_with(|| run.begun.runtime.clone());
            }
            let judged = self.cell(cell, control);
            of.cells.push(judged);
        }
        self.left_out(&runtimes);
        self.together(cells);
        runtimes
    }

    fn cell(&mut self, cell: &Cell, control: Control) -> Judged {
        let stored = Judged {
            control,
            mechanism: None,
            again: false,
            row: Row {
                check: cell.check.clone(),
                declared: cell.declared,
                detail: "as stored: it was not judged again".to_owned(),
                reason: cell.reason,
                runtime: cell.runtime.clone(),
                undeclared: None,
                verdict: cell.verdict,
            },
        };
        let found = self.suite.map(|suite| suite.find(&cell.check));
        if let Some(None) = found {
            self.mismatch(cell, "a check of the suite", "no check of that name");
        }
        let probe = found.flatten();
        let arms = [
            (Arm::Baseline, cell.baseline),
            (Arm::Ablation, cell.ablation),
            (Arm::Run, cell.run),
        ]
        .map(|(arm, target)| match target {
            None => Ok(None),
            Some(target) => self
                .arm(cell, control, arm, target.value(), probe)
                .map(Some),
        });
        let [Ok(baseline), Ok(ablation), Ok(run)] = arms else {
            return stored;
        };
        let plain = cell.reason.is_none();
        if run.is_none() && plain {
            self.refuse(cell, "a probe record of the arm run", "none");
            return stored;
        }
        let mechanism = run.and_then(|run| run.begun.mechanism(control));
        let (Some((probe, check)), Some(host)) = (probe, self.host) else {
            return Judged {
                mechanism: mechanism.map(str::to_owned),
                ..stored
            };
        };
        let declared = mechanism.is_some();
        let judged = judge(&Question {
            probe,
            check,
            host,
            declared,
            runtime: &cell.runtime,
            baseline: baseline.map(Kept::seen),
            ablation: ablation.map(Kept::seen),
            run: run.map(Kept::seen),
        });
        let row = Row {
            declared,
            detail: judged.detail,
            reason: judged.reason,
            verdict: judged.verdict,
            ..stored.row
        };
        self.counts.cells += 1;
        let told = said(row.verdict, row.reason, row.declared);
        let wrote = said(cell.verdict, cell.reason, cell.declared);
        if told != wrote {
            self.mismatch(cell, &told, &wrote);
        }
        Judged {
            control,
            mechanism: mechanism.map(str::to_owned),
            again: true,
            row,
        }
    }

    /// The probe run that a cell names for an arm; `Err` when it is not one that may stand there, which is told.
    fn arm(
        &mut self,
        cell: &Cell,
        control: Control,
        arm: Arm,
        target: u64,
        probe: Option<(&Probe, &Check)>,
    ) -> Result<&'a Kept, ()> {
        self.counts.references += 1;
        let field = format!("{arm} of {} {}", cell.runtime, cell.check);
        let (kinds, probes) = (self.kinds, self.probes);
        if !kinds.expect(self.shown, &field, target, Kind::Probe, self.findings) {
            return Err(());
        }
        let Some(kept) = probes.find(target) else {
            let found = "one that too many probe records follow";
            self.refuse_arm(&field, target, "a probe record that is not far back", found);
            return Err(());
        };
        let (run, begun) = (&kept.run, &kept.begun);
        let mut wrong = None;
        let mut want = |holds: bool, expected: String, found: String| {
            if !holds && wrong.is_none() {
                wrong = Some((expected, found));
            }
        };
        want(
            run.arm == arm,
            format!("arm {arm}"),
            format!("arm {}", run.arm),
        );
        let suite = self.matrix.suite;
        want(
            run.suite == suite,
            format!("suite {suite}"),
            format!("suite {}", run.suite),
        );
        if let Some((row, _)) = probe {
            let id = &row.id;
            want(
                run.probe == *id,
                format!("probe {id}"),
                format!("probe {}", run.probe),
            );
            let of_module = arm != Arm::Baseline && cell.runtime == MODULES;
            let ours = self.suite.and_then(|suite| {
                if of_module {
                    suite.module
                } else {
                    suite.program
                }
            });
            let named = row.program.as_ref().map_or(ours, |program| program.sha256);
            if let (Some(named), Some(ran)) = (named, begun.program) {
                want(
                    named == ran,
                    format!("program {named}"),
                    format!("program {ran}"),
                );
            }
            // A template looks for the program itself; a runtime of the runner's own has a tier.
            let looked = arm == Arm::Baseline || of_module || begun.runtime.tier.is_some();
            let executed = run.execution.result.outcome != Outcome::NotExecuted;
            want(
                begun.program.is_some() || !looked || !executed || !row.is_own(),
                "the program's hash".to_owned(),
                "none".to_owned(),
            );
            if let Some(found) = &begun.arguments {
                let expected = Arguments::of(&row.arguments);
                want(*found == expected, expected.shown, found.shown.clone());
            }
        }
        if arm == Arm::Baseline {
            let runtime = &begun.runtime.id;
            want(
                runtime == BARE,
                format!("runtime {BARE}"),
                format!("runtime {runtime}"),
            );
        } else {
            let runtime = &begun.runtime.id;
            want(
                *runtime == cell.runtime,
                format!("runtime {}", cell.runtime),
                format!("runtime {runtime}"),
            );
            // The effective policy of a run has what this run alone was shown (a file, a variable), so its hash
            // is its own.
            let policy = &self.matrix.policy.id;
            want(
                begun.policy == *policy,
                format!("policy {policy}"),
                format!("policy {}", begun.policy),
            );
        }
        if arm == Arm::Ablation {
            let left_out = run.ablated.map_or("nothing", Control::as_str);
            want(
                run.ablated == Some(control),
                format!("without {control}"),
                format!("without {left_out}"),
            );
        }
        if arm != Arm::Run {
            want(
                begun.mechanism(control).is_none(),
                format!("a run that does not declare {control}"),
                "one that does".to_owned(),
            );
        }
        if let (Some(host), Some(of_run)) = (self.host, &begun.host) {
            want(
                host == of_run,
                "the host of the matrix".to_owned(),
                "another host".to_owned(),
            );
        }
        match wrong {
            None => Ok(kept),
            Some((expected, found)) => {
                self.refuse_arm(&field, target, &expected, &found);
                Err(())
            }
        }
    }

    /// A check of the suite without a cell would be a measurement that nobody sees.
    fn left_out(&mut self, runtimes: &BTreeMap<String, OfRuntime>) {
        let Some(suite) = self.suite else { return };
        for (runtime, of) in runtimes {
            let cells: BTreeSet<_> = of.cells.iter().map(|it| it.row.check.as_str()).collect();
            let checks = suite.probes.iter().flat_map(|probe| {
                let ids = probe.checks.iter().map(|check| probe.check_id(check));
                ids.collect::<Vec<_>>()
            });
            let missing: Vec<_> = checks.filter(|id| !cells.contains(id.as_str())).collect();
            if let Some(first) = missing.first() {
                let message = format!("{runtime}: the matrix leaves checks of the suite out");
                let found = format!("{} without a cell, first {first}", missing.len());
                let finding = self.shown.finding(Code::MatrixMismatch, message);
                self.findings
                    .push(finding.versus("a cell for each check of the suite", found));
            }
        }
    }

    pub(super) fn mismatch(&mut self, cell: &Cell, expected: &str, found: &str) {
        let message = format!("{} {}: not what was measured", cell.runtime, cell.check);
        let finding = self.shown.finding(Code::MatrixMismatch, message);
        self.findings.push(finding.versus(expected, found));
    }

    fn refuse(&mut self, cell: &Cell, expected: &str, found: &str) {
        let message = format!("{} {} names no measurement", cell.runtime, cell.check);
        let finding = self.shown.finding(Code::ReferenceInvalid, message);
        self.findings.push(finding.versus(expected, found));
    }

    fn refuse_arm(&mut self, field: &str, target: u64, expected: &str, found: &str) {
        let message = format!("{field} names record {target}");
        let finding = self.shown.finding(Code::ReferenceInvalid, message);
        self.findings.push(finding.versus(expected, found));
    }
}

/// Records of runs that the cells count for themselves alone.
pub(super) fn counted(cells: &[Cell]) -> BTreeSet<u64> {
    let named = cells.iter().flat_map(|cell| [cell.run, cell.ablation]);
    named.flatten().map(|sequence| sequence.value()).collect()
}

/// The cells where they stand in the record.
pub(super) fn inline(matrix: &Matrix) -> Option<&[Cell]> {
    match &matrix.cells {
        List::Inline(cells) => Some(cells),
        List::Blob(_) => None,
    }
}

fn said(verdict: CellVerdict, reason: Option<CellReason>, declared: bool) -> String {
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let declared = if declared { "declared" } else { "not declared" };
    format!("{verdict}{reason}, {declared}")
}
