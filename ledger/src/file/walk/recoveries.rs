//! Recoveries: what a writer set aside after a crash, and whether it may have (TRUST.md §5).

use super::Findings;
use super::read::parse;
use crate::bytes::key::Message;
use crate::file::bundle::BlobReader;
use crate::file::chain::{Chain, Standing};
use crate::file::source::{Attachments, Lines, ReadError, TornFile};
use crate::finding::{Code, Finding, Place};
use crate::record::{ParsedLine, Recovery, RecoveryCause};

/// How many set-aside records are remembered until the checkpoints are judged.
const REMEMBERED: usize = 1_000;

/// The recoveries of one walk.
#[derive(Default)]
pub(super) struct Recoveries {
    pub(super) checked: u64,
    pub(super) not_checked: u64,
    set_aside: Vec<SetAside>,
}

/// A whole signed record that was set aside although it was not the next one.
struct SetAside {
    recovery: u64,
    sequence: u64,
    place: Place,
}

impl Recoveries {
    /// Judges one recovery record; `before` is the chain as it was before that record.
    pub(super) fn judge(
        &mut self,
        recovery: &Recovery,
        sequence: u64,
        before: &Chain,
        attachments: &Attachments,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        findings.push(recovered(recovery, sequence));
        if recovery.cause == RecoveryCause::RollbackAccepted {
            let mut finding = unexplained(
                sequence,
                "records that were acknowledged are gone, and the operator went on without them",
            );
            if let Some(expected) = &recovery.expected {
                finding = finding.versus(
                    format!("{} records", expected.size),
                    format!("{sequence} records"),
                );
            }
            findings.push(finding);
        }
        let (Some(bytes), Some(hash)) = (recovery.bytes, recovery.sha256) else {
            self.checked += 1;
            return Ok(());
        };
        let place = Place {
            file: format!("torn/{hash}"),
            line: None,
        };
        let (mut file, size) = match attachments.torn(&hash)? {
            TornFile::NotChecked => {
                self.not_checked += 1;
                return Ok(());
            }
            TornFile::Missing => {
                self.checked += 1;
                findings.push(
                    unexplained(sequence, "the bytes that it set aside are not there")
                        .in_place(place),
                );
                return Ok(());
            }
            TornFile::Found(file, size) => (file, size),
        };
        self.checked += 1;
        if size != bytes.value() {
            findings.push(
                unexplained(sequence, "the set-aside file has another length")
                    .versus(bytes, size)
                    .in_place(place),
            );
            return Ok(());
        }
        let read = |source| ReadError {
            operation: "read",
            path: place.file.clone().into(),
            source,
        };
        let found = crate::file::source::hash_of(&mut file, None).map_err(read)?;
        if found != hash {
            findings.push(
                unexplained(sequence, "the set-aside file has another content")
                    .versus(hash, found)
                    .in_place(place),
            );
            return Ok(());
        }
        file.rewind().map_err(read)?;
        self.look_inside(sequence, before, file, &place.file, findings)
    }

    /// A whole, signed, next record is no torn line: it must not be set aside.
    fn look_inside(
        &mut self,
        recovery: u64,
        before: &Chain,
        file: BlobReader,
        name: &str,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        let mut lines = Lines::of_stream(name, Box::new(file));
        while let Some(line) = lines.next(&mut |_| {})? {
            if line.is_opening() {
                continue;
            }
            let parsed = parse(&line);
            let standing = before.clone().step(&parsed, &line.bytes, &mut |_| {});
            if standing != Standing::Refused {
                findings.push(
                    unexplained(
                        recovery,
                        "it set aside a valid record that follows the one before it",
                    )
                    .in_place(line.place()),
                );
            } else if let Some(sequence) = signed_here(&parsed, &line.bytes, before)
                && self.set_aside.len() < REMEMBERED
            {
                self.set_aside.push(SetAside {
                    recovery,
                    sequence,
                    place: line.place(),
                });
            }
        }
        Ok(())
    }

    /// Holds what was set aside against checkpoints that this ledger contradicts.
    pub(super) fn finish(&self, contradicted: &[u64], findings: &mut Findings) {
        for record in &self.set_aside {
            if contradicted.iter().any(|size| record.sequence < *size) {
                let finding = unexplained(
                    record.recovery,
                    "it set aside a signed record at a place that a checkpoint covers",
                );
                findings.push(finding.in_place(record.place.clone()));
            }
        }
    }
}

/// The number of a whole record of this ledger that one of its keys signed.
fn signed_here(parsed: &ParsedLine, bytes: &[u8], chain: &Chain) -> Option<u64> {
    let (head, frame) = (parsed.head.as_ref()?, parsed.frame.as_ref()?);
    let record = bytes.get(frame.record.clone())?;
    let signed = chain.keys().iter().any(|active| {
        active.key.id() == frame.key
            && active
                .key
                .verifies(Message::Record(record), &frame.signature)
    });
    (signed && chain.ledger() == Some(&head.ledger)).then_some(head.sequence)
}

fn recovered(recovery: &Recovery, sequence: u64) -> Finding {
    let message = match (recovery.cause, recovery.bytes) {
        (RecoveryCause::Torn, Some(bytes)) => {
            format!("the writer set aside {bytes} bytes that a crash left")
        }
        (RecoveryCause::Torn, None) => "the writer recovered after a crash".to_owned(),
        (RecoveryCause::RollbackAccepted, _) => {
            "the writer went on with a shorter ledger on the operator's word".to_owned()
        }
    };
    Finding::new(Code::Recovered, message).at(sequence)
}

fn unexplained(sequence: u64, message: &str) -> Finding {
    Finding::new(Code::RecoveryUnexplained, message).at(sequence)
}
