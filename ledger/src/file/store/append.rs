//! Appending one record: the line, the write, the flush, and what is renewed after it.

use super::acknowledged::Difference;
use super::found::FindError;
use super::heads;
use super::layout::{Layout, SEGMENT_RECORDS};
use super::state::State;
use super::tail::ReadRecordsError;
use super::{Notice, Store};
use crate::bytes::canon::{U53, WriteLineError};
use crate::bytes::hash::Hash;
use crate::bytes::key::KeyId;
use crate::bytes::time::Stamp;
use crate::file::chain::{Chain, Standing};
use crate::file::durable::{self, FileError};
use crate::proof::checkpoint::Checkpoint;
use crate::record::{
    Body, Content, Opened, Opening, OpeningProblem, Record, WriteRecordError, parse_line,
};

/// When a record must be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// With the next durable record: a crash of the machine may take it, a crash of the runner does not.
    Deferred,
    /// Before the append returns.
    Durable,
}

/// Where a record was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub sequence: U53,
    /// Its name.
    pub hash: Hash,
}

/// Why a record could not be kept.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum AppendError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// An earlier write failed: what is on the disk is not known.
    #[error("an earlier write to this ledger failed")]
    #[diagnostic(
        code(ledger::append::stopped),
        help("open the ledger again: it is read anew from what was acknowledged")
    )]
    Stopped,
    /// What others appended could not be read.
    #[error("cannot read on in the ledger")]
    #[diagnostic(code(ledger::append::read))]
    Read(
        #[from]
        #[diagnostic_source]
        ReadRecordsError,
    ),
    /// The ledger was closed.
    #[error("the ledger was closed by record {0}, nothing may follow")]
    #[diagnostic(code(ledger::append::closed), help("begin another ledger"))]
    Closed(u64),
    /// Another process changed the key.
    #[error("the ledger's key is {active} now, this process holds {own}")]
    #[diagnostic(code(ledger::append::key_changed), help("open the ledger again"))]
    KeyChanged {
        /// The key that may sign.
        active: KeyId,
        /// The key at hand.
        own: KeyId,
    },
    /// Such records are written by the store itself.
    #[error("a {0} record is not appended like others")]
    #[diagnostic(code(ledger::append::kind))]
    Kind(&'static str),
    /// The record does not fit a line, or was not signed.
    #[error(transparent)]
    #[diagnostic(code(ledger::append::record))]
    Record(#[from] WriteRecordError),
    /// The opening does not open the record.
    #[error("the opening does not fit the record")]
    #[diagnostic(code(ledger::append::opening))]
    Opening(#[from] OpeningProblem),
    /// The opening does not fit a line.
    #[error("the opening cannot be written as one line")]
    #[diagnostic(code(ledger::append::opening_line))]
    OpeningLine(#[source] WriteLineError),
    /// No reader would accept the record.
    #[error("the record would not verify: {0}")]
    #[diagnostic(code(ledger::append::would_not_verify))]
    WouldNotVerify(String),
    /// The start record has its end already.
    #[error(
        "record {0} names no run that is still open: another command took the run for dead and closed it"
    )]
    #[diagnostic(
        code(ledger::append::ended),
        help(
            "a run is known to be alive by its file in the ledger's folder `runs`: leave that alone while runs go on"
        )
    )]
    Ended(U53),
    /// Sequence numbers are used up.
    #[error("the ledger holds as many records as there are numbers")]
    #[diagnostic(code(ledger::append::full))]
    Full,
    /// Bytes stand where the record goes.
    #[error("{} bytes stand in {path} where the next record goes", bytes)]
    #[diagnostic(code(ledger::append::in_the_way))]
    InTheWay {
        /// The segment.
        path: String,
        /// How many.
        bytes: u64,
    },
    /// A record stands behind bytes that are none.
    #[error("{damage}, and a record that does verify stands behind it")]
    #[diagnostic(
        code(ledger::append::damaged),
        help(
            "no crash does this: look at the segment, restore it from a copy, or begin another ledger"
        )
    )]
    Damaged {
        /// What is wrong.
        damage: String,
    },
    /// It could not be found out where the ledger stands.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Find(#[from] FindError),
    /// Records that were acknowledged are not there any more.
    #[error("{difference}")]
    #[diagnostic(
        code(ledger::append::differs),
        help(
            "nothing was signed; restore the records that are missing, or open the ledger with --accept-rollback"
        )
    )]
    Differs {
        /// How.
        difference: Box<Difference>,
    },
}

