//! What a template shows: each folder with its own right also where one lies in another, and nothing that was not asked for; and
//! what a run that was ended leaves of the sandbox.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::world::{Ran, World, is_root, program, skip};

/// Sandboxes that may run here, and programs without which none of them does.
const SANDBOXES: [(&str, &[&str]); 4] = [
    ("runc", &["runc"]),
    ("crun", &["crun"]),
    ("podman", &["podman", "runc"]),
    ("systemd-nspawn", &["systemd-nspawn"]),
];

fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/runtimes");
    folder.join(format!("{name}.json"))
}

/// Flags for a sandbox with the programs of this host, under a policy that requires that files are kept from the workload.
fn flags(world: &World, name: &str) -> String {
    let policy = world.policy(|policy| {
        policy["enforcement"]["requiredControls"] = json!(["filesystem", "network"]);
        policy["filesystem"] = json!({ "root": "ephemeral", "protect": [] });
        policy["network"] = json!({ "mode": "none" });
        // What podman sets by default is more than every caller may have.
        policy["resources"] = json!({ "openFiles": 512 });
    });
    let mut flags = format!(
        "--allow-native -P {} --runtime {} --read /usr",
        policy.display(),
        example(name).display()
    );
    for folder in ["/bin", "/lib", "/lib64"].map(Path::new) {
        if let Ok(real) = std::fs::canonicalize(folder) {
            flags.push_str(&format!(" --read {}:{}", real.display(), folder.display()));
        }
    }
    flags
}

/// Where an ordinary user's session has its state, in the folder of a world.
const SESSION: &str = "session";

/// A world with such a state of its own. Rootless podman leaves one process for each that holds its namespaces until the session ends.
struct Session(World);

impl Session {
    fn new() -> Self {
        let world = World::new();
        let folder = world.folder(SESSION);
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        Self(world.with("XDG_RUNTIME_DIR", folder))
    }
}

