//! The two records of a measurement: a run of a probe, and the matrix that names such runs.

use ledger::facts::list::List;
use ledger::facts::matrix::{Cell, Matrix};
use ledger::facts::measurement::ProbeRun;
use ledger::facts::suite::Arm;
use ledger::file::source::ReadError;
use ledger::file::walk::{Findings, Shown};
use ledger::finding::Code;

use super::Rules;
use super::matrices::{self, CELLS, Reading};
use super::probes::{Kept, LinesRead};
use super::references::Kind;
use super::runs::OnPurpose;

impl Rules {
    /// A run of a probe ended: as for any run, and cells may rest on it.
    pub(super) fn probe(
        &mut self,
        shown: &Shown<'_>,
        run: &ProbeRun,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        self.counts.references += 1;
        let start = run.execution.start.value();
        self.blobs.of_execution(shown, &run.execution, findings)?;
        let mut read = LinesRead::default();
        let whole = match &run.lines {
            List::Inline(lines) => {
                lines.iter().for_each(|line| read.take(line.clone()));
                true
            }
            List::Blob(list) => {
                let mut take = |line| read.take(line);
                self.blobs.items(shown, list, findings, &mut take)?
            }
        };
        let kinds = &mut self.kinds;
        if !kinds.expect(shown, "start", start, Kind::Start, findings) {
            return Ok(());
        }
        kinds.put(start, Kind::Ended);
        let on_purpose = OnPurpose {
            arm: Some(run.arm),
            ablated: run.ablated,
        };
        let counts = &mut self.counts;
        let ended = self
            .runs
            .end(shown, &run.execution, on_purpose, counts, findings);
        if let Some(begun) = &ended {
            self.listening.check(shown, &run.execution, begun, findings);
        }
        if let (Some(begun), true) = (ended, whole) {
            let kept = Kept::new(run, read.lines, begun);
            self.probes.keep(shown.record.sequence.value(), kept);
        }
        Ok(())
    }

    pub(super) fn matrix(
        &mut self,
        shown: &Shown<'_>,
        matrix: &Matrix,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        self.counts.references += 1;
        let at = matrix.host.value();
        let there = self.kinds.expect(shown, "host", at, Kind::Host, findings);
        let host = self.hosts.facts(at).filter(|_| there);
        if there && host.is_none() {
            let finding = shown.finding(Code::ReferenceInvalid, format!("host names record {at}"));
            findings.push(finding.versus("the host record in force", "one of long before"));
        }
        self.policies
            .read(shown, &matrix.policy, &mut self.blobs, findings)?;
        let suite = self
            .suites
            .read(shown, &matrix.suite, &mut self.blobs, findings)?;
        let mut read = Vec::new();
        let cells = match (matrices::inline(matrix), &matrix.cells) {
            (Some(cells), _) => cells,
            (None, List::Blob(list)) => {
                let mut take = |cell: Cell| {
                    if read.len() <= CELLS {
                        read.push(cell);
                    }
                };
                if !self.blobs.items(shown, list, findings, &mut take)? {
                    return Ok(());
                }
                &read
            }
            (None, List::Inline(_)) => return Ok(()),
        };
        if cells.len() > CELLS {
            let finding = shown.finding(Code::MatrixMismatch, "the matrix cannot be judged");
            findings.push(finding.versus(format!("at most {CELLS} cells"), "more"));
            return Ok(());
        }
        let runtimes = Reading {
            shown,
            matrix,
            host: host.as_ref(),
            suite: suite.as_deref(),
            kinds: &self.kinds,
            probes: &self.probes,
            counts: &mut self.counts,
            findings,
        }
        .judge(cells);
        for sequence in matrices::counted(cells) {
            if self
                .probes
                .find(sequence)
                .is_some_and(|it| it.run.arm != Arm::Baseline)
            {
                self.probes.remove(sequence);
                self.kinds.put(sequence, Kind::Taken);
            }
        }
        let Some(host) = host else { return Ok(()) };
        for runtime in runtimes {
            self.guarantees
                .take(shown, matrix, &host, runtime, &mut self.counts, findings);
        }
        Ok(())
    }
}
