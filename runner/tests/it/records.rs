//! What the ledger says about runs: DESIGN.md §4.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ledger::bytes::hash::Hash;
use ledger::facts::execution::{Artifact, FileKind, Outcome};
use ledger::facts::list::{List, Sealable};
use ledger::finding::Code;
use ledger::record::Body;

use crate::evidence::walked;
use crate::world::{Ran, World, at_best, contains, no_groups, ready};

#[test]
fn a_run_is_four_records_and_the_next_two_more() {
    let world = ready!();
    let ran = world.exec("", &["true"]).ended(0);
    assert_eq!(
        world.evidence().kinds(),
        ["genesis", "host", "start", "execution"]
    );
    let verdict = format!("record 3: {}", at_best(&world));
    assert!(ran.err.contains(&verdict), "{}", ran.err);
    world.exec("", &["false"]).ended(1);
    let evidence = world.evidence();
    assert_eq!(evidence.kinds()[4..], ["start", "execution"]);
    let runs = evidence.runs();
    assert_ne!(runs[0].start.run, runs[1].start.run);
    assert_eq!(runs[1].execution.start.value(), 4);
    let has_groups = no_groups(&world).is_none();
    for run in &runs {
        assert_eq!(run.start.runtime.id, "embedded");
        assert_eq!(run.start.runtime.tier.as_deref(), Some("full"));
        assert_eq!(run.start.policy.id, "standard");
        assert!(run.execution.result.duration_us.unwrap().value() > 0);
        // Not measured is absent, with a reason where a reason helps.
        let observed = run.execution.observed.as_ref().unwrap();
        assert_eq!(observed.cpu_us.is_some(), has_groups);
        assert_eq!(observed.oom_kills.is_some(), has_groups);
    }
    let program = &runs[0].start.workload.program;
    assert!(program.path.ends_with("/true"), "{}", program.path);
    assert_eq!(
        program.sha256,
        Some(Hash::of(&std::fs::read(&program.path).unwrap()))
    );
    let blob = runs[0].start.policy.sha256.to_string();
    let blob = std::fs::read(
        world
            .ledger()
            .join("blobs")
            .join(&blob[..2])
            .join(&blob[2..]),
    )
    .unwrap();
    let policy: serde_json::Value = serde_json::from_slice(&blob).unwrap();
    assert_eq!(
        policy["process"]["environment"],
        serde_json::json!(["HOME", "LANG", "PATH"])
    );
}

#[test]
fn arguments_and_output_are_sealed_unless_they_may_be_clear() {
    let world = ready!();
    world.exec("-q", &["echo", "private words"]).ended(0);
    let run = world.last();
    assert!(matches!(run.start.workload.argv, Sealable::Sealed(_)));
    assert!(matches!(
        run.start.runtime.launch,
        Some(Sealable::Sealed(_))
    ));
    assert!(matches!(
        run.execution.result.stdout,
        Some(Sealable::Sealed(_))
    ));
    assert!(matches!(
        run.execution.result.stderr,
        Some(Sealable::Sealed(_))
    ));
    assert_eq!(run.argv, ["echo", "private words"]);
    assert_eq!(run.stdout.unwrap().text.as_deref(), Some("private words\n"));

    world.exec("-q --clear", &["echo", "public words"]).ended(0);
    let run = world.last();
    assert!(matches!(run.start.workload.argv, Sealable::Clear(_)));
    assert!(matches!(run.start.runtime.launch, Some(Sealable::Clear(_))));
    assert!(matches!(
        run.execution.result.stdout,
        Some(Sealable::Clear(_))
    ));

    // Without openings the records stand, and say nothing of what was sealed.
    let segment = world.ledger().join("records/00000000.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with(r#"{"open""#))
        .collect();
    assert!(kept.len() < text.lines().count());
    let erased = kept.join("\n") + "\n";
    assert!(!erased.contains("private words") && erased.contains("public words"));
    std::fs::write(&segment, erased).unwrap();
    let (evidence, findings) = walked(&world.ledger());
    assert_eq!(evidence.records.len(), 6);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].code, Code::OpeningWithheld);
}

