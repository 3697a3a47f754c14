//! Bundles through the walk: lines of every kind changed, moved, left out, repeated, signed again.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ledger::bytes::hash::Hash;
use ledger::file::bundle::PREFIX;
use ledger::file::source::Source;
use ledger::file::walk::walk;
use ledger::finding::{Class, Code};
use serde_json::Value;

use crate::engine::random::Random;
use crate::engine::{Checked, Outcome, Target, hold};
use crate::record;

/// Vectors that are good, and no longer than an input may be.
const GOOD: [&str; 2] = ["valid_part", "opening_withheld"];
/// Longest message, expectation or help of a finding, in bytes.
const MAX_SAID_BYTES: usize = 4_000;

const WORDS: &[&str] = &[
    "at",
    "blob",
    "bundle",
    "bytes",
    "checkpoint",
    "containment-ledger/bundle/v1",
    "containment-ledger/bundle/v2",
    "files",
    "index",
    "key",
    "ledger",
    "open",
    "proof",
    "record",
    "records",
    "sequence",
    "signature",
    "size",
    "45000",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "{}\n",
    "\n",
    "null",
];

#[test]
fn bundle() {
    let folder = crate::vectors().join("../bundle");
    let valid = GOOD.map(|name| std::fs::read(folder.join(name).join("bundle")).unwrap());
    crate::run(Target {
        name: "bundle",
        valid: valid.to_vec(),
        words: WORDS,
        shape: rearrange,
        check,
    });
}

/// Changes one line or the order of lines, and mostly lets the header count what is there.
fn rearrange(random: &mut Random, bundle: &[u8]) -> Option<Vec<u8>> {
    let text = bundle.strip_suffix(b"\n").unwrap_or(bundle);
    let mut lines: Vec<_> = text
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let at = random.below(lines.len());
    let to = random.below(lines.len());
    match random.below(8) {
        0 => lines.swap(at, to),
        1 => lines.insert(to, lines.get(at)?.clone()),
        2 => drop(lines.remove(at)),
        // A record goes with its proof and its opening.
        3 => {
            let from = lines[..=at].iter().rposition(|line| is(line, "index"))?;
            let length = lines[from..].iter().position(|line| is(line, "key"))? + 1;
            drop(lines.drain(from..from + length));
        }
        _ if is(&lines[at], "key") => lines[at] = record::resign(random, &lines[at])?,
        _ => lines[at] = record::reshape(random, &lines[at])?,
    }
    if random.below(4) > 0 {
        count_again(&mut lines);
    }
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    Some(bytes)
}

/// Lets the header, where it can be read, count what is there.
fn count_again(lines: &mut [Vec<u8>]) {
    let records = lines.iter().filter(|line| is(line, "key")).count();
    let files = lines.iter().filter(|line| line.starts_with(b"{\"at\":0,"));
    let files = files.count();
    let Some(first) = lines.first_mut() else {
        return;
    };
    if let Ok(Value::Object(mut header)) = serde_json::from_slice(first) {
        header.insert("files".to_owned(), files.into());
        header.insert("records".to_owned(), records.into());
        *first = Value::from(header).to_string().into_bytes();
    }
}

/// Whether a line is of the kind whose first field is called so.
fn is(line: &[u8], first: &str) -> bool {
    line.starts_with(format!("{{\"{first}\":").as_bytes())
}

/// What a walk says: its exit code, how many records it saw, and the codes of its findings.
type Said = (u8, u64, Vec<String>);

fn said(mut source: Source) -> Result<Said, String> {
    let walked = walk(&mut source, None, &mut ())
        .map_err(|e| format!("bytes that are there cannot be read: {e}"))?;
    let records = walked.tally.records;
    hold!(
        walked.tally.verified <= records,
        "{} of {records} records verified",
        walked.tally.verified
    );
    let exit = walked.findings.exit_code(records);
    let worst = walked.findings.worst();
    let torn = walked.findings.count(Code::TornTail) > 0;
    hold!(
        exit != 0 || !torn && worst.is_none_or(|worst| worst == Class::Observation),
        "green with {worst:?}"
    );
    let mut codes = vec![];
    for finding in walked.findings.into_list() {
        let texts = [
            Some(&finding.message),
            finding.expected.as_ref(),
            finding.found.as_ref(),
            finding.help.as_ref(),
        ];
        for text in texts.into_iter().flatten() {
            let text = ledger::bytes::text::clean(text);
            hold!(
                !text.is_empty() && text.len() <= MAX_SAID_BYTES,
                "{}: {} bytes said: {text:.200}",
                finding.code,
                text.len()
            );
        }
        codes.push(finding.code.to_string());
    }
    codes.sort();
    codes.dedup();
    Ok((exit, records, codes))
}

