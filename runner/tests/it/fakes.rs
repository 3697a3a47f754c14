//! Runtime templates, and those under tests/fakes that lie on purpose: each does what its description says.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use ledger::facts::control::Control;
use ledger::facts::execution::Outcome;
use runner::runtime::template::Template;

use crate::faults::with_planted;
use crate::world::{Ran, World, install_script, program, skip};

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
    let text = r#"{"id":"gone","needs":["a program"],"declares":[{"control":"network","mechanism":"m"}],"command":["no-such-sandbox","{program}","{arguments}"]}"#;
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
                .contains("runtime-missing (no no-such-sandbox in PATH; gone needs a program)"),
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
        "id": "a", "version": "1", "versionCommand": ["x", "-v"], "description": "d",
        "sources": ["https://example.com/"], "needs": ["n"], "ran": [{ "version": "1", "on": "o" }],
        "declares": [{ "control": "network", "mechanism": "m", "value": "v" }],
        "calibration": ["getcpu"], "command": ["x", "-y", "{program}"], "environment": "inherit",
        "folders": ["f"], "files": { "g.json": { "h": ["{variable}"] } }, "cleanup": [["z", "{name}"]],
        "flags": [{ "words": ["-y"], "reason": "control", "controls": ["network"], "why": "w" }],
        "ablations": { "network": { "command": ["x", "-y", "{program}"], "environment": "clear", "replace": [{ "words": ["-y"], "by": [] }] } },
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

/// A script that is a program, in a folder of its own.
fn script(world: &World, folder: &str, name: &str, text: &str) -> PathBuf {
    let path = world.folder(folder).join(name);
    install_script(text, &path);
    path
}

#[test]
fn the_program_that_is_asked_is_the_one_that_is_launched() {
    let mut world = World::new();
    let sandbox = |version: &str| {
        format!(
            "#!/bin/sh\nif [ \"$1\" = --version ]; then echo box {version}; exit; fi\necho launched {version}\n"
        )
    };
    let asked = script(&world, "callers", "box", &sandbox("1.0"));
    let other = script(&world, "policys", "box", &sandbox("2.0"));
    let path = |program: &Path| format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    world = world.with("PATH", path(&asked));
    let policy = world.policy(|policy| {
        policy["enforcement"] = serde_json::json!({ "mode": "best-effort" });
        policy["process"]["environment"]["PATH"] = path(&other).into();
    });
    let text = r#"{"id":"box","versionCommand":["box","--version"],"declares":[],"command":["box","{program}"],"cleanup":[["box"]]}"#;
    let runtime = world.file("box.json", text);
    let flags = format!(
        "--allow-native --runtime {} -P {}",
        runtime.display(),
        policy.display()
    );
    let ran = world.exec(&flags, &["true"]).ended(0);
    assert_eq!(ran.out, "launched 1.0\n");
    let used = world.last().start.runtime;
    assert!(
        used.version.starts_with("1.0 template:"),
        "{}",
        used.version
    );
    let hash = ledger::bytes::hash::Hash::of(&std::fs::read(&asked).unwrap());
    // A script is executed by its interpreter, and is the program all the same.
    assert_eq!(used.sha256, Some(hash));
}

#[test]
fn a_program_is_not_started_to_be_listed_but_where_that_is_allowed() {
    let world = World::new();
    let marker = world.path("home/marker");
    let says = format!("#!/bin/sh\necho ran >>{}\necho 3.1\n", marker.display());
    let program = script(&world, "bin", "box", &says);
    let document = serde_json::json!({
        "id": "box", "versionCommand": [program.to_str().unwrap(), "--version"], "declares": [], "needs": ["a kernel"],
        "command": [program.to_str().unwrap(), "{program}"],
    });
    let runtime = world
        .file("box.json", &document.to_string())
        .display()
        .to_string();
    let shown = world.run(&format!("runtimes {runtime}")).ended(0);
    assert!(
        shown.out.contains("not asked") && shown.out.contains("needs a kernel"),
        "{}",
        shown.out
    );
    let row = |line: &str| {
        let rows = world.run(line).ended(0).json();
        let rows = rows.as_array().unwrap().clone();
        rows.into_iter().find(|row| row["id"] == "box").unwrap()
    };
    let shown = row(&format!("--json runtimes {runtime}"));
    assert_eq!(
        (&shown["available"], shown.get("version")),
        (&true.into(), None)
    );
    assert!(!marker.exists(), "nothing was started");
    let shown = row(&format!("--json runtimes --allow-native {runtime}"));
    assert!(
        shown["version"]
            .as_str()
            .unwrap()
            .starts_with("3.1 template:")
    );
    assert!(marker.exists());
    std::fs::remove_file(&program).unwrap();
    let shown = row(&format!("--json runtimes {runtime}"));
    assert_eq!(shown["available"], false);
    let reason = shown["reason"].as_str().unwrap();
    assert!(reason.contains("ENOENT; box needs a kernel"), "{reason}");
}

