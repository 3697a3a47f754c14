//! Every vector gives its exit code and one of its codes.

use std::fs;

use ledger::file::source::Source;
use ledger::file::walk::{CompleteBy, Given, Walked, walk};
use ledger::finding::{Class, Code};
use serde::Deserialize;

use crate::support::vectors;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expected {
    exit_code: u8,
    any_of: Vec<String>,
}

fn walked(name: &str) -> Walked {
    let folder = vectors().join(name);
    let given = fs::read(folder.join("given-checkpoint")).ok();
    let given = given.as_deref().map(|bytes| Given {
        name: "given-checkpoint",
        bytes,
    });
    let mut source = Source::open(&folder.join("ledger")).unwrap();
    walk(&mut source, given, &mut ()).unwrap()
}

/// Needs rules over several records: `verify` checks these.
const BY_RULES: [&str; 4] = [
    "execution_without_start",
    "verdict_changed",
    "violations_under_native",
    "violations_unsaid",
];

#[test]
fn every_vector_gives_its_exit_code_and_one_of_its_codes() {
    let mut seen = 0;
    for entry in fs::read_dir(vectors()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if BY_RULES.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read(vectors().join(&name).join("expected.json")).unwrap();
        let expected: Expected = serde_json::from_slice(&text).unwrap();
        let walked = walked(&name);
        let code = walked.findings.exit_code(walked.tally.records);
        let list = walked.findings.into_list();
        assert_eq!(code, expected.exit_code, "{name}: {list:#?}");
        let codes: Vec<Code> = list.iter().map(|finding| finding.code).collect();
        if expected.any_of.is_empty() {
            let bad = codes.iter().find(|code| code.class() != Class::Observation);
            assert_eq!(bad, None, "{name}: {list:#?}");
        } else {
            let any = expected.any_of.iter().map(|code| code.parse().unwrap());
            assert!(
                any.clone().any(|code: Code| codes.contains(&code)),
                "{name}: expected one of {:?}, found {list:#?}",
                expected.any_of
            );
        }
        seen += 1;
    }
    assert!(seen >= 55, "only {seen} vectors found");
}

#[test]
fn a_given_checkpoint_says_how_far_the_ledger_is_whole() {
    let completeness = walked("valid_extends_checkpoint_given").completeness;
    assert_eq!((completeness.through, completeness.after), (Some(1), 2));
    assert_eq!(completeness.by, Some(CompleteBy::Given));
    assert!(!completeness.covers_head());
    let closed = walked("closed").completeness;
    assert_eq!(closed.by, Some(CompleteBy::Closed));
    assert!(closed.covers_head());
    // A stored checkpoint lies beside the records: whoever cuts one can cut the other.
    let stored = walked("valid_with_checkpoint").completeness;
    assert_eq!((stored.through, stored.by), (None, None));
}

#[test]
fn keys_that_no_genesis_names_are_one_finding_with_a_count() {
    let list = walked("first_record_deleted").findings.into_list();
    let unknown: Vec<_> = list
        .iter()
        .filter(|finding| finding.code == Code::KeyUnknown)
        .collect();
    assert_eq!(unknown.len(), 1);
    assert!(unknown[0].count > 1);
}
