//! Which matrix is the newest for a user, tier (of a template: its document), runtime and policy: part of the derived state, so that a start record can
//! name it and no old record is read for that.
//!
//! A matrix names its runs by number, and what tier they had stands in their starts. So the newest run of each runtime in
//! the arm `run` is kept until a matrix names it. What cannot be told from that (cells in a blob, a matrix of runs that
//! others followed) takes away what was known instead: a start names none rather than one that is not the newest.

use serde::{Deserialize, Serialize};

use crate::bytes::canon::U53;
use crate::facts::execution::RuntimeUsed;
use crate::facts::list::List;
use crate::facts::matrix::Matrix;

/// Most matrices, and most runs, that are kept; the oldest are forgotten first.
const MOST: usize = 32;
/// Longest name of a runtime, tier or policy of which a matrix is kept, in bytes.
const MOST_BYTES: usize = 256;

/// A matrix, for what it is the newest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Newest {
    policy: String,
    runtime: String,
    sequence: U53,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    uid: u32,
}

/// The newest probe record of a runtime in the arm `run` that no matrix has named yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Probed {
    runtime: String,
    sequence: U53,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
}

/// What is known of matrices.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) matrices: Vec<Newest>,
    pub(super) probed: Vec<Probed>,
}

impl Measured {
    /// Takes a probe record of the arm `run`.
    pub(super) fn probed(&mut self, sequence: U53, runtime: String, tier: Option<String>) {
        self.probed.retain(|probed| probed.runtime != runtime);
        if runtime.len() > MOST_BYTES || tier.as_ref().is_some_and(|tier| tier.len() > MOST_BYTES) {
            return;
        }
        if self.probed.len() >= MOST {
            self.probed.remove(0);
        }
        self.probed.push(Probed {
            runtime,
            sequence,
            tier,
        });
    }

    /// Takes a matrix record; `host` is the newest host record and its user.
    pub(super) fn matrix(&mut self, sequence: U53, matrix: &Matrix, host: Option<(U53, u32)>) {
        let uid = host.and_then(|(host, uid)| (host == matrix.host).then_some(uid));
        let List::Inline(cells) = &matrix.cells else {
            let policy = &matrix.policy.id;
            self.matrices.retain(|newest| newest.policy != *policy);
            return;
        };
        let mut runtimes: Vec<&str> = cells.iter().map(|cell| cell.runtime.as_str()).collect();
        runtimes.sort_unstable();
        runtimes.dedup();
        for runtime in runtimes {
            let named = |probed: &&Probed| {
                let mut of = cells.iter().filter(|cell| cell.runtime == runtime);
                probed.runtime == runtime && of.any(|cell| cell.run == Some(probed.sequence))
            };
            let tier = self.probed.iter().find(named).map(|it| it.tier.clone());
            let policy = matrix.policy.id.clone();
            let (Some(uid), Some(tier)) = (uid, tier) else {
                // Whatever it is the newest of: nothing is known of that any more.
                let of = |newest: &Newest| newest.runtime == runtime && newest.policy == policy;
                self.matrices.retain(|newest| !of(newest));
                continue;
            };
            let newest = Newest {
                policy,
                runtime: runtime.to_owned(),
                sequence,
                tier,
                uid,
            };
            self.probed.retain(|probed| probed.runtime != runtime);
            self.matrices
                .retain(|before| !before.is_for_the_same(&newest));
            if newest.policy.len() > MOST_BYTES {
                continue;
            }
            if self.matrices.len() >= MOST {
                self.matrices.remove(0);
            }
            self.matrices.push(newest);
        }
    }

    /// The newest matrix for a user, tier, runtime and policy.
    pub(super) fn newest(&self, uid: u32, runtime: &RuntimeUsed, policy: &str) -> Option<U53> {
        let found = self.matrices.iter().find(|newest| {
            newest.uid == uid
                && newest.tier.as_deref() == runtime.kind()
                && newest.runtime == runtime.id
                && newest.policy == policy
        });
        found.map(|newest| newest.sequence)
    }
}

