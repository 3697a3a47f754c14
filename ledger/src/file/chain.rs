//! The chain: which record may come next, and who may sign it.
//!
//! One [`Chain`] walks from genesis to head. Readers report everything it finds; the writer appends only
//! where it finds nothing. It knows keys and links, not what records mean.

mod rotation;

use crate::bytes::hash::Hash;
use crate::bytes::key::{KeyId, Message, PublicKey, PublicKeyError};
use crate::bytes::text::excerpt;
use crate::finding::{Code, Finding};
use crate::record::{
    Body, Content, Custody, Frame, Genesis, Head, LineProblem, Origin, ParsedLine,
};

/// A key and the first sequence that it may sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveKey {
    /// The key.
    pub key: PublicKey,
    /// Where it is kept, by its own word.
    pub custody: Custody,
    /// The first record that it may sign; a checkpoint of this size or more is its to sign.
    pub from: u64,
}

/// What has been seen of a ledger so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    ledger: Option<Hash>,
    origin: Option<Origin>,
    next: u64,
    head: Option<Hash>,
    keys: Vec<ActiveKey>,
    standby: Option<KeyId>,
    closed_at: Option<u64>,
    lines: u64,
    /// Records may be left out between those that are shown.
    sparse: bool,
}

/// Whether a line counts as part of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Form, signature, key and links hold.
    Verified,
    /// Form, signature, key and links hold, but its kind or version needs a newer reader.
    Unread,
    /// Something is wrong; it only advances hash and position.
    Refused,
}

/// Whether a line's signature is one key's: pure work on one line, done before it is known which key may
/// sign there. A [`Chain`] takes it only for that line, and only where that key is the active one.
#[derive(Clone, Debug)]
pub struct Checked {
    line: Hash,
    key: PublicKey,
    good: bool,
}

impl Checked {
    /// Holds the signature against `key`; `None` when the line names another key, or none.
    #[must_use]
    pub fn against(key: &PublicKey, parsed: &ParsedLine, bytes: &[u8]) -> Option<Self> {
        let frame = parsed.frame.as_ref()?;
        (frame.key == key.id()).then(|| Self {
            line: parsed.hash,
            key: *key,
            good: is_signed(key, frame, bytes),
        })
    }
}

fn is_signed(key: &PublicKey, frame: &Frame, bytes: &[u8]) -> bool {
    bytes
        .get(frame.record.clone())
        .is_some_and(|record| key.verifies(Message::Record(record), &frame.signature))
}

