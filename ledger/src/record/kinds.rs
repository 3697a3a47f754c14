//! Bodies of the small kinds: genesis, note, key, recovery, close.

use std::borrow::Cow;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};

use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::bytes::key::{Base64, KeyId, Signature};

/// Where a private key is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Custody {
    /// In a file of the machine that signs.
    File,
    /// In an agent that signs on request.
    Agent,
    /// In the memory of one process only.
    Ephemeral,
}

/// Name and version of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Body of `genesis`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Genesis {
    /// Where the key is kept.
    pub custody: Custody,
    /// The ledger's name in checkpoints.
    pub origin: Origin,
    /// The first key.
    pub public_key: Base64<32>,
    /// SHA-256 of an offline key that may take over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<KeyId>,
    /// The program that began the ledger.
    pub tool: Tool,
}

/// A ledger's name in checkpoints: `[A-Za-z0-9][A-Za-z0-9._/-]{0,254}`, not beginning like another signed
/// format (TRUST.md §1.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Origin(String);

/// A text that may not name a ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no origin: expected up to 255 of A-Z a-z 0-9 . _ / -, beginning with a letter or digit"
)]
pub struct OriginError(String);

impl Origin {
    const TAKEN: [&str; 5] = [
        "containment-ledger/",
        "cosignature/",
        "subtree/",
        "SSHSIG",
        "DSSEv1",
    ];

    /// `<host name>/<first 16 hex of the ledger id>`, other characters of the name as `-`.
    #[must_use]
    pub fn for_host(host_name: &str, ledger: &Hash) -> Self {
        let mut name: String = host_name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
                    c
                } else {
                    '-'
                }
            })
            .take(200)
            .collect();
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            name.insert_str(0, "host");
        }
        let id = &ledger.to_string()[..16];
        match format!("{name}/{id}").parse() {
            Ok(origin) => origin,
            // Only a host called like another signed format gets here.
            Err(_) => Self(format!("host-{name}/{id}")),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-');
        let fits = (1..=255).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(allowed)
            && !Self::TAKEN.iter().any(|taken| text.starts_with(taken));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(OriginError(text.chars().take(80).collect()))
        }
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Body of `note`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// The operator's remark.
    pub text: String,
}

/// Body of `close`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {
    /// Why nothing follows.
    pub reason: String,
}

/// Body of `key` (TRUST.md §4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyChange {
    /// Where the new key is kept.
    pub custody: Custody,
    /// Signature of the new key over [`Message::Possession`]; absent when the standby key signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub possession: Option<Signature>,
    /// The new key.
    pub public_key: Base64<32>,
    /// Why the key changes.
    pub reason: KeyChangeReason,
    /// The next standby key; only a record signed by the standby key may say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<KeyId>,
}

/// Why a key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyChangeReason {
    /// A new epoch.
    Routine,
    /// The old key is gone.
    Loss,
    /// The old key may be known to others.
    Compromise,
}

/// Body of `recovery` (TRUST.md §5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Recovery {
    /// Length of what was set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<U53>,
    /// What had happened.
    pub cause: RecoveryCause,
    /// What the ledger should have been, exactly with `rollback-accepted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedTree>,
    /// Where the bytes went: `torn/<sha256>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// SHA-256 of what was set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Hash>,
}

impl Recovery {
    /// Whether exactly the fields that belong together are there.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let set_aside = [
            self.bytes.is_some(),
            self.file.is_some(),
            self.sha256.is_some(),
        ];
        let file_fits = match (&self.file, &self.sha256) {
            (Some(file), Some(sha256)) => *file == format!("torn/{sha256}"),
            _ => true,
        };
        let together = set_aside.iter().all(|is| *is == set_aside[0]);
        file_fits
            && together
            && match self.cause {
                RecoveryCause::Torn => self.expected.is_none() && set_aside[0],
                RecoveryCause::RollbackAccepted => self.expected.is_some(),
            }
    }
}

/// What a recovery met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryCause {
    /// Bytes after the last whole record.
    Torn,
    /// Fewer records than were acknowledged, and the operator said to go on.
    RollbackAccepted,
}

/// Size and root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedTree {
    /// The Merkle root.
    pub root: Hash,
    /// The number of records.
    pub size: U53,
}
