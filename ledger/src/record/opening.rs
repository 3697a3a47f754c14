//! Openings: the erasable secret part of a record.

use std::borrow::Cow;

use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::line::said;
use super::{Body, Record};
use crate::bytes::canon::{self, MAX_LINE_BYTES, U53, WriteLineError};
use crate::bytes::hash::{Hash, HexError, SALT_BYTES, from_hex, to_hex};
use crate::bytes::key::{PrivateKeyError, random_bytes};
use crate::facts::execution::Output;
use crate::facts::list::{List, Sealable};

/// First bytes of an opening line.
pub const OPENING_PREFIX: &[u8] = br#"{"open":"#;

/// The erasable secret part of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opening {
    /// The values.
    pub open: Opened,
    /// The record that commits to them.
    pub sequence: U53,
}

/// Values that a record may commit to instead of showing them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opened {
    /// The workload's arguments (`start`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Salted<List<String>>>,
    /// The runtime's full command line (`start`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Salted<List<String>>>,
    /// Standard error (`execution`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Salted<Output>>,
    /// Standard output (`execution`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Salted<Output>>,
}

impl Opened {
    /// Whether nothing is opened.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.argv.is_none()
            && self.launch.is_none()
            && self.stderr.is_none()
            && self.stdout.is_none()
    }
}

/// A value and the salt of its commitment; written as `["<32 hex>",value]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Salted<T>(pub Salt, pub T);

/// 16 random bytes that keep a commitment from being guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub [u8; SALT_BYTES]);

impl Serialize for Salt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Salt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(deserializer)?;
        from_hex(&text)
            .map(Self)
            .map_err(|error: HexError| de::Error::custom(error))
    }
}

/// Why a value could not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The system gave no random bytes.
    #[error(transparent)]
    Random(#[from] PrivateKeyError),
    /// The value cannot be written.
    #[error(transparent)]
    Write(#[from] WriteLineError),
}

impl<T: Serialize> Salted<T> {
    /// Draws a salt for a value.
    ///
    /// # Errors
    /// The system gave no random bytes.
    pub fn new(value: T) -> Result<Self, SealError> {
        Ok(Self(Salt(random_bytes()?), value))
    }

    /// The commitment that the record holds: `SHA-256(0x02 || salt || JCS(value))`.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn commitment(&self) -> Result<Hash, WriteLineError> {
        Ok(Hash::sealed(&self.0.0, &canon::to_canonical(&self.1)?))
    }

    /// As it stands in the record.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn sealed(&self) -> Result<Sealable<T>, WriteLineError> {
        self.commitment().map(Sealable::Sealed)
    }
}

