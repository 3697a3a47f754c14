//! Many programs at once on one ledger: one chain, one key, nothing taken for dead that lives.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;

use ledger::record::Body;

use crate::kills::{has_one_key, verifies};
use crate::world::{Ran, World, is_root, ready, until};

/// Starts all, then waits for all.
fn all_at_once(world: &World, commands: &[&[&str]]) -> Vec<Ran> {
    let spawn = |command: &&[&str]| world.command(*command).spawn().unwrap();
    let children: Vec<Child> = commands.iter().map(spawn).collect();
    let end = |child: Child| Ran::of(child.wait_with_output().unwrap());
    children.into_iter().map(end).collect()
}

const TRUE: &[&str] = &["-q", "exec", "--", "true"];

#[test]
fn sixteen_runs_at_once_make_one_chain() {
    const AT_ONCE: usize = 16;
    const TIMES: usize = 10;
    let world = ready!();
    for time in 1..=TIMES {
        for ran in all_at_once(&world, &[TRUE; AT_ONCE]) {
            ran.ended(0);
        }
        let evidence = world.evidence();
        let runs = evidence.runs();
        assert_eq!(runs.len(), time * AT_ONCE);
        let starts = evidence
            .kinds()
            .iter()
            .filter(|kind| **kind == "start")
            .count();
        assert_eq!(starts, runs.len());
        for run in &runs {
            assert_eq!(run.execution.result.exit_code, Some(0));
            assert_ne!(run.execution.verdict.as_str(), "interrupted");
        }
        let names: BTreeSet<String> = runs.iter().map(|run| run.start.run.to_string()).collect();
        assert_eq!(names.len(), runs.len());
    }
    verifies(&world);
    has_one_key(&world);
    // One lock is kept for the next run.
    let runs = std::fs::read_dir(world.ledger().join("runs")).unwrap();
    let names: Vec<_> = runs.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["spare"]);
}

#[test]
fn two_first_runs_make_one_ledger_and_one_key() {
    let _ = ready!();
    for _ in 0..20 {
        let world = World::new();
        for ran in all_at_once(&world, &[TRUE, TRUE]) {
            ran.ended(0);
        }
        assert_eq!(world.evidence().runs().len(), 2);
        assert_eq!(world.evidence().kinds()[0], "genesis");
        has_one_key(&world);
        verifies(&world);
    }
}

#[test]
fn commands_of_all_kinds_get_along() {
    let world = ready!();
    let note: &[&str] = &["-q", "note", "a remark"];
    let doctor: &[&str] = &["-q", "doctor"];
    let key: &[&str] = &["-q", "key", "show"];
    let plan: &[&str] = &["-q", "plan", "--", "true"];
    all_at_once(&world, &[TRUE]).remove(0).ended(0);
    for _ in 0..5 {
        let commands = [TRUE, note, doctor, key, TRUE, plan, note, TRUE, key, note];
        for ran in all_at_once(&world, &commands) {
            ran.ended(0);
        }
    }
    let kinds = world.evidence().kinds();
    let count = |kind| kinds.iter().filter(|found| **found == kind).count();
    assert_eq!(
        (count("start"), count("execution"), count("note")),
        (16, 16, 15)
    );
    verifies(&world);
}

#[test]
fn whoever_closes_among_others_closes_once() {
    let _ = ready!();
    for _ in 0..5 {
        let world = World::new();
        all_at_once(&world, &[TRUE]).remove(0).ended(0);
        let close: &[&str] = &["-q", "close", "over"];
        let note: &[&str] = &["-q", "note", "a remark"];
        let mut commands = vec![note, TRUE, close, close, note, TRUE];
        let rans = all_at_once(&world, &commands);
        // Each did its work or said why not.
        let mut closed = rans.iter().filter(|ran| ran.code == Some(0)).count();
        for ran in rans.iter().filter(|ran| ran.code != Some(0)) {
            assert_eq!(ran.code, Some(125), "{ran:#?}");
            assert!(
                ran.err.contains("closed") || ran.err.contains("still going on"),
                "{ran:#?}"
            );
        }
        commands.clear();
        let evidence = world.evidence();
        let ends = evidence
            .records
            .iter()
            .filter(|(record, _)| match &record.body {
                Body::Note(_) | Body::Close(_) => true,
                Body::Execution(execution) => execution.result.exit_code == Some(0),
                _ => false,
            });
        // One of them is the first run's.
        closed += 1;
        assert_eq!(ends.count(), closed);
        let closes = evidence
            .kinds()
            .iter()
            .filter(|kind| **kind == "close")
            .count();
        assert!(closes <= 1);
        assert!(closes == 0 || evidence.kinds().last() == Some(&"close"));
        verifies(&world);
    }
}

