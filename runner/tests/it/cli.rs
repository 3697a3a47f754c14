//! Command lines, exit codes and machine output: DESIGN.md §6.

use std::path::Path;

use serde_json::Value;

use crate::world::{Ran, SUPPORTED, World, ready};

#[test]
fn wrong_usage_of_exec_is_125_and_of_others_2() {
    let world = World::new();
    for line in [
        "exec",
        "exec --",
        "exec --no-such-flag -- true",
        "exec --network nowhere -- true",
        "exec --timeout soon -- true",
        "exec --memory much -- true",
        "exec --require nothing -- true",
        "exec -P no-such-policy -- true",
        "exec -P /no/such/policy.json -- true",
        "exec --runtime no-such-runtime -- true",
        "exec --secret NOT_SET -- true",
        "exec --secret ../x -- true",
        "exec --read :/x -- true",
        "exec --events /no/such/folder/file -- true",
        "-q exec --no-such-flag",
    ] {
        let ran = world.run(line);
        assert_eq!(ran.code, Some(125), "{line}: {ran:#?}");
        assert!(
            !ran.err.is_empty() && ran.out.is_empty(),
            "{line}: {ran:#?}"
        );
    }
    for line in [
        "",
        "no-such-command",
        "--no-such-flag",
        "plan",
        "plan -P no-such-policy -- true",
        "doctor --no-such-flag",
        "note",
        "key",
        "completions no-such-shell",
    ] {
        let ran = world.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:#?}");
    }
    assert!(
        !world.ledger().exists(),
        "nothing was to be run, and a ledger was begun"
    );
}

#[test]
fn help_and_version_are_answers() {
    let world = World::new();
    for line in ["--help", "exec --help", "--version", "key --help"] {
        let ran = world.run(line).ended(0);
        assert!(ran.out.contains("runner") && ran.err.is_empty(), "{line}");
    }
}

#[test]
fn what_a_later_version_does_says_what_it_needs() {
    let world = World::new();
    for line in [
        "checkpoint --witness http://localhost=x",
        "prove --sequence 1 -o x",
        "redact --sequence 1",
        "service up",
        "key rotate",
        "key standby",
    ] {
        let ran = world.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:#?}");
        assert!(ran.err.contains(" needs "), "{line}: {}", ran.err);
    }
    for line in [
        "exec --runtime wasi -- true",
        "exec --key ssh-agent:SHA256:x -- true",
    ] {
        let ran = world.run(line);
        assert_eq!(ran.code, Some(125), "{line}: {ran:#?}");
        assert!(ran.err.contains("needs "), "{line}: {}", ran.err);
    }
}

#[test]
fn a_plan_says_what_exec_would_do_and_writes_nothing() {
    let world = ready!();
    for (flags, code) in [
        ("", 0),
        ("--require disk --write .", 126),
        ("--best-effort --require disk --write .", 0),
        ("--allow example.com:443", 126),
    ] {
        let planned = world.run(&format!("plan {flags} -- true"));
        assert_eq!(planned.code, Some(code), "{flags}: {planned:#?}");
        let dry = world.run(&format!("exec --dry-run {flags} -- true"));
        assert_eq!((dry.code, &dry.out), (Some(code), &planned.out), "{flags}");
        let json = world.run(&format!("--json plan {flags} -- true")).json();
        assert_eq!(json["schema"], "runner/plan/v1");
        assert_eq!(json["refused"], code == 126, "{flags}");
        assert_eq!(json["controls"].as_array().unwrap().len(), 18);
        assert!(!world.path("state/containment-ledger").exists(), "{flags}");
        assert!(!world.path("data/containment-ledger").exists(), "{flags}");
    }
    // What the plan intends is what exec declares.
    let policy = world.policy(|_| {});
    let flags = format!("-P {} -- true", policy.display());
    let json = world.run(&format!("--json plan {flags}")).json();
    let intended: Vec<&str> = json["controls"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|control| control["mechanism"].is_string())
        .map(|control| control["control"].as_str().unwrap())
        .collect();
    world.run(&format!("exec {flags}")).ended(0);
    let run = world.last();
    for control in SUPPORTED {
        assert!(
            intended.contains(&control) && run.declares(control),
            "{control}"
        );
    }
}

