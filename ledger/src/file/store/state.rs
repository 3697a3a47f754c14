//! What the store knows about a ledger so that it need not read it: derived state, kept in `tip` and `tree`.
//!
//! `tip` is one line of canonical JSON and the SHA-256 of that line; `tree` is the stored hashes of
//! [`crate::proof::tree`]. Both are caches: whoever reads them holds them against the signed checkpoint, and
//! makes them again from the records when they are missing, short or wrong.

use std::fs::File;

use serde::{Deserialize, Serialize};

use super::layout::{Layout, SEGMENT_RECORDS};
use super::measured::{Measured, Newest, Probed};
use crate::bytes::canon::{U53, WriteLineError, to_canonical};
use crate::bytes::hash::{HASH_BYTES, Hash};
use crate::bytes::key::{Base64, KeyId, PublicKey};
use crate::facts::execution::RunId;
use crate::facts::suite::Arm;
use crate::file::chain::{ActiveKey, Chain};
use crate::file::durable::{self, Durability, FileError};
use crate::proof::inclusion;
use crate::proof::tree::{self, Frontier};
use crate::record::{Body, Custody, Origin, Record};

/// A host record: its number and the hash of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HostTip {
    pub(super) body: Hash,
    /// Where its line ends in its segment, the newline included.
    pub(super) end: U53,
    pub(super) sequence: U53,
    /// Whose facts these are.
    pub(super) uid: u32,
}

/// A start record whose execution is not written yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OpenStart {
    pub(super) run: RunId,
    /// In what it runs.
    runtime: String,
    pub(super) sequence: U53,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
}

/// Everything that appending needs to know.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) chain: Chain,
    pub(super) frontier: Frontier,
    /// Where the next record goes in its segment; 0 when that segment begins with it.
    pub(super) offset: u64,
    pub(super) host: Option<HostTip>,
    pub(super) open: Vec<OpenStart>,
    /// Every recovery record.
    pub(super) recoveries: Vec<U53>,
    /// The newest matrices.
    pub(super) measured: Measured,
    /// How far the disk has the records for certain: a segment, and a place in it.
    settled: (u64, u64),
    /// Tree hashes that this process has not written to `tree` yet, …
    fresh: Vec<Hash>,
    /// … and the size of the tree without them.
    fresh_from: u64,
}

impl State {
    /// Number of records.
    pub(super) const fn size(&self) -> u64 {
        self.chain.lines()
    }

    /// The segment that the next record goes to.
    pub(super) const fn segment(&self) -> u64 {
        self.size() / SEGMENT_RECORDS
    }

    /// Takes a record that `chain` has just verified; its line ends at `end` of its segment.
    pub(super) fn take(
        &mut self,
        chain: Chain,
        hash: Hash,
        record: &Record,
        end: u64,
    ) -> Result<(), WriteLineError> {
        match &record.body {
            Body::Host(facts) => {
                self.host = Some(HostTip {
                    body: Hash::of(&to_canonical(facts.as_ref())?),
                    end: U53::saturating(end),
                    sequence: record.sequence,
                    uid: facts.uid,
                });
            }
            Body::Matrix(matrix) => {
                let host = self.host.map(|host| (host.sequence, host.uid));
                self.measured.matrix(record.sequence, matrix, host);
            }
            Body::Recovery(_) => self.recoveries.push(record.sequence),
            Body::Start(start) => self.open.push(OpenStart {
                run: start.run,
                runtime: start.runtime.id.clone(),
                sequence: record.sequence,
                tier: start.runtime.kind().map(str::to_owned),
            }),
            body => {
                let ended = body.ends();
                let of = |start: &OpenStart| Some(start.sequence) == ended;
                if let Some(at) = self.open.iter().position(of) {
                    let OpenStart { runtime, tier, .. } = self.open.remove(at);
                    if matches!(body, Body::Probe(run) if run.arm == Arm::Run) {
                        self.measured.probed(record.sequence, runtime, tier);
                    }
                }
            }
        }
        self.fresh.extend(self.frontier.push(hash));
        self.chain = chain;
        self.offset = if self.size().is_multiple_of(SEGMENT_RECORDS) {
            0
        } else {
            end
        };
        Ok(())
    }

