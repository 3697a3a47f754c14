//! The runner inside a container of docker's: as it is by default, where docker's own filter lets nobody make namespaces, and
//! without that filter. `tests/docker/run` starts a daemon for it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::inside::{self, SCRIPT, Setting, said};
use crate::verifier::{NO_VERIFIER, verifier};
use crate::world::{is_root, skip};

const SETTINGS: [Setting; 3] = [
    Setting {
        name: "default",
        flags: &[],
        tier: "landlock",
        standard: 126,
    },
    Setting {
        name: "no filter",
        flags: &["--security-opt=seccomp=unconfined"],
        tier: "no-proc",
        standard: 0,
    },
    Setting {
        name: "no filter, unmasked",
        flags: &[
            "--security-opt=seccomp=unconfined",
            "--security-opt=systempaths=unconfined",
        ],
        tier: "full",
        standard: 0,
    },
];

/// A container of `image`, with the programs in `base`.
fn docker(base: &Path, image: &str, flags: &[String]) -> Command {
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--network=none", "--log-driver=none"]);
    // The defaults are above the hard limits of callers without CAP_SYS_RESOURCE.
    command.args(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]);
    command.args(inside::volumes());
    for (folder, mode) in [("opt", "ro"), ("work", "rw")] {
        let path = base.join(folder);
        command.arg(format!("--volume={}:/{folder}:{mode}", path.display()));
    }
    command.args(flags).arg(image);
    command
}

#[test]
fn in_each_setting_of_docker_tier_declaration_and_cells_agree() {
    let test = "in_each_setting_of_docker_tier_declaration_and_cells_agree";
    if !is_root() {
        return skip(test, "a daemon of its own needs root");
    }
    if std::env::var_os("DOCKER_HOST").is_none() {
        return skip(test, "no DOCKER_HOST: tests/docker/run starts a daemon");
    }
    let Some(verify) = verifier() else {
        return skip(test, NO_VERIFIER);
    };
    let answers = Command::new("timeout")
        .args(["20", "docker", "version"])
        .output();
    let answers = answers.unwrap();
    if !answers.status.success() {
        return skip(test, said(&answers).replace('\n', " "));
    }
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("rootfs");
    inside::make_root(&root);
    let image = format!("containment-root-{}", std::process::id());
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--directory").arg(&root).arg(".");
    let mut tar = tar.stdout(Stdio::piped()).spawn().unwrap();
    let mut import = Command::new("docker");
    import.args(["import", "-", &image]);
    let imported = import.stdin(tar.stdout.take().unwrap()).output().unwrap();
    assert!(tar.wait().unwrap().success());
    assert!(imported.status.success(), "{}", said(&imported));
    for setting in SETTINGS {
        for folder in ["opt", "work"] {
            let _ = std::fs::remove_dir_all(base.path().join(folder));
            std::fs::create_dir(base.path().join(folder)).unwrap();
        }
        inside::install_programs(&base.path().join("opt"), verify);
        let flags = setting.flags(Path::new(""));
        let ran = docker(base.path(), &image, &flags)
            .args(["sh", "-c", SCRIPT])
            .output();
        setting.holds(&base.path().join("work"), &said(&ran.unwrap()));
    }
    let removed = Command::new("docker").args(["rmi", &image]).output();
    let removed = removed.unwrap();
    assert!(removed.status.success(), "{}", said(&removed));
}
