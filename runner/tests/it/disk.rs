//! Disks that are full, broken, read-only or somebody else's, and things that stand where files of a ledger belong: a
//! clear error, a status of 125, and a ledger that is as it was or goes on.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ledger::bytes::hash::Hash;
use ledger::bytes::key::{Message, Signer as _};
use ledger::file::store::read_key_file;
use ledger::finding::Code;

use crate::evidence::{evidence, walked};
use crate::world::{Ran, World, is_root, program, ready, skip};

/// Everything below a folder: kind, mode, owner, and what is in it. Without the folder of placeholders, which belongs to
/// no ledger and is made before one is opened.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let facts = path.symlink_metadata().unwrap();
            let content = if facts.is_file() {
                Hash::of(&std::fs::read(&path).unwrap()).to_string()
            } else if facts.is_symlink() {
                format!("{:?}", std::fs::read_link(&path).unwrap())
            } else {
                if facts.is_dir() {
                    open.push(path.clone());
                }
                String::new()
            };
            if path.ends_with("containment-ledger/placeholders") {
                continue;
            }
            let text = format!("{:o} {} {content}", facts.mode(), facts.uid());
            found.insert(path, text);
        }
    }
    found
}

/// Fails where something was added, removed or changed.
#[track_caller]
fn is_as_before(folder: &Path, before: &BTreeMap<PathBuf, String>) {
    let after = snapshot(folder);
    let differs: Vec<_> = (before
        .iter()
        .filter(|(path, was)| after.get(*path) != Some(was)))
    .chain(after.iter().filter(|(path, _)| !before.contains_key(*path)))
    .collect();
    assert!(differs.is_empty(), "{differs:#?}");
}

/// An error as it was meant, whatever the width of the page made of it.
fn flat(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '│' | '├' | '─' | '▶' | '╰' | '×'))
        .collect()
}

impl Ran {
    /// Refused or failed by the runner, and these words are in the error.
    #[track_caller]
    fn failed(self, words: &[&str]) -> Self {
        let ran = self.ended(125);
        for part in words {
            assert!(flat(&ran.err).contains(&flat(part)), "{part}: {ran:#?}");
        }
        ran
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A world with a ledger of one note.
fn with_ledger(world: World) -> World {
    world.run("note one").ended(0);
    assert_eq!(world.evidence().kinds(), ["genesis", "note"]);
    world
}

/// `exec` fails with these words, and everything is as it was before.
#[track_caller]
fn refused_and_left_alone(world: &World, flags: &str, words: &[&str]) {
    let before = snapshot(&world.path(""));
    world.exec(flags, &["true"]).failed(words);
    is_as_before(&world.path(""), &before);
}

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

/// What is put in the place of a file.
const STRANGERS: [(&str, &str); 4] = [
    ("a symbolic link", "link"),
    ("a named pipe", "pipe"),
    ("a folder", "folder"),
    ("a device", "device"),
];

/// Puts something in a file's or folder's place; `false` where that cannot be had.
fn put(world: &World, what: &str, path: &Path) -> bool {
    if path.is_dir() {
        std::fs::rename(path, world.path("aside")).unwrap();
    } else if path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).unwrap();
    }
    use nix::sys::stat::{Mode, SFlag, mknod};
    let mode = Mode::from_bits_truncate(0o600);
    match what {
        "link" => {
            let elsewhere = world.folder("elsewhere");
            std::fs::write(elsewhere.join("kept"), "kept").unwrap();
            // A link to a file of that content, or to a folder.
            let target = if path.extension().is_none()
                && path.parent().is_some_and(|at| at.ends_with("default"))
            {
                elsewhere
            } else {
                elsewhere.join("kept")
            };
            symlink(target, path).unwrap();
        }
        "pipe" => nix::unistd::mkfifo(path, mode).unwrap(),
        "folder" => {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("kept"), "kept").unwrap();
        }
        _ => return mknod(path, SFlag::S_IFCHR, mode, nix::sys::stat::makedev(1, 3)).is_ok(),
    }
    true
}

