//! The probe program where something is odd: a filter that kills or that answers ENOSYS, forks that take their time, a user
//! namespace that maps one id or none, very many variables. What is odd is no containment, and no escape either.
//!
//! What a kernel or a filter would do to single calls, strace(1) does here.

use std::net::TcpListener;
use std::process::Command;

use ledger::facts::probe::Twin;

use crate::{Said, program, skip};

/// The program with calls interfered with, such as `getcpu:error=ENOSYS`; `None` where that cannot be had.
fn interfered(test: &str, how: &[&str], before: &[&str]) -> Option<Command> {
    let tamper = |program: &str| {
        let mut command = match before.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg("strace");
                command
            }
            None => Command::new("strace"),
        };
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "signal=none"]);
        let calls: Vec<&str> = how.iter().filter_map(|one| one.split(':').next()).collect();
        command.args(["-e", &format!("trace={}", calls.join(","))]);
        for one in how {
            command.args(["-e", &format!("inject={one}")]);
        }
        command.arg(program);
        command
    };
    match tamper("true").output() {
        Ok(output) if output.status.success() => Some(tamper(env!("CARGO_BIN_EXE_probe"))),
        Ok(output) => {
            skip(test, &String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            skip(test, &format!("strace: {error}"));
            None
        }
    }
}

#[test]
fn a_filter_that_answers_enosys_and_one_that_kills_are_refusals_of_a_call() {
    let test = "a_filter_that_answers_enosys_and_one_that_kills_are_refusals_of_a_call";
    for (how, errno) in [
        ("getcpu:error=ENOSYS", "ENOSYS"),
        ("getcpu:signal=SIGSYS", "SIGSYS"),
    ] {
        let Some(mut command) = interfered(test, &[how], &[]) else {
            return;
        };
        let said = Said::by(command.arg("syscalls"), "syscalls", &[]);
        said.contained("calibration", errno, Twin::Ok);
        said.contained("after-exec", errno, Twin::Ok);
    }
}

#[test]
fn a_filter_that_kills_the_attacker_itself_contains_nothing() {
    let test = "a_filter_that_kills_the_attacker_itself_contains_nothing";
    let Some(mut command) = interfered(test, &["socket:signal=SIGSYS"], &[]) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let values = [("tcp4", &*address), ("udp4", &*address)];
    let said = Said::by(command.arg("network"), "network", &values);
    for check in ["tcp4", "udp"] {
        said.error(check, "the check was ended by a signal");
        let errno = said.line(check).errno.as_ref().unwrap();
        assert_eq!(errno.to_string(), "SIGSYS");
    }
}

#[test]
fn without_landlock_a_filter_asks_the_same() {
    let test = "without_landlock_a_filter_asks_the_same";
    let none = ["landlock_create_ruleset:error=ENOSYS"];
    let Some(mut bare) = interfered(test, &none, &[]) else {
        return;
    };
    let Some(mut without) = interfered(test, &none, &["setpriv", "--no-new-privs"]) else {
        return;
    };
    let said = Said::by(bare.arg("privilege"), "privilege", &[]);
    if said.detail("no-new-privs").contains("says 1") {
        return skip(test, "the test itself has no_new_privs");
    }
    said.escaped("no-new-privs");
    assert!(said.detail("no-new-privs").contains("filter EACCES"));
    let said = Said::by(without.arg("privilege"), "privilege", &[]);
    said.contained("no-new-privs", "none", Twin::Ok);
    // As where a filter refuses what the kernel would have taken.
    let filtered = ["landlock_restrict_self:error=EPERM"];
    let Some(mut without) = interfered(test, &filtered, &["setpriv", "--no-new-privs"]) else {
        return;
    };
    let said = Said::by(without.arg("privilege"), "privilege", &[]);
    said.contained("no-new-privs", "none", Twin::Ok);
    // And where there is neither, nobody can be asked.
    let neither = [none[0], "seccomp:error=ENOSYS"];
    let Some(mut command) = interfered(test, &neither, &[]) else {
        return;
    };
    let said = Said::by(command.arg("privilege"), "privilege", &[]);
    said.error(
        "no-new-privs",
        "instrument-missing: neither landlock nor seccomp",
    );
}

