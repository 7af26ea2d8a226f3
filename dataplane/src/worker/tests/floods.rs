//! Floods: what one answers, what it costs, and who is served nevertheless.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mpxdp_proto::segment::{
    AddressId, Flags, MpCapable, MpCapableBody, MpJoin, Options, Segment, Token, WindowScale,
};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::wire::{IpFields, LinkHeader, MacAddress, emit_frame};
use mpxdp_sim::SenderOptions;
use mpxdp_sim::client::{ClientOptions, State, paths};

use super::world::{Reading, Setup, World, server};
use crate::listener::Limits;
use crate::worker::RESETS_PER_SECOND;

/// Packets of a flood.
const FLOOD: u32 = 100_000;

/// Packets that come in a millisecond of one.
const BATCH: u32 = 250;

/// Limits that a flood is sure to pass.
const LIMITS: Limits = Limits { backlog: 64, half_open: 64, half_open_per_source: 64 };

/// A SYN of somebody who says nothing more.
fn syn(from: SocketAddr, options: Options) -> Vec<u8> {
    let link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let seq = SeqNum(u32::from(from.port()));
    let segment = Segment { seq, flags: Flags::SYN, window: 1000, options, ..Segment::default() };
    let mut buf = vec![0; 200];
    let ip = IpFields::default();
    let len = emit_frame(&mut buf, &link, from, server(), ip, &segment, &[]).unwrap();
    buf.truncate(len);
    buf
}

/// What a client of TCP or MPTCP offers.
fn offer(mptcp: bool) -> Options {
    let mut options = Options {
        mss: Some(1460),
        window_scale: Some(WindowScale::new(7)),
        sack_permitted: true,
        ..Options::default()
    };
    options.mptcp.capable = mptcp.then_some(MpCapable {
        version: 1,
        checksum_required: false,
        extensibility: false,
        no_join_to_initial_address: false,
        algorithms: 1,
        body: MpCapableBody::Syn,
    });
    options
}

/// Number `n` scattered over 32 bits, each in another place.
const fn scattered(n: u32) -> u32 {
    n.wrapping_mul(0x9e37_79b1)
}

/// A source of its own for each packet of a flood.
fn random_source(n: u32) -> SocketAddr {
    let [_, a, b, c] = (scattered(n) & 0xff_ffff).to_be_bytes();
    SocketAddr::new([11, a, b, c].into(), (scattered(n) >> 16) as u16 | 1)
}

/// A flood, batch after batch with `meanwhile` after each. Gives how many answers there were.
fn flood(
    world: &mut World,
    packet: impl Fn(u32) -> Vec<u8>,
    mut meanwhile: impl FnMut(&mut World, u32),
) -> usize {
    let mut answers = 0;
    for batch in 0..FLOOD / BATCH {
        for n in batch * BATCH..(batch + 1) * BATCH {
            world.inject(&packet(n));
        }
        world.pass(Duration::from_millis(1));
        // No more than the offer, with the key of MP_CAPABLE.
        let longest = packet(0).len().max(packet(1).len()) + 8;
        assert!(world.unclaimed.iter().all(|answer| answer.len() <= longest));
        answers += std::mem::take(&mut world.unclaimed).len();
        meanwhile(world, batch);
    }
    answers
}

#[test]
fn a_flood_of_syns_stops_neither_the_old_nor_the_new() {
    let mut world = World::new(Setup { limits: LIMITS, ..Setup::default() });
    world.connect(World::options(0, 1_000_000));
    world.pass(Duration::from_millis(5));
    let mut old = world.accept().unwrap();
    let mut new: Vec<Reading> = Vec::new();
    let packet = |n: u32| syn(random_source(n), offer(n.is_multiple_of(2)));
    let answers = flood(&mut world, packet, |world, batch| {
        // It is read so slowly that it goes on to the end of the flood.
        old.read_up_to(2000);
        let tables = world.report(0).tables;
        assert_eq!(tables.half_open, LIMITS.half_open);
        assert!(tables.subflows <= LIMITS.half_open + 3);
        assert!(world.shared.tokens.len() <= LIMITS.half_open + 3);
        if batch == 100 {
            world.connect(World::options(1, 50_000));
            let plain = World::options(2, 50_000);
            world.connect(SenderOptions { mptcp: None, ..plain });
        }
        new.extend(world.accept());
        new.iter_mut().for_each(Reading::read);
    });
    assert!((99 * FLOOD / 100..=FLOOD).contains(&(answers as u32)), "{answers} answers");
    // Of the flood, without those that are half open, and of the new clients.
    let cookies = u64::from(FLOOD) - LIMITS.half_open as u64 + 2;
    assert_eq!(world.dropped("half_open_full"), cookies);
    assert_eq!(world.report(0).opened_by_cookie, 2);
    let of = |port: u16| {
        let of_port = |r: &&Reading| r.stream.as_ref().unwrap().peer_addr().port() == port;
        new.iter().find(of_port).unwrap()
    };
    for (port, mptcp) in [(40_001, true), (40_002, false)] {
        assert_eq!((of(port).bytes, of(port).end), (50_000, Some(None)), "in the flood");
        assert_eq!(of(port).stream.as_ref().unwrap().is_mptcp(), mptcp);
    }
    for _ in 0..100 {
        old.read();
        world.pass(Duration::from_millis(1));
    }
    assert_eq!((old.bytes, old.end), (1_000_000, Some(None)));
    drop((old, new));
    world.assert_empty();
}

