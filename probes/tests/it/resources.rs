//! Limits, small ones: what passes them bare, and what a limit of the shell refuses.

use std::process::Command;

use ledger::facts::probe::Twin;

use crate::{Said, skip};

fn limited(limit: &str, control: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit {limit}; exec \"$0\" {control}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_probe")]);
    command
}

#[test]
fn open_files() {
    Said::run("files", &[("limit", "16")]).escaped("open");
    let said = Said::by(&mut limited("-n 40", "files"), "files", &[("limit", "40")]);
    said.contained("open", "EMFILE", Twin::Ok);
    // A limit that its own process may raise is none.
    let said = Said::by(
        &mut limited("-S -n 40", "files"),
        "files",
        &[("limit", "40")],
    );
    said.escaped("open");
    let said = Said::by(&mut limited("-n 20", "files"), "files", &[("limit", "400")]);
    said.contained("open", "EMFILE", Twin::Failed);
}

#[test]
fn memory_tasks_time_and_disk_without_a_limit() {
    let said = Said::run("memory", &[("bytes", "4194304")]);
    for check in ["touch", "children", "tmpfs"] {
        said.escaped(check);
        assert_eq!(
            said.line(check).twin,
            Some(Twin::Ok),
            "{}",
            said.line(check)
        );
    }
    let said = Said::run("processes", &[("limit", "3")]);
    said.escaped("fork");
    said.escaped("threads");
    Said::run("disk", &[("bytes", "65536")]).escaped("quota");
    Said::run("cpu", &[("millis", "20")]).escaped("quota");
}

#[test]
fn a_limit_of_the_address_space_refuses_one_process_and_not_four() {
    // Room for the program and 64 MiB, budget 48 MiB: 96 MiB do not fit, and four times 24 do.
    let mut command = limited("-v 98304", "memory");
    let said = Said::by(&mut command, "memory", &[("bytes", "50331648")]);
    said.contained("touch", "ENOMEM", Twin::Ok);
    said.escaped("children");
}

#[test]
fn filters_and_privileges_of_a_bare_process() {
    let said = Said::run("syscalls", &[]);
    said.escaped("calibration");
    said.escaped("after-exec");
    let said = Said::run("privilege", &[]);
    let again = Said::by(
        Command::new("setpriv").args(["--no-new-privs", env!("CARGO_BIN_EXE_probe"), "privilege"]),
        "privilege",
        &[],
    );
    if said.detail("no-new-privs").contains("says 1") {
        return skip(
            "filters_and_privileges_of_a_bare_process",
            "the test itself has no_new_privs",
        );
    }
    // As root, too, whose capability would answer in its place.
    said.escaped("no-new-privs");
    let line = again.line("no-new-privs");
    assert_eq!(
        (line.result.as_str(), line.twin),
        ("contained", Some(Twin::Ok)),
        "{line}"
    );
}