#[test]
fn a_changed_opening_does_not_match() {
    let world = ready!();
    world.exec("-q", &["echo", "private words"]).ended(0);
    let segment = world.ledger().join("records/00000000.jsonl");
    let text = std::fs::read_to_string(&segment).unwrap();
    let changed = text.replacen("private words", "private Words", 1);
    assert_ne!(text, changed);
    std::fs::write(&segment, changed).unwrap();
    let (evidence, findings) = walked(&world.ledger());
    assert_eq!(evidence.records.len(), 4);
    let mismatches = findings
        .iter()
        .filter(|finding| finding.code == Code::OpeningMismatch);
    assert_eq!(mismatches.count(), 1, "{findings:#?}");
}

#[test]
fn arguments_that_are_no_text_are_escaped() {
    let world = ready!();
    let argument = std::ffi::OsStr::from_bytes(b"a\xff\\b\n");
    let ran = world
        .exec("-q", &["printf".as_ref(), "%s".as_ref(), argument])
        .ended(0);
    assert_eq!(ran.bytes, argument.as_bytes());
    assert_eq!(world.last().argv[2], "a\\xff\\x5cb\n");
}

#[test]
fn refused_and_missing_programs_are_recorded_as_not_executed() {
    let world = ready!();
    for (flags, program, code, reason) in [
        ("--require disk --write .", "true", 126, "refused"),
        ("", "no-such-program", 127, "not-found"),
        ("", "/etc", 127, "not-executable"),
    ] {
        world.exec(flags, &[program]).ended(code);
        let run = world.last();
        let result = run.execution.result;
        assert_eq!(result.outcome, Outcome::NotExecuted);
        let found = serde_json::to_value(result.reason).unwrap();
        assert_eq!(found, reason, "{flags} {program}");
        assert!(run.start.controls.declared.is_empty());
        assert!(run.start.runtime.launch.is_none());
        assert!(!run.start.controls.unsupported.is_empty());
        assert!(result.stdout.is_none() && result.duration_us.is_none());
    }
    // The same, carried out: the loss is recorded instead.
    let ran = world.exec("--best-effort --require disk --write .", &["true"]);
    let ran = ran.ended(0);
    assert!(ran.err.contains("disk"), "{}", ran.err);
    let run = world.last();
    assert_eq!(run.execution.verdict.as_str(), "controls-missing");
    let reason = run.reason("disk").unwrap();
    assert!(reason.starts_with("needs-quota (/"), "{reason}");
}

fn artifacts(world: &World) -> Vec<Artifact> {
    match world.last().execution.artifacts.unwrap() {
        List::Inline(list) => list,
        List::Blob(list) => {
            let blob = list.blob.to_string();
            let path = world
                .ledger()
                .join("blobs")
                .join(&blob[..2])
                .join(&blob[2..]);
            let bytes = std::fs::read(path).unwrap();
            assert_eq!(Hash::of(&bytes), list.blob);
            let list_of: Vec<Artifact> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(list_of.len() as u64, list.count.value());
            list_of
        }
    }
}

#[test]
fn artifacts_have_size_and_hash() {
    let world = ready!();
    let folder = world.folder("out");
    world.file("out/before", "untouched");
    world.file("out/changed", "old");
    let script = r#"cd "$1"; echo new >made; echo longer >changed; ln -s made link; mkfifo pipe; mkdir d
        echo own >/workspace/file; echo tmp >/tmp/file"#;
    world
        .sh(&format!("--write {}", folder.display()), script, &[&folder])
        .ended(0);
    let place = folder.to_str().unwrap();
    let file = |path: String, content: &str| Artifact {
        bytes: Some(u32::try_from(content.len()).unwrap().into()),
        kind: FileKind::File,
        path,
        sha256: Some(Hash::of(content.as_bytes())),
    };
    let other = |path: String, kind| Artifact {
        bytes: None,
        kind,
        path,
        sha256: None,
    };
    let mut found = artifacts(&world);
    // A link has a target to hash; its form is the scan's own business.
    for artifact in &mut found {
        if artifact.kind != FileKind::File {
            (artifact.bytes, artifact.sha256) = (None, None);
        }
    }
    let mut expected = vec![
        file(format!("{place}/changed"), "longer\n"),
        other(format!("{place}/link"), FileKind::Symlink),
        file(format!("{place}/made"), "new\n"),
        other(format!("{place}/pipe"), FileKind::Fifo),
        file("/workspace/file".to_owned(), "own\n"),
    ];
    expected.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(found, expected);
}

