//! A disk that fails, at every call of a run: what was acknowledged is kept, what is not is said, and the ledger
//! goes on by itself.

mod cases;

use std::io::Write as _;

use rustix::io::Errno;

use super::*;
use crate::file::durable::{Disk, Hole, Operation, Rule, What, Which};
use crate::file::source::Source;
use crate::file::walk;
use crate::finding::{Class, Code};

/// What callers were told.
#[derive(Default)]
struct Told {
    /// Records that were appended, …
    appended: Vec<Appended>,
    /// … and how many of the first of them are on the disk.
    durable: usize,
    blobs: Vec<Hash>,
    notices: Vec<String>,
}

impl Told {
    fn durable(&mut self, appended: Appended) {
        self.appended.push(appended);
        self.durable = self.appended.len();
    }
}

/// An error and its causes.
fn said(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// The first run of a ledger.
    New,
    /// One more run.
    Further,
    /// The end of a ledger.
    Close,
}

impl Scenario {
    /// What it needs.
    fn place(self) -> Place {
        let place = Place::in_memory();
        if self != Self::New {
            run(&mut place.open(), &mut Told::default()).unwrap();
        }
        place
    }

    fn play(self, place: &Place, told: &mut Told) -> Result<(), String> {
        let mut store = place.try_open().map_err(said)?;
        if self == Self::New {
            told.durable(Appended {
                sequence: U53::ZERO,
                hash: store.head(),
            });
        }
        let result = if self == Self::Close {
            let closed = store.close("done", &stamp()).map_err(said);
            closed.map(|appended| told.durable(appended))
        } else {
            run(&mut store, told)
        };
        told.notices = texts(&store.notices());
        result
    }
}

/// All that `runner exec` asks of a store.
fn run(store: &mut Store, told: &mut Told) -> Result<(), String> {
    store.ready(&stamp()).map_err(said)?;
    told.blobs.push(store.put_blob(b"policy").map_err(said)?);
    store.host(&host_facts("6.1"), &stamp()).map_err(said)?;
    let run = run_id();
    let lock = store.begin_run(run).map_err(said)?;
    let (body, opened) = start(run);
    let begun = store
        .append(body, Some(opened), &stamp(), Durability::Deferred)
        .map_err(said)?;
    told.appended.push(begun);
    let mut output = store.blob_writer().map_err(said)?;
    for _ in 0..3 {
        // Another one for each run, and always the same: the calls are, too.
        let bytes = format!("{:04}", begun.sequence.value());
        output.write_all(bytes.as_bytes()).map_err(said)?;
    }
    told.blobs.push(output.commit().map_err(said)?);
    let ended = store
        .append(
            execution(begun.sequence),
            None,
            &stamp(),
            Durability::Durable,
        )
        .map_err(said)?;
    told.durable(ended);
    drop(lock);
    Ok(())
}

/// Holds that records are where they were said to be, and that the walk finds nothing wrong.
#[track_caller]
fn holds(place: &Place, told: &[Appended], blobs: &[Hash], context: &str) {
    if !place.segment(0).exists() {
        assert!(told.is_empty(), "{context}: no records");
        return;
    }
    let mut source = Source::open(&place.dir()).unwrap();
    let walked = walk::walk(&mut source, None, &mut ()).unwrap();
    for finding in walked.findings.into_list() {
        let crashed = matches!(finding.code, Code::TornTail | Code::RunUnfinished);
        assert!(
            finding.code.class() == Class::Observation || crashed,
            "{context}: {finding:?}"
        );
    }
    let bytes: Vec<Vec<u8>> = std::fs::read(place.segment(0))
        .unwrap()
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(OPENING_PREFIX))
        .map(<[u8]>::to_vec)
        .collect();
    for appended in told {
        let line = &bytes[usize::try_from(appended.sequence.value()).unwrap()];
        assert_eq!(Hash::leaf(line), appended.hash, "{context}: {appended:?}");
    }
    for blob in blobs {
        let kept = std::fs::read(place.dir().join(blob_name(blob))).unwrap();
        assert_eq!(Hash::of(&kept), *blob, "{context}");
    }
}