#[test]
fn lost_controls_are_said_even_when_quiet() {
    let world = ready!();
    let ran = world.run("-q exec --write . -- true").ended(0);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(
        ran.err.contains("not in force: ") && ran.err.contains("disk (needs-quota (/"),
        "{}",
        ran.err
    );
    let policy = world.policy(|_| {});
    let ran = world
        .run(&format!("-q exec -P {} -- true", policy.display()))
        .ended(0);
    assert_eq!(ran.err, "");
}

#[test]
fn policies_are_listed_shown_and_validated() {
    let world = World::new();
    let list = world.run("--json policies").ended(0).json();
    let ids: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|policy| policy["id"].as_str().unwrap())
        .collect();
    for id in [
        "minimal",
        "standard",
        "containment-audit",
        "high-risk",
        "ai-agent",
        "compiler",
    ] {
        assert!(ids.contains(&id), "{id}");
        let shown = world.run(&format!("policies {id}")).ended(0).json();
        assert_eq!(shown["id"], id);
    }
    world.run("policies").ended(0);
    world.run("policies no-such-policy").ended(1);
    world.run("validate").ended(0);

    let good = world.policy(|_| {});
    let ran = world
        .run(&format!("--json validate {}", good.display()))
        .ended(0);
    assert_eq!(ran.json()[0]["valid"], true);
    let bad = world.file("bad.json", "{\n  \"id\": \"x\",\n  \"netwrk\": {}\n}");
    let ran = world
        .run(&format!("validate {} {}", good.display(), bad.display()))
        .ended(1);
    assert!(
        ran.err.contains("bad.json:3") && ran.err.contains("netwrk"),
        "{}",
        ran.err
    );
    world
        .run(&format!("validate {}", world.folder("empty").display()))
        .ended(1);
    world.run("validate /no/such/file.json").ended(1);
}

#[test]
fn suites_are_validated_and_what_no_runtime_applies_is_said() {
    let world = World::new();
    let all = world.run("--json validate").ended(0).json();
    let own = all.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&own["kind"], &own["valid"]),
        (&"suite".into(), &true.into())
    );
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/third-party-suite");
    let suite = world.folder("suite");
    for name in ["suite.json", "probe.sh"] {
        std::fs::copy(examples.join(name), suite.join(name)).unwrap();
    }
    let shown = suite.display();
    let good = world
        .run(&format!("--json validate {shown} {shown}/suite.json"))
        .ended(0);
    assert_eq!(good.json()[1]["kind"], "suite");
    let text = std::fs::read_to_string(suite.join("suite.json")).unwrap();
    std::fs::remove_file(suite.join("probe.sh")).unwrap();
    let bad = text.replace("\"oracle\": \"line\"", "\"oracle\": \"signal\"");
    assert_ne!(bad, text);
    std::fs::write(suite.join("suite.json"), &bad).unwrap();
    let ran = world.run(&format!("validate {shown}")).ended(1);
    let line = |word: &str| bad.lines().position(|line| line.contains(word)).unwrap() + 1;
    for (line, what) in [
        (line("\"program\""), "found ENOENT for"),
        (
            line("signal"),
            "found the oracle signal for a check of filesystem",
        ),
    ] {
        let place = format!("{shown}/suite.json:{line}:");
        assert!(
            ran.err.contains(&place) && ran.err.contains(what),
            "{}",
            ran.err
        );
    }
    // By its content, whatever it is called.
    let named = world.file("mine.json", "{\"probes\": []}");
    let ran = world.run(&format!("validate {}", named.display())).ended(1);
    assert!(ran.err.contains("missing field"), "{}", ran.err);
    // No host and no version has a forwarder yet.
    let policy = world.policy(|policy| {
        policy["network"] =
            serde_json::json!({ "mode": "allowlist", "hosts": ["example.org:443"] });
    });
    let ran = world
        .run(&format!("--json validate {}", policy.display()))
        .ended(0);
    assert_eq!(ran.json()[0]["unanswered"], serde_json::json!(["network"]));
    let place = format!("{}:1: found", policy.display());
    assert!(
        ran.err.contains(&place) && ran.err.contains("126"),
        "{}",
        ran.err
    );
}

