//! A measurement as it is recorded: a suite of two rows, runs of them in each arm, and the matrix that names them.
//!
//! The unit tests of the rules include this file too.

#![allow(dead_code, reason = "whoever includes this file uses a part of it")]

use ledger::bytes::canon::{U53, to_canonical};
use ledger::bytes::hash::Hash;
use ledger::facts::control::{Control, Controls, Declared};
use ledger::facts::execution::{PolicyRef, Start, Verdict};
use ledger::facts::list::{List, Sealable};
use ledger::facts::matrix::{Cell, CellReason, CellVerdict, Matrix};
use ledger::facts::measurement::{Observation, ProbeRun, Saw, proof};
use ledger::facts::policy::Policy;
use ledger::facts::probe::{Errno, Nonce, ProbeResult, Twin};
use ledger::facts::suite::{Arm, Check, Oracle, Probe, Risk, SUITE_SCHEMA, Suite, TwinKind};
use ledger::record::Body;

use super::maker::Maker;
use super::records;

/// The control and the check of each row.
pub(crate) const CHECKS: [(Control, &str); 2] =
    [(Control::Network, "tcp4"), (Control::Filesystem, "read")];

/// What a probe met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// It got out, and the controller saw it.
    WayOut,
    /// It was refused.
    Refusal,
    /// The controller's instrument was broken.
    NoOracle,
}

/// One run to be recorded.
#[derive(Clone, Debug)]
pub(crate) struct Shot {
    pub(crate) arm: Arm,
    pub(crate) control: Control,
    pub(crate) declared: bool,
    pub(crate) met: Met,
    pub(crate) runtime: &'static str,
}

/// A ledger in which things are measured.
pub(crate) struct Scene {
    pub(crate) maker: Maker,
    pub(crate) policy: PolicyRef,
    pub(crate) suite: Hash,
    pub(crate) host: u32,
}

pub(crate) fn suite() -> Suite {
    let row = |(control, check): (Control, &str)| Probe {
        arguments: vec!["attack".to_owned()],
        arms: vec![Arm::Baseline, Arm::Run],
        checks: vec![Check {
            check: check.parse().unwrap(),
            denied: vec!["EPERM".parse().unwrap()],
            needs: vec![],
            oracle: Oracle::Listener,
            module: false,
            twin: TwinKind::Allowed,
        }],
        control,
        id: control.as_str().parse().unwrap(),
        program: None,
        risk: Risk::Controlled,
    };
    Suite {
        module: None,
        probes: CHECKS.into_iter().map(row).collect(),
        program: Some(Hash::of(b"probe")),
        schema: SUITE_SCHEMA.to_owned(),
    }
}

fn name_of(control: Control) -> &'static str {
    let mut checks = CHECKS.iter();
    checks.find(|(it, _)| *it == control).unwrap().1
}

impl Scene {
    pub(crate) fn new() -> Self {
        let maker = Maker::new();
        let text = r#"{"id": "audit", "enforcement": {"mode": "best-effort", "requiredControls": ["network"]}}"#;
        let policy = Policy::parse("p.json", text.as_bytes()).unwrap();
        let policy = PolicyRef {
            id: "audit".to_owned(),
            sha256: maker.blob(&policy.effective_blob().unwrap()),
        };
        let suite = maker.blob(&to_canonical(&suite()).unwrap());
        Self {
            maker,
            policy,
            suite,
            host: 1,
        }
    }

    /// A start record's body, with these controls declared.
    pub(crate) fn start(&self, runtime: &str, declared: &[Control]) -> Start {
        let mut start = records::start(self.policy.sha256);
        start.host = U53::from(self.host);
        start.policy = self.policy.clone();
        start.runtime.id = runtime.to_owned();
        start.workload.program.sha256 = Some(Hash::of(b"probe"));
        let argv = ["/workload/probe", "attack"].map(str::to_owned);
        start.workload.argv = Sealable::Clear(List::Inline(argv.to_vec()));
        let declared = declared.iter().map(|control| Declared {
            backup: None,
            control: *control,
            mechanism: format!("{control}-mechanism"),
            value: None,
        });
        start.controls = Controls {
            declared: declared.collect(),
            ..Controls::default()
        };
        start
    }

