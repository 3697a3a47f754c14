//! Hosts that lack what a sandbox needs: `doctor`, `plan` and `exec` say the same.

use crate::world::{Ran, World, is_root, program, skip};

/// A world on a host that makes no further user namespaces.
fn without_namespaces(test: &str, mapped: &str) -> Option<World> {
    let mut world = World::new();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces";
    match world.confined(mapped, script) {
        Ok(()) => Some(world),
        Err(reason) => {
            skip(test, reason);
            None
        }
    }
}

#[test]
fn where_no_namespaces_are_made_plan_says_what_exec_does() {
    // As whoever runs this, and as root of a namespace.
    for mapped in ["--map-current-user", "--map-root-user"] {
        let test = "where_no_namespaces_are_made_plan_says_what_exec_does";
        if let Some(world) = without_namespaces(test, mapped) {
            plan_says_what_exec_does(&world);
        }
    }
}

fn plan_says_what_exec_does(world: &World) {
    let doctor = world.run("--json doctor").ended(1).json();
    assert_eq!(doctor["ready"], serde_json::Value::Bool(false));
    // Landlock is what is left, where the kernel has that.
    let is_weaker = doctor["tier"] == "landlock";
    for flags in ["", "--best-effort"] {
        let planned = world.run(&format!("plan {flags} -- true"));
        let code = planned.code.unwrap();
        // Who has no other ids, as root of such a namespace, cannot become nobody either.
        let expected: &[i32] = match (flags, is_weaker) {
            ("", _) => &[126],
            (_, true) => &[0, 125],
            (_, false) => &[125],
        };
        assert!(expected.contains(&code), "{flags}: {}", planned.out);
        assert!(
            planned.out.contains("no-user-namespace (ENOSPC)"),
            "{flags}: {}",
            planned.out
        );
        assert_eq!(
            planned.out.contains("exec would run"),
            code == 0,
            "{}",
            planned.out
        );
        let json = world.run(&format!("--json plan {flags} -- true")).json();
        assert_eq!(
            (&json["refused"], &json["launches"]),
            (&(code == 126).into(), &(code == 0).into())
        );
        let intended = json["controls"].as_array().unwrap().iter();
        let intended = intended.filter(|one| one["mechanism"].is_string()).count();
        if !is_weaker || code == 0 {
            assert_eq!(intended > 0, code == 0, "{json}");
        }
        let before = world.ledger().exists().then(|| world.ledger_bytes());
        world.run(&format!("plan {flags} -- true")).ended(code);
        assert_eq!(
            world.ledger().exists().then(|| world.ledger_bytes()),
            before
        );

        let ran = world.run(&format!("exec {flags} -- true")).ended(code);
        let run = world.last();
        assert_eq!(run.reason("process"), Some("no-user-namespace (ENOSPC)"));
        if code == 0 {
            assert_eq!(run.execution.verdict.as_str(), "controls-missing");
            continue;
        }
        assert_eq!(run.execution.verdict.as_str(), "not-executed");
        let word = if code == 126 {
            "no-user-namespace (ENOSPC)"
        } else {
            "runner doctor"
        };
        assert!(
            ran.err.contains(word) && ran.err.contains("runner doctor"),
            "{}",
            ran.err
        );
        // It helps where it does.
        assert_eq!(
            ran.err.contains("--best-effort"),
            code == 126 && is_weaker,
            "{}",
            ran.err
        );
    }
    // Native asks nothing of the host.
    world
        .run("plan --runtime native --allow-native -P minimal --best-effort -- true")
        .ended(0);
}

/// The word and the doctor; not a flag that does not help.
fn says_the_way_out(ran: &Ran, word: &str) {
    assert!(
        ran.err.contains(word) && ran.err.contains("runner doctor"),
        "{}",
        ran.err
    );
    assert!(!ran.err.contains("--best-effort"), "{}", ran.err);
}

#[test]
fn a_root_without_ids_for_workloads_is_told_so() {
    const TEST: &str = "a_root_without_ids_for_workloads_is_told_so";
    let mut world = World::new();
    if let Err(reason) = world.confined("--map-root-user", ":") {
        return skip(TEST, reason);
    }
    let json = world.run("--json doctor").ended(1).json();
    let ids = json["capabilities"].as_array().unwrap().iter();
    let ids: Vec<_> = ids.filter(|one| one["name"] == "other-ids").collect();
    assert_eq!(
        (&json["ready"], &ids[0]["works"]),
        (&false.into(), &false.into())
    );
    for part in ["tried", "advice"] {
        let text = ids[0][part].as_str().unwrap();
        assert!(text.contains("1879048192"), "{text}");
    }
    let planned = world.run("plan -- true").ended(126);
    assert!(planned.out.contains("mechanism-failed"), "{}", planned.out);
    // With the caller's own id, or host root's, these ids are not needed.
    world.run("plan --as-root --best-effort -- true").ended(0);
    if !is_root() {
        // Locks of host ids are another root's.
        return;
    }
    let ran = world.run("exec -- true").ended(126);
    says_the_way_out(&ran, "mechanism-failed");
    assert!(
        world
            .last()
            .reason("privilege")
            .unwrap()
            .starts_with("mechanism-failed")
    );
}

#[test]
fn a_missing_network_namespace_is_found_by_plan() {
    const TEST: &str = "a_missing_network_namespace_is_found_by_plan";
    if program("unshare").is_none() {
        return skip(TEST, "no unshare (util-linux)");
    }
    let mut world = World::new();
    let script = "echo 0 > /proc/sys/user/max_net_namespaces";
    if let Err(reason) = world.confined("--map-current-user", script) {
        return skip(TEST, reason);
    }
    if is_root() {
        // The ids of workloads are missing here, too, and that is found first.
        return skip(TEST, "root of a user namespace with one id");
    }
    let planned = world.run("plan -- true").ended(126);
    assert!(planned.out.contains("namespace-refused"), "{}", planned.out);
    world.run("exec -- true").ended(126);
    world.run("plan --best-effort -- true").ended(0);
}
