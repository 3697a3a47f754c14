//! While a module is compiled, which takes as long as its author likes: nothing that is shown changes, and whoever gives up
//! leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::Child;

use ledger::facts::execution::NotExecuted;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runner::sys::process::children_of;

use super::{READ, bytes, modules};
use crate::world::{Ran, World, until};

/// Compiles for longer than a test takes to do something meanwhile; with more blocks in each other it is much longer.
fn slow(world: &World, blocks: usize) -> PathBuf {
    let text = format!(
        r#"(module
          (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
          (import "wasi_snapshot_preview1" "path_open"
            (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
          (memory (export "memory") 1)
          (data (i32.const 64) "secret")
          (func {} {})
          (func (export "_start")
            (call $exit (call $path_open (i32.const 3) (i32.const 0) (i32.const 64) (i32.const 6) (i32.const 0)
              (i64.const {READ}) (i64.const 0) (i32.const 0) (i32.const 16)))))"#,
        "block ".repeat(blocks),
        "end ".repeat(blocks)
    );
    bytes(world, "slow.wasm", &wat::parse_str(text).unwrap())
}

/// Whether a process is an engine that has work, and not one that is asked for its version; false when it has ended, waited for
/// or not.
fn is_engine(pid: i32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.ends_with(b"/runner-wasi\0")
}

/// The engine of a run that has just been started: a child of the runner's child.
fn engine(runner: &Child) -> i32 {
    let runner = i32::try_from(runner.id()).unwrap();
    let mut found = None;
    until("the engine runs", || {
        let inits = children_of(runner).unwrap_or_default();
        let mut engines = inits
            .into_iter()
            .flat_map(|pid| children_of(pid).unwrap_or_default());
        found = engines.find(|pid| is_engine(*pid));
        found.is_some()
    });
    found.unwrap()
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn begin(world: &World, flags: &str, module: &Path) -> Child {
    let flags = format!("--runtime wasi {flags}");
    world.exec_command(&flags, &[module]).spawn().unwrap()
}

#[test]
fn a_folder_that_is_swapped_meanwhile_is_the_one_that_was_there() {
    let world = modules!();
    let module = slow(&world, 3_000);
    let shown = world.folder("shown");
    world.file("outside/secret", "secret");
    let run = begin(&world, &format!("--read {}", shown.display()), &module);
    let engine = engine(&run);
    signal(engine, Signal::SIGSTOP);
    std::fs::rename(&shown, world.path("moved")).unwrap();
    std::os::unix::fs::symlink("outside", &shown).unwrap();
    signal(engine, Signal::SIGCONT);
    let ran = Ran::of(run.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(super::ENOENT), "{}", ran.err);
    assert!(world.last().declares("filesystem"));
}

/// Waits until a runner has noted that there will be a run, and takes signals itself from then on: before, they end it.
fn await_wait(world: &World, runner: &Child) {
    let status = format!("/proc/{}/status", runner.id());
    until("the runner waits", || {
        let is_noted = std::fs::read_dir(world.ledger().join("runs"))
            .is_ok_and(|mut runs| runs.next().is_some());
        let status = std::fs::read_to_string(&status).unwrap();
        let blocked = status
            .lines()
            .find_map(|line| line.strip_prefix("SigBlk:\t"));
        let blocked = u64::from_str_radix(blocked.unwrap(), 16).unwrap();
        is_noted && blocked & (1 << (libc::SIGINT - 1)) != 0
    });
}

#[test]
fn whoever_gives_up_leaves_nothing_that_compiles() {
    for (stopped, by) in [
        (false, Signal::SIGINT),
        (true, Signal::SIGINT),
        (false, Signal::SIGTERM),
        (true, Signal::SIGKILL),
    ] {
        let world = modules!();
        let module = slow(&world, 35_000);
        let run = begin(&world, "", &module);
        let engine = engine(&run);
        // It does not come to its end by itself.
        signal(engine, Signal::SIGSTOP);
        await_wait(&world, &run);
        if !stopped {
            signal(engine, Signal::SIGCONT);
        }
        signal(i32::try_from(run.id()).unwrap(), by);
        let ran = Ran::of(run.wait_with_output().unwrap());
        if by == Signal::SIGKILL {
            assert_eq!(ran.code, None);
        } else {
            let ran = ran.ended(125);
            assert!(ran.says("before the workload ran"), "{}", ran.err);
            let reason = world.last().execution.result.reason;
            assert_eq!(reason, Some(NotExecuted::LaunchFailed));
            // Not even to be waited for.
            assert!(!Path::new(&format!("/proc/{engine}")).exists());
        }
        until("the engine ended", || !is_engine(engine));
    }
}
