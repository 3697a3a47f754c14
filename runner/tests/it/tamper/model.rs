//! What is done to the lines of a ledger, and where that must be found.

use std::collections::BTreeSet;

use ledger::file::walk::Walked;
use ledger::finding::{Class, Code, Finding};
use ledger::record::{Opening, parse_line};
use proptest::prelude::*;
use proptest::sample::Index;

use super::real::{Real, is_opening, split};

/// What must be found in changed lines, and where first; lines count from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// The first line that is not what stood there, or an opening that is not its record's.
    pub(crate) first: Option<u64>,
    /// Records are missing at the end and nothing else shows it.
    pub(crate) shorter: bool,
    /// The last line has no newline, or is an opening.
    pub(crate) torn: bool,
    /// Records whose opening is gone.
    pub(crate) withheld: BTreeSet<u64>,
}

impl Model {
    /// `after` is held against the ledger that its genesis begins.
    pub(crate) fn of(real: &Real, after: &[Vec<u8>]) -> Self {
        let before = match after.first() == real.sibling.first() {
            true => &real.sibling,
            false => &real.lines,
        };
        // What is torn is not judged as a record.
        let torn_line = after.last().is_some_and(|line| !line.ends_with(b"\n"));
        let whole = &after[..after.len() - usize::from(torn_line)];
        let records = |lines: &[Vec<u8>]| -> Vec<(usize, Vec<u8>)> {
            let numbered = lines.iter().cloned().enumerate();
            numbered.filter(|(_, line)| !is_opening(line)).collect()
        };
        let (was, is) = (records(before), records(whole));
        let same = was.iter().zip(&is).take_while(|(a, b)| a.1 == b.1).count();
        let mut places: Vec<usize> = is.get(same).map(|(line, _)| *line).into_iter().collect();
        let opens = |opening: &Vec<u8>, record: &Vec<u8>| {
            let mut pairs = before.windows(2);
            is_opening(opening) && pairs.any(|pair| [opening, record] == [&pair[0], &pair[1]])
        };
        let known = |line: &Vec<u8>| real.lines.contains(line) || real.sibling.contains(line);
        for (at, line) in whole
            .iter()
            .enumerate()
            .filter(|(_, line)| is_opening(line))
        {
            let fits = match is.iter().position(|(place, _)| *place > at) {
                // Before a record of the ledger: only its own.
                Some(record) if record < same => opens(line, &is[record].1),
                // Before a line that is none: its number alone can be compared.
                Some(record) => {
                    known(line) && {
                        let content = is[record].1.strip_suffix(b"\n").unwrap();
                        let head = parse_line(content).head;
                        let named = Opening::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
                        head.is_none_or(|head| head.sequence == named.sequence.value())
                    }
                }
                // At the end: that of the next record is torn and no more.
                None => was.get(same).is_some_and(|(_, next)| opens(line, next)),
            };
            if !fits || (at > 0 && is_opening(&whole[at - 1])) {
                places.push(at);
            }
        }
        let shown = |record: &Vec<u8>| {
            let mut pairs = whole.windows(2);
            pairs.any(|pair| pair[1] == *record && opens(&pair[0], record))
        };
        let sealed = |record: &Vec<u8>| before.iter().any(|line| opens(line, record));
        let withheld = (0..).zip(&was[..same]);
        let withheld = withheld.filter(|(_, (_, record))| sealed(record) && !shown(record));
        Self {
            first: places.into_iter().min().map(|at| at as u64 + 1),
            shorter: is.len() == same && same < was.len(),
            torn: torn_line || whole.last().is_some_and(|line| is_opening(line)),
            withheld: withheld.map(|(sequence, _)| sequence).collect(),
        }
    }

    /// The exit code of `verify` for the lines alone.
    pub(crate) fn code(&self) -> u8 {
        match (self.first, self.torn) {
            (Some(_), _) => 10,
            (None, true) => 11,
            (None, false) => 0,
        }
    }

