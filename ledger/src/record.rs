//! Record lines and openings.
//!
//! ```text
//! {"key":"<64 hex>","record":{…},"signature":"<88 base64>"}
//!          ^8      ^83       ^104 before the end
//! ```
//!
//! JCS canonical, at most 65,535 bytes, so that `record` is found without a JSON parser. The signed message
//! is `containment-ledger/record/v1\n` and those bytes; the record's name is `SHA-256(0x00 || line)`.
//!
//! An *opening* may stand directly before its record. It holds the values that the record only commits
//! to, is neither signed nor a leaf, and can be erased without breaking anything:
//!
//! ```text
//! {"open":{"argv":["<32 hex salt>",["prog","arg"]]},"sequence":7}
//! ```

use std::borrow::Cow;
use std::ops::Range;

use serde::de::{self, Deserializer};
use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bytes::canon::{self, FormError, MAX_LINE_BYTES, U53, WriteLineError};
use crate::bytes::hash::{Hash, HexError, SALT_BYTES, from_hex, to_hex};
use crate::bytes::key::{
    Base64, KeyId, Message, PrivateKeyError, SignError, Signature, Signer, random_bytes,
};
use crate::bytes::time::{Clock, Stamp, Timestamp};
use crate::facts::execution::{Execution, Output, Start};
use crate::facts::host::HostFacts;
use crate::facts::list::{List, Sealable};

/// Where the `record` object begins in a line.
pub const RECORD_START: usize = 83;
/// How many bytes follow the `record` object in a line.
pub const RECORD_TAIL: usize = 104;
/// The only record version that this crate reads and writes.
pub const VERSION: u32 = 1;

const KEY_PREFIX: &[u8] = br#"{"key":""#;
const RECORD_PREFIX: &[u8] = br#"","record":"#;
const SIGNATURE_PREFIX: &[u8] = br#","signature":""#;
const LINE_SUFFIX: &[u8] = br#""}"#;

/// One record, without its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub body: Body,
    /// The boot clock when it was written.
    pub clock: Clock,
    /// The ledger it belongs to.
    pub ledger: Hash,
    /// Hash of the record before; zeros for the first.
    pub previous: Hash,
    /// Its number in the ledger, from 0.
    pub sequence: U53,
    /// The wall clock when it was written.
    pub time: Timestamp,
}

/// What a record says; the variant is its `kind`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The first record: origin and key.
    Genesis(Genesis),
    /// Facts of the host.
    Host(Box<HostFacts>),
    /// A run is about to begin.
    Start(Box<Start>),
    /// A run ended.
    Execution(Box<Execution>),
    /// A signed remark by the operator.
    Note(Note),
    /// Another key takes over.
    Key(KeyChange),
    /// The writer met a ledger that was not as it left it.
    Recovery(Recovery),
    /// Nothing may follow.
    Close(Close),
}

impl Body {
    /// The word in `kind`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Genesis(_) => "genesis",
            Self::Host(_) => "host",
            Self::Start(_) => "start",
            Self::Execution(_) => "execution",
            Self::Note(_) => "note",
            Self::Key(_) => "key",
            Self::Recovery(_) => "recovery",
            Self::Close(_) => "close",
        }
    }

    fn read(kind: &str, body: &RawValue) -> Option<Result<Self, serde_json::Error>> {
        let text = body.get();
        Some(match kind {
            "genesis" => serde_json::from_str(text).map(Self::Genesis),
            "host" => serde_json::from_str(text).map(Self::Host),
            "start" => serde_json::from_str(text).map(Self::Start),
            "execution" => serde_json::from_str(text).map(Self::Execution),
            "note" => serde_json::from_str(text).map(Self::Note),
            "key" => serde_json::from_str(text).map(Self::Key),
            "recovery" => serde_json::from_str(text).map(Self::Recovery),
            "close" => serde_json::from_str(text).map(Self::Close),
            _ => return None,
        })
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Genesis(body) => body.serialize(serializer),
            Self::Host(body) => body.serialize(serializer),
            Self::Start(body) => body.serialize(serializer),
            Self::Execution(body) => body.serialize(serializer),
            Self::Note(body) => body.serialize(serializer),
            Self::Key(body) => body.serialize(serializer),
            Self::Recovery(body) => body.serialize(serializer),
            Self::Close(body) => body.serialize(serializer),
        }
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("Record", 8)?;
        record.serialize_field("body", &self.body)?;
        record.serialize_field("clock", &self.clock)?;
        record.serialize_field("kind", self.body.kind())?;
        record.serialize_field("ledger", &self.ledger)?;
        record.serialize_field("previous", &self.previous)?;
        record.serialize_field("sequence", &self.sequence)?;
        record.serialize_field("time", &self.time)?;
        record.serialize_field("version", &VERSION)?;
        record.end()
    }
}

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

