//! Finding and opening the ledger and its key.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ledger::bytes::time::Stamp;
use ledger::file::store::{KeyChoice, OpenLedgerError, OpenOptions, Store, segment_name};
use ledger::record::Tool;

use super::{Global, report};

/// Why no ledger could be opened.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum LedgerError {
    /// There is no place for it.
    #[error("no place for {what}: neither {variable} nor HOME is set to an absolute path")]
    #[diagnostic(
        code(runner::ledger::no_home),
        help("set HOME, or give --ledger DIR and --key FILE")
    )]
    NoHome {
        /// What needs a place.
        what: &'static str,
        /// The variable that names it.
        variable: &'static str,
    },
    /// Agents come later.
    #[error("--key {0} needs keys in an agent, which this version does not have")]
    #[diagnostic(
        code(runner::ledger::agent),
        help("use the ledger's own key, --key FILE or --key ephemeral")
    )]
    Agent(String),
    /// Who gets the ledger would get the key with it.
    #[error("the key would be inside the ledger folder {folder}: {file}", folder = folder.display(), file = file.display())]
    #[diagnostic(
        code(runner::ledger::key_inside),
        help("keep the key elsewhere: whoever is given the ledger must not get what signs it")
    )]
    KeyInside {
        /// The key file, or the folder of keys.
        file: PathBuf,
        /// The ledger's folder.
        folder: PathBuf,
    },
    /// The clocks cannot be read.
    #[error("cannot read the clocks")]
    #[diagnostic(code(runner::ledger::clock))]
    Clock(#[from] crate::host::ReadClockError),
    /// It cannot be opened.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Open(#[from] OpenLedgerError),
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// A folder of the XDG base directory specification; relative values are ignored, as it says.
fn base(name: &'static str, below_home: &str, what: &'static str) -> Result<PathBuf, LedgerError> {
    if let Some(folder) = variable(name)
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute())
    {
        return Ok(folder.join("containment-ledger"));
    }
    let home = variable("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute());
    let home = home.ok_or(LedgerError::NoHome {
        what,
        variable: name,
    })?;
    Ok(home.join(below_home).join("containment-ledger"))
}

/// The ledger folder that a command line means.
pub(super) fn folder(global: &Global) -> Result<PathBuf, LedgerError> {
    let named = global
        .ledger
        .clone()
        .or_else(|| variable("RUNNER_LEDGER").map(PathBuf::from));
    match named {
        Some(folder) => Ok(std::path::absolute(&folder).unwrap_or(folder)),
        None => Ok(base("XDG_STATE_HOME", ".local/state", "the ledger")?.join("default")),
    }
}

/// The folder of state that is no evidence.
pub(super) fn state_folder() -> Result<PathBuf, LedgerError> {
    base("XDG_STATE_HOME", ".local/state", "probes")
}

/// The folder of private keys.
pub(super) fn key_folder() -> Result<PathBuf, LedgerError> {
    Ok(base("XDG_DATA_HOME", ".local/share", "keys")?.join("keys"))
}

/// The key that a command line means.
fn key_choice(global: &Global) -> Result<KeyChoice, LedgerError> {
    match global.key.as_deref() {
        None => Ok(KeyChoice::Own),
        Some("ephemeral") => Ok(KeyChoice::Ephemeral),
        Some(agent) if agent.starts_with("ssh-agent:") => Err(LedgerError::Agent(agent.to_owned())),
        Some(file) => Ok(KeyChoice::File(
            std::path::absolute(file).unwrap_or_else(|_| file.into()),
        )),
    }
}

/// Refuses a place for keys below `ledger`, or below any other ledger that was begun, whatever links lead there.
pub(super) fn refuse_inside(keys: &Path, ledger: Option<&Path>) -> Result<(), LedgerError> {
    let keys = resolved(keys);
    let ledger = ledger.map(resolved);
    let is_ledger = |folder: &&Path| {
        ledger.as_deref() == Some(*folder) || folder.join("records").join(segment_name(0)).exists()
    };
    match keys.ancestors().skip(1).find(is_ledger) {
        Some(folder) => Err(LedgerError::KeyInside {
            folder: folder.to_owned(),
            file: keys,
        }),
        None => Ok(()),
    }
}

/// The path without links, as far as there is something at it.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = path
        .ancestors()
        .find_map(|above| Some((above, above.canonicalize().ok()?)));
    match known {
        Some((above, known)) => match path.strip_prefix(above) {
            Ok(rest) if !rest.as_os_str().is_empty() => known.join(rest),
            _ => known,
        },
        None => path,
    }
}

