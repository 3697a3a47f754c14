//! Trees that do not hold still while they are looked at, and files that take too long.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger::bytes::hash::Hash;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Watched, artifacts, outcome, sh_command, unmeasured};
use crate::world::{World, ready, until};

/// Runs a workload that leaves `script`'s files below /w, and `disturb` again and again from the moment they are there until
/// the run has ended.
fn disturbed(world: &World, script: &str, disturb: impl Fn(&Path) + Send + Sync) {
    let out = world.folder("out");
    let flags = format!("-q --timeout 50s --write {}:/w", out.display());
    let script = format!("cd /w; {script}; : >ready");
    let mut run = Watched::start(&mut sh_command(world, &flags, &script, &[]));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !out.join("ready").exists() && !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            while !over.load(Ordering::Relaxed) {
                disturb(&out);
            }
        });
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.wait()));
        over.store(true, Ordering::Relaxed);
        assert_eq!(code.unwrap(), Some(0));
    });
}

fn swap(a: &Path, b: &Path) {
    renameat2(AT_FDCWD, a, AT_FDCWD, b, RenameFlags::RENAME_EXCHANGE).unwrap();
}

#[test]
fn names_that_become_links_during_the_scan_lead_nowhere() {
    let world = ready!();
    let secret = world.file("outside/secret", "the secret of the host");
    let found = Hash::of(b"the secret of the host");
    let links = world.folder("links");
    let (outside, link) = (secret.parent().unwrap(), |name: &str| links.join(name));
    std::os::unix::fs::symlink(&secret, link("file")).unwrap();
    std::os::unix::fs::symlink(outside, link("folder")).unwrap();
    for round in 0..4 {
        let script = "rm -rf a; mkdir -p a/folder; for i in 1 2 3 4 5 6 7 8 9; do echo own >a/$i; echo own >a/folder/$i; done; \
            echo own >a/file; echo own >a/folder/secret";
        disturbed(&world, script, |out| {
            swap(&out.join("a/file"), &link("file"));
            swap(&out.join("a/folder"), &link("folder"));
        });
        // Whoever is which now, both are there.
        if fs::symlink_metadata(link("file")).unwrap().is_file() {
            swap(&world.path("out/a/file"), &link("file"));
        }
        if fs::symlink_metadata(link("folder")).unwrap().is_dir() {
            swap(&world.path("out/a/folder"), &link("folder"));
        }
        let run = outcome(&world).0;
        let list = artifacts(&world, &run);
        assert!(
            list.iter().all(|artifact| artifact.sha256 != Some(found)),
            "{round}: {list:#?}"
        );
        // What was not hashed was said to have moved.
        let unhashed = list
            .iter()
            .filter(|artifact| artifact.bytes.is_some() && artifact.sha256.is_none());
        let reasons = unmeasured(&run);
        assert!(
            reasons
                .iter()
                .all(|reason| reason.starts_with("changed-while-scanned: /w/a")),
            "{reasons:?}"
        );
        assert!(unhashed.count() <= reasons.len());
        fs::remove_file(world.path("out/ready")).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&secret).unwrap(),
        "the secret of the host"
    );
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[test]
fn files_that_change_while_they_are_hashed_have_no_hash() {
    const LENGTH: u64 = 48 << 20;
    let world = ready!();
    let script = format!("for i in 1 2 3 4; do truncate -s {LENGTH} $i; done; echo still >still");
    disturbed(&world, &script, |out| {
        for name in ["1", "2", "3", "4"] {
            let file = fs::File::options()
                .write(true)
                .open(out.join(name))
                .unwrap();
            file.set_len(LENGTH / 2).unwrap();
            file.set_len(LENGTH).unwrap();
        }
    });
    let run = outcome(&world).0;
    let list = artifacts(&world, &run);
    let still = list
        .iter()
        .find(|artifact| artifact.path == "/w/still")
        .unwrap();
    assert_eq!(still.sha256, Some(Hash::of(b"still\n")));
    let reasons = unmeasured(&run);
    for artifact in list.iter().filter(|artifact| artifact.path.len() == 4) {
        let said = reasons.contains(&format!("changed-while-scanned: {}", artifact.path).as_str());
        assert_ne!(artifact.sha256.is_some(), said, "{artifact:?} {reasons:?}");
    }
}

#[test]
fn what_is_hashed_past_the_deadline_is_not_waited_for() {
    let world = ready!();
    let out = world.folder("out");
    let flags = format!("-q --timeout 1s --write {}:/w", out.display());
    // A GiB is what may be hashed; it takes longer than there is time here, or else it is hashed.
    let script = "truncate -s 1023M /w/a; echo small >/w/b; sleep 600";
    let mut command = sh_command(&world, &flags, script, &[]);
    Watched::start(&mut command).finish().ended(124);
    let (run, how) = outcome(&world);
    assert_eq!(how, "timeout");
    let list = artifacts(&world, &run);
    let late = unmeasured(&run).contains(&"out-of-time");
    assert_eq!(
        list.iter().any(|artifact| artifact.sha256.is_none()),
        late && !list.is_empty()
    );
    assert!(late || list.len() == 2, "{list:#?}");
    assert_eq!(list.len() < 2, unmeasured(&run).contains(&"incomplete"));
}

#[test]
fn a_signal_ends_the_hashing_and_another_one_the_list() {
    let world = ready!();
    let out = world.folder("out");
    let flags = format!("-q --write {}:/w", out.display());
    // Files with nothing in them, as long as may be: hashing them takes seconds.
    let script = "for i in 1 2 3 4 5 6 7 8; do truncate -s 127M /w/$i; done; : >/w/0";
    let mut run = Watched::start(&mut sh_command(&world, &flags, script, &[]));
    until("the workload is about to end", || out.join("0").exists());
    let pid = Pid::from_raw(run.child.id().try_into().unwrap());
    until("it has ended", || {
        let ended = run.child.try_wait().unwrap().is_some();
        if !ended {
            kill(pid, Signal::SIGTERM).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        ended
    });
    let _ = run.child.wait();
    let (run, how) = outcome(&world);
    // The signals may have come while the workload still ran.
    assert!(
        ["exited 0", "signaled 15", "interrupted"].contains(&how.as_str()),
        "{how}"
    );
    let list = artifacts(&world, &run);
    let reasons = unmeasured(&run);
    assert!(
        list.len() == 9 || reasons.contains(&"incomplete"),
        "{list:#?} {reasons:?}"
    );
    let hashed = list.iter().all(|artifact| artifact.sha256.is_some());
    assert!(
        hashed || reasons.contains(&"interrupted"),
        "{list:#?} {reasons:?}"
    );
}
