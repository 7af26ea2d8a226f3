//! FIN and DATA_FIN, both ways and in every order; TIME-WAIT; abort.

use super::*;

const AT_1000: Event = Event::DataFin { at: StreamOffset(1000) };

fn data_ack_of(segment: &Segment) -> u64 {
    match segment.options.mptcp.dss.and_then(|dss| dss.ack) {
        Some(DssNumber::Long(number)) => number,
        other => panic!("no 64-bit DATA_ACK: {other:?}"),
    }
}

/// Our DATA_FIN as it stands in a segment of its own.
fn our_data_fin() -> DssMapping {
    DssMapping { data_seq: DssNumber::Long(our_dsn(0)), subflow_seq: 0, length: 1, checksum: None }
}

/// A segment that acknowledges our DATA_FIN, and our FIN as well if `fin_too`.
fn acks_data_fin(segment: Segment, fin_too: bool) -> Segment {
    Segment { ack: OURS + 1 + u32::from(fin_too), ..data_ack(segment, our_dsn(1)) }
}

/// MPTCP, with a stream of 1000 octets received and acknowledged.
fn with_stream() -> Trace {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    trace.expect_ack(1000);
    trace
}

#[test]
fn a_data_fin_on_its_own_is_acknowledged_at_once() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 1000));
    trace.expect_events(&[AT_1000]);
    let ack = trace.expect_ack(1000);
    assert_eq!(data_ack_of(&ack), peer_dsn(1001));
    trace.expect_state(State::Established);
    // Sent again, it is acknowledged again and is no news.
    trace.accept(data_fin(1000, 1000));
    trace.expect_events(&[]);
    assert_eq!(data_ack_of(&trace.expect_ack(1000)), peer_dsn(1001));
}

#[test]
fn a_data_fin_may_come_with_the_last_data() {
    let mut trace = Trace::mptcp();
    let mut last = dss(0, 0, 1001);
    last.data_fin = true;
    trace.accept(with_dss(seg(0, 1000), last));
    trace.expect_events(&[AT_1000]);
    assert_eq!(data_ack_of(&trace.expect_ack(1000)), peer_dsn(1001));
    trace.expect_stream(1000);
}

#[test]
fn a_data_fin_may_have_a_short_number() {
    let mut trace = with_stream();
    let mut segment = data_fin(1000, 1000);
    let dss = segment.options.mptcp.dss.as_mut().expect("it has one");
    dss.mapping.as_mut().expect("it has one").data_seq = DssNumber::Short(peer_dsn(1000) as u32);
    dss.ack = Some(DssNumber::Short(our_dsn(0) as u32));
    trace.accept(segment);
    trace.expect_events(&[AT_1000]);
    assert_eq!(data_ack_of(&trace.expect_ack(1000)), peer_dsn(1001));
}

#[test]
fn a_data_fin_before_missing_data_is_acknowledged_with_the_data() {
    let mut trace = Trace::mptcp();
    trace.accept(data_fin(1000, 1000));
    trace.expect_events(&[AT_1000]);
    assert_eq!(data_ack_of(&trace.expect_ack(0)), peer_dsn(0));
    trace.accept(mapped(500, 500));
    assert_eq!(data_ack_of(&trace.expect_ack(0)), peer_dsn(0));
    trace.accept(mapped(0, 500));
    assert_eq!(data_ack_of(&trace.expect_ack(1000)), peer_dsn(1001));
    trace.expect_stream(1000);
}

#[test]
fn a_stream_may_be_empty() {
    let mut trace = Trace::mptcp();
    trace.accept(data_fin(0, 0));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(0) }]);
    assert_eq!(data_ack_of(&trace.expect_ack(0)), peer_dsn(1));
}

#[test]
fn a_second_end_of_the_stream_and_an_impossible_one_are_ignored() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 999));
    trace.accept(data_fin(1000, 2 * CAPACITY));
    trace.expect_events(&[]);
    trace.expect_ack(1000);
    trace.accept(data_fin(1000, 1000));
    trace.accept(data_fin(1000, 1500));
    trace.expect_events(&[AT_1000]);
    assert_eq!(data_ack_of(&trace.expect_ack(1000)), peer_dsn(1001));
}

