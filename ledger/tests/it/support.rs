//! What several tests set up: a moment, ledgers in a folder of their own, notes, and what the walk says of them.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use ledger::bytes::canon::U53;
use ledger::bytes::time::{Clock, Stamp};
use ledger::file::source::Source;
use ledger::file::store::{Appended, Durability, KeyChoice, OpenOptions, Store};
use ledger::file::walk::{Walked, walk};
use ledger::finding::Class;
use ledger::record::Tool;

use crate::made;

/// The boot in which every record of these tests is made.
pub(crate) const BOOT: &str = "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f";

/// `schema/vectors/ledger` of this repository.
pub(crate) fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/vectors/ledger")
}

pub(crate) fn stamp() -> Stamp {
    Stamp {
        time: "2026-11-29T21:22:00.123456Z".parse().unwrap(),
        clock: Clock {
            boot_id: BOOT.parse().unwrap(),
            since_boot_us: U53::from(1_000_000),
        },
    }
}

/// Opens the ledger `ledger` below a folder, with its key in `keys` beside it; begins it when there is none.
pub(crate) fn open(at: &Path) -> Store {
    open_with(at, true)
}

/// As [`open`], for a ledger that is there.
pub(crate) fn reopen(at: &Path) -> Store {
    open_with(at, false)
}

fn open_with(at: &Path, create: bool) -> Store {
    let (dir, keys) = (at.join("ledger"), at.join("keys"));
    let options = OpenOptions {
        dir: &dir,
        key: KeyChoice::Own,
        key_folder: &keys,
        accept_rollback: false,
        tool: Tool {
            name: "tests".to_owned(),
            version: "1".to_owned(),
        },
        host_name: "host",
        create,
        say_waiting: None,
    };
    Store::open(&options, &stamp()).unwrap()
}

/// Appends a note.
pub(crate) fn append(store: &mut Store, text: &str, durability: Durability) -> Appended {
    store
        .append(made::note(text), None, &stamp(), durability)
        .unwrap()
}

/// Appends a note that is kept when this returns.
pub(crate) fn note(store: &mut Store, text: &str) -> Appended {
    append(store, text, Durability::Durable)
}

/// What the walk says of a ledger folder, or of a file of lines.
pub(crate) fn walked(path: &Path) -> Walked {
    walk(&mut Source::open(path).unwrap(), None, &mut ()).unwrap()
}

/// What the walk says of lines that come as a stream.
pub(crate) fn walked_stream(lines: Vec<u8>) -> Walked {
    let mut source = Source::from_reader("-", Box::new(Cursor::new(lines)));
    walk(&mut source, None, &mut ()).unwrap()
}

/// Fails where the walk found more than an observation.
#[track_caller]
pub(crate) fn is_good(walked: Walked) {
    let list = walked.findings.into_list();
    let bad = list.iter().find(|it| it.code.class() != Class::Observation);
    assert_eq!(bad, None);
}
