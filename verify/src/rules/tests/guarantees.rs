//! What the newest matrices say about declarations.

use ledger::facts::matrix::Cell;

use super::measured::{CHECKS, Met, Scene};
use super::*;

fn codes(scene: &Scene) -> Vec<(Code, u64)> {
    let result = scene.maker.verify();
    let told = result.findings.iter().map(|it| (it.code, it.count));
    told.filter(|(code, _)| {
        !matches!(
            code,
            Code::CompletenessNotEstablished | Code::IdentityNotEstablished
        )
    })
    .collect()
}

/// An ordinary run that names a matrix and declares both controls.
fn ordinary(scene: &mut Scene, matrix: u32, change: impl FnOnce(&mut Start)) {
    let mut start = scene.start("embedded", &CHECKS.map(|(control, _)| control));
    start.matrix = Some(U53::from(matrix));
    change(&mut start);
    let start = scene.maker.start(start);
    scene.maker.end(execution(start, Verdict::AsRequested));
}

#[test]
fn an_escape_from_a_declared_control_is_a_false_guarantee() {
    let mut scene = Scene::new();
    scene.measured("embedded", true, Met::WayOut);
    assert_eq!(codes(&scene), [(Code::FalseGuarantee, 1); 2]);
    let result = scene.maker.verify();
    assert_eq!(result.exit_code, 12);
    assert_eq!(result.consistency.as_str(), "broken");
    assert_eq!(result.integrity.as_str(), "established");
    let message = &result.findings[0].message;
    assert!(message.contains("network-mechanism"), "{message}");
    assert!(message.contains("127.0.0.1:4711"), "{message}");
}

#[test]
fn an_escape_that_was_not_declared_fails_nothing() {
    let mut scene = Scene::new();
    scene.measured("embedded", false, Met::WayOut);
    assert_eq!(codes(&scene), [(Code::UndeclaredEscape, 2)]);
    assert_eq!(scene.maker.verify().exit_code, 0);
}

#[test]
fn a_declared_control_that_nothing_measured_disagrees() {
    let mut scene = Scene::new();
    scene.measured("embedded", true, Met::NoOracle);
    assert_eq!(codes(&scene), [(Code::DeclaredUnmeasured, 1); 2]);
    assert_eq!(scene.maker.verify().exit_code, 12);
    // Not declared, there is nothing to measure.
    let mut scene = Scene::new();
    scene.measured("embedded", false, Met::NoOracle);
    assert_eq!(codes(&scene), []);
    // One check that came to a result is enough; a control without any check is not.
    let mut scene = Scene::new();
    let mut cells = scene.measure("embedded", true, Met::Refusal);
    let mut start = scene.start("embedded", &[CHECKS[0].0, Control::Memory]);
    start.run = ledger::facts::execution::RunId::from_bytes([9; 16]);
    let start = scene.maker.start(start);
    let shot = measured::Shot {
        arm: ledger::facts::suite::Arm::Run,
        control: CHECKS[0].0,
        declared: true,
        met: Met::Refusal,
        runtime: "embedded",
    };
    let run = scene.probe(start, &shot);
    cells[0].run = Some(U53::from(scene.record(run)));
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    assert_eq!(codes(&scene), [(Code::DeclaredUnmeasured, 1)]);
    let message = &scene.maker.verify().findings[0].message;
    assert!(message.contains("memory"), "{message}");
}

#[test]
fn what_the_host_forbids_is_not_unmeasured() {
    let mut suite = measured::suite();
    for probe in &mut suite.probes {
        probe.checks[0].needs = vec![ledger::facts::suite::Need::Ipv6];
    }
    let mut scene = Scene::new();
    let mut facts = records::host();
    let name = "net.ipv6.conf.all.disable_ipv6".to_owned();
    facts.sysctls.insert(name, "1".to_owned());
    scene.host = scene.maker.record(Body::Host(Box::new(facts)));
    let blob = ledger::bytes::canon::to_canonical(&suite).unwrap();
    scene.suite = scene.maker.blob(&blob);
    let mut cells = scene.measure("embedded", true, Met::NoOracle);
    for cell in &mut cells {
        cell.baseline = None;
        cell.verdict = ledger::facts::matrix::CellVerdict::NotApplicable;
        cell.reason = Some(ledger::facts::matrix::CellReason::HostForbids);
    }
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix);
    assert_eq!(codes(&scene), []);
}

