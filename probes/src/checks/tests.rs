//! The table here and the suite's table say the same, and neither leaves a control out.

use super::*;
use ledger::facts::control::Control;
use ledger::facts::suite::{Arm, Risk, Suite};

fn suite() -> Suite {
    serde_json::from_str(include_str!("../../suite.json")).unwrap()
}

#[test]
fn the_suite_is_in_order() {
    suite().check().unwrap();
}

#[test]
fn every_control_has_a_row_and_a_check() {
    let suite = suite();
    let rows: Vec<_> = suite.probes.iter().map(|probe| probe.control).collect();
    assert_eq!(rows, Control::ALL, "one row a control, in their order");
    for probe in &suite.probes {
        assert!(!probe.checks.is_empty(), "{}", probe.id);
        assert_eq!(probe.id.as_str(), probe.control.as_str());
        assert_eq!(probe.arguments, [probe.control.as_str()]);
        assert!(probe.is_own());
    }
}

#[test]
fn what_uses_resources_up_never_runs_bare() {
    for probe in suite().probes {
        let abuse = matches!(
            probe.control,
            Control::Memory | Control::Processes | Control::Cpu | Control::Disk
        );
        let risk = if abuse {
            Risk::ResourceAbuse
        } else {
            Risk::Controlled
        };
        assert_eq!(probe.risk, risk, "{}", probe.id);
        let arms: &[Arm] = if abuse {
            &[Arm::Ablation, Arm::Run]
        } else {
            Arm::ALL
        };
        assert_eq!(probe.arms, arms, "{}", probe.id);
    }
}

#[test]
fn the_program_and_the_suite_know_the_same_checks_and_refusals() {
    let said =
        |control: &str, check: &str, denied: Vec<String>| format!("{control}/{check} {denied:?}");
    let theirs: Vec<_> = suite()
        .probes
        .iter()
        .flat_map(|probe| probe.checks.iter().map(move |check| (probe, check)))
        .map(|(probe, check)| {
            let denied = check.denied.iter().map(ToString::to_string).collect();
            said(probe.id.as_str(), check.check.as_str(), denied)
        })
        .collect();
    let ours: Vec<_> = ROWS
        .iter()
        .flat_map(|row| row.checks.iter().map(move |check| (row, check)))
        .map(|(row, check)| {
            let denied = check.denied.iter().map(ToString::to_string).collect();
            said(row.control, check.name, denied)
        })
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn what_was_read_is_shown_so_that_it_can_be_found() {
    assert_eq!(show(b"containment-0123\n"), "containment-0123");
    assert_eq!(show(b"a b"), "612062");
    assert_eq!(show(&[0xff, 0]), "ff00");
    assert_eq!(show(&[b'x'; 100]).len(), 64);
}
