//! **Measure**: the side of a measurement that stands outside: what is planted for one run of a probe, and what is seen of
//! it afterwards (PROBES.md §1).
//!
//! ```text
//! sweep(state)                              once: what killed runners left
//! Planted::new(row, secret, places, bounds) plants, and calls each instrument itself
//!   .parameters() .environment() .terminal()   what the run is given
//! … the run …
//!   .observe(stdout, result, facts)         calls each instrument again, compares, removes everything
//! ```
//!
//! Everything is fresh for each run, has a secret of its own, and carries the run's own mark ([`plant::mark`]).
//!
//! Several runs may be planted for side by side ([`lanes`]): every name carries the run's mark, every port and terminal is
//! the kernel's choice, and the numbers of descriptors that leak are taken by no other run as long as they are open. These leak
//! into whatever is started meanwhile, as far as its pid 1, whose workload gets none of them.
//!
//! Not here: a peer in a network namespace of its own. A run that is bare could reach it only through a device and a route
//! in the host's own network, which a measurement does not change. `peer=` is a listener at an address of the host's own
//! that is not loopback; a host that has none is not asked.

pub mod arms;
pub mod canary;
pub mod gate;
pub mod lanes;
pub mod listen;
pub mod matrix;
mod observe;
pub mod plant;
pub mod program;
pub mod record;
mod seed;
pub mod suite;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ledger::bytes::key::PrivateKeyError;
use ledger::facts::policy::Policy;
use ledger::facts::probe::Nonce;
use ledger::facts::suite::Probe;

use listen::{Endpoint, Listeners};
use plant::Place;
use plant::mark::{Mark, MarkError};

pub use observe::HostSide;
pub use plant::mark::sweep;

/// The variable that a probe must find; a policy that is measured lets it through.
pub const PRESENT_VARIABLE: &str = "CONTAINMENT_PROBE_PRESENT";
/// The variable that a probe must not find.
pub const ABSENT_VARIABLE: &str = "CONTAINMENT_PROBE_ABSENT";
/// How long after its deadline a probe of the runner's own says that it outlived it, in milliseconds: whether it lived so long
/// is counted in steps of its own, not told by the clock of a machine that may be busy.
pub const OUTLIVED_MILLIS: u64 = 300;
/// How much longer than its deadline the run of a third party's probe, which says nothing of the kind, may take and still
/// count as ended by it, in milliseconds.
pub const DEADLINE_SLACK_MILLIS: u64 = 1_000;

/// Where a run is planted.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where it is written down what is planted: the state folder.
    pub state: PathBuf,
    /// The folders in which files and sockets are planted ([`plant::six_places`]).
    pub six: Vec<Place>,
    /// The folder on the host that the workload sees, and as what it sees it: for what it is allowed to read.
    pub workload: (PathBuf, PathBuf),
    /// Ledger and keys: in a folder a decoy is planted, of a file the beginning counts as secret.
    pub evidence: Vec<PathBuf>,
    /// The addresses at which to listen ([`listen::own_addresses`]); none but own ones.
    pub addresses: Vec<std::net::IpAddr>,
}

/// The limits in force, which a probe is told so that it can try to pass them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// CPU time in thousandths of one CPU.
    pub cpu_millis: Option<u64>,
    /// Bytes of files.
    pub disk_bytes: Option<u64>,
    /// Wall time in milliseconds.
    pub deadline_millis: Option<u64>,
    /// User and group inside, as the policy says them.
    pub inside: Option<(u32, u32)>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Bytes of each output stream.
    pub output_bytes: Option<u64>,
    /// Tasks at once.
    pub processes: Option<u64>,
}

impl Bounds {
    /// Those of a policy; the ids inside are the caller's to fill in.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let number = |value: Option<ledger::bytes::canon::U53>| value.map(|value| value.value());
        let bytes = |value| number(value).map(|mebibytes: u64| mebibytes.saturating_mul(1 << 20));
        let resources = &policy.resources;
        Self {
            cpu_millis: number(resources.cpu_millis),
            disk_bytes: bytes(policy.filesystem.max_workspace_mb),
            deadline_millis: number(resources.timeout_ms),
            inside: None,
            memory_bytes: bytes(resources.memory_mb),
            open_files: number(resources.open_files),
            output_bytes: number(resources.output_bytes),
            processes: number(resources.processes),
        }
    }
}