#[test]
fn data_after_the_end_of_the_stream_is_not_taken() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 1000));
    trace.refuse(mapped(1000, 10), DropReason::PastFin);
    trace.expect_ack(1000);
    trace.expect_stream(1000);
}

#[test]
fn the_peer_closes_first_then_we() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 1000));
    trace.expect_ack(1000);
    trace.events.clear();
    trace.connection.shutdown_write(StreamOffset(0));
    let segment = trace.expect_one();
    assert_eq!(segment.flags, Flags::ACK);
    let dss = segment.options.mptcp.dss.expect("it is there");
    assert!(dss.data_fin);
    assert_eq!(dss.mapping, Some(our_data_fin()));
    trace.accept(acks_data_fin(seg(1000, 0), false));
    trace.expect_events(&[Event::LocalFinAcked]);
    // The connection is closed; the first FIN is left to the peer.
    trace.expect_sent(0);
    trace.accept(fin(seg(1000, 0)));
    trace.expect_events(&[Event::SubflowFin]);
    let ours = trace.expect_one();
    assert_eq!((ours.flags, ours.seq), (Flags::FIN.with(Flags::ACK), OURS + 1));
    assert_eq!(ours.ack, PEER + 1002);
    trace.expect_state(State::LastAck);
    trace.accept(Segment { ack: OURS + 2, ..seg(1001, 0) });
    trace.expect_events(&[Event::Closed]);
    trace.expect_sent(0);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn a_peer_that_closed_first_is_waited_for_only_briefly() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 1000));
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    trace.accept(acks_data_fin(seg(1000, 0), false));
    trace.expect_sent(0);
    assert_eq!(trace.pass_to_timer(), ms(200));
    assert!(trace.expect_one().flags.contains(Flags::FIN));
    trace.expect_state(State::FinWait1);
}

/// The whole closing came about on another subflow: the FIN of the peer is under way on this one, and
/// ours would cross it, which leaves both ends in TIME-WAIT.
#[test]
fn a_peer_that_closed_first_is_waited_for_where_another_subflow_told_of_it() {
    let mut trace = with_stream();
    trace.connection.on_event(&AT_1000);
    trace.connection.shutdown_write(StreamOffset(0));
    trace.connection.on_event(&Event::LocalFinAcked);
    trace.expect_sent(0);
    trace.expect_state(State::Established);
    trace.accept(fin(seg(1000, 0)));
    assert!(trace.expect_one().flags.contains(Flags::FIN));
    trace.expect_state(State::LastAck);
    trace.accept(Segment { ack: OURS + 2, ..seg(1001, 0) });
    trace.expect_state(State::Closed);
}

#[test]
fn a_fin_that_comes_at_the_end_of_the_wait_is_answered() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 1000));
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    trace.accept(acks_data_fin(seg(1000, 0), false));
    trace.expect_sent(0);
    trace.accept(fin(seg(1000, 0)));
    trace.pass(ms(200));
    assert!(trace.expect_one().flags.contains(Flags::FIN));
    trace.expect_state(State::LastAck);
}

#[test]
fn we_close_first_then_the_peer() {
    let mut trace = with_stream();
    trace.connection.shutdown_write(StreamOffset(0));
    assert!(trace.expect_one().options.mptcp.dss.expect("it is there").data_fin);
    trace.accept(acks_data_fin(seg(1000, 0), false));
    trace.expect_events(&[Event::LocalFinAcked]);
    // Half closed: the peer goes on sending.
    trace.accept(mapped(1000, 500));
    trace.expect_sent(0);
    trace.accept(data_fin(1500, 1500));
    let ours = trace.expect_one();
    assert_eq!(ours.flags, Flags::FIN.with(Flags::ACK));
    assert_eq!(data_ack_of(&ours), peer_dsn(1501));
    trace.expect_state(State::FinWait1);
    trace.accept(Segment { ack: OURS + 2, ..seg(1500, 0) });
    trace.expect_state(State::FinWait2);
    trace.accept(fin(Segment { ack: OURS + 2, ..seg(1500, 0) }));
    trace.expect_state(State::TimeWait);
    let ack = trace.expect_one();
    assert_eq!((ack.ack, ack.seq), (PEER + 1502, OURS + 2));
    assert_eq!(trace.pass_to_timer(), ms(60_000));
    trace.expect_state(State::Closed);
}