#[test]
fn the_host_and_its_runtimes_are_described() {
    let world = World::new();
    let ran = world.run("--json doctor");
    let json = ran.json();
    assert_eq!(json["schema"], "runner/doctor/v1");
    assert_eq!(ran.code, Some(if json["ready"] == true { 0 } else { 1 }));
    assert!(json["capabilities"].as_array().unwrap().len() > 5);
    assert_eq!(world.run("doctor").code, ran.code);
    let json = world.run("--json runtimes").ended(0).json();
    let find = |id: &str| {
        json.as_array()
            .unwrap()
            .iter()
            .find(|one| one["id"] == id)
            .unwrap()
            .clone()
    };
    assert_eq!(find("embedded")["available"], true);
    assert_eq!(find("native")["isolates"], false);
    for (id, name) in [("bwrap", "bwrap"), ("unshare", "unshare")] {
        let row = find(id);
        let is_there = crate::world::program(name).is_some();
        assert_eq!(row["available"], is_there, "{row}");
        assert_eq!(row["version"].is_string(), is_there, "{row}");
        assert_eq!(row["isolates"], true);
    }
    assert_eq!(find("wasi")["available"], false);
    world.run("runtimes").ended(0);
    assert!(!world.ledger().exists());
}

#[test]
fn keys_are_made_and_shown() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = ready!();
    world.run("key show").ended(125);
    let file = world.path("key.pem");
    let made = world
        .run(&format!("--json key new {}", file.display()))
        .ended(0)
        .json();
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    world.run(&format!("key new {}", file.display())).ended(125);
    world
        .run(&format!("--key {} exec -- true", file.display()))
        .ended(0);
    let shown = world.run("--json key show").ended(0).json();
    assert_eq!(shown["keyId"], made["keyId"]);
    assert_eq!(shown["records"], 4);
    // A key that others can read is refused.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    world
        .run(&format!("--key {} exec -- true", file.display()))
        .ended(125);
    assert_eq!(world.evidence().records.len(), 4);
}

