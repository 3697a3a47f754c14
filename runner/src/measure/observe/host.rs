//! What the runner measures itself: an effect that passed its bound.

use ledger::facts::execution::{Outcome, RunResult};
use ledger::facts::list::Sealable;
use ledger::facts::measurement::Saw;

use super::{Evidence, HostSide, Sight};
use crate::measure::listen::{Heard, contains};
use crate::measure::{DEADLINE_SLACK_MILLIS, OUTLIVED_MILLIS, Planted};

/// What a probe of the runner's own prints, behind the secret of its run, when it has outlived the deadline by
/// [`OUTLIVED_MILLIS`].
const OUTLIVED: &str = "timeout/outlived";

impl Planted {
    /// Who the workload is to this host: not root, and not the launcher where another user was promised.
    pub(super) fn user(&self, evidence: &Evidence<'_>, facts: &HostSide) -> Sight {
        let words = format!("{} user/host", self.secret);
        let connected = evidence.heard.iter().find_map(|heard| {
            heard
                .user
                .filter(|_| contains(&heard.text, words.as_bytes()))
        });
        let Some(uid) = connected.or(facts.observed_uid) else {
            return unmeasured("the user of the workload was not seen");
        };
        let promised = facts
            .promised_uid
            .is_some_and(|user| user != facts.launcher_uid);
        let is_launcher = promised && uid == facts.launcher_uid;
        measured(uid == 0 || is_launcher, format!("uid {uid} on the host"))
    }

    /// Whether it was dead at its deadline. What counts is who ended it: the deadline, or the program itself when it had lived
    /// for long enough after it, and said so. How late the one or the other was on a busy machine does not.
    /// Where the runner itself came to it so late that the program may have gone on for that reason alone, nothing is shown.
    pub(super) fn deadline(
        &self,
        evidence: &Evidence<'_>,
        result: &RunResult,
        facts: &HostSide,
    ) -> Sight {
        let (Some(deadline), Some(took)) = (self.bounds.deadline_millis, result.duration_us) else {
            return unmeasured("no deadline, or no duration");
        };
        let took = took.value() / 1_000;
        let what = format!("{took} ms, of {deadline} ms");
        let words = format!("{} {OUTLIVED}", self.secret);
        let went_on = contains(evidence.stdout, words.as_bytes());
        let slack = if self.probe.is_own() {
            OUTLIVED_MILLIS
        } else {
            DEADLINE_SLACK_MILLIS
        };
        let is_late = took >= deadline.saturating_add(slack);
        match result.outcome {
            Outcome::NotExecuted | Outcome::Interrupted => unmeasured("it was not let run"),
            _ if went_on
                && facts
                    .late_millis
                    .is_some_and(|late| late >= OUTLIVED_MILLIS / 2) =>
            {
                unmeasured(&format!(
                    "too busy to say: {what}, and the runner was late itself"
                ))
            }
            // Also of a clock that is wrong: nobody lives through a deadline in less time.
            _ if went_on && took >= deadline => measured(true, format!("it went on: {what}")),
            Outcome::Timeout => measured(false, what),
            // One that ended before it shows nothing about it.
            _ if took < deadline => unmeasured(&format!("it ended by itself: {what}")),
            _ if !is_late => measured(false, what),
            _ if self.probe.is_own() => unmeasured(&format!(
                "it ended late, and nothing shows by itself or not: {what}"
            )),
            _ => measured(true, what),
        }
    }

    /// Whether what it printed was cut.
    pub(super) fn cap(&self, result: &RunResult, facts: &HostSide) -> Sight {
        let Some(cap) = self.bounds.output_bytes else {
            return unmeasured("no cap");
        };
        let streams = [
            (&result.stdout, facts.stdout_cut, "stdout"),
            (&result.stderr, facts.stderr_cut, "stderr"),
        ];
        let mut over = streams
            .into_iter()
            .filter_map(|(output, cut, name)| match output {
                Some(Sealable::Clear(output)) if output.bytes.value() > cap => {
                    let what = format!("{} bytes of {name}, of {cap}", output.bytes.value());
                    Some((!cut || output.kept.value() > cap, what))
                }
                _ => None,
            });
        let first = over.next();
        let passed = over.find(|(passed, _)| *passed);
        match passed.or(first) {
            Some((passed, what)) => measured(passed, what),
            None => unmeasured(&format!("it printed no more than {cap} bytes")),
        }
    }
}

/// Whether something of it lived on.
pub(super) fn survival(evidence: &Evidence<'_>, facts: &HostSide) -> Sight {
    if evidence.survived {
        return measured(true, "it was heard after the end".to_owned());
    }
    let heard = |heard: &Heard| contains(&heard.text, b" process/survival");
    match facts.survivors {
        Some(count) => measured(count > 0, format!("{count} processes after the end")),
        // It reached a listener while the run went on, so it would have afterwards.
        None if evidence.heard.iter().any(heard) => {
            measured(false, "heard during the run, not after it".to_owned())
        }
        None => unmeasured("nothing of it was heard, and nobody counted"),
    }
}

fn measured(passed: bool, what: String) -> Sight {
    Sight {
        saw: if passed { Saw::Changed } else { Saw::Nothing },
        what,
        before: true,
        after: true,
    }
}

fn unmeasured(what: &str) -> Sight {
    Sight {
        saw: Saw::Unavailable,
        what: what.to_owned(),
        before: true,
        after: false,
    }
}
