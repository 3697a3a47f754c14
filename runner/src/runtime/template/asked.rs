//! What a policy asks of a control, and whether a template has a way to do just that: a field that reaches the template through
//! no placeholder is not in force, whatever the template declares.
//!
//! What the template does anyway (no network, a root of its own, no capabilities) is its own word, and enough where the policy
//! asks for just that.

use ledger::facts::control::Control;
use ledger::facts::policy::{NetworkMode, Policy, Root};

use super::document::Way;
use super::words::Values;
use crate::plan::{Job, OWN_DEVICES, Reason, Why};

/// The call by which a measurement tells whether a filter is in force; `calibration` of a template stands in its place.
const INSTRUMENT: &str = "getcpu";
/// Devices that every sandbox has.
const HARMLESS: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// A policy, and how a template would start a workload under it.
pub(super) struct Asked<'a> {
    pub(super) way: &'a Way,
    /// Whether the template names calls that a filter of its own denies.
    pub(super) calibration: bool,
    /// What the policy's limits are called.
    pub(super) values: &'a Values,
    pub(super) policy: &'a Policy,
    pub(super) job: &'a Job,
}

impl Asked<'_> {
    /// Why the template cannot do what the policy asks of a control; `None` where it may.
    pub(super) fn unmet(&self, control: Control) -> Option<Why> {
        let policy = self.policy;
        match control {
            Control::Network => match policy.network.mode {
                NetworkMode::None | NetworkMode::Loopback => None,
                NetworkMode::Allowlist => Some(Reason::NEEDS_EGRESS.into()),
                NetworkMode::Unrestricted => Some(Reason::POLICY_ALLOWS_ALL.into()),
            },
            Control::Filesystem => self.unmet_files(),
            Control::Environment => {
                let is_set = !policy.process.environment.is_empty();
                let is_handed_on = self.way.is_clear() || self.way.uses("variable");
                more(is_set && !is_handed_on, "process.environment", "{variable}")
            }
            Control::Privilege => {
                let keeps = !policy.process.capabilities.is_empty();
                keeps.then(|| Reason::KEEPS_CAPABILITIES.into())
            }
            Control::Syscalls => self.unmet_calls(),
            Control::Devices => {
                let is_own = |path: &String| {
                    let mut own = HARMLESS.iter().chain(&OWN_DEVICES);
                    own.any(|own| own == path)
                };
                let allowed = &policy.devices.allow;
                let beyond = allowed.iter().find(|path| !is_own(path));
                beyond.map(|path| {
                    why(format!(
                        "devices.allow {path}: a template has no way to show it"
                    ))
                })
            }
            Control::User => {
                let process = &policy.process;
                if let Some(why) = host_root(process.user, process.group) {
                    return Some(why);
                }
                let is_lost = |id: Option<u32>, name| id.is_some() && !self.way.uses(name);
                more(is_lost(process.user, "uid"), "process.user", "{uid}")
                    .or_else(|| more(is_lost(process.group, "gid"), "process.group", "{gid}"))
            }
            Control::Memory => self.unmet_limit(control, &["memory"]),
            Control::Processes => self.unmet_limit(control, &["processes"]),
            Control::Cpu => self.unmet_limit(control, &["cpus", "cpu-percent", "cpu-quota"]),
            Control::Files => self.unmet_limit(control, &["open-files"]),
            Control::Disk => self.unmet_disk(),
            // The runner ends the run and cuts what it prints; what the template does stands beside that.
            Control::Timeout => self.inexact(control, &["timeout"]),
            Control::Output => self.inexact(control, &["output"]),
            Control::Process | Control::Ipc | Control::Descriptors | Control::Terminal => None,
        }
    }

    fn unmet_files(&self) -> Option<Why> {
        let files = &self.policy.filesystem;
        let root = match files.root {
            Root::Ephemeral => None,
            root => Some(why(format!(
                "filesystem.root {root}: a template has the root that it makes"
            ))),
        };
        // Nothing of a template's lies over a place below a folder of the host's.
        let is_open = !files.writable.is_empty() && !files.protect.is_empty();
        root.or_else(|| {
            is_open.then(|| Why {
                reason: Reason::PROTECT_FAILED,
                detail: Some(
                    "a template has no way to protect paths below a writable folder".to_owned(),
                ),
            })
        })
    }

    fn unmet_calls(&self) -> Option<Why> {
        let calls = &self.policy.syscalls;
        if !calls.allow.is_empty() {
            return Some(why(
                "syscalls.allow: a template has a word for denied calls alone".to_owned(),
            ));
        }
        if self.way.uses("denied") {
            return None;
        }
        // Of a filter of its own a measurement uses another instrument; for a run the call would stay open.
        let is_instrument =
            |name: &String| name == INSTRUMENT && self.calibration && self.job.measured;
        let other = calls.deny.iter().find(|name| !is_instrument(name))?;
        Some(why(format!(
            "syscalls.deny {other}: the template has no {{denied}}"
        )))
    }

    /// A size that what is in memory has says nothing of a folder of the host's.
    fn unmet_disk(&self) -> Option<Why> {
        let (_, limit) = self.policy.limit_of(Control::Disk)?;
        limit?;
        let needs_quota = |detail| Why {
            reason: Reason::NEEDS_QUOTA,
            detail,
        };
        if let Some(bind) = self.policy.filesystem.writable.first() {
            return Some(needs_quota(Some(format!("{} is writable", bind.source))));
        }
        // Without a root of its own the workload has the host's folders.
        if self.job.leaves_out(Control::Filesystem) {
            return Some(needs_quota(None));
        }
        self.unmet_limit(Control::Disk, &["disk"])
    }

    /// A limit that the policy sets goes in by one of its placeholders, and as it is.
    fn unmet_limit(&self, control: Control, names: &[&str]) -> Option<Why> {
        let (field, limit) = self.policy.limit_of(control)?;
        limit?;
        let is_used = names.iter().any(|name| self.way.uses(name));
        let lacks = format!("{{{}}}", names.join("} or {"));
        more(!is_used, field, &lacks).or_else(|| self.inexact(control, names))
    }

    /// A limit that the policy sets and that one of its placeholders cannot say.
    fn inexact(&self, control: Control, names: &[&str]) -> Option<Why> {
        let (field, limit) = self.policy.limit_of(control)?;
        let limit = limit?;
        let mut used = names.iter().filter(|name| self.way.uses(name));
        let cannot = used.find(|name| !self.values.has(name))?;
        Some(why(format!(
            "{field} {limit} cannot be said by {{{cannot}}}"
        )))
    }
}

