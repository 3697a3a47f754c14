//! Checkpoints held against the tree of the ledger's own lines.

use super::{Extract, Findings};
use crate::bytes::hash::{Hash, to_hex};
use crate::bytes::time::Timestamp;
use crate::file::chain::Chain;
use crate::finding::{Code, Finding, Place};
use crate::proof::checkpoint::{
    Checkpoint, ReadCheckpointError, SignedCheckpoint, counts_as_absent,
};
use crate::proof::tree::Frontier;

/// A checkpoint that the reader holds, from outside the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// What to call it in findings: its path.
    pub name: &'a str,
    /// The signed note.
    pub bytes: &'a [u8],
}

/// Whether something outside a statement's subject bears it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assured {
    /// It does.
    Established,
    /// Nothing does.
    NotEstablished,
    /// It is contradicted.
    Broken,
}

impl Assured {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::NotEstablished => "not-established",
            Self::Broken => "broken",
        }
    }
}

/// What shows how long a ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompleteBy {
    /// A checkpoint that the reader holds.
    Given,
    /// A witness's cosignature.
    Witness,
    /// The record that closed the ledger.
    Closed,
}

impl CompleteBy {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Witness => "witness",
            Self::Closed => "closed",
        }
    }
}

/// How far the ledger is known to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completeness {
    /// Whether that is known at all.
    pub status: Assured,
    /// The last record that is covered.
    pub through: Option<u64>,
    /// How many later records are not covered.
    pub after: u64,
    /// When somebody else saw that; only witnesses say it.
    pub as_of: Option<Timestamp>,
    /// Who says so.
    pub by: Option<CompleteBy>,
}

impl Completeness {
    /// Whether the newest record is covered.
    #[must_use]
    pub fn covers_head(&self) -> bool {
        self.status == Assured::Established && self.after == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Stored,
    Given,
}

/// One checkpoint, and the ledger's root at its size once the walk got there.
struct Claim<'a> {
    held: Held,
    name: &'a str,
    parsed: Result<SignedCheckpoint, ReadCheckpointError>,
    root: Option<Hash>,
    /// Records are left out, so that nothing shows the root at its size.
    apart: bool,
}

/// The checkpoints of one walk.
pub(super) struct Checkpoints<'a>(Vec<Claim<'a>>);

/// What the checkpoints came to.
pub(super) struct Outcome {
    pub(super) checked: u64,
    pub(super) completeness: Completeness,
    /// Sizes that a ledger key signed and that this ledger contradicts.
    pub(super) contradicted: Vec<u64>,
    /// The root that the stored one speaks of.
    pub(super) stored_root: Option<Hash>,
}

impl<'a> Checkpoints<'a> {
    pub(super) fn new(stored: Option<&[u8]>, given: Option<Given<'a>>) -> Self {
        let stored = stored
            .filter(|bytes| !counts_as_absent(bytes))
            .map(|bytes| (Held::Stored, "checkpoint", bytes));
        let given = given.map(|given| (Held::Given, given.name, given.bytes));
        let mut claims = Vec::new();
        for (held, name, bytes) in stored.into_iter().chain(given) {
            claims.push(Claim {
                held,
                name,
                parsed: SignedCheckpoint::parse(bytes),
                root: None,
                apart: false,
            });
        }
        Self(claims)
    }

    /// What the stored one says, before anybody checked who says it.
    pub(super) fn stored(&self) -> Option<&Checkpoint> {
        let stored = self.0.iter().find(|claim| claim.held == Held::Stored)?;
        stored.parsed.as_ref().ok().map(SignedCheckpoint::claim)
    }

    /// Notes the root where a checkpoint speaks about this size.
    pub(super) fn at(&mut self, tree: &Frontier) {
        for claim in &mut self.0 {
            if let Ok(signed) = &claim.parsed
                && signed.claim().size == tree.size()
            {
                claim.root = Some(tree.root());
            }
        }
    }

