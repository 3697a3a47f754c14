//! Pid 1 in the namespaces and with the id maps that this host gives.

use std::collections::BTreeMap;

use ledger::facts::control::Control;
use ledger::facts::policy::Policy;

use super::namespaces::drop_refused;
use super::{ablation, launch};
use crate::mechanism::Outcomes;
use crate::mechanism::group::Group;
use crate::mechanism::identity::{DEFAULT_INSIDE, IdentitySpec};
use crate::mechanism::owners::HostIds;
use crate::plan::{Asked, Begun, Job, LaunchError, Streams};
use crate::sys::starter::Starter;

/// The ids that the workload has inside.
pub(in crate::runtime) fn inside(policy: &Policy, job: &Job, ids: &HostIds) -> IdentitySpec {
    if job.leaves_out(Control::User) {
        return ablation::inside(policy, ids);
    }
    IdentitySpec {
        uid: policy.process.user.unwrap_or(DEFAULT_INSIDE),
        gid: policy.process.group.unwrap_or(DEFAULT_INSIDE),
        drop_groups: ids.can_drop_groups(),
    }
}

/// Makes pid 1 in the namespaces that are to be had, the first of the pair being those wanted and the second those that are
/// not refused for certain; `failed` is what came of an attempt before.
pub(in crate::runtime) fn make(
    mut failed: Option<LaunchError>,
    (policy, job): (&Policy, &Job),
    (wanted, mut possible): (libc::c_int, libc::c_int),
    streams: &Streams,
    ids: &mut HostIds,
    group: &mut Option<Group>,
    outcomes: &mut Outcomes,
) -> Result<Begun, LaunchError> {
    loop {
        let begun = match failed.take() {
            Some(error) => Err(error),
            None => {
                let inside = inside(policy, job, ids);
                let place = group.as_ref().and_then(Group::place);
                launch::begin_in(place, possible, launch::again(streams)?, |pid| {
                    ids.write_maps(pid, &inside)
                })
            }
        };
        match begun {
            // It may be the group that does not take it: that is found out without.
            Err(LaunchError::Namespaces { errno })
                if group.as_ref().is_some_and(|group| group.place().is_some()) =>
            {
                if let Some(group) = group {
                    group.give_up_place(&errno, outcomes);
                }
            }
            Err(LaunchError::Namespaces { errno }) if possible == wanted => {
                possible = drop_refused(possible, outcomes)?;
                if possible == wanted {
                    // None of them alone: what refused them all together is what is known.
                    return Err(LaunchError::Namespaces { errno });
                }
            }
            Err(LaunchError::Maps(failure)) => {
                let HostIds::Subordinate { uid, gid, .. } = *ids else {
                    // Without maps there is neither an id nor a capability to build with.
                    outcomes.note("set-ids", Err(failure.clone()));
                    return Err(LaunchError::Mechanism {
                        what: failure.to_string(),
                        outcomes: std::mem::take(outcomes),
                        lost: BTreeMap::new(),
                    });
                };
                // The user's own ids need no helper; groups stay, and `user` is lost for that.
                outcomes.note("set-groups", Err(failure));
                *ids = HostIds::Own { uid, gid };
            }
            begun => return begun,
        }
    }
}

/// Waits for a pid 1 that was asked for; beside it, who made it.
pub(in crate::runtime) fn made(
    (policy, job): (&Policy, &Job),
    mut begun: Begun,
) -> Result<(Begun, Option<Starter>), LaunchError> {
    let Some(asked) = begun.take_asked() else {
        return Ok((begun, None));
    };
    let mut ids = begun.ids.take().ok_or_else(super::no_ids)?;
    let inside = inside(policy, job, &ids);
    let Asked {
        starter,
        control,
        streams,
    } = asked;
    let answer = launch::answer(&starter, control, |pid| ids.write_maps(pid, &inside));
    let failed = match answer {
        Ok(process) => {
            begun.set(process);
            begun.ids = Some(ids);
            return Ok((begun, Some(starter)));
        }
        // The wait for the answer was given up: what comes of the request is nobody's.
        Err(Some(given_up @ (LaunchError::Interrupted { .. } | LaunchError::Step { .. }))) => {
            starter.discard();
            return Err(given_up);
        }
        Err(failed) => failed,
    };
    let mut outcomes = std::mem::take(&mut begun.outcomes);
    let mut group = begun.group.take();
    let namespaces = (begun.wanted, begun.namespaces);
    let mut made = make(
        failed,
        (policy, job),
        namespaces,
        &streams,
        &mut ids,
        &mut group,
        &mut outcomes,
    )?;
    made.group = group;
    made.wanted = begun.wanted;
    made.ids = Some(ids);
    made.outcomes = outcomes;
    Ok((made, Some(starter)))
}