#[test]
fn both_close_at_once() {
    let mut trace = with_stream();
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    trace.accept(acks_data_fin(data_fin(1000, 1000), false));
    assert!(trace.expect_one().flags.contains(Flags::FIN));
    // The peer's FIN was sent before ours came.
    trace.accept(fin(seg(1000, 0)));
    trace.expect_state(State::Closing);
    trace.expect_one();
    trace.accept(Segment { ack: OURS + 2, ..seg(1001, 0) });
    trace.expect_state(State::TimeWait);
}

#[test]
fn fin_and_data_fin_may_come_together() {
    let mut trace = with_stream();
    trace.accept(fin(data_fin(1000, 1000)));
    trace.expect_events(&[AT_1000, Event::SubflowFin]);
    trace.expect_state(State::CloseWait);
    let ack = trace.expect_one();
    assert_eq!((ack.ack, data_ack_of(&ack)), (PEER + 1002, peer_dsn(1001)));
    // Ours go out together too, since the peer sends nothing more.
    trace.connection.shutdown_write(StreamOffset(0));
    let ours = trace.expect_one();
    assert!(ours.flags.contains(Flags::FIN));
    assert!(ours.options.mptcp.dss.expect("it is there").data_fin);
    trace.events.clear();
    trace.accept(acks_data_fin(seg(1001, 0), true));
    trace.expect_events(&[Event::LocalFinAcked, Event::Closed]);
}

#[test]
fn a_fin_without_data_fin_ends_only_the_subflow() {
    let mut trace = with_stream();
    trace.accept(fin(seg(1000, 0)));
    trace.expect_events(&[Event::SubflowFin]);
    assert!(trace.expect_one().flags.contains(Flags::FIN));
    trace.expect_state(State::LastAck);
    assert!(!trace.connection.is_closed(StreamOffset(1000)));
}

#[test]
fn our_data_fin_is_sent_again_until_it_is_acknowledged() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 1000));
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    // The handshake took no time, so the least timeout applies, and doubles.
    for doubling in 0..9 {
        assert_eq!(trace.pass_to_timer(), ms((200 << doubling).min(60_000)));
        let again = trace.expect_one();
        let dss = again.options.mptcp.dss.expect("it is there");
        assert_eq!((again.seq, dss.mapping), (OURS + 1, Some(our_data_fin())));
        // An acknowledgement of less does not count.
        trace.accept(seg(1000, 0));
        trace.accept(data_ack(seg(1000, 0), our_dsn(0)));
        trace.accept(data_ack(seg(1000, 0), our_dsn(2)));
    }
    assert_eq!(trace.subflow.statistics().retransmitted_bytes, 9);
    trace.events.clear();
    trace.pass_to_timer();
    let local = Event::Reset(ResetCause::Local);
    trace.expect_events(&[Event::TimedOut, local, Event::Closed]);
    assert!(trace.expect_one().flags.contains(Flags::RST));
}

