use std::path::{Path, PathBuf};

use super::*;
use crate::bytes::hash::SALT_BYTES;
use crate::bytes::key::random_bytes;
use crate::bytes::time::Clock;
use crate::facts::control::Controls;
use crate::facts::execution::{PolicyRef, Program, RuntimeUsed, Start, Workload};
use crate::facts::host::{CgroupFacts, CgroupLayout, RunnerFacts};
use crate::facts::list::List;
use crate::file::chain::{Chain, Standing};
use crate::proof::checkpoint::SignedCheckpoint;
use crate::proof::tree::Frontier;
use crate::record::{Note, OPENING_PREFIX, Opening, Record, Salt, Salted, Tool};

mod appending;
mod caches;
mod faults;
mod fuzz;
mod opening;
mod property;
mod recovery;
mod sharing;

/// A ledger folder and a key folder of one test.
struct Place {
    at: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let at = tempfile::tempdir().unwrap();
        Self { at }
    }

    /// As [`Self::new`], in memory where there is such a folder: a flush costs nothing there.
    fn in_memory() -> Self {
        let at = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self { at: at.unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.at.path().join("ledger")
    }

    fn keys(&self) -> PathBuf {
        self.at.path().join("keys")
    }

    fn segment(&self, index: u64) -> PathBuf {
        self.dir().join("records").join(segment_name(index))
    }

    fn heads(&self) -> PathBuf {
        let mut found: Vec<_> = std::fs::read_dir(self.keys())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "heads"))
            .collect();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    fn heads_of(&self, key: &crate::bytes::key::KeyId) -> PathBuf {
        self.keys().join(format!("{key}.heads"))
    }

    fn try_open_with(
        &self,
        change: impl FnOnce(&mut OpenOptions<'_>),
    ) -> Result<Store, OpenLedgerError> {
        self.try_open_at(&self.dir(), change)
    }

    fn try_open_at(
        &self,
        dir: &Path,
        change: impl FnOnce(&mut OpenOptions<'_>),
    ) -> Result<Store, OpenLedgerError> {
        let keys = self.keys();
        let mut options = OpenOptions {
            dir,
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
        change(&mut options);
        Store::open(&options, &stamp())
    }

    fn try_open(&self) -> Result<Store, OpenLedgerError> {
        self.try_open_with(|_| {})
    }

    fn open(&self) -> Store {
        self.try_open().unwrap()
    }

    fn accept(&self) -> Store {
        self.try_open_with(|options| options.accept_rollback = true)
            .unwrap()
    }

    /// Walks every line from genesis on and holds that all of it verifies, openings included.
    fn walk(&self) -> Vec<Record> {
        walk(&self.dir())
    }

    /// As [`Self::walk`], and the checkpoint speaks of exactly these records.
    fn walk_covered(&self) -> Vec<Record> {
        let records = self.walk();
        let (size, root) = covered(&self.dir());
        assert_eq!(size, records.len() as u64);
        assert_eq!(root, root_of(&self.dir(), size));
        records
    }

    /// Cuts a segment's last `bytes` bytes.
    fn cut(&self, bytes: u64) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(self.segment(0))
            .unwrap();
        file.set_len(file.metadata().unwrap().len() - bytes)
            .unwrap();
    }

    fn push(&self, bytes: &[u8]) {
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(self.segment(0))
            .unwrap();
        file.write_all(bytes).unwrap();
    }

    fn last_line_length(&self) -> u64 {
        let text = std::fs::read_to_string(self.segment(0)).unwrap();
        text.lines().last().unwrap().len() as u64 + 1
    }
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

fn lines(dir: &Path) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for index in 0.. {
        let Ok(bytes) = std::fs::read(dir.join("records").join(segment_name(index))) else {
            return lines;
        };
        let mut rest = bytes.as_slice();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            lines.push(rest[..end].to_vec());
            rest = &rest[end + 1..];
        }
        assert!(rest.is_empty(), "an unterminated line in segment {index}");
    }
    lines
}

