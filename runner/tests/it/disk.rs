//! Disks that are full, broken, read-only or somebody else's, and things that stand where files of a ledger belong: a
//! clear error, a status of 125, and a ledger that is as it was or goes on.

mod errors;
mod full;
mod strangers;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ledger::bytes::hash::Hash;

use crate::world::{Ran, World};

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

impl Ran {
    /// Refused or failed by the runner, and these words are in the error.
    #[track_caller]
    fn failed(self, words: &[&str]) -> Self {
        let ran = self.ended(125);
        for part in words {
            assert!(ran.says(part), "{part}: {ran:#?}");
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
