//! The runtime wasi: what a module is given, what it is kept from, and how each way to misbehave ends.
//!
//! Modules are written as text and assembled here. Most say what they found by their exit status: an error of WASI
//! (`errno` of preview 1) or a number of their own.

mod compiling;
mod hostile;
mod measured;
mod missing;
mod shown;

use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hash;
use ledger::facts::execution::Outcome;

use crate::world::World;

/// `EPERM` and `ENOENT` of WASI preview 1.
const EPERM: i32 = 63;
const ENOENT: i32 = 44;
/// Flags of `path_open` (`oflags`), and rights.
const CREATE: u32 = 1;
const FOLDER: u32 = 2;
const TRUNCATE: u32 = 8;
const READ: u32 = 2;
const WRITE: u32 = 64;
/// What `runner-wasi` declares, in the order of records.
const DECLARED: [&str; 6] = [
    "network",
    "filesystem",
    "environment",
    "memory",
    "timeout",
    "output",
];

/// Why there is nothing to test.
const NOT_BUILT: &str = "runner-wasi was not built: cargo build -p runner-wasi";

fn is_built() -> bool {
    Path::new(env!("CARGO_BIN_EXE_runner"))
        .with_file_name("runner-wasi")
        .is_file()
}

/// A world in which modules can be run; where they cannot, says so and returns from the test.
macro_rules! modules {
    () => {{
        fn here() {}
        let test = std::any::type_name_of_val(&here).trim_end_matches("::here");
        if !$crate::wasi::is_built() {
            return $crate::world::skip(test, $crate::wasi::NOT_BUILT);
        }
        $crate::world::World::new()
    }};
}
use modules;

/// Assembles a module with the usual imports around its parts.
fn module(world: &World, name: &str, parts: &str) -> PathBuf {
    let text = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "path_open"
            (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
          (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
          {parts})"#
    );
    bytes(world, name, &wat::parse_str(&text).unwrap())
}

fn bytes(world: &World, name: &str, content: &[u8]) -> PathBuf {
    let path = world.path(format!("home/work/{name}"));
    std::fs::write(&path, content).unwrap();
    path
}

/// One that opens a path from the first folder, and ends with the error.
fn opener(world: &World, path: &str, how: u32, rights: u32) -> PathBuf {
    let count = path.len();
    let parts = format!(
        r#"(memory (export "memory") 1)
        (data (i32.const 64) "{path}")
        (func (export "_start")
          (call $exit (call $path_open (i32.const 3) (i32.const 1) (i32.const 64) (i32.const {count}) (i32.const {how})
            (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 16))))"#
    );
    module(world, "opener.wasm", &parts)
}

/// One that says a line.
fn speaker(world: &World, line: &str) -> PathBuf {
    let count = line.len();
    let parts = format!(
        r#"(memory (export "memory") 1)
        (data (i32.const 64) "{line}")
        (func (export "_start")
          (i32.store (i32.const 0) (i32.const 64))
          (i32.store (i32.const 4) (i32.const {count}))
          (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))"#
    );
    module(world, "speaker.wasm", &parts)
}

const WASI: &str = "--runtime wasi";

#[test]
fn what_a_module_says_is_recorded_with_its_hash() {
    let world = modules!();
    let path = speaker(&world, "hello");
    let expected = Hash::of(&std::fs::read(&path).unwrap());
    // By its name from the caller's folder, and by its path.
    for name in ["speaker.wasm", path.to_str().unwrap()] {
        let ran = world.exec(WASI, &[name, "an argument"]).ended(0);
        assert_eq!(ran.out, "hello");
        let run = world.last();
        assert_eq!(run.start.workload.program.sha256, Some(expected));
        assert_eq!(run.start.runtime.id, "wasi");
        assert!(run.start.runtime.sha256.is_some());
        assert_eq!(run.start.policy.id, "module");
        assert_eq!(run.start.key_reachable, None);
        assert_eq!(run.execution.result.outcome, Outcome::Exited);
        assert_eq!(run.execution.verdict.as_str(), "as-requested");
        let declared = run.start.controls.declared.iter();
        let declared: Vec<&str> = declared.map(|one| one.control.as_str()).collect();
        assert_eq!(declared, DECLARED);
    }
}

