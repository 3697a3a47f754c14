//! Large ledgers of the shape that `runner exec` writes, the same for the same seed.
//!
//! The values come from one real run (`run.jsonl`: host, opening, start, opening, execution), with ids, salts,
//! clocks, outputs and key of their own for every record. Used by the benches, by the example `make_ledger` and
//! by tests of both crates.

#![allow(dead_code, reason = "whoever includes this file uses a part of it")]

use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::bytes::key::{Base64, KeyId, LocalKey, Message, Signer as _};
use ledger::bytes::time::{Clock, Stamp, Timestamp};
use ledger::facts::execution::{Execution, Output, RunId, Start};
use ledger::facts::host::HostFacts;
use ledger::facts::list::List;
use ledger::facts::policy::{Catalogued, DEFAULT_POLICY};
use ledger::file::store::{SEGMENT_RECORDS, blob_name, segment_name};
use ledger::proof::checkpoint::Checkpoint;
use ledger::proof::tree::Frontier;
use ledger::record::{
    Body, Content, Custody, Genesis, KeyChange, KeyChangeReason, Note, Opened, Opening, Origin,
    Record, Salt, Salted, Tool, parse_line,
};

const RUN: &str = include_str!("run.jsonl");
/// Runs between two boots of the host.
const RUNS_PER_BOOT: u64 = 10_000;
/// 2026-01-01T00:00:00Z in microseconds.
const EPOCH_US: i64 = 1_767_225_600_000_000;

/// What a ledger is made of beyond its seed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// Runs between two changes of the key; never when absent.
    pub(crate) rotate_every: Option<u64>,
}

/// Makes a ledger record by record.
pub(crate) struct Maker {
    random: Random,
    shape: Shape,
    template: Template,
    key: LocalKey,
    ledger: Hash,
    origin: Origin,
    tree: Frontier,
    previous: Hash,
    next: Next,
    runs: u64,
    host: U53,
    boot: Clock,
}

#[derive(Clone, Copy)]
enum Next {
    Genesis,
    Host,
    Key,
    Start,
    Execution(U53),
}

struct Template {
    host: HostFacts,
    start: Start,
    launch: List<String>,
    argv: List<String>,
    execution: Execution,
    stderr: Output,
    stdout: Output,
    policy: Vec<u8>,
}

/// SplitMix64: enough to make ids that differ.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]);
        }
        bytes
    }

    fn key(&mut self) -> Result<LocalKey, Box<dyn Error>> {
        Ok(LocalKey::from_seed(&self.bytes())?)
    }

    fn boot(&mut self) -> Result<Clock, Box<dyn Error>> {
        let (a, b) = (self.next(), self.next());
        let text = format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        );
        Ok(Clock {
            boot_id: text.parse()?,
            since_boot_us: U53::from(10_000_000),
        })
    }
}

impl Template {
    fn read() -> Result<Self, Box<dyn Error>> {
        let lines: Vec<&[u8]> = RUN.lines().map(str::as_bytes).collect();
        let [host, before, start, after, execution] = lines[..] else {
            return Err(format!("run.jsonl has {} lines, expected 5", lines.len()).into());
        };
        let (before, after) = (Opening::parse(before)?.open, Opening::parse(after)?.open);
        let body = |line| match parse_line(line).content {
            Ok(Content::Record(record)) => Ok(record.body),
            other => Err(format!("run.jsonl: expected a record, found {other:?}")),
        };
        let (
            Body::Host(host),
            Body::Start(mut start),
            Body::Execution(execution),
            Some(argv),
            Some(launch),
            Some(stderr),
            Some(stdout),
        ) = (
            body(host)?,
            body(start)?,
            body(execution)?,
            before.argv,
            before.launch,
            after.stderr,
            after.stdout,
        )
        else {
            return Err("run.jsonl is not host, start and execution with their openings".into());
        };
        let policy = Catalogued::find(DEFAULT_POLICY)?.policy()?;
        let policy = policy.effective_blob()?;
        start.policy.sha256 = Hash::of(&policy);
        Ok(Self {
            host: *host,
            start: *start,
            launch: launch.1,
            argv: argv.1,
            execution: *execution,
            stderr: stderr.1,
            stdout: stdout.1,
            policy,
        })
    }
}

