//! What a matrix names, and the judge run again on it.

use ledger::facts::matrix::table::Table;
use ledger::facts::matrix::{Cell, CellReason, CellVerdict};
use ledger::facts::measurement::{ProbeRun, Saw};
use ledger::facts::suite::Arm;

use super::measured::{CHECKS, Met, Scene, Shot};
use super::*;

pub(super) const MISMATCH: (Code, u8) = (Code::MatrixMismatch, 10);
const REFERENCE: (Code, u8) = (Code::ReferenceInvalid, 10);

pub(super) fn told(scene: &Scene) -> (Vec<Code>, u8) {
    let (mut codes, exit_code) = scene.maker.told();
    codes.dedup();
    (codes, exit_code)
}

/// Of this class and worse; that the computed verdict then disagrees with a declaration is another matter.
pub(super) fn only(scene: &Scene, (code, exit_code): (Code, u8)) {
    let (mut codes, found) = told(scene);
    codes.retain(|it| it.class() <= code.class());
    let details = scene.maker.verify().findings;
    assert_eq!((codes, found), (vec![code], exit_code), "{details:#?}");
}

pub(super) fn shot(arm: Arm, declared: bool, met: Met) -> Shot {
    Shot {
        arm,
        control: CHECKS[0].0,
        declared,
        met,
        runtime: if arm == Arm::Baseline {
            "native"
        } else {
            "embedded"
        },
    }
}

/// A matrix that is right but for what `change` does to its cells.
pub(super) fn with_cells(change: impl FnOnce(&mut Scene, &mut Vec<Cell>)) -> Scene {
    let mut scene = Scene::new();
    let mut cells = scene.measure("embedded", true, Met::Refusal);
    change(&mut scene, &mut cells);
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    scene
}

/// A matrix whose first cell rests on a run that `change` made another.
fn with_run(change: impl FnOnce(&mut ProbeRun)) -> Scene {
    with_cells(|scene, cells| {
        let shot = shot(Arm::Run, true, Met::Refusal);
        let start = scene.start("embedded", &[shot.control]);
        let start = scene.maker.start(start);
        let mut run = scene.probe(start, &shot);
        change(&mut run);
        cells[0].run = Some(U53::from(scene.record(run)));
    })
}

/// A matrix whose first cell rests on a run that began as `change` made it begin.
fn begun_with(change: impl FnOnce(&mut Start)) -> Scene {
    with_cells(|scene, cells| {
        let shot = shot(Arm::Run, true, Met::Refusal);
        let mut start = scene.start("embedded", &[shot.control]);
        change(&mut start);
        let start = scene.maker.start(start);
        let run = scene.probe(start, &shot);
        cells[0].run = Some(U53::from(scene.record(run)));
    })
}

#[test]
fn a_whole_matrix_holds_and_can_be_shown() {
    for (declared, met, verdict) in [
        (true, Met::Refusal, CellVerdict::Contained),
        (false, Met::Refusal, CellVerdict::Contained),
        (false, Met::WayOut, CellVerdict::Escaped),
        (false, Met::NoOracle, CellVerdict::Inconclusive),
    ] {
        let mut scene = Scene::new();
        scene.measured("embedded", declared, met);
        let result = scene.maker.verify();
        assert_eq!(result.exit_code, 0, "{:#?}", result.findings);
        let check = |id: &str| {
            let check = result.checks.iter().find(|check| check.id == id).unwrap();
            (check.status, check.count)
        };
        assert_eq!(check("matrices"), (CheckStatus::Pass, 2));
        assert!(result.matrices.is_empty(), "shown without being asked for");
        let [table] = &tables(&scene)[..] else {
            panic!("one matrix")
        };
        let verdicts: Vec<_> = table.rows.iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts, [verdict; 2]);
        assert_eq!(table.rows[0].check, "network/tcp4");
        assert_eq!(table.runtimes[0].id, "embedded");
    }
}

