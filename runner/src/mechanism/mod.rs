//! Sandbox mechanisms, a file per kernel concept. Each is told exactly what to do and *returns what took
//! effect*: a request and an outcome are different types.

pub mod group;
pub mod identity;
pub mod landlock;
pub mod mounts;
pub mod owners;
pub mod placeholders;
pub mod protect;
pub mod root;
pub mod seccomp;

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

/// What became of one mechanism in one launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its calls succeeded.
    Done,
    /// It was not asked for.
    Skipped,
    /// A call failed, or a read-back found no effect.
    Failed(Failure),
}

/// Which call of a mechanism failed, on what, and the kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What was attempted, with the path or name it was about.
    pub attempt: String,
    /// The error's name (`EPERM`), or `no-effect` when the call succeeded and a read-back found nothing.
    pub error: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.attempt, self.error)
    }
}

impl Failure {
    /// A call failed.
    #[must_use]
    pub fn call(attempt: impl Into<String>, error: &io::Error) -> Self {
        Self {
            attempt: attempt.into(),
            error: crate::sys::errno_name(error),
        }
    }

    /// A read-back found no effect.
    #[must_use]
    pub fn no_effect(attempt: impl Into<String>) -> Self {
        Self {
            attempt: attempt.into(),
            error: "no-effect".to_owned(),
        }
    }
}

/// The outcomes of one launch by mechanism name (the names of [`crate::sys::fault::MECHANISMS`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes(BTreeMap<String, Outcome>);

impl Outcomes {
    /// Notes what became of a mechanism; a failure is never overwritten by a later success.
    pub fn note(&mut self, mechanism: &str, result: Result<(), Failure>) {
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(failure) => Outcome::Failed(failure),
        };
        let slot = self
            .0
            .entry(mechanism.to_owned())
            .or_insert_with(|| outcome.clone());
        if !matches!(slot, Outcome::Failed(_)) {
            *slot = outcome;
        }
    }

    /// Takes in what another part of the launch noted.
    pub fn merge(&mut self, other: Self) {
        for (mechanism, outcome) in other.0 {
            match outcome {
                Outcome::Done => self.note(&mechanism, Ok(())),
                Outcome::Failed(failure) => self.note(&mechanism, Err(failure)),
                Outcome::Skipped => {}
            }
        }
    }

    /// What became of a mechanism; [`Outcome::Skipped`] when nothing was noted.
    #[must_use]
    pub fn of(&self, mechanism: &str) -> &Outcome {
        self.0.get(mechanism).unwrap_or(&Outcome::Skipped)
    }

    /// Whether any mechanism failed.
    #[must_use]
    pub fn any_failed(&self) -> bool {
        self.0
            .values()
            .any(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Whether a mechanism is known to be in effect.
    #[must_use]
    pub fn is_done(&self, mechanism: &str) -> bool {
        *self.of(mechanism) == Outcome::Done
    }
}