fn walk(dir: &Path) -> Vec<Record> {
    let (mut chain, mut records, mut opening) = (Chain::new(), Vec::new(), None);
    for line in lines(dir) {
        if line.starts_with(OPENING_PREFIX) {
            assert!(opening.is_none(), "two openings for one record");
            opening = Some(Opening::parse(&line).unwrap());
            continue;
        }
        let parsed = parse_line(&line);
        let standing = chain.step(&parsed, &line, &mut |finding| panic!("{finding:?}"));
        assert_eq!(standing, Standing::Verified);
        let Ok(Content::Record(record)) = parsed.content else {
            panic!("no record");
        };
        if let Some(opening) = opening.take() {
            opening.fits(&record).unwrap();
        }
        records.push(*record);
    }
    assert!(opening.is_none(), "an opening without its record");
    records
}

fn root_of(dir: &Path, size: u64) -> Hash {
    let mut tree = Frontier::new();
    let records = lines(dir);
    let records = records
        .iter()
        .filter(|line| !line.starts_with(OPENING_PREFIX));
    records
        .take(usize::try_from(size).unwrap())
        .for_each(|line| {
            tree.push(Hash::leaf(line));
        });
    assert_eq!(tree.size(), size);
    tree.root()
}

/// Size and root of the stored checkpoint, whose signature holds.
fn covered(dir: &Path) -> (u64, Hash) {
    let signed = SignedCheckpoint::parse(&std::fs::read(dir.join("checkpoint")).unwrap()).unwrap();
    let description = describe(dir).unwrap();
    assert_eq!(signed.claim().origin, description.origin.as_str());
    let claim = signed.signed_by(&description.key).unwrap();
    (claim.size, claim.root)
}

fn note(text: &str) -> Body {
    Body::Note(Note {
        text: text.to_owned(),
    })
}

fn run_id() -> RunId {
    RunId::from_bytes(random_bytes().unwrap())
}

/// A start whose argv is sealed, and its opening.
fn start(run: RunId) -> (Body, Opened) {
    let argv = Salted(
        Salt([0xab; SALT_BYTES]),
        List::Inline(vec!["secret".to_owned()]),
    );
    let body = Start {
        controls: Controls::default(),
        host: U53::ZERO,
        key_reachable: None,
        matrix: None,
        policy: PolicyRef {
            id: "standard".into(),
            sha256: Hash::of(b"policy"),
        },
        run,
        runtime: RuntimeUsed {
            id: "embedded".into(),
            launch: None,
            sha256: None,
            tier: None,
            version: "1".into(),
        },
        workload: Workload {
            argv: argv.sealed().unwrap(),
            id: "prog".into(),
            program: Program {
                path: "/bin/prog".into(),
                sha256: None,
            },
        },
    };
    let opened = Opened {
        argv: Some(argv),
        ..Opened::default()
    };
    (Body::Start(Box::new(body)), opened)
}

fn begin(store: &mut Store, run: RunId) -> U53 {
    let (body, opened) = start(run);
    store
        .append(body, Some(opened), &stamp(), Durability::Deferred)
        .unwrap()
        .sequence
}

fn execution(start: U53) -> Body {
    let mut body = interrupted(start);
    body.result.outcome = Outcome::Exited;
    body.result.exit_code = Some(0);
    body.verdict = Verdict::AsRequested;
    Body::Execution(Box::new(body))
}

fn say(store: &mut Store, text: &str) -> Appended {
    store
        .append(note(text), None, &stamp(), Durability::Durable)
        .unwrap()
}

fn host_facts(kernel: &str) -> HostFacts {
    HostFacts {
        architecture: "x86_64".into(),
        boot_id: "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f".parse().unwrap(),
        cgroup: CgroupFacts {
            delegated: vec![],
            layout: CgroupLayout::V2,
        },
        confinement: None,
        container: vec![],
        distribution: None,
        gid: 0,
        groups: vec![],
        kernel: kernel.into(),
        landlock_abi: None,
        lsms: None,
        runner: RunnerFacts {
            file: None,
            sha256: Hash::of(b"runner"),
            version: "1".into(),
        },
        swap_bytes: None,
        sysctls: std::collections::BTreeMap::new(),
        uid: 0,
        unmeasured: None,
    }
}

fn texts(notices: &[Notice]) -> Vec<String> {
    notices.iter().map(ToString::to_string).collect()
}