#[test]
fn our_data_fin_may_be_acknowledged_with_a_short_number() {
    let mut trace = with_stream();
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    let ack = Some(DssNumber::Short(our_dsn(1) as u32));
    trace.accept(with_dss(seg(1000, 0), Dss { ack, ..Default::default() }));
    trace.expect_events(&[Event::LocalFinAcked]);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn a_data_ack_before_our_data_fin_means_nothing() {
    let mut trace = with_stream();
    trace.accept(data_ack(seg(1000, 0), our_dsn(1)));
    trace.expect_events(&[]);
    trace.connection.shutdown_write(StreamOffset(0));
    assert!(trace.expect_one().options.mptcp.dss.expect("it is there").data_fin);
}

#[test]
fn our_data_fin_that_another_subflow_saw_acknowledged_is_left() {
    let mut trace = with_stream();
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    trace.connection.on_event(&Event::LocalFinAcked);
    trace.pass_to_timer();
    trace.expect_sent(0);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn in_plain_tcp_the_fins_are_the_ends_the_peer_first() {
    let mut trace = Trace::plain();
    trace.accept(fin(seg(0, 500)));
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(500) }]);
    let ack = trace.expect_one();
    assert_eq!((ack.flags, ack.ack), (Flags::ACK, PEER + 502));
    trace.expect_stream(500);
    trace.connection.shutdown_write(StreamOffset(0));
    assert!(trace.expect_one().flags.contains(Flags::FIN));
    trace.accept(Segment { ack: OURS + 2, ..seg(501, 0) });
    trace.expect_events(&[Event::LocalFinAcked, Event::Closed]);
}

#[test]
fn in_plain_tcp_the_fins_are_the_ends_we_first() {
    let mut trace = Trace::plain();
    trace.connection.shutdown_write(StreamOffset(0));
    let ours = trace.expect_one();
    assert_eq!((ours.flags, ours.seq), (Flags::FIN.with(Flags::ACK), OURS + 1));
    trace.accept(Segment { ack: OURS + 2, ..seg(0, 500) });
    trace.expect_events(&[Event::LocalFinAcked]);
    trace.expect_state(State::FinWait2);
    // A half-closed connection may stay so as long as somebody reads.
    trace.expect_sent(0);
    trace.pass(ms(3_600_000));
    trace.expect_state(State::FinWait2);
    trace.expect_sent(1);
    trace.accept(fin(Segment { ack: OURS + 2, ..seg(500, 100) }));
    trace.expect_state(State::TimeWait);
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(600) }]);
    trace.expect_stream(600);
}

#[test]
fn our_fin_is_sent_again_with_backoff_and_then_given_up() {
    let mut trace = Trace::plain();
    trace.connection.shutdown_write(StreamOffset(0));
    let first = trace.expect_one();
    for doubling in 0..9 {
        assert_eq!(trace.pass_to_timer(), ms(200 << doubling).min(ms(60_000)));
        let again = trace.expect_one();
        assert_eq!((again.seq, again.flags), (first.seq, first.flags));
    }
    trace.pass_to_timer();
    let local = Event::Reset(ResetCause::Local);
    trace.expect_events(&[Event::TimedOut, local, Event::Closed]);
}

#[test]
fn the_acknowledgement_of_a_fin_sent_twice_measures_nothing() {
    let mut trace = Trace::plain();
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    let before = trace.subflow.round_trip();
    trace.pass_to_timer();
    trace.expect_sent(1);
    trace.accept(Segment { ack: OURS + 2, ..seg(0, 0) });
    assert_eq!(trace.subflow.round_trip(), before);
}

#[test]
fn a_fin_ahead_of_missing_data_counts_with_the_data() {
    let mut trace = Trace::plain();
    trace.accept(fin(seg(500, 500)));
    trace.expect_state(State::Established);
    trace.expect_ack(0);
    // Nothing lies beyond a FIN, and it does not move.
    trace.refuse(seg(1000, 10), DropReason::PastFin);
    trace.accept(fin(seg(0, 300)));
    trace.expect_state(State::Established);
    trace.accept(seg(300, 200));
    trace.expect_state(State::CloseWait);
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(1000) }]);
    trace.expect_stream(1000);
    // The FIN again.
    trace.sent();
    trace.refuse(fin(seg(1000, 0)), DropReason::OutOfWindow);
    assert_eq!(trace.expect_one().ack, PEER + 1002);
}

