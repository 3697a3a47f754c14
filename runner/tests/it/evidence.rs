//! A ledger as the walk verifies it.

use std::path::Path;

use ledger::facts::control::Control;
use ledger::facts::execution::{Execution, Output, Start};
use ledger::facts::list::{List, Sealable};
use ledger::file::source::{ReadError, Source};
use ledger::file::walk::{Findings, Shown, Visitor, walk};
use ledger::finding::Finding;
use ledger::record::{Body, Opened, Record};

/// Every record of a ledger, in order.
pub(crate) struct Evidence {
    pub(crate) records: Vec<(Record, Option<Opened>)>,
}

impl Visitor for Evidence {
    fn verified(&mut self, shown: &Shown<'_>, _: &mut Findings) -> Result<(), ReadError> {
        let opening = shown.opening.map(|opening| opening.open.clone());
        self.records.push(((**shown.record).clone(), opening));
        Ok(())
    }

    fn unverified(&mut self, sequence: u64) {
        panic!("record {sequence} does not verify");
    }
}

pub(crate) fn evidence(ledger: &Path) -> Evidence {
    let (evidence, findings) = walked(ledger);
    assert!(findings.is_empty(), "{findings:#?}");
    evidence
}

/// Reads a ledger; the records that verify, and everything there is to say.
pub(crate) fn walked(ledger: &Path) -> (Evidence, Vec<Finding>) {
    let mut evidence = Evidence {
        records: Vec::new(),
    };
    let mut source = Source::open(ledger).unwrap();
    let walked = walk(&mut source, None, &mut evidence).unwrap();
    (evidence, walked.findings.into_list())
}

impl Evidence {
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.records
            .iter()
            .map(|(record, _)| record.body.kind())
            .collect()
    }

    /// The runs that have ended, in the order of their ends.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let ended = self
            .records
            .iter()
            .filter_map(|(record, opened)| match &record.body {
                Body::Execution(execution) => Some((execution, opened)),
                _ => None,
            });
        ended
            .map(|(execution, opened)| {
                let at = usize::try_from(execution.start.value()).unwrap();
                let (Body::Start(start), at_start) =
                    (&self.records[at].0.body, &self.records[at].1)
                else {
                    panic!("record {at} is no start");
                };
                let opened = opened.clone().unwrap_or_default();
                let at_start = at_start.clone().unwrap_or_default();
                let output = |clear: &Option<Sealable<Output>>, sealed: Option<Output>| match clear
                {
                    Some(Sealable::Clear(output)) => Some(output.clone()),
                    Some(Sealable::Sealed(_)) => Some(sealed.expect("sealed, and no opening")),
                    None => None,
                };
                let argv = match &start.workload.argv {
                    Sealable::Clear(list) => list.clone(),
                    Sealable::Sealed(_) => at_start.argv.expect("sealed, and no opening").1,
                };
                let List::Inline(argv) = argv else {
                    panic!("a long argv");
                };
                Run {
                    argv,
                    start: (**start).clone(),
                    stdout: output(
                        &execution.result.stdout,
                        opened.stdout.map(|salted| salted.1),
                    ),
                    stderr: output(
                        &execution.result.stderr,
                        opened.stderr.map(|salted| salted.1),
                    ),
                    execution: (**execution).clone(),
                }
            })
            .collect()
    }
}

/// One run as its ledger has it, sealed values taken from their openings.
pub(crate) struct Run {
    pub(crate) argv: Vec<String>,
    pub(crate) start: Start,
    pub(crate) stdout: Option<Output>,
    pub(crate) stderr: Option<Output>,
    pub(crate) execution: Execution,
}

impl Run {
    pub(crate) fn declares(&self, control: &str) -> bool {
        self.start
            .controls
            .declares(control.parse::<Control>().unwrap())
    }

    /// Why a control is not declared.
    pub(crate) fn reason(&self, control: &str) -> Option<&str> {
        let unsupported = &self.start.controls.unsupported;
        let gap = unsupported
            .iter()
            .find(|gap| gap.control.as_str() == control);
        gap.map(|gap| gap.reason.as_str())
    }
}
