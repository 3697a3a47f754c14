//! A list that may be long, written as it comes: short ones stand in the record, long ones go to a blob piece by
//! piece, so that memory does not grow with them.

use std::io::{self, Write as _};
use std::ops::ControlFlow;

use ledger::bytes::canon::{U53, WriteLineError, to_canonical};
use ledger::facts::list::{BlobList, List};
use ledger::file::store::{BlobError, BlobWriter, Store};
use serde::Serialize;

/// A list longer than this, as JSON, becomes a blob: two of them, a short one and the rest fit a line.
pub(super) const LIST_BYTES: usize = 24 << 10;
/// The same of a list beside those two.
pub(super) const SHORT_LIST_BYTES: usize = 4 << 10;

/// How much is written to the blob at once.
const CHUNK: usize = 64 << 10;

/// Why a list cannot be kept.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ListError {
    /// Its blob cannot be stored.
    #[error("a blob cannot be kept")]
    #[diagnostic(code(runner::record::blob))]
    Blob(
        #[from]
        #[diagnostic_source]
        BlobError,
    ),
    /// It cannot be written to its blob.
    #[error("a long list cannot be written to its blob")]
    #[diagnostic(code(runner::record::list))]
    Write(#[source] io::Error),
    /// One of its items cannot be written.
    #[error("a value cannot be written")]
    #[diagnostic(code(runner::record::write))]
    Item(#[from] WriteLineError),
}

/// A list on its way into a record.
pub(super) struct Listing<'a, T> {
    store: &'a mut Store,
    /// How long it may be in the record.
    within: usize,
    /// The items, while they are few.
    items: Vec<T>,
    /// The JCS array from `[` on, as far as it is not in the blob.
    text: Vec<u8>,
    blob: Option<BlobWriter>,
    count: u64,
    failed: Option<ListError>,
}

impl<'a, T: Serialize> Listing<'a, T> {
    pub(super) fn new(store: &'a mut Store, within: usize) -> Self {
        Self {
            store,
            within,
            items: Vec::new(),
            text: b"[".to_vec(),
            blob: None,
            count: 0,
            failed: None,
        }
    }

    /// Adds one; breaks off when the list cannot be kept, which [`Listing::finish`] says.
    pub(super) fn add(&mut self, item: T) -> ControlFlow<()> {
        match self.try_add(item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn try_add(&mut self, item: T) -> Result<(), ListError> {
        if self.count > 0 {
            self.text.push(b',');
        }
        self.text.extend(to_canonical(&item)?);
        self.count += 1;
        if self.blob.is_some() {
            if self.text.len() >= CHUNK {
                self.write()?;
            }
        // With the bracket at its end.
        } else if self.text.len() < self.within {
            self.items.push(item);
        } else {
            self.items = Vec::new();
            self.blob = Some(self.store.blob_writer()?);
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ListError> {
        if let Some(blob) = &mut self.blob {
            blob.write_all(&self.text).map_err(ListError::Write)?;
        }
        self.text.clear();
        Ok(())
    }

    /// The list as the record has it.
    pub(super) fn finish(mut self) -> Result<List<T>, ListError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.text.push(b']');
        self.write()?;
        match self.blob {
            None => Ok(List::Inline(self.items)),
            Some(blob) => Ok(List::Blob(BlobList {
                blob: blob.commit()?,
                count: U53::saturating(self.count),
            })),
        }
    }
}