impl Newest {
    fn is_for_the_same(&self, other: &Self) -> bool {
        (self.uid, &self.tier, &self.runtime, &self.policy)
            == (other.uid, &other.tier, &other.runtime, &other.policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hash::Hash;
    use crate::facts::execution::PolicyRef;
    use crate::facts::list::BlobList;
    use crate::facts::matrix::{Cell, CellVerdict};

    fn number(n: u64) -> U53 {
        U53::new(n).unwrap()
    }

    fn matrix(host: u64, policy: &str, runs: &[(&str, u64)]) -> Matrix {
        let cells = runs.iter().map(|(runtime, run)| Cell {
            ablation: None,
            baseline: None,
            check: "network/tcp4".to_owned(),
            declared: true,
            reason: None,
            run: Some(number(*run)),
            runtime: (*runtime).to_owned(),
            verdict: CellVerdict::Contained,
        });
        Matrix {
            cells: List::Inline(cells.collect()),
            host: number(host),
            policy: PolicyRef {
                id: policy.to_owned(),
                sha256: Hash::of(b""),
            },
            suite: Hash::of(b""),
        }
    }

    fn used(runtime: &str, tier: Option<&str>) -> RuntimeUsed {
        RuntimeUsed {
            id: runtime.to_owned(),
            launch: None,
            sha256: None,
            tier: tier.map(str::to_owned),
            version: "1".to_owned(),
        }
    }

    /// A state that knows a matrix of two runtimes.
    fn known() -> Measured {
        let mut measured = Measured::default();
        measured.probed(number(5), "embedded".to_owned(), Some("whole".to_owned()));
        measured.probed(number(7), "embedded".to_owned(), Some("whole".to_owned()));
        measured.probed(number(9), "native".to_owned(), None);
        let first = matrix(1, "standard", &[("embedded", 7), ("native", 9)]);
        measured.matrix(number(10), &first, Some((number(1), 1000)));
        measured
    }

    #[test]
    fn a_matrix_is_the_newest_for_one_user_tier_runtime_and_policy() {
        let measured = known();
        let embedded = used("embedded", Some("whole"));
        assert_eq!(
            measured.newest(1000, &embedded, "standard"),
            Some(number(10))
        );
        assert_eq!(
            measured.newest(1000, &used("native", None), "standard"),
            Some(number(10))
        );
        for (uid, runtime, policy) in [
            (0, &embedded, "standard"),
            (1000, &embedded, "minimal"),
            (1000, &used("embedded", None), "standard"),
            (1000, &used("bwrap", Some("whole")), "standard"),
        ] {
            assert_eq!(measured.newest(uid, runtime, policy), None);
        }
        assert!(measured.probed.is_empty());
    }

    #[test]
    fn a_matrix_of_another_template_of_the_same_name_is_not_named() {
        let template = |hash: &str| RuntimeUsed {
            version: format!("1 template:{hash}"),
            ..used("box", None)
        };
        let mut measured = known();
        let honest = template("00112233aabbccdd");
        let kind = honest.kind().map(str::to_owned);
        measured.probed(number(12), "box".to_owned(), kind);
        let second = matrix(1, "standard", &[("box", 12)]);
        measured.matrix(number(13), &second, Some((number(1), 1000)));
        assert_eq!(measured.newest(1000, &honest, "standard"), Some(number(13)));
        for other in [template("00112233aabbccde"), used("box", None)] {
            assert_eq!(measured.newest(1000, &other, "standard"), None);
        }
    }

    #[test]
    fn a_newer_one_takes_its_place() {
        let mut measured = known();
        measured.probed(number(12), "embedded".to_owned(), Some("whole".to_owned()));
        let second = matrix(1, "standard", &[("embedded", 12)]);
        measured.matrix(number(13), &second, Some((number(1), 1000)));
        let embedded = used("embedded", Some("whole"));
        assert_eq!(
            measured.newest(1000, &embedded, "standard"),
            Some(number(13))
        );
        assert_eq!(
            measured.newest(1000, &used("native", None), "standard"),
            Some(number(10))
        );
        assert_eq!(measured.matrices.len(), 2);
    }

    #[test]
    fn what_cannot_be_told_names_none() {
        let embedded = used("embedded", Some("whole"));
        let probed = |measured: &mut Measured| {
            measured.probed(number(12), "embedded".to_owned(), Some("whole".to_owned()));
        };
        // Another host record came between; a run of another matrix did; its runs are not known.
        for (host, run) in [(2, 12), (1, 11), (1, 7)] {
            let mut measured = known();
            probed(&mut measured);
            let odd = matrix(1, "standard", &[("embedded", run)]);
            measured.matrix(number(13), &odd, Some((number(host), 1000)));
            assert_eq!(
                measured.newest(1000, &embedded, "standard"),
                None,
                "{host} {run}"
            );
        }
        let mut measured = known();
        probed(&mut measured);
        let mut many = matrix(1, "standard", &[]);
        many.cells = List::Blob(BlobList {
            blob: Hash::of(b""),
            count: number(4_000),
        });
        measured.matrix(number(13), &many, Some((number(1), 1000)));
        assert!(measured.matrices.is_empty());
    }

    #[test]
    fn no_more_is_kept_than_fits_a_small_file() {
        let mut measured = Measured::default();
        for n in 1..200 {
            measured.probed(number(2 * n), format!("runtime-{n}"), None);
            if n % 2 == 0 {
                let runtime = format!("runtime-{n}");
                let one = matrix(1, "standard", &[(&runtime, 2 * n)]);
                measured.matrix(number(2 * n + 1), &one, Some((number(1), 0)));
            }
        }
        assert_eq!(
            (measured.matrices.len(), measured.probed.len()),
            (MOST, MOST)
        );
        assert_eq!(
            measured.newest(0, &used("runtime-198", None), "standard"),
            Some(number(397))
        );
        let long = "x".repeat(MOST_BYTES + 1);
        measured.probed(number(500), long.clone(), None);
        let odd = matrix(1, "standard", &[(&long, 500)]);
        measured.matrix(number(501), &odd, Some((number(1), 0)));
        assert_eq!(measured.newest(0, &used(&long, None), "standard"), None);
    }
}
