//! What a scan could not see, in few words however much it is.

use std::collections::BTreeMap;

use ledger::bytes::canon::escape_bytes;
use ledger::facts::execution::Unmeasured;
use nix::errno::Errno;

/// More entries, or longer paths, than the limits allow: the list is not all there is.
pub const TOO_MANY: &str = "too-many";
/// A file or folder could not be read.
pub const UNREADABLE: &str = "unreadable";
/// Something is mounted there; what it holds was not looked at.
pub const OTHER_MOUNT: &str = "other-mount";
/// A file is too long to be hashed within the limit.
pub const OVER_BUDGET: &str = "over-budget";
/// The operator did not wait: what has no hash was not hashed for that reason.
pub const INTERRUPTED: &str = "interrupted";
/// The run's deadline was over: what has no hash was not hashed for that reason.
pub const OUT_OF_TIME: &str = "out-of-time";
/// Nor was there time to list the rest (beside one of the two before): the list is not all there is.
pub const INCOMPLETE: &str = "incomplete";
/// It was moved, replaced or written to while it was looked at.
pub const CHANGED: &str = "changed-while-scanned";
/// What was there before the run is not known in full: where it is not, a file counts as changed by the time
/// of its last change, so what was only moved may be missing from the list.
pub const SNAPSHOT_INCOMPLETE: &str = "snapshot-incomplete";

/// How many paths are named for one reason; of the others only the number is said.
const NAMED: usize = 4;
/// How much of a path is named.
const PATH_CHARS: usize = 256;

/// Collects reasons and the paths they stand for.
#[derive(Debug, Default)]
pub(super) struct Problems(BTreeMap<&'static str, Places>);

#[derive(Debug, Default)]
struct Places {
    named: Vec<String>,
    unnamed: u64,
}

impl Problems {
    /// A reason that concerns the whole list.
    pub(super) fn say_once(&mut self, reason: &'static str) {
        self.0.entry(reason).or_default();
    }

    /// A reason that concerns one path.
    pub(super) fn say(&mut self, reason: &'static str, path: &[u8]) {
        self.add(reason, path, None);
    }

    /// A reason that concerns one path, with the system's answer.
    pub(super) fn say_errno(&mut self, reason: &'static str, path: &[u8], error: Errno) {
        self.add(reason, path, Some(error));
    }

    fn add(&mut self, reason: &'static str, path: &[u8], error: Option<Errno>) {
        let places = self.0.entry(reason).or_default();
        if places.named.len() == NAMED {
            places.unnamed += 1;
            return;
        }
        // A path can be much longer than what is shown of it, so only its beginning is escaped.
        let shown = path.get(..PATH_CHARS * 4).unwrap_or(path);
        let mut text = escape_bytes(shown);
        if let Some((cut, _)) = text.char_indices().nth(PATH_CHARS) {
            text.truncate(cut);
            text.push('…');
        }
        if let Some(error) = error {
            text.push_str(&format!(" ({error:?})"));
        }
        places.named.push(text);
    }

    /// Whether this reason was said.
    pub(super) fn says(&self, reason: &str) -> bool {
        self.0.contains_key(reason)
    }

    /// Entries for the record: `too-many`, or one entry a path, as `unreadable: /w/a (EACCES)`, and one for
    /// the number of the others, as `unreadable: 12 more`.
    pub(super) fn into_unmeasured(self) -> Vec<Unmeasured> {
        let entry = |reason: String| Unmeasured {
            field: "artifacts".to_owned(),
            reason,
        };
        let mut list = Vec::new();
        for (reason, places) in self.0 {
            if places.named.is_empty() {
                list.push(entry(reason.to_owned()));
            }
            list.extend(
                places
                    .named
                    .iter()
                    .map(|place| entry(format!("{reason}: {place}"))),
            );
            if places.unnamed > 0 {
                list.push(entry(format!("{reason}: {} more", places.unnamed)));
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(problems: Problems) -> Vec<String> {
        let list = problems.into_unmeasured();
        assert!(list.iter().all(|entry| entry.field == "artifacts"));
        list.into_iter().map(|entry| entry.reason).collect()
    }

    #[test]
    fn few_are_named_and_many_are_counted() {
        let mut problems = Problems::default();
        assert!(!problems.says(TOO_MANY));
        problems.say_once(TOO_MANY);
        problems.say_once(TOO_MANY);
        problems.say_errno(UNREADABLE, b"/w/\xff", Errno::EACCES);
        for _ in 0..9 {
            problems.say(UNREADABLE, b"/w/x");
        }
        assert_eq!(
            reasons(problems),
            [
                "too-many",
                "unreadable: /w/\\xff (EACCES)",
                "unreadable: /w/x",
                "unreadable: /w/x",
                "unreadable: /w/x",
                "unreadable: 6 more",
            ]
        );
    }

    #[test]
    fn a_long_path_is_cut_visibly() {
        let mut problems = Problems::default();
        problems.say(CHANGED, &[b'a'; 100_000]);
        problems.say(CHANGED, &[0xff; 300]);
        let reasons = reasons(problems);
        assert_eq!(
            reasons[0],
            format!("changed-while-scanned: {}…", "a".repeat(256))
        );
        assert_eq!(
            reasons[1],
            format!("changed-while-scanned: {}…", "\\xff".repeat(64))
        );
    }
}
