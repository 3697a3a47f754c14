//! A ledger, a key or a place that cannot be used: what is wrong is said, with what to do, and nothing is changed.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::PathBuf;
use std::process::Command;

use ledger::bytes::hash::Hash;
use ledger::bytes::key::{Message, Signer as _};
use ledger::file::store::read_key_file;

use super::{is_as_before, refused_and_left_alone, snapshot, text, with_ledger};
use crate::evidence::evidence;
use crate::world::{Ran, World, is_root, skip};

#[test]
fn a_file_system_without_locks_keeps_no_ledger() {
    for (name, number) in [("ENOLCK", 37), ("EOPNOTSUPP", 95), ("ENOSYS", 38)] {
        let world = with_ledger(World::new());
        let world = world.with("LEDGER_FAULT", format!("lock@default/lock:1-:{name}"));
        let lock = world.ledger().join("lock");
        let words = [
            &format!("cannot lock {}", lock.display()),
            &format!("(os error {number})"),
            "put the ledger on a local file system",
        ];
        refused_and_left_alone(&world, "", &words);
    }
}

#[test]
fn a_mistyped_fault_is_no_run_without_faults() {
    let world = World::new().with("LEDGER_FAULT", "write:1:ENOTHING");
    world.run("note one").failed(&["ENOTHING"]);
}

#[test]
fn a_ledger_of_another_user_is_left_alone() {
    let test = "a_ledger_of_another_user_is_left_alone";
    if !is_root() {
        return skip(test, "only root can give a ledger to another user");
    }
    let Some(world) = World::of_user(test, &[]).map(with_ledger) else {
        return;
    };
    // Root, in the same home: what it wrote would be out of the owner's reach.
    let mut root = Command::new(env!("CARGO_BIN_EXE_runner"));
    root.args(["exec", "--", "true"])
        .env_clear()
        .env("HOME", world.path("home"))
        .env("XDG_STATE_HOME", world.path("state"))
        .env("XDG_DATA_HOME", world.path("data"))
        .env("PATH", "/usr/bin:/bin")
        .current_dir(world.path("home/work"));
    let before = snapshot(&world.path(""));
    Ran::of(root.output().unwrap()).failed(&[
        text(&world.ledger().join("records/00000000.jsonl")),
        "belongs to user 61234, and this is root",
        "as that user",
    ]);
    is_as_before(&world.path(""), &before);
    // And the user, with a ledger of somebody else.
    for path in before
        .keys()
        .filter(|path| path.starts_with(world.ledger()))
    {
        chown(path, Some(61_235), None).unwrap();
    }
    chown(world.ledger(), Some(61_235), None).unwrap();
    let words = [
        "Permission denied (os error 13)",
        "belongs to user 61235 and has mode 0700",
        "run this as that user",
    ];
    refused_and_left_alone(&world, "", &words);
}

#[test]
fn a_read_only_ledger_is_not_written_to() {
    let test = "a_read_only_ledger_is_not_written_to";
    let mut world = with_ledger(World::new());
    if !is_root() {
        let lock = world.ledger().join("lock");
        std::fs::set_permissions(&lock, Permissions::from_mode(0o400)).unwrap();
        let words = ["cannot open", text(&lock), "has mode 0400"];
        refused_and_left_alone(&world, "", &words);
        std::fs::set_permissions(&lock, Permissions::from_mode(0o600)).unwrap();
    }
    let read_only = "mount --bind \"$1/state\" \"$1/state\"; mount -o remount,bind,ro \"$1/state\"";
    if let Err(reason) = world.mounted(read_only) {
        return skip(test, reason);
    }
    let lock = world.ledger().join("lock");
    let words = [
        &format!("cannot open {}", lock.display()),
        "Read-only file system (os error 30)",
        "mount it for writing",
    ];
    refused_and_left_alone(&world, "", &words);
    // Reading needs nothing of that.
    world.run("key show").ended(0);
    // A new ledger, there.
    let other = world.path("state/other");
    let flags = format!("--ledger {}", other.display());
    refused_and_left_alone(
        &world,
        &flags,
        &["cannot create the folder", text(&other), "os error 30"],
    );
}

#[test]
fn a_source_folder_is_no_ledger() {
    let world = World::new();
    world.file("clone/.git/HEAD", "ref: refs/heads/main");
    world.file("clone/README.md", "text");
    let flags = format!("--ledger {}", world.path("clone").display());
    let words = [
        &format!("{} is no ledger", world.path("clone").display()),
        "holds .git, README.md",
        "name an empty folder, or one that does not exist yet",
    ];
    refused_and_left_alone(&world, &flags, &words);
    // The folder of a ledger's own project, by mistake one level too high.
    let world = with_ledger(World::new());
    let flags = format!(
        "--ledger {}",
        world.path("state/containment-ledger").display()
    );
    refused_and_left_alone(&world, &flags, &["is no ledger", "holds default"]);
}

/// Appends a record that only a newer program knows, signed by the ledger's key.
fn append_newer(world: &World, from: &str, to: &str) {
    let segment = world.ledger().join("records/00000000.jsonl");
    let mut lines = std::fs::read_to_string(&segment).unwrap();
    let last = lines.lines().last().unwrap();
    let record = &last[83..last.len() - 104];
    let at = record.find("\"previous\":\"").unwrap() + 12;
    let linked = format!(
        "{}{}{}",
        &record[..at],
        Hash::leaf(last.as_bytes()),
        &record[at + 64..]
    );
    let record = linked
        .replace("\"sequence\":1,", "\"sequence\":2,")
        .replace(from, to);
    assert!(record.contains(to), "{record}");
    let pem = snapshot(&world.keys())
        .into_keys()
        .find(|path| path.extension().is_some_and(|end| end == "pem"));
    let key = read_key_file(&pem.unwrap()).unwrap();
    let signature = key.sign(Message::Record(record.as_bytes())).unwrap();
    let id = key.public().id();
    lines.push_str(&format!(
        "{{\"key\":\"{id}\",\"record\":{record},\"signature\":\"{signature}\"}}\n"
    ));
    std::fs::write(segment, lines).unwrap();
}

