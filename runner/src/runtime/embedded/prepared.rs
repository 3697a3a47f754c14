//! What pid 1 is told to build.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ledger::facts::control::Control;
use ledger::facts::policy::{Nesting, NetworkMode};

use super::tier::Tier;
use super::{ablation, begin, error_chain, groups, launch, tree};
use crate::init::wire::Spec;
use crate::mechanism::group::{Group, Resource};
use crate::mechanism::landlock::LandlockSpec;
use crate::mechanism::owners::{HostIds, MapOwnersError};
use crate::mechanism::placeholders::Placeholders;
use crate::mechanism::seccomp::{self, Architecture, Beside, Calls, Families};
use crate::plan::{LaunchError, Plan, Reason, Why};
use crate::sys::fault;

/// What pid 1 is to build, and what is on the host for it.
pub(in crate::runtime) struct Prepared {
    pub(in crate::runtime) spec: Spec,
    pub(in crate::runtime) planted: Vec<OwnedFd>,
    pub(in crate::runtime) placeholders: Placeholders,
    pub(in crate::runtime) unprotected: Option<String>,
    pub(in crate::runtime) mapped: Vec<PathBuf>,
}

impl Prepared {
    pub(in crate::runtime) fn new(
        plan: &Plan,
        ids: &HostIds,
        namespaces: libc::c_int,
        group: Option<&Group>,
        tier: &Tier,
    ) -> Result<Self, LaunchError> {
        let inside = begin::inside(&plan.policy, &plan.job, ids);
        let has = |flag| namespaces & flag != 0;
        let applies = |control| !plan.job.leaves_out(control);
        let seals_in = plan.policy.nesting == Nesting::Deny;
        let built = tree::build(
            plan,
            ids,
            &inside,
            tier,
            has(libc::CLONE_NEWIPC),
            own_bytes(plan, group),
        )
        .map_err(refused_owner)?;
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
            deny_user_namespaces: seals_in && applies(Control::Privilege) && *tier == Tier::Full,
            give_up_privilege: applies(Control::Privilege),
            session: applies(Control::Terminal),
            session_keyring: applies(Control::Ipc),
            close_descriptors: applies(Control::Descriptors),
            open_files: plan
                .policy
                .resources
                .open_files
                .filter(|_| applies(Control::Files))
                .map(|limit| limit.value()),
            landlock: seals_in.then(|| landlock(plan)),
            terminal: plan.job.terminal,
            owns_tree: has(libc::CLONE_NEWPID),
            caller_terminal: plan.job.caller_terminal.is_some(),
            groups: groups::doors(group),
            own_group: group.is_some() && has(libc::CLONE_NEWCGROUP),
            leaves_tree: false,
            planted: u32::try_from(planted.len()).unwrap_or(u32::MAX),
            program: Some(launch::program(plan)),
            launcher: None,
            order: None,
            fault: fault::text(),
            root: Some(root),
            base: base_filters(
                plan,
                &Beside {
                    user_namespaces: seals_in && applies(Control::Privilege) && *tier != Tier::Full,
                    ..Beside::default()
                },
            )?,
            stays_dumpable: false,
            seccomp: filter(plan)?,
            reporting: true,
        };
        Ok(Self {
            spec,
            planted,
            placeholders,
            unprotected,
            mapped,
        })
    }
}

fn refused_owner(error: MapOwnersError) -> LaunchError {
    match &error {
        MapOwnersError::Refused { .. } | MapOwnersError::Kernel { .. } => LaunchError::Refused {
            control: Control::User,
            why: Why {
                reason: Reason::MECHANISM_FAILED,
                detail: Some("idmap".to_owned()),
            },
            what: error.to_string(),
        },
        MapOwnersError::Source { .. } | MapOwnersError::Namespace(_) => LaunchError::Step {
            what: error.to_string(),
        },
    }
}

/// The size of each folder in memory: no more than the memory that there is for all of it.
fn own_bytes(plan: &Plan, group: Option<&Group>) -> Option<u64> {
    let memory = group
        .and_then(|group| group.kept(Resource::Memory))
        .map(|kept| kept.number);
    let own = plan.tree.own_bytes.map(|bytes| {
        if plan.job.leaves_out(Control::Disk) {
            crate::plan::ablated_bytes(bytes)
        } else {
            bytes
        }
    });
    match (own, memory) {
        (Some(own), Some(memory)) => Some(own.min(memory)),
        (own, memory) => own.or(memory),
    }
}

pub(super) fn filter(
    plan: &Plan,
) -> Result<Option<Vec<crate::sys::filter::Instruction>>, LaunchError> {
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
pub(super) fn base_filters(
    plan: &Plan,
    beside: &Beside,
) -> Result<Vec<Vec<crate::sys::filter::Instruction>>, LaunchError> {
    let Some(architecture) = Architecture::native() else {
        return Ok(Vec::new());
    };
    let families = ablation::families(&plan.policy, &plan.job);
    base_with_families(architecture, families, beside)
}

/// The same, for these families of sockets.
pub(super) fn base_with_families(
    architecture: Architecture,
    families: Families,
    beside: &Beside,
) -> Result<Vec<Vec<crate::sys::filter::Instruction>>, LaunchError> {
    let compiled = seccomp::base_with(architecture, families, beside);
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
    if plan.job.leaves_out(Control::Filesystem) {
        writable = vec!["/".to_owned()];
    }
    let applies = |control| !plan.job.leaves_out(control);
    LandlockSpec {
        writable,
        deny_tcp: plan.policy.network.mode == NetworkMode::None && applies(Control::Network),
        must_scope: !ablation::has_own_network(&plan.policy, &plan.job) && applies(Control::Ipc),
        scope_sockets: applies(Control::Ipc),
        no_new_privs: applies(Control::Privilege),
        alone: None,
    }
}
