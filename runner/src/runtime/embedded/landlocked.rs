//! The tier `landlock`: no namespaces. The workload is a process among the others of the host, which can open what is listed and
//! nothing else, and make unix sockets and no others.
//!
//! | instead of | stands |
//! |---|---|
//! | a root of its own | Landlock, by which files outside of a list can be neither read nor written. Paths are those of the host; nothing can be moved, covered or made in memory. For /tmp and /workspace there is a folder of this run's own |
//! | owners of mounts | a filter: owner, mode, times and attributes of files, at which Landlock does not look, stay as they are; of ioctl(2) there is what descriptors, terminals and copies of files need |
//! | covers | nothing. What no workload may see, and lies in what can be had, refuses the run |
//! | a network namespace | a filter: unix sockets alone |
//! | a limit on user namespaces | a filter, too |
//! | a pid namespace | nothing. Landlock keeps signals inside (ABI 6), a filter denies looking into other processes |
//! | a user namespace | started as root a free host id, as ever; else the caller's |
//!
//! So `process`, `user`, `ipc`, `timeout`, `terminal` and `disk` are never declared: names of files and processes can be looked up, sockets
//! of the host connected to by their paths, and a process that forks faster than it is killed may outlive a deadline.

mod answers;
mod shown;

pub(super) use answers::{answer, serves};

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ledger::bytes::key::random_bytes;
use ledger::facts::control::Control;
use ledger::facts::policy::{NetworkMode, Policy};

use super::effect::lost_with;
use super::prepared::{base_with_families, filter};
use super::tier::Tier;
use super::{OWN_TASKS, ablation, error_chain, groups, launch, no_ids, read_back};
use crate::init::wire::{ProgramReport, ProgramSpec, Spec};
use crate::mechanism::group::{Group, Resource};
use crate::mechanism::identity::IdentitySpec;
use crate::mechanism::landlock::{Access, Alone, LandlockSpec};
use crate::mechanism::owners::HostIds;
use crate::mechanism::seccomp::{Architecture, Beside, Controls, Families};
use crate::mechanism::{Failure, Outcome, Outcomes};
use crate::plan::{
    self, Begun, Effect, Held, Job, Launch, LaunchError, Plan, Program, Reason, SYSTEM, Streams,
};
use crate::runtime::scratch::Scratch;
use crate::sys::process;

/// The place that a plan calls the workload's own; here it is a folder of the host.
pub(super) const WORKSPACE: &str = "/workspace";

/// Makes pid 1, or what stands for it: it is no first process of anything.
pub(super) fn begin(policy: &Policy, job: &Job, streams: Streams) -> Result<Begun, LaunchError> {
    let ids = ablation::host_ids(job)?;
    let mut outcomes = Outcomes::default();
    let mut group = groups::make(&plan::limits(policy, job, OWN_TASKS), &mut outcomes);
    let mut begun = loop {
        let place = group.as_ref().and_then(Group::place);
        let has_place = place.is_some();
        let begun = launch::begin_in(place, 0, launch::again(&streams)?, |_| Ok(()));
        match (begun, &mut group) {
            // It may be the group that does not take it: that is found out without.
            (Err(LaunchError::Namespaces { errno }), Some(group)) if has_place => {
                group.give_up_place(&errno, &mut outcomes);
            }
            (begun, _) => break begun?,
        }
    };
    begun.ids = Some(ids);
    begun.outcomes = outcomes;
    begun.group = group;
    Ok(begun)
}

