//! Each rule, on signed ledgers made here: one defect at a time.

use std::fs::{self, File};

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::bytes::time::{Clock, Timestamp};
use ledger::facts::control::{Control, Controls, Declared, Unsupported};
use ledger::facts::execution::{Execution, NotExecuted, Observed, Outcome, Output, Start, Verdict};
use ledger::facts::list::{BlobList, List, Sealable};
use ledger::facts::policy::Policy;
use ledger::file::source::Source;
use ledger::finding::Code;
use ledger::record::{Body, Note};

use super::{CheckStatus, Demands, Moment, Verification, verify};
use maker::Maker;
use records::{BOOT, execution};

mod attached;
mod columns;
mod denied;
mod guarantees;
mod kept_in_blobs;
#[path = "../../tests/it/support/maker.rs"]
mod maker;
mod matrices;
#[path = "../../tests/it/support/measured.rs"]
mod measured;
#[path = "../../tests/it/support/records.rs"]
mod records;

const OTHER_BOOT: &str = "00000000-5f0b-4a3e-9a44-0f2b1d2c3e4f";

impl Maker {
    fn verify(&self) -> Verification {
        let mut source = Source::open(self.write()).unwrap();
        verify(&mut source, Demands::default()).unwrap()
    }

    /// Codes above an observation, and the exit code.
    fn told(&self) -> (Vec<Code>, u8) {
        let result = self.verify();
        let codes = result
            .findings
            .iter()
            .map(|finding| finding.code)
            .filter(|code| code.class() != ledger::finding::Class::Observation);
        (codes.collect(), result.exit_code)
    }

    fn observes(&self, code: Code) -> bool {
        let result = self.verify();
        assert_eq!(result.exit_code, 0, "{:#?}", result.findings);
        result.findings.iter().any(|finding| finding.code == code)
    }

    /// A start with the policy's blob in place.
    fn plain_start(&self) -> Start {
        let sha256 = self.blob(&policy("strict"));
        start(sha256)
    }
}

fn policy(mode: &str) -> Vec<u8> {
    let text = format!(
        r#"{{"id": "p", "enforcement": {{"mode": "{mode}", "requiredControls": ["network"]}}}}"#
    );
    let policy = Policy::parse("p.json", text.as_bytes()).unwrap();
    policy.effective_blob().unwrap()
}

fn declared(control: Control, value: Option<&str>) -> Declared {
    Declared {
        backup: None,
        control,
        mechanism: "m".to_owned(),
        value: value.map(str::to_owned),
    }
}

/// A start whose policy asks for one control, and has it.
fn start(policy: Hash) -> Start {
    Start {
        controls: Controls {
            declared: vec![declared(Control::Network, None)],
            requested: vec![Control::Network],
            unsupported: vec![],
            wanted: vec![],
        },
        ..records::start(policy)
    }
}

fn output(kept: u32, blob: Option<Hash>) -> Option<Sealable<Output>> {
    Some(Sealable::Clear(Output {
        base64: None,
        text: blob.is_none().then(|| "x".repeat(kept as usize)),
        blob,
        bytes: U53::from(kept),
        kept: U53::from(kept),
        sha256: blob.unwrap_or_else(|| Hash::of("x".repeat(kept as usize).as_bytes())),
    }))
}

#[test]
fn a_whole_run_is_consistent() {
    let mut maker = Maker::new();
    let start = maker.start(maker.plain_start());
    maker.end(execution(start, Verdict::AsRequested));
    let result = maker.verify();
    assert_eq!(result.exit_code, 0, "{:#?}", result.findings);
    assert_eq!(result.consistency.as_str(), "established");
    let status = |id: &str| {
        let check = result.checks.iter().find(|check| check.id == id).unwrap();
        (check.status, check.count)
    };
    assert_eq!(status("controls"), (CheckStatus::Pass, 1));
    assert_eq!(status("verdicts"), (CheckStatus::Pass, 1));
    assert_eq!(status("limits"), (CheckStatus::NotChecked, 0));
}

