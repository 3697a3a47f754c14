//! Everything that was found, in bounded memory.

use std::collections::{BTreeMap, HashMap};

use crate::finding::{Class, Code, Finding};

/// How many findings of one code are kept in full.
pub const KEPT_PER_CODE: u64 = 1_000;

/// Collects findings: the first 1,000 of each code in full, then their number.
#[derive(Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    totals: BTreeMap<Code, Total>,
    unknown_keys: HashMap<(Option<String>, Option<String>), usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    problems: u64,
    kept: u64,
    /// Problems that no kept finding stands for.
    beyond: u64,
}

impl Findings {
    /// Takes one. Unknown keys of the same cause become one finding with a count: a refused genesis or
    /// rotation would otherwise repeat itself on every record that follows.
    pub fn push(&mut self, finding: Finding) {
        let total = self.totals.entry(finding.code).or_default();
        total.problems += finding.count;
        if finding.code == Code::KeyUnknown {
            let cause = (finding.expected.clone(), finding.found.clone());
            if let Some(first) = self.unknown_keys.get(&cause) {
                if let Some(first) = self.kept.get_mut(*first) {
                    first.count += finding.count;
                }
                return;
            }
            if total.kept < KEPT_PER_CODE {
                self.unknown_keys.insert(cause, self.kept.len());
            }
        }
        if total.kept < KEPT_PER_CODE {
            total.kept += 1;
            self.kept.push(finding);
        } else {
            total.beyond += finding.count;
        }
    }

    /// How many problems of this code there are, kept or not.
    #[must_use]
    pub fn count(&self, code: Code) -> u64 {
        self.totals.get(&code).map_or(0, |total| total.problems)
    }

    /// The codes that were found, with the number of problems.
    pub fn codes(&self) -> impl Iterator<Item = (Code, u64)> + '_ {
        self.totals
            .iter()
            .map(|(code, total)| (*code, total.problems))
    }

    /// The worst class among them.
    #[must_use]
    pub fn worst(&self) -> Option<Class> {
        self.totals.keys().map(|code| code.class()).min()
    }

    /// Whether something of this class was found.
    #[must_use]
    pub fn any(&self, class: Class) -> bool {
        self.totals.keys().any(|code| code.class() == class)
    }

    /// The exit code of `verify` for these findings about a ledger with so many records (DESIGN.md §6):
    /// an empty ledger is never green.
    #[must_use]
    pub fn exit_code(&self, records: u64) -> u8 {
        match self.worst().map_or(0, Class::exit_code) {
            0 if records == 0 => 13,
            code => code,
        }
    }

    /// The kept findings, worst class first and otherwise in the order in which they were found; for
    /// each code with more than are kept a last one that says how many more.
    #[must_use]
    pub fn into_list(self) -> Vec<Finding> {
        let mut list = self.kept;
        for (code, total) in self.totals {
            if total.beyond > 0 {
                let mut rest = Finding::new(code, format!("{} more of this code", total.beyond));
                rest.count = total.beyond;
                list.push(rest);
            }
        }
        list.sort_by_key(|finding| finding.code.class());
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_thousand_of_a_code_and_counts_the_rest() {
        let mut findings = Findings::default();
        for sequence in 0..1_500 {
            findings.push(Finding::new(Code::SignatureInvalid, "bad").at(sequence));
        }
        findings.push(Finding::new(Code::ClockStep, "back"));
        assert_eq!(findings.count(Code::SignatureInvalid), 1_500);
        assert_eq!(findings.worst(), Some(Class::Invalid));
        let list = findings.into_list();
        assert_eq!(list.len(), 1_002);
        assert_eq!(list.iter().map(|finding| finding.count).sum::<u64>(), 1_501);
        assert_eq!(list.last().unwrap().code, Code::ClockStep);
    }

    #[test]
    fn unknown_keys_of_one_cause_are_one_finding() {
        let mut findings = Findings::default();
        for found in ["a", "b", "a", "a"] {
            findings.push(Finding::new(Code::KeyUnknown, "unknown").versus("k", found));
        }
        let list = findings.into_list();
        let counts: Vec<_> = list.iter().map(|finding| finding.count).collect();
        assert_eq!(counts, [3, 1]);
    }
}
