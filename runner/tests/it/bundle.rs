//! `runner bundle`: from runs to one file that `verify` judges with nothing else.

use std::fs;

use crate::verifier::{NO_VERIFIER, verdict, verifier};
use crate::world::{ready, skip};

#[test]
fn a_bundle_is_judged_where_nothing_else_is() {
    let world = ready!();
    for word in ["one", "two", "three"] {
        world.exec("", &["echo", word]).ended(0);
    }
    // Beyond 4 KiB the output is a blob.
    world
        .exec("", &["head", "-c", "9000", "/dev/zero"])
        .ended(0);
    let runs = world.evidence().runs();
    let id = runs[1].start.run.to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("bundle");
    let shown = path.display().to_string();
    let asked = [
        ("--all", 10, 0),
        ("", 10, 0),
        ("--last 1", 4, 6),
        ("--last 2", 6, 4),
        (&format!("--run {id}"), 4, 6),
        ("--last 1 --withhold stdout,argv,launch,stderr", 4, 6),
    ];
    for (options, records, withheld) in asked {
        let ran = world
            .run(&format!("--json bundle -o {shown} {options}"))
            .ended(0);
        let said = ran.json();
        assert_eq!(
            (&said["records"], &said["withheld"]),
            (&records.into(), &withheld.into()),
            "{options}"
        );
        let bundle = fs::read_to_string(&path).unwrap();
        assert_eq!(bundle.len() as u64, said["bytes"]);
        let hidden = options.contains("withhold");
        assert_eq!(bundle.contains(r#"{"open":"#), !hidden, "{options}");
        // The policy, and the output of the last run where it is shown.
        let files = if hidden || options.contains("--run") {
            1
        } else {
            2
        };
        assert_eq!(said["files"], files, "{options}");
        let Some(verify) = verifier() else {
            skip("a_bundle_is_judged_where_nothing_else_is", NO_VERIFIER);
            continue;
        };
        let judged = verdict(verify, &path, None);
        assert_eq!(
            (judged.code, judged.codes().len()),
            (0, 0),
            "{options}: {judged:#?}"
        );
        assert_eq!(judged.document["withheld"], withheld);
        let again = elsewhere.path().join("again");
        world
            .run(&format!("bundle -o {} {options}", again.display()))
            .ended(0);
        assert_eq!(fs::read(again).unwrap(), bundle.as_bytes(), "{options}");
    }
}

#[test]
fn a_bundle_of_a_ledger_whose_key_is_gone_ends_with_its_checkpoint() {
    let world = ready!();
    world.exec("--key ephemeral", &["true"]).ended(0);
    let path = world.path("bundle");
    let ran = world.run(&format!("bundle -o {}", path.display())).ended(0);
    assert!(ran.err.contains("the bundle ends with"), "{}", ran.err);
    if let Some(verify) = verifier() {
        let judged = verdict(verify, &path, None);
        assert_eq!((judged.code, &judged.document["records"]), (0, &4.into()));
    }
}

#[test]
fn wrong_use_writes_nothing() {
    let world = ready!();
    world.exec("", &["true"]).ended(0);
    let path = world.path("bundle");
    let shown = path.display();
    for (line, code) in [
        (format!("bundle -o {shown} --last 0"), 2),
        (format!("bundle -o {shown} --last 1 --all"), 2),
        (format!("bundle -o {shown} --run nonsense"), 2),
        (format!("bundle -o {shown} --withhold everything"), 2),
        ("bundle --all".to_owned(), 2),
        ("bundle -o -".to_owned(), 2),
        (format!("bundle -o {shown} --matrix"), 125),
        (format!("bundle -o {shown} --run {}", "0".repeat(32)), 125),
        (
            format!("bundle -o {}/bundle", world.ledger().display()),
            125,
        ),
    ] {
        let ran = world.run(&line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:#?}");
        assert!(!path.exists(), "{line}");
    }
}
