//! The runner inside a container of podman's: as it is by default, with nothing masked, and where no namespaces are made. In each it
//! runs what it can, says in which tier, and what it declares holds.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::verifier::{NO_VERIFIER, verifier};
use crate::world::{install, is_root, program, skip};

/// Of one setting: what podman is told, the tier, and how a run under the default policy ends.
const SETTINGS: [(&str, &[&str], &str, i32); 3] = [
    ("default", &[], "no-proc", 0),
    ("unmasked", &["--security-opt", "unmask=ALL"], "full", 0),
    (
        "no namespaces",
        &["--security-opt", "seccomp={seccomp}"],
        "landlock",
        126,
    ),
];

/// What engines deny that let nobody without CAP_SYS_ADMIN make namespaces.
const SECCOMP: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    {"names": ["unshare", "setns", "mount", "umount2", "pivot_root", "fsopen", "fsmount", "open_tree", "move_mount", "mount_setattr"],
     "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
    {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
     "args": [{"index": 0, "value": 268435456, "valueTwo": 268435456, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}"#;

/// What is done inside; `$1` are flags of exec.
const SCRIPT: &str = r#"
    cd /work
    /opt/runner --json doctor >doctor.json
    /opt/runner exec -q --best-effort -- sh -c 'echo inside'; echo exec $?
    /opt/runner exec -q -- true; echo standard $?
    /opt/runner plan -- true >plan; echo plan $?
    for again in 1 2 3; do
        rm -rf ledger
        /opt/runner -q --ledger ledger --json matrix --strict --runtime embedded >matrix.json; status=$?
        grep -qE 'no answer within|too busy to say|; Timeout\)' matrix.json || break
    done
    echo matrix $status
    /opt/verify -q ledger >verify.txt; echo verify $?
"#;

/// A root with the programs of this host, in a folder of its own.
fn root(base: &Path, verify: &Path) -> std::path::PathBuf {
    let root = base.join("rootfs");
    for folder in [
        "usr", "tmp", "root", "proc", "sys", "dev", "run", "etc", "work", "opt", "var/tmp",
    ] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(to) = std::fs::read_link(Path::new("/").join(link)) {
            std::os::unix::fs::symlink(to, root.join(link)).unwrap();
        } else {
            std::fs::create_dir_all(root.join(link)).unwrap();
        }
    }
    for folder in ["tmp", "var/tmp"] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(root.join(folder), open).unwrap();
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
    install(
        Path::new(env!("CARGO_BIN_EXE_runner")),
        &root.join("opt/runner"),
    );
    install(verify, &root.join("opt/verify"));
    root
}

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
    for folder in ["/usr", "/bin", "/sbin", "/lib", "/lib64"] {
        if std::fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()) {
            command.arg(format!("--volume={folder}:{folder}:ro"));
        }
    }
    command.args(flags).arg("--rootfs").arg(root);
    command
}

fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .concat()
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
    for (setting, flags, tier, standard) in SETTINGS {
        let base = tempfile::tempdir().unwrap();
        let root = root(base.path(), verify);
        let seccomp = base.path().join("seccomp.json");
        std::fs::write(&seccomp, SECCOMP).unwrap();
        let flags = flags.iter();
        let flags: Vec<String> = flags
            .map(|flag| flag.replace("{seccomp}", seccomp.to_str().unwrap()))
            .collect();
        let tried = podman(base.path(), &root, &flags)
            .args(["sh", "-c", "true"])
            .output();
        let tried = tried.unwrap();
        if !tried.status.success() {
            skip(test, format!("{setting}: {}", text(&tried)));
            continue;
        }
        let ran = podman(base.path(), &root, &flags)
            .args(["sh", "-c", SCRIPT])
            .output();
        let said = text(&ran.unwrap());
        let json = |name: &str| -> Value {
            let text = std::fs::read(root.join("work").join(name)).unwrap();
            serde_json::from_slice(&text)
                .unwrap_or_else(|error| panic!("{setting}: {error}: {said}"))
        };
        assert_eq!(json("doctor.json")["tier"], tier, "{setting}: {said}");
        let cells = json("matrix.json")["cells"].as_array().unwrap().clone();
        let declared: Vec<_> = cells
            .iter()
            .filter(|cell| cell["declared"] == true)
            .collect();
        assert!(declared.len() > 15, "{setting}: {said}");
        assert!(
            cells
                .iter()
                .all(|cell| cell["verdict"] != "false-guarantee"),
            "{setting}"
        );
        for expected in [
            "inside\nexec 0\n".to_owned(),
            format!("standard {standard}\nplan {standard}\n"),
            "matrix 0\nverify 0\n".to_owned(),
        ] {
            assert!(said.contains(&expected), "{setting}: {expected}: {said}");
        }
    }
}
