//! Signed notes and checkpoints, and the text form of the keys that sign them.

use ledger::bytes::key::{Base64, LocalKey, Message, PublicKey, Signer as _};
use ledger::proof::checkpoint::{Checkpoint, SignedCheckpoint};
use ledger::proof::signed_note::{
    MAX_NOTE_BYTES, Note, NoteKey, NoteKeyType, SignatureLine, VerifyNoteError,
};

use crate::engine::random::Random;
use crate::engine::{Checked, Outcome, Target, hold};

const LOG: &str = "example.com/ledger/host-1";
const WITNESS: &str = "example.com/witness-1";
/// The full vector of the design: log seed 00..1f, witness seed 20..3f.
const VECTOR: &str = "example.com/ledger/host-1
8
XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=

\u{2014} example.com/ledger/host-1 g+4Dm4vAD3sFVh3WV2P/s/RNFoGshOeJ3cj1pKz4l4w5oeoAMUTgaFXcHgLAdH2QnOYHquYvQ972zPdjNpba7lMNUw4=
\u{2014} example.com/witness-1 AZruNwAAAABkGFDLFu1lrN5hwOVkA+cqQxJADEo5IjAJ6PBky7vaQLi/welC4+WuM1AVgzh8AY/2bbwYO1/EKaAKTvR6LWUUbCJVDA==
";
const WORDS: &[&str] = &[
    "\u{2014} ",
    "\u{2014}",
    "\n\n",
    "\n\n\u{2014} ",
    LOG,
    WITNESS,
    "+",
    "AAAA",
    "AAAAAAA=",
    "AAAAAA==",
    "==",
    "=",
    " ",
    "\n",
    "0\n",
    "8\n",
    "08\n",
    "+8\n",
    "18446744073709551615\n",
    "18446744073709551616\n",
    "XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=\n",
    "83ee039b",
    "019aee37",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
];

fn witness_key() -> LocalKey {
    LocalKey::from_seed(&std::array::from_fn(|at| at as u8 + 32)).unwrap()
}

fn keys() -> [NoteKey; 2] {
    let key = |name, kind, key: PublicKey| NoteKey::new(name, kind, key).unwrap();
    [
        key(LOG, NoteKeyType::Ed25519, *crate::test_key().public()),
        key(WITNESS, NoteKeyType::Cosignature, *witness_key().public()),
    ]
}

#[test]
fn signed_note() {
    let text = "a remark\n\nof two paragraphs\n".to_owned();
    crate::run(Target {
        name: "signed_note",
        valid: vec![VECTOR.as_bytes().to_vec(), sign(text, 1).into_bytes()],
        words: WORDS,
        shape: resign,
        check: check_note,
    });
}

#[test]
fn checkpoint() {
    let stored = crate::vectors().join("key_rotated/ledger/checkpoint");
    crate::run(Target {
        name: "checkpoint",
        valid: vec![VECTOR.as_bytes().to_vec(), std::fs::read(stored).unwrap()],
        words: WORDS,
        shape: resign,
        check: check_checkpoint,
    });
}

#[test]
fn note_key() {
    crate::run(Target {
        name: "note_key",
        valid: keys().map(|key| key.to_string().into_bytes()).to_vec(),
        words: WORDS,
        shape: |_, _| None,
        check: check_note_key,
    });
}

fn sign(text: String, times: usize) -> String {
    let [log, _] = keys();
    let signature = crate::test_key().sign(Message::Checkpoint(&text)).unwrap();
    let line = log.line(&signature).to_string();
    format!("{text}\n{}", line.repeat(times))
}

