//! What a well-formed policy may still not say: values that nothing can have, and parts that exclude each
//! other. One function for documents and for what a command line makes of them.

use std::collections::BTreeSet;

use super::bind::{Bind, absolute};
use super::json::shorten;
use super::nearest::nearest;
use super::problem::ProblemCode;
use super::{Mode, NetworkMode, OVERFLOW_ID, Policy, Root, Syscalls, syscalls};
use crate::facts::control::Control;

/// Every capability by name (capabilities(7)), in the order of their numbers from 0.
pub const CAPABILITIES: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// One thing that a policy may not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The field it stands in (`network.hosts[0]`).
    pub field: String,
    /// What kind of mistake it is.
    pub code: ProblemCode,
    /// What was found and what was expected.
    pub message: String,
    /// What to do, where there is something to say.
    pub help: Option<String>,
    /// The other field that has to be understood for this to be true.
    pub(super) other: Option<&'static str>,
}

struct Check<'a> {
    policy: &'a Policy,
    found: Vec<Contradiction>,
}

/// Everything in `policy` that cannot be, in the order of DESIGN.md §5.
pub(super) fn contradictions(policy: &Policy) -> Vec<Contradiction> {
    let mut check = Check {
        policy,
        found: Vec::new(),
    };
    check.id();
    check.enforcement();
    check.filesystem();
    check.network();
    check.limits();
    check.process();
    check.syscalls();
    check.devices();
    check.found
}

