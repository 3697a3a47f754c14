//! The ledger library from outside: vectors, tampering, sources, and the order of its modules.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod kills;
mod live;
mod make_vectors;
mod order;
mod tamper;
mod vectors;

use std::path::{Path, PathBuf};

/// `schema/vectors/ledger` of this repository.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger")
}
