//! What several tests set up: the program and what it said, and ledgers in a folder of their own.

pub(crate) mod maker;
pub(crate) mod measured;
pub(crate) mod records;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ledger::bytes::canon::U53;
use ledger::bytes::time::{Clock, Stamp};
use ledger::file::store::{Durability, KeyChoice, OpenOptions, Store};
use ledger::record::Tool;

use crate::made;
use records::BOOT;

/// `schema/vectors/ledger` of this repository.
pub(crate) fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger")
}

/// The ledger of a vector that verifies.
pub(crate) fn valid() -> PathBuf {
    vectors().join("valid/ledger")
}

/// The binary, without what the caller's environment may say about colours.
pub(crate) fn verify() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verify"));
    command
        .env_remove("NO_COLOR")
        .env_remove("FORCE_COLOR")
        .env_remove("RUST_BACKTRACE");
    command
}

/// Its exit code, standard output and standard error.
pub(crate) fn run(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    (
        status.code().unwrap(),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

/// Standard output as the one JSON document that it should be.
pub(crate) fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "standard output is not one JSON document ({error}): {}",
            String::from_utf8_lossy(&output.stdout)
        )
    })
}

pub(crate) fn stamp() -> Stamp {
    Stamp {
        time: "2026-11-29T12:00:00.000000Z".parse().unwrap(),
        clock: Clock {
            boot_id: BOOT.parse().unwrap(),
            since_boot_us: U53::from(1),
        },
    }
}

/// Opens the ledger `ledger` below a folder, with its key in `keys` beside it; begins it when there is none.
pub(crate) fn open(at: &Path) -> Store {
    let (dir, keys) = (at.join("ledger"), at.join("keys"));
    let options = OpenOptions {
        dir: &dir,
        key: KeyChoice::Own,
        key_folder: &keys,
        accept_rollback: false,
        tool: Tool {
            name: "test".into(),
            version: "1".into(),
        },
        host_name: "host",
        create: true,
        say_waiting: None,
    };
    Store::open(&options, &stamp()).unwrap()
}

/// Appends a note.
pub(crate) fn append(store: &mut Store, text: &str, durability: Durability) {
    store
        .append(made::note(text), None, &stamp(), durability)
        .unwrap();
}
