//! The line in which a probe says what one check saw (PROBES.md §1 rule 9).
//!
//! ```text
//! probe=network-tcp4 dimension=network check=tcp4 result=contained errno=ENETUNREACH twin=ok nonce=5f0c… detail=10.0.2.2:4711
//! ```
//!
//! One line a check, without its newline; fields in exactly this order, one space between two, no field
//! twice. A probe of the suite writes all eight; a third party may leave out `check`, `errno`, `twin`,
//! `nonce` and `detail`, each for itself ([`ProbeLine::absent`] says what is missing). `detail` is last and
//! takes the rest of the line, spaces and `=` included.
//!
//! | field | value |
//! |---|---|
//! | `probe`, `check` | [`ProbeName`]: 1 to 64 of `a-z 0-9 . _ -`, a letter or digit first |
//! | `dimension` | the name of a [`Control`] |
//! | `result` | `contained escaped error` |
//! | `errno` | `none`, or the name of an error or a signal: `E…`, `SIG…`, 2 to 32 of `A-Z 0-9` |
//! | `twin` | `ok failed none` |
//! | `nonce` | 8 to 64 bytes in lower-case hexadecimal digits |
//! | `detail` | 1 to 1,024 bytes of UTF-8 without control characters |
//!
//! A line is what a hostile program printed. Reading is total and strict: what is accepted is what writing
//! it again gives, byte for byte, and every refusal names the byte, what stands there and what was expected.
//! What a line claims is not judged here: `result=contained` is a claim, the verdict is made from both sides.

use std::fmt;
use std::str::FromStr;

use super::control::Control;
use crate::bytes::hash::to_hex;

/// Longest line that is read, in bytes, without its newline. No line of valid fields is longer.
pub const MAX_PROBE_LINE_BYTES: usize = 2_048;
/// Longest `probe` or `check`, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Longest name of an error or a signal, in bytes.
pub const MAX_ERRNO_BYTES: usize = 32;
/// Fewest and most bytes of a nonce; it is written with two digits for each.
pub const NONCE_BYTES: std::ops::RangeInclusive<usize> = 8..=64;
/// Longest `detail`, in bytes.
pub const MAX_DETAIL_BYTES: usize = 1_024;

/// What one check of a probe says that it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeLine {
    /// The probe.
    pub probe: ProbeName,
    /// The control that it attacks.
    pub dimension: Control,
    /// Which of the control's checks; with the dimension the check's id ([`ProbeLine::check_id`]).
    pub check: Option<ProbeName>,
    /// What the probe says came of it.
    pub result: ProbeResult,
    /// How the attack failed.
    pub errno: Option<Errno>,
    /// Whether an allowed operation of the same kind succeeded.
    pub twin: Option<Twin>,
    /// The secret of this run.
    pub nonce: Option<Nonce>,
    /// More about it, for people.
    pub detail: Option<Detail>,
}

