//! **Finding**: one problem in evidence, with its code, place, and what was found and expected.
//!
//! Codes and exit classes are an API (DESIGN.md §6.1); each code has a page under `docs/codes/`.

use std::fmt;

use serde::Serialize;

/// What a finding means for the evidence, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The evidence is not what was written (exit 10).
    Invalid,
    /// It cannot be proven (exit 11).
    Unproven,
    /// It is valid, and what was declared and what happened disagree (exit 12).
    Disagreement,
    /// Worth knowing; fails nothing.
    Observation,
}

impl Class {
    /// The exit code of `verify` for the worst finding of this class.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Invalid => 10,
            Self::Unproven => 11,
            Self::Disagreement => 12,
            Self::Observation => 0,
        }
    }

    /// The word for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unproven => "unproven",
            Self::Disagreement => "disagreement",
            Self::Observation => "observation",
        }
    }
}

macro_rules! codes {
    ($($variant:ident $name:literal $class:ident $meaning:literal,)+) => {
        /// What kind of problem a finding is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $variant,)+
        }

        impl Code {
            /// Every code that this version can report.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name used in reports.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means for the evidence.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)+ }
            }

            /// The problem in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

codes! {
    RecordNotCanonical "record-not-canonical" Invalid "A line is not the canonical form of what it says.",
    RecordMalformed "record-malformed" Invalid "A line is not a record.",
    RecordTooLarge "record-too-large" Invalid "A line is longer than a record may be.",
    SignatureInvalid "signature-invalid" Invalid "A signature is not its key's over this record.",
    KeyUnknown "key-unknown" Invalid "A record is signed by a key that was not active at its place.",
    KeyWeak "key-weak" Invalid "A key has small order: anybody could sign for it.",
    LedgerMismatch "ledger-mismatch" Invalid "A record belongs to another ledger.",
    ChainPreviousMismatch "chain-previous-mismatch" Invalid "A record does not link to the record before it.",
    ChainSequenceGap "chain-sequence-gap" Invalid "A record's number is not the next one.",
    GenesisMissing "genesis-missing" Invalid "The ledger does not begin with a genesis record.",
    GenesisRepeated "genesis-repeated" Invalid "A second genesis record stands in the ledger.",
    SegmentUnexpected "segment-unexpected" Invalid "A segment file is missing, short, surplus or foreign.",
    RecordAfterClose "record-after-close" Invalid "A record follows the one that closed the ledger.",
    OpeningMismatch "opening-mismatch" Invalid "An opening does not fit the record that it stands before.",
    BlobMismatch "blob-mismatch" Invalid "A blob's content is not what its name and the record say.",
    CheckpointInvalid "checkpoint-invalid" Invalid "A checkpoint is malformed, of another origin, or not signed by the ledger's key.",
    CheckpointFork "checkpoint-fork" Invalid "A checkpoint signed by the ledger's key shows other records than the ledger.",
    LedgerReplaced "ledger-replaced" Invalid "The given checkpoint is of a ledger with another key.",
    TailTruncated "tail-truncated" Invalid "The ledger is shorter than a checkpoint says.",
    RotationInvalid "rotation-invalid" Invalid "A key record does not prove that the new key may take over.",
    RecoveryUnexplained "recovery-unexplained" Invalid "A recovery set aside something that it must not, or accepted a rollback.",
    ReferenceInvalid "reference-invalid" Invalid "A record refers to one that is not there, of another kind, or ended already.",
    VerdictMismatch "verdict-mismatch" Invalid "A stored verdict is not what the recorded facts give.",
    MatrixMismatch "matrix-mismatch" Invalid "A matrix says something else than the recorded measurements give.",
    RecordKindUnknown "record-kind-unknown" Unproven "A record's kind needs a newer verify.",
    RecordVersionUnknown "record-version-unknown" Unproven "A record's version needs a newer verify.",
    TornTail "torn-tail" Unproven "The last line is not whole, as after a crash.",
    BlobMissing "blob-missing" Unproven "A blob that a record refers to is not there.",
    CheckpointRequired "checkpoint-required" Unproven "The head is not covered by a checkpoint from outside, and one was required.",
    RunUnfinished "run-unfinished" Unproven "A run has a start and no end.",
    LimitExceeded "limit-exceeded" Disagreement "An observed figure is above the limit that was declared.",
    ControlMissingUnderStrict "control-missing-under-strict" Disagreement "A run went on although its strict policy requested a control that was not declared.",
    OutputOverCap "output-over-cap" Disagreement "More output was kept than the declared cap.",
    UserDiffers "user-differs" Disagreement "The workload's user id, seen from outside, is not what was declared.",
    HostStale "host-stale" Disagreement "A start refers to a host record of another boot.",
    FalseGuarantee "false-guarantee" Disagreement "A runtime declares a control, and an attack on it succeeded.",
    DeclaredUnmeasured "declared-unmeasured" Disagreement "A runtime declares a control that none of its checks could measure.",
    ReliesOnFalseGuarantee "relies-on-false-guarantee" Disagreement "A workload ran under a control that its own matrix shows to be a false guarantee.",
    Regression "regression" Disagreement "A later measurement contains less than an earlier one.",
    ControlNotApplied "control-not-applied" Observation "A control that was asked for is honestly not declared.",
    ClockStep "clock-step" Observation "The wall clock went backwards between two records.",
    OpeningWithheld "opening-withheld" Observation "A record's sealed values are not shown.",
    CompletenessNotEstablished "completeness-not-established" Observation "Nothing outside the ledger says how long it should be.",
    IdentityNotEstablished "identity-not-established" Observation "Nothing says whose key this is.",
    KeyReachable "key-reachable" Observation "A workload ran where it could have read the signing key.",
    Recovered "recovered" Observation "The ledger was recovered after a crash.",
    UndeclaredEscape "undeclared-escape" Observation "An attack succeeded on a control that the runtime does not declare.",
    SupersededFinding "superseded-finding" Observation "An older matrix showed a disagreement; a newer one has taken its place.",
    ViolationsUnsaid "violations-unsaid" Observation "A run where denied calls are heard says neither what was denied nor why that is not known.",
    WriteInProgress "write-in-progress" Observation "A run is still going on.",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A word that names no finding code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown finding code {0:?}")]
pub struct UnknownCode(pub String);

impl std::str::FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == text)
            .ok_or_else(|| UnknownCode(text.chars().take(80).collect()))
    }
}

/// Where in a file a finding is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, relative to the ledger folder where there is one.
    pub file: String,
    /// The line, from 1; absent when the whole file is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of problem.
    pub code: Code,
    /// What is wrong here, as a sentence for people.
    pub message: String,
    /// The record, where it is about one.
    pub sequence: Option<u64>,
    /// Where.
    pub place: Option<Place>,
    /// What should have been there.
    pub expected: Option<String>,
    /// What was there.
    pub found: Option<String>,
    /// What to do about it.
    pub help: Option<String>,
    /// How many problems of the same cause this one stands for, itself included.
    pub count: u64,
}

impl Finding {
    /// A finding with nothing but a message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            sequence: None,
            place: None,
            expected: None,
            found: None,
            help: None,
            count: 1,
        }
    }

    /// About this record.
    #[must_use]
    pub fn at(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// At this place of a file.
    #[must_use]
    pub fn in_place(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// What should have been there, and what was.
    #[must_use]
    pub fn versus(mut self, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string());
        self.found = Some(found.to_string());
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for code in Code::ALL {
            assert_eq!(code.as_str().parse::<Code>(), Ok(*code));
        }
        assert!("nonsense".parse::<Code>().is_err());
    }
}
