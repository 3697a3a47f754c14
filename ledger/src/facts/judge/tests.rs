mod pitfalls;

use super::*;
use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::facts::control::Control;
use crate::facts::execution::{Execution, RunResult, Verdict};
use crate::facts::fixtures::host;
use crate::facts::list::List;
use crate::facts::probe::{Errno, Nonce};
use crate::facts::suite::{Arm, Need, ProbeProgram, Risk};

const ID: &str = "network/tcp4";

fn probe(oracle: Oracle, twin: TwinKind) -> Probe {
    Probe {
        arguments: vec!["network".to_owned()],
        arms: vec![Arm::Baseline, Arm::Ablation, Arm::Run],
        checks: vec![Check {
            check: "tcp4".parse().unwrap(),
            denied: vec!["ENETUNREACH".parse().unwrap(), "EPERM".parse().unwrap()],
            module: false,
            needs: Vec::new(),
            oracle,
            twin,
        }],
        control: Control::Network,
        id: "network".parse().unwrap(),
        program: None,
        risk: Risk::Controlled,
    }
}

/// One arm as it was recorded.
#[derive(Clone)]
struct Kept {
    run: ProbeRun,
    lines: Vec<String>,
}

impl Kept {
    fn new(arm: Arm, saw: Option<Saw>) -> Self {
        let observation = |saw| Observation {
            alive_after: true,
            alive_before: true,
            check: ID.to_owned(),
            expected: Some("127.0.0.1:4711".to_owned()),
            saw,
        };
        Self {
            run: ProbeRun {
                ablated: (arm == Arm::Ablation).then_some(Control::Network),
                arm,
                controller: saw.map(observation).into_iter().collect(),
                execution: Execution {
                    artifacts: None,
                    cleanup: None,
                    observed: None,
                    result: RunResult {
                        duration_us: None,
                        errno: None,
                        exit_code: Some(0),
                        outcome: Outcome::Exited,
                        reason: None,
                        signal: None,
                        stderr: None,
                        stdout: None,
                    },
                    start: U53::ZERO,
                    unmeasured: None,
                    verdict: Verdict::AsRequested,
                    violations: None,
                },
                lines: List::Inline(Vec::new()),
                nonce: Nonce::new(&[7; 16]).unwrap(),
                probe: "network".parse().unwrap(),
                suite: Hash::of(b"suite"),
            },
            lines: Vec::new(),
        }
    }

    fn says(mut self, result: ProbeResult, errno: &str, twin: Twin) -> Self {
        let errno: Errno = errno.parse().unwrap();
        let nonce = proof(
            &self.run.nonce,
            ID,
            result,
            &errno,
            twin,
            &"x".parse().unwrap(),
        );
        self.lines.push(format!(
            "probe=network dimension=network check=tcp4 result={result} errno={errno} twin={twin} nonce={nonce} detail=x"
        ));
        self
    }

    fn seen(&self) -> Seen<'_> {
        Seen {
            run: &self.run,
            lines: &self.lines,
        }
    }
}

fn escaped(arm: Arm) -> Kept {
    Kept::new(arm, Some(Saw::Nonce)).says(ProbeResult::Escaped, "none", Twin::Ok)
}

fn contained(arm: Arm) -> Kept {
    Kept::new(arm, Some(Saw::Nothing)).says(ProbeResult::Contained, "ENETUNREACH", Twin::Ok)
}

struct Case {
    probe: Probe,
    host: HostFacts,
    declared: bool,
    runtime: &'static str,
    baseline: Option<Kept>,
    ablation: Option<Kept>,
    run: Option<Kept>,
}

impl Case {
    fn new(run: Kept) -> Self {
        Self {
            probe: probe(Oracle::Listener, TwinKind::Allowed),
            host: host(),
            declared: true,
            runtime: "embedded",
            baseline: Some(escaped(Arm::Baseline)),
            ablation: Some(escaped(Arm::Ablation)),
            run: Some(run),
        }
    }

    fn judge(&self) -> (CellVerdict, Option<CellReason>) {
        let judged = judge(&Question {
            probe: &self.probe,
            check: &self.probe.checks[0],
            host: &self.host,
            declared: self.declared,
            runtime: self.runtime,
            baseline: self.baseline.as_ref().map(Kept::seen),
            ablation: self.ablation.as_ref().map(Kept::seen),
            run: self.run.as_ref().map(Kept::seen),
        });
        (judged.verdict, judged.reason)
    }

    fn is(&self, reason: CellReason) {
        assert_eq!(self.judge(), (CellVerdict::Inconclusive, Some(reason)));
    }
}

