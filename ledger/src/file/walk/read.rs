//! What can be said of a line by itself: form, hash, and whether its signature is a given key's.
//!
//! This is nearly all the work of a walk, and none of it needs the lines before, so that it can be done for
//! several lines at once. What is said here counts only once the walk takes it in the order of the lines.

use crate::bytes::key::PublicKey;
use crate::file::bundle::Proof;
use crate::file::chain::Checked;
use crate::file::source::{Line, Lines, ReadError};
use crate::finding::Finding;
use crate::record::{LineProblem, Opening, OpeningProblem, ParsedLine, parse_line};

/// How much is read at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchSize {
    /// Most lines of one batch, …
    pub(super) lines: usize,
    /// … and after how many bytes it is full.
    pub(super) bytes: usize,
}

impl BatchSize {
    /// Some milliseconds of work.
    pub(super) const USUAL: Self = Self {
        lines: 128,
        bytes: 128 * 1024,
    };
}

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
    /// The proof of a bundle's next record.
    Proof {
        line: Line,
        read: Result<Proof, LineProblem>,
    },
    /// The last line, without its newline.
    Torn(Line),
    Finding(Finding),
    Failed(ReadError),
}

/// The next lines of a source; empty at its end.
pub(super) fn gather(lines: &mut Lines, size: BatchSize) -> Vec<Given> {
    let (mut batch, mut bytes) = (Vec::with_capacity(size.lines), 0);
    while batch.len() < size.lines && bytes < size.bytes {
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

/// Lines for one thread.
pub(super) struct Batch {
    pub(super) given: Vec<Given>,
    /// The key that was active when they were handed out.
    pub(super) key: Option<PublicKey>,
}

impl Batch {
    pub(super) fn read(self) -> Vec<Read> {
        let given = self.given.into_iter();
        given.map(|given| given.read(self.key.as_ref())).collect()
    }
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
        } else if line.is_proof() {
            let read = match line.long {
                None => Proof::parse(&line.bytes),
                Some(long) => Err(LineProblem::TooLarge(long.length)),
            };
            Read::Proof { line, read }
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
