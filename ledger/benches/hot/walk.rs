//! The walk over a made ledger, with one thread and with two.

use std::error::Error;
use std::io::Cursor;
use std::num::NonZeroUsize;

use criterion::{BatchSize, Criterion, Throughput};
use ledger::file::source::Source;
use ledger::file::walk::walk_with;

use crate::made::{self, Shape};

const RECORDS: u64 = 4_000;

pub(crate) fn bench(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let lines = made::lines(RECORDS, 1, Shape::default())?;
    let open = || Source::from_reader("-", Box::new(Cursor::new(lines.clone())));
    let mut group = criterion.benchmark_group("walk");
    group
        .sample_size(20)
        .throughput(Throughput::Elements(RECORDS));
    for (name, threads) in [
        ("4,000 records, 1 thread", NonZeroUsize::MIN),
        (
            "4,000 records, 2 threads",
            NonZeroUsize::MIN.saturating_add(1),
        ),
    ] {
        let verified = walk_with(threads, &mut open(), None, &mut ())?
            .tally
            .verified;
        if verified != RECORDS {
            return Err(format!("{name}: {verified} records verify").into());
        }
        group.bench_function(name, |bencher| {
            let walk = |mut source| walk_with(threads, &mut source, None, &mut ());
            bencher.iter_batched(open, walk, BatchSize::LargeInput);
        });
    }
    group.finish();
    Ok(())
}
