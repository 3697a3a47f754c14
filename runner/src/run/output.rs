//! One output stream of a workload: forwarded live, capped, hashed whole, kept in flat memory.
//!
//! Bytes pass once. All of them are counted and hashed; the first `cap` of them are kept: up to 4 KiB in
//! memory, and from the first byte beyond that in a blob. A blob that cannot be written loses nothing but
//! itself: the count and the hash stay whole, `kept` falls back to what memory holds, and the record says
//! so under `unmeasured`.
//!
//! Reading the pipe, and printing, are the caller's.

use std::fmt;
use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ledger::bytes::canon::U53;
use ledger::bytes::hash::{Hash, Hasher};
use ledger::facts::execution::{Output, Unmeasured};

/// How many kept bytes stand in the record itself; more are a blob (DESIGN.md §4.1).
pub const INLINE_BYTES: usize = 4096;

/// Reason of an `unmeasured` entry: the kept bytes beyond [`INLINE_BYTES`] could not be stored.
pub const BLOB_NOT_KEPT: &str = "blob-not-kept";

/// A blob being written. Dropping it without [`Blob::commit`] leaves nothing behind.
pub trait Blob: Write {
    /// Makes the blob part of the ledger.
    ///
    /// Returns the SHA-256 of everything written, which is its name.
    ///
    /// # Errors
    /// The blob could not be stored.
    fn commit(self: Box<Self>) -> io::Result<Hash>;
}

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

impl Stream {
    /// The field of the execution body that holds it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What the caller does with bytes it has just handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Taken {
    /// How many of them, from the first on, are to be forwarded live.
    pub forward: usize,
    /// These bytes hold the first one past the cap: time to say, once, that the stream is cut.
    pub cut: bool,
}

/// What a stream was, at its end.
#[derive(Debug)]
pub struct Captured {
    /// The value for the record.
    pub output: Output,
    /// What to add to `unmeasured`, when kept bytes were lost.
    pub unmeasured: Option<Unmeasured>,
    /// Why they were lost, for people.
    pub loss: Option<SpoolError>,
    /// Its first bytes; empty unless they were to be remembered.
    pub remembered: Vec<u8>,
}

/// Why the blob with a stream's kept bytes does not exist.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// None could be opened.
    #[error("open a blob for the output on {stream}")]
    Open {
        /// The stream.
        stream: Stream,
        /// The system's answer.
        source: io::Error,
    },
    /// Bytes could not be added.
    #[error("write the output on {stream} to its blob, after byte {after}")]
    Write {
        /// The stream.
        stream: Stream,
        /// How many bytes had been written before.
        after: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// It could not be made part of the ledger.
    #[error("store the blob with the output on {stream}")]
    Commit {
        /// The stream.
        stream: Stream,
        /// The system's answer.
        source: io::Error,
    },
    /// It was stored under another hash than that of the bytes that passed.
    #[error("the blob with the output on {stream} became {found}, expected {expected}")]
    Differs {
        /// The stream.
        stream: Stream,
        /// What the store answered.
        found: Hash,
        /// The SHA-256 of the kept bytes as they passed.
        expected: Hash,
    },
}

/// Captures one stream.
pub struct Capture<'a> {
    stream: Stream,
    cap: u64,
    seen: u64,
    all: Hasher,
    /// The state of `all` at the cap, once bytes came past it.
    at_cap: Option<Hasher>,
    head: Vec<u8>,
    /// Present until the head is outgrown.
    open: Option<OpenBlob<'a>>,
    /// Present from then on, unless it was lost.
    blob: Option<Box<dyn Blob + Send + 'a>>,
    loss: Option<SpoolError>,
    /// The first bytes, for who looks at them; absent where nobody does.
    memory: Option<Memory>,
}

/// The first bytes of a stream, up to a number.
struct Memory {
    bytes: Vec<u8>,
    most: usize,
}

struct OpenBlob<'a>(Box<dyn FnOnce() -> io::Result<Box<dyn Blob + Send + 'a>> + Send + 'a>);

impl<'a> Capture<'a> {
    /// Keeps at most `cap` bytes (`None`: all); `open` opens the blob for more than [`INLINE_BYTES`] and is
    /// called at most once, only then.
    pub fn new(
        stream: Stream,
        cap: Option<u64>,
        open: impl FnOnce() -> io::Result<Box<dyn Blob + Send + 'a>> + Send + 'a,
    ) -> Self {
        Self {
            stream,
            cap: cap.unwrap_or(u64::MAX),
            seen: 0,
            all: Hasher::plain(),
            at_cap: None,
            head: Vec::new(),
            open: Some(OpenBlob(Box::new(open))),
            blob: None,
            loss: None,
            memory: None,
        }
    }

