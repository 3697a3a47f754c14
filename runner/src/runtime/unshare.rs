//! **unshare**: namespaces alone, made by unshare(1) of util-linux around the workload as it is: with the caller's files, ids,
//! session and limits. It declares `network` and `process`, which is what that is good for, once both were seen from outside.
//!
//! The namespaces of System V IPC and of abstract sockets are new too, but unix sockets of the host can be connected to by their
//! paths, so `ipc` is not declared.

use std::path::{Path, PathBuf};

use ledger::bytes::canon::escape_bytes;
use ledger::facts::control::Control;
use ledger::facts::policy::{NetworkMode, Policy};

use super::beside::{self, Said};
use super::program::{Known, Origin, Sought};
use super::{launch, read_back};
use crate::init::wire::{LauncherSpec, Spec, Step, Word};
use crate::mechanism::{Failure, Outcome, Outcomes, mounts};
use crate::plan::{
    Answer, Begun, Effect, Intent, Job, Launch, LaunchError, Plan, Reason, Runtime, Streams, Tree,
    Waiting, Why,
};
use crate::sys::process;

/// What is asked of it.
const UNSHARE: Known = Known {
    name: "unshare",
    origin: Origin::Package("util-linux"),
    says: "unshare from util-linux ",
    needed: &[
        "--user",
        "--map-current-user",
        "--net",
        "--ipc",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ],
    since: "2.34",
};
/// The tier in which everything of this runtime is to be had.
const TIER_FULL: &str = "full";

/// unshare(1), where it is installed.
#[derive(Debug)]
pub struct Unshare {
    program: Sought,
}

impl Default for Unshare {
    fn default() -> Self {
        Self {
            program: Sought::new(&UNSHARE),
        }
    }
}

/// Which namespaces a job gets.
#[derive(Clone, Copy, Debug)]
struct Own {
    network: bool,
    processes: bool,
    ipc: bool,
}

impl Own {
    fn of(policy: &Policy, job: &Job) -> Self {
        let shares_network = policy.network.mode == NetworkMode::Unrestricted
            || job.leaves_out(Control::Network)
            || job.leaves_out(Control::Ipc);
        Self {
            network: !shares_network,
            processes: !job.leaves_out(Control::Process),
            ipc: !job.leaves_out(Control::Ipc),
        }
    }

    fn words(self) -> Vec<&'static str> {
        let mut words = vec!["--user", "--map-current-user"];
        words.extend(self.network.then_some("--net"));
        words.extend(self.ipc.then_some("--ipc"));
        if self.processes {
            words.extend(["--pid", "--mount-proc"]);
        }
        words.extend(["--fork", "--kill-child"]);
        words
    }
}

impl Runtime for Unshare {
    fn id(&self) -> &str {
        "unshare"
    }

    /// That of util-linux; `none` where there is no unshare.
    fn version(&self) -> String {
        self.program.version()
    }

    fn is_missing(&self) -> Option<Why> {
        self.program.get().err()
    }

    fn try_here(&self, plan: &Plan) -> Result<(), LaunchError> {
        let own = Own::of(&plan.policy, &plan.job);
        let tried = self.program.try_with(|_| own.words());
        tried.map_err(|failure| beside::not_built(plan, &failure, Outcomes::default(), |_| true))
    }

    fn shows_workload(&self) -> bool {
        false
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        if let Err(why) = self.program.get() {
            return Answer::Cannot(why);
        }
        if job.leaves_out(control) {
            return Answer::Cannot(Reason::ABLATED.into());
        }
        let cannot = |reason: Reason| Answer::Cannot(reason.into());
        match control {
            Control::Network => match policy.network.mode {
                // Abstract sockets are the network namespace's, and without `ipc` the host's.
                _ if job.leaves_out(Control::Ipc) => cannot(Reason::NOT_ISOLATED),
                NetworkMode::None | NetworkMode::Loopback => {
                    Answer::Intends(Intent::by("network-namespace").limited("none"))
                }
                NetworkMode::Allowlist => cannot(Reason::NEEDS_EGRESS),
                NetworkMode::Unrestricted => cannot(Reason::POLICY_ALLOWS_ALL),
            },
            Control::Process => Answer::Intends(Intent::by("pid-namespace, fresh /proc")),
            Control::Ipc => cannot(Reason::SOCKETS_SHARED),
            Control::Filesystem
            | Control::Environment
            | Control::Privilege
            | Control::Memory
            | Control::Processes
            | Control::Syscalls
            | Control::Cpu
            | Control::Timeout
            | Control::Output
            | Control::Devices
            | Control::User
            | Control::Descriptors
            | Control::Terminal
            | Control::Files
            | Control::Disk => cannot(Reason::NOT_ISOLATED),
        }
    }