    /// The body of the probe record of a run that began at `start`.
    pub(crate) fn probe(&self, start: u32, shot: &Shot) -> ProbeRun {
        let control = shot.control;
        let id = format!("{control}/{}", name_of(control));
        let nonce = Nonce::new(&start.to_be_bytes().repeat(4)).unwrap();
        let (result, errno, saw) = match shot.met {
            Met::WayOut => (ProbeResult::Escaped, "none", Saw::Nonce),
            Met::Refusal => (ProbeResult::Contained, "EPERM", Saw::Nothing),
            Met::NoOracle => (ProbeResult::Contained, "EPERM", Saw::Unavailable),
        };
        let errno: Errno = errno.parse().unwrap();
        let proof = proof(&nonce, &id, result, &errno, Twin::Ok, &"d".parse().unwrap());
        let check = name_of(control);
        let line = format!(
            "probe={control} dimension={control} check={check} result={result} errno={errno} twin=ok nonce={proof} detail=d"
        );
        let mut execution = records::execution(start, Verdict::AsRequested);
        execution.verdict = Verdict::AsRequested;
        ProbeRun {
            ablated: (shot.arm == Arm::Ablation).then_some(control),
            arm: shot.arm,
            controller: vec![Observation {
                alive_after: true,
                alive_before: true,
                check: id,
                expected: Some("127.0.0.1:4711".to_owned()),
                saw,
            }],
            execution,
            lines: List::Inline(vec![line]),
            nonce,
            probe: control.as_str().parse().unwrap(),
            suite: self.suite,
        }
    }

    /// Records a run whole; the sequence of its probe record.
    pub(crate) fn shoot(&mut self, shot: &Shot) -> u32 {
        let declared = if shot.declared {
            &[shot.control][..]
        } else {
            &[]
        };
        let start = self.start(shot.runtime, declared);
        let start = self.maker.start(start);
        let run = self.probe(start, shot);
        self.record(run)
    }

    pub(crate) fn record(&mut self, run: ProbeRun) -> u32 {
        self.maker.record(Body::Probe(Box::new(run)))
    }

    /// Measures every check in a runtime: an arm that escapes, and the arm `run` as given. The cells, as a writer
    /// that is right writes them.
    pub(crate) fn measure(&mut self, runtime: &'static str, declared: bool, met: Met) -> Vec<Cell> {
        let each = CHECKS.map(|(control, check)| {
            let shot = |arm, declared, met, runtime| Shot {
                arm,
                control,
                declared,
                met,
                runtime,
            };
            let baseline = self.shoot(&shot(Arm::Baseline, false, Met::WayOut, "native"));
            let run = self.shoot(&shot(Arm::Run, declared, met, runtime));
            let (verdict, reason) = match met {
                Met::WayOut if declared => (CellVerdict::FalseGuarantee, None),
                Met::WayOut => (CellVerdict::Escaped, None),
                Met::Refusal => (CellVerdict::Contained, None),
                Met::NoOracle => (
                    CellVerdict::Inconclusive,
                    Some(CellReason::OracleUnavailable),
                ),
            };
            Cell {
                ablation: None,
                baseline: Some(U53::from(baseline)),
                check: format!("{control}/{check}"),
                declared,
                reason,
                run: Some(U53::from(run)),
                runtime: runtime.to_owned(),
                verdict,
            }
        });
        each.to_vec()
    }

    pub(crate) fn matrix(&self, cells: Vec<Cell>) -> Matrix {
        Matrix {
            cells: List::Inline(cells),
            host: U53::from(self.host),
            policy: self.policy.clone(),
            suite: self.suite,
        }
    }

    pub(crate) fn write_matrix(&mut self, matrix: Matrix) -> u32 {
        self.maker.record(Body::Matrix(Box::new(matrix)))
    }

    /// Measures a runtime and records the matrix; its sequence.
    pub(crate) fn measured(&mut self, runtime: &'static str, declared: bool, met: Met) -> u32 {
        let cells = self.measure(runtime, declared, met);
        let matrix = self.matrix(cells);
        self.write_matrix(matrix)
    }
}