macro_rules! words {
    ($(#[$doc:meta])+ $kind:ident $expected:literal { $($(#[$meaning:meta])+ $variant:ident $word:literal,)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind { $($(#[$meaning])+ $variant,)+ }

        impl $kind {
            /// Every word, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word in the line.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

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

words! {
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

words! {
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

words! {
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
    fn new(found: &str, expected: &'static str) -> Self {
        let found = quoted(found);
        Self { found, expected }
    }
}

/// The first characters of what stands there, in quotes, with everything written out that is not printable.
fn quoted(text: &str) -> String {
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

/// Why bytes are not a probe line. Bytes are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseProbeLineError {
    /// Longer than [`MAX_PROBE_LINE_BYTES`]; not read.
    #[error("found a line of {0} bytes, expected at most {MAX_PROBE_LINE_BYTES}")]
    TooLong(usize),
    /// Not UTF-8.
    #[error("byte {at}: found a byte that is not UTF-8, expected text")]
    NotText {
        /// Where it stops being UTF-8.
        at: usize,
    },
    /// A control character, a line end among them.
    #[error("byte {at}: found {found:?}, expected no control character")]
    Control {
        /// Where.
        at: usize,
        /// Which.
        found: char,
    },
    /// A word that is no `name=value` of a known name.
    #[error("byte {at}: found {found}, expected {expected}", expected = list(.expected))]
    Word {
        /// Where the word begins.
        at: usize,
        /// The word, shortened and in quotes, or that the line ends.
        found: String,
        /// The fields that may stand there; none where the line must end.
        expected: Vec<Field>,
    },
    /// A field that stood before.
    #[error("byte {at}: found {field} again, expected it once")]
    Repeated {
        /// Where it begins for the second time.
        at: usize,
        /// The field.
        field: Field,
    },
    /// A known field in a place that is not its own.
    #[error("byte {at}: found {found}, expected {expected}", expected = list(.expected))]
    Place {
        /// Where it begins.
        at: usize,
        /// The field.
        found: Field,
        /// The fields that may stand there.
        expected: Vec<Field>,
    },
    /// A value that its field cannot have.
    #[error("byte {at}: {field}: {source}")]
    Value {
        /// Where the value begins.
        at: usize,
        /// The field.
        field: Field,
        /// What stands there, and what would have to.
        source: ProbeValueError,
    },
}

fn list(fields: &[Field]) -> String {
    let names: Vec<_> = fields.iter().map(|field| format!("{field}=…")).collect();
    if names.is_empty() {
        return "the end of the line".to_owned();
    }
    names.join(" or ")
}

impl ProbeLine {
    /// Reads one line, without its newline.
    ///
    /// # Errors
    /// The bytes are not exactly what writing a line gives: the first place where they differ.
    pub fn parse(line: &[u8]) -> Result<Self, ParseProbeLineError> {
        if line.len() > MAX_PROBE_LINE_BYTES {
            return Err(ParseProbeLineError::TooLong(line.len()));
        }
        let text = std::str::from_utf8(line).map_err(|error| ParseProbeLineError::NotText {
            at: error.valid_up_to(),
        })?;
        if let Some((at, found)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(ParseProbeLineError::Control { at, found });
        }
        let mut words = Words {
            text,
            at: 0,
            next: 0,
        };
        let parsed = Self {
            probe: words.required(Field::Probe)?,
            dimension: words.dimension()?,
            check: words.optional(Field::Check)?,
            result: words.required(Field::Result)?,
            errno: words.optional(Field::Errno)?,
            twin: words.optional(Field::Twin)?,
            nonce: words.optional(Field::Nonce)?,
            detail: words.optional(Field::Detail)?,
        };
        match words.rest() {
            Some(_) => Err(words.refusal()),
            None => Ok(parsed),
        }
    }

    /// `dimension/check`, such as `network/tcp4`; `None` when the line names no check.
    #[must_use]
    pub fn check_id(&self) -> Option<String> {
        let check = self.check.as_ref()?;
        Some(format!("{}/{check}", self.dimension))
    }

    /// The fields that the line leaves out; none in a line of the suite's own probes.
    #[must_use]
    pub fn absent(&self) -> Vec<Field> {
        [
            (Field::Check, self.check.is_none()),
            (Field::Errno, self.errno.is_none()),
            (Field::Twin, self.twin.is_none()),
            (Field::Nonce, self.nonce.is_none()),
            (Field::Detail, self.detail.is_none()),
        ]
        .into_iter()
        .filter_map(|(field, absent)| absent.then_some(field))
        .collect()
    }
}

impl FromStr for ProbeLine {
    type Err = ParseProbeLineError;

    fn from_str(line: &str) -> Result<Self, ParseProbeLineError> {
        Self::parse(line.as_bytes())
    }
}

impl fmt::Display for ProbeLine {
    /// The one form of the line, without a newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "probe={} dimension={}", self.probe, self.dimension)?;
        if let Some(check) = &self.check {
            write!(f, " check={check}")?;
        }
        write!(f, " result={}", self.result)?;
        if let Some(errno) = &self.errno {
            write!(f, " errno={errno}")?;
        }
        if let Some(twin) = &self.twin {
            write!(f, " twin={twin}")?;
        }
        if let Some(nonce) = &self.nonce {
            write!(f, " nonce={nonce}")?;
        }
        if let Some(detail) = &self.detail {
            write!(f, " detail={detail}")?;
        }
        Ok(())
    }
}

/// What is left of a line.
struct Words<'a> {
    text: &'a str,
    /// Where the next word begins; past the end once the last one is taken.
    at: usize,
    /// How many of [`Field::ALL`] cannot stand here any more.
    next: usize,
}

impl<'a> Words<'a> {
    /// What is left, `None` after the last word.
    fn rest(&self) -> Option<&'a str> {
        self.text.get(self.at..)
    }

    /// The fields that may stand here: up to the next one that every line has.
    fn expected(&self) -> Vec<Field> {
        let left = Field::ALL.get(self.next..).unwrap_or_default();
        let optional = left.iter().take_while(|field| !field.is_required()).count();
        left.iter().take(optional + 1).copied().collect()
    }

    /// What is wrong with the word that stands here.
    fn refusal(&self) -> ParseProbeLineError {
        let (at, expected) = (self.at.min(self.text.len()), self.expected());
        let Some(rest) = self.rest() else {
            let found = "the end of the line".to_owned();
            return ParseProbeLineError::Word {
                at,
                found,
                expected,
            };
        };
        let word = rest.split(' ').next().unwrap_or_default();
        let name = word.split_once('=').map(|(name, _)| name);
        let place = Field::ALL
            .iter()
            .position(|field| Some(field.as_str()) == name);
        match place.and_then(|place| Some((place, *Field::ALL.get(place)?))) {
            Some((place, field)) if place < self.next && self.stood_before(field) => {
                ParseProbeLineError::Repeated { at, field }
            }
            Some((_, found)) => ParseProbeLineError::Place {
                at,
                found,
                expected,
            },
            None => {
                let found = quoted(word);
                ParseProbeLineError::Word {
                    at,
                    found,
                    expected,
                }
            }
        }
    }

    fn stood_before(&self, field: Field) -> bool {
        let before = self.text.get(..self.at).unwrap_or_default();
        let mut words = before.split(' ').filter_map(|word| word.split_once('='));
        words.any(|(name, _)| name == field.as_str())
    }

    /// Takes the value of `field` if it stands here, and where it begins.
    fn take(&mut self, field: Field) -> Option<(usize, &'a str)> {
        let named = self.rest()?.strip_prefix(field.as_str())?;
        let value = named.strip_prefix('=')?;
        let value = match field {
            Field::Detail => value,
            _ => value.split(' ').next().unwrap_or_default(),
        };
        let begins = self.at + field.as_str().len() + 1;
        self.at = begins + value.len() + 1;
        Some((begins, value))
    }

    fn optional<T>(&mut self, field: Field) -> Result<Option<T>, ParseProbeLineError>
    where
        T: FromStr<Err = ProbeValueError>,
    {
        let taken = self.take(field);
        if taken.is_some() {
            self.pass(field);
        }
        taken
            .map(|(at, value)| {
                let refused = |source| ParseProbeLineError::Value { at, field, source };
                value.parse().map_err(refused)
            })
            .transpose()
    }

    fn required<T>(&mut self, field: Field) -> Result<T, ParseProbeLineError>
    where
        T: FromStr<Err = ProbeValueError>,
    {
        match self.optional(field)? {
            Some(value) => Ok(value),
            None => Err(self.refusal()),
        }
    }

    fn dimension(&mut self) -> Result<Control, ParseProbeLineError> {
        self.required(Field::Dimension)
            .map(|Dimension(control)| control)
    }

    fn pass(&mut self, field: Field) {
        let place = Field::ALL.iter().position(|other| *other == field);
        self.next = place.map_or(self.next, |place| place + 1);
    }
}

/// A control, with this line's error.
struct Dimension(Control);

impl FromStr for Dimension {
    type Err = ProbeValueError;

    fn from_str(text: &str) -> Result<Self, ProbeValueError> {
        const EXPECTED: &str = "the name of a control, such as network";
        let control = text
            .parse()
            .map_err(|_| ProbeValueError::new(text, EXPECTED))?;
        Ok(Self(control))
    }
}

#[cfg(test)]
mod tests;
