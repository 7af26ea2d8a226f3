//! Every interleaving of a connection's workers and its reader, in small cases: with the real ring,
//! the real data level and the real queues of the workers.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use loom::thread;
use mpxdp_proto::seq::StreamOffset;
use mpxdp_proto::subflow::{Event, FallbackReason};

use super::support::{NOW, connection, subflow, worker};
use super::{Closed, Connection, Failure, Record, View, Wishes};
use crate::loom_model::model;
use crate::receive::{Ring, Wanted};
use crate::stream::Stream;
use crate::worker::{Command, Handle, Inbox};

/// A subflow's join, as its worker makes it.
fn join(connection: &Connection, record: &Arc<Record>) -> bool {
    connection.level.joined() && connection.add(Arc::clone(record))
}

/// Puts the stream's next bytes into the ring.
fn receive(ring: &Ring, bytes: &[u8]) {
    let wanted = Wanted { to: ring.edge(), len: bytes.len() as u32, source: 0, at: 0 };
    let mut claims = Vec::new();
    let _ = ring.claim(&[wanted], &mut claims);
    claims.iter_mut().for_each(|claim| ring.copy(claim, bytes));
    ring.commit(&mut claims);
}

/// Takes a stream of one byte with its end, as the worker of the subflow does that brings it.
fn receive_all(connection: &Connection) {
    receive(&connection.ring, &[7]);
    let at = StreamOffset(1);
    assert!(connection.level.on_event(&Event::DataFin { at }));
    connection.set_end(at, Closed::DataFin);
}

/// Sleeps as a worker does, until something is in its queues.
fn sleep(handle: &Handle, inbox: &Inbox) {
    if handle.fall_asleep(inbox) {
        handle.sleep();
        handle.wake_up(true);
    }
}

#[test]
fn loom_the_end_of_the_last_subflow_and_a_join_leave_a_living_connection() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let (first, other) = (subflow(0, &handle), subflow(1, &handle));
        let (connection, _reader) = connection(&first);
        let leaver = {
            let (connection, first) = (Arc::clone(&connection), Arc::clone(&first));
            thread::spawn(move || connection.leave(&first, NOW))
        };
        assert!(join(&connection, &other));
        leaver.join().unwrap();
        assert!(!connection.is_orphaned_since(NOW), "another subflow is there");
        assert_eq!(connection.ring.failure(), None);
    });
}

#[test]
fn loom_no_subflow_is_left_behind_in_a_connection_that_was_given_up() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let (first, other) = (subflow(0, &handle), subflow(1, &handle));
        let (connection, _reader) = connection(&first);
        assert!(connection.leave(&first, NOW));
        // As the worker of the last subflow does when the time is over.
        let giver_up = {
            let connection = Arc::clone(&connection);
            thread::spawn(move || {
                if connection.is_orphaned_since(NOW) {
                    connection.end(Failure::TimedOut, Closed::Timeout, Wishes::RESET);
                }
            })
        };
        let joined = join(&connection, &other);
        giver_up.join().unwrap();
        if joined && connection.ring.failure().is_some() {
            assert!(other.take_wishes().contain(Wishes::RESET), "its worker is told");
        }
        assert!(joined || connection.ring.failure().is_some());
    });
}

#[test]
fn loom_an_abort_is_heard_although_the_last_subflow_ends_meanwhile() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let first = subflow(0, &handle);
        let (connection, _reader) = connection(&first);
        let leaver = {
            let (connection, first) = (Arc::clone(&connection), Arc::clone(&first));
            thread::spawn(move || connection.leave(&first, NOW))
        };
        connection.ask(Wishes::ABORT);
        leaver.join().unwrap();
        assert_eq!(connection.ring.failure(), Some(Failure::Aborted));
    });
}

#[test]
fn loom_a_fallback_and_a_join_exclude_each_other() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let (first, other) = (subflow(0, &handle), subflow(1, &handle));
        let (connection, _reader) = connection(&first);
        let joiner = {
            let (connection, other) = (Arc::clone(&connection), Arc::clone(&other));
            thread::spawn(move || join(&connection, &other))
        };
        let fell_back =
            connection.level.on_event(&Event::Fallback(FallbackReason::NoMappingInFirstData));
        assert_eq!(connection.is_mptcp(), !fell_back);
        // In plain TCP the subflow's end is the connection's.
        connection.leave(&first, NOW);
        let joined = joiner.join().unwrap();
        assert_ne!(joined, fell_back);
        assert_eq!(connection.ring.failure().is_some(), fell_back);
    });
}