#[test]
fn contained_takes_a_refusal_an_oracle_a_twin_and_an_arm_that_escaped() {
    let whole = Case::new(contained(Arm::Run));
    assert_eq!(whole.judge(), (CellVerdict::Contained, None));
    for (baseline, ablation) in [(true, false), (false, true)] {
        let mut case = Case::new(contained(Arm::Run));
        case.baseline = baseline.then(|| escaped(Arm::Baseline));
        case.ablation = ablation.then(|| escaped(Arm::Ablation));
        assert_eq!(case.judge(), (CellVerdict::Contained, None));
    }
    let mut case = Case::new(contained(Arm::Run));
    (case.baseline, case.ablation) = (None, None);
    case.is(CellReason::NotCalibrated);
    case.baseline = Some(contained(Arm::Baseline));
    case.is(CellReason::BaselineContained);
    case.baseline = None;
    case.ablation = Some(contained(Arm::Ablation));
    case.is(CellReason::AblationContained);
    case.ablation = Some(Kept::new(Arm::Ablation, Some(Saw::Nothing)));
    case.is(CellReason::NotCalibrated);
}

#[test]
fn an_escape_that_the_controller_saw_counts_whatever_the_probe_says() {
    for kept in [
        escaped(Arm::Run),
        Kept::new(Arm::Run, Some(Saw::Nonce)),
        Kept::new(Arm::Run, Some(Saw::Changed)).says(ProbeResult::Contained, "EPERM", Twin::Ok),
        Kept::new(Arm::Run, Some(Saw::Signal)).says(ProbeResult::Error, "none", Twin::None),
    ] {
        let mut case = Case::new(kept);
        (case.baseline, case.ablation) = (None, None);
        assert_eq!(case.judge(), (CellVerdict::FalseGuarantee, None));
        case.declared = false;
        assert_eq!(case.judge(), (CellVerdict::Escaped, None));
        // A third party's program that is seen to escape has escaped.
        case.probe.program = Some(ProbeProgram {
            path: "probe.sh".to_owned(),
            sha256: None,
        });
        assert_eq!(case.judge(), (CellVerdict::Escaped, None));
    }
}

#[test]
fn what_is_missing_is_named() {
    let run = |kept: Kept| Case::new(kept);
    run(Kept::new(Arm::Run, Some(Saw::Nothing))).is(CellReason::NoOutput);
    let mut none = run(contained(Arm::Run));
    none.run = None;
    none.is(CellReason::NoOutput);
    run(Kept::new(Arm::Run, Some(Saw::Nothing)).says(ProbeResult::Escaped, "none", Twin::Ok))
        .is(CellReason::OracleDisagrees);
    run(Kept::new(Arm::Run, None).says(ProbeResult::Contained, "EPERM", Twin::Ok))
        .is(CellReason::OracleUnavailable);
    run(Kept::new(Arm::Run, Some(Saw::Unavailable)).says(
        ProbeResult::Contained,
        "EPERM",
        Twin::Ok,
    ))
    .is(CellReason::OracleUnavailable);
    for (before, after) in [(false, true), (true, false)] {
        let mut kept = contained(Arm::Run);
        kept.run.controller[0].alive_before = before;
        kept.run.controller[0].alive_after = after;
        run(kept).is(CellReason::OracleUnavailable);
    }
    run(Kept::new(Arm::Run, Some(Saw::Nothing)).says(ProbeResult::Contained, "EIO", Twin::Ok))
        .is(CellReason::UnexpectedError);
    run(Kept::new(Arm::Run, Some(Saw::Nothing)).says(ProbeResult::Contained, "none", Twin::Ok))
        .is(CellReason::UnexpectedError);
    run(Kept::new(Arm::Run, Some(Saw::Nothing)).says(
        ProbeResult::Contained,
        "EPERM",
        Twin::Failed,
    ))
    .is(CellReason::TwinFailed);
    run(Kept::new(Arm::Run, Some(Saw::Nothing)).says(ProbeResult::Error, "ENOENT", Twin::None))
        .is(CellReason::InstrumentMissing);
    let twice = contained(Arm::Run).says(ProbeResult::Contained, "EPERM", Twin::Ok);
    run(twice).is(CellReason::NoOutput);
}

#[test]
fn a_line_that_is_not_bound_to_the_run_is_none() {
    let good = contained(Arm::Run);
    let line = good.lines[0].clone();
    let with = |lines: Vec<String>| Kept {
        lines,
        ..good.clone()
    };
    // A copy of the secret itself, another answer under the same proof, and the line of another check.
    let secret = good.run.nonce.to_string();
    let at = line.find("nonce=").unwrap();
    let copied = format!("{}nonce={secret} detail=x", &line[..at]);
    for text in [
        copied,
        line.replace("ENETUNREACH", "EPERM"),
        line.replace("check=tcp4", "check=tcp6"),
        line.replace("probe=network", "probe=other"),
        line.replace(" twin=ok", ""),
        line.replace("detail=x", "detail=y"),
        line.replace(" detail=x", ""),
        format!("x{line}"),
    ] {
        Case::new(with(vec![text])).is(CellReason::NoOutput);
    }
    // Of another run.
    let mut other = contained(Arm::Run);
    other.run.nonce = Nonce::new(&[8; 16]).unwrap();
    Case::new(other).is(CellReason::NoOutput);
}

