//! Lines that probes print.

use ledger::facts::probe::{Field, MAX_PROBE_LINE_BYTES, ProbeLine};

use crate::engine::random::Random;
use crate::engine::{Checked, Outcome, Target, hold};

const WORDS: &[&str] = &[
    "probe=",
    "dimension=",
    "check=",
    "result=",
    "errno=",
    "twin=",
    "nonce=",
    "detail=",
    "network",
    "filesystem",
    "tcp4",
    "contained",
    "escaped",
    "error",
    "none",
    "EPERM",
    "SIGSYS",
    "E",
    "SIG",
    "ok",
    "failed",
    "00112233445566778899aabbccddeeff",
    "0011223344556677",
    " ",
    "  ",
    "=",
    "probe",
    "a",
    "-",
    "é",
    " detail=",
    " result=escaped",
    " twin=ok",
    " errno=none",
];

#[test]
fn probe_line() {
    let full = "probe=network-tcp4 dimension=network check=tcp4 result=contained errno=ENETUNREACH twin=ok nonce=00112233445566778899aabbccddeeff detail=10.0.2.2:4711";
    let short = "probe=p dimension=cpu result=error";
    crate::run(Target {
        name: "probe_line",
        valid: [full, short].map(|line| line.as_bytes().to_vec()).to_vec(),
        words: WORDS,
        shape: reorder,
        check,
    });
}

/// Drops, doubles, moves or replaces a field.
fn reorder(random: &mut Random, line: &[u8]) -> Option<Vec<u8>> {
    let mut words: Vec<_> = line
        .split(|byte| *byte == b' ')
        .map(<[u8]>::to_vec)
        .collect();
    let at = random.below(words.len());
    match random.below(5) {
        0 => drop(words.remove(at)),
        1 => words.insert(random.below(words.len() + 1), words.get(at)?.clone()),
        2 => words.swap(at, 0),
        3 => {
            let name = words[at].iter().position(|byte| *byte == b'=')? + 1;
            words[at].truncate(name);
            words[at].extend(random.pick(WORDS)?.bytes());
        }
        _ => words.insert(
            at,
            [
                random.pick(WORDS)?.as_bytes(),
                random.pick(WORDS)?.as_bytes(),
            ]
            .concat(),
        ),
    }
    Some(words.join(&b' '))
}

fn check(line: &[u8]) -> Checked {
    let parsed = match ProbeLine::parse(line) {
        Ok(parsed) => parsed,
        Err(error) => {
            let text = error.to_string();
            hold!(
                text.contains("found") && text.contains("expected"),
                "refused as {text:?}"
            );
            return Outcome::refused(&text);
        }
    };
    hold!(
        parsed.to_string().as_bytes() == line,
        "accepted, written as {parsed}"
    );
    hold!(
        line.len() <= MAX_PROBE_LINE_BYTES,
        "accepted {} bytes",
        line.len()
    );
    // Read without its code: up to the detail every word is a field, in order, once.
    let text = std::str::from_utf8(line).map_err(|e| e.to_string())?;
    hold!(
        !text.contains(char::is_control),
        "accepted with a control character"
    );
    let head = text.split_once(" detail=").map_or(text, |(head, _)| head);
    let names: Vec<_> = head
        .split(' ')
        .filter_map(|word| Some(word.split_once('=')?.0))
        .collect();
    let all: Vec<_> = Field::ALL.iter().map(|field| field.as_str()).collect();
    let places: Option<Vec<_>> = names
        .iter()
        .map(|name| all.iter().position(|field| field == name))
        .collect();
    let places = places.ok_or_else(|| format!("accepted with one of {names:?}"))?;
    hold!(
        places.is_sorted_by(|a, b| a < b),
        "accepted in the order {names:?}"
    );
    let absent = parsed.absent();
    let expected = Field::ALL.len() - absent.len() - usize::from(parsed.detail.is_some());
    hold!(
        names.len() == expected,
        "{names:?} are there, {absent:?} are absent"
    );
    Ok(Outcome::accepted(&format!("{} {absent:?}", parsed.result)))
}