#[test]
fn only_the_newest_matrix_counts() {
    let mut scene = Scene::new();
    let old = scene.measured("embedded", true, Met::WayOut);
    scene.measured("embedded", true, Met::Refusal);
    assert_eq!(codes(&scene), [(Code::SupersededFinding, 1); 2]);
    let result = scene.maker.verify();
    assert_eq!(result.exit_code, 0);
    assert_eq!(result.findings[0].sequence, Some(u64::from(old)));
    // The other way round the newest says it.
    let mut scene = Scene::new();
    scene.measured("embedded", true, Met::Refusal);
    scene.measured("embedded", true, Met::WayOut);
    assert_eq!(codes(&scene), [(Code::FalseGuarantee, 1); 2]);
}

/// A matrix whose cells `change` made others.
fn measured_with(scene: &mut Scene, met: Met, change: impl FnOnce(&mut Vec<Cell>)) -> u32 {
    let mut cells = scene.measure("embedded", true, met);
    change(&mut cells);
    let matrix = scene.matrix(cells);
    scene.write_matrix(matrix)
}

#[test]
fn a_newer_matrix_settles_only_what_it_came_to_a_result_about() {
    let false_guarantee = (Code::FalseGuarantee, 1);
    let superseded = (Code::SupersededFinding, 1);
    // Nothing came to a result: what was false is so, beside what is unmeasured now.
    let mut scene = Scene::new();
    let old = scene.measured("embedded", true, Met::WayOut);
    let new = scene.measured("embedded", true, Met::NoOracle);
    let found = codes(&scene);
    assert_eq!(found.iter().filter(|it| **it == false_guarantee).count(), 2);
    assert!(!found.contains(&superseded), "{found:?}");
    let result = scene.maker.verify();
    assert_eq!(result.exit_code, 12);
    let kept = result.findings.iter();
    let mut kept = kept.filter(|it| it.code == Code::FalseGuarantee);
    let kept = kept.next().unwrap();
    assert_eq!(kept.sequence, Some(u64::from(old)));
    let help = kept.help.clone().unwrap();
    assert!(help.contains(&format!("matrix {new}")), "{help}");
    // Runs that name either rely on it.
    for matrix in [old, new] {
        ordinary(&mut scene, matrix, |_| {});
    }
    let relied = (Code::ReliesOnFalseGuarantee, 2);
    assert_eq!(codes(&scene).iter().filter(|it| **it == relied).count(), 2);
    // And it waits for the matrix that tells.
    scene.measured("embedded", true, Met::Refusal);
    assert_eq!(codes(&scene), [superseded; 4]);
    // A matrix without cells, and one of one control.
    let mut scene = Scene::new();
    scene.measured("embedded", true, Met::WayOut);
    measured_with(&mut scene, Met::Refusal, Vec::clear);
    assert_eq!(codes(&scene), [false_guarantee; 2]);
    let mut suite = measured::suite();
    suite.probes.truncate(1);
    let blob = ledger::bytes::canon::to_canonical(&suite).unwrap();
    scene.suite = scene.maker.blob(&blob);
    measured_with(&mut scene, Met::Refusal, |cells| cells.truncate(1));
    assert_eq!(codes(&scene), [false_guarantee, superseded]);
    // That something was not measured gives way to a newer launch.
    let mut scene = Scene::new();
    scene.measured("embedded", true, Met::NoOracle);
    scene.measured("embedded", false, Met::NoOracle);
    assert_eq!(codes(&scene), [superseded; 2]);
}

#[test]
fn another_policy_of_the_same_id_clears_no_run() {
    let mut scene = Scene::new();
    let matrix = scene.measured("embedded", true, Met::WayOut);
    ordinary(&mut scene, matrix, |_| {});
    let first = scene.policy.clone();
    scene.policy.sha256 = scene.maker.blob(&policy("best-effort"));
    assert_ne!(first, scene.policy);
    let newer = scene.measured("embedded", true, Met::Refusal);
    let superseded = (Code::SupersededFinding, 1);
    let relies = |count| (Code::ReliesOnFalseGuarantee, count);
    let mut found = codes(&scene);
    found.sort_unstable();
    let mut expected = [relies(1), relies(1), superseded, superseded];
    expected.sort_unstable();
    assert_eq!(found, expected);
    // Runs that name the newer one do not rest on the older one; a late one that names the older does.
    ordinary(&mut scene, newer, |_| {});
    ordinary(&mut scene, matrix, |_| {});
    let relied = codes(&scene);
    assert_eq!(relied.iter().filter(|it| **it == relies(2)).count(), 2);
    // The same policy, measured again, does clear them, once it comes to a result.
    scene.policy = first;
    scene.measured("embedded", true, Met::NoOracle);
    let relied = codes(&scene);
    assert_eq!(relied.iter().filter(|it| **it == relies(2)).count(), 2);
    scene.measured("embedded", true, Met::Refusal);
    assert_eq!(codes(&scene), [superseded; 4]);
}

