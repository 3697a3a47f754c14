//! What the findings come to: four assurances, checks with their numbers, one exit code.

use ledger::bytes::hash::Hash;
use ledger::facts::matrix::table::Table;
use ledger::file::chain::ActiveKey;
use ledger::file::source::Source;
use ledger::file::walk::{Assured, Completeness, Extract, Findings, Walked};
use ledger::finding::{Class, Code, Finding};

use super::{Counts, Denials};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// Everything that it looked at holds.
    Pass,
    /// Something does not.
    Fail,
    /// It looked at nothing.
    NotChecked,
}

impl CheckStatus {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotChecked => "not-checked",
        }
    }
}

/// One check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub id: &'static str,
    /// How it came out.
    pub status: CheckStatus,
    /// How many things it looked at.
    pub count: u64,
}

/// Everything that `verify` says about a ledger.
#[derive(Debug)]
pub struct Verification {
    /// The ledger's id, when its genesis verified.
    pub ledger: Option<Hash>,
    /// Its name in checkpoints, when its genesis verified.
    pub origin: Option<String>,
    /// Record lines, refused ones too.
    pub records: u64,
    /// Records that verified.
    pub verified: u64,
    /// How much of its ledger a bundle shows; absent for anything else.
    pub extract: Option<Extract>,
    /// Number and hash of the last line.
    pub head: Option<(u64, Hash)>,
    /// Every key that was ever active, oldest first.
    pub keys: Vec<ActiveKey>,
    /// Whether the bytes are what was written.
    pub integrity: Assured,
    /// Whether somebody outside the ledger says whose keys these are.
    pub identity: Assured,
    /// How far the ledger is known to be whole.
    pub completeness: Completeness,
    /// Whether what was declared and what was measured agree.
    pub consistency: Assured,
    /// Runs whose end was compared with their start.
    pub runs: u64,
    /// The newest matrices by the order of their records, where they were asked for.
    pub matrices: Vec<Table>,
    /// The system calls that were denied.
    pub denials: Denials,
    /// What was looked at.
    pub checks: Vec<Check>,
    /// Everything that was found, worst class first.
    pub findings: Vec<Finding>,
    /// What the process exits with.
    pub exit_code: u8,
}

