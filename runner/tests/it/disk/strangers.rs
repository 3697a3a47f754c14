//! Links, pipes, folders and devices in the place of a ledger's files and folders.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::{refused_and_left_alone, text, with_ledger};
use crate::world::{World, skip};

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
