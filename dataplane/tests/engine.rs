//! The engine with its threads, over memory ports, as an application uses it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

include!("support/peer.rs");

use std::io::{BufRead, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mpxdp::port::{MemoryOptions, MemoryPort};
use mpxdp::{
    Closed, Engine, EngineConfig, Error, ErrorKind as Kind, Listener, NicConfig, PortNic, Stream,
    TableSizes,
};
use mpxdp_sim::{Content, Pattern, SenderOptions};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn at() -> SocketAddr {
    "10.0.0.2:5001".parse().unwrap()
}

fn engine() -> (Engine, MemoryPort) {
    let (near, far) = MemoryPort::pair(MemoryOptions::default());
    let nic = PortNic::new("mem0", [near]).addresses([at().ip()]);
    let config = EngineConfig { time_wait: Duration::from_millis(50), ..EngineConfig::default() };
    (Engine::builder().ports(nic).config(config).start().unwrap(), far)
}

fn listening() -> (Engine, Listener, MemoryPort) {
    let (engine, far) = engine();
    let listener = engine.listen(at()).unwrap();
    (engine, listener, far)
}

/// Client number `n`, which sends `len` bytes of the pattern of its number.
fn client(n: u16, len: u64) -> SenderOptions {
    let local = SocketAddr::new([10, 0, 0, 1].into(), 40_000 + n);
    let content = Content::Pattern { pattern: Pattern::new(n.into()), len };
    SenderOptions::new(local, at(), content)
}

fn read_all(stream: &mut Stream) -> u64 {
    let pattern = Pattern::new(u64::from(stream.peer_addr().port() - 40_000));
    let mut total = 0;
    loop {
        let bytes = stream.fill_buf().unwrap();
        if bytes.is_empty() {
            return total;
        }
        pattern.check(total, bytes).unwrap();
        let n = bytes.len();
        total += n as u64;
        stream.consume(n);
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TEN_SECONDS, "no {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stream_is_read_in_place_by_a_reader_that_waits() {
    let (engine, listener, far) = listening();
    let peer = peer::run(far, vec![client(1, 20 << 20)]);
    let mut stream = listener.accept().unwrap();
    assert_eq!((stream.local_addr(), stream.peer_addr().port()), (at(), 40_001));
    assert_eq!(read_all(&mut stream), 20 << 20);
    assert!(stream.is_mptcp());
    let statistics = stream.statistics();
    assert_eq!((statistics.bytes, statistics.closed), (20 << 20, Some(Closed::DataFin)));
    assert_eq!(statistics.subflows[0].nic, "mem0");
    drop(stream);
    assert!(peer.join().unwrap()[0].is_done());
    drop(listener);
    wait_for("end of the flow", || engine.workers()[0].tables == TableSizes::default());
    let ports = engine.ports();
    assert!(ports[0].frames.is_conserved());
    assert_eq!(ports[0].frames.held, 0);
    engine.shutdown(TEN_SECONDS).unwrap();
}

#[test]
fn fifty_clients_at_once_are_served() {
    let (engine, listener, far) = listening();
    let peer = peer::run(far, (0..50).map(|n| client(n, 100_000)).collect());
    std::thread::scope(|scope| {
        for _ in 0..50 {
            let mut stream = listener.accept().unwrap();
            scope.spawn(move || assert_eq!(read_all(&mut stream), 100_000));
        }
    });
    assert!(peer.join().unwrap().iter().all(mpxdp_sim::Sender::is_done));
    wait_for("end of the flows", || engine.workers()[0].tables == TableSizes::default());
}

#[test]
fn a_reader_that_spins_is_told_of_data_and_of_the_end() {
    let (_engine, listener, far) = listening();
    let peer = peer::run(far, vec![client(1, 1 << 20)]);
    let mut stream = listener.accept().unwrap();
    // What is said to be ready must not turn out to need waiting for.
    stream.set_nonblocking(true);
    let mut total = 0;
    loop {
        wait_for("data or the end", || stream.is_ready());
        let n = stream.fill_buf().unwrap().len();
        if n == 0 {
            break;
        }
        total += n;
        stream.consume(n);
    }
    assert_eq!(total, 1 << 20);
    assert!(stream.is_ready(), "the end stays to be had");
    drop(stream);
    assert!(peer.join().unwrap()[0].is_done());
}

fn is_readable(on: &impl AsFd, timeout: u16) -> bool {
    poll(&mut [PollFd::new(on.as_fd(), PollFlags::POLLIN)], PollTimeout::from(timeout)).unwrap() > 0
}

#[test]
fn a_program_with_a_loop_of_its_own_polls() {
    let (_engine, listener, far) = listening();
    assert!(listener.try_accept().unwrap().is_none());
    assert!(!is_readable(&listener, 0));
    let peer = peer::run(far, vec![client(1, 3 << 20)]);
    assert!(is_readable(&listener, 10_000));
    let mut stream = listener.try_accept().unwrap().unwrap();
    assert!(!is_readable(&listener, 0));
    stream.set_nonblocking(true);
    let (mut total, mut buf) = (0, vec![0; 100_000]);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => total += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => assert!(is_readable(&stream, 10_000)),
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(total, 3 << 20);
    drop(stream);
    assert!(peer.join().unwrap()[0].is_done());
}

#[test]
fn a_read_gives_up_after_its_timeout() {
    let (_engine, listener, far) = listening();
    let quiet = SenderOptions { ends: false, ..client(1, 0) };
    let _peer = peer::run(far, vec![quiet]);
    assert!(listener.accept_timeout(TEN_SECONDS).unwrap().is_some_and(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_millis(20)));
        let start = Instant::now();
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        start.elapsed() >= Duration::from_millis(20)
    }));
    assert!(listener.accept_timeout(Duration::from_millis(10)).unwrap().is_none());
}