impl std::ops::Deref for Session {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let file = self.path(SESSION).join("libpod/tmp/pause.pid");
        let pid = std::fs::read_to_string(file).ok();
        let pid = pid.and_then(|pid| pid.trim().parse::<i32>().ok());
        let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        if let (Some(pid), Some("podman pause")) = (pid, name.as_deref().map(str::trim)) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Why a sandbox starts nothing here, found by trying.
fn lacks(world: &World, name: &str, programs: &[&str]) -> Option<String> {
    if !is_root() && name != "podman" {
        return Some("not root".to_owned());
    }
    if let Some(missing) = programs.iter().find(|name| program(name).is_none()) {
        return Some(format!("no {missing}"));
    }
    let tried = world.exec(&flags(world, name), &["/bin/true"]);
    (tried.code != Some(0)).then(|| tried.err.clone())
}

/// A folder, and one in it, with a file that anyone may change.
fn folders(world: &World, name: &str) -> (PathBuf, PathBuf) {
    let (folder, within) = (world.folder(name), world.folder(&format!("{name}/within")));
    std::fs::write(within.join("file"), "as it was\n").unwrap();
    std::fs::write(folder.join("file"), "as it was\n").unwrap();
    for (path, mode) in [
        (folder.clone(), 0o777),
        (within.clone(), 0o777),
        (folder.join("file"), 0o666),
        (within.join("file"), 0o666),
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    (folder, within)
}

fn content(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("file")).unwrap()
}

#[test]
fn a_folder_in_another_has_its_own_right_in_every_sandbox_that_runs_here() {
    let test = "a_folder_in_another_has_its_own_right_in_every_sandbox_that_runs_here";
    for (name, programs) in SANDBOXES {
        let world = Session::new();
        if let Some(why) = lacks(&world, name, programs) {
            skip(test, format!("{name}: {why}"));
            continue;
        }
        let usual = flags(&world, name);
        let script = "echo changed >>/w/within/file; echo changed >>/w/file; cat /w/within/file";
        let run = |more: String| {
            let ran = world.exec(&format!("{usual} {more}"), &["/bin/sh", "-c", script]);
            let declared = world.last().start.controls.declared;
            let control = ledger::facts::control::Control::Filesystem;
            assert!(
                declared.iter().any(|one| one.control == control),
                "{name}: {ran:#?}"
            );
            ran
        };
        // To be read in one to be written to, and the other way round.
        let (folder, within) = folders(&world, "writable");
        let (outer, inner) = (folder.display(), within.display());
        run(format!("--write {outer}:/w --read {inner}:/w/within"));
        assert_eq!(content(&within), "as it was\n", "{name}");
        assert_eq!(content(&folder), "as it was\nchanged\n", "{name}");
        let (folder, within) = folders(&world, "readable");
        let (outer, inner) = (folder.display(), within.display());
        run(format!("--read {outer}:/w --write {inner}:/w/within"));
        assert_eq!(content(&folder), "as it was\n", "{name}");
        assert_eq!(content(&within), "as it was\nchanged\n", "{name}");
        // What covers another is what is seen.
        let (folder, within) = folders(&world, "covered");
        let (other, _) = folders(&world, "covering");
        std::fs::write(other.join("file"), "of the other\n").unwrap();
        let (outer, other) = (folder.display(), other.display());
        let ran = run(format!("--write {outer}:/w --read {other}:/w/within"));
        assert_eq!(ran.out, "of the other\n", "{name}");
        assert_eq!(content(&within), "as it was\n", "{name}");
    }
}

/// A template that starts nothing and prints what it is told.
fn printing(world: &World, words: &[&str]) -> String {
    let mut command = vec!["printf", "%s\n"];
    command.extend(words);
    command.push("{program}");
    let document = json!({ "id": "box", "declares": [{ "control": "filesystem", "mechanism": "m" }], "command": command });
    let runtime = world.file("box.json", &document.to_string());
    format!(
        "--allow-native --best-effort --runtime {}",
        runtime.display()
    )
}

const READ: &str = "ro {read-source} {read-target}";
const WRITE: &str = "rw {write-source} {write-target}";

#[test]
fn folders_in_one_another_are_named_in_their_order_or_refused() {
    let world = World::new();
    let (folder, within) = folders(&world, "folder");
    let (outer, inner) = (folder.display(), within.display());
    for (words, is_told) in [
        (vec![READ, WRITE], true),
        (vec![WRITE, READ], true),
        (vec![READ, "apart", WRITE], false),
        (vec![WRITE, "apart", READ], false),
    ] {
        let usual = printing(&world, &words);
        for (above, below) in [("write", "read"), ("read", "write")] {
            let mode = |right| if right == "read" { "ro" } else { "rw" };
            let binds = format!("--{above} {outer}:/w --{below} {inner}:/w/within");
            let exec = format!("{usual} {binds}");
            if is_told {
                let ran = world.exec(&exec, &["/end"]).ended(0);
                let expected = format!(
                    "{} {outer} /w\n{} {inner} /w/within\n/end\n",
                    mode(above),
                    mode(below)
                );
                assert_eq!(ran.out, expected);
                continue;
            }
            let ran = world.exec(&exec, &["/end"]).ended(126);
            assert!(
                ran.err.contains("cannot-show") && ran.err.contains("it lies in /w"),
                "{}",
                ran.err
            );
            let plan = world.run(&format!("plan {exec} -- /end")).ended(126);
            assert!(plan.out.contains("cannot-show"), "{}", plan.out);
        }
    }
}

#[test]
fn what_a_sandbox_cannot_cover_or_may_leave_writable_is_not_shown() {
    let world = World::new();
    let usual = printing(&world, &[READ, WRITE]);
    let state = world.ledger();
    world.exec("--runtime native --allow-native --best-effort", &["true"]);
    let (above, right) = (state.parent().unwrap().parent().unwrap(), ["read", "write"]);
    for right in right {
        let shown = format!("{usual} --{right} {}:/shown", above.display());
        let ran = world.exec(&shown, &["/end"]).ended(126);
        assert!(
            ran.err.contains("cannot-show") && ran.err.contains("a template cannot cover /shown/"),
            "{}",
            ran.err
        );
    }
    let test = "what_a_sandbox_cannot_cover_or_may_leave_writable_is_not_shown";
    let mount = "mount -t tmpfs none \"$1/folder/mounted\"";
    let read_only = format!("{mount} && mount -o remount,bind,ro \"$1/folder/mounted\"");
    for (script, right, status) in [
        (mount, "read", 126),
        (mount, "write", 0),
        (read_only.as_str(), "read", 0),
    ] {
        let mut world = World::new();
        let usual = printing(&world, &[READ, WRITE]);
        world.folder("folder/mounted");
        if let Err(why) = world.mounted(script) {
            return skip(test, why);
        }
        let folder = world.path("folder").display().to_string();
        let ran = world.exec(&format!("{usual} --{right} {folder}:/r"), &["/end"]);
        let ran = ran.ended(status);
        let says = "cannot-show: cannot show";
        assert_eq!(ran.err.contains(says), status != 0, "{}", ran.err);
        let names = ran.err.contains("/folder/mounted is mounted in it");
        assert_eq!(names, status != 0, "{}", ran.err);
    }
}

/// Names in a folder and in those below it, not deep.
fn names(folder: &Path, depth: usize) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.file_name().to_string_lossy().into_owned());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if depth > 0 && is_folder {
            names.extend(self::names(&entry.path(), depth - 1));
        }
    }
    names
}

