//! `runner bundle`: one file for somebody who has nothing else than `verify`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ledger::bytes::canon::U53;
use ledger::bytes::time::Stamp;
use ledger::facts::execution::RunId;
use ledger::file::bundle::{self, Bundled, Selection, Value, WriteBundleError};
use ledger::file::store::{OpenLedgerError, Store, SyncCheckpointError};

use super::ledger::{self as ledgers, LedgerError};
use super::{FAILED, Global, USAGE, report};

/// What `bundle` takes.
#[derive(Debug, Args)]
pub(super) struct BundleArgs {
    /// The file to write; what has the name is replaced once the bundle is whole
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    selection: Selected,
    /// Leave these values out where they are sealed: argv, launch, stdout, stderr
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    withhold: Vec<Name>,
}

/// Which records; with each the records that it refers to, and those that no reader can do without.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct Selected {
    /// One run, by its id
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// The newest N runs that ended; runs of probes do not count
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    last: Option<u64>,
    /// The newest matrix with its suite and every run of a probe that it names
    #[arg(long)]
    matrix: bool,
    /// Every record; the same as naming nothing
    #[arg(long)]
    all: bool,
}

impl Selected {
    fn selection(&self) -> Selection {
        match (self.run, self.last) {
            (Some(run), _) => Selection::Run(run),
            (_, Some(count)) => Selection::Last(count),
            _ if self.matrix => Selection::Matrix,
            _ => Selection::All,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Argv,
    Launch,
    Stdout,
    Stderr,
}

impl From<Name> for Value {
    fn from(name: Name) -> Self {
        match name {
            Name::Argv => Self::Argv,
            Name::Launch => Self::Launch,
            Name::Stdout => Self::Stdout,
            Name::Stderr => Self::Stderr,
        }
    }
}

pub(super) fn run(global: &Global, args: &BundleArgs) -> u8 {
    if names_no_file(&args.output) {
        report::error_line("a bundle is written to a file: give its name with -o FILE");
        return USAGE;
    }
    let dir = match prepared(global) {
        Ok(dir) => dir,
        Err(code) => return code,
    };
    let withhold: Vec<Value> = args.withhold.iter().copied().map(Value::from).collect();
    match bundle::write(&dir, args.selection.selection(), &withhold, &args.output) {
        Ok(bundled) => {
            tell(global, &args.output, &bundled);
            0
        }
        Err(error) => {
            report::diagnostic(error);
            FAILED
        }
    }
}

/// Ends runs whose runner died, and puts the checkpoint of all records on the disk, where the ledger's key is here. Where
/// it is not, what the stored checkpoint covers can be bundled all the same.
fn prepared(global: &Global) -> Result<PathBuf, u8> {
    let failed = |error: LedgerError| {
        report::diagnostic(error);
        FAILED
    };
    let dir = ledgers::folder(global).map_err(failed)?;
    let (mut store, stamp) = match ledgers::open(global, false, false) {
        Ok(opened) => opened,
        Err(LedgerError::Open(error)) if is_for_readers(&error) => {
            if !global.quiet {
                report::notice_line(&format!(
                    "{error}: the bundle ends with what the stored checkpoint covers"
                ));
            }
            return Ok(dir);
        }
        Err(error) => return Err(failed(error)),
    };
    // A closed ledger has no runs to end.
    let ended = if store.is_closed() {
        Ok(())
    } else {
        store.ready(&stamp)
    };
    let synced = match ended {
        Ok(()) => store.sync_checkpoint(&stamp),
        Err(error) => Err(error.into()),
    };
    ledgers::tell(global, &mut store);
    match synced {
        Ok(()) => Ok(dir),
        Err(error) => {
            report::diagnostic(error);
            Err(FAILED)
        }
    }
}

/// Whether nothing but signing is in the way.
fn is_for_readers(error: &OpenLedgerError) -> bool {
    matches!(
        error,
        OpenLedgerError::KeyMissing { .. }
            | OpenLedgerError::KeyGone(_)
            | OpenLedgerError::Copy { .. }
            | OpenLedgerError::OfAnotherUser { .. }
    )
}

fn tell(global: &Global, output: &Path, bundled: &Bundled) {
    warn(bundled);
    if global.is_json() {
        report::print_json(&serde_json::json!({
            "bundle": output.to_string_lossy(),
            "ledger": bundled.ledger,
            "records": bundled.records,
            "size": bundled.size,
            "withheld": bundled.size - bundled.records,
            "files": bundled.files,
            "bytes": bundled.bytes,
        }));
    } else {
        notice(global, output, bundled);
    }
}

/// What somebody who gives the bundle away should know.
fn warn(bundled: &Bundled) {
    if bundled.clear > 0 {
        report::warning_line(&format!(
            "{} values that --withhold names stand in their records in the clear, and are shown",
            bundled.clear
        ));
    }
    for hash in &bundled.missing {
        report::warning_line(&format!(
            "blob {hash} is not in the ledger, and so not in the bundle: `verify` will say so"
        ));
    }
    if bundled.behind > 0 {
        report::warning_line(&format!(
            "{} records behind the checkpoint are not in the bundle",
            bundled.behind
        ));
    }
}

fn notice(global: &Global, output: &Path, bundled: &Bundled) {
    if !global.quiet {
        report::notice_line(&format!(
            "{}: {} of {} records, {} files, {} bytes",
            output.display(),
            bundled.records,
            bundled.size,
            bundled.files,
            bundled.bytes
        ));
    }
}

/// Whether a path cannot be a bundle's.
pub(super) fn names_no_file(path: &Path) -> bool {
    matches!(&*path.as_os_str().to_string_lossy(), "" | "-")
}

/// Writes a bundle of one record, which this process has appended to the ledger, and says so on stderr.
pub(super) fn of_record(
    global: &Global,
    store: &mut Store,
    sequence: U53,
    output: &Path,
    stamp: &Stamp,
) -> Result<(), OfRecordError> {
    store.sync_checkpoint(stamp)?;
    let selection = Selection::Record(sequence.value());
    let bundled = bundle::write(store.root(), selection, &[], output)?;
    warn(&bundled);
    notice(global, output, &bundled);
    Ok(())
}

/// Why no bundle of a record that was just appended was written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum OfRecordError {
    /// The checkpoint is not on the disk.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Checkpoint(#[from] SyncCheckpointError),
    /// The bundle was not written.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Write(#[from] WriteBundleError),
}
