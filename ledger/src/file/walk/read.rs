//! What can be said of a line by itself: form, hash, and whether its signature is a given key's.
//!
//! This is nearly all the work of a walk, and none of it needs the lines before, so that it can be done for
//! several lines at once. What is said here counts only once the walk takes it in the order of the lines.

use crate::bytes::key::PublicKey;
use crate::file::chain::Checked;
use crate::file::source::{Line, Lines, ReadError};
use crate::finding::Finding;
use crate::record::{LineProblem, Opening, OpeningProblem, ParsedLine, parse_line};

/// Most lines of one batch, and after how many bytes it is full.
const BATCH_LINES: usize = 128;
const BATCH_BYTES: usize = 128 * 1024;

/// What a source gives, in its order.
pub(super) enum Given {
    /// A line.
    Line(Line),
    /// Something that is wrong with the files between two lines.
    Finding(Finding),
    /// A file cannot be read: nothing follows.
    Failed(ReadError),
}

/// The same, read.
pub(super) enum Read {
    /// A record line, or what stands in the place of one.
    Record {
        line: Line,
        parsed: Box<ParsedLine>,
        checked: Option<Box<Checked>>,
    },
    /// An opening line.
    Opening {
        line: Line,
        read: Box<Result<Opening, OpeningProblem>>,
    },
    /// The last line, without its newline.
    Torn(Line),
    Finding(Finding),
    Failed(ReadError),
}

/// The next lines of a source; empty at its end.
pub(super) fn batch(lines: &mut Lines) -> Vec<Given> {
    let (mut batch, mut bytes) = (Vec::with_capacity(BATCH_LINES), 0);
    while batch.len() < BATCH_LINES && bytes < BATCH_BYTES {
        match lines.next(&mut |finding| batch.push(Given::Finding(finding))) {
            Ok(Some(line)) => {
                bytes += line.bytes.len();
                batch.push(Given::Line(line));
            }
            Ok(None) => break,
            Err(error) => {
                batch.push(Given::Failed(error));
                break;
            }
        }
    }
    batch
}

impl Given {
    /// Says what can be said; `key` is the one that probably signs here.
    pub(super) fn read(self, key: Option<&PublicKey>) -> Read {
        let line = match self {
            Self::Line(line) => line,
            Self::Finding(finding) => return Read::Finding(finding),
            Self::Failed(error) => return Read::Failed(error),
        };
        if line.torn {
            Read::Torn(line)
        } else if line.is_opening() {
            let read = Box::new(Opening::parse(&line.bytes));
            Read::Opening { line, read }
        } else {
            let parsed = Box::new(parse(&line));
            let checked = key.and_then(|key| Checked::against(key, &parsed, &line.bytes));
            Read::Record {
                checked: checked.map(Box::new),
                parsed,
                line,
            }
        }
    }
}

/// Reads a line; one that was too long to keep is known by hash and length alone.
pub(super) fn parse(line: &Line) -> ParsedLine {
    match line.long {
        None => parse_line(&line.bytes),
        Some(long) => ParsedLine {
            hash: long.hash,
            frame: None,
            head: None,
            content: Err(vec![LineProblem::TooLarge(long.length)]),
        },
    }
}
