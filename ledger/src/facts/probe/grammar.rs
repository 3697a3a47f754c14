//! The line itself: the order of its fields, and what is wrong with a line that is not exactly one.

use std::fmt;
use std::str::FromStr;

use super::fields::quoted;
use super::{Field, MAX_PROBE_LINE_BYTES, ProbeLine, ProbeValueError};
use crate::facts::control::Control;

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
