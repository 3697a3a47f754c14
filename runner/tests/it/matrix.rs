//! `runner matrix` against the real sandbox, against none, and against runtimes that lie.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::fakes::fake;
use crate::kills::verdict_codes;
use crate::lanes::left;
use crate::verifier::{NO_VERIFIER, verdict, verifier};
use crate::world::{Ran, World, install_script, no_groups, program, ready, skip};

/// Verdict and reason of each check.
pub(crate) fn verdicts(ran: &Ran) -> BTreeMap<String, (String, String)> {
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["schema"], "runner/matrix/v1");
    let cells = document["cells"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let named = cells.iter().map(|cell| {
        let id = text(&cell["check"]);
        let control = id.split('/').next().unwrap_or_default();
        assert_eq!(cell["dimension"], control);
        (id, (text(&cell["verdict"]), text(&cell["reason"])))
    });
    named.collect()
}

/// The checks, in the order of the cells.
pub(crate) fn verdicts_in_order(ran: &Ran) -> Vec<String> {
    let cells = ran.json()["cells"].as_array().unwrap().clone();
    let names = cells.iter().map(|cell| cell["check"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

/// A suite of some of the runner's own rows, which takes less time than all.
pub(crate) fn some_rows(world: &World, controls: &[&str]) -> String {
    let text = include_str!("../../../probes/suite.json");
    let mut suite: serde_json::Value = serde_json::from_str(text).unwrap();
    let rows = suite["probes"].as_array_mut().unwrap();
    rows.retain(|row| controls.contains(&row["control"].as_str().unwrap()));
    assert_eq!(rows.len(), controls.len());
    let folder = world.folder(&format!("some-rows-{}", controls.join("-")));
    std::fs::write(folder.join("suite.json"), suite.to_string()).unwrap();
    folder.display().to_string()
}

/// What `verify` objects to in the ledger of a matrix of some rows: what the other controls declare was not measured, and
/// a liar declares another user than it runs as.
pub(crate) fn objects_to_nothing_else(world: &World) {
    let Some(codes) = verdict_codes(world) else {
        return;
    };
    assert!(
        codes
            .iter()
            .all(|code| ["declared-unmeasured", "user-differs"].contains(&code.as_str())),
        "{codes:?}"
    );
}

/// Rows that a sandbox of this runner contains on any host where they can be tried.
const CONTAINED: [&str; 11] = [
    "network",
    "filesystem",
    "environment",
    "privilege",
    "syscalls",
    "timeout",
    "output",
    "ipc",
    "descriptors",
    "terminal",
    "files",
];

#[test]
fn the_embedded_sandbox_contains_what_it_declares() {
    let world = ready!();
    let suite = some_rows(&world, &CONTAINED);
    let line = format!("matrix --json --strict --runtime embedded --suite {suite}");
    let mut command = world.command(line.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let ran = Ran::of(child.wait_with_output().unwrap());
    let found = verdicts(&ran);
    for (check, (verdict, reason)) in &found {
        let fine =
            verdict == "contained" || (verdict == "not-applicable" && reason == "host-forbids");
        assert!(fine, "{check} is {verdict} ({reason}): {}", ran.out);
    }
    for check in [
        "network/tcp4",
        "filesystem/read",
        "environment/inherited",
        "descriptors/inherited",
    ] {
        assert_eq!(found[check].0, "contained", "{check}");
    }
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    objects_to_nothing_else(&world);
    // Other tests kill runners meanwhile: what is left of those, the next of their own removes.
    assert_eq!(left(&world, &[pid]), Vec::<String>::new());
}

#[test]
fn without_a_sandbox_the_same_attacks_succeed() {
    let world = ready!();
    let suite = some_rows(&world, &["network", "filesystem", "ipc", "syscalls"]);
    let command = format!("matrix --json --runtime native --allow-native --suite {suite}");
    let ran = world
        .run(&format!("{command} --require native:network=escaped"))
        .ended(0);
    let found = verdicts(&ran);
    for check in [
        "network/tcp4",
        "filesystem/read",
        "filesystem/write",
        "ipc/unix",
        "syscalls/calibration",
    ] {
        assert_eq!(found[check].0, "escaped", "{check}: {}", ran.out);
    }
    let missed = world
        .run(&format!("{command} --require network=contained"))
        .ended(12);
    assert!(missed.err.contains("network=contained"), "{missed:#?}");
    world
        .run(&format!("matrix --runtime native --suite {suite}"))
        .ended(2);
    objects_to_nothing_else(&world);
}

#[test]
fn whoever_declares_and_does_nothing_is_a_false_guarantee() {
    let world = ready!();
    let rows = ["network", "filesystem", "ipc"];
    let suite = some_rows(&world, &rows);
    let no_op = fake("no-op").display().to_string();
    let ran = world.run(&format!(
        "matrix --json --strict --allow-native --runtime {no_op} --suite {suite}"
    ));
    assert_eq!(ran.code, Some(12), "{ran:#?}");
    let found = verdicts(&ran);
    for row in rows {
        let guarantees = found
            .iter()
            .filter(|(check, (verdict, _))| check.starts_with(row) && verdict == "false-guarantee");
        assert!(guarantees.count() > 0, "{row}: {found:#?}");
    }
    assert!(
        found.values().all(|(verdict, _)| verdict != "contained"),
        "{found:#?}"
    );
}

#[test]
fn who_says_contained_without_having_been_attacked_is_never_believed() {
    let world = ready!();
    let suite = some_rows(&world, &["network", "environment"]);
    for name in [
        "liar-static",
        "liar-copying",
        "silent",
        "deny-all",
        "crashing",
    ] {
        let runtime = fake(name).display().to_string();
        let ran = world.run(&format!(
            "matrix --json --allow-native --runtime {runtime} --suite {suite}"
        ));
        for (check, (verdict, reason)) in verdicts(&ran) {
            assert_eq!(verdict, "inconclusive", "{name}: {check} ({reason})");
        }
        assert_eq!(ran.code, Some(0), "{ran:#?}");
    }
    objects_to_nothing_else(&world);
}

#[test]
fn a_runtime_that_is_named_twice_is_a_usage_error_and_nothing_is_measured() {
    let world = World::new();
    let other = world.file(
        "other.json",
        &std::fs::read_to_string(fake("no-op")).unwrap(),
    );
    let twice = format!("{} --runtime {}", fake("no-op").display(), other.display());
    for (named, id) in [
        ("embedded --runtime embedded", "embedded"),
        (&twice, "no-op"),
    ] {
        let ran = world
            .run(&format!("matrix --allow-native --runtime {named}"))
            .ended(2);
        assert!(ran.says(&format!("{id} is named twice")), "{}", ran.err);
        assert!(!world.ledger().exists());
    }
}

#[test]
fn a_matrix_for_people_says_what_is_not_contained_and_why() {
    let world = ready!();
    let suite = some_rows(&world, &["network", "processes"]);
    let ran = world
        .run(&format!("matrix --runtime embedded --suite {suite}"))
        .ended(0);
    assert!(ran.out.contains("✓ contained"), "{}", ran.out);
    let gap = "not declared: ";
    match no_groups(&world) {
        Some(_) => assert!(ran.out.contains(gap), "{}", ran.out),
        None => assert!(!ran.out.contains(gap), "{}", ran.out),
    }
    assert!(
        ran.out.lines().all(|line| line.chars().count() <= 80),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains('\u{1b}'));
}

#[test]
fn limits_are_contained_where_there_are_groups_and_gaps_where_there_are_none() {
    let world = ready!();
    let has_groups = no_groups(&world).is_none();
    let suite = some_rows(&world, &["memory", "processes", "disk"]);
    // Half a CPU, and of a busy machine less, would be little for so much memory.
    let mut policy = world.run("policies containment-audit").json();
    policy["resources"]["cpuMillis"] = 4_000.into();
    let policy = world.file("policy.json", &policy.to_string());
    let policy = policy.display();
    let cpu = some_rows(&world, &["cpu"]);
    let installed = |runtime: &&str| *runtime == "embedded" || program(runtime).is_some();
    for runtime in ["embedded", "bwrap"].into_iter().filter(installed) {
        let command = format!("matrix --json --runtime {runtime} --suite");
        let ran = world.run(&format!("{command} {suite} -P {policy}"));
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        let mut found = verdicts(&ran);
        found.extend(verdicts(&world.run(&format!("{command} {cpu}"))));
        for (check, (verdict, reason)) in found {
            let expected: &[&str] = match check.as_str() {
                // It is inconclusive where others have the processors.
                "cpu/quota" if has_groups => &["contained", "inconclusive"],
                _ if has_groups || check == "disk/quota" => &["contained"],
                "cpu/quota" => &["escaped", "inconclusive"],
                _ => &["escaped"],
            };
            assert!(
                expected.contains(&verdict.as_str()),
                "{runtime} {check}: {verdict} ({reason})"
            );
        }
    }
    objects_to_nothing_else(&world);
}

#[test]
fn a_program_that_was_just_installed_measures_one_host() {
    let mut world = ready!();
    // Its file cannot be told from a later one for two seconds; three arms of this take longer.
    world.install_runner();
    let script = "#!/bin/sh\nsleep 1\necho probe=slow dimension=files check=slow result=contained errno=none\n";
    install_script(script, &world.folder("slow").join("probe.sh"));
    let suite = r#"{"schema":"containment-ledger/suite/v1","probes":[{"id":"slow","control":"files","risk":"controlled",
"program":{"path":"probe.sh"},"arguments":[],"arms":["baseline","ablation","run"],"checks":[{"check":"slow","oracle":"line","twin":"allowed","denied":["none"]}]}]}"#;
    let suite = world.file("slow/suite.json", suite);
    let folder = suite.parent().unwrap().display();
    world
        .run(&format!("matrix --runtime embedded --suite {folder}"))
        .ended(0);
    objects_to_nothing_else(&world);
    let kinds = world.evidence().kinds();
    let hosts = kinds.iter().filter(|kind| **kind == "host");
    assert_eq!(hosts.count(), 1, "{kinds:?}");
}

#[test]
fn a_whole_matrix_is_recorded_judged_again_and_carried_away() {
    let world = ready!();
    let ran = world.run("matrix --json --runtime embedded");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let found = verdicts(&ran);
    let suite: serde_json::Value =
        serde_json::from_str(include_str!("../../../probes/suite.json")).unwrap();
    let rows = suite["probes"].as_array().unwrap();
    let checks: usize = rows
        .iter()
        .map(|row| row["checks"].as_array().unwrap().len())
        .sum();
    assert_eq!(found.len(), checks);
    assert!(
        found
            .values()
            .all(|(verdict, _)| verdict != "false-guarantee"),
        "{found:#?}"
    );
    if let Some(codes) = verdict_codes(&world) {
        // A machine that is busy with something else leaves too little time to tell, in this arm or in that without the limit.
        let settled = |control: &str| {
            let mut of_it = found.iter().filter(|(id, _)| id.starts_with(control));
            of_it.any(|(_, (verdict, _))| verdict != "inconclusive")
        };
        let unsettled: Vec<_> = rows
            .iter()
            .map(|row| format!("{}/", row["control"].as_str().unwrap()))
            .filter(|control| !settled(control))
            .collect();
        let expected: &[&str] = match unsettled.as_slice() {
            [cpu] if cpu == "cpu/" && no_groups(&world).is_none() => &["declared-unmeasured"],
            [cpu] if cpu == "cpu/" => &[],
            _ => {
                assert!(unsettled.is_empty(), "{found:#?}");
                &[]
            }
        };
        assert_eq!(codes, expected);
    }
    // The next run names it.
    let file = world.path("bundle");
    world
        .run(&format!("bundle --matrix -o {}", file.display()))
        .ended(0);
    assert!(std::fs::metadata(&file).unwrap().len() > 10_000);
}

#[test]
fn a_run_that_relies_on_a_false_guarantee_is_told() {
    let world = ready!();
    let suite = some_rows(&world, &["descriptors"]);
    let no_op = fake("no-op").display().to_string();
    let audit = "-P containment-audit --allow-native --runtime";
    let exec = |runtime: &str, policy: &str| {
        world
            .exec(
                &format!("--allow-native --runtime {runtime} -P {policy}"),
                &["true"],
            )
            .ended(0);
        world.last().start
    };
    // Before there is a measurement there is none to name.
    assert_eq!(exec(&no_op, "containment-audit").matrix, None);
    let ran = world.run(&format!("matrix --json {audit} {no_op} --suite {suite}"));
    let measured = ran.ended(0).json();
    assert_eq!(measured["cells"][0]["verdict"], "false-guarantee");
    let matrix = measured["summary"]["sequence"].as_u64();
    assert!(matrix.is_some());
    let named = |start: ledger::facts::execution::Start| start.matrix.map(|at| at.value());
    assert_eq!(named(exec(&no_op, "containment-audit")), matrix);
    // Another runtime, another policy: nothing was measured of these.
    assert_eq!(named(exec("embedded", "containment-audit")), None);
    let other = world.policy(|policy| policy["id"] = "other".into());
    assert_eq!(named(exec(&no_op, &other.display().to_string())), None);
    // Nor of another document that calls itself by the same name.
    let text = std::fs::read_to_string(fake("no-op")).unwrap();
    let namesake = world.file("no-op.json", &format!("{text}\n"));
    let start = exec(&namesake.display().to_string(), "containment-audit");
    assert_eq!(start.runtime.id, "no-op");
    assert_eq!(named(start), None);
    let Some(verify) = verifier() else {
        return skip(
            "a_run_that_relies_on_a_false_guarantee_is_told",
            NO_VERIFIER,
        );
    };
    let judged = verdict(verify, &world.ledger(), None);
    judged.is(12, &["relies-on-false-guarantee"]);
    let told = judged.finding("relies-on-false-guarantee");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("descriptors") && message.contains("no-op"),
        "{message}"
    );
    // A newer matrix that shows another thing takes its place; the derived state is made again as it was.
    std::fs::remove_file(world.ledger().join("tip")).unwrap();
    assert_eq!(named(exec(&no_op, "containment-audit")), matrix);
    let measured = world.run(&format!("matrix --json {audit} {no_op} --suite {suite}"));
    let newer = measured.ended(0).json()["summary"]["sequence"].as_u64();
    assert_eq!(named(exec(&no_op, "containment-audit")), newer);
    assert!(newer > matrix);
}

