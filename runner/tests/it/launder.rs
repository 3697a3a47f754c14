//! A ledger that lost records is not written on as if it had never had them: TRUST.md §5.
//!
//! A runner that appends to a shortened ledger would sign the loss away. So whatever is gone, every command that
//! writes refuses with 125 before anything runs or changes, says what is missing and who knows of it, and goes on
//! only when told to, with a record that says so for ever.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ledger::bytes::hash::Hash;
use ledger::proof::checkpoint::SignedCheckpoint;
use ledger::record::{Body, Recovery, RecoveryCause};

use crate::evidence::walked;
use crate::verifier::{NO_VERIFIER, verdict, verifier};
use crate::world::{Ran, World, ready, skip};

/// A folder and everything below it, files with their content; nothing when it is not there.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    if !folder.exists() {
        return found;
    }
    found.insert(folder.to_owned(), vec![]);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

/// `cp -a`, in place of what is there.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let status = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(status.unwrap().success(), "{from:?} to {to:?}");
}

/// Text as it was before it was wrapped and framed for people.
fn unwrapped(text: &str) -> String {
    let framed = |c: char| c.is_whitespace() || "│├╰─▶×".contains(c);
    text.split(framed).collect()
}

/// What a checkpoint or `.heads` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    size: u64,
    root: Hash,
}

/// A ledger of three runs, and copies of it and of the keys as they were after each.
struct Scene {
    world: World,
    known: Vec<Known>,
    marker: PathBuf,
}

impl Scene {
    fn of(world: World) -> Self {
        let marker = world.folder("out").join("ran");
        let mut scene = Self {
            world,
            known: vec![],
            marker,
        };
        for number in 0..3 {
            scene.world.exec("-q", &["echo", "words"]).ended(0);
            let checkpoint = fs::read(scene.ledger().join("checkpoint")).unwrap();
            let claim = SignedCheckpoint::parse(&checkpoint).unwrap();
            scene.known.push(Known {
                size: claim.claim().size,
                root: claim.claim().root,
            });
            scene.world.folder("kept");
            copy(&scene.ledger(), &scene.kept(number));
            copy(&scene.world.path("data"), &scene.world.path("kept/data"));
        }
        let sizes: Vec<_> = scene.known.iter().map(|known| known.size).collect();
        assert_eq!(sizes, [4, 6, 8]);
        scene
    }

    fn ledger(&self) -> PathBuf {
        self.world.ledger()
    }

    fn kept(&self, number: usize) -> PathBuf {
        self.world.path(format!("kept/{number}"))
    }

    fn newest(&self) -> Known {
        self.known[2]
    }

    fn segment(&self) -> PathBuf {
        self.ledger().join("records/00000000.jsonl")
    }

    /// The one file of what the key last acknowledged.
    fn heads(&self) -> PathBuf {
        let files = files(&self.world.keys()).into_keys();
        let mut heads = files.filter(|path| path.extension().is_some_and(|it| it == "heads"));
        heads.next().unwrap()
    }

    /// Ledger and keys as they were after the last run.
    fn restore(&self) {
        copy(&self.kept(2), &self.ledger());
        copy(&self.world.path("kept/data"), &self.world.path("data"));
        let _ = fs::remove_file(&self.marker);
    }

    fn lines(&self) -> Vec<Vec<u8>> {
        let bytes = fs::read(self.segment()).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        lines.map(<[u8]>::to_vec).collect()
    }

    fn exec(&self, flags: &str) -> Ran {
        let folder = self.marker.parent().unwrap();
        let flags = format!("{flags} --write {}", folder.display());
        self.world.sh(&flags, "echo > \"$1\"", &[&self.marker])
    }

