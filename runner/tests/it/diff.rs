//! `verify diff` of matrices that were measured: root and an ordinary user, before and after a mechanism is lost.
//!
//! What people read stands under `expected/`, as it comes out but for what is this host's alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::matrix::some_rows;
use crate::verifier::{NO_VERIFIER, verifier};
use crate::world::{Ran, World, is_root, ready, skip};

/// Measures some rows, of `syscalls` the checks that do not depend on the machine, into a bundle.
fn measure(world: &World, rows: &[&str], fault: &str, name: &str) -> PathBuf {
    let suite = some_rows(world, rows);
    let table = Path::new(&suite).join("suite.json");
    let text = std::fs::read_to_string(&table).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for row in json["probes"].as_array_mut().unwrap() {
        let checks = row["checks"].as_array_mut().unwrap();
        checks.retain(|check| !matches!(check["check"].as_str(), Some("alternate" | "new")));
    }
    std::fs::write(&table, json.to_string()).unwrap();
    let file = world.path("home").join(name);
    let line = format!(
        "matrix -q --runtime embedded --suite {suite} --report {}",
        file.display()
    );
    let mut command = world.command(line.split_whitespace());
    command.env("RUNNER_FAULT", fault);
    Ran::of(command.output().unwrap()).ended(0);
    file
}

/// What `verify diff` says, without paths, and what differs from host to host and from run to run.
fn diff(verify: &Path, a: &Path, b: &Path, code: i32) -> String {
    let output = Command::new(verify).arg("diff").args([a, b]).output();
    let ran = Ran::of(output.unwrap()).ended(code);
    assert_eq!(ran.err, "");
    let mut text = String::new();
    for line in ran.out.lines() {
        let line = match line.split_at_checked(3) {
            Some((side @ ("A  " | "B  "), _)) => format!("{side}FILE"),
            _ => line.to_owned(),
        };
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(line.trim_end(), line);
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The first line, and what follows `not the same:` up to the cells.
fn cells(text: &str) -> String {
    let (first, rest) = text.split_once('\n').unwrap();
    let at = rest.find("\nreason changed\n").unwrap();
    format!("{first}\n{}", &rest[at..])
}

#[test]
fn two_measurements_of_one_sandbox_are_the_same() {
    let world = ready!();
    let Some(verify) = verifier() else {
        return skip("two_measurements_of_one_sandbox_are_the_same", NO_VERIFIER);
    };
    // Another ledger, other keys, another run.
    let other = World::new();
    let a = measure(&world, &["descriptors", "syscalls"], "", "a");
    let b = measure(&other, &["descriptors", "syscalls"], "", "b");
    assert_eq!(diff(verify, &a, &b, 0), include_str!("expected/diff-same"));
}

#[test]
fn a_lost_mechanism_is_a_regression_and_its_return_none() {
    let world = ready!();
    let Some(verify) = verifier() else {
        return skip(
            "a_lost_mechanism_is_a_regression_and_its_return_none",
            NO_VERIFIER,
        );
    };
    let rows = ["descriptors", "syscalls"];
    let before = measure(&world, &rows, "", "before");
    let after = measure(&world, &rows, "seccomp=fail", "after");
    let lost = diff(verify, &before, &after, 12);
    assert_eq!(lost, include_str!("expected/diff-lost"));
    let mended = diff(verify, &after, &before, 0);
    assert_eq!(mended, include_str!("expected/diff-mended"));
    // The ledger itself in place of its newest bundle.
    let ledger = diff(verify, &before, &world.ledger(), 12);
    assert_eq!(ledger, lost);
}

#[test]
fn root_and_an_ordinary_user_differ_where_a_cell_says_why() {
    let test = "root_and_an_ordinary_user_differ_where_a_cell_says_why";
    let root = ready!();
    if !is_root() {
        return skip(test, "only root can be both");
    }
    let Some(user) = World::of_user(test, &[]) else {
        return;
    };
    let Some(verify) = verifier() else {
        return skip(test, NO_VERIFIER);
    };
    let rows = ["descriptors", "devices", "privilege", "user"];
    let a = measure(&root, &rows, "", "root");
    let b = measure(&user, &rows, "", "user");
    // Less can be tried; what was tried holds, so that nothing is a regression.
    let text = diff(verify, &a, &b, 0);
    assert!(
        text.contains("\n  host uid\n    A 0\n    B 61234\n"),
        "{text}"
    );
    assert!(
        text.contains("\n    B word 3 of ") && text.contains("host 61234"),
        "{text}"
    );
    assert_eq!(cells(&text), include_str!("expected/diff-root-user"));
    let back = diff(verify, &b, &a, 0);
    assert!(back.starts_with("NO REGRESSION"), "{back}");
}
