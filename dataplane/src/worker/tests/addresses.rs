//! Addresses and NICs of ours that come and go: what peers are told, and what becomes of subflows.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use mpxdp_proto::segment::AddressId;

use super::world::{Reading, Setup, World, server};
use crate::connection::{Announced, Wishes};
use crate::worker::Command;
use mpxdp_sim::client::{ClientOptions, Path, State, paths};

fn other() -> SocketAddr {
    "10.0.1.2:5001".parse().unwrap()
}

/// A connection by `remotes`, each on a worker of its own, where `announced` is announced too; and
/// 1000 bytes that came by the first.
fn by_hand(remotes: &[SocketAddr], announced: &[SocketAddr]) -> (World, Reading) {
    let setup = Setup { workers: 2, announced: announced.to_vec(), ..Setup::default() };
    let mut world = World::new(setup);
    let path = |n: usize| Path { seat: n, ..paths(0, 2, 2, remotes[n])[n] };
    let all = (0..remotes.len()).map(path).collect::<Vec<_>>();
    world.join(ClientOptions { automatic: false, ..ClientOptions::new(0, all.clone()) });
    world.pass(Duration::from_millis(1));
    send(&mut world, 0, 0);
    for path in &all[1..] {
        let now = world.now;
        world.clients[0].open(now, *path);
        world.pass(Duration::from_millis(100));
    }
    assert!(states(&world).iter().all(|state| *state == State::Established));
    let reading = world.accept().unwrap();
    (world, reading)
}

fn send(world: &mut World, index: usize, offset: u64) {
    let now = world.now;
    world.clients[0].send(now, index, offset, 1000);
    world.pass(Duration::from_millis(100));
}

fn states(world: &World) -> Vec<State> {
    world.clients[0].subflows.iter().map(|subflow| subflow.state).collect()
}

/// Those that the workers have.
fn subflows(world: &World) -> usize {
    let reports = world.seats.iter().map(|seat| seat.handle.counters.report(None));
    reports.map(|report| report.tables.subflows).sum()
}

fn announced(world: &World) -> Vec<u8> {
    world.clients[0].announced.iter().map(|known| known.id.0).collect()
}

/// From now on the NICs have these addresses, which are announced by these numbers.
fn change(world: &mut World, local: &[SocketAddr], announced: &[(u8, SocketAddr)]) {
    let entrance = &world.shared.listeners.find(server()).unwrap().entrance;
    let announced = announced.iter().map(|&(id, at)| Announced { id: AddressId(id), at });
    let local: Vec<IpAddr> = local.iter().map(SocketAddr::ip).collect();
    entrance.set(local, announced.collect());
    for connection in world.shared.connections() {
        connection.ask(Wishes::ADDRESSES);
    }
    world.pass(Duration::from_millis(100));
}

#[test]
fn an_address_that_goes_is_withdrawn_and_left_and_no_longer_joined() {
    let (mut world, mut reading) = by_hand(&[server(), other()], &[other()]);
    assert_eq!(announced(&world), [1]);
    change(&mut world, &[server()], &[]);
    assert_eq!(world.clients[0].forgotten, [1]);
    assert_eq!(announced(&world), [0; 0]);
    assert_eq!(states(&world)[0], State::Established);
    assert!(matches!(states(&world)[1], State::Reset(_)), "{:?}", states(&world));
    send(&mut world, 0, 1000);
    let now = world.now;
    let path = Path { seat: 1, ..paths(0, 3, 2, other())[2] };
    let again = world.clients[0].open(now, path);
    world.pass(Duration::from_millis(100));
    assert!(matches!(states(&world)[again], State::Reset(_)));
    assert_eq!(world.dropped("join_not_announced"), 1);
    reading.read();
    assert_eq!((reading.bytes, reading.end), (2000, None));
    drop(reading);
    world.assert_empty();
}

#[test]
fn the_address_that_the_client_connected_to_is_withdrawn_as_number_0() {
    let (mut world, mut reading) = by_hand(&[server(), other()], &[other()]);
    change(&mut world, &[other()], &[(1, other())]);
    assert_eq!(world.clients[0].forgotten, [0]);
    assert!(matches!(states(&world)[0], State::Reset(_)), "{:?}", states(&world));
    send(&mut world, 1, 1000);
    // It comes back under a number of its own.
    change(&mut world, &[server(), other()], &[(1, other()), (2, server())]);
    assert_eq!(announced(&world), [1, 2]);
    reading.read();
    assert_eq!(reading.bytes, 2000);
    drop(reading);
    world.assert_empty();
}

