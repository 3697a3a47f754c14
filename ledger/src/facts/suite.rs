//! **Suite**: the table of probes, a row each (PROBES.md §3).
//!
//! As a blob it is the JCS of the whole table with every program's hash filled in, so that a probe record names
//! exactly what was run. A row without `program` is the runner's own probe program; one with `program` is a third
//! party's, whose lines are its own word and never a measurement (PROBES.md §1 rule 9).

use serde::{Deserialize, Serialize};

use super::control::Control;
use super::host::HostFacts;
use super::probe::{Errno, ProbeName};
use super::words::words;
use crate::bytes::hash::Hash;

/// `schema` of every suite.
pub const SUITE_SCHEMA: &str = "containment-ledger/suite/v1";

/// The runtime that runs no programs but WebAssembly modules: there the runner's own module makes the checks that say so.
pub const MODULES: &str = "wasi";

/// A table of probes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// SHA-256 of the runner's own probe module ([`MODULES`]); filled in for the blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<Hash>,
    /// The rows, in the order in which they are run.
    pub probes: Vec<Probe>,
    /// SHA-256 of the runner's own probe program; filled in for the blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Hash>,
    /// [`SUITE_SCHEMA`].
    pub schema: String,
}

/// A row: one program run that makes one or more checks of one control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// What the program gets as arguments.
    pub arguments: Vec<String>,
    /// The arms in which it runs.
    pub arms: Vec<Arm>,
    /// What it checks.
    pub checks: Vec<Check>,
    /// The control that it attacks.
    pub control: Control,
    /// Its name, unique in the suite.
    pub id: ProbeName,
    /// A third party's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProbeProgram>,
    /// What it may do to the machine.
    pub risk: Risk,
}

/// A third party's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeProgram {
    /// Its path below the suite's folder.
    pub path: String,
    /// SHA-256 of its content; filled in for the blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Hash>,
}

/// One check of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Check {
    /// Its name within the control.
    pub check: ProbeName,
    /// Errors with which an attack that was refused ends; `none` where it ends without one (an empty list).
    pub denied: Vec<Errno>,
    /// Whether a module can try it at all ([`MODULES`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub module: bool,
    /// What the host must have for the attack to be possible at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Need>,
    /// How an escape is seen from outside.
    pub oracle: Oracle,
    /// Which allowed operation of the same kind must succeed.
    pub twin: TwinKind,
}

words! {
    /// Under what a probe runs (PROBES.md §1 rule 1).
    Arm {
        /// Bare: the same check must escape.
        Baseline "baseline",
        /// In the same runtime with this one control left out: it must escape.
        Ablation "ablation",
        /// Under the whole policy: this is what the verdict is about.
        Run "run",
    }
}

words! {
    /// What a probe may do to the machine.
    Risk {
        /// It only observes.
        Controlled "controlled",
        /// It uses a resource up, with an absolute cap, and never runs bare.
        ResourceAbuse "resource-abuse",
    }
}

words! {
    /// How an escape is seen by the controller, which is outside.
    Oracle {
        /// The run's nonce arrived at one of its listeners.
        Listener "listener",
        /// A secret that it planted was printed.
        Secret "secret",
        /// A file that it planted changed.
        Canary "canary",
        /// A process of its own got a signal.
        Signal "signal",
        /// The runner itself measures the effect (deadline, cap, heartbeat, identity of a peer, resources used).
        Host "host",
        /// Nobody outside can see it: what is known is the line, bound to the run, beside the arms that escaped.
        Line "line",
    }
}

words! {
    /// The allowed operation of the same kind that must succeed inside.
    TwinKind {
        /// One that the policy allows: the line says `twin=ok`.
        Allowed "allowed",
        /// The policy allows none: the line, bound to the run, shows that the probe ran, and the listener took the
        /// controller's own call before and after.
        Instrument "instrument",
    }
}

words! {
    /// Something without which the attack is impossible on a host, whatever the sandbox does.
    Need {
        /// The host speaks IPv6.
        Ipv6 "ipv6",
        /// The kernel lets programs inject input into a terminal (`dev.tty.legacy_tiocsti`).
        Tiocsti "tiocsti",
        /// No Yama keeps processes of one user apart (`kernel.yama.ptrace_scope`).
        NoYama "no-yama",
        /// Ordinary users may make user namespaces.
        UserNamespaces "user-namespaces",
        /// The runner is root, in the first user namespace.
        Root "root",
        /// An x86 machine, with its second set of system calls.
        X86 "x86",
    }
}

/// The switch that turns IPv6 off.
const IPV6_OFF: &str = "net.ipv6.conf.all.disable_ipv6";

