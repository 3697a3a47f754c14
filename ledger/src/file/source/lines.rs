//! Lines one by one, in flat memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::{Folder, Opened, ReadError, foreign};
use crate::bytes::canon::MAX_LINE_BYTES;
use crate::bytes::hash::{Hash, Hasher};
use crate::file::bundle::PROOF_PREFIX;
use crate::file::store::{SEGMENT_RECORDS, segment_name};
use crate::finding::{Finding, Place};
use crate::record::OPENING_PREFIX;

/// One line without its newline, and where it stands.
#[derive(Debug)]
pub struct Line {
    /// Its bytes; the first 65,536 of a longer one.
    pub bytes: Vec<u8>,
    /// Length and hash of a line that is longer than a line may be.
    pub long: Option<LongLine>,
    /// Nothing follows and no newline ends it.
    pub torn: bool,
    /// It stands in a bundle, where lines of other kinds stand between records.
    pub(in crate::file) bundled: bool,
    /// Where it begins in its file, in bytes.
    pub(in crate::file) offset: u64,
    file: Arc<str>,
    number: u64,
}

/// A line that was hashed as it passed and not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongLine {
    /// The leaf hash of the whole line.
    pub hash: Hash,
    /// Its length in bytes.
    pub length: u64,
}

impl Line {
    /// Whether it is an opening (or wants to be one): it is no leaf of the tree.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.bytes.starts_with(OPENING_PREFIX)
    }

    /// Whether it is the proof of a bundle's next record (or wants to be one).
    #[must_use]
    pub fn is_proof(&self) -> bool {
        self.bundled && self.bytes.starts_with(PROOF_PREFIX)
    }

    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            file: self.file.as_ref().to_owned(),
            line: Some(self.number),
        }
    }
}

/// A segment as it was when lengths were noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) length: u64,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        segment_name(self.number)
    }
}

pub(super) enum Input {
    /// No further file.
    Nothing,
    Segments {
        records: Folder,
        waiting: VecDeque<Segment>,
        expected: u64,
    },
}

impl Input {
    pub(super) fn folder(records: Folder, segments: Vec<Segment>) -> Self {
        Self::Segments {
            records,
            waiting: segments.into(),
            expected: 0,
        }
    }
}

/// The lines of a source, in order.
pub struct Lines {
    input: Input,
    current: Option<Current>,
    files: u64,
    /// What was looked at before its turn.
    peeked: Option<Result<Line, ReadError>>,
    pub(in crate::file) bundled: bool,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

/// The file that is being read.
struct Current {
    reader: BufReader<Box<dyn Read + Send>>,
    file: Arc<str>,
    path: PathBuf,
    lines: u64,
    records: u64,
    /// Bytes read so far.
    offset: u64,
    last: bool,
}

impl Lines {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input,
            current: None,
            files: 0,
            peeked: None,
            bundled: false,
        }
    }

    pub(in crate::file) fn of_stream(name: &str, reader: Box<dyn Read + Send>) -> Self {
        let current = Current::new(reader, name.into(), PathBuf::from(name), true);
        Self {
            input: Input::Nothing,
            current: Some(current),
            files: 1,
            peeked: None,
            bundled: false,
        }
    }

    /// The next line of a stream, which stays the next; `None` at its end, and where it cannot be read, which
    /// [`Self::next`] says.
    pub(in crate::file) fn peek(&mut self) -> Option<&Line> {
        if self.peeked.is_none() {
            self.peeked = self.next(&mut |_| {}).transpose();
        }
        self.peeked.as_ref()?.as_ref().ok()
    }

    /// Nothing follows.
    pub(in crate::file) fn end(&mut self) {
        self.peeked = None;
        self.current = None;
        self.input = Input::Nothing;
    }

    /// How many files have been read so far, the present one included.
    #[must_use]
    pub const fn files(&self) -> u64 {
        self.files
    }

    /// The next line; what is wrong with the files between lines goes to `report`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn next(&mut self, report: &mut dyn FnMut(Finding)) -> Result<Option<Line>, ReadError> {
        if let Some(peeked) = self.peeked.take() {
            return peeked.map(Some);
        }
        loop {
            let Some(current) = &mut self.current else {
                match self.next_file(report)? {
                    Some(next) => {
                        self.files += 1;
                        self.current = Some(next);
                    }
                    None => return Ok(None),
                }
                continue;
            };
            if let Some((mut line, ended)) = current.line()? {
                line.bundled = self.bundled;
                if !ended && !current.last {
                    report(foreign(
                        &current.file,
                        "the segment is not the last, and its last line has no newline",
                    ));
                }
                return Ok(Some(line));
            }
            if let Input::Segments { .. } = self.input {
                current.check_count(report);
            }
            self.current = None;
        }
    }

    fn next_file(&mut self, report: &mut dyn FnMut(Finding)) -> Result<Option<Current>, ReadError> {
        let Input::Segments {
            records,
            waiting,
            expected,
        } = &mut self.input
        else {
            return Ok(None);
        };
        while let Some(segment) = waiting.pop_front() {
            let file = format!("records/{}", segment.name());
            if segment.number != *expected {
                report(
                    foreign(&file, "segments before this one are missing")
                        .versus(segment_name(*expected), segment.name()),
                );
            }
            *expected = segment.number + 1;
            match records.open(&segment.name(), OFlags::empty())? {
                Opened::File(fd) => {
                    let reader = Box::new(File::from(fd).take(segment.length));
                    let path = records.path.join(segment.name());
                    let last = waiting.is_empty();
                    return Ok(Some(Current::new(reader, file.into(), path, last)));
                }
                Opened::Missing | Opened::Foreign => {
                    report(foreign(&file, "the segment was replaced while it was read"));
                }
            }
        }
        Ok(None)
    }
}

