//! The fields of a probe line: what each may say.

use std::fmt;
use std::str::FromStr;

use super::{MAX_DETAIL_BYTES, MAX_ERRNO_BYTES, MAX_NAME_BYTES, NONCE_BYTES};
use crate::bytes::hash::to_hex;
use crate::facts::words::words;

macro_rules! line_words {
    ($(#[$doc:meta])+ $kind:ident $expected:literal { $($(#[$meaning:meta])+ $variant:ident $word:literal,)+ }) => {
        words! { $(#[$doc])+ $kind { $($(#[$meaning])+ $variant $word,)+ } }

        impl FromStr for $kind {
            type Err = ProbeValueError;

            fn from_str(text: &str) -> Result<Self, ProbeValueError> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|word| word.as_str() == text)
                    .ok_or_else(|| ProbeValueError::new(text, $expected))
            }
        }
    };
}

line_words! {
    /// What a probe says came of its attack.
    ProbeResult "one of contained, escaped, error" {
        /// It was refused.
        Contained "contained",
        /// It succeeded.
        Escaped "escaped",
        /// It could not be tried.
        Error "error",
    }
}

line_words! {
    /// What became of the twin: an allowed operation of the same kind as the attack.
    Twin "one of ok, failed, none" {
        /// It succeeded, so that the refusal means something.
        Ok "ok",
        /// It failed as well.
        Failed "failed",
        /// The policy allows none.
        None "none",
    }
}

line_words! {
    /// A field of the line, in the order in which fields stand.
    Field "a field" {
        /// `probe`
        Probe "probe",
        /// `dimension`
        Dimension "dimension",
        /// `check`
        Check "check",
        /// `result`
        Result "result",
        /// `errno`
        Errno "errno",
        /// `twin`
        Twin "twin",
        /// `nonce`
        Nonce "nonce",
        /// `detail`
        Detail "detail",
    }
}

impl Field {
    /// Whether every line has it, that of a third party too.
    #[must_use]
    pub const fn is_required(self) -> bool {
        matches!(self, Self::Probe | Self::Dimension | Self::Result)
    }
}

/// A value that its field cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found {found}, expected {expected}")]
pub struct ProbeValueError {
    found: String,
    expected: &'static str,
}

impl ProbeValueError {
    pub(super) fn new(found: &str, expected: &'static str) -> Self {
        let found = quoted(found);
        Self { found, expected }
    }
}

/// The first characters of what stands there, in quotes, with everything written out that is not printable.
pub(super) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{more}")
}

/// Name of a probe or of a check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeName(String);

impl ProbeName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProbeName {
    type Err = ProbeValueError;

    fn from_str(text: &str) -> Result<Self, ProbeValueError> {
        let simple = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = (1..=MAX_NAME_BYTES).contains(&text.len())
            && text.bytes().next().is_some_and(simple)
            && text
                .bytes()
                .all(|byte| simple(byte) || b"._-".contains(&byte));
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            const EXPECTED: &str = "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit";
            Err(ProbeValueError::new(text, EXPECTED))
        }
    }
}

impl fmt::Display for ProbeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How an attack failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Errno {
    /// It did not fail, or by no error of the kernel.
    None,
    /// By this error or signal.
    Name(ErrnoName),
}

impl FromStr for Errno {
    type Err = ProbeValueError;

    fn from_str(text: &str) -> Result<Self, ProbeValueError> {
        if text == "none" {
            Ok(Self::None)
        } else {
            text.parse().map(Self::Name)
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// Symbolic name of an error (`EPERM`, errno(3)) or of a signal (`SIGSYS`, signal(7)).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrnoName(String);

impl ErrnoName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ErrnoName {
    type Err = ProbeValueError;

    fn from_str(text: &str) -> Result<Self, ProbeValueError> {
        let after = text.strip_prefix("SIG").or_else(|| text.strip_prefix('E'));
        let fits = text.len() <= MAX_ERRNO_BYTES
            && after.is_some_and(|rest| !rest.is_empty())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            const EXPECTED: &str = "none, or a name such as EPERM or SIGSYS";
            Err(ProbeValueError::new(text, EXPECTED))
        }
    }
}

impl fmt::Display for ErrnoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The secret that binds a line to its run: whoever writes it was reached by the runner in this run.
#[derive(Clone, PartialEq, Eq)]
pub struct Nonce(Vec<u8>);

impl Nonce {
    /// `None` for fewer or more bytes than [`NONCE_BYTES`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        NONCE_BYTES
            .contains(&bytes.len())
            .then(|| Self(bytes.to_vec()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Nonce {
    type Err = ProbeValueError;

    fn from_str(text: &str) -> Result<Self, ProbeValueError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, odd) = text.as_bytes().as_chunks::<2>();
        let bytes = pairs
            .iter()
            .take(NONCE_BYTES.end() + 1)
            .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
            .collect::<Option<Vec<u8>>>();
        bytes
            .filter(|_| odd.is_empty())
            .and_then(|bytes| Self::new(&bytes))
            .ok_or_else(|| {
                const EXPECTED: &str = "8 to 64 bytes in lower-case hexadecimal digits";
                ProbeValueError::new(text, EXPECTED)
            })
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({self})")
    }
}

/// What a probe adds for people: the rest of the line. It is a stranger's text; show it cleaned
/// ([`crate::bytes::text::clean`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail(String);

impl Detail {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Detail {
    type Err = ProbeValueError;

    fn from_str(text: &str) -> Result<Self, ProbeValueError> {
        let fits = (1..=MAX_DETAIL_BYTES).contains(&text.len()) && !text.contains(char::is_control);
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            const EXPECTED: &str = "1 to 1024 bytes of text without control characters";
            Err(ProbeValueError::new(text, EXPECTED))
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! serde_by_text {
    ($($kind:ident)+) => { $(
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+ };
}

serde_by_text! { Errno Nonce ProbeName }
