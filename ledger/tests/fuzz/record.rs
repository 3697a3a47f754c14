//! Record lines and openings: what is accepted has one form and one meaning for every JSON reader.

use ledger::bytes::canon::{self, MAX_LINE_BYTES};
use ledger::bytes::hash::Hash;
use ledger::bytes::key::{Message, Signer as _};
use ledger::record::{Content, Opening, parse_line};
use serde_json::Value;

use crate::engine::json::Json;
use crate::engine::random::Random;
use crate::engine::{Checked, Outcome, Target, hold};

pub(crate) const WORDS: &[&str] = &[
    "{\"key\":\"",
    "\",\"record\":{",
    "},\"signature\":\"",
    "\"}",
    "\"body\":{",
    "\"clock\":{\"bootId\":\"",
    "\"sinceBootUs\":",
    "\"kind\":\"",
    "\"ledger\":\"",
    "\"previous\":\"",
    "\"sequence\":",
    "\"time\":\"",
    "\"version\":1",
    "\"version\":2",
    "genesis",
    "host",
    "start",
    "execution",
    "note",
    "key",
    "recovery",
    "close",
    "probe",
    "matrix",
    "service",
    "anchor",
    "custody",
    "origin",
    "publicKey",
    "standby",
    "tool",
    "text",
    "run",
    "workload",
    "policy",
    "runtime",
    "controls",
    "requested",
    "wanted",
    "declared",
    "unsupported",
    "control",
    "mechanism",
    "value",
    "network",
    "memory",
    "result",
    "outcome",
    "exited",
    "signaled",
    "timeout",
    "not-executed",
    "exitCode",
    "signal",
    "stdout",
    "stderr",
    "sealed",
    "clear",
    "blob",
    "count",
    "base64",
    "bytes",
    "kept",
    "sha256",
    "observed",
    "artifacts",
    "cleanup",
    "unmeasured",
    "verdict",
    "violations",
    "arguments",
    "call",
    "firstUs",
    "number",
    "possession",
    "reason",
    "routine",
    "cause",
    "torn",
    "expected",
    "root",
    "size",
    "file",
    "open",
    "argv",
    "launch",
    "bootId",
    "name",
];

/// Vectors whose every line is a record or an opening in good order; together they have all kinds.
const GOOD: [&str; 6] = [
    "opening_valid",
    "violations_valid",
    "key_rotated",
    "standby_recovery",
    "recovery_of_torn_line",
    "closed",
];
const KINDS: [&str; 8] = [
    "genesis",
    "host",
    "start",
    "execution",
    "note",
    "key",
    "recovery",
    "close",
];

fn good_lines(opening: bool) -> Vec<Vec<u8>> {
    let mut lines: Vec<_> = GOOD
        .iter()
        .flat_map(|vector| crate::lines(vector))
        .collect();
    lines.retain(|line| line.starts_with(b"{\"open\":") == opening);
    lines.sort();
    lines.dedup();
    lines
}

#[test]
fn record_line() {
    let valid = good_lines(false);
    for kind in KINDS {
        let named = format!("\"kind\":\"{kind}\"");
        let has = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(&named);
        assert!(valid.iter().any(has), "no vector has a {kind} record");
    }
    crate::run(Target {
        name: "record_line",
        valid,
        words: WORDS,
        shape: resign,
        check: check_record,
    });
}

#[test]
fn opening() {
    let valid = good_lines(true);
    crate::run(Target {
        name: "opening",
        valid,
        words: WORDS,
        shape: reshape,
        check: check_opening,
    });
}

/// A line around these bytes that the test key signed.
pub(crate) fn signed(record: &[u8]) -> Vec<u8> {
    let key = crate::test_key();
    let signature = key.sign(Message::Record(record)).unwrap().to_string();
    let id = key.public().id().to_string();
    [
        b"{\"key\":\"",
        id.as_bytes(),
        b"\",\"record\":",
        record,
        b",\"signature\":\"",
        signature.as_bytes(),
        b"\"}",
    ]
    .concat()
}

/// Changes the record of a line and signs it again: what lies behind the signature is reached.
pub(crate) fn resign(random: &mut Random, line: &[u8]) -> Option<Vec<u8>> {
    let mut json = Json::read(line)?;
    let record = json.field("record")?;
    for _ in 0..1 + random.below(2) {
        record.change(random, WORDS);
    }
    let written = record.write(random);
    // Mostly in the canonical form, so that more than the form is judged.
    let written = match canon::canonical_form(&written) {
        Ok(canonical) if random.below(8) > 0 => canonical,
        _ => written,
    };
    Some(signed(&written))
}

/// Changes any part of a JSON text.
pub(crate) fn reshape(random: &mut Random, line: &[u8]) -> Option<Vec<u8>> {
    let mut json = Json::read(line)?;
    for _ in 0..1 + random.below(2) {
        json.change(random, WORDS);
    }
    let written = json.write(random);
    match canon::canonical_form(&written) {
        Ok(canonical) if random.below(4) > 0 => Some(canonical),
        _ => Some(written),
    }
}

