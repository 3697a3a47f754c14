//! What the runner is asked inside a container of an engine's, whichever it is, and what has to come of it.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::world::install;

/// A setting of an engine's.
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// What the engine is told; `{seccomp}` stands for a file of [`SECCOMP`].
    pub(super) flags: &'static [&'static str],
    pub(super) tier: &'static str,
    /// How a run under the default policy ends.
    pub(super) standard: i32,
}

/// What engines deny that let nobody without CAP_SYS_ADMIN make namespaces.
pub(super) const SECCOMP: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    {"names": ["unshare", "setns", "mount", "umount2", "pivot_root", "fsopen", "fsmount", "open_tree", "move_mount", "mount_setattr"],
     "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
    {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
     "args": [{"index": 0, "value": 268435456, "valueTwo": 268435456, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}"#;

/// What is done inside.
pub(super) const SCRIPT: &str = r#"
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

/// A root into which the programs of this host are shown.
pub(super) fn make_root(root: &Path) {
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
}

/// The runner and its verifier.
pub(super) fn install_programs(folder: &Path, verify: &Path) {
    let runner = Path::new(env!("CARGO_BIN_EXE_runner"));
    install(runner, &folder.join("runner"));
    install(verify, &folder.join("verify"));
}

/// The host's folders of programs, as an engine is told to show them.
pub(super) fn volumes() -> Vec<String> {
    let folders = ["/usr", "/bin", "/sbin", "/lib", "/lib64"].into_iter();
    let folders = folders
        .filter(|folder| std::fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()));
    folders
        .map(|folder| format!("--volume={folder}:{folder}:ro"))
        .collect()
}

pub(super) fn said(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .concat()
}

impl Setting {
    pub(super) fn flags(&self, seccomp: &Path) -> Vec<String> {
        let flags = self.flags.iter();
        flags
            .map(|flag| flag.replace("{seccomp}", seccomp.to_str().unwrap()))
            .collect()
    }

    /// Tier, declaration and cells agree, in what [`SCRIPT`] left in `work` and printed.
    pub(super) fn holds(&self, work: &Path, said: &str) {
        let name = self.name;
        let json = |file: &str| -> Value {
            let text = std::fs::read(work.join(file)).unwrap();
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{name}: {error}: {said}"))
        };
        assert_eq!(json("doctor.json")["tier"], self.tier, "{name}: {said}");
        let cells = json("matrix.json")["cells"].as_array().unwrap().clone();
        let declared = cells.iter().filter(|cell| cell["declared"] == true);
        assert!(declared.count() > 15, "{name}: {said}");
        let mut verdicts = cells.iter().map(|cell| &cell["verdict"]);
        assert!(verdicts.all(|one| *one != "false-guarantee"), "{name}");
        for expected in [
            "inside\nexec 0\n".to_owned(),
            format!("standard {0}\nplan {0}\n", self.standard),
            "matrix 0\nverify 0\n".to_owned(),
        ] {
            assert!(said.contains(&expected), "{name}: {expected}: {said}");
        }
    }
}
