//! Hosts and runtimes that are broken in one way: what would be mistaken there for a sandbox, or for the lack of one, is not.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{
    Contained, Escaped, FORBIDDEN, MISSING, SILENCE, TWIN_FAILED, Table, UNAVAILABLE, fake,
    measure, policy, rows_of,
};
use crate::world::{World, program, ready, skip};

const LONG_MS: u64 = 30_000;

/// Some rows in a fake or a template.
fn some(world: &World, template: &Path, controls: &[&str]) -> Table {
    let policy = policy(world, LONG_MS, |_| {});
    let rows = format!("--suite {}", rows_of(world, controls).display());
    Table::of(&measure(world, template, &policy, &rows).ended(0))
}

/// Some rows in the sandbox, under a policy that is changed.
fn sandboxed(
    world: &World,
    controls: &[&str],
    change: impl FnOnce(&mut serde_json::Value),
) -> Table {
    let (policy, rows) = (policy(world, LONG_MS, change), rows_of(world, controls));
    let arguments = format!("-P {} --suite {}", policy.display(), rows.display());
    let ran = world.run(&format!("matrix --json --runtime embedded {arguments}"));
    Table::of(&ran.ended(0))
}

#[test]
fn an_offline_host_contains_nothing() {
    let mut world = ready!();
    if let Err(reason) = world.apart(&["--net"], "") {
        return skip("an_offline_host_contains_nothing", reason);
    }
    // Its loopback is down: the runner does not reach its own listeners, so that the probe does not shows nothing.
    let table = sandboxed(&world, &["network"], |_| {});
    for check in ["tcp4", "udp", "dns", "path"] {
        table.is(&format!("network/{check}"), UNAVAILABLE);
    }
}

#[test]
fn ipv6_that_is_off_is_a_fact_and_no_containment() {
    let mut world = ready!();
    let script = "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6";
    if let Err(reason) = world.apart(&["--net"], script) {
        return skip("ipv6_that_is_off_is_a_fact_and_no_containment", reason);
    }
    for table in [
        sandboxed(&world, &["network"], |_| {}),
        some(&world, &fake(&world, "no-op"), &["network"]),
    ] {
        table.is("network/tcp6", FORBIDDEN);
        table.is("network/udp6", FORBIDDEN);
        let detail = &table.cell("network/tcp6").detail;
        assert_eq!(detail, "net.ipv6.conf.all.disable_ipv6 = 1");
    }
    // By IPv4 the same host is measured as ever.
    let table = some(&world, &fake(&world, "no-op"), &["network"]);
    table.is("network/tcp4", Escaped);
    sandboxed(&world, &["network"], |_| {}).is("network/tcp4", Contained);
}

#[test]
fn a_host_of_few_processes_hides_none() {
    let name = "a_host_of_few_processes_hides_none";
    let mut world = World::new();
    if let Err(reason) = world.apart(&["--pid", "--fork", "--mount-proc"], "") {
        return skip(name, reason);
    }
    let table = some(&world, &fake(&world, "no-op"), &["process"]);
    table.is("process/visibility", Escaped);
    table.is("process/signal", Escaped);
    let detail = &table.cell("process/visibility").detail;
    let (count, _) = detail.split_once(" processes, pid 1").unwrap();
    let count: u32 = count.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(count <= 12, "{detail}");
}

#[test]
fn many_variables_are_no_leak_and_few_are_no_containment() {
    let world = ready!();
    let table = sandboxed(&world, &["environment"], |policy| {
        for number in 0..60 {
            policy["process"]["environment"][format!("VARIABLE_{number}")] = "1".into();
        }
    });
    table.is("environment/inherited", Contained);
    // The caller's few, and the one that was planted.
    let table = some(&world, &fake(&world, "no-op"), &["environment"]);
    table.is("environment/inherited", Escaped);
}

/// A template that does one thing before it runs the probe.
fn template(world: &World, id: &str, command: &serde_json::Value, declares: &[&str]) -> PathBuf {
    let declares = declares
        .iter()
        .map(|control| serde_json::json!({ "control": control, "mechanism": "its word" }));
    let text = serde_json::json!({
        "id": id, "version": "1", "description": "made by a test",
        "declares": declares.collect::<Vec<_>>(),
        "command": command,
        "environment": "inherit",
    });
    world.file(&format!("{id}.json"), &text.to_string())
}

#[test]
fn a_mask_over_tmp_alone_hides_tmp_alone() {
    let name = "a_mask_over_tmp_alone_hides_tmp_alone";
    let world = World::new();
    let script = "mount -t tmpfs none /mnt; cp \"$1\" /mnt/probe; mount -t tmpfs none /tmp; shift; exec /mnt/probe \"$@\"";
    let command = serde_json::json!([
        "unshare",
        "--map-root-user",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-ec",
        script,
        "mask",
        "{program}",
        "{arguments}",
    ]);
    let mask = template(&world, "mask", &command, &["filesystem"]);
    if let Err(reason) = World::new().apart(&["--user", "--mount"], "mount -t tmpfs none /tmp") {
        return skip(name, reason);
    }
    let table = some(&world, &mask, &["filesystem"]);
    for check in ["read", "tree", "write"] {
        table.is(&format!("filesystem/{check}"), Escaped);
        let detail = &table.cell(&format!("filesystem/{check}")).detail;
        assert!(
            !detail.contains(" /tmp/") && !detail.starts_with("/tmp/"),
            "{detail}"
        );
    }
}

