//! A ledger that lost records is not written on as if it had never had them: TRUST.md §5.
//!
//! A runner that appends to a shortened ledger would sign the loss away. So whatever is gone, every command that
//! writes refuses with 125 before anything runs or changes, says what is missing and who knows of it, and goes on
//! only when told to, with a record that says so for ever.

mod scene;

use std::fs;
use std::path::PathBuf;

use crate::evidence::walked;
use crate::world::{Ran, ready};
use scene::{Scene, WITNESSES, copy, cuts, files, unwrapped, without};

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
    // A copy is not written to while the original is there: that would make two histories of one.
    scene.restore();
    scene.world.run("note here").ended(0);
    fs::remove_dir_all(&moved).unwrap();
    copy(&scene.ledger(), &moved);
    let before = files(&moved);
    for command in ["note there", "exec -- true", "note --accept-rollback there"] {
        let ran = scene.world.run(&format!("{there} {command}")).ended(125);
        let text = unwrapped(&ran.err);
        assert!(text.contains("isacopyoftheledgerin"), "{}", ran.err);
        assert!(
            text.contains(&*scene.ledger().to_string_lossy()),
            "{}",
            ran.err
        );
        assert_eq!(files(&moved), before, "{command}");
    }
    scene.world.run("note here").ended(0);
    // Nor are two copies in turns.
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

#[test]
fn records_without_their_first_segment_are_left_alone() {
    let scene = Scene::of(ready!());
    let later = scene.segment().with_file_name("00000001.jsonl");
    fs::rename(scene.segment(), &later).unwrap();
    let before = files(&scene.ledger());
    for flags in ["", "--accept-rollback"] {
        let ran = scene.exec(flags).ended(125);
        let text = unwrapped(&ran.err);
        assert!(text.contains("00000000.jsonlismissing"), "{}", ran.err);
        assert!(text.contains("restoretherecords"), "{}", ran.err);
        assert!(!scene.marker.exists());
        assert_eq!(files(&scene.ledger()), before);
    }
    scene.world.run("close").ended(125);
    assert_eq!(files(&scene.ledger()), before);
}
