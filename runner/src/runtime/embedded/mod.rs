//! **embedded**: namespaces, a root of its own, seccomp and Landlock, by the runner alone. Nothing to install;
//! works as root and as an ordinary user.

mod answers;
mod effect;
mod namespaces;
mod steps;
mod tree;

use std::collections::BTreeMap;

use ledger::facts::control::Control;
use ledger::facts::policy::{Nesting, NetworkMode, Policy};

use super::launch;
use super::read_back;
use crate::init::wire::{ProgramReport, Spec};
use crate::mechanism::identity::{DEFAULT_INSIDE, IdentitySpec};
use crate::mechanism::landlock::LandlockSpec;
use crate::mechanism::owners::{HostIds, MapOwnersError};
use crate::mechanism::seccomp::{self, Architecture, Calls};
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{Answer, Begun, Job, Launch, LaunchError, Plan, Runtime, Streams};
use crate::sys::fault;
use namespaces::{NEEDED, OPTIONAL, drop_refused, possible_namespaces};

/// The tier in which everything of this runtime is to be had.
const TIER_FULL: &str = "full";

/// The runner's own sandbox.
#[derive(Debug)]
pub struct Embedded;

impl Runtime for Embedded {
    fn id(&self) -> &'static str {
        "embedded"
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        answers::answer(control, policy, job)
    }

    fn begin(&self, policy: &Policy, job: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        let mut wanted = NEEDED;
        for namespace in &OPTIONAL {
            let host_network = policy.network.mode == NetworkMode::Unrestricted;
            if !(host_network && namespace.flag == libc::CLONE_NEWNET) {
                wanted |= namespace.flag;
            }
        }
        let mut outcomes = Outcomes::default();
        let mut ids = HostIds::choose(job.as_root).map_err(|error| LaunchError::Step {
            what: error_chain(&error),
        })?;
        let mut possible = possible_namespaces(wanted, &mut outcomes)?;
        let mut begun = loop {
            let again = launch::again(&streams)?;
            let inside = inside(policy, &ids);
            match launch::begin(possible, again, |pid| ids.write_maps(pid, &inside)) {
                Err(LaunchError::Namespaces { .. }) if possible == wanted => {
                    possible = drop_refused(possible, &mut outcomes)?;
                    if possible == wanted {
                        return Err(LaunchError::Namespaces {
                            errno: "EAGAIN".to_owned(),
                        });
                    }
                }
                Err(LaunchError::Maps(failure)) => {
                    let HostIds::Subordinate { uid, gid, .. } = ids else {
                        // Without maps there is neither an id nor a capability to build with.
                        outcomes.note("set-ids", Err(failure.clone()));
                        return Err(LaunchError::Mechanism {
                            what: failure.to_string(),
                            outcomes,
                            lost: BTreeMap::new(),
                        });
                    };
                    // The user's own ids need no helper; groups stay, and `user` is lost for that.
                    outcomes.note("set-groups", Err(failure));
                    ids = HostIds::Own { uid, gid };
                }
                begun => break begun?,
            }
        };
        begun.wanted = wanted;
        begun.ids = Some(ids);
        begun.outcomes = outcomes;
        Ok(begun)
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let launch = begun.and_then(|begun| self.build(plan, begun, meanwhile));
        launch.map_err(|error| match error {
            LaunchError::Mechanism { what, outcomes, .. } => {
                let lost = plan.intended.keys().filter_map(|control| {
                    effect::lost(*control, plan, &outcomes, false).map(|why| (*control, why))
                });
                let lost = lost.collect();
                LaunchError::Mechanism {
                    what,
                    outcomes,
                    lost,
                }
            }
            other => other,
        })
    }
}