/// Why an opening line does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpeningProblem {
    /// Not a canonical line, or an unknown name.
    #[error("not an opening: {0}")]
    Form(String),
    /// It opens nothing.
    #[error("it opens nothing")]
    Empty,
    /// A value contradicts itself.
    #[error("{name}: {why}")]
    Disorder {
        /// Which value.
        name: &'static str,
        /// How.
        why: &'static str,
    },
    /// It names another record than the one that follows.
    #[error("it names record {named}, the record that follows is {follows}")]
    Sequence {
        /// The sequence in the opening.
        named: u64,
        /// The sequence of the next record.
        follows: u64,
    },
    /// The record does not commit to a value of that name.
    #[error("the record does not seal {0}")]
    NotSealed(&'static str),
    /// The value is not the one that the record commits to.
    #[error("{0} is not the value that the record commits to")]
    Value(&'static str),
}

impl Opening {
    /// Writes the line, without the newline. Whoever appends it reads it first ([`Self::parse`]).
    ///
    /// # Errors
    /// The values do not fit a line.
    pub fn to_line(&self) -> Result<Vec<u8>, WriteLineError> {
        canon::to_short(self)
    }

    /// Reads one line strictly.
    ///
    /// # Errors
    /// Not the one form of an opening, an empty one, or one with a value that contradicts itself.
    pub fn parse(line: &[u8]) -> Result<Self, OpeningProblem> {
        let form = |why: String| OpeningProblem::Form(why);
        if line.len() > MAX_LINE_BYTES {
            return Err(form(format!("the line has {} bytes", line.len())));
        }
        let opening = match Self::read(line) {
            Some(opening) => opening,
            None => Self::classify(line).map_err(form)?,
        };
        if opening.open.is_empty() {
            return Err(OpeningProblem::Empty);
        }
        for (name, output) in [
            ("stderr", &opening.open.stderr),
            ("stdout", &opening.open.stdout),
        ] {
            if let Some(why) = output
                .as_ref()
                .and_then(|Salted(_, value)| value.disorder())
            {
                return Err(OpeningProblem::Disorder { name, why });
            }
        }
        Ok(opening)
    }

    /// The fast path: what is written for what the line says is the line.
    fn read(line: &[u8]) -> Option<Self> {
        let opening: Self = serde_json::from_str(std::str::from_utf8(line).ok()?).ok()?;
        canon::is_canonical_of(&opening, line, canon::MAX_DEPTH).then_some(opening)
    }

    /// The slow path: something differs, say what.
    fn classify(line: &[u8]) -> Result<Self, String> {
        let canonical = canon::canonical_form(line).map_err(|why| why.to_string())?;
        if canonical != line {
            return Err("the line differs from its canonical form".to_owned());
        }
        let opening: Self = serde_json::from_slice(line).map_err(|why| said(&why))?;
        if canon::to_canonical(&opening).is_ok_and(|again| again != line) {
            let why = "a value that is absent is written as null, or one in a second form";
            return Err(why.to_owned());
        }
        Ok(opening)
    }

    /// Holds every opened value against the record that follows.
    ///
    /// # Errors
    /// The first value that does not fit.
    pub fn fits(&self, record: &Record) -> Result<(), OpeningProblem> {
        let (named, follows) = (self.sequence.value(), record.sequence.value());
        if named != follows {
            return Err(OpeningProblem::Sequence { named, follows });
        }
        let (start, execution) = match &record.body {
            Body::Start(start) => (Some(start), None),
            Body::Execution(execution) => (None, Some(execution)),
            _ => (None, None),
        };
        check(
            "argv",
            &self.open.argv,
            start.map(|start| &start.workload.argv),
        )?;
        check(
            "launch",
            &self.open.launch,
            start.and_then(|start| start.runtime.launch.as_ref()),
        )?;
        check(
            "stderr",
            &self.open.stderr,
            execution.and_then(|end| end.result.stderr.as_ref()),
        )?;
        check(
            "stdout",
            &self.open.stdout,
            execution.and_then(|end| end.result.stdout.as_ref()),
        )
    }
}

fn check<T: Serialize>(
    name: &'static str,
    opened: &Option<Salted<T>>,
    recorded: Option<&Sealable<T>>,
) -> Result<(), OpeningProblem> {
    let Some(opened) = opened else { return Ok(()) };
    let Some(Sealable::Sealed(commitment)) = recorded else {
        return Err(OpeningProblem::NotSealed(name));
    };
    match opened.commitment() {
        Ok(found) if found == *commitment => Ok(()),
        _ => Err(OpeningProblem::Value(name)),
    }
}

impl Record {
    /// Names of the values that this record only commits to.
    #[must_use]
    pub fn sealed_names(&self) -> Vec<&'static str> {
        fn is_sealed<T>(value: &Sealable<T>) -> bool {
            matches!(value, Sealable::Sealed(_))
        }
        let mut names = Vec::new();
        match &self.body {
            Body::Start(start) => {
                names.extend(is_sealed(&start.workload.argv).then_some("argv"));
                names.extend(
                    start
                        .runtime
                        .launch
                        .as_ref()
                        .is_some_and(is_sealed)
                        .then_some("launch"),
                );
            }
            Body::Execution(end) => {
                names.extend(
                    end.result
                        .stderr
                        .as_ref()
                        .is_some_and(is_sealed)
                        .then_some("stderr"),
                );
                names.extend(
                    end.result
                        .stdout
                        .as_ref()
                        .is_some_and(is_sealed)
                        .then_some("stdout"),
                );
            }
            _ => {}
        }
        names
    }
}