impl Maker {
    /// Nothing made yet.
    pub(crate) fn new(seed: u64, shape: Shape) -> Result<Self, Box<dyn Error>> {
        let mut random = Random(seed);
        let ledger = Hash::from_bytes(random.bytes());
        Ok(Self {
            shape,
            template: Template::read()?,
            key: random.key()?,
            ledger,
            origin: Origin::for_host("made", &ledger),
            tree: Frontier::new(),
            previous: Hash::ZERO,
            next: Next::Genesis,
            runs: 0,
            host: U53::ZERO,
            boot: random.boot()?,
            random,
        })
    }

    /// The key that signs the next record.
    pub(crate) fn key(&self) -> &LocalKey {
        &self.key
    }

    /// How many records were made.
    pub(crate) fn size(&self) -> u64 {
        self.tree.size()
    }

    /// Whether the last record is a start.
    pub(crate) const fn is_in_a_run(&self) -> bool {
        matches!(self.next, Next::Execution(_))
    }

    /// The policy's blob that the starts name.
    pub(crate) fn policy(&self) -> &[u8] {
        &self.template.policy
    }

    /// Size and root of what was made, signed.
    pub(crate) fn checkpoint(&self) -> Result<String, Box<dyn Error>> {
        let checkpoint = Checkpoint {
            origin: self.origin.as_str().to_owned(),
            size: self.tree.size(),
            root: self.tree.root(),
        };
        Ok(checkpoint.sign(&self.key)?.to_string())
    }

    /// Appends the next record to `out`, its opening directly before it, each with its newline.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
        match self.next {
            Next::Genesis => {
                let body = Body::Genesis(Genesis {
                    custody: Custody::File,
                    origin: self.origin.clone(),
                    public_key: Base64(self.key.public().to_bytes()),
                    standby: None,
                    tool: Tool {
                        name: "made".to_owned(),
                        version: "1".to_owned(),
                    },
                });
                self.next = Next::Host;
                self.push(body, None, out)
            }
            Next::Host => {
                let mut facts = self.template.host.clone();
                facts.boot_id = self.boot.boot_id.clone();
                self.host = self.sequence()?;
                self.next = Next::Start;
                self.push(Body::Host(Box::new(facts)), None, out)
            }
            Next::Key => {
                let new = self.random.key()?;
                let body = self.change_to(&new)?;
                self.next = Next::Start;
                self.push(body, None, out)?;
                self.key = new;
                Ok(())
            }
            Next::Start => self.start(out),
            Next::Execution(start) => self.execution(start, out),
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
        let mut start = self.template.start.clone();
        start.run = RunId::from_bytes(self.random.bytes());
        start.host = self.host;
        let argv = Salted(Salt(self.random.bytes()), self.template.argv.clone());
        let launch = Salted(Salt(self.random.bytes()), self.template.launch.clone());
        start.workload.argv = argv.sealed()?;
        start.runtime.launch = Some(launch.sealed()?);
        let opened = Opened {
            argv: Some(argv),
            launch: Some(launch),
            ..Opened::default()
        };
        self.next = Next::Execution(self.sequence()?);
        self.push(Body::Start(Box::new(start)), Some(opened), out)
    }

    fn execution(&mut self, start: U53, out: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
        let mut execution = self.template.execution.clone();
        execution.start = start;
        execution.result.duration_us = U53::new(2_000 + self.random.next() % 20_000);
        let text = format!(
            "{}run {} is done\n",
            self.template.stdout.text.as_deref().unwrap_or_default(),
            self.runs
        );
        let length = U53::saturating(text.len() as u64);
        let stdout = Output {
            bytes: length,
            kept: length,
            sha256: Hash::of(text.as_bytes()),
            text: Some(text),
            ..self.template.stdout.clone()
        };
        let stderr = Salted(Salt(self.random.bytes()), self.template.stderr.clone());
        let stdout = Salted(Salt(self.random.bytes()), stdout);
        execution.result.stderr = Some(stderr.sealed()?);
        execution.result.stdout = Some(stdout.sealed()?);
        let opened = Opened {
            stderr: Some(stderr),
            stdout: Some(stdout),
            ..Opened::default()
        };
        self.runs += 1;
        self.next = if self.runs.is_multiple_of(RUNS_PER_BOOT) {
            self.boot = self.random.boot()?;
            Next::Host
        } else if self
            .shape
            .rotate_every
            .is_some_and(|runs| self.runs.is_multiple_of(runs))
        {
            Next::Key
        } else {
            Next::Start
        };
        self.push(Body::Execution(Box::new(execution)), Some(opened), out)
    }

