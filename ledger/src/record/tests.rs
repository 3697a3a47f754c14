use super::*;
use crate::bytes::key::{LocalKey, Message, Signer as _};
use crate::bytes::time::Stamp;
use crate::facts::list::List;

fn stamp() -> Stamp {
    Stamp {
        time: "2026-11-29T21:22:00.123456Z".parse().unwrap(),
        clock: Clock {
            boot_id: "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f".parse().unwrap(),
            since_boot_us: U53::from(1_000_000),
        },
    }
}

fn note(text: &str) -> Record {
    let body = Body::Note(Note {
        text: text.to_owned(),
    });
    Record::new(
        body,
        stamp(),
        Hash::of(b"ledger"),
        U53::from(7),
        Hash::of(b"previous"),
    )
}

#[test]
fn a_signed_line_reads_back_and_verifies_by_offsets() {
    let key = LocalKey::generate().unwrap();
    let record = note("día \"x\" \u{7}");
    let line = record.to_signed_line(&key).unwrap();
    let parsed = parse_line(&line);
    assert_eq!(parsed.content, Ok(Content::Record(Box::new(record))));
    let frame = parsed.frame.unwrap();
    assert_eq!(frame.record, RECORD_START..line.len() - RECORD_TAIL);
    let message = Message::Record(&line[frame.record.clone()]);
    assert!(key.public().verifies(message, &frame.signature));
    assert_eq!(parsed.hash, Hash::leaf(&line));
}

#[test]
fn a_line_that_is_not_canonical_is_named_by_its_first_byte() {
    let key = LocalKey::generate().unwrap();
    let line = note("x").to_signed_line(&key).unwrap();
    let text = String::from_utf8(line)
        .unwrap()
        .replace(",\"kind\"", ", \"kind\"");
    let parsed = parse_line(text.as_bytes());
    let at = text.find(" \"kind\"").unwrap();
    assert_eq!(parsed.content, Err(vec![LineProblem::NotCanonical(at)]));
    assert_eq!(parsed.head.unwrap().sequence, 7);
}

#[test]
fn unknown_kinds_and_versions_are_told_from_malformed() {
    let key = LocalKey::generate().unwrap();
    let line = String::from_utf8(note("x").to_signed_line(&key).unwrap()).unwrap();
    let kind = parse_line(
        line.replace("\"kind\":\"note\"", "\"kind\":\"nota\"")
            .as_bytes(),
    );
    assert_eq!(kind.content, Ok(Content::UnknownKind("nota".into())));
    let version = parse_line(line.replace("\"version\":1", "\"version\":2").as_bytes());
    assert_eq!(version.content, Ok(Content::UnknownVersion(2)));
    let newer = line.replace("\"version\":1", "\"version\":2,\"witness\":[]");
    assert_eq!(
        parse_line(newer.as_bytes()).content,
        Ok(Content::UnknownVersion(2))
    );
    let body = parse_line(line.replace("{\"text\":\"x\"}", "{\"text\":1}").as_bytes());
    assert!(matches!(
        body.content.unwrap_err()[..],
        [LineProblem::Type(_)]
    ));
}

fn sample(kind: &str) -> &'static str {
    let of = format!("\"kind\":\"{kind}\"");
    let mut lines = include_str!("sample.jsonl").lines();
    lines.find(|line| line.contains(&of)).unwrap()
}

fn is_type_problem(line: &str) -> bool {
    matches!(
        parse_line(line.as_bytes()).content.unwrap_err()[..],
        [LineProblem::Type(_)]
    )
}

