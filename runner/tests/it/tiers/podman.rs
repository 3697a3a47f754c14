//! The runner inside a container of podman's: as it is by default, with nothing masked, and where no namespaces are made. In each it
//! runs what it can, says in which tier, and what it declares holds.

use std::path::Path;
use std::process::Command;

use super::inside::{self, SCRIPT, SECCOMP, Setting, said};
use crate::verifier::{NO_VERIFIER, verifier};
use crate::world::{is_root, program, skip};

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "default",
        flags: &[],
        tier: "no-proc",
        standard: 0,
    },
    Setting {
        name: "unmasked",
        flags: &["--security-opt", "unmask=ALL"],
        tier: "full",
        standard: 0,
    },
    Setting {
        name: "no namespaces",
        flags: &["--security-opt", "seccomp={seccomp}"],
        tier: "landlock",
        standard: 126,
    },
];

/// podman with all that is its own below `base`; its mounts go with the namespace.
fn podman(base: &Path, root: &Path, flags: &[String]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "podman"]);
    for (flag, folder) in [
        ("--root", "store"),
        ("--runroot", "run"),
        ("--tmpdir", "tmp"),
    ] {
        command.arg(flag).arg(base.join(folder));
    }
    command.args([
        "--runtime",
        "runc",
        "--cgroup-manager=cgroupfs",
        "run",
        "--rm",
    ]);
    command.args(["--network", "none", "--log-driver=none"]);
    command.args([
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1024:1024",
    ]);
    command.args(inside::volumes());
    command.args(flags).arg("--rootfs").arg(root);
    command
}

#[test]
fn in_each_setting_of_a_container_tier_declaration_and_cells_agree() {
    let test = "in_each_setting_of_a_container_tier_declaration_and_cells_agree";
    if !is_root() {
        return skip(test, "podman's root folder needs root");
    }
    for name in ["podman", "runc", "unshare"] {
        if program(name).is_none() {
            return skip(test, format!("no {name}"));
        }
    }
    let Some(verify) = verifier() else {
        return skip(test, NO_VERIFIER);
    };
    for setting in SETTINGS {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("rootfs");
        inside::make_root(&root);
        inside::install_programs(&root.join("opt"), verify);
        let seccomp = base.path().join("seccomp.json");
        std::fs::write(&seccomp, SECCOMP).unwrap();
        let flags = setting.flags(&seccomp);
        let tried = podman(base.path(), &root, &flags)
            .args(["sh", "-c", "true"])
            .output();
        let tried = tried.unwrap();
        if !tried.status.success() {
            skip(test, format!("{}: {}", setting.name, said(&tried)));
            continue;
        }
        let ran = podman(base.path(), &root, &flags)
            .args(["sh", "-c", SCRIPT])
            .output();
        setting.holds(&root.join("work"), &said(&ran.unwrap()));
    }
}
