//! The exit status of exec (DESIGN.md §6).

use ledger::facts::execution::{NotExecuted, Outcome};

use super::FAILED;
use crate::run::Finished;

/// Deadline.
const TIMEOUT: u8 = 124;
/// Refused: a requested control is not available.
pub(super) const REFUSED: u8 = 126;
/// Not found, or not executable.
const NOT_FOUND: u8 = 127;

/// The workload's own status, or the runner's word for what happened instead.
pub(super) fn status(finished: &Finished) -> u8 {
    let result = &finished.body.result;
    match result.outcome {
        Outcome::Exited => result.exit_code.unwrap_or(FAILED),
        Outcome::Signaled => result.signal.map_or(FAILED, |signal| 128 + signal),
        Outcome::Timeout => TIMEOUT,
        Outcome::Interrupted => {
            let signal = finished
                .ended_by
                .and_then(|signal| u8::try_from(signal).ok());
            signal.map_or(FAILED, |signal| 128 + signal)
        }
        Outcome::NotExecuted => match result.reason {
            Some(NotExecuted::Refused) => REFUSED,
            Some(NotExecuted::NotFound | NotExecuted::NotExecutable) => NOT_FOUND,
            Some(NotExecuted::LaunchFailed) | None => FAILED,
        },
    }
}
