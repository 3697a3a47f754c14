//! **wasi**: a WebAssembly module (WASI preview 1) in a program of its own, `runner-wasi`, which lies beside this one.
//!
//! A module makes no system call: it has what its host hands it, which is the folders of `--read` and `--write`, the policy's
//! variables, the standard streams, clocks and random numbers. What isolates is therefore the engine, and nothing of the kernel's:
//! `runner-wasi` itself runs as the caller. It says before "go" what it applied, and only that is declared.
//!
//! ```text
//! runner ── Spec with an order ──► init (no sandbox) ── executes ──► runner-wasi: compiles, opens, limits
//! runner ◄─────────────── Report: what stands ready ◄────────────────┘ waits
//! runner: appends the start record, says "go"; the module begins
//! ```

mod folders;
mod talk;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use ledger::bytes::canon::escape_bytes;
use ledger::facts::control::Control;
use ledger::facts::execution::NotExecuted;
use ledger::facts::policy::{NetworkMode, Policy, Root};

use super::launch;
use super::program::{Installed, Known, Origin, Sought};
use crate::init::wire::{ProgramReport, ProgramSpec, Spec};
use crate::mechanism::Outcome;
use crate::plan::{
    self, Answer, Begun, Effect, Intent, Job, Launch, LaunchError, Plan, Program, Reason, Runtime,
    Shape, Streams, Tree, Why,
};
use talk::{Folder, Order, Ready, Report, Unusable};

/// What is asked of it.
const RUNNER_WASI: Known = Known {
    name: "runner-wasi",
    origin: Origin::Crate("runner-wasi"),
    says: "runner-wasi ",
    needed: &["--version"],
    since: env!("CARGO_PKG_VERSION"),
};

/// `runner-wasi`, where it was built.
#[derive(Debug)]
pub struct Wasi {
    program: Sought,
}

impl Default for Wasi {
    fn default() -> Self {
        Self {
            program: Sought::new(&RUNNER_WASI),
        }
    }
}

impl Runtime for Wasi {
    fn id(&self) -> &str {
        ledger::facts::suite::MODULES
    }

    /// That of `runner-wasi`; `none` where it was not built.
    fn version(&self) -> String {
        self.program.version()
    }

    fn is_missing(&self) -> Option<Why> {
        self.program.get().err()
    }

    /// A run makes nothing that has a name.
    fn shares_nothing(&self) -> bool {
        true
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        match self.program.get() {
            Ok(_) => answer(control, policy, job),
            Err(why) => Answer::Cannot(why),
        }
    }

    /// A home, a folder for temporary files and a search path that a module does not have are not named to it.
    fn environment(&self, policy: &Policy, job: &Job) -> Vec<(OsString, OsString)> {
        plan::chosen(policy, job)
    }

    /// A module has no folder that it starts in: its own path is looked for from here.
    fn cwd(&self, _: &Tree, job: &Job) -> PathBuf {
        let asked = launch::callers_folder(job);
        // From the caller's own, where it is not a whole path.
        match &job.caller_cwd {
            Some(own) => own.join(asked),
            None => asked,
        }
    }

    fn try_here(&self, plan: &Plan) -> Result<(), LaunchError> {
        folders::refuse_what_cannot_be_shown(plan)
    }

    fn begin(&self, _: &Policy, _: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        self.program.for_launch()?;
        launch::begin(0, streams, |_| Ok(()))
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let program = self.program.for_launch()?;
        if let Some(control) = plan.job.ablate
            && !can_leave_out(control)
        {
            let reason = Reason::ABLATION_NOT_POSSIBLE;
            return Err(step(format!("{control} cannot be left out: {reason}")));
        }
        folders::refuse_what_cannot_be_shown(plan)?;
        if let Some(asked) = plan.job.cwd.as_ref()
            && on_host(plan, &plan.cwd, Path::is_dir).is_none()
        {
            let what = "where its path is to be looked for";
            return Err(step(format!("no folder {}, {what}", asked.display())));
        }
        let (shown, opened) = folders::open(plan)?;
        let order = order(plan, shown);
        let text = serde_json::to_vec(&order)
            .map_err(|error| step(format!("say what is to be run: {error}")))?;
        let spec = Spec {
            session: true,
            close_descriptors: true,
            order: Some(text),
            planted: u32::try_from(opened.len()).unwrap_or(u32::MAX),
            ..launch::bare(plan, program_spec(program))
        };
        let init = launch::build(
            &mut begun?,
            &spec,
            (&opened, plan.job.caller_terminal.as_deref()),
            meanwhile,
            |_, _| {},
        )?;
        let looked = look(plan, program, &order, &init.report).and_then(|effect| {
            program.is_itself()?;
            Ok(effect)
        });
        let mut effect = looked.inspect_err(|_| launch::leave(&init.control, &init.pidfd))?;
        effect.host_uid = super::read_back::uid_of(init.pid);
        Ok(Launch {
            effect,
            init: init.pidfd,
            init_pid: init.pid,
            first: None,
            control: init.control,
            terminal: init.terminal,
            workspace: None,
            leaving: None,
            group: None,
            held: Vec::new(),
        })
    }
}

