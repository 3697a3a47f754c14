//! **bwrap**: bubblewrap builds the sandbox, from the same plan and tree as the embedded runtime's, and what it built is looked at
//! from outside before anything of the workload's runs.
//!
//! ```text
//! runner ── starts ──► launcher (`init::launcher`): attaches mapped folders, becomes the workload's id
//!                       └── bwrap --json-status-fd --block-fd …: names its first process, which waits
//! runner: the namespaces are new? Then it may build.
//!                            └── pid 1 (bwrap's reaper)
//!                                 └── the gate: filters, ids, capabilities, session are what they will be
//! runner: reads all of it back, appends the start record, says "go"; the gate becomes the workload
//! ```

mod answers;
mod arguments;
mod facts;

use ledger::bytes::canon::escape_bytes;
use ledger::facts::control::Control;
use ledger::facts::policy::{Mode, Policy};

use super::beside::{self, Said};
use super::embedded::prepared::Prepared;
use super::embedded::tier::Tier;
use super::embedded::{ablation, begin, namespaces, no_ids, workspace};
use super::program::{Installed, Known, Origin, Sought};
use super::{groups, launch, read_back};
use crate::init::wire::{LauncherSpec, ProgramReport, Spec};
use crate::mechanism::group::Group;
use crate::mechanism::owners::HostIds;
use crate::mechanism::{Failure, Outcomes};
use crate::plan::{
    self, Answer, Begun, Job, Launch, LaunchError, Plan, Reason, Runtime, Streams, Waiting, Why,
};
use crate::sys::process;
use arguments::{Arguments, Built, protect};

/// The tier in which everything of this runtime is to be had.
const TIER_FULL: &str = "full";
/// Tasks of its control groups that are not the workload's: the launcher, bubblewrap, and the first process of the sandbox.
const OWN_TASKS: u64 = 3;

/// What is asked of it.
const BUBBLEWRAP: Known = Known {
    name: "bwrap",
    origin: Origin::Package("bubblewrap"),
    says: "bubblewrap ",
    needed: &[
        "--json-status-fd",
        "--block-fd",
        "--perms",
        "--die-with-parent",
        "--cap-drop",
        "--unshare-cgroup-try",
        "--remount-ro",
    ],
    since: "0.5.0",
};

/// bubblewrap, where it is installed.
#[derive(Debug)]
pub struct Bwrap {
    program: Sought,
}

impl Default for Bwrap {
    fn default() -> Self {
        Self {
            program: Sought::new(&BUBBLEWRAP),
        }
    }
}

impl Bwrap {
    /// Tries what a job asks of the kernel, around a program of the host's; where there is no bubblewrap nothing is tried.
    ///
    /// # Errors
    /// What bubblewrap said.
    pub(super) fn works_here(&self, policy: &Policy, job: &Job) -> Result<(), Failure> {
        let wanted = namespaces::wanted(policy, job);
        self.program
            .try_with(|program| arguments::trial(program, wanted, policy))
    }
}

impl Runtime for Bwrap {
    fn id(&self) -> &str {
        "bwrap"
    }

    /// Bubblewrap's; `none` where there is none.
    fn version(&self) -> String {
        self.program.version()
    }

    fn is_missing(&self) -> Option<Why> {
        self.program.get().err()
    }

    fn try_here(&self, plan: &Plan) -> Result<(), LaunchError> {
        let tried = self.works_here(&plan.policy, &plan.job);
        tried.map_err(|failure| facts::not_built(plan, &failure, Outcomes::default()))
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        match self.program.get() {
            Ok(program) => answers::answer(program, control, policy, job),
            Err(why) => Answer::Cannot(why),
        }
    }

