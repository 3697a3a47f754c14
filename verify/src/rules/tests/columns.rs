//! What the cells of one matrix must say together.

use ledger::facts::matrix::{Cell, CellReason, CellVerdict};
use ledger::facts::suite::{Arm, Suite};

use super::matrices::{MISMATCH, only, shot, told, with_cells};
use super::measured::{CHECKS, Met, Scene, Shot};
use super::*;

/// A matrix by a suite whose first row makes two checks and has all arms, but for what `change` does to its cells: two
/// of the first row, and one of the second.
fn two_checks(change: impl FnOnce(&mut Scene, &mut Vec<Cell>)) -> Scene {
    let mut suite: Suite = measured::suite();
    let row = &mut suite.probes[0];
    row.arms = vec![Arm::Baseline, Arm::Ablation, Arm::Run];
    let mut other = row.checks[0].clone();
    other.check = "tcp6".parse().unwrap();
    row.checks.push(other);
    let mut scene = Scene::new();
    let blob = ledger::bytes::canon::to_canonical(&suite).unwrap();
    scene.suite = scene.maker.blob(&blob);
    let mut cells = scene.measure("embedded", true, Met::Refusal);
    let ablation = scene.shoot(&shot(Arm::Ablation, false, Met::WayOut));
    cells[0].ablation = Some(U53::from(ablation));
    // The runs say nothing about the second check.
    let silent = Cell {
        check: "network/tcp6".to_owned(),
        reason: Some(CellReason::NoOutput),
        verdict: CellVerdict::Inconclusive,
        ..cells[0].clone()
    };
    cells.insert(1, silent);
    change(&mut scene, &mut cells);
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    scene
}

fn not_calibrated(cell: &mut Cell) {
    cell.verdict = CellVerdict::Inconclusive;
    cell.reason = Some(CellReason::NotCalibrated);
}

fn not_run(cell: &mut Cell) {
    (cell.baseline, cell.ablation, cell.run) = (None, None, None);
    cell.declared = false;
    cell.verdict = CellVerdict::Inconclusive;
    cell.reason = Some(CellReason::NoOutput);
}

#[test]
fn all_cells_of_a_row_name_the_same_records() {
    assert_eq!(told(&two_checks(|_, _| {})), (vec![], 0));
    type Change = fn(&mut Cell);
    let changes: [Change; 4] = [
        |cell| cell.run = None,
        |cell| cell.ablation = None,
        |cell| cell.baseline = None,
        not_run,
    ];
    for change in changes {
        only(&two_checks(|_, cells| change(&mut cells[1])), MISMATCH);
    }
    // The first one is left out beside the second that tells of it.
    only(&two_checks(|_, cells| not_run(&mut cells[0])), MISMATCH);
    // A run that says the same, but another one.
    let other = two_checks(|scene, cells| {
        let run = scene.shoot(&shot(Arm::Run, true, Met::Refusal));
        cells[1].run = Some(U53::from(run));
    });
    only(&other, MISMATCH);
}

#[test]
fn an_arm_that_is_always_run_is_left_out_of_no_row() {
    only(&two_checks(|_, cells| not_run(&mut cells[2])), MISMATCH);
    only(
        &two_checks(|_, cells| cells.iter_mut().for_each(not_run)),
        MISMATCH,
    );
    let ablation = two_checks(|_, cells| cells.iter_mut().for_each(|cell| cell.ablation = None));
    only(&ablation, MISMATCH);
    // Baselines of one row, and of all.
    let one = two_checks(|_, cells| {
        cells[2].baseline = None;
        not_calibrated(&mut cells[2]);
    });
    only(&one, MISMATCH);
    let none = two_checks(|_, cells| {
        cells.iter_mut().for_each(|cell| cell.baseline = None);
        not_calibrated(&mut cells[2]);
    });
    assert_eq!(told(&none), (vec![Code::DeclaredUnmeasured], 12));
}

#[test]
fn the_runtime_without_isolation_needs_no_arm_without_it() {
    let mut scene = Scene::new();
    let mut cells = scene.measure("native", false, Met::WayOut);
    cells.iter_mut().for_each(|cell| cell.baseline = None);
    let isolated = scene.measure("embedded", true, Met::Refusal);
    cells.extend(isolated);
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    assert_eq!(told(&scene), (vec![], 0));
}

#[test]
fn a_baseline_runs_in_the_runtime_without_isolation() {
    let sandboxed = with_cells(|scene, cells| {
        let baseline = Shot {
            runtime: "embedded",
            ..shot(Arm::Baseline, false, Met::WayOut)
        };
        cells[0].baseline = Some(U53::from(scene.shoot(&baseline)));
    });
    only(&sandboxed, (Code::ReferenceInvalid, 10));
}

/// A matrix whose first cell rests on a run in a runtime that `change` made another.
fn in_runtime(change: impl FnOnce(&mut ledger::facts::execution::RuntimeUsed)) -> Scene {
    with_cells(|scene, cells| {
        let shot = shot(Arm::Run, true, Met::Refusal);
        let mut start = scene.start("embedded", &[shot.control]);
        change(&mut start.runtime);
        let start = scene.maker.start(start);
        let run = scene.probe(start, &shot);
        cells[0].run = Some(U53::from(scene.record(run)));
    })
}

#[test]
fn a_column_is_measured_in_one_version_program_and_tier() {
    assert_eq!(told(&in_runtime(|_| {})), (vec![], 0));
    only(&in_runtime(|used| used.version.push('1')), MISMATCH);
    only(
        &in_runtime(|used| used.sha256 = Some(Hash::of(b"other"))),
        MISMATCH,
    );
    only(
        &in_runtime(|used| used.tier = Some("other".to_owned())),
        MISMATCH,
    );
    // Without the control: another version, and another tier.
    let ablation = |version: &str| {
        two_checks(|scene, cells| {
            let mut start = scene.start("embedded", &[]);
            version.clone_into(&mut start.runtime.version);
            start.runtime.tier = Some("lower".to_owned());
            start.runtime.sha256 = Some(Hash::of(b"another"));
            let start = scene.maker.start(start);
            let run = scene.probe(start, &shot(Arm::Ablation, false, Met::WayOut));
            let run = U53::from(scene.record(run));
            cells[..2].iter_mut().for_each(|it| it.ablation = Some(run));
        })
    };
    let version = Scene::new().start("embedded", &[]).runtime.version;
    assert_eq!(told(&ablation(&version)), (vec![], 0));
    only(&ablation("other"), MISMATCH);
}

#[test]
fn each_run_has_a_secret_of_its_own() {
    let same = with_cells(|scene, cells| {
        // The line is bound to the secret, so both are another run's, whole.
        let shot = Shot {
            control: CHECKS[1].0,
            ..shot(Arm::Run, true, Met::Refusal)
        };
        let of = scene.start("embedded", &[CHECKS[0].0]);
        let first = scene.maker.start(of);
        let run = scene.probe(first, &matrices::shot(Arm::Run, true, Met::Refusal));
        cells[0].run = Some(U53::from(scene.record(run)));
        let start = scene.start("embedded", &[shot.control]);
        let start = scene.maker.start(start);
        let mut run = scene.probe(first, &shot);
        run.execution.start = U53::from(start);
        cells[1].run = Some(U53::from(scene.record(run)));
    });
    only(&same, MISMATCH);
    let found = same.maker.verify().findings;
    assert!(found[0].message.contains("secret"), "{found:#?}");
}
