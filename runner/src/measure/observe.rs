//! **Observe**: after the run, from outside: what of it arrived, what changed, and whether that would have been seen.

mod host;

use std::time::Duration;

use ledger::bytes::text::excerpt;
use ledger::facts::control::Control;
use ledger::facts::execution::{Outcome, RunResult};
use ledger::facts::measurement::{Observation, Saw};
use ledger::facts::probe::{ProbeLine, Twin};
use ledger::facts::suite::{Check, Oracle, TwinKind};

use super::listen::{Endpoint, Heard, contains};
use super::{Instrument, Planted};

/// Longest description in an observation, in characters.
const MOST_CHARS: usize = 400;
/// How long a process that outlived its run is listened for: one that was heard during the run, and one that was not.
const SURVIVAL: [Duration; 2] = [Duration::from_millis(1_000), Duration::from_millis(350)];
/// Signs of life of one survivor at one listener: the first may have been under way when the run ended.
const BEATS: usize = 2;

/// What the runner itself measured of a run; what was not measured is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSide {
    /// The effective user of the workload, as this host numbers users.
    pub observed_uid: Option<u32>,
    /// The effective user of the runner.
    pub launcher_uid: u32,
    /// The user that the launch promised, as this host numbers users: of a promise to be another one than the launcher.
    pub promised_uid: Option<u32>,
    /// Processes of the run that were alive when it had ended and what was left of it had been ended. Those that were ended
    /// then (`cleanup`) do not count.
    pub survivors: Option<u64>,
    /// Whether standard output was cut at the cap.
    pub stdout_cut: bool,
    /// Whether standard error was.
    pub stderr_cut: bool,
    /// How many milliseconds after the deadline the runner saw that the run was over; absent where it kept none.
    pub late_millis: Option<u64>,
}

/// What an oracle says.
struct Sight {
    saw: Saw,
    what: String,
    before: bool,
    after: bool,
}

/// What is there once the run is over, the instruments called and the listeners closed.
struct Evidence<'a> {
    after: Vec<Result<(), String>>,
    names: Vec<String>,
    endpoints: Vec<Endpoint>,
    heard: Vec<Heard>,
    signals: Vec<String>,
    changes: Vec<(usize, Result<Option<String>, String>)>,
    survived: bool,
    stdout: &'a [u8],
    lines: Vec<ProbeLine>,
}

impl Planted {
    /// What was seen of each check that has an oracle outside, and of every other that was seen all the same. Everything that
    /// was planted is removed.
    #[must_use]
    pub fn observe(
        mut self,
        stdout: &[u8],
        result: &RunResult,
        facts: &HostSide,
    ) -> Vec<Observation> {
        let survived = self.probe.control == Control::Process && self.lives_on(result);
        let all = 0..self.instruments.len();
        let names = all.clone().map(|at| self.name(at)).collect();
        let after = all.map(|at| self.call(at)).collect();
        let (mut signals, mut changes) = (Vec::new(), Vec::new());
        for (at, watched) in self.instruments.iter_mut().enumerate() {
            match &mut watched.instrument {
                Instrument::Process(process) => signals = process.signals(),
                Instrument::Canary(canary) => {
                    let changed = canary.changed().map_err(|error| error.to_string());
                    changes.push((at, changed));
                }
                _ => {}
            }
        }
        let endpoints = self.listeners.endpoints().to_vec();
        let heard = self.listeners.stop();
        let lines = stdout.split(|byte| *byte == b'\n');
        let lines = lines.filter_map(|line| std::str::from_utf8(line).ok()?.parse().ok());
        let evidence = Evidence {
            after,
            names,
            endpoints,
            heard,
            signals,
            changes,
            survived,
            stdout,
            lines: lines.collect(),
        };
        let checks = self.probe.checks.clone();
        let seen = checks.iter().filter_map(|check| {
            let sight = self.sight(check, &evidence, result, facts);
            (check.oracle != Oracle::Line || is_escape(sight.saw)).then(|| Observation {
                alive_after: sight.after,
                alive_before: sight.before,
                check: self.probe.check_id(check),
                expected: Some(excerpt(&sight.what, MOST_CHARS)).filter(|text| !text.is_empty()),
                saw: sight.saw,
            })
        });
        seen.collect()
    }

