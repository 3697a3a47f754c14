//! Whatever is changed in a ledger of real executions is found, at the place where it was changed.
//!
//! The ledgers are made here by the runner, two by one key. One model ([`Model`]) says where a change must be found
//! first, whatever made it; every test asks it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ledger::file::chain::Chain;
use ledger::file::source::Source;
use ledger::file::walk::{Given, Walked, walk};
use ledger::finding::{Class, Code, Finding};
use ledger::record::{Content, Opening, parse_line};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::FileFailurePersistence;

use crate::verifier::{NO_VERIFIER, Verdict, verdict, verifier};
use crate::world::{World, no_sandbox, skip};

const SEGMENT: &str = "records/00000000.jsonl";
const OPENING: &[u8] = b"{\"open\":";
/// What a line that is not the runner's any more is called.
const CHANGED: [Code; 4] = [
    Code::RecordMalformed,
    Code::RecordNotCanonical,
    Code::SignatureInvalid,
    Code::KeyUnknown,
];

/// A ledger, file by file and line by line, and the lines of another one by the same key.
struct Real {
    files: BTreeMap<PathBuf, Vec<u8>>,
    lines: Vec<Vec<u8>>,
    sibling: Vec<Vec<u8>>,
}

fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.map(<[u8]>::to_vec).collect()
}

fn is_opening(line: &[u8]) -> bool {
    line.starts_with(OPENING)
}

fn gather(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_owned();
            files.insert(name, fs::read(&path).unwrap());
        }
    }
}

/// The ledgers; `None`, said on stderr, where no sandbox can be made.
fn real(test: &str) -> Option<&'static Real> {
    static MADE: OnceLock<Real> = OnceLock::new();
    if let Some(reason) = no_sandbox() {
        skip(test, reason);
        return None;
    }
    Some(MADE.get_or_init(make))
}

fn make() -> Real {
    let world = World::new();
    let key = world.path("shared.pem");
    world.run(&format!("key new {}", key.display())).ended(0);
    let out = world.folder("out");
    let run = |ledger: &Path, flags: &str, script: &str, code: i32| {
        let (ledger, key) = (ledger.display(), key.display());
        let line = format!("-q --ledger {ledger} --key {key} exec {flags} -- sh -c");
        let arguments = line.split_whitespace().chain([script]);
        let ended = world.command(arguments).output().unwrap().status.code();
        assert_eq!(ended, Some(code), "{script}");
    };
    let (one, other) = (world.path("one"), world.path("other"));
    let many = "i=0; while [ $i -lt 900 ]; do echo line $i; i=$((i+1)); done";
    for ledger in [&one, &other] {
        run(ledger, "", "echo words", 0);
        run(ledger, "--clear", "echo seen; echo told >&2; exit 3", 3);
        run(ledger, "", many, 0);
        run(
            ledger,
            &format!("--clear --write {}", out.display()),
            "echo > \"$PWD/x\" || :",
            0,
        );
        run(ledger, "--timeout 300ms", "while :; do :; done", 124);
        run(ledger, "", "exec /no/such/program", 127);
    }
    let note = format!(
        "--ledger {} --key {} note last",
        one.display(),
        key.display()
    );
    world.run(&note).ended(0);
    let mut files = BTreeMap::new();
    gather(&one, &one, &mut files);
    let lines = split(&files[Path::new(SEGMENT)]);
    let sibling = split(&fs::read(other.join(SEGMENT)).unwrap());
    let openings = lines.iter().filter(|line| is_opening(line)).count();
    assert_eq!((lines.len() - openings, openings), (15, 8));
    assert!(of_lines(&lines).findings.exit_code(15) == 0);
    Real {
        files,
        lines,
        sibling,
    }
}

fn of_lines(lines: &[Vec<u8>]) -> Walked {
    let bytes = Cursor::new(lines.concat());
    let mut source = Source::from_reader("-", Box::new(bytes));
    walk(&mut source, None, &mut ()).unwrap()
}

impl Real {
    /// The ledger with other lines, as a folder.
    fn folder(&self, lines: &[Vec<u8>]) -> tempfile::TempDir {
        self.folder_with(Path::new(SEGMENT), &lines.concat())
    }

