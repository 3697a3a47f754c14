//! References between records: they point backwards, at something of the right kind.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ledger::bytes::hash::from_hex;
use ledger::bytes::time::BootId;
use ledger::facts::host::HostFacts;
use ledger::file::walk::{Findings, Shown};
use ledger::finding::Code;

/// What stands at a sequence, as far as references care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A host record.
    Host,
    /// A start whose end was not seen.
    Start,
    /// A start that ended.
    Ended,
    /// A run of a probe.
    Probe,
    /// A run of a probe that a matrix named.
    Taken,
    /// A matrix.
    Matrix,
    /// Any other record.
    Other,
    /// A line that did not verify or needs a newer reader: nothing is said about references to it.
    Unverified,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "a host record",
            Self::Start => "a start record",
            Self::Ended => "a start that ended already",
            Self::Probe => "a probe record",
            Self::Taken => "a probe record that an earlier matrix counted",
            Self::Matrix => "a matrix record",
            Self::Other => "a record of another kind",
            Self::Unverified => "a record that did not verify",
        }
    }
}

/// One byte for each sequence, in unbroken stretches: a ledger with gaps has several.
#[derive(Debug, Default)]
pub(super) struct Kinds(BTreeMap<u64, Vec<Kind>>);

impl Kinds {
    fn find(&self, sequence: u64) -> Option<Kind> {
        let (first, stretch) = self.0.range(..=sequence).next_back()?;
        let at = usize::try_from(sequence - first).ok()?;
        stretch.get(at).copied()
    }

    /// Notes what stands at a sequence.
    pub(super) fn put(&mut self, sequence: u64, kind: Kind) {
        if let Some((first, stretch)) = self.0.range_mut(..=sequence).next_back()
            && let Ok(at) = usize::try_from(sequence - first)
        {
            if let Some(known) = stretch.get_mut(at) {
                *known = kind;
                return;
            }
            if at == stretch.len() {
                stretch.push(kind);
                return;
            }
        }
        self.0.insert(sequence, vec![kind]);
    }

    /// As [`Self::put`], but what is known already stays.
    pub(super) fn put_new(&mut self, sequence: u64, kind: Kind) {
        if self.find(sequence).is_none() {
            self.put(sequence, kind);
        }
    }

    /// Whether the record at `target` is of the kind that the field of this record needs.
    pub(super) fn expect(
        &self,
        shown: &Shown<'_>,
        field: &str,
        target: u64,
        wanted: Kind,
        findings: &mut Findings,
    ) -> bool {
        let found = if target >= shown.record.sequence.value() {
            "a record that does not stand before it"
        } else {
            match self.find(target) {
                Some(kind) if kind == wanted => return true,
                Some(Kind::Unverified) => return false,
                Some(kind) => kind.as_str(),
                None => "nothing",
            }
        };
        findings.push(
            shown
                .finding(
                    Code::ReferenceInvalid,
                    format!("{field} names record {target}"),
                )
                .versus(wanted.as_str(), found),
        );
        false
    }
}

/// Host records whose facts are kept. A run names the newest one, so the last few are enough.
const FACTS: usize = 16;

/// Which boot each host record belongs to, and the facts of the last few.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    boots: BTreeMap<u64, [u8; 16]>,
    last: VecDeque<(u64, Arc<HostFacts>)>,
}

impl Hosts {
    pub(super) fn put(&mut self, sequence: u64, facts: &HostFacts) {
        self.boots.insert(sequence, bytes_of(&facts.boot_id));
        if self.last.len() == FACTS {
            self.last.pop_front();
        }
        self.last.push_back((sequence, Arc::new(facts.clone())));
    }

    /// The facts of a host record, when it is one of the last few.
    pub(super) fn facts(&self, sequence: u64) -> Option<Arc<HostFacts>> {
        let mut last = self.last.iter().rev();
        last.find_map(|(at, facts)| (*at == sequence).then(|| Arc::clone(facts)))
    }

    /// A start refers to facts of the boot that it ran under.
    pub(super) fn check(&self, shown: &Shown<'_>, host: u64, findings: &mut Findings) {
        let boot = &shown.record.clock.boot_id;
        if self
            .boots
            .get(&host)
            .is_some_and(|known| *known != bytes_of(boot))
        {
            findings.push(
                shown
                    .finding(
                        Code::HostStale,
                        format!(
                            "the run began in boot {boot}, and host record {host} is of another"
                        ),
                    )
                    .help("what the host could do then says nothing about what it could do here"),
            );
        }
    }
}

fn bytes_of(boot: &BootId) -> [u8; 16] {
    // A boot id is a lower-case UUID by type, so its digits always read.
    from_hex(&boot.to_string().replace('-', "")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_hold_what_was_put() {
        let mut kinds = Kinds::default();
        for sequence in 0..10 {
            kinds.put(sequence, Kind::Other);
        }
        kinds.put(1 << 52, Kind::Start);
        kinds.put((1 << 52) + 1, Kind::Host);
        kinds.put(3, Kind::Host);
        kinds.put_new(3, Kind::Unverified);
        kinds.put_new(10, Kind::Unverified);
        assert_eq!(kinds.find(3), Some(Kind::Host));
        assert_eq!(kinds.find(10), Some(Kind::Unverified));
        assert_eq!(kinds.find(11), None);
        assert_eq!(kinds.find(1 << 52), Some(Kind::Start));
        assert_eq!(kinds.find((1 << 52) + 1), Some(Kind::Host));
        assert_eq!(kinds.0.len(), 2);
    }
}
