//! Many flows, their ends, and packets of none.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mpxdp_proto::config::Config;
use mpxdp_proto::segment::{Flags, Segment};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{IpFields, LinkHeader, MacAddress, emit_frame, parse_frame};
use mpxdp_sim::{Failure, Sender, SenderOptions};

use super::world::{Setup, World, server};
use crate::stats::Closed;
use crate::worker::Command;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn fifty_at_once_and_two_hundred_one_after_another_leave_nothing() {
    let mut world = World::new(Setup::default());
    for n in 0..50 {
        let options = World::options(n, 20_000 + u64::from(n));
        let mptcp = options.mptcp.filter(|_| n % 5 != 0);
        world.connect(SenderOptions { mptcp, ..options });
    }
    let readings = world.serve(MINUTE);
    assert_eq!(readings.len(), 50);
    assert!(readings.iter().all(|r| r.end == Some(None) && r.bytes >= 20_000));
    for n in 0..200 {
        world.senders.clear();
        world.connect(World::options(100 + n, 5000));
        let readings = world.serve(MINUTE);
        assert_eq!((readings.len(), readings[0].bytes), (1, 5000));
    }
    world.assert_empty();
}

#[test]
fn a_reader_that_stops_for_a_while_gets_everything() {
    let mut world = World::new(Setup::default());
    world.connect(World::options(1, 3 << 20));
    world.pass(Duration::from_millis(100));
    let mut reading = world.accept().unwrap();
    world.pass(Duration::from_secs(5));
    let held = world.senders[0].acknowledged();
    assert!(held < 3 << 20, "the window did not close");
    assert_eq!(reading.stream.as_ref().unwrap().available() as u64, held);
    // It goes on at once when the reader does, not with the next window probe.
    let resumed = world.now;
    while reading.end.is_none() {
        reading.read_up_to(64 << 10);
        world.advance(Duration::from_millis(1));
        assert!(world.now.saturating_since(resumed) < Duration::from_millis(200), "stalled");
    }
    assert_eq!(reading.bytes, 3 << 20);
    drop(reading);
    world.assert_empty();
}

#[test]
fn a_stream_dropped_with_unread_data_resets_the_connection() {
    for mptcp in [true, false] {
        let mut world = World::new(Setup::default());
        let options = World::options(1, 1 << 20);
        let mptcp = options.mptcp.filter(|_| mptcp);
        world.connect(SenderOptions { mptcp, ..options });
        world.pass(Duration::from_millis(100));
        let mut reading = world.accept().unwrap();
        reading.read_up_to(1000);
        drop(reading);
        world.pass(Duration::from_millis(10));
        let failure = world.senders[0].failure();
        assert!(matches!(failure, Some(Failure::Reset(_) | Failure::FastClosed)), "{failure:?}");
        world.assert_empty();
    }
}

/// A client that sent 100,000 bytes and a reset after them, and its reader.
fn a_reset_after_data(mptcp: bool) -> (World, super::world::Reading) {
    let mut world = World::new(Setup::default());
    let options = SenderOptions { ends: false, ..World::options(1, 100_000) };
    let mptcp = options.mptcp.filter(|_| mptcp);
    world.connect(SenderOptions { mptcp, ..options });
    world.pass(Duration::from_millis(100));
    let mut reading = world.accept().unwrap();
    world.senders[0].abort();
    world.pass(Duration::from_millis(10));
    reading.read();
    assert_eq!(reading.bytes, 100_000);
    (world, reading)
}

#[test]
fn a_reset_of_plain_tcp_comes_after_the_data_before_it() {
    let (mut world, mut reading) = a_reset_after_data(false);
    assert_eq!(reading.end, Some(Some(ErrorKind::ConnectionReset)));
    reading.close();
    assert_eq!(reading.statistics.as_ref().unwrap().closed, Some(Closed::Reset));
    world.assert_empty();
}

#[test]
fn a_connection_whose_only_subflow_was_reset_waits_for_another_and_then_fails() {
    let (mut world, mut reading) = a_reset_after_data(true);
    world.pass(Duration::from_secs(59));
    reading.read();
    assert_eq!(reading.end, None);
    assert_eq!(world.shared.tokens.len(), 1, "it can be joined");
    world.pass(Duration::from_secs(2));
    reading.read();
    assert_eq!(reading.end, Some(Some(ErrorKind::TimedOut)));
    reading.close();
    let statistics = reading.statistics.as_ref().unwrap();
    assert_eq!(statistics.closed, Some(Closed::Timeout));
    assert!(!statistics.subflows[0].live);
    world.assert_empty();
}