    /// Whether a process of the run goes on saying that it lives.
    fn lives_on(&self, result: &RunResult) -> bool {
        // Of one that the operator ended nothing is asked.
        if matches!(result.outcome, Outcome::NotExecuted | Outcome::Interrupted) {
            return false;
        }
        let words = format!("{} process/survival", self.secret);
        let before = self.listeners.count(words.as_bytes());
        let [heard, unheard] = SURVIVAL;
        let patience = if before.iter().any(|count| *count > 0) {
            heard
        } else {
            unheard
        };
        self.listeners
            .await_more(words.as_bytes(), &before, BEATS, patience)
    }

    fn sight(
        &self,
        check: &Check,
        evidence: &Evidence<'_>,
        result: &RunResult,
        facts: &HostSide,
    ) -> Sight {
        let mut sight = match (check.oracle, self.probe.control) {
            (Oracle::Host, Control::Process) => host::survival(evidence, facts),
            (Oracle::Host, Control::User) => self.user(evidence, facts),
            (Oracle::Host, Control::Timeout) => self.deadline(evidence, result, facts),
            (Oracle::Host, Control::Output) => self.cap(result, facts),
            _ => self.instruments(check, evidence),
        };
        if let Some((saw, what)) = self.escape(check, evidence) {
            (sight.saw, sight.what) = (saw, what);
        }
        sight
    }

    /// Whether what the check needs worked, before and after.
    fn instruments(&self, check: &Check, evidence: &Evidence<'_>) -> Sight {
        let concerned = self.instruments.iter().enumerate();
        let concerned: Vec<usize> = concerned
            .filter_map(|(at, watched)| serves(&watched.instrument, check).then_some(at))
            .collect();
        let line = check.oracle == Oracle::Line;
        if concerned.is_empty() && !line {
            let mut what = "nothing to look at it with".to_owned();
            if !self.skipped.is_empty() {
                what = format!("{what}: {}", self.skipped.join("; "));
            }
            return Sight {
                saw: Saw::Unavailable,
                what,
                before: false,
                after: false,
            };
        }
        let called = |results: &dyn Fn(usize) -> Option<Result<(), String>>| {
            let failed: Vec<String> = concerned
                .iter()
                .filter_map(|at| results(*at)?.err())
                .collect();
            failed
        };
        let before = called(&|at| Some(self.instruments.get(at)?.before.clone()));
        let after = called(&|at| evidence.after.get(at).cloned());
        let mut what = concerned
            .iter()
            .filter_map(|at| evidence.names.get(*at).cloned())
            .collect::<Vec<_>>()
            .join(", ");
        for (when, failed) in [("before", &before), ("after", &after)] {
            if !failed.is_empty() {
                what = format!("did not work {when} the run: {}", failed.join(", "));
            }
        }
        let mut saw = Saw::Nothing;
        if self.is_twin_unechoed(check, evidence) {
            saw = Saw::Unavailable;
            what = "a twin is said to be ok, and what is in the allowed file was not printed"
                .to_owned();
        }
        let failed = evidence
            .changes
            .iter()
            .find_map(|(_, change)| change.clone().err());
        if let (Oracle::Canary, Some(error)) = (check.oracle, failed) {
            (saw, what) = (
                Saw::Unavailable,
                format!("cannot look at the canary: {error}"),
            );
        }
        Sight {
            saw,
            what,
            before: before.is_empty(),
            after: after.is_empty(),
        }
    }

    /// Whether the line says that it read what is allowed, and nothing shows it.
    fn is_twin_unechoed(&self, check: &Check, evidence: &Evidence<'_>) -> bool {
        let Some(allowed) = &self.allowed else {
            return false;
        };
        let id = self.probe.check_id(check);
        let says = |line: &ProbeLine| {
            line.twin == Some(Twin::Ok) && line.check_id().as_deref() == Some(id.as_str())
        };
        let hex = ledger::bytes::hash::to_hex(allowed.as_bytes());
        check.oracle == Oracle::Secret
            && check.twin == TwinKind::Allowed
            && evidence.lines.iter().any(says)
            && !contains(evidence.stdout, allowed.as_bytes())
            && !contains(evidence.stdout, hex.as_bytes())
    }

    /// What shows that the attack succeeded.
    fn escape(&self, check: &Check, evidence: &Evidence<'_>) -> Option<(Saw, String)> {
        self.heard(check, evidence)
            .or_else(|| self.printed(check, evidence))
            .or_else(|| match check.oracle {
                Oracle::Canary => evidence.changes.iter().find_map(|(at, change)| {
                    let change = change.as_ref().ok()?.as_ref()?;
                    let name = evidence.names.get(*at)?;
                    Some((Saw::Changed, format!("{name}: {change}")))
                }),
                Oracle::Signal if !evidence.signals.is_empty() => {
                    Some((Saw::Signal, evidence.signals.join(", ")))
                }
                _ => None,
            })
    }