/// The ids that the workload has inside.
fn inside(policy: &Policy, ids: &HostIds) -> IdentitySpec {
    IdentitySpec {
        uid: policy.process.user.unwrap_or(DEFAULT_INSIDE),
        gid: policy.process.group.unwrap_or(DEFAULT_INSIDE),
        drop_groups: ids.can_drop_groups(),
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

impl Embedded {
    fn build(
        &self,
        plan: &Plan,
        mut begun: Begun,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let (possible, wanted) = (begun.namespaces, begun.wanted);
        let mut outcomes = std::mem::take(&mut begun.outcomes);
        let Some(ids) = begun.ids.take() else {
            return Err(LaunchError::Step {
                what: "no ids were chosen".to_owned(),
            });
        };
        let inside = inside(&plan.policy, &ids);
        let has = |flag| possible & flag != 0;
        let built =
            tree::build(plan, &ids, &inside, has(libc::CLONE_NEWIPC)).map_err(refused_owner)?;
        let tree::Built {
            root,
            protect,
            planted,
            placeholders,
            unprotected,
            mapped,
        } = built;
        let spec = Spec {
            identity: Some(inside),
            protect,
            loopback: has(libc::CLONE_NEWNET) && plan.policy.network.mode == NetworkMode::Loopback,
            host_name: has(libc::CLONE_NEWUTS),
            deny_user_namespaces: plan.policy.nesting == Nesting::Deny,
            give_up_privilege: true,
            open_files: plan.policy.resources.open_files.map(|limit| limit.value()),
            landlock: (plan.policy.nesting == Nesting::Deny).then(|| landlock(plan)),
            terminal: plan.job.terminal,
            owns_tree: has(libc::CLONE_NEWPID),
            planted: u32::try_from(planted.len()).unwrap_or(u32::MAX),
            program: Some(launch::program(plan)),
            fault: fault::text(),
            root: Some(root),
            base: base_filters(plan)?,
            seccomp: filter(plan)?,
        };
        let mut expected = None;
        let mut seen = Outcomes::default();
        let init = launch::build(&mut begun, &spec, &planted, meanwhile, |pid, tree| {
            let mut all = effect::expected(plan, &spec, &ids, wanted, mapped);
            all.masks.retain(|mask| !tree.unreachable.contains(mask));
            read_back::tree(pid, &all, &mut seen);
            expected = Some(all);
        })?;
        let Some(expected) = expected else {
            return Err(LaunchError::Step {
                what: "pid 1 did not say that its tree stands".to_owned(),
            });
        };
        outcomes.merge(init.report.outcomes.clone());
        outcomes.merge(seen);
        if let Some(what) = &unprotected {
            let failure = Failure {
                attempt: "make protected paths ready".to_owned(),
                error: what.clone(),
            };
            outcomes.note("protect", Err(failure));
        }
        let runs = matches!(init.report.program, Some(ProgramReport::Found { .. }));
        let host_uid = read_back::workload(init.pid, &expected, runs, &mut outcomes);
        let program = launch::found(plan, init.report.program.as_ref());
        let mut effect = effect::effect(plan, &outcomes, program, &ids);
        effect.tier = Some(TIER_FULL);
        effect.host_uid = host_uid;
        effect.launch = steps::describe(&spec, &ids, possible);
        let workspace = if plan.tree.has_own_workspace() {
            workspace(init.pid)
        } else {
            None
        };
        Ok(Launch {
            effect,
            init: init.pidfd,
            init_pid: init.pid,
            control: init.control,
            terminal: init.terminal,
            workspace,
            held: vec![Box::new(ids), Box::new(placeholders)],
        })
    }
}

fn refused_owner(error: MapOwnersError) -> LaunchError {
    match &error {
        MapOwnersError::Refused { .. } | MapOwnersError::Kernel { .. } => LaunchError::Refused {
            control: Control::User,
            what: error.to_string(),
        },
        MapOwnersError::Source { .. } | MapOwnersError::Namespace(_) => LaunchError::Step {
            what: error.to_string(),
        },
    }
}

fn filter(plan: &Plan) -> Result<Option<Vec<crate::sys::filter::Instruction>>, LaunchError> {
    let Some(architecture) = Architecture::native() else {
        return Ok(None);
    };
    if !plan.intended.contains_key(&Control::Syscalls) {
        return Ok(None);
    }
    let denied: Vec<String> = plan
        .policy
        .syscalls
        .denied()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let calls = if plan.policy.syscalls.allow.is_empty() {
        Calls::Deny(&denied)
    } else {
        Calls::Allow(&plan.policy.syscalls.allow)
    };
    let compiled = seccomp::compile(&calls, architecture);
    compiled.map(Some).map_err(|error| LaunchError::Step {
        what: error_chain(&error),
    })
}

/// Empty where no filter can be made; what rests on it is then not declared.
fn base_filters(plan: &Plan) -> Result<Vec<Vec<crate::sys::filter::Instruction>>, LaunchError> {
    let Some(architecture) = Architecture::native() else {
        return Ok(Vec::new());
    };
    let network_is_own = plan.policy.network.mode != NetworkMode::Unrestricted;
    let compiled = seccomp::base(architecture, network_is_own);
    compiled.map_err(|error| LaunchError::Step {
        what: error_chain(&error),
    })
}

fn landlock(plan: &Plan) -> LandlockSpec {
    let mut writable: Vec<String> = ["/tmp", "/var/tmp", "/workspace"]
        .map(str::to_owned)
        .to_vec();
    let binds = plan.tree.binds.iter().filter(|bind| !bind.read_only);
    writable.extend(binds.map(|bind| bind.target.to_string_lossy().into_owned()));
    LandlockSpec {
        writable,
        deny_tcp: plan.policy.network.mode == NetworkMode::None,
        must_scope: plan.policy.network.mode == NetworkMode::Unrestricted,
    }
}

/// The workload's /workspace from outside; it outlives the mount namespace, so that it can be read at the end.
fn workspace(init: i32) -> Option<std::os::fd::OwnedFd> {
    let flags =
        nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC;
    let path = format!("/proc/{init}/root/workspace");
    nix::fcntl::open(path.as_str(), flags, nix::sys::stat::Mode::empty()).ok()
}
