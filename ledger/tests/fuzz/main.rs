//! Everything that reads bytes from others, under fuzzing (engine/mod.rs says how, and with which variables).
//!
//! `cargo test -p ledger --test fuzz` gives each target a second after its corpus;
//! `FUZZ_SECONDS=600 cargo test --release -p ledger --test fuzz record_line -- --show-output` looks longer. Targets
//! run side by side, as tests do. The readers that are not public (`tip`, `.heads`) have theirs in the library's
//! own tests, with the same engine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod bundle;
mod canonical;
mod chain;
mod engine;
mod key;
mod note;
mod policy;
mod probe;
mod record;
mod texts;

use std::path::{Path, PathBuf};
use std::sync::Once;

use ledger::bytes::key::LocalKey;

/// What all targets together may hold in memory, in bytes: their inputs are at most 70,000 bytes long.
const MEMORY: u64 = 512 << 20;

/// Holds the process to [`MEMORY`]: a reader that allocates what an input claims ends it.
fn bound_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = Rlimit {
            current: Some(MEMORY),
            maximum: Some(MEMORY),
        };
        setrlimit(Resource::Data, limit).expect("a limit below the one in force");
    });
}

fn run(target: engine::Target) {
    bound_memory();
    engine::run(target);
}

/// `schema/vectors/ledger` of this repository.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger")
}

/// The lines of a vector, openings too.
fn lines(vector: &str) -> Vec<Vec<u8>> {
    let path = vectors().join(vector).join("ledger/records/00000000.jsonl");
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines.map(<[u8]>::to_vec).collect()
}

/// The key that signs the vectors: its seed is 00, 01 … 1f.
fn test_key() -> LocalKey {
    LocalKey::from_seed(&std::array::from_fn(|at| at as u8)).unwrap()
}

/// The longest run of `found` and `expected` from the start: where they part.
fn parting(found: &[u8], expected: &[u8]) -> usize {
    found
        .iter()
        .zip(expected)
        .take_while(|(a, b)| a == b)
        .count()
}
