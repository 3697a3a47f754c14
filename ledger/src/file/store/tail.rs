//! Reading on from where a state stands: what others appended, what a crash left.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use super::layout::{Layout, SEGMENT_RECORDS};
use super::state::State;
use crate::bytes::canon::{MAX_LINE_BYTES, WriteLineError};
use crate::file::chain::Standing;
use crate::file::durable::{self, FileError};
use crate::finding::Finding;
use crate::record::{Content, OPENING_PREFIX, parse_line};

/// What stands behind the last record that verifies.
#[derive(Debug)]
pub(super) enum Ending {
    /// Nothing.
    Clean,
    /// The last record verifies and lacks only its newline.
    NoNewline {
        /// The segment.
        path: PathBuf,
        /// Its length.
        length: u64,
    },
    /// Bytes that are no next record.
    Torn(Torn),
}

/// Bytes that are no next record; they begin where the state stands.
#[derive(Debug)]
pub(super) struct Torn {
    /// What is wrong with the first line; nothing for an opening without its record.
    pub(super) findings: Vec<Finding>,
}

impl Torn {
    /// In words.
    pub(super) fn describe(&self, state: &State) -> String {
        let what = match self.findings.first() {
            Some(finding) => finding.message.as_str(),
            None => "something stands there that is not followed by its record",
        };
        format!("record {} does not verify: {what}", state.size())
    }
}

/// Why records could not be read on.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum ReadRecordsError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// A segment lost bytes that had been read from it.
    #[error("{} has {found} bytes, at least {expected} had been read", path.display())]
    #[diagnostic(
        code(ledger::read::shrunk),
        help("something cut the ledger while it was written to: restore what is missing")
    )]
    Shrunk {
        /// The segment.
        path: PathBuf,
        /// How far it had been read.
        expected: u64,
        /// Its length now; 0 when it is gone.
        found: u64,
    },
    /// Something follows the last record that a segment may hold.
    #[error("{} goes on after its {SEGMENT_RECORDS} records", .0.display())]
    #[diagnostic(
        code(ledger::read::surplus),
        help("no crash does this: look at the segment, or restore it from a copy")
    )]
    Surplus(PathBuf),
    /// A newer program wrote this record.
    #[error("record {sequence} needs a newer program to append after it: {what}")]
    #[diagnostic(
        code(ledger::read::newer),
        help("take the newer runner that wrote it, or begin another ledger with --ledger DIR")
    )]
    Newer {
        /// The record.
        sequence: u64,
        /// Why.
        what: String,
    },
    /// A record that was read cannot be written again.
    #[error(transparent)]
    #[diagnostic(code(ledger::read::line))]
    Line(#[from] WriteLineError),
}

/// Takes every record behind the state's place. `after_segment` is called after each full segment, so that
/// what a long walk gathers can be put away.
pub(super) fn read_on(
    layout: &Layout,
    state: &mut State,
    after_segment: &mut dyn FnMut(&mut State) -> Result<(), FileError>,
) -> Result<Ending, ReadRecordsError> {
    loop {
        let index = state.segment();
        let path = layout.segment(index);
        let shrunk = |expected, found| ReadRecordsError::Shrunk {
            path: path.clone(),
            expected,
            found,
        };
        let Some(file) = durable::open_to_read(&path)? else {
            return match state.offset {
                // Nothing stands behind a missing segment but what has lost its place.
                0 if durable::inspect_path(&layout.segment(index + 1))?.is_some() => {
                    Ok(Ending::Torn(Torn { findings: vec![] }))
                }
                0 => Ok(Ending::Clean),
                expected => Err(shrunk(expected, 0)),
            };
        };
        let length = durable::inspect(&file, &path)?.len();
        if length < state.offset {
            return Err(shrunk(state.offset, length));
        }
        if length == state.offset && length > 0 {
            return Ok(Ending::Clean);
        }
        let mut reader = BufReader::with_capacity(1 << 16, file);
        durable::seek(&mut reader, &path, state.offset)?;
        match read_segment(&mut reader, &path, state)? {
            Some(ending) => return Ok(ending),
            None if state.segment() != index => after_segment(state)?,
            None => {
                // A segment that is not full can only be the last.
                let next = layout.segment(index + 1);
                let followed = durable::inspect_path(&next)?.is_some();
                return Ok(if followed {
                    Ending::Torn(Torn { findings: vec![] })
                } else {
                    Ending::Clean
                });
            }
        }
    }
}

/// Takes the records of one segment; `None` when it ends with a whole record.
fn read_segment(
    reader: &mut BufReader<std::fs::File>,
    path: &Path,
    state: &mut State,
) -> Result<Option<Ending>, ReadRecordsError> {
    let segment = state.segment();
    let mut position = state.offset;
    let mut opening = false;
    let mut line = Vec::new();
    let torn = |findings| Ok(Some(Ending::Torn(Torn { findings })));
    loop {
        line.clear();
        let read = durable::read_line(reader, path, &mut line, MAX_LINE_BYTES + 2)?;
        if read == 0 {
            return if opening { torn(vec![]) } else { Ok(None) };
        }
        if state.segment() != segment {
            return Err(ReadRecordsError::Surplus(path.to_owned()));
        }
        position += read as u64;
        let (content, whole) = match line.strip_suffix(b"\n") {
            Some(content) => (content, true),
            None => (line.as_slice(), false),
        };
        if content.starts_with(OPENING_PREFIX) {
            if opening || !whole {
                return torn(vec![]);
            }
            opening = true;
            continue;
        }
        let parsed = parse_line(content);
        let mut chain = state.chain.clone();
        let mut findings = Vec::new();
        let standing = chain.step(&parsed, content, &mut |finding| findings.push(finding));
        match (standing, &parsed.content) {
            (Standing::Verified, Ok(Content::Record(record))) => {
                state.take(chain, parsed.hash, record, position)?;
            }
            (Standing::Unread, _) => {
                return Err(ReadRecordsError::Newer {
                    sequence: state.size(),
                    what: findings
                        .first()
                        .map_or_else(String::new, |finding| finding.message.clone()),
                });
            }
            _ => return torn(findings),
        }
        if !whole {
            return Ok(Some(Ending::NoNewline {
                path: path.to_owned(),
                length: position,
            }));
        }
        opening = false;
    }
}