#[test]
fn a_program_that_cannot_be_asked_is_missing_for_plan_exec_and_matrix_alike() {
    let world = World::new();
    for (name, document, why) in [
        (
            "failing",
            r#"{"id":"failing","versionCommand":["false"],"declares":[],"command":["false","{program}"]}"#,
            "fails (exit status: 1)",
        ),
        (
            "gone",
            r#"{"id":"gone","needs":["a box"],"declares":[],"command":["no-such-box","{program}"]}"#,
            "no no-such-box in PATH; gone needs a box",
        ),
    ] {
        let runtime = world
            .file(&format!("{name}.json"), document)
            .display()
            .to_string();
        let flags = format!("--allow-native --best-effort --runtime {runtime}");
        let plan = world.run(&format!("plan {flags} -- true")).ended(125);
        assert!(
            plan.out.contains("exec could not launch (125)") && plan.out.contains(why),
            "{}",
            plan.out
        );
        let exec = world.exec(&flags, &["true"]).ended(125);
        assert!(exec.err.contains(why), "{}", exec.err);
        let matrix = world
            .run(&format!("matrix --allow-native --runtime {runtime}"))
            .ended(125);
        assert!(
            matrix.err.contains("not measured") && matrix.err.contains(why),
            "{}",
            matrix.err
        );
        let shown = world
            .run(&format!("runtimes --allow-native {runtime}"))
            .ended(0);
        assert!(
            shown.out.contains("not available") && shown.out.contains(why),
            "{}",
            shown.out
        );
    }
}

#[test]
fn what_a_policy_asks_and_a_template_cannot_do_is_refused() {
    let world = World::new();
    let text = r#"{"id":"box","declares":[{"control":"syscalls","mechanism":"its own list"}],"command":["env","{program}","{arguments}"]}"#;
    let runtime = world.file("box.json", text).display().to_string();
    let policy = world.policy(|policy| {
        policy["enforcement"]["requiredControls"] = serde_json::json!(["syscalls"]);
        policy["syscalls"] = serde_json::json!({ "deny": ["mkdir"] });
    });
    let flags = format!("--allow-native --runtime {runtime}");
    let strict = format!("{flags} -P {}", policy.display());
    let ran = world.exec(&strict, &["true"]).ended(126);
    assert!(ran.err.contains("policy-asks-more"), "{}", ran.err);
    let reason = world.last();
    assert!(
        reason
            .reason("syscalls")
            .unwrap()
            .contains("syscalls.deny mkdir")
    );
    let plan = world.run(&format!("plan {strict} -- true")).ended(126);
    assert!(
        plan.out.contains("the template has no {denied}"),
        "{}",
        plan.out
    );
    // Nor is a folder to start in that the launcher is not told.
    let ran = world
        .exec(&format!("{flags} --best-effort -C /"), &["pwd"])
        .ended(125);
    assert!(ran.err.contains("{workdir}"), "{}", ran.err);
    let no_op = format!(
        "--allow-native --best-effort --runtime {} -C /",
        fake("no-op").display()
    );
    assert_eq!(world.exec(&no_op, &["pwd"]).ended(0).out, "/\n");
}