#[test]
fn no_key_is_kept_inside_a_ledger() {
    let world = ready!();
    let refused = |ran: Ran, file: &Path| {
        let ran = ran.ended(125);
        assert!(
            ran.err.contains("runner::ledger::key_inside") && ran.err.contains("elsewhere"),
            "{}",
            ran.err
        );
        assert!(!file.exists(), "{}", file.display());
    };
    let inside = world.ledger().join("k.pem");
    // Before there is a ledger, and once there is one.
    for begun in [false, true] {
        refused(world.run(&format!("key new {}", inside.display())), &inside);
        assert_eq!(world.ledger().exists(), begun);
        if !begun {
            world.run("exec -- true").ended(0);
        }
    }
    // By another way in, below it, and into a ledger that is not the one of this command line.
    let link = world.path("link");
    std::os::unix::fs::symlink(world.ledger(), &link).unwrap();
    for file in [link.join("k.pem"), link.join("blobs/none/k.pem")] {
        let command = format!("key new {}", file.display());
        refused(world.run(&command), &file);
        let elsewhere = world.path("elsewhere");
        let command = format!("--ledger {} {command}", elsewhere.display());
        refused(world.run(&command), &file);
    }
    // A key that somebody put there signs nothing.
    let key = world.path("key.pem");
    world.run(&format!("key new {}", key.display())).ended(0);
    let other = world.path("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::rename(&key, other.join("key.pem")).unwrap();
    let flags = format!("--ledger {0} --key {0}/key.pem", other.display());
    for command in ["exec -- true", "note x"] {
        let ran = world.run(&format!("{flags} {command}")).ended(125);
        assert!(ran.err.contains("key_inside"), "{}", ran.err);
        let there: Vec<_> = std::fs::read_dir(&other).unwrap().collect();
        assert_eq!(there.len(), 1, "{there:?}");
    }
    // The folder of keys itself is below the ledger that would be begun.
    let ledger = world.path("data");
    let ran = world.run(&format!("--ledger {} exec -- true", ledger.display()));
    assert!(ran.ended(125).err.contains("key_inside"));
    assert!(!ledger.join("records").exists());
    // Beside it all is well.
    std::fs::rename(other.join("key.pem"), &key).unwrap();
    let flags = format!("--ledger {} --key {}", other.display(), key.display());
    world.run(&format!("{flags} exec -- true")).ended(0);
}

#[test]
fn an_ephemeral_key_begins_a_ledger_and_never_goes_on() {
    let world = ready!();
    world.run("--key ephemeral exec -- true").ended(0);
    world.run("exec -- true").ended(125);
    world.run("--key ephemeral exec -- true").ended(125);
    assert_eq!(world.evidence().runs().len(), 1);
}

#[test]
fn a_ledger_can_be_named_in_two_ways() {
    let world = ready!();
    let (first, second) = (world.path("first"), world.path("second"));
    world
        .run(&format!("--ledger {} exec -- true", first.display()))
        .ended(0);
    let world = world.with("RUNNER_LEDGER", &second);
    world.run("exec -- true").ended(0);
    world
        .run(&format!("exec --ledger {} -- true", first.display()))
        .ended(0);
    assert_eq!(crate::evidence::evidence(&first).runs().len(), 2);
    assert_eq!(crate::evidence::evidence(&second).runs().len(), 1);
    assert!(!world.ledger().exists());
}

#[test]
fn completions_and_man_pages_are_written() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            world
                .run(&format!("completions {shell}"))
                .ended(0)
                .out
                .contains("best-effort")
        );
    }
    let folder = world.path("man");
    for _ in ["made", "there"] {
        world.run(&format!("man {}", folder.display())).ended(0);
    }
    let page = std::fs::read_to_string(folder.join("runner-exec.1")).unwrap();
    assert!(page.contains("best\\-effort"));
    world.run("man /no/such/folder").ended(125);
}

#[test]
fn colour_is_for_those_who_ask() {
    let world = ready!();
    let escape = "\u{1b}[";
    assert!(!world.run("exec -- true").err.contains(escape));
    assert!(
        world
            .run("--color always exec -- true")
            .err
            .contains(escape)
    );
    assert!(!world.run("--color never exec -- true").err.contains(escape));
    let world = world.with("NO_COLOR", "1").with("FORCE_COLOR", "1");
    assert!(!world.run("exec -- true").err.contains(escape));
    let text: Value = world.run("--json --color always plan -- true").json();
    assert!(text.is_object());
}

#[test]
fn text_of_others_is_shown_and_not_obeyed() {
    let world = ready!();
    let hostile = "nope\u{1b}]0;own\u{7}\u{1b}[2J\r\u{202e}VERIFIED";
    let ran = world.exec("", &[hostile]).ended(127);
    assert!(
        !ran.err.contains(['\u{1b}', '\u{7}', '\r', '\u{202e}']),
        "{:?}",
        ran.err
    );
    assert!(ran.err.contains("nope\\u{1b}]0;own\\u{7}"), "{}", ran.err);
    let read = format!("--read=/no/such/{hostile}");
    let command = world.command(["exec", &read, "--", "true"]).output();
    let ran = Ran::of(command.unwrap()).ended(125);
    assert!(
        !ran.err.contains(['\u{1b}', '\r', '\u{202e}']),
        "{:?}",
        ran.err
    );
}
