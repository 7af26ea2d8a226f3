//! A byte that changes on the only path of a connection with data-level checksums. There is no other path
//! to send it by, so the connection becomes plain TCP (RFC 8684, section 3.7), and the stream is what came,
//! the changed byte and all; but every byte of it once, whatever the sender does next.

use std::fs;

use mpxdp_bench::lab::{Family, Lab};
use mpxdp_bench::traffic::sender;

use super::harness::{finish, pattern};
use super::net::Net;

/// Sends `bytes` over a link that changes the byte at `at`.
fn changed(at: u64, bytes: u64, more: &[&str]) {
    for (delay, family) in [(1, Family::V4), (40, Family::V6)] {
        let case = format!("byte {at} of {bytes}, {more:?}, {delay} ms");
        let relay = format!("delay={delay}ms,>alter=at-{at}");
        let Some(net) = Net::new(Lab::builder(), 1, 1, &[&relay]) else { return };
        net.use_checksums();
        net.limits(0, 0);
        let recv = net.recv(family, "none");
        let ended = finish(net.sender(family, bytes, more));
        let sent: sender::Report = ended.json().expect("the sender's report");
        let [sent] = &sent.connections[..] else { panic!("{sent:#?}") };
        let received = recv.stop();
        let connection = received.only();
        let counters = ["MPFailRx", "MPFailTx", "InfiniteMapTx", "MPTCPRetrans"];
        let counters = counters.map(|name| (name, net.counter(&format!("MPTcpExt{name}"))));
        let said = format!("{case}: {counters:?}, {sent:#?}, {connection:#?}");
        let file = connection.output.as_ref().expect("a file");
        let mut stream = fs::read(file).expect("it can be read");
        // The box changes one bit.
        if let Some(byte) = stream.get_mut(at as usize) {
            *byte ^= 1;
        }
        let compared = pattern().compare(&stream[..]).expect("it can be read");
        assert_eq!(compared, (None, connection.bytes), "{said}");
        assert_eq!(
            (connection.bytes, &connection.error, &sent.error),
            (bytes, &None, &None),
            "{said}"
        );
        assert_eq!(connection.fallback.as_deref(), Some("checksum_failed"), "{said}");
        assert!(counters[0].1 > 0, "the client is told by MP_FAIL: {said}");
        received.assert_nothing_left();
    }
}

/// Writes of seven segments, each after the one before was acknowledged: what waits when it falls back,
/// Linux loses or never sends (docs/compatibility.md).
const PACED: &[&str] = &["--write-size", "10000", "--rate", "80000"];

#[test]
fn in_the_first_segment() {
    changed(100, 60_000, PACED);
}

#[test]
fn in_the_middle() {
    changed(25_000, 60_000, PACED);
}

/// The client has no new data to fall back with, and may have ended its stream when it hears of it.
#[test]
fn near_the_end() {
    changed(59_900, 60_000, PACED);
    changed(100, 200, &[]);
    changed(9000, 10_000, &[]);
}

/// It has new data after half a second, and may send its data again until then.
#[test]
fn before_a_pause() {
    let paused = ["--write-size", "10000", "--rate", "20000"];
    changed(15_000, 40_000, &paused);
    changed(35_000, 40_000, &paused);
}