#[test]
fn a_strict_policy_runs_nothing_without_its_controls() {
    let without = |mode: &str, verdict| {
        let mut maker = Maker::new();
        let mut start = start(maker.blob(&policy(mode)));
        start.controls.declared.clear();
        start.controls.unsupported = vec![Unsupported {
            control: Control::Network,
            reason: "no-namespace".to_owned(),
        }];
        let start = maker.start(start);
        let mut end = execution(start, verdict);
        if verdict == Verdict::NotExecuted {
            end.result.outcome = Outcome::NotExecuted;
            end.result.exit_code = None;
            end.result.reason = Some(NotExecuted::Refused);
        }
        maker.end(end);
        maker
    };
    let went_on = without("strict", Verdict::ControlsMissing);
    assert_eq!(went_on.told(), (vec![Code::ControlMissingUnderStrict], 12));
    assert_eq!(went_on.verify().consistency.as_str(), "broken");
    assert!(without("strict", Verdict::NotExecuted).observes(Code::ControlNotApplied));
    assert!(without("best-effort", Verdict::ControlsMissing).observes(Code::ControlNotApplied));
    // The policy requires more than the start says was requested.
    let mut maker = Maker::new();
    let mut start = maker.plain_start();
    start.controls = Controls::default();
    let start = maker.start(start);
    maker.end(execution(start, Verdict::AsRequested));
    assert_eq!(maker.told(), (vec![Code::ControlMissingUnderStrict], 12));
}

#[test]
fn without_the_policy_the_rule_is_not_checked() {
    let mut maker = Maker::new();
    let start = maker.start(start(Hash::of(b"no such policy")));
    maker.end(execution(start, Verdict::AsRequested));
    assert_eq!(maker.told(), (vec![Code::BlobMissing], 11));
    let result = maker.verify();
    let controls = result.checks.iter().find(|it| it.id == "controls").unwrap();
    assert_eq!(controls.status, CheckStatus::NotChecked);
    assert_eq!(result.consistency.as_str(), "not-established");
    // From a stream there are no blobs: not checked, and no finding.
    let lines = std::io::Cursor::new(maker.lines.clone());
    let mut stream = Source::from_reader("-", Box::new(lines));
    let result = verify(&mut stream, Demands::default()).unwrap();
    assert_eq!(result.exit_code, 0, "{:#?}", result.findings);
}

