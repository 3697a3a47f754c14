//! The probe program run bare on this host, against what the test itself put there: every attack must succeed, and say so in a
//! line that is bound to the run.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod endings;
mod inputs;
mod local;
mod network;
mod pitfalls;
mod resources;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use ledger::facts::measurement::proof;
use ledger::facts::probe::{Nonce, ProbeLine, ProbeResult, Twin};
use ledger::facts::suite::{Probe, Suite};

const SECRET: [u8; 16] = [0x5a; 16];

fn secret() -> String {
    Nonce::new(&SECRET).unwrap().to_string()
}

fn suite() -> Suite {
    serde_json::from_str(include_str!("../../suite.json")).unwrap()
}

fn row(control: &str) -> Probe {
    let rows = suite().probes.into_iter();
    rows.clone()
        .find(|probe| probe.id.as_str() == control)
        .unwrap()
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_probe"))
}

fn parameters(values: &[(&str, &str)]) -> String {
    let mut text = format!("nonce={}\n", secret());
    for (key, value) in values {
        text.push_str(&format!("{key}={value}\n"));
    }
    text + "end\n"
}

/// Runs a command with a text on its standard input.
fn feed(command: &mut Command, text: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that stops reading early is judged by what it says.
    let _written = stdin.write_all(text);
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<ProbeLine> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| {
            line.parse()
                .unwrap_or_else(|error| panic!("{line}: {error}"))
        })
        .collect()
}

/// What a row says, after a look at everything that holds for every line.
struct Said(Vec<ProbeLine>);

impl Said {
    fn of(control: &str, output: &Output) -> Self {
        let lines = lines(output);
        let row = row(control);
        let said: Vec<_> = lines.iter().map(|line| line.check_id().unwrap()).collect();
        let asked: Vec<_> = row.checks.iter().map(|check| row.check_id(check)).collect();
        assert_eq!(said, asked, "one line a check, in the suite's order");
        for line in &lines {
            assert!(line.absent().is_empty(), "{line}");
            let id = line.check_id().unwrap();
            let (errno, detail) = (line.errno.as_ref().unwrap(), line.detail.as_ref().unwrap());
            let (secret, twin) = (Nonce::new(&SECRET).unwrap(), line.twin.unwrap());
            let wanted = proof(&secret, &id, line.result, errno, twin, detail);
            assert_eq!(line.nonce.as_ref().unwrap().to_string(), wanted, "{line}");
        }
        Self(lines)
    }

    fn run(control: &str, values: &[(&str, &str)]) -> Self {
        Self::by(program().arg(control), control, values)
    }

    fn by(command: &mut Command, control: &str, values: &[(&str, &str)]) -> Self {
        Self::of(control, &feed(command, parameters(values).as_bytes()))
    }

    #[track_caller]
    fn line(&self, check: &str) -> &ProbeLine {
        let mut all = self.0.iter();
        all.find(|line| {
            line.check
                .as_ref()
                .is_some_and(|name| name.as_str() == check)
        })
        .unwrap()
    }

    #[track_caller]
    fn detail(&self, check: &str) -> String {
        self.line(check).detail.as_ref().unwrap().to_string()
    }

    #[track_caller]
    fn escaped(&self, check: &str) {
        let line = self.line(check);
        assert_eq!(line.result, ProbeResult::Escaped, "{line}");
    }

    /// Refused, with an error that the suite expects.
    #[track_caller]
    fn contained(&self, check: &str, errno: &str, twin: Twin) {
        let line = self.line(check);
        assert_eq!(line.result, ProbeResult::Contained, "{line}");
        let found = line.errno.as_ref().unwrap();
        assert_eq!(
            (found.to_string().as_str(), line.twin),
            (errno, Some(twin)),
            "{line}"
        );
        let row = row(line.dimension.as_str());
        let check = row
            .checks
            .iter()
            .find(|known| known.check.as_str() == check)
            .unwrap();
        assert!(check.denied.contains(found), "{line}");
    }

    #[track_caller]
    fn error(&self, check: &str, detail: &str) {
        let line = self.line(check);
        assert_eq!(
            (line.result, line.twin),
            (ProbeResult::Error, Some(Twin::None)),
            "{line}"
        );
        assert!(self.detail(check).starts_with(detail), "{line}");
    }
}

fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
}
