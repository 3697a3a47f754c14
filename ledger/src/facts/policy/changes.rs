//! What a command line adds to a policy.

use super::check::{Contradiction, contradictions};
use super::{Bind, HostPort, Mode, Network, NetworkMode, Policy};
use crate::bytes::canon::U53;
use crate::facts::control::Control;

/// Changes to a policy, in the words of `runner exec`. What is not given leaves the policy as it is.
///
/// A limit makes its control required: who writes `--memory 512M` means it. So does a network mode other
/// than `unrestricted`, which in turn takes `network` out of what is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Shown read-only; replaces what the policy shows at the same place inside.
    pub read: Vec<Bind>,
    /// Shown writable; replaces what the policy shows at the same place inside.
    pub write: Vec<Bind>,
    /// The network mode.
    pub network: Option<NetworkMode>,
    /// Hosts of an allowlist; without a network mode they mean mode `allowlist`.
    pub allow: Vec<HostPort>,
    /// Memory in MiB.
    pub memory_mb: Option<U53>,
    /// CPU time in thousandths of one CPU.
    pub cpu_millis: Option<U53>,
    /// Tasks at once.
    pub processes: Option<U53>,
    /// Wall time in milliseconds.
    pub timeout_ms: Option<U53>,
    /// Variables to set, in order; the last of equal names counts.
    pub environment: Vec<(String, String)>,
    /// Variables to pass on from the caller.
    pub allowed_environment: Vec<String>,
    /// Controls to require; a wanted one becomes required.
    pub require: Vec<Control>,
    /// Run and record where the policy would refuse.
    pub best_effort: bool,
}

/// Why a policy cannot be changed so: every contradiction of the result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.contradictions))]
pub struct ApplyChangesError {
    /// At least one.
    pub contradictions: Vec<Contradiction>,
}

