//! The policies that come with the project (`policies/*.json`).

use super::nearest::nearest;
use super::problem::ReadPolicyError;
use super::{Policy, json};

/// The policy of `runner exec` when none is named.
pub const DEFAULT_POLICY: &str = "standard";
/// The same where a module is run.
pub const DEFAULT_MODULE_POLICY: &str = "module";

/// A policy document that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Catalogued {
    /// The policy's id.
    pub id: &'static str,
    /// The document.
    pub text: &'static str,
}

macro_rules! catalogue {
    ($($id:literal,)+) => {
        /// Every policy of the catalogue, from the narrowest use to the most particular.
        pub const CATALOGUE: &[Catalogued] = &[
            $(Catalogued {
                id: $id,
                text: include_str!(concat!("../../../../policies/", $id, ".json")),
            },)+
        ];
    };
}

catalogue! {
    "minimal",
    "standard",
    "containment-audit",
    "high-risk",
    "ai-agent",
    "compiler",
    "data-science",
    "web-service",
    "service-isolated",
    "key-custody",
    "module",
}

/// A name of no policy in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called {found:?}{}; expected one of {}", meant.map(|near| format!(" (did you mean {near}?)")).unwrap_or_default(), names())]
pub struct UnknownPolicy {
    found: String,
    meant: Option<&'static str>,
}

fn names() -> String {
    let names: Vec<_> = CATALOGUE.iter().map(|policy| policy.id).collect();
    names.join(", ")
}

impl Catalogued {
    /// The policy of this id.
    ///
    /// # Errors
    /// The catalogue has none.
    pub fn find(id: &str) -> Result<Self, UnknownPolicy> {
        let found = CATALOGUE.iter().copied().find(|policy| policy.id == id);
        found.ok_or_else(|| UnknownPolicy {
            found: json::shorten(id),
            meant: nearest(id, CATALOGUE.iter().map(|policy| policy.id)),
        })
    }

    /// The document read.
    ///
    /// # Errors
    /// As [`Policy::parse`]; a test reads every document of the catalogue.
    pub fn policy(self) -> Result<Policy, ReadPolicyError> {
        Policy::parse(&format!("policies/{}.json", self.id), self.text.as_bytes())
    }
}

impl Policy {
    /// Every policy of the catalogue.
    #[must_use]
    pub const fn catalogue() -> &'static [Catalogued] {
        CATALOGUE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::control::Control;
    use crate::facts::policy::{Mode, NetworkMode, Root};

    fn all() -> Vec<Policy> {
        let policies = CATALOGUE.iter().map(|entry| entry.policy());
        policies
            .map(|policy| policy.unwrap_or_else(|error| panic!("{error}")))
            .collect()
    }

    #[test]
    fn file_names_are_ids_and_all_files_are_embedded() {
        for (entry, policy) in CATALOGUE.iter().zip(all()) {
            assert_eq!(entry.id, policy.id);
            assert!(policy.description.len() > 60, "{}: says for whom", entry.id);
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut ids: Vec<String> = CATALOGUE
            .iter()
            .map(|entry| format!("{}.json", entry.id))
            .collect();
        ids.sort();
        assert_eq!(files, ids);
    }

    #[test]
    fn every_control_has_a_policy_that_requires_it() {
        let policies = all();
        for control in Control::ALL {
            assert!(
                policies
                    .iter()
                    .any(|policy| policy.enforcement.required_controls.contains(control)),
                "{control}"
            );
        }
    }

    #[test]
    fn standard_asks_for_every_control() {
        let standard = Catalogued::find(DEFAULT_POLICY).unwrap().policy().unwrap();
        let wanted = [
            Control::Memory,
            Control::Processes,
            Control::Cpu,
            Control::Disk,
            Control::User,
        ];
        let enforcement = &standard.enforcement;
        assert_eq!(enforcement.mode, Mode::Strict);
        for control in Control::ALL {
            let (here, there) = (&enforcement.wanted_controls, &enforcement.required_controls);
            let (here, there) = if wanted.contains(control) {
                (here, there)
            } else {
                (there, here)
            };
            assert!(
                here.contains(control) && !there.contains(control),
                "{control}"
            );
        }
        assert_eq!(standard.network.mode, NetworkMode::None);
        assert_eq!(standard.filesystem.root, Root::Ephemeral);
    }

    #[test]
    fn the_audit_runs_everywhere_and_denies_what_nobody_needs() {
        let audit = Catalogued::find("containment-audit")
            .unwrap()
            .policy()
            .unwrap();
        assert_eq!(audit.enforcement.mode, Mode::BestEffort);
        assert!(audit.syscalls.denied().contains(&"getcpu"));
        assert!(
            Control::ALL
                .iter()
                .all(|control| audit.enforcement.asks_for(*control))
        );
    }

    #[test]
    fn a_near_miss_is_named() {
        let error = Catalogued::find("standart").unwrap_err().to_string();
        assert!(error.contains("did you mean standard?"), "{error}");
        assert!(error.contains("key-custody"), "{error}");
    }
}
