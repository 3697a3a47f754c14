//! Matrices in which nothing of a runtime was measured, suites that measure something else under the own rows' names, output
//! that cannot be written, and too many open files.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Stdio;

use crate::fakes::fake;
use crate::matrix::some_rows;
use crate::world::{Ran, World, in_bash, program, ready, skip};

/// A message without the breaks of its lines.
fn unwrapped(message: &str) -> String {
    let words: Vec<_> = message.split_whitespace().filter(|it| *it != "│").collect();
    words.join(" ")
}

/// What a line of arguments ends with where no program is installed.
fn without_programs(world: &World, line: &str) -> Ran {
    let mut command = world.command(line.split_whitespace());
    command.env("PATH", "/nowhere");
    Ran::of(command.output().unwrap())
}

#[test]
fn a_runtime_that_was_named_and_is_not_there_is_no_pass() {
    let world = ready!();
    for strict in ["", "--strict"] {
        let ran = without_programs(&world, &format!("matrix --runtime bwrap {strict}"));
        let ran = ran.ended(125);
        assert!(ran.err.contains("not measured: bwrap"), "{}", ran.err);
        assert!(ran.err.contains("nothing was measured"), "{}", ran.err);
    }
    // No matrix without a cell.
    assert!(!world.ledger().exists());
    let suite = some_rows(&world, &["descriptors"]);
    let line = format!("matrix --runtime embedded --suite {suite}");
    let named = format!("{line} --runtime bwrap");
    without_programs(&world, &named).ended(0);
    let ran = without_programs(&world, &format!("{named} --strict")).ended(12);
    let said = "bwrap was named, and nothing of it was measured";
    assert!(ran.err.contains(said), "{}", ran.err);
    // Those of the default list are measured as far as they are there.
    without_programs(&world, &format!("matrix --suite {suite} --strict")).ended(0);
}

#[test]
fn a_runtime_of_which_no_check_came_to_a_result_is_no_pass() {
    let world = ready!();
    let suite = some_rows(&world, &["descriptors", "network"]);
    for name in ["silent", "deny-all"] {
        let runtime = fake(name).display().to_string();
        let line = format!("matrix --allow-native --runtime {runtime} --suite {suite}");
        world.run(&line).ended(0);
        let ran = world.run(&format!("{line} --strict")).ended(12);
        let said = format!("no check of {name} came to a result: ");
        assert!(ran.err.contains(&said), "{}", ran.err);
    }
}

#[test]
fn an_own_row_that_says_something_else_is_refused_before_anything_is_measured() {
    let world = World::new();
    let suite = some_rows(&world, &["network"]);
    let path = Path::new(&suite).join("suite.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, field) in [
        (r#""oracle":"listener""#, r#""oracle":"line""#, "oracle"),
        (r#""twin":"instrument""#, r#""twin":"allowed""#, "twin"),
        (r#""denied":["#, r#""denied":["none","#, "denied"),
        (r#""needs":["ipv6"]"#, r#""needs":["root"]"#, "needs"),
        (r#""arguments":["#, r#""arguments":["x","#, "arguments"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let ran = world
            .run(&format!("matrix --runtime embedded --suite {suite}"))
            .ended(2);
        let said = unwrapped(&ran.err);
        assert!(said.contains(&format!("{field}: found ")), "{said}");
        assert!(said.contains("own row"), "{said}");
        let ran = world.run(&format!("validate {suite}")).ended(1);
        assert!(ran.err.contains("own row"), "{}", ran.err);
    }
    assert!(!world.ledger().exists());
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_a_reader_that_is_gone_is_none() {
    let world = World::new();
    let lines = [
        "policies",
        "--json policies",
        "runtimes",
        "--json runtimes",
        "validate",
        "completions bash",
        "--help",
        "plan --runtime native --allow-native -- true",
    ];
    for line in lines {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = world.command(line.split_whitespace());
        let ran = Ran::of(command.stdout(Stdio::from(full)).output().unwrap()).ended(125);
        let said = "cannot write to standard output: ";
        assert_eq!(ran.err.matches(said).count(), 1, "{line}: {}", ran.err);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = world.command(line.split_whitespace());
        let ran = Ran::of(command.stdout(writer).output().unwrap());
        assert!(!ran.err.contains("cannot write"), "{line}: {}", ran.err);
        assert_ne!(ran.code, Some(125), "{line}");
    }
}

#[test]
fn a_matrix_that_nobody_could_read_is_recorded_and_ends_with_a_failure() {
    let world = ready!();
    let suite = some_rows(&world, &["descriptors"]);
    for json in ["", "--json"] {
        let line = format!("matrix {json} --runtime embedded --suite {suite}");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = world.command(line.split_whitespace());
        let ran = Ran::of(command.stdout(Stdio::from(full)).output().unwrap()).ended(125);
        assert!(ran.err.contains("cannot write to standard"), "{}", ran.err);
    }
    let kinds = world.evidence().kinds();
    let matrices = kinds.iter().filter(|kind| **kind == "matrix");
    assert_eq!(matrices.count(), 2, "{kinds:?}");
}

#[test]
fn nothing_planted_stays_where_too_many_files_are_open() {
    let world = ready!();
    let Some(bash) = program("bash") else {
        return skip("nothing_planted_stays", "no bash");
    };
    let suite = some_rows(&world, &["filesystem", "process", "ipc"]);
    let mut failed = 0;
    for most in [22, 26, 28, 30, 34, 40] {
        let line = format!("matrix -q --runtime embedded --suite {suite}");
        let ran = in_bash(&world, &bash, &format!("ulimit -n {most}"), &line);
        failed += usize::from(ran.err.contains("os error 24"));
        let lists = world.path("state/containment-ledger/planted");
        let left: Vec<_> = std::fs::read_dir(&lists)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(left.is_empty(), "{most}: {left:?}: {}", ran.err);
    }
    assert!(failed > 0, "no limit was too low");
}

#[test]
fn a_probe_program_that_was_not_written_leaves_nothing() {
    let world = ready!();
    let suite = some_rows(&world, &["descriptors"]);
    let line = format!("matrix -q --runtime embedded --suite {suite}");
    world.run(&line).ended(0);
    let probes = world.path("state/containment-ledger/probes");
    let folder = std::fs::read_dir(&probes).unwrap().next().unwrap();
    let folder = folder.unwrap().path();
    // A writer of this number never lives; what has no number is somebody else's.
    File::create(folder.join("probe.4194305")).unwrap();
    File::create(folder.join("probe.mine")).unwrap();
    world.run(&line).ended(0);
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["probe", "probe.mine", "probe.wasm"]);
    let Some(bash) = program("bash") else {
        return skip("a_probe_program_that_was_not_written", "no bash");
    };
    // No file may be longer than this.
    std::fs::remove_file(folder.join("probe")).unwrap();
    let ran = in_bash(&world, &bash, "ulimit -f 64", &line).ended(125);
    let said = unwrapped(&ran.err).replace("/ ", "/");
    let named = format!("cannot write {}/probe.", folder.display());
    assert!(said.contains(&named), "{said}");
    assert!(said.contains("where the probe program is kept"), "{said}");
    assert!(said.contains("XDG_STATE_HOME"), "{said}");
    assert_eq!(names(), ["probe.mine", "probe.wasm"]);
    world.run(&line).ended(0);
    assert_eq!(names(), ["probe", "probe.mine", "probe.wasm"]);
}
