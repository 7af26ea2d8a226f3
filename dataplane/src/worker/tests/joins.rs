//! Which joins are taken, and what the others are told.

use std::net::SocketAddr;
use std::time::Duration;

use mpxdp_proto::config::Config;
use mpxdp_proto::segment::{AddAddr, Token};
use mpxdp_sim::client::{Client, ClientOptions, Path, State, paths};

use super::world::{Reading, Setup, World, server};
use crate::worker::JoinLimits;

/// Reason codes of MP_TCPRST (RFC 8684, section 3.6).
const MPTCP_SPECIFIC: u8 = 1;
const RESOURCES: u8 = 2;
const PROHIBITED: u8 = 3;

/// An established connection of one subflow, with 1000 bytes that came.
fn connection(setup: Setup) -> (World, Reading) {
    let mut world = World::new(setup);
    let all = paths(0, 1, 1, server());
    world.join(ClientOptions { automatic: false, ..ClientOptions::new(0, all) });
    world.pass(Duration::from_millis(1));
    let now = world.now;
    world.clients[0].send(now, 0, 0, 1000);
    world.pass(Duration::from_millis(100));
    let reading = world.accept().unwrap();
    (world, reading)
}

/// The path of join number `n`.
fn path(n: u16, remote: SocketAddr) -> Path {
    paths(0, n + 1, 1, remote)[usize::from(n)]
}

/// Has the client join, by `act` if it is given; gives what came of it.
fn join(world: &mut World, path: Path, act: impl FnOnce(&mut Client, usize)) -> State {
    let now = world.now;
    let client = &mut world.clients[0];
    let index = client.open(now, path);
    act(client, index);
    world.pass(Duration::from_millis(10));
    world.clients[0].subflows[index].state
}

fn as_usual(_: &mut Client, _: usize) {}

#[test]
fn a_join_by_an_unknown_token_is_reset() {
    let (mut world, _reading) = connection(Setup::default());
    let state = join(&mut world, path(1, server()), |client, index| {
        let wrong = Token(client.token().0 ^ 1);
        client.take_out();
        client.syn(index, Some(wrong));
    });
    assert_eq!(state, State::Reset(Some(MPTCP_SPECIFIC)));
    assert_eq!(world.dropped("join_unknown_token"), 1);
}

#[test]
fn joins_come_to_announced_addresses_and_ports_only() {
    let further: SocketAddr = "10.0.1.2:5001".parse().unwrap();
    let other_port: SocketAddr = "10.0.1.3:6001".parse().unwrap();
    let announced = vec![further, other_port];
    let (mut world, _reading) = connection(Setup { announced, ..Setup::default() });
    assert_eq!(join(&mut world, path(1, further), as_usual), State::Established);
    assert_eq!(join(&mut world, path(2, other_port), as_usual), State::Established);
    assert_eq!(join(&mut world, path(3, server()), as_usual), State::Established);
    for (n, wrong) in [(4, "10.0.1.2:6001"), (5, "10.0.1.3:5001"), (6, "10.0.9.9:5001")] {
        let state = join(&mut world, path(n, wrong.parse().unwrap()), as_usual);
        assert_eq!(state, State::Reset(Some(PROHIBITED)), "{wrong}");
    }
    assert_eq!(world.dropped("join_not_announced"), 3);
}

#[test]
fn a_client_that_was_told_not_to_joins_elsewhere_only() {
    let further: SocketAddr = "10.0.1.2:5001".parse().unwrap();
    let protocol = Config { deny_joins_to_initial_address: true, ..Config::default() };
    let announced = vec![further];
    let (mut world, _reading) = connection(Setup { announced, protocol, ..Setup::default() });
    let state = join(&mut world, path(1, server()), as_usual);
    assert_eq!(state, State::Reset(Some(PROHIBITED)));
    assert_eq!(world.dropped("join_initial_address"), 1);
    assert_eq!(join(&mut world, path(2, further), as_usual), State::Established);
}

