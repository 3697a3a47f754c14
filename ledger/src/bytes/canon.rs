//! One meaning per line: canonical JSON (RFC 8785, JCS) and its limits.
//!
//! A line counts only if `line == JCS(parse(line))` byte for byte. serde_json alone keeps the last of
//! duplicate keys and serde_jcs rounds integers above 2^53, so numbers are restricted to integers
//! within ±(2^53-1), and typed structs declare their fields in JCS order: their compact serialisation
//! *is* the canonical form (a property test holds it against serde_jcs).

use std::fmt;
use std::io;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess};
use serde::ser::{Serialize, Serializer};

/// Longest record or opening line in bytes, without its newline.
pub const MAX_LINE_BYTES: usize = 65_535;
/// Room for most values.
const USUAL_BYTES: usize = 2048;
/// Deepest nesting of objects and arrays in a line.
pub const MAX_DEPTH: usize = 16;
/// Largest integer that every JSON reader keeps exactly: 2^53 - 1.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// An unsigned integer that every JSON reader keeps exactly (at most 2^53 - 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct U53(u64);

impl U53 {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The largest value, 2^53 - 1.
    pub const MAX: Self = Self(MAX_INTEGER);

    /// `None` above 2^53 - 1.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        if value <= MAX_INTEGER {
            Some(Self(value))
        } else {
            None
        }
    }

    /// The value, or the largest that fits. For counters that cannot really get there.
    #[must_use]
    pub const fn saturating(value: u64) -> Self {
        if value <= MAX_INTEGER {
            Self(value)
        } else {
            Self::MAX
        }
    }

    /// The value.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl From<u32> for U53 {
    fn from(value: u32) -> Self {
        Self(u64::from(value))
    }
}

impl fmt::Display for U53 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for U53 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for U53 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(deserializer)?;
        Self::new(value).ok_or_else(|| {
            de::Error::invalid_value(de::Unexpected::Unsigned(value), &"an integer up to 2^53-1")
        })
    }
}

/// Why a value could not be written as one line.
#[derive(Debug, thiserror::Error)]
pub enum WriteLineError {
    /// Serialisation itself failed; only a map with keys that are not text can do that.
    #[error("cannot write the value as JSON")]
    Json(#[from] serde_json::Error),
    /// The line would be longer than [`MAX_LINE_BYTES`].
    #[error("the line would be {0} bytes, at most {MAX_LINE_BYTES} are allowed")]
    TooLong(usize),
    /// What was to be written would be refused when read again.
    #[error("the line would not be read again")]
    Form(#[from] FormError),
}

/// The canonical bytes of a typed value whose structs declare their fields in JCS order.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn to_canonical<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, WriteLineError> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    serde_json::to_writer(&mut bytes, value)?;
    Ok(bytes)
}

/// Whether `bytes` are what [`to_canonical`] writes for the value, byte for byte, and nested no deeper than
/// `depth`. Stops at the first byte that differs and keeps nothing.
#[must_use]
pub fn is_canonical_of<T: Serialize + ?Sized>(value: &T, bytes: &[u8], depth: usize) -> bool {
    let mut serializer =
        serde_json::Serializer::with_formatter(Compared(bytes), Levels { left: depth });
    value.serialize(&mut serializer).is_ok() && serializer.into_inner().0.is_empty()
}

/// Takes only what stands in these bytes.
struct Compared<'a>(&'a [u8]);

impl io::Write for Compared<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .strip_prefix(bytes)
            .ok_or(io::ErrorKind::InvalidData)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compact JSON of so many levels at most.
struct Levels {
    left: usize,
}

impl Levels {
    fn enter(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::InvalidData)?;
        Ok(())
    }
}

impl serde_json::ser::Formatter for Levels {
    #[inline]
    fn begin_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter()?;
        writer.write_all(b"[")
    }

    #[inline]
    fn end_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.left += 1;
        writer.write_all(b"]")
    }

    #[inline]
    fn begin_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter()?;
        writer.write_all(b"{")
    }

    #[inline]
    fn end_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.left += 1;
        writer.write_all(b"}")
    }
}

/// As [`to_canonical`], no longer than a line may be.
///
/// # Errors
/// The line would be too long, or cannot be written as JSON.
pub fn to_short<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, WriteLineError> {
    let line = to_canonical(value)?;
    if line.len() > MAX_LINE_BYTES {
        return Err(WriteLineError::TooLong(line.len()));
    }
    Ok(line)
}

/// As [`to_short`], held to every limit of a line: what would be refused at reading is refused here.
///
/// # Errors
/// The line would be too long, too deep or hold a number that is not an integer within ±(2^53-1).
pub fn to_line<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, WriteLineError> {
    let line = to_short(value)?;
    let canonical = canonical_form(&line)?;
    debug_assert!(
        canonical == line,
        "fields out of JCS order: {}",
        String::from_utf8_lossy(&line)
    );
    Ok(line)
}

/// Why bytes are not one JSON value of the allowed form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// Not UTF-8, from this byte on.
    #[error("not UTF-8 from byte {0}")]
    Utf8(usize),
    /// Not exactly one JSON value.
    #[error("not one JSON value: {0}")]
    Json(String),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH}")]
    Depth,
    /// A number that is not an integer within ±(2^53-1).
    #[error("{0} is not an integer within \u{b1}(2^53-1)")]
    Number(String),
}