#[test]
fn loom_a_connection_ends_once_and_for_one_reason() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let (first, other) = (subflow(0, &handle), subflow(1, &handle));
        let (connection, _reader) = connection(&first);
        assert!(join(&connection, &other));
        let ender = {
            let connection = Arc::clone(&connection);
            thread::spawn(move || {
                connection.end(Failure::FastClose, Closed::FastClose, Wishes::RESET);
            })
        };
        connection.end(Failure::Reset, Closed::Reset, Wishes::RESET);
        let why = (connection.ring.failure(), connection.statistics().closed);
        ender.join().unwrap();
        let settled = (connection.ring.failure(), connection.statistics().closed);
        let whole = [
            (Some(Failure::FastClose), Some(Closed::FastClose)),
            (Some(Failure::Reset), Some(Closed::Reset)),
        ];
        assert!(whole.contains(&settled), "{settled:?}");
        // The loser may have looked before the winner was through; never at a mixture.
        assert!(why.0.is_none() || why == settled, "{why:?}, then {settled:?}");
        assert!(other.take_wishes().contain(Wishes::RESET));
    });
}

#[test]
fn loom_a_stream_gives_all_that_came_before_it_failed_and_knows_why() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let first = subflow(0, &handle);
        let (connection, reader) = connection(&first);
        let application = {
            let mut stream = Stream::new(reader, Arc::clone(&connection));
            thread::spawn(move || {
                let mut all = Vec::new();
                let error = stream.read_to_end(&mut all).unwrap_err();
                assert_eq!((&all[..], error.kind()), (&[7][..], ErrorKind::ConnectionReset));
                assert_eq!(stream.statistics().closed, Some(Closed::FastClose));
            })
        };
        receive(&connection.ring, &[7]);
        connection.end(Failure::FastClose, Closed::FastClose, Wishes::RESET);
        application.join().unwrap();
    });
}

#[test]
fn loom_a_stream_that_was_read_to_its_end_knows_how_it_ended() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let first = subflow(0, &handle);
        let (connection, reader) = connection(&first);
        let application = {
            let mut stream = Stream::new(reader, Arc::clone(&connection));
            thread::spawn(move || {
                assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 1);
                assert_eq!(stream.statistics().closed, Some(Closed::DataFin));
            })
        };
        receive_all(&connection);
        application.join().unwrap();
    });
}

#[test]
fn loom_who_sees_the_reader_gone_sees_the_end_that_it_has_read() {
    model(|| {
        let (handle, _inbox) = worker(0);
        let first = subflow(0, &handle);
        let (connection, reader) = connection(&first);
        let other = {
            let connection = Arc::clone(&connection);
            thread::spawn(move || {
                let view = connection.view();
                // Otherwise what is repeated here would be payload that nobody will read: a reset.
                assert!(!view.reader_gone || view.remote_complete(), "{view:?}");
                assert!(!view.reader_gone || view.local_fin.is_some(), "{view:?}");
            })
        };
        receive_all(&connection);
        let mut stream = Stream::new(reader, connection);
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 1);
        drop(stream);
        other.join().unwrap();
    });
}