    /// Every record is on the disk: this process flushed them, or somebody who did said so.
    pub(super) const fn settle(&mut self) {
        self.settled = (self.segment(), self.offset);
    }

    /// From where on nobody knows whether the disk has a segment's records.
    pub(super) const fn unsettled(&self, segment: u64) -> u64 {
        let (settled, offset) = self.settled;
        if settled > segment {
            u64::MAX
        } else if settled == segment {
            offset
        } else {
            0
        }
    }

    /// Root of the tree of all records.
    pub(super) fn root(&self) -> Hash {
        self.frontier.root()
    }

    /// Brings `tree` up to date, so that it holds this state's hashes.
    pub(super) fn write_tree(&mut self, layout: &Layout) -> Result<(), FileError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let path = layout.tree();
        durable::make_way(&path)?;
        let file = durable::open_or_create(&path)?;
        let bytes: Vec<u8> = self
            .fresh
            .iter()
            .flat_map(|hash| *hash.as_bytes())
            .collect();
        let offset = tree::stored_count(self.fresh_from) * HASH_BYTES as u64;
        durable::write_at(&file, &path, &bytes, offset)?;
        self.fresh.clear();
        self.fresh_from = self.size();
        Ok(())
    }

    /// Drops the hashes that are not in `tree` yet: for a walk that writes nothing.
    pub(super) fn forget_fresh(&mut self) {
        self.fresh.clear();
        self.fresh_from = self.size();
    }

    /// Replaces `tip`; `tree` must have been written before.
    pub(super) fn write_tip(&self, layout: &Layout) -> Result<(), WriteTipError> {
        let Some(tip) = Tip::of(self) else {
            return Ok(());
        };
        let mut bytes = to_canonical(&tip)?;
        let sum = Hash::of(&bytes);
        bytes.extend(format!("\n{sum}\n").bytes());
        durable::replace(&layout.tip(), &bytes, Durability::Derived)?;
        Ok(())
    }

    /// The state that `tip` and `tree` keep; `None` when they are missing or do not fit each other.
    pub(super) fn load(layout: &Layout) -> Result<Option<Self>, FileError> {
        durable::make_way(&layout.tip())?;
        durable::make_way(&layout.tree())?;
        let Some(tip) = durable::read(&layout.tip())?.and_then(|bytes| Tip::parse(&bytes)) else {
            return Ok(None);
        };
        let Some(tree) = TreeFile::open(layout)? else {
            return Ok(None);
        };
        let size = tip.size.value();
        if size == 0 || !tree.holds(size) {
            return Ok(None);
        }
        if tree.leaf(size - 1)? != tip.head {
            return Ok(None);
        }
        let frontier = tree.frontier(size)?;
        Ok(tip.into_state(frontier))
    }
}

/// Why `tip` could not be renewed.
#[derive(Debug, thiserror::Error)]
pub enum WriteTipError {
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The state cannot be written as JSON.
    #[error(transparent)]
    Line(#[from] WriteLineError),
}

/// `tree`, open for reading.
#[derive(Debug)]
pub(super) struct TreeFile {
    file: File,
    path: std::path::PathBuf,
    length: u64,
}

impl TreeFile {
    pub(super) fn open(layout: &Layout) -> Result<Option<Self>, FileError> {
        let path = layout.tree();
        let Some(file) = durable::open_to_read(&path)? else {
            return Ok(None);
        };
        let length = durable::inspect(&file, &path)?.len();
        Ok(Some(Self { file, path, length }))
    }

    /// Whether the hashes of a tree of `size` leaves are there.
    pub(super) const fn holds(&self, size: u64) -> bool {
        self.length >= tree::stored_count(size) * HASH_BYTES as u64
    }

