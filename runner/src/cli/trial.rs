//! What this host refuses of a plan, found by trying as `runner doctor` does: nothing of the workload's is looked at, and
//! nothing stays.

use std::collections::BTreeMap;

use ledger::facts::control::Control;
use ledger::facts::policy::{Mode, NetworkMode};

use crate::host::account::FIRST_HOST_ID;
use crate::host::capability::map_workload_ids;
use crate::mechanism::group::{Group, Resource};
use crate::mechanism::{Failure, Outcome};
use crate::plan::{self, Answer, LaunchError, Plan, Reason, Runtime, Why};
use crate::sys::attempt::{Attempt, attempt};
use crate::sys::clone::Placeholder;

/// The namespaces without which nothing is built.
const NEEDED: libc::c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID;

/// What exec would do with a plan on this host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Would {
    /// Run it, as far as can be told before.
    Run,
    /// Refuse it: a requested control is not to be had.
    Refuse,
    /// Fail to build any sandbox, and record that; no control is requested that would make it a refusal.
    FailToLaunch,
}

/// Tries what a plan needs of this host, and moves from `intended` to `cannot` what it cannot have.
pub(super) fn would(runtime: &dyn Runtime, plan: &mut Plan) -> Would {
    let refused_before = plan.is_refused();
    match runtime.try_here(plan) {
        _ if runtime.is_missing().is_some() && !refused_before => Would::FailToLaunch,
        Err(LaunchError::Mechanism { lost, .. }) => give_up(plan, lost, refused_before, true),
        // Whatever the policy requires: exec refuses it, too.
        Err(LaunchError::Refused { control, why, what }) => {
            let why = Why {
                detail: Some(what),
                ..why
            };
            plan.intended.remove(&control);
            plan.cannot.insert(control, why);
            Would::Refuse
        }
        Err(_) => Would::FailToLaunch,
        Ok(()) if runtime.id() == "embedded" && runtime.keeps_paths() => {
            try_without_namespaces(plan)
        }
        Ok(()) if runtime.id() == "embedded" => try_embedded(plan),
        Ok(()) => {
            let lost = limits_refused(plan);
            give_up(plan, lost, refused_before, false)
        }
    }
}

/// Where there are none, limits and the id that is nobody's are what may be refused.
fn try_without_namespaces(plan: &mut Plan) -> Would {
    let refused_before = plan.is_refused();
    let mut lost = limits_refused(plan);
    let is_root = nix::unistd::geteuid().is_root() && !plan.job.as_root;
    let taken = is_root.then(|| attempt(0, Attempt::TakeId(FIRST_HOST_ID), |_| Ok(())));
    let refused = taken.and_then(Result::err);
    let stops = refused.is_some();
    if let Some(error) = refused {
        let failure = Failure::call("become the workload's id", &error);
        let why = Why {
            reason: Reason::MECHANISM_FAILED,
            detail: Some(failure.to_string()),
        };
        lost.insert(Control::Privilege, why);
    }
    give_up(plan, lost, refused_before, stops)
}

fn try_embedded(plan: &mut Plan) -> Would {
    let refused_before = plan.is_refused();
    let mut lost = BTreeMap::new();
    let stops = match Placeholder::new(NEEDED) {
        Err(error) => {
            let why = Why {
                reason: Reason::NO_USER_NAMESPACE,
                detail: Some(crate::sys::errno_name(&error)),
            };
            lost.extend(plan.intended.keys().map(|control| (*control, why.clone())));
            true
        }
        Ok(holder) => {
            drop(holder);
            let ids = ids_refused(plan.job.as_root);
            match &ids {
                Some(why) => {
                    for control in [Control::User, Control::Privilege] {
                        lost.insert(control, why.clone());
                    }
                }
                None => {
                    lost.extend(namespaces_refused(plan.policy.network.mode));
                    lost.extend(limits_refused(plan));
                }
            }
            ids.is_some()
        }
    };
    give_up(plan, lost, refused_before, stops)
}

/// Moves what is lost; with `stops` there is no sandbox at all.
fn give_up(
    plan: &mut Plan,
    mut lost: BTreeMap<Control, Why>,
    refused_before: bool,
    stops: bool,
) -> Would {
    lost.retain(|control, _| plan.intended.contains_key(control));
    let missing = plan
        .requested
        .iter()
        .any(|control| lost.contains_key(control));
    if stops {
        // With them goes everything else.
        for control in plan.intended.keys() {
            lost.entry(*control)
                .or_insert_with(|| Reason::NOT_LAUNCHED.into());
        }
    }
    plan.intended
        .retain(|control, _| !lost.contains_key(control));
    plan.cannot.extend(lost);
    if refused_before || plan.policy.enforcement.mode == Mode::Strict && missing {
        Would::Refuse
    } else if stops {
        Would::FailToLaunch
    } else {
        Would::Run
    }
}

/// Why root cannot give a workload an id that is nobody's; `None` where it can, or need not.
fn ids_refused(as_root: bool) -> Option<Why> {
    if as_root || !nix::unistd::geteuid().is_root() {
        return None;
    }
    let error = map_workload_ids().err()?;
    Some(Why {
        reason: Reason::MECHANISM_FAILED,
        detail: Some(Failure::call("map the ids of workloads", &error).to_string()),
    })
}

/// Limits that control groups do not take, tried with groups that are removed at once.
fn limits_refused(plan: &Plan) -> BTreeMap<Control, Why> {
    let limits = plan::limits(&plan.policy, &plan.job, 0);
    let made = plan::with_ways(|ways| {
        ways.settle(&limits);
        Group::make(ways, &limits).1
    });
    let mut lost = BTreeMap::new();
    for resource in Resource::ALL {
        let control = resource.control();
        // A template's own means are its own.
        let is_ours = |intent: &plan::Intent| intent.mechanism.starts_with("cgroup-v");
        if !plan.intended.get(&control).is_some_and(is_ours) {
            continue;
        }
        // Asking may have shown that there is no place.
        if let Some(Answer::Cannot(why)) = plan::answer_limit(control, &plan.policy) {
            lost.insert(control, why);
            continue;
        }
        let outcome = made
            .as_ref()
            .map_or(&Outcome::Skipped, |made| made.of(resource.mechanism()));
        if let Outcome::Failed(failure) = outcome {
            let reason = if failure.error == "no-effect" {
                Reason::NO_EFFECT
            } else {
                Reason::MECHANISM_FAILED
            };
            let detail = Some(failure.to_string());
            lost.insert(control, Why { reason, detail });
        }
    }
    lost
}

/// Controls that rest on a namespace which is refused while the needed ones are made.
fn namespaces_refused(mode: NetworkMode) -> BTreeMap<Control, Why> {
    let mut lost = BTreeMap::new();
    let own_network = mode != NetworkMode::Unrestricted;
    let kinds: [(libc::c_int, bool, &[Control]); 2] = [
        (libc::CLONE_NEWIPC, true, &[Control::Ipc]),
        (
            libc::CLONE_NEWNET,
            own_network,
            &[Control::Network, Control::Ipc],
        ),
    ];
    for (kind, needed, controls) in kinds {
        if !needed {
            continue;
        }
        if let Err(error) = Placeholder::new(NEEDED | kind) {
            let why = Why {
                reason: Reason::NAMESPACE_REFUSED,
                detail: Some(Failure::call("clone3", &error).to_string()),
            };
            lost.extend(controls.iter().map(|control| (*control, why.clone())));
        }
    }
    lost
}