#[test]
fn slow_forks_are_counted_when_all_are_there() {
    let test = "slow_forks_are_counted_when_all_are_there";
    // The last comes long after the first would have ended, had it not waited.
    let slow = ["clone,clone3,fork,vfork:delay_exit=10000"];
    let Some(mut command) = interfered(test, &slow, &[]) else {
        return;
    };
    let said = Said::by(command.arg("processes"), "processes", &[("limit", "24")]);
    said.escaped("fork");
    said.escaped("threads");
    assert!(said.detail("fork").starts_with("32 at once"));
    // Too slow to be counted in time is no limit.
    let slower = ["clone,clone3,fork,vfork:delay_exit=150000"];
    let Some(mut command) = interfered(test, &slower, &[]) else {
        return;
    };
    let said = Said::by(command.arg("processes"), "processes", &[("limit", "24")]);
    said.error("fork", "no answer within");
    said.error("threads", "no answer within");
}

/// The program in a user namespace of its own.
fn in_namespace(test: &str, flags: &[&str]) -> Option<Command> {
    let unshare = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(flags).arg(program);
        command
    };
    let tried = unshare("true").output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Some(unshare(env!("CARGO_BIN_EXE_probe")));
    }
    skip(test, "no user namespaces");
    None
}

#[test]
fn root_alone_in_a_namespace_is_nobodys_root() {
    let test = "root_alone_in_a_namespace_is_nobodys_root";
    let flags = ["--user", "--map-root-user"];
    let Some(mut command) = in_namespace(test, &flags) else {
        return;
    };
    // Map `0 0 1`, or the caller's id in its middle: it has all capabilities, and none of the host's.
    let said = Said::by(command.arg("privilege"), "privilege", &[]);
    said.contained("capabilities", "EPERM", Twin::Ok);
    let mut command = in_namespace(test, &flags).unwrap();
    let said = Said::by(command.arg("user"), "user", &[("inside", "0:0")]);
    said.contained("inside", "none", Twin::Ok);
    let mut command = in_namespace(test, &flags).unwrap();
    Said::by(command.arg("user"), "user", &[("inside", "1000:1000")]).escaped("inside");
}

#[test]
fn a_namespace_that_maps_nothing_has_no_user() {
    let test = "a_namespace_that_maps_nothing_has_no_user";
    let Some(mut command) = in_namespace(test, &["--user"]) else {
        return;
    };
    let said = Said::by(command.arg("user"), "user", &[("inside", "65534:65534")]);
    said.error(
        "inside",
        "instrument-missing: 65534 says nothing, uid_map is []",
    );
}

#[test]
fn the_number_of_variables_says_nothing() {
    let values = [
        ("absent", "CONTAINMENT_ABSENT"),
        ("present", "CONTAINMENT_PRESENT=33cc"),
    ];
    for count in [0, 13, 41, 200] {
        let mut command = program();
        command
            .arg("environment")
            .env_clear()
            .env("CONTAINMENT_PRESENT", "33cc")
            .envs((0..count).map(|number| (format!("VARIABLE_{number}"), "1")));
        let said = Said::by(&mut command, "environment", &values);
        said.contained("inherited", "none", Twin::Ok);
        command.env("CONTAINMENT_ABSENT", "44dd");
        Said::by(&mut command, "environment", &values).escaped("inherited");
    }
}

#[test]
fn a_process_whose_folder_can_be_entered_gives_it_away() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "containment-66ff").unwrap();
    let mut other = Command::new("sleep")
        .arg("60")
        .current_dir(&folder)
        .spawn()
        .unwrap();
    let pid = other.id().to_string();
    let values = [("pid", &*pid), ("comm", "sleep"), ("file", "secret")];
    let said = Said::run("process", &values);
    said.escaped("pid1");
    // In hexadecimal digits or as it is, for the runner to find.
    assert!(
        said.detail("pid1").contains("containment-66ff"),
        "{}",
        said.detail("pid1")
    );
    let _gone = other.kill();
    other.wait().unwrap();
}