#[test]
fn a_ledger_of_a_newer_program_is_not_written_to() {
    for (from, to, found) in [
        ("\"version\":1}", "\"version\":2}", "version 2"),
        ("\"kind\":\"note\"", "\"kind\":\"novelty\"", "novelty"),
    ] {
        let world = with_ledger(World::new());
        append_newer(&world, from, to);
        let words = [
            "record 2 needs a newer program",
            found,
            "take the newer runner",
        ];
        refused_and_left_alone(&world, "", &words);
    }
}

#[test]
fn a_key_that_cannot_be_used_is_said_with_what_is_wrong() {
    let world = with_ledger(World::new());
    let files = snapshot(&world.keys()).into_keys();
    let is_pem = |path: &PathBuf| path.extension().is_some_and(|end| end == "pem");
    let pem = files.into_iter().find(is_pem).unwrap();
    let mode = |mode| std::fs::set_permissions(&pem, Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let words = [text(&pem), "has mode 0644", "(0600)", "prefer a new one"];
    refused_and_left_alone(&world, "", &words);
    mode(0o600);

    let other = world.path("other.pem");
    world.run(&format!("key new {}", other.display())).ended(0);
    let flags = format!("--key {}", other.display());
    let words = [
        text(&other),
        "holds key",
        "the ledger is signed by",
        "leave --key out",
    ];
    refused_and_left_alone(&world, &flags, &words);
    let flags = format!("--key {}", world.path("none.pem").display());
    let words = ["there is no key file", "none.pem", "runner key new"];
    refused_and_left_alone(&world, &flags, &words);
    let flags = format!("--key {}", world.path("home").display());
    refused_and_left_alone(&world, &flags, &["is not a regular file"]);

    for garbage in [
        "",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "text",
    ] {
        let kept = std::fs::read(&pem).unwrap();
        std::fs::write(&pem, garbage).unwrap();
        refused_and_left_alone(
            &world,
            "",
            &[text(&pem), "holds no usable key", "restore the key"],
        );
        std::fs::write(&pem, kept).unwrap();
    }
    std::fs::write(&pem, [0xff; 200]).unwrap();
    refused_and_left_alone(&world, "", &[text(&pem), "holds no usable key"]);
    std::fs::remove_file(&pem).unwrap();
    let words = ["the ledger is signed by key", text(&pem), "--key FILE"];
    refused_and_left_alone(&world, "", &words);
    symlink(&other, &pem).unwrap();
    let words = [text(&pem), "holds key", "the ledger is signed by"];
    refused_and_left_alone(&world, "", &words);
}

#[test]
fn without_a_home_nothing_is_guessed() {
    let world = World::new();
    let bare = |flags: &str, variables: &[(&str, &str)]| {
        let mut command = world.exec_command(flags, &["true"]);
        for name in ["HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
        Ran::of(command.output().unwrap())
    };
    let before = snapshot(&world.path(""));
    let ledger = format!("--ledger {}", world.path("there").display());
    bare("", &[]).failed(&[
        "no place for the ledger: neither XDG_STATE_HOME nor HOME is set to an absolute path",
        "set HOME",
    ]);
    bare(&ledger, &[]).failed(&[
        "no place for keys: neither XDG_DATA_HOME nor HOME is set to an absolute path",
        "XDG_DATA_HOME",
    ]);
    // What is not absolute counts as not set.
    bare("", &[("HOME", "home"), ("XDG_STATE_HOME", "state")]).failed(&["no place for the ledger"]);
    bare(&ledger, &[("HOME", ""), ("XDG_DATA_HOME", "./data")]).failed(&["no place for keys"]);
    is_as_before(&world.path(""), &before);
    let world = World::new()
        .with("XDG_STATE_HOME", "state")
        .with("XDG_DATA_HOME", "../data");
    world.run("note one").ended(0);
    let there = world.path("home/.local/state/containment-ledger/default");
    assert_eq!(evidence(&there).kinds(), ["genesis", "note"]);
    assert!(
        world
            .path("home/.local/share/containment-ledger/keys")
            .is_dir()
    );
}

#[test]
fn a_place_where_no_folder_can_be_is_said() {
    let world = World::new();
    let file = world.file("home/file", "text");
    let flags = format!("--ledger {}", file.display());
    refused_and_left_alone(
        &world,
        &flags,
        &[text(&file), "is not a folder", "does not exist yet"],
    );
    let below = file.join("below/ledger");
    let flags = format!("--ledger {}", below.display());
    let words = [
        text(&below),
        "Not a directory (os error 20)",
        "should be a folder",
    ];
    refused_and_left_alone(&world, &flags, &words);

    if is_root() {
        skip(
            "a_place_where_no_folder_can_be_is_said: a folder that cannot be written to",
            "root may write everywhere",
        );
    } else {
        let shut = world.folder("shut");
        std::fs::set_permissions(&shut, Permissions::from_mode(0o500)).unwrap();
        let flags = format!("--ledger {}", shut.join("ledger").display());
        let words = ["cannot create the folder", text(&shut), "has mode 0500"];
        refused_and_left_alone(&world, &flags, &words);
    }
    // Folders above that are missing are made.
    let deep = world.path("a/b/c");
    world
        .run(&format!("--ledger {} note one", deep.display()))
        .ended(0);
    assert_eq!(evidence(&deep).kinds(), ["genesis", "note"]);
}