fn tables(scene: &Scene) -> Vec<Table> {
    let mut source = Source::open(scene.maker.write()).unwrap();
    let demands = Demands {
        matrices: true,
        ..Demands::default()
    };
    verify(&mut source, demands).unwrap().matrices
}

#[test]
fn what_is_stored_is_only_compared() {
    type Change = fn(&mut Cell);
    let changes: [Change; 5] = [
        |cell| cell.declared = false,
        |cell| cell.verdict = CellVerdict::Escaped,
        |cell| {
            cell.verdict = CellVerdict::Inconclusive;
            cell.reason = Some(CellReason::TwinFailed);
        },
        |cell| cell.baseline = None,
        |cell| cell.check = "network/other".to_owned(),
    ];
    for change in changes {
        only(&with_cells(|_, cells| change(&mut cells[0])), MISMATCH);
    }
    // Another reason of the same verdict.
    let mut scene = Scene::new();
    let mut cells = scene.measure("embedded", false, Met::NoOracle);
    cells[0].reason = Some(CellReason::NoOutput);
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    only(&scene, MISMATCH);
    // An escape that is called contained.
    let mut scene = Scene::new();
    let mut cells = scene.measure("embedded", false, Met::WayOut);
    cells[1].verdict = CellVerdict::Contained;
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    only(&scene, MISMATCH);
}

#[test]
fn one_changed_byte_in_a_signed_measurement_changes_the_verdict() {
    let line = |change: &dyn Fn(&mut String)| {
        with_run(|run| {
            let List::Inline(lines) = &mut run.lines else {
                panic!("inline")
            };
            change(&mut lines[0]);
        })
    };
    let mut length = 0;
    with_run(|run| {
        let List::Inline(lines) = &run.lines else {
            panic!("inline")
        };
        length = lines[0].len();
    });
    assert!(length > 100, "{length}");
    for at in 0..length {
        // Of a digit another digit, of a letter another letter.
        let scene = line(&|text| {
            let other = char::from(text.as_bytes()[at] ^ 1).to_string();
            text.replace_range(at..=at, &other);
        });
        only(&scene, MISMATCH);
    }
    only(
        &with_run(|run| run.controller[0].alive_after = false),
        MISMATCH,
    );
    only(
        &with_run(|run| run.controller[0].saw = Saw::Unavailable),
        MISMATCH,
    );
    only(&with_run(|run| run.controller[0].check.push('x')), MISMATCH);
    only(&with_run(|run| run.controller.clear()), MISMATCH);
}

#[test]
fn one_changed_byte_on_the_disk_breaks_the_signature() {
    for (what, by) in [
        ("result=contained", "result=containee"),
        ("aliveAfter\":true", "aliveAfter\":tru3"),
    ] {
        let mut scene = Scene::new();
        scene.measured("embedded", true, Met::Refusal);
        let text = String::from_utf8(scene.maker.lines.clone()).unwrap();
        let changed = text.replacen(what, by, 1);
        assert_ne!(text, changed);
        scene.maker.lines = changed.into_bytes();
        let (codes, exit_code) = scene.maker.told();
        assert_eq!(exit_code, 10);
        assert!(codes.contains(&Code::SignatureInvalid), "{codes:?}");
    }
}

#[test]
fn the_verdict_of_a_probes_own_run_is_computed_again() {
    let mut scene = Scene::new();
    let shot = shot(Arm::Run, true, Met::Refusal);
    let start = scene.start("embedded", &[shot.control]);
    let start = scene.maker.start(start);
    let mut run = scene.probe(start, &shot);
    run.execution.verdict = Verdict::Failed;
    scene.record(run);
    only(&scene, (Code::VerdictMismatch, 10));
}

#[test]
fn a_probe_record_ends_an_open_start() {
    for target in [0_u32, 1, 400] {
        let mut scene = Scene::new();
        let run = scene.probe(target, &shot(Arm::Run, true, Met::Refusal));
        scene.record(run);
        only(&scene, REFERENCE);
    }
    // One that ended already.
    let mut scene = Scene::new();
    let shot = shot(Arm::Run, true, Met::Refusal);
    let start = scene.start("embedded", &[shot.control]);
    let start = scene.maker.start(start);
    for _ in 0..2 {
        let run = scene.probe(start, &shot);
        scene.record(run);
    }
    only(&scene, REFERENCE);
}

