//! `verify` from outside: the binary over every vector, its result, its manners, its dependencies.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod command;
mod dependencies;
mod live;
#[path = "../../../ledger/benches/hot/made.rs"]
mod made;
mod order;
mod tamper;
mod threads;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `schema/vectors/ledger` of this repository.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger")
}

/// The binary, without what the caller's environment may say about colours.
fn verify() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verify"));
    command
        .env_remove("NO_COLOR")
        .env_remove("FORCE_COLOR")
        .env_remove("RUST_BACKTRACE");
    command
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "standard output is not one JSON document ({error}): {}",
            String::from_utf8_lossy(&output.stdout)
        )
    })
}
