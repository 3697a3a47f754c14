//! Lines: the envelope at fixed offsets, signing, and strict reading.

use std::borrow::Cow;
use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{Body, Record};
use crate::bytes::canon::{self, FormError, MAX_LINE_BYTES, U53, WriteLineError};
use crate::bytes::hash::Hash;
use crate::bytes::key::{KeyId, Message, SignError, Signature, Signer};
use crate::bytes::text::excerpt;
use crate::bytes::time::{Clock, Stamp, Timestamp};

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

    /// Signs the record and writes its line, without the newline. Whoever appends it reads it first as every reader
    /// will ([`parse_line`]): what would be refused is refused there.
    ///
    /// # Errors
    /// It would not fit a line, or the key's holder does not sign.
    pub fn to_signed_line(&self, signer: &dyn Signer) -> Result<Vec<u8>, WriteRecordError> {
        let at = |source| WriteRecordError::Line {
            kind: self.body.kind(),
            source,
        };
        let record = canon::to_short(self).map_err(at)?;
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
    if let Some(frame) = &frame
        && let Some(record) = read_framed(line, frame)
    {
        return ParsedLine {
            hash,
            head: Some(head_of(&record)),
            frame: Some(frame.clone()),
            content: Ok(Content::Record(record)),
        };
    }
    let typed = read_typed(line);
    classify(line, hash, frame, typed)
}

/// The fast path. A line is canonical when its envelope stands at the fixed offsets, which leave it one form,
/// and its record is what is written for what it says.
fn read_framed(line: &[u8], frame: &Frame) -> Option<Box<Record>> {
    let bytes = line.get(frame.record.clone())?;
    let text = std::str::from_utf8(bytes).ok()?;
    let record = Box::new(Body::read_record(kind_of(text)?, text)?);
    if record.body.disorder().is_some() {
        return None;
    }
    // The envelope is one level.
    canon::is_canonical_of(record.as_ref(), bytes, canon::MAX_DEPTH - 1).then_some(record)
}

/// What seems to be the kind, where canonical records have it: behind the body. It is only a guess until the
/// record is written again and compared.
fn kind_of(record: &str) -> Option<&str> {
    let (_, behind) = record.rsplit_once(r#","kind":""#)?;
    behind.split_once('"').map(|(kind, _)| kind)
}

/// A record whose body is known to be a `B`, if it is one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordOf<B> {
    body: B,
    clock: Clock,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    ledger: Hash,
    previous: Hash,
    sequence: U53,
    time: Timestamp,
    version: U53,
}

impl Body {
    fn read_record(kind: &str, json: &str) -> Option<Record> {
        fn of<'de, B: Deserialize<'de>>(json: &'de str, body: fn(B) -> Body) -> Option<Record> {
            let read: RecordOf<B> = serde_json::from_str(json).ok()?;
            (read.version.value() == u64::from(VERSION)).then(|| Record {
                body: body(read.body),
                clock: read.clock,
                ledger: read.ledger,
                previous: read.previous,
                sequence: read.sequence,
                time: read.time,
            })
        }
        match kind {
            "genesis" => of(json, Self::Genesis),
            "host" => of(json, Self::Host),
            "start" => of(json, Self::Start),
            "execution" => of(json, Self::Execution),
            "probe" => of(json, Self::Probe),
            "matrix" => of(json, Self::Matrix),
            "note" => of(json, Self::Note),
            "key" => of(json, Self::Key),
            "recovery" => of(json, Self::Recovery),
            "close" => of(json, Self::Close),
            _ => None,
        }
    }
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
            // What is written again is the one form of it that counts: `null` for an absent field is another.
            (_, Ok(Content::Record(record))) if !is_only_form(&record, line) => {
                let why = "a field that is absent is written as null, or a value in a second form";
                Err(vec![LineProblem::Type(why.to_owned())])
            }
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

fn is_only_form(record: &Record, line: &[u8]) -> bool {
    let envelope = serde_json::from_slice::<EnvelopeIn<'_>>(line);
    let again = canon::to_canonical(record);
    matches!((envelope, again), (Ok(envelope), Ok(again)) if envelope.record.get().as_bytes() == again)
}

fn read_typed(line: &[u8]) -> Result<Content, String> {
    let text = |error: serde_json::Error| said(&error);
    let envelope: EnvelopeIn<'_> = serde_json::from_slice(line).map_err(text)?;
    let _ = (envelope.key, envelope.signature);
    let head: RecordIn<'_> = serde_json::from_str(envelope.record.get()).map_err(text)?;
    if head.version.value() != u64::from(VERSION) {
        return Ok(Content::UnknownVersion(head.version.value()));
    }
    let Some(body) = Body::read(&head.kind, head.body) else {
        return Ok(Content::UnknownKind(head.kind.into_owned()));
    };
    let body = body.map_err(|error| format!("{} body: {}", head.kind, said(&error)))?;
    if let Some(disorder) = body.disorder() {
        return Err(format!("{} body: {disorder}", head.kind));
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

/// What serde_json says, which quotes from the line: short, and nothing in it that acts on a terminal.
pub(super) fn said(error: &serde_json::Error) -> String {
    excerpt(&error.to_string(), 400)
}

fn head_of(record: &Record) -> Head {
    Head {
        ledger: record.ledger,
        previous: record.previous,
        sequence: record.sequence.value(),
    }
}
