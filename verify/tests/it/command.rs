//! The command line: exit codes, formats, refusals, manners.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use crate::support::{json, run, valid, vectors, verify};

#[test]
fn options_of_later_versions_are_refused_and_never_ignored() {
    for arguments in [
        &["--trust", "f"][..],
        &["--revoked", "f"],
        &["--require-trust"],
        &["--max-age", "1d"],
        &["--since", "s"],
        &["--save-state", "s"],
        &["--format", "jsonl"],
        &["--format", "sarif"],
        &["--format", "junit"],
        &["--format", "github"],
        &["--format", "markdown"],
        &["--output", "sarif=f"],
    ] {
        let (code, stdout, stderr) = run(verify().arg(valid()).args(arguments));
        assert_eq!(code, 2, "{arguments:?}");
        assert!(
            stderr.contains("needs a later version"),
            "{arguments:?}: {stderr}"
        );
        assert_eq!(stdout, "", "{arguments:?}");
    }
    for command in [
        &["diff", "a", "b", "--format", "html"][..],
        &["matrix", "x.tlog-proof"],
        &["report", "a", "-o", "page.html"],
        &["x.tlog-proof"],
    ] {
        let (code, _, stderr) = run(verify().args(command));
        assert_eq!(code, 2, "{command:?}");
        assert!(
            stderr.contains("needs a later version"),
            "{command:?}: {stderr}"
        );
    }
}

#[test]
fn what_is_no_ledger_is_usage_and_never_green() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("README.md"), "text").unwrap();
    for path in [folder.path().join("missing"), other] {
        let (code, stdout, stderr) = run(verify().arg(&path).args(["--format", "json"]));
        assert_eq!(code, 2, "{stderr}");
        let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(result["exitCode"], 2);
        assert_eq!(result["schema"], "verify/result/v1");
        assert_eq!(
            result["assurance"]["integrity"]["status"],
            "not-established"
        );
        assert!(!stderr.is_empty());
    }
    let (code, ..) = run(&mut verify());
    assert_eq!(code, 2);
    let (code, stdout, _) = run(verify().args(["--json", "--nonsense"]));
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &result["exitCode"]), (2, &2.into()));
}

#[test]
fn an_empty_ledger_is_13_and_an_emptied_one_10() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(run(verify().arg(path)).0, 13);
    fs::create_dir(path.join("records")).unwrap();
    assert_eq!(run(verify().arg(path)).0, 13);
    assert_eq!(run(verify().arg(path).arg("--require-checkpoint")).0, 13);
    let checkpoint = vectors().join("valid_with_checkpoint/ledger/checkpoint");
    let (code, stdout, _) = run(verify().arg(path).arg("--checkpoint").arg(&checkpoint));
    assert_eq!(code, 10);
    assert!(stdout.contains("tail-truncated"), "{stdout}");
    fs::copy(checkpoint, path.join("checkpoint")).unwrap();
    fs::remove_dir(path.join("records")).unwrap();
    assert_eq!(run(verify().arg(path)).0, 10);
    // Empty or all zero, as a crash may leave it, it counts as absent.
    for absent in [&b""[..], &[0; 200]] {
        fs::write(path.join("checkpoint"), absent).unwrap();
        assert_eq!(run(verify().arg(path)).0, 13);
    }
}

#[test]
fn an_unreadable_file_is_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    // The checkpoint that is given is a folder: open works, read fails, for root too.
    let (code, stdout, stderr) = run(verify()
        .arg(valid())
        .arg("--json")
        .arg("--checkpoint")
        .arg(folder.path()));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("Is a directory"), "{stderr}");
    assert!(stderr.contains(folder.path().file_name().unwrap().to_str().unwrap()));
    assert!(stderr.contains("verify::checkpoint_unreadable"), "{stderr}");
    assert!(stderr.contains("help: "), "{stderr}");
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["exitCode"], 1);
    // One that is not there is a slip of whoever typed it.
    let missing = folder.path().join("missing");
    let (code, _, stderr) = run(verify().arg(valid()).arg("--checkpoint").arg(&missing));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("type --checkpoint FILE"), "{stderr}");
}

/// A copy of a ledger with a stored checkpoint.
fn with_checkpoint(at: &Path) {
    let from = vectors().join("valid_with_checkpoint/ledger");
    fs::create_dir(at.join("records")).unwrap();
    for name in ["checkpoint", "records/00000000.jsonl"] {
        fs::copy(from.join(name), at.join(name)).unwrap();
    }
}