#[test]
fn a_policy_that_asks_for_more_than_an_engine_applies_is_refused() {
    let world = modules!();
    speaker(&world, "hello");
    let ran = world
        .exec("--runtime wasi -P standard", &["speaker.wasm"])
        .ended(126);
    let all = "process, privilege, syscalls, ipc, descriptors, terminal: no-such-function";
    assert!(ran.says(all), "{}", ran.err);
    assert!(ran.says("devices, files: not-isolated"), "{}", ran.err);
    let flags = "--runtime wasi -P standard --best-effort";
    let ran = world.exec(flags, &["speaker.wasm"]).ended(0);
    assert_eq!(ran.out, "hello");
    assert_eq!(world.last().execution.verdict.as_str(), "controls-missing");
    // A limit that it does not have, and a tree that it cannot lay out.
    let ran = world.exec("--runtime wasi --cpu 0.5", &["speaker.wasm"]);
    assert!(ran.ended(126).err.contains("cpu: not-isolated"));
    let ran = world.exec("--runtime wasi -P minimal", &["speaker.wasm"]);
    assert!(ran.ended(126).err.contains("filesystem: folders-alone"));
    let policy = world.policy(|policy| {
        policy["enforcement"]["requiredControls"] = serde_json::json!(["filesystem"]);
    });
    let flags = format!("--runtime wasi --write . -P {}", policy.display());
    let ran = world.exec(&flags, &["speaker.wasm"]).ended(126);
    assert!(
        ran.err.contains("filesystem: protect-failed"),
        "{}",
        ran.err
    );
}

#[test]
fn a_module_has_the_variables_that_are_listed_and_no_others() {
    let world = modules!().with("HOST_SECRET", "h05t");
    let parts = r#"(memory (export "memory") 2)
        (func (export "_start")
          (drop (call $environ_sizes (i32.const 0) (i32.const 4)))
          (drop (call $environ (i32.const 1024) (i32.const 65536)))
          (i32.store (i32.const 8) (i32.const 65536))
          (i32.store (i32.const 12) (i32.load (i32.const 4)))
          (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16))))"#;
    module(&world, "environ.wasm", parts);
    let ran = world.exec("--runtime wasi --env A=b", &["environ.wasm"]);
    let ran = ran.ended(0);
    let mut names: Vec<&str> = ran
        .out
        .split_terminator('\0')
        .map(|variable| variable.split('=').next().unwrap())
        .collect();
    names.sort_unstable();
    // No home and no search path: there are none.
    assert_eq!(names, ["A", "LANG"]);
    assert!(ran.out.contains("A=b\0") && !ran.out.contains("h05t"));
    let ran = world.exec("--runtime wasi --env HOME=/here", &["environ.wasm"]);
    assert!(ran.ended(0).out.contains("HOME=/here\0"));
}

/// Whoever passes a value has its name printed, and not the value.
#[test]
fn what_is_not_utf_8_is_named_and_not_printed() {
    use std::os::unix::ffi::OsStrExt as _;
    let value = std::ffi::OsStr::from_bytes(b"v41ue-\xff");
    let world = modules!().with("TOKEN", value);
    speaker(&world, "hello");
    let ran = world.exec("--runtime wasi --env TOKEN", &["speaker.wasm"]);
    let ran = ran.ended(125);
    assert!(ran.says("the value of the variable TOKEN is not UTF-8"));
    assert!(!ran.says("v41ue"), "{}", ran.err);
    let ran = world.exec(WASI, &["speaker.wasm".as_ref(), "x".as_ref(), value]);
    let ran = ran.ended(125);
    assert!(ran.says("argument 2 is not UTF-8"), "{}", ran.err);
    assert!(!ran.says("v41ue"), "{}", ran.err);
}

#[test]
fn a_module_is_looked_for_in_the_folder_that_is_asked_for() {
    let world = modules!();
    let path = speaker(&world, "hello");
    let folder = world.folder("home/work/sub");
    std::fs::rename(path, folder.join("a.wasm")).unwrap();
    for flags in [
        "-C sub".to_owned(),
        format!("-C {}", folder.display()),
        format!("-C /workload --workload {}", folder.display()),
    ] {
        let ran = world.exec(&format!("--runtime wasi {flags}"), &["a.wasm"]);
        assert_eq!(ran.ended(0).out, "hello", "{flags}");
    }
    for folder in ["/no/such/folder", "sub/a.wasm"] {
        let flags = format!("--runtime wasi -C {folder}");
        // Also where the module's own path is a whole one.
        let module = world.path("home/work/sub/a.wasm");
        let ran = world.exec(&flags, &[module]).ended(125);
        assert!(ran.says(&format!("no folder {folder}")), "{}", ran.err);
    }
}

