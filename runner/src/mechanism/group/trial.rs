//! What this host allows of limits, tried for `runner doctor`.

use ledger::facts::host::{CgroupLayout, HostFacts};

use super::{Group, LackKind, Limits, Resource, Ways};
use crate::host::capability::{Capability, Finding};
use crate::mechanism::{Outcome, Outcomes};
use crate::sys::errno_name;

/// Limits that any kernel takes.
const LIMITS: Limits = Limits {
    memory_bytes: Some(64 << 20),
    tasks: Some(16),
    cpu_millis: Some(500),
    beside: 0,
};

/// Makes groups with limits on everything, reads those back, and removes the groups.
#[must_use]
pub fn tried(facts: &HostFacts) -> Capability {
    let (finding, advice) = match Ways::find() {
        Ok(mut ways) => {
            ways.settle(&LIMITS);
            let (group, outcomes) = Group::make(&ways, &LIMITS);
            judge(&ways, group.as_ref(), &outcomes, facts)
        }
        Err(error) => {
            let error = format!("read /proc/self/cgroup: {}", errno_name(&error));
            (Finding::Fails { error }, Some("a mounted /proc".to_owned()))
        }
    };
    Capability {
        name: "resource-groups",
        purpose: "memory, processes, cpu: limits on the whole tree",
        tried: "make a control group where this host allows it, limit memory, tasks and CPU time, read that back, remove it"
            .to_owned(),
        finding,
        advice,
    }
}

fn judge(
    ways: &Ways,
    group: Option<&Group>,
    outcomes: &Outcomes,
    facts: &HostFacts,
) -> (Finding, Option<String>) {
    let mut works = Vec::new();
    let mut fails = Vec::new();
    let mut kind = None;
    for resource in Resource::ALL {
        let kept = group.and_then(|group| group.kept(resource));
        match (kept, outcomes.of(resource.mechanism())) {
            (Some(kept), Outcome::Done | Outcome::Skipped) => works.push(kept.mechanism),
            (_, Outcome::Failed(failure)) => fails.push(failure.to_string()),
            (None, Outcome::Done | Outcome::Skipped) => match ways.lacking.get(&resource) {
                Some(lack) => {
                    kind = kind.or(Some(lack.kind));
                    fails.push(format!("no {} ({})", resource.controller(), lack.detail));
                }
                None => fails.push(format!("no {}", resource.controller())),
            },
        }
    }
    if fails.is_empty() {
        return (Finding::Works(Some(works.join(", "))), None);
    }
    // The same of each is said once.
    fails.dedup();
    if !works.is_empty() {
        fails.push(format!("there is {}", works.join(", ")));
    }
    let advice = advice(kind, facts);
    let error = fails.join("; ");
    (Finding::Fails { error }, Some(advice))
}

fn advice(kind: Option<LackKind>, facts: &HostFacts) -> String {
    let has_systemd = std::path::Path::new("/run/systemd/system").exists();
    let is_wsl = facts.kernel.to_lowercase().contains("microsoft");
    let advice = match (kind, facts.cgroup.layout) {
        (Some(LackKind::NotDelegated), _) => {
            "as root: `Delegate=cpu memory pids` in a drop-in of user@.service (systemctl edit user@.service), then a new login"
        }
        (_, CgroupLayout::None) => "a control group file system of version 2 at /sys/fs/cgroup",
        (_, CgroupLayout::V1 | CgroupLayout::Hybrid) if facts.uid != 0 => {
            "start the runner as root, or control groups of version 2 alone (boot option \
             systemd.unified_cgroup_hierarchy=1), which systemd can delegate to users"
        }
        (_, CgroupLayout::V1 | CgroupLayout::Hybrid) => {
            "writable control groups, with the controllers memory, pids and cpu"
        }
        (_, CgroupLayout::V2) if is_wsl && !has_systemd => {
            "`systemd=true` under `[boot]` in /etc/wsl.conf, then `wsl --shutdown`"
        }
        (_, CgroupLayout::V2) if !facts.container.is_empty() => {
            "a container whose control groups are its own and writable (a private cgroup namespace, a read-write \
             mount), with its processes in a group below"
        }
        (_, CgroupLayout::V2) if has_systemd && facts.uid != 0 => {
            "a user manager: a login session, or as root `loginctl enable-linger` for this user"
        }
        (_, CgroupLayout::V2) => {
            "a control group that this user may write to, with memory, pids and cpu in its cgroup.subtree_control"
        }
    };
    advice.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::group::Lack;

    fn facts() -> HostFacts {
        crate::host::gather(None).unwrap()
    }

    fn lacking(kind: LackKind) -> Ways {
        let detail = "here".to_owned();
        Ways {
            lacking: Resource::ALL
                .into_iter()
                .map(|resource| {
                    let detail = detail.clone();
                    (resource, Lack { kind, detail })
                })
                .collect(),
            ..Ways::default()
        }
    }

    #[test]
    fn what_is_tried_leaves_nothing_and_says_what_would_help() {
        let one = tried(&facts());
        println!("{}: {} {:?}", one.name, one.finding, one.advice);
        assert_eq!(one.finding.works(), one.advice.is_none());
    }

    #[test]
    fn advice_fits_the_host() {
        let mut facts = facts();
        let said = |facts: &HostFacts, kind| {
            let (finding, advice) = judge(&lacking(kind), None, &Outcomes::default(), facts);
            assert!(
                finding.to_string().contains("no memory (here)"),
                "{finding}"
            );
            advice.unwrap()
        };
        facts.uid = 1000;
        facts.container.clear();
        facts.cgroup.layout = CgroupLayout::Hybrid;
        assert!(said(&facts, LackKind::NotWritable).contains("as root"));
        facts.cgroup.layout = CgroupLayout::None;
        assert!(said(&facts, LackKind::NotMounted).contains("/sys/fs/cgroup"));
        facts.cgroup.layout = CgroupLayout::V2;
        assert!(said(&facts, LackKind::NotDelegated).contains("Delegate="));
        facts.container.push("docker".to_owned());
        assert!(said(&facts, LackKind::NotWritable).contains("container"));
        facts.container.clear();
        facts.kernel = "6.6.87-microsoft-standard-WSL2".to_owned();
        let wsl = said(&facts, LackKind::NotWritable);
        let has_systemd = std::path::Path::new("/run/systemd/system").exists();
        assert_eq!(wsl.contains("wsl.conf"), !has_systemd, "{wsl}");
    }
}