const fn step(what: String) -> LaunchError {
    LaunchError::Step { what }
}

/// Whether there is a way to run a module without this control alone. There is no function by which one could be given a
/// network.
const fn can_leave_out(control: Control) -> bool {
    matches!(
        control,
        Control::Filesystem
            | Control::Environment
            | Control::Memory
            | Control::Timeout
            | Control::Output
    )
}

fn answer(control: Control, policy: &Policy, job: &Job) -> Answer {
    let cannot = |reason: Reason| Answer::Cannot(reason.into());
    if job.leaves_out(control) {
        return cannot(if can_leave_out(control) {
            Reason::ABLATED
        } else {
            Reason::ABLATION_NOT_POSSIBLE
        });
    }
    let limited = |mechanism: &'static str, unit: &str| match policy.limit_of(control) {
        Some((_, Some(limit))) => {
            Answer::Intends(Intent::by(mechanism).limited(format!("{limit}{unit}")))
        }
        _ => cannot(Reason::POLICY_SETS_NO_LIMIT),
    };
    match control {
        Control::Network => match policy.network.mode {
            NetworkMode::None | NetworkMode::Loopback => {
                Answer::Intends(Intent::by("WASI preview 1 without sockets").limited("none"))
            }
            NetworkMode::Allowlist => cannot(Reason::NEEDS_EGRESS),
            NetworkMode::Unrestricted => cannot(Reason::NO_SUCH_FUNCTION),
        },
        Control::Filesystem => answer_filesystem(policy),
        Control::Environment => Answer::Intends(Intent::by(
            "WASI preview 1 with the policy's variables alone",
        )),
        Control::Memory => limited("limit on the module's memories and tables", " MiB"),
        Control::Timeout => limited("epoch deadline, kill of the engine's process", " ms"),
        Control::Output => limited("runner-cap", " bytes"),
        Control::Process
        | Control::Privilege
        | Control::Processes
        | Control::Syscalls
        | Control::User
        | Control::Ipc
        | Control::Descriptors
        | Control::Terminal => cannot(Reason::NO_SUCH_FUNCTION),
        // It computes as long as it may, and opens and writes what is in the folders that it has, devices included.
        Control::Cpu | Control::Devices | Control::Files | Control::Disk => {
            cannot(Reason::NOT_ISOLATED)
        }
    }
}

/// Of a tree a module sees the folders that are shown, and nothing of what they would stand in.
fn answer_filesystem(policy: &Policy) -> Answer {
    let files = &policy.filesystem;
    let cannot = |reason: Reason, detail: String| {
        Answer::Cannot(Why {
            reason,
            detail: Some(detail),
        })
    };
    if files.root != Root::Ephemeral {
        let detail = "filesystem.root must be ephemeral".to_owned();
        return cannot(Reason::FOLDERS_ALONE, detail);
    }
    match (files.writable.first(), files.protect.first()) {
        (Some(bind), Some(protected)) => {
            let detail = format!("{protected} below {}", bind.source);
            cannot(Reason::PROTECT_FAILED, detail)
        }
        _ => Answer::Intends(Intent::by("WASI preview 1 with preopened folders alone")),
    }
}

/// `runner-wasi` itself: it has no argument, no variable, and no folder of the caller's.
fn program_spec(program: &Installed) -> ProgramSpec {
    ProgramSpec {
        argv: vec![program.path.as_os_str().as_bytes().to_vec()],
        environment: Vec::new(),
        cwd: "/".into(),
    }
}

/// What a plan means for a module.
fn order(plan: &Plan, folders: Vec<Folder>) -> Order {
    let deadline = plan.policy.resources.timeout_ms;
    let deadline = deadline.filter(|_| !plan.job.leaves_out(Control::Timeout));
    Order {
        module: module(plan).as_os_str().as_bytes().to_vec(),
        arguments: plan
            .job
            .argv
            .iter()
            .map(|argument| argument.as_bytes().to_vec())
            .collect(),
        environment: plan
            .environment
            .iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect(),
        folders,
        memory_bytes: plan::limits(&plan.policy, &plan.job, 0).memory_bytes,
        deadline_ms: deadline.map(|limit| limit.value()),
    }
}

/// Where the module lies on the host.
fn module(plan: &Plan) -> PathBuf {
    let asked = plan.job.argv.first().map(Path::new);
    let asked = plan.cwd.join(asked.unwrap_or(Path::new("")));
    on_host(plan, &asked, Path::is_file).unwrap_or(asked)
}

