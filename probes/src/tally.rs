//! Several attempts of one check become one answer.

use crate::cause::Cause;
use crate::line::{Claim, Seen, Twin};

/// What the attempts came to.
pub(crate) struct Tally {
    denied: &'static [&'static str],
    escaped: Vec<String>,
    refused: Vec<(String, Cause)>,
    notes: Vec<String>,
}

impl Tally {
    /// `denied`: names of errors with which a refused attack of this kind ends.
    pub(crate) const fn new(denied: &'static [&'static str]) -> Self {
        Self {
            denied,
            escaped: Vec::new(),
            refused: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn escaped(&mut self, how: impl Into<String>) {
        self.escaped.push(how.into());
    }

    /// The same refusal of the same thing is said once.
    pub(crate) fn refused(&mut self, what: impl Into<String>, cause: impl Into<Cause>) {
        let refusal = (what.into(), cause.into());
        if !self.refused.contains(&refusal) {
            self.refused.push(refusal);
        }
    }

    /// Something for people.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// An attempt whose success says nothing but that it was made.
    pub(crate) fn attempt<T>(
        &mut self,
        what: impl Into<String>,
        answer: Result<T, impl Into<Cause>>,
    ) {
        match answer {
            Ok(_) => self.escaped(what),
            Err(cause) => self.refused(what, cause),
        }
    }

    pub(crate) const fn has_escaped(&self) -> bool {
        !self.escaped.is_empty()
    }

    pub(crate) const fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// One escape is an escape. Otherwise an error that is no refusal stands before those that are: it must not hide
    /// behind them.
    pub(crate) fn finish(self, twin: Twin) -> Seen {
        let expected = |cause: &Cause| self.denied.contains(&cause.to_string().as_str());
        let first = self.refused.first().map(|(_, cause)| *cause);
        let strange = self.refused.iter().map(|(_, cause)| *cause);
        let cause = strange.clone().find(|cause| !expected(cause)).or(first);
        let refusals = self
            .refused
            .iter()
            .map(|(what, cause)| format!("{what} {cause}"));
        let (claim, cause, parts): (_, _, Vec<String>) = match cause {
            _ if self.has_escaped() => {
                let parts = self
                    .escaped
                    .iter()
                    .cloned()
                    .chain(self.notes.iter().cloned());
                (Claim::Escaped, Cause::None, parts.chain(refusals).collect())
            }
            Some(cause) => {
                let parts = self.notes.iter().cloned().chain(refusals);
                (Claim::Contained, cause, parts.collect())
            }
            None => return Seen::missing("nothing could be tried"),
        };
        Seen {
            claim,
            cause,
            twin,
            detail: parts.join("; "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::{EIO, ENOENT, EPERM};

    const DENIED: &[&str] = &["EPERM", "ENOENT"];

    #[test]
    fn one_escape_is_an_escape() {
        let mut tally = Tally::new(DENIED);
        tally.refused("a", Cause::Errno(EPERM));
        tally.escaped("b");
        let seen = tally.finish(Twin::Ok);
        assert_eq!((seen.claim, seen.cause), (Claim::Escaped, Cause::None));
        assert_eq!(seen.detail, "b; a EPERM");
    }

    #[test]
    fn an_error_that_is_no_refusal_does_not_hide() {
        let mut tally = Tally::new(DENIED);
        tally.refused("a", Cause::Errno(ENOENT));
        tally.refused("b", Cause::Errno(EIO));
        let seen = tally.finish(Twin::Ok);
        assert_eq!(
            (seen.claim, seen.cause),
            (Claim::Contained, Cause::Errno(EIO))
        );
    }

    #[test]
    fn nothing_tried_is_no_containment() {
        let seen = Tally::new(DENIED).finish(Twin::Ok);
        assert_eq!((seen.claim, seen.twin), (Claim::Error, Twin::None));
    }
}