#[test]
fn the_only_subflow_stays_although_its_address_has_gone() {
    let (mut world, mut reading) = by_hand(&[server()], &[]);
    change(&mut world, &[], &[]);
    send(&mut world, 0, 1000);
    assert_eq!(states(&world), [State::Established]);
    reading.read();
    assert_eq!(reading.bytes, 2000);
    drop(reading);
    world.assert_empty();
}

#[test]
fn an_address_that_comes_is_announced_and_again_when_it_comes_back() {
    let (mut world, reading) = by_hand(&[server()], &[]);
    assert_eq!(announced(&world), [0; 0]);
    change(&mut world, &[server(), other()], &[(1, other())]);
    assert_eq!(announced(&world), [1]);
    change(&mut world, &[server()], &[]);
    assert_eq!((announced(&world).len(), &world.clients[0].forgotten[..]), (0, &[1][..]));
    change(&mut world, &[server(), other()], &[(1, other())]);
    // More than two signals in a row wait for a while. That it was gone is told no more meanwhile.
    world.pass(Duration::from_secs(5));
    assert_eq!((announced(&world), &world.clients[0].forgotten[..]), (vec![1], &[1][..]));
    drop(reading);
    world.assert_empty();
}

#[test]
fn an_announcement_that_is_never_echoed_does_not_stop_the_next() {
    let at = |n: u8| SocketAddr::new([10, 0, 1, n].into(), 5001);
    let (mut world, reading) = by_hand(&[server()], &[]);
    world.clients[0].echoes = false;
    let all: Vec<_> = (1..=3).map(|n| (n, at(n))).collect();
    let local: Vec<_> = all.iter().map(|(_, at)| *at).chain([server()]).collect();
    change(&mut world, &local, &all);
    assert_eq!(announced(&world), [1], "the first waits for its echo");
    world.pass(Duration::from_secs(40));
    assert_eq!(announced(&world), [1, 2]);
    world.pass(Duration::from_secs(40));
    assert_eq!(announced(&world), [1, 2, 3]);
    drop(reading);
    world.assert_empty();
}

#[test]
fn what_a_subflow_was_announcing_when_it_ended_another_announces() {
    let (mut world, reading) = by_hand(&[server(), other()], &[other()]);
    world.clients[0].echoes = false;
    let third = "10.0.2.2:5001".parse().unwrap();
    let ours = [(1, other()), (2, third)];
    change(&mut world, &[server(), other(), third], &ours);
    assert_eq!(announced(&world), [1, 2]);
    world.clients[0].announced.clear();
    world.clients[0].echoes = true;
    // It was on the first, whose record is the first to be asked.
    let now = world.now;
    world.clients[0].reset(0, false);
    world.pass(Duration::from_millis(100));
    assert!(now < world.now && announced(&world) == [2], "{:?}", announced(&world));
    drop(reading);
    world.assert_empty();
}

#[test]
fn a_nic_that_is_gone_takes_its_subflows_with_it_and_no_other() {
    let (mut world, mut reading) = by_hand(&[server(), other()], &[other()]);
    let handle = std::sync::Arc::clone(&world.seats[1].handle);
    handle.command(Command::Mtu { nic: "mem1".into(), mtu: 9000 });
    handle.command(Command::NicGone { nic: "mem0".into() });
    world.pass(Duration::from_millis(10));
    assert_eq!(world.seats[1].worker.core.facts[0].mtu, 9000);
    assert_eq!(subflows(&world), 2, "it has no such NIC");
    handle.command(Command::NicGone { nic: "mem1".into() });
    world.pass(Duration::from_millis(10));
    assert_eq!(subflows(&world), 1);
    // Nothing can be sent there, so the peer is not told, and goes on by the other.
    assert_eq!(states(&world)[1], State::Established);
    send(&mut world, 1, 1000);
    send(&mut world, 0, 1000);
    reading.read();
    assert_eq!((reading.bytes, reading.end), (2000, None));
    assert_eq!(world.dropped("no_transmit_frame") + world.dropped("flush_failed"), 0);
    drop(reading);
    world.assert_empty();
}
