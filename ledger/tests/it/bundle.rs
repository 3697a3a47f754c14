//! Bundles: what one holds, that it is the same each time, and that nothing in it can be changed, cut, moved or left out.

mod kept;
mod limits;
mod refused;
mod shown;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hash;
use ledger::facts::execution::RunId;
use ledger::file::bundle::{
    Bundled, GatherError, Selection, Value, WriteBundleError, try_to_write, write,
};
use ledger::file::source::{BlobState, Source};
use ledger::file::store::{blob_name, read_key_file};
use ledger::file::walk::{Assured, CompleteBy, Extract, Given, Walked, walk};
use ledger::finding::{Class, Code};
use ledger::record::{Body, Content, Record, parse_line};

use crate::made::{self, Shape};
use crate::support::{is_good, note, reopen, stamp, walked, walked_stream};

/// A made ledger with caches and a checkpoint on the disk.
pub(crate) struct Place {
    at: tempfile::TempDir,
}

impl Place {
    /// Runs of two records each, the key changed after every third.
    pub(crate) fn new(records: u64, seed: u64) -> Self {
        let at = tempfile::tempdir().unwrap();
        let shape = Shape {
            rotate_every: Some(3),
        };
        let (dir, keys) = (at.path().join("ledger"), at.path().join("keys"));
        made::folder(&dir, &keys, records, seed, shape).unwrap();
        reopen(at.path()).sync_checkpoint(&stamp()).unwrap();
        Self { at }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.at.path().join("ledger")
    }

    fn file(&self) -> PathBuf {
        self.at.path().join("bundle")
    }

    fn write(&self, selection: Selection, withhold: &[Value]) -> Bundled {
        write(&self.dir(), selection, withhold, &self.file()).unwrap()
    }

    pub(crate) fn bundle(&self, selection: Selection) -> Vec<u8> {
        self.write(selection, &[]);
        fs::read(self.file()).unwrap()
    }

    fn key(&self) -> ledger::bytes::key::LocalKey {
        let mut files = fs::read_dir(self.at.path().join("keys")).unwrap();
        let pem = files
            .find_map(|entry| {
                let path = entry.unwrap().path();
                path.extension()
                    .is_some_and(|it| it == "pem")
                    .then_some(path)
            })
            .unwrap();
        read_key_file(&pem).unwrap()
    }
}

/// The lines of a bundle, without their newlines.
pub(crate) fn lines(bundle: &[u8]) -> Vec<Vec<u8>> {
    let text = bundle.strip_suffix(b"\n").unwrap();
    text.split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

pub(crate) fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    bytes
}

pub(crate) fn is(line: &[u8], prefix: &str) -> bool {
    line.starts_with(prefix.as_bytes())
}

/// The lines of each record, its proof first, with the record that they hold.
pub(crate) fn groups(lines: &[Vec<u8>]) -> Vec<(std::ops::Range<usize>, Record)> {
    let mut groups = Vec::new();
    let mut begin = 0;
    for (at, line) in lines.iter().enumerate() {
        if is(line, r#"{"index":"#) {
            begin = at;
        }
        if is(line, r#"{"key":"#) {
            let Ok(Content::Record(record)) = parse_line(line).content else {
                panic!("no record: {}", String::from_utf8_lossy(line));
            };
            groups.push((begin..at + 1, *record));
        }
    }
    groups
}

/// The bundle with its header saying so many records and files.
pub(crate) fn with_header(mut lines: Vec<Vec<u8>>, records: usize, files: usize) -> Vec<u8> {
    let mut header: serde_json::Value = serde_json::from_slice(&lines[0]).unwrap();
    header["records"] = records.into();
    header["files"] = files.into();
    lines[0] = serde_json::to_vec(&header).unwrap();
    joined(&lines)
}

/// How many files the pieces of a bundle are of.
pub(crate) fn files(lines: &[Vec<u8>]) -> usize {
    let first = lines.iter().filter(|line| is(line, r#"{"at":0,"#));
    first.count()
}

/// As [`with_header`], as the lines themselves have it.
pub(crate) fn counted(lines: Vec<Vec<u8>>) -> Vec<u8> {
    let (records, files) = (groups(&lines).len(), files(&lines));
    with_header(lines, records, files)
}

fn codes(walked: &Walked) -> BTreeSet<&'static str> {
    let found = walked.findings.codes();
    found.map(|(code, _)| code.as_str()).collect()
}

fn of_file(path: &Path) -> Walked {
    walked(path)
}

fn of_bytes(place: &Place, bytes: &[u8]) -> Walked {
    let path = place.at.path().join("changed");
    fs::write(&path, bytes).unwrap();
    of_file(&path)
}

fn shown(bundle: &[u8]) -> Vec<u64> {
    let groups = groups(&lines(bundle));
    groups
        .iter()
        .map(|(_, record)| record.sequence.value())
        .collect()
}

fn runs(place: &Place) -> Vec<(RunId, u64)> {
    let bundle = place.bundle(Selection::All);
    let groups = groups(&lines(&bundle));
    let runs = groups.iter().filter_map(|(_, record)| match &record.body {
        Body::Start(start) => Some((start.run, record.sequence.value())),
        _ => None,
    });
    runs.collect()
}

fn runs_policy(place: &Place) -> Hash {
    let bundle = place.bundle(Selection::Last(1));
    fs::remove_file(place.file()).unwrap();
    let policy = groups(&lines(&bundle))
        .iter()
        .find_map(|(_, record)| match &record.body {
            Body::Start(start) => Some(start.policy.sha256),
            _ => None,
        });
    policy.unwrap()
}
