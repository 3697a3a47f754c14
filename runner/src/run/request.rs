//! What a run is asked, what is told of it while it goes on, and what it comes to.

use std::io;
use std::path::PathBuf;

use ledger::bytes::canon::{U53, WriteLineError};
use ledger::bytes::key::PrivateKeyError;
use ledger::bytes::time::Stamp;
use ledger::facts::control::Controls;
use ledger::facts::execution::{Execution, RunId, Violation};
use ledger::facts::host::HostFacts;
use ledger::facts::policy::Policy;
use ledger::file::durable::FileError;
use ledger::file::store::{Appended, OpenLedgerError, Store};

use super::measured::{Measure, Probed};
use super::output::Stream;
use super::record::RecordError;
use super::relay::Stdin;
use crate::host::GatherHostError;
use crate::plan::{CompileError, Job, Runtime};

/// What is to be run and how.
pub struct Request<'a> {
    /// The policy in force, command line merged in.
    pub policy: Policy,
    /// Host paths that the workload must not reach; they replace the job's.
    pub evidence: &'a dyn Fn() -> Vec<PathBuf>,
    /// What is to run.
    pub job: Job,
    /// What isolates.
    pub runtime: &'a dyn Runtime,
    /// Facts of this host; those that the ledger knows may be believed where they cannot have changed.
    pub host: &'a dyn Fn(Option<&HostFacts>) -> Result<HostFacts, GatherHostError>,
    /// Both clocks, now.
    pub now: &'a dyn Fn() -> io::Result<Stamp>,
    /// Record argv and output as they are, not sealed.
    pub clear: bool,
    /// The caller's standard input.
    pub stdin: Stdin,
    /// What makes it a run of a probe, whose end is a `probe` record; absent for every other workload.
    pub measure: Option<Measure<'a>>,
}

/// The ledger of a run: opened when it is needed first, which is while pid 1 builds the sandbox.
pub struct Ledger<'a> {
    store: Option<Store>,
    open: &'a dyn Fn() -> Result<Store, OpenLedgerError>,
}

impl<'a> Ledger<'a> {
    /// A ledger that `open` opens.
    #[must_use]
    pub fn to_open(open: &'a dyn Fn() -> Result<Store, OpenLedgerError>) -> Self {
        Self { store: None, open }
    }

    /// The open ledger.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn store(&mut self) -> Result<&mut Store, OpenLedgerError> {
        let store = match self.store.take() {
            Some(store) => store,
            None => (self.open)()?,
        };
        Ok(self.store.insert(store))
    }
}

impl std::fmt::Debug for Ledger<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ledger").field(&self.store).finish()
    }
}

/// What happens during a run, for whoever watches.
#[derive(Debug)]
pub enum Event<'a> {
    /// The start record stands; the workload runs.
    Started {
        /// The run.
        run: RunId,
        /// Its start record.
        start: Appended,
        /// What took effect.
        controls: &'a Controls,
    },
    /// Something did not go as intended and cost no control.
    Remark(&'a str),
    /// The execution record is on the disk; what follows is not to wait for a reader longer than this.
    Recorded {
        /// For [`super::write_until`].
        until: Option<std::time::Duration>,
    },
    /// A stream passed its cap; the rest is counted and hashed, not passed on.
    Cut(Stream),
    /// System calls that the policy's filter denied; not sent where there were none, or where nobody listened.
    Denied(&'a [Violation]),
    /// The execution record is on the disk.
    Ended {
        /// The run.
        run: RunId,
        /// Its start record.
        start: Appended,
        /// Its execution record.
        end: Appended,
        /// What it says.
        body: &'a Execution,
    },
}

/// Whoever watches a run.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);
}

/// A run that is recorded.
#[derive(Debug)]
pub struct Finished {
    /// Its start record.
    pub start: Appended,
    /// Its execution record.
    pub end: Appended,
    /// What the execution record says.
    pub body: Execution,
    /// What was asked and what was in force.
    pub controls: Controls,
    /// What the program was, and what stood in its way.
    pub program: String,
    /// Why it was refused or could not be launched, for people.
    pub obstacle: Option<String>,
    /// Whether what stood in the way is the policy's insistence alone: `--best-effort` would have run it.
    pub runs_without: bool,
    /// The signal by which the operator ended it.
    pub ended_by: Option<i32>,
    /// Of a probe's run, what was recorded.
    pub probed: Option<Probed>,
}

/// Why a run could not be recorded, or not begun.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum RunError {
    /// No plan.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Compile(#[from] CompileError),
    /// The ledger cannot be opened.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Ledger(#[from] OpenLedgerError),
    /// The record cannot be kept.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    /// The workload ran, and what came of it is not recorded.
    #[error(
        "the workload ran, and its execution record is lost: only record {start} says that it began"
    )]
    #[diagnostic(code(runner::run::lost))]
    Lost {
        /// Its start record.
        start: U53,
        /// Why.
        #[source]
        #[diagnostic_source]
        source: RecordError,
    },
    /// The effective policy cannot be written.
    #[error("cannot write the effective policy")]
    #[diagnostic(code(runner::run::policy))]
    Policy(#[from] WriteLineError),
    /// No random bytes.
    #[error(transparent)]
    #[diagnostic(code(runner::run::random))]
    Random(#[from] PrivateKeyError),
    /// The ledger's newest host record cannot be read.
    #[error("cannot read the ledger")]
    #[diagnostic(code(runner::run::newest_host))]
    NewestHost(#[from] FileError),
    /// The host does not tell what it is.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Host(#[from] GatherHostError),
    /// The runner's own system calls failed.
    #[error("cannot {attempt}")]
    #[diagnostic(code(runner::run::system))]
    System {
        /// What was attempted.
        attempt: &'static str,
        /// The error.
        source: io::Error,
    },
}

pub(super) fn system(attempt: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::System { attempt, source }
}
