//! What a suite that is not the built-in one must not say: what no program can be given, what no error is called, and of the
//! runner's own rows anything but what the built-in table says. The oracle, the twin and the denied errors decide a verdict: a
//! row that changes them would be another measurement under the same name. Fewer rows, fewer checks of a row and fewer arms are
//! fine: what is not measured is not there.

use std::fmt;

use ledger::facts::suite::{Check, Probe, Suite};
use nix::errno::Errno as Known;
use nix::sys::signal::Signal;

/// One thing that may not stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The place of the row.
    pub row: usize,
    /// The place of its check, where it is about one.
    pub check: Option<usize>,
    /// The field's name.
    pub field: &'static str,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: String,
}

/// Other names of errors and signals that have two.
const ALIASES: [&str; 6] = [
    "EWOULDBLOCK",
    "EDEADLOCK",
    "ENOTSUP",
    "SIGIOT",
    "SIGPOLL",
    "SIGCLD",
];
/// Above the highest error number of Linux (errno(3); `EHWPOISON` is 133, and some machines number otherwise).
const ERRNO_END: i32 = 1_200;

/// Whether Linux has an error or a signal of this name, or it is `none`.
fn is_known(name: &str) -> bool {
    let errors = (1..ERRNO_END)
        .map(Known::from_raw)
        .filter(|errno| *errno != Known::UnknownErrno);
    name == "none"
        || ALIASES.contains(&name)
        || Signal::iterator().any(|signal| signal.as_str() == name)
        || errors
            .map(|errno| format!("{errno:?}"))
            .any(|it| it == name)
}

/// Everything of that kind in a suite; `own` is the built-in one.
#[must_use]
pub fn mistakes(suite: &Suite, own: &Suite) -> Vec<Mistake> {
    let mut reader = Reader {
        at: (0, None),
        all: Vec::new(),
    };
    for (row, probe) in suite.probes.iter().enumerate() {
        reader.at = (row, None);
        if probe.arguments.iter().any(|text| text.contains('\0')) {
            let found = "an argument with a zero byte".to_owned();
            reader.say("arguments", found, "none: it ends an argument".to_owned());
        }
        for (place, check) in probe.checks.iter().enumerate() {
            reader.at = (row, Some(place));
            let names = check.denied.iter().map(ToString::to_string);
            for name in names.filter(|name| !is_known(name)) {
                let expected = "an error or a signal of Linux, or `none`".to_owned();
                reader.say("denied", format!("the denied error {name}"), expected);
            }
        }
        if probe.is_own() {
            reader.at = (row, None);
            reader.own_row(probe, own);
        }
    }
    reader.all
}

struct Reader {
    at: (usize, Option<usize>),
    all: Vec<Mistake>,
}

impl Reader {
    fn say(&mut self, field: &'static str, found: String, expected: String) {
        let (row, check) = self.at;
        self.all.push(Mistake {
            row,
            check,
            field,
            found,
            expected,
        });
    }

    /// A row of the runner's own probe program, which knows its rows by their control.
    fn own_row(&mut self, probe: &Probe, own: &Suite) {
        let known = own.probes.iter().find(|it| it.control == probe.control);
        let Some(known) = known else {
            let expected = "`program`: the runner's own probe does not attack it".to_owned();
            return self.say("id", format!("no program for {}", probe.control), expected);
        };
        if probe.id != known.id {
            let expected = format!("{}, which the runner's own probe calls itself", known.id);
            self.say("id", format!("the id {}", probe.id), expected);
        }
        if probe.arguments != known.arguments {
            let found = ledger::bytes::text::excerpt(&format!("{:?}", probe.arguments), 80);
            let expected = format!("{:?}{AS_OWN}", known.arguments);
            self.say("arguments", format!("the arguments {found}"), expected);
        }
        if probe.risk != known.risk {
            let found = format!("the risk {} for {}", probe.risk, probe.control);
            self.say("risk", found, format!("{}{AS_OWN}", known.risk));
        }
        for arm in probe.arms.iter().filter(|arm| !known.arms.contains(arm)) {
            let expected = format!("of {}{AS_OWN}", list(&known.arms));
            self.say("arms", format!("the arm {arm}"), expected);
        }
        let row = self.at.0;
        for (place, check) in probe.checks.iter().enumerate() {
            self.at = (row, Some(place));
            match known.checks.iter().find(|it| it.check == check.check) {
                Some(known) => self.own_check(check, known),
                None => {
                    let names: Vec<_> = known.checks.iter().map(|it| &it.check).collect();
                    let expected = format!(
                        "one that the runner's own probe makes of {}: {}",
                        probe.control,
                        list(&names)
                    );
                    self.say("check", format!("the check {}", check.check), expected);
                }
            }
        }
    }

