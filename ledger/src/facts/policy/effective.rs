//! The policy as it was in force: the blob that a `start` record names by its hash.
//!
//! It is the JCS form of the document with the command line merged in, every default written out, the
//! calls of a profile listed in `syscalls.deny`, and `process.environment` reduced to its sorted names.

use serde::{Deserialize, Serialize};

use super::{Devices, Enforcement, Filesystem, Nesting, Network, Policy, Resources, Syscalls};
use crate::bytes::canon::{FormError, WriteLineError, canonical_form, to_canonical};
use crate::bytes::text::excerpt;

/// A policy in force, without the environment's values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectivePolicy {
    /// For whom and for what it is.
    pub description: String,
    /// Device nodes.
    pub devices: Devices,
    /// Which controls must and should be in force.
    pub enforcement: Enforcement,
    /// Files and folders.
    pub filesystem: Filesystem,
    /// Its name.
    pub id: String,
    /// Whether the workload may build sandboxes of its own.
    pub nesting: Nesting,
    /// The network.
    pub network: Network,
    /// Identity and environment.
    pub process: EffectiveProcess,
    /// Limits.
    pub resources: Resources,
    /// System calls.
    pub syscalls: Syscalls,
}

/// [`super::Process`] with the names of the environment alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectiveProcess {
    /// Variables that pass from the runner's own environment.
    pub allowed_environment: Vec<String>,
    /// Capabilities that the workload keeps.
    pub capabilities: Vec<String>,
    /// Names of the variables that are set, sorted.
    pub environment: Vec<String>,
    /// Group id inside; 1000 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// User id inside; 1000 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// Why a blob is no policy in force.
#[derive(Debug, thiserror::Error)]
pub enum ReadEffectivePolicyError {
    /// Not one JSON value of the allowed form.
    #[error("not canonical JSON")]
    Form(#[from] FormError),
    /// JSON in another than the canonical form, or with a default left out.
    #[error(
        "not in the form a policy blob has: from byte {at} on, expected {expected:?}, found {found:?}"
    )]
    NotCanonical {
        /// The first byte that differs.
        at: usize,
        /// What stands there.
        found: String,
        /// What would have to.
        expected: String,
    },
    /// Another shape.
    #[error("not a policy: {text}", text = excerpt(&.0.to_string(), 400))]
    Shape(#[from] serde_json::Error),
}

impl Policy {
    /// What of this policy is kept as evidence.
    #[must_use]
    pub fn effective(&self) -> EffectivePolicy {
        let process = &self.process;
        EffectivePolicy {
            description: self.description.clone(),
            devices: self.devices.clone(),
            enforcement: self.enforcement.clone(),
            filesystem: self.filesystem.clone(),
            id: self.id.clone(),
            nesting: self.nesting,
            network: self.network.clone(),
            process: EffectiveProcess {
                allowed_environment: process.allowed_environment.clone(),
                capabilities: process.capabilities.clone(),
                environment: process.environment.keys().cloned().collect(),
                group: process.group,
                user: process.user,
            },
            resources: self.resources.clone(),
            syscalls: Syscalls {
                allow: self.syscalls.allow.clone(),
                deny: self
                    .syscalls
                    .denied()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
                profile: self.syscalls.profile.clone(),
            },
        }
    }

    /// The bytes of the policy blob.
    ///
    /// # Errors
    /// The policy cannot be written as JSON, which no policy that was read can cause.
    pub fn effective_blob(&self) -> Result<Vec<u8>, WriteLineError> {
        to_canonical(&self.effective())
    }
}

impl EffectivePolicy {
    /// Reads a policy blob back.
    ///
    /// # Errors
    /// The bytes are not canonical JSON, or not exactly what [`Policy::effective_blob`] writes.
    pub fn read(blob: &[u8]) -> Result<Self, ReadEffectivePolicyError> {
        differ(&canonical_form(blob)?, blob)?;
        let policy: Self = serde_json::from_slice(blob)?;
        differ(&serde_json::to_vec(&policy)?, blob)?;
        Ok(policy)
    }
}

fn differ(expected: &[u8], found: &[u8]) -> Result<(), ReadEffectivePolicyError> {
    if expected == found {
        return Ok(());
    }
    let at = expected
        .iter()
        .zip(found)
        .take_while(|(a, b)| a == b)
        .count();
    let from = |bytes: &[u8]| {
        let (_, rest) = bytes.split_at_checked(at).unwrap_or_default();
        String::from_utf8_lossy(rest).chars().take(40).collect()
    };
    Err(ReadEffectivePolicyError::NotCanonical {
        at,
        found: from(found),
        expected: from(expected),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::policy;
    use super::*;
    use crate::facts::control::Control;

    fn example() -> Policy {
        policy(
            r#"{
            "id": "blob",
            "enforcement": {"requiredControls": ["network", "syscalls"]},
            "process": {"environment": {"TOKEN": "MARKER-4711", "A": "MARKER-4711"}},
            "syscalls": {"profile": "default", "deny": ["getcpu"]},
            "network": {"mode": "allowlist", "hosts": ["example.org:443"]},
            "filesystem": {"writable": ["/w:/workspace/w"]}
        }"#,
        )
    }

    #[test]
    fn a_blob_reads_back_and_holds_no_value() {
        let policy = example();
        let blob = policy.effective_blob().unwrap();
        let text = String::from_utf8(blob.clone()).unwrap();
        assert!(!text.contains("MARKER"), "{text}");
        assert!(text.contains(r#""environment":["A","TOKEN"]"#), "{text}");
        assert_eq!(
            canonical_form(&blob).unwrap(),
            blob,
            "fields stand in JCS order"
        );
        let read = EffectivePolicy::read(&blob).unwrap();
        assert_eq!(read, policy.effective());
        assert_eq!(
            read.enforcement.required_controls,
            [Control::Network, Control::Syscalls]
        );
        assert!(read.syscalls.deny.contains(&"getcpu".to_owned()));
        assert!(
            read.syscalls.deny.contains(&"ptrace".to_owned()),
            "the profile is written out"
        );
    }

    #[test]
    fn another_form_is_refused() {
        let blob = String::from_utf8(example().effective_blob().unwrap()).unwrap();
        let not_canonical = |text: String| {
            matches!(
                EffectivePolicy::read(text.as_bytes()),
                Err(ReadEffectivePolicyError::NotCanonical { .. })
            )
        };
        assert!(not_canonical(format!("{blob} ")));
        assert!(not_canonical(blob.replace(r#""dns":false,"#, "")));
        let shape = blob.replace(r#""dns":false"#, r#""dns":0"#);
        assert!(matches!(
            EffectivePolicy::read(shape.as_bytes()),
            Err(ReadEffectivePolicyError::Shape(_))
        ));
        assert!(matches!(
            EffectivePolicy::read(b"{"),
            Err(ReadEffectivePolicyError::Form(_))
        ));
    }
}
