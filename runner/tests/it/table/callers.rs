//! The sandbox and no sandbox at all, as root and as an ordinary user: every cell, and why the two callers' cells differ where
//! they do.

use std::path::Path;

use super::{
    Came, Contained, Escaped, FORBIDDEN, Facts, Row, Table, UNAVAILABLE, compare, row, whole,
};
use crate::world::{SUPPORTED, World, is_root, ready};

const NOT_CALIBRATED: Came = Came::Inconclusive("not-calibrated");

/// What the embedded sandbox declares it contains; the rest are gaps that it says.
const EMBEDDED: &[Row] = &[
    row("network", "tcp4 udp dns", Contained),
    row("network", "tcp6 udp6", Contained).unless(Facts::no_ipv6, FORBIDDEN),
    row("network", "path", Contained).unless(Facts::no_address, UNAVAILABLE),
    row(
        "filesystem",
        "read tree write traversal evidence",
        Contained,
    ),
    row("filesystem", "knobs", Contained).unless(Facts::no_root, FORBIDDEN),
    row("process", "visibility pid1 signal survival", Contained),
    row("process", "memory", Contained).unless(Facts::yama, FORBIDDEN),
    row("environment", "inherited", Contained),
    row("privilege", "capabilities", Contained).unless(Facts::no_root, FORBIDDEN),
    row("privilege", "no-new-privs", Contained),
    row("privilege", "userns", Contained).unless(Facts::no_namespaces, FORBIDDEN),
    row("memory", "touch children tmpfs", Contained).unless(Facts::no_groups, Escaped),
    row("processes", "fork threads", Contained).unless(Facts::no_groups, Escaped),
    row("syscalls", "calibration after-exec new", Contained),
    row("syscalls", "alternate", Contained).unless(Facts::no_x86, FORBIDDEN),
    row("cpu", "quota", Contained).unless(Facts::no_groups, Escaped),
    row("timeout", "deadline", Contained),
    row("output", "cap", Contained),
    row("devices", "nodes", Contained).unless(Facts::no_root, FORBIDDEN),
    row("user", "inside", Contained),
    row("user", "host", Contained).unless(Facts::no_root, FORBIDDEN),
    row("ipc", "unix abstract host-sockets", Contained),
    row("descriptors", "inherited", Contained),
    row("terminal", "inject", Contained).unless(Facts::no_tiocsti, FORBIDDEN),
    row("files", "open", Contained),
    row("disk", "quota", Contained),
];

/// Bare. What is refused here is refused by the runner itself, and nothing shows that it would get through otherwise.
const NATIVE: &[Row] = &[
    row("network", "tcp4 udp dns", Escaped),
    row("network", "tcp6 udp6", Escaped).unless(Facts::no_ipv6, FORBIDDEN),
    row("network", "path", Escaped).unless(Facts::no_address, UNAVAILABLE),
    row("filesystem", "read tree write traversal evidence", Escaped),
    row("filesystem", "knobs", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("process", "visibility pid1 signal", Escaped),
    row("process", "memory", Escaped).unless(Facts::yama, FORBIDDEN),
    row("process", "survival", NOT_CALIBRATED),
    row("environment", "inherited", NOT_CALIBRATED),
    row("privilege", "capabilities", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("privilege", "no-new-privs", Escaped),
    row("privilege", "userns", Escaped).unless(Facts::no_namespaces, FORBIDDEN),
    row("memory", "touch children tmpfs", Escaped),
    row("processes", "fork threads", Escaped),
    row("syscalls", "calibration after-exec new", Escaped),
    row("syscalls", "alternate", Escaped).unless(Facts::no_x86, FORBIDDEN),
    row("cpu", "quota", Escaped),
    row("timeout", "deadline", NOT_CALIBRATED),
    row("output", "cap", NOT_CALIBRATED),
    row("devices", "nodes", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("user", "inside", Escaped),
    row("user", "host", Escaped).unless(Facts::no_root, FORBIDDEN),
    row("ipc", "unix abstract host-sockets", Escaped),
    row("descriptors", "inherited", NOT_CALIBRATED),
    row("terminal", "inject", NOT_CALIBRATED),
    row("files", "open", Escaped),
    row("disk", "quota", Escaped),
];

fn measure(world: &World, flags: &str) -> Table {
    let run = |policy: &Path, suite: &Path| {
        let (policy, suite) = (policy.display(), suite.display());
        world.run(&format!(
            "matrix --json -P {policy} --suite {suite} {flags}"
        ))
    };
    Table::calm(|| whole(world, |_| {}, run))
}

/// Worlds of every caller that can be had: of who runs this, and, where that is root, of an ordinary user.
fn callers(test: &str) -> Vec<World> {
    let mut worlds = vec![World::new()];
    worlds.extend(World::of_user(test, &[]).filter(|_| is_root()));
    worlds
}

#[test]
fn the_sandbox_contains_what_it_declares_and_a_callers_cell_says_why_it_differs() {
    let _ = ready!();
    let test = "the_sandbox_contains_what_it_declares_and_a_callers_cell_says_why_it_differs";
    let tables = callers(test).into_iter().map(|world| {
        let table = measure(&world, "--runtime embedded");
        let limited = ["memory", "processes", "cpu"];
        let declares = |control: &str| {
            SUPPORTED.contains(&control)
                || control == "disk"
                || table.facts.has_groups && limited.contains(&control)
        };
        compare("embedded", &table, &declares, EMBEDDED);
        table
    });
    let tables: Vec<Table> = tables.collect();
    let [root, user] = tables.as_slice() else {
        return;
    };
    let mut differ = Vec::new();
    let is_limit = |check: &str| {
        ["memory/", "processes/", "cpu/"]
            .iter()
            .any(|limit| check.starts_with(limit))
    };
    for (check, of_user) in &user.cells {
        // Control groups are not everybody's to make.
        if is_limit(check) && root.facts.has_groups != user.facts.has_groups {
            continue;
        }
        if root.cell(check).facts() != of_user.facts() {
            // The fact of this host, and nothing else.
            assert_eq!(of_user.detail, format!("uid = {}", user.facts.uid));
            assert_eq!(of_user.reason, "host-forbids", "{check}");
            differ.push(check.as_str());
        }
    }
    let expected = [
        "devices/nodes",
        "filesystem/knobs",
        "privilege/capabilities",
        "user/host",
    ];
    assert_eq!(differ, expected);
}

#[test]
fn without_a_sandbox_everything_escapes_that_the_runner_itself_does_not_stop() {
    let test = "without_a_sandbox_everything_escapes_that_the_runner_itself_does_not_stop";
    for world in callers(test) {
        let table = measure(&world, "--runtime native --allow-native");
        // It cuts what is printed, whatever runs.
        compare("native", &table, &|control| control == "output", NATIVE);
    }
}