/// Where a command line's ledger and key are.
pub(super) struct Place {
    dir: PathBuf,
    key: KeyChoice,
    key_folder: PathBuf,
}

impl Place {
    /// Finds it; nothing is opened yet.
    pub(super) fn of(global: &Global) -> Result<Self, LedgerError> {
        let place = Self {
            dir: folder(global)?,
            key: key_choice(global)?,
            key_folder: key_folder()?,
        };
        match &place.key {
            // One that was begun has its key already.
            KeyChoice::Own if place.is_begun() => {}
            KeyChoice::Own => refuse_inside(&place.key_folder, Some(&place.dir))?,
            KeyChoice::File(file) => refuse_inside(file, Some(&place.dir))?,
            KeyChoice::Ephemeral => {}
        }
        Ok(place)
    }

    /// Whether the key is in this process's memory alone.
    pub(super) const fn has_ephemeral_key(&self) -> bool {
        matches!(self.key, KeyChoice::Ephemeral)
    }

    /// Whether a ledger was begun here. What may be missing is for [`Self::open`] to say.
    pub(super) fn is_begun(&self) -> bool {
        self.dir.join("records").join(segment_name(0)).exists()
    }

    /// Before a run whose runner was killed is closed, and its places swept: what it left is over.
    pub(super) fn await_remains(&self) {
        use io::ErrorKind::{NotADirectory, PermissionDenied};
        match crate::run::await_end(&self.dir.join("runs")) {
            Ok(alive) => {
                for pid in alive {
                    report::warning_line(&format!(
                        "process {pid} is pid 1 of a run whose runner is gone, and does not end; `kill -KILL {pid}` ends its tree"
                    ));
                }
            }
            // The ledger cannot be opened either, and that says what to do.
            Err(error) if matches!(error.kind(), PermissionDenied | NotADirectory) => {}
            Err(error) => report::warning_line(&format!(
                "cannot tell whether processes of killed runs are alive: {error}"
            )),
        }
    }

    /// Opens the ledger for writing and tells what there is to tell.
    pub(super) fn open(
        &self,
        global: &Global,
        create: bool,
        accept_rollback: bool,
        stamp: &Stamp,
    ) -> Result<Store, OpenLedgerError> {
        let host_name = nix::unistd::gethostname().unwrap_or_default();
        let options = OpenOptions {
            dir: &self.dir,
            key: self.key.clone(),
            key_folder: &self.key_folder,
            accept_rollback,
            tool: Tool {
                name: "runner".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            host_name: &host_name.to_string_lossy(),
            create,
            say_waiting: (!global.quiet).then_some(say_waiting),
        };
        let mut store = Store::open(&options, stamp)?;
        tell(global, &mut store);
        Ok(store)
    }
}

fn say_waiting(folder: &Path) {
    let folder = folder.display();
    report::notice_line(&format!(
        "waiting for the ledger {folder}: another run is writing to it"
    ));
}

/// Both clocks, now.
pub(super) fn stamp() -> Result<Stamp, LedgerError> {
    Ok(crate::host::now(&crate::host::boot_id()?)?)
}

/// Opens the ledger for writing and tells what there is to tell.
pub(super) fn open(
    global: &Global,
    create: bool,
    accept_rollback: bool,
) -> Result<(Store, Stamp), LedgerError> {
    let (place, stamp) = (Place::of(global)?, stamp()?);
    place.await_remains();
    let store = place.open(global, create, accept_rollback, &stamp)?;
    Ok((store, stamp))
}

/// Tells what happened to the ledger.
pub(super) fn tell(global: &Global, store: &mut Store) {
    for notice in store.notices() {
        if !global.quiet {
            report::notice_line(&notice.to_string());
        }
    }
}

/// Every host path that holds evidence or keys, whether it exists yet or not; for a run that is to `happen`, what it
/// needs is made.
pub(super) fn evidence(global: &Global, happen: bool) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    paths.extend(folder(global).ok());
    paths.extend(key_folder().ok());
    // Who could write there could have the next run remove files.
    paths.extend(if happen {
        crate::mechanism::placeholders::prepare().ok()
    } else {
        crate::mechanism::placeholders::folder()
    });
    if let Some(file) = global.key.as_deref().filter(|key| Path::new(key).exists()) {
        paths.extend(std::path::absolute(file).ok());
    }
    paths.extend(variable("SSH_AUTH_SOCK").map(PathBuf::from));
    paths.sort();
    paths.dedup();
    paths
}
