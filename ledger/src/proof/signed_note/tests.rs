use super::*;
use crate::bytes::key::{LocalKey, Message, Signer as _};

const VKEY: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
const PUBLISHED: &str = "This is an example message.\n\n\u{2014} example.com/foo \
Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";

fn stranger() -> NoteKey {
    let key = LocalKey::from_seed(&[9; 32]).unwrap();
    NoteKey::new("example.com/foo", NoteKeyType::Ed25519, *key.public()).unwrap()
}

#[test]
fn published_vector() {
    let key: NoteKey = VKEY.parse().unwrap();
    assert_eq!(key.to_string(), VKEY);
    let note = Note::parse(PUBLISHED.as_bytes()).unwrap();
    assert_eq!(note.text(), "This is an example message.\n");
    assert_eq!(note.to_string(), PUBLISHED);
    let keys = [stranger(), key.clone()];
    let verified = note.verified_by(&keys).unwrap();
    assert_eq!(
        verified,
        [VerifiedSignature {
            key: &key,
            time: None
        }]
    );
}

#[test]
fn unknown_keys_are_ignored_and_alone_not_enough() {
    let note = Note::parse(PUBLISHED.as_bytes()).unwrap();
    assert_eq!(
        note.verified_by(&[stranger()]),
        Err(VerifyNoteError::NoKnownKey(vec!["example.com/foo".into()]))
    );
    // A type that is not read here (ML-DSA-44) is one more unknown key.
    let mut more = note.clone();
    more.sign(SignatureLine {
        name: "example.com/foo".into(),
        key_id: [6; 4],
        payload: vec![0; 2420],
    });
    let more = Note::parse(more.to_string().as_bytes()).unwrap();
    let keys = [VKEY.parse().unwrap()];
    assert_eq!(more.verified_by(&keys).unwrap().len(), 1);
}

#[test]
fn one_bad_signature_of_a_known_key_rejects_the_note() {
    let mut note = Note::parse(PUBLISHED.as_bytes()).unwrap();
    let bad = NoteKey::line(&VKEY.parse().unwrap(), &Base64([1; 64]));
    note.sign(bad);
    assert_eq!(
        note.verified_by(&[VKEY.parse().unwrap()]),
        Err(VerifyNoteError::Signature("example.com/foo".into()))
    );
    let other_text = PUBLISHED.replace("example message", "example massage");
    let note = Note::parse(other_text.as_bytes()).unwrap();
    assert!(note.verified_by(&[VKEY.parse().unwrap()]).is_err());
}

#[test]
fn sixteen_signatures_and_more_are_accepted() {
    let mut note = Note::new("text\n".to_owned()).unwrap();
    let mut keys = Vec::new();
    for n in 0..40 {
        let local = LocalKey::from_seed(&[n; 32]).unwrap();
        let name = format!("signer-{n}");
        let key = NoteKey::new(&name, NoteKeyType::Ed25519, *local.public()).unwrap();
        note.sign(key.line(&local.sign(Message::Checkpoint("text\n")).unwrap()));
        keys.push(key);
    }
    let note = Note::parse(note.to_string().as_bytes()).unwrap();
    assert_eq!(note.verified_by(&keys).unwrap().len(), 40);
}

#[test]
fn any_other_form_is_refused() {
    let line = PUBLISHED.split("\n\n").nth(1).unwrap();
    let table: Vec<(&str, Vec<u8>)> = vec![
        ("empty", vec![]),
        ("no blank line", PUBLISHED.replace("\n\n", "\n").into()),
        ("no signature", b"text\n\n".to_vec()),
        ("no final newline", PUBLISHED.trim_end().into()),
        ("carriage returns", PUBLISHED.replace('\n', "\r\n").into()),
        ("a tab", PUBLISHED.replace(" is ", "\tis ").into()),
        ("hyphen", PUBLISHED.replace('\u{2014}', "-").into()),
        ("two spaces", PUBLISHED.replace("foo Uw", "foo  Uw").into()),
        ("space at the end", PUBLISHED.replace("QM=", "QM= ").into()),
        ("unpadded", PUBLISHED.replace("QM=", "QM").into()),
        ("loose base64", PUBLISHED.replace("QM=", "QN=").into()),
        ("plus in the name", PUBLISHED.replace("/foo", "/f+o").into()),
        ("blank line after", format!("{PUBLISHED}\n").into()),
        ("text after", format!("{PUBLISHED}more\n").into()),
        ("short", "text\n\n\u{2014} a AAAA\n".to_owned().into()),
        (
            "key id alone",
            "text\n\n\u{2014} a AAAAAA==\n".to_owned().into(),
        ),
        (
            "not UTF-8",
            [b"\xff".as_slice(), PUBLISHED.as_bytes()].concat(),
        ),
        (
            "too long",
            format!("{}\n\n{line}", "x".repeat(MAX_NOTE_BYTES)).into(),
        ),
    ];
    for (defect, bytes) in table {
        assert!(Note::parse(&bytes).is_err(), "{defect}");
    }
    // The text itself may hold empty lines: the last one divides.
    let note = Note::parse(format!("a\n\nb\n\n{line}").as_bytes()).unwrap();
    assert_eq!(note.text(), "a\n\nb\n");
}

#[test]
fn keys_have_one_text_form() {
    for (defect, vkey) in [
        ("id of another key", VKEY.replace("530d903a", "530d903b")),
        ("upper-case id", VKEY.replace("530d903a", "530D903A")),
        ("another name", VKEY.replace("foo", "bar")),
        ("no name", VKEY.replace("example.com/foo", "")),
        ("space in the name", VKEY.replace("/foo", "/ foo")),
        ("short key", VKEY.replace("3U2k", "")),
        ("other type", VKEY.replace("+Aek", "+Bek")),
    ] {
        assert!(vkey.parse::<NoteKey>().is_err(), "{defect}: {vkey}");
    }
    let identity = [&[1u8][..], &[1], &[0; 31]].concat();
    let id = Hash::of(&[b"a\n".as_slice(), &identity].concat());
    let weak = format!("a+{}+{}", &id.to_string()[..8], BASE64.encode(identity));
    assert_eq!(
        weak.parse::<NoteKey>(),
        Err(NoteKeyError::Key(PublicKeyError::Weak))
    );
}
