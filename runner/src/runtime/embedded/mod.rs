//! **embedded**: namespaces, a root of its own, seccomp and Landlock, by the runner alone. Nothing to install;
//! works as root and as an ordinary user. Where the host allows less it is less ([`tier`]), and declares less.

pub(super) mod ablation;
pub(super) mod answers;
pub(super) mod begin;
pub(super) mod effect;
mod landlocked;
pub(super) mod namespaces;
pub(super) mod prepared;
mod sockets;
mod steps;
pub(super) mod tier;
mod tree;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use ledger::facts::control::Control;
use ledger::facts::policy::Policy;

use super::groups;
use super::launch;
use super::read_back;
use crate::init::wire::ProgramReport;
use crate::mechanism::group::Group;
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{
    self, Answer, Begun, Job, Launch, LaunchError, Plan, Reason, Runtime, Streams, Tree,
};
use crate::sys::process;
use crate::sys::starter::Starter;
use begin::{made, make};
use namespaces::{possible_namespaces, wanted};
use prepared::Prepared;
use tier::Tier;

/// Tasks of its control groups that are not the workload's: pid 1.
const OWN_TASKS: u64 = 1;

/// The runner's own sandbox.
#[derive(Debug, Default)]
pub struct Embedded {
    /// Start pid 1's program before a sandbox is wanted: for each thread its own, as pid 1 becomes a child of the thread that
    /// made the starter.
    starters: Mutex<HashMap<ThreadId, Starter>>,
    /// How much of it this host allows, once that is asked.
    tier: Mutex<Option<Tier>>,
}

impl Embedded {
    fn starters(&self) -> MutexGuard<'_, HashMap<ThreadId, Starter>> {
        // A starter is whole whoever panicked.
        self.starters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tier(&self) -> Tier {
        let mut known = self.tier.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(Tier::of_this_process).clone()
    }

    /// The name of the tier, tried whatever signs there are.
    #[must_use]
    pub fn tier_by_trying(&self) -> &'static str {
        self.tier_again().name()
    }

    /// The tier, where it is not the whole of it.
    pub(super) fn weaker_tier(&self) -> Option<&'static str> {
        let tier = self.tier();
        (tier != Tier::Full).then(|| tier.name())
    }

    /// The tier, tried whatever was assumed.
    fn tier_again(&self) -> Tier {
        let found = Tier::tried();
        *self.tier.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        found
    }
}

impl Runtime for Embedded {
    fn shares_nothing(&self) -> bool {
        true
    }

    fn id(&self) -> &str {
        "embedded"
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn tier(&self) -> Option<&'static str> {
        Some(Self::tier(self).name())
    }

    fn keeps_paths(&self) -> bool {
        !Self::tier(self).has_namespaces()
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        match Self::tier(self) {
            Tier::Full => answers::answer(control, policy, job),
            Tier::NoProc => answers::without_proc(control, policy, job),
            Tier::Landlock { errno } => landlocked::answer(control, policy, job, &errno),
        }
    }

    fn cwd(&self, tree: &Tree, job: &Job) -> PathBuf {
        let cwd = tree.cwd(job);
        // What is named by its place in a sandbox is named by the host's here.
        match tree.binds.iter().find(|bind| cwd == bind.target) {
            Some(bind) if !Self::tier(self).has_namespaces() => bind.source.clone(),
            _ => cwd,
        }
    }

    fn try_here(&self, plan: &Plan) -> Result<(), LaunchError> {
        if Self::tier(self).has_namespaces() {
            Ok(())
        } else {
            landlocked::refuse_what_cannot_be_kept(plan)
        }
    }

    fn get_ready(&self) {
        // Where there are no namespaces to be made in nobody needs one.
        if !Self::tier(self).has_namespaces() {
            return;
        }
        // Where there is none, pid 1 is made in one step.
        if let Some(starter) = launch::starter() {
            self.starters().insert(thread::current().id(), starter);
        }
    }