fn is_environment_name(name: &str) -> bool {
    let mut characters = name.bytes();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

fn meant(word: &str, known: impl IntoIterator<Item = &'static str>) -> Option<String> {
    nearest(word, known).map(|known| format!("did you mean {known}?"))
}

impl Check<'_> {
    fn say(
        &mut self,
        code: ProblemCode,
        field: impl Into<String>,
        message: String,
        help: Option<String>,
    ) {
        self.found.push(Contradiction {
            field: field.into(),
            code,
            message,
            help,
            other: None,
        });
    }

    fn exclude(
        &mut self,
        field: impl Into<String>,
        other: Option<&'static str>,
        message: String,
        help: &str,
    ) {
        self.found.push(Contradiction {
            field: field.into(),
            code: ProblemCode::Contradiction,
            message,
            help: Some(help.to_owned()),
            other,
        });
    }

    fn repeated<'b>(&mut self, field: &str, items: impl IntoIterator<Item = &'b str>) {
        let mut seen = BTreeSet::new();
        for (at, item) in items.into_iter().enumerate() {
            if !seen.insert(item) {
                let message = format!("found {:?} twice, expected it once", shorten(item));
                self.say(
                    ProblemCode::BadValue,
                    format!("{field}[{at}]"),
                    message,
                    None,
                );
            }
        }
    }

    fn id(&mut self) {
        let id = &self.policy.id;
        let fits = (1..=64).contains(&id.len())
            && id
                .bytes()
                .all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !id.starts_with('-');
        if !fits {
            let message = format!(
                "found the id {:?}, expected 1 to 64 of a-z, 0-9 and -, not beginning with -",
                shorten(id)
            );
            self.say(ProblemCode::BadValue, "id", message, None);
        }
    }

    fn enforcement(&mut self) {
        let enforcement = &self.policy.enforcement;
        let lists = [
            (
                "enforcement.requiredControls",
                "required",
                &enforcement.required_controls,
            ),
            (
                "enforcement.wantedControls",
                "wanted",
                &enforcement.wanted_controls,
            ),
        ];
        for (field, word, controls) in lists {
            self.repeated(field, controls.iter().map(|control| control.as_str()));
            for (at, control) in controls.iter().enumerate() {
                self.asked(format!("{field}[{at}]"), word, *control);
            }
        }
        for (at, control) in enforcement.wanted_controls.iter().enumerate() {
            if enforcement.required_controls.contains(control) {
                self.exclude(
                    format!("enforcement.wantedControls[{at}]"),
                    None,
                    format!("found {control} both required and wanted, expected it in one list"),
                    "required says more than wanted: leave it in requiredControls",
                );
            }
        }
        if enforcement.mode == Mode::Strict
            && enforcement.required_controls.is_empty()
            && enforcement.wanted_controls.is_empty()
        {
            self.exclude(
                "enforcement",
                Some("enforcement.requiredControls"),
                "found a strict policy that asks for no control, expected at least one".to_owned(),
                "name what must hold in requiredControls, or say \"mode\": \"best-effort\"",
            );
        }
    }

    /// A control that is asked for needs settings under which it can be in force.
    fn asked(&mut self, field: String, word: &str, control: Control) {
        let policy = self.policy;
        if let Some((limit, None)) = policy.limit_of(control) {
            let message = format!("found {control} {word} without a limit, expected {limit}");
            self.exclude(
                field,
                Some(limit),
                message,
                "give the limit, or take the control out of the list",
            );
            return;
        }
        match control {
            Control::Network if policy.network.mode == NetworkMode::Unrestricted => self.exclude(
                field,
                Some("network.mode"),
                format!("found network {word} and mode unrestricted, expected another mode"),
                "an unrestricted network restricts nothing: use none, loopback or allowlist",
            ),
            Control::Privilege if !policy.process.capabilities.is_empty() => self.exclude(
                field,
                None,
                format!("found privilege {word} and process.capabilities not empty, expected one of them"),
                "privilege means that the workload holds no capability",
            ),
            Control::Syscalls
                if policy.syscalls.allow.is_empty() && policy.syscalls.denied().is_empty() =>
            {
                self.exclude(
                    field,
                    Some("syscalls"),
                    format!("found syscalls {word} and nothing denied, expected a call in syscalls.deny"),
                    "\"profile\": \"default\" denies what ordinary programs do without",
                );
            }
            _ => {}
        }
    }

    fn filesystem(&mut self) {
        let filesystem = &self.policy.filesystem;
        match (&filesystem.path, filesystem.root) {
            (None, Root::Custom) => self.exclude(
                "filesystem.root",
                Some("filesystem.path"),
                "found root custom without a path, expected filesystem.path".to_owned(),
                "name the folder that becomes the root",
            ),
            (Some(_), Root::Ephemeral | Root::HostReadonly) => self.exclude(
                "filesystem.path",
                Some("filesystem.root"),
                format!(
                    "found a path with root {}, expected root custom",
                    filesystem.root
                ),
                "only root custom takes a folder; to show one, use readOnly",
            ),
            (Some(path), Root::Custom) => {
                if let Err(error) = absolute(path) {
                    self.say(
                        ProblemCode::BadValue,
                        "filesystem.path",
                        error.to_string(),
                        None,
                    );
                }
            }
            (None, Root::Ephemeral | Root::HostReadonly) => {}
        }
        self.binds(&filesystem.read_only, &filesystem.writable);
        self.repeated(
            "filesystem.protect",
            filesystem.protect.iter().map(String::as_str),
        );
        for (at, path) in filesystem.protect.iter().enumerate() {
            let fits = !path.is_empty()
                && !path.contains('\0')
                && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
            if !fits {
                let message = format!(
                    "found {:?}, expected a path below a writable folder, such as .git/hooks",
                    shorten(path)
                );
                self.say(
                    ProblemCode::BadValue,
                    format!("filesystem.protect[{at}]"),
                    message,
                    None,
                );
            }
        }
    }

    fn binds(&mut self, read_only: &[Bind], writable: &[Bind]) {
        let mut seen = BTreeSet::new();
        let lists = [
            ("filesystem.readOnly", read_only),
            ("filesystem.writable", writable),
        ];
        for (field, binds) in lists {
            for (at, bind) in binds.iter().enumerate() {
                let field = format!("{field}[{at}]");
                let inside = bind.inside();
                let own = ["/proc", "/dev"].iter().any(|own| {
                    inside
                        .strip_prefix(own)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                });
                if inside == "/" || own {
                    let message = format!(
                        "found {inside} as a place inside, expected one that is not /, /proc or /dev"
                    );
                    let help = "the sandbox makes these itself; for the host's tree use root host-readonly";
                    self.say(ProblemCode::BadValue, field, message, Some(help.to_owned()));
                } else if !seen.insert(inside) {
                    self.exclude(
                        field,
                        None,
                        format!(
                            "found {:?} shown twice, expected one entry for it",
                            shorten(inside)
                        ),
                        "a path inside has one source and is either read-only or writable",
                    );
                }
            }
        }
    }

    fn network(&mut self) {
        let network = &self.policy.network;
        let mode = network.mode;
        let allowlist = mode == NetworkMode::Allowlist;
        if allowlist && network.hosts.is_empty() {
            self.exclude(
                "network.mode",
                Some("network.hosts"),
                "found mode allowlist without hosts, expected at least one host:port".to_owned(),
                "name the hosts, or use mode none",
            );
        }
        if !allowlist && !network.hosts.is_empty() {
            self.exclude(
                "network.hosts",
                Some("network.mode"),
                format!("found hosts with mode {mode}, expected mode allowlist"),
                "only mode allowlist takes hosts",
            );
        }
        if !allowlist && let Some(channel) = network.channel {
            self.exclude(
                "network.channel",
                Some("network.mode"),
                format!("found channel {channel} with mode {mode}, expected mode allowlist"),
                "only mode allowlist has a channel",
            );
        }
        if network.dns && matches!(mode, NetworkMode::None | NetworkMode::Loopback) {
            self.exclude(
                "network.dns",
                Some("network.mode"),
                format!("found dns with mode {mode}, expected mode allowlist or unrestricted"),
                "where no host is reachable no name needs to resolve",
            );
        }
        let hosts: Vec<String> = network.hosts.iter().map(ToString::to_string).collect();
        self.repeated("network.hosts", hosts.iter().map(String::as_str));
    }

    fn limits(&mut self) {
        for control in Control::ALL {
            if let Some((field, Some(limit))) = self.policy.limit_of(*control)
                && limit.value() == 0
            {
                let message = format!("found a {control} limit of 0, expected at least 1");
                let help = "to set no limit, leave the field out".to_owned();
                self.say(ProblemCode::BadValue, field, message, Some(help));
            }
        }
    }

    fn process(&mut self) {
        let process = &self.policy.process;
        self.repeated(
            "process.capabilities",
            process.capabilities.iter().map(String::as_str),
        );
        for (at, name) in process.capabilities.iter().enumerate() {
            if !CAPABILITIES.contains(&name.as_str()) {
                let message = format!(
                    "found {:?}, expected a capability such as CAP_NET_BIND_SERVICE",
                    shorten(name)
                );
                let help = meant(name, CAPABILITIES.iter().copied())
                    .or_else(|| meant(&format!("CAP_{name}"), CAPABILITIES.iter().copied()));
                let field = format!("process.capabilities[{at}]");
                self.say(ProblemCode::UnknownCapability, field, message, help);
            }
        }
        for (field, id) in [
            ("process.user", process.user),
            ("process.group", process.group),
        ] {
            let help = match id {
                Some(OVERFLOW_ID) => {
                    "65534 is the overflow id: an id that is not mapped at all shows as 65534 too, so a \
                     workload with it looks the same mapped or not; leave the field out for 1000"
                }
                Some(u32::MAX) => "4294967295 stands for \"no id\" in the kernel",
                _ => continue,
            };
            let message = format!("found {}, expected another id", id.unwrap_or_default());
            self.say(ProblemCode::BadValue, field, message, Some(help.to_owned()));
        }
        self.environment();
    }

    fn environment(&mut self) {
        let process = &self.policy.process;
        let expected = "expected a name of A-Z, a-z, 0-9 and _, not beginning with a digit";
        for (name, value) in &process.environment {
            let field = format!("process.environment.{name}");
            if !is_environment_name(name) {
                let message = format!("found the variable {:?}, {expected}", shorten(name));
                self.say(ProblemCode::BadValue, field, message, None);
            } else if value.contains('\0') {
                let message =
                    format!("found a NUL character in the value of {name}, expected none");
                self.say(ProblemCode::BadValue, field, message, None);
            }
        }
        self.repeated(
            "process.allowedEnvironment",
            process.allowed_environment.iter().map(String::as_str),
        );
        for (at, name) in process.allowed_environment.iter().enumerate() {
            let field = format!("process.allowedEnvironment[{at}]");
            if !is_environment_name(name) {
                let message = format!("found the variable {:?}, {expected}", shorten(name));
                self.say(ProblemCode::BadValue, field, message, None);
            } else if process.environment.contains_key(name) {
                self.exclude(
                    field,
                    None,
                    format!("found {name} both set and passed on, expected one of them"),
                    "environment sets a value, allowedEnvironment passes the caller's on",
                );
            }
        }
    }

    fn syscalls(&mut self) {
        let Syscalls {
            allow,
            deny,
            profile,
        } = &self.policy.syscalls;
        for (field, names) in [("syscalls.allow", allow), ("syscalls.deny", deny)] {
            self.repeated(field, names.iter().map(String::as_str));
            for (at, name) in names.iter().enumerate() {
                if syscalls::lookup(name).is_none() {
                    let message = format!(
                        "found {:?}, expected the name of a system call of x86_64 or aarch64",
                        shorten(name)
                    );
                    let help = meant(name, syscalls::all().iter().map(|call| call.name));
                    let field = format!("{field}[{at}]");
                    self.say(ProblemCode::UnknownSyscall, field, message, help);
                }
            }
        }
        if let Some(profile) = profile
            && !Syscalls::PROFILES.contains(&profile.as_str())
        {
            let message = format!(
                "found the profile {:?}, expected one of {}",
                shorten(profile),
                Syscalls::PROFILES.join(", ")
            );
            self.say(ProblemCode::UnknownWord, "syscalls.profile", message, None);
        }
        let denied: BTreeSet<&str> = self.policy.syscalls.denied().into_iter().collect();
        for (at, name) in allow.iter().enumerate() {
            if denied.contains(name.as_str()) {
                self.exclude(
                    format!("syscalls.allow[{at}]"),
                    None,
                    format!("found {name} both allowed and denied, expected one of them"),
                    "a call that the profile denies is denied as well",
                );
            }
        }
        if let Some(at) = deny.iter().position(|name| name == "execve") {
            let message = "found execve denied, expected it open".to_owned();
            let help = "the filter is in force before the workload is executed, which needs execve";
            let field = format!("syscalls.deny[{at}]");
            self.say(ProblemCode::BadValue, field, message, Some(help.to_owned()));
        }
        if !allow.is_empty() && !allow.iter().any(|name| name == "execve") {
            self.say(
                ProblemCode::BadValue,
                "syscalls.allow",
                "found an allow list without execve, expected it in the list".to_owned(),
                Some(
                    "the filter is in force before the workload is executed, which needs execve"
                        .to_owned(),
                ),
            );
        }
    }

    fn devices(&mut self) {
        let devices = &self.policy.devices.allow;
        self.repeated("devices.allow", devices.iter().map(String::as_str));
        for (at, path) in devices.iter().enumerate() {
            let below = path
                .strip_prefix("/dev/")
                .is_some_and(|rest| !rest.is_empty());
            if !below || absolute(path).as_ref() != Ok(path) {
                let message = format!("found {:?}, expected a path below /dev", shorten(path));
                self.say(
                    ProblemCode::BadValue,
                    format!("devices.allow[{at}]"),
                    message,
                    None,
                );
            }
        }
    }
}
