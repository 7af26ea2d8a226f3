use mpxdp_proto::seq::StreamOffset;

use super::support::{NOW, connection, subflow, worker};
use super::*;

#[test]
fn a_subflow_that_had_no_window_to_tell_of_is_asked_again() {
    let (handle, _inbox) = worker(0);
    let (first, other) = (subflow(0, &handle), subflow(1, &handle));
    let (connection, _reader) = connection(&first);
    assert!(connection.level.joined() && connection.add(Arc::clone(&other)));
    let told = |me: &Record, room: u64| {
        let view = View { right_edge: StreamOffset(room), ..View::initial(0) };
        connection.on_window_told(me, &view);
    };
    let capacity = connection.ring.capacity() as u64;

    told(&first, 0);
    told(&other, capacity);
    assert!(first.take_wishes().contain(Wishes::WINDOW));
    told(&other, capacity);
    assert!(!first.take_wishes().contain(Wishes::WINDOW), "it is asked once");
    // It has closed again before the worker came to it, which so sends nothing.
    connection.on_window_not_told(&first);
    told(&other, capacity);
    assert!(first.take_wishes().contain(Wishes::WINDOW));
    // What it sent told once more of a narrow window.
    told(&first, 0);
    told(&other, capacity);
    assert!(first.take_wishes().contain(Wishes::WINDOW));
    told(&first, capacity);
    connection.on_window_not_told(&first);
    told(&other, capacity);
    assert!(!first.take_wishes().contain(Wishes::WINDOW), "it knows");
}

#[test]
fn a_subflow_that_ends_with_an_abort_unheard_ends_the_connection() {
    let (handle, _inbox) = worker(0);
    let first = subflow(0, &handle);
    let (connection, _reader) = connection(&first);
    connection.ask(Wishes::ABORT);
    assert!(!connection.leave(&first, NOW), "nothing is to be waited for");
    assert_eq!(connection.ring.failure(), Some(Failure::Aborted));
    assert_eq!(connection.statistics().closed, Some(Closed::FastClose));
}
