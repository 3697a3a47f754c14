//! `runner exec`: run a workload in a sandbox and record it.

use std::io;
use std::time::Duration;

use super::arguments::ExecArgs;
use super::command_line::{CommandLineError, say};
use super::events::Events;
use super::status::status;
use super::{FAILED, Global, ledger as ledgers, report};
use crate::run::{Event, Ledger, Observer, Request, Stdin, execute};
use crate::runtime::scratch::take_left;

mod told;

use told::{denied_calls, tell};

pub(super) fn run(global: &Global, args: ExecArgs) -> u8 {
    match prepare_and_run(global, &args) {
        Ok(code) => code,
        Err(Failure::Exec(error)) => {
            say(error);
            FAILED
        }
        Err(Failure::Ledger(error)) => fail(error),
        Err(Failure::Run(error)) => fail(error),
        Err(Failure::Io(error)) => {
            report::error_line(&error.to_string());
            FAILED
        }
    }
}

fn fail(error: impl miette::Diagnostic + Send + Sync + 'static) -> u8 {
    report::diagnostic(error);
    FAILED
}

enum Failure {
    Exec(CommandLineError),
    Ledger(ledgers::LedgerError),
    Run(crate::run::RunError),
    Io(io::Error),
}

/// How long a line may wait for its reader until the run is recorded: signals are the workload's meanwhile, and it is the
/// deadline's time.
const BEFORE_END: Duration = Duration::from_millis(500);

fn prepare_and_run(global: &Global, args: &ExecArgs) -> Result<u8, Failure> {
    report::wait_within(BEFORE_END);
    let runtime = args.runtime().map_err(Failure::Exec)?;
    runtime.get_ready();
    let policy = args.policy().map_err(Failure::Exec)?;
    // What cannot be carried out is said before a ledger is begun.
    let job = args.job(Vec::new()).map_err(Failure::Exec)?;
    let mut events = args
        .events
        .as_deref()
        .map(Events::open)
        .transpose()
        .map_err(|error| Failure::Exec(error.into()))?;
    let place = ledgers::Place::of(global).map_err(Failure::Ledger)?;
    let stamp = ledgers::stamp().map_err(Failure::Ledger)?;
    // The launch already sweeps places that a killed run's tree may have mounted.
    place.await_remains();
    let open = || place.open(global, true, args.accept_rollback, &stamp);
    let mut ledger = Ledger::to_open(&open);
    if !place.is_begun() {
        // What a plan keeps out of reach must be there when the plan is made.
        ledger
            .store()
            .map_err(|error| Failure::Ledger(error.into()))?;
    }
    let stdin = Stdin::choose(args.interactive || args.terminal).map_err(Failure::Io)?;
    let now = || crate::host::now(&stamp.clock.boot_id).map_err(io::Error::other);
    let request = Request {
        policy,
        evidence: &|| ledgers::evidence(global, true),
        job,
        runtime: runtime.as_ref(),
        host: &crate::host::gather,
        now: &now,
        clear: args.clear,
        stdin,
        measure: None,
    };
    let mut watcher = Watcher {
        quiet: global.quiet,
        events: events.as_mut(),
    };
    let finished = execute(request, &mut ledger, &mut watcher);
    for what in take_left() {
        report::warning_line(&what);
    }
    let finished = finished.map_err(Failure::Run)?;
    let store = ledger
        .store()
        .map_err(|error| Failure::Ledger(error.into()))?;
    ledgers::tell(global, store);
    if let Some(events) = &mut events {
        events.end(&finished);
    }
    tell(global, args, &finished, store.root());
    crate::sys::fault::point("before exit");
    Ok(status(&finished))
}

/// Tells people and programs what happens.
struct Watcher<'a> {
    quiet: bool,
    events: Option<&'a mut Events>,
}

impl Observer for Watcher<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(events) = &mut self.events {
            events.write(event);
        }
        match event {
            Event::Remark(text) if !self.quiet => report::notice_line(text),
            Event::Cut(stream) => report::warning_line(&format!(
                "{stream} is past its cap; the rest is counted and hashed, not shown"
            )),
            Event::Denied(list) if !self.quiet => report::notice_line(&denied_calls(list)),
            Event::Recorded { until } => report::wait_until(*until),
            Event::Remark(_) | Event::Denied(_) | Event::Started { .. } | Event::Ended { .. } => {}
        }
    }
}