impl Need {
    /// The fact of the host that stands in the way; `None` when it has the thing, or nothing is known.
    #[must_use]
    pub fn missing_on(self, host: &HostFacts) -> Option<String> {
        let sysctl = |name: &str| host.sysctls.get(name).map(String::as_str);
        let is = |name: &str, bad: &dyn Fn(&str) -> bool| {
            let value = sysctl(name).filter(|value| bad(value))?;
            Some(format!("{name} = {value}"))
        };
        match self {
            // A kernel without IPv6 has none of its switches; one of IPv4 shows that they were looked for.
            Self::Ipv6 => is(IPV6_OFF, &|value| value == "1").or_else(|| {
                let looked = sysctl("net.ipv4.ping_group_range").is_some();
                let unread = host.unmeasured.iter().flatten();
                let unread = unread.map(|one| one.field.as_str());
                let gone = looked
                    && sysctl(IPV6_OFF).is_none()
                    && !unread.into_iter().any(|field| field.ends_with(IPV6_OFF));
                gone.then(|| format!("{IPV6_OFF} is not there"))
            }),
            Self::Tiocsti => is("dev.tty.legacy_tiocsti", &|value| value == "0"),
            Self::NoYama => is("kernel.yama.ptrace_scope", &|value| value != "0"),
            Self::UserNamespaces => is("user.max_user_namespaces", &|value| value == "0")
                .or_else(|| is("kernel.unprivileged_userns_clone", &|value| value == "0"))
                .or_else(|| {
                    is("kernel.apparmor_restrict_unprivileged_userns", &|value| {
                        value == "1"
                    })
                    .filter(|_| host.uid != 0)
                }),
            // Root of a user namespace is no root of the host's.
            Self::Root => match host.uid {
                0 if host.container.iter().any(|sign| sign == "user-namespace") => {
                    Some("uid = 0, in a user namespace".to_owned())
                }
                // Nor is one to which a container left none of the capabilities that make it one.
                0 if host.container.iter().any(|sign| sign == FEW_CAPABILITIES) => Some(
                    "uid = 0, without CAP_SYS_ADMIN, CAP_MKNOD and CAP_SYS_RESOURCE".to_owned(),
                ),
                0 => None,
                uid => Some(format!("uid = {uid}")),
            },
            Self::X86 => {
                let name = &host.architecture;
                (name != "x86_64").then(|| format!("architecture = {name}"))
            }
        }
    }
}

/// Sign of a container: root has none of the capabilities CAP_SYS_ADMIN, CAP_MKNOD and CAP_SYS_RESOURCE.
pub const FEW_CAPABILITIES: &str = "few-capabilities";

/// Most rows of a suite, and most checks of a row.
pub const MAX_ROWS: usize = 256;

/// What is wrong with a suite.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// Another form.
    #[error("schema {found:?}, expected {SUITE_SCHEMA:?}")]
    Schema {
        /// What was found.
        found: String,
    },
    /// Too much.
    #[error("{found} {what}, expected 1 to {MAX_ROWS}")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
    },
    /// Two rows of one name, or two checks.
    #[error("{0} stands twice")]
    Twice(String),
    /// No arm in which the verdict could be measured.
    #[error("probe {0} has no arm `run`")]
    NoRun(ProbeName),
    /// A probe that uses resources up may not run bare.
    #[error("probe {0} is of risk resource-abuse and has the arm `baseline`")]
    BareAbuse(ProbeName),
    /// A check that no error is a refusal of.
    #[error("check {0} names no denied error")]
    NoDenial(String),
}

impl Suite {
    /// Checks what the form alone does not.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), SuiteError> {
        if self.schema != SUITE_SCHEMA {
            return Err(SuiteError::Schema {
                found: self.schema.chars().take(80).collect(),
            });
        }
        let count = |what, found| match found {
            1..=MAX_ROWS => Ok(()),
            found => Err(SuiteError::Count { what, found }),
        };
        count("probes", self.probes.len())?;
        let mut seen = std::collections::BTreeSet::new();
        let mut once = |name: String| match seen.insert(name.clone()) {
            true => Ok(()),
            false => Err(SuiteError::Twice(name)),
        };
        for probe in &self.probes {
            once(format!("probe {}", probe.id))?;
            count("checks", probe.checks.len())?;
            if !probe.arms.contains(&Arm::Run) {
                return Err(SuiteError::NoRun(probe.id.clone()));
            }
            if probe.risk == Risk::ResourceAbuse && probe.arms.contains(&Arm::Baseline) {
                return Err(SuiteError::BareAbuse(probe.id.clone()));
            }
            for check in &probe.checks {
                let id = probe.check_id(check);
                if check.denied.is_empty() {
                    return Err(SuiteError::NoDenial(id));
                }
                once(format!("check {id}"))?;
            }
        }
        Ok(())
    }

    /// The ids of all checks, in the order of the rows.
    #[must_use]
    pub fn checks(&self) -> Vec<String> {
        let all = self.probes.iter();
        all.flat_map(|probe| probe.checks.iter().map(|check| probe.check_id(check)))
            .collect()
    }

    /// The row and the check of an id such as `network/tcp4`.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<(&Probe, &Check)> {
        let mut all = self
            .probes
            .iter()
            .flat_map(|probe| probe.checks.iter().map(move |check| (probe, check)));
        all.find(|(probe, check)| probe.check_id(check) == id)
    }
}

impl Probe {
    /// Whether anything of it can be tried in a runtime. What no module can try is not run where modules alone are
    /// ([`MODULES`]); of a third party's program nobody knows what it is.
    #[must_use]
    pub fn is_tried_in(&self, runtime: &str) -> bool {
        runtime != MODULES || !self.is_own() || self.checks.iter().any(|check| check.module)
    }

    /// `network/tcp4`.
    #[must_use]
    pub fn check_id(&self, check: &Check) -> String {
        format!("{}/{}", self.control, check.check)
    }

    /// Whether it is the runner's own program.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        self.program.is_none()
    }
}
