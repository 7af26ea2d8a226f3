//! Streams that come by several subflows, on several workers.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::time::Duration;

use mpxdp_proto::config::{ChecksumPolicy, Config};
use mpxdp_sim::client::{Client, ClientOptions, State, paths};
use proptest::prelude::*;

use super::world::{Reading, Setup, Weather, World, server};
use crate::receive::RingConfig;
use crate::stats::Closed;

const MINUTE: Duration = Duration::from_secs(60);

/// A world of so many workers, with one client of so many subflows that sends by itself.
fn world(workers: usize, subflows: u16, len: u64) -> World {
    let mut world = World::new(Setup { workers, ..Setup::default() });
    world.join(ClientOptions::new(len, paths(0, subflows, workers, server())));
    world
}

/// Everything came, and nothing is left.
fn assert_whole(world: &mut World, readings: &[Reading], len: u64) {
    assert_eq!(readings.len(), 1);
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), len));
    let statistics = readings[0].statistics.as_ref().unwrap();
    assert!(statistics.mptcp);
    assert_eq!(statistics.closed, Some(Closed::DataFin));
    assert_eq!(world.dropped("receive_ring_refused"), 0);
    assert!(world.clients[0].is_acknowledged());
    world.assert_empty();
}

#[test]
fn two_four_and_eight_subflows_over_workers_arrive_whole() {
    for (subflows, workers) in [(2, 1), (2, 2), (4, 2), (8, 3)] {
        let len = 2_000_000;
        let mut world = world(workers, subflows, len);
        let readings = world.serve(MINUTE);
        assert_eq!(world.clients[0].timeouts, 0, "{subflows} subflows, {workers} workers");
        let records = &readings[0].statistics.as_ref().unwrap().subflows;
        assert_eq!(records.len(), usize::from(subflows));
        for record in records {
            let n = usize::from(record.remote.port() - 40_000);
            assert_eq!(record.worker, n % workers, "the worker is that of the queue");
            assert_eq!(record.queue as usize, n % workers);
            assert!(record.bytes > len / u64::from(subflows) / 2, "{record:?}");
        }
        let sum: u64 = records.iter().map(|record| record.bytes).sum();
        assert_eq!(sum, len);
        assert_whole(&mut world, &readings, len);
    }
}

#[test]
fn unequal_delays_neither_stall_nor_damage_the_stream() {
    let mut world = World::new(Setup { workers: 2, ..Setup::default() });
    let mut paths = paths(0, 2, 2, server());
    paths[1].delay = Duration::from_millis(40);
    world.join(ClientOptions::new(3_000_000, paths));
    let start = world.now;
    let readings = world.serve(MINUTE);
    assert_eq!(world.clients[0].timeouts, 0);
    let took = world.now.saturating_since(start);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_whole(&mut world, &readings, 3_000_000);
}

#[test]
fn the_window_is_tuned_by_the_slowest_subflow() {
    let mut world = World::new(Setup { workers: 2, ..Setup::default() });
    let mut paths = paths(0, 2, 2, server());
    paths[1].delay = Duration::from_millis(40);
    world.join(ClientOptions::new(3_000_000, paths));
    world.pass(Duration::from_millis(200));
    for seat in &mut world.seats {
        let flows = &mut seat.worker.core.flows;
        let id = flows.active_ids()[0];
        let round_trip = flows.flow_mut(id).unwrap().connection.as_ref().unwrap().round_trip();
        assert!(round_trip >= Some(Duration::from_millis(40)), "{round_trip:?}");
    }
    // Without it, what counts is what is left.
    world.clients[0].reset(1, false);
    world.pass(Duration::from_millis(100));
    let flows = &mut world.seats[0].worker.core.flows;
    let id = flows.active_ids()[0];
    let round_trip = flows.flow_mut(id).unwrap().connection.as_ref().unwrap().round_trip();
    assert!(round_trip < Some(Duration::from_millis(40)), "{round_trip:?}");
}

/// Two established subflows on two workers, the client of which sends nothing by itself, and
/// 1000 bytes that came by the first.
fn two_by_hand() -> (World, Reading) {
    let mut world = World::new(Setup { workers: 2, ..Setup::default() });
    let all = paths(0, 2, 2, server());
    let (first, second) = (all[0], all[1]);
    world.join(ClientOptions { automatic: false, ..ClientOptions::new(0, all) });
    world.pass(Duration::from_millis(1));
    let now = world.now;
    assert_eq!(world.clients[0].subflows[0].path.local, first.local);
    world.clients[0].send(now, 0, 0, 1000);
    world.pass(Duration::from_millis(100));
    let now = world.now;
    world.clients[0].open(now, second);
    world.pass(Duration::from_millis(100));
    let reading = world.accept().unwrap();
    assert_eq!(world.clients[0].subflows[1].state, State::Established);
    (world, reading)
}

