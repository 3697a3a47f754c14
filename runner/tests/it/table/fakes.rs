//! The whole suite in every runtime that lies, each with the verdict of every check.

use std::path::Path;
use std::process::Command;

use super::{
    Contained, Escaped, FORBIDDEN, Facts, PATH_PRESENT, Row, SILENCE, TWIN_FAILED, Table,
    UNAVAILABLE, compare, fake, measure, policy, row, rows_of,
};
use crate::world::{World, program, skip};

/// Long enough for every check.
const WHOLE_MS: u64 = 30_000;

/// Runs the whole suite, and compares every cell.
fn try_out(world: &World, name: &str, rows: &[Row]) -> Table {
    let (template, policy) = (fake(world, name), policy(world, WHOLE_MS, |_| {}));
    let table = Table::calm(|| Table::of(&measure(world, &template, &policy, "").ended(0)));
    compare(name, &table, &declared_by(&template), rows);
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

/// Declares all and does nothing. What the runner does itself for every runtime holds: it ends the tree of a run, at its
/// deadline too, and cuts what it prints.
const NO_OP: &[Row] = &[
    row("network", "tcp4 udp dns", Escaped),
    row("network", "tcp6 udp6", Escaped).unless(Facts::no_ipv6, FORBIDDEN),
    row("network", "path", Escaped).unless(Facts::no_address, UNAVAILABLE),
    row("filesystem", "read tree write traversal evidence", Escaped),
    row("filesystem", "knobs", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("process", "visibility pid1 signal", Escaped),
    row("process", "memory", Escaped).unless(Facts::yama, FORBIDDEN),
    row("process", "survival", Contained),
    row("environment", "inherited", Escaped),
    row("privilege", "capabilities", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("privilege", "no-new-privs", Escaped),
    row("privilege", "userns", Escaped).unless(Facts::no_namespaces, FORBIDDEN),
    row("memory", "touch children tmpfs", Escaped),
    row("processes", "fork threads", Escaped),
    row("syscalls", "calibration after-exec new", Escaped),
    row("syscalls", "alternate", Escaped).unless(Facts::no_x86, FORBIDDEN),
    row("cpu", "quota", Escaped),
    row("timeout", "deadline", Contained),
    row("output", "cap", Contained),
    row("devices", "nodes", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("user", "inside", Escaped),
    row("user", "host", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("ipc", "unix abstract host-sockets", Escaped),
    row("descriptors", "inherited", Escaped),
    row("terminal", "inject", Escaped).unless(Facts::no_tiocsti, FORBIDDEN),
    row("files", "open", Escaped),
    row("disk", "quota", Escaped),
];

/// Whoever starts no probe has no answer, whatever it prints and however it ends: not to be confused with an attack that was
/// refused.
const NOTHING_RAN: &[Row] = &[
    row("network", "tcp4 udp path dns", SILENCE),
    row("network", "tcp6 udp6", SILENCE).unless(Facts::no_ipv6, FORBIDDEN),
    row("filesystem", "read tree write traversal evidence", SILENCE),
    row("filesystem", "knobs", SILENCE).unless(Facts::no_root, FORBIDDEN),
    row("process", "visibility pid1 signal survival", SILENCE),
    row("process", "memory", SILENCE).unless(Facts::yama, FORBIDDEN),
    row("environment", "inherited", SILENCE),
    row("privilege", "capabilities", SILENCE).unless(Facts::no_root, FORBIDDEN),
    row("privilege", "no-new-privs", SILENCE),
    row("privilege", "userns", SILENCE).unless(Facts::no_namespaces, FORBIDDEN),
    row("memory", "touch children tmpfs", SILENCE),
    row("processes", "fork threads", SILENCE),
    row("syscalls", "calibration after-exec new", SILENCE),
    row("syscalls", "alternate", SILENCE).unless(Facts::no_x86, FORBIDDEN),
    row("cpu", "quota", SILENCE),
    row("timeout", "deadline", SILENCE),
    row("output", "cap", SILENCE),
    row("devices", "nodes", SILENCE).unless(Facts::no_root, FORBIDDEN),
    row("user", "inside", SILENCE),
    row("user", "host", SILENCE).unless(Facts::no_root, FORBIDDEN),
    row("ipc", "unix abstract host-sockets", SILENCE),
    row("descriptors", "inherited", SILENCE),
    row("terminal", "inject", SILENCE).unless(Facts::no_tiocsti, FORBIDDEN),
    row("files", "open", SILENCE),
    row("disk", "quota", SILENCE),
];

/// A root in memory and nothing else. What is looked for by a path is not there, but neither is what may be read, nor /proc
/// and /dev: nothing of that shows anything (`twin-failed`). What is written lands in its own memory. Its user namespace keeps
/// capabilities and other processes' memory away, which it does not declare.
const FRESH_TMPFS_ROOT: &[Row] = &[
    row("network", "tcp4 udp dns", Escaped),
    row("network", "tcp6 udp6", Escaped).unless(Facts::no_ipv6, FORBIDDEN),
    row("network", "path", Escaped).unless(Facts::no_address, UNAVAILABLE),
    row("filesystem", "read tree traversal evidence", TWIN_FAILED),
    row("filesystem", "write", Contained),
    row("filesystem", "knobs", TWIN_FAILED).unless(Facts::no_root, FORBIDDEN),
    row("process", "visibility signal", Escaped),
    row("process", "memory", Contained).unless(Facts::yama, FORBIDDEN),
    row("process", "pid1", TWIN_FAILED),
    row("process", "survival", Contained),
    row("environment", "inherited", Contained),
    row("privilege", "capabilities", Contained).unless(Facts::no_root, FORBIDDEN),
    row("privilege", "no-new-privs", Escaped),
    row("privilege", "userns", Contained),
    row("memory", "touch children tmpfs", Escaped),
    row("processes", "fork threads", Escaped),
    row("syscalls", "calibration after-exec new", Escaped),
    row("syscalls", "alternate", Escaped).unless(Facts::no_x86, FORBIDDEN),
    row("cpu", "quota", Escaped),
    row("timeout", "deadline", Contained),
    row("output", "cap", Escaped),
    row("devices", "nodes", TWIN_FAILED).unless(Facts::no_root, FORBIDDEN),
    row("user", "inside", Escaped),
    row("user", "host", UNAVAILABLE).unless(Facts::no_root, FORBIDDEN),
    row("ipc", "unix host-sockets", Contained),
    row("ipc", "abstract", Escaped),
    row("descriptors", "inherited", Escaped),
    row("terminal", "inject", TWIN_FAILED).unless(Facts::no_tiocsti, FORBIDDEN),
    row("files", "open", Escaped),
    row("disk", "quota", Escaped),
];

/// A network in which the host is not to be found, and from which a way leads out: no listener hears anything, and `path` is not
/// contained. Everything else is as bare but for its user namespace and an empty environment.
const PASTA_LIKE: &[Row] = &[
    row("network", "tcp4 udp dns", Contained),
    row("network", "tcp6 udp6", Contained).unless(Facts::no_ipv6, FORBIDDEN),
    row("network", "path", PATH_PRESENT),
    row("filesystem", "read tree write traversal evidence", Escaped),
    row("filesystem", "knobs", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("process", "visibility signal", Escaped),
    row("process", "memory", Contained).unless(Facts::yama, FORBIDDEN),
    row("process", "pid1 survival", Contained),
    row("environment", "inherited", Contained),
    row("privilege", "capabilities", Contained).unless(Facts::no_root, FORBIDDEN),
    row("privilege", "no-new-privs userns", Escaped),
    row("memory", "touch children tmpfs", Escaped),
    row("processes", "fork threads", Escaped),
    row("syscalls", "calibration after-exec new", Escaped),
    row("syscalls", "alternate", Escaped).unless(Facts::no_x86, FORBIDDEN),
    row("cpu", "quota", Escaped),
    row("timeout", "deadline", Contained),
    row("output", "cap", Escaped),
    row("devices", "nodes", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("user", "inside", Escaped),
    row("user", "host", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("ipc", "unix host-sockets", Escaped),
    row("ipc", "abstract", Contained),
    row("descriptors", "inherited", Escaped),
    row("terminal", "inject", Escaped).unless(Facts::no_tiocsti, FORBIDDEN),
    row("files", "open", Escaped),
    row("disk", "quota", Escaped),
];

#[test]
fn no_op_is_a_false_guarantee_wherever_bare_escapes() {
    try_out(&World::new(), "no-op", NO_OP);
}

#[test]
fn no_op_of_an_ordinary_user_too() {
    let name = "no_op_of_an_ordinary_user_too";
    if let Some(world) = World::of_user(name, &[]).filter(|_| crate::world::is_root()) {
        try_out(&world, "no-op", NO_OP);
    }
}

#[test]
fn deny_all_contains_nothing() {
    try_out(&World::new(), "deny-all", NOTHING_RAN);
}

#[test]
fn silent_contains_nothing() {
    try_out(&World::new(), "silent", NOTHING_RAN);
}

#[test]
fn offline_contains_nothing() {
    try_out(&World::new(), "offline", NOTHING_RAN);
}

#[test]
fn crashing_contains_nothing() {
    try_out(&World::new(), "crashing", NOTHING_RAN);
}

#[test]
fn hanging_contains_nothing() {
    let world = World::new();
    // Each of its runs takes the whole deadline; the other arms take longer than that, and are left out.
    let (template, policy) = (fake(&world, "hanging"), policy(&world, 300, |_| {}));
    let ran = measure(&world, &template, &policy, "--no-baseline").ended(0);
    let table = Table::of(&ran);
    compare("hanging", &table, &declared_by(&template), NOTHING_RAN);
    assert!(table.cell("network/tcp4").detail.contains("Timeout"));
}

#[test]
fn a_liars_lines_are_not_bound_and_count_for_nothing() {
    lied_about_all(&try_out(&World::new(), "liar-static", NOTHING_RAN));
}

#[test]
fn copying_every_secret_that_can_be_seen_is_not_enough() {
    lied_about_all(&try_out(&World::new(), "liar-copying", NOTHING_RAN));
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
    try_out(&world, "fresh-tmpfs-root", FRESH_TMPFS_ROOT);
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
    try_out(&world, "pasta-like", PASTA_LIKE);
}