#[test]
fn a_helper_that_is_missing_contains_nothing() {
    let world = World::new();
    let script = [
        "sh",
        "-c",
        "exec no-such-helper \"$@\"",
        "helper",
        "{program}",
        "{arguments}",
    ];
    let missing = template(
        &world,
        "no-helper",
        &serde_json::json!(script),
        &["network"],
    );
    let table = some(&world, &missing, &["network"]);
    for check in ["tcp4", "udp", "path", "dns"] {
        table.is(&format!("network/{check}"), SILENCE);
    }
    // The runtime itself is missing: nothing of it is measured, and that is no pass.
    let gone = serde_json::json!(["no-such-runtime", "{program}", "{arguments}"]);
    let gone = template(&world, "gone", &gone, &["network"]);
    let rows = format!("--suite {}", rows_of(&world, &["network"]).display());
    let ran = measure(&world, &gone, &policy(&world, LONG_MS, |_| {}), &rows).ended(125);
    let why = "runtime-missing (no no-such-runtime in PATH)";
    assert!(ran.err.contains(why), "{ran:#?}");
    // Silently off: it goes on without its helper.
    let script = "no-such-helper 2>/dev/null; exec \"$@\"";
    let off = serde_json::json!(["sh", "-c", script, "off", "{program}", "{arguments}"]);
    let off = template(&world, "off", &off, &["network"]);
    some(&world, &off, &["network"]).is("network/tcp4", Escaped);
}

#[test]
fn a_host_that_is_shown_read_only_can_still_be_spoken_to() {
    let name = "a_host_that_is_shown_read_only_can_still_be_spoken_to";
    let world = World::new();
    let bwrap = [
        "--ro-bind",
        "/",
        "/",
        "--unshare-all",
        "--new-session",
        "--",
    ];
    let Some(path) = program("bwrap") else {
        return skip(name, "no bwrap");
    };
    let tried = Command::new(&path).args(bwrap).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return skip(name, "bwrap makes no sandbox here");
    }
    let mut command = vec![path.display().to_string()];
    command.extend(bwrap.map(str::to_owned));
    command.extend(["{program}", "{arguments}"].map(str::to_owned));
    let declares = ["network", "filesystem", "process", "ipc", "terminal"];
    let bwrap = template(&world, "ro-bind", &serde_json::json!(command), &declares);
    let rows = ["network", "filesystem", "process", "ipc"];
    let table = some(&world, &bwrap, &rows);
    // What a probe that connects by TCP and asks by DNS calls tight.
    for check in ["tcp4", "udp", "path", "dns"] {
        table.is(&format!("network/{check}"), Contained);
    }
    // Nothing may be written at all, so that this may not be either says nothing.
    table.is("filesystem/write", TWIN_FAILED);
    for check in ["read", "tree", "traversal", "evidence"] {
        table.is(&format!("filesystem/{check}"), Escaped);
    }
    table.is("ipc/unix", Escaped);
    table.is("ipc/host-sockets", Escaped);
    table.is("ipc/abstract", Contained);
}

#[test]
fn a_filter_that_does_not_deny_what_is_tried_is_not_shown_to_be_missing() {
    let world = ready!();
    let table = sandboxed(&world, &["syscalls"], |policy| {
        policy["syscalls"]["deny"] = serde_json::json!([]);
    });
    table.is("syscalls/calibration", MISSING);
    table.is("syscalls/after-exec", MISSING);
    table.is("syscalls/new", Contained);
    let detail = &table.cell("syscalls/calibration").detail;
    assert!(detail.contains("denies no harmless call"), "{detail}");
}

#[test]
fn a_host_that_is_itself_a_container_has_no_root() {
    let name = "a_host_that_is_itself_a_container_has_no_root";
    let mut world = World::new();
    // Map `0 0 1`, or `0 1000 1`: root inside, and nobody else.
    let flags = [
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    if let Err(reason) = world.apart(&flags, "") {
        return skip(name, reason);
    }
    let rows = ["filesystem", "privilege", "devices", "user"];
    let table = some(&world, &fake(&world, "no-op"), &rows);
    assert_eq!(table.host.field("host uid"), "0");
    table.is("filesystem/read", Escaped);
    table.is("privilege/capabilities", FORBIDDEN);
    let detail = &table.cell("privilege/capabilities").detail;
    assert_eq!(detail, "uid = 0, in a user namespace");
    table.is("user/inside", Escaped);
}
