//! Policies: the document with its places, and the blob that is kept of it.

use ledger::facts::policy::{EffectivePolicy, Policy};
use miette::{GraphicalReportHandler, GraphicalTheme};
use serde_json::Value;

use crate::engine::json::Json;
use crate::engine::random::Random;
use crate::engine::{Checked, Outcome, Target, hold};
use crate::record::same_for_all;

const WORDS: &[&str] = &[
    "id",
    "description",
    "enforcement",
    "mode",
    "strict",
    "best-effort",
    "requiredControls",
    "wantedControls",
    "filesystem",
    "root",
    "ephemeral",
    "host-readonly",
    "custom",
    "path",
    "readOnly",
    "writable",
    "protect",
    "maxWorkspaceMb",
    "followSymlinks",
    "network",
    "none",
    "loopback",
    "allowlist",
    "unrestricted",
    "hosts",
    "example.org:443",
    "[::1]:80",
    "example.org",
    ":0",
    "channel",
    "socket",
    "proxy",
    "dns",
    "resources",
    "cpuMillis",
    "memoryMb",
    "processes",
    "timeoutMs",
    "openFiles",
    "outputBytes",
    "process",
    "capabilities",
    "CAP_SYS_ADMIN",
    "environment",
    "PATH",
    "A=B",
    "allowedEnvironment",
    "user",
    "group",
    "syscalls",
    "allow",
    "deny",
    "profile",
    "default",
    "getcpu",
    "ptrace",
    "devices",
    "/dev/null",
    "nesting",
    "/",
    "/tmp",
    "/w:/workspace/w",
    "..",
    "/a/../b",
    "~",
    "memory",
    "cpu",
    "disk",
    "files",
    "terminal",
    "\\u0000",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
];

fn catalogue() -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.collect()
}

#[test]
fn policy() {
    crate::run(Target {
        name: "policy",
        valid: catalogue(),
        words: WORDS,
        shape: reshape,
        check: check_document,
    });
}

#[test]
fn policy_blob() {
    let blobs = catalogue().into_iter().map(|document| {
        let policy = Policy::parse("catalogue", &document).unwrap();
        policy.effective_blob().unwrap()
    });
    crate::run(Target {
        name: "policy_blob",
        valid: blobs.collect(),
        words: WORDS,
        shape: reshape,
        check: check_blob,
    });
}

fn reshape(random: &mut Random, document: &[u8]) -> Option<Vec<u8>> {
    let mut json = Json::read(document)?;
    for _ in 0..1 + random.below(3) {
        json.change(random, WORDS);
    }
    Some(json.write(random))
}

fn check_document(bytes: &[u8]) -> Checked {
    let policy = match Policy::parse("policy.json", bytes) {
        Ok(policy) => policy,
        Err(error) => return check_problems(&error, bytes),
    };
    let value: Value =
        serde_json::from_slice(bytes).map_err(|e| format!("accepted, and serde_json says {e}"))?;
    hold!(value["id"] == policy.id.as_str(), "another id");
    hold!(
        value["enforcement"].is_object(),
        "accepted without enforcement"
    );
    let written = policy
        .to_json()
        .map_err(|e| format!("accepted, not written: {e}"))?;
    let again = Policy::parse("again.json", written.as_bytes())
        .map_err(|e| format!("accepted, written, refused: {e}"))?;
    hold!(
        again == policy,
        "written and read again it is another policy"
    );
    let blob = policy
        .effective_blob()
        .map_err(|e| format!("accepted without a blob: {e}"))?;
    same_for_all(&blob)?;
    let read = EffectivePolicy::read(&blob).map_err(|e| format!("its blob is refused: {e}"))?;
    hold!(read == policy.effective(), "its blob is another policy");
    let names: Vec<_> = policy.process.environment.keys().cloned().collect();
    hold!(
        read.process.environment == names,
        "the blob names other variables"
    );
    Ok(Outcome::accepted(&format!(
        "{:?} {:?}",
        policy.network.mode, policy.filesystem.root
    )))
}

fn check_problems(error: &ledger::facts::policy::ReadPolicyError, bytes: &[u8]) -> Checked {
    let problems = error.problems();
    let first = problems.first().ok_or("refused without a problem")?;
    hold!(problems.len() <= 101, "{} problems", problems.len());
    // A document that is not text is shown up to there.
    let text = String::from_utf8_lossy(bytes);
    let text = text.as_ref();
    let valid = std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), |_| bytes.len());
    for problem in problems {
        let span = problem.span();
        hold!(
            span.start <= span.end && span.end <= valid,
            "{span:?} outside of {valid} bytes: {problem}"
        );
        hold!(
            text.is_char_boundary(span.start) && text.is_char_boundary(span.end),
            "{span:?} cuts a character: {problem}"
        );
        let before = &text[..span.start];
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        if !before.is_empty() || valid > 0 {
            hold!(
                (problem.line(), problem.column()) == (line, column),
                "{} is not {line}:{column}: {problem}",
                problem.place()
            );
        }
        Outcome::refused(&problem.to_string())?;
        if let Some(help) = problem.help_text() {
            Outcome::refused(help)?;
        }
    }
    if bytes.len() < 4_096 {
        let handler = GraphicalReportHandler::new_themed(GraphicalTheme::none());
        let mut shown = String::new();
        handler
            .render_report(&mut shown, first)
            .map_err(|_| "cannot be shown".to_owned())?;
        hold!(
            shown.contains(first.code().as_str()),
            "shown without its code: {shown}"
        );
    }
    Outcome::refused(&format!("{} {first}", first.code()))
}

fn check_blob(bytes: &[u8]) -> Checked {
    let policy = match EffectivePolicy::read(bytes) {
        Ok(policy) => policy,
        Err(error) => return Outcome::refused(&error.to_string()),
    };
    let value = same_for_all(bytes)?;
    hold!(value["id"] == policy.id.as_str(), "another id");
    let written = serde_json::to_vec(&policy).map_err(|e| format!("accepted, not written: {e}"))?;
    hold!(written == bytes, "accepted, written differently");
    Ok(Outcome::accepted(&format!("{:?}", policy.network.mode)))
}