/// The value that every JSON reader gives an accepted line, whose canonical form it must be.
pub(crate) fn same_for_all(line: &[u8]) -> Result<Value, String> {
    let value: Value =
        serde_json::from_slice(line).map_err(|e| format!("accepted, and serde_json says {e}"))?;
    let canonical =
        serde_jcs::to_vec(&value).map_err(|e| format!("accepted, and serde_jcs says {e}"))?;
    let at = crate::parting(line, &canonical);
    hold!(canonical == line, "accepted, and JCS differs at byte {at}");
    Ok(value)
}

fn check_record(line: &[u8]) -> Checked {
    let parsed = parse_line(line);
    hold!(
        parsed.hash == Hash::leaf(line),
        "the hash is not that of the line"
    );
    let again = parse_line(line);
    hold!(
        again.content == parsed.content && again.head == parsed.head,
        "read twice, read differently"
    );
    if let Some(frame) = &parsed.frame {
        let record = line
            .get(frame.record.clone())
            .ok_or("the frame's record lies outside the line")?;
        let (key, signature) = (&frame.key, &frame.signature);
        let written = format!(
            "{{\"key\":\"{key}\",\"record\":{},\"signature\":\"{signature}\"}}",
            String::from_utf8_lossy(record)
        );
        hold!(
            String::from_utf8_lossy(line) == written,
            "the frame written again is another line"
        );
    }
    let content = match &parsed.content {
        Ok(content) => content,
        Err(problems) => {
            hold!(!problems.is_empty(), "refused without a problem");
            let text: Vec<_> = problems.iter().map(ToString::to_string).collect();
            return Outcome::refused(&text.join("; "));
        }
    };
    hold!(
        line.len() <= MAX_LINE_BYTES,
        "accepted a line of {} bytes",
        line.len()
    );
    let value = same_for_all(line)?;
    let frame = parsed
        .frame
        .as_ref()
        .ok_or("accepted without the envelope in place")?;
    let head = parsed
        .head
        .as_ref()
        .ok_or("accepted without a place in the chain")?;
    let record = &value["record"];
    hold!(value["key"] == frame.key.to_string(), "another key");
    hold!(
        value["signature"] == frame.signature.to_string(),
        "another signature"
    );
    hold!(record["sequence"] == head.sequence, "another sequence");
    hold!(
        record["previous"] == head.previous.to_string(),
        "another previous"
    );
    hold!(
        record["ledger"] == head.ledger.to_string(),
        "another ledger"
    );
    match content {
        Content::Record(read) => {
            let written = canon::to_canonical(read.as_ref())
                .map_err(|e| format!("accepted, not written: {e}"))?;
            hold!(
                line.get(frame.record.clone()) == Some(&written),
                "accepted, written differently"
            );
            hold!(
                canon::to_line(read.as_ref()).is_ok(),
                "accepted, and too much for a line"
            );
            hold!(record["kind"] == read.body.kind(), "another kind");
            hold!(record["version"] == 1, "another version");
            Ok(Outcome::accepted(read.body.kind()))
        }
        Content::UnknownKind(kind) => {
            hold!(!KINDS.contains(&kind.as_str()), "{kind} is known");
            hold!(record["kind"] == kind.as_str(), "another kind");
            Ok(Outcome::accepted("a kind that is not known"))
        }
        Content::UnknownVersion(version) => {
            hold!(
                *version != 1 && record["version"] == *version,
                "another version"
            );
            Ok(Outcome::accepted("a version that is not known"))
        }
    }
}

fn check_opening(line: &[u8]) -> Checked {
    let opening = match Opening::parse(line) {
        Ok(opening) => opening,
        Err(problem) => return Outcome::refused(&problem.to_string()),
    };
    hold!(
        line.len() <= MAX_LINE_BYTES,
        "accepted an opening of {} bytes",
        line.len()
    );
    let value = same_for_all(line)?;
    let written = opening
        .to_line()
        .map_err(|e| format!("accepted, not written: {e}"))?;
    hold!(written == line, "accepted, written differently");
    hold!(
        value["sequence"] == opening.sequence.value(),
        "another sequence"
    );
    let open = &opening.open;
    let names = [
        ("argv", open.argv.is_some()),
        ("launch", open.launch.is_some()),
        ("stderr", open.stderr.is_some()),
        ("stdout", open.stdout.is_some()),
    ];
    for (name, there) in names {
        hold!(
            value["open"].get(name).is_some() == there,
            "{name} read and not written, or the reverse"
        );
    }
    hold!(
        names.iter().any(|(_, there)| *there),
        "accepted what opens nothing"
    );
    // The commitment is over the value's own bytes.
    if let Some(argv) = &open.argv {
        let bytes = serde_jcs::to_vec(&value["open"]["argv"][1]).map_err(|e| e.to_string())?;
        let commitment = argv.commitment().map_err(|e| e.to_string())?;
        hold!(
            commitment == Hash::sealed(&argv.0.0, &bytes),
            "another commitment"
        );
    }
    let class: Vec<_> = names
        .iter()
        .filter(|(_, there)| *there)
        .map(|(name, _)| *name)
        .collect();
    Ok(Outcome::accepted(&class.join(" ")))
}
