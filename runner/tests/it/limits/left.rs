//! What runs with limits leave: nothing, also where the runner was killed.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::{Limited, limited};
use crate::world::{contains, until};

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

/// Command lines of processes in which a text stands.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| contains(line, text))
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .collect()
}

/// A mount namespace of this test's own thread, where that can be had: what others mount meanwhile is not left by it.
fn apart_from_others() {
    use nix::mount::{MsFlags, mount};
    if nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).is_ok() {
        let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).unwrap();
    }
}

fn mounts() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Everything below a folder.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(all_below(&path));
        }
        all.push(path);
    }
    all
}

/// Files in memory, more than the limit; whoever is killed for it.
const FILLS_MEMORY_WITH_FILES: (&str, &[i32]) = (
    "for i in 1 2 3; do head -c 30000000 /dev/zero >/tmp/$i; done; exit 4",
    &[4, 137],
);

/// Workloads that use up what there is, and what they end with; `$1` is a number that stands nowhere else.
const HOSTILE: [(&str, &[i32]); 7] = [
    // Memory: the last of the pipe keeps all.
    (
        "head -c 200000000 /dev/zero | tail >/dev/null; exit 3",
        &[3],
    ),
    FILLS_MEMORY_WITH_FILES,
    // A bomb. Whether the shell finds room for its own next process is chance.
    ("bomb() { bomb | bomb & }; bomb; exit 5", &[2, 5]),
    (
        "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 6",
        &[6],
    ),
    // What is left behind by who ends, and by who is killed.
    ("sleep $1 & setsid sleep $1 & exit 7", &[7]),
    ("sleep $1 & kill -9 $$", &[137]),
    (
        "head -c 40000000 /dev/zero | tail -c 40000000 >/dev/null; exit 8",
        &[8],
    ),
];

#[test]
fn nothing_is_left_after_two_hundred_runs() {
    for on in limited("nothing_is_left_after_two_hundred_runs") {
        leaves_nothing(on);
    }
}

fn leaves_nothing(on: Limited) {
    let runtime = on.runtime;
    let (read, temporary) = (on.world.folder("in"), on.world.folder("temporary"));
    let errors = on.world.path("errors");
    let base = on.world.path("");
    let base = base.to_str().unwrap().trim_end_matches('/');
    let seconds = format!("{}", 80_000 + std::process::id());
    // Bubblewrap's command line has the folder.
    let flags = format!("{FLAGS} --read {}", read.display());
    apart_from_others();
    let before = mounts();
    let mut pids = Vec::new();
    let mut sandboxes_killed = 0;
    for (script, codes) in HOSTILE.iter().cycle().take(200) {
        let mut command = on.command(&flags, &["sh", "-c", script, "sh", &seconds]);
        // What a bomb says is more than a pipe takes.
        let said = File::create(&errors).unwrap();
        command.stdout(Stdio::null()).stderr(said);
        let mut child = command.env("TMPDIR", &temporary).spawn().unwrap();
        pids.push(child.id());
        let code = child.wait().unwrap().code().unwrap();
        if !codes.contains(&code) {
            let said = std::fs::read(&errors).unwrap();
            let said = String::from_utf8_lossy(&said);
            // Files in memory stay when who wrote them is killed: now and then what is left to kill is the sandbox, and that
            // memory ran out is said.
            let why = "nobody saw how the workload ended: memory ran out";
            if code == 125 && *codes == FILLS_MEMORY_WITH_FILES.1 && said.contains(why) {
                sandboxes_killed += 1;
                continue;
            }
            let own: Vec<_> = said
                .lines()
                .filter(|line| line.contains("runner:"))
                .collect();
            panic!("{runtime}: {script}: {code}: {own:#?}");
        }
    }
    assert!(
        sandboxes_killed <= 2,
        "{runtime}: {sandboxes_killed} of 200"
    );
    assert_eq!(groups_of(&pids), Vec::<PathBuf>::new(), "{runtime}");
    for text in [&*seconds, base] {
        assert_eq!(processes_with(text), Vec::<String>::new(), "{runtime}");
    }
    let new: Vec<String> = mounts().difference(&before).cloned().collect();
    assert_eq!(new, Vec::<String>::new(), "{runtime}");
    for folder in [&temporary, &read, &on.world.ledger().join("runs")] {
        let mut left = all_below(folder);
        // The lock of the next run, made before there is one.
        left.retain(|path| !path.ends_with("runs/spare"));
        assert_eq!(left, Vec::<PathBuf>::new(), "{runtime}");
    }
    let runs = on.world.evidence().runs();
    assert_eq!(runs.len(), 200);
    // The two that are killed for memory are.
    let kills = runs
        .iter()
        .map(|run| super::observed(run).oom_kills.unwrap().value());
    assert!(kills.filter(|kills| *kills > 0).count() >= 29, "{runtime}");
}

#[test]
fn what_a_killed_runner_leaves_goes_with_the_next_run() {
    for on in limited("what_a_killed_runner_leaves") {
        let mark = on.world.folder("out").join("runs");
        let flags = format!("{FLAGS} --write {}:/w", mark.parent().unwrap().display());
        let mut killed = Vec::new();
        for _ in 0..3 {
            let mut child = on
                .command(&flags, &["sh", "-c", "touch /w/runs; sleep 60"])
                .spawn()
                .unwrap();
            until("the workload runs", || mark.exists());
            // Not looked for later: whoever runs next, and be it another test's, removes what is left.
            let own = groups_of(&[child.id()]);
            assert!(!own.is_empty(), "there was a group to begin with");
            child.kill().unwrap();
            child.wait().unwrap();
            std::fs::remove_file(&mark).unwrap();
            killed.push(child.id());
            // Each run removes what those before it left; the tree of the last may still be on its way out.
            until("its tree is gone", || {
                groups_of(&killed).iter().all(|group| {
                    let tasks = std::fs::read_to_string(group.join("cgroup.procs"));
                    tasks.is_err() || tasks.is_ok_and(|tasks| tasks.is_empty())
                })
            });
        }
        on.exec(FLAGS, &["true"]).ended(0);
        assert_eq!(groups_of(&killed), Vec::<PathBuf>::new(), "{}", on.runtime);
    }
}

#[test]
fn a_plan_and_a_refused_run_leave_no_group() {
    for on in limited("a_plan_and_a_refused_run_leave_no_group") {
        let mut pids = Vec::new();
        for (command, arguments, code) in [
            ("plan", "--memory 64M -- true", 0),
            ("exec", "--memory 64M --require disk --write . -- true", 126),
            ("exec", "--memory 64M -- no-such-program", 127),
        ] {
            let line = format!("{command} --runtime {} {arguments}", on.runtime);
            let mut child = on.world.command(line.split_whitespace()).spawn().unwrap();
            pids.push(child.id());
            assert_eq!(child.wait().unwrap().code(), Some(code), "{line}");
        }
        let mut child = on.world.command(["--json", "doctor"]).spawn().unwrap();
        pids.push(child.id());
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(groups_of(&pids), Vec::<PathBuf>::new());
    }
}