#[test]
fn a_flood_of_joins_stops_neither_the_old_nor_the_new() {
    let mut world = World::new(Setup { limits: LIMITS, ..Setup::default() });
    world.join(ClientOptions::new(600_000, paths(0, 1, 1, server())));
    world.pass(Duration::from_millis(5));
    let mut old = world.accept().unwrap();
    let mut new = None;
    let packet = |n: u32| {
        let mut options = offer(false);
        options.mptcp.join = Some(MpJoin::Syn {
            backup: false,
            address_id: AddressId(1),
            token: Token(scattered(n) ^ 0x5555_5555),
            nonce: n,
        });
        syn(random_source(n), options)
    };
    let answers = flood(&mut world, packet, |world, batch| {
        old.read_up_to(1000);
        let tables = world.report(0).tables;
        assert!((tables.half_open, tables.subflows) <= (0, 3), "{tables:?}");
        if batch == 100 {
            world.join(ClientOptions::new(100_000, paths(1, 2, 1, server())));
        }
        new = new.take().or_else(|| world.accept());
        new.iter_mut().for_each(Reading::read);
    });
    // In less than a second, after a quiet one.
    assert!(answers as u32 <= 2 * RESETS_PER_SECOND, "{answers} answers");
    assert_eq!(world.dropped("join_unknown_token"), u64::from(FLOOD));
    let mut new = new.unwrap();
    assert_eq!((new.bytes, new.end), (100_000, Some(None)));
    assert_eq!(old.bytes, 400_000, "there was always something to read");
    for _ in 0..1000 {
        old.read();
        world.pass(Duration::from_millis(1));
    }
    assert_eq!((old.bytes, old.end), (600_000, Some(None)));
    new.close();
    assert_eq!(new.statistics.unwrap().subflows.len(), 2);
    assert!(world.clients[1].subflows.iter().all(|subflow| subflow.state != State::SynSent));
    drop(old);
    world.assert_empty();
}

#[test]
fn a_source_has_so_many_handshakes_and_gets_cookies_for_more() {
    let limits = Limits { half_open_per_source: 5, ..LIMITS };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    let loud: IpAddr = [10, 0, 0, 1].into();
    for port in 1..=20 {
        world.inject(&syn(SocketAddr::new(loud, port), offer(true)));
    }
    world.inject(&syn("10.0.0.9:1".parse().unwrap(), offer(true)));
    world.pass(Duration::from_millis(1));
    assert_eq!(world.report(0).tables.half_open, 6);
    assert_eq!(world.dropped("half_open_full_for_source"), 15);
    assert_eq!(world.unclaimed.len(), 21, "all are answered");
    // A client behind the same address gets through.
    world.connect(World::options(1, 10_000));
    let readings = world.serve(Duration::from_secs(10));
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 10_000));
    assert_eq!(world.report(0).opened_by_cookie, 1);
    drop(readings);
    world.assert_empty();
    // Those that came to nothing make room.
    world.inject(&syn(SocketAddr::new(loud, 1), offer(true)));
    world.pass(Duration::from_millis(1));
    assert_eq!(world.report(0).tables.half_open, 1);
}

#[test]
fn the_backlog_holds_for_connections_opened_by_cookies() {
    let limits = Limits { backlog: 1, half_open: 0, half_open_per_source: 64 };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    for n in 0..3 {
        world.connect(World::options(n, 1000));
    }
    world.pass(Duration::from_millis(1));
    assert_eq!(world.report(0).opened_by_cookie, 1);
    assert!(world.dropped("backlog_full") >= 2);
    // The others try again with their data, which opens them when there is room.
    let readings = world.serve(Duration::from_secs(60));
    assert_eq!(readings.iter().map(|r| r.bytes).collect::<Vec<_>>(), [1000; 3]);
    assert_eq!(world.report(0).opened_by_cookie, 3);
    drop(readings);
    world.assert_empty();
}

#[test]
fn a_cookie_opens_at_any_worker() {
    let limits = Limits { half_open: 0, ..LIMITS };
    let mut world = World::new(Setup { limits, workers: 2, ..Setup::default() });
    world.connect(World::options(1, 10_000));
    // The SYN/ACK is on its way.
    world.pass(Duration::from_micros(80));
    world.route = 1;
    let readings = world.serve(Duration::from_secs(10));
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 10_000));
    assert_eq!((world.report(0).opened_by_cookie, world.report(1).opened_by_cookie), (0, 1));
    drop(readings);
    world.assert_empty();
}

#[test]
fn an_acknowledgement_that_brings_no_cookie_is_reset() {
    let limits = Limits { half_open: 0, ..LIMITS };
    let mut world = World::new(Setup { limits, ..Setup::default() });
    world.inject(&syn("10.0.0.9:7".parse().unwrap(), offer(true)));
    world.pass(Duration::from_millis(1));
    let answer = world.unclaimed.pop().unwrap();
    let cookie = mpxdp_proto::wire::parse_frame(&answer, answer.len()).unwrap().segment.seq;
    let ack = |ack: SeqNum| {
        let link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
        let (seq, flags) = (SeqNum(8), Flags::ACK);
        let segment = Segment { seq, ack, flags, window: 1000, ..Segment::default() };
        let (from, ip) = ("10.0.0.9:7".parse().unwrap(), IpFields::default());
        let mut buf = vec![0; 200];
        let len = emit_frame(&mut buf, &link, from, server(), ip, &segment, &[]).unwrap();
        buf.truncate(len);
        buf
    };
    world.inject(&ack(cookie + 2));
    world.pass(Duration::from_millis(1));
    // The right one, but too late.
    world.pass(Duration::from_secs(200));
    world.inject(&ack(cookie + 1));
    world.pass(Duration::from_millis(1));
    assert_eq!((world.dropped("no_flow"), world.unclaimed.len()), (2, 2));
    assert_eq!(world.report(0).opened_by_cookie, 0);
    world.assert_empty();
}
