//! Addresses that a client takes back: the subflows from there are seen to.

use std::time::Duration;

use mpxdp_sim::client::{ClientOptions, State, paths};

use super::world::{Reading, Setup, World, server};

/// A client of so many established subflows on two workers, and 1000 bytes that came by the first.
fn by_hand(subflows: u16) -> (World, Reading) {
    let mut world = World::new(Setup { workers: 2, ..Setup::default() });
    let all = paths(0, subflows, 2, server());
    world.join(ClientOptions { automatic: false, ..ClientOptions::new(0, all.clone()) });
    world.pass(Duration::from_millis(1));
    let now = world.now;
    world.clients[0].send(now, 0, 0, 1000);
    world.pass(Duration::from_millis(100));
    for path in &all[1..] {
        let now = world.now;
        world.clients[0].open(now, *path);
        world.pass(Duration::from_millis(100));
    }
    assert!(world.clients[0].subflows.iter().all(|subflow| subflow.state == State::Established));
    let reading = world.accept().unwrap();
    (world, reading)
}

/// Has the client take addresses back by its first subflow; gives the segments that each subflow
/// heard in answer within the next milliseconds.
fn remove(world: &mut World, ids: &[u8]) -> Vec<u64> {
    let heard = |world: &World| -> Vec<u64> {
        world.clients[0].subflows.iter().map(|subflow| subflow.heard).collect()
    };
    let before = heard(world);
    world.clients[0].remove_addresses(0, ids);
    world.pass(Duration::from_millis(5));
    heard(world).iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn the_subflows_of_a_removed_address_are_probed_and_given_up_if_they_are_silent() {
    let (mut world, mut reading) = by_hand(4);
    assert_eq!(remove(&mut world, &[9]), [0, 0, 0, 0], "nothing comes from there");
    assert_eq!(remove(&mut world, &[1, 2]), [0, 1, 1, 0], "on either worker");
    // One of them shows that it is alive.
    let now = world.now;
    world.clients[0].send(now, 1, 1000, 1000);
    world.pass(Duration::from_secs(60));
    let states: Vec<State> = world.clients[0].subflows.iter().map(|s| s.state).collect();
    assert_eq!(
        (states[0], states[1], states[3]),
        (State::Established, State::Established, State::Established)
    );
    assert!(matches!(states[2], State::Reset(_)), "{states:?}");
    // Its end is nothing to the others.
    for (index, offset) in [(3, 2000), (0, 3000), (1, 4000)] {
        let now = world.now;
        world.clients[0].send(now, index, offset, 1000);
    }
    world.pass(Duration::from_millis(100));
    reading.read();
    assert_eq!(reading.bytes, 5000);
    drop(reading);
    world.assert_empty();
}

#[test]
fn the_only_subflow_is_kept_although_its_address_was_removed_if_it_answers() {
    let (mut world, mut reading) = by_hand(1);
    assert_eq!(remove(&mut world, &[0]), [1]);
    let now = world.now;
    world.clients[0].send(now, 0, 1000, 1000);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.clients[0].subflows[0].state, State::Established);
    let now = world.now;
    world.clients[0].send(now, 0, 2000, 1000);
    world.pass(Duration::from_millis(100));
    reading.read();
    assert_eq!((reading.bytes, reading.end), (3000, None));
    drop(reading);
    world.assert_empty();
}