/// The canonical form of one JSON value: what the bytes would have to be.
///
/// # Errors
/// The bytes are not one JSON value of the allowed form (TRUST.md §2 (b)).
pub fn canonical_form(bytes: &[u8]) -> Result<Vec<u8>, FormError> {
    let text = std::str::from_utf8(bytes).map_err(|error| FormError::Utf8(error.valid_up_to()))?;
    let refusal = std::cell::RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Strict {
        depth: 0,
        refusal: &refusal,
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value));
    if let Some(refusal) = refusal.into_inner() {
        return Err(refusal);
    }
    let value = value.map_err(|error| FormError::Json(error.to_string()))?;
    serde_jcs::to_vec(&value).map_err(|error| FormError::Json(error.to_string()))
}

/// Builds a `Value` of integers, text, booleans, null, lists and maps, and remembers why it could not.
#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    refusal: &'a std::cell::RefCell<Option<FormError>>,
}

impl Strict<'_> {
    fn refuse<E: de::Error>(self, why: FormError) -> E {
        let error = E::custom(&why);
        self.refusal.borrow_mut().get_or_insert(why);
        error
    }

    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(self.refuse(FormError::Depth));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = serde_json::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for Strict<'_> {
    type Value = serde_json::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        if value.unsigned_abs() > MAX_INTEGER {
            return Err(self.refuse(FormError::Number(value.to_string())));
        }
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        if value > MAX_INTEGER {
            return Err(self.refuse(FormError::Number(value.to_string())));
        }
        Ok(value.into())
    }

    // `1.0` and `1e2` have integer values (RFC 8785 numbers are doubles) but are not canonical.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        if value.fract() != 0.0 || value.abs() > MAX_INTEGER as f64 {
            return Err(self.refuse(FormError::Number(value.to_string())));
        }
        #[allow(clippy::cast_possible_truncation, reason = "bounded by 2^53 above")]
        Ok((value as i64).into())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(serde_json::Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = serde_json::Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            map.insert(name, fields.next_value_seed(inner)?);
        }
        Ok(map.into())
    }
}

/// Text form of bytes that need not be UTF-8 (argv, paths): printable text stays, `\` and every other
/// byte become `\xhh`.
#[must_use]
pub fn escape_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push_str("\\x5c");
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str("\\x");
            text.push_str(&super::hash::to_hex(&[*byte]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_two_readers_would_read_differently() {
        assert_eq!(canonical_form(b"{\"a\":1,\"a\":2}").unwrap(), b"{\"a\":2}");
        assert_eq!(
            canonical_form(b" {\"b\":1.0, \"a\":1e2}\r").unwrap(),
            b"{\"a\":100,\"b\":1}"
        );
        assert_eq!(
            canonical_form(b"9007199254740991").unwrap(),
            b"9007199254740991"
        );
        assert!(matches!(
            canonical_form(b"9007199254740992"),
            Err(FormError::Number(_))
        ));
        assert!(matches!(
            canonical_form(b"-9007199254740993"),
            Err(FormError::Number(_))
        ));
        assert!(matches!(canonical_form(b"0.5"), Err(FormError::Number(_))));
        assert!(matches!(canonical_form(b"1e400"), Err(FormError::Json(_))));
        assert!(matches!(canonical_form(b"{} {}"), Err(FormError::Json(_))));
        assert!(matches!(canonical_form(b""), Err(FormError::Json(_))));
        assert!(matches!(
            canonical_form(b"\"\xff\""),
            Err(FormError::Utf8(1))
        ));
    }

    #[test]
    fn depth_is_counted_in_containers() {
        let nested = |n: usize| [vec![b'['; n], vec![b']'; n]].concat();
        assert!(canonical_form(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(
            canonical_form(&nested(MAX_DEPTH + 1)),
            Err(FormError::Depth)
        );
        assert_eq!(canonical_form(&nested(100)), Err(FormError::Depth));
    }

    #[test]
    fn comparing_is_writing_and_comparing_within_the_depth() {
        let value = serde_json::json!({"a": [[], {"b": "c\n"}], "d": null});
        let bytes = to_canonical(&value).unwrap();
        assert!(is_canonical_of(&value, &bytes, 3));
        assert!(!is_canonical_of(&value, &bytes, 2));
        assert!(!is_canonical_of(&value, &bytes[..bytes.len() - 1], 3));
        assert!(!is_canonical_of(&value, &[&bytes[..], b" "].concat(), 3));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(!is_canonical_of(&value, &other, 3), "byte {at}");
        }
        let nested = |n: usize| -> serde_json::Value {
            serde_json::from_str(&format!("{}{}", "[".repeat(n), "]".repeat(n))).unwrap()
        };
        for n in [1, MAX_DEPTH, MAX_DEPTH + 1] {
            let bytes = to_canonical(&nested(n)).unwrap();
            assert_eq!(
                is_canonical_of(&nested(n), &bytes, MAX_DEPTH),
                canonical_form(&bytes).is_ok()
            );
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_escaped_reversibly() {
        assert_eq!(escape_bytes(b"a\\b\xffc"), "a\\x5cb\\xffc");
        assert_eq!(escape_bytes("día".as_bytes()), "día");
    }

    proptest! {
        #[test]
        fn strings_are_written_as_jcs_writes_them(text in any::<String>()) {
            prop_assert_eq!(to_canonical(&text).unwrap(), serde_jcs::to_vec(&text).unwrap());
        }

        #[test]
        fn any_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(canonical) = canonical_form(&bytes) {
                prop_assert_eq!(canonical_form(&canonical), Ok(canonical.clone()));
            }
        }
    }
}
