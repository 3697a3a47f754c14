//! **Control**: a restriction, independent of the runtime that applies it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! controls {
    ($($variant:ident $name:literal $meaning:literal,)+) => {
        /// A restriction that a policy can request and a runtime can declare.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Control {
            $(#[doc = $meaning] $variant,)+
        }

        impl Control {
            /// Every control, in the order of DESIGN.md §5.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name used in policies, records and check ids.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it keeps the workload from, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

controls! {
    Network "network" "The workload reaches no network but what the policy allows.",
    Filesystem "filesystem" "The workload sees and writes only the files that the policy shows it.",
    Process "process" "The workload neither sees nor signals processes outside.",
    Environment "environment" "The workload inherits no variable that the policy does not name.",
    Privilege "privilege" "The workload holds no capability and cannot gain one.",
    Memory "memory" "The whole tree's memory, swap included, stays below a limit.",
    Processes "processes" "The number of tasks in the tree stays below a limit.",
    Syscalls "syscalls" "The system calls that the policy denies fail.",
    Cpu "cpu" "The tree's CPU time per wall time stays below a quota.",
    Timeout "timeout" "The whole tree is dead at the deadline.",
    Output "output" "Output past a cap is cut and flagged; the runner's memory stays flat.",
    Devices "devices" "No device node but the listed harmless ones is reachable.",
    User "user" "The workload has neither root's nor the caller's identity beyond what the policy says.",
    Ipc "ipc" "The workload shares no IPC object or socket with processes outside, but what lies in folders that the policy shows.",
    Descriptors "descriptors" "The workload holds no descriptor but its standard streams.",
    Terminal "terminal" "The workload never holds the caller's terminal.",
    Files "files" "The number of open files per process stays below a limit.",
    Disk "disk" "What the workload can write to its own area stays below a limit.",
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that names no control.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown control {0:?}; expected one of {list}", list = names())]
pub struct UnknownControl(pub String);

fn names() -> String {
    let names: Vec<_> = Control::ALL
        .iter()
        .map(|control| control.as_str())
        .collect();
    names.join(", ")
}

impl FromStr for Control {
    type Err = UnknownControl;

    fn from_str(text: &str) -> Result<Self, UnknownControl> {
        Self::ALL
            .iter()
            .copied()
            .find(|control| control.as_str() == text)
            .ok_or_else(|| UnknownControl(text.chars().take(80).collect()))
    }
}

/// A control that a launch really applied, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Declared {
    /// A second mechanism behind the first; it never decides the declaration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// The control.
    pub control: Control,
    /// The kernel mechanism that does it (`network-namespace`, `cgroup-v2 memory.max`).
    pub mechanism: String,
    /// The limit in force, with its unit, where there is one (`30000 ms`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A control that was asked for and could not be declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unsupported {
    /// The control.
    pub control: Control,
    /// Why, as a word of docs/gaps.md.
    pub reason: String,
}

/// What was asked of a launch and what it gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controls {
    /// Written from the effect of this launch alone.
    pub declared: Vec<Declared>,
    /// Must be declared, else the run is refused (strict) or `controls-missing`.
    pub requested: Vec<Control>,
    /// Requested or wanted, and not declared.
    pub unsupported: Vec<Unsupported>,
    /// Should be declared; a run without is `reduced`.
    pub wanted: Vec<Control>,
}

impl Controls {
    /// Whether this launch applied `control`.
    #[must_use]
    pub fn declares(&self, control: Control) -> bool {
        self.declared
            .iter()
            .any(|declared| declared.control == control)
    }

    /// What in it contradicts itself; `None` when every control is declared at most once, and is not declared
    /// and unsupported.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        let mut seen = std::collections::BTreeSet::new();
        if !self.declared.iter().all(|it| seen.insert(it.control)) {
            return Some("a control is declared twice");
        }
        let both = self.unsupported.iter().any(|it| seen.contains(&it.control));
        both.then_some("a control is both declared and unsupported")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_is_declared_once_or_is_unsupported() {
        let declared = |control| Declared {
            backup: None,
            control,
            mechanism: "m".to_owned(),
            value: None,
        };
        let unsupported = |control| Unsupported {
            control,
            reason: "r".to_owned(),
        };
        let controls = |declared: Vec<Declared>, unsupported: Vec<Unsupported>| Controls {
            declared,
            unsupported,
            ..Controls::default()
        };
        let (a, b) = (Control::Network, Control::Memory);
        let good = controls(vec![declared(a)], vec![unsupported(b)]);
        assert_eq!(good.disorder(), None);
        for bad in [
            controls(vec![declared(a), declared(b), declared(a)], vec![]),
            controls(vec![declared(a)], vec![unsupported(b), unsupported(a)]),
        ] {
            assert!(bad.disorder().is_some(), "{bad:?}");
        }
    }

    #[test]
    fn names_read_back_and_agree_with_json() {
        for control in Control::ALL {
            assert_eq!(control.as_str().parse::<Control>(), Ok(*control));
            assert_eq!(
                serde_json::to_string(control).unwrap(),
                format!("{:?}", control.as_str())
            );
        }
        assert!(
            "Network"
                .parse::<Control>()
                .unwrap_err()
                .to_string()
                .contains("network, filesystem")
        );
    }
}