    fn cwd(&self, _: &Tree, job: &Job) -> PathBuf {
        launch::callers_folder(job)
    }

    fn begin(&self, _: &Policy, _: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        self.program.for_launch()?;
        launch::begin_beside(None, 0, streams)
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let program = self.program.for_launch()?;
        let own = Own::of(&plan.policy, &plan.job);
        let word = |word: &str| Word::Text(word.as_bytes().to_vec());
        let spec = Spec {
            leaves_tree: plan.job.leaves_out(Control::Process),
            launcher: Some(LauncherSpec {
                program: program.path.clone(),
                steps: vec![Step {
                    covers: None,
                    words: own.words().into_iter().map(word).collect(),
                }],
                says_what_it_made: false,
                contents: Vec::new(),
                ids: None,
            }),
            ..launch::bare(plan, launch::program(plan))
        };
        let Some(Waiting {
            pid,
            pidfd,
            control,
        }) = begun?.take()
        else {
            return Err(LaunchError::Step {
                what: "the launcher was used before".to_owned(),
            });
        };
        let said = beside::exchange(
            &control,
            &spec,
            None,
            (&[], plan),
            meanwhile,
            &|failure, all| beside::not_built(plan, failure, all, |_| true),
        );
        let Said {
            made,
            report,
            terminal,
            first,
        } = said.inspect_err(|_| launch::end(&pidfd))?;
        let seen = seen(made.first, own);
        if process::has_ended(&pidfd) || process::has_ended(&first) {
            launch::end(&pidfd);
            return Err(LaunchError::Step {
                what: "unshare was killed before the workload could run".to_owned(),
            });
        }
        if let Err(other) = program.is_itself() {
            launch::end(&pidfd);
            return Err(other);
        }
        let mut effect = Effect::new(launch::found(plan, report.program.as_ref()));
        effect.launch = made.argv.iter().map(|word| escape_bytes(word)).collect();
        effect.runtime_sha256 = Some(program.sha256);
        effect.key_reachable = true;
        effect.host_uid = read_back::uid_of(made.first);
        effect.tier = own.processes.then_some(TIER_FULL);
        effect.owns_tree = own.processes;
        for (control, intent) in &plan.intended {
            match lost(*control, &seen) {
                Some(why) => effect.lose(*control, why),
                None => effect.declare(intent.declare(*control)),
            }
        }
        Ok(Launch {
            effect,
            init: pidfd,
            init_pid: pid,
            first: own.processes.then_some(first),
            control,
            terminal,
            workspace: None,
            leaving: None,
            group: None,
            held: Vec::new(),
        })
    }
}

/// What is to be seen of the namespaces from outside.
fn seen(first: i32, own: Own) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let kinds = [
        (own.network, "namespace-network", "net"),
        (own.processes, "namespace-pid", "pid"),
        (own.ipc, "namespace-ipc", "ipc"),
    ];
    for (_, mechanism, file) in kinds.iter().filter(|(is_own, ..)| *is_own) {
        outcomes.note(mechanism, read_back::differs(first, file));
    }
    if own.processes {
        outcomes.note("proc", has_own_proc(first));
    }
    outcomes
}

/// Its /proc is another one than this process's: the last mount there is no older than its namespace.
fn has_own_proc(first: i32) -> Result<(), Failure> {
    let proc_of = |path: String| -> Result<Option<String>, Failure> {
        let all = mounts::read(Path::new(&path))
            .map_err(|error| Failure::call(format!("read {path}"), &error))?;
        let mount = mounts::at(&all, Path::new("/proc")).filter(|mount| mount.kind == "proc");
        Ok(mount.map(|mount| mount.device.clone()))
    };
    let inside = proc_of(format!("/proc/{first}/mountinfo"))?;
    let outside = proc_of("/proc/self/mountinfo".to_owned())?;
    match inside {
        Some(inside) if Some(&inside) != outside.as_ref() => Ok(()),
        _ => Err(Failure::no_effect("mount a fresh /proc")),
    }
}

/// Why a control is not in effect.
fn lost(control: Control, seen: &Outcomes) -> Option<Why> {
    let rests_on: &[&str] = match control {
        Control::Network => &["namespace-network"],
        Control::Process => &["namespace-pid", "proc"],
        _ => &[],
    };
    rests_on
        .iter()
        .find_map(|mechanism| match seen.of(mechanism) {
            Outcome::Done => None,
            Outcome::Skipped => Some(Reason::NOT_READ_BACK.into()),
            Outcome::Failed(failure) => Some(Why {
                reason: if failure.error == "no-effect" {
                    Reason::NO_EFFECT
                } else {
                    Reason::NOT_READ_BACK
                },
                detail: Some(failure.to_string()),
            }),
        })
}
