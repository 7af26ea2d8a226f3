//! The parts of the data plane in instructions, counted by valgrind: `./dev instructions`. They are
//! the same on a busy machine, so a change can be judged by them anywhere.

#![allow(missing_docs, unused_qualifications, unreachable_pub, reason = "the macros' own")]

mod common;

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use mpxdp_proto::range_set::RangeSet;
use mpxdp_proto::segment::{Flags, Segment};
use mpxdp_proto::wire::{self, Frame, parse_frame_into};

use common::{
    BURST, Open, PAYLOAD, Store, Turning, emit_ack, frame, gaps, noise, option_bytes, times,
};
use mpxdp::receive::Wanted;

// The headers of 64 frames.
#[library_benchmark]
#[bench::burst(frame(PAYLOAD))]
fn parse_frame(bytes: Vec<u8>) -> Vec<u8> {
    let mut parsed = Frame::default();
    times(BURST, || parse_frame_into(black_box(&bytes), bytes.len(), &mut parsed));
    bytes
}

// Timestamps and DSS, 64 times.
#[library_benchmark]
#[bench::burst(option_bytes())]
fn parse_options(bytes: Vec<u8>) -> Vec<u8> {
    times(BURST, || wire::options::parse(black_box(&bytes), Flags::ACK));
    bytes
}

// One sum.
#[library_benchmark]
#[bench::of_64(noise(64))]
#[bench::of_1448(noise(1448))]
#[bench::of_8948(noise(8948))]
fn checksum(bytes: Vec<u8>) -> (Vec<u8>, u32) {
    let sum = mpxdp::checksum::sum(black_box(&bytes));
    (bytes, sum)
}

// One sum without vectors.
#[library_benchmark]
#[bench::of_1448(noise(1448))]
fn checksum_scalar(bytes: Vec<u8>) -> (Vec<u8>, u32) {
    let sum = wire::checksum::sum(black_box(&bytes));
    (bytes, sum)
}

// A gap in the middle is filled.
#[library_benchmark]
#[bench::of_16(gaps(16))]
#[bench::of_512(gaps(512))]
fn range_set(mut set: RangeSet) -> RangeSet {
    let middle = 3000 * (set.len() as u64 / 2) + 1420;
    set.insert(black_box(middle)..middle + 1580);
    set
}

fn store() -> (Store, Vec<Wanted>) {
    let store = Store::new();
    let wanted = store.burst();
    (store, wanted)
}

// A burst is claimed, copied, committed and read.
#[library_benchmark]
#[bench::burst(store())]
fn ring((mut store, wanted): (Store, Vec<Wanted>)) -> (Store, Vec<Wanted>) {
    store.store(&wanted);
    (store, wanted)
}

fn open() -> (Open, Vec<Segment>) {
    let open = Open::new();
    let segments = open.burst();
    (open, segments)
}

// A subflow takes 64 segments in order.
#[library_benchmark]
#[bench::burst(open())]
fn on_segment((mut open, segments): (Open, Vec<Segment>)) -> (Open, Vec<Segment>) {
    open.take(&segments);
    (open, segments)
}

// One acknowledgement, as a frame.
#[library_benchmark]
#[bench::one(open())]
fn acknowledge((mut open, segments): (Open, Vec<Segment>)) -> (Open, Vec<Segment>) {
    let ack = open.acknowledge();
    emit_ack(&ack, black_box(&mut [0; 256]));
    (open, segments)
}

// A worker's turn with 64 packets.
#[library_benchmark]
#[bench::burst(Turning::new())]
fn turn(mut turning: Turning) -> Turning {
    assert_eq!(turning.turn(), BURST as usize);
    turning
}

library_benchmark_group!(
    name = parts,
    benchmarks = [
        parse_frame,
        parse_options,
        checksum,
        checksum_scalar,
        range_set,
        ring,
        on_segment,
        acknowledge,
        turn
    ]
);

main!(library_benchmark_groups = parts);
