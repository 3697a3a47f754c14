//! Runtime templates, and those under tests/fakes that lie on purpose: each does what its description says.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use ledger::facts::control::Control;
use ledger::facts::execution::Outcome;
use runner::runtime::template::Template;

use crate::faults::with_planted;
use crate::world::{Ran, World, program, skip};

/// The one that is called so.
pub(crate) fn fake(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes");
    folder.join(format!("{name}.json"))
}

/// All of them.
fn all() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// A policy that asks for every control, and lets everything run.
fn policy(world: &World) -> PathBuf {
    world.policy(|policy| {
        let all: Vec<&str> = Control::ALL.iter().map(|one| one.as_str()).collect();
        policy["enforcement"]["mode"] = "best-effort".into();
        policy["enforcement"]["requiredControls"] = all.into();
        let resources = &mut policy["resources"];
        for (name, limit) in [
            ("timeoutMs", 3_000),
            ("memoryMb", 512),
            ("processes", 256),
            ("cpuMillis", 1_000),
        ] {
            resources[name] = limit.into();
        }
    })
}

const INPUT: &str = "nonce=0123456789abcdef0123456789abcdef\nend\n";

/// Runs a workload in a fake, with the standard input of a probe.
fn run(world: &World, name: &str, workload: &[&str]) -> Ran {
    use std::io::Write as _;
    let runtime = fake(name);
    let flags = format!(
        "--runtime {} --allow-native -P {}",
        runtime.display(),
        policy(world).display()
    );
    let mut command = world.exec_command(&flags, workload);
    with_planted(&mut command);
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Who reads nothing may be gone already.
    let _ = child.stdin.take().unwrap().write_all(INPUT.as_bytes());
    Ran::of(child.wait_with_output().unwrap())
}

#[test]
fn each_is_a_template_of_its_own_name() {
    let names = all();
    assert_eq!(names.len(), 11, "{names:?}");
    for name in &names {
        let world = World::new();
        let shown = world.run(&format!("--json runtimes {}", fake(name).display()));
        let shown = shown.ended(0).json();
        let shown = shown.as_array().unwrap();
        let shown = shown.iter().find(|one| one["id"] == name.as_str());
        assert_eq!(shown.unwrap()["isolates"], false, "{name}");
        let template = Template::load(&fake(name)).unwrap();
        assert!(template.declares().count() > 0, "{name}");
    }
}

#[test]
fn those_that_run_nothing_run_nothing() {
    let world = World::new();
    let marker = world.path("home/marker");
    let touch = ["sh", "-c", "echo ran >marker; echo out"];
    for (name, outcome, status, says) in [
        ("deny-all", Outcome::Exited, 1, "permission denied"),
        ("silent", Outcome::Exited, 0, ""),
        ("offline", Outcome::Exited, 125, "cannot fetch"),
        ("hanging", Outcome::Timeout, 124, ""),
        ("crashing", Outcome::Signaled, 128 + libc::SIGSEGV, ""),
    ] {
        let ran = run(&world, name, &touch).ended(status);
        assert_eq!(ran.out, "", "{name}");
        assert!(ran.err.contains(says), "{name}: {}", ran.err);
        assert!(!marker.exists() && !world.path("home/work/marker").exists());
        let run = world.last();
        assert_eq!(run.execution.result.outcome, outcome, "{name}");
        assert_eq!(run.start.controls.declared.len(), Control::ALL.len());
        assert_eq!(run.start.key_reachable, Some(true));
        assert_eq!(run.start.runtime.id, name);
        let hash = ledger::bytes::hash::Hash::of(&std::fs::read(fake(name)).unwrap()).to_string();
        let version = format!("1 template:{}", &hash[..16]);
        assert_eq!(run.start.runtime.version, version);
        // The shell is the runtime's program.
        assert!(run.start.runtime.sha256.is_some(), "{name}");
        assert_eq!(run.start.workload.program.sha256, None);
    }
}

#[test]
fn a_fake_that_does_nothing_runs_the_workload_bare_and_declares_everything() {
    let world = World::new().with("OF_THE_CALLER", "its own");
    let ran = run(
        &world,
        "no-op",
        &[
            "sh",
            "-c",
            "echo $OF_THE_CALLER; cat; test -e /proc/self/fd/7 && readlink /proc/self/ns/net",
        ],
    );
    let net = std::fs::read_link("/proc/self/ns/net").unwrap();
    let expected = format!("its own\n{INPUT}{}\n", net.display());
    assert_eq!(ran.ended(0).out, expected);
    let run = world.last();
    assert_eq!(run.start.controls.declared.len(), Control::ALL.len());
    assert_eq!(
        run.start.runtime.sha256, None,
        "it has no program of its own"
    );
    assert!(run.start.workload.program.sha256.is_some());
    assert_eq!(run.argv[0], "sh");
}

