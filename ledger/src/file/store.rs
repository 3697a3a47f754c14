//! The writing side of a ledger folder (TRUST.md §5).
//!
//! A [`Store`] appends signed records to the segments of one folder. Many processes may have one open on the
//! same folder: each takes the lock for the length of one append and first reads what the others appended.
//!
//! ```text
//! records/00000000.jsonl …   the records: the only thing that counts
//! blobs/  torn/  checkpoint  belong to the evidence
//! tree  tip  lock  runs/     derived: may be deleted, are made again
//! ```
//!
//! Not here: a clock (moments are handed in), checking old records (that is `verify`'s work; appending reads
//! none of them), and what records mean.

mod acknowledged;
mod append;
mod begin;
mod blobs;
mod covered;
mod describe;
mod error;
mod found;
mod heads;
mod keys;
mod layout;
mod lock;
mod measured;
mod notice;
mod open;
mod recover;
mod state;
mod tail;

use std::path::PathBuf;

pub use acknowledged::{Difference, StoredCheckpointError};
pub use append::{AppendError, Appended, Durability, RenewError};
pub use blobs::{BlobError, BlobWriter};
pub(in crate::file) use covered::Covered;
pub use covered::CoveredError;
pub use describe::{Description, describe};
pub use error::OpenLedgerError;
pub use found::FindError;
pub use heads::WriteHeadsError;
pub use keys::{KeyFileError, create_key_file, read_key_file};
pub use layout::{SEGMENT_RECORDS, blob_name, segment_name};
pub use lock::{LockError, RunLock};
pub use notice::Notice;
pub use open::{KeyChoice, OpenOptions};
pub use state::WriteTipError;
pub use tail::ReadRecordsError;

use crate::bytes::canon::{MAX_LINE_BYTES, U53, to_canonical};
use crate::bytes::hash::Hash;
use crate::bytes::key::{Message, PublicKey, Signer};
use crate::bytes::time::Stamp;
use crate::facts::execution::{Execution, Outcome, RunId, RunResult, RuntimeUsed, Verdict};
use crate::facts::host::HostFacts;
use crate::record::{Body, Close, Content, Custody, Opened, Origin, WriteRecordError, parse_line};

use super::durable::{self, FileError};
use layout::Layout;
pub(in crate::file) use layout::NAMES;
use lock::LedgerLock;
use state::State;

/// A ledger that this process may append to.
pub struct Store {
    layout: Layout,
    lock: LedgerLock,
    folder: Folder,
    ledger: Hash,
    origin: Origin,
    signer: Box<dyn Signer + Send>,
    key_file: Option<PathBuf>,
    key_folder: PathBuf,
    state: State,
    /// A write failed: nothing more is written by this value.
    stopped: bool,
    notices: Vec<Notice>,
}

/// Which folder a ledger is in, as `.heads` tells it.
struct Folder {
    device: u64,
    inode: u64,
    path: String,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("root", &self.layout.root())
            .field("ledger", &self.ledger)
            .field("size", &self.state.size())
            .finish_non_exhaustive()
    }
}

/// Why a ledger could not be closed.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum CloseError {
    /// A run is alive.
    #[error("run {run} (record {start}) is still going on")]
    #[diagnostic(
        code(ledger::close::run_open),
        help("wait for it to end, or end it, and close again")
    )]
    RunOpen {
        /// The run.
        run: RunId,
        /// Its start record.
        start: U53,
    },
    /// The record could not be kept.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Append(#[from] AppendError),
    /// The ledger is closed, but its checkpoint could not be put on the disk.
    #[error("the ledger is closed, and not everything that follows from it was written")]
    #[diagnostic(code(ledger::close::renew))]
    Renew(#[from] RenewError),
}

impl From<FileError> for CloseError {
    fn from(error: FileError) -> Self {
        Self::Append(error.into())
    }
}

/// Why the checkpoint could not be put on the disk.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum SyncCheckpointError {
    /// Nothing can be signed, or the records are not to be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Append(#[from] AppendError),
    /// It was not written, or not what follows from it.
    #[error(transparent)]
    #[diagnostic(code(ledger::checkpoint::renew))]
    Renew(#[from] RenewError),
}

impl From<FileError> for SyncCheckpointError {
    fn from(error: FileError) -> Self {
        Self::Append(error.into())
    }
}

impl Store {
    /// The ledger's id.
    #[must_use]
    pub const fn id(&self) -> &Hash {
        &self.ledger
    }