#[test]
fn a_cell_names_a_probe_record_before_it() {
    for target in [0_u32, 1, 2, 4_000] {
        only(
            &with_cells(|_, cells| cells[0].run = Some(U53::from(target))),
            REFERENCE,
        );
        only(
            &with_cells(|_, cells| cells[0].baseline = Some(U53::from(target))),
            REFERENCE,
        );
    }
    only(&with_cells(|_, cells| cells[0].run = None), REFERENCE);
    // The matrix itself.
    let own = with_cells(|scene, cells| cells[0].run = Some(U53::from(scene.maker.sequence)));
    only(&own, REFERENCE);
}

#[test]
fn a_cell_names_runs_of_its_own_arm_probe_and_runtime() {
    // The two arms changed places, and one stands for the other.
    only(
        &with_cells(|_, cells| cells[0].run = cells[0].baseline),
        REFERENCE,
    );
    only(
        &with_cells(|_, cells| cells[0].baseline = cells[0].run),
        REFERENCE,
    );
    only(
        &with_cells(|_, cells| cells[0].ablation = cells[0].baseline),
        REFERENCE,
    );
    // Of another row of the suite.
    only(
        &with_cells(|_, cells| cells[0].run = cells[1].run),
        REFERENCE,
    );
    // Another runtime.
    let other = with_cells(|_, cells| {
        cells
            .iter_mut()
            .for_each(|it| it.runtime = "bwrap".to_owned())
    });
    only(&other, REFERENCE);
    // An arm without the control that declares it.
    let declared = with_cells(|scene, cells| {
        let run = scene.shoot(&shot(Arm::Baseline, true, Met::WayOut));
        cells[0].baseline = Some(U53::from(run));
    });
    only(&declared, REFERENCE);
    // Without another control.
    let ablated = with_cells(|scene, cells| {
        let start = scene.start("embedded", &[]);
        let start = scene.maker.start(start);
        let mut run = scene.probe(start, &shot(Arm::Ablation, false, Met::WayOut));
        run.ablated = Some(Control::Memory);
        cells[0].ablation = Some(U53::from(scene.record(run)));
    });
    only(&ablated, REFERENCE);
    let good = with_cells(|scene, cells| {
        let run = scene.shoot(&shot(Arm::Ablation, false, Met::WayOut));
        cells[0].ablation = Some(U53::from(run));
        cells.iter_mut().for_each(|cell| cell.baseline = None);
        (cells[1].verdict, cells[1].reason) =
            (CellVerdict::Inconclusive, Some(CellReason::NotCalibrated));
    });
    assert_eq!(told(&good), (vec![Code::DeclaredUnmeasured], 12));
}

