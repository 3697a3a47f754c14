//! Two command lines of a runtime compared, word by word: the first word that differs is what somebody can look at.
//!
//! Some of a launch is another one each time, and no difference of two sandboxes: ids of the host that are given out run by
//! run, where the caller keeps ledger and keys, numbers of descriptors and processes, names of temporary folders. What
//! stands in a word beside these is compared.

use ledger::facts::list::{List, Sealable};

use super::Difference;

/// Characters of a word before the first that differs.
const BEFORE: usize = 24;
/// Ids up to here belong to somebody; beyond, they are given out for a run.
const OWN_IDS: u64 = 65_535;
/// Streams that every process has.
const STREAMS: u64 = 2;
/// First letters of folders that are made for one run, by this project and by libraries.
const TEMPORARY: [&str; 3] = ["containment-probe-", ".tmp", "tmp."];
/// Where a cover hides what is the kernel's and not the caller's.
const OF_THE_KERNEL: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// What differs; `None` where nothing does, or nobody can look.
pub(super) fn difference(
    runtime: &str,
    launches: [Option<&Sealable<List<String>>>; 2],
) -> Option<Difference> {
    let found = |a: Option<String>, b: Option<String>| {
        let what = format!("{runtime} launch");
        Some(Difference { what, a, b })
    };
    match launches.map(Shown::of) {
        [Shown::Words(a), Shown::Words(b)] => {
            let same = |(a, b): (&String, &String)| steady(a) == steady(b);
            let pairs = a.iter().zip(b);
            let at = pairs.take_while(|pair| same(*pair)).count();
            if at == a.len() && at == b.len() {
                return None;
            }
            let from = match (a.get(at), b.get(at)) {
                (Some(a), Some(b)) => {
                    let common = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
                    common.count().saturating_sub(BEFORE)
                }
                _ => 0,
            };
            let [a, b] = [a, b].map(|words| {
                let place = format!("word {} of {}: ", at + 1, words.len());
                words.get(at).map_or_else(
                    || format!("ends after {} words", words.len()),
                    |word| match from {
                        0 => format!("{place}{word}"),
                        from => {
                            let rest: String = word.chars().skip(from).collect();
                            format!("{place}\u{2026}{rest}")
                        }
                    },
                )
            });
            found(Some(a), Some(b))
        }
        [Shown::Sealed, _] | [_, Shown::Sealed] | [Shown::None, Shown::None] => None,
        [Shown::Blob(a), Shown::Blob(b)] if a == b => None,
        [a, b] => found(a.in_words(), b.in_words()),
    }
}

/// What can be seen of a launch.
enum Shown<'a> {
    None,
    Sealed,
    Words(&'a [String]),
    Blob(String),
}

impl<'a> Shown<'a> {
    fn of(launch: Option<&'a Sealable<List<String>>>) -> Self {
        match launch {
            None => Self::None,
            Some(Sealable::Sealed(_)) => Self::Sealed,
            Some(Sealable::Clear(List::Inline(words))) => Self::Words(words),
            Some(Sealable::Clear(List::Blob(list))) => {
                Self::Blob(format!("{} words, blob {}", list.count, list.blob))
            }
        }
    }

    fn in_words(self) -> Option<String> {
        match self {
            Self::None | Self::Sealed => None,
            Self::Words(words) => Some(format!("{} words", words.len())),
            Self::Blob(text) => Some(text),
        }
    }
}

