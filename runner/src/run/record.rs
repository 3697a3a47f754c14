//! From what a run was to the two records that say it.

use std::io;
use std::time::Duration;

use ledger::bytes::canon::U53;
use ledger::bytes::canon::WriteLineError;
use ledger::bytes::hash::Hash;
use ledger::bytes::time::Stamp;
use ledger::facts::control::Controls;
use ledger::facts::execution::{
    Execution, Output, PolicyRef, Program as ProgramFile, RunId, RuntimeUsed, Start, Workload,
};
use ledger::facts::list::{List, Sealable};
use ledger::facts::measurement::ProbeRun;
use ledger::file::durable::FileError;
use ledger::file::store::{AppendError, Appended, BlobError, BlobWriter, Durability, Store};
use ledger::record::{Body, Opened, Salted, SealError};
use serde::Serialize;

use super::listing::{LIST_BYTES, ListError, Listing, SHORT_LIST_BYTES};
use super::measured::{Measure, Printed, Probed};
use super::output::{Blob, Stream};
use crate::plan::{Effect, Plan, Program, Runtime};

/// Why a run's record could not be made or kept.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum RecordError {
    /// The ledger does not take it.
    #[error("the record cannot be kept")]
    #[diagnostic(code(runner::record::append))]
    Append(
        #[from]
        #[diagnostic_source]
        AppendError,
    ),
    /// A blob cannot be stored.
    #[error("a blob cannot be kept")]
    #[diagnostic(code(runner::record::blob))]
    Blob(
        #[from]
        #[diagnostic_source]
        BlobError,
    ),
    /// A list cannot be kept.
    #[error(transparent)]
    #[diagnostic(transparent)]
    List(#[from] ListError),
    /// The run's lock cannot be taken.
    #[error("the run cannot be marked as going on")]
    #[diagnostic(code(runner::record::lock))]
    Lock(
        #[from]
        #[diagnostic_source]
        FileError,
    ),
    /// A value cannot be sealed.
    #[error("a value cannot be sealed")]
    #[diagnostic(code(runner::record::seal))]
    Seal(#[from] SealError),
    /// The end of a run that was never recorded as begun.
    #[error("the run has no start record")]
    #[diagnostic(code(runner::record::no_start))]
    NoStart,
    /// A value cannot be written.
    #[error("a value cannot be written")]
    #[diagnostic(code(runner::record::write))]
    Write(#[from] WriteLineError),
}

/// The store's blobs, for captured output.
pub(super) struct StoreBlob(pub(super) BlobWriter);

impl io::Write for StoreBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Blob for StoreBlob {
    fn commit(self: Box<Self>) -> io::Result<Hash> {
        self.0.commit().map_err(io::Error::other)
    }
}

/// Writes a run's records.
pub(super) struct Recorder<'a, 'm> {
    pub(super) store: &'a mut Store,
    pub(super) run: RunId,
    pub(super) host: U53,
    pub(super) policy: PolicyRef,
    /// Nothing is sealed (`--clear`).
    pub(super) clear: bool,
    /// What makes the run one of a probe.
    pub(super) measure: Option<Measure<'m>>,
    /// What its start record said, once there is one.
    pub(super) started: Option<(Controls, RuntimeUsed)>,
}

/// What a workload printed, for its record.
#[derive(Default)]
pub(super) struct Streams {
    pub(super) stdout: Option<Output>,
    pub(super) stderr: Option<Output>,
    /// The first bytes of both, of a probe alone.
    pub(super) remembered: [Vec<u8>; 2],
    pub(super) cut: Vec<Stream>,
    /// Whether the end of the kernel's pid namespace ended the whole tree.
    pub(super) tree_ended: bool,
    /// How long after the deadline its end was seen.
    pub(super) late: Option<Duration>,
}

impl Recorder<'_, '_> {
    /// Appends the start record, unsynced: it shares its execution's sync.
    pub(super) fn start(
        &mut self,
        plan: &Plan,
        runtime: &dyn Runtime,
        effect: Option<&Effect>,
        controls: Controls,
        stamp: &Stamp,
    ) -> Result<Appended, RecordError> {
        use std::os::unix::ffi::OsStrExt as _;
        let argv: Vec<String> = plan
            .job
            .argv
            .iter()
            .map(|argument| ledger::bytes::canon::escape_bytes(argument.as_bytes()))
            .collect();
        let asked = argv.first().cloned().unwrap_or_default();
        let id = match &self.measure {
            Some(measure) => measure.probe.to_string(),
            None => asked.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        let program = match effect.map(|effect| &effect.program) {
            Some(Program::Found { path, sha256 }) => ProgramFile {
                path: path.clone(),
                sha256: *sha256,
            },
            _ => ProgramFile {
                path: asked,
                sha256: None,
            },
        };
        let mut opened = Opened::default();
        let argv = self.list(argv)?;
        let argv = self.seal(argv, &mut opened.argv)?;
        let launch = match effect.filter(|effect| !effect.launch.is_empty()) {
            Some(effect) => {
                let list = self.list(effect.launch.clone())?;
                Some(self.seal(list, &mut opened.launch)?)
            }
            None => None,
        };
        let used = RuntimeUsed {
            id: runtime.id().to_owned(),
            launch,
            sha256: effect.and_then(|effect| effect.runtime_sha256),
            tier: effect.and_then(|effect| effect.tier).map(str::to_owned),
            version: runtime.version(),
        };
        // What a measurement itself runs rests on nothing, nor does what was not launched.
        let rests = effect.is_some() && self.measure.is_none();
        let policy = &self.policy.id;
        let matrix = rests.then(|| self.store.newest_matrix(self.host, &used, policy));
        let body = Start {
            controls,
            host: self.host,
            key_reachable: effect.filter(|effect| effect.key_reachable).map(|_| true),
            matrix: matrix.flatten(),
            policy: self.policy.clone(),
            run: self.run,
            runtime: used,
            workload: Workload { argv, id, program },
        };
        if self.measure.is_some() {
            self.started = Some((body.controls.clone(), body.runtime.clone()));
        }
        self.append(
            Body::Start(Box::new(body)),
            opened,
            stamp,
            Durability::Deferred,
        )
    }

    /// Appends the record of the run's end: an `execution` is on the disk when this returns; a `probe` is when the matrix is
    /// that names it.
    pub(super) fn end(
        &mut self,
        mut body: Execution,
        streams: Streams,
        stamp: &Stamp,
    ) -> Result<(Appended, Option<Probed>), RecordError> {
        let Streams { stdout, stderr, .. } = &streams;
        if let Some(measure) = self.measure.take() {
            return self.probe(measure, body, &streams, stamp);
        }
        let (stdout, stderr) = (stdout.clone(), stderr.clone());
        let mut opened = Opened::default();
        body.result.stdout = stdout
            .map(|output| self.seal(output, &mut opened.stdout))
            .transpose()?;
        body.result.stderr = stderr
            .map(|output| self.seal(output, &mut opened.stderr))
            .transpose()?;
        let appended = self.append(
            Body::Execution(Box::new(body)),
            opened,
            stamp,
            Durability::Durable,
        )?;
        Ok((appended, None))
    }

    fn probe(
        &mut self,
        measure: Measure<'_>,
        execution: Execution,
        streams: &Streams,
        stamp: &Stamp,
    ) -> Result<(Appended, Option<Probed>), RecordError> {
        let [stdout, stderr] = &streams.remembered;
        let Some((controls, runtime)) = self.started.take() else {
            return Err(RecordError::NoStart);
        };
        // What the streams were, for whoever looks: recorded are the lines alone.
        let mut whole = execution.clone();
        whole.result.stdout = streams.stdout.clone().map(Sealable::Clear);
        whole.result.stderr = streams.stderr.clone().map(Sealable::Clear);
        let controller = (measure.observe)(&Printed {
            stdout,
            stderr,
            cut: &streams.cut,
            tree_ended: streams.tree_ended,
            late: streams.late,
            controls: &controls,
            execution: &whole,
        });
        let lines = super::measured::lines(stdout, stderr);
        let run = ProbeRun {
            ablated: measure.ablated,
            arm: measure.arm,
            controller,
            execution,
            lines: self.list(lines.clone())?,
            nonce: measure.nonce,
            probe: measure.probe,
            suite: measure.suite,
        };
        let body = Body::Probe(Box::new(run.clone()));
        let appended = self.append(body, Opened::default(), stamp, Durability::Deferred)?;
        Ok((
            appended,
            Some(Probed {
                run,
                lines,
                runtime,
            }),
        ))
    }

    /// The list as it is, or, when it is long, as a blob.
    pub(super) fn list<T: Serialize>(&mut self, items: Vec<T>) -> Result<List<T>, RecordError> {
        let mut listing = self.listing();
        let _failed = items.into_iter().try_for_each(|item| listing.add(item));
        Ok(listing.finish()?)
    }

    /// The same of one that stands beside two others.
    pub(super) fn short_list<T: Serialize>(
        &mut self,
        items: Vec<T>,
    ) -> Result<List<T>, RecordError> {
        let mut listing = Listing::new(self.store, SHORT_LIST_BYTES);
        let _failed = items.into_iter().try_for_each(|item| listing.add(item));
        Ok(listing.finish()?)
    }

    /// A list that comes item by item.
    pub(super) fn listing<T: Serialize>(&mut self) -> Listing<'_, T> {
        Listing::new(self.store, LIST_BYTES)
    }

    fn seal<T: Serialize + Clone>(
        &self,
        value: T,
        opened: &mut Option<Salted<T>>,
    ) -> Result<Sealable<T>, RecordError> {
        if self.clear {
            return Ok(Sealable::Clear(value));
        }
        let salted = Salted::new(value)?;
        let sealed = salted.sealed()?;
        *opened = Some(salted);
        Ok(sealed)
    }

    fn append(
        &mut self,
        body: Body,
        opened: Opened,
        stamp: &Stamp,
        durability: Durability,
    ) -> Result<Appended, RecordError> {
        let opened = (!opened.is_empty()).then_some(opened);
        Ok(self.store.append(body, opened, stamp, durability)?)
    }
}
