//! The bwrap runtime: what it contains, what it says where bubblewrap is missing or cannot, and what it is told.

mod failing;
mod obedience;
mod told;

use crate::matrix::{some_rows, verdicts};
use crate::world::{SUPPORTED, World, is_root, program, skip};

/// Checks that the run of an ordinary user measures as well as root's.
const MEASURED: [&str; 10] = [
    "network/tcp4",
    "filesystem/read",
    "filesystem/evidence",
    "process/visibility",
    "process/signal",
    "environment/inherited",
    "privilege/no-new-privs",
    "syscalls/calibration",
    "user/inside",
    "descriptors/inherited",
];

/// A world in which bubblewrap can be used; says why not and returns from the test.
macro_rules! with_bwrap {
    () => {{
        fn here() {}
        let test = std::any::type_name_of_val(&here).trim_end_matches("::here");
        if $crate::world::program("bwrap").is_none() {
            return $crate::world::skip(test, "no bwrap (bubblewrap)");
        }
        $crate::world::ready!()
    }};
}
pub(crate) use with_bwrap;

fn contains_all(world: &World) {
    let suite = some_rows(world, &SUPPORTED);
    let ran = world.run(&format!(
        "matrix --json --strict --runtime bwrap --suite {suite}"
    ));
    let found = verdicts(&ran);
    for (check, (verdict, reason)) in &found {
        let fine = verdict == "contained"
            || (verdict == "not-applicable" && reason == "host-forbids")
            // Reading pid 1 is refused without a sandbox, too.
            || (check == "process/pid1" && verdict == "inconclusive" && reason == "baseline-contained");
        assert!(fine, "{check} is {verdict} ({reason}): {}", ran.out);
    }
    for check in MEASURED {
        assert_eq!(found[check].0, "contained", "{check}: {}", ran.out);
    }
    assert_eq!(ran.code, Some(0), "{ran:#?}");
}

#[test]
fn bwrap_contains_what_it_declares() {
    contains_all(&with_bwrap!());
}

#[test]
fn bwrap_contains_what_it_declares_for_an_ordinary_user() {
    const TEST: &str = "bwrap_contains_what_it_declares_for_an_ordinary_user";
    let _ = with_bwrap!();
    if !is_root() {
        return skip(TEST, "the other test is this one");
    }
    if let Some(world) = World::of_user(TEST, &[]) {
        contains_all(&world);
    }
}

#[test]
fn a_denied_call_escapes_bare_and_from_bwrap_without_a_filter_and_not_with_one() {
    let world = with_bwrap!();
    let template = serde_json::json!({
        "id": "bwrap-without-filter",
        "declares": [],
        "command": ["bwrap", "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
            "--", "{program}", "{arguments}"],
    });
    let template = world.file("without-filter.json", &template.to_string());
    let suite = some_rows(&world, &["syscalls"]);
    for (runtime, expected) in [
        ("native", "escaped"),
        (template.to_str().unwrap(), "escaped"),
        ("bwrap", "contained"),
    ] {
        let ran = world.run(&format!(
            "matrix --json --allow-native --runtime {runtime} --suite {suite}"
        ));
        let found = verdicts(&ran.ended(0));
        let (verdict, _) = &found["syscalls/calibration"];
        assert_eq!(verdict, expected, "{runtime}: {found:?}");
    }
}

#[test]
fn a_run_in_bwrap_is_recorded_as_one() {
    let world = with_bwrap!();
    let ran = world.sh("--runtime bwrap", "echo out; echo err >&2; exit 7", &[]);
    let ran = ran.ended(7);
    assert_eq!(
        (ran.out.as_str(), ran.err.contains("err\n")),
        ("out\n", true)
    );
    let run = world.last();
    let runtime = &run.start.runtime;
    let version = std::process::Command::new("bwrap")
        .arg("--version")
        .output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    assert_eq!(format!("bubblewrap {}\n", runtime.version), version);
    let file = std::fs::read(program("bwrap").unwrap()).unwrap();
    assert_eq!(runtime.sha256, Some(ledger::bytes::hash::Hash::of(&file)));
    assert_eq!(runtime.tier.as_deref(), Some("full"));
    assert_eq!(run.stdout.unwrap().bytes.value(), 4);
    let shell = run.start.workload.program;
    assert!(shell.sha256.is_some(), "{shell:?}");
    let uid = run.execution.observed.unwrap().uid.unwrap();
    assert_ne!(uid, 0, "never host root");
    let own = nix::unistd::geteuid().as_raw();
    assert!(is_root() || uid == own);
}

#[test]
fn auto_takes_bwrap_where_embedded_cannot_and_says_so() {
    let world = with_bwrap!();
    world.exec("", &["true"]).ended(0);
    assert_eq!(world.last().start.runtime.id, "embedded");
    // The kernel refuses the namespaces of the runner's own sandbox.
    let world = world.with("RUNNER_FAULT", "namespace-mount=fail");
    let ran = world.exec("", &["true"]).ended(0);
    let why = "runtime bwrap, because embedded cannot do all that is requested: no-user-namespace";
    assert!(ran.err.contains(why), "{}", ran.err);
    assert_eq!(world.last().start.runtime.id, "bwrap");
    // What was not bwrap's doing is told and recorded beside what was.
    let instead = "instead of embedded: no-user-namespace (EPERM)";
    for (flags, code) in [("", 126), ("--best-effort", 125)] {
        // Its trial and its start differ in this word.
        let world = failing::refuses(World::new(), "--block-fd", "bwrap: cannot today");
        let world = world.with("RUNNER_FAULT", "namespace-mount=fail");
        let ran = world.exec(flags, &["true"]).ended(code);
        for words in ["bwrap: cannot today", instead] {
            assert!(ran.says(words), "{words}: {}", ran.err);
        }
        let run = world.last();
        assert_eq!(run.start.runtime.id, "bwrap");
        let reason = run.reason("filesystem").unwrap();
        assert_eq!(
            reason,
            format!("launcher-failed (bwrap: cannot today; {instead})")
        );
    }
    // Nor is a program that is not found.
    let ran = world.exec("", &["/no/such/program"]).ended(127);
    assert!(!ran.err.contains("instead"), "{}", ran.err);
    // Neither: the first says what it lacks.
    let world = world.with("PATH", "/nowhere");
    let ran = world.exec("", &["/bin/true"]).ended(126);
    assert!(ran.err.contains("no-user-namespace"), "{}", ran.err);
    assert_eq!(world.last().start.runtime.id, "embedded");
}
