//! In the tier `landlock` places are known by what they are: whatever name leads there, evidence is not shown, and what may only be read
//! is not written to.

use std::path::Path;

use ledger::facts::execution::Outcome;

use super::{policy, refused, worlds};
use crate::world::{World, is_root, skip};

/// `plan` and `exec` refuse, whatever is required, and say this.
#[track_caller]
fn refused_for(world: &World, flags: &str, words: &[&str]) {
    let flags = format!("--best-effort {flags}");
    // Before there is any evidence, and then.
    for time in ["first", "second"] {
        let planned = world.run(&format!("plan {flags} -- true"));
        let ran = world.exec(&flags, &["true"]);
        for (ran, text) in [(&planned, &planned.out), (&ran, &ran.err)] {
            assert_eq!(ran.code, Some(126), "{time}: {}{}", ran.out, ran.err);
            for word in words {
                assert!(text.contains(word), "{time}: {word}: {text}");
            }
        }
    }
}

#[test]
fn without_namespaces_evidence_below_what_every_workload_sees_is_refused() {
    let test = "without_namespaces_evidence_below_what_every_workload_sees_is_refused";
    if !is_root() {
        return skip(test, "only root can bind something there");
    }
    let always = ["no workload may see", "every workload has this folder"];
    // Which folder of the world stands where, and what the runner is told.
    let cases: [(&str, &str, Option<[&str; 2]>); 7] = [
        // By the name that it has there.
        ("", "/usr/local", Some(["XDG_DATA_HOME", "/usr/local/data"])),
        (
            "",
            "/usr/local",
            Some(["XDG_STATE_HOME", "/usr/local/state"]),
        ),
        ("", "/etc/ssl", Some(["XDG_DATA_HOME", "/etc/ssl/data"])),
        // By another.
        ("", "/usr/local", None),
        ("data", "/usr/local", None),
        ("", "/etc/ssl", None),
        ("state", "/etc/alternatives", None),
    ];
    for (folder, place, variable) in cases {
        let shown = if place.starts_with("/usr") {
            "/usr"
        } else {
            place
        };
        let shown = format!("cannot show {shown}: ");
        for world in worlds(test, "landlock") {
            let source = world.path(folder);
            let mut world = world.bound(&[(&source, Path::new(place))]);
            if let Some([name, value]) = variable {
                world = world.with(name, value);
            }
            refused_for(&world, "", &[&shown, always[0], always[1]]);
            let run = world.last();
            assert_eq!(run.execution.result.outcome, Outcome::NotExecuted);
            assert!(run.reason("filesystem").unwrap().starts_with("no-mounts"));
        }
    }
    // Evidence that stands itself at a place that is shown, and a key by itself.
    for world in worlds(test, "landlock") {
        world.exec("--best-effort", &["true"]).ended(0);
        let keys = world.keys();
        let world = world.bound(&[(&keys, Path::new("/etc/ssl"))]);
        refused_for(
            &world,
            "",
            &["cannot show /etc/ssl: it belongs to the evidence"],
        );
    }
    // Anything else may stand there.
    for world in worlds(test, "landlock") {
        let other = world.folder("other");
        std::fs::write(other.join("file"), "content").unwrap();
        let world = world.bound(&[(&other, Path::new("/usr/local"))]);
        let ran = world.exec("--best-effort", &["cat", "/usr/local/file"]);
        assert_eq!(ran.ended(0).out, "content");
    }
}

#[test]
fn without_namespaces_evidence_in_what_is_shown_is_refused_by_plan_too() {
    let test = "without_namespaces_evidence_in_what_is_shown_is_refused_by_plan_too";
    for world in worlds(test, "landlock") {
        let state = world.path("state");
        let flags = format!("--read {}", state.display());
        refused_for(
            &world,
            &flags,
            &["no workload may see", "show another folder"],
        );
        // The run's own folder would lie in it.
        let within = world.folder("state/containment-ledger/within");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&within, open).unwrap();
        let world = world.with("TMPDIR", within);
        let ledger = world.path("state/containment-ledger");
        let flags = format!("--ledger {}", ledger.display());
        let planned = world.run(&format!("{flags} plan --best-effort -- true"));
        assert!(planned.ended(126).out.contains("set TMPDIR"));
    }
}

#[test]
fn without_namespaces_read_only_below_writable_is_found_behind_links() {
    let test = "without_namespaces_read_only_below_writable_is_found_behind_links";
    for world in worlds(test, "landlock") {
        let folder = world.folder("w/sub");
        std::fs::write(folder.join("file"), "as it was").unwrap();
        let link = world.path("link");
        std::os::unix::fs::symlink(world.path("w"), &link).unwrap();
        let inner = world.path("inner");
        std::os::unix::fs::symlink(&folder, &inner).unwrap();
        for (writable, read) in [
            (link.clone(), folder.clone()),
            (world.path("w"), link.join("sub")),
            (world.path("w"), inner.clone()),
            (link.clone(), inner.clone()),
            // The same folder by two names.
            (link.clone(), world.path("w")),
            (world.path("w"), link.clone()),
        ] {
            read_only_below(&world, &writable, &read);
        }
        // Writable below read-only is what it says.
        let flags = links(&world, &folder, &link);
        world.run(&format!("plan {flags} -- true")).ended(0);
    }
}

#[test]
fn without_namespaces_read_only_below_writable_is_found_behind_mounts() {
    let test = "without_namespaces_read_only_below_writable_is_found_behind_mounts";
    if !is_root() {
        return skip(test, "only root can bind something there");
    }
    for world in worlds(test, "landlock") {
        let sub = world.folder("w/sub");
        let other = world.folder("other");
        std::fs::create_dir_all(other.join("sub")).unwrap();
        let writable = world.path("w");
        let world = world.bound(&[(&writable, &other)]);
        read_only_below(&world, &writable, &other.join("sub"));
        read_only_below(&world, &writable, &other);
        read_only_below(&world, &other, &sub);
    }
}

/// Flags of a policy that follows links.
fn links(world: &World, writable: &Path, read: &Path) -> String {
    policy(world, |policy| {
        policy["filesystem"]["followSymlinks"] = true.into();
        policy["filesystem"]["writable"] = vec![writable.to_str().unwrap()].into();
        policy["filesystem"]["readOnly"] = vec![read.to_str().unwrap()].into();
    })
}

#[track_caller]
fn read_only_below(world: &World, writable: &Path, read: &Path) {
    refused(world, &links(world, writable, read), "read-only below");
}