impl Chain {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Self::new`], of records of which some are left out: those that are shown stand in their order, and that
    /// each stands at its place is shown otherwise ([`Self::step_proven`]).
    #[must_use]
    pub fn with_gaps() -> Self {
        Self {
            sparse: true,
            ..Self::default()
        }
    }

    /// The chain as it was directly before a record that has been shown to stand at its place: without gaps, what may
    /// follow it is that record alone.
    #[must_use]
    pub fn just_before(&self, head: &Head) -> Self {
        Self {
            next: head.sequence,
            head: Some(head.previous),
            sparse: false,
            ..self.clone()
        }
    }

    /// A chain that continues where an earlier walk ended.
    #[must_use]
    pub fn resume(
        ledger: Hash,
        origin: Origin,
        size: u64,
        head: Hash,
        keys: Vec<ActiveKey>,
        standby: Option<KeyId>,
        closed_at: Option<u64>,
    ) -> Self {
        Self {
            ledger: Some(ledger),
            origin: Some(origin),
            next: size,
            head: Some(head),
            keys,
            standby,
            closed_at,
            lines: size,
            sparse: false,
        }
    }

    /// The ledger's id, once a genesis was accepted.
    #[must_use]
    pub const fn ledger(&self) -> Option<&Hash> {
        self.ledger.as_ref()
    }

    /// The ledger's name in checkpoints, once a genesis was accepted.
    #[must_use]
    pub const fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// The next sequence; the number of records when nothing was refused.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Record lines seen, refused ones too: the size of the Merkle tree.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Hash of the last line; zeros when there is none.
    #[must_use]
    pub fn head(&self) -> Hash {
        self.head.unwrap_or(Hash::ZERO)
    }

    /// Every key that was ever active, oldest first.
    #[must_use]
    pub fn keys(&self) -> &[ActiveKey] {
        &self.keys
    }

    /// The key that may sign the next record.
    #[must_use]
    pub fn active(&self) -> Option<&ActiveKey> {
        self.keys.last()
    }

    /// The key that signs a checkpoint of `size` records: the one active after record `size - 1`.
    #[must_use]
    pub fn key_at(&self, size: u64) -> Option<&ActiveKey> {
        self.keys.iter().rev().find(|active| active.from <= size)
    }

    /// Id of the offline key that may take over.
    #[must_use]
    pub const fn standby(&self) -> Option<&KeyId> {
        self.standby.as_ref()
    }

    /// The record that closed the ledger.
    #[must_use]
    pub const fn closed_at(&self) -> Option<u64> {
        self.closed_at
    }

    /// Takes the next line: reports everything that is wrong with it and moves on in every case.
    /// `bytes` is the line that `parsed` was read from.
    pub fn step(
        &mut self,
        parsed: &ParsedLine,
        bytes: &[u8],
        report: &mut dyn FnMut(Finding),
    ) -> Standing {
        self.step_checked(parsed, bytes, None, report)
    }

    /// As [`Self::step`], for a line whose signature was looked at before.
    pub fn step_checked(
        &mut self,
        parsed: &ParsedLine,
        bytes: &[u8],
        checked: Option<&Checked>,
        report: &mut dyn FnMut(Finding),
    ) -> Standing {
        self.step_proven(parsed, bytes, checked, None, report)
    }

    /// As [`Self::step_checked`], for a line of which it was looked at elsewhere whether it stands at its place;
    /// `unproven` is what is wrong with that.
    pub fn step_proven(
        &mut self,
        parsed: &ParsedLine,
        bytes: &[u8],
        checked: Option<&Checked>,
        unproven: Option<Finding>,
        report: &mut dyn FnMut(Finding),
    ) -> Standing {
        let sequence = parsed.head.as_ref().map_or(self.next, |head| head.sequence);
        let mut refused = false;
        let mut say = |finding: Finding| {
            refused = true;
            report(finding.at(sequence));
        };
        if let Err(problems) = &parsed.content {
            problems
                .iter()
                .for_each(|problem| say(form_finding(problem)));
        }
        if let Some(problem) = unproven {
            say(problem);
        }
        if self.closed_at.is_some() {
            say(Finding::new(
                Code::RecordAfterClose,
                "a record follows the one that closed the ledger",
            ));
        }
        if let Some(head) = &parsed.head {
            self.check_links(head, &mut say);
        }
        let genesis = match &parsed.content {
            Ok(Content::Record(record)) => match &record.body {
                Body::Genesis(genesis) => Some((genesis, record.ledger)),
                _ => None,
            },
            _ => None,
        };
        match (self.lines, genesis) {
            (0, Some((genesis, ledger))) => self.take_genesis(genesis, ledger, &mut say),
            (0, None) => say(Finding::new(
                Code::GenesisMissing,
                "the ledger does not begin with a genesis record",
            )),
            (_, Some(_)) => say(Finding::new(
                Code::GenesisRepeated,
                "a second genesis record",
            )),
            (_, None) => {}
        }
        let standby_signs = self.signed_by_standby(parsed);
        match &parsed.frame {
            Some(frame) if !standby_signs => {
                let checked = checked.filter(|checked| checked.line == parsed.hash);
                self.check_signature(frame, bytes, checked, &mut say);
            }
            None if parsed.content.is_ok() => {
                say(Finding::new(
                    Code::RecordMalformed,
                    "the envelope is not at its fixed offsets",
                ));
            }
            _ => {}
        }
        let change = match &parsed.content {
            Ok(Content::Record(record)) => match &record.body {
                Body::Key(change) => Some((change, record.as_ref())),
                _ => None,
            },
            _ => None,
        };
        let next_key = change.and_then(|(change, record)| {
            self.check_rotation(change, record, parsed, bytes, standby_signs, &mut say)
        });
        if refused {
            if self.lines == 0 {
                self.forget_genesis();
            }
            return self.advance(parsed, sequence, Standing::Refused);
        }
        match &parsed.content {
            Ok(Content::UnknownKind(kind)) => {
                report(unread(Code::RecordKindUnknown, "kind", excerpt(kind, 80)).at(sequence));
                return self.advance(parsed, sequence, Standing::Unread);
            }
            Ok(Content::UnknownVersion(version)) => {
                report(unread(Code::RecordVersionUnknown, "version", version).at(sequence));
                return self.advance(parsed, sequence, Standing::Unread);
            }
            Ok(Content::Record(record)) => {
                if let Some((key, custody)) = next_key {
                    self.keys.push(ActiveKey {
                        key,
                        custody,
                        from: sequence + 1,
                    });
                    if let (true, Body::Key(change)) = (standby_signs, &record.body) {
                        self.standby = change.standby;
                    }
                }
                if matches!(record.body, Body::Close(_)) {
                    self.closed_at = Some(sequence);
                }
            }
            Err(_) => {}
        }
        self.advance(parsed, sequence, Standing::Verified)
    }

    fn advance(&mut self, parsed: &ParsedLine, sequence: u64, standing: Standing) -> Standing {
        self.head = Some(parsed.hash);
        self.next = sequence.saturating_add(1);
        self.lines += 1;
        standing
    }

    fn check_links(&self, head: &Head, say: &mut dyn FnMut(Finding)) {
        // The first record is never left out.
        let left_out = self.sparse && self.lines > 0 && head.sequence > self.next;
        if head.sequence != self.next && !left_out {
            say(Finding::new(
                Code::ChainSequenceGap,
                if self.sparse {
                    "the record is shown twice, or out of order"
                } else {
                    "the record's number is not the next one"
                },
            )
            .versus(self.next, head.sequence));
        }
        if head.previous != self.head() && !left_out {
            say(Finding::new(
                Code::ChainPreviousMismatch,
                "the record does not link to the one before it",
            )
            .versus(self.head(), head.previous));
        }
        if let Some(ledger) = self.ledger
            && head.ledger != ledger
        {
            say(
                Finding::new(Code::LedgerMismatch, "the record belongs to another ledger")
                    .versus(ledger, head.ledger),
            );
        }
    }

    fn take_genesis(&mut self, genesis: &Genesis, ledger: Hash, say: &mut dyn FnMut(Finding)) {
        match PublicKey::from_bytes(&genesis.public_key.0) {
            Ok(key) => {
                self.ledger = Some(ledger);
                self.origin = Some(genesis.origin.clone());
                self.standby = genesis.standby;
                self.keys.push(ActiveKey {
                    key,
                    custody: genesis.custody,
                    from: 0,
                });
            }
            Err(error) => say(bad_key(error)),
        }
    }

    /// A refused genesis names no ledger and gives no key (TRUST.md §2).
    fn forget_genesis(&mut self) {
        self.ledger = None;
        self.origin = None;
        self.standby = None;
        self.keys.clear();
    }

    fn check_signature(
        &self,
        frame: &Frame,
        bytes: &[u8],
        checked: Option<&Checked>,
        say: &mut dyn FnMut(Finding),
    ) {
        let Some(active) = self.active() else {
            say(Finding::new(
                Code::KeyUnknown,
                "no valid genesis record names a key",
            ));
            return;
        };
        if frame.key != active.key.id() {
            say(
                Finding::new(Code::KeyUnknown, "signed by a key that is not active here")
                    .versus(active.key.id(), frame.key),
            );
            return;
        }
        let good = match checked {
            Some(checked) if checked.key == active.key => checked.good,
            _ => is_signed(&active.key, frame, bytes),
        };
        if !good {
            say(Finding::new(
                Code::SignatureInvalid,
                "the signature is not the key's over this record",
            ));
        }
    }
}

fn bad_key(error: PublicKeyError) -> Finding {
    let code = match error {
        PublicKeyError::Weak => Code::KeyWeak,
        PublicKeyError::NotAPoint => Code::RecordMalformed,
    };
    Finding::new(code, error.to_string())
}

fn unread(code: Code, what: &str, found: impl std::fmt::Display) -> Finding {
    Finding::new(
        code,
        format!("{what} {found} needs a newer verify; the body was not read"),
    )
    .help("install a newer verify and check again")
}

pub(in crate::file) fn form_finding(problem: &LineProblem) -> Finding {
    let code = match problem {
        LineProblem::TooLarge(_) => Code::RecordTooLarge,
        LineProblem::NotCanonical(_) => Code::RecordNotCanonical,
        LineProblem::Form(_) | LineProblem::Type(_) => Code::RecordMalformed,
    };
    Finding::new(code, problem.to_string())
}
