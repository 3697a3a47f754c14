//! Signed notes (C2SP signed-note): a text, and under it a line for everybody who signed it.
//!
//! ```text
//! <text, one or more lines>
//!                                              an empty line
//! — <name> base64(key id, 4 bytes || signature)
//! ```
//!
//! Key id: first four bytes of `SHA-256(name || 0x0A || type || public key)`. Types: 0x01 Ed25519 over the
//! text, 0x04 cosignature/v1 (an Ed25519 signature with a time, C2SP tlog-cosignature). Other types belong to
//! keys that are not known here; their lines are kept and ignored.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::bytes::hash::{Hash, from_hex, to_hex};
use crate::bytes::key::{Base64, PublicKey, PublicKeyError, Signature};
use crate::bytes::text::excerpt;

/// Longest note that is read, in bytes.
pub const MAX_NOTE_BYTES: usize = 64 * 1024;
/// How every signature line begins: an em dash and a space.
const LINE_PREFIX: &str = "\u{2014} ";
const KEY_ID_BYTES: usize = 4;
/// How many characters of a name a message shows.
const MAX_SHOWN: usize = 80;

/// A text with the signature lines under it; nothing is verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<SignatureLine>,
}

/// One signature line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureLine {
    /// Who is said to have signed.
    pub name: String,
    /// First bytes of a hash of name and key; tells keys apart, proves nothing.
    pub key_id: [u8; KEY_ID_BYTES],
    /// What follows the key id; its form depends on the key's type.
    pub payload: Vec<u8>,
}

/// Why bytes are not a signed note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadNoteError {
    /// Longer than [`MAX_NOTE_BYTES`].
    #[error("the note has {0} bytes, at most {MAX_NOTE_BYTES} are read")]
    TooLong(usize),
    /// Not UTF-8, from this byte on.
    #[error("the note is not UTF-8 from byte {0}")]
    Utf8(usize),
    /// A control character other than the newline.
    #[error("the note holds the control character 0x{0:02x}")]
    Control(u32),
    /// No empty line between text and signatures, or no signature.
    #[error("the note has no empty line followed by signature lines")]
    Unsigned,
    /// A line below the text that is no signature line.
    #[error("expected a signature line (\u{2014} name base64), found {0:?}")]
    SignatureLine(String),
    /// Read and written again it is not the same.
    #[error("the note is not in the one form that it may have")]
    Form,
}

impl Note {
    /// A note that nobody has signed yet.
    ///
    /// # Errors
    /// A text without a final newline, or with control characters.
    pub fn new(text: String) -> Result<Self, ReadNoteError> {
        refuse_control_characters(&text)?;
        if !text.ends_with('\n') {
            return Err(ReadNoteError::Form);
        }
        let signatures = Vec::new();
        Ok(Self { text, signatures })
    }