/// Why an id inside is no word for who that is on the host: root's own is, unless something maps it, of which a template has no way
/// to say how.
fn host_root(user: Option<u32>, group: Option<u32>) -> Option<Why> {
    let ids = [("process.user", user), ("process.group", group)];
    let (field, _) = ids.into_iter().find(|(_, id)| *id == Some(0))?;
    Some(why(format!(
        "{field} 0: a template has no way to say which id of the host that is, and it may be root's"
    )))
}

pub(super) fn why(detail: String) -> Why {
    Why {
        reason: Reason::POLICY_ASKS_MORE,
        detail: Some(detail),
    }
}

fn more(is_lost: bool, field: &str, placeholder: &str) -> Option<Why> {
    is_lost.then(|| why(format!("{field}: the template has no {placeholder}")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Template;
    use super::*;
    use crate::plan::{Answer, Runtime as _};

    /// Declares everything; `more` are members of the document.
    fn template(more: &str) -> Template {
        let all: Vec<String> = Control::ALL
            .iter()
            .map(|control| format!(r#"{{"control":"{control}","mechanism":"m"}}"#))
            .collect();
        let text = format!(r#"{{"id":"a","declares":[{}],{more}}}"#, all.join(","));
        Template::parse(Path::new("t.json"), text.as_bytes()).unwrap()
    }

    fn policy(fields: &str) -> Policy {
        let text = format!(r#"{{"id":"p","enforcement":{{"mode":"best-effort"}}{fields}}}"#);
        Policy::parse("p.json", text.as_bytes()).unwrap()
    }

    fn answer(template: &Template, control: Control, fields: &str, job: &Job) -> Option<String> {
        match template.answer(control, &policy(fields), job) {
            Answer::Intends(_) => None,
            Answer::Cannot(why) => Some(why.to_string()),
        }
    }

    const PLAIN: &str = r#""command":["x","{program}","{arguments}"],"environment":"inherit""#;
    const WHOLE: &str = r#""command":["x","{program}","{arguments}"],"files":{"f":["{variable}={value}","{denied}","{uid}","{gid}",
        "{memory}","{processes}","{cpus}","{open-files}","{disk}","{timeout}"]}"#;

    #[test]
    fn where_a_policy_asks_for_nothing_more_the_template_is_heard() {
        for control in Control::ALL {
            for document in [PLAIN, WHOLE] {
                let found = answer(&template(document), *control, "", &Job::default());
                assert_eq!(found, None, "{control}");
            }
        }
    }

    #[test]
    fn what_has_no_placeholder_is_not_declared() {
        use Control::{
            Cpu, Devices, Disk, Environment, Files, Filesystem, Memory, Network, Privilege,
            Processes, Syscalls, Timeout, User,
        };
        let limit = |field: &str| format!(r#","resources":{{{field}}}"#);
        for (control, fields, reason, by_whole) in [
            (
                Network,
                r#","network":{"mode":"allowlist","hosts":["192.0.2.1:80"]}"#.to_owned(),
                "needs-egress",
                false,
            ),
            (
                Network,
                r#","network":{"mode":"unrestricted"}"#.to_owned(),
                "policy-allows-all",
                false,
            ),
            (
                Filesystem,
                r#","filesystem":{"root":"host-readonly"}"#.to_owned(),
                "policy-asks-more",
                false,
            ),
            (
                Filesystem,
                r#","filesystem":{"root":"custom","path":"/"}"#.to_owned(),
                "policy-asks-more",
                false,
            ),
            (
                Filesystem,
                r#","filesystem":{"writable":["/tmp:/out"],"protect":[".envrc"]}"#.to_owned(),
                "protect-failed",
                false,
            ),
            (
                Environment,
                r#","process":{"environment":{"A":"b"}}"#.to_owned(),
                "policy-asks-more",
                true,
            ),
            (
                Privilege,
                r#","process":{"capabilities":["CAP_NET_BIND_SERVICE"]}"#.to_owned(),
                "keeps-capabilities",
                false,
            ),
            (
                Syscalls,
                r#","syscalls":{"deny":["mkdir"]}"#.to_owned(),
                "policy-asks-more",
                true,
            ),
            (
                Syscalls,
                r#","syscalls":{"deny":["getcpu"]}"#.to_owned(),
                "policy-asks-more",
                true,
            ),
            (
                Syscalls,
                r#","syscalls":{"allow":["read","write","execve","exit_group"]}"#.to_owned(),
                "policy-asks-more",
                false,
            ),
            (
                Devices,
                r#","devices":{"allow":["/dev/kvm"]}"#.to_owned(),
                "policy-asks-more",
                false,
            ),
            (
                User,
                r#","process":{"user":5}"#.to_owned(),
                "policy-asks-more",
                true,
            ),
            (
                User,
                r#","process":{"group":5}"#.to_owned(),
                "policy-asks-more",
                true,
            ),
            // Whatever the template makes of it.
            (
                User,
                r#","process":{"user":0,"group":5}"#.to_owned(),
                "policy-asks-more",
                false,
            ),
            (
                User,
                r#","process":{"user":5,"group":0}"#.to_owned(),
                "policy-asks-more",
                false,
            ),
            (Memory, limit(r#""memoryMb":64"#), "policy-asks-more", true),
            (
                Processes,
                limit(r#""processes":64"#),
                "policy-asks-more",
                true,
            ),
            (Cpu, limit(r#""cpuMillis":500"#), "policy-asks-more", true),
            // Less than there is a quota of, and no whole second.
            (Cpu, limit(r#""cpuMillis":9"#), "policy-asks-more", false),
            (Files, limit(r#""openFiles":64"#), "policy-asks-more", true),
            (
                Disk,
                r#","filesystem":{"maxWorkspaceMb":1}"#.to_owned(),
                "policy-asks-more",
                true,
            ),
            (
                Disk,
                r#","filesystem":{"maxWorkspaceMb":1,"writable":["/tmp:/out"],"protect":[]}"#
                    .to_owned(),
                "needs-quota (/tmp is writable)",
                false,
            ),
        ] {
            let job = Job::default();
            let found = answer(&template(PLAIN), control, &fields, &job);
            assert!(
                found.as_ref().is_some_and(|it| it.starts_with(reason)),
                "{control} {fields}: {found:?}"
            );
            let found = answer(&template(WHOLE), control, &fields, &job);
            assert_eq!(found.is_none(), by_whole, "{control} {fields}: {found:?}");
        }
        let inexact = limit(r#""timeoutMs":1500"#);
        let found = answer(&template(WHOLE), Timeout, &inexact, &Job::default());
        assert!(found.unwrap().contains("1500"));
        assert_eq!(
            answer(&template(PLAIN), Timeout, &inexact, &Job::default()),
            None
        );
        let percent = r#""command":["x","{cpu-percent}%","{program}"]"#;
        let cpu = |millis: u64| {
            let fields = limit(&format!(r#""cpuMillis":{millis}"#));
            answer(&template(percent), Cpu, &fields, &Job::default())
        };
        assert_eq!(cpu(250), None);
        assert!(cpu(255).unwrap().contains("{cpu-percent}"));
        assert_eq!(
            answer(
                &template(PLAIN),
                Devices,
                r#","devices":{"allow":["/dev/null"]}"#,
                &Job::default()
            ),
            None
        );
    }

    #[test]
    fn the_call_of_a_measurement_is_replaced_in_a_measurement_alone() {
        let own = format!(r#"{PLAIN},"calibration":["personality"]"#);
        let deny = r#","syscalls":{"deny":["getcpu"],"profile":"default"}"#;
        let measured = Job {
            measured: true,
            ..Job::default()
        };
        let of = |job: &Job| answer(&template(&own), Control::Syscalls, deny, job);
        assert_eq!(of(&measured), None);
        assert!(of(&Job::default()).unwrap().contains("getcpu"));
        assert!(answer(&template(PLAIN), Control::Syscalls, deny, &measured).is_some());
        let more = r#","syscalls":{"deny":["getcpu","mkdir"]}"#;
        assert!(
            answer(&template(&own), Control::Syscalls, more, &measured)
                .unwrap()
                .contains("mkdir")
        );
    }
}