    /// Keeps its first bytes in memory too.
    pub fn remembering(mut self, most: usize) -> Self {
        self.memory = Some(Memory {
            bytes: Vec::new(),
            most,
        });
        self
    }

    /// All bytes seen so far.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes the next bytes of the stream. Never fails: what goes wrong with the blob is said by
    /// [`Capture::finish`].
    pub fn take(&mut self, bytes: &[u8]) -> Taken {
        let room = self.cap.saturating_sub(self.seen);
        let forward = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        let (keep, beyond) = bytes.split_at(forward);
        self.all.update(keep);
        let cut = !beyond.is_empty() && self.at_cap.is_none();
        if cut {
            self.at_cap = Some(self.all.clone());
        }
        self.all.update(beyond);
        if let Some(memory) = &mut self.memory {
            let room = memory.most.saturating_sub(memory.bytes.len());
            memory
                .bytes
                .extend_from_slice(keep.get(..room).unwrap_or(keep));
        }

        let (to_head, to_blob) = keep.split_at(keep.len().min(INLINE_BYTES - self.head.len()));
        self.head.extend_from_slice(to_head);
        if !to_blob.is_empty()
            && self.loss.is_none()
            && let Err(error) = self.spool(to_blob)
        {
            self.loss = Some(error);
            self.blob = None;
        }
        self.seen = self.seen.saturating_add(bytes.len() as u64);
        Taken { forward, cut }
    }

    /// Adds bytes to the blob; the first ones open it and go behind the head.
    fn spool(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        let stream = self.stream;
        let write = |blob: &mut dyn Blob, bytes: &[u8], after: u64| {
            blob.write_all(bytes).map_err(|source| SpoolError::Write {
                stream,
                after,
                source,
            })
        };
        if let Some(OpenBlob(open)) = self.open.take() {
            let blob = self
                .blob
                .insert(open().map_err(|source| SpoolError::Open { stream, source })?);
            write(&mut **blob, &self.head, 0)?;
            return write(&mut **blob, bytes, self.head.len() as u64);
        }
        match &mut self.blob {
            Some(blob) => write(&mut **blob, bytes, self.seen),
            None => Ok(()),
        }
    }

    /// The end of the stream.
    #[must_use]
    pub fn finish(self) -> Captured {
        let remembered = self.memory.map(|memory| memory.bytes).unwrap_or_default();
        let kept = self.seen.min(self.cap);
        let sha256 = self.all.finish();
        let expected = self.at_cap.map_or(sha256, Hasher::finish);
        let output = Output {
            base64: None,
            blob: None,
            bytes: U53::saturating(self.seen),
            kept: U53::saturating(kept),
            sha256,
            text: None,
        };
        let loss = match (self.loss, self.blob) {
            (Some(loss), _) => Some(loss),
            (None, None) => None,
            (None, Some(blob)) => match commit(blob, self.stream, expected) {
                Ok(blob) => {
                    return Captured {
                        output: Output {
                            blob: Some(blob),
                            ..output
                        },
                        unmeasured: None,
                        loss: None,
                        remembered,
                    };
                }
                Err(loss) => Some(loss),
            },
        };
        let text = std::str::from_utf8(&self.head)
            .ok()
            .filter(|text| is_plain(text));
        Captured {
            output: Output {
                base64: text.is_none().then(|| STANDARD.encode(&self.head)),
                kept: U53::saturating(self.head.len() as u64),
                text: text.map(str::to_owned),
                ..output
            },
            unmeasured: loss.is_some().then(|| Unmeasured {
                field: self.stream.as_str().to_owned(),
                reason: BLOB_NOT_KEPT.to_owned(),
            }),
            loss,
            remembered,
        }
    }
}

fn commit(blob: Box<dyn Blob + '_>, stream: Stream, expected: Hash) -> Result<Hash, SpoolError> {
    match blob.commit() {
        Ok(found) if found == expected => Ok(found),
        Ok(found) => Err(SpoolError::Differs {
            stream,
            found,
            expected,
        }),
        Err(source) => Err(SpoolError::Commit { stream, source }),
    }
}

/// Whether text may stand in a record as it is: no control characters but tab and newline.
fn is_plain(text: &str) -> bool {
    text.chars()
        .all(|c| !c.is_control() || matches!(c, '\t' | '\n'))
}

#[cfg(test)]
mod tests;