    /// Every command that writes refuses, says what is missing and what to do, and leaves all as it was.
    #[track_caller]
    fn refused(&self, case: &str, says: &[&str]) {
        // Reading a ledger whole makes the cache `tree` again; nothing but records speaks through it.
        let everything = || {
            let mut ledger = files(&self.ledger());
            ledger.remove(&self.ledger().join("tree"));
            ledger.remove(&self.ledger().join("lock"));
            [ledger, files(&self.world.keys())]
        };
        let before = everything();
        for (name, ran) in [
            ("exec", self.exec("")),
            ("note", self.world.run("note remark")),
            ("close", self.world.run("close")),
        ] {
            assert_eq!(ran.code, Some(125), "{case}: {name}: {ran:#?}");
            assert_eq!(ran.out, "", "{case}: {name}");
            let text = unwrapped(&ran.err);
            let missing = ["there is no ledger in"];
            let way_out = ["--accept-rollback", "nothing was signed"];
            // Where nothing is left, there is nothing to close.
            let (says, more) = match name == "close" && !self.segment().exists() {
                true => (&missing[..], &[][..]),
                false => (says, &way_out[..]),
            };
            for part in says.iter().chain(more) {
                let part = unwrapped(part);
                assert!(
                    text.contains(&part),
                    "{case}: {name}: no {part}: {}",
                    ran.err
                );
            }
            assert!(!self.marker.exists(), "{case}: the workload ran");
            let after = everything();
            for (path, bytes) in before.iter().flatten() {
                let now = after.iter().find_map(|files| files.get(path));
                assert!(now == Some(bytes), "{case}: {name} changed {path:?}");
            }
            let new: Vec<_> = after.iter().flatten().map(|(path, _)| path).collect();
            let count = before.iter().flatten().count();
            assert_eq!(new.len(), count, "{case}: {name} made a file: {new:?}");
        }
    }

    /// On the operator's word it goes on, and a record says so; then it goes on without it.
    #[track_caller]
    fn accepted(&self, case: &str, expected: Known) {
        let ran = self.exec("--accept-rollback");
        assert_eq!(ran.code, Some(0), "{case}: {ran:#?}");
        assert!(self.marker.exists());
        assert!(
            unwrapped(&ran.err).contains("wentonalthough"),
            "{}",
            ran.err
        );
        self.world.run("note remark").ended(0);
        let (evidence, findings) = walked(&self.ledger());
        let recoveries: Vec<(u64, &Recovery)> = evidence
            .records
            .iter()
            .filter_map(|(record, _)| match &record.body {
                Body::Recovery(recovery) => Some((record.sequence.value(), recovery)),
                _ => None,
            })
            .collect();
        let [(sequence, recovery)] = recoveries[..] else {
            panic!("{case}: not one recovery: {findings:#?}");
        };
        assert_eq!(recovery.cause, RecoveryCause::RollbackAccepted);
        let tree = recovery.expected.unwrap();
        assert_eq!(
            (tree.size.value(), tree.root),
            (expected.size, expected.root)
        );
        assert_eq!(recovery.file.is_some(), recovery.bytes.is_some());
        if let Some(verify) = verifier() {
            let verdict = verdict(verify, &self.ledger(), None);
            assert_eq!(verdict.codes(), ["recovery-unexplained"], "{case}");
            let finding = verdict.is(10, &[]).finding("recovery-unexplained");
            assert_eq!(finding["sequence"], sequence, "{case}");
            let size = expected.size;
            assert_eq!(finding["expected"], format!("{size} records"), "{case}");
            assert_eq!(verdict.finding("recovered")["sequence"], sequence, "{case}");
        } else {
            skip("launder", NO_VERIFIER);
        }
    }

    /// `verify` with the newest checkpoint, which somebody kept elsewhere.
    #[track_caller]
    fn verified(&self, case: &str, ledger: &Path, code: &str) {
        let Some(verify) = verifier() else {
            return skip("launder", NO_VERIFIER);
        };
        let verdict = verdict(verify, ledger, Some(&self.kept(2).join("checkpoint")));
        assert_eq!(verdict.code, 10, "{case}: {verdict:#?}");
        assert!(verdict.codes().contains(&code), "{case}: {verdict:#?}");
    }
}

