//! What the policy's filter denied, counted while the workload runs.
//!
//! Each turn answers a bounded number of calls, so that a flood of them holds up neither the deadline nor the output. What is
//! kept is one entry for each call that has a name, and one for all that have none: memory does not grow with their number.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use ledger::bytes::canon::U53;
use ledger::facts::execution::{UNNAMED, Violation, Word};

use crate::mechanism::seccomp::Architecture;
use crate::plan::unheard;
use crate::sys::errno_name;
use crate::sys::notify::{Denied, Listener, Turn};

/// Calls that are answered in one turn at most.
const AT_ONCE: usize = 64;

/// Counts denied calls, if they can be heard.
#[derive(Debug)]
pub(super) struct Violations {
    listener: Option<Listener>,
    /// By number; all that have no name under `None`.
    calls: BTreeMap<Option<u32>, Entry>,
    unheard: Option<String>,
}

#[derive(Debug)]
struct Entry {
    call: &'static str,
    takes: u8,
    count: u64,
    at: Duration,
    first: Denied,
}

impl Violations {
    pub(super) fn new(listener: Result<Listener, String>) -> Self {
        let (listener, unheard) = match listener {
            Ok(listener) => (Some(listener), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            listener,
            calls: BTreeMap::new(),
            unheard,
        }
    }

    /// What to wait for, while there may be more.
    pub(super) fn more(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(Listener::as_fd)
    }

    /// Answers calls that wait; `since_go` is the time from "go" to now.
    pub(super) fn answer(&mut self, since_go: &dyn Fn() -> io::Result<Duration>) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            let Some(listener) = &mut self.listener else {
                return Ok(());
            };
            match listener.turn() {
                Ok(Turn::Denied(denied)) => self.count(denied, since_go)?,
                Ok(Turn::Vanished) => {}
                Ok(Turn::Nothing) => return Ok(()),
                Ok(Turn::Over) => self.listener = None,
                Err(error) => {
                    self.unheard = Some(format!("{}: {}", unheard::FAILED, errno_name(&error)));
                    self.listener = None;
                }
            }
        }
        Ok(())
    }

    fn count(
        &mut self,
        denied: Denied,
        since_go: &dyn Fn() -> io::Result<Duration>,
    ) -> io::Result<()> {
        if let Some(entry) = self.calls.get_mut(&Some(denied.number)) {
            entry.count = entry.count.saturating_add(1);
            return Ok(());
        }
        let named = Architecture::native().and_then(|it| it.call(denied.number));
        let key = named.map(|_| denied.number);
        let entry = match self.calls.get_mut(&key) {
            Some(entry) => entry,
            None => {
                let at = since_go()?;
                self.calls.entry(key).or_insert(Entry {
                    call: named.map_or(UNNAMED, |call| call.name),
                    takes: named.map_or(0, |call| call.arguments),
                    count: 0,
                    at,
                    first: denied,
                })
            }
        };
        entry.count = entry.count.saturating_add(1);
        Ok(())
    }

    /// What was denied, sorted by name; else why that is not known. `end` is the time from "go" to the end of the main process: what
    /// was left of its tree may be denied something later, until it is ended, too.
    pub(super) fn finish(self, end: Duration) -> Result<Vec<Violation>, String> {
        if let Some(why) = self.unheard {
            return Err(why);
        }
        let all = self.calls.into_values().map(|entry| Violation {
            // What stands in the other registers was not said to the kernel.
            arguments: entry
                .first
                .arguments
                .into_iter()
                .take(entry.takes.into())
                .map(Word)
                .collect(),
            call: entry.call.to_owned(),
            count: U53::saturating(entry.count),
            first_us: micros(entry.at.min(end)),
            number: (entry.call == UNNAMED).then(|| U53::from(entry.first.number)),
        });
        let mut all: Vec<Violation> = all.collect();
        all.sort_by(|a, b| a.call.cmp(&b.call));
        Ok(all)
    }
}

/// As a record says a time.
pub(super) fn micros(time: Duration) -> U53 {
    U53::saturating(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::facts::execution::InOrder;

    const END: Duration = Duration::from_secs(1);

    /// A listener that was there and has nothing more to say.
    fn heard() -> Violations {
        Violations {
            listener: None,
            calls: BTreeMap::new(),
            unheard: None,
        }
    }

    fn number(name: &str) -> u32 {
        let number = Architecture::native().unwrap().number(name).unwrap();
        u32::try_from(number).unwrap()
    }

    fn deny(violations: &mut Violations, number: u32, first: u64, at: u64) {
        let denied = Denied {
            number,
            arguments: [first, 2, 3, 4, 5, u64::MAX],
        };
        let since_go = || Ok(Duration::from_micros(at));
        violations.count(denied, &since_go).unwrap();
    }

    #[test]
    fn each_call_has_one_entry_with_the_arguments_of_the_first() {
        let mut violations = heard();
        for at in 0..1_000 {
            deny(&mut violations, number("ptrace"), at, 10 + at);
            deny(&mut violations, number("bpf"), 7, 20);
        }
        deny(&mut violations, number("getpid"), 7, 30);
        let list = violations.finish(END).unwrap();
        let mut order = InOrder::default();
        assert_eq!(list.iter().find_map(|it| order.take(it)), None);
        let told: Vec<_> = list
            .iter()
            .map(|it| (it.call.as_str(), it.count.value(), it.first_us.value()))
            .collect();
        assert_eq!(
            told,
            [("bpf", 1_000, 20), ("getpid", 1, 30), ("ptrace", 1_000, 10)]
        );
        // As many as the call takes.
        assert_eq!(list[0].arguments, [7, 2, 3].map(Word));
        assert_eq!(list[1].arguments, []);
        assert_eq!(list[2].arguments, [0, 2, 3, 4].map(Word));
    }

    #[test]
    fn numbers_without_a_name_stand_together() {
        let mut violations = heard();
        for number in 100_000..200_000 {
            deny(&mut violations, number, 1, 5);
        }
        assert_eq!(violations.calls.len(), 1);
        let list = violations.finish(END).unwrap();
        assert_eq!(list[0].call, UNNAMED);
        assert_eq!(list[0].count.value(), 100_000);
        assert_eq!(list[0].number.unwrap().value(), 100_000);
        assert_eq!(list[0].arguments, []);
        assert_eq!(list[0].disorder(), None);
    }

    #[test]
    fn what_outlives_the_main_process_is_first_denied_at_its_end() {
        let mut violations = heard();
        deny(&mut violations, number("ptrace"), 0, 7);
        deny(&mut violations, number("bpf"), 0, 1_000_001);
        let list = violations.finish(END).unwrap();
        let mut order = InOrder::within(Some(micros(END)));
        assert_eq!(list.iter().find_map(|it| order.take(it)), None);
        let first: Vec<_> = list.iter().map(|it| it.first_us.value()).collect();
        assert_eq!(first, [1_000_000, 7]);
    }

    #[test]
    fn nothing_heard_is_not_nothing_denied() {
        assert_eq!(heard().finish(END), Ok(Vec::new()));
        let deaf = Violations::new(Err(unheard::NO_FILTER.to_owned()));
        assert!(deaf.more().is_none());
        assert_eq!(deaf.finish(END), Err("no-filter".to_owned()));
    }
}