/// The word without what is another one each time.
fn steady(word: &str) -> String {
    if let Some(path) = word.strip_prefix("cover ") {
        let kernels = OF_THE_KERNEL.iter().any(|below| path.starts_with(below));
        return if kernels { word } else { "cover" }.to_owned();
    }
    let parts = word.split_inclusive(['/', ' ', ',', '=', ':']);
    let mut steady = String::new();
    for part in parts {
        let name = part.trim_end_matches(['/', ' ', ',', '=', ':']);
        let end = &part[name.len()..];
        let temporary = TEMPORARY.iter().any(|prefix| name.starts_with(prefix));
        let most = if steady.ends_with("is host ") {
            OWN_IDS
        } else if steady.ends_with("/fd/") || steady.ends_with("fd=") {
            STREAMS
        } else if steady.ends_with("/proc/") {
            0
        } else {
            u64::MAX
        };
        let given_out = name.parse::<u64>().is_ok_and(|number| number > most);
        steady.push_str(if temporary || given_out {
            "\u{2026}"
        } else {
            name
        });
        steady.push_str(end);
    }
    steady
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::bytes::canon::U53;
    use ledger::bytes::hash::Hash;
    use ledger::facts::list::BlobList;

    fn clear(words: &[&str]) -> Sealable<List<String>> {
        let words = words.iter().map(|word| (*word).to_owned());
        Sealable::Clear(List::Inline(words.collect()))
    }

    fn told(a: &[&str], b: &[&str]) -> Option<(String, String)> {
        let (a, b) = (clear(a), clear(b));
        let found = difference("embedded", [Some(&a), Some(&b)])?;
        assert_eq!(found.what, "embedded launch");
        Some((found.a.unwrap(), found.b.unwrap()))
    }

    #[test]
    fn what_differs_in_every_run_is_no_difference() {
        for (a, b) in [
            (
                "map uid 1000 is host 1879048512, gid 1000 is host 1879048512",
                "map uid 1000 is host 1879048579, gid 1000 is host 1879048579",
            ),
            ("cover /home/a/ledger", "cover /srv/b/ledger"),
            (
                "--bind=/tmp/.tmpAb12Cd/root:/root",
                "--bind=/tmp/.tmpZz99Yy/root:/root",
            ),
            (
                "read /tmp/containment-probe-17-ab/s",
                "read /tmp/containment-probe-18-cd/s",
            ),
            ("--info-fd=17", "--info-fd=9"),
            ("read /proc/4711/fd/12", "read /proc/12/fd/7"),
        ] {
            assert_eq!(told(&["x", a], &["x", b]), None, "{a}");
        }
    }

    #[test]
    fn the_first_word_that_differs_is_shown_where_it_differs() {
        let some = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        for (a, b, found) in [
            (
                "map uid 1000 is host 1879048512",
                "map uid 0 is host 1879048512",
                some(
                    "word 2 of 2: map uid 1000 is host 1879048512",
                    "word 2 of 2: map uid 0 is host 1879048512",
                ),
            ),
            (
                "map uid 1000 is host 1000",
                "map uid 1000 is host 0",
                some(
                    "word 2 of 2: map uid 1000 is host 1000",
                    "word 2 of 2: map uid 1000 is host 0",
                ),
            ),
            (
                "cover /proc/kcore",
                "cover /proc/keys",
                some(
                    "word 2 of 2: cover /proc/kcore",
                    "word 2 of 2: cover /proc/keys",
                ),
            ),
            (
                "link /dev/stdin /proc/self/fd/0",
                "link /dev/stdin /proc/self/fd/1",
                some(
                    "word 2 of 2: \u{2026}dev/stdin /proc/self/fd/0",
                    "word 2 of 2: \u{2026}dev/stdin /proc/self/fd/1",
                ),
            ),
        ] {
            assert_eq!(told(&["x", a], &["x", b]), found);
        }
        let ends = told(&["x"], &["x", "landlock"]);
        assert_eq!(ends, some("ends after 1 words", "word 2 of 2: landlock"));
    }

    #[test]
    fn what_nobody_can_look_at_is_no_difference() {
        let words = clear(&["x"]);
        let sealed = Sealable::Sealed(Hash::of(b"1"));
        let blob = |content: &[u8]| {
            Sealable::Clear(List::Blob(BlobList {
                blob: Hash::of(content),
                count: U53::new(900).unwrap(),
            }))
        };
        let (one, other) = (blob(b"1"), blob(b"2"));
        assert_eq!(difference("x", [None, None]), None);
        assert_eq!(difference("x", [Some(&sealed), Some(&words)]), None);
        assert_eq!(difference("x", [Some(&one), Some(&one)]), None);
        let found = difference("x", [Some(&one), Some(&other)]).unwrap();
        assert!(found.a.unwrap().starts_with("900 words, blob "));
        let found = difference("x", [None, Some(&words)]).unwrap();
        assert_eq!((found.a, found.b.as_deref()), (None, Some("1 words")));
    }
}