/// What says how long the ledger was.
const WITNESSES: [(&str, &[&str]); 4] = [
    ("all", &[]),
    ("no checkpoint", &["checkpoint"]),
    ("no .heads", &["heads"]),
    ("no tip, no tree", &["tip", "tree"]),
];

fn without(scene: &Scene, names: &[&str]) {
    for name in names {
        let path = match *name {
            "heads" => scene.heads(),
            _ => scene.ledger().join(name),
        };
        fs::remove_file(path).unwrap();
    }
}

/// Records and openings of a ledger of three runs, cut in every way: the bytes that are left, and how many whole
/// records they hold.
fn cuts(lines: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>, u64)> {
    let opening = |line: &Vec<u8>| line.starts_with(b"{\"open\":");
    assert_eq!(lines.len(), 14);
    assert!(opening(&lines[10]) && opening(&lines[12]) && !opening(&lines[13]));
    let half = |line: &[u8]| line[..line.len() / 2].to_vec();
    let upto = |count: usize| lines[..count].concat();
    vec![
        ("one record and its opening", upto(12), 7),
        ("mid-record", [upto(13), half(&lines[13])].concat(), 7),
        ("all", vec![], 0),
        ("one record, its opening left", upto(13), 7),
        ("three records", upto(8), 5),
        ("all but genesis", upto(1), 1),
        ("mid-opening", [upto(10), half(&lines[10])].concat(), 6),
        (
            "mid-record, further up",
            [upto(6), half(&lines[7])].concat(),
            4,
        ),
        ("mid-genesis", half(&lines[0]), 0),
        ("two bytes", upto(14)[..upto(14).len() - 2].to_vec(), 7),
    ]
}

#[test]
fn a_ledger_that_was_cut_is_refused_until_that_is_accepted() {
    let scene = Scene::of(ready!());
    let newest = scene.newest();
    for (number, (cut, left, records)) in cuts(&scene.lines()).into_iter().enumerate() {
        // All witnesses for the first cuts, one by turns for the rest.
        for (index, (witness, gone)) in WITNESSES.into_iter().enumerate() {
            if number > 2 && index != number % WITNESSES.len() {
                continue;
            }
            let case = format!("{cut}, {witness}");
            scene.restore();
            without(&scene, gone);
            fs::write(scene.segment(), &left).unwrap();
            let root = newest.root.to_string();
            if records == 0 {
                // Nothing names a key any more: there is no ledger to go on with, whatever is accepted.
                scene.refused(&case, &["does not begin with a genesis", &root]);
                let ran = scene.exec("--accept-rollback");
                assert_eq!(ran.code, Some(125), "{case}: {ran:#?}");
                fs::rename(scene.ledger(), scene.world.path("away")).unwrap();
                if gone != ["heads"] {
                    scene.refused(&case, &["it is not there", &root]);
                    scene.accepted(&case, newest);
                }
                fs::remove_dir_all(scene.world.path("away")).unwrap();
                continue;
            }
            let known = format!("says {} (last sequence 7)", newest.size);
            let found = format!("the ledger holds {records} records");
            let who = if gone == ["checkpoint"] {
                scene
                    .heads()
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .into_owned()
            } else if gone == ["heads"] {
                scene.ledger().join("checkpoint").display().to_string()
            } else {
                String::new()
            };
            scene.refused(&case, &[&found, &known, &root, &who]);
            scene.verified(&case, &scene.ledger(), "tail-truncated");
            if witness != "no tip, no tree" {
                scene.accepted(&case, newest);
                scene.verified(
                    &case,
                    &scene.ledger(),
                    match () {
                        () if records + 4 < newest.size => "tail-truncated",
                        () => "checkpoint-fork",
                    },
                );
            }
        }
    }
}