#[test]
fn addresses_are_announced_and_clients_join_there() {
    fn follow(theirs: &AddAddr) -> Option<Path> {
        let local: SocketAddr = if theirs.address.is_ipv4() {
            "10.0.1.1:40001".parse().unwrap()
        } else {
            "[fd00::1]:40001".parse().unwrap()
        };
        Some(Path {
            local,
            remote: SocketAddr::new(theirs.address, theirs.port.unwrap_or(5001)),
            seat: 1,
            delay: Duration::from_micros(50),
        })
    }
    let announced: Vec<SocketAddr> =
        ["10.0.1.2:5001", "[fd00::2]:5001", "[fd00::3]:5002"].map(|at| at.parse().unwrap()).into();
    let mut world = World::new(Setup { workers: 2, announced, ..Setup::default() });
    let all = paths(0, 1, 1, server());
    let on_announcement = Some(follow as fn(&AddAddr) -> Option<Path>);
    world.join(ClientOptions { on_announcement, ..ClientOptions::new(500_000, all) });
    let readings = world.serve(Duration::from_secs(60));
    assert_eq!((readings[0].end, readings[0].bytes), (Some(None), 500_000));
    assert_eq!(world.clients[0].announced.len(), 3, "each once, as it was echoed");
    let subflows = &readings[0].statistics.as_ref().unwrap().subflows;
    assert_eq!(subflows.iter().map(|s| s.worker).collect::<Vec<_>>(), [0, 1, 1, 1]);
    assert!(subflows.iter().all(|subflow| subflow.bytes > 50_000), "{subflows:?}");
    world.assert_empty();
}

#[test]
fn addresses_are_announced_one_after_another() {
    let at = |n: u8| SocketAddr::new([10, 0, 1, n].into(), 5001);
    let announced: Vec<SocketAddr> = (1..=20).map(at).collect();
    let (mut world, _reading) = connection(Setup { announced, ..Setup::default() });
    world.pass(Duration::from_secs(20));
    assert_eq!(world.clients[0].announced.len(), 20);
}

#[test]
fn a_connection_has_so_many_subflows_and_no_more() {
    let joins = JoinLimits { subflows: 3, pending: 64, close_timeout: Duration::from_secs(60) };
    let (mut world, _reading) = connection(Setup { joins, ..Setup::default() });
    assert_eq!(join(&mut world, path(1, server()), as_usual), State::Established);
    assert_eq!(join(&mut world, path(2, server()), as_usual), State::Established);
    let state = join(&mut world, path(3, server()), as_usual);
    assert_eq!(state, State::Reset(Some(PROHIBITED)));
    assert_eq!(world.dropped("join_too_many"), 1);
    // One that ends makes room.
    world.clients[0].reset(1, false);
    world.pass(Duration::from_millis(10));
    assert_eq!(join(&mut world, path(4, server()), as_usual), State::Established);
}

#[test]
fn joins_that_are_under_way_are_limited() {
    let joins = JoinLimits { subflows: 8, pending: 2, close_timeout: Duration::from_secs(60) };
    let (mut world, reading) = connection(Setup { joins, ..Setup::default() });
    for n in 1..=2 {
        let silent = |client: &mut Client, index: usize| client.subflows[index].answers = false;
        assert_eq!(join(&mut world, path(n, server()), silent), State::SynSent);
    }
    assert_eq!(world.report(0).tables.half_open, 2);
    let state = join(&mut world, path(3, server()), as_usual);
    assert_eq!(state, State::Reset(Some(RESOURCES)));
    assert_eq!(world.dropped("join_resources"), 1);
    // Those that came to nothing make room.
    world.pass(Duration::from_secs(120));
    assert_eq!(join(&mut world, path(4, server()), as_usual), State::Established);
    drop(reading);
    world.assert_empty();
}

#[test]
fn a_living_connection_is_joined_after_its_listener_is_closed() {
    let (mut world, mut reading) = connection(Setup::default());
    world.listener = None;
    assert_eq!(join(&mut world, path(1, server()), as_usual), State::Established);
    let now = world.now;
    world.clients[0].send(now, 1, 1000, 1000);
    world.pass(Duration::from_millis(100));
    reading.read();
    assert_eq!(reading.bytes, 2000);
}

#[test]
fn a_connection_that_has_ended_is_not_joined() {
    let (mut world, reading) = connection(Setup::default());
    drop(reading);
    world.pass(Duration::from_millis(10));
    let state = join(&mut world, path(1, server()), as_usual);
    assert_eq!(state, State::Reset(Some(MPTCP_SPECIFIC)));
}

#[test]
fn a_join_under_way_when_its_connection_ends_is_reset() {
    let (mut world, reading) = connection(Setup::default());
    let now = world.now;
    let index = world.clients[0].open(now, path(1, server()));
    // The SYN/ACK is on its way.
    world.pass(Duration::from_micros(80));
    drop(reading);
    world.pass(Duration::from_millis(10));
    assert!(matches!(world.clients[0].subflows[index].state, State::Reset(_)));
    world.assert_empty();
}
