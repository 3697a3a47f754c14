//! `verify matrix` and `verify diff`, through the binary.

use std::path::{Path, PathBuf};

use crate::support::measured::{Met, Scene};
use crate::support::{run, verify};

/// A ledger whose newest matrix found this, and its folder.
fn measured(declared: bool, met: Met) -> (Scene, PathBuf) {
    let mut scene = Scene::new();
    scene.measured("embedded", declared, met);
    let path = scene.maker.write().to_owned();
    (scene, path)
}

fn diff(a: &Path, b: &Path, more: &[&str]) -> (i32, String, String) {
    run(verify().arg("diff").arg(a).arg(b).args(more))
}

fn fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

#[test]
fn a_matrix_is_shown_with_what_to_do_about_it() {
    for (declared, met, exit_code, says) in [
        (true, Met::Refusal, 0, &["\u{2713} contained"][..]),
        (
            true,
            Met::WayOut,
            12,
            &[
                "\u{2717} false-guarantee, embedded, declared",
                "127.0.0.1:4711",
                "  do ",
            ],
        ),
        (
            false,
            Met::WayOut,
            0,
            &["\u{25cb} escaped, embedded, not declared", "honest gap"],
        ),
        (
            true,
            Met::NoOracle,
            12,
            &["? inconclusive: oracle-unavailable, embedded, declared"],
        ),
    ] {
        let (_scene, path) = measured(declared, met);
        let (code, stdout, stderr) = run(verify().arg("matrix").arg(&path));
        assert_eq!((code, stderr.as_str()), (exit_code, ""), "{stdout}");
        assert!(stdout.contains("network/tcp4"), "{stdout}");
        for text in says {
            assert!(stdout.contains(text), "{text}: {stdout}");
        }
        // The first line is the verdict of `verify` about the whole ledger.
        let (_, table) = stdout.split_once('\n').unwrap();
        fits(table);
        let painted = run(verify()
            .arg("matrix")
            .arg(&path)
            .args(["--color", "always"]));
        assert!(painted.1.contains("\u{1b}["));
    }
}

#[test]
fn the_document_of_a_matrix_has_its_shape() {
    let (_scene, path) = measured(true, Met::WayOut);
    let (code, stdout, _) = run(verify().arg("matrix").arg(&path).arg("--json"));
    assert_eq!((code, stdout.lines().count()), (12, 1));
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["schema"], "runner/matrix/v1");
    assert_eq!(document["host"]["kernel"], "6.18.0");
    let expected = serde_json::json!({
        "runtime": "embedded",
        "dimension": "network",
        "check": "network/tcp4",
        "declared": true,
        "verdict": "false-guarantee",
        "reason": null,
        "detail": "127.0.0.1:4711: nonce",
    });
    assert_eq!(document["cells"][0], expected);
    assert_eq!(document["cells"].as_array().unwrap().len(), 2);
    assert_eq!(
        document["summary"]["runtimes"]["embedded"]["false-guarantee"],
        2
    );
}

#[test]
fn the_computed_verdict_is_shown_and_never_one_from_invalid_evidence() {
    let (mut scene, path) = measured(true, Met::Refusal);
    let text = String::from_utf8(scene.maker.lines.clone()).unwrap();
    scene.maker.lines = text
        .replacen("\"contained\"", "\"escaped\"", 1)
        .into_bytes();
    scene.maker.write();
    let (code, stdout, _) = run(verify().arg("matrix").arg(&path));
    assert_eq!(code, 10);
    assert!(
        stdout.starts_with("INVALID") && !stdout.contains("matrix 10 "),
        "{stdout}"
    );
    let (code, stdout, _) = run(verify().arg("matrix").arg(&path).arg("--json"));
    assert_eq!(code, 10);
    assert!(stdout.contains("verify/result/v1"), "{stdout}");
    let (_other, good) = measured(true, Met::Refusal);
    for (a, b) in [(&path, &good), (&good, &path)] {
        let (code, stdout, _) = diff(a, b, &[]);
        assert_eq!(code, 10);
        assert!(stdout.starts_with("NOT COMPARED"), "{stdout}");
    }
}

#[test]
fn without_a_matrix_there_is_nothing_to_show() {
    let empty = Scene::new();
    let path = empty.maker.write().to_owned();
    let (code, stdout, _) = run(verify().arg("matrix").arg(&path));
    assert_eq!(code, 13);
    assert!(stdout.contains("no matrix"), "{stdout}");
    let (_scene, good) = measured(true, Met::Refusal);
    let (code, stdout, _) = diff(&path, &good, &["--json"]);
    assert_eq!(code, 13);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["exitCode"], 13);
    assert!(
        document["error"]
            .as_str()
            .unwrap()
            .contains("holds no matrix")
    );
}

#[test]
fn several_ledgers_are_shown_one_after_the_other_and_the_worst_counts() {
    let (_a, good) = measured(true, Met::Refusal);
    let (_b, bad) = measured(true, Met::WayOut);
    let (code, stdout, _) = run(verify().arg("matrix").arg(&good).arg(&bad));
    assert_eq!(code, 12);
    assert!(stdout.contains(good.to_str().unwrap()) && stdout.contains(bad.to_str().unwrap()));
    let (code, stdout, _) = run(verify().arg("matrix").arg(&good).arg(&bad).arg("--json"));
    assert_eq!((code, stdout.lines().count()), (12, 2));
    let mut command = verify();
    command.arg("matrix").arg(&good).arg(&bad);
    let (code, _, stderr) = run(command.args(["--checkpoint", "x"]));
    assert_eq!(code, 2, "{stderr}");
}