#[test]
fn a_last_line_without_its_newline_is_completed() {
    let scene = Scene::of(ready!());
    for (witness, gone) in WITNESSES {
        scene.restore();
        without(&scene, gone);
        let whole = fs::read(scene.segment()).unwrap();
        fs::write(scene.segment(), &whole[..whole.len() - 1]).unwrap();
        let ran = scene.exec("").ended(0);
        let text = unwrapped(&ran.err);
        assert!(
            text.contains("record7lackeditsnewline"),
            "{witness}: {ran:#?}"
        );
        assert!(fs::read(scene.segment()).unwrap().starts_with(&whole));
        assert_eq!(scene.world.evidence().records.len(), 10, "{witness}");
        assert!(!scene.ledger().join("torn").exists(), "{witness}");
    }
}

#[test]
fn where_nothing_knows_of_the_loss_the_runner_goes_on_and_a_checkpoint_kept_elsewhere_tells() {
    let scene = Scene::of(ready!());
    let nobody = ["checkpoint", "heads", "tip", "tree"];
    for (cut, left, records) in cuts(&scene.lines()) {
        if records == 0 {
            continue;
        }
        scene.restore();
        without(&scene, &nobody);
        fs::write(scene.segment(), &left).unwrap();
        scene.verified(cut, &scene.ledger(), "tail-truncated");
        scene.exec("").ended(0);
        // The rest of a line is set aside, and a record says so; a value whose record never came is dropped.
        let (evidence, findings) = walked(&scene.ledger());
        let kinds = evidence.kinds();
        let failing = findings
            .iter()
            .any(|finding| finding.code.class().exit_code() != 0);
        assert!(!failing, "{cut}: {findings:#?}");
        let torn = matches!(cut, "mid-record" | "mid-record, further up" | "two bytes");
        let recovered = kinds.iter().filter(|kind| **kind == "recovery").count();
        assert_eq!(recovered, usize::from(torn), "{cut}: {kinds:?}");
        let kept = fs::read_dir(scene.ledger().join("torn")).map_or(0, Iterator::count);
        assert_eq!(kept, usize::from(torn), "{cut}");
        let text = String::from_utf8_lossy(&fs::read(scene.segment()).unwrap()).into_owned();
        assert!(text.lines().all(|line| line.ends_with('}')), "{cut}");
        while walked(&scene.ledger()).0.records.len() < 8 {
            scene.world.run("note remark").ended(0);
        }
        scene.verified(cut, &scene.ledger(), "checkpoint-fork");
    }
}

#[test]
fn an_older_copy_of_the_whole_folder_is_refused() {
    let scene = Scene::of(ready!());
    let newest = scene.newest();
    for number in [1, 0] {
        let older = scene.known[number].size;
        scene.restore();
        copy(&scene.kept(number), &scene.ledger());
        let found = format!("the ledger holds {older} records");
        let known = ".heads says 8 (last sequence 7) with root";
        scene.refused("older copy", &[&found, known, &newest.root.to_string()]);
        scene.verified("older copy", &scene.ledger(), "tail-truncated");
        scene.accepted("older copy", newest);
        // With the key's memory gone as well, nothing here can know.
        scene.restore();
        copy(&scene.kept(number), &scene.ledger());
        without(&scene, &["heads"]);
        scene.exec("").ended(0);
        scene.world.evidence();
        let code = if older == 4 {
            "tail-truncated"
        } else {
            "checkpoint-fork"
        };
        scene.verified("older copy, no .heads", &scene.ledger(), code);
    }
}

