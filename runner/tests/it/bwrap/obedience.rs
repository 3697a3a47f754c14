//! Bubblewrap that leaves out something of what it was told: either it builds nothing then, or what is missing is seen from outside,
//! or nothing rests on it.

use std::os::unix::fs::PermissionsExt as _;

use super::failing::first_in_path;
use super::with_bwrap;
use crate::world::{SUPPORTED, program, skip};

/// What comes of it.
enum Then {
    /// No sandbox.
    NotBuilt,
    /// One without these controls.
    Without(&'static [&'static str]),
}

use Then::{NotBuilt, Without};

/// What is left out (`*` for any word, OUT for the writable folder; the last that is like it), and what comes of that.
const LEFT_OUT: [(&str, Then); 19] = [
    ("--unshare-net", Without(&["network", "ipc"])),
    // Message queues take the namespace, and a host name its own.
    ("--unshare-ipc", NotBuilt),
    ("--unshare-uts", NotBuilt),
    ("--unshare-pid", NotBuilt),
    // No control speaks of the names of control groups.
    ("--unshare-cgroup-try", Without(&[])),
    // Nothing is kept where nothing is said.
    ("--cap-drop ALL", Without(&[])),
    // It asserts what it was to do.
    ("--disable-userns", NotBuilt),
    ("--new-session", Without(&["terminal"])),
    // The launcher ends it all the same.
    ("--die-with-parent", Without(&[])),
    // The policy's filter; what holds it stays open.
    ("--add-seccomp-fd *", Without(&["syscalls", "descriptors"])),
    ("--dev /dev", NotBuilt),
    ("--proc /proc", NotBuilt),
    ("--remount-ro /", Without(&["filesystem"])),
    ("--remount-ro /dev", Without(&["filesystem"])),
    ("--ro-bind /proc/sys *", Without(&["filesystem"])),
    ("--ro-bind /dev/null /proc/keys", Without(&["filesystem"])),
    ("--tmpfs /proc/acpi", NotBuilt),
    // A protected place, and the folder over which it is reached.
    ("--ro-bind * OUT/.git/hooks", Without(&["filesystem"])),
    ("--bind * OUT/.git", Without(&["filesystem"])),
];

const DISOBEYS: &str = r#"#!/usr/bin/python3
import os, sys
words = sys.argv[1:]
left_out = LEFT_OUT.split()
if words[0] not in ("--version", "--help"):
    end = words.index("--")
    fits = lambda at: all(a in ("*", b) for a, b in zip(left_out, words[at:end]))
    found = [at for at in range(end - len(left_out) + 1) if fits(at)]
    if not found:
        sys.exit("bwrap: was not told")
    del words[found[-1]:found[-1] + len(left_out)]
os.execv(REAL, ["bwrap"] + words)
"#;

#[test]
fn what_bubblewrap_leaves_undone_is_not_declared() {
    const TEST: &str = "what_bubblewrap_leaves_undone_is_not_declared";
    let world = with_bwrap!();
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skip(TEST, "no /usr/bin/python3");
    }
    let real = format!("{:?}", program("bwrap").unwrap());
    let (world, bin) = first_in_path(world, false);
    let out = world.folder("out");
    let policy = world.policy(|_| {});
    let flags = format!(
        "--runtime bwrap -C / -P {} --write {}",
        policy.display(),
        out.display()
    );
    let path = bin.join("bwrap");
    let mut wrong = Vec::new();
    for (left_out, then) in LEFT_OUT {
        let words = format!("{:?}", left_out.replace("OUT", &out.display().to_string()));
        let text = DISOBEYS.replace("REAL", &real).replace("LEFT_OUT", &words);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let ran = world.exec(&format!("{flags} --best-effort"), &["true"]);
        assert!(!ran.err.contains("was not told"), "{left_out}: {}", ran.err);
        let run = world.last();
        let lost = SUPPORTED.into_iter().filter(|one| !run.declares(one));
        let lost: Vec<&str> = lost.collect();
        let (expected, code) = match then {
            NotBuilt => (SUPPORTED.to_vec(), 125),
            Without(controls) => (controls.to_vec(), 0),
        };
        let strict = world.exec(&flags, &["true"]);
        let refused = if expected.is_empty() { 0 } else { 126 };
        if lost != expected || ran.code != Some(code) || strict.code != Some(refused) {
            wrong.push(format!("{left_out}: {lost:?}, {ran:#?}, {strict:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