fn lines(contradictions: &[Contradiction]) -> String {
    let lines: Vec<String> = contradictions.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

impl std::fmt::Display for Contradiction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl Policy {
    /// The policy with `changes` on top.
    ///
    /// # Errors
    /// The result contradicts itself or holds a value that cannot be.
    pub fn with(mut self, changes: Changes) -> Result<Self, ApplyChangesError> {
        let Changes {
            read,
            write,
            network,
            allow,
            memory_mb,
            cpu_millis,
            processes,
            timeout_ms,
            environment,
            allowed_environment,
            require,
            best_effort,
        } = changes;
        self.show(read, write);
        self.reach(network, allow);
        let limits = [
            (Control::Memory, &mut self.resources.memory_mb, memory_mb),
            (Control::Cpu, &mut self.resources.cpu_millis, cpu_millis),
            (Control::Processes, &mut self.resources.processes, processes),
            (Control::Timeout, &mut self.resources.timeout_ms, timeout_ms),
        ];
        let mut limited = Vec::new();
        for (control, limit, given) in limits {
            if given.is_some() {
                *limit = given;
                limited.push(control);
            }
        }
        for control in limited.into_iter().chain(require) {
            self.require(control);
        }
        for (name, value) in environment {
            self.process
                .allowed_environment
                .retain(|allowed| *allowed != name);
            self.process.environment.insert(name, value);
        }
        for name in allowed_environment {
            self.process.environment.remove(&name);
            if !self.process.allowed_environment.contains(&name) {
                self.process.allowed_environment.push(name);
            }
        }
        if best_effort {
            self.enforcement.mode = Mode::BestEffort;
        }
        let contradictions = contradictions(&self);
        if contradictions.is_empty() {
            Ok(self)
        } else {
            Err(ApplyChangesError { contradictions })
        }
    }

    fn require(&mut self, control: Control) {
        let enforcement = &mut self.enforcement;
        enforcement
            .wanted_controls
            .retain(|wanted| *wanted != control);
        if !enforcement.required_controls.contains(&control) {
            enforcement.required_controls.push(control);
        }
    }

    fn show(&mut self, read: Vec<Bind>, write: Vec<Bind>) {
        let filesystem = &mut self.filesystem;
        for given in read.iter().chain(&write) {
            let elsewhere = |bind: &Bind| bind.inside() != given.inside();
            filesystem.read_only.retain(elsewhere);
            filesystem.writable.retain(elsewhere);
        }
        filesystem.read_only.extend(read);
        filesystem.writable.extend(write);
    }

    fn reach(&mut self, mode: Option<NetworkMode>, allow: Vec<HostPort>) {
        let mode = match mode {
            None if allow.is_empty() => return,
            None => NetworkMode::Allowlist,
            Some(mode) => mode,
        };
        if mode == NetworkMode::Allowlist && self.network.mode == NetworkMode::Allowlist {
            for host in allow {
                if !self.network.hosts.contains(&host) {
                    self.network.hosts.push(host);
                }
            }
        } else {
            self.network = Network {
                channel: None,
                dns: false,
                hosts: allow,
                mode,
            };
        }
        if mode == NetworkMode::Unrestricted {
            let enforcement = &mut self.enforcement;
            enforcement
                .required_controls
                .retain(|control| *control != Control::Network);
            enforcement
                .wanted_controls
                .retain(|control| *control != Control::Network);
        } else {
            self.require(Control::Network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::policy;
    use super::*;

    const BASE: &str = r#"{
        "id": "base",
        "enforcement": {"requiredControls": ["network"], "wantedControls": ["memory", "user"]},
        "filesystem": {"readOnly": ["/a", "/b:/c"]},
        "resources": {"memoryMb": 64},
        "process": {"environment": {"A": "1"}, "allowedEnvironment": ["B"]}
    }"#;

    fn with(changes: Changes) -> Result<Policy, String> {
        policy(BASE)
            .with(changes)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_set_and_asked_for_nowhere_is_known() {
        let with = |more: &str| {
            let text = BASE.replace(r#""resources": {"memoryMb": 64}"#, more);
            policy(&text).set_unasked()
        };
        assert_eq!(with(r#""resources": {"memoryMb": 64}"#), []);
        assert_eq!(
            with(r#""resources": {"memoryMb": 64, "processes": 4, "timeoutMs": 1000}"#),
            [Control::Processes, Control::Timeout]
        );
        for syscalls in [r#"{"deny": ["ptrace"]}"#, r#"{"profile": "default"}"#] {
            let more = format!(r#""resources": {{"memoryMb": 64}}, "syscalls": {syscalls}"#);
            assert_eq!(with(&more), [Control::Syscalls]);
        }
    }

    #[test]
    fn nothing_changes_nothing() {
        assert_eq!(with(Changes::default()), Ok(policy(BASE)));
    }

    #[test]
    fn a_limit_makes_its_control_required() {
        let changed = with(Changes {
            memory_mb: U53::new(512),
            timeout_ms: U53::new(30_000),
            require: vec![Control::User, Control::Network],
            ..Changes::default()
        })
        .unwrap();
        assert_eq!(changed.resources.memory_mb, U53::new(512));
        assert_eq!(
            changed.enforcement.required_controls,
            [
                Control::Network,
                Control::Memory,
                Control::Timeout,
                Control::User
            ]
        );
        assert_eq!(changed.enforcement.wanted_controls, []);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        let error = with(Changes {
            require: vec![Control::Cpu],
            processes: Some(U53::ZERO),
            environment: vec![("1X".into(), "v".into())],
            ..Changes::default()
        })
        .unwrap_err();
        assert!(
            error.contains("found cpu required without a limit, expected resources.cpuMillis"),
            "{error}"
        );
        assert!(
            error.contains("resources.processes: found a processes limit of 0"),
            "{error}"
        );
        assert!(error.contains("process.environment.1X"), "{error}");
        let error = with(Changes {
            network: Some(NetworkMode::None),
            allow: vec!["example.org:443".parse().unwrap()],
            ..Changes::default()
        });
        assert!(error.unwrap_err().contains("expected mode allowlist"));
    }

    #[test]
    fn hosts_mean_an_allowlist_and_an_open_network_asks_for_no_control() {
        let hosts: Vec<HostPort> = vec!["example.org:443".parse().unwrap()];
        let allowed = with(Changes {
            allow: hosts.clone(),
            ..Changes::default()
        })
        .unwrap();
        assert_eq!(allowed.network.mode, NetworkMode::Allowlist);
        let twice = allowed.clone().with(Changes {
            allow: hosts,
            ..Changes::default()
        });
        assert_eq!(twice.as_ref(), Ok(&allowed));
        let open = allowed
            .with(Changes {
                network: Some(NetworkMode::Unrestricted),
                ..Changes::default()
            })
            .unwrap();
        assert_eq!(open.network.hosts, []);
        assert!(!open.enforcement.asks_for(Control::Network));
    }

    #[test]
    fn the_command_line_wins_over_the_same_place_or_name() {
        let changed = with(Changes {
            write: vec!["/x:/c".parse().unwrap()],
            read: vec!["/d".parse().unwrap()],
            environment: vec![("B".into(), "2".into())],
            allowed_environment: vec!["A".into()],
            best_effort: true,
            ..Changes::default()
        })
        .unwrap();
        let shown = |binds: &[Bind]| binds.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&changed.filesystem.read_only), ["/a", "/d"]);
        assert_eq!(shown(&changed.filesystem.writable), ["/x:/c"]);
        assert_eq!(
            changed.process.environment.get("B").map(String::as_str),
            Some("2")
        );
        assert_eq!(changed.process.allowed_environment, ["A"]);
        assert_eq!(changed.enforcement.mode, Mode::BestEffort);
    }
}
