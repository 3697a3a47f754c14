//! Checkpoints (C2SP tlog-checkpoint): what a ledger's key says about the whole tree.
//!
//! ```text
//! example.com/ledger/host-1                        origin: the ledger's name, and the signer's
//! 8                                                size: how many records
//! XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=     root of the Merkle tree over their hashes
//!
//! — example.com/ledger/host-1 g+4Dm4vAD3sF…
//! — example.com/witness-1 AZruNwAAAABkGFDL…        cosignatures of witnesses, if any
//! ```

use std::fmt;

use super::signed_note::{
    Note, NoteKey, NoteKeyError, NoteKeyType, ReadNoteError, VerifyNoteError,
};
use crate::bytes::hash::Hash;
use crate::bytes::key::{Base64, Message, PublicKey, SignError, Signer};

/// A ledger's name, size and root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ledger's name.
    pub origin: String,
    /// How many records.
    pub size: u64,
    /// Root of the tree of that size.
    pub root: Hash,
}

/// Why bytes are not a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadCheckpointError {
    /// Not a signed note.
    #[error(transparent)]
    Note(#[from] ReadNoteError),
    /// The signed text is not a checkpoint's.
    #[error("expected three lines (origin, decimal size, base64 root), found {0:?}")]
    Text(String),
}

/// Why a checkpoint could not be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignCheckpointError {
    /// The origin cannot name a key.
    #[error(transparent)]
    Origin(#[from] NoteKeyError),
    /// The origin cannot stand in a note.
    #[error(transparent)]
    Note(#[from] ReadNoteError),
    /// The key's holder does not sign.
    #[error(transparent)]
    Sign(#[from] SignError),
}

impl fmt::Display for Checkpoint {
    /// The signed text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.origin)?;
        writeln!(f, "{}", self.size)?;
        writeln!(f, "{}", Base64(*self.root.as_bytes()))
    }
}

impl std::str::FromStr for Checkpoint {
    type Err = ReadCheckpointError;

    /// Reads the signed text: parses, writes again, compares.
    fn from_str(text: &str) -> Result<Self, ReadCheckpointError> {
        let mut lines = text.lines();
        let parsed = (|| {
            let origin = lines.next().filter(|origin| !origin.is_empty())?;
            let size = lines.next()?.parse().ok()?;
            let Base64(root) = lines.next()?.parse().ok()?;
            Some(Self {
                origin: origin.to_owned(),
                size,
                root: Hash::from_bytes(root),
            })
        })();
        parsed
            .filter(|checkpoint| checkpoint.to_string() == text)
            .ok_or_else(|| ReadCheckpointError::Text(text.chars().take(300).collect()))
    }
}

impl Checkpoint {
    /// Signs it with the ledger's key, under the name of its origin.
    ///
    /// # Errors
    /// The origin is no name, or the key's holder does not sign.
    pub fn sign(self, signer: &dyn Signer) -> Result<SignedCheckpoint, SignCheckpointError> {
        let text = self.to_string();
        let key = NoteKey::new(&self.origin, NoteKeyType::Ed25519, *signer.public())?;
        let mut note = Note::new(text)?;
        let signature = signer.sign(Message::Checkpoint(note.text()))?;
        note.sign(key.line(&signature));
        Ok(SignedCheckpoint {
            checkpoint: self,
            note,
        })
    }
}

/// A checkpoint with the signatures under it; nothing is verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCheckpoint {
    checkpoint: Checkpoint,
    note: Note,
}

impl SignedCheckpoint {
    /// Reads a signed checkpoint.
    ///
    /// # Errors
    /// Not a signed note, or its text is not a checkpoint's.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReadCheckpointError> {
        let note = Note::parse(bytes)?;
        let checkpoint = note.text().parse()?;
        Ok(Self { checkpoint, note })
    }

    /// What it says, before anybody checked who says it.
    #[must_use]
    pub const fn claim(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The note, for cosignatures and for writing.
    #[must_use]
    pub const fn note(&self) -> &Note {
        &self.note
    }

    /// Holds that `key` signed it under the origin's name, and gives what it says.
    ///
    /// # Errors
    /// `key` did not sign, or its signature does not verify.
    pub fn signed_by(&self, key: &PublicKey) -> Result<&Checkpoint, VerifyNoteError> {
        let name = &self.checkpoint.origin;
        let nobody = || VerifyNoteError::NoKnownKey(vec![name.clone()]);
        let key = NoteKey::new(name, NoteKeyType::Ed25519, *key).map_err(|_| nobody())?;
        self.note.verified_by(&[key])?;
        Ok(&self.checkpoint)
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.note.fmt(f)
    }
}

