//! Every runtime of this host, as root and as an ordinary user: every cell, and why the two callers' cells differ where they do.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::expected::{self, LIMITED};
use super::{Table, compare, whole};
use crate::verifier::verifier;
use crate::world::{Ran, World, is_root, no_groups, program, ready, skip};

fn measure(world: &World, flags: &str) -> Table {
    let run = |policy: &Path, suite: &Path| {
        let (policy, suite) = (policy.display(), suite.display());
        world.run(&format!(
            "matrix --json -P {policy} --suite {suite} {flags}"
        ))
    };
    Table::calm(|| whole(world, |_| {}, run))
}

/// Worlds of every caller that can be had: of who runs this, and, where that is root, of an ordinary user, for the sandboxes also
/// one with a group more, which it cannot leave.
fn callers(test: &str, runtime: &str) -> Vec<World> {
    let mut worlds = vec![World::new()];
    if is_root() {
        worlds.extend(World::of_user(test, &[]));
        let in_a_group = || World::of_user(test, &[61_234, 61_300]);
        worlds.extend(is_sandbox(runtime).then(in_a_group).flatten());
    }
    worlds
}

fn is_sandbox(runtime: &str) -> bool {
    ["embedded", "bwrap"].contains(&runtime)
}

/// Measures a runtime for every caller, compares every cell, and holds the callers against the first.
fn compare_callers(test: &str, runtime: &str) {
    let mut first: Option<(World, Table)> = None;
    for world in callers(test, runtime) {
        let table = measure(&world, &format!("--runtime {runtime} --allow-native"));
        let left_out = without_a_reason(test, &world, runtime, &table);
        compare(runtime, &table, None, left_out);
        let Some((root, of_root)) = &first else {
            first = Some((world, table));
            continue;
        };
        let named = fields_that_differ(runtime, of_root, &table);
        // What only root can do is measured for one of them.
        let differ = !expected::is_no_root(&of_root.host);
        assert_eq!(named.contains("host uid"), differ, "{named:?}");
        are_told(root, &world, &named);
    }
}

/// Limits where `runner doctor` found by trying another thing than the host record lets expect (control groups that are
/// mounted read-only, or another user's that are writable): no field says why, so those cells are not compared.
fn without_a_reason(test: &str, world: &World, runtime: &str, table: &Table) -> &'static str {
    let cells = expected::cells(runtime, &table.host, None);
    let mut limited = cells.iter().filter(|(id, _)| expected::is_of(LIMITED, id));
    let expects_limits = limited.all(|(_, cell)| cell.is_declared);
    let why = no_groups(world);
    if !is_sandbox(runtime) || expects_limits == why.is_none() {
        return "";
    }
    let why = why.unwrap_or_else(|| "there are control groups".to_owned());
    let what = "cells of memory, processes and cpu: no field of the host record says why";
    skip(test, format!("{runtime}, {what}: {why}"));
    LIMITED
}

/// Cells of two hosts that differ, and are explained by a field in which the two differ; those fields.
#[track_caller]
fn fields_that_differ(runtime: &str, a: &Table, b: &Table) -> BTreeSet<&'static str> {
    let [of_a, of_b] = [a, b].map(|table| expected::cells(runtime, &table.host, None));
    let mut named = BTreeSet::new();
    for (check, cell) in &b.cells {
        if a.cell(check).facts() == cell.facts() {
            continue;
        }
        let because = of_a[check].because.iter().chain(of_b[check].because);
        let fields = because.filter_map(expected::Because::field);
        let differ = fields.filter(|field| a.host.field(field) != b.host.field(field));
        let differ: Vec<_> = differ.collect();
        assert!(
            !differ.is_empty(),
            "{runtime} {check}: {:?}, {:?}, and no field says why",
            a.cell(check).facts(),
            cell.facts()
        );
        named.extend(differ);
    }
    named
}

/// `verify diff` says that these fields differ, in these words.
#[track_caller]
fn are_told(a: &World, b: &World, named: &BTreeSet<&str>) {
    let Some(verify) = verifier() else {
        return skip("what verify diff says", crate::verifier::NO_VERIFIER);
    };
    let mut command = Command::new(verify);
    command
        .args(["diff", "--json"])
        .args([a.ledger(), b.ledger()]);
    let told = Ran::of(command.output().unwrap()).json();
    let told = told["fingerprints"].as_array().unwrap();
    let told: BTreeSet<_> = told.iter().filter_map(|one| one["what"].as_str()).collect();
    assert!(named.is_subset(&told), "{named:?} is not among {told:?}");
}

#[test]
fn embedded_contains_what_it_declares_and_a_callers_cell_says_why_it_differs() {
    let _ = ready!();
    let test = "embedded_contains_what_it_declares_and_a_callers_cell_says_why_it_differs";
    compare_callers(test, "embedded");
}

#[test]
fn bwrap_contains_what_it_declares_and_a_callers_cell_says_why_it_differs() {
    let test = "bwrap_contains_what_it_declares_and_a_callers_cell_says_why_it_differs";
    let _ = ready!();
    if program("bwrap").is_none() {
        return skip(test, "no bwrap (bubblewrap)");
    }
    compare_callers(test, "bwrap");
}

#[test]
fn unshare_contains_what_it_declares_and_a_callers_cell_says_why_it_differs() {
    let test = "unshare_contains_what_it_declares_and_a_callers_cell_says_why_it_differs";
    let _ = ready!();
    if program("unshare").is_none() {
        return skip(test, "no unshare (util-linux)");
    }
    compare_callers(test, "unshare");
}

#[test]
fn without_a_sandbox_everything_escapes_that_the_runner_itself_does_not_stop() {
    let test = "without_a_sandbox_everything_escapes_that_the_runner_itself_does_not_stop";
    compare_callers(test, "native");
}
