//! What the operator should be told about a ledger that works.

use std::fmt;
use std::path::PathBuf;

use crate::facts::execution::RunId;

/// Something that happened to the ledger and stopped nothing.
#[derive(Debug)]
pub enum Notice {
    /// A ledger was begun.
    Began {
        /// Its folder.
        folder: PathBuf,
        /// Its key's file; absent for a key that is kept nowhere.
        key_file: Option<PathBuf>,
    },
    /// The last record lacked its newline and got it.
    CompletedLine {
        /// The record.
        sequence: u64,
    },
    /// An opening without its record stood at the end and was dropped.
    DroppedOpening,
    /// Bytes that are no record stood at the end and were set aside.
    SetAside {
        /// How many.
        bytes: u64,
        /// Where they are, relative to the ledger.
        file: String,
        /// The `recovery` record that says so.
        sequence: u64,
    },
    /// The operator accepted a ledger that is not what it was.
    RollbackAccepted {
        /// How it is not.
        difference: String,
        /// The `recovery` record that says so.
        sequence: u64,
    },
    /// A run whose runner died was closed.
    ClosedRun {
        /// The run.
        run: RunId,
        /// Its `start` record.
        start: u64,
    },
    /// `.heads` does not hold what it should and counts as absent.
    HeadsUnreadable {
        /// The file.
        path: PathBuf,
    },
    /// Derived files were missing or wrong, and were made again from all records.
    Rebuilt {
        /// How many records were read.
        records: u64,
    },
    /// The record is kept, but something that follows from it could not be renewed.
    NotRenewed {
        /// What, and why.
        why: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Began { folder, key_file } => {
                write!(f, "began a ledger in {}", folder.display())?;
                match key_file {
                    Some(key) => write!(f, ", its key is {}", key.display()),
                    None => write!(f, ", its key is kept nowhere and ends with this command"),
                }
            }
            Self::CompletedLine { sequence } => {
                write!(f, "record {sequence} lacked its newline and got it")
            }
            Self::DroppedOpening => {
                write!(f, "dropped an opening whose record was never written")
            }
            Self::SetAside {
                bytes,
                file,
                sequence,
            } => write!(
                f,
                "a write had been cut short: set {bytes} bytes aside in {file}, record {sequence} says so"
            ),
            Self::RollbackAccepted {
                difference,
                sequence,
            } => write!(
                f,
                "went on although {difference}; record {sequence} says so"
            ),
            Self::ClosedRun { run, start } => write!(
                f,
                "run {run} (record {start}) ended without a word, recorded as interrupted"
            ),
            Self::HeadsUnreadable { path } => write!(
                f,
                "{} is not readable and counts as absent: a shortened ledger would not be noticed by it",
                path.display()
            ),
            Self::Rebuilt { records } => {
                write!(f, "made tree and tip again from {records} records")
            }
            Self::NotRenewed { why } => {
                write!(f, "the record is kept, but {why}")
            }
        }
    }
}
