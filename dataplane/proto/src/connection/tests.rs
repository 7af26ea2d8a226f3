extern crate std;

use super::*;
use crate::segment::AddressId;

const EDGE: StreamOffset = StreamOffset(10);
const RIGHT: StreamOffset = StreamOffset(100);

fn local() -> LocalKey {
    LocalKey::new(Key(1))
}

#[test]
fn the_key_gives_token_and_first_number() {
    let (token, idsn) = crate::crypto::key_to_token_and_idsn(Key(1));
    assert_eq!(local(), LocalKey { key: Key(1), token, idsn });
}

#[test]
fn a_new_connection_knows_nothing() {
    let connection = Connection::new(Some(local()));
    assert_eq!(connection.mode(), Mode::Negotiating);
    assert_eq!(connection.remote_key(), None);
    assert_eq!(connection.local_key(), Some(local()));
    let view = connection.view(StreamOffset::ZERO, RIGHT);
    assert_eq!(view, View::initial(100));
}

#[test]
fn the_mode_follows_the_handshake_and_falls_back_once() {
    let connection = Connection::new(Some(local()));
    connection.on_event(&Event::Established { mptcp: Some(Key(0)) });
    assert_eq!((connection.mode(), connection.remote_key()), (Mode::Mptcp, Some(Key(0))));
    connection.on_event(&Event::Fallback(FallbackReason::InfiniteMapping));
    connection.on_event(&Event::Fallback(FallbackReason::PeerFailed));
    assert_eq!(connection.mode(), Mode::Plain(Some(FallbackReason::InfiniteMapping)));

    let connection = Connection::new(None);
    connection.on_event(&Event::Established { mptcp: None });
    assert_eq!(connection.mode(), Mode::Plain(None));
}

#[test]
fn the_first_end_of_each_stream_stands() {
    let connection = Connection::new(Some(local()));
    connection.on_event(&Event::DataFin { at: StreamOffset(10) });
    connection.on_event(&Event::DataFin { at: StreamOffset(20) });
    connection.shutdown_write(StreamOffset(3));
    connection.shutdown_write(StreamOffset(4));
    let view = connection.view(EDGE, RIGHT);
    assert_eq!(view.remote_fin, Some(StreamOffset(10)));
    assert_eq!(view.local_fin, Some(StreamOffset(3)));
}

#[test]
fn a_connection_is_closed_when_both_ends_are_known_to_the_other_side() {
    let connection = Connection::new(Some(local()));
    assert!(!connection.is_closed(EDGE));
    connection.on_event(&Event::DataFin { at: EDGE });
    assert!(!connection.is_closed(EDGE));
    connection.shutdown_write(StreamOffset::ZERO);
    connection.on_event(&Event::LocalFinAcked);
    assert!(connection.is_closed(EDGE));
    // The end was announced, but data before it is missing.
    assert!(!connection.is_closed(StreamOffset(9)));
}

#[test]
fn what_the_application_and_joins_change_is_in_the_view() {
    let connection = Connection::new(Some(local()));
    connection.on_event(&Event::Established { mptcp: Some(Key(2)) });
    connection.reader_gone();
    assert!(connection.joined());
    let view = connection.view(EDGE, RIGHT);
    assert!(view.reader_gone && !view.may_fall_back);
    assert_eq!((view.edge, view.right_edge), (EDGE, RIGHT));
}

#[test]
fn of_a_join_and_a_fallback_at_the_same_time_one_is_taken() {
    let fallback = Event::Fallback(FallbackReason::InfiniteMapping);
    let failed = Event::ChecksumFailed { at: EDGE, falling_back: true };
    let joined = Event::Joined { address_id: AddressId(1), backup: false };
    for end in [fallback, failed] {
        for _ in 0..500 {
            let connection = Connection::new(Some(local()));
            connection.on_event(&Event::Established { mptcp: Some(Key(2)) });
            let start = std::sync::Barrier::new(2);
            let (ended, taken) = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    start.wait();
                    connection.on_event(&end)
                });
                start.wait();
                let taken = connection.on_event(&joined);
                (other.join().expect("it does not panic"), taken)
            });
            assert!(ended != taken, "both or neither");
            assert_eq!(connection.view(EDGE, RIGHT).may_fall_back, !taken);
        }
    }
}