#[test]
fn a_matrix_of_another_user_tier_runtime_or_policy_replaces_nothing() {
    let uid = |scene: &mut Scene| {
        let mut facts = records::host();
        facts.uid = 1_000;
        scene.host = scene.maker.record(Body::Host(Box::new(facts)));
        scene.measured("embedded", true, Met::Refusal);
    };
    let runtime = |scene: &mut Scene| {
        scene.measured("other", true, Met::Refusal);
    };
    let policy = |scene: &mut Scene| {
        scene.policy.id = "other".to_owned();
        scene.measured("embedded", true, Met::Refusal);
    };
    for replace in [&uid as &dyn Fn(&mut Scene), &runtime, &policy] {
        let mut scene = Scene::new();
        scene.measured("embedded", true, Met::WayOut);
        replace(&mut scene);
        assert_eq!(codes(&scene), [(Code::FalseGuarantee, 1); 2]);
    }
}

#[test]
fn a_run_relies_on_what_its_matrix_shows_to_be_false() {
    let mut scene = Scene::new();
    let matrix = scene.measured("embedded", true, Met::WayOut);
    for _ in 0..3 {
        ordinary(&mut scene, matrix, |_| {});
    }
    let relied: Vec<_> = codes(&scene)
        .into_iter()
        .filter(|(code, _)| *code == Code::ReliesOnFalseGuarantee)
        .collect();
    assert_eq!(relied, [(Code::ReliesOnFalseGuarantee, 3); 2]);
    type Change = fn(&mut Start);
    let changes: [Change; 4] = [
        |start| start.matrix = None,
        |start| start.controls.declared.clear(),
        // Another mechanism than the one that was measured, and another runtime.
        |start| {
            for declared in &mut start.controls.declared {
                declared.mechanism = "other".to_owned();
            }
        },
        |start| start.runtime.id = "other".to_owned(),
    ];
    for change in changes {
        let mut scene = Scene::new();
        let matrix = scene.measured("embedded", true, Met::WayOut);
        ordinary(&mut scene, matrix, change);
        assert_eq!(codes(&scene), [(Code::FalseGuarantee, 1); 2]);
    }
    // A newer matrix takes the place of the one that it named.
    let mut scene = Scene::new();
    let matrix = scene.measured("embedded", true, Met::WayOut);
    ordinary(&mut scene, matrix, |_| {});
    scene.measured("embedded", true, Met::Refusal);
    assert_eq!(codes(&scene), [(Code::SupersededFinding, 1); 2]);
    // Measurements rely on nothing.
    let mut scene = Scene::new();
    let matrix = scene.measured("embedded", true, Met::WayOut);
    let mut start = scene.start("embedded", &[CHECKS[0].0]);
    start.matrix = Some(U53::from(matrix));
    let start = scene.maker.start(start);
    let shot = measured::Shot {
        arm: ledger::facts::suite::Arm::Run,
        control: CHECKS[0].0,
        declared: true,
        met: Met::Refusal,
        runtime: "embedded",
    };
    let run = scene.probe(start, &shot);
    scene.record(run);
    assert_eq!(codes(&scene), [(Code::FalseGuarantee, 1); 2]);
}

#[test]
fn an_arm_without_controls_loses_none() {
    let strict = |arm, ablated| {
        let mut scene = Scene::new();
        scene.policy.sha256 = scene.maker.blob(&policy("strict"));
        let mut start = scene.start("embedded", &[]);
        start.controls.requested = vec![Control::Network];
        let start = scene.maker.start(start);
        let shot = measured::Shot {
            arm,
            control: CHECKS[0].0,
            declared: false,
            met: Met::WayOut,
            runtime: "embedded",
        };
        let mut run = scene.probe(start, &shot);
        run.execution.verdict = Verdict::ControlsMissing;
        run.ablated = ablated;
        scene.record(run);
        codes(&scene)
    };
    use ledger::facts::suite::Arm;
    assert_eq!(strict(Arm::Baseline, None), []);
    assert_eq!(strict(Arm::Ablation, Some(Control::Network)), []);
    let missing = (Code::ControlMissingUnderStrict, 1);
    assert_eq!(strict(Arm::Ablation, Some(Control::Memory)), [missing]);
    assert_eq!(
        strict(Arm::Run, None),
        [missing, (Code::ControlNotApplied, 1)]
    );
}
