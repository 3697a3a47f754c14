//! Workloads that use up what there is: descriptors, inodes, room in memory; and their own limits and scores.

use super::{misdeeds, outcome, sh, strict};
use crate::world::ready;

#[test]
fn what_is_used_up_inside_lacks_inside_alone() {
    let world = ready!();
    let flags = strict(&world, |policy| {
        policy["filesystem"]["maxWorkspaceMb"] = 4.into();
    });
    let list = [
        "do:fill:/tmp",
        "do:fill:/var/tmp",
        "do:fill:/dev/shm",
        "do:fill:/workspace",
        "do:lock-memory",
        "do:descriptors",
    ];
    let ran = misdeeds(&world, &flags, &list).ended(0);
    // 4 MiB in pieces of 64 KiB.
    for place in ["/tmp", "/var/tmp", "/dev/shm", "/workspace"] {
        let line = format!("probe do:fill:{place}=64,ENOSPC");
        assert!(ran.out.contains(&line), "{line}: {}", ran.out);
    }
    assert!(ran.out.contains(",EMFILE"), "{}", ran.out);
    let (run, how) = outcome(&world);
    assert_eq!(how, "exited 0");
    let left = super::artifacts(&world, &run);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].bytes.unwrap().value(), 4 << 20);
    assert_eq!(
        left[0].sha256,
        Some(ledger::bytes::hash::Hash::of(&vec![b'x'; 4 << 20]))
    );
}

#[test]
fn files_without_content_have_an_end_too() {
    let world = ready!();
    let flags = strict(&world, |policy| {
        policy["filesystem"]["maxWorkspaceMb"] = 4.into();
    });
    let ran = misdeeds(&world, &flags, &["do:inodes:/tmp", "do:inodes:/workspace"]).ended(0);
    let ends = ran.out.lines().filter(|line| line.ends_with(",ENOSPC"));
    assert_eq!(ends.count(), 2, "{}", ran.out);
    // One inode for each KiB, the folder's own among them.
    let run = outcome(&world).0;
    let left = run.execution.artifacts.unwrap().count();
    assert!((4000..4096).contains(&left), "{left}");
}

#[test]
fn own_limits_and_scores_are_the_workloads_own_affair() {
    let world = ready!();
    for (script, code) in [
        (
            "ulimit -n 3; ulimit -f 0; ulimit -s 64; ulimit -t 1; echo out; exit 3",
            3,
        ),
        // What the runner itself ignores ends a workload all the same: SIGXFSZ, SIGPIPE.
        ("ulimit -f 0; echo more >/tmp/file", 128 + 25),
        ("kill -PIPE $$", 128 + 13),
        // SIGXCPU at one second of its own.
        ("ulimit -S -t 1; while :; do :; done", 128 + 24),
        (
            "echo 1000 >/proc/self/oom_score_adj; echo -1000 >/proc/self/oom_score_adj; echo -1000 >/proc/1/oom_score_adj; exit 4",
            4,
        ),
        (
            "for f in /proc/sys/kernel/pid_max /proc/sysrq-trigger /proc/1/mem /proc/1/fd/0; do (echo x >$f) 2>/dev/null && exit 9; done; exit 5",
            5,
        ),
    ] {
        let ran = sh(&world, "-q --timeout 30s", script, &[]);
        assert_eq!(ran.code, Some(code), "{script}: {ran:#?}");
        let how = outcome(&world).1;
        let expected = match code {
            129.. => format!("signaled {}", code - 128),
            code => format!("exited {code}"),
        };
        assert_eq!(how, expected);
    }
}
