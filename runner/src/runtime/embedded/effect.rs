//! From what became of each mechanism to what is declared.

use std::collections::BTreeSet;
use std::path::Path;

use ledger::facts::control::Control;
use ledger::facts::policy::Nesting;

use super::ablation;
use super::namespaces::OPTIONAL;
use super::tier::Tier;
use super::tree::maps_owners;
use crate::init::wire::Spec;
use crate::mechanism::group::Resource;
use crate::mechanism::identity::DEFAULT_INSIDE;
use crate::mechanism::owners::HostIds;
use crate::mechanism::root::{Mask, What};
use crate::mechanism::{Outcome, Outcomes};
use crate::plan::{Effect, Plan, Program, Reason, Why};
use crate::runtime::read_back::{self, Expected, Processes};

/// What must be seen from outside.
pub(in crate::runtime) fn expected(
    plan: &Plan,
    spec: &Spec,
    ids: &HostIds,
    wanted: libc::c_int,
    mapped: Vec<std::path::PathBuf>,
) -> Expected {
    let mut namespaces = vec![("namespace-pid", "pid"), ("namespace-mount", "mnt")];
    namespaces.extend(
        OPTIONAL
            .iter()
            .filter(|one| wanted & one.flag != 0)
            .map(|one| (one.mechanism, one.file)),
    );
    let entries = spec.root.iter().flat_map(|root| &root.entries);
    let mut read_only = Vec::new();
    let mut writable = Vec::new();
    let mut sizes = Vec::new();
    for entry in entries {
        match &entry.what {
            What::Bind { optional: true, .. }
                if std::fs::symlink_metadata(&entry.path).is_err() => {}
            What::Bind { device: true, .. } => {}
            What::Bind {
                read_only: true, ..
            } => read_only.push(entry.path.clone()),
            What::Memory { bytes, .. } => {
                sizes.extend(bytes.map(|bytes| (entry.path.clone(), bytes)));
                writable.push(entry.path.clone());
            }
            What::Bind { .. } => writable.push(entry.path.clone()),
            What::Folder
            | What::File { .. }
            | What::Link(_)
            | What::Processes
            | What::Terminals
            | What::MessageQueues => {}
        }
    }
    let masks = spec.root.iter().flat_map(|root| &root.masks);
    let masks = masks.filter_map(|mask| match mask {
        // In the host's /proc the same entries exist; elsewhere a mask covers only what is there.
        Mask::ReadOnly(path) | Mask::Empty(path) if path.starts_with("/proc") && path.exists() => {
            Some(path.clone())
        }
        Mask::ReadOnly(_) => None,
        Mask::Empty(path) => plan.tree.covered.contains(path).then(|| path.clone()),
    });
    let protected = spec
        .protect
        .iter()
        .flat_map(|folder| folder.paths.iter().map(|path| folder.folder.join(path)));
    // Whoever could move a folder on the way would have its place.
    let pinned = spec.protect.iter().flat_map(|folder| {
        let own = folder.pinned.iter().map(Path::new);
        let on_the_way = folder.paths.iter().flat_map(|path| {
            let above = Path::new(path).ancestors().skip(1);
            above.filter(|path| !path.as_os_str().is_empty())
        });
        let all: BTreeSet<&Path> = own.chain(on_the_way).collect();
        all.into_iter().map(|path| folder.folder.join(path))
    });
    Expected {
        namespaces,
        ids: Some((ids.host_uid(), ids.host_gid())),
        no_privilege: spec.give_up_privilege,
        base_filters: spec.base.len(),
        inherited_filters: read_back::inherited_filters(),
        seccomp: spec.seccomp.is_some(),
        open_files: spec.open_files,
        session: spec.session,
        leader: None,
        own_root: true,
        read_only,
        writable,
        masks: masks.collect(),
        protected: protected.collect(),
        pinned: pinned.collect(),
        mapped,
        processes: processes(spec),
        sizes,
    }
}

/// What must be seen at /proc.
fn processes(spec: &Spec) -> Processes {
    let entries = spec.root.iter().flat_map(|root| &root.entries);
    let mut at_proc = entries.filter(|entry| entry.path == Path::new("/proc"));
    match at_proc.next().map(|entry| &entry.what) {
        Some(What::Processes) => Processes::Own,
        Some(What::Folder) => Processes::Nothing,
        _ => Processes::Any,
    }
}

/// Which mechanisms must be in effect for a control to be declared.
fn mechanisms(control: Control, plan: &Plan, tier: &Tier) -> Vec<&'static str> {
    let mut needed = usual_mechanisms(control, plan);
    // It is the filter that denies them there.
    if *tier != Tier::Full {
        let by_filter = |name: &mut &'static str| {
            if *name == "userns-limit" {
                *name = "base-filter";
            }
        };
        needed.iter_mut().for_each(by_filter);
    }
    needed.extend(ablation::stands_in(control, plan));
    needed
}

