//! A denied system call, as the `violations` of an execution record list it:
//!
//! ```text
//! {"arguments":["16","4242","0","0"],"call":"ptrace","count":3,"firstUs":1042}
//! ```
//!
//! One entry for each call, sorted by name. An argument is what stood in its register, as a decimal number in a string: 64 bits
//! are more than a record's integers hold. Where an argument is a pointer nobody followed it.

use std::fmt;

use serde::de::{self, Deserialize as DeDeserialize, Deserializer};
use serde::{Deserialize, Serialize};

use crate::bytes::canon::U53;
use crate::facts::policy::syscalls;

/// Name under which all calls stand together whose numbers have none.
pub const UNNAMED: &str = "unnamed";

/// A system call that the policy's filter denied, how often and when first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Violation {
    /// The arguments of the first one, as many as the call takes; none for [`UNNAMED`], of which that is not known.
    pub arguments: Vec<Word>,
    /// Its name ([`crate::facts::policy::syscalls`]), or [`UNNAMED`].
    pub call: String,
    /// How often it was denied; 1 at least.
    pub count: U53,
    /// When first, in microseconds of CLOCK_BOOTTIME from "go" to when the runner took it; the run's duration where that was
    /// after its main process had ended.
    pub first_us: U53,
    /// The number of the first one, exactly with [`UNNAMED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<U53>,
}

impl Violation {
    /// What in it contradicts itself, or what the kernel has; `None` when it is in order. A call that this version has no name
    /// for is [`UNNAMED`], so a name that it does not know is nobody's.
    #[must_use]
    pub fn disorder(&self) -> Option<&'static str> {
        let takes = if self.call == UNNAMED {
            0
        } else {
            match syscalls::lookup(&self.call) {
                Some(call) => call.arguments,
                None => return Some("call is the name of a system call, or unnamed"),
            }
        };
        if self.count.value() == 0 {
            return Some("count is not 0: what was not denied is not listed");
        }
        if self.arguments.len() != usize::from(takes) {
            return Some("there are as many arguments as the call takes, none with unnamed");
        }
        if self.number.is_some() != (self.call == UNNAMED) {
            return Some("number stands exactly with unnamed");
        }
        None
    }
}

/// Holds one violation after the other against the order of the list, and against how long the run was.
#[derive(Clone, Debug, Default)]
pub struct InOrder {
    duration: Option<U53>,
    last: Option<String>,
}

impl InOrder {
    /// For the list of a run of this duration in microseconds; `None` where that is not known.
    #[must_use]
    pub fn within(duration: Option<U53>) -> Self {
        Self {
            duration,
            last: None,
        }
    }

    /// What is wrong with the next one; `None` when it is in order.
    pub fn take(&mut self, next: &Violation) -> Option<&'static str> {
        let follows = self.last.as_ref().is_none_or(|last| *last < next.call);
        self.last = Some(next.call.clone());
        let late = self.duration.is_some_and(|end| next.first_us > end);
        next.disorder()
            .or_else(|| late.then_some("firstUs is within the run's durationUs"))
            .or_else(|| (!follows).then_some("violations are sorted by call, each of them once"))
    }
}

/// What a register held: a decimal number in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Word {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> DeDeserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        // Read and written again: no sign, no zero in front.
        match text.parse().map(Self) {
            Ok(word) if word.to_string() == *text => Ok(word),
            _ => Err(de::Error::custom("no decimal number of 64 bits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTRACE: &str = r#"{"arguments":["16","18446744073709551615","0","0"],"call":"ptrace","count":3,"firstUs":0}"#;

    fn read(text: &str) -> Result<Violation, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_violation_reads_back_as_it_was_written() {
        let unnamed = r#"{"arguments":[],"call":"unnamed","count":1,"firstUs":7,"number":9999}"#;
        for text in [PTRACE, unnamed] {
            let violation = read(text).unwrap();
            assert_eq!(violation.disorder(), None, "{text}");
            assert_eq!(serde_json::to_string(&violation).unwrap(), text);
        }
        assert_eq!(read(PTRACE).unwrap().arguments[1], Word(u64::MAX));
    }

    #[test]
    fn words_have_one_form() {
        for word in [
            "",
            "+1",
            "-1",
            "01",
            " 1",
            "1.0",
            "0x10",
            "18446744073709551616",
        ] {
            assert!(
                read(&PTRACE.replace("16\",", &format!("{word}\","))).is_err(),
                "{word}"
            );
        }
        assert!(read(&PTRACE.replace("\"16\"", "16")).is_err());
        assert!(read(&PTRACE.replace("firstUs", "first")).is_err());
    }

    #[test]
    fn entries_that_contradict_themselves_are_in_disorder() {
        for (from, to) in [
            ("\"ptrace\"", "\"\""),
            ("\"ptrace\"", "\"Ptrace\""),
            ("\"ptrace\"", "\"a b\""),
            ("\"ptrace\"", "\"unnamed\""),
            ("\"count\":3", "\"count\":0"),
            ("\"firstUs\":0", "\"firstUs\":0,\"number\":101"),
            ("\"ptrace\"", "\"frobnicate\""),
            ("\"16\",", ""),
            ("\"16\",", "\"16\",\"16\","),
            ("\"16\",", "\"1\",\"2\",\"3\",\"4\","),
        ] {
            assert!(PTRACE.contains(from), "{from}");
            let violation = read(&PTRACE.replacen(from, to, 1)).unwrap();
            assert!(violation.disorder().is_some(), "{violation:?}");
        }
        let unnamed = r#"{"arguments":["1"],"call":"unnamed","count":1,"firstUs":7,"number":9999}"#;
        assert!(read(unnamed).unwrap().disorder().is_some());
    }

    #[test]
    fn a_list_is_sorted_and_names_each_call_once() {
        // They take as many arguments as ptrace.
        let of = |call: &str| read(&PTRACE.replace("ptrace", call)).unwrap();
        let disorder = |list: &[&str]| {
            let mut order = InOrder::default();
            list.iter().find_map(|call| order.take(&of(call)))
        };
        assert_eq!(disorder(&[]), None);
        assert_eq!(disorder(&["pread64", "ptrace", "reboot"]), None);
        assert!(disorder(&["ptrace", "pread64"]).is_some());
        assert!(disorder(&["ptrace", "ptrace"]).is_some());
        assert!(disorder(&["pread64", "Ptrace"]).is_some());
    }

    #[test]
    fn nothing_is_denied_after_the_end() {
        let mut late = read(PTRACE).unwrap();
        late.first_us = U53::from(8);
        let within = |us: u32| InOrder::within(Some(U53::from(us))).take(&late);
        assert_eq!(within(8), None);
        assert!(within(7).is_some());
        assert_eq!(InOrder::within(None).take(&late), None);
    }
}