    fn begin(&self, policy: &Policy, job: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        self.program.for_launch()?;
        let best_effort = policy.enforcement.mode == Mode::BestEffort;
        let spare = best_effort.then(|| launch::again(&streams)).transpose()?;
        let ids = ablation::host_ids(job)?;
        let ids = match ids {
            // Of subordinate ids bubblewrap knows nothing: it maps one id.
            HostIds::Subordinate { uid, gid, .. } => HostIds::Own { uid, gid },
            ids => ids,
        };
        // Where the caller's folders are attached with their owners mapped.
        let own = match ids {
            HostIds::Allocated { .. } => libc::CLONE_NEWNS,
            HostIds::Root | HostIds::Own { .. } | HostIds::Subordinate { .. } => 0,
        };
        let mut outcomes = Outcomes::default();
        let limits = plan::limits(policy, job, OWN_TASKS);
        let mut group = groups::make(&limits, &mut outcomes);
        let place = group.as_ref().and_then(Group::place);
        let in_place = place.is_some();
        let begun = launch::begin_beside(place, own, launch::again(&streams)?);
        let mut begun = match (begun, &mut group) {
            // It may be the group that does not take it: that is found out without.
            (Err(LaunchError::Namespaces { errno }), Some(group)) if in_place => {
                group.give_up_place(&errno, &mut outcomes);
                launch::begin_beside(None, own, streams)?
            }
            (begun, _) => begun?,
        };
        begun.group = group;
        begun.outcomes = outcomes;
        begun.ids = Some(ids);
        begun.spare = spare;
        Ok(begun)
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let program = self.program.for_launch()?;
        if let Some(control) = plan.job.ablate
            && !answers::can_leave_out(control, &plan.job)
        {
            let reason = Reason::ABLATION_NOT_POSSIBLE;
            return Err(LaunchError::Step {
                what: format!("{control} cannot be left out: {reason}"),
            });
        }
        let wanted = namespaces::wanted(&plan.policy, &plan.job);
        let mut begun = begun?;
        let spare = begun.spare.take();
        let built = build(plan, program, begun, (wanted, None), meanwhile);
        match (built, spare) {
            // Some hosts give network namespaces in which nothing may be set up. What runs all the same runs without.
            (Err(LaunchError::Mechanism { what, .. }), Some(streams))
                if wanted & libc::CLONE_NEWNET != 0 && facts::is_network(&what) =>
            {
                let begun = self.begin(&plan.policy, &plan.job, streams)?;
                let without = (wanted & !libc::CLONE_NEWNET, Some(what));
                build(plan, program, begun, without, meanwhile)
            }
            (built, _) => built,
        }
    }
}

