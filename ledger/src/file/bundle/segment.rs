//! One segment by the places of its lines, so that records of it are read in any order.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use crate::bytes::canon::MAX_LINE_BYTES;
use crate::file::durable::{self, FileError};
use crate::file::store::{Covered, SEGMENT_RECORDS};
use crate::record::OPENING_PREFIX;

/// Where the lines of one segment's covered records are.
pub(super) struct Segment {
    pub(super) index: u64,
    pub(super) path: PathBuf,
    file: File,
    records: Vec<Lines>,
}

#[derive(Clone, Copy)]
struct Lines {
    opening: Option<Span>,
    record: Span,
}

#[derive(Clone, Copy)]
struct Span {
    offset: u64,
    length: usize,
}

/// Why a segment cannot be read.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum SegmentError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// A record that the checkpoint covers is not there.
    #[error("record {sequence} is not in {}, and the checkpoint covers it", path.display())]
    #[diagnostic(
        code(ledger::bundle::record_missing),
        help("`verify` says what became of the ledger")
    )]
    Missing {
        /// Its number.
        sequence: u64,
        /// Where it should be.
        path: PathBuf,
    },
}

impl Segment {
    /// Notes the places of the lines up to the record of number `most`, or to the last that is covered.
    pub(super) fn open(covered: &Covered, index: u64, most: u64) -> Result<Self, SegmentError> {
        let first = index * SEGMENT_RECORDS;
        let end = covered.size().min(most.saturating_add(1));
        let wanted = end.saturating_sub(first).min(SEGMENT_RECORDS);
        let path = covered.segment(index);
        let missing = |count: usize| SegmentError::Missing {
            sequence: first + count as u64,
            path: path.clone(),
        };
        let file = durable::open_to_read(&path)?.ok_or_else(|| missing(0))?;
        let mut reader = BufReader::with_capacity(1 << 16, &file);
        let (mut records, mut opening) = (Vec::new(), None);
        let (mut line, mut offset) = (Vec::new(), 0);
        while (records.len() as u64) < wanted {
            line.clear();
            let read = durable::read_line(&mut reader, &path, &mut line, MAX_LINE_BYTES + 1)?;
            let Some(text) = line.strip_suffix(b"\n") else {
                // At the end, or a line that no record has.
                return Err(missing(records.len()));
            };
            let span = Span {
                offset,
                length: text.len(),
            };
            offset += read as u64;
            if text.starts_with(OPENING_PREFIX) {
                opening = Some(span);
            } else {
                let opening = opening.take();
                records.push(Lines {
                    opening,
                    record: span,
                });
            }
        }
        drop(reader);
        Ok(Self {
            index,
            path,
            file,
            records,
        })
    }

    /// The line of a record of this segment, and the opening before it.
    pub(super) fn lines(&self, sequence: u64) -> Result<(Vec<u8>, Option<Vec<u8>>), SegmentError> {
        let missing = || SegmentError::Missing {
            sequence,
            path: self.path.clone(),
        };
        let at = sequence.checked_sub(self.index * SEGMENT_RECORDS);
        let lines = at
            .and_then(|at| self.records.get(usize::try_from(at).ok()?))
            .ok_or_else(missing)?;
        let opening = match lines.opening {
            Some(span) => Some(self.read(span)?),
            None => None,
        };
        Ok((self.read(lines.record)?, opening))
    }

    fn read(&self, span: Span) -> Result<Vec<u8>, FileError> {
        let mut bytes = vec![0; span.length];
        durable::read_at(&self.file, &self.path, &mut bytes, span.offset)?;
        Ok(bytes)
    }
}

/// The segment that a record stands in.
pub(super) const fn index_of(sequence: u64) -> u64 {
    sequence / SEGMENT_RECORDS
}