    /// Judges them once the last line was read, of a bundle once its proofs were held against the stored one.
    pub(super) fn judge(
        mut self,
        chain: &Chain,
        extract: Option<&Extract>,
        findings: &mut Findings,
    ) -> Outcome {
        let stored = self.stored().cloned();
        let mut lines = chain.lines();
        if let (Some(extract), Some(stored)) = (extract, &stored)
            && extract.withheld > 0
        {
            lines = if lines == 0 { 0 } else { stored.size };
            self.of_extract(stored);
        }
        let mut outcome = Outcome {
            checked: self.0.len() as u64,
            completeness: Completeness {
                status: Assured::NotEstablished,
                through: None,
                after: lines,
                as_of: None,
                by: None,
            },
            contradicted: Vec::new(),
            stored_root: stored.map(|stored| stored.root),
        };
        for claim in self.0 {
            match claim.judge(chain, lines) {
                // One of no records covers none of them.
                Ok(size) if claim.held == Held::Given && size > 0 => {
                    outcome.completeness.status = Assured::Established;
                    outcome.completeness.through = size.checked_sub(1);
                    outcome.completeness.after = lines.saturating_sub(size);
                    outcome.completeness.by = Some(CompleteBy::Given);
                }
                Ok(_) => {}
                Err(finding) => {
                    if let (Code::CheckpointFork | Code::TailTruncated, Ok(signed)) =
                        (finding.code, &claim.parsed)
                    {
                        outcome.contradicted.push(signed.claim().size);
                    }
                    findings.push(*finding);
                }
            }
        }
        if extract.is_some_and(|extract| extract.withheld > 0) {
            // Nothing is known of what was withheld.
            outcome.completeness.status = Assured::NotEstablished;
            outcome.completeness.through = None;
            outcome.completeness.after = lines;
            outcome.completeness.by = None;
        }
        let closed = chain.closed_at().filter(|at| {
            at.checked_add(1) == Some(chain.next()) && extract.is_none_or(|it| it.withheld == 0)
        });
        if closed.is_some() {
            outcome.completeness = Completeness {
                status: Assured::Established,
                through: closed,
                after: 0,
                as_of: None,
                by: Some(CompleteBy::Closed),
            };
        }
        let broken = [
            Code::CheckpointFork,
            Code::TailTruncated,
            Code::LedgerReplaced,
        ];
        if broken.iter().any(|code| findings.count(*code) > 0) {
            outcome.completeness = Completeness {
                status: Assured::Broken,
                through: None,
                after: lines,
                as_of: None,
                by: None,
            };
        }
        outcome
    }
}

impl Checkpoints<'_> {
    /// Where records are left out, roots are known at the size of the stored one, to which the proofs lead, and as far as
    /// the records from the first on are all shown.
    fn of_extract(&mut self, stored: &Checkpoint) {
        for claim in &mut self.0 {
            let Ok(signed) = &claim.parsed else { continue };
            let size = signed.claim().size;
            if size == stored.size {
                claim.root = claim.root.or(Some(stored.root));
            }
            claim.apart = claim.root.is_none() && size > 0;
        }
    }
}