#[test]
fn shutting_down_our_side_first_leaves_the_peers_to_the_peer() {
    let (_engine, listener, far) = listening();
    let peer = peer::run(far, vec![client(1, 300_000)]);
    let mut stream = listener.accept().unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), 300_000);
    drop(stream);
    assert!(peer.join().unwrap()[0].is_done());
}

#[test]
fn an_aborted_stream_is_reset() {
    let (engine, listener, far) = listening();
    let peer = peer::run(far, vec![client(1, 1 << 20)]);
    listener.accept().unwrap().abort();
    assert!(peer.join().unwrap()[0].failure().is_some());
    wait_for("end of the flow", || engine.workers()[0].tables == TableSizes::default());
}

#[test]
fn the_end_of_the_engine_reaches_everybody() {
    let (engine, listener, far) = listening();
    let peer = peer::run(far, vec![SenderOptions { ends: false, ..client(1, 1000) }]);
    let mut stream = listener.accept().unwrap();
    let mut buf = vec![0; 1000];
    stream.read_exact(&mut buf).unwrap();
    let (accepted, read) = std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().map(|_| ()));
        let reading = scope.spawn(|| stream.read(&mut [0]).map_err(|e| e.kind()));
        std::thread::sleep(Duration::from_millis(20));
        drop(engine);
        (accepting.join().unwrap(), reading.join().unwrap())
    });
    assert!(matches!(accepted, Err(Error::Stopped)), "{accepted:?}");
    assert_eq!(read, Err(ErrorKind::ConnectionAborted));
    assert!(peer.join().unwrap()[0].failure().is_some());
}

#[test]
fn wrong_usage_is_told_apart_and_leaves_nothing() {
    let (engine, _far) = engine();
    let _listener = engine.listen(at()).unwrap();
    let listen = |at: &str| engine.listen(at.parse().unwrap()).unwrap_err();
    let (taken, foreign, zero) =
        (listen("10.0.0.2:5001"), listen("10.0.0.3:5001"), listen("10.0.0.2:0"));
    assert!(matches!(taken, Error::AddressInUse { .. }), "{taken:?}");
    assert!(matches!(foreign, Error::AddressNotLocal { .. }), "{foreign:?}");
    assert!(matches!(zero, Error::Configuration(_)), "{zero:?}");
    let kinds = [taken, foreign, zero].map(|error| error.kind());
    assert_eq!(kinds, [Kind::Runtime, Kind::Usage, Kind::Usage]);
    let start = |builder: mpxdp::EngineBuilder| builder.start().map(|_| ()).unwrap_err();
    let unknown = start(Engine::builder().nic(NicConfig::new("mpxdp-none")));
    assert!(matches!(unknown, Error::NoSuchNic { .. }), "{unknown:?}");
    let queue = start(Engine::builder().nic(NicConfig::new("lo").queues([9])));
    assert!(matches!(queue, Error::QueueOutOfRange { queue: 9, .. }), "{queue:?}");
    let cpu = start(Engine::builder().nic(NicConfig::new("lo").cpus([5000])));
    assert!(matches!(cpu, Error::Configuration(_)), "{cpu:?}");
    let twice = Engine::builder().nic(NicConfig::new("lo")).nic(NicConfig::new("lo"));
    assert!(matches!(start(twice), Error::Configuration(_)));
    assert!(matches!(start(Engine::builder()), Error::Configuration(_)));
}

#[test]
fn listening_again_works_as_soon_as_the_listener_is_gone() {
    let (engine, far) = engine();
    for _ in 0..3 {
        drop(engine.listen(at()).unwrap());
    }
    let listener = engine.listen("0.0.0.0:5001".parse().unwrap()).unwrap();
    let peer = peer::run(far, vec![client(1, 10)]);
    assert_eq!(read_all(&mut listener.accept().unwrap()), 10);
    assert!(peer.join().unwrap()[0].is_done());
}