    /// Holds a walk against it.
    pub(crate) fn holds(&self, walked: Walked) -> Result<Vec<Finding>, TestCaseError> {
        let code = walked.findings.exit_code(walked.tally.records.max(1));
        let list = walked.findings.into_list();
        prop_assert_eq!(code, self.code(), "{:?}: {:#?}", self, list);
        let invalid = list.iter().filter(|it| it.code.class() == Class::Invalid);
        let first = invalid.filter_map(|it| it.place.as_ref()?.line).min();
        prop_assert_eq!(first, self.first, "{:#?}", list);
        let torn = list.iter().any(|finding| finding.code == Code::TornTail);
        prop_assert_eq!(torn, self.torn, "{:#?}", list);
        if self.first.is_none() {
            let withheld = list.iter().find(|it| it.code == Code::OpeningWithheld);
            let first = withheld.and_then(|finding| finding.sequence);
            prop_assert_eq!(first, self.withheld.first().copied(), "{:#?}", list);
        }
        Ok(list)
    }
}

/// One thing done to the lines of a ledger.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Flip(Index, u8),
    Delete(Index),
    Repeat(Index, Index),
    Move(Index, Index),
    Swap(Index, Index),
    Insert(Index, Vec<u8>),
    /// The rest of a line is cut off, its newline too or not.
    Truncate(Index, Index, bool),
    /// The file ends here.
    Cut(Index),
    /// A line of the sibling is put before a line, or in its place.
    Mix(Index, Index, bool),
    /// So many lines are the sibling's.
    Graft(Index),
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    let text = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60),
        Just(b"{\"key\":\"\"}".to_vec()),
        Just(b"{\"open\":{},\"sequence\":1}".to_vec()),
    ];
    prop_oneof![
        6 => (at(), 0..8u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        2 => at().prop_map(Change::Delete),
        2 => (at(), at()).prop_map(|(line, to)| Change::Repeat(line, to)),
        2 => (at(), at()).prop_map(|(line, to)| Change::Move(line, to)),
        2 => (at(), at()).prop_map(|(line, other)| Change::Swap(line, other)),
        2 => (at(), text).prop_map(|(line, text)| Change::Insert(line, text)),
        2 => (at(), at(), any::<bool>()).prop_map(|(line, at, joined)| Change::Truncate(line, at, joined)),
        1 => at().prop_map(Change::Cut),
        3 => (at(), at(), any::<bool>()).prop_map(|(line, to, replaces)| Change::Mix(line, to, replaces)),
        1 => at().prop_map(Change::Graft),
    ]
}

impl Change {
    pub(crate) fn made(&self, real: &Real) -> Vec<Vec<u8>> {
        let mut lines = real.lines.clone();
        let count = lines.len();
        match self {
            Self::Flip(at, bit) => {
                let mut bytes = lines.concat();
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
                lines = split(&bytes);
            }
            Self::Delete(line) => drop(lines.remove(line.index(count))),
            Self::Repeat(line, to) => {
                let line = lines[line.index(count)].clone();
                lines.insert(to.index(count + 1), line);
            }
            Self::Move(line, to) => {
                let line = lines.remove(line.index(count));
                lines.insert(to.index(count), line);
            }
            Self::Swap(line, other) => lines.swap(line.index(count), other.index(count)),
            Self::Insert(line, text) => {
                let text = [text.as_slice(), b"\n"].concat();
                lines.insert(line.index(count + 1), text);
                lines = split(&lines.concat());
            }
            Self::Truncate(line, at, joined) => {
                let line = &mut lines[line.index(count)];
                line.truncate(at.index(line.len() - 1));
                if !joined {
                    line.push(b'\n');
                }
                lines = split(&lines.concat());
            }
            Self::Cut(at) => {
                let mut bytes = lines.concat();
                bytes.truncate(at.index(bytes.len()));
                lines = split(&bytes);
            }
            Self::Mix(line, to, replaces) => {
                let line = real.sibling[line.index(real.sibling.len())].clone();
                if *replaces {
                    lines[to.index(count)] = line;
                } else {
                    lines.insert(to.index(count + 1), line);
                }
            }
            Self::Graft(until) => {
                let until = until.index(count);
                lines.splice(..until, real.sibling[..until].iter().cloned());
            }
        }
        lines
    }
}