impl Verification {
    pub(super) fn new(
        mut walked: Walked,
        counts: &Counts,
        matrices: Vec<Table>,
        denials: Denials,
        source: &Source,
    ) -> Self {
        let records = walked.tally.records;
        if records > 0 {
            observe(&mut walked);
        }
        let findings = &walked.findings;
        let tally = &walked.tally;
        let here = source.attachments.are_here();
        let keys = walked.chain.keys().to_vec();
        let tail = u64::from(records > 0 || findings.count(Code::TornTail) > 0);
        let set_aside = if here { tally.recoveries } else { 0 };
        let in_segments = here && source.bundle.is_none();
        let segments = if in_segments { source.lines.files() } else { 0 };
        use Code as C;
        let checks = [
            check(
                findings,
                "form",
                records,
                &[
                    C::RecordNotCanonical,
                    C::RecordMalformed,
                    C::RecordTooLarge,
                    C::RecordKindUnknown,
                    C::RecordVersionUnknown,
                ],
            ),
            check(
                findings,
                "signatures",
                records,
                &[C::SignatureInvalid, C::KeyUnknown],
            ),
            check(
                findings,
                "keys",
                keys.len() as u64,
                &[C::KeyWeak, C::RotationInvalid],
            ),
            check(
                findings,
                "chain",
                records,
                &[
                    C::LedgerMismatch,
                    C::ChainPreviousMismatch,
                    C::ChainSequenceGap,
                    C::GenesisMissing,
                    C::GenesisRepeated,
                    C::RecordAfterClose,
                ],
            ),
            check(findings, "segments", segments, &[C::SegmentUnexpected]),
            check(findings, "tail", tail, &[C::TornTail]),
            check(
                findings,
                "checkpoints",
                tally.checkpoints,
                &[
                    C::CheckpointInvalid,
                    C::CheckpointFork,
                    C::LedgerReplaced,
                    C::TailTruncated,
                    C::CheckpointRequired,
                ],
            ),
            check(findings, "openings", tally.openings, &[C::OpeningMismatch]),
            check(findings, "torn", set_aside, &[C::RecoveryUnexplained]),
            check(
                findings,
                "blobs",
                counts.blobs,
                &[C::BlobMissing, C::BlobMismatch],
            ),
            check(
                findings,
                "references",
                counts.references,
                &[C::ReferenceInvalid],
            ),
            check(findings, "verdicts", counts.verdicts, &[C::VerdictMismatch]),
            check(findings, "matrices", counts.cells, &[C::MatrixMismatch]),
            check(
                findings,
                "guarantees",
                counts.guarantees,
                &[
                    C::FalseGuarantee,
                    C::DeclaredUnmeasured,
                    C::ReliesOnFalseGuarantee,
                ],
            ),
            check(findings, "runs", counts.runs, &[C::RunUnfinished]),
            check(
                findings,
                "controls",
                counts.strict,
                &[C::ControlMissingUnderStrict],
            ),
            check(
                findings,
                "limits",
                counts.limits,
                &[C::LimitExceeded, C::OutputOverCap],
            ),
            check(findings, "user", counts.users, &[C::UserDiffers]),
            check(findings, "host", counts.hosts, &[C::HostStale]),
            check(findings, "clock", counts.clocks, &[]),
        ]
        .to_vec();
        Self {
            ledger: walked.chain.ledger().copied(),
            origin: walked
                .chain
                .origin()
                .map(|origin| origin.as_str().to_owned()),
            records,
            verified: tally.verified,
            extract: walked.extract,
            head: (records > 0)
                .then(|| (walked.chain.next().saturating_sub(1), walked.chain.head())),
            keys,
            integrity: integrity(findings, records),
            identity: Assured::NotEstablished,
            completeness: walked.completeness,
            consistency: consistency(findings, counts.verdicts),
            runs: counts.verdicts,
            matrices,
            denials,
            checks,
            exit_code: findings.exit_code(records),
            findings: walked.findings.into_list(),
        }
    }
}

/// Says what nothing outside the ledger vouches for.
fn observe(walked: &mut Walked) {
    if walked.completeness.status == Assured::NotEstablished {
        let withheld = walked.extract.map_or(0, |extract| extract.withheld);
        let (message, help) = if withheld > 0 {
            (
                "not all records of the ledger are shown",
                "ask for a bundle of all records, or for the ledger",
            )
        } else {
            (
                "nothing outside the ledger says how long it should be",
                "keep a checkpoint elsewhere and give it with --checkpoint",
            )
        };
        let finding = Finding::new(Code::CompletenessNotEstablished, message);
        walked.findings.push(finding.help(help));
    }
    walked.findings.push(Finding::new(
        Code::IdentityNotEstablished,
        "the keys come from the ledger itself; nobody outside says whose they are",
    ));
}

fn check(findings: &Findings, id: &'static str, count: u64, codes: &[Code]) -> Check {
    let status = if codes.iter().any(|code| findings.count(*code) > 0) {
        CheckStatus::Fail
    } else if count == 0 {
        CheckStatus::NotChecked
    } else {
        CheckStatus::Pass
    };
    Check { id, status, count }
}

/// Runs without an end are a matter of what happened, not of the bytes.
fn integrity(findings: &Findings, records: u64) -> Assured {
    let unproven = [
        Code::TornTail,
        Code::RecordKindUnknown,
        Code::RecordVersionUnknown,
        Code::BlobMissing,
    ];
    if findings.any(Class::Invalid) {
        Assured::Broken
    } else if records == 0 || unproven.iter().any(|code| findings.count(*code) > 0) {
        Assured::NotEstablished
    } else {
        Assured::Established
    }
}

/// Established only where something was measured and compared.
fn consistency(findings: &Findings, compared: u64) -> Assured {
    if findings.any(Class::Disagreement) {
        Assured::Broken
    } else if compared == 0 || findings.any(Class::Invalid) || findings.any(Class::Unproven) {
        Assured::NotEstablished
    } else {
        Assured::Established
    }
}
