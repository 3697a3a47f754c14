//! One row of the suite under one arm: planted for, launched through the same spine as any workload, observed, recorded.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ledger::bytes::canon::U53;

use ledger::bytes::key::{PrivateKeyError, random_bytes};
use ledger::bytes::time::Stamp;
use ledger::facts::control::{Control, Controls};
use ledger::facts::host::HostFacts;
use ledger::facts::policy::{Bind, Mode, Policy};
use ledger::facts::probe::Nonce;
use ledger::facts::suite::{Arm, MODULES, Probe};

use super::plant::Place;
use super::suite::Loaded;
use super::{Bounds, HostSide, PRESENT_VARIABLE, Places, PlantError, Planted};
use crate::host::GatherHostError;
use crate::mechanism::identity::DEFAULT_INSIDE;
use crate::plan::{Input, Job, Runtime};
use crate::run::output::Stream;
use crate::run::{
    Event, Finished, Ledger, Measure, Observer, Printed, Probed, Request, RunError, Stdin, Stop,
    execute,
};

/// The runner's own probe program in its folder.
pub const PROGRAM_NAME: &str = "probe";
/// The runner's own probe module beside it.
pub const MODULE_NAME: &str = "probe.wasm";

/// How long a deadline is when the deadline itself is measured, in milliseconds.
const DEADLINE_MS: u32 = 400;
/// How much more CPU time than the policy says there is where that is not what is measured.
const MORE_CPU: u64 = 4;
/// Bytes of a run's secret.
const SECRET_BYTES: usize = 16;

/// What every run of a matrix shares.
pub struct Bench<'a> {
    /// The policy that is measured.
    pub policy: &'a Policy,
    /// The table.
    pub suite: &'a Loaded,
    /// A folder that holds the runner's own probe program and module ([`PROGRAM_NAME`], [`MODULE_NAME`]), and nothing else.
    pub program: &'a Path,
    /// The runtime without isolation, for baselines; absent where none are to be made.
    pub bare: Option<&'a dyn Runtime>,
    /// Where marks of what is planted are kept.
    pub state: &'a Path,
    /// Folders in which files and sockets are planted.
    pub six: &'a [Place],
    /// The host's own addresses, at which to listen.
    pub addresses: &'a [IpAddr],
    /// Host paths that hold evidence.
    pub evidence: &'a (dyn Fn() -> Vec<PathBuf> + Sync),
    /// Facts of this host.
    pub host: &'a (dyn Fn(Option<&HostFacts>) -> Result<HostFacts, GatherHostError> + Sync),
    /// Both clocks, now.
    pub now: &'a (dyn Fn() -> io::Result<Stamp> + Sync),
    /// The caller's variables.
    pub environment: &'a [(OsString, OsString)],
    /// The caller's home folder.
    pub home: Option<PathBuf>,
    /// Ends the runs that are under way, after which nothing more is run.
    pub stop: &'a Arc<Stop>,
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
    /// It was asked to end.
    #[error("{done} of {all} runs are recorded")]
    #[diagnostic(code(runner::measure::stopped))]
    Stopped {
        /// Runs that are recorded, those that were ended with them.
        done: usize,
        /// Runs in all.
        all: usize,
    },
}