    fn begin(&self, policy: &Policy, job: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        if !Self::tier(self).has_namespaces() {
            return landlocked::begin(policy, job, streams);
        }
        // For another attempt.
        let again = launch::again(&streams)?;
        match self.begin_in_namespaces(policy, job, streams) {
            Err(LaunchError::Namespaces { .. }) if !self.tier_again().has_namespaces() => {
                landlocked::begin(policy, job, again)
            }
            begun => begun,
        }
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let tier = Self::tier(self);
        if !tier.has_namespaces() {
            return landlocked::launch(plan, &tier, begun, meanwhile);
        }
        let launch = begun.and_then(|begun| build(plan, &tier, begun, meanwhile));
        launch.map_err(|error| match error {
            LaunchError::Mechanism { what, outcomes, .. } => {
                let lost = plan.intended.keys().filter_map(|control| {
                    effect::lost(*control, plan, &tier, &outcomes, false).map(|why| (*control, why))
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

impl Embedded {
    fn begin_in_namespaces(
        &self,
        policy: &Policy,
        job: &Job,
        streams: Streams,
    ) -> Result<Begun, LaunchError> {
        let wanted = wanted(policy, job);
        let mut outcomes = Outcomes::default();
        let mut ids = ablation::host_ids(job)?;
        let possible = possible_namespaces(wanted, &mut outcomes)?;
        let limits = plan::limits(policy, job, OWN_TASKS);
        let mut group = None;
        let first = groups::come_first(&limits);
        if first {
            group = groups::make(&limits, &mut outcomes);
        }
        let place = group.as_ref().and_then(Group::place);
        let ready = self.starters().remove(&thread::current().id());
        let asked = match ready {
            // It was started before, and does not hold what this process holds now.
            Some(starter) if !job.leaves_out(Control::Descriptors) => {
                launch::ask(starter, place, possible, streams)
            }
            _ => Err(streams),
        };
        if !first {
            // While the starter makes pid 1, which comes in by itself.
            group = groups::make(&limits, &mut outcomes);
        }
        let mut begun = match asked {
            Ok(asked) => Begun::asked(asked, possible),
            Err(streams) => make(
                None,
                (policy, job),
                (wanted, possible),
                &streams,
                &mut ids,
                &mut group,
                &mut outcomes,
            )?,
        };
        begun.group = group;
        begun.wanted = wanted;
        begun.ids = Some(ids);
        begun.outcomes = outcomes;
        Ok(begun)
    }
}

fn build(
    plan: &Plan,
    tier: &Tier,
    mut begun: Begun,
    meanwhile: &mut dyn FnMut(),
) -> Result<Launch, LaunchError> {
    if let Some(control) = plan.job.ablate
        && !ablation::is_possible(control, &plan.job)
    {
        return Err(LaunchError::Step {
            what: format!(
                "{control} cannot be left out: {}",
                Reason::ABLATION_NOT_POSSIBLE
            ),
        });
    }
    // What a specification is made for.
    let basis = |begun: &Begun| {
        let ids = begun.ids.as_ref();
        let ids = ids.map(|ids| (ids.host_uid(), ids.host_gid(), ids.can_drop_groups()));
        let place = begun
            .group
            .as_ref()
            .is_some_and(|group| group.place().is_some());
        (begun.namespaces, ids, place)
    };
    let prepare = |begun: &Begun| {
        let ids = begun.ids.as_ref().ok_or_else(no_ids)?;
        let prepared = Prepared::new(plan, ids, begun.namespaces, begun.group.as_ref(), tier)?;
        Ok::<_, LaunchError>((prepared, basis(begun)))
    };
    // While the starter still makes pid 1.
    let (mut prepared, on) = prepare(&begun)?;
    let starter;
    (begun, starter) = made((&plan.policy, &plan.job), begun)?;
    if basis(&begun) != on {
        drop(prepared);
        (prepared, _) = prepare(&begun)?;
    }
    let Prepared {
        spec,
        planted,
        placeholders,
        unprotected,
        mapped,
    } = prepared;
    let (possible, wanted) = (begun.namespaces, begun.wanted);
    let mut outcomes = std::mem::take(&mut begun.outcomes);
    let ids = begun.ids.take().ok_or_else(no_ids)?;
    let mut expected = None;
    let mut seen = Outcomes::default();
    let sent = (planted.as_slice(), plan.job.caller_terminal.as_deref());
    let init = launch::build(&mut begun, &spec, sent, meanwhile, |pid, tree| {
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
    if let Some(group) = &begun.group {
        group.confirm(init.pid, &mut outcomes);
    }
    if let Some(what) = &unprotected {
        let failure = Failure {
            attempt: "make protected paths ready".to_owned(),
            error: what.clone(),
        };
        outcomes.note("protect", Err(failure));
    }
    let runs = matches!(init.report.program, Some(ProgramReport::Found { .. }));
    let host_uid = read_back::workload(init.pid, &expected, runs, &mut outcomes);
    // What is not there any more cannot be read back, and is no control that the host lacks.
    if process::has_ended(&init.pidfd) {
        launch::end(&init.pidfd);
        return Err(LaunchError::Step {
            what: "pid 1 was killed before the workload could run".to_owned(),
        });
    }
    let program = launch::found(plan, init.report.program.as_ref());
    let mut effect = effect::effect(plan, tier, &outcomes, program, &ids);
    groups::say(&mut effect, plan, begun.group.as_ref());
    effect.tier = Some(tier.name());
    effect.owns_tree = true;
    effect.host_uid = host_uid;
    effect.listener = init.listener;
    effect.launch = steps::describe(&spec, &ids, possible, plan.job.ablate);
    effect.launch.extend(groups::describe(begun.group.as_ref()));
    let workspace = if plan.tree.has_own_workspace() {
        workspace(init.pid)
    } else {
        None
    };
    Ok(Launch {
        effect,
        init: init.pidfd,
        init_pid: init.pid,
        first: None,
        control: init.control,
        terminal: init.terminal,
        workspace,
        // It ends while the runner has other things to do.
        leaving: starter.and_then(Starter::let_go),
        group: begun.group.take(),
        held: vec![Box::new(ids), Box::new(placeholders)],
    })
}

pub(super) fn no_ids() -> LaunchError {
    LaunchError::Step {
        what: "no ids were chosen".to_owned(),
    }
}

/// The workload's /workspace from outside; it outlives the mount namespace, so that it can be read at the end.
pub(super) fn workspace(init: i32) -> Option<std::os::fd::OwnedFd> {
    let flags =
        nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY | nix::fcntl::OFlag::O_CLOEXEC;
    let path = format!("/proc/{init}/root/workspace");
    nix::fcntl::open(path.as_str(), flags, nix::sys::stat::Mode::empty()).ok()
}

pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}