#[test]
fn a_connection_without_subflows_ends_with_its_stream() {
    let (mut world, reading) = a_reset_after_data(true);
    drop(reading);
    assert_eq!(world.shared.tokens.len(), 0, "nothing waits for another subflow");
    world.assert_empty();
}

#[test]
fn stopping_does_not_wait_for_another_subflow_longer_than_for_others() {
    let (mut world, mut reading) = a_reset_after_data(true);
    let deadline = world.now + Duration::from_secs(2);
    world.seats[0].handle.command(Command::Stop { deadline });
    world.pass(Duration::from_secs(1));
    let now = world.now;
    assert!(!world.seats[0].worker.turn(now).done);
    world.pass(Duration::from_secs(2));
    let now = world.now;
    assert!(world.seats[0].worker.turn(now).done);
    reading.read();
    assert_eq!(reading.end, Some(Some(ErrorKind::ConnectionAborted)));
}

#[test]
fn a_connection_outlives_its_listener() {
    let mut world = World::new(Setup::default());
    world.connect(SenderOptions { ends: false, ..World::options(1, 10_000) });
    world.pass(Duration::from_millis(100));
    let mut reading = world.accept().unwrap();
    world.listener = None;
    world.senders[0].finish();
    world.connect(World::options(2, 10));
    world.pass(Duration::from_millis(500));
    reading.read();
    assert_eq!((reading.end, reading.bytes), (Some(None), 10_000));
    assert_eq!(world.senders[1].failure(), Some(Failure::Refused), "nobody listens any more");
    drop(reading);
    world.assert_empty();
}

#[test]
fn connections_that_nobody_accepted_are_reset_with_the_listener() {
    let mut world = World::new(Setup::default());
    world.connect(World::options(1, 10_000));
    world.pass(Duration::from_millis(100));
    world.listener = None;
    world.pass(Duration::from_millis(100));
    assert!(world.senders[0].failure().is_some());
    world.assert_empty();
}

#[test]
fn stopping_waits_for_connections_and_resets_those_that_do_not_end() {
    let mut world = World::new(Setup::default());
    world.connect(World::options(1, 10_000));
    world.connect(SenderOptions { ends: false, ..World::options(2, 10_000) });
    world.pass(Duration::from_millis(100));
    let mut readings: Vec<_> = std::iter::from_fn(|| world.accept()).collect();
    assert_eq!(readings.len(), 2);
    let deadline = world.now + Duration::from_secs(2);
    world.seats[0].handle.command(Command::Stop { deadline });
    world.pass(Duration::from_millis(500));
    let now = world.now;
    assert!(!world.seats[0].worker.turn(now).done);
    readings.iter_mut().for_each(super::world::Reading::read);
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 10_000));
    readings.remove(0);
    world.pass(Duration::from_secs(2));
    assert!(world.senders[0].is_done());
    assert!(world.senders[1].failure().is_some());
    readings[0].read();
    assert_eq!(readings[0].end, Some(Some(ErrorKind::ConnectionAborted)));
    let now = world.now;
    assert!(world.seats[0].worker.turn(now).done);
}

/// A frame to the worker from port 50000, whose checksum is right.
fn frame(segment: &Segment, to: SocketAddr) -> Vec<u8> {
    let link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let mut buf = vec![0; 200];
    let from = "10.0.0.1:50000".parse().unwrap();
    let len = emit_frame(&mut buf, &link, from, to, IpFields::default(), segment, &[]).unwrap();
    buf.truncate(len);
    buf
}