    /// Reads a note: parses, writes again, compares.
    ///
    /// # Errors
    /// The bytes are not exactly what writing their meaning gives.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReadNoteError> {
        if bytes.len() > MAX_NOTE_BYTES {
            return Err(ReadNoteError::TooLong(bytes.len()));
        }
        let note =
            std::str::from_utf8(bytes).map_err(|error| ReadNoteError::Utf8(error.valid_up_to()))?;
        refuse_control_characters(note)?;
        let (text, lines) = note.rsplit_once("\n\n").ok_or(ReadNoteError::Unsigned)?;
        if lines.is_empty() {
            return Err(ReadNoteError::Unsigned);
        }
        let signatures = lines.lines().map(str::parse).collect::<Result<_, _>>()?;
        let parsed = Self {
            text: format!("{text}\n"),
            signatures,
        };
        if parsed.to_string() == note {
            Ok(parsed)
        } else {
            Err(ReadNoteError::Form)
        }
    }

    /// What is signed, its final newline included.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signature lines in their order.
    #[must_use]
    pub fn signatures(&self) -> &[SignatureLine] {
        &self.signatures
    }

    /// Adds a line.
    pub fn sign(&mut self, line: SignatureLine) {
        self.signatures.push(line);
    }

    /// Everybody among `keys` who signed. Lines of other keys are ignored; a line of a known key that
    /// does not verify rejects the whole note, and so does a note that no known key signed.
    ///
    /// # Errors
    /// As said.
    pub fn verified_by<'k>(
        &self,
        keys: &'k [NoteKey],
    ) -> Result<Vec<VerifiedSignature<'k>>, VerifyNoteError> {
        let mut verified: Vec<VerifiedSignature<'k>> = Vec::new();
        for line in &self.signatures {
            let mut known = keys
                .iter()
                .filter(|key| key.name == line.name && key.id() == line.key_id)
                .peekable();
            if known.peek().is_none() {
                continue;
            }
            // Four bytes can collide: the line is good if it is good for one of them.
            let signature = known
                .find_map(|key| key.check(&self.text, &line.payload))
                .ok_or_else(|| VerifyNoteError::Signature(line.name.clone()))?;
            if !verified.contains(&signature) {
                verified.push(signature);
            }
        }
        if verified.is_empty() {
            let names = self.signatures.iter().map(|line| line.name.clone());
            return Err(VerifyNoteError::NoKnownKey(names.collect()));
        }
        Ok(verified)
    }
}

fn refuse_control_characters(text: &str) -> Result<(), ReadNoteError> {
    match text.chars().find(|c| *c < ' ' && *c != '\n') {
        Some(control) => Err(ReadNoteError::Control(control.into())),
        None => Ok(()),
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|line| line.fmt(f))
    }
}

impl fmt::Display for SignatureLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [self.key_id.as_slice(), &self.payload].concat();
        writeln!(f, "{LINE_PREFIX}{} {}", self.name, BASE64.encode(bytes))
    }
}

impl FromStr for SignatureLine {
    type Err = ReadNoteError;

    /// Reads a line without its newline.
    fn from_str(line: &str) -> Result<Self, ReadNoteError> {
        let error = || ReadNoteError::SignatureLine(line.chars().take(120).collect());
        let (name, base64) = line
            .strip_prefix(LINE_PREFIX)
            .and_then(|rest| rest.split_once(' '))
            .ok_or_else(error)?;
        let bytes = BASE64.decode(base64).map_err(|_| error())?;
        let (key_id, payload) = bytes.split_first_chunk().ok_or_else(error)?;
        if !is_name(name) || payload.is_empty() {
            return Err(error());
        }
        Ok(Self {
            name: name.to_owned(),
            key_id: *key_id,
            payload: payload.to_vec(),
        })
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '+')
}

/// Why a note does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyNoteError {
    /// A line of a known key does not verify.
    #[error("the signature by {name} is not its key's over this text", name = excerpt(.0, MAX_SHOWN))]
    Signature(String),
    /// Only unknown keys signed.
    #[error("no known key signed it, only: {names}", names = some_of(.0))]
    NoKnownKey(Vec<String>),
}

/// The first names, and how many more there are.
fn some_of(names: &[String]) -> String {
    const MOST: usize = 8;
    let shown = names.iter().take(MOST).map(|name| excerpt(name, MAX_SHOWN));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MOST) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// A signature that verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedSignature<'k> {
    /// Whose it is.
    pub key: &'k NoteKey,
    /// When, in seconds since 1970, by the signer's clock; only cosignatures say it.
    pub time: Option<u64>,
}

/// What a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKeyType {
    /// 0x01: the text.
    Ed25519,
    /// 0x04: a time and the text (cosignature/v1).
    Cosignature,
}

impl NoteKeyType {
    const fn byte(self) -> u8 {
        match self {
            Self::Ed25519 => 0x01,
            Self::Cosignature => 0x04,
        }
    }
}