#[test]
fn columns_stand_as_they_were_measured_wherever_they_are_shown() {
    let world = ready!();
    let suite = some_rows(&world, &["descriptors"]);
    let no_op = fake("no-op").display().to_string();
    // Neither the alphabet's order nor its reverse.
    let runtimes = ["native", "embedded", &no_op].map(|name| format!("--runtime {name}"));
    let line = format!(
        "matrix --allow-native --suite {suite} {}",
        runtimes.join(" ")
    );
    let measured = world.run(&line).ended(0).out;
    // Two to a line of 80 columns.
    let heads = measured
        .lines()
        .filter(|line| line.starts_with(&" ".repeat(28)));
    let names: Vec<_> = heads.flat_map(str::split_whitespace).collect();
    assert_eq!(names, ["native", "embedded", "no-op"]);
    let Some(verify) = verifier() else {
        return skip(
            "columns_stand_as_they_were_measured_wherever_they_are_shown",
            NO_VERIFIER,
        );
    };
    let shown = Command::new(verify)
        .arg("matrix")
        .arg(world.ledger())
        .output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let grid = |text: &str| {
        let at = text.find("\nmatrix ").map_or(0, |at| at + 1);
        let rest = &text[at..];
        let lines = rest.lines().take_while(|line| !line.starts_with('✗'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(grid(&shown), grid(&measured), "{shown}");
    assert!(grid(&shown).len() >= 4, "{shown}");
}
