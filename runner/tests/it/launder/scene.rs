//! A ledger of three runs, its earlier copies, and what must hold once records of it are gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ledger::bytes::hash::Hash;
use ledger::proof::checkpoint::SignedCheckpoint;
use ledger::record::{Body, Recovery, RecoveryCause};

use crate::evidence::walked;
use crate::verifier::{NO_VERIFIER, verdict, verifier};
use crate::world::{Ran, World, skip};

/// A folder and everything below it, files with their content; nothing when it is not there.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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
pub(crate) fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let status = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(status.unwrap().success(), "{from:?} to {to:?}");
}

/// Text as it was before it was wrapped and framed for people.
pub(crate) fn unwrapped(text: &str) -> String {
    let framed = |c: char| c.is_whitespace() || "│├╰─▶×".contains(c);
    text.split(framed).collect()
}

/// What a checkpoint or `.heads` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) size: u64,
    pub(crate) root: Hash,
}

/// A ledger of three runs, and copies of it and of the keys as they were after each.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) known: Vec<Known>,
    pub(crate) marker: PathBuf,
}

impl Scene {
    pub(crate) fn of(world: World) -> Self {
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

    pub(crate) fn ledger(&self) -> PathBuf {
        self.world.ledger()
    }

    pub(crate) fn kept(&self, number: usize) -> PathBuf {
        self.world.path(format!("kept/{number}"))
    }

    pub(crate) fn newest(&self) -> Known {
        self.known[2]
    }

    pub(crate) fn segment(&self) -> PathBuf {
        self.ledger().join("records/00000000.jsonl")
    }

    /// The one file of what the key last acknowledged.
    pub(crate) fn heads(&self) -> PathBuf {
        let files = files(&self.world.keys()).into_keys();
        let mut heads = files.filter(|path| path.extension().is_some_and(|it| it == "heads"));
        heads.next().unwrap()
    }

    /// Ledger and keys as they were after the last run.
    pub(crate) fn restore(&self) {
        copy(&self.kept(2), &self.ledger());
        copy(&self.world.path("kept/data"), &self.world.path("data"));
        let _ = fs::remove_file(&self.marker);
    }

    pub(crate) fn lines(&self) -> Vec<Vec<u8>> {
        let bytes = fs::read(self.segment()).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        lines.map(<[u8]>::to_vec).collect()
    }

    pub(crate) fn exec(&self, flags: &str) -> Ran {
        let folder = self.marker.parent().unwrap();
        let flags = format!("{flags} --write {}", folder.display());
        self.world.sh(&flags, "echo > \"$1\"", &[&self.marker])
    }

    /// Every command that writes refuses, says what is missing and what to do, and leaves all as it was.
    #[track_caller]
    pub(crate) fn refused(&self, case: &str, says: &[&str]) {
        // Reading a ledger whole makes the cache `tree` again; nothing but records speaks through it.
        let everything = || {
            let mut ledger = files(&self.ledger());
            ledger.remove(&self.ledger().join("tree"));
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
    pub(crate) fn accepted(&self, case: &str, expected: Known) {
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
    pub(crate) fn verified(&self, case: &str, ledger: &Path, code: &str) {
        let Some(verify) = verifier() else {
            return skip("launder", NO_VERIFIER);
        };
        let verdict = verdict(verify, ledger, Some(&self.kept(2).join("checkpoint")));
        assert_eq!(verdict.code, 10, "{case}: {verdict:#?}");
        assert!(verdict.codes().contains(&code), "{case}: {verdict:#?}");
    }
}

/// What says how long the ledger was.
pub(crate) const WITNESSES: [(&str, &[&str]); 4] = [
    ("all", &[]),
    ("no checkpoint", &["checkpoint"]),
    ("no .heads", &["heads"]),
    ("no tip, no tree", &["tip", "tree"]),
];

pub(crate) fn without(scene: &Scene, names: &[&str]) {
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
pub(crate) fn cuts(lines: &[Vec<u8>]) -> Vec<(&'static str, Vec<u8>, u64)> {
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
