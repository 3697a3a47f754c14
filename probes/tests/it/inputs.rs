//! Standard input that is no input.

use ledger::facts::probe::{ProbeResult, Twin};

use crate::{Said, feed, lines, parameters, program, suite};

#[test]
fn whatever_stands_on_standard_input_every_check_has_its_error_line() {
    let whole = parameters(&[("tcp4", "127.0.0.1:1"), ("millis", "1"), ("bytes", "1")]);
    let cut = &whole.as_bytes()[..whole.len() - 2];
    let garbage: Vec<u8> = (0..=255).collect();
    let long = vec![b'a'; 100_000];
    for text in [b"".as_slice(), cut, &garbage, &long, b"end\n", b"\n\n\n"] {
        for probe in suite().probes {
            let output = feed(program().args(&probe.arguments), text);
            assert!(output.status.success(), "{}: {:?}", probe.id, output.status);
            assert_eq!(output.stderr, b"", "{}", probe.id);
            let lines = lines(&output);
            let said: Vec<_> = lines.iter().map(|line| line.check_id().unwrap()).collect();
            let asked: Vec<_> = probe
                .checks
                .iter()
                .map(|check| probe.check_id(check))
                .collect();
            assert_eq!(said, asked);
            for line in lines {
                assert_eq!(line.result, ProbeResult::Error, "{line}");
                assert_eq!(line.twin, Some(Twin::None), "{line}");
                let detail = line.detail.unwrap().to_string();
                assert!(detail.starts_with("instrument-missing: "), "{detail}");
            }
        }
    }
}

#[test]
fn an_error_is_bound_to_the_run_as_far_as_the_secret_came() {
    let whole = parameters(&[("tcp4", "127.0.0.1:1")]);
    let output = feed(
        program().arg("network"),
        &whole.as_bytes()[..whole.len() - 4],
    );
    let said = Said::of("network", &output);
    said.error("tcp4", "instrument-missing: the parameters were cut");
}

#[test]
fn wrong_use_says_what_to_type() {
    for arguments in [vec![], vec!["everything"]] {
        let output = feed(program().args(arguments), b"");
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(output.stdout, b"");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.starts_with("usage: probe CONTROL") && text.contains("network"),
            "{text}"
        );
    }
}