/// Why a record could not be written as a signed line.
#[derive(Debug, thiserror::Error)]
pub enum WriteRecordError {
    /// It does not fit a line.
    #[error("the {kind} record cannot be written as one line")]
    Line {
        /// The record's kind.
        kind: &'static str,
        /// What is wrong with it.
        source: WriteLineError,
    },
    /// It could not be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
}

impl Record {
    /// A record at the place that `sequence`, `previous` and `ledger` name.
    #[must_use]
    pub fn new(body: Body, stamp: Stamp, ledger: Hash, sequence: U53, previous: Hash) -> Self {
        Self {
            body,
            clock: stamp.clock,
            ledger,
            previous,
            sequence,
            time: stamp.time,
        }
    }

    /// Signs the record and writes its line, without the newline.
    ///
    /// # Errors
    /// It would not fit a line, or the key's holder does not sign.
    pub fn to_signed_line(&self, signer: &dyn Signer) -> Result<Vec<u8>, WriteRecordError> {
        let at = |source| WriteRecordError::Line {
            kind: self.body.kind(),
            source,
        };
        let record = canon::to_line(self).map_err(at)?;
        let signature = signer.sign(Message::Record(&record))?;
        let line = [
            KEY_PREFIX,
            signer.public().id().to_string().as_bytes(),
            RECORD_PREFIX,
            &record,
            SIGNATURE_PREFIX,
            signature.to_string().as_bytes(),
            LINE_SUFFIX,
        ]
        .concat();
        if line.len() > MAX_LINE_BYTES {
            return Err(at(WriteLineError::TooLong(line.len())));
        }
        Ok(line)
    }
}

/// The parts of a line that stand at fixed offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which key is said to have signed.
    pub key: KeyId,
    /// Where the `record` object stands in the line.
    pub record: Range<usize>,
    /// The signature.
    pub signature: Signature,
}

impl Frame {
    /// Cuts a line at the fixed offsets; `None` when the envelope is not in place.
    #[must_use]
    pub fn cut(line: &[u8]) -> Option<Self> {
        let tail = line.len().checked_sub(RECORD_TAIL)?;
        let inner = line.strip_prefix(KEY_PREFIX)?;
        let key = std::str::from_utf8(inner.get(..64)?).ok()?.parse().ok()?;
        inner.get(64..)?.strip_prefix(RECORD_PREFIX)?;
        let rest = line.get(tail..)?.strip_prefix(SIGNATURE_PREFIX)?;
        let text = rest.strip_suffix(LINE_SUFFIX)?;
        let signature = std::str::from_utf8(text).ok()?.parse().ok()?;
        (RECORD_START <= tail).then_some(Self {
            key,
            record: RECORD_START..tail,
            signature,
        })
    }
}

/// What every record says whatever its kind: its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The ledger it belongs to.
    pub ledger: Hash,
    /// Hash of the record before.
    pub previous: Hash,
    /// Its number.
    pub sequence: u64,
}

/// A line that has been read, however badly.
#[derive(Clone, Debug)]
pub struct ParsedLine {
    /// Its hash: it advances the chain even when it is refused.
    pub hash: Hash,
    /// The parts at fixed offsets, when the envelope is in place.
    pub frame: Option<Frame>,
    /// Its place in the chain, when that can be read.
    pub head: Option<Head>,
    /// What it says, or everything that is wrong with its form.
    pub content: Result<Content, Vec<LineProblem>>,
}

/// What a well-formed line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A record of a kind that this crate reads.
    Record(Box<Record>),
    /// A kind that this crate does not know; its body was not read.
    UnknownKind(String),
    /// A version that this crate does not know; its body was not read.
    UnknownVersion(u64),
}