#[test]
fn a_whole_copy_goes_on_wherever_it_is() {
    let scene = Scene::of(ready!());
    // Restored: another inode at the same path.
    scene.restore();
    scene.exec("").ended(0);
    assert_eq!(scene.world.evidence().records.len(), 10);
    // Moved: opened once at its new place it is missed at the old one no more.
    scene.restore();
    let moved = scene.world.path("moved");
    fs::rename(scene.ledger(), &moved).unwrap();
    scene.refused(
        "moved away",
        &["it is not there", "open it once at its new place"],
    );
    let there = format!("--ledger {}", moved.display());
    scene.world.run(&format!("{there} note moved")).ended(0);
    scene.exec("").ended(0);
    assert_eq!(scene.world.evidence().kinds().first(), Some(&"genesis"));
    // Two copies cannot be written in turns.
    scene.restore();
    copy(&scene.kept(2), &moved);
    scene.world.run("note here").ended(0);
    let ran = scene.world.run(&format!("{there} note there")).ended(125);
    let text = unwrapped(&ran.err);
    assert!(text.contains(".headssays9(lastsequence8)"), "{}", ran.err);
    assert_eq!(files(&moved), {
        let kept = files(&scene.kept(2)).into_iter();
        let moved_to = |path: PathBuf| moved.join(path.strip_prefix(scene.kept(2)).unwrap());
        kept.map(|(path, bytes)| (moved_to(path), bytes)).collect()
    });
}

#[test]
fn another_ledger_in_its_place_is_refused() {
    let scene = Scene::of(ready!());
    let newest = scene.newest();
    let known = "with 8 records (last sequence 7) and root";
    for (case, make) in [("removed", false), ("emptied", true)] {
        scene.restore();
        fs::remove_dir_all(scene.ledger()).unwrap();
        if make {
            fs::create_dir(scene.ledger()).unwrap();
        }
        scene.refused(case, &["it is not there", known, &newest.root.to_string()]);
        scene.accepted(case, newest);
        // Another key began it: the checkpoint of the lost one is of a ledger that this one does not know.
        scene.verified(case, &scene.ledger(), "ledger-replaced");
    }
    // Another one by the same key, which the key knows to be elsewhere.
    scene.restore();
    let key = fs::read_dir(scene.world.keys())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let key = key.filter(|path| path.extension().is_some_and(|it| it == "pem"));
    let key = key.last().unwrap();
    let other = scene.world.path("other");
    let flags = format!("--ledger {} --key {}", other.display(), key.display());
    scene.world.run(&format!("{flags} note other")).ended(0);
    fs::remove_dir_all(scene.ledger()).unwrap();
    fs::rename(&other, scene.ledger()).unwrap();
    scene.refused(
        "same key",
        &["it is not there", known, &newest.root.to_string()],
    );
    scene.verified("same key", &scene.ledger(), "checkpoint-invalid");
    scene.accepted("same key", newest);
}

#[test]
fn records_that_go_while_a_workload_runs_are_missed_at_its_end() {
    let scene = Scene::of(ready!());
    let folder = scene.marker.parent().unwrap();
    let script = "echo > \"$1\"; until [ -e \"$2\" ]; do :; done";
    let go = folder.join("go");
    let shell = ["sh", "-c", script, "sh"].map(Into::into);
    let files = [&scene.marker, &go].map(|path| path.clone().into_os_string());
    let workload: Vec<std::ffi::OsString> = shell.into_iter().chain(files).collect();
    let flags = format!("--timeout 60s --write {}", folder.display());
    let running = scene.world.exec_command(&flags, &workload).spawn().unwrap();
    crate::world::until("the workload runs", || scene.marker.exists());
    let lines = scene.lines();
    assert_eq!(lines.len(), 16);
    fs::write(scene.segment(), lines[..10].concat()).unwrap();
    fs::write(&go, "").unwrap();
    let ran = Ran::of(running.wait_with_output().unwrap()).ended(125);
    assert!(
        unwrapped(&ran.err).contains("cannotreadonintheledger"),
        "{}",
        ran.err
    );
    assert_eq!(fs::read(scene.segment()).unwrap(), lines[..10].concat());
    let _ = fs::remove_file(&scene.marker);
    let found = "the ledger holds 6 records";
    scene.refused("while it ran", &[found, &scene.newest().root.to_string()]);
}