/// What follows from a durable record could not be renewed. The record is kept nevertheless.
#[derive(Debug, thiserror::Error)]
#[error("its {what} could not be renewed")]
pub struct RenewError {
    what: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl RenewError {
    fn of<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> Self {
        move |source| Self {
            what,
            source: Box::new(source),
        }
    }
}

impl Store {
    /// Signs a record, writes it behind the last one, and flushes it if asked. Callers hold the lock and have
    /// caught up. What a recovery replaces is overwritten, then cut.
    pub(super) fn write_record(
        &mut self,
        body: Body,
        opened: Option<Opened>,
        stamp: &Stamp,
        durability: Durability,
    ) -> Result<Appended, AppendError> {
        self.may_sign()?;
        let replaces = matches!(body, Body::Recovery(_));
        let signed = self.sign(body, opened, stamp)?;
        let path = self.layout.segment(self.state.segment());
        let file = match self.state.offset {
            0 => begin_segment(&self.layout, &self.state)?,
            _ => durable::open_to_write(&path)?.ok_or_else(|| ReadRecordsError::Shrunk {
                path: path.clone(),
                expected: self.state.offset,
                found: 0,
            })?,
        };
        let length = durable::inspect(&file, &path)?.len();
        let (from, end) = (
            self.state.offset,
            self.state.offset + signed.bytes.len() as u64,
        );
        if length != from && !replaces {
            return Err(AppendError::InTheWay {
                path: path.display().to_string(),
                bytes: length.abs_diff(from),
            });
        }
        // From here on the file may hold anything until the last call has succeeded.
        self.stopped = true;
        if let Err(error) = durable::write_at(&file, &path, &signed.bytes, from) {
            // The disk is full, perhaps: leave no half record behind. If that fails too, the next opening
            // sets it aside.
            if !replaces {
                let _ = durable::truncate(&file, &path, from);
            }
            return Err(error.into());
        }
        if length > end {
            durable::truncate(&file, &path, end)?;
        }
        if durability == Durability::Durable {
            let again = self.state.unsettled(self.state.segment());
            durable::write_again(&file, &path, again..from)?;
            durable::sync_data(&file, &path)?;
        }
        let hash = signed.hash;
        self.state
            .take(signed.chain, hash, &signed.record, end)
            .map_err(|source| WriteRecordError::Line {
                kind: signed.record.body.kind(),
                source,
            })?;
        self.stopped = false;
        if durability == Durability::Durable {
            self.state.settle();
            self.renew_or_say(durable::Durability::Unsynced);
        }
        Ok(Appended {
            sequence: signed.record.sequence,
            hash,
        })
    }

    /// Whether this process may append at all.
    pub(super) fn may_sign(&self) -> Result<(), AppendError> {
        if self.stopped {
            return Err(AppendError::Stopped);
        }
        if let Some(sequence) = self.state.chain.closed_at() {
            return Err(AppendError::Closed(sequence));
        }
        let own = self.signer.public().id();
        match self.state.chain.active() {
            Some(active) if active.key.id() != own => Err(AppendError::KeyChanged {
                active: active.key.id(),
                own,
            }),
            _ => Ok(()),
        }
    }