fn check(bytes: &[u8]) -> Checked {
    let reader = Box::new(std::io::Cursor::new(bytes.to_vec()));
    let streamed = said(Source::from_reader("bundle", reader))?;
    let file = tempfile::NamedTempFile::new().map_err(|e| format!("no file to read: {e}"))?;
    std::fs::write(file.path(), bytes).map_err(|e| format!("no file to read: {e}"))?;
    let open = || Source::open(file.path()).map_err(|e| format!("cannot be opened: {e}"));
    let filed = said(open()?)?;
    hold!(
        streamed == filed,
        "a stream says {streamed:?}, the same bytes in a file {filed:?}"
    );
    let (exit, records, codes) = filed;
    if exit != 0 {
        hold!(
            !codes.is_empty() || records == 0,
            "exit code {exit} and no finding"
        );
        return Outcome::refused(&format!("{exit} {}", codes.join(" ")));
    }
    if bytes.starts_with(PREFIX) {
        hold_bundle(bytes, records, &open()?)?;
    }
    Ok(Outcome::accepted(&codes.join(" ")))
}

/// What the walk must have seen to call a bundle good, seen again without its code.
fn hold_bundle(bytes: &[u8], shown: u64, source: &Source) -> Result<(), String> {
    let text = bytes
        .strip_suffix(b"\n")
        .ok_or("green without a last line end")?;
    let mut lines = text.split(|byte| *byte == b'\n').peekable();
    let header = record::same_for_all(lines.next().unwrap_or_default())?;
    let note = record::same_for_all(lines.next().unwrap_or_default())?;
    let note = note["checkpoint"].as_str().ok_or("green without a note")?;
    let mut of_note = note.lines().skip(1);
    let size: u64 = of_note
        .next()
        .and_then(|it| it.parse().ok())
        .ok_or("no size")?;
    let root = of_note.next().ok_or("no root")?;
    let (mut files, mut before) = (0, None);
    while let Some(first) = lines.next_if(|line| is(line, "at")) {
        let first = record::same_for_all(first)?;
        let (name, length) = (first["blob"].clone(), first["size"].as_u64());
        let mut content = decoded(&first)?;
        while let Some(more) =
            lines.next_if(|line| is(line, "at") && !line.starts_with(b"{\"at\":0,"))
        {
            let more = record::same_for_all(more)?;
            hold!(
                more["blob"] == name && more["at"] == content.len(),
                "a piece of another place"
            );
            content.extend(decoded(&more)?);
        }
        hold!(
            first["at"] == 0 && length == Some(content.len() as u64),
            "a file that is not whole"
        );
        let hash = Hash::of(&content);
        hold!(name == hash.to_string(), "a file that is not its name");
        hold!(before < Some(hash), "files out of order");
        let reader = source.attachments.blob_reader(&hash);
        let reader = reader.map_err(|e| format!("a file that cannot be read: {e}"))?;
        let mut again = Vec::new();
        reader
            .ok_or("a file that is not found")?
            .read_to_end(&mut again)
            .map_err(|e| format!("a file that cannot be read: {e}"))?;
        hold!(again == content, "a file that is read differently");
        (files, before) = (files + 1, Some(hash));
    }
    let (mut records, mut last): (u64, Option<(u64, Hash)>) = (0, None);
    while let Some(proof) = lines.next() {
        let proof = record::same_for_all(proof)?;
        let index = proof["index"].as_u64().ok_or("a line that is no proof")?;
        if let Some(opening) = lines.next_if(|line| is(line, "open")) {
            let opening = record::same_for_all(opening)?;
            hold!(opening["sequence"] == index, "an opening of another record");
        }
        let line = lines.next().ok_or("a proof without a record")?;
        let value = record::same_for_all(line)?;
        let of = &value["record"];
        hold!(
            of["sequence"] == index && of["ledger"] == header["ledger"],
            "a record of another place or ledger"
        );
        let hash = Hash::leaf(line);
        if let Some((before, linked)) = last {
            hold!(before < index, "records out of order");
            let links = before + 1 != index || of["previous"] == linked.to_string();
            hold!(links, "record {index} does not link");
        }
        let path = proof["proof"].as_array().ok_or("a proof of no hashes")?;
        let found = root_of(hash, index, size, path).ok_or("a proof of another length")?;
        hold!(found == root, "record {index} is not under the root");
        (records, last) = (records + 1, Some((index, hash)));
    }
    hold!(
        header["records"] == records && header["files"] == files && header["size"] == size,
        "the header counts something else"
    );
    hold!(records == shown, "{shown} counted, {records} there");
    Ok(())
}

fn decoded(piece: &Value) -> Result<Vec<u8>, String> {
    let text = piece["bytes"].as_str().ok_or("a piece without bytes")?;
    STANDARD.decode(text).map_err(|e| format!("a piece: {e}"))
}

/// The root that a proof leads to, in base64 (RFC 9162, 2.1.3.2).
fn root_of(leaf: Hash, index: u64, size: u64, path: &[Value]) -> Option<String> {
    let (mut at, mut most, mut hash) = (index, size.checked_sub(1)?, leaf);
    for beside in path {
        let bytes = STANDARD.decode(beside.as_str()?).ok()?;
        let beside = Hash::from_bytes(bytes.try_into().ok()?);
        if most == 0 {
            return None;
        }
        if at % 2 == 1 || at == most {
            hash = Hash::node(&beside, &hash);
            while at % 2 == 0 && at != 0 {
                (at, most) = (at / 2, most / 2);
            }
        } else {
            hash = Hash::node(&hash, &beside);
        }
        (at, most) = (at / 2, most / 2);
    }
    (most == 0).then(|| STANDARD.encode(hash.as_bytes()))
}
