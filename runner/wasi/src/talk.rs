//! What `runner` says and is told. `runner` has the same shapes in `runtime::wasi::talk`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::sync::mpsc::Receiver;

use serde::{Deserialize, Serialize};

/// Where it is said what is to be run.
const ORDER: &str = "/proc/self/fd/3";
/// Where this program says what stands ready.
const REPORT: &str = "/proc/self/fd/4";
/// Where it waits to be let go.
const GO: &str = "/proc/self/fd/5";
/// Said when the module begins.
const BEGINS: &[u8] = b"s";

/// What is to be run, and under what. Paths, arguments and variables are bytes, as the kernel has them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Order {
    /// The module's path on the host.
    pub(crate) module: Vec<u8>,
    /// The module's arguments, its own name first.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// `NAME=value`, each.
    pub(crate) environment: Vec<Vec<u8>>,
    /// The folders that it sees.
    pub(crate) folders: Vec<Folder>,
    /// Most bytes of its memories and tables together.
    pub(crate) memory_bytes: Option<u64>,
    /// After how long it is stopped, in milliseconds.
    pub(crate) deadline_ms: Option<u64>,
}

/// A folder of the host that the module sees.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Folder {
    /// Where it is open.
    pub(crate) descriptor: i32,
    /// As the module sees it.
    pub(crate) target: Vec<u8>,
    /// The module may change what is in it.
    pub(crate) writable: bool,
}

/// What stands ready.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Report {
    /// A module that can begin.
    Ready(Box<Ready>),
    /// The module cannot be run, whatever it is run under.
    Unusable(Unusable),
    /// What was asked for cannot be given.
    Failed(String),
}

/// What will hold, as it was applied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ready {
    /// SHA-256 of the bytes that were compiled, in hexadecimal.
    pub(crate) sha256: String,
    /// The engine.
    pub(crate) engine: String,
    /// Functions that the module imports, all of WASI preview 1.
    pub(crate) imports: usize,
    /// The names of its variables.
    pub(crate) environment: Vec<String>,
    /// The folders that are open, each with whether it is writable.
    pub(crate) folders: Vec<(String, bool)>,
    /// The limit that each growth of a memory or table is held against.
    pub(crate) memory_bytes: Option<u64>,
    /// The deadline that the compiled code looks at.
    pub(crate) deadline_ms: Option<u64>,
}

/// Why a module cannot be run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Unusable {
    /// There is none by that path; else there is one, and it is none that can be run.
    pub(crate) is_missing: bool,
    /// The kernel's answer.
    pub(crate) errno: Option<i32>,
    /// What is wrong.
    pub(crate) what: String,
}

/// Why the talk failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TalkError {
    /// There are no such descriptors.
    #[error("cannot open {path}: {source}; this program is started by runner, not by hand")]
    Open {
        /// Which.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Not an order.
    #[error("cannot read what is to be run: {0}")]
    Order(serde_json::Error),
    /// The pipe is broken.
    #[error("cannot say what stands ready: {0}")]
    Say(io::Error),
    /// No thread for it.
    #[error("cannot watch for the end of the runner: {0}")]
    Watch(io::Error),
}

/// Reads what is to be run.
pub(crate) fn order() -> Result<Order, TalkError> {
    let file = File::open(ORDER).map_err(|source| TalkError::Open {
        path: ORDER,
        source,
    })?;
    serde_json::from_reader(io::BufReader::new(file)).map_err(TalkError::Order)
}

/// The pipe on which this program speaks, and the word that it waits for.
#[derive(Debug)]
pub(crate) struct Runner {
    report: File,
    go: Receiver<()>,
}

impl Runner {
    /// Opens both pipes; from here on this process ends when the one that started it has ended.
    pub(crate) fn open() -> Result<Self, TalkError> {
        let failed = |path| move |source| TalkError::Open { path, source };
        let report = File::options().write(true).open(REPORT);
        let report = report.map_err(failed(REPORT))?;
        let mut pipe = File::open(GO).map_err(failed(GO))?;
        let (said, go) = std::sync::mpsc::channel();
        let watch = move || {
            // The word is one byte. What comes after it is the end, or cannot be read, which is the same.
            while let Ok(1) = pipe.read(&mut [0]) {
                let _ = said.send(());
            }
            std::process::exit(crate::FAILED.into())
        };
        let watching = std::thread::Builder::new().spawn(watch);
        watching.map_err(TalkError::Watch)?;
        Ok(Self { report, go })
    }

    /// Says what stands ready: its length in four bytes, then JSON.
    pub(crate) fn say(&mut self, report: &Report) -> Result<(), TalkError> {
        let text =
            serde_json::to_vec(report).map_err(|error| TalkError::Say(io::Error::other(error)))?;
        let length =
            u32::try_from(text.len()).map_err(|error| TalkError::Say(io::Error::other(error)))?;
        self.report
            .write_all(&length.to_le_bytes())
            .and_then(|()| self.report.write_all(&text))
            .map_err(TalkError::Say)
    }

    /// Waits for the word; whether it came.
    pub(crate) fn await_go(&self) -> bool {
        self.go.recv().is_ok()
    }

    /// Says that the module begins.
    pub(crate) fn begins(mut self) -> Result<(), TalkError> {
        self.report.write_all(BEGINS).map_err(TalkError::Say)
    }
}
