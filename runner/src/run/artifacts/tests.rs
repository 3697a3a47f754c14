use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use ledger::bytes::canon::{U53, escape_bytes};
use ledger::bytes::hash::Hash;
use ledger::facts::execution::FileKind;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;

mod bounds;
mod found;
mod moving;
mod snapshot;

const BOTH: [Option<Opener>; 2] = [None, Some(Opener::NoFollow)];

const INSIDE: &str = "/w";

fn folder(path: impl AsRef<Path>) -> OwnedFd {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    nix::fcntl::open(path.as_ref(), flags, Mode::empty()).unwrap()
}

/// What a scan came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Scan {
    artifacts: Vec<Artifact>,
    unmeasured: Vec<Unmeasured>,
}

fn scan_as(
    opener: Option<Opener>,
    places: &[Place],
    limits: &Limits,
    pace: &dyn Fn() -> Pace,
) -> Scan {
    let mut artifacts = Vec::new();
    let unmeasured = scan_with(opener, places, limits, pace, &mut |artifact| {
        artifacts.push(artifact);
        ControlFlow::Continue(())
    });
    Scan {
        artifacts,
        unmeasured,
    }
}

fn scan_all(places: &[Place], limits: &Limits) -> Scan {
    scan_as(None, places, limits, &whole)
}

fn whole() -> Pace {
    Pace::Whole
}

fn existing(path: &Path, limits: &Limits) -> Place {
    Place::existing(folder(path), INSIDE, settle(), limits, &whole)
}

/// Scans as a fresh place in both ways of opening, which must agree.
fn scan_fresh(path: &Path, limits: &Limits) -> Scan {
    let [resolve, no_follow] = BOTH.map(|opener| {
        scan_as(
            opener,
            &[Place::fresh(folder(path), INSIDE)],
            limits,
            &whole,
        )
    });
    assert_eq!(resolve, no_follow);
    resolve
}

fn paths(scan: &Scan) -> Vec<&str> {
    let paths = scan.artifacts.iter().map(|artifact| artifact.path.as_str());
    paths.collect()
}

fn reasons(scan: &Scan) -> Vec<&str> {
    assert!(
        scan.unmeasured
            .iter()
            .all(|entry| entry.field == "artifacts")
    );
    let reasons = scan.unmeasured.iter().map(|entry| entry.reason.as_str());
    reasons.collect()
}

fn file(path: &str, content: &[u8]) -> Artifact {
    Artifact {
        bytes: U53::new(content.len() as u64),
        kind: FileKind::File,
        path: path.into(),
        sha256: Some(Hash::of(content)),
    }
}

fn other(path: &str, kind: FileKind) -> Artifact {
    Artifact {
        bytes: None,
        kind,
        path: path.into(),
        sha256: None,
    }
}

/// A moment that is after everything done so far and not after anything done from now on.
fn settle() -> FileTime {
    let done = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
    loop {
        let now = FileTime::now().unwrap();
        if (now.seconds, now.nanoseconds) > (done.tv_sec(), done.tv_nsec()) {
            return now;
        }
        std::thread::yield_now();
    }
}

/// Whether this is root; then the test runs once more as an ordinary user, in a process of its own.
fn is_root_and_ran_as_user(module: &str, test: &str) -> bool {
    if !nix::unistd::geteuid().is_root() {
        return false;
    }
    // Not by its path, which an ordinary user may not reach.
    let output = Command::new("/proc/self/exe")
        .args([
            "--exact",
            &format!("{}::{test}", module.split_once("::").unwrap().1),
        ])
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    true
}
