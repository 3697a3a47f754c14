//! **Lanes**: which runs of a matrix go on side by side, and which one after the other.
//!
//! Most of the time of a measurement is waiting: for a deadline, for a sign of life, for the disk. Rows that only observe
//! therefore run several at once, each run with a ledger of its own to append to. Alone, in the order of the suite and after
//! the others, run the rows that use something up, whose result would be that of whoever else needs it, those of a
//! third party, of which nobody knows what they share, and every row of a runtime that may share something.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};

use ledger::facts::control::Control;
use ledger::facts::suite::{Arm, Probe, Risk};
use ledger::file::store::{OpenLedgerError, Store};

use super::arms::{ArmError, ArmRecord, Bench};
use crate::plan::Runtime;
use crate::run::{Ledger, Stop};

/// Opens the ledger once more.
pub type OpenMore<'a> = &'a (dyn Fn() -> Result<Store, OpenLedgerError> + Sync);

/// Fewest and most runs side by side that do not mostly wait, whatever number of processors there is.
const BUSY: [usize; 2] = [2, 4];

/// What happens while a matrix is made.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The runtime.
    pub runtime: &'a str,
    /// Rows and arms that run now, the one that began first first.
    pub under_way: Vec<(&'a str, Arm)>,
    /// Runs done.
    pub done: usize,
    /// Runs in all.
    pub all: usize,
}

/// One row under one arm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit<'a> {
    pub(super) probe: &'a Probe,
    /// The place of the row in the suite.
    pub(super) row: usize,
    pub(super) arm: Arm,
    /// Whether it may run beside others.
    beside: bool,
}

impl Unit<'_> {
    /// Whether it mostly waits.
    const fn waits(&self) -> bool {
        matches!(self.probe.control, Control::Timeout | Control::Process)
    }
}

/// Every row under each of its arms, in the order of the suite.
pub(super) fn units<'a>(rows: &'a [Probe], runtime: &dyn Runtime) -> Vec<Unit<'a>> {
    let mut units = Vec::new();
    for (row, probe) in rows.iter().enumerate() {
        let beside =
            runtime.shares_nothing() && probe.is_own() && matches!(probe.risk, Risk::Controlled);
        for arm in [Arm::Baseline, Arm::Ablation, Arm::Run] {
            let needed = match arm {
                Arm::Run => true,
                Arm::Ablation => runtime.serves(probe.control),
                // Bare is bare: the runtime without isolation is that already.
                Arm::Baseline => runtime.id() != "native",
            };
            if needed && probe.arms.contains(&arm) {
                units.push(Unit {
                    probe,
                    row,
                    arm,
                    beside,
                });
            }
        }
    }
    units
}

/// What a lane says of a unit, by its number.
enum Told {
    Began(usize),
    Ended(usize, Box<Result<Option<ArmRecord>, ArmError>>),
}

/// What is known of all units.
struct Board<'a, 'p> {
    runtime: &'a str,
    units: Vec<Unit<'a>>,
    under_way: Vec<usize>,
    ended: Vec<Option<Option<ArmRecord>>>,
    stop: &'a Arc<Stop>,
    failed: Option<ArmError>,
    progress: &'p mut dyn FnMut(&Progress<'_>),
}

impl<'a> Board<'a, '_> {
    fn take(&mut self, told: Told) {
        match told {
            Told::Began(at) => {
                self.under_way.push(at);
                self.show();
            }
            Told::Ended(at, ran) => {
                self.under_way.retain(|other| *other != at);
                match *ran {
                    Ok(record) => {
                        if let Some(ended) = self.ended.get_mut(at) {
                            *ended = Some(record);
                        }
                    }
                    Err(error) => {
                        // The first one says what happened; whatever follows may follow from it.
                        self.failed.get_or_insert(error);
                        self.stop.ask();
                    }
                }
            }
        }
    }

    fn show(&mut self) {
        let names = |at: &usize| {
            let unit = self.units.get(*at)?;
            Some((unit.probe.id.as_str(), unit.arm))
        };
        let progress = Progress {
            runtime: self.runtime,
            under_way: self.under_way.iter().filter_map(names).collect(),
            done: self.done(),
            all: self.units.len(),
        };
        (self.progress)(&progress);
    }

    fn done(&self) -> usize {
        self.ended.iter().flatten().count()
    }

    fn finish(self) -> Result<Vec<(Unit<'a>, Option<ArmRecord>)>, ArmError> {
        let (done, all) = (self.done(), self.units.len());
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.stop.is_asked() {
            return Err(ArmError::Stopped { done, all });
        }
        let records = self.ended.into_iter().map(Option::flatten);
        Ok(self.units.into_iter().zip(records).collect())
    }
}