    fn own_check(&mut self, check: &Check, known: &Check) {
        let name = &check.check;
        if check.oracle != known.oracle {
            let found = format!("the oracle {} for the check {name}", check.oracle);
            self.say("oracle", found, format!("{}{AS_OWN}", known.oracle));
        }
        if check.twin != known.twin {
            let found = format!("the twin {} for the check {name}", check.twin);
            self.say("twin", found, format!("{}{AS_OWN}", known.twin));
        }
        // That there are none at all is a mistake of any suite.
        if !check.denied.is_empty() && sorted(&check.denied) != sorted(&known.denied) {
            let found = format!(
                "the denied errors {} for the check {name}",
                list(&check.denied)
            );
            self.say("denied", found, format!("{}{AS_OWN}", list(&known.denied)));
        }
        if check.module != known.module {
            let found = format!("module {} for the check {name}", check.module);
            self.say("module", found, format!("{}{AS_OWN}", known.module));
        }
        if sorted(&check.needs) != sorted(&known.needs) {
            let found = format!("{} as what the check {name} needs", list(&check.needs));
            self.say("needs", found, format!("{}{AS_OWN}", list(&known.needs)));
        }
    }
}

/// Why it is expected.
const AS_OWN: &str = ", as in the runner's own row";

fn sorted<T: fmt::Display>(all: &[T]) -> Vec<String> {
    let mut all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.sort();
    all
}

fn list<T: fmt::Display>(all: &[T]) -> String {
    match all {
        [] => "nothing".to_owned(),
        all => all
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The objects of a suite; `*` is each of a list or an object.
pub const OBJECTS: [&[&str]; 4] = [
    &[],
    &["probes", "*"],
    &["probes", "*", "program"],
    &["probes", "*", "checks", "*"],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::program::SUITE;
    use crate::runtime::document::list_for_object;

    fn own() -> Suite {
        serde_json::from_str(SUITE).unwrap()
    }

    /// `FIELD: found …, expected …` of the built-in suite, changed by text.
    fn said(change: impl Fn(&mut serde_json::Value)) -> Vec<String> {
        let mut json: serde_json::Value = serde_json::from_str(SUITE).unwrap();
        change(&mut json["probes"][0]);
        let suite: Suite = serde_json::from_value(json).unwrap();
        let all = mistakes(&suite, &own()).into_iter();
        all.map(|it| format!("{}: {} | {}", it.field, it.found, it.expected))
            .collect()
    }

    #[test]
    fn the_own_rows_and_fewer_of_them_are_fine() {
        assert_eq!(said(|_| {}), Vec::<String>::new());
        let fewer = said(|row| {
            row["arms"] = serde_json::json!(["run"]);
            row["checks"].as_array_mut().unwrap().truncate(1);
            row["checks"][0]["denied"].as_array_mut().unwrap().reverse();
        });
        assert_eq!(fewer, Vec::<String>::new());
    }

    #[test]
    fn each_field_of_an_own_row_that_is_another_is_named() {
        let set = |field: &'static str, value: serde_json::Value| {
            said(move |row| row["checks"][0][field] = value.clone())
        };
        for (found, field) in [
            (set("oracle", "line".into()), "oracle"),
            (set("twin", "allowed".into()), "twin"),
            (set("denied", serde_json::json!(["none"])), "denied"),
            (set("needs", serde_json::json!(["root"])), "needs"),
            (set("check", "tcp9".into()), "check"),
            (
                said(|row| row["arguments"] = serde_json::json!([])),
                "arguments",
            ),
            (said(|row| row["risk"] = "resource-abuse".into()), "risk"),
            (said(|row| row["id"] = "net".into()), "id"),
        ] {
            assert_eq!(found.len(), 1, "{field}: {found:?}");
            assert!(found[0].starts_with(&format!("{field}: ")), "{found:?}");
        }
        // A row of somebody else's program says what it likes.
        let other = said(|row| {
            row["program"] = serde_json::json!({"path": "probe.sh"});
            row["checks"][0]["oracle"] = "line".into();
        });
        assert_eq!(other, Vec::<String>::new());
    }

    #[test]
    fn names_and_arguments_that_cannot_be_are_named_in_any_row() {
        for name in [
            "none",
            "EPERM",
            "EHWPOISON",
            "EWOULDBLOCK",
            "SIGSYS",
            "SIGIOT",
        ] {
            assert!(is_known(name), "{name}");
        }
        for name in ["E", "EPERN", "SIGNOTHING", "EUNKNOWN", "UnknownErrno"] {
            assert!(!is_known(name), "{name}");
        }
        let found = said(|row| {
            row["program"] = serde_json::json!({"path": "probe.sh"});
            row["arguments"] = serde_json::json!(["a\0b"]);
            row["checks"][0]["denied"] = serde_json::json!(["EPERN", "EPERM"]);
        });
        assert_eq!(
            found,
            [
                "arguments: an argument with a zero byte | none: it ends an argument",
                "denied: the denied error EPERN | an error or a signal of Linux, or `none`"
            ]
        );
        // What the probes themselves are refused with is known.
        for probe in own().probes {
            for check in probe.checks {
                for name in &check.denied {
                    assert!(is_known(&name.to_string()), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_list_is_no_object() {
        assert_eq!(list_for_object(SUITE, &OBJECTS), None);
        for (text, at) in [
            ("[[], \"x\"]", Some(0)),
            ("{\"probes\": [[]]}", Some(12)),
            ("{\"probes\": [{\"program\": []}]}", Some(24)),
            ("{\"probes\": [{\"checks\": [{}, []]}]}", Some(28)),
            ("{\"probes\": [{\"program\": null}]}", None),
            ("{\"probes\": 3}", None),
            ("{", None),
        ] {
            assert_eq!(list_for_object(text, &OBJECTS), at, "{text}");
        }
    }
}