/// Every file that nothing refers to and nothing will use.
fn leftovers(place: &Place) -> Vec<PathBuf> {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    files(place.at.path(), &mut found);
    let pems = |found: &[PathBuf]| {
        let pem = |path: &&PathBuf| path.extension().is_some_and(|end| end == "pem");
        found.iter().filter(pem).count()
    };
    assert!(pems(&found) > 0);
    let one_key = pems(&found) == 1;
    // What takes turns with a file (`….new`) and the next run's lock (`spare`) are used again.
    found.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let pem = name.ends_with(".pem") && !one_key;
        let run = path.parent().unwrap().ends_with("runs") && name != "spare";
        let turns = ["checkpoint.new", "tip.new", "genesis.new"];
        let other = name.ends_with(".new") && !name.ends_with(".heads.new");
        pem || run || (other && !turns.contains(&name))
    });
    found
}

/// The next run, on a disk in order. Nobody helps.
#[track_caller]
fn goes_on(place: &Place, told: &mut Told, context: &str) {
    let mut store = place
        .try_open()
        .unwrap_or_else(|error| panic!("{context}: {}", said(error)));
    if matches!(store.ready(&stamp()), Err(AppendError::Closed(_))) {
        place.walk_covered();
        return;
    }
    run(&mut store, told).unwrap_or_else(|error| panic!("{context}: {error}"));
    drop(store);
    // All but the lines that a reopened ledger may have dropped are here; the checkpoint covers all.
    let records = place.walk_covered();
    assert!(records.len() >= told.durable, "{context}");
}

/// What becomes of bytes that a failed flush lost, and when.
#[derive(Clone, Copy, Debug)]
enum Memory {
    Keeps,
    DropsFirst(Hole),
    DropsLater(Hole),
}

/// What a scenario came to.
struct Played {
    result: Result<(), String>,
    told: Told,
    calls: Vec<(Operation, PathBuf)>,
    hits: u64,
}

/// Plays a scenario on a disk with these faults, and what comes after on one without.
#[track_caller]
fn survives(scenario: Scenario, rules: &[Rule], memory: Memory) -> Played {
    let context = format!("{scenario:?} {rules:?} {memory:?}");
    let place = scenario.place();
    let disk = Disk::with(rules.to_vec());
    let mut told = Told::default();
    let result = scenario.play(&place, &mut told);
    let (calls, hits) = (disk.calls(), disk.hits());
    let context = format!("{context} {result:?}");
    // The same disk, and somebody tries again.
    let again = place.try_open();
    drop(again);
    disk.then([]);
    if let Memory::DropsFirst(hole) = memory {
        disk.evict(hole);
        told.appended.truncate(told.durable);
    }
    holds(&place, &told.appended, &told.blobs, &context);
    goes_on(&place, &mut told, &context);
    // Where nothing can be removed any more, a half-written key is not either.
    let tidy = |rule: &Rule| rule.which != Which::Any || rule.until < u64::MAX;
    if rules.iter().all(tidy) {
        assert_eq!(leftovers(&place), Vec::<PathBuf>::new(), "{context}");
    }
    let after = |what: &str| format!("{context}, after {what}");
    if let Memory::DropsLater(hole) = memory {
        disk.evict(hole);
        holds(
            &place,
            &told.appended,
            &told.blobs,
            &after("memory ran short"),
        );
    }
    told.appended.truncate(told.durable);
    // Only what has to do with writing leaves anything else behind.
    let reads = |rule: &Rule| {
        let call = usize::try_from(rule.from)
            .ok()
            .and_then(|n| calls.get(n - 1));
        use Operation as O;
        let reading = |operation| matches!(operation, O::Read | O::Inspect | O::List | O::Lock);
        rule.until == rule.from + 1 && call.is_some_and(|(operation, _)| reading(*operation))
    };
    if rules.iter().all(reads) {
        return Played {
            result,
            told,
            calls,
            hits,
        };
    }
    let even = rules.first().is_some_and(|rule| rule.from % 2 == 0);
    disk.power_loss(if even { Hole::Zeros } else { Hole::Nothing });
    holds(&place, &told.appended, &told.blobs, &after("a power loss"));
    goes_on(&place, &mut told, &after("a power loss"));
    Played {
        result,
        told,
        calls,
        hits,
    }
}

/// The calls of a scenario on a disk in order.
fn calls(scenario: Scenario) -> Vec<(Operation, PathBuf)> {
    let place = scenario.place();
    let disk = Disk::with([]);
    scenario.play(&place, &mut Told::default()).unwrap();
    let calls = disk.calls();
    assert!(calls.len() > 30, "{}", calls.len());
    calls
}