impl Bench<'_> {
    /// Runs all units, and gives what came of each, in their order.
    pub(super) fn run_all<'a>(
        &'a self,
        runtime: &'a dyn Runtime,
        units: Vec<Unit<'a>>,
        ledger: &mut Ledger<'_>,
        more: Option<OpenMore<'_>>,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Vec<(Unit<'a>, Option<ArmRecord>)>, ArmError> {
        let mut ended = Vec::new();
        ended.resize_with(units.len(), || None);
        let mut board = Board {
            runtime: runtime.id(),
            units,
            under_way: Vec::new(),
            ended,
            stop: self.stop,
            failed: None,
            progress,
        };
        if let Some(more) = more {
            self.run_beside(runtime, &mut board, more);
        }
        for at in 0..board.units.len() {
            let is_ended = board.ended.get(at).is_none_or(Option::is_some);
            let Some(unit) = board.units.get(at).copied().filter(|_| !is_ended) else {
                continue;
            };
            if self.stop.is_asked() {
                break;
            }
            board.take(Told::Began(at));
            let ran = self.run(runtime, unit.probe, unit.arm, ledger);
            board.take(Told::Ended(at, Box::new(ran)));
        }
        board.finish()
    }

    /// Runs side by side what may be: what mostly waits each in a lane of its own, the rest in a few. A lane that cannot be had is
    /// none: what no lane runs is left.
    fn run_beside(&self, runtime: &dyn Runtime, board: &mut Board<'_, '_>, more: OpenMore<'_>) {
        let units = board.units.iter().copied().enumerate();
        let (waiting, busy): (Vec<_>, Vec<_>) = units
            .filter(|(_, unit)| unit.beside)
            .partition(|(_, unit)| unit.waits());
        let next = AtomicUsize::new(0);
        let (tell, told) = mpsc::channel();
        let run = |(at, unit): (usize, Unit<'_>), ledger: &mut Ledger<'_>, tell: &Sender<Told>| {
            // Whoever listens does so until the last lane has ended.
            let _ = tell.send(Told::Began(at));
            let ran = self.run(runtime, unit.probe, unit.arm, ledger);
            let _ = tell.send(Told::Ended(at, Box::new(ran)));
        };
        std::thread::scope(|scope| {
            let (run, busy, next) = (&run, &busy, &next);
            for one in waiting {
                let tell = tell.clone();
                let started = lane().spawn_scoped(scope, move || {
                    if !self.stop.is_asked() {
                        run(one, &mut Ledger::to_open(more), &tell);
                    }
                });
                if started.is_err() {
                    break;
                }
            }
            for _ in 0..busy_lanes().min(busy.len()) {
                let tell = tell.clone();
                let started = lane().spawn_scoped(scope, move || {
                    let mut ledger = Ledger::to_open(more);
                    while !self.stop.is_asked()
                        && let Some(one) = busy.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        run(*one, &mut ledger, &tell);
                    }
                });
                if started.is_err() {
                    break;
                }
            }
            // The lanes' own are left: told ends with them.
            drop(tell);
            for told in told {
                board.take(told);
            }
        });
    }
}

fn lane() -> std::thread::Builder {
    std::thread::Builder::new().name("lane".to_owned())
}

/// One more than there are processors, as each waits for the disk and the kernel, too.
fn busy_lanes() -> usize {
    let [fewest, most] = BUSY;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors + 1).clamp(fewest, most)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::measure::arms::system;
    use crate::measure::program::SUITE;
    use crate::runtime::embedded::Embedded;
    use crate::runtime::native::Native;

    fn rows() -> Vec<Probe> {
        let suite: ledger::facts::suite::Suite = serde_json::from_str(SUITE).unwrap();
        suite.probes
    }

    #[test]
    fn what_uses_something_up_and_what_is_not_ours_runs_alone() {
        let mut rows = rows();
        for row in &mut rows {
            if row.control == Control::Ipc {
                row.program = Some(ledger::facts::suite::ProbeProgram {
                    path: "probe.sh".to_owned(),
                    sha256: None,
                });
            }
        }
        let embedded = Embedded::default();
        let units = units(&rows, &embedded);
        let arms: usize = rows.iter().map(|row| row.arms.len()).sum();
        assert_eq!(units.len(), arms);
        assert!(units.iter().is_sorted_by_key(|unit| unit.row));
        for unit in &units {
            let alone = matches!(
                unit.probe.control,
                Control::Memory | Control::Processes | Control::Cpu | Control::Disk | Control::Ipc
            );
            assert_eq!(unit.beside, !alone, "{}", unit.probe.id);
        }
    }

    #[test]
    fn bare_is_bare_once() {
        let rows = rows();
        let units = units(&rows, &Native);
        let runs = units.iter().filter(|unit| unit.arm == Arm::Run);
        assert_eq!(runs.count(), rows.len());
        // But for what the runner itself does around anything.
        let others = units.iter().filter(|unit| unit.arm != Arm::Run);
        let without: Vec<_> = others.map(|unit| (unit.arm, unit.probe.control)).collect();
        assert_eq!(without, [(Arm::Ablation, Control::Output)]);
    }

    #[test]
    fn a_failure_asks_the_others_to_stop_and_is_what_is_told() {
        let (rows, stop) = (rows(), Arc::new(Stop::new().unwrap()));
        let embedded = Embedded::default();
        let mut shown = Vec::new();
        let mut progress = |progress: &Progress<'_>| {
            shown.push((progress.done, progress.under_way.len(), progress.all));
        };
        let units = units(&rows, &embedded);
        let all = units.len();
        let mut board = Board {
            runtime: "embedded",
            ended: (0..all).map(|_| None).collect(),
            units,
            under_way: Vec::new(),
            stop: &stop,
            failed: None,
            progress: &mut progress,
        };
        let ended = |at, attempt: Option<&'static str>| {
            let ran = match attempt {
                Some(attempt) => Err(system(attempt)(io::ErrorKind::NotFound.into())),
                None => Ok(None),
            };
            Told::Ended(at, Box::new(ran))
        };
        for at in 0..3 {
            board.take(Told::Began(at));
        }
        board.take(ended(1, None));
        assert!(!stop.is_asked());
        board.take(Told::Began(3));
        board.take(ended(0, Some("do the first thing")));
        assert!(stop.is_asked());
        board.take(ended(2, Some("do another")));
        board.take(ended(3, None));
        let failed = board.finish().unwrap_err();
        assert_eq!(failed.to_string(), "cannot do the first thing");
        assert_eq!(shown, [(0, 1, all), (0, 2, all), (0, 3, all), (1, 3, all)]);
    }
}
