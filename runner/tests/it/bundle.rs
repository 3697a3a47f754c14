//! `runner bundle`: from runs to one file that `verify` judges with nothing else.

use std::fs;

use std::path::Path;
use std::process::Command;

use crate::matrix::some_rows;
use crate::verifier::{NO_VERIFIER, by_python, verdict, verifier};
use crate::world::{Ran, ready, skip};

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

#[test]
fn a_matrix_is_carried_away_as_it_is_measured() {
    let world = ready!();
    let suite = some_rows(&world, &["descriptors"]);
    // An older matrix and a run beside it stay at home.
    world
        .run(&format!("matrix --runtime embedded --suite {suite}"))
        .ended(0);
    world.exec("", &["true"]).ended(0);
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("report");
    fs::write(&file, "what stood there before").unwrap();
    let shown = file.display().to_string();
    let ran = world
        .run(&format!(
            "matrix --json --runtime embedded --suite {suite} --report {shown}"
        ))
        .ended(0);
    assert_eq!(ran.json()["schema"], "runner/matrix/v1");
    assert!(ran.err.contains(&shown), "{ran:#?}");
    let named: Vec<_> = fs::read_dir(elsewhere.path()).unwrap().collect();
    assert_eq!(named.len(), 1, "{named:?}");
    // The same as `runner bundle` makes of it.
    let again = elsewhere.path().join("again");
    world
        .run(&format!("bundle --matrix -o {}", again.display()))
        .ended(0);
    let bundle = fs::read(&file).unwrap();
    assert_eq!(fs::read(&again).unwrap(), bundle);
    fs::rename(world.ledger(), world.path("away")).unwrap();
    let test = "a_matrix_is_carried_away_as_it_is_measured";
    let Some(verify) = verifier() else {
        return skip(test, NO_VERIFIER);
    };
    let judged = verdict(verify, &file, None);
    // The other controls were not measured, which is what `verify` says of the ledger, too.
    let codes = judged.codes();
    assert!(
        codes.iter().all(|code| *code == "declared-unmeasured"),
        "{judged:#?}"
    );
    assert!(judged.document["withheld"].as_u64().unwrap() > 0);
    let table = Command::new(verify)
        .args(["matrix", "--format", "json"])
        .arg(&file)
        .output()
        .unwrap();
    let table = Ran::of(table).ended(judged.code).json();
    assert_eq!(table["cells"], ran.json()["cells"]);
    assert_eq!(table["summary"], ran.json()["summary"]);
    match by_python(&file) {
        Err(why) => skip(test, why),
        Ok(output) => assert_eq!(output.status.code(), Some(0), "{output:?}"),
    }
}

#[test]
fn a_report_that_cannot_be_written_measures_nothing() {
    let world = ready!();
    let suite = some_rows(&world, &["descriptors"]);
    let folder = world.folder("folder");
    let inside = world.ledger().join("report");
    fs::create_dir_all(world.path("state/containment-ledger")).unwrap();
    for (file, code) in [
        (Path::new("-"), 2),
        (&folder, 125),
        (&folder.join("none/report"), 125),
        (&inside, 125),
        (Path::new("/proc/report"), 125),
    ] {
        let line = format!("matrix --suite {suite} --report {}", file.display());
        let ran = world.run(&line).ended(code);
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{ran:#?}");
        assert!(!world.ledger().exists(), "{line}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
