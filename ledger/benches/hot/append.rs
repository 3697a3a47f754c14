//! Appending to a new ledger, with and without a flush of the disk.

use std::error::Error;

use criterion::Criterion;
use ledger::bytes::canon::U53;
use ledger::bytes::time::{Clock, Stamp};
use ledger::file::store::{Durability, KeyChoice, OpenOptions, Store};
use ledger::record::Tool;

use crate::made;

pub(crate) fn bench(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let at = tempfile::tempdir()?;
    let stamp = Stamp {
        time: "2026-01-01T00:00:00.000000Z".parse()?,
        clock: Clock {
            boot_id: "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f".parse()?,
            since_boot_us: U53::from(1),
        },
    };
    let (dir, key_folder) = (at.path().join("ledger"), at.path().join("keys"));
    let options = OpenOptions {
        dir: &dir,
        key: KeyChoice::Own,
        key_folder: &key_folder,
        accept_rollback: false,
        tool: Tool {
            name: "bench".to_owned(),
            version: "1".to_owned(),
        },
        host_name: "bench",
        create: true,
        say_waiting: None,
    };
    let mut store = Store::open(&options, &stamp)?;
    let mut group = criterion.benchmark_group("append");
    group.sample_size(20);
    for (name, durability) in [
        ("a note, durable", Durability::Durable),
        ("a note, deferred", Durability::Deferred),
    ] {
        let mut append = || store.append(made::note("bench"), None, &stamp, durability);
        append()?;
        group.bench_function(name, |bencher| bencher.iter(&mut append));
    }
    group.bench_function("open", |bencher| {
        bencher.iter(|| Store::open(&options, &stamp).map(|store| store.size()));
    });
    group.finish();
    Ok(())
}
