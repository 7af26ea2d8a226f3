//! What only a test inside of the crate can bring about.

include!("../../tests/support/peer.rs");

use std::io::{ErrorKind, Read};

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
