//! The table of lines that are read, and of those that are not, with the words of the refusal.

use super::*;
use proptest::prelude::*;

const NONCE: &str = "00112233445566778899aabbccddeeff";

/// A line of the suite, with one part replaced.
fn with(part: &str, by: &str) -> String {
    let line = format!(
        "probe=network-tcp4 dimension=network check=tcp4 result=contained errno=ENETUNREACH twin=ok nonce={NONCE} detail=10.0.2.2:4711 refused"
    );
    assert!(line.contains(part), "{part}");
    line.replacen(part, by, 1)
}

#[test]
fn a_line_of_the_suite_has_every_field() {
    let line = ProbeLine::parse(with("", "").as_bytes()).unwrap();
    assert_eq!(line.probe.as_str(), "network-tcp4");
    assert_eq!(line.dimension, Control::Network);
    assert_eq!(line.check_id().as_deref(), Some("network/tcp4"));
    assert_eq!(line.result, ProbeResult::Contained);
    assert_eq!(line.errno, "ENETUNREACH".parse().ok());
    assert_eq!(line.twin, Some(Twin::Ok));
    assert_eq!(line.nonce.as_ref().unwrap().as_bytes().len(), 16);
    let detail = line.detail.as_ref().unwrap();
    assert_eq!(detail.as_str(), "10.0.2.2:4711 refused");
    assert_eq!(line.absent(), []);
    assert_eq!(line.to_string(), with("", ""));
}

#[test]
fn what_is_accepted_is_written_back() {
    let longest = "é".repeat(MAX_DETAIL_BYTES / 2);
    for line in [
        "probe=p dimension=cpu result=error".to_owned(),
        "probe=p dimension=cpu check=quota result=escaped".to_owned(),
        "probe=p dimension=cpu result=contained detail=a  b=c probe=x ".to_owned(),
        format!("probe=p dimension=cpu result=contained nonce={NONCE}"),
        "probe=p dimension=cpu result=contained twin=none detail= ".to_owned(),
        with("errno=ENETUNREACH", "errno=none"),
        with("errno=ENETUNREACH", "errno=SIGSYS"),
        with("errno=ENETUNREACH", "errno=E2BIG"),
        with("twin=ok", "twin=failed"),
        with("check=tcp4 ", ""),
        with(NONCE, &"0f".repeat(64)),
        with(NONCE, &"0f".repeat(8)),
        with("10.0.2.2:4711 refused", &longest),
        with("probe=network-tcp4", &format!("probe={}", "a".repeat(64))),
        with("probe=network-tcp4", "probe=9.a_b-c"),
    ] {
        let parsed = ProbeLine::parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(parsed.to_string(), line);
        assert_eq!(line.parse(), Ok(parsed));
    }
}

#[test]
fn what_a_third_party_leaves_out_is_named() {
    let line: ProbeLine = "probe=p dimension=cpu result=error twin=none"
        .parse()
        .unwrap();
    assert_eq!(line.check_id(), None);
    let absent = [Field::Check, Field::Errno, Field::Nonce, Field::Detail];
    assert_eq!(line.absent(), absent);
}