/// Has the client send, and lets it come to rest; gives the segments that came back by each of the
/// first two subflows.
fn answers(
    world: &mut World,
    act: impl FnOnce(&mut Client, mpxdp_proto::time::Instant),
) -> [u64; 2] {
    let heard = |world: &World| [0, 1].map(|n| world.clients[0].subflows[n].heard);
    let before = heard(world);
    let now = world.now;
    act(&mut world.clients[0], now);
    world.pass(Duration::from_millis(300));
    let after = heard(world);
    [0, 1].map(|n| after[n] - before[n])
}

#[test]
fn a_gap_that_one_subflow_closes_is_acknowledged_by_it_at_once() {
    let (mut world, mut reading) = two_by_hand();
    // Acknowledgements of data in order are delayed from here on.
    for n in 1..20 {
        answers(&mut world, |client, now| client.send(now, 0, n * 1000, 1000));
    }
    // Ahead of a gap in the stream, in order on its subflow.
    let came = answers(&mut world, |client, now| client.send(now, 1, 21_000, 1000));
    assert_eq!(came, [0, 1]);
    assert_eq!(world.clients[0].subflows[1].data_ack, 20_000);
    let now = world.now;
    world.clients[0].send(now, 0, 20_000, 1000);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.clients[0].subflows[0].data_ack, 22_000);
    reading.read();
    assert_eq!(reading.bytes, 22_000);
}

#[test]
fn what_a_subflow_acknowledged_last_is_told_on_others_when_it_ends() {
    let (mut world, _reading) = two_by_hand();
    answers(&mut world, |client, now| client.send(now, 0, 1000, 1000));
    assert_eq!(world.clients[0].subflows[1].data_ack, 1000);
    let came = answers(&mut world, |client, _| client.reset(0, false));
    assert_eq!(came, [0, 1]);
    assert_eq!(world.clients[0].subflows[1].data_ack, 2000);
}

#[test]
fn the_end_of_the_stream_is_acknowledged_on_all() {
    let (mut world, _reading) = two_by_hand();
    world.clients[0].set_len(2000);
    // The end comes by the second, what is missing before it by the first.
    let came = answers(&mut world, |client, now| client.data_fin(now, 1));
    assert_eq!(came, [0, 1]);
    answers(&mut world, |client, now| client.send(now, 0, 1000, 1000));
    assert_eq!(world.clients[0].subflows[0].data_ack, 2001);
    assert_eq!(world.clients[0].subflows[1].data_ack, 2001);
}

#[test]
fn data_in_order_is_not_acknowledged_on_other_subflows() {
    let (mut world, _reading) = two_by_hand();
    for n in 1..20_u64 {
        let came = answers(&mut world, |client, now| client.send(now, 0, n * 1000, 1000));
        assert_eq!(came, [1, 0]);
    }
    // But what they acknowledge next is the newest.
    answers(&mut world, |client, now| client.send(now, 1, 20_000, 1000));
    assert_eq!(world.clients[0].subflows[1].data_ack, 21_000);
}

#[test]
fn bytes_that_came_by_two_subflows_are_taken_once() {
    let (mut world, mut reading) = two_by_hand();
    answers(&mut world, |client, now| client.send(now, 1, 1500, 1000));
    // Partly what the other brought, partly new; then all of it again.
    answers(&mut world, |client, now| client.send(now, 0, 1000, 1000));
    answers(&mut world, |client, now| client.send(now, 0, 1000, 1400));
    answers(&mut world, |client, now| client.send(now, 1, 0, 1300));
    assert_eq!(world.clients[0].acked, 2500);
    reading.read();
    assert_eq!(reading.bytes, 2500);
}

