//! Streams that are proved by data-level checksums.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mpxdp_proto::config::{ChecksumPolicy, Config};
use mpxdp_sim::client::{ClientOptions, State, paths};

use super::world::{Setup, World, server};
use crate::receive::{Budget, RingConfig};

const MINUTE: Duration = Duration::from_secs(60);

fn setup() -> Setup {
    let setup = Setup::default();
    let protocol = Config { checksums: ChecksumPolicy::Accept, ..setup.protocol };
    Setup { protocol, workers: 2, ..setup }
}

#[test]
fn checksums_are_used_where_the_client_requires_them() {
    for (subflows, chunk) in [(1, 1000), (2, 1000), (3, 777)] {
        let mut world = World::new(setup());
        let all = paths(0, subflows, 2, server());
        world.join(ClientOptions { checksums: true, chunk, ..ClientOptions::new(700_001, all) });
        let readings = world.serve(MINUTE);
        assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 700_001));
        let statistics = readings[0].statistics.as_ref().unwrap();
        assert!(statistics.mptcp, "{:?}", statistics.fallback);
        assert_eq!(world.clients[0].timeouts, 0);
        world.assert_empty();
    }
}

#[test]
fn damaged_data_ends_one_of_several_subflows_and_comes_by_another() {
    let mut world = World::new(setup());
    let all = paths(0, 2, 2, server());
    let damaged = Some(300_000);
    world.join(ClientOptions { checksums: true, damaged, ..ClientOptions::new(600_000, all) });
    let readings = world.serve(MINUTE);
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 600_000));
    let broken = world.clients[0].subflows.iter().filter(|s| s.failed_at.is_some());
    let states: Vec<State> = broken.map(|subflow| subflow.state).collect();
    // "The affected subflow must be immediately closed with a RST that includes an MP_FAIL option".
    assert!(matches!(states[..], [State::Reset(Some(6))]), "{states:?}");
    assert!(readings[0].statistics.as_ref().unwrap().mptcp);
    world.assert_empty();
}

/// A budget of so much.
#[derive(Debug)]
struct Limit {
    left: AtomicUsize,
}

impl Limit {
    fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes) })
    }
}

impl Budget for Limit {
    fn reserve(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[test]
fn the_limit_of_memory_turns_connections_away_and_is_given_back() {
    let limit = Limit::new(600 << 10);
    let ring = RingConfig { initial: 256 << 10, limit: 1 << 20, budget: limit.clone() };
    let mut world = World::new(Setup { ring, ..setup() });
    for n in 0..5 {
        world.connect(World::options(n, 10_000));
    }
    world.pass(Duration::from_millis(100));
    assert_eq!(world.dropped("memory_limit"), 3);
    let readings = world.serve(MINUTE);
    assert_eq!(readings.iter().filter(|r| r.bytes == 10_000).count(), 2);
    drop(readings);
    world.assert_empty();
    assert_eq!(limit.left.load(Ordering::Relaxed), 600 << 10);
}

#[test]
fn payload_that_waits_for_its_checksum_counts_as_memory() {
    let limit = Limit::new((256 << 10) + 500);
    let ring = RingConfig { initial: 256 << 10, limit: 256 << 10, budget: limit.clone() };
    let mut world = World::new(Setup { ring, ..setup() });
    let all = paths(0, 1, 1, server());
    let options = ClientOptions::new(10_000, all);
    world.join(ClientOptions { checksums: true, automatic: false, ..options });
    world.pass(Duration::from_millis(1));
    let now = world.now;
    world.clients[0].send(now, 0, 0, 1000);
    world.pass(Duration::from_millis(10));
    assert_eq!(world.dropped("memory_limit"), 1);
    assert_eq!(world.clients[0].subflows[0].state, State::Reset(Some(2)));
    drop(world.accept());
    world.assert_empty();
    assert_eq!(limit.left.load(Ordering::Relaxed), (256 << 10) + 500);
}