#[test]
fn only_a_regression_makes_a_diff_fail() {
    let scenes = [
        measured(true, Met::Refusal),
        measured(true, Met::WayOut),
        measured(true, Met::NoOracle),
        measured(false, Met::WayOut),
        measured(false, Met::Refusal),
    ];
    let [contained, broken, unsure, gap, undeclared] = scenes.each_ref().map(|(_, path)| path);
    for (a, b, exit_code, says) in [
        (contained, contained, 0, "NO REGRESSION  2 same"),
        (broken, broken, 0, "NO REGRESSION  2 same"),
        (contained, broken, 12, "REGRESSED  2 regressed"),
        (contained, unsure, 12, "REGRESSED  2 regressed"),
        (contained, gap, 12, "REGRESSED  2 regressed"),
        (gap, broken, 12, "REGRESSED  2 regressed"),
        (broken, gap, 0, "NO REGRESSION  2 improved"),
        (broken, contained, 0, "NO REGRESSION  2 improved"),
        (contained, undeclared, 0, "NO REGRESSION  2 reason changed"),
        (broken, unsure, 0, "NO REGRESSION  2 reason changed"),
        (gap, unsure, 0, "NO REGRESSION  2 reason changed"),
        (unsure, contained, 0, "NO REGRESSION  2 improved"),
    ] {
        let (code, stdout, stderr) = diff(a, b, &[]);
        assert_eq!((code, stderr.as_str()), (exit_code, ""), "{stdout}");
        assert!(stdout.starts_with(says), "{says}: {stdout}");
        let paths = stdout
            .lines()
            .filter(|line| !line.contains(a.to_str().unwrap()));
        let paths = paths.filter(|line| !line.contains(b.to_str().unwrap()));
        fits(&paths.collect::<Vec<_>>().join("\n"));
        let (code, stdout, _) = diff(a, b, &["--json"]);
        let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(
            (code, &document["exitCode"]),
            (exit_code, &exit_code.into())
        );
        assert_eq!(document["schema"], "verify/diff/v1");
    }
    let (_, stdout, _) = diff(contained, broken, &["--json"]);
    assert_eq!(
        stdout.matches(r#""code":"regression""#).count(),
        2,
        "{stdout}"
    );
    let (_, stdout, _) = diff(contained, broken, &[]);
    assert!(stdout.contains("verify explain regression"), "{stdout}");
    assert!(
        stdout.contains("same host, policy, suite and runtimes"),
        "{stdout}"
    );
    assert!(
        stdout.contains("B \u{2717} false-guarantee, declared"),
        "{stdout}"
    );
}

#[test]
fn files_and_folders_are_compared_in_any_mix_and_what_is_only_here_is_named() {
    let (_a, folder) = measured(true, Met::Refusal);
    let mut other = Scene::new();
    let mut facts = crate::support::records::host();
    facts.uid = 1_000;
    other.host = other
        .maker
        .record(ledger::record::Body::Host(Box::new(facts)));
    other.measured("template", true, Met::Refusal);
    other.measured("embedded", true, Met::Refusal);
    let second = other.maker.write().join("records/00000000.jsonl");
    let (code, stdout, _) = diff(&folder, &second, &[]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("2 only in B"), "{stdout}");
    assert!(
        stdout.contains("  host uid\n    A 0\n    B 1000\n"),
        "{stdout}"
    );
    assert!(stdout.contains("template network/tcp4"), "{stdout}");
    let (code, stdout, _) = diff(&second, &folder, &["-q"]);
    assert_eq!((code, stdout.lines().count()), (0, 1));
    assert!(stdout.contains("2 only in A"), "{stdout}");
    let (_, stdout, _) = diff(&second, &folder, &[]);
    let named = "  runtime template\n    A version 0.1.0\n    B (not there)\n";
    assert!(stdout.contains(named), "{stdout}");
    assert!(!stdout.contains("same host"), "{stdout}");
}

#[test]
fn standard_input_is_one_side() {
    let (_scene, path) = measured(true, Met::Refusal);
    let input = Path::new("-");
    for name in ["diff", "matrix"] {
        let (code, stdout, stderr) = run(verify().arg(name).arg(input).arg(input));
        assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
        assert!(stderr.contains("standard input is one ledger"), "{stderr}");
    }
    let mut command = verify();
    let records = std::fs::File::open(path.join("records/00000000.jsonl")).unwrap();
    command.arg("diff").arg(&path).arg(input).stdin(records);
    assert_ne!(run(&mut command).0, 2);
}

#[test]
fn hostile_names_in_a_matrix_reach_no_terminal() {
    let mut scene = Scene::new();
    scene.policy.id = "p\u{1b}[2J\u{202e}\u{9b}".to_owned();
    scene.measured("embedded\u{1b}\u{202e}", true, Met::WayOut);
    let path = scene.maker.write();
    let (_good, other) = measured(true, Met::Refusal);
    let unclean = |text: &str| text.contains(['\u{1b}', '\u{202e}', '\u{9b}']);
    for format in ["human", "json"] {
        let matrix = run(verify().arg("matrix").arg(path).args(["--format", format]));
        let diff = diff(path, &other, &["--format", format]);
        for (_, stdout, stderr) in [matrix, diff] {
            assert!(stdout.contains("202e"), "{stdout}");
            assert!(!unclean(&stdout) && !unclean(&stderr), "{stdout:?}");
        }
    }
}
