//! The readers of derived state under fuzzing: `tip` and `.heads`. What they take is exactly what they write, and
//! anything else counts as absent.

#[allow(dead_code, reason = "shared with tests/fuzz, which uses all of it")]
#[path = "../../../../tests/fuzz/engine/mod.rs"]
mod engine;

use engine::json::Json;
use engine::random::Random;
use engine::{Checked, Outcome, Target, hold};

use super::super::heads::{self, Heads};
use super::super::state::Tip;
use super::*;
use crate::bytes::canon::to_canonical;

const WORDS: &[&str] = &[
    "closedAt",
    "head",
    "host",
    "body",
    "end",
    "sequence",
    "keys",
    "custody",
    "file",
    "agent",
    "ephemeral",
    "from",
    "publicKey",
    "ledger",
    "offset",
    "open",
    "run",
    "origin",
    "size",
    "standby",
    "matrices",
    "policy",
    "probed",
    "recoveries",
    "runtime",
    "tier",
    "uid",
    "device",
    "inode",
    "path",
    "root",
    "\n",
    "{}\n",
    "null",
];

/// The derived files of a ledger, as the store writes them.
fn written(path: impl Fn(&Place) -> PathBuf) -> Vec<u8> {
    let place = Place::new();
    let mut store = place.open();
    let body = Body::Note(Note { text: "one".into() });
    store
        .append(body, None, &stamp(), Durability::Durable)
        .unwrap();
    drop(store);
    std::fs::read(path(&place)).unwrap()
}

#[test]
fn tip() {
    let valid = vec![written(|place| place.dir().join("tip"))];
    engine::run(Target {
        name: "tip",
        valid,
        words: WORDS,
        shape: sum_again,
        check: check_tip,
    });
}

#[test]
fn heads() {
    let one = written(Place::heads);
    let valid = vec![one.clone(), one.repeat(3)];
    engine::run(Target {
        name: "heads",
        valid,
        words: WORDS,
        shape: reshape_line,
        check: check_heads,
    });
}

/// Changes the line of `tip` and writes the sum that goes with it.
fn sum_again(random: &mut Random, tip: &[u8]) -> Option<Vec<u8>> {
    let line = tip.split(|byte| *byte == b'\n').next()?;
    let mut json = Json::read(line)?;
    json.change(random, WORDS);
    let mut bytes = json.write(random);
    let sum = Hash::of(&bytes);
    bytes.extend(format!("\n{sum}\n").bytes());
    Some(bytes)
}

fn reshape_line(random: &mut Random, heads: &[u8]) -> Option<Vec<u8>> {
    let mut lines: Vec<_> = heads
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let at = random.below(lines.len());
    let mut json = Json::read(&lines[at])?;
    json.change(random, WORDS);
    lines[at] = json.write(random);
    Some(lines.join(&b'\n'))
}

fn check_tip(bytes: &[u8]) -> Checked {
    let Some(tip) = Tip::parse(bytes) else {
        return Outcome::refused("counts as absent");
    };
    let mut again = to_canonical(&tip).map_err(|e| format!("accepted, not written: {e}"))?;
    let jcs = serde_json::from_slice::<serde_json::Value>(&again).map_err(|e| e.to_string())?;
    hold!(
        serde_jcs::to_vec(&jcs).ok().as_ref() == Some(&again),
        "accepted, and JCS differs"
    );
    let sum = Hash::of(&again);
    again.extend(format!("\n{sum}\n").bytes());
    hold!(again == bytes, "accepted, written differently");
    // What it claims is not believed: the state that it makes must be one that can be asked.
    match tip.clone().into_state(Frontier::default()) {
        None => Ok(Outcome::accepted("keys that are none")),
        Some(state) => {
            let (size, segment) = (state.size(), state.segment());
            hold!(
                segment <= size && state.root() == Frontier::default().root(),
                "size {size}, segment {segment}"
            );
            Ok(Outcome::accepted("a state"))
        }
    }
}

fn check_heads(bytes: &[u8]) -> Checked {
    let Heads { lines, unreadable } = heads::parse(bytes);
    let mut written = Vec::new();
    for line in &lines {
        let line = to_canonical(line).map_err(|e| format!("read, not written: {e}"))?;
        hold!(
            bytes
                .split(|byte| *byte == b'\n')
                .any(|there| there == line),
            "a line that is not there"
        );
        written.extend(line);
        written.push(b'\n');
    }
    hold!(
        unreadable == (written != bytes),
        "{} lines, unreadable: {unreadable}",
        lines.len()
    );
    if unreadable {
        Outcome::refused(if lines.is_empty() {
            "unreadable"
        } else {
            "in part unreadable"
        })
    } else {
        Ok(Outcome::accepted(match lines.len() {
            0 => "no line",
            1 => "one line",
            _ => "lines",
        }))
    }
}
