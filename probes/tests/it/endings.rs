//! What goes on after the lines.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use ledger::facts::probe::Twin;

use crate::{Said, feed, parameters, program, secret};

#[test]
fn a_survivor_calls_after_its_run_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let values = [("pid", "999999999"), ("unix", path.to_str().unwrap())];
    let said = Said::run("process", &values);
    said.contained("survival", "none", Twin::Ok);
    // Nobody listened while the program ran: who calls now was left behind.
    let listener = UnixListener::bind(&path).unwrap();
    let mut heard = String::new();
    listener
        .accept()
        .unwrap()
        .0
        .read_to_string(&mut heard)
        .unwrap();
    assert_eq!(heard, format!("{} process/survival\n", secret()));
}

#[test]
fn the_line_comes_before_the_deadline_is_passed() {
    let began = Instant::now();
    let mut output = feed(
        program().arg("timeout"),
        parameters(&[("millis", "300")]).as_bytes(),
    );
    assert!(began.elapsed() >= Duration::from_millis(300), "it went on");
    // Behind the line it says that it came to its end.
    let end = format!("{} timeout/outlived\n", secret());
    let line = output.stdout.strip_suffix(end.as_bytes()).unwrap().to_vec();
    output.stdout = line;
    Said::of("timeout", &output).contained("deadline", "none", Twin::Ok);
    Said::run("timeout", &[("millis", "600000")]).error("deadline", "instrument-missing: ");
}

#[test]
fn the_line_comes_before_the_flood() {
    let output = feed(
        program().arg("output"),
        parameters(&[("bytes", "300000")]).as_bytes(),
    );
    Said::of("output", &output).contained("cap", "none", Twin::Ok);
    assert_eq!(output.stderr.len(), 300_000);
    let values = [("bytes", "70000"), ("stream", "stdout")];
    let output = feed(program().arg("output"), parameters(&values).as_bytes());
    assert_eq!(output.stderr, b"");
    let end = output
        .stdout
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap();
    assert_eq!(output.stdout.len() - end - 1, 70_000);
    let said = Said::run("output", &[("bytes", "100000000")]);
    said.error("cap", "instrument-missing: ");
}