    /// The ledger's name in checkpoints.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The key that signs.
    #[must_use]
    pub fn public_key(&self) -> &PublicKey {
        self.signer.public()
    }

    /// Where the key is kept, by the ledger's own word.
    #[must_use]
    pub fn custody(&self) -> Option<Custody> {
        self.state.chain.active().map(|active| active.custody)
    }

    /// The file that the key is kept in; `None` for a key that is kept nowhere.
    #[must_use]
    pub fn key_file(&self) -> Option<&std::path::Path> {
        self.key_file.as_deref()
    }

    /// Whether nothing may follow any more.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.state.chain.closed_at().is_some()
    }

    /// How many records this value has seen.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.state.size()
    }

    /// Hash of the last record that this value has seen.
    #[must_use]
    pub fn head(&self) -> Hash {
        self.state.chain.head()
    }

    /// The ledger folder.
    #[must_use]
    pub fn root(&self) -> &std::path::Path {
        self.layout.root()
    }

    /// Paths that no workload may reach: the ledger, the key, the folder of keys and heads.
    #[must_use]
    pub fn evidence_paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.layout.root().to_owned(), self.key_folder.clone()];
        paths.extend(self.key_file.clone());
        paths
    }

    /// What the operator should be told, once.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Whether a record could be kept right now. Closes the runs whose runner died.
    ///
    /// # Errors
    /// It could not: the same error that an append would give.
    pub fn ready(&mut self, stamp: &Stamp) -> Result<(), AppendError> {
        self.locked(|store| {
            store.catch_up(stamp)?;
            store.may_sign()?;
            let path = store.layout.segment(store.state.segment());
            // Opened for writing: permissions and read-only file systems speak here.
            durable::open_to_write(&path)?;
            store.close_dead_runs(stamp)
        })
    }

    /// Says that a run is alive, until the lock is dropped. To be called before its start is appended.
    ///
    /// # Errors
    /// The system refuses, or there is such a run already.
    pub fn begin_run(&mut self, run: RunId) -> Result<RunLock, FileError> {
        self.locked(|store| RunLock::take(&store.layout, run))
    }

    /// The facts of the newest host record, read from its line and checked against its signature; `None` when
    /// there is none, or when the line is not where the derived state says.
    ///
    /// # Errors
    /// The system refuses to read.
    pub fn newest_host(&self) -> Result<Option<HostFacts>, FileError> {
        let Some(host) = &self.state.host else {
            return Ok(None);
        };
        let sequence = host.sequence.value();
        let path = self.layout.segment(sequence / SEGMENT_RECORDS);
        let Some(file) = durable::open_to_read(&path)? else {
            return Ok(None);
        };
        let end = host.end.value();
        let from = end.saturating_sub(MAX_LINE_BYTES as u64 + 2);
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(0)];
        match durable::read_at(&file, &path, &mut bytes, from) {
            Err(error) if error.source.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Ok(None);
            }
            read => read?,
        }
        let Some(text) = bytes.strip_suffix(b"\n") else {
            return Ok(None);
        };
        let line = text.rsplit(|byte| *byte == b'\n').next().unwrap_or(text);
        let parsed = parse_line(line);
        let signed = parsed.frame.as_ref().is_some_and(|frame| {
            let keys = self.state.chain.keys();
            let active = keys.iter().rev().find(|active| active.from <= sequence);
            let record = line.get(frame.record.clone()).unwrap_or_default();
            active.is_some_and(|active| {
                active.key.id() == frame.key
                    && active
                        .key
                        .verifies(Message::Record(record), &frame.signature)
            })
        });
        Ok(match parsed.content {
            Ok(Content::Record(record))
                if signed && record.sequence == host.sequence && record.ledger == *self.id() =>
            {
                match record.body {
                    Body::Host(facts) => Some(*facts),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    /// The newest matrix for the user of the newest host record, which `host` must be, and a tier, runtime and policy; `None`
    /// where there is none, or this value does not know of one. Nothing is read.
    #[must_use]
    pub fn newest_matrix(&self, host: U53, runtime: &RuntimeUsed, policy: &str) -> Option<U53> {
        let newest = self.state.host.filter(|newest| newest.sequence == host)?;
        self.state.measured.newest(newest.uid, runtime, policy)
    }

    /// The number of the newest host record, which is appended (deferred) when the facts are not the same.
    ///
    /// # Errors
    /// The record could not be kept.
    pub fn host(&mut self, facts: &HostFacts, stamp: &Stamp) -> Result<U53, AppendError> {
        let kind = "host";
        let body = to_canonical(facts).map_err(|source| WriteRecordError::Line { kind, source })?;
        let body = Hash::of(&body);
        self.locked(|store| {
            store.catch_up(stamp)?;
            match store.state.host {
                Some(host) if host.body == body => Ok(host.sequence),
                _ => {
                    let body = Body::Host(Box::new(facts.clone()));
                    store
                        .write_record(body, None, stamp, Durability::Deferred)
                        .map(|appended| appended.sequence)
                }
            }
        })
    }

    /// Appends a record, its opening directly before it.
    ///
    /// # Errors
    /// The record could not be kept. After a failed write or flush this value refuses everything: what is on
    /// the disk is only known by opening the ledger again.
    pub fn append(
        &mut self,
        body: Body,
        opened: Option<Opened>,
        stamp: &Stamp,
        durability: Durability,
    ) -> Result<Appended, AppendError> {
        match body {
            Body::Genesis(_) | Body::Key(_) | Body::Recovery(_) | Body::Close(_) => {
                return Err(AppendError::Kind(body.kind()));
            }
            Body::Host(_)
            | Body::Start(_)
            | Body::Execution(_)
            | Body::Probe(_)
            | Body::Matrix(_)
            | Body::Note(_) => {}
        }
        self.locked(|store| {
            store.catch_up(stamp)?;
            // Whoever took the run for dead closed it: a second end would make the ledger invalid for good.
            if let Some(ended) = body.ends()
                && !store.state.open.iter().any(|open| open.sequence == ended)
            {
                return Err(AppendError::Ended(ended));
            }
            store.write_record(body, opened, stamp, durability)
        })
    }

    /// Appends the record that nothing may follow, and puts the checkpoint on the disk with it.
    ///
    /// # Errors
    /// A run is alive, or the record could not be kept.
    pub fn close(&mut self, reason: &str, stamp: &Stamp) -> Result<Appended, CloseError> {
        let reason = reason.to_owned();
        self.locked(|store| {
            store.catch_up(stamp)?;
            store.may_sign()?;
            store.close_dead_runs(stamp)?;
            if let Some(open) = store.state.open.first() {
                let (run, start) = (open.run, open.sequence);
                return Err(CloseError::RunOpen { run, start });
            }
            let body = Body::Close(Close { reason });
            let appended = store.write_record(body, None, stamp, Durability::Durable)?;
            store.renew(durable::Durability::Synced)?;
            Ok(appended)
        })
    }

    /// Puts the checkpoint of all records on the disk, for what leaves the machine (TRUST.md §5).
    ///
    /// # Errors
    /// It could not be: another process changed the key, or the system refuses.
    pub fn sync_checkpoint(&mut self, stamp: &Stamp) -> Result<(), SyncCheckpointError> {
        self.locked(|store| {
            store.catch_up(stamp)?;
            if store.state.chain.closed_at().is_some() {
                store.cover_close()?;
                return Ok(());
            }
            store.may_sign()?;
            store.settle()?;
            store.renew(durable::Durability::Synced)?;
            Ok(())
        })
    }

    /// Closes every start whose run nobody keeps alive. Callers hold the lock and have caught up.
    fn close_dead_runs(&mut self, stamp: &Stamp) -> Result<(), AppendError> {
        for open in self.state.open.clone() {
            if lock::is_alive(&self.layout, &open.run)? {
                continue;
            }
            let body = Body::Execution(Box::new(interrupted(open.sequence)));
            self.write_record(body, None, stamp, Durability::Deferred)?;
            durable::remove(&self.layout.run_lock(&open.run))?;
            self.notices.push(Notice::ClosedRun {
                run: open.run,
                start: open.sequence.value(),
            });
        }
        Ok(())
    }

    /// Does something while no other process writes.
    fn locked<T, E: From<FileError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.lock.acquire()?;
        let result = work(self);
        self.lock.release()?;
        result
    }
}

/// What is known of a run whose runner died: that it began.
fn interrupted(start: U53) -> Execution {
    Execution {
        artifacts: None,
        cleanup: None,
        observed: None,
        result: RunResult {
            duration_us: None,
            errno: None,
            exit_code: None,
            outcome: Outcome::Interrupted,
            reason: None,
            signal: None,
            stderr: None,
            stdout: None,
        },
        start,
        unmeasured: None,
        verdict: Verdict::Interrupted,
        violations: None,
    }
}

#[cfg(test)]
mod tests;
