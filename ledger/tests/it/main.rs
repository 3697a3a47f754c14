//! The ledger library from outside: vectors, tampering, sources, and the order of its modules.

mod make_vectors;
mod order;
mod tamper;
mod vectors;

use std::path::{Path, PathBuf};

/// `schema/vectors/ledger` of this repository.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger")
}