/// What is wrong with the form of a line (TRUST.md §2).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineProblem {
    /// (a) Longer than a line may be; not parsed.
    #[error("the line has {0} bytes, at most {MAX_LINE_BYTES} are allowed")]
    TooLarge(u64),
    /// (b) Not one JSON value of the allowed form.
    #[error(transparent)]
    Form(#[from] FormError),
    /// (c) Not the canonical form of what it says; the first byte that differs.
    #[error("the line differs from its canonical form at byte {0}")]
    NotCanonical(usize),
    /// (e) A JSON value that is no record.
    #[error("not a record: {0}")]
    Type(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeIn<'a> {
    key: KeyId,
    #[serde(borrow)]
    record: &'a RawValue,
    signature: Signature,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordIn<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
    clock: Clock,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    ledger: Hash,
    previous: Hash,
    sequence: U53,
    time: Timestamp,
    version: U53,
}

#[derive(Deserialize)]
struct HeadIn {
    ledger: Hash,
    previous: Hash,
    sequence: U53,
    version: U53,
}

/// Reads one line (without its newline), strictly: the content is there only if the line is the
/// canonical form of a record.
#[must_use]
pub fn parse_line(line: &[u8]) -> ParsedLine {
    let hash = Hash::leaf(line);
    let frame = Frame::cut(line);
    if line.len() > MAX_LINE_BYTES {
        let problem = LineProblem::TooLarge(line.len() as u64);
        return ParsedLine {
            hash,
            frame,
            head: None,
            content: Err(vec![problem]),
        };
    }
    let typed = read_typed(line);
    if let Ok(Content::Record(record)) = &typed
        && let Some(frame) = &frame
        && canon::to_canonical(record.as_ref())
            .is_ok_and(|again| line.get(frame.record.clone()) == Some(&again))
        && depth_of(line) <= canon::MAX_DEPTH
    {
        return ParsedLine {
            hash,
            head: Some(head_of(record)),
            frame: Some(frame.clone()),
            content: typed.map_err(|_| vec![]),
        };
    }
    classify(line, hash, frame, typed)
}

/// The slow path: something differs, say what.
fn classify(
    line: &[u8],
    hash: Hash,
    frame: Option<Frame>,
    typed: Result<Content, String>,
) -> ParsedLine {
    let canonical = match canon::canonical_form(line) {
        Ok(canonical) => canonical,
        Err(problem) => {
            return ParsedLine {
                hash,
                frame,
                head: None,
                content: Err(vec![problem.into()]),
            };
        }
    };
    let head = serde_json::from_slice::<EnvelopeIn<'_>>(&canonical)
        .ok()
        .and_then(|envelope| serde_json::from_str::<HeadIn>(envelope.record.get()).ok())
        .map(|head| {
            (
                head.version,
                Head {
                    ledger: head.ledger,
                    previous: head.previous,
                    sequence: head.sequence.value(),
                },
            )
        });
    let content = if canonical != line {
        let at = canonical
            .iter()
            .zip(line)
            .take_while(|(a, b)| a == b)
            .count();
        Err(vec![LineProblem::NotCanonical(at)])
    } else {
        match (&head, typed) {
            (_, Ok(content)) => Ok(content),
            (Some((version, _)), Err(_)) if version.value() != u64::from(VERSION) => {
                Ok(Content::UnknownVersion(version.value()))
            }
            (_, Err(why)) => Err(vec![LineProblem::Type(why)]),
        }
    };
    ParsedLine {
        hash,
        frame,
        head: head.map(|(_, head)| head),
        content,
    }
}

fn read_typed(line: &[u8]) -> Result<Content, String> {
    let text = |error: serde_json::Error| error.to_string();
    let envelope: EnvelopeIn<'_> = serde_json::from_slice(line).map_err(text)?;
    let _ = (envelope.key, envelope.signature);
    let head: RecordIn<'_> = serde_json::from_str(envelope.record.get()).map_err(text)?;
    if head.version.value() != u64::from(VERSION) {
        return Ok(Content::UnknownVersion(head.version.value()));
    }
    let Some(body) = Body::read(&head.kind, head.body) else {
        return Ok(Content::UnknownKind(head.kind.into_owned()));
    };
    let body = body.map_err(|error| format!("{} body: {error}", head.kind))?;
    if let Body::Recovery(recovery) = &body
        && !recovery.is_well_formed()
    {
        return Err("recovery body: fields that belong together are not together".to_owned());
    }
    Ok(Content::Record(Box::new(Record {
        body,
        clock: head.clock,
        ledger: head.ledger,
        previous: head.previous,
        sequence: head.sequence,
        time: head.time,
    })))
}

fn head_of(record: &Record) -> Head {
    Head {
        ledger: record.ledger,
        previous: record.previous,
        sequence: record.sequence.value(),
    }
}

/// Nesting depth of a text that is known to be JSON.
fn depth_of(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

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
    /// Writes the line, without the newline.
    ///
    /// # Errors
    /// The values do not fit a line.
    pub fn to_line(&self) -> Result<Vec<u8>, WriteLineError> {
        canon::to_line(self)
    }

    /// Reads one line strictly.
    ///
    /// # Errors
    /// Not a canonical opening, or an empty one.
    pub fn parse(line: &[u8]) -> Result<Self, OpeningProblem> {
        let form = |why: String| OpeningProblem::Form(why);
        if line.len() > MAX_LINE_BYTES {
            return Err(form(format!("the line has {} bytes", line.len())));
        }
        let canonical = canon::canonical_form(line).map_err(|why| form(why.to_string()))?;
        if canonical != line {
            return Err(form("the line differs from its canonical form".to_owned()));
        }
        let opening: Self = serde_json::from_slice(line).map_err(|why| form(why.to_string()))?;
        if opening.open.is_empty() {
            Err(OpeningProblem::Empty)
        } else {
            Ok(opening)
        }
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

#[cfg(test)]
mod tests;
