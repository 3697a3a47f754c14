//! Which records a bundle holds: what was asked for, what that refers to, and what no reader can do without.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Value;
use super::segment::{Segment, SegmentError, index_of};
use crate::bytes::hash::Hash;
use crate::facts::execution::{Execution, Output, RunId};
use crate::facts::list::{List, Sealable};
use crate::facts::matrix::{Cell, Matrix};
use crate::file::durable::{self, FileError};
use crate::file::store::Covered;
use crate::record::{Body, Content, Opened, Opening, OpeningProblem, Record, parse_line};

/// Longest list of cells that is read from a blob, in bytes.
const CELLS_BYTES: u64 = 64 * 1024 * 1024;

/// What a bundle is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every record.
    All,
    /// One run.
    Run(RunId),
    /// The newest so many runs that ended; runs of probes do not count.
    Last(u64),
    /// The newest matrix.
    Matrix,
    /// One record, by its number.
    Record(u64),
}

/// Why the records of a bundle cannot be gathered.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum GatherError {
    /// The system refused.
    #[error(transparent)]
    #[diagnostic(transparent)]
    File(#[from] FileError),
    /// A segment does not hold what it should.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Segment(#[from] SegmentError),
    /// A record cannot be read.
    #[error("record {sequence} is no record that this version reads: {why}")]
    #[diagnostic(
        code(ledger::bundle::record),
        help("`verify` says what is wrong with the ledger")
    )]
    Record {
        /// Its number.
        sequence: u64,
        /// What is wrong.
        why: String,
    },
    /// An opening cannot be read.
    #[error("the opening before record {sequence} is none")]
    #[diagnostic(
        code(ledger::bundle::opening),
        help("`verify` says what is wrong with the ledger")
    )]
    Opening {
        /// The record.
        sequence: u64,
        /// What is wrong.
        source: OpeningProblem,
    },
    /// The blob of a matrix's cells cannot be read.
    #[error("the cells of matrix {sequence} cannot be read from blob {blob}: {why}")]
    #[diagnostic(
        code(ledger::bundle::cells),
        help("`verify` says what is wrong with the ledger")
    )]
    Cells {
        /// The matrix.
        sequence: u64,
        /// The blob.
        blob: Hash,
        /// What is wrong.
        why: String,
    },
    /// No such run.
    #[error("no run {0} stands in the ledger")]
    #[diagnostic(
        code(ledger::bundle::no_such_run),
        help("`runner exec --events FILE` names runs, as do start records")
    )]
    NoSuchRun(RunId),
    /// The run has no end yet.
    #[error("run {0} has no end in the ledger yet")]
    #[diagnostic(
        code(ledger::bundle::open_run),
        help(
            "wait for it, or let any other command of runner that writes close it where its runner died"
        )
    )]
    OpenRun(RunId),
    /// Nothing of what was asked for.
    #[error("the ledger holds no {0}")]
    #[diagnostic(code(ledger::bundle::nothing), help("--all takes what there is"))]
    Nothing(&'static str),
}

/// Where a file of the ledger is that a bundle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Blob,
    Torn,
}

/// What a bundle holds.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) records: BTreeSet<u64>,
    pub(super) files: BTreeMap<Hash, Kept>,
    /// Values that were to be withheld and stand in their records.
    pub(super) clear: u64,
}

/// Gathers what a selection needs. Segments are read from the newest back, each once, and none that holds nothing of it;
/// to find a run or a matrix, all that stand behind it.
pub(super) fn gather(
    covered: &Covered,
    selection: Selection,
    withhold: &[Value],
) -> Result<Gathered, GatherError> {
    let mut waiting: BTreeSet<u64> = covered.always.iter().copied().collect();
    match selection {
        Selection::All => waiting.extend(0..covered.size()),
        Selection::Run(run) => waiting.extend(find_run(covered, run)?),
        Selection::Last(count) => waiting.extend(find_last(covered, count)?),
        Selection::Matrix => waiting.extend(find_matrix(covered)?),
        Selection::Record(sequence) if sequence < covered.size() => waiting.extend([sequence]),
        Selection::Record(_) => return Err(GatherError::Nothing("record of that number")),
    }
    let mut gathered = Gathered::default();
    let mut segment: Option<Segment> = None;
    // References point backwards, so that the newest of those that wait never waits again.
    while let Some(sequence) = waiting.pop_last() {
        gathered.records.insert(sequence);
        let index = index_of(sequence);
        let here = match segment.take_if(|it| it.index == index) {
            Some(segment) => segment,
            None => Segment::open(covered, index, sequence)?,
        };
        let (line, opening) = here.lines(sequence)?;
        segment = Some(here);
        let record = read(sequence, &line)?;
        let opening = match opening {
            Some(line) => shown(sequence, &line, withhold)?,
            None => None,
        };
        let opened = opening.map(|opening| opening.open).unwrap_or_default();
        gathered.clear += withhold
            .iter()
            .filter(|value| value.is_clear(&record))
            .count() as u64;
        gathered.files_of(&record, &opened);
        for before in references(covered, sequence, &record)? {
            if before < sequence {
                waiting.insert(before);
            }
        }
    }
    Ok(gathered)
}

