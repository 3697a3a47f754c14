//! Modules that do not end, take what there is, or are none: each ends, and is told from the others.

use ledger::facts::execution::{NotExecuted, Outcome};
use ledger::facts::list::Sealable;

use super::{WASI, bytes, module, modules, speaker};
use crate::world::World;

/// Status of a module that trapped.
const TRAPPED: i32 = 134;

#[track_caller]
fn times_out(world: &World, name: &str) {
    let ran = world.exec("--runtime wasi --timeout 500ms", &[name]);
    let ran = ran.ended(124);
    assert_eq!(ran.out, "", "it did not come to its end");
    let run = world.last();
    assert_eq!(run.execution.result.outcome, Outcome::Timeout);
    assert!(run.declares("timeout"));
}

#[track_caller]
fn traps(world: &World, flags: &str, name: &str, why: &str) {
    let ran = world.exec(flags, &[name]).ended(TRAPPED);
    assert!(ran.err.contains("the module trapped: "), "{}", ran.err);
    assert!(ran.err.contains(why), "{}", ran.err);
    assert_eq!(world.last().execution.result.exit_code, Some(134));
}

#[track_caller]
fn is_none(world: &World, name: &str, why: &str) {
    let ran = world.exec(WASI, &[name]).ended(127);
    assert!(ran.says(why), "{}", ran.err);
    let result = world.last().execution.result;
    assert_eq!(result.outcome, Outcome::NotExecuted);
    assert_eq!(result.reason, Some(NotExecuted::NotExecutable));
}

/// Says that it came to its end, which is to be prevented.
const SURVIVED: &str = r#"(data (i32.const 512) "survived")
    (func $survived
      (i32.store (i32.const 480) (i32.const 512))
      (i32.store (i32.const 484) (i32.const 8))
      (drop (call $fd_write (i32.const 1) (i32.const 480) (i32.const 1) (i32.const 488))))"#;