#[test]
fn a_fin_without_payload_ahead_of_missing_data_counts_with_the_data() {
    let mut trace = Trace::plain();
    trace.accept(fin(seg(500, 0)));
    trace.accept(seg(0, 500));
    trace.expect_state(State::CloseWait);
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(500) }]);
}

#[test]
fn a_fin_below_what_was_received_is_ignored() {
    let mut trace = Trace::plain();
    trace.accept(seg(500, 100));
    trace.accept(fin(seg(0, 300)));
    trace.accept(seg(300, 200));
    trace.expect_state(State::Established);
    trace.expect_stream(600);
}

#[test]
fn a_fin_whose_payload_has_no_room_waits_with_it() {
    let mut trace = Trace::plain();
    trace.capacity = 100;
    trace.right_edge = 100;
    trace.accept(fin(seg(0, 150)));
    trace.expect_state(State::Established);
    trace.expect_ack(100);
    trace.read();
    trace.accept(fin(seg(100, 50)));
    trace.expect_state(State::CloseWait);
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(150) }]);
}

#[test]
fn fin_wait_2_ends_when_nobody_reads_any_more() {
    let mut trace = Trace::plain();
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    trace.accept(Segment { ack: OURS + 2, ..seg(0, 0) });
    assert_eq!(trace.subflow.next_timeout(), None);
    trace.connection.reader_gone();
    trace.expect_sent(0);
    assert_eq!(trace.pass_to_timer(), ms(60_000));
    trace.expect_state(State::Closed);
}

#[test]
fn a_data_fin_is_not_waited_for_for_ever_when_nobody_reads_any_more() {
    let mut trace = with_stream();
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    trace.accept(data_ack(seg(1000, 0), our_dsn(1)));
    trace.expect_events(&[Event::LocalFinAcked]);
    // While somebody reads, the peer has all the time that it wants.
    assert_eq!(trace.subflow.next_timeout(), None);
    trace.read();
    trace.connection.reader_gone();
    trace.expect_sent(0);
    assert_eq!(trace.pass_to_timer(), ms(60_000));
    trace.expect_events(&[Event::Reset(ResetCause::Local), Event::Closed]);
    assert_eq!(trace.expect_one().options.mptcp.fast_close, Some(PEER_KEY));
}

#[test]
fn data_that_nobody_will_read_is_answered_by_an_abort() {
    let mut trace = Trace::mptcp();
    trace.connection.reader_gone();
    trace.refuse(mapped(0, 10), DropReason::NoReader);
    let local = Event::Reset(ResetCause::Local);
    trace.expect_events(&[local, Event::Closed]);
    assert_eq!(trace.expect_one().options.mptcp.fast_close, Some(PEER_KEY));
}

#[test]
fn data_reinjected_after_the_end_is_no_reason_to_abort() {
    let mut trace = with_stream();
    trace.accept(data_fin(1000, 1000));
    trace.expect_events(&[AT_1000]);
    trace.read();
    trace.connection.reader_gone();
    trace.expect_ack(1000);
    // The sender repeats the last octets of the data level as new octets of the subflow.
    trace.accept(with_dss(seg(1000, 10), dss(1000, 990, 10)));
    trace.expect_events(&[]);
    trace.expect_state(State::Established);
    trace.subflow.request_ack();
    trace.expect_ack(1010);
}

#[test]
fn aborting_a_connection_says_so_with_the_peers_key() {
    let mut trace = with_stream();
    trace.subflow.abort(Abort::Connection);
    trace.expect_events(&[Event::Reset(ResetCause::Local), Event::Closed]);
    let reset = trace.expect_one();
    assert_eq!(reset.flags, Flags::RST.with(Flags::ACK));
    assert_eq!((reset.seq, reset.ack), (OURS + 1, PEER + 1001));
    let expected = MptcpOptions { fast_close: Some(PEER_KEY), ..Default::default() };
    assert_eq!(reset.options.mptcp, expected);
    trace.subflow.abort(Abort::Connection);
    trace.expect_sent(0);
    trace.expect_events(&[]);

    let mut trace = Trace::plain();
    trace.subflow.abort(Abort::Connection);
    assert_eq!(trace.expect_one().options, Options::default());
}