#[test]
fn a_third_partys_word_is_never_contained() {
    let mut case = Case::new(contained(Arm::Run));
    case.probe.program = Some(ProbeProgram {
        path: "probe.sh".to_owned(),
        sha256: None,
    });
    case.is(CellReason::SelfReported);
    case.run = Some(Kept::new(Arm::Run, Some(Saw::Nothing)));
    case.is(CellReason::SelfReported);
}

#[test]
fn what_only_the_probe_can_see_rests_on_its_line_and_the_other_arms() {
    let line_only = |result, errno| Kept::new(Arm::Run, None).says(result, errno, Twin::Ok);
    let mut case = Case::new(line_only(ProbeResult::Contained, "EPERM"));
    case.probe = probe(Oracle::Line, TwinKind::Allowed);
    case.baseline = Some(line_only(ProbeResult::Escaped, "none"));
    case.ablation = None;
    assert_eq!(case.judge(), (CellVerdict::Contained, None));
    case.run = Some(line_only(ProbeResult::Escaped, "none"));
    assert_eq!(case.judge(), (CellVerdict::FalseGuarantee, None));
}

#[test]
fn what_the_host_forbids_is_not_applicable_unless_it_escapes() {
    let mut case = Case::new(contained(Arm::Run));
    case.probe.checks[0].needs = vec![Need::Ipv6];
    case.baseline = Some(contained(Arm::Baseline));
    case.ablation = None;
    // Without a fact that explains it, it is a baseline that contains.
    case.is(CellReason::BaselineContained);
    let name = "net.ipv6.conf.all.disable_ipv6".to_owned();
    case.host.sysctls.insert(name, "1".to_owned());
    let forbidden = (CellVerdict::NotApplicable, Some(CellReason::HostForbids));
    assert_eq!(case.judge(), forbidden);
    case.baseline = Some(escaped(Arm::Baseline));
    assert_eq!(case.judge(), (CellVerdict::Contained, None));
    case.baseline = Some(contained(Arm::Baseline));
    case.run = Some(escaped(Arm::Run));
    assert_eq!(case.judge(), (CellVerdict::FalseGuarantee, None));
}

#[test]
fn what_no_module_can_try_is_not_applicable_where_modules_alone_are_run() {
    let mut case = Case::new(contained(Arm::Run));
    case.run = None;
    case.is(CellReason::NoOutput);
    case.runtime = MODULES;
    let none = (
        CellVerdict::NotApplicable,
        Some(CellReason::RuntimeRunsNoPrograms),
    );
    assert_eq!(case.judge(), none);
    // One that a module can try is measured, and nowhere taken for granted.
    case.probe.checks[0].module = true;
    case.is(CellReason::NoOutput);
    case.run = Some(escaped(Arm::Run));
    assert_eq!(case.judge(), (CellVerdict::FalseGuarantee, None));
    case.run = Some(contained(Arm::Run));
    assert_eq!(case.judge(), (CellVerdict::Contained, None));
    // A third party's program may be a module.
    case.probe.checks[0].module = false;
    case.probe.program = Some(ProbeProgram {
        path: "probe.wasm".to_owned(),
        sha256: None,
    });
    case.is(CellReason::SelfReported);
}

#[test]
fn a_run_that_never_was_is_told_from_one_that_was_silent() {
    let not_executed = |reason| {
        let mut kept = Kept::new(Arm::Run, Some(Saw::Nothing));
        kept.run.execution.result.outcome = Outcome::NotExecuted;
        kept.run.execution.result.exit_code = None;
        kept.run.execution.result.reason = Some(reason);
        Case::new(kept)
    };
    assert_eq!(
        not_executed(NotExecuted::Refused).judge(),
        (CellVerdict::NotApplicable, Some(CellReason::PlanRefused))
    );
    not_executed(NotExecuted::NotFound).is(CellReason::InstrumentMissing);
    not_executed(NotExecuted::LaunchFailed).is(CellReason::InstrumentMissing);
}

#[test]
fn a_way_out_without_traffic_is_no_containment() {
    let mut kept = Kept::new(Arm::Run, Some(Saw::Nothing));
    let (result, errno) = (ProbeResult::Error, "none".parse().unwrap());
    let detail = "path-present: eth0 is up".parse().unwrap();
    let nonce = proof(&kept.run.nonce, ID, result, &errno, Twin::None, &detail);
    kept.lines.push(format!(
        "probe=network dimension=network check=tcp4 result=error errno=none twin=none nonce={nonce} detail={detail}"
    ));
    Case::new(kept).is(CellReason::PathPresent);
}