impl Current {
    fn new(reader: Box<dyn Read + Send>, file: Arc<str>, path: PathBuf, last: bool) -> Self {
        Self {
            reader: BufReader::with_capacity(MAX_LINE_BYTES + 1, reader),
            file,
            path,
            lines: 0,
            records: 0,
            offset: 0,
            last,
        }
    }

    /// The next line of this file, and whether a newline ended it.
    fn line(&mut self) -> Result<Option<(Line, bool)>, ReadError> {
        let mut bytes = Vec::new();
        let mut hasher: Option<Hasher> = None;
        let mut length = 0u64;
        let ended = loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => {
                    return Err(ReadError {
                        operation: "read",
                        path: self.path.clone(),
                        source,
                    });
                }
            };
            if chunk.is_empty() {
                break false;
            }
            let newline = memchr::memchr(b'\n', chunk);
            let part = chunk.get(..newline.unwrap_or(chunk.len())).unwrap_or(chunk);
            length += part.len() as u64;
            let room = (MAX_LINE_BYTES + 1).saturating_sub(bytes.len());
            if part.len() > room && hasher.is_none() {
                let mut begun = Hasher::leaf();
                begun.update(&bytes);
                hasher = Some(begun);
            }
            if let Some(hasher) = &mut hasher {
                hasher.update(part);
            }
            bytes.extend_from_slice(part.get(..room).unwrap_or(part));
            let used = part.len() + usize::from(newline.is_some());
            self.reader.consume(used);
            if newline.is_some() {
                break true;
            }
        };
        if !ended && length == 0 {
            return Ok(None);
        }
        self.lines += 1;
        let offset = self.offset;
        self.offset += length + u64::from(ended);
        let long = (length > MAX_LINE_BYTES as u64).then(|| LongLine {
            hash: hasher.map_or_else(|| Hash::leaf(&bytes), Hasher::finish),
            length,
        });
        let line = Line {
            bytes,
            long,
            torn: !ended && self.last,
            bundled: false,
            offset,
            file: Arc::clone(&self.file),
            number: self.lines,
        };
        if !line.is_opening() && !line.torn {
            self.records += 1;
        }
        Ok(Some((line, ended)))
    }

    fn check_count(&self, report: &mut dyn FnMut(Finding)) {
        if self.records > SEGMENT_RECORDS {
            report(
                foreign(
                    &self.file,
                    "the segment has more records than a segment holds",
                )
                .versus(SEGMENT_RECORDS, self.records),
            );
        } else if self.records < SEGMENT_RECORDS && !self.last {
            report(
                foreign(&self.file, "the segment is short, and another follows")
                    .versus(SEGMENT_RECORDS, self.records),
            );
        }
    }
}
