//! What runs with limits leave: nothing, also where the runner was killed.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::world::{World, no_groups, ready, skip, until};

const FLAGS: &str = "-q --memory 64M --processes 8 --cpu 1";

/// Groups of runs of these processes, wherever they are.
fn groups_of(pids: &[u32]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    look(Path::new("/sys/fs/cgroup"), pids, &mut found);
    found
}

fn look(folder: &Path, pids: &[u32], found: &mut Vec<PathBuf>) {
    // Others make and remove groups meanwhile.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = entry.file_name().into_string().unwrap_or_default();
        let owner = name
            .strip_prefix("containment-run-")
            .and_then(|rest| rest.split('-').next()?.parse().ok());
        if owner.is_some_and(|pid: u32| pids.contains(&pid)) {
            found.push(entry.path());
        }
        look(&entry.path(), pids, found);
    }
}

fn start(world: &World, workload: &[&str]) -> Child {
    world.exec_command(FLAGS, workload).spawn().unwrap()
}

#[test]
fn nothing_is_left_after_two_hundred_runs() {
    let world = ready!();
    if let Some(why) = no_groups(&world) {
        return skip("nothing_is_left_after_two_hundred_runs", why);
    }
    let mut pids = Vec::new();
    for number in 0..200 {
        // Some end with processes that they leave behind.
        let workload = match number % 4 {
            0 => "sleep 60 & exit 0",
            1 => "kill -9 $$",
            _ => "exit 0",
        };
        let mut child = start(&world, &["sh", "-c", workload]);
        pids.push(child.id());
        child.wait().unwrap();
    }
    assert_eq!(groups_of(&pids), Vec::<PathBuf>::new());
    assert_eq!(world.evidence().runs().len(), 200);
}

#[test]
fn what_a_killed_runner_leaves_goes_with_the_next_run() {
    let world = ready!();
    if let Some(why) = no_groups(&world) {
        return skip("what_a_killed_runner_leaves", why);
    }
    let mark = world.folder("out").join("runs");
    let flags = format!("{FLAGS} --write {}:/w", mark.parent().unwrap().display());
    let mut killed = Vec::new();
    for _ in 0..3 {
        let mut child = world
            .exec_command(&flags, &["sh", "-c", "touch /w/runs; sleep 60"])
            .spawn()
            .unwrap();
        until("the workload runs", || mark.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        std::fs::remove_file(&mark).unwrap();
        killed.push(child.id());
        let left = groups_of(&killed);
        assert!(!left.is_empty(), "there was a group to begin with");
        // Each run removes what those before it left; the tree of the last may still be on its way out.
        until("its tree is gone", || {
            groups_of(&killed).iter().all(|group| {
                let tasks = std::fs::read_to_string(group.join("cgroup.procs"));
                tasks.is_err() || tasks.is_ok_and(|tasks| tasks.is_empty())
            })
        });
    }
    world.exec(FLAGS, &["true"]).ended(0);
    assert_eq!(groups_of(&killed), Vec::<PathBuf>::new());
}

#[test]
fn a_plan_and_a_refused_run_leave_no_group() {
    let world = ready!();
    if let Some(why) = no_groups(&world) {
        return skip("a_plan_and_a_refused_run_leave_no_group", why);
    }
    let mut pids = Vec::new();
    for (arguments, code) in [
        ("plan --memory 64M -- true", 0),
        ("exec --memory 64M --require disk --write . -- true", 126),
        ("exec --memory 64M -- no-such-program", 127),
        ("--json doctor", 0),
    ] {
        let mut child = world.command(arguments.split_whitespace()).spawn().unwrap();
        pids.push(child.id());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments}");
    }
    assert_eq!(groups_of(&pids), Vec::<PathBuf>::new());
}
