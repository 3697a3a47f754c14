//! `verify` holds no sandboxing code: none is in its dependency tree.

use std::process::Command;

/// Crates that make sandboxes, run programs, or speak to a network.
const NEVER: [&str; 16] = [
    "runner",
    "seccompiler",
    "libseccomp",
    "landlock",
    "nix",
    "caps",
    "capctl",
    "cgroups-rs",
    "syscallz",
    "wasmtime",
    "wasmtime-wasi",
    "tokio",
    "reqwest",
    "hyper",
    "ureq",
    "zbus",
];

#[test]
fn no_sandbox_crate_is_in_the_tree() {
    let run = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "verify"])
        .args(["--edges", "normal,build", "--prefix", "none"])
        .args(["--target", "all", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let output = match run {
        // The toolchain of whoever built this test may be closed to whoever runs it, or not there for them.
        Err(error)
            if error.kind() == std::io::ErrorKind::PermissionDenied
                || !std::path::Path::new(env!("CARGO")).exists() =>
        {
            debug_assert!(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).exists());
            eprintln!(
                "SKIPPED: dependencies::no_sandbox_crate_is_in_the_tree: this user may not run {}",
                env!("CARGO")
            );
            return;
        }
        run => run.unwrap(),
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.contains(&"ledger") && names.contains(&"ed25519-dalek"));
    let found: Vec<_> = names.iter().filter(|name| NEVER.contains(name)).collect();
    assert!(found.is_empty(), "verify depends on {found:?}");
    // Of this project, it depends on the ledger alone.
    let own: Vec<_> = text
        .lines()
        .filter(|line| line.contains("(/") && !line.starts_with("verify "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(own.iter().all(|name| *name == "ledger"), "{own:?}");
}