#[test]
fn many_artifacts_are_a_blob() {
    let world = ready!();
    let script = "cd /workspace; i=0; while [ $i -lt 8200 ]; do : >f$i; i=$((i+1)); done";
    world.sh("", script, &[]).ended(0);
    let run = world.last();
    assert!(matches!(run.execution.artifacts, Some(List::Blob(_))));
    let found = artifacts(&world);
    assert_eq!(found.len(), 8200);
    assert!(
        found
            .iter()
            .all(|artifact| artifact.sha256 == Some(Hash::of(b"")))
    );
}

#[test]
fn runs_at_the_same_time_share_a_ledger() {
    let world = ready!();
    world.exec("", &["true"]).ended(0);
    let children: Vec<_> = (0..3)
        .map(|number| {
            world
                .exec_command("-q", &["sh", "-c", &format!("echo {number}")])
                .spawn()
                .unwrap()
        })
        .collect();
    let mut said: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    said.sort();
    assert_eq!(said, ["0\n", "1\n", "2\n"]);
    let runs = world.evidence().runs();
    assert_eq!(runs.len(), 4);
    let mut recorded: Vec<String> = runs[1..]
        .iter()
        .map(|run| run.stdout.clone().unwrap().text.unwrap())
        .collect();
    recorded.sort();
    assert_eq!(recorded, said);
}

#[test]
fn a_native_run_declares_what_it_does_and_that_the_key_was_in_reach() {
    let world = ready!();
    let ran = world
        .exec("--runtime native --allow-native", &["true"])
        .ended(126);
    assert!(ran.err.contains("no-isolation"), "{}", ran.err);
    let ran = world.exec("--runtime native", &["true"]).ended(125);
    assert!(ran.err.contains("--allow-native"), "{}", ran.err);
    let flags = "--runtime native --allow-native --best-effort";
    let keys = world.keys();
    let ran = world
        .sh(flags, r#"id -u; ls "$1" | grep -c pem"#, &[&keys])
        .ended(0);
    let own = nix::unistd::geteuid();
    assert_eq!(ran.out, format!("{own}\n1\n"));
    assert!(ran.err.contains("not in force"), "{}", ran.err);
    let run = world.last();
    assert_eq!(run.start.key_reachable, Some(true));
    assert_eq!(run.execution.verdict.as_str(), "controls-missing");
    for control in [
        "network",
        "filesystem",
        "process",
        "privilege",
        "user",
        "ipc",
    ] {
        assert!(!run.declares(control), "{control}");
    }
    let world = ready!().with("RUNNER_ALLOW_NATIVE", "1");
    world
        .exec("--runtime native --best-effort", &["true"])
        .ended(0);
}

#[test]
fn a_native_tree_ends_with_its_main_process_and_at_the_deadline() {
    let world = ready!();
    let pid = world.path("pid");
    let script = r#"setsid sleep 86400 & echo $! >"$1"; "#;
    let flags = "--runtime native --allow-native --best-effort";
    let gone = |file: &Path| {
        let pid = std::fs::read_to_string(file).unwrap();
        let text = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
        !contains(&text, "86400")
    };
    world.sh(flags, script, &[&pid]).ended(0);
    assert!(gone(&pid));
    let timed = format!("{flags} --timeout 500ms");
    world
        .sh(&timed, &format!("{script} wait"), &[&pid])
        .ended(124);
    assert!(gone(&pid));
}

#[test]
fn notes_and_a_close_are_records_and_nothing_follows() {
    let world = ready!();
    world.exec("", &["true"]).ended(0);
    let ran = Ran::of(world.command(["note", "looked at"]).output().unwrap());
    ran.ended(0);
    world.run("close done").ended(0);
    let evidence = world.evidence();
    assert_eq!(evidence.kinds()[4..], ["note", "close"]);
    assert!(matches!(&evidence.records[4].0.body, Body::Note(note) if note.text == "looked at"));
    assert!(matches!(&evidence.records[5].0.body, Body::Close(close) if close.reason == "done"));
    world.exec("", &["true"]).ended(125);
    world.run("note more").ended(125);
    assert_eq!(world.evidence().records.len(), 6);
}