#[test]
fn a_ledger_of_another_user_is_refused_clearly() {
    let world = ready!();
    all_at_once(&world, &[TRUE]).remove(0).ended(0);
    if !is_root() {
        return crate::world::skip(
            "a_ledger_of_another_user",
            "only root has another user's rights",
        );
    }
    let Some(user) = World::of_user("a_ledger_of_another_user", &[]) else {
        return;
    };
    // The way to it is open, the ledger is not.
    for folder in ["", "state", "state/containment-ledger"] {
        let mode: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(world.path(folder), mode).unwrap();
    }
    let before = world.ledger_bytes();
    let ledger = world.ledger();
    let arguments = ["--ledger", ledger.to_str().unwrap(), "exec", "--", "true"];
    let ran = Ran::of(user.command(arguments).output().unwrap()).ended(125);
    assert!(ran.err.contains("Permission denied"), "{}", ran.err);
    let named = ran.err.contains(ledger.to_str().unwrap());
    assert!(named, "{}", ran.err);
    assert_eq!(world.ledger_bytes(), before);
    assert!(
        !user.keys().exists(),
        "a key was made for a ledger that is not there"
    );
}

/// A program that goes on until its standard input ends.
const UNTIL_TOLD: &[&str] = &["-q", "exec", "--", "cat"];

#[test]
fn a_run_that_was_taken_for_dead_is_not_ended_twice() {
    let world = ready!();
    all_at_once(&world, &[TRUE]).remove(0).ended(0);
    let mut command = world.command(UNTIL_TOLD);
    command.stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    until("the run goes on", || {
        world.evidence().kinds().ends_with(&["start"])
    });
    std::fs::remove_dir_all(world.ledger().join("runs")).unwrap();
    world.run("-q note x").ended(0);
    drop(child.stdin.take());
    let ran = Ran::of(child.wait_with_output().unwrap()).ended(125);
    let said = &ran.err;
    assert!(said.contains("took the run for dead"), "{said}");
    verifies(&world);
    let kinds = world.evidence().kinds();
    assert!(
        kinds.ends_with(&["start", "execution", "note"]),
        "{kinds:?}"
    );
    all_at_once(&world, &[TRUE]).remove(0).ended(0);
    verifies(&world);
}

#[test]
fn who_is_kept_waiting_says_so_once() {
    const SAYS: &str = "another run is writing to it";
    let world = ready!();
    all_at_once(&world, &[TRUE]).remove(0).ended(0);
    let lock = std::fs::File::open(world.ledger().join("lock")).unwrap();
    lock.lock().unwrap();
    let spawn = |arguments: &[&str]| world.command(arguments.iter()).spawn().unwrap();
    // The quiet one waits the longest.
    let quiet = spawn(TRUE);
    let waits = format!("/proc/{}/fd", quiet.id());
    until("it waits for the ledger", || opens_lock(&world, &waits));
    for arguments in [&["exec", "--", "true"][..], &["note", "text"]] {
        let mut child = spawn(arguments);
        let mut err = BufReader::new(child.stderr.take().unwrap());
        // Only the lock that this test holds keeps it waiting: the line comes, or this waits for ever.
        let mut said = String::new();
        err.read_line(&mut said).unwrap();
        let folder = world.ledger();
        let expected = format!("waiting for the ledger {}: {SAYS}\n", folder.display());
        assert!(said.ends_with(&expected), "{said}");
        lock.unlock().unwrap();
        let mut rest = String::new();
        err.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success(), "{rest}");
        assert!(!rest.contains(SAYS), "{rest}");
        lock.lock().unwrap();
    }
    drop(lock);
    let quiet = Ran::of(quiet.wait_with_output().unwrap()).ended(0);
    assert!(!quiet.err.contains(SAYS), "{quiet:#?}");
    verifies(&world);
}

/// Whether a process, by its folder in /proc, has opened the ledger's lock: then it waits for it, or has it.
fn opens_lock(world: &World, fds: &str) -> bool {
    let open = std::fs::read_dir(fds).into_iter().flatten().flatten();
    let mut targets = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.any(|target| target == world.ledger().join("lock"))
}

#[test]
fn who_waits_for_a_ledger_and_has_enough_leaves_nothing_in_the_folder() {
    let world = ready!();
    all_at_once(&world, &[TRUE]).remove(0).ended(0);
    let folder = world.folder("w/.git");
    let above = folder.parent().unwrap().to_owned();
    let before = std::fs::read_dir(&above).unwrap().count();
    let lock = std::fs::File::open(world.ledger().join("lock")).unwrap();
    lock.lock().unwrap();
    let flags = format!("-q exec --write {} -- true", above.display());
    let arguments: Vec<&str> = flags.split(' ').collect();
    let child = world.command(arguments).spawn().unwrap();
    // Waiting for the lock it has opened it.
    let fds = format!("/proc/{}/fd", child.id());
    until("it waits for the ledger", || opens_lock(&world, &fds));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    use std::os::unix::process::ExitStatusExt as _;
    let ended = child.wait_with_output().unwrap().status;
    assert_eq!(ended.signal(), Some(libc::SIGINT), "{ended}");
    assert_eq!(std::fs::read_dir(&above).unwrap().count(), before);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    drop(lock);
    all_at_once(&world, &[TRUE]).remove(0).ended(0);
    verifies(&world);
}
