//! The record of a matrix.

use ledger::bytes::canon::{WriteLineError, to_canonical};
use ledger::bytes::time::Stamp;
use ledger::facts::execution::PolicyRef;
use ledger::facts::host::HostFacts;
use ledger::facts::list::{BlobList, List};
use ledger::facts::matrix::{Cell, Matrix};
use ledger::facts::policy::Policy;
use ledger::file::store::{AppendError, Appended, BlobError, Durability, Store};
use ledger::record::Body;

use super::suite::Loaded;

/// Cells that take more, as JSON, go to a blob: the rest of the record fits the line beside them.
const LIST_BYTES: usize = 48 << 10;

/// Why a matrix could not be recorded.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum RecordMatrixError {
    /// The ledger does not take it.
    #[error("the matrix cannot be kept")]
    #[diagnostic(code(runner::matrix::append))]
    Append(
        #[from]
        #[diagnostic_source]
        AppendError,
    ),
    /// A blob cannot be stored.
    #[error("a blob of the matrix cannot be kept")]
    #[diagnostic(code(runner::matrix::blob))]
    Blob(
        #[from]
        #[diagnostic_source]
        BlobError,
    ),
    /// A part of it cannot be written.
    #[error("the matrix cannot be written")]
    #[diagnostic(code(runner::matrix::write))]
    Write(#[from] WriteLineError),
}

/// Keeps the suite, so that the probe records that follow can name it.
///
/// # Errors
/// The blob cannot be stored.
pub fn keep_suite(store: &mut Store, suite: &Loaded) -> Result<(), RecordMatrixError> {
    store.put_blob(&suite.blob)?;
    Ok(())
}

/// Appends the matrix, and with it, durably, the probe records that it names.
///
/// # Errors
/// It cannot be kept.
pub fn record(
    store: &mut Store,
    suite: &Loaded,
    policy: &Policy,
    host: &HostFacts,
    cells: Vec<Cell>,
    stamp: &Stamp,
) -> Result<Appended, RecordMatrixError> {
    let blob = policy.effective_blob()?;
    let policy = PolicyRef {
        id: policy.id.clone(),
        sha256: store.put_blob(&blob)?,
    };
    let host = store.host(host, stamp)?;
    let text = to_canonical(&cells)?;
    let cells = if text.len() > LIST_BYTES {
        List::Blob(BlobList {
            blob: store.put_blob(&text)?,
            count: ledger::bytes::canon::U53::saturating(cells.len() as u64),
        })
    } else {
        List::Inline(cells)
    };
    let matrix = Matrix {
        cells,
        host,
        policy,
        suite: suite.sha256,
    };
    let body = Body::Matrix(Box::new(matrix));
    Ok(store.append(body, None, stamp, Durability::Durable)?)
}
