//! One line: canonical form, signature, hashes.

use std::error::Error;
use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use ledger::bytes::canon::{canonical_form, is_canonical_of, to_canonical};
use ledger::bytes::hash::Hash;
use ledger::bytes::key::{LocalKey, Message, Signer as _};
use ledger::proof::tree::Frontier;
use ledger::record::{Content, Opening, Record, parse_line};

use crate::made::{self, Shape};

pub(crate) fn bench(criterion: &mut Criterion) -> Result<(), Box<dyn Error>> {
    let lines = made::lines(3, 1, Shape::default())?;
    let lines: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').collect();
    let [_, _, opening, start, ..] = lines[..] else {
        return Err("a made ledger does not begin with genesis, host, opening, start".into());
    };
    let parsed = parse_line(start);
    let (Ok(Content::Record(record)), Some(frame)) = (&parsed.content, &parsed.frame) else {
        return Err("the made start is no record".into());
    };
    let bytes = start.get(frame.record.clone()).unwrap_or_default();
    canon(criterion, record, bytes, start, opening);
    hash(criterion, start);
    key(criterion, bytes)
}

fn canon(criterion: &mut Criterion, record: &Record, bytes: &[u8], line: &[u8], opening: &[u8]) {
    let mut group = criterion.benchmark_group("canon");
    group.throughput(Throughput::Bytes(line.len() as u64));
    group.bench_function("write a start record", |bencher| {
        bencher.iter(|| to_canonical(black_box(record)));
    });
    group.bench_function("compare a start record", |bencher| {
        bencher.iter(|| is_canonical_of(black_box(record), black_box(bytes), 16));
    });
    group.bench_function("parse, compare and hash its line", |bencher| {
        bencher.iter(|| parse_line(black_box(line)));
    });
    group.bench_function("its canonical form without types", |bencher| {
        bencher.iter(|| canonical_form(black_box(line)));
    });
    group.throughput(Throughput::Bytes(opening.len() as u64));
    group.bench_function("parse and compare its opening", |bencher| {
        bencher.iter(|| Opening::parse(black_box(opening)));
    });
    group.finish();
}

fn hash(criterion: &mut Criterion, line: &[u8]) {
    let mut group = criterion.benchmark_group("hash");
    group.throughput(Throughput::Bytes(line.len() as u64));
    group.bench_function("leaf of a line", |bencher| {
        bencher.iter(|| Hash::leaf(black_box(line)));
    });
    let leaf = Hash::leaf(line);
    group.throughput(Throughput::Elements(1_024));
    group.bench_function("1,024 leaves pushed to a tree", |bencher| {
        let push = |mut tree: Frontier| {
            (0..1_024).for_each(|_| drop(tree.push(black_box(leaf))));
            tree
        };
        bencher.iter_batched(Frontier::new, push, BatchSize::SmallInput);
    });
    group.finish();
}

fn key(criterion: &mut Criterion, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut group = criterion.benchmark_group("key");
    let key = LocalKey::from_seed(&[1; 32])?;
    let signature = key.sign(Message::Record(bytes))?;
    group.bench_function("sign a start record", |bencher| {
        bencher.iter(|| key.sign(Message::Record(black_box(bytes))));
    });
    group.bench_function("verify it strictly", |bencher| {
        let public = key.public();
        bencher.iter(|| public.verifies(Message::Record(black_box(bytes)), &signature));
    });
    group.finish();
    Ok(())
}