fn usual_mechanisms(control: Control, plan: &Plan) -> Vec<&'static str> {
    let tree = ["namespace-mount", "pivot-root"];
    match control {
        Control::Network if plan.job.leaves_out(Control::Ipc) => vec!["base-filter"],
        // What a source shows of the host's sysfs and proc is covered like what it shows of evidence.
        Control::Network if !plan.tree.kernel.is_empty() => {
            vec!["namespace-network", "base-filter", "proc-mask"]
        }
        Control::Network => vec!["namespace-network", "base-filter"],
        Control::Filesystem => {
            let mut needed = vec![
                "namespace-mount",
                "pivot-root",
                "read-only",
                "proc-mask",
                "base-filter",
            ];
            if plan.tree.binds.iter().any(|bind| plan.tree.protects(bind)) {
                needed.push("protect");
            }
            needed
        }
        Control::Process if !plan.tree.kernel.is_empty() => {
            vec!["namespace-pid", "proc", "proc-mask"]
        }
        Control::Process => vec!["namespace-pid", "proc"],
        Control::Privilege => {
            let mut needed = vec!["capabilities", "bounding-set", "no-new-privs", "set-ids"];
            if plan.policy.nesting == Nesting::Deny {
                needed.push("userns-limit");
            }
            needed
        }
        Control::Syscalls => vec!["seccomp"],
        Control::Timeout => vec!["namespace-pid"],
        Control::Devices => tree.to_vec(),
        Control::User => {
            let mut needed = vec!["set-ids", "set-groups"];
            let mut binds = plan.tree.binds.iter();
            if nix::unistd::geteuid().is_root() && !plan.job.as_root && binds.any(maps_owners) {
                needed.push("idmap");
            }
            needed
        }
        Control::Ipc if !ablation::has_own_network(&plan.policy, &plan.job) => {
            vec!["namespace-ipc", "landlock", "namespace-mount", "pivot-root"]
        }
        Control::Ipc => vec![
            "namespace-ipc",
            "session-keyring",
            "namespace-network",
            "namespace-mount",
            "pivot-root",
        ],
        Control::Descriptors => vec!["close-descriptors"],
        Control::Terminal if plan.job.terminal => vec!["new-session", "terminal"],
        Control::Terminal => vec!["new-session"],
        Control::Files => vec!["limit-files"],
        // The launcher does these itself and nothing but its own end takes them away: the environment stands
        // in the execve that runs the workload, output passes through the runner.
        Control::Environment | Control::Output => vec![],
        Control::Memory => vec![Resource::Memory.mechanism()],
        Control::Processes => vec![Resource::Tasks.mechanism()],
        Control::Cpu => vec![Resource::Cpu.mechanism()],
        // What is not in memory is read-only, as nothing of the host's is writable.
        Control::Disk => vec!["namespace-mount", "pivot-root", "read-only", "tmpfs-size"],
    }
}

/// Why a control is not in effect, by the mechanisms that it rests on; `runs` says whether there is a process on
/// which a filter or a limit could take effect.
pub(in crate::runtime) fn lost(
    control: Control,
    plan: &Plan,
    tier: &Tier,
    outcomes: &Outcomes,
    runs: bool,
) -> Option<Why> {
    lost_with(&mechanisms(control, plan, tier), outcomes, runs)
}

/// Why what rests on these mechanisms is not in effect.
pub(super) fn lost_with(
    mechanisms: &[&'static str],
    outcomes: &Outcomes,
    runs: bool,
) -> Option<Why> {
    let mut lost = None;
    for mechanism in mechanisms.iter().copied() {
        match outcomes.of(mechanism) {
            Outcome::Done => {}
            Outcome::Skipped if !runs => {}
            Outcome::Skipped => lost = lost.or_else(|| Some(Reason::NOT_READ_BACK.into())),
            Outcome::Failed(failure) => {
                let reason = match (mechanism, failure.error.as_str()) {
                    ("protect", _) => Reason::PROTECT_FAILED,
                    (_, "no-effect") => Reason::NO_EFFECT,
                    (name, _) if name.starts_with("namespace-") => Reason::NAMESPACE_REFUSED,
                    _ => Reason::MECHANISM_FAILED,
                };
                lost = Some(Why {
                    reason,
                    detail: Some(failure.to_string()),
                });
            }
        }
    }
    lost
}

/// What is declared, and what was intended and lost.
pub(in crate::runtime) fn effect(
    plan: &Plan,
    tier: &Tier,
    outcomes: &Outcomes,
    program: Program,
    ids: &HostIds,
) -> Effect {
    let mut effect = Effect::new(program);
    // Without a process there is nothing that a filter or a limit could have taken effect on.
    let runs = matches!(effect.program, Program::Found { .. });
    for (control, intent) in &plan.intended {
        match lost(*control, plan, tier, outcomes, runs) {
            Some(why) => effect.lose(*control, why),
            None => {
                let mut intent = intent.clone();
                if intent.backup == Some("landlock") && !outcomes.is_done("landlock") {
                    intent.backup = None;
                }
                if *control == Control::User {
                    let inside = plan.policy.process.user.unwrap_or(DEFAULT_INSIDE);
                    intent = intent.limited(format!("{inside} inside, {} outside", ids.host_uid()));
                }
                effect.declare(intent.declare(*control));
            }
        }
    }
    if let Outcome::Failed(failure) = outcomes.of("host-name") {
        effect
            .remarks
            .push(format!("the workload sees this host's name: {failure}"));
    }
    if let Outcome::Failed(failure) = outcomes.of("landlock") {
        effect
            .remarks
            .push(format!("no Landlock behind the namespaces: {failure}"));
    }
    effect
}
