//! Bundles: a part of a ledger, or all of it, in one text file for somebody who has nothing else (TRUST.md §7).
//!
//! ```text
//! {"bundle":"containment-ledger/bundle/v1","files":2,"ledger":"<64 hex>","records":5,"size":40}
//! {"checkpoint":"host/0123456789abcdef\n40\n<base64 root>\n\n— host/0123456789abcdef <base64>\n"}
//! {"at":0,"blob":"<64 hex>","bytes":"<base64>","size":812}          each file, by hash, in pieces of 45,000 bytes
//! {"index":0,"proof":["<base64>", …]}                                each record, by number: its proof,
//! {"open":{…},"sequence":0}                                          its opening where it has one that is shown,
//! {"key":"<64 hex>","record":{…},"signature":"<88 base64>"}          and its line as it stands in the ledger
//! ```
//!
//! Every line is canonical and no longer than a record's. Files come before records, so that whoever reads from the first
//! line to the last has what a record refers to. `records` and `size` say how many records are shown and how many
//! the checkpoint covers; `files` how many files follow. Blobs and bytes that recoveries set aside are files alike: both are
//! named by their content.
//!
//! Records may be left out, so `previous` links only those that stand side by side; that each stands where its number
//! says is shown by its proof under the checkpoint, which the key signed that is active at its size.

mod files;
mod gather;
mod read;
mod segment;
mod write;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bytes::canon::{self, MAX_DEPTH, U53};
use crate::bytes::hash::Hash;
use crate::bytes::key::Base64;
use crate::bytes::text::excerpt;
use crate::record::LineProblem;

pub use files::BlobReader;
pub(in crate::file) use files::Files;
pub use gather::{GatherError, Selection};
pub(in crate::file) use read::begin;
pub use write::{Bundled, Value, WriteBundleError, try_to_write, write};

/// First bytes of a bundle.
pub const PREFIX: &[u8] = br#"{"bundle":"#;
/// First bytes of the line before a record.
pub(in crate::file) const PROOF_PREFIX: &[u8] = br#"{"index":"#;
const CHECKPOINT_PREFIX: &[u8] = br#"{"checkpoint":"#;
const PIECE_PREFIX: &[u8] = br#"{"at":"#;
/// The name of the format.
const FORMAT: &str = "containment-ledger/bundle/v1";
/// How many bytes of a file stand in one line: 60,000 characters of base64.
const PIECE_BYTES: u64 = 45_000;
/// Most files of a bundle: where each of them stands is kept in memory while it is read.
const MAX_FILES: usize = 1 << 20;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    bundle: Format,
    /// Files that follow.
    pub files: U53,
    /// The ledger's id.
    pub ledger: Hash,
    /// Records that are shown.
    pub records: U53,
    /// Records that the checkpoint covers.
    pub size: U53,
}

/// The format's name, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Format {
    #[serde(rename = "containment-ledger/bundle/v1")]
    V1,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointLine {
    checkpoint: String,
}

/// A part of a file, as large as a piece may be but for the last one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece {
    at: U53,
    blob: Hash,
    bytes: String,
    size: U53,
}

/// Where the record that follows stands, and the hashes beside its way to the root.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::file) struct Proof {
    pub(in crate::file) index: U53,
    proof: Vec<Base64<32>>,
}

impl Proof {
    pub(in crate::file) fn hashes(&self) -> Vec<Hash> {
        let hashes = self.proof.iter();
        hashes.map(|hash| Hash::from_bytes(hash.0)).collect()
    }

    pub(in crate::file) fn parse(line: &[u8]) -> Result<Self, LineProblem> {
        parse(line)
    }
}

/// Reads one line strictly.
fn parse<T: Serialize + DeserializeOwned>(line: &[u8]) -> Result<T, LineProblem> {
    let typed: Result<T, _> = serde_json::from_slice(line);
    // What it quotes is the line's.
    let typed = typed.map_err(|error| excerpt(&error.to_string(), 400));
    if let Ok(value) = &typed
        && canon::is_canonical_of(value, line, MAX_DEPTH)
    {
        return typed.map_err(LineProblem::Type);
    }
    let canonical = canon::canonical_form(line)?;
    if canonical != line {
        let differs = canonical.iter().zip(line).position(|(a, b)| a != b);
        let at = differs.unwrap_or(canonical.len().min(line.len()));
        return Err(LineProblem::NotCanonical(at));
    }
    Err(LineProblem::Type(match typed {
        Err(error) => error,
        Ok(_) => "a value in a second form".to_owned(),
    }))
}