#[test]
fn liars_print_lines_of_the_row_without_running_anything() {
    let world = World::new();
    let marker = world.path("home/work/probe");
    for (name, nonce) in [
        ("liar-static", "0".repeat(32)),
        (
            "liar-copying",
            "0123456789abcdef0123456789abcdef".to_owned(),
        ),
    ] {
        let ran = run(&world, name, &[marker.to_str().unwrap(), "network"]).ended(0);
        let lines: Vec<&str> = ran.out.lines().collect();
        assert!(lines.len() > 3, "{name}: {ran:#?}");
        for text in lines {
            let line: ledger::facts::probe::ProbeLine = text.parse().unwrap();
            let id = line.check_id().unwrap();
            assert!(id.starts_with("network/"), "{text}");
            assert_eq!(line.nonce.unwrap().to_string(), nonce, "{text}");
        }
    }
}

#[test]
fn a_root_in_memory_holds_nothing_but_the_program() {
    let name = "a_root_in_memory_holds_nothing_but_the_program";
    let world = World::new();
    // A program that needs another file is not found.
    let ran = run(&world, "fresh-tmpfs-root", &["/bin/sh", "-c", "echo ran"]);
    if ran.err.contains("Operation not permitted") {
        return skip(name, &ran.err);
    }
    assert_eq!(ran.code, Some(127), "{ran:#?}");
    assert!(ran.err.contains("/probe"), "{ran:#?}");
    let run_static = |name: &str, arguments: [&str; 2]| {
        let path = program(name)?;
        let [first, second] = arguments;
        let workload = [path.to_str().unwrap(), first, second];
        Some(run(&world, "fresh-tmpfs-root", &workload))
    };
    // Debian's is static; without the file that it is to print it says so.
    if let Some(ran) = run_static("busybox", ["ls", "/"]) {
        assert_eq!(ran.ended(0).out, "probe\n");
    } else if let Some(ran) =
        run_static("ldconfig", ["-p", "-v"]).filter(|ran| ran.code != Some(127))
    {
        assert!(ran.err.contains("/etc/ld.so.cache"), "{ran:#?}");
    } else {
        skip(name, "no static program");
    }
}

#[test]
fn a_network_with_a_way_out_has_an_interface_and_a_default_route() {
    let name = "a_network_with_a_way_out_has_an_interface_and_a_default_route";
    let world = World::new();
    if program("ip").is_none() {
        return skip(name, "no ip (iproute2)");
    }
    let script =
        "readlink /proc/self/ns/net; ip -oneline route show default; ip -oneline link show up";
    let ran = run(&world, "pasta-like", &["sh", "-c", script]);
    if ran.code != Some(0) {
        return skip(name, &ran.err);
    }
    let net = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert!(!ran.out.contains(net.to_str().unwrap()), "{ran:#?}");
    assert!(ran.out.contains("default via 198.18.0.1"), "{ran:#?}");
    assert!(ran.out.contains("out@far"), "{ran:#?}");
}

#[test]
fn a_template_must_be_allowed_and_be_one() {
    let world = World::new();
    let no_op = fake("no-op");
    let flags = format!("--runtime {}", no_op.display());
    let ran = world.exec(&flags, &["true"]).ended(125);
    assert!(ran.err.contains("--allow-native"), "{}", ran.err);
    let wrong = world.file("wrong.json", "{\"id\":\"a\",\n\"declare\":[]}");
    let flags = format!("--allow-native --runtime {}", wrong.display());
    let ran = world.exec(&flags, &["true"]).ended(125);
    assert!(
        ran.err.contains("wrong.json") && ran.err.contains("line 2"),
        "{}",
        ran.err
    );
    let ran = world
        .exec("--allow-native --runtime ./none.json", &["true"])
        .ended(125);
    assert!(ran.err.contains("none.json"), "{}", ran.err);
    world.run(&format!("runtimes {}", wrong.display())).ended(2);
    let shown = world.run(&format!("runtimes {}", no_op.display())).ended(0);
    assert!(shown.out.contains("no-op") && shown.out.contains("network, filesystem"));
    let plan = format!("plan --allow-native --runtime {} -- true", no_op.display());
    let plan = world.run(&plan).ended(0);
    assert!(
        plan.out.contains("runtime no-op") && plan.out.contains("none at all"),
        "{}",
        plan.out
    );
    assert!(!world.ledger().exists(), "nothing was to be recorded");
}

