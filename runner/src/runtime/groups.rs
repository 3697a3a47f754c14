//! Control groups of a run, for the runtimes that put their pid 1 into some.

use crate::mechanism::Outcomes;
use crate::mechanism::group::{Group, Limits, Resource};
use crate::plan::{Effect, Plan, with_ways};

/// Whether pid 1 must be made in its group, as version 2 wants it; else it comes in by itself.
pub(super) fn come_first(limits: &Limits) -> bool {
    let is_first = with_ways(|ways| {
        let limited = Resource::ALL
            .into_iter()
            .filter(|resource| limits.of(*resource).is_some());
        limited
            .into_iter()
            .any(|resource| ways.version_of(resource) == Some(2))
    });
    !limits.is_empty() && is_first.unwrap_or(false)
}

/// Makes the groups for these limits, as far as this host allows; what failed stands in the outcomes.
pub(super) fn make(limits: &Limits, outcomes: &mut Outcomes) -> Option<Group> {
    if limits.is_empty() {
        return None;
    }
    let made = with_ways(|ways| {
        ways.settle(limits);
        Group::make(ways, limits)
    });
    // Where /proc tells nothing about groups the plan has said so of each limit.
    let (group, made) = made.ok()?;
    outcomes.merge(made);
    group
}

/// What pid 1 is told of the doors that follow its specification: for each, what is lost where it cannot come in.
pub(super) fn doors(group: Option<&Group>) -> Vec<Vec<String>> {
    let doors = group.into_iter().flat_map(Group::doors);
    let names = |resources: &[Resource]| {
        let names = resources.iter().map(|resource| resource.mechanism());
        names.map(str::to_owned).collect()
    };
    doors.map(|(resources, _)| names(resources)).collect()
}

/// Names in what is declared the limits as they were read back.
pub(super) fn say(effect: &mut Effect, plan: &Plan, group: Option<&Group>) {
    for resource in Resource::ALL {
        let control = resource.control();
        let kept = group.and_then(|group| group.kept(resource));
        if let (Some(intent), Some(kept)) = (plan.intended.get(&control), kept)
            && effect.declares(control)
        {
            let mut intent = intent.clone().limited(kept.value.clone());
            intent.mechanism = kept.mechanism.into();
            effect.declare(intent.declare(control));
        }
    }
}

/// The groups in words, for the record of a launch.
pub(super) fn describe(group: Option<&Group>) -> Vec<String> {
    let Some(group) = group else {
        return Vec::new();
    };
    let limits = Resource::ALL.into_iter().filter_map(|resource| {
        let kept = group.kept(resource)?;
        Some(format!("group {} {}", kept.mechanism, kept.value))
    });
    limits.collect()
}