#[test]
fn a_blob_that_is_no_policy_never_switches_the_rule_off() {
    let whole = String::from_utf8(policy("strict")).unwrap();
    let (long, spaces) = ("x".repeat(1 << 21), " ".repeat(1 << 20));
    for bytes in [
        vec![b'x'; (1 << 20) + 1],
        vec![b'x'; (1 << 21) + 1],
        format!("{whole}{spaces}").into_bytes(),
        format!("{spaces}{spaces}{whole}").into_bytes(),
        whole
            .replacen(r#""id":"p""#, &format!(r#""id":"{long}""#), 1)
            .into_bytes(),
    ] {
        let mut maker = Maker::new();
        let mut start = start(maker.blob(&bytes));
        start.controls.declared.clear();
        let start = maker.start(start);
        maker.end(execution(start, Verdict::ControlsMissing));
        assert_eq!(maker.told(), (vec![Code::BlobMismatch], 10));
        assert_eq!(maker.verify().integrity.as_str(), "broken");
    }
}

#[test]
fn verdicts_are_computed_again() {
    let mut maker = Maker::new();
    let start = maker.start(maker.plain_start());
    maker.end(execution(start, Verdict::Reduced));
    assert_eq!(maker.told(), (vec![Code::VerdictMismatch], 10));
}

#[test]
fn references_point_backwards_at_the_right_kind() {
    type Change = fn(&mut Start);
    let changes: [Change; 4] = [
        |start| start.host = U53::from(0),
        |start| start.host = U53::from(2),
        |start| start.host = U53::from(400),
        |start| start.matrix = Some(U53::from(1)),
    ];
    for change in changes {
        let mut maker = Maker::new();
        let mut begun = maker.plain_start();
        change(&mut begun);
        let start = maker.start(begun);
        maker.end(execution(start, Verdict::AsRequested));
        assert_eq!(maker.told(), (vec![Code::ReferenceInvalid], 10));
    }
    let mut maker = Maker::new();
    let start = maker.start(maker.plain_start());
    maker.end(execution(start, Verdict::AsRequested));
    maker.end(execution(start, Verdict::AsRequested));
    assert_eq!(maker.told(), (vec![Code::ReferenceInvalid], 10));
}

#[test]
fn a_start_without_end_is_unfinished_unless_its_lock_is_held() {
    let mut maker = Maker::new();
    let start = maker.plain_start();
    let run = start.run;
    maker.start(start);
    assert_eq!(maker.told(), (vec![Code::RunUnfinished], 11));
    let runs = maker.folder.path().join("runs");
    fs::create_dir(&runs).unwrap();
    let lock = File::create(runs.join(format!("{run}.lock"))).unwrap();
    assert_eq!(maker.told(), (vec![Code::RunUnfinished], 11));
    lock.lock().unwrap();
    assert!(maker.observes(Code::WriteInProgress));
    lock.unlock().unwrap();
    assert_eq!(maker.told(), (vec![Code::RunUnfinished], 11));
}

#[test]
fn observed_figures_stay_below_declared_limits() {
    type Change = fn(&mut Execution);
    let observed = |change: fn(&mut Observed)| {
        let mut observed = Observed {
            cpu_us: None,
            memory_peak_bytes: None,
            oom_kills: None,
            pids_peak: None,
            source: "cgroup-v2".to_owned(),
            uid: None,
        };
        change(&mut observed);
        Some(observed)
    };
    let run = |control, value: &str, change: &dyn Fn(&mut Execution)| {
        let mut maker = Maker::new();
        let mut begun = maker.plain_start();
        begun.controls.declared.push(declared(control, Some(value)));
        let start = maker.start(begun);
        let mut end = execution(start, Verdict::AsRequested);
        change(&mut end);
        maker.end(end);
        maker.told()
    };
    let good = (vec![], 0);
    let exceeded = (vec![Code::LimitExceeded], 12);
    let memory = |bytes: u32| {
        run(Control::Memory, "1 MiB", &|end| {
            end.observed = observed(|_| {});
            end.observed.as_mut().unwrap().memory_peak_bytes = Some(U53::from(bytes));
        })
    };
    assert_eq!(memory(1 << 20), good);
    assert_eq!(memory((1 << 20) + 1), exceeded);
    let tasks: Change = |_| {};
    assert_eq!(run(Control::Processes, "4 tasks", &tasks), good);
    let five = |end: &mut Execution| {
        end.observed = observed(|observed| observed.pids_peak = Some(U53::from(5)));
    };
    assert_eq!(run(Control::Processes, "4 tasks", &five), exceeded);
    let late = |end: &mut Execution| end.result.duration_us = Some(U53::from(60_000_000));
    assert_eq!(run(Control::Timeout, "30000 ms", &late), exceeded);
    assert_eq!(run(Control::Timeout, "60000 ms", &late), good);
    let long = |end: &mut Execution| end.result.stdout = output(11, None);
    assert_eq!(run(Control::Output, "11 bytes", &long), good);
    assert_eq!(
        run(Control::Output, "10 bytes", &long),
        (vec![Code::OutputOverCap], 12)
    );
    let uid = |uid: u32| {
        run(Control::User, "1000 inside, 100000 outside", &|end| {
            end.observed = observed(|_| {});
            end.observed.as_mut().unwrap().uid = Some(uid);
        })
    };
    assert_eq!(uid(100_000), good);
    assert_eq!(uid(0), (vec![Code::UserDiffers], 12));
    let root = |end: &mut Execution| end.observed = observed(|observed| observed.uid = Some(0));
    assert_eq!(
        run(Control::User, "1000 inside, an unused id outside", &root),
        (vec![Code::UserDiffers], 12)
    );
}

#[test]
fn a_start_refers_to_the_host_of_its_own_boot() {
    let mut maker = Maker::new();
    maker.boot = OTHER_BOOT;
    let start = maker.start(maker.plain_start());
    maker.end(execution(start, Verdict::AsRequested));
    assert_eq!(maker.told(), (vec![Code::HostStale], 12));
}

#[test]
fn a_stamp_that_was_appended_late_is_no_clock_step() {
    let at = |seconds: i64, since_boot_us: u32, boot: &str| Moment {
        time: Timestamp::from_unix_micros(seconds * 1_000_000).unwrap(),
        clock: Clock {
            boot_id: boot.parse().unwrap(),
            since_boot_us: U53::from(since_boot_us),
        },
    };
    let before = at(1_000, 60_000_000, BOOT);
    // Two seconds earlier by both clocks.
    assert!(!before.stepped_back(&at(998, 58_000_000, BOOT)));
    assert!(!before.stepped_back(&at(998, 58_050_000, BOOT)));
    assert!(!before.stepped_back(&at(1_001, 61_000_000, BOOT)));
    // Earlier by the wall clock alone, or by more than the boot clock says.
    assert!(before.stepped_back(&at(998, 61_000_000, BOOT)));
    assert!(before.stepped_back(&at(998, 59_000_000, BOOT)));
    // Of another boot only the wall clock can be compared.
    assert!(before.stepped_back(&at(998, 58_000_000, OTHER_BOOT)));
    assert!(!before.stepped_back(&at(1_001, 1, OTHER_BOOT)));
}

#[test]
fn a_clock_that_steps_back_and_a_key_in_reach_are_told() {
    let mut maker = Maker::new();
    maker.second = -100;
    let text = "late".to_owned();
    maker.record(Body::Note(Note { text }));
    assert!(maker.observes(Code::ClockStep));
    let mut maker = Maker::new();
    let mut begun = maker.plain_start();
    begun.key_reachable = Some(true);
    let start = maker.start(begun);
    maker.end(execution(start, Verdict::AsRequested));
    assert!(maker.observes(Code::KeyReachable));
}