#[test]
fn what_does_not_end_is_ended_at_its_deadline() {
    let world = modules!();
    let parts = r#"(memory (export "memory") 1)
        (func (export "_start") (loop $again (br $again)))"#;
    module(&world, "spins.wasm", parts);
    times_out(&world, "spins.wasm");
    // Five seconds of sleep are one call, in which no compiled code looks at a deadline.
    let parts = format!(
        r#"(memory (export "memory") 1)
        {SURVIVED}
        (func (export "_start")
          (i32.store (i32.const 16) (i32.const 1))
          (i64.store (i32.const 24) (i64.const 5000000000))
          (drop (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
          (call $survived))"#
    );
    module(&world, "sleeps.wasm", &parts);
    times_out(&world, "sleeps.wasm");
    // Before its first function: the one that a module starts with is its code, too.
    let parts = r#"(memory (export "memory") 1)
        (func $spin (loop $again (br $again)))
        (start $spin)
        (func (export "_start"))"#;
    module(&world, "starts.wasm", parts);
    times_out(&world, "starts.wasm");
}

#[test]
fn memory_and_tables_end_at_the_limit() {
    let world = modules!();
    let flags = "--runtime wasi --memory 64M";
    // Grows by a page until it may not, and tells how many MiB it has.
    let parts = r#"(memory (export "memory") 1)
        (func (export "_start")
          (loop $again
            (br_if $again (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
          (call $exit (i32.shr_u (memory.size) (i32.const 4))))"#;
    module(&world, "grows.wasm", parts);
    world.exec(flags, &["grows.wasm"]).ended(64);
    // The same, and it does not ask whether it may.
    let parts = r#"(memory (export "memory") 1)
        (func (export "_start")
          (loop $again
            (i32.store (i32.shl (memory.grow (i32.const 1)) (i32.const 16)) (i32.const 1))
            (br $again)))"#;
    module(&world, "takes.wasm", parts);
    traps(&world, flags, "takes.wasm", "out of bounds memory access");
    let parts = r#"(memory (export "memory") 2048) (func (export "_start"))"#;
    module(&world, "begins.wasm", parts);
    traps(&world, flags, "begins.wasm", "exceeds memory limits");
    // Tables count with it: 16 bytes an element, so a quarter of these is too many.
    let parts = r#"(memory (export "memory") 1) (table $all 1 funcref)
        (func (export "_start")
          (loop $again
            (br_if $again (i32.ne (table.grow $all (ref.null func) (i32.const 65536)) (i32.const -1))))
          (call $exit (i32.shr_u (table.size $all) (i32.const 16))))"#;
    module(&world, "tables.wasm", parts);
    world.exec(flags, &["tables.wasm"]).ended(63);
    assert!(world.last().declares("memory"));
}

#[test]
fn the_stack_ends_and_a_trap_is_told() {
    let world = modules!();
    let parts = r#"(memory (export "memory") 1)
        (func $down (param i64) (result i64)
          (i64.add (i64.const 1) (call $down (i64.add (local.get 0) (i64.const 1)))))
        (func (export "_start") (drop (call $down (i64.const 0))))"#;
    module(&world, "stack.wasm", parts);
    traps(&world, WASI, "stack.wasm", "call stack exhausted");
    let parts = r#"(memory (export "memory") 1) (func (export "_start") unreachable)"#;
    module(&world, "stops.wasm", parts);
    traps(&world, WASI, "stops.wasm", "unreachable");
}

#[test]
fn a_status_that_there_is_not_is_said() {
    let world = modules!();
    for (status, code) in [
        (0, 0),
        (125, 125),
        (126, TRAPPED),
        (200, TRAPPED),
        (-1, TRAPPED),
    ] {
        let parts = format!(
            r#"(memory (export "memory") 1) (func (export "_start") (call $exit (i32.const {status})))"#
        );
        module(&world, "exits.wasm", &parts);
        let ran = world.exec(WASI, &["exits.wasm"]).ended(code);
        let said = format!("the module says the status {},", status as u32);
        assert_eq!(ran.err.contains(&said), code == TRAPPED, "{}", ran.err);
        assert!(!ran.err.contains("backtrace"), "{}", ran.err);
    }
}

#[test]
fn the_stack_of_a_module_is_the_same_under_any_limit() {
    let world = modules!();
    let Some(bash) = crate::world::program("bash") else {
        return crate::world::skip("the_stack_of_a_module", "no bash");
    };
    let parts = r#"(memory (export "memory") 1) (func $down (export "_start") (call $down))"#;
    module(&world, "stack.wasm", parts);
    for limit in ["512", "8192", "unlimited"] {
        let before = format!("ulimit -s {limit} || exit 99");
        let line = "exec --runtime wasi -- stack.wasm";
        let ran = crate::world::in_bash(&world, &bash, &before, line);
        if ran.code == Some(99) {
            crate::world::skip("the_stack_of_a_module", format!("no ulimit -s {limit}"));
            continue;
        }
        let ran = ran.ended(TRAPPED);
        assert!(ran.err.contains("call stack exhausted"), "{}", ran.err);
    }
}

#[test]
fn what_is_no_module_for_here_does_not_run() {
    let world = modules!();
    let good = std::fs::read(speaker(&world, "hello")).unwrap();
    bytes(&world, "empty.wasm", b"");
    is_none(&world, "empty.wasm", "it is no WebAssembly module");
    bytes(&world, "script.wasm", b"#!/bin/sh\necho ran\n");
    is_none(&world, "script.wasm", "it is no WebAssembly module");
    bytes(&world, "cut.wasm", &good[..good.len() - 3]);
    is_none(&world, "cut.wasm", "it is no module that can be run");
    bytes(&world, "noise.wasm", b"\0asm\x01\0\0\0\xff\xff\xff\xff\xff");
    is_none(&world, "noise.wasm", "it is no module that can be run");
    for (name, module, field) in [
        ("system.wasm", "env", "system"),
        ("socket.wasm", "wasi_snapshot_preview1", "sock_open"),
    ] {
        let text = format!(
            r#"(module (import "{module}" "{field}" (func (param i32) (result i32))) (func (export "_start")))"#
        );
        bytes(&world, name, &wat::parse_str(text).unwrap());
        is_none(&world, name, "it imports what WASI preview 1 does not have");
        assert!(world.exec(WASI, &[name]).says(field));
    }
    // A name of a module's own has any length.
    let text = format!(
        r#"(module (import "env" "{}" (func)) (func (export "_start")))"#,
        "y".repeat(90_000)
    );
    bytes(&world, "name.wasm", &wat::parse_str(text).unwrap());
    is_none(
        &world,
        "name.wasm",
        "it imports what WASI preview 1 does not have",
    );
    assert!(world.exec(WASI, &["name.wasm"]).err.len() < 2_000);
    let text = r#"(module (memory (export "memory") 1) (func (export "main")))"#;
    bytes(&world, "library.wasm", &wat::parse_str(text).unwrap());
    is_none(&world, "library.wasm", "it exports no function _start");
    let ran = world.exec(WASI, &["none.wasm"]).ended(127);
    assert!(ran.err.contains("no such module"), "{}", ran.err);
    let result = world.last().execution.result;
    assert_eq!(result.reason, Some(NotExecuted::NotFound));
}

#[test]
fn a_gigabyte_of_output_is_counted_and_cut() {
    let world = modules!();
    let parts = r#"(memory (export "memory") 17)
        (func (export "_start") (local $left i64)
          (local.set $left (i64.const 1073741824))
          (loop $again
            (i32.store (i32.const 0) (i32.const 64))
            (i32.store (i32.const 4)
              (select (i32.wrap_i64 (local.get $left)) (i32.const 1048576)
                (i64.lt_u (local.get $left) (i64.const 1048576))))
            (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
            (local.set $left (i64.sub (local.get $left) (i64.extend_i32_u (i32.load (i32.const 8)))))
            (br_if $again (i64.ne (local.get $left) (i64.const 0)))))"#;
    module(&world, "floods.wasm", parts);
    let ran = world.exec("--runtime wasi --clear", &["floods.wasm"]);
    let ran = ran.ended(0);
    assert!(ran.err.contains("past its cap"), "{}", ran.err);
    let run = world.last();
    let Some(Sealable::Clear(output)) = &run.execution.result.stdout else {
        panic!("{:?}", run.execution.result);
    };
    assert_eq!(output.bytes.value(), 1 << 30);
    assert!(output.kept.value() <= 16 << 20);
    assert!(ran.bytes.len() <= 16 << 20);
}