#[test]
fn packets_of_no_connection_are_answered_like_a_closed_port() {
    let mut world = World::new(Setup::default());
    let nobody = "10.0.0.2:1".parse().unwrap();
    let syn = Segment { seq: SeqNum(7), flags: Flags::SYN, ..Segment::default() };
    let ack = Segment { ack: SeqNum(9), flags: Flags::ACK, ..Segment::default() };
    let reset = Segment { flags: Flags::RST, ..Segment::default() };
    world.inject(&frame(&syn, nobody));
    world.inject(&frame(&ack, server()));
    world.inject(&frame(&reset, server()));
    world.pass(Duration::from_millis(1));
    let answers: Vec<Segment> = world
        .unclaimed
        .iter()
        .map(|frame| parse_frame(frame, frame.len()).unwrap().segment)
        .collect();
    assert_eq!(answers.len(), 2, "a reset is never answered");
    // RFC 9293, section 3.10.7.1: <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>, <SEQ=SEG.ACK><CTL=RST>.
    assert_eq!((answers[0].flags, answers[0].ack), (Flags::RST.with(Flags::ACK), SeqNum(8)));
    assert_eq!((answers[1].flags, answers[1].seq), (Flags::RST, SeqNum(9)));
    assert_eq!((world.dropped("no_listener"), world.dropped("no_flow")), (1, 2));
    world.assert_empty();
}

#[test]
fn a_packet_at_the_wrong_worker_is_handed_over() {
    let mut world = World::new(Setup { workers: 2, ..Setup::default() });
    world.connect(World::options(1, 500_000));
    world.pass(Duration::from_micros(300));
    assert!(world.senders[0].is_established());
    // The NIC now gives the flow to the other queue.
    world.route = 1;
    let readings = world.serve(MINUTE);
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 500_000));
    assert_eq!(readings[0].statistics.as_ref().unwrap().subflows[0].worker, 0);
    assert!(world.report(0).handed_over > 100);
    assert_eq!(world.report(1).handed_over, 0);
    world.assert_empty();
}

#[test]
fn the_same_address_and_port_can_connect_again() {
    let mut world = World::new(Setup::default());
    for round in 0..3 {
        world.senders.clear();
        // The next connection of a client comes with a later initial sequence number.
        let isn = SeqNum(1000) + (round << 24);
        world.connect(SenderOptions { isn, ..World::options(1, 5000) });
        let readings = world.serve(MINUTE);
        assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 5000), "round {round}");
    }
    world.assert_empty();
}

#[test]
fn a_client_that_vanishes_in_its_handshake_is_forgotten() {
    let mut world = World::new(Setup::default());
    let mut sender = Sender::new(World::options(1, 10));
    let mut buf = [0; 2000];
    let len = sender.poll_frame(Instant(0), &mut buf).unwrap();
    world.inject(&buf[..len]);
    world.pass(Duration::from_millis(10));
    let report = world.report(0);
    assert_eq!((report.tables.half_open, report.tables.subflows), (1, 1));
    world.assert_empty();
}

/// SYN/ACKs, acknowledgements, FINs, and resets of what is for nobody.
#[test]
fn every_packet_has_the_hop_limit_and_the_class_that_are_set() {
    for server in ["10.0.0.2:5001", "[fd00::2]:5001"] {
        let ip = IpFields { hop_limit: 7, traffic_class: 46 << 2, ..IpFields::default() };
        let protocol = Config { ip, ..Setup::default().protocol };
        let mut world = World::new(Setup { protocol, ..Setup::default() });
        let server: SocketAddr = server.parse().unwrap();
        let home: IpAddr = if server.is_ipv4() { "10.0.0.9" } else { "fd00::9" }.parse().unwrap();
        let link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
        let other = (!server.is_ipv4()).then(|| {
            let limits = Setup::default().limits;
            world.listen(server, limits)
        });
        let nobody = SocketAddr::new(server.ip(), 1);
        let syn = Segment { seq: SeqNum(1), flags: Flags::SYN, window: 1000, ..Segment::default() };
        for (port, to) in [(1, server), (2, nobody)] {
            let mut buf = vec![0; 200];
            let (from, fields) = (SocketAddr::new(home, port), IpFields::default());
            let len = emit_frame(&mut buf, &link, from, to, fields, &syn, &[]).unwrap();
            world.inject(&buf[..len]);
        }
        world.pass(Duration::from_millis(1));
        let mut flags = Vec::new();
        for bytes in &world.unclaimed {
            let frame = parse_frame(bytes, bytes.len()).unwrap();
            assert_eq!(frame.hop_limit, 7);
            let class = match server {
                SocketAddr::V4(_) => bytes[15],
                SocketAddr::V6(_) => bytes[14] << 4 | bytes[15] >> 4,
            };
            assert_eq!(class, 46 << 2);
            flags.push(frame.segment.flags);
        }
        // What is for no flow is answered first.
        assert_eq!(flags, [Flags::RST.with(Flags::ACK), Flags::SYN.with(Flags::ACK)]);
        drop(other);
    }
}