    fn hash(&self, index: u64) -> Result<Hash, FileError> {
        let mut bytes = [0; HASH_BYTES];
        durable::read_at(
            &self.file,
            &self.path,
            &mut bytes,
            index * HASH_BYTES as u64,
        )?;
        Ok(Hash::from_bytes(bytes))
    }

    fn leaf(&self, n: u64) -> Result<Hash, FileError> {
        self.hash(tree::stored_index(0, n))
    }

    /// The proof that leaf `index` is in the tree of the first `size` leaves.
    pub(super) fn prove(&self, index: u64, size: u64) -> Result<Option<Vec<Hash>>, FileError> {
        inclusion::prove(index, size, |at| self.hash(at))
    }

    /// The tree of the first `size` leaves.
    pub(super) fn frontier(&self, size: u64) -> Result<Frontier, FileError> {
        Frontier::load(size, |index| self.hash(index))
    }
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyTip {
    custody: Custody,
    from: U53,
    public_key: Base64<32>,
}

/// The content of `tip`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Tip {
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Option<U53>,
    head: Hash,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostTip>,
    keys: Vec<KeyTip>,
    ledger: Hash,
    /// Always there: without, nobody has looked for any, and the state is made again.
    matrices: Vec<Newest>,
    offset: U53,
    open: Vec<OpenStart>,
    origin: Origin,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    probed: Vec<Probed>,
    /// Always there, for the same reason.
    recoveries: Vec<U53>,
    size: U53,
    #[serde(skip_serializing_if = "Option::is_none")]
    standby: Option<KeyId>,
}

impl Tip {
    /// `None` for a state without records.
    fn of(state: &State) -> Option<Self> {
        let chain = &state.chain;
        let keys = chain.keys().iter().map(|active| {
            Some(KeyTip {
                custody: active.custody,
                from: U53::new(active.from)?,
                public_key: Base64(active.key.to_bytes()),
            })
        });
        let closed_at = match chain.closed_at() {
            Some(sequence) => Some(U53::new(sequence)?),
            None => None,
        };
        Some(Self {
            closed_at,
            head: chain.head(),
            host: state.host,
            keys: keys.collect::<Option<_>>()?,
            ledger: *chain.ledger()?,
            matrices: state.measured.matrices.clone(),
            offset: U53::new(state.offset)?,
            open: state.open.clone(),
            origin: chain.origin()?.clone(),
            probed: state.measured.probed.clone(),
            recoveries: state.recoveries.clone(),
            size: U53::new(chain.lines())?,
            standby: chain.standby().copied(),
        })
    }

    /// `None` when the bytes are not what [`State::write_tip`] writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (line, sum) = text.split_once('\n')?;
        if sum.parse() != Ok(Hash::of(line.as_bytes())) {
            return None;
        }
        let tip: Self = serde_json::from_str(line).ok()?;
        let again = to_canonical(&tip).ok()?;
        (again == line.as_bytes()).then_some(tip)
    }

    pub(super) fn into_state(self, frontier: Frontier) -> Option<State> {
        let size = self.size.value();
        let keys = self.keys.iter().map(|tip| {
            Some(ActiveKey {
                key: PublicKey::from_bytes(&tip.public_key.0).ok()?,
                custody: tip.custody,
                from: tip.from.value(),
            })
        });
        let chain = Chain::resume(
            self.ledger,
            self.origin,
            size,
            self.head,
            keys.collect::<Option<_>>()?,
            self.standby,
            self.closed_at.map(U53::value),
        );
        let mut state = State {
            chain,
            frontier,
            offset: self.offset.value(),
            host: self.host,
            open: self.open,
            recoveries: self.recoveries,
            measured: Measured {
                matrices: self.matrices,
                probed: self.probed,
            },
            settled: (0, 0),
            fresh: vec![],
            fresh_from: size,
        };
        state.settle();
        Some(state)
    }
}
