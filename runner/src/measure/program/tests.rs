use std::io::Write;
use std::process::{Command, Stdio};

use ledger::facts::probe::{ProbeLine, ProbeResult};
use ledger::facts::suite::Suite;

use super::*;

fn suite() -> Suite {
    serde_json::from_str(SUITE).unwrap()
}

fn half_word(at: usize) -> usize {
    usize::from(u16::from_le_bytes([PROGRAM[at], PROGRAM[at + 1]]))
}

#[test]
fn the_suite_is_in_order() {
    suite().check().unwrap();
}

#[test]
fn the_program_needs_no_loader() {
    assert_eq!(
        &PROGRAM[..6],
        b"\x7fELF\x02\x01",
        "a 64-bit little-endian ELF file"
    );
    let table = usize::try_from(u64::from_le_bytes(PROGRAM[32..40].try_into().unwrap())).unwrap();
    let (size, count) = (half_word(54), half_word(56));
    let kinds: Vec<_> = (0..count)
        .map(|index| half_word(table + index * size))
        .collect();
    assert!(kinds.contains(&1), "something to load");
    assert!(!kinds.contains(&3), "PT_INTERP: it names a loader");
}

#[test]
fn it_answers_every_check_in_a_root_that_holds_nothing_else() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: it_answers_every_check_in_a_root_that_holds_nothing_else: not root");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("probe");
    // By another process: what this one has open for writing a child of another test's has, too, and nobody can execute it then.
    let draft = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(draft.path(), PROGRAM).unwrap();
    let mut install = Command::new("install");
    let installed = install.args(["-m", "755"]).args([draft.path(), &file]);
    assert!(installed.status().unwrap().success());
    for probe in suite().probes {
        let mut child = Command::new("chroot")
            .arg(root.path())
            .arg("/probe")
            .args(&probe.arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let parameters = "nonce=00112233445566778899aabbccddeeff\ninside=4000000:4000000\nfd=250\nabsent=CONTAINMENT_ABSENT\npresent=A=b\nend\n";
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(parameters.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {:?}", probe.id, output.status);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<ProbeLine> = text.lines().map(|line| line.parse().unwrap()).collect();
        let said: Vec<_> = lines.iter().map(|line| line.check_id().unwrap()).collect();
        let asked: Vec<_> = probe
            .checks
            .iter()
            .map(|check| probe.check_id(check))
            .collect();
        assert_eq!(said, asked);
        for line in lines {
            let detail = line.detail.as_ref().unwrap().to_string();
            let missing =
                detail.starts_with("instrument-missing") || detail.starts_with("path-present");
            assert_eq!(line.result == ProbeResult::Error, missing, "{line}");
        }
    }
}
