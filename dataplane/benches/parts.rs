//! The parts of the data plane, timed: `./dev bench`. Each figure is for a burst of 64, so that a
//! packet's part of it can be told from the clock's.

mod common;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use mpxdp_proto::segment::Flags;
use mpxdp_proto::wire::{self, Frame, parse_frame_into};

use common::{BURST, Open, PAYLOAD, Store, emit_ack, frame, gaps, noise, option_bytes, times};

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("headers");
    group.throughput(Throughput::Elements(BURST.into()));
    let (bytes, options) = (frame(PAYLOAD), option_bytes());
    let mut parsed = Frame::default();
    group.bench_function("parse_frame", |b| {
        b.iter(|| times(BURST, || parse_frame_into(black_box(&bytes), bytes.len(), &mut parsed)));
    });
    group.bench_function("options", |b| {
        b.iter(|| times(BURST, || wire::options::parse(black_box(&options), Flags::ACK)));
    });
    group.finish();
}

fn checksums(c: &mut Criterion) {
    let mut group = c.benchmark_group("checksum");
    for len in [64, 1448, 8948, 65_000] {
        let bytes = noise(len);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::new("vector", len), &bytes, |b, bytes| {
            b.iter(|| mpxdp::checksum::sum(black_box(bytes)));
        });
        group.bench_with_input(BenchmarkId::new("scalar", len), &bytes, |b, bytes| {
            b.iter(|| wire::checksum::sum(black_box(bytes)));
        });
    }
    group.finish();
}

fn ranges(c: &mut Criterion) {
    let mut group = c.benchmark_group("range_set");
    group.throughput(Throughput::Elements(1));
    for count in [0, 16, 512] {
        let set = gaps(count);
        let middle = 3000 * (count / 2) + 1420;
        group.bench_with_input(BenchmarkId::new("fill_a_gap", count), &set, |b, set| {
            let fill = |mut set: mpxdp_proto::range_set::RangeSet| {
                set.insert(black_box(middle)..middle + 1580);
                set
            };
            b.iter_batched(|| set.clone(), fill, BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn ring(c: &mut Criterion) {
    let mut group = c.benchmark_group("ring");
    group.throughput(Throughput::Bytes(u64::from(BURST * PAYLOAD)));
    let mut store = Store::new();
    group.bench_function("claim_copy_commit_read", |b| {
        b.iter(|| {
            let wanted = store.burst();
            store.store(&wanted);
        });
    });
    group.finish();
}

fn subflow(c: &mut Criterion) {
    let mut group = c.benchmark_group("subflow");
    group.throughput(Throughput::Elements(BURST.into()));
    let mut open = Open::new();
    group.bench_function("make_segments", |b| b.iter(|| black_box(open.burst())));
    group.bench_function("make_segments_and_take_them", |b| {
        b.iter(|| {
            let segments = open.burst();
            open.take(&segments);
        });
    });
    let mut buf = [0; 256];
    group.throughput(Throughput::Elements(1));
    group.bench_function("acknowledge", |b| {
        b.iter(|| {
            let ack = open.acknowledge();
            emit_ack(&ack, black_box(&mut buf))
        });
    });
    group.finish();
}

criterion_group!(parts, headers, checksums, ranges, ring, subflow);
criterion_main!(parts);