#[test]
fn what_may_not_be_read_is_named_and_is_no_verdict() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let given = folder.path().join("given");
    fs::create_dir(&ledger).unwrap();
    with_checkpoint(&ledger);
    fs::copy(ledger.join("checkpoint"), &given).unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (path, named) in [
        (given.clone(), "verify::checkpoint_unreadable"),
        (ledger.join("checkpoint"), "verify::unreadable"),
        (ledger.join("records/00000000.jsonl"), "verify::unreadable"),
        (ledger.join("records"), "verify::unreadable"),
        (ledger.clone(), "verify::unreadable"),
    ] {
        let before = fs::metadata(&path).unwrap().permissions().mode();
        mode(&path, 0);
        if fs::File::open(&path).is_ok() {
            mode(&path, before);
            eprintln!(
                "SKIPPED: what_may_not_be_read_is_named_and_is_no_verdict: root may open every file"
            );
            return;
        }
        let mut command = verify();
        command.arg(&ledger).arg("--checkpoint").arg(&given);
        let (code, stdout, stderr) = run(command.arg("--json"));
        mode(&path, before);
        let name = path.display();
        assert_eq!(code, 1, "{name}: {stderr}");
        let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let error = result["error"].as_str().unwrap();
        assert!(error.contains(&format!("cannot open {name}: ")), "{error}");
        assert!(error.contains("Permission denied"), "{error}");
        assert!(stderr.contains(named), "{name}: {stderr}");
        assert!(stderr.contains("check "), "{name}: {stderr}");
        assert!(!stderr.contains("not_a_ledger"), "{name}: {stderr}");
    }
}

#[test]
fn a_folder_for_a_stored_checkpoint_is_a_finding_about_it() {
    let folder = tempfile::tempdir().unwrap();
    with_checkpoint(folder.path());
    let checkpoint = folder.path().join("checkpoint");
    fs::remove_file(&checkpoint).unwrap();
    fs::create_dir(&checkpoint).unwrap();
    let output = verify().arg(folder.path()).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(10));
    let finding = &json(&output)["findings"][0];
    assert_eq!(finding["code"], "checkpoint-invalid");
    assert_eq!(finding["place"]["file"], "checkpoint");
}

