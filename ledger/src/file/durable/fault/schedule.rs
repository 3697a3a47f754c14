//! What is planned for a thread or a program, and how far that is.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;

use super::super::Operation;
use super::rule::{Rule, What};

#[derive(Debug)]
struct Planned {
    rule: Rule,
    seen: u64,
    #[cfg(test)]
    hits: u64,
    /// The write after one that was cut.
    then: Option<Errno>,
}

impl Planned {
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "only tests count"))]
    fn hit(&mut self) {
        #[cfg(test)]
        {
            self.hits += 1;
        }
    }
}

/// What is planned, and what was called.
#[derive(Debug, Default)]
struct Schedule {
    rules: Vec<Planned>,
    /// What is wrong with the text that the rules came from: every call says so.
    mistake: Option<String>,
    #[cfg(test)]
    calls: Vec<(Operation, std::path::PathBuf)>,
}

impl Schedule {
    fn of(rules: impl IntoIterator<Item = Rule>) -> Self {
        let rules = rules.into_iter().map(|rule| Planned {
            rule,
            seen: 0,
            #[cfg(test)]
            hits: 0,
            then: None,
        });
        Self {
            rules: rules.collect(),
            ..Self::default()
        }
    }

    fn from_variable(text: &str) -> Self {
        let rules = text.split(';').filter(|rule| !rule.is_empty());
        match rules.map(str::parse).collect::<Result<Vec<Rule>, _>>() {
            Ok(rules) => Self::of(rules),
            Err(mistake) => Self {
                mistake: Some(mistake),
                ..Self::default()
            },
        }
    }

    /// What this call does; `length` is what a write was given.
    fn next(&mut self, operation: Operation, path: &Path, length: usize) -> io::Result<usize> {
        if let Some(mistake) = &self.mistake {
            return Err(io::Error::other(mistake.clone()));
        }
        #[cfg(test)]
        self.calls.push((operation, path.to_owned()));
        let mut most = length;
        for planned in &mut self.rules {
            let rule = planned.rule.clone();
            let part = rule.part.as_deref();
            let here = part.is_none_or(|part| path.to_string_lossy().contains(part));
            if !rule.which.holds(operation) || !here {
                continue;
            }
            if operation == Operation::Write
                && let Some(errno) = planned.then.take()
            {
                return Err(errno.into());
            }
            planned.seen += 1;
            if !(rule.from..rule.until).contains(&planned.seen) {
                continue;
            }
            match rule.what {
                What::Fails(errno) => {
                    planned.hit();
                    return Err(errno.into());
                }
                What::Short if length > 1 => {
                    planned.hit();
                    most = most.min(length - 1);
                }
                What::Cut(cut, errno) if operation == Operation::Write && length > 0 => {
                    planned.hit();
                    if cut == 0 {
                        return Err(errno.into());
                    }
                    most = most.min(cut);
                    planned.then = (cut < length).then_some(errno);
                }
                What::Short | What::Cut(..) => {}
            }
        }
        Ok(most)
    }
}

thread_local! {
    static OWN: RefCell<Option<Schedule>> = const { RefCell::new(None) };
}

static PROCESS: OnceLock<Option<Mutex<Schedule>>> = OnceLock::new();

fn with<T>(work: impl FnOnce(&mut Schedule) -> T) -> Option<T> {
    OWN.with_borrow_mut(|own| match own {
        Some(schedule) => Some(work(schedule)),
        None => {
            let of_process = PROCESS.get_or_init(|| {
                let text = std::env::var("LEDGER_FAULT").ok()?;
                Some(Mutex::new(Schedule::from_variable(&text)))
            });
            let mut schedule = of_process
                .as_ref()?
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Some(work(&mut schedule))
        }
    })
}

/// Before every call that is neither a write nor a flush.
pub(in super::super) fn before(operation: Operation, path: &Path) -> io::Result<()> {
    match operation {
        Operation::Write | Operation::SyncData => Ok(()),
        _ => with(|schedule| schedule.next(operation, path, 0).map(|_| ())).unwrap_or(Ok(())),
    }
}

/// How many of `length` bytes a write may take.
pub(in super::super) fn write(path: &Path, length: usize) -> io::Result<usize> {
    with(|schedule| schedule.next(Operation::Write, path, length)).unwrap_or(Ok(length))
}

/// Before a flush: it may fail.
pub(in super::super) fn sync(file: &File, path: &Path) -> io::Result<()> {
    let answer = with(|schedule| schedule.next(Operation::SyncData, path, 0).map(|_| ()));
    let answer = answer.unwrap_or(Ok(()));
    #[cfg(test)]
    super::pages::flush(file, &answer);
    let _ = file;
    answer
}

#[cfg(not(test))]
pub(in super::super) const fn wrote(_: &File, _: Option<u64>, _: usize) {}

#[cfg(not(test))]
pub(in super::super) const fn cut(_: &File, _: u64) {}

#[cfg(test)]
pub(in super::super) use super::pages::{cut, wrote};

/// Rules for this thread alone.
#[cfg(test)]
pub(super) fn set_own(rules: impl IntoIterator<Item = Rule>) {
    OWN.set(Some(Schedule::of(rules)));
}

#[cfg(test)]
pub(super) fn forget_own() {
    OWN.set(None);
}

#[cfg(test)]
pub(super) fn own_calls() -> Vec<(Operation, std::path::PathBuf)> {
    OWN.with_borrow(|own| own.as_ref().map(|own| own.calls.clone()))
        .unwrap_or_default()
}

#[cfg(test)]
pub(super) fn own_hits() -> u64 {
    OWN.with_borrow(|own| {
        own.iter()
            .flat_map(|own| &own.rules)
            .map(|rule| rule.hits)
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_rule_fails_every_call() {
        let mut schedule = Schedule::from_variable("write:1:NOTHING");
        let error = schedule
            .next(Operation::Open, Path::new("x"), 0)
            .unwrap_err();
        assert!(error.to_string().contains("NOTHING"), "{error}");
    }
}
