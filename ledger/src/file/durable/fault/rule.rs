//! Which calls have another answer, and which.

use std::str::FromStr;

use rustix::io::Errno;

use super::super::Operation;

/// What a call does instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Nothing, and fails.
    Fails(Errno),
    /// A write takes one byte less than it was given, if that is at least one.
    Short,
    /// A write takes no more than so many bytes, and the next write fails.
    Cut(usize, Errno),
}

/// Which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All.
    Any,
    /// Those that need room on the disk.
    Space,
    /// Those of one kind.
    One(Operation),
}

impl Which {
    pub(super) fn holds(self, operation: Operation) -> bool {
        use Operation as O;
        match self {
            Self::Any => true,
            // Delayed allocation: room may be found missing as late as in fdatasync.
            Self::Space => matches!(
                operation,
                O::CreateFolder | O::Create | O::Write | O::SyncData | O::Rename
            ),
            Self::One(one) => one == operation,
        }
    }
}

/// A fault: the matching calls `from..until`, counted from 1, have another answer.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Which calls count.
    pub(crate) which: Which,
    /// Part of the path of those that count.
    pub(crate) part: Option<String>,
    /// The first call that is changed.
    pub(crate) from: u64,
    /// The first that is not any more.
    pub(crate) until: u64,
    /// What it does.
    pub(crate) what: What,
}

impl Rule {
    /// Call number `n` of all.
    #[cfg(test)]
    pub(crate) fn call(n: u64, what: What) -> Self {
        Self {
            which: Which::Any,
            part: None,
            from: n,
            until: n + 1,
            what,
        }
    }

    /// A disk that is full from call `from` on.
    #[cfg(test)]
    pub(crate) fn full(from: u64) -> Self {
        Self {
            which: Which::Space,
            until: u64::MAX,
            ..Self::call(from, What::Fails(Errno::NOSPC))
        }
    }

    /// As this, for one operation alone.
    #[cfg(test)]
    pub(crate) fn of(self, operation: Operation) -> Self {
        Self {
            which: Which::One(operation),
            ..self
        }
    }
}

const OPERATIONS: [(&str, Operation); 13] = [
    ("create-folder", Operation::CreateFolder),
    ("create", Operation::Create),
    ("open", Operation::Open),
    ("read", Operation::Read),
    ("list", Operation::List),
    ("inspect", Operation::Inspect),
    ("write", Operation::Write),
    ("truncate", Operation::Truncate),
    ("sync-data", Operation::SyncData),
    ("sync-folder", Operation::SyncFolder),
    ("rename", Operation::Rename),
    ("remove", Operation::Remove),
    ("lock", Operation::Lock),
];

const ERRORS: [(&str, Errno); 11] = [
    ("EACCES", Errno::ACCESS),
    ("EDQUOT", Errno::DQUOT),
    ("EINTR", Errno::INTR),
    ("EIO", Errno::IO),
    ("ENOLCK", Errno::NOLCK),
    ("ENOSPC", Errno::NOSPC),
    ("ENOSYS", Errno::NOSYS),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
    ("EPERM", Errno::PERM),
    ("EROFS", Errno::ROFS),
    ("ESTALE", Errno::STALE),
];

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Result<T, String> {
    let found = table.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("LEDGER_FAULT: {name:?} is not known"))
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("LEDGER_FAULT: {text:?}, expected OPERATION[@PART]:FROM[-UNTIL]:ANSWER");
        let (calls, what) = text.rsplit_once(':').ok_or_else(bad)?;
        let (which, calls) = calls.rsplit_once(':').ok_or_else(bad)?;
        let (which, part) = match which.split_once('@') {
            Some((which, part)) => (which, Some(part.to_owned())),
            None => (which, None),
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| bad());
        let (from, until) = match calls.split_once('-') {
            None => (number(calls)?, number(calls)? + 1),
            Some((from, "")) => (number(from)?, u64::MAX),
            Some((from, until)) => (number(from)?, number(until)?),
        };
        Ok(Self {
            which: match which {
                "any" => Which::Any,
                "space" => Which::Space,
                one => Which::One(named(&OPERATIONS, one)?),
            },
            part,
            from,
            until,
            what: match what.strip_prefix("cut=").map(|cut| cut.split_once(',')) {
                Some(Some((most, errno))) => {
                    What::Cut(most.parse().map_err(|_| bad())?, named(&ERRORS, errno)?)
                }
                Some(None) => return Err(bad()),
                None if what == "short" => What::Short,
                None => What::Fails(named(&ERRORS, what)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let rule: Rule = "write@records:2-4:cut=10,ENOSPC".parse().unwrap();
        assert_eq!(rule.which, Which::One(Operation::Write));
        assert_eq!(rule.part.as_deref(), Some("records"));
        assert_eq!((rule.from, rule.until), (2, 4));
        assert_eq!(rule.what, What::Cut(10, Errno::NOSPC));
        let rule: Rule = "space:3-:EDQUOT".parse().unwrap();
        assert_eq!((rule.which, rule.until), (Which::Space, u64::MAX));
        assert_eq!(rule.what, What::Fails(Errno::DQUOT));
        for text in [
            "",
            "write",
            "write:1",
            "write:x:EIO",
            "wrote:1:EIO",
            "write:1:E",
            "write:1:cut=3",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }
}
