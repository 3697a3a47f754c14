//! Folders below one another: a module is handed each by itself, so what a mount would cover or keep read-only is refused, and
//! what is not refused gives no more than under a runtime that mounts.

use std::path::Path;

use ledger::facts::execution::NotExecuted;

use super::{CREATE, EPERM, READ, WRITE, module, modules, opener};
use crate::world::{World, no_sandbox, skip};

/// Refused before anything ran, for a reason of its own.
#[track_caller]
fn is_refused(world: &World, flags: &str, why: &str) {
    opener(world, "below/file", 0, READ);
    let ran = world.exec(&format!("--runtime wasi {flags}"), &["opener.wasm"]);
    let ran = ran.ended(126);
    assert!(ran.says("cannot-show: cannot show"), "{}", ran.err);
    assert!(ran.says(why), "{}", ran.err);
    let run = world.last();
    assert_eq!(run.execution.result.reason, Some(NotExecuted::Refused));
    assert!(run.start.controls.declared.is_empty());
    let gaps = run.start.controls.unsupported.iter();
    let reasons: Vec<(&str, &str)> = gaps
        .map(|gap| (gap.control.as_str(), gap.reason.as_str()))
        .collect();
    assert!(
        reasons.contains(&("filesystem", "cannot-show")),
        "{reasons:?}"
    );
    // What would be refused is not planned.
    let planned = world.run(&format!("plan --runtime wasi {flags} -- opener.wasm"));
    assert!(planned.ended(126).out.contains(why));
}

#[test]
fn what_lies_below_another_folder_is_refused_where_that_gives_more() {
    let world = modules!();
    let above = world.folder("above/below").parent().unwrap().to_owned();
    world.file("above/below/file", "kept");
    let other = world.folder("other");
    let (above, other) = (above.display(), other.display());
    // Read-only below writable: through the folder above it could be written.
    for targets in [["", ""], [":/a", ":/a/below"]] {
        let [first, second] = targets;
        let flags = format!("--write {above}{first} --read {above}/below{second}");
        is_refused(&world, &flags, "it would be writable through");
    }
    // Another folder over what is to be hidden, whatever the rights are.
    for outer in ["--read", "--write"] {
        for inner in ["--read", "--write"] {
            let flags = format!("{outer} {above} {inner} {other}:{above}/below");
            is_refused(&world, &flags, "cannot put it over what is there");
        }
    }
    // The name of a link in it is another place than that which it leads to.
    std::os::unix::fs::symlink("below", world.path("above/link")).unwrap();
    let flags = format!("--write {above} --read {above}/below:{above}/link");
    is_refused(&world, &flags, "cannot put it over what is there");
    let flags = format!("--write {above}:/workload --workload {above}/below");
    let ran = world.exec(&format!("--runtime wasi {flags}"), &["opener.wasm"]);
    assert!(ran.code != Some(0), "the same place twice");
}

/// Opens a file for writing from the folder with this number (3 is the first), and ends with the error.
fn writer(world: &World, folder: u32, path: &str) -> i32 {
    let count = path.len();
    let parts = format!(
        r#"(memory (export "memory") 1)
        (data (i32.const 64) "{path}")
        (func (export "_start")
          (call $exit (call $path_open (i32.const {folder}) (i32.const 1) (i32.const 64) (i32.const {count})
            (i32.const {CREATE}) (i64.const {WRITE}) (i64.const 0) (i32.const 0) (i32.const 16))))"#
    );
    module(world, "writer.wasm", &parts);
    let above = world.path("above");
    let (above, flags) = (above.display(), "--runtime wasi --read");
    let flags = format!("{flags} {above} --write {above}/below");
    world.exec(&flags, &["writer.wasm"]).code.unwrap()
}

#[test]
fn a_writable_folder_below_a_read_only_one_is_writable_by_its_own_name_alone() {
    let world = modules!();
    let below = world.folder("above/below");
    assert_eq!(writer(&world, 3, "new"), EPERM);
    assert_eq!(writer(&world, 3, "below/new"), EPERM);
    assert!(!below.join("new").exists());
    assert_eq!(writer(&world, 4, "new"), 0);
    assert!(below.join("new").exists());
    assert_eq!(writer(&world, 4, "../new"), EPERM);
}

#[test]
fn one_tree_by_two_names_has_the_right_of_each_as_under_a_runtime_that_mounts() {
    let world = modules!();
    world.folder("above/below");
    let above = world.path("above");
    let flags = |runtime: &str| {
        let above = above.display();
        format!("--runtime {runtime} --write {above}:/all --read {above}/below:/part")
    };
    // The first folder by depth and name is /all, and the second /part.
    for (number, expected) in [(3, 0), (4, EPERM)] {
        let path = if number == 3 { "below/made" } else { "made" };
        let count = path.len();
        let parts = format!(
            r#"(memory (export "memory") 1)
            (data (i32.const 64) "{path}")
            (func (export "_start")
              (call $exit (call $path_open (i32.const {number}) (i32.const 1) (i32.const 64) (i32.const {count})
                (i32.const {CREATE}) (i64.const {WRITE}) (i64.const 0) (i32.const 0) (i32.const 16))))"#
        );
        module(&world, "writer.wasm", &parts);
        let ran = world.exec(&flags("wasi"), &["writer.wasm"]);
        assert_eq!(ran.code, Some(expected), "{number}");
    }
    assert!(above.join("below/made").exists());
    if let Some(reason) = no_sandbox() {
        return skip("one_tree_by_two_names", reason);
    }
    let script = "echo > /all/below/made2 && ! echo > /part/made3 2>/dev/null";
    world.sh(&flags("embedded"), script, &[]).ended(0);
    assert!(above.join("below/made2").exists());
    assert!(!Path::new(&above.join("below/made3")).exists());
}