#[test]
fn a_run_of_another_suite_program_policy_or_host_is_no_measurement_of_this_one() {
    only(&with_run(|run| run.suite = Hash::of(b"other")), REFERENCE);
    let begun = |change: fn(&mut Start)| begun_with(change);
    only(
        &begun(|start| start.policy.id = "other".to_owned()),
        REFERENCE,
    );
    only(
        &begun(|start| start.workload.program.sha256 = Some(Hash::of(b"other"))),
        REFERENCE,
    );
    // Bare, and in a runtime of the runner's own, the program is known.
    let unknown = |tier: Option<&str>, arm, runtime| {
        with_cells(|scene, cells| {
            let met = match arm {
                Arm::Run => Met::Refusal,
                Arm::Baseline | Arm::Ablation => Met::WayOut,
            };
            let shot = shot(arm, arm == Arm::Run, met);
            let controls = if shot.declared {
                &[shot.control][..]
            } else {
                &[]
            };
            let mut start = scene.start(runtime, controls);
            start.workload.program.sha256 = None;
            start.runtime.tier = tier.map(str::to_owned);
            let start = scene.maker.start(start);
            let run = scene.probe(start, &shot);
            let run = Some(U53::from(scene.record(run)));
            match arm {
                Arm::Run => cells[0].run = run,
                Arm::Baseline | Arm::Ablation => cells[0].baseline = run,
            }
        })
    };
    only(&unknown(None, Arm::Baseline, "native"), REFERENCE);
    let found = told(&unknown(Some("full"), Arm::Run, "embedded")).0;
    assert!(found.contains(&Code::ReferenceInvalid), "{found:?}");
    // A template looks for it itself.
    assert_eq!(told(&unknown(None, Arm::Run, "embedded")), (vec![], 0));
    for argv in [
        &["/workload/probe"][..],
        &["/workload/probe", "other"],
        &["/workload/probe", "attack", "more"],
        &["/workload/probe", "attack more"],
    ] {
        let argv: Vec<_> = argv.iter().map(|word| (*word).to_owned()).collect();
        let begun = begun_with(|start| {
            start.workload.argv = Sealable::Clear(List::Inline(argv));
        });
        only(&begun, REFERENCE);
    }
    // What is sealed cannot be compared.
    let sealed = begun(|start| start.workload.argv = Sealable::Sealed(Hash::ZERO));
    assert_eq!(told(&sealed), (vec![], 0));
    let host = |change: fn(&mut ledger::facts::host::HostFacts)| {
        let mut scene = Scene::new();
        let cells = scene.measure("embedded", true, Met::Refusal);
        let mut facts = records::host();
        change(&mut facts);
        scene.host = scene.maker.record(Body::Host(Box::new(facts)));
        let matrix = scene.matrix(cells);
        scene.write_matrix(matrix);
        scene
    };
    only(&host(|facts| facts.kernel.push('1')), REFERENCE);
    // The same facts, written once more.
    assert_eq!(told(&host(|_| {})), (vec![], 0));
    // No host record at all.
    let mut scene = Scene::new();
    let cells = scene.measure("embedded", true, Met::Refusal);
    scene.host = 0;
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    only(&scene, REFERENCE);
}

#[test]
fn a_run_counts_for_one_matrix() {
    let mut scene = Scene::new();
    let cells = scene.measure("embedded", true, Met::Refusal);
    for _ in 0..2 {
        let matrix = scene.matrix(cells.clone());
        scene.write_matrix(matrix);
    }
    only(&scene, REFERENCE);
}

#[test]
fn a_matrix_leaves_nothing_out_and_says_nothing_twice() {
    only(&with_cells(|_, cells| drop(cells.pop())), MISMATCH);
    only(
        &with_cells(|_, cells| cells.push(cells[0].clone())),
        MISMATCH,
    );
}

#[test]
fn what_no_module_can_try_names_nothing_where_modules_alone_are_run() {
    let matrix = |runtime: &'static str, change: &dyn Fn(&mut Cell)| {
        with_cells(|_, cells| {
            for cell in cells {
                *cell = Cell {
                    ablation: None,
                    baseline: None,
                    check: cell.check.clone(),
                    declared: false,
                    reason: Some(CellReason::RuntimeRunsNoPrograms),
                    run: None,
                    runtime: runtime.to_owned(),
                    verdict: CellVerdict::NotApplicable,
                };
                change(cell);
            }
        })
    };
    let scene = matrix("wasi", &|_| {});
    let result = scene.maker.verify();
    assert_eq!(result.exit_code, 0, "{:#?}", result.findings);
    // Elsewhere it is a measurement that was left out, and said to be none.
    only(&matrix("embedded", &|_| {}), MISMATCH);
    // Nor is it what it is not.
    only(&matrix("wasi", &|cell| cell.declared = true), MISMATCH);
    let forbidden = |cell: &mut Cell| cell.reason = Some(CellReason::HostForbids);
    only(&matrix("wasi", &forbidden), MISMATCH);
    let contained = |cell: &mut Cell| {
        (cell.verdict, cell.reason) = (CellVerdict::Contained, None);
    };
    only(&matrix("wasi", &contained), REFERENCE);
}