/// Builds what there is.
pub(super) fn launch(
    plan: &Plan,
    tier: &Tier,
    begun: Result<Begun, LaunchError>,
    meanwhile: &mut dyn FnMut(),
) -> Result<Launch, LaunchError> {
    let mut begun = begun?;
    if let Some(control) = plan.job.ablate
        && !serves(control)
    {
        let reason = Reason::ABLATION_NOT_POSSIBLE;
        return Err(LaunchError::Step {
            what: format!("{control} cannot be left out: {reason}"),
        });
    }
    refuse_what_cannot_be_kept(plan)?;
    let ids = begun.ids.take().ok_or_else(no_ids)?;
    let mut outcomes = std::mem::take(&mut begun.outcomes);
    let (scratch, own) = own_folder()?;
    if nix::unistd::geteuid().is_root() {
        let (uid, gid) = (ids.host_uid(), ids.host_gid());
        if let Err(error) = std::os::unix::fs::chown(&own, Some(uid), Some(gid)) {
            // Of an id that this process cannot give a folder it cannot become either: it has it not.
            let failure = Failure::call(format!("give a folder to {uid}"), &error);
            outcomes.note("set-ids", Err(failure.clone()));
            return Err(without_ids(plan, failure.to_string(), outcomes));
        }
    }
    let spec = spec(plan, &ids, &own, begun.group.as_ref())?;
    let sent = (&[][..], plan.job.caller_terminal.as_deref());
    let init = launch::build(&mut begun, &spec, sent, meanwhile, |_, _| {})?;
    outcomes.merge(init.report.outcomes.clone());
    if let Some(group) = &begun.group {
        group.confirm(init.pid, &mut outcomes);
    }
    let runs = matches!(init.report.program, Some(ProgramReport::Found { .. }));
    let expected = read_back::Expected {
        ids: Some((ids.host_uid(), ids.host_gid())),
        no_privilege: spec.give_up_privilege,
        base_filters: spec.base.len(),
        inherited_filters: read_back::inherited_filters(),
        seccomp: spec.seccomp.is_some(),
        open_files: spec.open_files,
        session: spec.session,
        ..read_back::Expected::default()
    };
    let host_uid = read_back::workload(init.pid, &expected, runs, &mut outcomes);
    if process::has_ended(&init.pidfd) {
        launch::end(&init.pidfd);
        return Err(LaunchError::Step {
            what: "pid 1 was killed before the workload could run".to_owned(),
        });
    }
    // Host root is not what anybody asked for, whatever else holds.
    if let (Some(_), Outcome::Failed(failure)) = (&spec.identity, outcomes.of("set-ids")) {
        let what = failure.to_string();
        launch::end(&init.pidfd);
        return Err(without_ids(plan, what, outcomes));
    }
    let program = launch::found(plan, init.report.program.as_ref());
    let mut effect = effect(plan, &outcomes, program);
    groups::say(&mut effect, plan, begun.group.as_ref());
    effect.tier = Some(tier.name());
    effect.host_uid = host_uid;
    effect.listener = init.listener;
    effect.key_reachable = plan.job.leaves_out(Control::Filesystem);
    effect.launch = describe(plan, &spec, &ids);
    effect.launch.extend(groups::describe(begun.group.as_ref()));
    Ok(Launch {
        effect,
        init: init.pidfd,
        init_pid: init.pid,
        first: None,
        control: init.control,
        terminal: init.terminal,
        workspace: None,
        leaving: None,
        group: begun.group.take(),
        held: vec![Box::new(ids), Box::new(scratch)],
    })
}

/// What may not be seen and lies in what can be had cannot be covered, and a secret cannot be shown without a place in memory. All
/// that is granted is held against it, what every workload has too.
pub(super) fn refuse_what_cannot_be_kept(plan: &Plan) -> Result<(), LaunchError> {
    let refused = |what: String| LaunchError::Refused {
        control: Control::Filesystem,
        why: Reason::NO_MOUNTS.into(),
        what,
    };
    if let Some(secret) = plan.job.secrets.first() {
        return Err(refused(format!(
            "cannot show the secret {}: without mounts there is no place in memory for it",
            secret.name
        )));
    }
    if plan.job.leaves_out(Control::Filesystem) {
        return Ok(());
    }
    let evidence = Held::evidence(&plan.job.evidence).map_err(|error| LaunchError::Step {
        what: error_chain(&error),
    })?;
    for grant in shown::of_the_host(plan) {
        let path = grant.path.display();
        let is_always = SYSTEM.iter().any(|it| grant.path == Path::new(it));
        let is_asked = plan.tree.binds.iter().any(|bind| bind.source == grant.path);
        let is_asked = is_asked && !is_always;
        if let Some(around) = evidence.around(&grant.path) {
            return Err(refused(format!(
                "cannot show {path}: it belongs to the evidence at {}; {}",
                around.display(),
                way_out(is_asked, false)
            )));
        }
        // What tells about the machine and what is a device is on such file systems, and is listed one by one.
        let mut kernels = ["/proc", "/dev"].iter();
        let is_kernels = !is_asked && kernels.any(|own| grant.path.starts_with(own));
        let unseen = evidence.shown_by(&grant.path);
        if let Some(unseen) = unseen.filter(|unseen| !(unseen.is_kernel && is_kernels)) {
            return Err(refused(format!(
                "cannot show {path}: without mounts {} in it, which no workload may see, cannot be covered; {}",
                unseen.place.display(),
                way_out(is_asked, unseen.is_kernel)
            )));
        }
    }
    let temporary = std::env::temp_dir();
    if let Some(around) = evidence.around(&temporary) {
        return Err(refused(format!(
            "cannot make a folder of the run's own in {}: it belongs to the evidence at {}; set TMPDIR to another folder",
            temporary.display(),
            around.display()
        )));
    }
    Ok(())
}