#[test]
fn a_folder_that_is_shown_can_be_read_and_nothing_else() {
    let world = modules!();
    let shown = world.folder("shown/below");
    let shown = shown.parent().unwrap();
    world.file("shown/file", "shown");
    world.file("outside/secret", "secret");
    std::os::unix::fs::symlink("../outside", shown.join("out")).unwrap();
    std::os::unix::fs::symlink("../outside/secret", shown.join("leak")).unwrap();
    std::os::unix::fs::symlink(world.path("outside"), shown.join("absolute")).unwrap();
    std::os::unix::fs::symlink("below", shown.join("inner")).unwrap();
    let flags = format!("--runtime wasi --read {}", shown.display());
    let tried = |path: &str, how, rights| {
        opener(&world, path, how, rights);
        let ran = world.exec(&flags, &["opener.wasm"]);
        assert_eq!(
            std::fs::read_to_string(shown.join("file")).unwrap(),
            "shown"
        );
        ran.code.unwrap()
    };
    // What is there to be read is: else the rest would say nothing.
    assert_eq!(tried("file", 0, READ), 0);
    assert_eq!(tried("below", FOLDER, 0), 0);
    assert_eq!(tried("inner/", FOLDER, 0), 0);
    assert_eq!(tried("none", 0, READ), ENOENT);
    // Neither written, truncated nor made, by whatever it is asked for.
    for (how, rights) in [
        (0, WRITE),
        (0, READ | WRITE),
        (TRUNCATE, READ),
        (TRUNCATE, WRITE),
        (TRUNCATE, READ | WRITE),
        (CREATE | TRUNCATE, READ),
    ] {
        assert_eq!(tried("file", how, rights), EPERM, "{how} {rights}");
    }
    assert_eq!(tried("new", CREATE, WRITE), EPERM);
    assert_eq!(tried("new", CREATE, READ), EPERM);
    assert!(!shown.join("new").exists());
    // Out of it: upward, absolute, by links, with slashes and dots behind them (RUSTSEC-2026-0269).
    let absolute = world.path("outside/secret");
    for path in [
        "../outside/secret",
        "below/../../outside/secret",
        absolute.to_str().unwrap(),
        "out/secret",
        "out//secret",
        "out/./secret",
        "leak",
        "absolute/secret",
    ] {
        assert_eq!(tried(path, 0, READ), EPERM, "{path}");
    }
    for path in [
        "..",
        "../",
        "out",
        "out/",
        "out//",
        "out/.",
        "absolute/",
        "/",
    ] {
        assert_eq!(tried(path, FOLDER, 0), EPERM, "{path}");
    }
    // Whoever is shown nothing has nothing to ask.
    opener(&world, "file", 0, READ);
    assert_eq!(world.exec(WASI, &["opener.wasm"]).code, Some(8));
}

#[test]
fn a_folder_that_is_writable_can_be_written_and_left_by_nobody() {
    let world = modules!();
    let shown = world.folder("shown");
    let outside = world.file("outside/secret", "secret");
    std::os::unix::fs::symlink("../outside", shown.join("out")).unwrap();
    let flags = format!("--runtime wasi --write {}:/here", shown.display());
    let tried = |path: &str, how| {
        opener(&world, path, how, WRITE);
        world.exec(&flags, &["opener.wasm"]).code.unwrap()
    };
    assert_eq!(tried("made", CREATE), 0);
    assert!(shown.join("made").is_file());
    for path in ["out/secret", "out//secret", "../outside/secret", "out/new"] {
        assert_eq!(tried(path, CREATE | TRUNCATE), EPERM, "{path}");
    }
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "secret");
    assert!(!world.path("outside/new").exists());
    // The ledger and its key are no folder for a module, nor any folder above them.
    let flags = format!("--runtime wasi --write {}", world.path("").display());
    let ran = world.exec(&flags, &["opener.wasm"]).ended(126);
    assert!(ran.err.contains("cannot cover"), "{}", ran.err);
}

#[test]
fn the_folder_of_the_workload_is_where_its_module_is() {
    let world = modules!();
    let path = speaker(&world, "hello");
    let folder = world.folder("workload");
    std::fs::rename(path, folder.join("a.wasm")).unwrap();
    let flags = format!("--runtime wasi --workload {}", folder.display());
    let ran = world.exec(&flags, &["/workload/a.wasm"]).ended(0);
    assert_eq!(ran.out, "hello");
    // What is no folder, and what is no value of a file, have no place.
    let file = world.file("file", "");
    let flags = format!("--runtime wasi --read {}", file.display());
    let ran = world.exec(&flags, &["a.wasm"]).ended(126);
    assert!(ran.says("cannot-show: cannot show"), "{}", ran.err);
    assert!(ran.says("shows folders"), "{}", ran.err);
    let ran = world
        .exec("--runtime wasi --secret HOME", &["a.wasm"])
        .ended(126);
    assert!(
        ran.says("cannot-show: cannot show the secret HOME"),
        "{}",
        ran.err
    );
}
