//! `runner matrix`: measure what the runtimes of this host really contain.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{ArgAction, Args};
use ledger::bytes::hash::Hash;
use ledger::bytes::text::clean;
use ledger::facts::execution::PolicyRef;
use ledger::facts::matrix::table::{Table, Tone};
use ledger::facts::matrix::{Cell, CellVerdict};
use ledger::file::bundle::try_to_write;

use super::bundle::{names_no_file, of_record};
use super::choose::{choose_runtime, load_policy, native_is_allowed};
use super::command_line::CommandLineError;
use super::interrupt::Interrupts;
use super::ledger as ledgers;
use super::{Global, USAGE, report};
use crate::measure::arms::{ArmError, Bench};
use crate::measure::gate::{Requirement, objections};
use crate::measure::lanes::{OpenMore, Progress};
use crate::measure::listen::own_addresses;
use crate::measure::matrix::Measured;
use crate::measure::plant::mark::{sweep, sweep_own};
use crate::measure::plant::six_places;
use crate::measure::program::{PROGRAM, SUITE};
use crate::measure::record::{RecordMatrixError, keep_suite, record};
use crate::measure::suite::{Loaded, own, third_party};
use crate::plan::Runtime;
use crate::run::{Ledger, Stop};
use crate::runtime::scratch::take_left;

mod error;
mod program;
mod progress;

use error::MatrixError;
use program::keep_program;
use progress::ProgressLine;

/// Declared and effective disagree.
const DISAGREES: u8 = 12;
/// Runtimes that are measured where none is named, as far as they are installed.
const DEFAULT: [&str; 3] = ["embedded", "bwrap", "unshare"];

const STATUSES: &str = "Exit status: 0 measured; 12 with --strict for a false guarantee, a declared control of which no check came to a \
result, or a runtime of which none did (one that was named and is not installed, too), and for a missed --require; 2 wrong usage; 125 the \
runner failed, no runtime can be used here, a record cannot be kept, or the output cannot be written; 128+n ended by signal n: what was recorded until then stays, and there is no matrix. An escape from a control that nobody declared is an honest gap and fails nothing.";

/// What `matrix` takes.
#[derive(Debug, Args)]
#[command(after_help = STATUSES)]
pub(super) struct MatrixArgs {
    /// Measure this runtime, or that of a template's FILE; may be repeated, for another one each time [default: those of embedded, bwrap and unshare that are installed]
    #[arg(long, value_name = "RUNTIME", action = ArgAction::Append)]
    runtime: Vec<String>,
    /// A policy of the catalogue, or a file
    #[arg(
        short = 'P',
        long,
        value_name = "NAME|FILE",
        default_value = "containment-audit"
    )]
    policy: String,
    /// Run the probes of this folder instead of the runner's own; what they say of themselves is self-reported
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
    /// Fail for a false guarantee and for what is declared and not measured
    #[arg(long)]
    strict: bool,
    /// Fail unless this was found: [RUNTIME:]CHECK|CONTROL=VERDICT; may be repeated
    #[arg(long, value_name = "WHAT", action = ArgAction::Append)]
    require: Vec<String>,
    /// Run no probe bare: cells rest on the arm without the control alone
    #[arg(long)]
    no_baseline: bool,
    /// Allow the native runtime, which isolates nothing, and templates to be measured
    #[arg(long)]
    allow_native: bool,
    /// Write a bundle of this matrix to a file, for whoever has nothing but `verify`; refused before anything is measured
    /// where the file cannot be written
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(super) fn run(global: &Global, args: &MatrixArgs) -> u8 {
    if args.report.as_deref().is_some_and(names_no_file) {
        report::error_line("a report is written to a file: give its name with --report FILE");
        return USAGE;
    }
    let measured = measure(global, args);
    if let Ok(state) = ledgers::state_folder() {
        remove_the_rest(&state);
    }
    match measured {
        Ok(status) => status,
        Err(MatrixError::Policy(CommandLineError::Policy(error))) => {
            report::policy_error(error);
            USAGE
        }
        Err(error) => {
            let status = error.status();
            report::diagnostic(error);
            status
        }
    }
}

