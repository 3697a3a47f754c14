//! What documents are refused for, and how that reads.

use miette::{GraphicalReportHandler, GraphicalTheme};
use proptest::prelude::*;

use super::*;

/// A document that is right.
pub(super) fn policy(text: &str) -> Policy {
    Policy::parse("test.json", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn problems(text: &[u8]) -> Vec<Problem> {
    match Policy::parse("test.json", text) {
        Ok(policy) => panic!("read as {policy:?}"),
        Err(error) => error.into_problems(),
    }
}

/// Code, line, column and marked text of each problem.
fn marks(text: &str) -> Vec<(ProblemCode, usize, usize, &str)> {
    let marks = problems(text.as_bytes()).into_iter();
    marks
        .map(|problem| {
            let marked = text.get(problem.span()).unwrap();
            (problem.code(), problem.line(), problem.column(), marked)
        })
        .collect()
}

/// A policy that asks for `network` only, with one more section.
fn with(section: &str) -> String {
    format!(r#"{{"id":"x","enforcement":{{"requiredControls":["network"]}},{section}}}"#)
}

#[test]
fn what_is_not_given_has_a_safe_default() {
    let policy = policy(r#"{"id":"x","enforcement":{"requiredControls":["network"]}}"#);
    assert_eq!(policy.enforcement.mode, Mode::Strict);
    assert_eq!(policy.network.mode, NetworkMode::None);
    assert_eq!(policy.filesystem.root, Root::Ephemeral);
    assert_eq!(policy.filesystem.protect, DEFAULT_PROTECT);
    assert_eq!(policy.nesting, Nesting::Deny);
    assert_eq!(policy.resources, Resources::default());
}

#[test]
fn its_own_text_reads_back() {
    for entry in CATALOGUE {
        let policy = entry.policy().unwrap();
        let text = policy.to_json().unwrap();
        assert_eq!(Policy::parse("again", text.as_bytes()).unwrap(), policy);
    }
}

#[test]
fn all_problems_are_found_in_the_order_of_the_text() {
    use ProblemCode::{
        BadValue, Contradiction, DuplicateField, UnknownControl, UnknownField, WrongType,
    };
    let text = r#"{
  "id": "x",
  "enforcement": { "requiredControls": ["netwrok", "memory", "cpu"], "wantedControls": ["cpu"] },
  "network": { "mode": "none", "hosts": ["example.org:443"], "prot": 1 },
  "resources": { "memoryMb": "64", "cpuMillis": 0 },
  "nesting": "deny",
  "nesting": "allow"
}"#;
    assert_eq!(
        marks(text),
        [
            (UnknownControl, 3, 41, "\"netwrok\""),
            (Contradiction, 3, 89, "\"cpu\""),
            (Contradiction, 4, 41, "[\"example.org:443\"]"),
            (UnknownField, 4, 62, "\"prot\""),
            (WrongType, 5, 30, "\"64\""),
            (BadValue, 5, 49, "0"),
            (DuplicateField, 7, 3, "\"nesting\""),
        ]
    );
}

#[test]
fn one_mistake_a_document() {
    use ProblemCode::{
        BadValue, Contradiction, DuplicateField, MissingField, Syntax, UnknownCapability,
        UnknownField, UnknownSyscall, UnknownWord, WrongType,
    };
    let table = [
        (with(r#""filesytem":{}"#), UnknownField, "did you mean filesystem?"),
        (with(r#""network":{"mode":"nil"}"#), UnknownWord, "none, loopback, allowlist, unrestricted"),
        (with(r#""network":{"mode":"allowlist"}"#), Contradiction, "at least one host:port"),
        (with(r#""network":{"mode":"unrestricted"}"#), Contradiction, "expected another mode"),
        (with(r#""network":{"channel":"proxy"}"#), Contradiction, "expected mode allowlist"),
        (with(r#""network":{"dns":true}"#), Contradiction, "expected mode allowlist or unrestricted"),
        (with(r#""network":{"dns":"yes"}"#), WrongType, "the text \"yes\" for network.dns, expected true or false"),
        (with(r#""network":{"mode":"allowlist","hosts":["a"]}"#), BadValue, "example.org:443"),
        (with(r#""filesystem":{"root":"custom"}"#), Contradiction, "expected filesystem.path"),
        (with(r#""filesystem":{"path":"/r"}"#), Contradiction, "expected root custom"),
        (with(r#""filesystem":{"root":"custom","path":"r"}"#), BadValue, "begins with /"),
        (with(r#""filesystem":{"readOnly":["data"]}"#), BadValue, "begins with /"),
        (with(r#""filesystem":{"writable":["/a/../b"]}"#), BadValue, "path without"),
        (with(r#""filesystem":{"writable":["/"]}"#), BadValue, "root host-readonly"),
        (with(r#""filesystem":{"readOnly":["/x:/proc/1"]}"#), BadValue, "not /, /proc or /dev"),
        (with(r#""filesystem":{"readOnly":["/x"],"writable":["/y:/x"]}"#), Contradiction, "one entry for it"),
        (with(r#""filesystem":{"protect":["/etc"]}"#), BadValue, "below a writable folder"),
        (with(r#""filesystem":{"protect":[".git",".git"]}"#), BadValue, "twice"),
        (with(r#""filesystem":{"maxWorkspaceMb":0}"#), BadValue, "at least 1"),
        (with(r#""resources":{"timeoutMs":1.5}"#), WrongType, "the number 1.5 for resources.timeoutMs"),
        (with(r#""resources":{"timeoutMs":-1}"#), WrongType, "a whole number from 1 to 9007199254740991"),
        (with(r#""resources":{"timeoutMs":9007199254740992}"#), WrongType, "a whole number"),
        (with(r#""resources":[]"#), WrongType, "a list for resources, expected an object"),
        (with(r#""process":{"user":65534}"#), BadValue, "overflow id"),
        (with(r#""process":{"group":65534}"#), BadValue, "overflow id"),
        (with(r#""process":{"user":4294967295}"#), BadValue, "no id"),
        (with(r#""process":{"user":"root"}"#), WrongType, "a numeric id"),
        (with(r#""process":{"capabilities":["NET_RAW"]}"#), UnknownCapability, "did you mean CAP_NET_RAW?"),
        (with(r#""process":{"environment":{"A B":"1"}}"#), BadValue, "not beginning with a digit"),
        (with(r#""process":{"environment":{"A":1}}"#), WrongType, "process.environment.A, expected a text"),
        (with(r#""process":{"environment":{"A":"1","A":"2"}}"#), DuplicateField, "expected it once"),
        (with(r#""process":{"environment":{"A":"\u0000"}}"#), BadValue, "NUL"),
        (with(r#""process":{"allowedEnvironment":["1A"]}"#), BadValue, "not beginning with a digit"),
        (
            with(r#""process":{"environment":{"A":"1"},"allowedEnvironment":["A"]}"#),
            Contradiction,
            "both set and passed on",
        ),
        (with(r#""syscalls":{"deny":["io_uring_setupp"]}"#), UnknownSyscall, "did you mean io_uring_setup?"),
        (with(r#""syscalls":{"allow":["execve","read"],"deny":["read"]}"#), Contradiction, "both allowed and denied"),
        (with(r#""syscalls":{"allow":["read"]}"#), BadValue, "without execve"),
        (with(r#""syscalls":{"deny":["execve"]}"#), BadValue, "execve denied"),
        (with(r#""syscalls":{"profile":"docker"}"#), UnknownWord, "expected one of default"),
        (with(r#""syscalls":{"allow":["execve","bpf"],"profile":"default"}"#), Contradiction, "profile denies"),
        (with(r#""devices":{"allow":["kvm"]}"#), BadValue, "below /dev"),
        (with(r#""devices":{"allow":["/dev/../etc"]}"#), BadValue, "below /dev"),
        (with(r#""nesting":null"#), WrongType, "null for nesting, expected a text"),
        (r#"{"enforcement":{"mode":"best-effort"}}"#.into(), MissingField, "without \"id\""),
        (r#"{"id":"x"}"#.into(), MissingField, "without \"enforcement\""),
        (r#"{"id":"X y","enforcement":{"mode":"best-effort"}}"#.into(), BadValue, "1 to 64 of a-z"),
        (r#"{"id":"x","enforcement":{}}"#.into(), Contradiction, "asks for no control"),
        (
            r#"{"id":"x","enforcement":{"requiredControls":["user"],"wantedControls":["user"]}}"#.into(),
            Contradiction,
            "both required and wanted",
        ),
        (
            r#"{"id":"x","enforcement":{"requiredControls":["timeout"]}}"#.into(),
            Contradiction,
            "without a limit, expected resources.timeoutMs",
        ),
        (
            r#"{"id":"x","enforcement":{"requiredControls":["syscalls"]}}"#.into(),
            Contradiction,
            "nothing denied",
        ),
        (
            r#"{"id":"x","enforcement":{"requiredControls":["privilege"]},"process":{"capabilities":["CAP_KILL"]}}"#.into(),
            Contradiction,
            "process.capabilities not empty",
        ),
        ("[]".into(), WrongType, "a list, expected an object"),
        ("{\"id\": }".into(), Syntax, "expected a value"),
        ("".into(), Syntax, "expected a value"),
    ];
    for (text, code, said) in &table {
        let problems = problems(text.as_bytes());
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert_eq!(problems[0].code(), *code, "{text}");
        let whole = format!(
            "{} {}",
            problems[0],
            problems[0].help_text().unwrap_or_default()
        );
        assert!(whole.contains(said), "{text}: {whole}");
        assert!(
            whole.contains("found ") || whole.contains("is not") || whole.contains(", expected "),
            "{whole}"
        );
    }
}

#[test]
fn what_is_no_text_or_too_long_says_where() {
    let broken = problems(b"{\n  \"id\": \"\xff\"}");
    assert_eq!(broken[0].code(), ProblemCode::NotText);
    assert_eq!(broken[0].place(), "test.json:2:10");
    let long = vec![b' '; MAX_POLICY_BYTES + 1];
    assert_eq!(problems(&long)[0].code(), ProblemCode::TooLong);
}

#[test]
fn an_error_without_rendering_still_names_the_place() {
    let error = Policy::parse("p.json", b"{\"id\": 1, \"enforcement\": []}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "p.json:1:8: found the number 1 for id, expected a text\n\
         p.json:1:26: found a list for enforcement, expected an object"
    );
}

/// The example of docs/policy.md.
const MISTAKEN: &str = r#"{
  "id": "report",
  "enforcement": { "requiredControls": ["netwrok", "memory"] },
  "network": { "mode": "none", "hosts": ["example.org:443"] }
}
"#;

#[test]
fn the_document_shows_what_errors_look_like() {
    let handler =
        GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(110);
    let mut shown = String::new();
    for problem in Policy::parse("report.json", MISTAKEN.as_bytes())
        .unwrap_err()
        .problems()
    {
        handler.render_report(&mut shown, problem).unwrap();
    }
    let lines = |text: &str| {
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policy.md");
    let document = std::fs::read_to_string(file).unwrap();
    assert!(document.contains(MISTAKEN), "{MISTAKEN}");
    assert!(document.contains(&lines(&shown)), "{shown}");
}

#[test]
fn the_example_of_the_document_is_a_policy() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policy.md");
    let document = std::fs::read_to_string(file).unwrap();
    let example = document
        .split("```json\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    assert_eq!(policy(example).filesystem.read_only[0].inside(), "/data");
}

#[test]
fn every_field_is_documented() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policy.md");
    let document = std::fs::read_to_string(file).unwrap();
    let standard = Catalogued::find(DEFAULT_POLICY).unwrap().policy().unwrap();
    let full = standard.to_json().unwrap();
    let fields = full
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\": "));
    let also = ["path", "channel", "user", "group", "profile", "hosts"];
    for name in fields
        .map(|(name, _)| name)
        .chain(also)
        .filter(|name| !name.bytes().all(|c| c.is_ascii_uppercase()))
    {
        assert!(document.contains(&format!("`{name}`")), "{name}");
    }
    for control in Control::ALL {
        assert!(document.contains(&format!("`{control}`")), "{control}");
    }
    for entry in CATALOGUE {
        assert!(
            document.contains(&format!("`{}`", entry.id)),
            "{}",
            entry.id
        );
    }
}

fn hostile() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("id"),
        Just("enforcement"),
        Just("requiredControls"),
        Just("network"),
        Just("hosts"),
        Just("process"),
        Just("environment"),
        Just("syscalls"),
        Just("deny"),
        Just("A"),
        Just("é\0"),
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        word.clone()
            .prop_map(|word| serde_json::to_string(word).unwrap()),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5)
                .prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((word.clone(), inner), 0..6).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| {
                    format!("{}: {value}", serde_json::to_string(name).unwrap())
                });
                format!("{{{}}}", fields.collect::<Vec<_>>().join(",\n"))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn hostile_documents_are_judged_without_panic(text in hostile()) {
        if let Err(error) = Policy::parse("h", text.as_bytes()) {
            prop_assert!(!error.problems().is_empty());
            for problem in error.problems() {
                prop_assert!(text.get(problem.span()).is_some());
                let mut shown = String::new();
                GraphicalReportHandler::new().render_report(&mut shown, problem).unwrap();
            }
        }
    }

    #[test]
    fn any_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Policy::parse("h", &bytes).is_err());
    }

    #[test]
    fn a_cut_document_is_refused_at_its_end(cut in 0..CATALOGUE[1].text.len() - 2) {
        let text = &CATALOGUE[1].text.as_bytes()[..cut];
        prop_assert!(Policy::parse("h", text).is_err());
    }
}