/// The opening as the bundle shows it; `None` when nothing of it is.
pub(super) fn shown(
    sequence: u64,
    line: &[u8],
    withhold: &[Value],
) -> Result<Option<Opening>, GatherError> {
    let mut opening =
        Opening::parse(line).map_err(|source| GatherError::Opening { sequence, source })?;
    for value in withhold {
        match value {
            Value::Argv => opening.open.argv = None,
            Value::Launch => opening.open.launch = None,
            Value::Stderr => opening.open.stderr = None,
            Value::Stdout => opening.open.stdout = None,
        }
    }
    Ok((!opening.open.is_empty()).then_some(opening))
}

fn read(sequence: u64, line: &[u8]) -> Result<Record, GatherError> {
    let why = match parse_line(line).content {
        Ok(Content::Record(record)) if record.sequence.value() == sequence => return Ok(*record),
        Ok(Content::Record(record)) => format!("its number is {}", record.sequence),
        Ok(Content::UnknownKind(_) | Content::UnknownVersion(_)) => {
            "a newer program wrote it".to_owned()
        }
        Err(problems) => problems
            .first()
            .map_or_else(String::new, ToString::to_string),
    };
    Err(GatherError::Record { sequence, why })
}

/// Hands out records from the newest back until one is what was looked for.
fn newest_first<T>(
    covered: &Covered,
    mut look: impl FnMut(u64, &Record) -> Option<T>,
) -> Result<Option<T>, GatherError> {
    let mut segment: Option<Segment> = None;
    for sequence in (0..covered.size()).rev() {
        let index = index_of(sequence);
        let here = match segment.take_if(|it| it.index == index) {
            Some(segment) => segment,
            None => Segment::open(covered, index, sequence)?,
        };
        let (line, _) = here.lines(sequence)?;
        segment = Some(here);
        if let Some(found) = look(sequence, &read(sequence, &line)?) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn find_run(covered: &Covered, run: RunId) -> Result<[u64; 2], GatherError> {
    let mut ends = HashMap::new();
    let found = newest_first(covered, |sequence, record| match &record.body {
        Body::Start(start) => {
            let end = ends.remove(&sequence);
            (start.run == run).then_some((sequence, end))
        }
        body => {
            ends.extend(body.ends().map(|start| (start.value(), sequence)));
            None
        }
    })?;
    match found {
        None => Err(GatherError::NoSuchRun(run)),
        Some((_, None)) => Err(GatherError::OpenRun(run)),
        Some((start, Some(end))) => Ok([start, end]),
    }
}

fn find_last(covered: &Covered, count: u64) -> Result<Vec<u64>, GatherError> {
    let mut ends = HashMap::new();
    let mut found = Vec::new();
    newest_first(covered, |sequence, record| {
        match &record.body {
            Body::Start(_) => {
                found.extend(
                    ends.remove(&sequence)
                        .into_iter()
                        .flat_map(|end| [sequence, end]),
                );
            }
            Body::Execution(execution) => {
                ends.insert(execution.start.value(), sequence);
            }
            _ => {}
        }
        (found.len() as u64 / 2 >= count).then_some(())
    })?;
    if found.is_empty() {
        return Err(GatherError::Nothing("run that ended"));
    }
    Ok(found)
}

fn find_matrix(covered: &Covered) -> Result<[u64; 1], GatherError> {
    let found = newest_first(covered, |sequence, record| {
        matches!(record.body, Body::Matrix(_)).then_some(sequence)
    })?;
    found
        .map(|matrix| [matrix])
        .ok_or(GatherError::Nothing("matrix"))
}

/// The records that a record refers to.
fn references(covered: &Covered, sequence: u64, record: &Record) -> Result<Vec<u64>, GatherError> {
    let mut named = Vec::new();
    match &record.body {
        Body::Start(start) => {
            named.push(start.host);
            named.extend(start.matrix);
        }
        Body::Matrix(matrix) => {
            named.push(matrix.host);
            for cell in cells(covered, sequence, matrix)? {
                named.extend(
                    [cell.ablation, cell.baseline, cell.run]
                        .into_iter()
                        .flatten(),
                );
            }
        }
        body => named.extend(body.ends()),
    }
    Ok(named.into_iter().map(|named| named.value()).collect())
}

fn cells(covered: &Covered, sequence: u64, matrix: &Matrix) -> Result<Vec<Cell>, GatherError> {
    let list = match &matrix.cells {
        List::Inline(cells) => return Ok(cells.clone()),
        List::Blob(list) => list,
    };
    let wrong = |why: String| GatherError::Cells {
        sequence,
        blob: list.blob,
        why,
    };
    let path = covered.blob(&list.blob);
    let Some(file) = durable::open_to_read(&path)? else {
        return Err(wrong("it is missing".to_owned()));
    };
    let mut bytes = Vec::new();
    durable::read_most(&file, &path, &mut bytes, CELLS_BYTES)?;
    if Hash::of(&bytes) != list.blob {
        return Err(wrong("its content is not what its name says".to_owned()));
    }
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}

impl Gathered {
    /// Notes the files that a record and what is opened of it refer to.
    fn files_of(&mut self, record: &Record, opened: &Opened) {
        match &record.body {
            Body::Start(start) => {
                self.blob(start.policy.sha256);
                self.list(clear(Some(&start.workload.argv)));
                self.list(clear(start.runtime.launch.as_ref()));
                self.list(opened.argv.as_ref().map(|salted| &salted.1));
                self.list(opened.launch.as_ref().map(|salted| &salted.1));
            }
            Body::Execution(execution) => {
                self.execution(execution);
                self.output(opened.stdout.as_ref().map(|salted| &salted.1));
                self.output(opened.stderr.as_ref().map(|salted| &salted.1));
            }
            Body::Probe(probe) => {
                self.execution(&probe.execution);
                self.list(Some(&probe.lines));
                self.blob(probe.suite);
            }
            Body::Matrix(matrix) => {
                self.list(Some(&matrix.cells));
                self.blob(matrix.policy.sha256);
                self.blob(matrix.suite);
            }
            Body::Recovery(recovery) => {
                let set_aside = recovery.sha256.map(|hash| (hash, Kept::Torn));
                self.files.extend(set_aside);
            }
            Body::Genesis(_) | Body::Host(_) | Body::Note(_) | Body::Key(_) | Body::Close(_) => {}
        }
    }

    fn execution(&mut self, execution: &Execution) {
        self.list(execution.artifacts.as_ref());
        self.list(execution.violations.as_ref());
        self.output(clear(execution.result.stdout.as_ref()));
        self.output(clear(execution.result.stderr.as_ref()));
    }

    fn blob(&mut self, hash: Hash) {
        self.files.entry(hash).or_insert(Kept::Blob);
    }

    fn output(&mut self, output: Option<&Output>) {
        if let Some(blob) = output.and_then(|output| output.blob) {
            self.blob(blob);
        }
    }

    fn list<T>(&mut self, list: Option<&List<T>>) {
        if let Some(List::Blob(list)) = list {
            self.blob(list.blob);
        }
    }
}

fn clear<T>(value: Option<&Sealable<T>>) -> Option<&T> {
    match value {
        Some(Sealable::Clear(value)) => Some(value),
        Some(Sealable::Sealed(_)) | None => None,
    }
}

impl Value {
    /// Whether a record shows the value itself: it cannot be withheld then.
    fn is_clear(self, record: &Record) -> bool {
        let result = match &record.body {
            Body::Start(start) => {
                return match self {
                    Self::Argv => clear(Some(&start.workload.argv)).is_some(),
                    Self::Launch => clear(start.runtime.launch.as_ref()).is_some(),
                    Self::Stderr | Self::Stdout => false,
                };
            }
            Body::Execution(execution) => &execution.result,
            Body::Probe(probe) => &probe.execution.result,
            Body::Genesis(_)
            | Body::Host(_)
            | Body::Matrix(_)
            | Body::Note(_)
            | Body::Key(_)
            | Body::Recovery(_)
            | Body::Close(_) => return false,
        };
        match self {
            Self::Stderr => clear(result.stderr.as_ref()).is_some(),
            Self::Stdout => clear(result.stdout.as_ref()).is_some(),
            Self::Argv | Self::Launch => false,
        }
    }
}
