//! THE compiler: from a policy, a job and a runtime to a plan.
//!
//! A plan only *intends*. What a launch did is its [`Effect`], and `declared` is written from that alone.

mod begun;
mod cover;
mod effect;
mod job;
mod limits;
mod reason;
mod shape;
mod tree;

pub use begun::{Asked, Begun, Streams, Waiting};
pub(crate) use cover::Held;
pub use effect::{Effect, Program};
pub use job::{Input, Job, Secret};
pub(crate) use job::{chosen, environment};
pub(crate) use limits::with_ways;
pub use limits::{ablated_bytes, answer as answer_limit, limits};
pub use reason::{Reason, Why};
pub use shape::{Bind, OWN_DEVICES, SYSTEM, Shape, TreeError};
pub use tree::Tree;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ledger::facts::control::{Control, Declared, Unsupported};
use ledger::facts::policy::{Mode, Policy};

use crate::mechanism::group::Group;
use crate::mechanism::{Failure, Outcomes};

/// Search path of a workload whose policy sets none.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a runtime says about one control under one policy, before anything is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It intends to apply it so.
    Intends(Intent),
    /// It cannot.
    Cannot(Why),
}

/// How a runtime intends to apply a control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The kernel mechanism.
    pub mechanism: Cow<'static, str>,
    /// The limit with its unit, where there is one.
    pub value: Option<String>,
    /// A second mechanism behind the first.
    pub backup: Option<&'static str>,
}

impl Intent {
    /// A mechanism without limit or backup.
    #[must_use]
    pub fn by(mechanism: impl Into<Cow<'static, str>>) -> Self {
        Self {
            mechanism: mechanism.into(),
            value: None,
            backup: None,
        }
    }

    /// With this limit.
    #[must_use]
    pub fn limited(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// With this second mechanism.
    #[must_use]
    pub const fn backed(mut self, backup: &'static str) -> Self {
        self.backup = Some(backup);
        self
    }

    /// As a declaration of `control`, once it is known to be in effect.
    #[must_use]
    pub fn declare(&self, control: Control) -> Declared {
        Declared {
            backup: self.backup.map(str::to_owned),
            control,
            mechanism: self.mechanism.clone().into_owned(),
            value: self.value.clone(),
        }
    }
}

/// Something that isolates workloads.
pub trait Runtime: Sync {
    /// Its name on command lines and in records.
    fn id(&self) -> &str;

    /// Its version.
    fn version(&self) -> String;

    /// What it intends for one control; every runtime answers for every control.
    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer;

    /// The workload's whole environment.
    fn environment(&self, policy: &Policy, job: &Job) -> Vec<(OsString, OsString)> {
        environment(policy, job)
    }

    /// The folder that a job starts in, as the workload sees it.
    fn cwd(&self, tree: &Tree, job: &Job) -> PathBuf {
        tree.cwd(job)
    }

    /// Whether it shows [`Job::workload`] at /workload; one that does not runs programs where they are on the host.
    fn shows_workload(&self) -> bool {
        true
    }

    /// Whether a workload starts in the folder that is asked for (`-C`); one that has no way to say so refuses the question.
    fn starts_where_asked(&self) -> bool {
        true
    }

    /// How much of it this host allows, found by trying, where there is more and less of it.
    fn tier(&self) -> Option<&'static str> {
        None
    }

    /// Whether what it shows stands at the paths that it has on the host, and nowhere else.
    fn keeps_paths(&self) -> bool {
        false
    }

    /// Numbers of system calls without arguments that its own filter denies, where it has one that is not the policy's: by
    /// these a measurement tells whether the filter is in force. Empty where this machine has none of them.
    fn calibration(&self) -> Option<Vec<u16>> {
        None
    }

    /// Whether one run of it uses nothing by a name or a number that another run would use: then several may go on side by side.
    fn shares_nothing(&self) -> bool {
        false
    }

    /// Whether it may do something for `control`, which a measurement then leaves out to see what comes through.
    fn serves(&self, control: Control) -> bool {
        let _ = control;
        true
    }

    /// Why it can do nothing at all here: its program is not installed.
    fn is_missing(&self) -> Option<Why> {
        None
    }

