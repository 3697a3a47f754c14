//! The sandbox without one of its controls: exactly the checks of that control are turned, and every other stays as it was.
//!
//! The switch leaves the control out of the arm `run`. No other arm is run: what it would show does not depend on the switch, and
//! a refusal by itself is then `not-calibrated`, which tells it from an escape and from anything else.

use std::path::Path;

use ledger::facts::control::Control;

use super::expected::{NO_ADDRESS, NO_IPV6, NO_TIOCSTI, is_no_root};
use super::{Table, whole};
use crate::world::{Ran, World, is_root, ready};

/// Checks that escape without a control; all others that it has are held by something else as well.
const fn turned(control: Control) -> &'static [&'static str] {
    match control {
        Control::Network => &[
            "network/tcp4",
            "network/tcp6",
            "network/udp",
            "network/udp6",
            "network/path",
            "network/dns",
        ],
        // Evidence is covered and kernel switches are read-only in the host's tree as well. The sandbox's own folders have a
        // size, which the host's have not.
        Control::Filesystem => &[
            "filesystem/read",
            "filesystem/tree",
            "filesystem/write",
            "filesystem/traversal",
            "disk/quota",
        ],
        // The pid namespace stays, and with it who can be reached by a number.
        Control::Process => &["process/visibility"],
        Control::Environment => &["environment/inherited"],
        // Capabilities are those of a user namespace, and no other may be made.
        Control::Privilege => &["privilege/no-new-privs"],
        // The base filter stays: other doors and late calls.
        Control::Syscalls => &["syscalls/calibration", "syscalls/after-exec"],
        Control::Timeout => &["timeout/deadline"],
        Control::Output => &["output/cap"],
        // The user namespace keeps device files closed that are there.
        Control::Devices => &[],
        Control::User => &["user/inside", "user/host"],
        Control::Ipc => &["ipc/unix", "ipc/abstract", "ipc/host-sockets"],
        Control::Descriptors => &["descriptors/inherited"],
        Control::Terminal => &["terminal/inject"],
        Control::Files => &["files/open"],
        // What comes out where there are no groups as well.
        Control::Memory => &["memory/touch", "memory/children", "memory/tmpfs"],
        Control::Processes => &["processes/fork", "processes/threads"],
        Control::Cpu => &["cpu/quota"],
        // Written files count as memory, whose limit goes along.
        Control::Disk => &[
            "disk/quota",
            "memory/touch",
            "memory/children",
            "memory/tmpfs",
        ],
    }
}

/// Some of the controls in each world, all worlds at once: most of a measurement is waiting.
fn walk_all(worlds: &[World], by_root: bool, controls: &[Control]) {
    let share = controls.len().div_ceil(worlds.len());
    std::thread::scope(|scope| {
        for (world, controls) in worlds.iter().zip(controls.chunks(share)) {
            scope.spawn(move || walk(world, by_root, controls));
        }
    });
}

fn walk(world: &World, by_root: bool, controls: &[Control]) {
    let one_arm = |row: &mut serde_json::Value| row["arms"] = serde_json::json!(["run"]);
    let measure = |left_out: Option<Control>| {
        let run = |policy: &Path, suite: &Path| {
            let mut command = world.command(["matrix", "--json", "--runtime", "embedded", "-P"]);
            command.arg(policy).arg("--suite").arg(suite);
            command.envs(left_out.map(|control| ("RUNNER_ABLATE", control.as_str())));
            Ran::of(command.output().unwrap())
        };
        Table::calm(|| whole(world, one_arm, run))
    };
    let before = measure(None);
    for control in controls {
        let after = measure(Some(*control));
        assert_eq!(before.cells.len(), after.cells.len());
        let mut wrong = Vec::new();
        for (check, was) in &before.cells {
            let own = check.split('/').next() == Some(control.as_str());
            // Host root has no less with fewer capabilities, so `privilege` is not declared either.
            let along = by_root && *control == Control::User && check.starts_with("privilege/")
                || *control == Control::Disk && check.starts_with("memory/");
            let mut expected = was.facts();
            expected.0 &= !own && !along;
            if turned(*control).contains(&check.as_str()) && is_possible(check, &before) {
                expected = (false, "escaped", "");
            }
            let found = after.cell(check);
            if found.facts() != expected {
                let detail = &found.detail;
                wrong.push(format!(
                    "{check}\n  expected {expected:?}\n  found    {:?}: {detail}",
                    found.facts()
                ));
            }
        }
        assert!(wrong.is_empty(), "without {control}:\n{}", wrong.join("\n"));
    }
}

/// What the host itself does not have cannot be had by leaving a control out.
fn is_possible(check: &str, before: &Table) -> bool {
    let host = &before.host;
    match check {
        "network/tcp6" | "network/udp6" => !NO_IPV6.holds(host),
        "network/path" => !NO_ADDRESS.holds(host),
        "user/host" => !is_no_root(host),
        "terminal/inject" => !NO_TIOCSTI.holds(host),
        _ => true,
    }
}

#[test]
fn each_dropped_control_turns_exactly_its_own_checks() {
    let worlds = [ready!(), World::new(), World::new()];
    walk_all(&worlds, is_root(), Control::ALL);
}

#[test]
fn each_dropped_control_turns_exactly_its_own_checks_of_an_ordinary_user() {
    let _ = ready!();
    let name = "each_dropped_control_turns_exactly_its_own_checks_of_an_ordinary_user";
    if let Some(world) = World::of_user(name, &[]).filter(|_| is_root()) {
        let some = [
            Control::Network,
            Control::Filesystem,
            Control::Process,
            Control::Privilege,
            Control::User,
        ];
        walk(&world, false, &some);
    }
}
