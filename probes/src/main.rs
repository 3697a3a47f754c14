//! **Probe**: a program that attacks the sandbox it runs in, one control at a time, and says what it saw.
//!
//! ```text
//! probe network < parameters
//! probe=network dimension=network check=tcp4 result=contained errno=ENETUNREACH twin=none nonce=5f0c… detail=…
//! ```
//!
//! Here: attacks, and nothing that judges them. It needs nothing of the root it runs in, neither /proc nor /dev nor a library;
//! what it attacks comes by standard input ([`parameters`]) and was made by the runner for this run alone. It changes nothing
//! but what was planted for it, and what it uses up has absolute caps.
//!
//! Deliberately not here: any dependency, and any word about what a result means (`ledger::facts::judge`).
//!
//! Exit status: 0 when every line was printed, 2 for wrong use.

mod cause;
mod checks;
mod isolate;
mod line;
mod parameters;
mod sha256;
#[allow(
    unsafe_code,
    reason = "the only module that calls the C library by hand"
)]
mod sys;
mod tally;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use checks::{ROWS, Row};
use isolate::DEADLINE;
use line::Seen;
use parameters::{MAX_BYTES, Parameters, Unusable};

/// How long standard input may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if wanted == checks::AGAIN {
        let number = std::env::args().nth(2);
        return ExitCode::from(u8::try_from(checks::again(number.as_deref())).unwrap_or(u8::MAX));
    }
    let Some(row) = ROWS.iter().find(|row| row.control == wanted) else {
        let names: Vec<_> = ROWS.iter().map(|row| row.control).collect();
        eprintln!(
            "usage: probe CONTROL < PARAMETERS\nCONTROL is one of {}",
            names.join(" ")
        );
        return ExitCode::from(2);
    };
    let read = Parameters::parse(&input());
    let printed = match &read {
        Ok(parameters) => answer(row, parameters),
        Err(unusable) => refuse(row, unusable),
    };
    if let Err(error) = printed {
        eprintln!("probe: standard output: {error}");
        return ExitCode::FAILURE;
    }
    if let (Some(after), Ok(parameters)) = (row.after, &read) {
        after(parameters);
    }
    ExitCode::SUCCESS
}

/// Standard input to its end, or what came of it in time and within bounds.
fn input() -> Vec<u8> {
    let mut stdin = std::io::stdin().lock();
    let (mut bytes, until) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = i32::try_from(left).unwrap_or(i32::MAX);
        if bytes.len() > MAX_BYTES || left == 0 || !sys::readable(stdin.as_raw_fd(), left) {
            return bytes;
        }
        let mut part = [0; 4_096];
        match stdin.read(&mut part) {
            // A fault is an end: what is missing then is said by each line.
            Ok(0) | Err(_) => return bytes,
            Ok(count) => bytes.extend(part.iter().take(count)),
        }
    }
}

fn refuse(row: &Row, unusable: &Unusable) -> std::io::Result<()> {
    let seen = Seen::missing(&unusable.problem);
    for check in row.checks {
        print(row, check.name, unusable.secret.as_deref(), &seen)?;
    }
    Ok(())
}

fn answer(row: &Row, parameters: &Parameters) -> std::io::Result<()> {
    let deadline = match row.control {
        "memory" | "disk" => isolate::FILLING,
        _ => DEADLINE,
    };
    let start = |check: &checks::Check| isolate::start(check.attack, parameters, deadline);
    let mut ahead = Vec::new();
    if row.at_once {
        ahead.extend(row.checks.iter().map(start));
    }
    let mut ahead = ahead.into_iter();
    for check in row.checks {
        let started = ahead.next().unwrap_or_else(|| start(check));
        let seen = match started {
            Ok(started) => started.finish(),
            Err(cause) => Seen::error(cause, "instrument-missing: no child for the check"),
        };
        print(row, check.name, Some(parameters.secret()), &seen)?;
    }
    Ok(())
}

fn print(row: &Row, check: &str, secret: Option<&[u8]>, seen: &Seen) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line::line(row.control, check, secret, seen).as_bytes())?;
    out.flush()
}