/// Why nothing could be planted at all. An instrument that could not be set up is no error: the observation says so.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum PlantError {
    /// The run's own mark cannot be kept.
    #[error("cannot write down what is planted")]
    #[diagnostic(code(runner::measure::mark))]
    Mark(#[from] MarkError),
    /// A place that the run's own mark was to stand in has none.
    #[error("not every place has the run's own mark")]
    #[diagnostic(code(runner::measure::unmarked))]
    Unmarked,
    /// No secret.
    #[error(transparent)]
    #[diagnostic(code(runner::measure::random))]
    Random(#[from] PrivateKeyError),
    /// No thread, no pipe.
    #[error("cannot serve the listeners")]
    #[diagnostic(code(runner::measure::serve))]
    Serve(#[source] io::Error),
}

/// A secret that was planted: whoever prints it was there.
#[derive(Clone, Debug)]
struct Planting {
    /// The checks that are meant to meet it, by their names.
    of: &'static str,
    /// What it looks like when it is printed: one of these.
    needles: Vec<String>,
    /// Where it is.
    place: String,
}

/// Something that an instrument of the controller's looks at.
#[derive(Debug)]
enum Instrument {
    /// A listener, by its place and the key of its parameter.
    Endpoint(usize, &'static str),
    /// A file to be written to.
    Canary(plant::Canary),
    /// A file that holds a secret, and what is in it.
    File(&'static str, PathBuf, String),
    /// A variable: nothing can become of it.
    Variable,
    /// A process.
    Process(canary::Process),
    /// Descriptors.
    Leaked(plant::Leaked),
}

/// Everything that is planted for one run. Dropped, it is removed.
#[derive(Debug)]
pub struct Planted {
    probe: Probe,
    secret: Nonce,
    bounds: Bounds,
    listeners: Listeners,
    instruments: Vec<Watched>,
    secrets: Vec<Planting>,
    allowed: Option<String>,
    parameters: Vec<(&'static str, String)>,
    environment: Vec<(OsString, OsString)>,
    terminal: Option<plant::Terminal>,
    skipped: Vec<String>,
    // Last: what it names is removed when nothing uses it any more.
    _mark: Mark,
}

/// An instrument, and what became of the controller's own call before the run.
#[derive(Debug)]
struct Watched {
    instrument: Instrument,
    before: Result<(), String>,
}

impl Planted {
    /// Plants what one run of a row needs, with `secret` as the run's own, and calls every instrument.
    ///
    /// # Errors
    /// Nothing can be planted at all.
    pub fn new(
        probe: &Probe,
        secret: &Nonce,
        places: &Places,
        bounds: &Bounds,
    ) -> Result<Self, PlantError> {
        let mut planted = seed::plant(probe, secret, places, bounds)?;
        for at in 0..planted.instruments.len() {
            let called = planted.call(at);
            if let Some(watched) = planted.instruments.get_mut(at) {
                watched.before = called;
            }
        }
        Ok(planted)
    }

    /// What the run gets on its standard input.
    #[must_use]
    pub fn parameters(&self) -> Vec<u8> {
        let mut text = format!("nonce={}\n", self.secret);
        for (key, value) in &self.parameters {
            text.push_str(&format!("{key}={value}\n"));
        }
        text.push_str("end\n");
        text.into_bytes()
    }

    /// A folder of the run's own in the one that the workload sees, in which the run may write; removed with the rest.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn writable(&self, workload: &Path) -> io::Result<PathBuf> {
        let mark = self.parameters.iter().find(|(key, _)| *key == "mark");
        let mark = mark.map_or("", |(_, name)| name.as_str());
        let folder = workload.join(mark).join("writable");
        plant::folder(&folder, 0o755)?;
        Ok(folder)
    }

    /// Variables for the environment of whoever launches: one that the policy keeps out, and one that it lets through.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        self.environment.clone()
    }

    /// The numbers of the descriptors that are open in this process, and in every program that it executes.
    #[must_use]
    pub fn descriptors(&self) -> Vec<i32> {
        let leaked = self
            .instruments
            .iter()
            .find_map(|one| match &one.instrument {
                Instrument::Leaked(leaked) => Some(leaked.numbers()),
                _ => None,
            });
        leaked.unwrap_or_default()
    }

    /// The terminal that a launcher has and its workload must not inject into.
    #[must_use]
    pub const fn terminal(&self) -> Option<&plant::Terminal> {
        self.terminal.as_ref()
    }

    /// What could not be planted, and why.
    #[must_use]
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// The controller's own call of one instrument.
    fn call(&mut self, at: usize) -> Result<(), String> {
        let Some(watched) = self.instruments.get_mut(at) else {
            return Err("there is none".to_owned());
        };
        let called = match &mut watched.instrument {
            Instrument::Endpoint(endpoint, _) => self.listeners.alive(*endpoint),
            Instrument::Canary(canary) => canary.alive(),
            Instrument::File(_, path, text) => match std::fs::read_to_string(path) {
                Ok(found) if found == *text => Ok(()),
                Ok(_) => Err(io::Error::other("it says something else")),
                Err(error) => Err(error),
            },
            Instrument::Variable => Ok(()),
            Instrument::Process(process) => process.alive(),
            Instrument::Leaked(leaked) => leaked.alive(),
        };
        called.map_err(|error| format!("{}: {error}", self.name(at)))
    }

    /// What an instrument is, for people.
    fn name(&self, at: usize) -> String {
        let Some(watched) = self.instruments.get(at) else {
            return String::new();
        };
        match &watched.instrument {
            Instrument::Endpoint(endpoint, key) => {
                let at = self.listeners.endpoints().get(*endpoint);
                let value = at.and_then(Endpoint::parameter).map(|(_, value)| value);
                value.map_or_else(|| (*key).to_owned(), |value| format!("{key} {value}"))
            }
            Instrument::Canary(canary) => canary.file.display().to_string(),
            Instrument::File(_, path, _) => path.display().to_string(),
            Instrument::Variable => ABSENT_VARIABLE.to_owned(),
            Instrument::Process(process) => format!("process {} {}", process.pid(), process.comm()),
            Instrument::Leaked(leaked) => format!("descriptors {:?}", leaked.numbers()),
        }
    }
}

#[cfg(test)]
mod tests;