/// Changes the text and signs it again, or adds, doubles and moves signature lines.
fn resign(random: &mut Random, note: &[u8]) -> Option<Vec<u8>> {
    let note = std::str::from_utf8(note).ok()?;
    let (text, lines) = note.rsplit_once("\n\n")?;
    let mut text = format!("{text}\n");
    let word = random.pick(WORDS).copied()?;
    if random.below(2) == 0 {
        let mut at = random.below(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        match random.below(3) {
            0 => text.insert_str(at, word),
            1 => drop(text.remove(at)),
            _ => text = text.replacen('8', &random.next().to_string(), 1),
        }
    }
    let times = 1 + random.below(2);
    let mut note = sign(text, times);
    let stranger = SignatureLine {
        name: random.pick(&[LOG, WITNESS, "stranger", "é"])?.to_string(),
        key_id: [random.byte(); 4],
        payload: vec![random.byte(); 1 + random.below(80)],
    };
    match random.below(5) {
        0 => note.push_str(&stranger.to_string()),
        1 => note.push_str(lines),
        2 => {
            let many = [8, 16, 300, 700][random.below(4)];
            note.extend(std::iter::repeat_n(stranger.to_string(), many));
        }
        3 => note.push_str(
            &keys()[random.below(2)]
                .line(&Base64([random.byte(); 64]))
                .to_string(),
        ),
        _ => {}
    }
    Some(note.into_bytes())
}

fn check_note(bytes: &[u8]) -> Checked {
    let note = match Note::parse(bytes) {
        Ok(note) => note,
        Err(error) => return Outcome::refused(&error.to_string()),
    };
    hold!(
        bytes.len() <= MAX_NOTE_BYTES,
        "accepted a note of {} bytes",
        bytes.len()
    );
    hold!(
        note.to_string().as_bytes() == bytes,
        "accepted, written differently"
    );
    hold!(note.text().ends_with('\n'), "a text without its line end");
    hold!(
        !note.signatures().is_empty(),
        "accepted without a signature"
    );
    for line in note.signatures() {
        let text = line.to_string();
        let read: Result<SignatureLine, _> = text.trim_end_matches('\n').parse();
        hold!(read.as_ref() == Ok(line), "{text:?} reads back as {read:?}");
    }
    let keys = keys();
    let class = check_signatures(&note, &keys)?;
    // A line of a stranger changes nothing; a wrong one of a known key refuses the note.
    let stranger = SignatureLine {
        name: "stranger".to_owned(),
        key_id: [7; 4],
        payload: vec![7; 64],
    };
    let mut more = note.clone();
    more.sign(stranger);
    let with_stranger = more.verified_by(&keys);
    match (note.verified_by(&keys), with_stranger) {
        (Ok(a), Ok(b)) => hold!(a == b, "a stranger changes who signed"),
        (Err(VerifyNoteError::NoKnownKey(_)), Err(VerifyNoteError::NoKnownKey(_))) => {}
        (a, b) => hold!(a == b, "a stranger changes the judgement: {a:?} {b:?}"),
    }
    more.sign(keys[0].line(&Base64([1; 64])));
    let wrong = more.verified_by(&keys);
    hold!(
        matches!(wrong, Err(VerifyNoteError::Signature(_))),
        "a wrong signature of a known key: {wrong:?}"
    );
    Ok(Outcome::accepted(class))
}

/// Who signed, found without the code under test.
fn check_signatures(note: &Note, keys: &[NoteKey; 2]) -> Result<&'static str, String> {
    let (mut good, mut bad) = ([false; 2], false);
    for line in note.signatures() {
        for (key, good) in keys.iter().zip(&mut good) {
            if line.name != key.name() || line.key_id != key.id() {
                continue;
            }
            let (message, signature) = match key.key_type() {
                NoteKeyType::Ed25519 => (note.text().to_owned(), line.payload.as_slice()),
                NoteKeyType::Cosignature => {
                    let (time, rest) = line.payload.split_at(line.payload.len().min(8));
                    let time = time
                        .iter()
                        .fold(0u64, |time, byte| time << 8 | u64::from(*byte));
                    (
                        format!("cosignature/v1\ntime {time}\n{}", note.text()),
                        rest,
                    )
                }
            };
            let signature = <[u8; 64]>::try_from(signature);
            let valid = signature
                .is_ok_and(|it| key.public().verifies_bytes(message.as_bytes(), &Base64(it)));
            *good |= valid;
            bad |= !valid;
        }
    }
    let found = note.verified_by(keys);
    let text = found.as_ref().err().map(ToString::to_string);
    if let Some(text) = &text {
        Outcome::refused(text)?;
    }
    match (found, bad, good) {
        (Err(VerifyNoteError::Signature(_)), true, _) => Ok("a note with a wrong signature"),
        (Err(VerifyNoteError::NoKnownKey(names)), false, [false, false]) => {
            hold!(
                names.len() == note.signatures().len(),
                "{} names",
                names.len()
            );
            Ok("a note that strangers signed")
        }
        (Ok(verified), false, good) => {
            for (key, good) in keys.iter().zip(good) {
                let there = verified.iter().any(|signature| signature.key == key);
                hold!(
                    there == good,
                    "{}: signed {good}, found {there}",
                    key.name()
                );
            }
            Ok(if good == [true, true] {
                "a note with a witness"
            } else {
                "a note that one key signed"
            })
        }
        (found, bad, good) => Err(format!("good {good:?}, bad {bad}, found {found:?}")),
    }
}

fn check_checkpoint(bytes: &[u8]) -> Checked {
    let signed = match SignedCheckpoint::parse(bytes) {
        Ok(signed) => signed,
        Err(error) => return Outcome::refused(&error.to_string()),
    };
    hold!(
        signed.to_string().as_bytes() == bytes,
        "accepted, written differently"
    );
    let claim = signed.claim();
    let text = signed.note().text();
    hold!(
        claim.to_string() == text,
        "its text is {text:?}, it says {claim}"
    );
    let root = Base64(*claim.root.as_bytes());
    hold!(
        text == format!("{}\n{}\n{root}\n", claim.origin, claim.size),
        "another form: {text:?}"
    );
    let read: Result<Checkpoint, _> = text.parse();
    hold!(
        read.as_ref() == Ok(claim),
        "its text reads back as {read:?}"
    );
    match signed.signed_by(crate::test_key().public()) {
        Ok(said) => {
            hold!(said == claim, "another claim once it is verified");
            Ok(Outcome::accepted("signed"))
        }
        Err(error) => {
            Outcome::refused(&error.to_string())?;
            Ok(Outcome::accepted("not signed by the key"))
        }
    }
}

fn check_note_key(bytes: &[u8]) -> Checked {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Outcome::refused("not text");
    };
    match text.parse::<NoteKey>() {
        Ok(key) => {
            hold!(key.to_string() == text, "accepted, written differently");
            let again = NoteKey::new(key.name(), key.key_type(), *key.public());
            hold!(
                again.as_ref() == Ok(&key),
                "its parts make another key: {again:?}"
            );
            Ok(Outcome::accepted(match key.key_type() {
                NoteKeyType::Ed25519 => "Ed25519",
                NoteKeyType::Cosignature => "cosignature",
            }))
        }
        Err(error) => Outcome::refused(&error.to_string()),
    }
}
