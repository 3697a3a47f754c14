//! Where `runner-wasi` was not built.

use super::{module, modules};
use crate::world::World;

/// What would build it.
const COMMAND: &str = "cargo build -p runner-wasi";

/// A world whose runner has nothing beside it.
fn alone() -> World {
    let mut world = World::new();
    world.install_runner();
    world
}

#[test]
fn where_it_was_not_built_everybody_says_how() {
    let world = alone();
    let listed = world.run("--json runtimes").ended(0).json();
    let row = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["id"] == "wasi")
        .unwrap();
    assert_eq!(row["available"], false, "{row}");
    let reason = row["reason"].as_str().unwrap();
    assert!(reason.contains(COMMAND), "{reason}");
    assert!(reason.starts_with("runtime-missing"), "{reason}");
    let listed = world.run("runtimes").ended(0);
    let line = listed.out.lines().find(|line| line.starts_with("wasi"));
    let line = line.unwrap();
    assert!(
        line.contains("not available") && line.contains(COMMAND),
        "{line}"
    );
    // Whether embedded works here is another matter.
    let doctor = world.run("doctor");
    assert!(doctor.out.contains("runner-wasi"), "{}", doctor.out);
    assert!(doctor.out.contains(COMMAND), "{}", doctor.out);
    let planned = world.run("plan --runtime wasi -- a.wasm").ended(126);
    assert!(
        planned.out.contains(COMMAND) || planned.says(COMMAND),
        "{planned:#?}"
    );
    let ran = world.exec("--runtime wasi", &["a.wasm"]).ended(126);
    assert!(ran.says(COMMAND), "{}", ran.err);
    let run = world.last();
    assert_eq!(run.start.controls.declared, []);
    // With nothing to measure, nothing is.
    let measured = world.run("matrix --runtime wasi");
    assert!(measured.says(COMMAND), "{}", measured.err);
}

#[test]
fn another_version_or_another_program_by_its_name_is_none() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = alone();
    let path = world.path("runner-wasi");
    for (script, what) in [
        (
            "case $1 in --version) echo runner-wasi 9.9.9;; esac",
            "9.9.9, and this runner is",
        ),
        ("echo something else", "does not say runner-wasi"),
        ("exit 3", "fails"),
    ] {
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        let script = world.run("--json runtimes").ended(0).json();
        let row = script.as_array().unwrap().iter();
        let row = row.clone().find(|one| one["id"] == "wasi").unwrap();
        assert_eq!(row["available"], false, "{row}");
        let reason = row["reason"].as_str().unwrap();
        assert!(
            reason.contains(what) && reason.contains(COMMAND),
            "{reason}"
        );
    }
}

/// It was built.
#[test]
fn for_lack_of_descriptors_nobody_is_told_to_build_it() {
    let world = modules!();
    let Some(bash) = crate::world::program("bash") else {
        return crate::world::skip("for_lack_of_descriptors", "no bash");
    };
    for most in 5..12 {
        let before = format!("ulimit -n {most}");
        let line = "exec --runtime wasi -- a.wasm";
        let ran = crate::world::in_bash(&world, &bash, &before, line);
        assert!(!ran.says(COMMAND), "{most}: {}", ran.err);
    }
}

/// The kernel executes none.
#[test]
fn a_module_under_another_runtime_is_told_which_one_it_needs() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = crate::world::ready!();
    let folder = world.folder("shown");
    for (name, hint) in [("a.wasm", true), ("a.bin", false)] {
        let path = folder.join(name);
        std::fs::write(&path, b"\0asm\x01\0\0\0").unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        let flags = format!("--runtime embedded --read {}", folder.display());
        let ran = world.exec(&flags, &[&path]).ended(127);
        assert_eq!(ran.says("--runtime wasi"), hint, "{}", ran.err);
    }
}

#[test]
fn a_plan_says_what_a_module_will_have() {
    let world = modules!();
    let parts = r#"(memory (export "memory") 1) (func (export "_start"))"#;
    module(&world, "a.wasm", parts);
    let planned = world.run("plan --runtime wasi --read . -- a.wasm").ended(0);
    assert!(planned.out.contains("preopened folders"), "{}", planned.out);
    assert!(!world.ledger().exists());
}