/// Whether a stored checkpoint counts as absent: empty or nothing but zero bytes, as a crash may leave a
/// file that was renamed and not synced (TRUST.md §5).
#[must_use]
pub fn counts_as_absent(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::key::LocalKey;
    use crate::proof::signed_note::VerifiedSignature;

    const LOG: &str =
        "example.com/ledger/host-1+83ee039b+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";
    const WITNESS: &str =
        "example.com/witness-1+019aee37+BCmsuuFBvMrwsi4alNNNC8c2HlJtC/4SyJeUvJMilm3X";
    const VECTOR: &str = "example.com/ledger/host-1
8
XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=

\u{2014} example.com/ledger/host-1 g+4Dm4vAD3sFVh3WV2P/s/RNFoGshOeJ3cj1pKz4l4w5oeoAMUTgaFXcHgLAdH2QnOYHquYvQ972zPdjNpba7lMNUw4=
\u{2014} example.com/witness-1 AZruNwAAAABkGFDLFu1lrN5hwOVkA+cqQxJADEo5IjAJ6PBky7vaQLi/welC4+WuM1AVgzh8AY/2bbwYO1/EKaAKTvR6LWUUbCJVDA==
";

    fn log_key() -> LocalKey {
        LocalKey::from_seed(&std::array::from_fn(|i| i as u8)).unwrap()
    }

    #[test]
    fn full_vector_with_a_witness() {
        let signed = SignedCheckpoint::parse(VECTOR.as_bytes()).unwrap();
        assert_eq!(signed.to_string(), VECTOR);
        let expected = Checkpoint {
            origin: "example.com/ledger/host-1".into(),
            size: 8,
            root: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
                .parse()
                .unwrap(),
        };
        assert_eq!(signed.signed_by(log_key().public()), Ok(&expected));
        let keys: [NoteKey; 2] = [LOG.parse().unwrap(), WITNESS.parse().unwrap()];
        assert_eq!(keys[0].public(), log_key().public());
        assert_eq!(
            signed.note().verified_by(&keys).unwrap(),
            [
                VerifiedSignature {
                    key: &keys[0],
                    time: None
                },
                VerifiedSignature {
                    key: &keys[1],
                    time: Some(1_679_315_147)
                }
            ]
        );
    }

    #[test]
    fn signing_gives_the_vector_again() {
        let signed = SignedCheckpoint::parse(VECTOR.as_bytes()).unwrap();
        let own = signed.claim().clone().sign(&log_key()).unwrap().to_string();
        assert!(VECTOR.starts_with(&own));
        assert_eq!(own.lines().count(), 5);
    }

    #[test]
    fn a_changed_cosignature_time_rejects_it_where_the_witness_is_known() {
        let changed = VECTOR.replace("AZruNwAAAABk", "AZruNwAAAABl");
        let signed = SignedCheckpoint::parse(changed.as_bytes()).unwrap();
        let keys = [LOG.parse().unwrap(), WITNESS.parse().unwrap()];
        assert_eq!(
            signed.note().verified_by(&keys),
            Err(VerifyNoteError::Signature("example.com/witness-1".into()))
        );
        assert!(signed.signed_by(log_key().public()).is_ok());
    }

    #[test]
    fn another_key_or_name_did_not_sign() {
        let signed = SignedCheckpoint::parse(VECTOR.as_bytes()).unwrap();
        let stranger = LocalKey::from_seed(&[7; 32]).unwrap();
        assert!(signed.signed_by(stranger.public()).is_err());
        let renamed = VECTOR.replacen("host-1\n8", "host-2\n8", 1);
        let signed = SignedCheckpoint::parse(renamed.as_bytes()).unwrap();
        assert!(signed.signed_by(log_key().public()).is_err());
    }

    #[test]
    fn sizes_and_roots_have_one_form() {
        for (defect, from, to) in [
            ("leading zero", "\n8\n", "\n08\n"),
            ("plus", "\n8\n", "\n+8\n"),
            ("space", "\n8\n", "\n8 \n"),
            ("negative", "\n8\n", "\n-8\n"),
            ("over 64 bits", "\n8\n", "\n18446744073709551616\n"),
            ("no size", "\n8\n", "\n"),
            ("short root", "Xcna", ""),
            ("unpadded root", "Qyg=", "Qyg"),
            ("extension line", "Qyg=\n", "Qyg=\nmore\n"),
            ("no origin", "example.com/ledger/host-1\n8", "\n8"),
        ] {
            let text = VECTOR.replacen(from, to, 1);
            assert_ne!(text, VECTOR, "{defect}");
            assert!(
                SignedCheckpoint::parse(text.as_bytes()).is_err(),
                "{defect}"
            );
        }
    }

    #[test]
    fn what_a_crash_leaves_counts_as_absent() {
        assert!(counts_as_absent(b"") && counts_as_absent(&[0; 197]));
        assert!(!counts_as_absent(VECTOR.as_bytes()));
    }
}
