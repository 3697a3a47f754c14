//! What binaries for use must not have, checked on the one that `RUNNER_RELEASE` names.

use std::path::PathBuf;
use std::process::Command;

use crate::evidence::evidence;
use crate::world::{contains, no_sandbox, skip};

#[test]
fn a_release_binary_has_no_switch_and_is_small() {
    let Some(path) = std::env::var_os("RUNNER_RELEASE").map(PathBuf::from) else {
        return skip(
            "a_release_binary_has_no_switch_and_is_small",
            "RUNNER_RELEASE names no release build of runner",
        );
    };
    let bytes = std::fs::read(&path).unwrap();
    for switch in ["RUNNER_FAULT", "LEDGER_FAULT", "RUNNER_KILL"] {
        assert!(!contains(&bytes, switch), "{switch}: {}", path.display());
    }
    assert!(bytes.len() < 8 << 20, "{} bytes", bytes.len());
    // The test build has it: the search finds what is there.
    let test_build = std::fs::read(env!("CARGO_BIN_EXE_runner")).unwrap();
    for switch in ["RUNNER_FAULT", "LEDGER_FAULT", "RUNNER_KILL"] {
        assert!(contains(&test_build, switch));
    }

    if let Some(reason) = no_sandbox() {
        return skip(
            "a_release_binary_has_no_switch_and_is_small: the run",
            reason,
        );
    }
    let home = tempfile::tempdir().unwrap();
    let ran = Command::new(&path)
        .args(["exec", "--", "true"])
        .env_clear()
        .env("HOME", home.path())
        .env(
            "RUNNER_FAULT",
            "seccomp=fail,namespace-network=fail,pivot-root=fail",
        )
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let evidence = evidence(&home.path().join(".local/state/containment-ledger/default"));
    let run = evidence.runs().pop().unwrap();
    assert!(run.declares("syscalls") && run.declares("network") && run.declares("filesystem"));
}
