//! The ledger library from outside: vectors, tampering, sources, and the order of its modules.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod kills;
mod large;
mod live;
#[path = "../../benches/hot/made.rs"]
mod made;
mod make_vectors;
mod order;
mod tamper;
mod vectors;

use std::path::{Path, PathBuf};

use ledger::bytes::canon::U53;
use ledger::bytes::time::{Clock, Stamp};

/// `schema/vectors/ledger` of this repository.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger")
}

fn stamp() -> Stamp {
    Stamp {
        time: "2026-11-29T21:22:00.123456Z".parse().unwrap(),
        clock: Clock {
            boot_id: "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f".parse().unwrap(),
            since_boot_us: U53::from(1_000_000),
        },
    }
}
