//! Who a workload is, seen from outside: SANDBOX.md §1 and acceptance 4.

use std::io::{BufRead as _, BufReader};

use crate::world::{World, is_root, ready};

#[test]
fn the_workload_is_never_host_root_and_the_record_says_who_it_is() {
    let world = ready!();
    let mut command = world.exec_command(
        "",
        &[
            "sh",
            "-c",
            "id -u; id -g; id -G; echo 86400.5 >&2; exec sleep 86400.5",
        ],
    );
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let inside: Vec<String> = lines.by_ref().take(3).collect();
    assert_eq!(inside, ["1000", "1000", "1000"]);
    // Seen from the host: everything below the runner that is in a pid namespace of its own. (The starter, which is not, may still
    // be on its way out.)
    let mut seen = Vec::new();
    let mut parents = vec![child.id()];
    while let Some(parent) = parents.pop() {
        for (pid, status) in processes() {
            if field(&status, "PPid") == [parent] && field(&status, "NSpid").len() > 1 {
                seen.push(field(&status, "Uid"));
                parents.push(pid);
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(seen.len() >= 2, "pid 1 and the workload: {seen:?}");
    let own = nix::unistd::geteuid().as_raw();
    for ids in &seen {
        for id in ids {
            assert_ne!(*id, 0);
            assert_eq!(*id == own, !is_root(), "{id}");
        }
    }

    let ran = world.exec("", &["true"]).ended(0);
    let uid = world.last().execution.observed.unwrap().uid.unwrap();
    assert_ne!(uid, 0);
    assert_eq!(uid == own, !is_root(), "{}", ran.err);
    assert!(world.last().declares("user"));
}

fn processes() -> Vec<(u32, String)> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let pid = path.file_name()?.to_str()?.parse().ok()?;
        Some((pid, std::fs::read_to_string(path.join("status")).ok()?))
    });
    all.collect()
}

fn field(status: &str, name: &str) -> Vec<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let numbers = line.unwrap_or_default().split_whitespace();
    numbers.map(|number| number.parse().unwrap()).collect()
}

#[test]
fn two_runs_of_root_are_two_host_users() {
    if !is_root() {
        return crate::world::skip("two_runs_of_root_are_two_host_users", "not root");
    }
    let world = ready!();
    let mut first = world.exec_command("", &["sh", "-c", "echo ready; exec sleep 86400"]);
    let mut first = first.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    world.exec("", &["true"]).ended(0);
    let second = world.last().execution.observed.unwrap().uid.unwrap();
    let own = first.id();
    let of_first: Vec<u32> = processes()
        .iter()
        .filter(|(_, status)| field(status, "PPid") == [own])
        .flat_map(|(_, status)| field(status, "Uid"))
        .collect();
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(
        !of_first.is_empty() && !of_first.contains(&second),
        "{of_first:?} {second}"
    );
}

#[test]
fn no_capability_is_held_and_none_can_be_gained() {
    let world = ready!();
    let ran = world.sh(
        "",
        "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; umask",
        &[],
    );
    for line in ran.ended(0).out.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name {
            "NoNewPrivs" => assert_eq!(value.trim(), "1"),
            "Seccomp" => assert_eq!(value.trim(), "2"),
            name if name.starts_with("Cap") => {
                assert_eq!(value.trim(), "0000000000000000", "{name}")
            }
            _ => {}
        }
    }
    assert!(world.last().declares("privilege"));
}

#[test]
fn ids_inside_are_the_policys() {
    let world = ready!();
    let policy = world.policy(|policy| {
        policy["process"]["user"] = 4321.into();
        policy["process"]["group"] = 8765.into();
    });
    let ran = world.sh(
        &format!("-P {}", policy.display()),
        "id -u; id -g; id -un",
        &[],
    );
    assert_eq!(ran.ended(0).out, "4321\n8765\nsandbox\n");
    let policy = world.policy(|policy| policy["process"]["user"] = 65534.into());
    let ran = world
        .exec(&format!("-P {}", policy.display()), &["true"])
        .ended(125);
    assert!(ran.err.contains("65534"), "{}", ran.err);
}

#[test]
fn supplementary_groups_that_cannot_be_dropped_are_said() {
    const TEST: &str = "supplementary_groups_that_cannot_be_dropped_are_said";
    let Some(world) = World::of_user(TEST, &[61_300, 61_301]) else {
        return;
    };
    let ran = world.exec("", &["true"]).ended(0);
    assert!(ran.err.contains("supplementary-groups-kept"), "{}", ran.err);
    let run = world.last();
    assert_eq!(run.execution.verdict.as_str(), "reduced");
    assert_eq!(run.reason("user"), Some("supplementary-groups-kept"));
    let ran = world.exec("--require user", &["true"]).ended(126);
    assert!(ran.err.contains("supplementary-groups-kept"), "{}", ran.err);
    let run = world.last();
    assert_eq!(run.execution.verdict.as_str(), "not-executed");
    assert!(run.start.controls.declared.is_empty());
    // Without those groups nothing stands in the way.
    let world = World::of_user(TEST, &[]).unwrap();
    world.exec("--require user", &["true"]).ended(0);
    let run = world.last();
    assert!(run.declares("user"));
    assert_eq!(run.execution.observed.unwrap().uid, Some(61_234));
}

#[test]
fn as_root_gives_up_user_and_privilege() {
    let world = ready!();
    if !is_root() {
        let ran = world.exec("--as-root", &["true"]);
        // Nothing to map to: the flag changes only what is claimed.
        assert_eq!(ran.code, Some(126), "{ran:#?}");
        return assert_eq!(world.last().reason("privilege"), Some("runs-as-root"));
    }
    world.exec("--as-root", &["true"]).ended(126);
    let run = world.last();
    assert_eq!(run.reason("user"), Some("runs-as-root"));
    assert_eq!(run.reason("privilege"), Some("runs-as-root"));
    let folder = world.folder("out");
    let flags = format!("--as-root --best-effort --write {}", folder.display());
    world
        .sh(&flags, r#"echo made >"$1/file""#, &[&folder])
        .ended(0);
    let run = world.last();
    assert!(!run.declares("user") && !run.declares("privilege") && run.declares("network"));
    assert_eq!(run.execution.verdict.as_str(), "controls-missing");
    assert_eq!(run.execution.observed.unwrap().uid, Some(0));
    assert_eq!(
        std::fs::read_to_string(folder.join("file")).unwrap(),
        "made\n"
    );
}
