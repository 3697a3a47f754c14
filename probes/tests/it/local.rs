//! Files, processes, variables, descriptors, ids.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use ledger::facts::probe::{ProbeResult, Twin};

use crate::{Said, feed, parameters, program, skip};

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn planted_files_are_read_changed_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let (secret, canary, allowed) = (place("secret"), place("canary"), place("allowed"));
    let (tree, key) = (place("tree"), place("key.pem"));
    fs::write(&secret, "containment-11aa").unwrap();
    fs::write(&canary, "as it was").unwrap();
    fs::write(&allowed, "00112233aabbccdd\n").unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("containment-22bb"), "").unwrap();
    fs::write(&key, "-----BEGIN PRIVATE KEY-----\nMC4CAQ\n").unwrap();
    let inode = fs::metadata(&canary).unwrap().ino();
    let values = [
        ("read", text(&secret)),
        ("write", text(&canary)),
        ("allowed", text(&allowed)),
        ("tree", text(&tree)),
        ("evidence", text(&key)),
    ];
    let said = Said::run("filesystem", &values);
    for check in ["read", "tree", "write", "traversal", "evidence"] {
        said.escaped(check);
        assert_eq!(said.line(check).twin, Some(Twin::Ok), "{check}");
    }
    for check in ["read", "traversal"] {
        assert!(
            said.detail(check).contains("containment-11aa"),
            "{}",
            said.detail(check)
        );
        assert!(
            said.detail(check).contains("allowed=00112233aabbccdd"),
            "{}",
            said.detail(check)
        );
    }
    assert!(said.detail("tree").contains("containment-22bb"));
    assert!(
        !said.detail("evidence").contains("MC4CAQ"),
        "a key is not printed"
    );
    for way in [
        "append", "mmap", "chmod", "truncate", "link", "create", "rename", "unlink",
    ] {
        assert!(
            said.detail("write").contains(way),
            "{way}: {}",
            said.detail("write")
        );
    }
    assert!(
        fs::metadata(&canary).map_or(0, |found| found.ino()) != inode,
        "it changed"
    );
}

#[test]
fn what_is_not_there_is_refused_beside_what_is() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = folder.path().join("allowed");
    fs::write(&allowed, "00112233aabbccdd").unwrap();
    let gone = folder.path().join("gone");
    let below = gone.join("deep/canary");
    let values = [
        ("read", text(&gone)),
        ("write", text(&below)),
        ("allowed", text(&allowed)),
        ("tree", text(&gone)),
        ("evidence", text(&gone)),
    ];
    let said = Said::run("filesystem", &values);
    for check in ["read", "tree", "write", "traversal", "evidence"] {
        said.contained(check, "ENOENT", Twin::Ok);
    }
    assert!(
        said.detail("write").contains("ephemeral"),
        "{}",
        said.detail("write")
    );
    assert!(!gone.exists(), "what was made for it is gone");
    let without = Said::run("filesystem", &[("read", text(&gone))]);
    assert_eq!(without.line("read").twin, Some(Twin::None));
}

#[test]
fn a_files_own_mode_is_no_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "containment-11aa").unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let program = folder.path().join("probe");
    install(&program);
    let user = fs::metadata(&secret).unwrap().uid();
    if user != 0 {
        return skip("a_files_own_mode_is_no_sandbox", "not root");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=12345", "--regid=12345", "--clear-groups"]);
    command.arg(&program).arg("filesystem");
    let said = Said::by(&mut command, "filesystem", &[("read", text(&secret))]);
    said.error("read", "instrument-missing: ");
    assert!(
        said.detail("read").contains("own mode"),
        "{}",
        said.detail("read")
    );
}

/// Puts a copy of the probe there, written by another process: a child that another test forks meanwhile has what this one has open
/// for writing, and until it executes its own program nobody can execute that (execve(2), ETXTBSY).
fn install(to: &std::path::Path) {
    let mut command = Command::new("install");
    let status = command
        .args(["-m", "755", env!("CARGO_BIN_EXE_probe")])
        .arg(to)
        .status();
    assert!(status.unwrap().success());
}

struct Canary(Child);

