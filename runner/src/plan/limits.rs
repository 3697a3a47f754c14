//! Limits on what the whole tree uses, and what this host can do about them: the same for every runtime that puts its workloads
//! into control groups.

use std::sync::Mutex;

use ledger::facts::control::Control;
use ledger::facts::policy::Policy;

use super::{Answer, Intent, Job, Reason, Why};
use crate::mechanism::group::{Lack, LackKind, Limits, Resource, Ways};

/// A limit that is left out for a measurement is not taken away but raised by this much, and to no more than these: twice
/// what a probe ever uses of a resource.
const RAISED: u64 = 4;
const MOST_BYTES: u64 = 512 << 20;
const MOST_TASKS: u64 = 256;

/// What this host can do, as it was found when it was first asked for.
static FOUND: Mutex<Option<Ways>> = Mutex::new(None);

/// The resource that a control limits by control groups.
fn resource_of(control: Control) -> Option<Resource> {
    match control {
        Control::Memory => Some(Resource::Memory),
        Control::Processes => Some(Resource::Tasks),
        Control::Cpu => Some(Resource::Cpu),
        Control::Network
        | Control::Filesystem
        | Control::Process
        | Control::Environment
        | Control::Privilege
        | Control::Syscalls
        | Control::Timeout
        | Control::Output
        | Control::Devices
        | Control::User
        | Control::Ipc
        | Control::Descriptors
        | Control::Terminal
        | Control::Files
        | Control::Disk => None,
    }
}

impl Resource {
    /// The control that limits it.
    #[must_use]
    pub const fn control(self) -> Control {
        match self {
            Self::Memory => Control::Memory,
            Self::Tasks => Control::Processes,
            Self::Cpu => Control::Cpu,
        }
    }
}

/// The limits of a job under a policy, with `beside` tasks in the tree that are not the workload's. A control that is left out has
/// its limit raised; what is written to memory counts as memory, so that goes with `disk`.
#[must_use]
pub fn limits(policy: &Policy, job: &Job, beside: u64) -> Limits {
    let of = |control: Control| Some(policy.limit_of(control)?.1?.value());
    let raised = |limit: u64, most: u64| limit.saturating_mul(RAISED).min(most);
    let memory = of(Control::Memory).map(|mebibytes| mebibytes.saturating_mul(1 << 20));
    Limits {
        memory_bytes: memory.map(|bytes| {
            if job.leaves_out(Control::Memory) || job.leaves_out(Control::Disk) {
                raised(bytes, MOST_BYTES)
            } else {
                bytes
            }
        }),
        tasks: of(Control::Processes).map(|tasks| {
            if job.leaves_out(Control::Processes) {
                raised(tasks, MOST_TASKS)
            } else {
                tasks
            }
        }),
        cpu_millis: of(Control::Cpu).map(|millis| {
            if job.leaves_out(Control::Cpu) {
                millis.saturating_mul(RAISED)
            } else {
                millis
            }
        }),
        beside,
    }
}

/// The size of a folder in memory while `disk` is left out.
#[must_use]
pub const fn ablated_bytes(bytes: u64) -> u64 {
    let raised = bytes.saturating_mul(RAISED);
    if raised < MOST_BYTES {
        raised
    } else {
        MOST_BYTES
    }
}

/// What can be intended for memory, processes and cpu on this host; `None` for any other control.
#[must_use]
pub fn answer(control: Control, policy: &Policy) -> Option<Answer> {
    let resource = resource_of(control)?;
    let Some((_, Some(limit))) = policy.limit_of(control) else {
        return Some(Answer::Cannot(Reason::POLICY_SETS_NO_LIMIT.into()));
    };
    Some(
        match with_ways(|ways| intend(ways, resource, limit.value())) {
            Ok(answer) => answer,
            Err(error) => Answer::Cannot(Why {
                reason: Reason::NO_RESOURCE_GROUPS,
                detail: Some(crate::sys::errno_name(&error)),
            }),
        },
    )
}

fn intend(ways: &Ways, resource: Resource, limit: u64) -> Answer {
    if let Some(version) = ways.version_of(resource) {
        let value = match resource {
            Resource::Memory => format!("{limit} MiB"),
            Resource::Tasks => format!("{limit} tasks"),
            Resource::Cpu => crate::mechanism::group::cpu_value(limit),
        };
        return Answer::Intends(Intent::by(resource.file(version)).limited(value));
    }
    Answer::Cannot(match ways.lacking.get(&resource) {
        Some(lack) => lack.clone().into(),
        None => Reason::NO_RESOURCE_GROUPS.into(),
    })
}

/// Looks at this host once, and hands what was found to `use_it`, which may change it.
///
/// # Errors
/// /proc does not tell about control groups.
pub(crate) fn with_ways<T>(use_it: impl FnOnce(&mut Ways) -> T) -> std::io::Result<T> {
    let mut found = FOUND
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let ways = match found.take() {
        Some(ways) => ways,
        None => Ways::find()?,
    };
    Ok(use_it(found.insert(ways)))
}

impl From<Lack> for Why {
    fn from(lack: Lack) -> Self {
        Self {
            reason: match lack.kind {
                LackKind::NotMounted => Reason::NO_RESOURCE_GROUPS,
                LackKind::NotWritable => Reason::RESOURCE_GROUPS_NOT_WRITABLE,
                LackKind::NotDelegated => Reason::CONTROLLER_NOT_DELEGATED,
            },
            detail: Some(lack.detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways() -> Ways {
        Ways {
            lacking: Resource::ALL
                .into_iter()
                .map(|resource| {
                    let kind = match resource {
                        Resource::Memory => LackKind::NotMounted,
                        Resource::Tasks => LackKind::NotWritable,
                        Resource::Cpu => LackKind::NotDelegated,
                    };
                    let detail = "why".to_owned();
                    (resource, Lack { kind, detail })
                })
                .collect(),
            ..Ways::default()
        }
    }

    #[test]
    fn what_lacks_is_said_by_its_reason() {
        let of = |resource| match intend(&ways(), resource, 1) {
            Answer::Cannot(why) => why.to_string(),
            Answer::Intends(intent) => panic!("{intent:?}"),
        };
        assert_eq!(of(Resource::Memory), "no-resource-groups (why)");
        assert_eq!(of(Resource::Tasks), "resource-groups-not-writable (why)");
        assert_eq!(of(Resource::Cpu), "controller-not-delegated (why)");
    }

    #[test]
    fn every_control_with_a_resource_has_it_back() {
        for control in Control::ALL {
            if let Some(resource) = resource_of(*control) {
                assert_eq!(resource.control(), *control);
            }
        }
        assert_eq!(ablated_bytes(64 << 20), 256 << 20);
        assert_eq!(ablated_bytes(1 << 40), MOST_BYTES);
    }
}