/// What stayed of what was planted, because something stood in the way while other runs went on.
fn remove_the_rest(state: &Path) {
    let left = sweep_own(state).unwrap_or_else(|error| vec![error]);
    for error in left {
        report::warning_line(&format!(
            "{error}: {}; the next `runner matrix` tries to remove it again",
            error.source
        ));
    }
}

fn measure(global: &Global, args: &MatrixArgs) -> Result<u8, MatrixError> {
    let requirements: Vec<Requirement> = args
        .require
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let policy = load_policy(&args.policy)?;
    let program = Hash::of(PROGRAM);
    let suite = match &args.suite {
        Some(folder) => third_party(folder, program)?,
        None => own(SUITE, program)?,
    };
    let Chosen {
        runtimes,
        missing,
        names,
    } = choose(args)?;
    let checks = suite.suite.checks();
    let checks: Vec<&str> = checks.iter().map(String::as_str).collect();
    for requirement in &requirements {
        requirement.is_measurable(&names, &checks)?;
    }
    if runtimes.is_empty() {
        return Err(MatrixError::Nothing);
    }
    if let Some(file) = &args.report {
        try_to_write(&ledgers::folder(global)?, file).map_err(MatrixError::ReportFile)?;
    }
    let state = ledgers::state_folder()?;
    let (folder, _kept) = keep_program(&state, &program)?;
    let folder = folder.as_path();
    let place = ledgers::Place::of(global)?;
    let stamp = ledgers::stamp()?;
    place.await_remains();
    let open = || place.open(global, true, false, &stamp);
    let mut ledger = Ledger::to_open(&open);
    let now = || crate::host::now(&stamp.clock.boot_id).map_err(io::Error::other);
    let store = ledger.store().map_err(ledgers::LedgerError::from)?;
    keep_suite(store, &suite)?;
    let host = crate::host::gather(store.newest_host().ok().flatten().as_ref())?;
    let native = crate::runtime::native::Native;
    let environment: Vec<_> = std::env::vars_os().collect();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let six = six_places(home.as_deref(), session.as_deref(), &cwd);
    let addresses = own_addresses().map_err(MatrixError::Addresses)?;
    let (swept, left) = sweep(&state).map_err(MatrixError::Sweep)?;
    for what in swept {
        report::notice_line(&format!(
            "removed what a killed measurement had planted: {what}"
        ));
    }
    for error in left {
        report::warning_line(&format!("{error}"));
    }
    let stop = Arc::new(Stop::new().map_err(MatrixError::Signals)?);
    let bench = Bench {
        policy: &policy,
        suite: &suite,
        program: folder,
        bare: (!args.no_baseline).then_some(&native as &dyn Runtime),
        state: &state,
        six: &six,
        addresses: &addresses,
        evidence: &|| ledgers::evidence(global, true),
        // One matrix, one host: what is known of the runner's own file may change from one moment to the next.
        host: &|_| Ok(host.clone()),
        now: &now,
        environment: &environment,
        home: home.clone(),
        stop: &stop,
    };
    // Whoever began a ledger with a key in memory is the only one who can append to it.
    let more = (!place.has_ephemeral_key()).then_some(&open as OpenMore<'_>);
    let interrupts = Interrupts::watch(stop.clone()).map_err(MatrixError::Signals)?;
    let mut measured = Measured::default();
    let mut used = Vec::new();
    let mut line = ProgressLine::new(global.quiet);
    for runtime in &runtimes {
        line.begin(runtime.id());
        let show = &mut |progress: &Progress<'_>| line.show(progress);
        let one = bench.measure(runtime.as_ref(), &host, &mut ledger, more, show);
        line.clear();
        for what in take_left() {
            report::warning_line(&what);
        }
        let Measured {
            cells,
            rows,
            runtime: started,
            said,
        } = match (one, interrupts.signal()) {
            (Err(ArmError::Stopped { done, all }), Some(signal)) => {
                return Err(MatrixError::Interrupted {
                    signal,
                    runtime: runtime.id().to_owned(),
                    done,
                    all,
                });
            }
            (one, _) => one?,
        };
        measured.cells.extend(cells);
        measured.rows.extend(rows);
        used.extend(started);
        if let Some(said) = said {
            report::notice_line(&format!(
                "{}: a probe printed nothing; the last on standard error was: {}",
                runtime.id(),
                clean(&said)
            ));
        }
    }
    drop(interrupts);
    let cells = measured.cells.clone();
    let store = ledger.store().map_err(ledgers::LedgerError::from)?;
    let stamp = ledgers::stamp()?;
    let appended = record(store, &suite, &policy, &host, cells, &stamp)?;
    ledgers::tell(global, store);
    let policy = PolicyRef {
        id: policy.id.clone(),
        sha256: Hash::of(&policy.effective_blob().map_err(RecordMatrixError::from)?),
    };
    let table = Table {
        host,
        policy,
        rows: measured.rows,
        runtimes: used,
        sequence: Some(appended.sequence.value()),
        suite: suite.sha256,
    };
    say(global, &table, &suite);
    if !global.quiet {
        report::notice_line(&format!(
            "record {}: {}, in {}",
            appended.sequence,
            summary(&measured.cells),
            store.root().display()
        ));
    }
    if let Some(file) = &args.report {
        let sequence = appended.sequence;
        of_record(global, store, sequence, file, &stamp)
            .map_err(|source| MatrixError::Report { sequence, source })?;
    }
    let cells = &measured.cells;
    Ok(judge(args, &requirements, &runtimes, &missing, cells))
}

/// `31 contained, 4 escaped`.
fn summary(cells: &[Cell]) -> String {
    let counts = CellVerdict::ALL.iter().filter_map(|verdict| {
        let of = cells.iter().filter(|cell| cell.verdict == *verdict);
        let count = of.count();
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    let counts: Vec<String> = counts.collect();
    counts.join(", ")
}

fn judge(
    args: &MatrixArgs,
    requirements: &[Requirement],
    runtimes: &[Box<dyn Runtime>],
    missing: &[String],
    cells: &[Cell],
) -> u8 {
    let available: Vec<String> = runtimes
        .iter()
        .map(|runtime| runtime.id().to_owned())
        .collect();
    let mut wrong = Vec::new();
    if args.strict {
        wrong.extend(objections(cells, &available));
        wrong.extend_from_slice(missing);
    }
    wrong.extend(
        requirements
            .iter()
            .filter_map(|requirement| requirement.missed(cells)),
    );
    for what in &wrong {
        report::error_line(what);
    }
    if wrong.is_empty() { 0 } else { DISAGREES }
}

/// The runtimes of a command line.
struct Chosen {
    /// Those that can be measured here.
    runtimes: Vec<Box<dyn Runtime>>,
    /// What is to be said of those that were named and cannot.
    missing: Vec<String>,
    /// All of them, by what cells call them.
    names: Vec<String>,
}

fn choose(args: &MatrixArgs) -> Result<Chosen, MatrixError> {
    let asked: Vec<&str> = if args.runtime.is_empty() {
        DEFAULT.to_vec()
    } else {
        args.runtime.iter().map(String::as_str).collect()
    };
    let allowed = args.allow_native || native_is_allowed();
    let (mut runtimes, mut missing, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for name in asked {
        let runtime = choose_runtime(name, allowed)?;
        if names.iter().any(|name| name == runtime.id()) {
            return Err(MatrixError::Twice(runtime.id().to_owned()));
        }
        names.push(runtime.id().to_owned());
        let Some(why) = runtime.is_missing() else {
            runtimes.push(runtime);
            continue;
        };
        report::notice_line(&format!("not measured: {name}: {why}"));
        if !args.runtime.is_empty() {
            missing.push(format!("{name} was named, and nothing of it was measured"));
        }
    }
    Ok(Chosen {
        runtimes,
        missing,
        names,
    })
}

fn say(global: &Global, table: &Table, suite: &Loaded) {
    if global.is_json() {
        match table.to_json() {
            Ok(text) => _ = report::print(&text),
            Err(error) => report::output_failed(&format!("cannot write JSON: {error}")),
        }
        return;
    }
    let color = |tone: Tone| match tone {
        Tone::Good => "32",
        Tone::Bad => "1;31",
        Tone::Unsure => "33",
        Tone::Plain => "2",
    };
    let mut text = table.to_text(&|tone, text| report::paint_stdout(color(tone), text));
    if suite.suite.probes.iter().any(|probe| !probe.is_own()) {
        text.push_str("\nWhat a third party's probe says of itself is self-reported.\n");
    }
    report::print(&text);
}
