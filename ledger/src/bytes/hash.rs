//! SHA-256 values and the three ways this project makes them.
//!
//! | use | bytes hashed | source |
//! |---|---|---|
//! | record hash, Merkle leaf | `0x00 \|\| line` | RFC 6962 §2.1 |
//! | Merkle node | `0x01 \|\| left \|\| right` | RFC 6962 §2.1 |
//! | sealed value | `0x02 \|\| salt \|\| JCS(value)` | this project |
//! | blob, file, key id | the bytes alone | FIPS 180-4 |

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Length of a hash in bytes.
pub const HASH_BYTES: usize = 32;
/// Length of a salt in bytes.
pub const SALT_BYTES: usize = 16;

/// A SHA-256 value. Its only text form is 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; HASH_BYTES]);

impl Hash {
    /// `previous` of the first record: 32 zero bytes.
    pub const ZERO: Self = Self([0; HASH_BYTES]);

    /// Takes 32 bytes that are a hash already.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; HASH_BYTES]) -> Self {
        Self(bytes)
    }

    /// SHA-256 of `bytes` alone (blobs, programs, public keys).
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The RFC 6962 leaf hash of a record line without its newline: the record's name and chain link.
    #[must_use]
    pub fn leaf(line: &[u8]) -> Self {
        Self::prefixed(0x00, &[line])
    }

    /// The RFC 6962 hash of an inner node.
    #[must_use]
    pub fn node(left: &Self, right: &Self) -> Self {
        Self::prefixed(0x01, &[&left.0, &right.0])
    }

    /// The commitment that stands in a record for a sealed value.
    #[must_use]
    pub fn sealed(salt: &[u8; SALT_BYTES], canonical_value: &[u8]) -> Self {
        Self::prefixed(0x02, &[salt, canonical_value])
    }

    fn prefixed(prefix: u8, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([prefix]);
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; HASH_BYTES] {
        &self.0
    }
}

/// Hashes bytes as they pass.
#[derive(Clone)]
pub struct Hasher(Sha256);

impl Hasher {
    /// A plain SHA-256, as [`Hash::of`].
    #[must_use]
    pub fn plain() -> Self {
        Self(Sha256::new())
    }

    /// A leaf hash, as [`Hash::leaf`].
    #[must_use]
    pub fn leaf() -> Self {
        Self(Sha256::new_with_prefix([0x00]))
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of everything that passed.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// A text that is not the lower-case hexadecimal form of so many bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} lower-case hexadecimal digits, found {found:?}")]
pub struct HexError {
    expected: usize,
    found: String,
}

impl FromStr for Hash {
    type Err = HexError;

    fn from_str(text: &str) -> Result<Self, HexError> {
        from_hex(text).map(Self)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = self.0.map(hex_digits);
        match std::str::from_utf8(digits.as_flattened()) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(HexVisitor).map(Self)
    }
}

pub(crate) struct HexVisitor<const N: usize>;

impl<const N: usize> de::Visitor<'_> for HexVisitor<N> {
    type Value = [u8; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lower-case hexadecimal digits", 2 * N)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        from_hex(text).map_err(E::custom)
    }
}

/// Lower-case hexadecimal digits of `bytes`.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend(hex_digits(*byte).map(char::from));
    }
    text
}

const fn hex_digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]
}

/// Exactly `N` bytes from `2 N` lower-case hexadecimal digits.
///
/// # Errors
/// Another length, or a character outside `0-9a-f`.
pub fn from_hex<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    let error = || HexError {
        expected: 2 * N,
        found: text.chars().take(80).collect(),
    };
    if text.len() != 2 * N {
        return Err(error());
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let (high, low) = (VALUES[usize::from(pair[0])], VALUES[usize::from(pair[1])]);
        if (high | low) == NO_DIGIT {
            return Err(error());
        }
        *byte = high << 4 | low;
    }
    Ok(bytes)
}

/// Value of what is no digit; every bit is set, so that it shows through an or.
const NO_DIGIT: u8 = 0xff;

/// Values of the lower-case hexadecimal digits, by character.
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[hex_digits(value)[1] as usize] = value;
        value += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_is_lower_case_only() {
        let hash = Hash::of(b"abc");
        let text = hash.to_string();
        assert_eq!(
            text,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(text.parse::<Hash>(), Ok(hash));
        assert!(text.to_uppercase().parse::<Hash>().is_err());
        assert!(text[..63].parse::<Hash>().is_err());
        assert!("é".repeat(32).parse::<Hash>().is_err());
        for byte in 0..=u8::MAX {
            let pairs = [[byte, b'0'], [b'0', byte], [byte, byte]];
            for pair in pairs.map(|pair| pair.map(char::from).iter().collect::<String>()) {
                let is_hex = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                assert_eq!(from_hex::<1>(&pair).is_ok(), is_hex, "{pair}");
                if let Ok([value]) = from_hex(&pair) {
                    assert_eq!(to_hex(&[value]), pair);
                }
            }
        }
    }

    #[test]
    fn prefixes_keep_leaf_node_and_seal_apart() {
        assert_eq!(
            Hash::leaf(b"").to_string(),
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
        );
        let (a, b) = (Hash::of(b"a"), Hash::of(b"b"));
        let both = [a.as_bytes().as_slice(), b.as_bytes()].concat();
        assert_ne!(Hash::node(&a, &b), Hash::leaf(&both));
        let mut streamed = Hasher::leaf();
        streamed.update(b"li");
        streamed.update(b"ne");
        assert_eq!(streamed.finish(), Hash::leaf(b"line"));
    }
}