#[test]
fn a_run_of_podmans_that_is_ended_leaves_nothing() {
    let test = "a_run_of_podmans_that_is_ended_leaves_nothing";
    let world = Session::new();
    if let Some(why) = lacks(&world, "podman", &["podman", "runc"]) {
        return skip(test, why);
    }
    // Its host name is the beginning of its id.
    let script = "cat /proc/sys/kernel/hostname; exec sleep 600";
    let mut command = world.exec_command(&flags(&world, "podman"), &["/bin/sh", "-c", script]);
    let mut runner = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut id = String::new();
    let out = runner.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut id).unwrap();
    let id = id.trim();
    assert_eq!(id.len(), 12, "{id}");
    let run = match is_root() {
        true => PathBuf::from("/run"),
        false => world.path(SESSION),
    };
    let groups = Path::new("/sys/fs/cgroup");
    let left = || {
        let mut all = names(&run.join("runc"), 0);
        all.extend(names(&run.join("libpod"), 2));
        all.extend(names(groups, 2));
        all.retain(|name| name.contains(id));
        all
    };
    assert!(!left().is_empty(), "what is there while it runs is found");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
    // The first is the workload's; the second ends it, and with it conmon.
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        nix::sys::signal::kill(pid, signal).unwrap();
    }
    let ran = Ran::of(runner.wait_with_output().unwrap());
    assert!(!ran.err.contains("may be left"), "{ran:#?}");
    assert_eq!(left(), Vec::<String>::new(), "{ran:#?}");
    // Nor does it stand in the way of the next.
    let next = world.exec(&flags(&world, "podman"), &["/bin/true"]);
    assert!(!next.err.contains("may be left"), "{next:#?}");
    next.ended(0);
}

#[test]
fn a_cleanup_that_fails_is_said_and_those_of_the_shipped_templates_do_not() {
    let world = World::new();
    let document = json!({
        "id": "box", "declares": [], "command": ["{program}", "{arguments}"], "environment": "inherit",
        "cleanup": [["true"], ["sh", "-c", "echo it is busy >&2; exit 5"]],
    });
    let runtime = world.file("box.json", &document.to_string());
    let flags = format!(
        "--allow-native --best-effort --runtime {}",
        runtime.display()
    );
    let ran = world.exec(&flags, &["true"]).ended(0);
    assert_eq!(ran.err.matches("may be left").count(), 1, "{}", ran.err);
    let says = "fails (exit status: 5): it is busy; what it should have removed may be left";
    assert!(ran.err.contains(says), "{}", ran.err);
    let test = "a_cleanup_that_fails_is_said_and_those_of_the_shipped_templates_do_not";
    for (name, programs) in SANDBOXES {
        let world = Session::new();
        if let Some(why) = lacks(&world, name, programs) {
            skip(test, format!("{name}: {why}"));
            continue;
        }
        let ran = world.exec(&self::flags(&world, name), &["/bin/true"]);
        assert!(!ran.err.contains("may be left"), "{name}: {}", ran.err);
    }
}