#[test]
fn null_for_an_absent_field_is_no_second_form() {
    let start = sample("start");
    assert!(parse_line(start.as_bytes()).content.is_ok());
    let line = start.replacen("\"policy\":{", "\"matrix\":null,\"policy\":{", 1);
    assert_ne!(line, start);
    assert!(is_type_problem(&line));
    let execution = sample("execution");
    let line = execution.replacen("\"exitCode\"", "\"errno\":null,\"exitCode\"", 1);
    assert_ne!(line, execution);
    assert!(is_type_problem(&line));
    let salt = "01".repeat(16);
    for text in [
        format!(r#"{{"open":{{"argv":null,"launch":["{salt}",["a"]]}},"sequence":7}}"#),
        format!(
            r#"{{"open":{{"stdout":["{salt}",{{"base64":null,"bytes":0,"kept":0,"sha256":"{}","text":""}}]}},"sequence":7}}"#,
            Hash::of(b"")
        ),
    ] {
        assert!(matches!(
            Opening::parse(text.as_bytes()),
            Err(OpeningProblem::Form(_))
        ));
        let without = text
            .replace("\"argv\":null,", "")
            .replace("\"base64\":null,", "");
        assert!(Opening::parse(without.as_bytes()).is_ok(), "{without}");
    }
}

#[test]
fn an_output_that_contradicts_itself_is_refused_wherever_it_stands() {
    let output = format!(
        r#"{{"bytes":2,"kept":2,"sha256":"{}","text":"ab"}}"#,
        Hash::of(b"ab")
    );
    let bad = output.replace("ab\"}", "ax\"}");
    let execution = sample("execution");
    let at = execution.find("\"stdout\":").unwrap() + "\"stdout\":".len();
    let end = at + execution[at..].find('}').unwrap() + 1;
    let line = |output: &str| {
        let (before, after) = (&execution[..at], &execution[end..]);
        format!("{before}{{\"clear\":{output}}}{after}")
    };
    assert!(parse_line(line(&output).as_bytes()).content.is_ok());
    assert!(is_type_problem(&line(&bad)));
    let salt = "01".repeat(16);
    let opening = |output: &str| {
        let text = format!(r#"{{"open":{{"stdout":["{salt}",{output}]}},"sequence":7}}"#);
        Opening::parse(text.as_bytes())
    };
    assert!(opening(&output).is_ok());
    assert!(matches!(
        opening(&bad),
        Err(OpeningProblem::Disorder { name: "stdout", .. })
    ));
}

#[test]
fn a_result_is_held_to_its_outcome() {
    let execution = sample("execution");
    assert!(execution.contains("\"exitCode\":"));
    for (from, to) in [
        ("\"outcome\":\"exited\"", "\"outcome\":\"timeout\""),
        (
            "\"outcome\":\"exited\"",
            "\"outcome\":\"exited\",\"signal\":9",
        ),
        (
            "\"outcome\":\"exited\"",
            "\"outcome\":\"exited\",\"reason\":\"refused\"",
        ),
    ] {
        let line = execution.replacen(from, to, 1);
        assert_ne!(line, execution);
        assert!(is_type_problem(&line), "{to}");
    }
    let start = sample("start");
    let at = start.find("\"declared\":[{").unwrap() + "\"declared\":[".len();
    let end = at + start[at..].find('}').unwrap() + 1;
    let twice = format!("{}{},{}", &start[..at], &start[at..end], &start[at..]);
    assert!(is_type_problem(&twice));
}

#[test]
fn origins_are_names_that_no_other_format_signs() {
    for good in ["example.com/ledger/host-1", "a", "host/0123"] {
        assert!(good.parse::<Origin>().is_ok(), "{good}");
    }
    for bad in [
        "",
        "-a",
        "a b",
        "cosignature/v1",
        "DSSEv1",
        "a\n",
        &"a".repeat(256),
        "día",
    ] {
        assert!(bad.parse::<Origin>().is_err(), "{bad}");
    }
    let id = Hash::of(b"x");
    let prefix = &id.to_string()[..16];
    assert_eq!(
        Origin::for_host("my host", &id).as_str(),
        format!("my-host/{prefix}")
    );
    assert_eq!(Origin::for_host("", &id).as_str(), format!("host/{prefix}"));
    assert_eq!(
        Origin::for_host("SSHSIG", &id).as_str(),
        format!("host-SSHSIG/{prefix}")
    );
}

#[test]
fn a_salted_value_is_written_as_a_pair() {
    let salted = Salted(Salt([1; 16]), List::Inline(vec!["a".to_owned()]));
    let text = serde_json::to_string(&salted).unwrap();
    assert_eq!(text, format!(r#"["{}",["a"]]"#, "01".repeat(16)));
    assert_eq!(
        serde_json::from_str::<Salted<List<String>>>(&text).unwrap(),
        salted
    );
    assert_eq!(
        salted.commitment().unwrap(),
        Hash::sealed(&[1; 16], br#"["a"]"#)
    );
}

#[test]
fn the_lines_in_the_documentation_are_records() {
    let lines: Vec<&str> = include_str!("sample.jsonl").lines().collect();
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| match parse_line(line.as_bytes()).content {
            Ok(Content::Record(record)) => record.body.kind(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["start", "execution"]);
}
