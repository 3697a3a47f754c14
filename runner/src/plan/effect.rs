//! **Effect**: what one launch did. The only source of `declared`.

use std::collections::BTreeMap;

use ledger::bytes::hash::Hash;
use ledger::facts::control::{Control, Controls, Declared, Unsupported};
use ledger::facts::execution::NotExecuted;

use super::{Plan, Reason, Why, unheard};
use crate::sys::notify::Listener;

/// What one launch did.
#[derive(Debug)]
pub struct Effect {
    declared: BTreeMap<Control, Declared>,
    lost: BTreeMap<Control, Why>,
    /// How much of the runtime this host allowed.
    pub tier: Option<&'static str>,
    /// The workload's processes are in a pid namespace of their own, whose end is theirs.
    pub owns_tree: bool,
    /// The runtime's full command line, or its steps where it has none.
    pub launch: Vec<String>,
    /// SHA-256 of the runtime's own program, where it has one.
    pub runtime_sha256: Option<Hash>,
    /// The workload could read the signing key.
    pub key_reachable: bool,
    /// The program that will run, or why none will.
    pub program: Program,
    /// The workload's user id as the host sees it, read back from outside.
    pub host_uid: Option<u32>,
    /// Hears the calls that the policy's filter denies; else why nobody does, in a word of [`unheard`].
    pub listener: Result<Listener, String>,
    /// Things that did not go as intended and cost no control (a backup that is missing).
    pub remarks: Vec<String>,
}

/// The program as pid 1 found it inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Found, with the hash of its content.
    Found {
        /// Its path inside.
        path: String,
        /// SHA-256 of its content; absent when the workload may execute but not read it.
        sha256: Option<Hash>,
    },
    /// Not to be run.
    Unusable {
        /// The path or name that was asked for.
        path: String,
        /// Why.
        reason: NotExecuted,
        /// The kernel's answer, where there was one.
        errno: Option<i32>,
    },
}

impl Effect {
    /// An effect that declares nothing yet.
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self {
            declared: BTreeMap::new(),
            lost: BTreeMap::new(),
            tier: None,
            owns_tree: false,
            launch: Vec::new(),
            runtime_sha256: None,
            key_reachable: false,
            program,
            host_uid: None,
            listener: Err(unheard::RUNTIME.to_owned()),
            remarks: Vec::new(),
        }
    }

    /// A control is in effect.
    pub fn declare(&mut self, declared: Declared) {
        self.declared.insert(declared.control, declared);
    }

    /// A control that was intended is not in effect.
    pub fn lose(&mut self, control: Control, why: Why) {
        self.declared.remove(&control);
        self.lost.insert(control, why);
    }

    /// Who listens, which is said once.
    pub fn take_listener(&mut self) -> Result<Listener, String> {
        std::mem::replace(&mut self.listener, Err(unheard::RUNTIME.to_owned()))
    }

    /// Whether a control is in effect.
    #[must_use]
    pub fn declares(&self, control: Control) -> bool {
        self.declared.contains_key(&control)
    }

    /// The `controls` of a start record: declared from this effect alone, unsupported with the reason that the
    /// plan or the launch gave.
    #[must_use]
    pub fn controls(&self, plan: &Plan) -> Controls {
        let asked = plan.requested.iter().chain(&plan.wanted);
        let unsupported = asked
            .filter(|control| !self.declared.contains_key(control))
            .map(|control| {
                let why = self
                    .lost
                    .get(control)
                    .or_else(|| plan.cannot.get(control))
                    .cloned();
                let why = why.unwrap_or_else(|| Reason::NOT_READ_BACK.into());
                Unsupported {
                    control: *control,
                    reason: why.to_string(),
                }
            })
            .collect();
        Controls {
            declared: self.declared.values().cloned().collect(),
            requested: plan.requested.clone(),
            unsupported,
            wanted: plan.wanted.clone(),
        }
    }
}

/// The `controls` of a run that was refused or could not be launched: nothing is declared.
#[must_use]
pub(crate) fn nothing(plan: &Plan) -> Controls {
    let asked = plan.requested.iter().chain(&plan.wanted);
    let unsupported = asked
        .map(|control| {
            let why = plan
                .cannot
                .get(control)
                .cloned()
                .unwrap_or_else(|| Reason::NOT_LAUNCHED.into());
            Unsupported {
                control: *control,
                reason: why.to_string(),
            }
        })
        .collect();
    Controls {
        declared: Vec::new(),
        requested: plan.requested.clone(),
        unsupported,
        wanted: plan.wanted.clone(),
    }
}

impl Plan {
    /// The `controls` of a run of this plan that never came to a launch.
    #[must_use]
    pub fn controls_of_nothing(&self) -> Controls {
        nothing(self)
    }
}