/// Where something lies on the host: in a folder that is shown, by its name there; else where it is for the caller.
fn on_host(plan: &Plan, asked: &Path, is: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let binds = plan.tree.binds.iter().rev();
    let shown = binds.filter_map(|bind| {
        let below = asked.strip_prefix(&bind.target).ok()?;
        Some(bind.source.join(below))
    });
    let mut all = shown.chain(std::iter::once(asked.to_owned()));
    all.find(|path| is(path))
}

/// What stands ready, and what of the plan it is.
fn look(
    plan: &Plan,
    program: &Installed,
    order: &Order,
    report: &crate::init::wire::Report,
) -> Result<Effect, LaunchError> {
    let asked = plan.job.argv.first();
    let asked = asked.map_or_else(String::new, |name| escape_bytes(name.as_bytes()));
    let name = RUNNER_WASI.name;
    let hash = match &report.program {
        Some(ProgramReport::Found { sha256, .. }) => sha256.as_deref(),
        Some(ProgramReport::Unusable { what, .. }) => {
            return Err(step(format!("{name} cannot be executed: {what}")));
        }
        None => None,
    };
    // The one that answered to its name and version.
    if hash != Some(program.sha256.to_string().as_str()) {
        return Err(step(format!("{name} is not the file that it was")));
    }
    let said = report.said.as_deref().unwrap_or_default();
    let said: Report = serde_json::from_slice(said)
        .map_err(|error| step(format!("{name} says what is not understood: {error}")))?;
    let mut effect = Effect::new(Program::Unusable {
        path: asked.clone(),
        reason: NotExecuted::LaunchFailed,
        errno: None,
    });
    effect.runtime_sha256 = Some(program.sha256);
    // In an own process no key is in reach of the module; what is shown holds none, or it was refused.
    effect.key_reachable = plan.tree.shape == Shape::Host;
    match said {
        Report::Failed(what) => return Err(step(what)),
        Report::Unusable(Unusable {
            is_missing,
            errno,
            what,
        }) => {
            let reason = if is_missing {
                NotExecuted::NotFound
            } else {
                NotExecuted::NotExecutable
            };
            effect.program = Program::Unusable {
                path: format!("{asked}: {what}"),
                reason,
                errno: errno.or(Some(libc::ENOEXEC)),
            };
            // Nothing holds for what does not run, and nothing is lost.
            for (control, intent) in &plan.intended {
                effect.declare(intent.declare(*control));
            }
        }
        Report::Ready(ready) => {
            effect.program = Program::Found {
                path: escape_bytes(&order.module),
                sha256: ready.sha256.parse().ok(),
            };
            effect.launch = describe(program, &ready);
            let closed = report.outcomes.of("close-descriptors");
            for (control, intent) in &plan.intended {
                let lost = lost(*control, order, &ready);
                match (lost, &closed) {
                    (None, Outcome::Done) => effect.declare(intent.declare(*control)),
                    (Some(what), _) => effect.lose(*control, no_effect(what)),
                    (None, _) => effect.lose(*control, Reason::MECHANISM_FAILED.into()),
                }
            }
        }
    }
    Ok(effect)
}

fn no_effect(what: &str) -> Why {
    Why {
        reason: Reason::NO_EFFECT,
        detail: Some(format!("runner-wasi says another {what}")),
    }
}

/// What of a control `runner-wasi` says other than it was told.
fn lost(control: Control, order: &Order, ready: &Ready) -> Option<&'static str> {
    let holds = match control {
        Control::Filesystem => {
            let told = order.folders.iter().map(|folder| {
                let target = String::from_utf8_lossy(&folder.target).into_owned();
                (target, folder.writable)
            });
            told.eq(ready.folders.iter().cloned())
        }
        Control::Environment => {
            let names = order.environment.iter().map(|variable| {
                let name = variable.split(|byte| *byte == b'=').next();
                String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
            });
            names.eq(ready.environment.iter().cloned())
        }
        Control::Memory => order.memory_bytes == ready.memory_bytes,
        Control::Timeout => order.deadline_ms == ready.deadline_ms,
        _ => true,
    };
    let what = match control {
        Control::Filesystem => "list of folders",
        Control::Environment => "list of variables",
        Control::Memory => "limit on memory",
        _ => "deadline",
    };
    (!holds).then_some(what)
}

/// The launch in words: what `runner-wasi` says that it applied.
fn describe(program: &Installed, ready: &Ready) -> Vec<String> {
    let mut words = vec![
        escape_bytes(program.path.as_os_str().as_bytes()),
        format!("engine {}", ready.engine),
        format!("imports {} of WASI preview 1", ready.imports),
    ];
    let folders = ready.folders.iter().map(|(folder, writable)| {
        let how = if *writable { "writable" } else { "read-only" };
        format!("folder {how} {folder}")
    });
    words.extend(folders);
    words.extend(
        ready
            .memory_bytes
            .map(|bytes| format!("memory {bytes} bytes")),
    );
    words.extend(
        ready
            .deadline_ms
            .map(|millis| format!("deadline {millis} ms")),
    );
    words
}
