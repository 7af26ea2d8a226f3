//! Every interleaving of those who tell a connection something and those who look.
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p mpxdp-proto --lib loom_

extern crate std;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::subflow::FallbackReason::{InfiniteMapping, PeerFailed};

const EDGE: StreamOffset = StreamOffset(10);

/// As in the crate `mpxdp`: threads are switched at most three times where none has to wait.
fn model(case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(case);
}

fn negotiating() -> Arc<Connection> {
    Arc::new(Connection::new(Some(LocalKey::new(Key(1)))))
}

/// One that speaks MPTCP.
fn established() -> Arc<Connection> {
    let connection = negotiating();
    assert!(connection.on_event(&Event::Established { mptcp: Some(Key(2)) }));
    connection
}

fn spawn<T: 'static>(
    connection: &Arc<Connection>,
    what: impl FnOnce(&Connection) -> T + 'static,
) -> thread::JoinHandle<T> {
    let connection = Arc::clone(connection);
    thread::spawn(move || what(&connection))
}

#[test]
fn loom_the_peers_key_is_there_as_soon_as_mptcp_is() {
    model(|| {
        let connection = negotiating();
        let worker = spawn(&connection, |c| {
            assert!(c.on_event(&Event::Established { mptcp: Some(Key(2)) }))
        });
        let (mode, key) = (connection.mode(), connection.remote_key());
        match mode {
            Mode::Negotiating => assert!(matches!(key, None | Some(Key(2)))),
            Mode::Mptcp => assert_eq!(key, Some(Key(2))),
            Mode::Plain(_) => panic!("{mode:?}"),
        }
        worker.join().unwrap();
    });
}

#[test]
fn loom_of_joins_and_fallbacks_one_sort_is_taken() {
    model(|| {
        let connection = established();
        let fallback = spawn(&connection, |c| c.on_event(&Event::Fallback(PeerFailed)));
        let failed = spawn(&connection, |c| {
            c.on_event(&Event::ChecksumFailed { at: EDGE, falling_back: true })
        });
        let joined = connection.joined();
        let may_fall_back = connection.view(EDGE, EDGE).may_fall_back;
        let (fell_back, failing) = (fallback.join().unwrap(), failed.join().unwrap());
        assert_eq!(may_fall_back, !joined, "and it is final");
        assert_ne!(joined, fell_back);
        assert_ne!(joined, failing);
        assert_eq!(connection.mode() == Mode::Mptcp, joined);
    });
}

#[test]
fn loom_the_first_reason_of_a_fallback_stands() {
    model(|| {
        let connection = established();
        let other = spawn(&connection, |c| assert!(c.on_event(&Event::Fallback(PeerFailed))));
        assert!(connection.on_event(&Event::Fallback(InfiniteMapping)));
        let seen = connection.mode();
        assert!([PeerFailed, InfiniteMapping].map(|r| Mode::Plain(Some(r))).contains(&seen));
        other.join().unwrap();
        assert_eq!(connection.mode(), seen, "nothing takes its place");
    });
}

#[test]
fn loom_the_first_end_of_a_stream_stands() {
    model(|| {
        let connection = established();
        let other = spawn(&connection, |c| {
            assert!(c.on_event(&Event::DataFin { at: StreamOffset(20) }));
            c.shutdown_write(StreamOffset(1));
            c.view(EDGE, EDGE)
        });
        assert!(connection.on_event(&Event::DataFin { at: EDGE }));
        connection.shutdown_write(StreamOffset(2));
        let mine = connection.view(EDGE, EDGE);
        let theirs = other.join().unwrap();
        assert!(mine.remote_fin.is_some() && mine.local_fin.is_some());
        assert_eq!((mine.remote_fin, mine.local_fin), (theirs.remote_fin, theirs.local_fin));
    });
}

#[test]
fn loom_facts_that_different_threads_tell_are_all_kept() {
    model(|| {
        let connection = established();
        let worker = spawn(&connection, |c| {
            assert!(c.on_event(&Event::FullyEstablished));
            assert!(c.on_event(&Event::DataFin { at: EDGE }));
        });
        let other = spawn(&connection, |c| {
            assert!(c.on_event(&Event::ChecksumsInUse));
            assert!(c.on_event(&Event::LocalFinAcked));
        });
        connection.shutdown_write(StreamOffset::ZERO);
        connection.reader_gone();
        // What a join is answered meanwhile may be either, and is never a panic.
        let _ = connection.accepts_joins(&connection.view(EDGE, EDGE));
        worker.join().unwrap();
        other.join().unwrap();
        assert!(connection.is_fully_established() && connection.checksums());
        let view = connection.view(EDGE, EDGE);
        assert!(view.reader_gone && view.local_fin_acked && view.remote_complete());
        assert!(connection.is_closed(EDGE));
        assert_eq!(connection.accepts_joins(&view), Err(RefusalReason::JoinClosing));
    });
}

#[test]
fn loom_who_sees_the_end_acknowledged_sees_the_end() {
    model(|| {
        let connection = established();
        // The reader closes, the worker hears of it and has the peer's acknowledgement.
        let reader = spawn(&connection, |c| c.shutdown_write(StreamOffset::ZERO));
        let worker = spawn(&connection, |c| {
            if c.view(EDGE, EDGE).local_fin.is_some() {
                assert!(c.on_event(&Event::LocalFinAcked));
            }
        });
        let view = connection.view(EDGE, EDGE);
        assert!(!view.local_fin_acked || view.local_fin.is_some());
        reader.join().unwrap();
        worker.join().unwrap();
    });
}
