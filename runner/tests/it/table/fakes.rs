//! The whole suite in every runtime that lies, each with the verdict of every check.

use std::path::Path;
use std::process::Command;

use super::{Table, compare, fake, measure, policy, rows_of};
use crate::world::{World, program, skip};

/// Long enough for every check.
const WHOLE_MS: u64 = 30_000;

/// Runs the whole suite, and compares every cell.
fn try_out(world: &World, name: &str) -> Table {
    let (template, policy) = (fake(world, name), policy(world, WHOLE_MS, |_| {}));
    let table = Table::calm(|| Table::of(&measure(world, &template, &policy, "").ended(0)));
    compare(name, &table, Some(&declared_by(&template)), "");
    table
}

/// Whether it did lie about everything: where nothing is said of a check, a line about it was there.
fn lied_about_all(table: &Table) {
    let silent = table.cells.iter();
    let mut silent = silent.filter(|(_, cell)| cell.reason == "no-output");
    let honest = silent.find(|(_, cell)| !cell.detail.contains("(1 not bound"));
    assert!(honest.is_none(), "{honest:?}");
}

/// The controls that a template says it applies.
fn declared_by(template: &Path) -> impl Fn(&str) -> bool + use<> {
    let text = std::fs::read_to_string(template).unwrap();
    let template: serde_json::Value = serde_json::from_str(&text).unwrap();
    let declares = template["declares"].as_array().unwrap().clone();
    move |control| declares.iter().any(|one| one["control"] == control)
}

#[test]
fn no_op_is_a_false_guarantee_wherever_bare_escapes() {
    try_out(&World::new(), "no-op");
}

#[test]
fn no_op_of_an_ordinary_user_too() {
    let name = "no_op_of_an_ordinary_user_too";
    if let Some(world) = World::of_user(name, &[]).filter(|_| crate::world::is_root()) {
        try_out(&world, "no-op");
    }
}

#[test]
fn deny_all_contains_nothing() {
    try_out(&World::new(), "deny-all");
}

#[test]
fn silent_contains_nothing() {
    try_out(&World::new(), "silent");
}

#[test]
fn offline_contains_nothing() {
    try_out(&World::new(), "offline");
}

/// What a launcher says is seen where its runs say nothing else.
#[test]
fn why_nothing_ran_is_said_once() {
    let world = World::new();
    let (template, policy) = (fake(&world, "offline"), policy(&world, WHOLE_MS, |_| {}));
    let rows = format!("--suite {}", rows_of(&world, &["network"]).display());
    let ran = measure(&world, &template, &policy, &rows).ended(0);
    let said = "offline: a probe printed nothing; the last on standard error was: cannot fetch the image: network is unreachable";
    assert_eq!(ran.err.matches(said).count(), 1, "{}", ran.err);
}

#[test]
fn crashing_contains_nothing() {
    try_out(&World::new(), "crashing");
}

#[test]
fn hanging_contains_nothing() {
    let world = World::new();
    // Each of its runs takes the whole deadline; the other arms take longer than that, and are left out.
    let (template, policy) = (fake(&world, "hanging"), policy(&world, 300, |_| {}));
    let ran = measure(&world, &template, &policy, "--no-baseline").ended(0);
    let table = Table::of(&ran);
    compare("hanging", &table, Some(&declared_by(&template)), "");
    assert!(table.cell("network/tcp4").detail.contains("Timeout"));
}

#[test]
fn a_liars_lines_are_not_bound_and_count_for_nothing() {
    lied_about_all(&try_out(&World::new(), "liar-static"));
}

#[test]
fn copying_every_secret_that_can_be_seen_is_not_enough() {
    lied_about_all(&try_out(&World::new(), "liar-copying"));
}

/// The limit of what a measurement of a template can tell, written down so that nobody takes it for more: who is handed the
/// secret and computes the proof from it answers as a probe would, and no oracle hears of an attack that nobody made.
#[test]
fn who_computes_the_proof_itself_is_believed() {
    let world = World::new();
    if program("sha256sum").is_none() {
        return skip("who_computes_the_proof_itself_is_believed", "no sha256sum");
    }
    let (template, policy) = (
        fake(&world, "liar-computing"),
        policy(&world, WHOLE_MS, |_| {}),
    );
    let rows = format!("--suite {}", rows_of(&world, &["network"]).display());
    let table = Table::of(&measure(&world, &template, &policy, &rows).ended(0));
    for check in ["network/tcp4", "network/udp", "network/dns"] {
        let cell = table.cell(check);
        assert_eq!(cell.verdict, "contained", "{check}: {}", cell.detail);
    }
}

/// Whether a caller can have namespaces of its own, and the program that makes them.
fn no_unshare(world: &World, flags: &[&str]) -> Option<String> {
    let Some(unshare) = program("unshare") else {
        return Some("no unshare (util-linux)".to_owned());
    };
    let mut command = Command::new(unshare);
    command.args(flags).arg("true").current_dir(world.path(""));
    let output = command.output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_fresh_root_in_memory_hides_paths_and_nothing_else() {
    let name = "a_fresh_root_in_memory_hides_paths_and_nothing_else";
    let world = World::new();
    if let Some(reason) = no_unshare(&world, &["--map-root-user", "--mount"]) {
        return skip(name, reason);
    }
    try_out(&world, "fresh-tmpfs-root");
}

#[test]
fn a_network_with_a_way_out_is_not_contained_because_nobody_answers() {
    let name = "a_network_with_a_way_out_is_not_contained_because_nobody_answers";
    let world = World::new();
    if program("ip").is_none() {
        return skip(name, "no ip (iproute2)");
    }
    if let Some(reason) = no_unshare(&world, &["--map-root-user", "--net"]) {
        return skip(name, reason);
    }
    try_out(&world, "pasta-like");
}