    /// The ledger with one file that has other content.
    fn folder_with(&self, name: &Path, content: &[u8]) -> tempfile::TempDir {
        let at = tempfile::tempdir().unwrap();
        for (path, bytes) in &self.files {
            let path = at.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        fs::write(at.path().join(name), content).unwrap();
        at
    }

    fn blobs(&self) -> Vec<&PathBuf> {
        self.files
            .keys()
            .filter(|path| path.starts_with("blobs"))
            .collect()
    }
}

/// What must be found in changed lines, and where first; lines count from 1.
#[derive(Debug, PartialEq, Eq)]
struct Model {
    /// The first line that is not what stood there, or an opening that is not its record's.
    first: Option<u64>,
    /// Records are missing at the end and nothing else shows it.
    shorter: bool,
    /// The last line has no newline, or is an opening.
    torn: bool,
    /// Records whose opening is gone.
    withheld: BTreeSet<u64>,
}

impl Model {
    /// `after` is held against the ledger that its genesis begins.
    fn of(real: &Real, after: &[Vec<u8>]) -> Self {
        let before = match after.first() == real.sibling.first() {
            true => &real.sibling,
            false => &real.lines,
        };
        // What is torn is not judged as a record.
        let torn_line = after.last().is_some_and(|line| !line.ends_with(b"\n"));
        let whole = &after[..after.len() - usize::from(torn_line)];
        let records = |lines: &[Vec<u8>]| -> Vec<(usize, Vec<u8>)> {
            let numbered = lines.iter().cloned().enumerate();
            numbered.filter(|(_, line)| !is_opening(line)).collect()
        };
        let (was, is) = (records(before), records(whole));
        let same = was.iter().zip(&is).take_while(|(a, b)| a.1 == b.1).count();
        let mut places: Vec<usize> = is.get(same).map(|(line, _)| *line).into_iter().collect();
        let opens = |opening: &Vec<u8>, record: &Vec<u8>| {
            let mut pairs = before.windows(2);
            is_opening(opening) && pairs.any(|pair| [opening, record] == [&pair[0], &pair[1]])
        };
        let known = |line: &Vec<u8>| real.lines.contains(line) || real.sibling.contains(line);
        for (at, line) in whole
            .iter()
            .enumerate()
            .filter(|(_, line)| is_opening(line))
        {
            let fits = match is.iter().position(|(place, _)| *place > at) {
                // Before a record of the ledger: only its own.
                Some(record) if record < same => opens(line, &is[record].1),
                // Before a line that is none: its number alone can be compared.
                Some(record) => {
                    known(line) && {
                        let content = is[record].1.strip_suffix(b"\n").unwrap();
                        let head = parse_line(content).head;
                        let named = Opening::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
                        head.is_none_or(|head| head.sequence == named.sequence.value())
                    }
                }
                // At the end: that of the next record is torn and no more.
                None => was.get(same).is_some_and(|(_, next)| opens(line, next)),
            };
            if !fits || (at > 0 && is_opening(&whole[at - 1])) {
                places.push(at);
            }
        }
        let shown = |record: &Vec<u8>| {
            let mut pairs = whole.windows(2);
            pairs.any(|pair| pair[1] == *record && opens(&pair[0], record))
        };
        let sealed = |record: &Vec<u8>| before.iter().any(|line| opens(line, record));
        let withheld = (0..).zip(&was[..same]);
        let withheld = withheld.filter(|(_, (_, record))| sealed(record) && !shown(record));
        Self {
            first: places.into_iter().min().map(|at| at as u64 + 1),
            shorter: is.len() == same && same < was.len(),
            torn: torn_line || whole.last().is_some_and(|line| is_opening(line)),
            withheld: withheld.map(|(sequence, _)| sequence).collect(),
        }
    }

    /// The exit code of `verify` for the lines alone.
    fn code(&self) -> u8 {
        match (self.first, self.torn) {
            (Some(_), _) => 10,
            (None, true) => 11,
            (None, false) => 0,
        }
    }

