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
//!
//! A real run, its `start` and its `execution`, as they stand in a segment:
//!
//! ```text
#![doc = include_str!("record/sample.jsonl")]
//! ```

mod kinds;
mod line;
mod opening;
#[cfg(test)]
mod tests;

pub use kinds::{
    Close, Custody, ExpectedTree, Genesis, KeyChange, KeyChangeReason, Note, Origin, OriginError,
    Recovery, RecoveryCause, Tool,
};
pub use line::{
    Content, Frame, Head, LineProblem, ParsedLine, RECORD_START, RECORD_TAIL, VERSION,
    WriteRecordError, parse_line,
};
pub use opening::{OPENING_PREFIX, Opened, Opening, OpeningProblem, Salt, Salted, SealError};

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::value::RawValue;

use crate::bytes::canon::U53;
use crate::bytes::hash::Hash;
use crate::bytes::time::{Clock, Timestamp};
use crate::facts::execution::{Execution, Start};
use crate::facts::host::HostFacts;
use crate::facts::matrix::Matrix;
use crate::facts::measurement::ProbeRun;

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
    /// A run of a probe ended.
    Probe(Box<ProbeRun>),
    /// What the runtimes of this host contain.
    Matrix(Box<Matrix>),
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
            Self::Probe(_) => "probe",
            Self::Matrix(_) => "matrix",
            Self::Note(_) => "note",
            Self::Key(_) => "key",
            Self::Recovery(_) => "recovery",
            Self::Close(_) => "close",
        }
    }

    /// What in it contradicts the rest; `None` when it is in order.
    fn disorder(&self) -> Option<&'static str> {
        match self {
            Self::Start(start) => {
                let controls = start.controls.disorder();
                controls.or_else(|| start.runtime.disorder())
            }
            Self::Execution(execution) => execution.disorder(),
            Self::Probe(probe) => probe.disorder(),
            Self::Matrix(matrix) => matrix.disorder(),
            Self::Recovery(recovery) => (!recovery.is_well_formed())
                .then_some("fields that belong together are not together"),
            Self::Genesis(_) | Self::Host(_) | Self::Note(_) | Self::Key(_) | Self::Close(_) => {
                None
            }
        }
    }

    /// Sequence of the start record whose run this ends.
    #[must_use]
    pub fn ends(&self) -> Option<U53> {
        match self {
            Self::Execution(execution) => Some(execution.start),
            Self::Probe(probe) => Some(probe.execution.start),
            Self::Genesis(_)
            | Self::Host(_)
            | Self::Start(_)
            | Self::Matrix(_)
            | Self::Note(_)
            | Self::Key(_)
            | Self::Recovery(_)
            | Self::Close(_) => None,
        }
    }

    fn read(kind: &str, body: &RawValue) -> Option<Result<Self, serde_json::Error>> {
        let text = body.get();
        Some(match kind {
            "genesis" => serde_json::from_str(text).map(Self::Genesis),
            "host" => serde_json::from_str(text).map(Self::Host),
            "start" => serde_json::from_str(text).map(Self::Start),
            "execution" => serde_json::from_str(text).map(Self::Execution),
            "probe" => serde_json::from_str(text).map(Self::Probe),
            "matrix" => serde_json::from_str(text).map(Self::Matrix),
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
            Self::Probe(body) => body.serialize(serializer),
            Self::Matrix(body) => body.serialize(serializer),
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