#[test]
fn loom_the_readers_close_and_the_peers_end_are_both_seen_by_each_worker() {
    model(|| {
        let ((one, one_inbox), (two, two_inbox)) = (worker(0), worker(1));
        let (first, other) = (subflow(0, &one), subflow(1, &two));
        let (connection, _reader) = connection(&first);
        assert!(join(&connection, &other));
        // The worker of the second subflow gets the DATA_FIN; that of the first is the last to know.
        let second = {
            let (connection, other) = (Arc::clone(&connection), Arc::clone(&other));
            thread::spawn(move || {
                let at = StreamOffset::ZERO;
                assert!(connection.level.on_event(&Event::DataFin { at }));
                connection.set_end(at, Closed::DataFin);
                assert!(connection.is_complete());
                connection.ask_others(&other, Wishes::ACK);
                while !connection.view().local_fin.is_some_and(|end| end == at) {
                    sleep(&two, &two_inbox);
                    while two.next_attention().is_some() {
                        other.take_wishes();
                    }
                }
                assert!(connection.view().remote_complete());
            })
        };
        let reader = {
            let connection = Arc::clone(&connection);
            thread::spawn(move || {
                connection.level.shutdown_write(StreamOffset::ZERO);
                connection.ask(Wishes::TELL);
            })
        };
        let (mut told, mut acknowledge) = (false, false);
        while !(told && acknowledge) {
            sleep(&one, &one_inbox);
            while one.next_attention().is_some() {
                let wishes = first.take_wishes();
                let view = connection.view();
                told |= wishes.contain(Wishes::TELL);
                acknowledge |= wishes.contain(Wishes::ACK);
                assert!(!told || view.local_fin.is_some());
                assert!(!acknowledge || view.remote_complete());
            }
        }
        reader.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn loom_no_wish_is_lost_whoever_asks_and_however_the_worker_sleeps() {
    model(|| {
        let (handle, inbox) = worker(0);
        let first = subflow(0, &handle);
        let (connection, _reader) = connection(&first);
        // The application, another worker, and whoever stops the engine.
        let askers = [
            {
                let connection = Arc::clone(&connection);
                thread::spawn(move || connection.ask(Wishes::WINDOW))
            },
            {
                let connection = Arc::clone(&connection);
                let handle = Arc::clone(&handle);
                thread::spawn(move || {
                    connection.ask(Wishes::ACK);
                    handle.command(Command::Stop { deadline: NOW });
                })
            },
        ];
        let (mut window, mut ack, mut stop) = (false, false, false);
        // Loom reports a worker that nobody wakes as a deadlock.
        while !(window && ack && stop) {
            sleep(&handle, &inbox);
            stop |= inbox.commands.try_recv().is_ok();
            while handle.next_attention().is_some() {
                let wishes = first.take_wishes();
                window |= wishes.contain(Wishes::WINDOW);
                ack |= wishes.contain(Wishes::ACK);
            }
        }
        for asker in askers {
            asker.join().unwrap();
        }
        // Who asked last may have entered what the worker had just taken: once, and for nothing.
        let left = std::iter::from_fn(|| handle.next_attention()).count();
        let wishes = first.take_wishes();
        assert!(left <= 1 && !wishes.contain(Wishes::WINDOW) && !wishes.contain(Wishes::ACK));
    });
}

/// One subflow tells its peer of a narrow window and is perhaps asked to tell otherwise, which it hears;
/// then `last`. Meanwhile another subflow tells of an open one. Whatever the order, the first one's peer
/// does not know of it in the end, so it must be asked.
fn is_asked_after(last: fn(&Connection, &Arc<Record>, &View)) {
    model(move || {
        let ((one, _), (two, _)) = (worker(0), worker(1));
        let (first, other) = (subflow(0, &one), subflow(1, &two));
        let (connection, _reader) = connection(&first);
        assert!(join(&connection, &other));
        let capacity = connection.ring.capacity() as u64;
        let view = |room| View { right_edge: StreamOffset(room), ..View::initial(0) };
        let narrow = {
            let (connection, first) = (Arc::clone(&connection), Arc::clone(&first));
            thread::spawn(move || {
                connection.on_window_told(&first, &view(0));
                first.take_wishes();
                last(&connection, &first, &view(0));
            })
        };
        connection.on_window_told(&other, &view(capacity));
        connection.on_window_told(&other, &view(capacity));
        narrow.join().unwrap();
        connection.on_window_told(&other, &view(capacity));
        assert!(first.take_wishes().contain(Wishes::WINDOW));
    });
}

#[test]
fn loom_who_was_told_of_a_narrow_window_is_asked_to_tell_of_an_open_one() {
    // The window closed again before it told.
    is_asked_after(|connection, first, narrow| connection.on_window_told(first, narrow));
}

#[test]
fn loom_who_could_not_tell_of_an_open_window_is_asked_again() {
    is_asked_after(|connection, first, _| connection.on_window_not_told(first));
}
