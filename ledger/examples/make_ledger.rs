//! Makes a large ledger of the shape that `runner exec` writes, the same for the same seed.
//!
//! ```text
//! cargo run --release -p ledger --example make_ledger -- DIR RECORDS [SEED [RUNS BETWEEN ROTATIONS]]
//! ```
//!
//! It has at least RECORDS records: one more where a run would lack its end. The ledger is in `DIR/ledger`, its key in `DIR/keys`. It has no caches: whoever opens it to append reads it
//! once and makes them.

#[path = "../benches/hot/made.rs"]
mod made;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use made::Shape;

const USAGE: &str = "usage: make_ledger DIR RECORDS [SEED [RUNS BETWEEN ROTATIONS]]; makes at least RECORDS records, one more where a run would lack its end";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match make(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("make_ledger: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (dir, rest) = arguments.split_first().ok_or(USAGE)?;
    let numbers: Vec<u64> = rest
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{error}; {USAGE}"))?;
    let (records, seed, rotate_every) = match numbers[..] {
        [records] => (records, 1, None),
        [records, seed] => (records, seed, None),
        [records, seed, runs] => (records, seed, Some(runs)),
        _ => return Err(USAGE.into()),
    };
    let dir = PathBuf::from(dir);
    let begin = Instant::now();
    let shape = Shape { rotate_every };
    let made = made::folder(&dir.join("ledger"), &dir.join("keys"), records, seed, shape)?;
    println!(
        "{} records in {:.1} s: {}",
        made.size(),
        begin.elapsed().as_secs_f64(),
        dir.join("ledger").display()
    );
    Ok(())
}
