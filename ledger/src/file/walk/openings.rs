//! Openings held against the record that follows them.

use super::{Findings, Verified};
use crate::file::source::Line;
use crate::finding::{Code, Finding, Place};
use crate::record::{Head, Opening, OpeningProblem, Record};

/// The openings of one walk.
#[derive(Default)]
pub(super) struct Openings {
    pending: Option<Pending>,
    pub(super) checked: u64,
    withheld: u64,
    withheld_in: u64,
    first_withheld: Option<u64>,
}

/// Opening lines that wait for their record.
pub(super) struct Pending {
    place: Place,
    parsed: Option<Opening>,
}

impl Openings {
    /// Takes an opening line as it was read.
    pub(super) fn take(
        &mut self,
        line: &Line,
        read: Result<Opening, OpeningProblem>,
        findings: &mut Findings,
    ) {
        self.checked += 1;
        let parsed = match read {
            Ok(opening) => Some(opening),
            Err(problem) => {
                findings.push(mismatch(&problem, line.place()));
                None
            }
        };
        let place = line.place();
        if self.pending.is_some() {
            findings.push(
                Finding::new(
                    Code::OpeningMismatch,
                    "a second opening stands before the same record",
                )
                .in_place(place),
            );
            return;
        }
        self.pending = Some(Pending { place, parsed });
    }

    /// Whether an opening waits for its record.
    pub(super) const fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The opening that stands before the record line now read, if any.
    pub(super) fn pending(&mut self) -> Option<Pending> {
        self.pending.take()
    }

    /// A record that did not verify follows: only its number can be compared.
    pub(super) fn before_unverified(
        pending: Option<Pending>,
        head: Option<&Head>,
        findings: &mut Findings,
    ) {
        if let Some(Pending {
            place,
            parsed: Some(opening),
        }) = pending
            && let Some(head) = head
            && head.sequence != opening.sequence.value()
        {
            let problem = OpeningProblem::Sequence {
                named: opening.sequence.value(),
                follows: head.sequence,
            };
            findings.push(mismatch(&problem, place).at(head.sequence));
        }
    }

    /// Holds the opening against its record; counts what stays sealed.
    pub(super) fn before(
        &mut self,
        pending: Option<Pending>,
        record: &Record,
        findings: &mut Findings,
    ) -> Option<Verified<Opening>> {
        let sequence = record.sequence.value();
        let opening = pending.and_then(|Pending { place, parsed }| {
            let opening = parsed?;
            match opening.fits(record) {
                Ok(()) => Some(opening),
                Err(problem) => {
                    findings.push(mismatch(&problem, place).at(sequence));
                    None
                }
            }
        });
        let is_open = |name: &str| {
            opening.as_ref().is_some_and(|opening| match name {
                "argv" => opening.open.argv.is_some(),
                "launch" => opening.open.launch.is_some(),
                "stderr" => opening.open.stderr.is_some(),
                "stdout" => opening.open.stdout.is_some(),
                _ => false,
            })
        };
        let names = record.sealed_names();
        let withheld = names.iter().filter(|name| !is_open(name)).count() as u64;
        if withheld > 0 {
            self.withheld += withheld;
            self.withheld_in += 1;
            self.first_withheld.get_or_insert(sequence);
        }
        opening.map(Verified)
    }

    /// Says what stayed sealed.
    pub(super) fn finish(self, findings: &mut Findings) {
        if let Some(first) = self.first_withheld {
            let mut finding = Finding::new(
                Code::OpeningWithheld,
                format!(
                    "{} sealed {} of {} {} not shown; the first is record {first}",
                    self.withheld,
                    if self.withheld == 1 {
                        "value"
                    } else {
                        "values"
                    },
                    self.withheld_in,
                    if self.withheld_in == 1 {
                        "record is"
                    } else {
                        "records are"
                    },
                ),
            )
            .at(first);
            finding.count = self.withheld;
            findings.push(finding);
        }
    }
}

impl Pending {
    /// Where the opening stands.
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// At the end of a ledger only the next record's opening is what a crash leaves.
    pub(super) fn stray(&self, next: u64) -> Option<Finding> {
        let named = self.parsed.as_ref()?.sequence.value();
        let message = "it stands at the end and does not name the next record";
        (named != next).then(|| {
            Finding::new(Code::OpeningMismatch, message)
                .in_place(self.place())
                .versus(next, named)
        })
    }
}

fn mismatch(problem: &OpeningProblem, place: Place) -> Finding {
    Finding::new(Code::OpeningMismatch, problem.to_string()).in_place(place)
}