#[test]
fn a_template_without_a_way_to_leave_a_control_out_runs_nothing() {
    let world = World::new().with("RUNNER_ABLATE", "network");
    let marker = world.path("home/work/marker");
    let touch = ["sh", "-c", "echo ran >marker"];
    let ran = run(&world, "silent", &touch).ended(125);
    assert!(ran.err.contains("ablation-not-possible"), "{}", ran.err);
    assert_eq!(
        world.last().reason("network"),
        Some("ablation-not-possible")
    );
    assert!(!marker.exists());
    // And one with a way runs by that.
    run(&world, "no-op", &touch).ended(0);
    assert!(marker.exists());
    let run = world.last();
    assert_eq!(run.reason("network"), Some("ablated"));
    assert_eq!(run.start.controls.declared.len(), Control::ALL.len() - 1);
}

#[test]
fn a_missing_program_of_a_runtime_is_told() {
    let world = World::new();
    let text = r#"{"id":"gone","declares":[{"control":"network","mechanism":"m"}],"command":["no-such-sandbox","{program}","{arguments}"]}"#;
    let runtime = world.file("gone.json", text);
    let flags = format!(
        "--runtime {} --allow-native -P {}",
        runtime.display(),
        policy(&world).display()
    );
    let ran = world.exec(&flags, &["true"]).ended(125);
    assert!(
        ran.err.contains("could not launch")
            && ran
                .err
                .contains("no-such-sandbox of the runtime gone: ENOENT"),
        "{}",
        ran.err
    );
    assert_eq!(world.last().reason("network"), Some("not-launched"));
}

#[test]
fn the_schema_knows_the_fields_and_the_controls() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/runtime.schema.json");
    let schema: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let known: Vec<&str> = Control::ALL.iter().map(|one| one.as_str()).collect();
    assert_eq!(schema["$defs"]["Control"]["enum"], serde_json::json!(known));
    // A document with every field of the schema is one; without one that is required it is none. Of `version` and
    // `versionCommand` it has one.
    let mut whole = serde_json::json!({
        "id": "a", "version": "1", "versionCommand": ["v"], "description": "d",
        "sources": ["https://example.com/"], "needs": ["n"], "ran": [{ "version": "1", "on": "o" }],
        "declares": [{ "control": "network", "mechanism": "m", "value": "v" }],
        "calibration": ["getcpu"], "command": ["x", "-y", "{program}"], "environment": "inherit",
        "folders": ["f"], "files": { "g.json": { "h": ["{variable}"] } }, "cleanup": [["z", "{name}"]],
        "flags": [{ "words": ["-y"], "reason": "control", "controls": ["network"], "why": "w" }],
        "ablations": { "network": { "command": ["x", "-y"], "environment": "clear", "replace": [{ "words": ["-y"], "by": [] }] } },
    });
    let fields: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let mut of_whole: Vec<&String> = whole.as_object().unwrap().keys().collect();
    of_whole.sort();
    let mut sorted = fields.clone();
    sorted.sort();
    assert_eq!(sorted, of_whole);
    let parse = |value: &serde_json::Value| {
        Template::parse(Path::new("t.json"), value.to_string().as_bytes())
    };
    assert!(
        parse(&whole)
            .unwrap_err()
            .to_string()
            .contains("versionCommand")
    );
    let command = whole.as_object_mut().unwrap().remove("versionCommand");
    parse(&whole).unwrap();
    let mut asked = whole.clone();
    asked.as_object_mut().unwrap().remove("version");
    asked["versionCommand"] = command.unwrap();
    parse(&asked).unwrap();
    for field in fields
        .into_iter()
        .filter(|field| *field != "versionCommand")
    {
        let mut without = whole.clone();
        without.as_object_mut().unwrap().remove(field);
        let required = schema["required"].as_array().unwrap();
        let is_required = required.iter().any(|one| one == field.as_str());
        assert_eq!(parse(&without).is_err(), is_required, "{field}");
    }
}
