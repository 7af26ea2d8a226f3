//! Frames through middleboxes. Every frame is built and read by the wire formats of `mpxdp_proto`,
//! not by the code that edits it.

mod impairments;
mod payloads;
mod random;
mod rewriting;
mod spec;
mod translation;

use std::net::SocketAddr;
use std::time::Duration;

use mpxdp_proto::segment::{
    Dss, DssMapping, DssNumber, Flags, MptcpOptions, Options, SackBlock, Segment, Timestamps,
};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::ethernet::CUSTOMER_TAG;
use mpxdp_proto::wire::{
    Frame, IpFields, LinkHeader, MacAddress, VlanTag, emit_frame, parse_frame,
};

use super::{Chain, Direction, Middlebox, Output};
use Direction::{Left, Right};

/// The hosts on both sides, by IPv4 and IPv6.
fn hosts(ipv6: bool) -> [SocketAddr; 2] {
    let address = |text: &str| text.parse().expect("an address");
    if ipv6 {
        [address("[fd77::1]:41000"), address("[fd77::2]:80")]
    } else {
        [address("10.77.0.1:41000"), address("10.77.0.2:80")]
    }
}

fn link(tagged: bool) -> LinkHeader {
    let mut link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));
    if tagged {
        assert!(link.push_tag(VlanTag { protocol: CUSTOMER_TAG, control: 77 }));
    }
    link
}

/// The frame of a segment between two ends.
fn frame_between(ends: [SocketAddr; 2], tagged: bool, segment: Segment, payload: &[u8]) -> Vec<u8> {
    let segment = Segment { payload_len: payload.len() as u32, ..segment };
    let mut frame = vec![0; 66_000];
    let [from, to] = ends;
    let fields = IpFields::default();
    let length = emit_frame(&mut frame, &link(tagged), from, to, fields, &segment, payload)
        .expect("the frame can be built");
    frame.truncate(length);
    frame
}

/// The frame of a segment over IPv4 in a direction.
fn frame(direction: Direction, segment: Segment, payload: &[u8]) -> Vec<u8> {
    let [left, right] = hosts(false);
    let ends = match direction {
        Right => [left, right],
        Left => [right, left],
    };
    frame_between(ends, false, segment, payload)
}

/// Reads a frame, which must have right checksums.
fn read(frame: &[u8]) -> (Frame, Vec<u8>) {
    let read = parse_frame(frame, frame.len()).expect("the headers are right");
    assert!(read.is_checksum_right(frame), "the TCP checksum is wrong");
    (read, frame[read.payload_at..read.end()].to_vec())
}

fn chain(text: &str) -> Chain {
    Chain::new(&text.parse().unwrap_or_else(|error| panic!("{error}")), 1)
}

/// What comes out at once when a frame is put in.
fn pass_at(
    chain: &mut Chain,
    now: Instant,
    direction: Direction,
    frame: Vec<u8>,
) -> Vec<(Direction, Vec<u8>)> {
    let mut out = Output::default();
    chain.on_frame(now, direction, frame, &mut out);
    std::iter::from_fn(|| out.pop()).collect()
}

fn pass(chain: &mut Chain, direction: Direction, frame: Vec<u8>) -> Vec<(Direction, Vec<u8>)> {
    pass_at(chain, Instant(0), direction, frame)
}

/// The only frame that comes out when one is put in.
fn through(chain: &mut Chain, direction: Direction, frame: Vec<u8>) -> Vec<u8> {
    match &mut pass(chain, direction, frame)[..] {
        [(out, frame)] if *out == direction => std::mem::take(frame),
        other => panic!("not one frame in the same direction: {other:?}"),
    }
}

/// What comes out until nothing is held any more, with the times.
fn drain(chain: &mut Chain) -> Vec<(Instant, Direction, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(due) = chain.next_timeout() {
        let mut out = Output::default();
        chain.on_timeout(due, &mut out);
        assert!(chain.next_timeout().is_none_or(|next| next > due), "still due");
        all.extend(std::iter::from_fn(|| out.pop()).map(|(way, frame)| (due, way, frame)));
    }
    all
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// An acknowledgement with timestamps.
fn ack() -> Segment {
    Segment {
        seq: SeqNum(1000),
        ack: SeqNum(2000),
        flags: Flags::ACK,
        window: 500,
        options: Options {
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ..Options::default()
        },
        ..Segment::default()
    }
}

/// A segment with a mapping of so many bytes, the first of which is the segment's.
fn mapped(length: u16) -> Segment {
    let dss = Dss {
        ack: Some(DssNumber::Long(77)),
        mapping: Some(DssMapping {
            data_seq: DssNumber::Long(0x1234_5678_9abc),
            subflow_seq: 1,
            length,
            checksum: None,
        }),
        data_fin: false,
    };
    let mptcp = MptcpOptions { dss: Some(dss), ..MptcpOptions::default() };
    let segment = ack();
    Segment { options: Options { mptcp, ..segment.options }, ..segment }
}

/// A connection request with what Linux offers.
fn syn() -> Segment {
    use mpxdp_proto::segment::{MpCapable, MpCapableBody, WindowScale};
    let capable = MpCapable {
        version: 1,
        checksum_required: false,
        extensibility: false,
        no_join_to_initial_address: false,
        algorithms: 1,
        body: MpCapableBody::Syn,
    };
    Segment {
        seq: SeqNum(999),
        flags: Flags::SYN,
        window: 64_240,
        options: Options {
            mss: Some(1460),
            window_scale: Some(WindowScale::new(7)),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 0 }),
            mptcp: MptcpOptions { capable: Some(capable), ..MptcpOptions::default() },
            ..Options::default()
        },
        ..Segment::default()
    }
}

fn with_sack(segment: Segment, blocks: &[(u32, u32)]) -> Segment {
    let mut options = segment.options;
    for &(start, end) in blocks {
        assert!(options.sack.push(SackBlock { start: SeqNum(start), end: SeqNum(end) }));
    }
    Segment { options, ..segment }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}