#[test]
fn wrong_usage_says_what_to_type() {
    let file = vectors().join("valid/expected.json");
    let (folder, file) = (file.parent().unwrap(), file.to_str().unwrap());
    for (arguments, says) in [
        (&[][..], "type `verify PATH`"),
        (&["/nonexistent"], "type `verify PATH`"),
        (&[folder.to_str().unwrap()], "type `verify PATH`"),
        (&[file, "--checkpoint", "/nonexistent"], "--checkpoint FILE"),
        (&[file, file], "`verify PATH` checks one ledger"),
        (&[file, "explain"], "`verify explain [CODE]`"),
        (&["explain", "nonsense"], "`verify explain` lists"),
        (&[file, "--threads", "0"], "such as --threads 4"),
        (&[file, "--threads", "many"], "such as --threads 4"),
        (&[file, "--format", "xml"], "expected human or json"),
        (
            &[file, "--output", "r.json"],
            "such as --output json=result.json",
        ),
        (&[file, "--nonsense"], "Usage: "),
        (&["report", "a"], "leave it out"),
        (&["diff", "a"], "Usage: "),
        (&["matrix"], "Usage: "),
        (&["diff", file, "/nonexistent"], "type `verify PATH`"),
    ] {
        let (code, stdout, stderr) = run(verify().args(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        // However the lines were broken.
        let flat = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(says), "{arguments:?}: {stderr}");
    }
    let (_, _, stderr) = run(verify().args(["explain", "nonsense"]));
    assert_eq!(stderr.matches("nonsense").count(), 1, "{stderr}");
}

#[test]
fn reads_standard_input_and_single_files() {
    let file = valid().join("records/00000000.jsonl");
    let (code, from_file, _) = run(verify().arg(&file).arg("--json"));
    assert_eq!(code, 0);
    let mut child = verify()
        .args(["-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(&fs::read(&file).unwrap())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(from_file.as_bytes(), output.stdout);
    let result = json(&output);
    let status = |id: &str| {
        let checks = result["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["id"] == id).unwrap();
        check["status"].clone()
    };
    for id in ["blobs", "torn", "segments"] {
        assert_eq!(status(id), "not-checked", "{id}");
    }
    assert_eq!(status("signatures"), "pass");
}

#[test]
fn the_result_has_exactly_its_fields() {
    let (_, stdout, _) = run(verify().arg(valid()).arg("--json"));
    assert_eq!(stdout.lines().count(), 1);
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let names = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    let mut top = names(&result);
    top.sort();
    assert_eq!(
        top,
        [
            "assurance",
            "checks",
            "denied",
            "exitCode",
            "findings",
            "head",
            "ledger",
            "records",
            "schema"
        ]
    );
    let mut assurances = names(&result["assurance"]);
    assurances.sort();
    assert_eq!(
        assurances,
        ["completeness", "consistency", "identity", "integrity"]
    );
    let completeness = &result["assurance"]["completeness"];
    assert!(completeness["through"].is_null() && completeness["by"].is_null());
    assert_eq!(completeness["after"], 4);
    assert_eq!(result["head"]["sequence"], 3);
    assert_eq!(result["records"], 4);
}

#[test]
fn what_was_denied_is_shown_to_who_asks_most_often_first() {
    let denied = vectors().join("violations_valid/ledger");
    let (_, stdout, _) = run(verify().arg(&denied).arg("--json"));
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let call =
        |call, count| serde_json::json!({"call": call, "count": count, "first": 2, "runs": 1});
    assert_eq!(
        result["denied"],
        serde_json::json!({
            "calls": [call("ptrace", 3), call("unnamed", 2), call("keyctl", 1)],
            "heard": 1,
            "partly": 0,
            "unheard": 0
        })
    );
    let (_, stdout, _) = run(verify().arg(&denied).arg("--all"));
    let at = stdout.find("denied system calls in 1 run (probes not counted): most often first\n");
    let lines: Vec<Vec<&str>> = stdout[at.expect(&stdout)..]
        .lines()
        .skip(1)
        .take(3)
        .map(|line| line.split_whitespace().take(4).collect())
        .collect();
    let expected = [("ptrace", "3"), ("unnamed", "2"), ("keyctl", "1")];
    assert_eq!(
        lines,
        expected.map(|(call, count)| vec![call, count, "in", "1"])
    );
    let (_, stdout, _) = run(verify().arg(&denied));
    assert!(!stdout.contains("denied system calls"), "{stdout}");
    // Of a run that says nothing it is not known.
    let unsaid = vectors().join("violations_unsaid/ledger");
    let (_, stdout, _) = run(verify().arg(&unsaid).arg("--all"));
    let said = "denied system calls in 0 runs (probes not counted): nobody listened; of 1 other run it is not known\n";
    assert!(stdout.contains(said), "{stdout}");
    assert!(stdout.contains("violations-unsaid"), "{stdout}");
}

#[test]
fn a_required_checkpoint_must_cover_the_head() {
    let extends = vectors().join("valid_extends_checkpoint_given");
    let given = extends.join("given-checkpoint");
    let (code, stdout, _) = run(verify()
        .arg(extends.join("ledger"))
        .arg("--checkpoint")
        .arg(&given)
        .args(["--require-checkpoint", "--json"]));
    assert_eq!(code, 11);
    assert!(stdout.contains("checkpoint-required"), "{stdout}");
    let whole = vectors().join("valid_with_checkpoint/ledger");
    let command = |require: &[&str]| {
        run(verify()
            .arg(&whole)
            .args(require)
            .arg("--checkpoint")
            .arg(whole.join("checkpoint")))
        .0
    };
    assert_eq!(command(&["--require-checkpoint"]), 0);
    // The stored one proves nothing against whoever holds the folder.
    let alone = run(verify().arg(&whole).arg("--require-checkpoint"));
    assert_eq!(alone.0, 11);
    let closed = vectors().join("closed/ledger");
    assert_eq!(run(verify().arg(closed).arg("--require-checkpoint")).0, 0);
}

#[test]
fn one_run_writes_several_formats() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let output = |format: &str, path: &Path| format!("{format}={}", path.display());
    let (code, stdout, _) = run(verify()
        .arg(valid())
        .args(["--output", &output("json", &file("a.json"))])
        .args(["--output", &output("human", &file("b.txt"))])
        .args(["--color", "always"]));
    assert_eq!(code, 0);
    assert!(stdout.contains("\u{1b}["));
    let written = fs::read(file("a.json")).unwrap();
    let result: serde_json::Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(result["exitCode"], 0);
    let text = fs::read_to_string(file("b.txt")).unwrap();
    assert!(text.starts_with("VERIFIED"), "no colours in files: {text}");
    let nowhere = output("json", &file("missing/c.json"));
    let (code, _, stderr) = run(verify().arg(valid()).args(["--output", &nowhere]));
    assert_eq!(code, 1);
    assert!(stderr.contains("c.json"), "{stderr}");
}

#[test]
fn colours_are_a_choice() {
    let plain = run(verify().arg(valid()).env("NO_COLOR", "1")).1;
    assert!(!plain.contains('\u{1b}'));
    let piped = run(verify().arg(valid())).1;
    assert!(!piped.contains('\u{1b}'));
    let forced = run(verify().arg(valid()).env("FORCE_COLOR", "1")).1;
    assert!(forced.contains('\u{1b}'));
    let never = run(verify()
        .arg(valid())
        .args(["--color", "never"])
        .env("FORCE_COLOR", "1"));
    assert!(!never.1.contains('\u{1b}'));
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let mut child = verify()
        .arg(valid())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn explains_every_code_offline() {
    let (code, list, _) = run(verify().arg("explain"));
    assert_eq!(code, 0);
    for code in ledger::finding::Code::ALL {
        assert!(list.contains(code.as_str()));
        let (status, page, _) = run(verify().args(["explain", code.as_str()]));
        assert_eq!(status, 0);
        assert!(page.contains(code.as_str()), "{code}");
    }
    let (code, _, stderr) = run(verify().args(["explain", "nonsense"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("nonsense"));
}

#[test]
fn a_failure_is_written_where_a_result_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.json");
    let output = format!("json={}", file.display());
    let other = vectors();
    for (arguments, expected) in [
        (&["/nonexistent"][..], 2),
        (&["--nonsense"], 2),
        (&["a", "b"], 2),
        (&["a", "explain"], 2),
        (&["-", "--since", "x"], 2),
        (&["-", "--checkpoint", other.to_str().unwrap()], 1),
        (&["-", "--output", "json=/nonexistent/r.json"], 1),
    ] {
        fs::write(&file, r#"{"exitCode":0}"#).unwrap();
        let mut command = verify();
        command.stdin(Stdio::null()).args(["--output", &output]);
        let (code, _, stderr) = run(command.args(arguments));
        assert_eq!(code, expected, "{arguments:?}: {stderr}");
        let result: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(result["exitCode"], expected, "{arguments:?}");
        assert!(!result["error"].as_str().unwrap().is_empty());
    }
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1, "nothing stays beside the result");
    // A link keeps pointing; a device stays one.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let output = format!("--output=json={}", link.display());
    let (code, ..) = run(verify()
        .arg(valid())
        .args([&output, "--output=json=/dev/null"]));
    assert_eq!(code, 0);
    assert!(link.is_symlink() && !Path::new("/dev/null").is_file());
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .contains(r#""exitCode":0"#)
    );
}

#[test]
fn options_stand_before_and_after_a_command() {
    let code = "clock-step";
    for arguments in [
        &["--json", "explain", code][..],
        &["explain", "--json", code],
        &["explain", code, "--json"],
        &["--color", "never", "explain", code, "--format", "json"],
    ] {
        let (status, stdout, stderr) = run(verify().args(arguments));
        assert_eq!(status, 0, "{arguments:?}: {stderr}");
        let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(result["code"], code);
    }
    let (status, stdout, _) = run(verify().args(["--quiet", "explain", code]));
    assert_eq!(status, 0);
    assert!(stdout.contains(code));
    for (arguments, says) in [
        (&["a", "b", "c"][..], "expected one ledger, found a, b, c"),
        (&["a", "explain", code], "a command takes no ledger"),
        (&["--trust", "f", "explain", code], "needs a later version"),
    ] {
        let (status, stdout, stderr) = run(verify().args(arguments));
        assert_eq!((status, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains(says), "{stderr}");
    }
}

#[test]
fn hostile_names_reach_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = "a\u{1b}[2J\u{202e}\u{2028}\u{200b}\u{9b}x";
    let unclean =
        |text: &str| text.contains(['\u{1b}', '\u{202e}', '\u{2028}', '\u{200b}', '\u{9b}']);
    let records = folder.path().join("records");
    fs::create_dir(&records).unwrap();
    fs::write(records.join(hostile), "").unwrap();
    let missing = folder.path().join(hostile);
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join(hostile), "").unwrap();
    for path in [folder.path(), &missing, &other] {
        for format in ["human", "json"] {
            let (code, stdout, stderr) = run(verify().arg(path).args(["--format", format]));
            assert_ne!(code, 0);
            assert!(
                !unclean(&stdout) && !unclean(&stderr),
                "{stdout:?} {stderr:?}"
            );
            assert!((stdout + &stderr).contains("202e"));
        }
    }
    for arguments in [
        &["explain", hostile][..],
        &["--format", hostile],
        &[hostile, hostile],
    ] {
        let (code, stdout, stderr) = run(verify().args(arguments));
        assert_eq!(code, 2);
        assert!(!unclean(&stdout) && !unclean(&stderr), "{stderr:?}");
    }
}

#[test]
fn under_a_limit_on_the_size_of_files_a_report_is_an_error_that_is_told() {
    let at = tempfile::tempdir().unwrap();
    let file = at.path().join("report.json");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 0 && exec \"$0\" \"$@\""]);
    command
        .arg(verify().get_program())
        .arg(valid())
        .args(["--output", &format!("json={}", file.display())]);
    let (code, _, stderr) = run(&mut command);
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("report.json") && stderr.contains("File too large"),
        "{stderr}"
    );
}