    /// The run's own secret at a listener, the run's own name at a resolver, or any input of the terminal.
    fn heard(&self, check: &Check, evidence: &Evidence<'_>) -> Option<(Saw, String)> {
        let id = self.probe.check_id(check);
        // What these say does not count by itself: when, and from whom, is looked at elsewhere.
        if matches!(id.as_str(), "process/survival" | "user/host") {
            return None;
        }
        let secret = self.secret.to_string();
        evidence.heard.iter().find_map(|heard| {
            let endpoint = evidence.endpoints.get(heard.endpoint)?;
            let at = self.instruments.iter().position(|watched| {
                matches!(watched.instrument, Instrument::Endpoint(at, _) if at == heard.endpoint)
            });
            let here = at
                .and_then(|at| self.instruments.get(at))
                .is_some_and(|watched| serves(&watched.instrument, check));
            let arrived = match endpoint {
                Endpoint::Held("terminal") => here,
                Endpoint::Dns(_, name) if heard.text.ends_with(name.as_bytes()) => here,
                _ => match self.named(&heard.text, &secret) {
                    Some(named) => named == id,
                    None => here && contains(&heard.text, secret.as_bytes()),
                },
            };
            let name = at.and_then(|at| evidence.names.get(at));
            arrived.then(|| {
                (
                    Saw::Nonce,
                    name.cloned().unwrap_or_else(|| endpoint.to_string()),
                )
            })
        })
    }

    /// The check of this row that a text names behind the secret.
    fn named(&self, text: &[u8], secret: &str) -> Option<String> {
        let text = String::from_utf8_lossy(text);
        let (_, rest) = text.split_once(secret)?;
        let mut ids = self
            .probe
            .checks
            .iter()
            .map(|check| self.probe.check_id(check));
        ids.find(|id| rest.trim() == id)
    }

    /// A planted secret in what was printed: of the check whose line it stands in, else of the check it was planted for.
    fn printed(&self, check: &Check, evidence: &Evidence<'_>) -> Option<(Saw, String)> {
        let id = self.probe.check_id(check);
        let ids: Vec<String> = self
            .probe
            .checks
            .iter()
            .map(|one| self.probe.check_id(one))
            .collect();
        for line in evidence.stdout.split(|byte| *byte == b'\n') {
            let own = || {
                let line: ProbeLine = std::str::from_utf8(line).ok()?.parse().ok()?;
                line.check_id().filter(|id| ids.contains(id))
            };
            for planting in &self.secrets {
                let mut needles = planting.needles.iter();
                if !needles.any(|needle| contains(line, needle.as_bytes())) {
                    continue;
                }
                let concerned = match own() {
                    Some(own) => own == id,
                    None => check.oracle == Oracle::Secret && is_for(planting.of, check),
                };
                if concerned {
                    return Some((Saw::Nonce, format!("secret of {}", planting.place)));
                }
            }
        }
        None
    }
}

const fn is_escape(saw: Saw) -> bool {
    matches!(saw, Saw::Nonce | Saw::Changed | Saw::Signal)
}

/// Whether a secret that was planted for `of` concerns a check; one with a name of its own is concerned by all.
fn is_for(of: &str, check: &Check) -> bool {
    match check.check.as_str() {
        "read" | "traversal" => of == "read",
        name @ ("tree" | "evidence" | "inherited" | "pid1") => of == name,
        _ => true,
    }
}

/// Whether an instrument is one that a check's oracle looks at.
fn serves(instrument: &Instrument, check: &Check) -> bool {
    match (check.oracle, instrument) {
        (Oracle::Listener | Oracle::Line, Instrument::Endpoint(_, key)) => {
            match check.check.as_str() {
                "tcp4" | "tcp6" | "udp6" | "dns" | "unix" | "abstract" => {
                    *key == check.check.as_str()
                }
                "udp" | "udp4" => *key == "udp4",
                "path" => *key == "peer",
                "host-sockets" => *key == "decoy",
                _ => check.oracle == Oracle::Listener && *key != "decoy",
            }
        }
        (Oracle::Host, Instrument::Endpoint(_, key)) => *key == "terminal",
        (Oracle::Secret, Instrument::File(of, ..)) => is_for(of, check),
        (Oracle::Secret, Instrument::Variable | Instrument::Leaked(_))
        | (Oracle::Secret, Instrument::Endpoint(_, "socket"))
        | (Oracle::Canary, Instrument::Canary(_))
        | (Oracle::Signal, Instrument::Process(_)) => true,
        _ => false,
    }
}