    /// Holds a walk against it.
    fn holds(&self, walked: Walked) -> Result<Vec<Finding>, TestCaseError> {
        let code = walked.findings.exit_code(walked.tally.records.max(1));
        let list = walked.findings.into_list();
        prop_assert_eq!(code, self.code(), "{:?}: {:#?}", self, list);
        let invalid = list.iter().filter(|it| it.code.class() == Class::Invalid);
        let first = invalid.filter_map(|it| it.place.as_ref()?.line).min();
        prop_assert_eq!(first, self.first, "{:#?}", list);
        let torn = list.iter().any(|finding| finding.code == Code::TornTail);
        prop_assert_eq!(torn, self.torn, "{:#?}", list);
        if self.first.is_none() {
            let withheld = list.iter().find(|it| it.code == Code::OpeningWithheld);
            let first = withheld.and_then(|finding| finding.sequence);
            prop_assert_eq!(first, self.withheld.first().copied(), "{:#?}", list);
        }
        Ok(list)
    }
}

/// One thing done to the lines of a ledger.
#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Delete(Index),
    Repeat(Index, Index),
    Move(Index, Index),
    Swap(Index, Index),
    Insert(Index, Vec<u8>),
    /// The rest of a line is cut off, its newline too or not.
    Truncate(Index, Index, bool),
    /// The file ends here.
    Cut(Index),
    /// A line of the sibling is put before a line, or in its place.
    Mix(Index, Index, bool),
    /// So many lines are the sibling's.
    Graft(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let text = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60),
        Just(b"{\"key\":\"\"}".to_vec()),
        Just(b"{\"open\":{},\"sequence\":1}".to_vec()),
    ];
    prop_oneof![
        6 => (at(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => at().prop_map(Change::Delete),
        2 => (at(), at()).prop_map(|(line, to)| Change::Repeat(line, to)),
        2 => (at(), at()).prop_map(|(line, to)| Change::Move(line, to)),
        2 => (at(), at()).prop_map(|(line, other)| Change::Swap(line, other)),
        2 => (at(), text).prop_map(|(line, text)| Change::Insert(line, text)),
        2 => (at(), at(), any::<bool>()).prop_map(|(line, at, joined)| Change::Truncate(line, at, joined)),
        1 => at().prop_map(Change::Cut),
        3 => (at(), at(), any::<bool>()).prop_map(|(line, to, replaces)| Change::Mix(line, to, replaces)),
        1 => at().prop_map(Change::Graft),
    ]
}

impl Change {
    fn made(&self, real: &Real) -> Vec<Vec<u8>> {
        let mut lines = real.lines.clone();
        let count = lines.len();
        match self {
            Self::Flip(at, bit) => {
                let mut bytes = lines.concat();
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                lines = split(&bytes);
            }
            Self::Delete(line) => drop(lines.remove(line.index(count))),
            Self::Repeat(line, to) => {
                let line = lines[line.index(count)].clone();
                lines.insert(to.index(count + 1), line);
            }
            Self::Move(line, to) => {
                let line = lines.remove(line.index(count));
                lines.insert(to.index(count), line);
            }
            Self::Swap(line, other) => lines.swap(line.index(count), other.index(count)),
            Self::Insert(line, text) => {
                let text = [text.as_slice(), b"\n"].concat();
                lines.insert(line.index(count + 1), text);
                lines = split(&lines.concat());
            }
            Self::Truncate(line, at, joined) => {
                let line = &mut lines[line.index(count)];
                line.truncate(at.index(line.len() - 1));
                if !joined {
                    line.push(b'\n');
                }
                lines = split(&lines.concat());
            }
            Self::Cut(at) => {
                let mut bytes = lines.concat();
                bytes.truncate(at.index(bytes.len()));
                lines = split(&bytes);
            }
            Self::Mix(line, to, replaces) => {
                let line = real.sibling[line.index(real.sibling.len())].clone();
                if *replaces {
                    lines[to.index(count)] = line;
                } else {
                    lines.insert(to.index(count + 1), line);
                }
            }
            Self::Graft(until) => {
                let until = until.index(count);
                lines.splice(..until, real.sibling[..until].iter().cloned());
            }
        }
        lines
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn every_change_is_found_where_it_was_made(change in change()) {
        let Some(real) = real("tamper::every_change_is_found_where_it_was_made") else {
            return Ok(());
        };
        let lines = change.made(real);
        Model::of(real, &lines).holds(of_lines(&lines))?;
    }
}

/// A line without its newline.
fn content(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap()
}

/// The codes of the findings at a line.
fn codes_at(list: &[Finding], line: usize) -> Vec<Code> {
    let here = |finding: &&Finding| {
        let place = finding.place.as_ref();
        place.and_then(|place| place.line) == Some(line as u64)
    };
    list.iter()
        .filter(here)
        .map(|finding| finding.code)
        .collect()
}

/// Walks changed lines, held against the model; what was found.
#[track_caller]
fn found(real: &Real, lines: &[Vec<u8>]) -> Vec<Finding> {
    Model::of(real, lines).holds(of_lines(lines)).unwrap()
}

#[test]
fn every_bit_of_a_record_and_of_an_opening_counts() {
    let Some(real) = real("tamper::every_bit_of_a_record_and_of_an_opening_counts") else {
        return;
    };
    let flips = |line: &'static [u8]| {
        (0..line.len() * 8).map(move |bit| {
            let mut bytes = line.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            (bit, bytes)
        })
    };
    // Genesis and the last record, each at its place in the chain.
    let mut chain = Chain::new();
    let records: Vec<&Vec<u8>> = real.lines.iter().filter(|line| !is_opening(line)).collect();
    for (index, line) in records.iter().enumerate() {
        let line = content(line);
        if index == 0 || index + 1 == records.len() {
            for (bit, bytes) in flips(line) {
                let mut codes = BTreeSet::new();
                let parsed = parse_line(&bytes);
                chain.clone().step(&parsed, &bytes, &mut |finding| {
                    codes.insert(finding.code);
                });
                let named = CHANGED.iter().any(|code| codes.contains(code));
                assert!(named, "record {index}, bit {bit}: {codes:?}");
            }
        }
        chain.step(&parse_line(line), line, &mut |finding| {
            panic!("{finding:?}")
        });
    }
    // The shortest opening.
    let pairs = real.lines.windows(2).filter(|pair| is_opening(&pair[0]));
    let pair = pairs.min_by_key(|pair| pair[0].len()).unwrap();
    let Ok(Content::Record(record)) = parse_line(content(&pair[1])).content else {
        panic!("no record");
    };
    assert_eq!(
        Opening::parse(content(&pair[0])).unwrap().fits(&record),
        Ok(())
    );
    for (bit, bytes) in flips(content(&pair[0])) {
        let fits = Opening::parse(&bytes).is_ok_and(|opening| opening.fits(&record).is_ok());
        assert!(!fits, "opening, bit {bit}");
    }
}

#[test]
fn what_is_deleted_repeated_or_mixed_in_is_named() {
    let Some(real) = real("tamper::what_is_deleted_repeated_or_mixed_in_is_named") else {
        return;
    };
    for (index, line) in real.lines.iter().enumerate() {
        let at = index + 1;
        let mut lines = real.lines.clone();
        lines.remove(index);
        let list = found(real, &lines);
        let sequence = match is_opening(line) {
            true => Opening::parse(content(line)).unwrap().sequence.value(),
            false => parse_line(content(line)).head.unwrap().sequence,
        };
        if is_opening(line) {
            assert_eq!(list.len(), 1, "{list:#?}");
            assert_eq!(list[0].code, Code::OpeningWithheld);
            assert_eq!(list[0].sequence, Some(sequence));
        } else if index == 0 {
            assert!(
                codes_at(&list, 1).contains(&Code::GenesisMissing),
                "{list:#?}"
            );
        } else if at == real.lines.len() {
            // Nothing behind it misses it: only a checkpoint can.
            assert!(list.is_empty(), "{list:#?}");
        } else {
            let gap = list
                .iter()
                .find(|it| it.code == Code::ChainSequenceGap)
                .unwrap();
            assert_eq!(gap.expected, Some(sequence.to_string()));
            assert_eq!(gap.sequence, Some(sequence + 1));
        }
        let mut lines = real.lines.clone();
        lines.insert(index, line.clone());
        let list = found(real, &lines);
        let expected = match (is_opening(line), index) {
            (true, _) => Code::OpeningMismatch,
            (false, 0) => Code::GenesisRepeated,
            (false, _) => Code::ChainSequenceGap,
        };
        assert!(
            codes_at(&list, at + 1).contains(&expected),
            "{at}: {list:#?}"
        );
    }
    let last = real.sibling.len() - 1;
    for (index, line) in real.sibling.iter().enumerate() {
        for replaces in [false, true] {
            let mut lines = real.lines.clone();
            match replaces {
                true => lines[index] = line.clone(),
                false => lines.insert(index, line.clone()),
            }
            let list = found(real, &lines);
            let (at, expected) = match (is_opening(line), index) {
                (true, _) => (index + 1, Code::OpeningMismatch),
                // It begins the sibling, and what follows is not of it.
                (false, 0) => (2, Code::LedgerMismatch),
                (false, _) => (index + 1, Code::LedgerMismatch),
            };
            assert!(
                codes_at(&list, at).contains(&expected),
                "{index} of {last}: {list:#?}"
            );
        }
    }
}

#[test]
fn every_bit_of_a_checkpoint_counts() {
    let Some(real) = real("tamper::every_bit_of_a_checkpoint_counts") else {
        return;
    };
    let good = &real.files[Path::new("checkpoint")];
    // Genesis has the key; the rest is not needed to tell a good note from a bad one.
    let judged = |bytes: &[u8]| {
        let genesis = Cursor::new(real.lines[0].clone());
        let mut source = Source::from_reader("-", Box::new(genesis));
        let given = Given {
            name: "given",
            bytes,
        };
        let findings = walk(&mut source, Some(given), &mut ()).unwrap().findings;
        findings.codes().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(judged(good), [Code::TailTruncated]);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let codes = judged(&bytes);
        let bad = [vec![Code::CheckpointInvalid], vec![Code::LedgerReplaced]];
        assert!(bad.contains(&codes), "bit {bit}: {codes:?}");
    }
}

/// `verify`, and the ledger that it is asked about; `None`, said on stderr, where one of them is not there.
fn with_verifier(test: &str) -> Option<(&'static Path, &'static Real)> {
    let real = real(test)?;
    if verifier().is_none() {
        skip(test, NO_VERIFIER);
    }
    Some((verifier()?, real))
}

/// The first line of the records that an invalid finding names.
fn first_line(verdict: &Verdict) -> Option<u64> {
    let invalid = verdict.findings().filter(|it| it["severity"] == "invalid");
    let here = invalid.filter(|finding| finding["place"]["file"] == SEGMENT);
    here.filter_map(|finding| finding["place"]["line"].as_u64())
        .min()
}

#[test]
fn verify_names_the_place_of_any_change() {
    let test = "tamper::verify_names_the_place_of_any_change";
    let Some((verify, real)) = with_verifier(test) else {
        return;
    };
    verdict(verify, real.folder(&real.lines).path(), None).is(0, &[]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    });
    let checked = runner.run(&change(), |change| {
        let lines = change.made(real);
        let model = Model::of(real, &lines);
        let folder = real.folder(&lines);
        // The stored checkpoint knows how many records there were.
        let verdict = verdict(verify, folder.path(), None);
        let expected = if model.shorter {
            10
        } else {
            i32::from(model.code())
        };
        prop_assert_eq!(verdict.code, expected, "{:?}: {:#?}", model, verdict);
        prop_assert_eq!(first_line(&verdict), model.first, "{:#?}", verdict);
        let codes = verdict.codes();
        prop_assert!(!model.shorter || codes.contains(&"tail-truncated"));
        prop_assert_eq!(codes.contains(&"torn-tail"), model.torn);
        // Records are told in their order.
        let chain = verdict.findings().filter(|it| {
            let code = it["code"].as_str().unwrap();
            code.starts_with("record-") || code.starts_with("chain-") || code == "signature-invalid"
        });
        let lines = chain.map(|finding| finding["place"]["line"].as_u64());
        prop_assert!(lines.is_sorted(), "{:#?}", verdict);
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}\n{runner}");
    }
}