impl Claim<'_> {
    /// The size that it vouches for, or what is wrong.
    fn judge(&self, chain: &Chain, lines: u64) -> Result<u64, Box<Finding>> {
        let place = Place {
            file: self.name.to_owned(),
            line: None,
        };
        let say = |code, message: String| Finding::new(code, message).in_place(place.clone());
        let invalid = |message: String| Err(Box::new(say(Code::CheckpointInvalid, message)));
        let signed = match &self.parsed {
            Ok(signed) => signed,
            Err(error) => return invalid(error.to_string()),
        };
        let claim = signed.claim();
        let truncated = |message: &str| {
            Err(Box::new(
                say(Code::TailTruncated, message.to_owned())
                    .versus(
                        format!("{} records or more", claim.size),
                        format!("{lines} records"),
                    )
                    .help("find out where the missing records went before trusting the rest"),
            ))
        };
        if lines == 0 && claim.size > 0 {
            return truncated("the ledger has no records, and a checkpoint says that it had");
        }
        let Some(active) = chain.key_at(claim.size) else {
            return invalid("the ledger shows no key that could have signed it".to_owned());
        };
        if let Err(error) = signed.signed_by(&active.key) {
            let earlier = chain
                .keys()
                .iter()
                .any(|key| signed.signed_by(&key.key).is_ok());
            if self.held == Held::Given && !earlier && !self.names_a_known_key(chain) {
                let own = chain
                    .origin()
                    .is_some_and(|own| own.as_str() == claim.origin);
                // The change to its key may stand behind the bundle's records.
                if self.apart && claim.size > lines && own {
                    return Err(Box::new(say(
                        Code::CompletenessNotEstablished,
                        apart(claim, lines),
                    )));
                }
                return Err(Box::new(self.replaced(chain, say, signed)));
            }
            return invalid(if earlier {
                format!(
                    "it is signed by a key that was not active after record {}",
                    claim.size.saturating_sub(1)
                )
            } else {
                error.to_string()
            });
        }
        if let Some(origin) = chain.origin()
            && origin.as_str() != claim.origin
        {
            let message = "it is of another ledger".to_owned();
            return Err(Box::new(
                say(Code::CheckpointInvalid, message).versus(origin.as_str(), &claim.origin),
            ));
        }
        if self.apart {
            return Err(Box::new(
                say(Code::CompletenessNotEstablished, apart(claim, lines)).help(
                    "ask for a bundle of all records, or give the checkpoint of the bundle's size",
                ),
            ));
        }
        if claim.size > lines {
            return truncated("the ledger is shorter than a checkpoint by its own key says");
        }
        let root = if claim.size == 0 {
            Some(Frontier::new().root())
        } else {
            self.root
        };
        match root {
            Some(root) if root == claim.root => Ok(claim.size),
            Some(root) => Err(Box::new(
                say(
                    Code::CheckpointFork,
                    format!(
                        "the first {} records are not those that this checkpoint was signed for",
                        claim.size
                    ),
                )
                .versus(claim.root, root)
                .help(
                    "where other findings name changed records, that is why; else the ledger's key signed two \
                     histories: keep both, they prove it together",
                ),
            )),
            None => invalid("the ledger's root at its size is not known".to_owned()),
        }
    }

    /// Whether a signature line carries the key id of a key of this ledger, valid or not.
    fn names_a_known_key(&self, chain: &Chain) -> bool {
        use crate::proof::signed_note::{NoteKey, NoteKeyType};
        let Ok(signed) = &self.parsed else {
            return false;
        };
        let name = &signed.claim().origin;
        chain.keys().iter().any(|key| {
            NoteKey::new(name, NoteKeyType::Ed25519, key.key).is_ok_and(|known| {
                let lines = signed.note().signatures();
                lines
                    .iter()
                    .any(|line| line.name == *name && line.key_id == known.id())
            })
        })
    }

    fn replaced(
        &self,
        chain: &Chain,
        say: impl Fn(Code, String) -> Finding,
        signed: &SignedCheckpoint,
    ) -> Finding {
        let lines = signed.note().signatures();
        let by: Vec<_> = lines
            .iter()
            .map(|line| format!("{}+{}", line.name, to_hex(&line.key_id)))
            .collect();
        let origin = chain.origin().map_or("", |origin| origin.as_str());
        say(
            Code::LedgerReplaced,
            "the given checkpoint is signed by no key of this ledger".to_owned(),
        )
        .versus(&signed.claim().origin, origin)
        .help(format!(
            "signed by {}, which this ledger does not know",
            by.join(", ")
        ))
    }
}

fn apart(claim: &Checkpoint, lines: u64) -> String {
    format!(
        "the bundle is of {lines} records and does not show all of them, so that nothing says whether the {} of this checkpoint are the same",
        claim.size
    )
}