pub(super) fn system(attempt: &'static str) -> impl Fn(io::Error) -> ArmError {
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
        let calibration = runtime.calibration();
        let runtime = match (arm, self.bare) {
            (Arm::Baseline, None) => return Ok(None),
            (Arm::Baseline, Some(bare)) => bare,
            (Arm::Ablation | Arm::Run, _) => runtime,
        };
        let secret: [u8; SECRET_BYTES] = random_bytes()?;
        let Some(nonce) = Nonce::new(&secret) else {
            return Err(system("make a secret")(io::ErrorKind::InvalidData.into()));
        };
        let mut policy = self.policy_of(probe, arm);
        let bare = !runtime.shows_workload();
        let is_module = runtime.id() == MODULES;
        let (folder, program) = self.program_of(probe, is_module);
        let in_place = bare || runtime.keeps_paths();
        let inside = if in_place {
            folder
        } else {
            Path::new("/workload")
        };
        let places = Places {
            state: self.state.to_owned(),
            six: self.six.to_vec(),
            workload: (folder.to_owned(), inside.to_owned()),
            evidence: (self.evidence)(),
            addresses: self.addresses.to_vec(),
        };
        let bounds = Bounds {
            inside: Some(ids_inside(&policy)),
            ..Bounds::of(&policy)
        };
        let planted = Planted::new(probe, &nonce, &places, &bounds)?;
        if is_module && probe.control == Control::Filesystem && probe.is_own() {
            // A module has no place of its own to write to: this is where its twin does, an empty folder of this run alone.
            let own = planted.writable(folder);
            let own = own.map_err(system("make a folder to write to"))?;
            let own = own.into_os_string().into_string().map_err(|_| {
                system("write the path of a folder in a policy")(io::ErrorKind::InvalidData.into())
            })?;
            policy.filesystem.protect.clear();
            policy.filesystem.writable.push(Bind {
                source: own,
                target: Some("/workspace".to_owned()),
            });
        }
        if runtime.keeps_paths() {
            let own = folder.to_str().ok_or_else(|| {
                system("write the path of a folder in a policy")(io::ErrorKind::InvalidData.into())
            })?;
            policy.filesystem.read_only.push(Bind {
                source: own.to_owned(),
                target: None,
            });
        }
        let mut parameters = planted.parameters();
        if probe.control == Control::Syscalls {
            // Before the line that ends them.
            let end = parameters.len().saturating_sub(b"end\n".len());
            parameters.truncate(end);
            let calls: String = match calibration.as_deref() {
                None if denies_getcpu(self.policy) => String::new(),
                None | Some([]) => "call=none\n".to_owned(),
                Some(numbers) => numbers.iter().map(|it| format!("call={it}\n")).collect(),
            };
            parameters.extend_from_slice(format!("{calls}end\n").as_bytes());
        }
        let mut environment = planted.environment();
        environment.extend(self.environment.iter().cloned());
        let terminal = planted
            .terminal()
            .map(|terminal| terminal.terminal.try_clone().map(Arc::new))
            .transpose()
            .map_err(system("copy the terminal"))?;
        let mut planted = Some(planted);
        let ablated = (arm == Arm::Ablation).then_some(probe.control);
        // Bare is without it, too. What a switch leaves out of the arm `run` is measured as any runtime that lacks it.
        let left_out = match arm {
            Arm::Baseline | Arm::Ablation => Some(probe.control),
            Arm::Run => crate::sys::fault::left_out().and_then(|name| name.parse().ok()),
        };
        let mut argv = vec![inside.join(program).into_os_string()];
        argv.extend(probe.arguments.iter().map(OsString::from));
        let job = Job {
            argv,
            cwd: None,
            caller_cwd: None,
            home: self.home.clone(),
            workload: (!in_place).then(|| folder.to_owned()),
            secrets: Vec::new(),
            as_root: false,
            terminal: false,
            input: Input::Callers,
            caller_environment: environment,
            evidence: Vec::new(),
            ablate: left_out,
            caller_terminal: terminal,
            measured: true,
        };
        let mut observe = |printed: &Printed<'_>| match planted.take() {
            Some(planted) => planted.observe(
                printed.stdout,
                &printed.execution.result,
                &host_side(printed),
            ),
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
                stop: self.stop.clone(),
                observe: &mut observe,
            }),
        };
        // As for any workload; and not earlier, as it holds what this process held when it was started.
        runtime.get_ready();
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

    /// The policy of one run: the measured one, but that arms without a control are run all the same, that a deadline that
    /// is itself measured comes soon, and that only `cpu` is measured with as little CPU time as that.
    fn policy_of(&self, probe: &Probe, arm: Arm) -> Policy {
        let mut policy = self.policy.clone();
        if arm != Arm::Run {
            policy.enforcement.mode = Mode::BestEffort;
        }
        let through = &mut policy.process.allowed_environment;
        if !through.iter().any(|name| name == PRESENT_VARIABLE) {
            through.push(PRESENT_VARIABLE.to_owned());
        }
        if probe.control == Control::Timeout {
            policy.resources.timeout_ms = Some(DEADLINE_MS.into());
        }
        if probe.control != Control::Cpu {
            // A check that is short of CPU time is late, and says nothing of its own control.
            let cpu = &mut policy.resources.cpu_millis;
            *cpu = cpu.map(|millis| U53::saturating(millis.value().saturating_mul(MORE_CPU)));
        }
        policy
    }

    /// The folder to show and the program in it.
    fn program_of<'p>(&'p self, probe: &'p Probe, is_module: bool) -> (&'p Path, &'p str) {
        match (&probe.program, &self.suite.folder) {
            (Some(program), Some(folder)) => (folder, &program.path),
            _ if is_module => (self.program, MODULE_NAME),
            _ => (self.program, PROGRAM_NAME),
        }
    }
}

/// Whether a policy denies the harmless call that shows whether its filter is in force.
fn denies_getcpu(policy: &Policy) -> bool {
    let syscalls = &policy.syscalls;
    if syscalls.allow.is_empty() {
        syscalls.denied().contains(&"getcpu")
    } else {
        !syscalls.allow.iter().any(|name| name == "getcpu")
    }
}

fn ids_inside(policy: &Policy) -> (u32, u32) {
    let id = |id: Option<u32>| id.unwrap_or(DEFAULT_INSIDE);
    (id(policy.process.user), id(policy.process.group))
}

/// What the runner measured of a run.
fn host_side(printed: &Printed<'_>) -> HostSide {
    let uid = nix::unistd::geteuid().as_raw();
    let observed = printed.execution.observed.as_ref();
    let user = printed
        .controls
        .declared
        .iter()
        .find(|declared| declared.control == Control::User);
    // `1000 inside, 1879048194 outside`
    let outside = user.and_then(|user| {
        let text = user.value.as_ref()?.split(", ").nth(1)?;
        text.strip_suffix(" outside")?.parse().ok()
    });
    HostSide {
        observed_uid: observed.and_then(|observed| observed.uid),
        launcher_uid: uid,
        promised_uid: outside.filter(|outside| *outside != uid),
        // Elsewhere nobody counted.
        survivors: printed.tree_ended.then_some(0),
        stdout_cut: printed.cut.contains(&Stream::Stdout),
        stderr_cut: printed.cut.contains(&Stream::Stderr),
        late_millis: printed
            .late
            .map(|late| u64::try_from(late.as_millis()).unwrap_or(u64::MAX)),
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