    /// Why the runtime that comes first was not taken, where this one was chosen (`instead of embedded: no-user-namespace (EPERM)`).
    fn instead(&self) -> Option<String> {
        None
    }

    /// Tries on this host what a plan needs of its program; nothing of the workload's is looked at, and nothing stays.
    ///
    /// # Errors
    /// What a launch would say.
    fn try_here(&self, plan: &Plan) -> Result<(), LaunchError> {
        let _ = plan;
        Ok(())
    }

    /// Starts what can be started before anything is known of a run. It costs nothing but time when no run follows.
    fn get_ready(&self) {}

    /// Makes the process that will build the sandbox, before there is a plan: it starts while the plan is made.
    ///
    /// # Errors
    /// There is no such process to be had; [`Self::launch`] says what that means for a plan.
    fn begin(&self, policy: &Policy, job: &Job, streams: Streams) -> Result<Begun, LaunchError>;

    /// Builds the sandbox up to the point where the workload would run, and says what took effect. `meanwhile` is
    /// called while the other process builds.
    ///
    /// # Errors
    /// The sandbox cannot be built at all.
    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError>;
}

/// What one runtime on this host intends.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The policy in force, command line merged in.
    pub policy: Policy,
    /// Must be declared.
    pub requested: Vec<Control>,
    /// Should be declared.
    pub wanted: Vec<Control>,
    /// What the runtime intends, by control.
    pub intended: BTreeMap<Control, Intent>,
    /// What it cannot do, by control.
    pub cannot: BTreeMap<Control, Why>,
    /// The files that the workload is to see.
    pub tree: Tree,
    /// The workload's whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder it starts in, as it sees it.
    pub cwd: PathBuf,
    /// What is to run.
    pub job: Job,
}

/// Why no plan could be made.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum CompileError {
    /// The files cannot be laid out as asked.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Tree(#[from] TreeError),
}

impl Plan {
    /// Requested controls that the runtime cannot declare.
    #[must_use]
    pub fn missing(&self) -> Vec<Unsupported> {
        self.unsupported(&self.requested)
    }

    /// Whether a strict policy refuses this plan.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.policy.enforcement.mode == Mode::Strict && !self.missing().is_empty()
    }

    /// Every requested or wanted control that the runtime cannot declare, with the reason.
    #[must_use]
    pub fn gaps(&self) -> Vec<Unsupported> {
        let asked: Vec<Control> = self.requested.iter().chain(&self.wanted).copied().collect();
        self.unsupported(&asked)
    }

    fn unsupported(&self, controls: &[Control]) -> Vec<Unsupported> {
        controls
            .iter()
            .filter_map(|control| {
                let why = self.cannot.get(control)?;
                Some(Unsupported {
                    control: *control,
                    reason: why.to_string(),
                })
            })
            .collect()
    }
}

/// What is not to be had, a reason each with its controls, in the order in which they come.
#[must_use]
pub fn by_reason(gaps: &[Unsupported]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for gap in gaps {
        let (control, reason) = (gap.control.as_str(), gap.reason.as_str());
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, controls)) => controls.push(control),
            None => reasons.push((reason, vec![control])),
        }
    }
    reasons
}

/// Compiles a plan: the only way to one, for exec, probes and services alike.
///
/// # Errors
/// The files cannot be laid out as the policy says.
pub fn compile(policy: Policy, job: Job, runtime: &dyn Runtime) -> Result<Plan, CompileError> {
    let mut intended = BTreeMap::new();
    let mut cannot = BTreeMap::new();
    for control in Control::ALL {
        match runtime.answer(*control, &policy, &job) {
            Answer::Intends(intent) => {
                intended.insert(*control, intent);
            }
            Answer::Cannot(why) => {
                cannot.insert(*control, why);
            }
        }
    }
    let tree = tree::lay_out(&policy, &job)?;
    let environment = runtime.environment(&policy, &job);
    let cwd = runtime.cwd(&tree, &job);
    let requested = sorted(&policy.enforcement.required_controls);
    let mut wanted = policy.enforcement.wanted_controls.clone();
    wanted.extend(policy.set_unasked());
    let wanted = sorted(&wanted);
    Ok(Plan {
        policy,
        requested,
        wanted,
        intended,
        cannot,
        tree,
        environment,
        cwd,
        job,
    })
}