#[test]
fn when_the_window_reopens_every_subflow_hears_of_it() {
    let ring = RingConfig { initial: 256 << 10, limit: 256 << 10, ..RingConfig::default() };
    let mut world = World::new(Setup { workers: 2, ring, ..Setup::default() });
    world.join(ClientOptions::new(2_000_000, paths(0, 4, 2, server())));
    world.pass(Duration::from_secs(3));
    let mut reading = world.accept().unwrap();
    let stopped = world.clients[0].acked;
    assert!(stopped < 300_000, "the window did not close: {stopped}");
    // Nothing is sent that would be answered.
    world.clients[0].set_automatic(false);
    reading.read_up_to(128 << 10);
    world.pass(Duration::from_micros(200));
    for (n, subflow) in world.clients[0].subflows.iter().enumerate() {
        assert!(subflow.right_edge >= stopped + (64 << 10), "subflow {n}");
    }
    // And no timer is needed from then on.
    world.clients[0].set_automatic(true);
    let resumed = world.now;
    while reading.end.is_none() {
        reading.read_up_to(64 << 10);
        world.advance(Duration::from_millis(1));
        assert!(world.now.saturating_since(resumed) < Duration::from_millis(300), "stalled");
    }
    assert_eq!((reading.end, reading.bytes), (Some(None), 2_000_000));
    assert_eq!(world.clients[0].timeouts, 0);
    drop(reading);
    world.assert_empty();
}

#[test]
fn a_subflow_told_of_little_window_is_told_when_it_is_wide_again() {
    let ring = RingConfig { initial: 256 << 10, limit: 256 << 10, ..RingConfig::default() };
    let mut world = World::new(Setup { workers: 2, ring, ..Setup::default() });
    let all = paths(0, 2, 2, server());
    let second = all[1];
    world.join(ClientOptions { automatic: false, ..ClientOptions::new(0, all) });
    world.pass(Duration::from_millis(1));
    let now = world.now;
    world.clients[0].send(now, 0, 0, 1000);
    world.pass(Duration::from_millis(100));
    let now = world.now;
    world.clients[0].open(now, second);
    world.pass(Duration::from_millis(100));
    let mut reading = world.accept().unwrap();
    // Three quarters and more come by the first; the second hears of what is left.
    let mut at = 1000;
    while at < 230_000 {
        answers(&mut world, |client, now| client.send(now, 0, at, 1000));
        at += 1000;
    }
    answers(&mut world, |client, now| client.send(now, 1, at, 1000));
    at += 1000;
    let narrow = world.clients[0].subflows[1].right_edge;
    // The reader goes on in steps that call for no update, and data comes by the first only.
    for _ in 0..200 {
        answers(&mut world, |client, now| client.send(now, 0, at, 1000));
        at += 1000;
        reading.read_up_to(2000);
    }
    let wide = world.clients[0].subflows[1].right_edge;
    assert!(wide > narrow + (100 << 10), "{narrow} {wide}");
}

#[test]
fn a_reset_ends_its_subflow_and_no_other() {
    let mut world = world(2, 4, 2_000_000);
    world.pass(Duration::from_millis(3));
    assert!(world.clients[0].acked > 0 && world.clients[0].acked < 1_000_000);
    world.clients[0].reset(1, false);
    world.clients[0].reset(0, false);
    let readings = world.serve(MINUTE);
    let records = &readings[0].statistics.as_ref().unwrap().subflows;
    assert_eq!(records.len(), 4);
    let ended = records.iter().filter(|record| record.remote.port() <= 40_001);
    assert!(ended.clone().count() == 2 && ended.clone().all(|record| !record.live), "{records:?}");
    assert_whole(&mut world, &readings, 2_000_000);
}

#[test]
fn a_connection_that_lost_all_subflows_goes_on_with_the_next() {
    let (mut world, mut reading) = two_by_hand();
    world.clients[0].reset(0, false);
    world.clients[0].reset(1, false);
    world.pass(Duration::from_secs(30));
    let mut path = paths(0, 3, 2, server())[2];
    path.seat = 1;
    let now = world.now;
    world.clients[0].open(now, path);
    world.pass(Duration::from_millis(100));
    let now = world.now;
    world.clients[0].send(now, 2, 1000, 1000);
    // Past the time at which it would have failed without it.
    world.pass(Duration::from_secs(45));
    reading.read();
    assert_eq!((reading.end, reading.bytes), (None, 2000));
    // From the loss of this one on, it is a minute again.
    world.clients[0].reset(2, false);
    world.pass(Duration::from_secs(59));
    reading.read();
    assert_eq!(reading.end, None);
    world.pass(Duration::from_secs(2));
    reading.read();
    assert_eq!(reading.end, Some(Some(ErrorKind::TimedOut)));
    drop(reading);
    world.assert_empty();
}

#[test]
fn fast_close_on_one_subflow_ends_all() {
    let (mut world, mut reading) = two_by_hand();
    world.clients[0].reset(1, true);
    world.pass(Duration::from_millis(10));
    reading.read();
    assert_eq!(reading.end, Some(Some(ErrorKind::ConnectionReset)));
    assert!(matches!(world.clients[0].subflows[0].state, State::Reset(_)));
    reading.close();
    assert_eq!(reading.statistics.as_ref().unwrap().closed, Some(Closed::FastClose));
    world.assert_empty();
}