fn build(
    plan: &Plan,
    program: &Installed,
    mut begun: Begun,
    (wanted, no_network): (libc::c_int, Option<String>),
    meanwhile: &mut dyn FnMut(),
) -> Result<Launch, LaunchError> {
    let ids = begun.ids.take().ok_or_else(no_ids)?;
    let mut prepared = Prepared::new(plan, &ids, wanted, begun.group.as_ref(), &Tier::Full)?;
    let inside = begin::inside(&plan.policy, &plan.job, &ids);
    let full = &prepared.spec;
    let arguments = Arguments {
        plan,
        program,
        spec: full,
        ids: &ids,
        inside: &inside,
        wanted,
    };
    let Built {
        steps,
        contents,
        protected,
        unprotected,
    } = arguments.build(&mut prepared.planted)?;
    let ids_of_launcher = match ids {
        HostIds::Allocated { id, .. } => Some((id, id)),
        HostIds::Root | HostIds::Own { .. } | HostIds::Subordinate { .. } => None,
    };
    let mut expected =
        super::embedded::effect::expected(plan, full, &ids, wanted, prepared.mapped.clone());
    let spec = Spec {
        session: full.session,
        session_keyring: full.session_keyring,
        close_descriptors: full.close_descriptors,
        open_files: full.open_files,
        groups: groups::doors(begun.group.as_ref()),
        planted: u32::try_from(prepared.planted.len()).unwrap_or(u32::MAX),
        launcher: Some(LauncherSpec {
            program: program.path.clone(),
            steps,
            says_what_it_made: true,
            contents,
            ids: ids_of_launcher,
        }),
        ..launch::bare(plan, launch::program(plan))
    };
    let Some(Waiting {
        pid,
        pidfd,
        control,
    }) = begun.take()
    else {
        return Err(no_ids());
    };
    let said = beside::exchange(
        &control,
        &spec,
        begun.group.as_ref(),
        (&prepared.planted, plan),
        meanwhile,
        &|failure, outcomes| facts::not_built(plan, failure, outcomes),
    );
    let Said {
        made,
        report,
        terminal,
        first,
    } = match said {
        Ok(said) => said,
        Err(error) => {
            launch::end(&pidfd);
            return Err(launch::of_memory(error, begun.group.as_ref()));
        }
    };
    let mut outcomes = std::mem::take(&mut begun.outcomes);
    outcomes.merge(report.outcomes);
    if let Some(group) = &begun.group {
        group.confirm(made.first, &mut outcomes);
    }
    facts::said_by_launcher(plan, program, &prepared, &mut outcomes);
    if let Some(what) = no_network {
        let attempt = "set up a network namespace".to_owned();
        let failure = Failure {
            attempt,
            error: what,
        };
        outcomes.note("namespace-network", Err(failure));
    }
    expected
        .masks
        .retain(|mask| !made.unreachable.contains(mask));
    if !plan.job.leaves_out(Control::Devices) {
        // A file system in memory of bubblewrap's own, without a limit.
        expected.masks.push("/dev".into());
    }
    // Bubblewrap's first process begins the session; with a terminal the program itself has it.
    expected.leader = if plan.job.terminal {
        // Not known, it is nobody: the gate begins no session.
        read_back::parent_of(made.first)
    } else {
        Some(made.first)
    };
    if let Some(failure) = unprotected {
        outcomes.note("protect", Err(failure));
    }
    read_back::tree(made.first, &expected, &mut outcomes);
    outcomes.note("protect", protect::are_themselves(made.first, &protected));
    let runs = matches!(report.program, Some(ProgramReport::Found { .. }));
    facts::are_one(made.first, &mut outcomes);
    let host_uid = read_back::workload(made.first, &expected, runs, &mut outcomes);
    // What is not there any more cannot be read back, and is no control that the host lacks.
    if process::has_ended(&pidfd) || process::has_ended(&first) {
        launch::end(&pidfd);
        let killed = LaunchError::Step {
            what: "bwrap was killed before the workload could run".to_owned(),
        };
        return Err(launch::of_memory(killed, begun.group.as_ref()));
    }
    if let Err(other) = program.is_itself() {
        launch::end(&pidfd);
        return Err(other);
    }
    // Host root is not what anybody asked for, whatever else holds.
    if ids_of_launcher.is_some() && host_uid == Some(0) {
        launch::end(&pidfd);
        let failure = Failure::no_effect("take the workload's ids");
        return Err(facts::not_built(plan, &failure, outcomes));
    }
    let found = launch::found(plan, report.program.as_ref());
    let mut effect = super::embedded::effect::effect(plan, &Tier::Full, &outcomes, found, &ids);
    groups::say(&mut effect, plan, begun.group.as_ref());
    effect.tier = Some(TIER_FULL);
    effect.owns_tree = true;
    effect.host_uid = host_uid;
    effect.runtime_sha256 = Some(program.sha256);
    effect.launch = made.argv.iter().map(|word| escape_bytes(word)).collect();
    effect.launch.extend(groups::describe(begun.group.as_ref()));
    if plan.tree.own_bytes.is_some() && !program.has(answers::SIZE) {
        effect.remarks.push(format!(
            "bubblewrap {} has no {}: /workspace and /tmp take as much memory as there is",
            program.version,
            answers::SIZE
        ));
    }
    let workspace = if plan.tree.has_own_workspace() {
        workspace(made.first)
    } else {
        None
    };
    Ok(Launch {
        effect,
        init: pidfd,
        init_pid: pid,
        first: Some(first),
        control,
        terminal,
        workspace,
        leaving: None,
        group: begun.group.take(),
        held: vec![Box::new(ids), Box::new(prepared.placeholders)],
    })
}