fn sorted(controls: &[Control]) -> Vec<Control> {
    let mut list = controls.to_vec();
    list.sort_unstable();
    list.dedup();
    list
}

/// A sandbox that stands and waits for "go".
#[derive(Debug)]
pub struct Launch {
    /// What took effect.
    pub effect: Effect,
    /// Pid 1 inside; its end is the end of the whole tree.
    pub init: OwnedFd,
    /// Pid 1's id as this process sees it.
    pub init_pid: i32,
    /// The first process of the sandbox's pid namespace, where `init` stands beside the sandbox: its end is the end of all
    /// that ran there.
    pub first: Option<OwnedFd>,
    /// To pid 1; when this end closes the tree dies.
    pub control: UnixStream,
    /// The master side of the workload's terminal, when it has one.
    pub terminal: Option<OwnedFd>,
    /// The workload's /workspace, when it has one of its own.
    pub workspace: Option<OwnedFd>,
    /// A process of the launch that ends by itself and is to be reaped.
    pub leaving: Option<OwnedFd>,
    /// Control groups of its tree, which go after it.
    pub group: Option<Group>,
    /// Kept until the run is over (host ids, placeholders).
    pub held: Vec<Box<dyn std::fmt::Debug>>,
}

/// Why nobody hears which calls were denied, as `unmeasured` says it of `violations`.
pub mod unheard {
    /// The runtime hands no calls over.
    pub const RUNTIME: &str = "runtime-does-not-report";
    /// No filter of the policy's is in force.
    pub const NO_FILTER: &str = "no-filter";
    /// A filter around this one has a listener already, and the kernel allows one.
    pub const ANOTHER_LISTENER: &str = "another-listener";
    /// The kernel hands no calls over.
    pub const KERNEL: &str = "kernel-does-not-report";
    /// The kernel would not install the filter with a listener; its error follows.
    pub const REFUSED: &str = "listener-refused";
    /// The runner could not get the descriptor; the error follows.
    pub const NOT_PASSED: &str = "listener-not-passed";
    /// Listening failed in the middle of the run; the error follows. Denied calls failed with ENOSYS from then on.
    pub const FAILED: &str = "listener-failed";
}

/// Why a sandbox could not be built at all.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum LaunchError {
    /// The kernel makes no namespaces for this user here.
    #[error("cannot make the sandbox's namespaces ({errno})")]
    #[diagnostic(
        code(runner::launch::no_namespaces),
        help("`runner doctor` says what on this host stands in the way")
    )]
    Namespaces {
        /// The kernel's answer.
        errno: String,
    },
    /// A step before the workload failed.
    #[error("cannot build the sandbox: {what}")]
    #[diagnostic(code(runner::launch::step))]
    Step {
        /// What failed and the kernel's answer.
        what: String,
    },
    /// The operator ended it while the sandbox was built.
    #[error("ended by signal {signal} before the workload ran")]
    #[diagnostic(code(runner::launch::interrupted))]
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
    /// The id maps of the new user namespace could not be written.
    #[error("cannot write id maps: {0}")]
    #[diagnostic(code(runner::launch::maps))]
    Maps(Failure),
    /// Mechanisms failed without which there is no sandbox.
    #[error("cannot build the sandbox: {what}")]
    #[diagnostic(code(runner::launch::mechanism))]
    Mechanism {
        /// The step that could not be done and the kernel's answer.
        what: String,
        /// What became of each mechanism until then.
        outcomes: Outcomes,
        /// The controls that rest on those that failed.
        lost: BTreeMap<Control, Why>,
    },
    /// A folder cannot be shown as it must be; a requested control would be lost.
    #[error("{what}")]
    #[diagnostic(code(runner::launch::refused))]
    Refused {
        /// The control that would be lost.
        control: Control,
        /// The reason that is recorded.
        why: Why,
        /// What to do.
        what: String,
    },
    /// The runner's own system calls failed.
    #[error("cannot {attempt}")]
    #[diagnostic(code(runner::launch::system))]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The error.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests;
