//! What a workload sees, reads and writes: SANDBOX.md §2.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use crate::world::{Ran, contains, is_root, ready, skip};

#[test]
fn an_ephemeral_root_shows_nothing_of_the_host() {
    let world = ready!();
    let var_tmp = tempfile::tempdir_in("/var/tmp").unwrap();
    let shm = tempfile::tempdir_in("/dev/shm").unwrap();
    let canaries = [
        world.file("home/canary", "SEEN"),
        world.file("home/.ssh/id", "SEEN"),
        world.file("canary", "SEEN"),
        var_tmp.path().join("canary"),
        shm.path().join("canary"),
        "/etc/shadow".into(),
        "/etc/machine-id".into(),
        "/root".into(),
        "/home".into(),
        "/sys/class".into(),
        "/run/dbus".into(),
    ];
    std::fs::write(&canaries[3], "SEEN").unwrap();
    std::fs::write(&canaries[4], "SEEN").unwrap();
    let canaries: Vec<&Path> = canaries.iter().map(AsRef::as_ref).collect();
    let ran = world
        .sh(
            "",
            r#"for path in "$@"; do [ -e "$path" ] && echo "$path"; done
               ls -A /tmp /var/tmp /dev/shm /workspace; pwd"#,
            &canaries,
        )
        .ended(0);
    assert_eq!(
        ran.out,
        "/dev/shm:\n\n/tmp:\n\n/var/tmp:\n\n/workspace:\n/workspace\n"
    );
}

#[test]
fn system_folders_and_a_made_up_root_are_read_only() {
    let world = ready!();
    let ran = world
        .sh(
            "",
            r#"for path in /x /usr/x /etc/x /etc/passwd /run/x /dev/x; do
                 if (: >>"$path") 2>/dev/null; then echo "$path"; fi; done
               : >/tmp/x && : >/var/tmp/x && : >/workspace/x && : >/dev/shm/x && id -un"#,
            &[],
        )
        .ended(0);
    assert_eq!(ran.out, "sandbox\n");
}