#[test]
fn without_a_checkpoint_a_missing_end_is_a_matter_of_completeness() {
    let test = "tamper::without_a_checkpoint_a_missing_end_is_a_matter_of_completeness";
    let Some((verify, real)) = with_verifier(test) else {
        return;
    };
    let folder = real.folder(&real.lines[..real.lines.len() - 1]);
    let stored = folder.path().join("checkpoint");
    let kept = folder.path().join("elsewhere");
    fs::rename(&stored, &kept).unwrap();
    let alone = verdict(verify, folder.path(), None);
    alone.is(0, &[]).finding("completeness-not-established");
    assert_eq!(
        alone.document["assurance"]["completeness"]["status"],
        "not-established"
    );
    let given = verdict(verify, folder.path(), Some(&kept));
    given.is(10, &["tail-truncated"]);
    assert_eq!(
        given.finding("tail-truncated")["expected"],
        "15 records or more"
    );
    assert_eq!(
        given.document["assurance"]["completeness"]["status"],
        "broken"
    );
}

#[test]
fn verify_names_a_changed_blob_or_checkpoint() {
    let test = "tamper::verify_names_a_changed_blob_or_checkpoint";
    let Some((verify, real)) = with_verifier(test) else {
        return;
    };
    let blobs = real.blobs();
    assert!(blobs.len() >= 3, "{blobs:?}");
    for path in blobs {
        let name = path.to_string_lossy().replace(['/', '\\'], "");
        let name = name.strip_prefix("blobs").unwrap();
        // The record that names it first; for a sealed value its opening does.
        let holds = |line: &&Vec<u8>| String::from_utf8_lossy(line).contains(name);
        let line = content(real.lines.iter().find(holds).unwrap());
        let sequence = match is_opening(line) {
            true => Opening::parse(line).unwrap().sequence.value(),
            false => parse_line(line).head.unwrap().sequence,
        };
        let good = &real.files[path];
        for bit in [0, good.len() * 3, good.len() * 8 - 1] {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let folder = real.folder_with(path, &bytes);
            let verdict = verdict(verify, folder.path(), None);
            let finding = verdict.is(10, &["blob-mismatch"]).finding("blob-mismatch");
            assert_eq!(finding["sequence"], sequence, "{verdict:#?}");
        }
        let longer = [good.as_slice(), b"\n"].concat();
        for bytes in [&good[..good.len() - 1], &longer, b""] {
            let folder = real.folder_with(path, bytes);
            verdict(verify, folder.path(), None).is(10, &["blob-mismatch"]);
        }
        let folder = real.folder(&real.lines);
        fs::remove_file(folder.path().join(path)).unwrap();
        let verdict = verdict(verify, folder.path(), None);
        let finding = verdict.is(11, &["blob-missing"]).finding("blob-missing");
        assert_eq!(finding["sequence"], sequence, "{verdict:#?}");
    }
    let good = &real.files[Path::new("checkpoint")];
    for at in (0..good.len()).step_by(17) {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        let folder = real.folder_with(Path::new("checkpoint"), &bytes);
        let verdict = verdict(verify, folder.path(), None);
        let finding = verdict
            .is(10, &["checkpoint-invalid"])
            .finding("checkpoint-invalid");
        assert_eq!(finding["place"]["file"], "checkpoint");
    }
}

#[test]
fn what_is_derived_changes_no_verdict_and_is_made_again() {
    let world = crate::world::ready!();
    world.exec("-q", &["true"]).ended(0);
    let ledger = world.ledger();
    for name in ["tip", "tree", "lock"] {
        let length = fs::read(ledger.join(name)).unwrap().len();
        for part in 0..6 {
            let mut bytes = fs::read(ledger.join(name)).unwrap();
            match bytes.get_mut(length * part / 6) {
                Some(byte) => *byte ^= 1 << part,
                None => bytes = vec![0xa5; 7],
            }
            fs::write(ledger.join(name), &bytes).unwrap();
            world.evidence();
            if let Some(verify) = verifier() {
                verdict(verify, &ledger, None).is(0, &[]);
            } else {
                skip(
                    "tamper::what_is_derived_changes_no_verdict_and_is_made_again",
                    NO_VERIFIER,
                );
            }
            let before = world.evidence().records.len();
            world.run("note remark").ended(0);
            let again = world.run("note remark").ended(0);
            assert!(
                !again.err.contains("again"),
                "{name}, part {part}: {again:#?}"
            );
            assert_eq!(world.evidence().records.len(), before + 2);
        }
    }
}
