//! The ledger library from outside: vectors, tampering, sources, and the order of its modules.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod bundle;
mod bundle_schema;
mod bundle_vectors;
mod kills;
mod large;
mod live;
#[path = "../../benches/hot/made.rs"]
mod made;
mod make_vectors;
mod order;
mod support;
mod tamper;
mod vectors;