impl Canary {
    fn new() -> Self {
        Self(Command::new("sleep").arg("60").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn a_process_is_seen_and_gets_the_signal() {
    let mut canary = Canary::new();
    let values = [("pid", &*canary.pid()), ("comm", "sleep")];
    // Until it is `sleep`, it is another process.
    while fs::read_to_string(format!("/proc/{}/comm", canary.pid())).unwrap() != "sleep\n" {
        std::thread::yield_now();
    }
    let said = Said::run("process", &values);
    said.escaped("visibility");
    said.escaped("signal");
    let memory = said.line("memory");
    if memory.result != ProbeResult::Escaped {
        skip(
            "a_process_is_seen_and_gets_the_signal: memory",
            "this host keeps processes apart",
        );
    }
    let ended = canary.0.wait().unwrap();
    assert_eq!(ended.signal(), Some(10), "SIGUSR1");
}

#[test]
fn a_number_of_another_process_is_not_the_canary() {
    let mut canary = Canary::new();
    let said = Said::run(
        "process",
        &[("pid", &canary.pid()), ("comm", "containment-cana")],
    );
    said.contained("visibility", "ESRCH", Twin::Ok);
    said.contained("signal", "ESRCH", Twin::Ok);
    said.contained("memory", "ESRCH", Twin::Ok);
    assert!(canary.0.try_wait().unwrap().is_none(), "it lives");
    let said = Said::run("process", &[("pid", "-1")]);
    said.error("signal", "instrument-missing: ");
}

#[test]
fn variables_come_in_pairs() {
    let values = [
        ("absent", "CONTAINMENT_ABSENT"),
        ("present", "CONTAINMENT_PRESENT=33cc"),
    ];
    let mut command = program();
    command
        .arg("environment")
        .env("CONTAINMENT_PRESENT", "33cc");
    Said::by(&mut command, "environment", &values).contained("inherited", "none", Twin::Ok);
    command.env("CONTAINMENT_ABSENT", "44dd");
    let said = Said::by(&mut command, "environment", &values);
    said.escaped("inherited");
    assert!(
        said.detail("inherited").contains("44dd"),
        "{}",
        said.detail("inherited")
    );
    assert!(
        said.detail("inherited").contains("33cc"),
        "{}",
        said.detail("inherited")
    );
    command
        .env_remove("CONTAINMENT_ABSENT")
        .env_remove("CONTAINMENT_PRESENT");
    Said::by(&mut command, "environment", &values).contained("inherited", "none", Twin::Failed);
}

#[test]
fn descriptors_that_were_left_open_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "containment-55ee").unwrap();
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            script,
            env!("CARGO_BIN_EXE_probe"),
            text(&secret),
            text(folder.path()),
        ]);
        command
    };
    let values = [("fd", "9"), ("fd", "8")];
    let mut open = shell(r#"exec 9<"$1" 8<"$2"; exec "$0" descriptors"#);
    let said = Said::by(&mut open, "descriptors", &values);
    said.escaped("inherited");
    assert!(
        said.detail("inherited").contains("containment-55ee"),
        "{}",
        said.detail("inherited")
    );
    assert!(
        said.detail("inherited")
            .contains("8 is a folder secret ..=opened"),
        "{}",
        said.detail("inherited")
    );
    let mut other = shell(r#"exec 3>&- 4>&- 5>&- 9>&- 8>&- 7<"$1"; exec "$0" descriptors"#);
    let said = Said::by(&mut other, "descriptors", &values);
    said.contained("inherited", "EBADF", Twin::Ok);
    assert!(
        said.detail("inherited")
            .contains("7 is a file containment-55ee"),
        "under another number"
    );
    // The program's own pipe is none that was left open.
    for own in ["3 is", "4 is", "5 is"] {
        assert!(
            !said.detail("inherited").contains(own),
            "{}",
            said.detail("inherited")
        );
    }
}

#[test]
fn ids_are_those_that_were_said_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let own = fs::metadata(folder.path()).unwrap();
    let inside = format!("{}:{}", own.uid() + 1, own.gid());
    Said::run("user", &[("inside", &inside)]).escaped("inside");
    Said::run("user", &[("inside", "1000")]).error("inside", "instrument-missing: ");
    if own.uid() == 0 {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=12345", "--regid=12345", "--clear-groups"]);
        let copy = folder.path().join("probe");
        install(&copy);
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        other.arg(copy).arg("user");
        let said = Said::by(&mut other, "user", &[("inside", "12345:12345")]);
        said.contained("inside", "none", Twin::Ok);
        said.contained("host", "none", Twin::Ok);
        let mut nobody = Command::new("setpriv");
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        nobody.arg(folder.path().join("probe")).arg("user");
        let said = Said::by(&mut nobody, "user", &[("inside", "65534:65534")]);
        said.error("inside", "instrument-missing: 65534 says nothing");
    }
}

#[test]
fn a_terminal_takes_what_is_typed_into_it() {
    const TEST: &str = "a_terminal_takes_what_is_typed_into_it";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("parameters");
    fs::write(&file, parameters(&[])).unwrap();
    let ready = Command::new("script").arg("--version").output();
    if !ready.is_ok_and(|output| output.status.success()) {
        return skip(TEST, "no script(1)");
    }
    let inside = format!(
        "'{}' terminal < '{}'",
        env!("CARGO_BIN_EXE_probe"),
        text(&file)
    );
    let output = feed(
        Command::new("script").args(["-qec", &inside, "/dev/null"]),
        b"",
    );
    let shown = String::from_utf8_lossy(&output.stdout);
    let start = shown.find("probe=terminal").unwrap();
    let line = shown[start..].lines().next().unwrap().trim_end();
    let legacy = fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
    if legacy.trim() == "0" {
        return skip(TEST, "dev.tty.legacy_tiocsti = 0");
    }
    assert!(line.contains("result=escaped errno=none twin=ok"), "{line}");
    // Its own other side saw it, too.
    assert!(shown.contains(&crate::secret()), "{shown}");
    Said::run("terminal", &[]).line("inject");
}