/// What can be done about something that would be shown: another folder, where one was asked for, or another place for what is in it.
const fn way_out(is_asked: bool, is_kernel: bool) -> &'static str {
    match (is_asked, is_kernel) {
        (true, _) => "show another folder",
        (false, true) => {
            "every workload has this folder: unmount that, or start the runner where namespaces can be made"
        }
        (false, false) => {
            "every workload has this folder: keep ledger and key elsewhere (--ledger, --key, XDG_STATE_HOME, XDG_DATA_HOME), or start the runner where namespaces can be made"
        }
    }
}

/// A folder of this run's own, still the caller's; it goes with the first of the two.
fn own_folder() -> Result<(Scratch, PathBuf), LaunchError> {
    let failed = |error: &dyn std::error::Error| LaunchError::Step {
        what: format!("make a folder of the run's own: {error}"),
    };
    let mut scratch = Scratch::new(random_bytes().map_err(|error| failed(&error))?);
    let own = make_own(&mut scratch).map_err(|error| failed(&error))?;
    Ok((scratch, own))
}

fn make_own(scratch: &mut Scratch) -> std::io::Result<PathBuf> {
    scratch.make()?;
    scratch.folder("own")?;
    let own = std::fs::canonicalize(scratch.path())?.join("own");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o700))?;
    Ok(own)
}

fn spec(
    plan: &Plan,
    ids: &HostIds,
    own: &Path,
    group: Option<&Group>,
) -> Result<Spec, LaunchError> {
    let applies = |control| !plan.job.leaves_out(control);
    let identity = match ids {
        HostIds::Allocated { id, .. } => Some(IdentitySpec {
            uid: *id,
            gid: *id,
            drop_groups: true,
        }),
        HostIds::Root | HostIds::Own { .. } | HostIds::Subordinate { .. } => None,
    };
    Ok(Spec {
        identity,
        give_up_privilege: applies(Control::Privilege),
        session: applies(Control::Terminal),
        session_keyring: true,
        close_descriptors: applies(Control::Descriptors),
        open_files: plan
            .policy
            .resources
            .open_files
            .filter(|_| applies(Control::Files))
            .map(|limit| limit.value()),
        landlock: Some(LandlockSpec {
            writable: Vec::new(),
            deny_tcp: plan.policy.network.mode != NetworkMode::Unrestricted
                && applies(Control::Network),
            must_scope: false,
            scope_sockets: true,
            no_new_privs: true,
            alone: Some(alone(plan, own)),
        }),
        base: base_filters(plan)?,
        seccomp: filter(plan)?,
        reporting: true,
        groups: groups::doors(group),
        stays_dumpable: true,
        ..launch::bare(plan, program(plan, own))
    })
}

fn alone(plan: &Plan, own: &Path) -> Alone {
    let everything = plan.job.leaves_out(Control::Filesystem);
    Alone {
        grants: if everything {
            vec![shown::grant("/", Access::Write, false)]
        } else {
            shown::grants(plan, own)
        },
        denied: (!everything).then(|| PathBuf::from("/")),
    }
}

fn base_filters(plan: &Plan) -> Result<Vec<Vec<crate::sys::filter::Instruction>>, LaunchError> {
    let Some(architecture) = Architecture::native() else {
        return Ok(Vec::new());
    };
    let applies = |control| !plan.job.leaves_out(control);
    let is_cut = plan.policy.network.mode != NetworkMode::Unrestricted;
    let families = if is_cut && applies(Control::Network) {
        Families::Unix
    } else {
        Families::All
    };
    let beside = Beside {
        user_namespaces: applies(Control::Privilege),
        other_processes: true,
        metadata: applies(Control::Filesystem),
        controls: match shown::other_devices(&plan.policy).next() {
            _ if !applies(Control::Filesystem) => Controls::All,
            Some(_) => Controls::NotOfFiles,
            None => Controls::Listed,
        },
    };
    base_with_families(architecture, families, &beside)
}