#[test]
fn what_is_read_cannot_be_written() {
    let world = ready!();
    let folder = world.folder("in");
    world.file("in/file", "content\n");
    let script = r#"cat "$1/file"; cd "$1"
        for try in ': >new' 'echo x >>file' 'rm file' 'mv file other' 'chmod 777 file' 'mkdir d' 'ln file l'; do
          (eval "$try") 2>/dev/null && echo "done: $try"; done; :"#;
    let ran = world.sh(&format!("--read {}", folder.display()), script, &[&folder]);
    assert_eq!(ran.ended(0).out, "content\n");
    assert_eq!(
        std::fs::read_to_string(folder.join("file")).unwrap(),
        "content\n"
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_mount_below_a_read_folder_is_read_only_too() {
    const TEST: &str = "a_mount_below_a_read_folder_is_read_only_too";
    let mut world = ready!();
    let folder = world.folder("in/below");
    if let Err(reason) = world.mounted(
        r#"mount -t tmpfs none "$1/in/below"; echo content >"$1/in/below/file"; chmod 666 "$1/in/below/file""#,
    ) {
        return skip(TEST, reason);
    }
    let ran = world.sh(
        &format!("--read {}", world.path("in").display()),
        r#"cat "$1/file"; (echo x >>"$1/file") 2>&1; (: >"$1/new") 2>&1; :"#,
        &[&folder],
    );
    if is_root() && ran.code == Some(126) && ran.err.contains("refuses mapped owners") {
        assert!(
            ran.err.contains("in/below") && ran.err.contains("chown"),
            "{}",
            ran.err
        );
        return skip(TEST, "tmpfs has no mapped owners on this kernel");
    }
    let ran = ran.ended(0);
    assert!(ran.out.starts_with("content\n"), "{}", ran.out);
    assert_eq!(
        ran.out.matches("Read-only file system").count(),
        2,
        "{}",
        ran.out
    );
}

#[test]
fn what_is_written_belongs_to_the_caller() {
    let world = ready!();
    let folder = world.folder("out");
    let ran = world.sh(
        &format!("--write {}", folder.display()),
        r#"umask 022; cd "$1"; echo made >file; mkdir -m 750 sub; echo deep >sub/file; chmod 640 file; stat -c '%u %g' . file"#,
        &[&folder],
    );
    let mine = std::fs::metadata(&folder).unwrap();
    assert_eq!(ran.ended(0).out, "1000 1000\n1000 1000\n");
    for (path, mode) in [("file", 0o640), ("sub", 0o750), ("sub/file", 0o644)] {
        let made = std::fs::metadata(folder.join(path)).unwrap();
        assert_eq!((made.uid(), made.gid()), (mine.uid(), mine.gid()), "{path}");
        assert_eq!(made.permissions().mode() & 0o7777, mode, "{path}");
    }
    assert_eq!(mine.uid(), nix::unistd::geteuid().as_raw());
}

#[test]
fn a_single_file_can_be_written_without_its_folder() {
    let world = ready!();
    let file = world.file("out/file", "before\n");
    world.file("out/other", "secret\n");
    let ran = world.sh(
        &format!("--write {}", file.display()),
        r#"echo after >"$1"; cat "$2""#,
        &[&file, &world.path("out/other")],
    );
    assert_eq!(ran.ended(1).out, "");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "after\n");
}

#[test]
fn a_workload_folder_and_other_places_inside() {
    let world = ready!();
    let (code, out) = (world.folder("code"), world.folder("out"));
    world.file("code/main", "echo run by $0\n");
    let flags = format!(
        "--workload {code} --read {code}:/opt/tool --write {out}:/workspace/out -C /workspace",
        code = code.display(),
        out = out.display()
    );
    let ran = world.sh(
        &flags,
        r#"sh /workload/main; sh /opt/tool/main; (: >/workload/x || : >/opt/tool/x) 2>/dev/null || echo kept; echo made >out/file; [ -e "$1" ] || echo gone"#,
        &[&code],
    );
    assert_eq!(
        ran.ended(0).out,
        "run by /workload/main\nrun by /opt/tool/main\nkept\ngone\n"
    );
    assert_eq!(std::fs::read_to_string(out.join("file")).unwrap(), "made\n");
}

#[test]
fn links_and_places_of_the_sandbox_itself_are_refused() {
    let world = ready!();
    let folder = world.folder("in");
    let link = world.path("link");
    symlink(&folder, &link).unwrap();
    let (folder, link) = (folder.display(), link.display());
    for (flags, said) in [
        (format!("--read {link}"), "symbolic link"),
        (format!("--write {link}"), "symbolic link"),
        (format!("--read {folder}:/proc/x"), "/proc/x"),
        (format!("--read {folder}:/dev/x"), "/dev/x"),
        (format!("--read {folder}:/sys"), "/sys"),
        (format!("--read {folder}:/"), "/"),
        (format!("--read {folder}:/a/../b"), "/a/../b"),
        (format!("--read {folder}:relative"), "relative"),
        (format!("--read {folder}/none"), "none"),
        (format!("--read {folder}:/x --write {folder}:/x"), "/x"),
    ] {
        let ran = world.exec(&flags, &["true"]);
        assert_eq!(ran.code, Some(125), "{flags}: {ran:#?}");
        assert!(ran.err.contains(said), "{flags}: {}", ran.err);
    }
    assert_eq!(world.evidence().runs().len(), 0);
}

#[test]
fn a_link_below_a_written_folder_leads_nowhere_outside() {
    let world = ready!();
    let folder = world.folder("out");
    let target = world.file("secret", "SEEN");
    symlink(&target, folder.join("link")).unwrap();
    let ran = world.sh(
        &format!("--write {}", folder.display()),
        r#"cat "$1/link"; echo changed >"$1/link"; :"#,
        &[&folder],
    );
    assert_eq!(ran.ended(0).out, "");
    assert_eq!(std::fs::read_to_string(target).unwrap(), "SEEN");
}

#[test]
fn ledger_and_keys_are_covered_wherever_they_are_shown() {
    let world = ready!();
    world.exec("", &["true"]).ended(0);
    let (ledger, keys) = (world.ledger(), world.keys());
    let before = std::fs::read(ledger.join("records/00000000.jsonl")).unwrap();
    assert!(std::fs::read_dir(&keys).unwrap().count() > 0);
    let base = world.path("");
    for access in ["--read", "--write"] {
        let flags = format!("{access} {}:/all", base.display());
        let ran = world.sh(
            &flags,
            r#"ls -A /all/state/containment-ledger/default /all/data/containment-ledger/keys
               cd /all/state/containment-ledger/default && (: >new) 2>/dev/null && echo wrote; ls /all"#,
            &[],
        );
        let ran = ran.ended(0);
        let shown =
            "/all/data/containment-ledger/keys:\n\n/all/state/containment-ledger/default:\n";
        assert!(ran.out.starts_with(shown), "{}", ran.out);
        // The ledger grows below the folder, and not by the workload.
        let nothing = world.last().execution.artifacts.unwrap();
        assert_eq!(nothing.count(), 0, "{nothing:?}");
        assert!(
            ran.out.contains("\nhome\n") && !ran.out.contains("wrote"),
            "{}",
            ran.out
        );
    }
    // What is evidence itself, or lies in it, is not shown under any name.
    for source in [ledger.clone(), ledger.join("records"), keys.clone()] {
        for access in ["--read", "--write", "--workload"] {
            let target = if access == "--workload" { "" } else { ":/r" };
            let flags = format!("{access} {}{target}", source.display());
            let ran = world.exec(&flags, &["true"]).ended(125);
            assert!(ran.err.contains("runner::plan::evidence"), "{}", ran.err);
        }
    }
    let after = std::fs::read(ledger.join("records/00000000.jsonl")).unwrap();
    assert!(after.starts_with(&before));
    assert_eq!(world.evidence().runs().len(), 3);
}

#[test]
fn evidence_that_a_mount_shows_under_another_name_is_covered() {
    const TEST: &str = "evidence_that_a_mount_shows_under_another_name_is_covered";
    let mut world = ready!();
    world.exec("", &["true"]).ended(0);
    let mounted = world.mounted(
        r#"cd "$1"; mkdir -p m/data m/records alone; chmod -R a+rX m alone
           mount --bind data m/data; mount --bind state/containment-ledger/default/records m/records
           mount --bind data/containment-ledger/keys alone"#,
    );
    if let Err(reason) = mounted {
        return skip(TEST, reason);
    }
    let ran = world.exec(
        &format!("--read {}:/alone", world.path("alone").display()),
        &["true"],
    );
    assert!(ran.ended(125).err.contains("runner::plan::evidence"));
    let m = world.path("m");
    for access in ["--read", "--write"] {
        let ran = world.sh(
            &format!("{access} {}:/m", m.display()),
            r#"cd /m && ls -A data; ls -A data/containment-ledger/keys records
               (: >records/new || mv data/containment-ledger data/x || rmdir records) 2>/dev/null && echo changed; :"#,
            &[],
        );
        assert_eq!(
            ran.ended(0).out,
            "containment-ledger\ndata/containment-ledger/keys:\n\nrecords:\n",
            "{access}"
        );
        assert!(world.last().declares("filesystem"));
    }
}

#[test]
fn evidence_stays_where_it_is_without_a_list_of_protected_paths() {
    let world = ready!();
    world.exec("", &["true"]).ended(0);
    let policy = world.policy(|policy| policy["filesystem"]["protect"] = serde_json::json!([]));
    let flags = format!(
        "-P {} --write {}:/all",
        policy.display(),
        world.path("").display()
    );
    let ran = world.sh(
        &flags,
        r#"cd /all; for path in state state/containment-ledger state/containment-ledger/default data data/containment-ledger; do
             mv "$path" moved 2>/dev/null && echo "moved $path"; done; echo free >file && cat file"#,
        &[],
    );
    assert_eq!(ran.ended(0).out, "free\n");
    assert!(world.last().declares("filesystem"));
    // Pins that fail, and pins that have no effect, are both found.
    for fault in ["protect=fail", "protect=void"] {
        let mut command = world.exec_command(&flags, &["true"]);
        let ran = Ran::of(command.env("RUNNER_FAULT", fault).output().unwrap()).ended(126);
        assert!(ran.err.contains("protect-failed"), "{fault}: {}", ran.err);
    }
}

#[test]
fn the_hosts_kernel_file_systems_are_not_shown() {
    const TEST: &str = "the_hosts_kernel_file_systems_are_not_shown";
    let mut world = ready!();
    for source in ["/proc", "/proc/self", "/sys", "/sys/class/net"] {
        if std::fs::symlink_metadata(source).is_ok_and(|found| found.is_dir()) {
            let ran = world.exec(&format!("--read {source}:/k"), &["true"]);
            let ran = ran.ended(125);
            assert!(ran.err.contains("runner::plan::kernel"), "{}", ran.err);
        }
    }
    let mounted =
        world.mounted(r#"mkdir -p "$1/m/p"; chmod -R a+rX "$1/m"; mount --rbind /proc "$1/m/p""#);
    if let Err(reason) = mounted {
        return skip(TEST, reason);
    }
    let flags = format!("--read {}:/m", world.path("m").display());
    let ran = world.sh(&flags, "ls -A /m /m/p", &[]);
    if is_root() {
        let said = ran.ended(126).err;
        assert!(
            said.contains("file system of the kernel (proc)") && !said.contains("chown"),
            "{said}"
        );
        return;
    }
    assert_eq!(ran.ended(0).out, "/m:\np\n\n/m/p:\n");
    let run = world.last();
    assert!(run.declares("process") && run.declares("network"));
}

#[test]
fn secrets_are_files_inside_and_values_are_nowhere_in_the_ledger() {
    let value = "value-3f9c1d7a";
    let world = ready!()
        .with("TOKEN", format!("{value}-token"))
        .with("PASSED", format!("{value}-passed"));
    let policy = world.policy(|policy| {
        policy["process"]["environment"]["BY_POLICY"] = format!("{value}-policy").into();
    });
    let ran = world.sh(
        &format!(
            "-P {} --secret TOKEN --env PASSED --env GIVEN={value}-given",
            policy.display()
        ),
        r#"cat /run/secrets/TOKEN | tr a-z A-Z; stat -c ' %a %u' /run/secrets/TOKEN; stat -f -c %T /run/secrets
           (: >>/run/secrets/TOKEN) 2>/dev/null && echo wrote
           [ -z "$TOKEN" ] && echo "$PASSED $GIVEN $BY_POLICY" | tr a-z A-Z"#,
        &[],
    );
    let upper = value.to_uppercase();
    assert_eq!(
        ran.ended(0).out,
        format!("{upper}-TOKEN 400 1000\ntmpfs\n{upper}-PASSED {upper}-GIVEN {upper}-POLICY\n")
    );
    let bytes = world.ledger_bytes();
    assert!(
        contains(&bytes, "BY_POLICY") && contains(&bytes, "PASSED") && contains(&bytes, "GIVEN")
    );
    assert!(!contains(&bytes, value), "a value is in the ledger");
    // Nor in what the runner's own pid 1 could show.
    let ran = world.sh(
        &format!("-P {} --secret TOKEN", policy.display()),
        "cat /proc/1/environ /proc/1/cmdline 2>/dev/null | tr a-z A-Z; env | grep TOKEN; :",
        &[],
    );
    assert!(!ran.ended(0).out.contains(&upper));
}

#[test]
fn the_runner_cannot_be_written_from_inside() {
    let world = ready!();
    let runner = Path::new(env!("CARGO_BIN_EXE_runner"));
    let before = std::fs::read(runner).unwrap();
    let ran = world.sh(
        "",
        r#"(cat /proc/1/exe >/tmp/copy) 2>/dev/null && echo read
           (echo x >>/proc/1/exe) 2>/dev/null && echo wrote
           for fd in /proc/1/fd/*; do (echo x >>"$fd") 2>/dev/null && echo "$fd"; done; :"#,
        &[],
    );
    assert_eq!(ran.ended(0).out, "");
    assert!(
        std::fs::read(runner).unwrap() == before,
        "the runner's file changed"
    );
}