#[test]
fn what_is_no_file_where_a_file_of_the_evidence_belongs_is_refused() {
    let test = "what_is_no_file_where_a_file_of_the_evidence_belongs_is_refused";
    for name in ["records/00000000.jsonl", "checkpoint", "lock"] {
        for (found, what) in STRANGERS {
            let world = with_ledger(World::new());
            let path = world.ledger().join(name);
            if !put(&world, what, &path) {
                skip(test, format!("no device {name} can be made"));
                continue;
            }
            let words = [
                text(&path),
                &format!("{found} stands there, expected a regular file"),
                if name == "lock" {
                    "remove it"
                } else {
                    "move it away"
                },
            ];
            refused_and_left_alone(&world, "", &words);
        }
    }
}

#[test]
fn what_is_no_folder_where_a_folder_of_the_ledger_belongs_is_refused() {
    for name in ["records", "blobs", "runs", "torn"] {
        for (found, what) in STRANGERS.into_iter().filter(|(_, what)| *what != "folder") {
            let world = with_ledger(World::new());
            let path = world.ledger().join(name);
            if !put(&world, what, &path) {
                continue;
            }
            let expected = format!("{found} stands there, expected a folder");
            // Without its records a folder is no ledger at all: that is said as it is.
            let ledger = world.ledger();
            let words: &[&str] = match name {
                "records" => &[text(&ledger)],
                _ => &[text(&path), &expected, "move it away"],
            };
            refused_and_left_alone(&world, "", words);
        }
    }
}

