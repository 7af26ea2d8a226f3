//! What only a test inside of the crate can bring about.

include!("../../tests/support/peer.rs");

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::num::NonZeroU8;

use super::*;
use crate::nic::PortNic;
use crate::port::{MemoryOptions, MemoryPort};

#[test]
fn the_panic_of_a_worker_reaches_everybody_who_waits() {
    let (near, far) = MemoryPort::pair(MemoryOptions::default());
    let nic = PortNic::new("mem0", [near]).addresses(["10.0.0.2".parse().unwrap()]);
    let engine = Engine::builder().ports(nic).start().unwrap();
    let listener = engine.listen("10.0.0.2:5001".parse().unwrap()).unwrap();
    let _peer = peer::run(
        far,
        vec![mpxdp_sim::SenderOptions {
            ends: false,
            timeout: Duration::from_millis(1),
            ..peer::says("hello")
        }],
    );
    let mut stream = listener.accept().unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    let (accepted, read) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().map(|_| ()));
        let reading = scope.spawn(|| stream.read(&mut [0]).map_err(|e| e.kind()));
        engine.workers[0].0.command(Command::Panic);
        (accepting.join().unwrap(), reading.join().unwrap())
    });
    assert_eq!(read, Err(ErrorKind::ConnectionAborted));
    let is_told = |result: Result<()>| match result {
        Err(Error::WorkerFailed { worker: 0, message }) => message.contains("for a test"),
        _ => false,
    };
    assert!(is_told(accepted));
    assert!(is_told(engine.check()));
    assert!(is_told(engine.listen("10.0.0.2:5002".parse().unwrap()).map(|_| ())));
    assert!(is_told(engine.shutdown(Duration::from_secs(10))));
}

/// What a listener at `at` announces, on an engine with two NICs.
fn announced(announce: Announce, at: &str) -> Result<Vec<String>> {
    let nic = |name: &str, addresses: &[&str]| {
        let (near, _far) = MemoryPort::pair(MemoryOptions::default());
        let addresses = addresses.iter().map(|address| address.parse().unwrap());
        PortNic::new(name, [near]).addresses(addresses.collect::<Vec<IpAddr>>())
    };
    let engine = Engine::builder()
        .ports(nic("mem0", &["10.0.0.2", "fd00::2", "fe80::2"]))
        .ports(nic("mem1", &["10.0.1.2"]))
        .config(EngineConfig { announce, ..EngineConfig::default() })
        .start()?;
    let at = at.parse().unwrap();
    let _listener = engine.listen(at)?;
    let entrance = Arc::clone(&engine.shared.listeners.find(at).unwrap().entrance);
    Ok(entrance.announced().iter().map(|known| format!("{} {}", known.id.0, known.at)).collect())
}

#[test]
fn addresses_of_all_nics_and_families_are_announced() {
    let all = announced(Announce::Auto, "10.0.0.2:5001").unwrap();
    assert_eq!(all, ["1 [fd00::2]:5001", "2 10.0.1.2:5001"]);
    let all = announced(Announce::Auto, "0.0.0.0:5001").unwrap();
    assert_eq!(all, ["1 10.0.0.2:5001", "2 [fd00::2]:5001", "3 10.0.1.2:5001"]);
    assert_eq!(announced(Announce::None, "10.0.0.2:5001").unwrap(), [""; 0]);
}

#[test]
fn addresses_that_are_named_are_announced_and_have_to_be_ours() {
    let list = |addresses: &[(&str, Option<u16>)]| {
        let parsed = addresses.iter().map(|(address, port)| (address.parse().unwrap(), *port));
        announced(Announce::Addresses(parsed.collect()), "10.0.0.2:5001")
    };
    let named = list(&[("10.0.1.2", Some(6001)), ("10.0.1.2", None), ("10.0.0.2", None)]);
    assert_eq!(named.unwrap(), ["1 10.0.1.2:6001", "2 10.0.1.2:5001"]);
    let foreign = list(&[("10.0.9.9", None)]);
    assert!(matches!(foreign, Err(Error::AddressNotLocal { .. })), "{foreign:?}");
}

#[test]
fn what_is_set_for_the_protocol_reaches_it() {
    let keepalive = Keepalive { probes: 3, ..Keepalive::default() };
    let config = EngineConfig {
        syn_ack_retries: 2,
        challenge_acks_per_second: 77,
        keepalive: Some(keepalive),
        hop_limit: NonZeroU8::MAX,
        dscp: Dscp::new(46).unwrap(),
        ..EngineConfig::default()
    };
    let protocol = config.protocol();
    assert_eq!((protocol.syn_ack_retries, protocol.challenge_acks_per_second), (2, 77));
    assert_eq!(protocol.keepalive, Some(keepalive));
    assert_eq!((protocol.ip.hop_limit, protocol.ip.traffic_class), (255, 46 << 2));
    assert_eq!((Dscp::new(63).map(Dscp::get), Dscp::new(64)), (Some(63), None));
    assert_eq!(EngineConfig::default().protocol().keepalive, None);
}