#[test]
fn a_wrong_template_is_judged_as_one() {
    let world = World::new();
    for (name, text, says) in [
        (
            "only-declares.json",
            r#"{"id":"a","declares":[]}"#,
            "command",
        ),
        (
            "null.json",
            r#"{"id":"a","declares":[],"command":null}"#,
            "null, expected a sequence at line 1",
        ),
        ("torn.json", r#"{"id":"a","declares":[],"command":["#, "EOF"),
        (
            "twice.json",
            r#"{"id":"a","id":"b","declares":[],"command":["x","{program}"]}"#,
            "\"id\" twice",
        ),
    ] {
        let file = world.file(name, text);
        let ran = world
            .run(&format!("--json validate {}", file.display()))
            .ended(1);
        assert_eq!(ran.json()[0]["kind"], "template", "{name}");
        assert!(
            ran.err.contains(says) && ran.err.contains(name),
            "{name}: {}",
            ran.err
        );
        assert_eq!(
            ran.err.matches(says).count(),
            1,
            "{name}: said once: {}",
            ran.err
        );
    }
    let ran = world
        .exec("--allow-native --runtime firejail", &["true"])
        .ended(125);
    assert!(
        ran.err.contains("examples/runtimes/firejail.json"),
        "{}",
        ran.err
    );
}

#[test]
fn others_may_pass_through_what_is_made_whatever_the_umask_is() {
    let mut world = World::new();
    let text = r#"{"id":"box","declares":[],"command":["stat","-c","%a","{scratch}","{scratch}/a","{scratch}/a/b","{scratch}/c","--","{program}"],
        "folders":["a/b"],"files":{"c/d":["x"]}}"#;
    let runtime = world.file("box.json", text).display().to_string();
    let flags = format!("--allow-native --best-effort --runtime {runtime}");
    world.behind(&["sh", "-c", "umask 077; exec \"$@\"", "sh"]);
    let ran = world.exec(&flags, &["/"]).ended(0);
    assert!(ran.out.starts_with("711\n755\n755\n755\n"), "{}", ran.out);
}

#[test]
fn a_cleanup_that_does_not_end_is_ended_by_who_has_enough_and_said() {
    let world = World::new();
    let begun = world.path("home/begun");
    let text = serde_json::json!({
        "id": "box", "declares": [], "command": ["{program}", "{arguments}"], "environment": "inherit",
        "cleanup": [["sh", "-c", format!(": >{}; exec sleep 600", begun.display())]],
    });
    let runtime = world
        .file("box.json", &text.to_string())
        .display()
        .to_string();
    let flags = format!("--allow-native --best-effort --runtime {runtime}");
    let runner = world.exec_command(&flags, &["true"]).spawn().unwrap();
    crate::world::until("the cleanup runs", || begun.exists());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let ran = Ran::of(runner.wait_with_output().unwrap()).ended(0);
    assert!(
        ran.err.contains("before the operator had enough") && ran.err.contains("may be left"),
        "{}",
        ran.err
    );
}

#[test]
fn the_policys_variables_do_not_act_on_a_launcher_that_hands_them_on_by_a_file() {
    let world = World::new();
    let policy = world.policy(|policy| {
        policy["enforcement"] = serde_json::json!({ "mode": "best-effort" });
        policy["process"]["environment"]["OF_POLICY"] = "its value".into();
    });
    let script = "echo \"[$OF_POLICY]\"; grep OF_ \"$1/variables\" || true";
    for (files, expected) in [
        (
            serde_json::json!({ "variables": ["{variable}={value}"] }),
            "[]\nOF_POLICY=its value\n",
        ),
        // By name alone a launcher takes the value from what it has itself.
        (
            serde_json::json!({ "variables": ["{variable}"] }),
            "[its value]\nOF_POLICY\n",
        ),
    ] {
        let text = serde_json::json!({
            "id": "box", "declares": [], "command": ["sh", "-c", script, "sh", "{scratch}", "{program}"], "files": files,
        });
        let runtime = world.file("box.json", &text.to_string());
        let flags = format!(
            "--allow-native --runtime {} -P {}",
            runtime.display(),
            policy.display()
        );
        assert_eq!(world.exec(&flags, &["true"]).ended(0).out, expected);
    }
}
