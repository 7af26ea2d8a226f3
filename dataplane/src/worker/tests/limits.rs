//! What a peer can ask for is bounded, and what was turned away is counted.

use std::time::Duration;

use mpxdp_proto::segment::{Flags, Segment};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::wire::{IpFields, LinkHeader, MacAddress, emit_frame};

use super::world::{Setup, World, server};
use crate::listener::Limits;
use crate::worker::RESETS_PER_SECOND;

/// A SYN from a client that says nothing more.
fn syn(port: u16, to: std::net::SocketAddr) -> Vec<u8> {
    let link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let segment = Segment { seq: SeqNum(1), flags: Flags::SYN, window: 1000, ..Segment::default() };
    let from = std::net::SocketAddr::new([10, 0, 0, 9].into(), port);
    let mut buf = vec![0; 200];
    let len = emit_frame(&mut buf, &link, from, to, IpFields::default(), &segment, &[]).unwrap();
    buf.truncate(len);
    buf
}

#[test]
fn half_open_flows_are_limited() {
    let limits = Limits { backlog: 64, half_open: 10, half_open_per_source: 64 };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    for port in 1..=30 {
        world.inject(&syn(port, server()));
    }
    world.pass(Duration::from_millis(1));
    assert_eq!(world.dropped("half_open_full"), 20);
    assert_eq!(world.report(0).tables.half_open, 10);
    world.assert_empty();
    // Whoever comes afterwards finds room.
    world.connect(World::options(1, 1000));
    let readings = world.serve(Duration::from_secs(60));
    assert_eq!(readings[0].bytes, 1000);
}

#[test]
fn the_backlog_is_limited() {
    let limits = Limits { backlog: 3, half_open: 64, half_open_per_source: 64 };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    for n in 0..10 {
        world.connect(World::options(n, 1000));
    }
    // Those that found no room are reset, or try again; either way they do not wait for ever.
    let readings = world.serve(Duration::from_secs(60));
    assert!(readings.len() >= 3);
    assert!(world.dropped("backlog_full") > 0);
    let served = world.senders.iter().filter(|sender| sender.is_done()).count();
    assert_eq!(served, readings.iter().filter(|r| r.bytes == 1000).count());
    world.assert_empty();
}

#[test]
fn resets_are_rate_limited() {
    let mut world = World::new(Setup::default());
    let nobody = "10.0.0.2:1".parse().unwrap();
    let (mut sent, rate) = (0, RESETS_PER_SECOND);
    while sent < 2 * rate {
        for _ in 0..100 {
            sent += 1;
            world.inject(&syn(sent as u16, nobody));
        }
        world.pass(Duration::from_micros(10));
    }
    world.pass(Duration::from_millis(1));
    let answered = u64::from(sent) - world.dropped("reset_rate_limited");
    assert!(answered.abs_diff(u64::from(rate)) < 20, "{answered}");
    assert_eq!(world.unclaimed.len() as u64, answered);
}