#[test]
fn aborting_a_subflow_gives_its_reason() {
    let mut trace = with_stream();
    trace.subflow.abort(Abort::Subflow(ResetReason::Resources));
    let reset = trace.expect_one();
    assert_eq!(reset.options.mptcp.reset, Some(MpReset { flags: 1, reason: 2 }));
}

/// A connection that we closed first, in MPTCP or plain TCP, up to TIME-WAIT.
fn time_wait(mut trace: Trace, at: u64) -> (Trace, TimeWait) {
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    if trace.subflow.is_mptcp() {
        trace.accept(acks_data_fin(data_fin(at, at), false));
        trace.expect_sent(1);
    }
    trace.accept(fin(Segment { ack: OURS + 2, ..seg(at, 0) }));
    trace.expect_state(State::TimeWait);
    assert_eq!(trace.subflow.time_wait(), None, "an acknowledgement is due yet");
    trace.expect_sent(1);
    let rest = trace.subflow.time_wait().expect("nothing is due");
    (trace, rest)
}

#[test]
fn time_wait_acknowledges_what_comes_again() {
    let (trace, mut rest) = time_wait(with_stream(), 1000);
    let expires = rest.expires();
    assert_eq!(expires, trace.now + ms(60_000));
    let later = trace.now + ms(500);
    let again = fin(Segment { ack: OURS + 2, ..seg(1000, 0) });
    let TimeWaitVerdict::Reply(ack) = rest.on_segment(later, &again) else {
        panic!("a FIN that comes again is acknowledged")
    };
    assert_eq!((ack.seq, ack.ack), (OURS + 2, PEER + 1002));
    assert_eq!(data_ack_of(&ack), peer_dsn(1001));
    assert!(ack.options.timestamps.is_some());
    assert_survives_the_wire(&ack);
    assert_eq!(rest.expires(), later + ms(60_000));
    // So is a DATA_FIN.
    let mut again = data_fin(1001, 1000);
    again.ack = OURS + 2;
    assert!(matches!(rest.on_segment(later, &again), TimeWaitVerdict::Reply(_)));
    // The last acknowledgement is not, and a reset is ignored.
    let last = Segment { ack: OURS + 2, ..seg(1001, 0) };
    assert_eq!(rest.on_segment(later, &last), TimeWaitVerdict::Ignore);
    let reset = Segment { flags: Flags::RST, ..last };
    assert_eq!(rest.on_segment(later, &reset), TimeWaitVerdict::Ignore);
    assert_eq!(rest.on_segment(rest.expires(), &last), TimeWaitVerdict::Done);
}

#[test]
fn time_wait_lets_a_new_connection_through() {
    let (trace, mut rest) = time_wait(Trace::plain(), 0);
    let timestamps =
        |value| Options { timestamps: Some(Timestamps { value, echo: 0 }), ..syn().options };
    let old = Segment { options: timestamps(101), ..syn() };
    assert!(matches!(rest.on_segment(trace.now, &old), TimeWaitVerdict::Reply(_)));
    let by_time = Segment { options: timestamps(102), ..old };
    assert_eq!(rest.on_segment(trace.now, &by_time), TimeWaitVerdict::Reopen(OURS + 3));
    let by_sequence = Segment { seq: PEER + 5000, options: Options::default(), ..old };
    assert_eq!(rest.on_segment(trace.now, &by_sequence), TimeWaitVerdict::Reopen(OURS + 3));
}

#[test]
fn time_wait_answers_so_often_and_no_more() {
    let (trace, mut rest) = time_wait(Trace::plain(), 0);
    let stray = seg(500, 10);
    let replies = (0..100)
        .filter(|_| matches!(rest.on_segment(trace.now, &stray), TimeWaitVerdict::Reply(_)))
        .count();
    assert_eq!(replies, 10);
}
