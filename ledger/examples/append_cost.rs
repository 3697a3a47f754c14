//! What appending to a large ledger costs, in pairs against an empty one.
//!
//! ```text
//! cargo run --release -p ledger --example make_ledger -- DIR 1000000
//! cargo run --release -p ledger --example append_cost -- DIR [PAIRS]
//! ```
//!
//! A pair is one append to the ledger in `DIR` and one to a new ledger beside it, on the same file system; then one
//! opening of each, as every run of `runner` does. The first opening of a made ledger reads it once and makes its
//! caches. The large ledger keeps what is appended.

#[path = "../benches/hot/made.rs"]
mod made;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ledger::bytes::canon::U53;
use ledger::bytes::time::{Clock, Stamp};
use ledger::file::store::{Durability, KeyChoice, OpenOptions, Store};
use ledger::record::Tool;

const USAGE: &str = "usage: append_cost DIR [PAIRS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("append_cost: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (dir, pairs) = match arguments {
        [dir] => (Path::new(dir), 500),
        [dir, pairs] => (Path::new(dir), pairs.parse::<usize>()?.max(1)),
        _ => return Err(USAGE.into()),
    };
    let beside = dir.join(format!("empty-{}", std::process::id()));
    let begin = Instant::now();
    let mut large = open(dir)?;
    println!(
        "{} records; first opening {:.1} s",
        large.size(),
        begin.elapsed().as_secs_f64()
    );
    let mut empty = open(&beside)?;
    println!(
        "{:<18} {:>12} {:>12} {:>12} {:>12}",
        "", "large median", "empty median", "large min", "empty min"
    );
    let stamp = stamp()?;
    for (name, durability) in [
        ("append, durable", Durability::Durable),
        ("append, deferred", Durability::Deferred),
    ] {
        // Not measured: what stands since the last flush goes to the disk.
        for store in [&mut large, &mut empty] {
            store.append(made::note("x"), None, &stamp, Durability::Durable)?;
        }
        let append = |store: &mut Store| -> Result<(), Box<dyn Error>> {
            store.append(made::note("append_cost"), None, &stamp, durability)?;
            Ok(())
        };
        in_pairs(name, pairs, || append(&mut large), || append(&mut empty))?;
    }
    for store in [&mut large, &mut empty] {
        store.append(made::note("x"), None, &stamp, Durability::Durable)?;
    }
    in_pairs(
        "open and append",
        pairs,
        || open_and_append(dir, &stamp),
        || open_and_append(&beside, &stamp),
    )?;
    std::fs::remove_dir_all(&beside)?;
    Ok(())
}

fn in_pairs(
    name: &str,
    pairs: usize,
    mut one: impl FnMut() -> Result<(), Box<dyn Error>>,
    mut other: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        ones.push(timed(&mut one)?);
        others.push(timed(&mut other)?);
    }
    ones.sort_unstable();
    others.sort_unstable();
    let at = |times: &[Duration], n: usize| times.get(n).map_or(0, Duration::as_micros);
    println!(
        "{name:<18} {:>9} us {:>9} us {:>9} us {:>9} us",
        at(&ones, pairs / 2),
        at(&others, pairs / 2),
        at(&ones, 0),
        at(&others, 0)
    );
    Ok(())
}

fn timed(
    work: &mut impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<Duration, Box<dyn Error>> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed())
}

fn open_and_append(dir: &Path, stamp: &Stamp) -> Result<(), Box<dyn Error>> {
    let mut store = open(dir)?;
    store.append(made::note("append_cost"), None, stamp, Durability::Durable)?;
    Ok(())
}

fn open(dir: &Path) -> Result<Store, Box<dyn Error>> {
    let (ledger, keys) = (dir.join("ledger"), dir.join("keys"));
    let options = OpenOptions {
        dir: &ledger,
        key: KeyChoice::Own,
        key_folder: &keys,
        accept_rollback: false,
        tool: Tool {
            name: "append_cost".to_owned(),
            version: "1".to_owned(),
        },
        host_name: "bench",
        create: true,
        say_waiting: None,
    };
    Ok(Store::open(&options, &stamp()?)?)
}

fn stamp() -> Result<Stamp, Box<dyn Error>> {
    Ok(Stamp {
        time: "2026-11-30T00:00:00.000000Z".parse()?,
        clock: Clock {
            boot_id: "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f".parse()?,
            since_boot_us: U53::from(1),
        },
    })
}