/// What is to run, where the places that other tiers have in memory are a folder of the host.
fn program(plan: &Plan, own: &Path) -> ProgramSpec {
    let mut program = launch::program(plan);
    if program.cwd == Path::new(WORKSPACE) {
        program.cwd = own.to_owned();
    }
    for variable in &mut program.environment {
        let (name, place) =
            variable.split_at(variable.iter().position(|it| *it == b'=').unwrap_or(0));
        let is_place = [WORKSPACE, "/tmp"]
            .iter()
            .any(|own| place.get(1..) == Some(own.as_bytes()));
        if is_place && [&b"HOME"[..], b"TMPDIR"].contains(&name) {
            *variable = [name, b"=", own.as_os_str().as_bytes()].concat();
        }
    }
    program
}

/// Which mechanisms must be in effect for a control to be declared.
fn mechanisms(control: Control) -> Vec<&'static str> {
    match control {
        Control::Network => vec!["base-filter"],
        Control::Filesystem => vec!["landlock", "base-filter"],
        Control::Devices => vec!["landlock"],
        Control::Privilege if nix::unistd::geteuid().is_root() => {
            vec!["capabilities", "no-new-privs", "base-filter", "set-ids"]
        }
        Control::Privilege => vec!["capabilities", "no-new-privs", "base-filter"],
        Control::Syscalls => vec!["seccomp"],
        Control::Descriptors => vec!["close-descriptors"],
        Control::Files => vec!["limit-files"],
        Control::Memory => vec![Resource::Memory.mechanism()],
        Control::Processes => vec![Resource::Tasks.mechanism()],
        Control::Cpu => vec![Resource::Cpu.mechanism()],
        // The launcher does these itself.
        Control::Environment | Control::Output => vec![],
        // Never intended here.
        Control::Process
        | Control::User
        | Control::Ipc
        | Control::Timeout
        | Control::Terminal
        | Control::Disk => vec!["namespace-pid"],
    }
}

fn effect(plan: &Plan, outcomes: &Outcomes, program: Program) -> Effect {
    let mut effect = Effect::new(program);
    let runs = matches!(effect.program, Program::Found { .. });
    for (control, intent) in &plan.intended {
        match lost_with(&mechanisms(*control), outcomes, runs) {
            Some(why) => effect.lose(*control, why),
            None => {
                let mut intent = intent.clone();
                if intent.backup == Some("landlock") && !outcomes.is_done("landlock") {
                    intent.backup = None;
                }
                effect.declare(intent.declare(*control));
            }
        }
    }
    effect
}

fn without_ids(plan: &Plan, what: String, outcomes: Outcomes) -> LaunchError {
    let lost = plan.intended.keys().filter_map(|control| {
        let why = lost_with(&mechanisms(*control), &outcomes, false);
        why.map(|why| (*control, why))
    });
    let lost = lost.collect();
    LaunchError::Mechanism {
        what,
        outcomes,
        lost,
    }
}

/// The steps in words, for the record.
fn describe(plan: &Plan, spec: &Spec, ids: &HostIds) -> Vec<String> {
    let mut steps = vec!["embedded".to_owned(), "no namespaces".to_owned()];
    steps.extend(plan.job.ablate.map(|control| format!("without {control}")));
    if spec.identity.is_some() {
        steps.push(format!("become host {}", ids.host_uid()));
    }
    let alone = spec
        .landlock
        .iter()
        .filter_map(|rules| rules.alone.as_ref());
    for grant in alone.flat_map(|alone| &alone.grants) {
        let word = match grant.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Device => "device",
        };
        steps.push(format!("{word} {}", grant.path.display()));
    }
    if spec.give_up_privilege {
        steps.push("no-capabilities".to_owned());
    }
    steps.extend(spec.open_files.map(|limit| format!("open-files {limit}")));
    steps.extend(
        spec.seccomp
            .as_ref()
            .map(|program| format!("seccomp {} instructions", program.len())),
    );
    steps
}
