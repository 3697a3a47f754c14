//! Disks that fill up or fail while runs are recorded: nothing runs whose record would not be kept, and with room
//! again the ledger goes on.

use std::process::Command;

use ledger::finding::Code;

use super::snapshot;
use crate::evidence::{evidence, walked};
use crate::world::{Ran, World, flat, in_bash, is_root, program, ready, skip};

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
        assert!(ran.says(lost), "{fault}: {ran:#?}");
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

#[test]
fn under_a_limit_on_the_size_of_files_it_says_what_it_cannot_write() {
    let world = ready!();
    world.exec("-q", &["true"]).ended(0);
    let Some(bash) = program("bash") else {
        return skip("under_a_limit_on_the_size_of_files", "no bash");
    };
    let limited = |line: &str| in_bash(&world, &bash, "ulimit -f 1", line);
    // One KiB: no record has room any more, and no bundle of them.
    limited("exec -q -- true").failed(&["File too large"]);
    limited("note hello").failed(&["File too large"]);
    let bundle = world.path("all.bundle");
    limited(&format!("bundle --all -o {}", bundle.display())).failed(&["File too large"]);
    let names = std::fs::read_dir(bundle.parent().unwrap()).unwrap();
    let left: Vec<_> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("bundle"))
        .collect();
    assert_eq!(left, [] as [String; 0]);
    world.exec("-q", &["true"]).ended(0);
    let kinds = world.evidence().kinds();
    let runs = kinds.iter().filter(|kind| **kind == "execution");
    assert_eq!(runs.count(), 2, "{kinds:?}");
}
