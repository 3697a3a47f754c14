//! Signed ledgers of made-up records, written line by line as a writer would.
//!
//! The unit tests of the rules include this file too.

#![allow(dead_code, reason = "whoever includes this file uses a part of it")]

use std::fs;
use std::path::Path;

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::bytes::key::{Base64, LocalKey, Signer as _};
use ledger::bytes::time::{Clock, Stamp, Timestamp};
use ledger::facts::execution::{Execution, Start};
use ledger::record::{Body, Custody, Genesis, Record, Tool};

use super::records::{BOOT, host};

/// A ledger in a folder of its own: genesis, then a host record.
pub(crate) struct Maker {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) key: LocalKey,
    pub(crate) previous: Hash,
    pub(crate) sequence: u32,
    pub(crate) lines: Vec<u8>,
    pub(crate) boot: &'static str,
    pub(crate) second: i64,
}

impl Maker {
    pub(crate) fn new() -> Self {
        let mut maker = Self {
            folder: tempfile::tempdir().unwrap(),
            key: LocalKey::from_seed(&[9; 32]).unwrap(),
            previous: Hash::ZERO,
            sequence: 0,
            lines: Vec::new(),
            boot: BOOT,
            second: 0,
        };
        let public_key = Base64(maker.key.public().to_bytes());
        maker.record(Body::Genesis(Genesis {
            custody: Custody::File,
            origin: "example.com/rules".parse().unwrap(),
            public_key,
            standby: None,
            tool: Tool {
                name: "tests".to_owned(),
                version: "1".to_owned(),
            },
        }));
        maker.record(Body::Host(Box::new(host())));
        maker
    }

    pub(crate) fn record(&mut self, body: Body) -> u32 {
        let start: Timestamp = "2026-11-29T12:00:00.000000Z".parse().unwrap();
        self.second += 1;
        let micros = start.unix_micros() + self.second * 1_000_000;
        let stamp = Stamp {
            time: Timestamp::from_unix_micros(micros).unwrap(),
            clock: Clock {
                boot_id: self.boot.parse().unwrap(),
                since_boot_us: U53::from(self.sequence),
            },
        };
        let sequence = self.sequence;
        let record = Record::new(
            body,
            stamp,
            Hash::of(b"rules"),
            U53::from(sequence),
            self.previous,
        );
        let line = record.to_signed_line(&self.key).unwrap();
        self.previous = Hash::leaf(&line);
        self.lines.extend_from_slice(&line);
        self.lines.push(b'\n');
        self.sequence += 1;
        sequence
    }

    pub(crate) fn start(&mut self, start: Start) -> u32 {
        self.record(Body::Start(Box::new(start)))
    }

    pub(crate) fn end(&mut self, execution: Execution) -> u32 {
        self.record(Body::Execution(Box::new(execution)))
    }

    pub(crate) fn blob(&self, bytes: &[u8]) -> Hash {
        let hash = Hash::of(bytes);
        let path = self.blob_path(&hash);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        hash
    }

    pub(crate) fn blob_path(&self, hash: &Hash) -> std::path::PathBuf {
        let text = hash.to_string();
        self.folder
            .path()
            .join("blobs")
            .join(&text[..2])
            .join(&text[2..])
    }

    pub(crate) fn write(&self) -> &Path {
        let records = self.folder.path().join("records");
        fs::create_dir_all(&records).unwrap();
        fs::write(records.join("00000000.jsonl"), &self.lines).unwrap();
        self.folder.path()
    }
}
