//! Whole ledgers through the walk: records that are changed, signed again and linked again.

use ledger::bytes::hash::Hash;
use ledger::bytes::text::clean;
use ledger::file::source::Source;
use ledger::file::walk::walk;
use ledger::finding::{Class, Code};
use ledger::record::{Content, Frame, parse_line};
use serde_json::Value;

use crate::engine::json::Json;
use crate::engine::random::Random;
use crate::engine::{Checked, Outcome, Target, hold};
use crate::record::{self, WORDS, signed};

/// Vectors in which every line verifies, and which the test key signs.
const GOOD: [&str; 4] = ["valid", "opening_valid", "closed", "key_rotated"];
/// Longest message, expectation or help of a finding, once cleaned, in bytes.
const MAX_SAID_BYTES: usize = 4_000;

#[test]
fn ledger() {
    let valid = GOOD.map(|vector| {
        let mut bytes = crate::lines(vector).join(&b'\n');
        bytes.push(b'\n');
        bytes
    });
    crate::run(Target {
        name: "ledger",
        valid: valid.to_vec(),
        words: WORDS,
        shape: relink,
        check,
    });
}

/// Changes one record, or the order, and makes chain and signatures fit again from there on.
fn relink(random: &mut Random, ledger: &[u8]) -> Option<Vec<u8>> {
    let mut lines: Vec<_> = ledger
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let at = random.below(lines.len());
    match random.below(4) {
        0 => lines.swap(at, 0),
        1 => lines.insert(at, lines.get(at)?.clone()),
        _ => {
            lines[at] = match lines[at].starts_with(b"{\"open\":") {
                true => record::reshape(random, &lines[at])?,
                false => record::resign(random, &lines[at])?,
            }
        }
    }
    let (mut previous, mut sequence) = (Hash::ZERO, 0u32);
    for line in &mut lines {
        let Some(mut json) = Json::read(line) else {
            continue;
        };
        if random.below(12) == 0 {
            previous = Hash::leaf(line);
            continue;
        }
        let Some(record) = json.field("record") else {
            if let Some(named) = json.field("sequence") {
                *named = Json::Word(sequence.to_string());
                *line = json.write(random);
            }
            continue;
        };
        if let Some(old) = record.field("previous") {
            *old = Json::Text(previous.to_string());
        }
        if let Some(old) = record.field("sequence") {
            *old = Json::Word(sequence.to_string());
        }
        let written = record.write(random);
        *line = signed(&written);
        (previous, sequence) = (Hash::leaf(line), sequence + 1);
    }
    Some(lines.join(&b'\n'))
}

fn check(bytes: &[u8]) -> Checked {
    let mut source = Source::from_reader("ledger", Box::new(std::io::Cursor::new(bytes.to_vec())));
    let walked = walk(&mut source, None, &mut ())
        .map_err(|e| format!("bytes in memory cannot be read: {e}"))?;
    let tally = &walked.tally;
    hold!(
        tally.verified <= tally.records,
        "{} of {} records verified",
        tally.verified,
        tally.records
    );
    let (records, verified) = (tally.records, tally.verified);
    let exit = walked.findings.exit_code(records);
    let torn = walked.findings.count(Code::TornTail) > 0;
    let worst = walked.findings.worst();
    let mut said = vec![];
    for finding in walked.findings.into_list() {
        for text in [
            Some(&finding.message),
            finding.expected.as_ref(),
            finding.found.as_ref(),
            finding.help.as_ref(),
        ] {
            let Some(text) = text else { continue };
            let text = clean(text);
            hold!(
                !text.is_empty(),
                "{}: a finding that says nothing",
                finding.code
            );
            hold!(
                text.len() <= MAX_SAID_BYTES,
                "{}: {} bytes said: {:.200}",
                finding.code,
                text.len(),
                text
            );
        }
        said.push(finding.code.to_string());
    }
    said.sort();
    said.dedup();
    if exit != 0 {
        hold!(
            !said.is_empty() || records == 0,
            "exit code {exit} and no finding"
        );
        return Outcome::refused(&format!("{exit} {}", said.join(" ")));
    }
    hold!(
        !torn && worst.is_none_or(|worst| worst == Class::Observation),
        "green with {said:?}"
    );
    hold!(
        records == verified && records > 0,
        "green with {verified} of {records} verified"
    );
    hold_links(bytes, records)?;
    Ok(Outcome::accepted(&said.join(" ")))
}

/// What the walk must have seen to call a ledger good, seen again without its code.
fn hold_links(bytes: &[u8], records: u64) -> Result<(), String> {
    let text = bytes
        .strip_suffix(b"\n")
        .ok_or("green without a last line end")?;
    let (mut previous, mut sequence, mut ledger) = (Hash::ZERO, 0, None);
    for line in text.split(|byte| *byte == b'\n') {
        let value: Value = record::same_for_all(line)?;
        let Some(record) = value.get("record") else {
            hold!(
                value.get("open").is_some() && value["sequence"] == sequence,
                "an opening of another record"
            );
            continue;
        };
        hold!(
            record["previous"] == previous.to_string(),
            "record {sequence} does not link"
        );
        hold!(
            record["sequence"] == sequence,
            "record {sequence} has another number"
        );
        let first = ledger.get_or_insert_with(|| record["ledger"].clone());
        hold!(
            *first == record["ledger"],
            "record {sequence} is of another ledger"
        );
        hold!(
            matches!(parse_line(line).content, Ok(Content::Record(_))),
            "record {sequence} was not read"
        );
        hold!(
            Frame::cut(line).is_some(),
            "record {sequence} has no envelope"
        );
        (previous, sequence) = (Hash::leaf(line), sequence + 1);
    }
    hold!(sequence == records, "{records} counted, {sequence} there");
    Ok(())
}