#[test]
fn what_is_no_file_where_a_derived_file_belongs_is_replaced_but_a_folder() {
    for name in ["tip", "tree"] {
        for (_, what) in STRANGERS {
            let world = with_ledger(World::new());
            let path = world.ledger().join(name);
            if !put(&world, what, &path) {
                continue;
            }
            if what == "folder" {
                let words = [
                    text(&path),
                    "a folder stands there, expected a regular file",
                ];
                refused_and_left_alone(&world, "", &words);
            } else {
                world.run("note two").ended(0);
                assert!(path.symlink_metadata().unwrap().is_file(), "{name} {what}");
                assert_eq!(world.evidence().kinds(), ["genesis", "note", "note"]);
            }
            let kept = world.path("elsewhere/kept");
            assert!(!kept.exists() || std::fs::read(kept).unwrap() == b"kept");
        }
    }
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

/// Facts of the host may change under a test, and then a record says so.
fn without_hosts(kinds: &[&'static str]) -> Vec<&'static str> {
    let is_host = |kind: &&&str| **kind == "host";
    kinds
        .iter()
        .filter(|kind| !is_host(kind))
        .copied()
        .collect()
}

#[test]
fn a_run_whose_record_would_not_be_kept_is_refused_before_it_starts() {
    let mut world = ready!();
    world.exec("", &["true"]).ended(0);
    let ran = world.folder("out");
    let mark = ran.join("ran");
    for (fault, words) in [
        // The first write of a run to a segment is its start record.
        (
            "write@/records/:1-:ENOSPC",
            ["cannot write", "No space left on device", "make room"],
        ),
        (
            "write@/records/:1:cut=100,ENOSPC",
            ["cannot write", "No space left on device", "make room"],
        ),
        (
            "write@/records/:1-:EDQUOT",
            ["cannot write", "os error 122", "quota"],
        ),
        (
            "rename@/runs/:1-:EROFS",
            ["cannot rename", "os error 30", "mount it for writing"],
        ),
        (
            "read@/records/:1-:EIO",
            ["cannot read", "os error 5", "/records/"],
        ),
        (
            "open@/lock:1-:EACCES",
            ["cannot open", "os error 13", "belongs to user"],
        ),
    ] {
        world = world.with("LEDGER_FAULT", fault);
        let flags = format!("--write {}", ran.display());
        let script = "echo ran; touch \"$1\"";
        let stopped = world.sh(&flags, script, &[&mark]).failed(&words);
        assert!(!stopped.err.contains("the workload ran"), "{stopped:#?}");
        assert_eq!(stopped.out, "", "{fault}");
        assert!(!mark.exists(), "{fault}");
        world = world.with("LEDGER_FAULT", "");
        let kinds = world.evidence().kinds();
        world.exec("", &["true"]).ended(0);
        let after = world.evidence().kinds();
        assert_eq!(after[..kinds.len()], kinds, "{fault}");
        let new = &after[kinds.len()..];
        assert_eq!(without_hosts(new), ["start", "execution"], "{fault}");
    }
}

#[test]
fn a_record_that_is_lost_after_the_run_is_said_to_be() {
    let mut world = ready!();
    world.exec("", &["true"]).ended(0);
    for (fault, words) in [
        (
            "write@/records/:2-:ENOSPC",
            ["cannot write", "No space left on device", "make room"],
        ),
        (
            "write@/records/:2:cut=300,EIO",
            ["cannot write", "os error 5", "/records/"],
        ),
        (
            "sync-data@/records/:1:EIO",
            ["cannot sync", "os error 5", "/records/"],
        ),
    ] {
        world = world.with("LEDGER_FAULT", fault);
        let mut ran = world.exec("", &["sh", "-c", "echo ran"]);
        // The host's facts were not what they had been: that was the first record, and its start the second.
        for _ in 0..5 {
            if ran.out.is_empty() {
                ran = world.exec("", &["sh", "-c", "echo ran"]);
            }
        }
        let ran = ran.failed(&words);
        let lost = "the workload ran, and its execution record is lost: only record";
        assert!(flat(&ran.err).contains(&flat(lost)), "{fault}: {ran:#?}");
        assert_eq!(ran.out, "ran\n", "{fault}: {ran:#?}");
        // A crash leaves no more than that; nobody is accused of tampering.
        let (_, findings) = walked(&world.ledger());
        let is_crash = |code| {
            matches!(
                code,
                Code::RunUnfinished | Code::TornTail | Code::CompletenessNotEstablished
            )
        };
        assert!(
            findings.iter().all(|found| is_crash(found.code)),
            "{findings:#?}"
        );
        world = world.with("LEDGER_FAULT", "");
        let next = world.exec("", &["true"]).ended(0);
        // The run is closed, or its record was in memory and stands after all.
        let runs = world.evidence().runs();
        let of_lost = &runs[runs.len() - 2];
        assert_eq!(of_lost.argv[0], "sh");
        let closed = of_lost.execution.verdict.as_str() == "interrupted";
        assert_eq!(closed, !fault.starts_with("sync"), "{fault}: {next:#?}");
    }
}

#[test]
fn output_that_finds_no_room_costs_no_record() {
    let mut world = ready!();
    world.exec("", &["true"]).ended(0);
    world = world.with("LEDGER_FAULT", "write@.blob:2-:ENOSPC");
    let ran = world
        .exec("", &["sh", "-c", "head -c 100000 /dev/zero"])
        .ended(0);
    assert_eq!(ran.bytes.len(), 100_000);
    let run = world.last();
    let stdout = run.stdout.unwrap();
    assert_eq!(stdout.bytes.value(), 100_000);
    assert!(stdout.blob.is_none() && stdout.kept.value() <= 4096);
    let unmeasured = run.execution.unmeasured.unwrap();
    assert_eq!(unmeasured[0].reason, "blob-not-kept");
    let left = snapshot(&world.ledger().join("runs")).into_keys();
    assert_eq!(
        left.collect::<Vec<_>>(),
        [world.ledger().join("runs/spare")]
    );
}

/// Runs a script in a mount namespace of its own, as root there; `$1` is the world's folder, `$RUNNER` the program.
fn in_mounts(world: &World, script: &str) -> Ran {
    let like = world.command(["--version"]);
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(format!("set -u\nsay() {{ echo \"= $*\"; }}\n{script}"))
        .arg("sh")
        .arg(world.path(""))
        .env_clear()
        .envs(
            like.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("RUNNER", env!("CARGO_BIN_EXE_runner"))
        .current_dir(world.path("home/work"));
    Ran::of(command.output().unwrap())
}

/// Runs until the disk is full: it is said, nothing runs, and with room again the ledger goes on.
const FILL: &str = r#"
"$RUNNER" exec -- true 2>&1; say first $?
for n in 1 2 3 4 5 6 7 8 9 10; do
    # Large pieces first, then those that still fit.
    cat /dev/zero >> "$1/state/fill" 2>/dev/null
    dd if=/dev/zero bs=1k >> "$1/state/fill" 2>/dev/null
    sync -f "$1/state"
    out=$("$RUNNER" exec -- sh -c 'echo ran' 2>&1); code=$?
    say full $code
    if [ $code = 125 ]; then say "$out"; break; fi
done
rm "$1/state/fill"
"$RUNNER" exec -- true 2>&1; say again $?
"#;

/// Says why a mount is not to be had, or runs the rest.
fn on_small_disk(test: &str, world: &World, mount: &str, rest: &str) -> Option<Ran> {
    if program("unshare").is_none() {
        skip(test, "no unshare (util-linux)");
        return None;
    }
    let ran = in_mounts(
        world,
        &format!("({mount}) || exit 77\n{rest}\ncp -a \"$1/state\" \"$1/copy\""),
    );
    if ran.code == Some(77) {
        skip(test, ran.err.trim());
        return None;
    }
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    Some(ran)
}

#[track_caller]
fn was_filled(world: &World, ran: &Ran) {
    assert!(ran.out.contains("= first 0"), "{ran:#?}");
    assert!(ran.out.contains("= full 125"), "{ran:#?}");
    assert!(ran.out.contains("= again 0"), "{ran:#?}");
    let said = ran.out.split("= full 125").nth(1).unwrap();
    let said = said.split("= again").next().unwrap();
    assert!(flat(said).contains("Nospaceleftondevice"), "{ran:#?}");
    let evidence = evidence(&world.path("copy/containment-ledger/default"));
    // What said 0 is there, and no run that was refused.
    let done = ran.out.matches("= full 0").count() + 2;
    let complete = evidence
        .runs()
        .into_iter()
        .filter(|run| run.execution.verdict.as_str() != "interrupted");
    assert_eq!(complete.count(), done, "{ran:#?}");
}

#[test]
fn a_full_tmpfs_refuses_runs_until_there_is_room() {
    let test = "a_full_tmpfs_refuses_runs_until_there_is_room";
    let world = ready!();
    let mount = "mount -t tmpfs -o size=512k,mode=755 none \"$1/state\"";
    if let Some(ran) = on_small_disk(test, &world, mount, FILL) {
        was_filled(&world, &ran);
    }
}

/// Mounts an ext4 file system in a file.
const EXT4: &str = r#"
truncate -s 2M "$1/image" && mkfs.ext4 -q -F -m 0 -O ^has_journal "$1/image" && mount -o loop "$1/image" "$1/state"
"#;

#[test]
fn a_full_ext4_refuses_runs_until_there_is_room() {
    let test = "a_full_ext4_refuses_runs_until_there_is_room";
    let world = ready!();
    if !is_root() {
        return skip(test, "only root has loop devices");
    }
    if let Some(ran) = on_small_disk(test, &world, EXT4, FILL) {
        was_filled(&world, &ran);
    }
}

#[test]
fn an_ext4_that_becomes_read_only_refuses_runs_until_it_is_writable() {
    let test = "an_ext4_that_becomes_read_only_refuses_runs_until_it_is_writable";
    let world = ready!();
    if !is_root() {
        return skip(test, "only root has loop devices");
    }
    let rest = r#"
"$RUNNER" exec -- true 2>&1; say first $?
mount -o remount,ro "$1/state"
"$RUNNER" exec -- sh -c 'echo ran' 2>&1; say shut $?
mount -o remount,rw "$1/state"
"$RUNNER" exec -- true 2>&1; say again $?
"#;
    let Some(ran) = on_small_disk(test, &world, EXT4, rest) else {
        return;
    };
    for said in ["= first 0", "= shut 125", "= again 0"] {
        assert!(ran.out.contains(said), "{ran:#?}");
    }
    assert!(
        flat(&ran.out).contains(&flat("mounted read-only:")),
        "{ran:#?}"
    );
    assert!(!ran.out.contains("\nran\n"), "{ran:#?}");
    assert_eq!(
        evidence(&world.path("copy/containment-ledger/default"))
            .runs()
            .len(),
        2
    );
}