/// A known key: its text form is a *vkey*, `name+hex(key id)+base64(type || public key)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    key_type: NoteKeyType,
    key: PublicKey,
}

/// Why a text is not a vkey.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteKeyError {
    /// Not `name+hex+base64`, or the key id is not that of name and key.
    #[error("expected a key as name+8 hex digits+base64, found {0:?}")]
    Form(String),
    /// A key type that is not read here.
    #[error("key type 0x{0:02x} is not supported, expected 0x01 or 0x04")]
    Type(u8),
    /// The public key cannot be used.
    #[error(transparent)]
    Key(#[from] PublicKeyError),
}

impl NoteKey {
    /// A key under a name.
    ///
    /// # Errors
    /// The name is empty or holds white space or `+`.
    pub fn new(name: &str, key_type: NoteKeyType, key: PublicKey) -> Result<Self, NoteKeyError> {
        if !is_name(name) {
            return Err(NoteKeyError::Form(name.chars().take(200).collect()));
        }
        Ok(Self {
            name: name.to_owned(),
            key_type,
            key,
        })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it signs.
    #[must_use]
    pub const fn key_type(&self) -> NoteKeyType {
        self.key_type
    }

    /// The key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.key
    }

    /// The four bytes that signature lines begin with.
    #[must_use]
    pub fn id(&self) -> [u8; KEY_ID_BYTES] {
        let named = [self.name.as_bytes(), b"\n", &self.typed_key()].concat();
        let hash = Hash::of(&named);
        let [a, b, c, d, ..] = *hash.as_bytes();
        [a, b, c, d]
    }

    fn typed_key(&self) -> Vec<u8> {
        [[self.key_type.byte()].as_slice(), &self.key.to_bytes()].concat()
    }

    /// The line for a signature of this key over a note's text, for [`NoteKeyType::Ed25519`].
    #[must_use]
    pub fn line(&self, signature: &Signature) -> SignatureLine {
        SignatureLine {
            name: self.name.clone(),
            key_id: self.id(),
            payload: signature.0.to_vec(),
        }
    }

    fn check(&self, text: &str, payload: &[u8]) -> Option<VerifiedSignature<'_>> {
        let (time, signature, message) = match self.key_type {
            NoteKeyType::Ed25519 => (None, payload, text.to_owned()),
            NoteKeyType::Cosignature => {
                let (seconds, signature) = payload.split_first_chunk()?;
                let time = u64::from_be_bytes(*seconds);
                let message = format!("cosignature/v1\ntime {time}\n{text}");
                (Some(time), signature, message)
            }
        };
        let signature = Base64(signature.try_into().ok()?);
        self.key
            .verifies_bytes(message.as_bytes(), &signature)
            .then_some(VerifiedSignature { key: self, time })
    }
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, key) = (to_hex(&self.id()), BASE64.encode(self.typed_key()));
        write!(f, "{}+{id}+{key}", self.name)
    }
}

impl FromStr for NoteKey {
    type Err = NoteKeyError;

    fn from_str(text: &str) -> Result<Self, NoteKeyError> {
        let error = || NoteKeyError::Form(text.chars().take(200).collect());
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(base64)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(error());
        };
        let id: [u8; KEY_ID_BYTES] = from_hex(id).map_err(|_| error())?;
        let bytes = BASE64.decode(base64).map_err(|_| error())?;
        let (key_type, key) = bytes.split_first().ok_or_else(error)?;
        let key_type = match key_type {
            0x01 => NoteKeyType::Ed25519,
            0x04 => NoteKeyType::Cosignature,
            other => return Err(NoteKeyError::Type(*other)),
        };
        let key: &[u8; 32] = key.try_into().map_err(|_| error())?;
        let parsed = Self::new(name, key_type, PublicKey::from_bytes(key)?)?;
        if parsed.id() == id && parsed.to_string() == text {
            Ok(parsed)
        } else {
            Err(error())
        }
    }
}

#[cfg(test)]
mod tests;