#[test]
fn a_stream_that_is_dropped_resets_all_subflows() {
    let (mut world, reading) = two_by_hand();
    drop(reading);
    world.pass(Duration::from_millis(10));
    assert!(world.clients[0].fast_closed);
    assert!(world.clients[0].is_done());
    world.assert_empty();
}

#[test]
fn a_peer_that_never_ends_its_side_is_not_waited_for_for_ever_when_nobody_reads() {
    let (mut world, mut reading) = two_by_hand();
    reading.read();
    let mut stream = reading.stream.take().unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    world.pass(Duration::from_secs(3600));
    assert!(!world.clients[0].is_done(), "while somebody reads, there is no hurry");
    drop(stream);
    world.pass(Duration::from_secs(59));
    assert!(!world.clients[0].fast_closed);
    world.pass(Duration::from_secs(2));
    assert!(world.clients[0].fast_closed);
    world.assert_empty();
}

#[test]
fn a_subflow_whose_packets_come_in_elsewhere_is_served_by_its_worker() {
    let mut world = world(2, 2, 1_000_000);
    world.pass(Duration::from_millis(3));
    // The NIC now gives the second subflow to the first worker.
    assert_eq!(world.clients[0].subflows.len(), 2);
    world.clients[0].subflows[1].path.seat = 0;
    let readings = world.serve(MINUTE);
    let records = &readings[0].statistics.as_ref().unwrap().subflows;
    assert_eq!(records[1].worker, 1);
    assert!(world.report(1).handed_over > 50);
    assert_whole(&mut world, &readings, 1_000_000);
}

#[test]
fn many_clients_with_many_subflows_leave_nothing() {
    let mut world = World::new(Setup { workers: 2, ..Setup::default() });
    for n in 0..12 {
        world.join(ClientOptions::new(100_000, paths(n, 4, 2, server())));
    }
    let readings = world.serve(MINUTE);
    assert_eq!(readings.len(), 12);
    assert!(readings.iter().all(|r| (r.end, r.bytes) == (Some(None), 100_000)));
    assert!(world.clients.iter().all(Client::is_acknowledged));
    world.assert_empty();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Loss both ways, delays that differ, subflows that end on the way, checksums or none.
    #[test]
    fn streams_arrive_whole_by_several_subflows_through_bad_weather(
        loss in 0..12_u8,
        delays in prop::collection::vec(50..20_000_u64, 2..6),
        ends in prop::collection::vec((0..5_usize, 1..60_u64), 0..3),
        (chunk, checksums, seed) in (1..1400_u32, any::<bool>(), any::<u64>()),
    ) {
        let len = u64::from(chunk) * 300 + 7;
        let setup = Setup::default();
        let mut world = World::new(Setup {
            protocol: Config { checksums: ChecksumPolicy::Accept, ..setup.protocol },
            weather: Weather { loss, ..Weather::default() },
            workers: 3,
            seed,
            ..setup
        });
        let mut paths = paths(0, delays.len() as u16, 3, server());
        for (path, delay) in paths.iter_mut().zip(&delays) {
            path.delay = Duration::from_micros(*delay);
        }
        world.join(ClientOptions { chunk, checksums, ..ClientOptions::new(len, paths) });
        let mut reading = None;
        for (which, after) in ends {
            world.pass(Duration::from_millis(after));
            reading = reading.or_else(|| world.accept());
            reading.iter_mut().for_each(Reading::read);
            // The last one stays.
            let client = &mut world.clients[0];
            let established = |n: usize| {
                client.subflows.get(n).is_some_and(|s| s.state == State::Established)
            };
            if established(which) && (0..5).any(|other| other != which && established(other)) {
                client.reset(which, false);
            }
        }
        let end = world.now + MINUTE;
        while world.now < end && !world.clients[0].is_done() {
            reading = reading.or_else(|| world.accept());
            if let Some(reading) = &mut reading {
                reading.read();
                if reading.end.is_some() {
                    reading.close();
                }
            }
            world.advance(Duration::from_millis(10));
        }
        let reading = reading.expect("it was established");
        prop_assert_eq!((reading.end, reading.bytes), (Some(None), len));
        prop_assert_eq!(world.dropped("receive_ring_refused"), 0);
        drop(reading);
        world.assert_empty();
    }
}
