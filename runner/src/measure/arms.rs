//! One row of the suite under one arm: planted for, launched through the same spine as any workload, observed, recorded.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ledger::bytes::canon::U53;

use ledger::bytes::key::{PrivateKeyError, random_bytes};
use ledger::bytes::time::Stamp;
use ledger::facts::control::{Control, Controls};
use ledger::facts::host::HostFacts;
use ledger::facts::policy::{Mode, Policy};
use ledger::facts::probe::Nonce;
use ledger::facts::suite::{Arm, Probe};

use super::planted::{PlantError, Planted, Seen};
use super::suite::Loaded;
use crate::host::GatherHostError;
use crate::plan::{Input, Job, Runtime};
use crate::run::{
    Event, Finished, Ledger, Measure, Observer, Printed, Probed, Request, RunError, Stdin, execute,
};

/// How long a deadline is when the deadline itself is measured, in milliseconds.
const DEADLINE_MS: u32 = 400;
/// Bytes of a run's secret.
const SECRET_BYTES: usize = 16;

/// What every run of a matrix shares.
pub struct Bench<'a> {
    /// The policy that is measured.
    pub policy: &'a Policy,
    /// The table.
    pub suite: &'a Loaded,
    /// A folder that holds the runner's own probe program as `probe`, and nothing else.
    pub program: &'a Path,
    /// The runtime without isolation, for baselines; absent where none are to be made.
    pub bare: Option<&'a dyn Runtime>,
    /// Where marks of what is planted are kept.
    pub state: &'a Path,
    /// Host paths that hold evidence.
    pub evidence: &'a dyn Fn() -> Vec<PathBuf>,
    /// Facts of this host.
    pub host: &'a dyn Fn(Option<&HostFacts>) -> Result<HostFacts, GatherHostError>,
    /// Both clocks, now.
    pub now: &'a dyn Fn() -> io::Result<Stamp>,
    /// The caller's variables.
    pub environment: &'a [(OsString, OsString)],
    /// The caller's home folder.
    pub home: Option<PathBuf>,
}

/// One recorded run.
#[derive(Debug)]
pub struct ArmRecord {
    /// Sequence of its probe record.
    pub sequence: U53,
    /// What was recorded.
    pub probed: Probed,
    /// What was asked and what was in force.
    pub controls: Controls,
}

/// Why a row could not be run and recorded.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ArmError {
    /// Nothing to measure with.
    #[error(transparent)]
    #[diagnostic(code(runner::measure::plant))]
    Plant(#[from] PlantError),
    /// The run could not be recorded.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Run(#[from] RunError),
    /// No secret.
    #[error(transparent)]
    #[diagnostic(code(runner::measure::random))]
    Random(#[from] PrivateKeyError),
    /// The runner's own system calls failed.
    #[error("cannot {attempt}")]
    #[diagnostic(code(runner::measure::system))]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The spine recorded something else.
    #[error("the run of probe {0} left no probe record")]
    #[diagnostic(code(runner::measure::record))]
    NoRecord(String),
}

fn system(attempt: &'static str) -> impl Fn(io::Error) -> ArmError {
    move |source| ArmError::System { attempt, source }
}

struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Event<'_>) {}
}

impl Bench<'_> {
    /// Runs a row under an arm in a runtime (for `baseline`, in the bare one instead), and records it.
    ///
    /// # Errors
    /// It could not be planted for, run or recorded. A probe that fails is no error.
    pub fn run(
        &self,
        runtime: &dyn Runtime,
        probe: &Probe,
        arm: Arm,
        ledger: &mut Ledger<'_>,
    ) -> Result<Option<ArmRecord>, ArmError> {
        let runtime = match (arm, self.bare) {
            (Arm::Baseline, None) => return Ok(None),
            (Arm::Baseline, Some(bare)) => bare,
            (Arm::Ablation | Arm::Run, _) => runtime,
        };
        let secret: [u8; SECRET_BYTES] = random_bytes()?;
        let Some(nonce) = Nonce::new(&secret) else {
            return Err(system("make a secret")(io::ErrorKind::InvalidData.into()));
        };
        let policy = self.policy_of(probe, arm);
        let mut planted = Some(Planted::new(probe, &nonce, &policy, self.state)?);
        let (parameters, mut environment, terminal) = match &planted {
            Some(planted) => (
                planted.parameters(),
                planted.environment(),
                planted.terminal(),
            ),
            None => (Vec::new(), Vec::new(), false),
        };
        environment.extend(self.environment.iter().cloned());
        let bare = runtime.id() == "native";
        let ablated = (arm == Arm::Ablation).then_some(probe.control);
        let (folder, program) = self.program_of(probe);
        let inside = if bare {
            folder.join(program)
        } else {
            Path::new("/workload").join(program)
        };
        let mut argv = vec![inside.into_os_string()];
        argv.extend(probe.arguments.iter().map(OsString::from));
        let job = Job {
            argv,
            cwd: None,
            caller_cwd: None,
            home: self.home.clone(),
            workload: (!bare).then(|| folder.to_owned()),
            secrets: Vec::new(),
            as_root: false,
            terminal: false,
            input: Input::Callers,
            caller_environment: environment,
            evidence: Vec::new(),
            ablate: ablated,
        };
        let _ = terminal;
        let mut observe = |printed: &Printed<'_>| match planted.take() {
            Some(planted) => planted.observe(&Seen {
                stdout: printed.stdout,
                stderr: printed.stderr,
                cut: printed.cut,
                execution: printed.execution,
            }),
            None => Vec::new(),
        };
        let request = Request {
            policy,
            evidence: self.evidence,
            job,
            runtime,
            host: self.host,
            now: self.now,
            clear: true,
            stdin: Stdin::Relayed(text_file(&parameters).map_err(system("hand parameters over"))?),
            measure: Some(Measure {
                ablated,
                arm,
                nonce: nonce.clone(),
                probe: probe.id.clone(),
                suite: self.suite.sha256,
                observe: &mut observe,
            }),
        };
        let finished: Finished = execute(request, ledger, &mut Silent)?;
        let Some(probed) = finished.probed else {
            return Err(ArmError::NoRecord(probe.id.to_string()));
        };
        Ok(Some(ArmRecord {
            sequence: finished.end.sequence,
            probed,
            controls: finished.controls,
        }))
    }

    /// The policy of one run: the measured one, but that arms without a control are run all the same, and that a deadline that
    /// is itself measured comes soon.
    fn policy_of(&self, probe: &Probe, arm: Arm) -> Policy {
        let mut policy = self.policy.clone();
        if arm != Arm::Run {
            policy.enforcement.mode = Mode::BestEffort;
        }
        if probe.control == Control::Timeout {
            policy.resources.timeout_ms = Some(DEADLINE_MS.into());
        }
        policy
    }

    /// The folder to show and the program in it.
    fn program_of<'p>(&'p self, probe: &'p Probe) -> (&'p Path, &'p str) {
        match (&probe.program, &self.suite.folder) {
            (Some(program), Some(folder)) => (folder, &program.path),
            _ => (self.program, "probe"),
        }
    }
}

/// A file in memory that holds a text, read from its beginning.
fn text_file(text: &[u8]) -> io::Result<OwnedFd> {
    use std::io::Seek as _;
    let name = c"containment-parameters";
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let mut file = File::from(nix::sys::memfd::memfd_create(name, flags)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file.into())
}

