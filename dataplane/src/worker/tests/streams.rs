//! Streams arrive as they were sent, whatever the weather.

use std::time::Duration;

use mpxdp_sim::{FirstData, MptcpOptions, SenderOptions};
use proptest::prelude::*;

use super::world::{Setup, Weather, World};
use crate::receive::RingConfig;
use crate::stats::Closed;

const MINUTE: Duration = Duration::from_secs(60);

/// Has one client send, and checks that everything came and nothing was left.
fn one_stream(setup: Setup, options: SenderOptions) -> World {
    let len = options.content.len();
    let mptcp = options.mptcp.is_some();
    let mut world = World::new(setup);
    let client = world.connect(options);
    let readings = world.serve(20 * MINUTE);
    assert_eq!(readings.len(), 1);
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), len));
    let statistics = readings[0].statistics.as_ref().unwrap();
    assert_eq!((statistics.mptcp, statistics.bytes), (mptcp, len));
    assert_eq!(statistics.closed, Some(if mptcp { Closed::DataFin } else { Closed::Fin }));
    assert_eq!(statistics.subflows[0].bytes, len);
    let sender = &world.senders[client];
    assert!(sender.is_done(), "{sender:?}");
    assert_eq!(sender.statistics().window_taken_back, 0);
    assert_eq!(sender.statistics().false_acks, 0);
    assert_eq!(world.dropped("receive_ring_refused"), 0);
    world.assert_empty();
    world
}

#[test]
fn streams_of_every_awkward_length_arrive_whole() {
    for len in [0, 1, 1447, 1448, 1449, 65535, 65536, 65537, 1_000_000] {
        let mptcp = World::options(1, len);
        one_stream(Setup::default(), mptcp.clone());
        one_stream(Setup::default(), SenderOptions { mptcp: None, ..mptcp });
    }
}

#[test]
fn a_stream_larger_than_the_ring_wraps_around_it_many_times() {
    let ring = RingConfig { initial: 256 << 10, limit: 256 << 10, ..RingConfig::default() };
    let world = one_stream(Setup { ring, ..Setup::default() }, World::options(1, 5 << 20));
    assert_eq!(world.senders[0].statistics().timeouts, 0, "the window stalled");
}

#[test]
fn packets_of_several_buffers_arrive() {
    for mss in [8960, 65_000] {
        let options = SenderOptions { mss, ..World::options(1, 3_000_001) };
        one_stream(Setup { mtu: 65_535, ..Setup::default() }, options);
    }
}

#[test]
fn ipv6_works_like_ipv4() {
    let mut world = World::new(Setup::default());
    let at = "[fd00::2]:5001".parse().unwrap();
    let limits = crate::listener::Limits { backlog: 1, half_open: 1, half_open_per_source: 1 };
    world.listener = Some(world.listen(at, limits));
    let local = "[fd00::1]:40001".parse().unwrap();
    world.connect(SenderOptions { local, remote: at, ..World::options(1, 100_000) });
    let readings = world.serve(MINUTE);
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 100_000));
    world.assert_empty();
}

#[test]
fn damaged_packets_change_nothing() {
    let weather = Weather { corrupt: 20, ..Weather::default() };
    let world = one_stream(Setup { weather, ..Setup::default() }, World::options(1, 200_000));
    assert!(world.dropped("tcp_checksum") > 0);
}

#[test]
fn one_acknowledgement_answers_a_burst() {
    let world = one_stream(Setup::default(), World::options(1, 4 << 20));
    let report = world.report(0);
    assert!(report.sent * 8 < report.packets, "{} for {}", report.sent, report.packets);
}

fn senders() -> impl Strategy<Value = SenderOptions> {
    let mptcp = (any::<bool>(), 0..60_000_u16, any::<bool>(), any::<bool>(), any::<bool>());
    (prop::option::weighted(0.8, mptcp), 536..3000_u16, any::<[bool; 3]>(), 0..100_000_u64)
        .prop_map(|(mptcp, mss, [timestamps, sack, scale], len)| {
            let options = World::options(7, len);
            SenderOptions {
                mptcp: mptcp.map(|(long_numbers, mapping_len, straddle, capable, fin)| {
                    MptcpOptions {
                        long_numbers,
                        mapping_len,
                        straddle,
                        first_data: if capable { FirstData::Capable } else { FirstData::Dss },
                        data_fin_with_data: fin,
                        ..MptcpOptions::default()
                    }
                }),
                mss,
                timestamps,
                sack,
                window_scale: options.window_scale.filter(|_| scale),
                max_timeouts: 100,
                ..options
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Loss, duplication, reordering and damage, both ways, with any kind of sender.
    #[test]
    fn streams_arrive_whole_through_bad_weather(
        options in senders(),
        (loss, duplicate, reorder, corrupt) in (0..30_u8, 0..30_u8, 0..60_u8, 0..10_u8),
        seed in any::<u64>(),
    ) {
        let weather = Weather { loss, duplicate, reorder, corrupt };
        let setup = Setup { weather, seed, mtu: 9000, ..Setup::default() };
        let len = options.content.len();
        let mut world = World::new(setup);
        world.connect(options);
        let readings = world.serve(60 * MINUTE);
        // A duplicate of the SYN that comes after the end may open a connection of its own, which
        // never gets anywhere.
        let whole = readings.iter().filter(|r| r.end == Some(None) && r.bytes == len).count();
        prop_assert_eq!(whole, 1, "{:?}", world.senders[0]);
        prop_assert_eq!(world.dropped("receive_ring_refused"), 0);
        drop(readings);
        world.assert_empty();
    }
}