    fn change_to(&self, new: &LocalKey) -> Result<Body, Box<dyn Error>> {
        let id: KeyId = new.public().id();
        let possession = new.sign(Message::Possession {
            ledger: &self.ledger,
            sequence: self.tree.size(),
            previous: &self.previous,
            key: &id,
        })?;
        Ok(Body::Key(KeyChange {
            custody: Custody::File,
            possession: Some(possession),
            public_key: Base64(new.public().to_bytes()),
            reason: KeyChangeReason::Routine,
            standby: None,
        }))
    }

    fn sequence(&self) -> Result<U53, Box<dyn Error>> {
        U53::new(self.tree.size()).ok_or_else(|| "no more numbers".into())
    }

    fn push(
        &mut self,
        body: Body,
        open: Option<Opened>,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<dyn Error>> {
        let sequence = self.sequence()?;
        let since = self.boot.since_boot_us.value() + 1_000;
        self.boot.since_boot_us = U53::saturating(since);
        let micros = EPOCH_US + i64::try_from(self.tree.size())? * 1_000;
        let stamp = Stamp {
            time: Timestamp::from_unix_micros(micros).ok_or("no such time")?,
            clock: self.boot.clone(),
        };
        if let Some(open) = open {
            out.extend(Opening { open, sequence }.to_line()?);
            out.push(b'\n');
        }
        let record = Record::new(body, stamp, self.ledger, sequence, self.previous);
        let line = record.to_signed_line(&self.key)?;
        self.previous = Hash::leaf(&line);
        self.tree.push(self.previous);
        out.extend(line);
        out.push(b'\n');
        Ok(())
    }
}

/// A small body that needs nothing else in the ledger.
pub(crate) fn note(text: &str) -> Body {
    Body::Note(Note {
        text: text.to_owned(),
    })
}

/// Makes a ledger of so many records in memory, as one stream of lines; the last run may lack its end.
pub(crate) fn lines(records: u64, seed: u64, shape: Shape) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut maker = Maker::new(seed, shape)?;
    let mut out = Vec::new();
    for _ in 0..records {
        maker.next(&mut out)?;
    }
    Ok(out)
}

/// Makes a ledger folder of so many records, or one more where a run lacks its end: segments, the policy's
/// blob, the checkpoint; and its key in `keys`.
pub(crate) fn folder(
    dir: &Path,
    keys: &Path,
    records: u64,
    seed: u64,
    shape: Shape,
) -> Result<Maker, Box<dyn Error>> {
    let mut maker = Maker::new(seed, shape)?;
    fs::create_dir_all(dir.join("records"))?;
    let mut out = Vec::new();
    let goes_on = |maker: &Maker| maker.size() < records || maker.is_in_a_run();
    while goes_on(&maker) {
        let segment = maker.size() / SEGMENT_RECORDS;
        let mut file = File::create(dir.join("records").join(segment_name(segment)))?;
        while goes_on(&maker) && maker.size() / SEGMENT_RECORDS == segment {
            maker.next(&mut out)?;
            if out.len() > 1 << 20 {
                file.write_all(&out)?;
                out.clear();
            }
        }
        file.write_all(&out)?;
        out.clear();
    }
    let blob = dir.join(blob_name(&Hash::of(maker.policy())));
    fs::create_dir_all(blob.parent().unwrap_or(dir))?;
    fs::write(blob, maker.policy())?;
    fs::write(dir.join("checkpoint"), maker.checkpoint()?)?;
    private_folder(keys)?;
    let path = keys.join(format!("{}.pem", maker.key().public().id()));
    private_file(&path, maker.key().to_pem()?.as_bytes())?;
    Ok(maker)
}

fn private_folder(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(path)
}

fn private_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(bytes)
}