#[test]
fn a_refusal_names_place_found_and_expected() {
    for (line, refusal) in [
        ("".to_owned(), r#"byte 0: found "", expected probe=…"#),
        (
            "contained".to_owned(),
            r#"byte 0: found "contained", expected probe=…"#,
        ),
        (
            with("probe=network-tcp4 ", ""),
            "byte 0: found dimension, expected probe=…",
        ),
        (
            with("dimension=network ", ""),
            "byte 19: found check, expected dimension=…",
        ),
        (
            with("result=contained ", ""),
            "byte 48: found errno, expected result=…",
        ),
        (
            "probe=p dimension=cpu".to_owned(),
            "byte 21: found the end of the line, expected check=… or result=…",
        ),
        (
            "probe=p dimension=cpu resul=error".to_owned(),
            r#"byte 22: found "resul=error", expected check=… or result=…"#,
        ),
        (
            with("twin=ok", "twin=ok twin=ok"),
            "byte 91: found twin again, expected it once",
        ),
        (
            with("errno=ENETUNREACH twin=ok", "twin=ok errno=ENETUNREACH"),
            "byte 73: found errno, expected nonce=… or detail=…",
        ),
        (
            with("twin=ok", "host=a"),
            r#"byte 83: found "host=a", expected twin=… or nonce=… or detail=…"#,
        ),
        (
            with(" result", "  result"),
            r#"byte 48: found "", expected result=…"#,
        ),
        (
            "probe=p dimension=cpu result=error ".to_owned(),
            r#"byte 35: found "", expected errno=… or twin=… or nonce=… or detail=…"#,
        ),
        (
            format!(" {}", with("", "")),
            r#"byte 0: found "", expected probe=…"#,
        ),
        (
            with("probe=network-tcp4", "probe=Network"),
            r#"byte 6: probe: found "Network", expected 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"#,
        ),
        (
            with("probe=network-tcp4", &format!("probe={}", "a".repeat(65))),
            r#"byte 6: probe: found "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"…, expected 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"#,
        ),
        (
            with("probe=network-tcp4", "probe="),
            r#"byte 6: probe: found "", expected 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"#,
        ),
        (
            with("check=tcp4", "check=network/tcp4"),
            r#"byte 43: check: found "network/tcp4", expected 1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"#,
        ),
        (
            with("dimension=network", "dimension=net"),
            r#"byte 29: dimension: found "net", expected the name of a control, such as network"#,
        ),
        (
            with("result=contained", "result=passed"),
            r#"byte 55: result: found "passed", expected one of contained, escaped, error"#,
        ),
        (
            with("errno=ENETUNREACH", "errno=101"),
            r#"byte 71: errno: found "101", expected none, or a name such as EPERM or SIGSYS"#,
        ),
        (
            with("errno=ENETUNREACH", "errno=E"),
            r#"byte 71: errno: found "E", expected none, or a name such as EPERM or SIGSYS"#,
        ),
        (
            with("twin=ok", "twin=OK"),
            r#"byte 88: twin: found "OK", expected one of ok, failed, none"#,
        ),
        (
            with(NONCE, "00112233445566"),
            r#"byte 97: nonce: found "00112233445566", expected 8 to 64 bytes in lower-case hexadecimal digits"#,
        ),
        (
            with(NONCE, "00112233445566778"),
            r#"byte 97: nonce: found "00112233445566778", expected 8 to 64 bytes in lower-case hexadecimal digits"#,
        ),
        (
            with(NONCE, "001122334455667A"),
            r#"byte 97: nonce: found "001122334455667A", expected 8 to 64 bytes in lower-case hexadecimal digits"#,
        ),
        (
            with(NONCE, "éé001122334455667"),
            r#"byte 97: nonce: found "éé001122334455667", expected 8 to 64 bytes in lower-case hexadecimal digits"#,
        ),
        (
            "probe=p dimension=cpu result=error detail=".to_owned(),
            r#"byte 42: detail: found "", expected 1 to 1024 bytes of text without control characters"#,
        ),
        (
            with("refused", "\u{1b}[2J"),
            r#"byte 151: found '\u{1b}', expected no control character"#,
        ),
        (
            with("refused", "a\u{85}b"),
            r#"byte 152: found '\u{85}', expected no control character"#,
        ),
        (
            with("refused", "refused\n"),
            r#"byte 158: found '\n', expected no control character"#,
        ),
        (
            with("refused", &"a".repeat(2_000)),
            "found a line of 2151 bytes, expected at most 2048",
        ),
    ] {
        match ProbeLine::parse(line.as_bytes()) {
            Ok(parsed) => panic!("{line:?} was read as {parsed:?}"),
            Err(error) => assert_eq!(error.to_string(), refusal, "{line:?}"),
        }
    }
    let long = with("10.0.2.2:4711 refused", &"a".repeat(MAX_DETAIL_BYTES + 1));
    let error = ProbeLine::parse(long.as_bytes()).unwrap_err();
    assert!(matches!(
        error,
        ParseProbeLineError::Value {
            field: Field::Detail,
            ..
        }
    ));
    assert_eq!(
        ProbeLine::parse(b"probe=p \xff"),
        Err(ParseProbeLineError::NotText { at: 8 })
    );
}

#[test]
fn no_line_of_valid_fields_is_too_long() {
    let name: ProbeName = "a".repeat(MAX_NAME_BYTES).parse().unwrap();
    let longest = |words: &[&'static str]| words.iter().map(|word| word.len()).max();
    let controls: Vec<_> = Control::ALL
        .iter()
        .map(|control| control.as_str())
        .collect();
    let dimension = *Control::ALL
        .iter()
        .find(|control| Some(control.as_str().len()) == longest(&controls))
        .unwrap();
    let line = ProbeLine {
        probe: name.clone(),
        dimension,
        check: Some(name),
        result: ProbeResult::Contained,
        errno: Some(
            format!("E{}", "A".repeat(MAX_ERRNO_BYTES - 1))
                .parse()
                .unwrap(),
        ),
        twin: Some(Twin::Failed),
        nonce: Nonce::new(&[7; 64]),
        detail: Some("d".repeat(MAX_DETAIL_BYTES).parse().unwrap()),
    };
    let text = line.to_string();
    assert!(text.len() <= MAX_PROBE_LINE_BYTES, "{}", text.len());
    assert_eq!(text.parse(), Ok(line));
    assert_eq!(Nonce::new(&[7; 65]), None);
}

fn line() -> impl Strategy<Value = ProbeLine> {
    let name = "[a-z0-9][a-z0-9._-]{0,63}".prop_map(|text| text.parse().unwrap());
    let named = (
        name.clone(),
        proptest::sample::select(Control::ALL),
        proptest::option::of(name),
        proptest::sample::select(ProbeResult::ALL),
    );
    let rest = (
        proptest::option::of("none|(E|SIG)[A-Z0-9]{1,29}".prop_map(|text| text.parse().unwrap())),
        proptest::option::of(proptest::sample::select(Twin::ALL)),
        proptest::option::of(proptest::collection::vec(any::<u8>(), NONCE_BYTES)),
        proptest::option::of("\\PC{1,200}".prop_map(|text| text.parse().unwrap())),
    );
    (named, rest).prop_map(
        |((probe, dimension, check, result), (errno, twin, nonce, detail))| ProbeLine {
            probe,
            dimension,
            check,
            result,
            errno,
            twin,
            nonce: nonce.and_then(|bytes| Nonce::new(&bytes)),
            detail,
        },
    )
}

proptest! {
    #[test]
    fn every_line_reads_back(line in line()) {
        prop_assert_eq!(line.to_string().parse(), Ok(line));
    }

    #[test]
    fn any_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(line) = ProbeLine::parse(&bytes) {
            prop_assert_eq!(line.to_string().into_bytes(), bytes);
        }
    }
}