    fn sign(
        &self,
        body: Body,
        opened: Option<Opened>,
        stamp: &Stamp,
    ) -> Result<Signed, AppendError> {
        let chain = &self.state.chain;
        let sequence = U53::new(chain.next()).ok_or(AppendError::Full)?;
        let record = Record::new(body, stamp.clone(), self.ledger, sequence, chain.head());
        let line = record.to_signed_line(self.signer.as_ref())?;
        let mut bytes = Vec::with_capacity(line.len() + 1);
        if let Some(open) = opened.filter(|open| !open.is_empty()) {
            let opening = Opening { open, sequence };
            opening.fits(&record)?;
            bytes.extend(opening.to_line().map_err(AppendError::OpeningLine)?);
            // What no reader would take is not written.
            Opening::parse(&bytes)?;
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(&line);
        bytes.push(b'\n');
        let (chain, hash) = step_verified(chain, &line)?;
        Ok(Signed {
            record,
            bytes,
            chain,
            hash,
        })
    }

    /// Puts the checkpoint of a closed ledger on the disk: whoever closed it may not have got that far, and
    /// nothing will be appended any more. Callers hold the lock.
    pub(super) fn cover_close(&mut self) -> Result<(), FileError> {
        if self.state.chain.closed_at().is_none() {
            return Ok(());
        }
        self.settle()?;
        self.renew_or_say(durable::Durability::Synced);
        Ok(())
    }

    /// Every record is on the disk when this succeeds. Callers hold the lock and have caught up.
    pub(super) fn settle(&mut self) -> Result<(), FileError> {
        let Some(last) = self.state.size().checked_sub(1) else {
            return Ok(());
        };
        let segment = last / SEGMENT_RECORDS;
        let path = self.layout.segment(segment);
        if let Some(file) = durable::open_to_write(&path)? {
            let length = durable::inspect(&file, &path)?.len();
            durable::write_again(&file, &path, self.state.unsettled(segment)..length)?;
            durable::sync_data(&file, &path)?;
        }
        self.state.settle();
        Ok(())
    }

    /// Renews what follows from a durable record; the record is kept whatever comes of it.
    fn renew_or_say(&mut self, durability: durable::Durability) {
        let renewed = self.renew(durability);
        self.say(renewed);
    }

    /// Makes the caches anew, or says that it could not.
    pub(super) fn renew_caches_or_say(&mut self) {
        let renewed = self.renew_caches();
        self.say(renewed);
    }

    fn say(&mut self, renewed: Result<(), RenewError>) {
        if let Err(error) = renewed {
            let source = &error.source;
            let why = match source.source() {
                Some(cause) => format!("{error}: {source}: {cause}"),
                None => format!("{error}: {source}"),
            };
            self.notices.push(Notice::NotRenewed { why });
        }
    }

    /// Signs the checkpoint of all records, then brings caches and `.heads` up to date. Every record is on
    /// the disk.
    pub(super) fn renew(&mut self, durability: durable::Durability) -> Result<(), RenewError> {
        let (size, root) = (self.state.size(), self.state.root());
        let checkpoint = Checkpoint {
            origin: self.origin.as_str().to_owned(),
            size,
            root,
        };
        let signed = checkpoint
            .sign(self.signer.as_ref())
            .map_err(RenewError::of("checkpoint"))?;
        let (path, text) = (self.layout.checkpoint(), signed.to_string());
        durable::replace(&path, text.as_bytes(), durability)
            .map_err(RenewError::of("checkpoint"))?;
        self.renew_caches()?;
        let line = self.folder.line(self.ledger, size, root);
        let file = heads::path(&self.key_folder, &self.signer.public().id());
        heads::put(&file, &line).map_err(RenewError::of("entry in .heads"))
    }

    pub(super) fn renew_caches(&mut self) -> Result<(), RenewError> {
        self.state
            .write_tree(&self.layout)
            .map_err(RenewError::of("tree"))?;
        self.state
            .write_tip(&self.layout)
            .map_err(RenewError::of("tip"))
    }
}

/// A record that is ready to be written.
struct Signed {
    record: Record,
    /// Opening and record, with their newlines.
    bytes: Vec<u8>,
    /// The chain with the record.
    chain: Chain,
    hash: Hash,
}

/// The chain with one more line, exactly if readers would accept it.
pub(super) fn step_verified(chain: &Chain, line: &[u8]) -> Result<(Chain, Hash), AppendError> {
    let mut chain = chain.clone();
    let parsed = parse_line(line);
    let mut findings = Vec::new();
    let standing = chain.step(&parsed, line, &mut |finding| findings.push(finding));
    match (standing, &parsed.content) {
        (Standing::Verified, Ok(Content::Record(_))) => Ok((chain, parsed.hash)),
        _ => Err(AppendError::WouldNotVerify(
            findings
                .first()
                .map_or_else(String::new, |finding| finding.message.clone()),
        )),
    }
}

/// The next segment, made or, after a crash, found; the one before it and its own name are on the disk first.
fn begin_segment(layout: &Layout, state: &State) -> Result<std::fs::File, AppendError> {
    let index = state.segment();
    if let Some(before) = index.checked_sub(1) {
        let path = layout.segment(before);
        let full = durable::open_to_write(&path)?.ok_or_else(|| ReadRecordsError::Shrunk {
            path: path.clone(),
            expected: 1,
            found: 0,
        })?;
        let length = durable::inspect(&full, &path)?.len();
        durable::write_again(&full, &path, state.unsettled(before)..length)?;
        durable::sync_data(&full, &path)?;
    }
    let file = durable::open_or_create(&layout.segment(index))?;
    durable::sync_folder(&layout.records())?;
    Ok(file)
}
