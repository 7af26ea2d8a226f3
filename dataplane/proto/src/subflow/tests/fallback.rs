//! When a connection goes on as plain TCP after its handshake, and when it must not.

use super::*;

fn infinite(position: u64, offset: u64) -> Dss {
    dss(position, offset, 0)
}

#[test]
fn first_data_without_a_mapping_means_plain_tcp() {
    let mut trace = Trace::mptcp();
    trace.accept(seg(0, 100));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    assert!(!trace.subflow.is_mptcp());
    trace.accept(seg(100, 100));
    assert_eq!(trace.expect_ack(200).options.mptcp, MptcpOptions::default());
    trace.expect_stream(200);
    // The FIN is the end of the stream now, and a DATA_FIN is nothing.
    trace.accept(data_fin(200, 300));
    trace.accept(fin(seg(200, 0)));
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(200) }]);
}

#[test]
fn options_lost_within_the_first_window_mean_plain_tcp() {
    // The peer saw its first data acknowledged without a DATA_ACK, since a middlebox took it out.
    let mut trace = Trace::mptcp();
    for n in 0..5 {
        trace.accept(mapped(n * 1000, 1000));
    }
    trace.accept(seg(5000, 1000));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    trace.accept(seg(6000, 1000));
    trace.expect_stream(7000);
}

/// The segment, sent after `ours` had come.
fn answering(ours: &Segment, segment: Segment) -> Segment {
    let sent = ours.options.timestamps.expect("they are in use");
    let timestamps = Some(Timestamps { value: 102, echo: sent.value });
    Segment { options: Options { timestamps, ..segment.options }, ..segment }
}

/// A middlebox takes the options out of data a little later. The peer goes on speaking MPTCP, and
/// would send the same data again and again as long as no DATA_ACK comes: no part of any stream.
#[test]
fn a_peer_that_had_a_data_ack_does_not_fall_back() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    let ack = trace.expect_ack(1000);
    trace.accept(answering(&ack, mapped(1000, 1000)));
    trace.subflow.request_ack();
    trace.expect_ack(2000);
    for _ in 0..2 {
        trace.refuse(answering(&ack, seg(2000, 1000)), DropReason::Unmapped);
        trace.expect_ack(2000);
    }
    trace.refuse(answering(&ack, seg(2000, 1000)), DropReason::Unmapped);
    let cause = ResetCause::Violation(ResetReason::Middlebox);
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    trace.expect_stream(2000);
}

/// What was sent before the first DATA_ACK came has a mapping, so options get lost on the way to us;
/// and the DATA_ACK that is under way may get through.
#[test]
fn options_lost_on_data_that_crosses_the_first_data_ack_break_the_subflow() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    let ack = trace.expect_ack(1000);
    trace.refuse(seg(2000, 1000), DropReason::Unmapped);
    // It is sent again after the DATA_ACK.
    for _ in 0..3 {
        trace.refuse(answering(&ack, seg(1000, 1000)), DropReason::Unmapped);
    }
    let cause = ResetCause::Violation(ResetReason::Middlebox);
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    trace.expect_stream(1000);
}

/// The same within a mapping, where nothing is missing at once.
#[test]
fn options_lost_before_the_first_data_ack_are_remembered() {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 1000), dss(0, 0, 3000)));
    trace.accept(seg(1000, 1000));
    let ack = trace.expect_ack(2000);
    trace.accept(answering(&ack, seg(2000, 1000)));
    trace.refuse(answering(&ack, seg(3000, 1000)), DropReason::Unmapped);
    trace.expect_events(&[]);
    trace.expect_stream(3000);

    // Before any, they are not held against it: the acknowledgement tells the peer.
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 1000), dss(0, 0, 2000)));
    trace.accept(seg(1000, 1000));
    trace.accept(seg(2000, 1000));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    assert_eq!(trace.expect_ack(3000).options.mptcp, MptcpOptions::default());
}

/// Without timestamps nothing tells whether the first DATA_ACK got through.
#[test]
fn without_timestamps_there_is_no_fallback_after_the_first_data_ack() {
    let mut trace = Trace::mptcp();
    trace.subflow.stamps = None;
    let bare = |segment: Segment| Segment {
        options: Options { timestamps: None, ..segment.options },
        ..segment
    };
    trace.accept(bare(mapped(0, 1000)));
    trace.subflow.request_ack();
    trace.expect_ack(1000);
    trace.refuse(bare(seg(1000, 1000)), DropReason::Unmapped);
    trace.expect_events(&[]);
}

/// The timestamp by which the answer to the first DATA_ACK is known is no other's.
#[test]
fn the_first_data_ack_has_a_timestamp_of_its_own() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    let first = trace.expect_ack(1000).options.timestamps.expect("they are in use");
    let clock = trace.subflow.stamps.as_ref().expect("they are in use").clock(trace.now);
    assert_eq!(first.value, clock);
    trace.accept(mapped(1000, 1000));
    trace.subflow.request_ack();
    let second = trace.expect_ack(2000).options.timestamps.expect("they are in use");
    assert_eq!(second.value, clock, "it moves once only");
}

#[test]
fn options_lost_later_break_the_subflow() {
    let mut trace = Trace::mptcp();
    for n in 0..100 {
        trace.accept(mapped(n * 1000, 1000));
    }
    trace.expect_ack(100_000);
    for _ in 0..2 {
        trace.refuse(seg(100_000, 1000), DropReason::Unmapped);
        trace.expect_ack(100_000);
    }
    trace.refuse(seg(100_000, 1000), DropReason::Unmapped);
    let cause = ResetCause::Violation(ResetReason::Middlebox);
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    let reset = trace.expect_one();
    assert_eq!(reset.options.mptcp.reset, Some(MpReset { flags: 0, reason: 6 }));
    trace.expect_stream(100_000);
}

#[test]
fn a_mapping_that_comes_with_a_later_segment_is_waited_for() {
    let mut trace = Trace::mptcp();
    for n in 0..100 {
        trace.accept(mapped(n * 1000, 1000));
    }
    trace.refuse(seg(100_000, 1000), DropReason::Unmapped);
    trace.accept(with_dss(seg(101_000, 1000), dss(100_000, 100_000, 2000)));
    trace.accept(seg(100_000, 1000));
    trace.expect_stream(102_000);
    trace.expect_events(&[]);
}

#[test]
fn options_lost_with_segments_missing_mean_plain_tcp_too() {
    // The peer fell back before it sent the missing segment again.
    let mut trace = Trace::mptcp();
    trace.accept(mapped(500, 100));
    trace.accept(seg(0, 500));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    trace.expect_stream(600);
}

#[test]
fn no_fallback_once_data_was_mapped_twice_or_a_second_subflow_joined() {
    // As the kernel's sender does to probe a closed window: an octet of old data, mapped anew.
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 1000));
    assert_eq!(
        trace.recv_at(with_dss(seg(1000, 1), dss(1000, 999, 1)), 999),
        Disposition::Accepted
    );
    trace.refuse(seg(1001, 100), DropReason::Unmapped);
    trace.expect_events(&[]);
    let segment = with_dss(seg(1001, 100), dss(1001, 1000, 100));
    assert_eq!(trace.recv_at(segment, 1000), Disposition::Accepted);
    trace.expect_stream(1100);
    assert_eq!(trace.recv_at(seg(1101, 100), 1100), Disposition::Dropped(DropReason::Unmapped));

    let mut trace = Trace::mptcp();
    trace.connection.joined();
    trace.refuse(seg(0, 100), DropReason::Unmapped);
    trace.expect_events(&[]);
    assert!(trace.subflow.is_mptcp());
}

#[test]
fn an_infinite_mapping_means_plain_tcp() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(with_dss(seg(100, 100), infinite(100, 100)));
    trace.expect_events(&[Event::Fallback(FallbackReason::InfiniteMapping)]);
    assert_eq!(trace.expect_ack(200).options.mptcp, MptcpOptions::default());
    trace.accept(seg(200, 100));
    trace.expect_stream(300);
}

#[test]
fn an_infinite_mapping_may_act_retroactively_or_from_the_start() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(with_dss(seg(100, 100), infinite(50, 50)));
    trace.accept(seg(200, 100));
    trace.expect_stream(300);

    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 100), infinite(0, 0)));
    trace.expect_events(&[Event::Fallback(FallbackReason::InfiniteMapping)]);
    trace.expect_stream(100);
}

#[test]
fn an_infinite_mapping_that_contradicts_or_comes_too_late_is_fatal() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.refuse(with_dss(seg(100, 100), infinite(100, 500)), DropReason::MappingConflict);
    trace.expect_state(State::Closed);

    let mut trace = Trace::mptcp();
    trace.connection.joined();
    trace.refuse(with_dss(seg(0, 100), infinite(0, 0)), DropReason::MappingConflict);
    trace.expect_state(State::Closed);
}

#[test]
fn out_of_order_data_keeps_its_place_through_a_fallback() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(mapped(300, 100));
    trace.accept(with_dss(seg(100, 100), infinite(100, 100)));
    trace.accept(seg(200, 100));
    trace.expect_stream(400);
}

#[test]
fn mp_fail_is_answered_by_mp_fail_and_plain_tcp() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    let options = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(with_mptcp(seg(100, 0), options));
    trace.expect_events(&[Event::Fallback(FallbackReason::PeerFailed)]);
    let ack = trace.expect_ack(100);
    let expected = MptcpOptions { fail: Some(peer_dsn(100)), ..Default::default() };
    assert_eq!(ack.options.mptcp, expected);
    // It is said once; what the peer had under way, mapped or not, goes on in order.
    trace.accept(mapped(100, 100));
    trace.accept(with_dss(seg(200, 100), infinite(100, 100)));
    assert_eq!(trace.expect_ack(300).options.mptcp, MptcpOptions::default());
    trace.expect_stream(300);
}

#[test]
fn mp_fail_among_several_subflows_ends_this_one() {
    let mut trace = Trace::mptcp();
    trace.connection.joined();
    let options = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(with_mptcp(seg(0, 0), options));
    trace.expect_state(State::Closed);
    let reset = trace.expect_one();
    assert_eq!(reset.options.mptcp.reset, Some(MpReset { flags: 0, reason: 6 }));
}

#[test]
fn the_reasons_have_names_and_places_of_their_own() {
    for (index, reason) in FallbackReason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
        let connection = Connection::new(None);
        connection.on_event(&Event::Fallback(reason));
        assert_eq!(connection.mode(), crate::connection::Mode::Plain(Some(reason)));
        assert!(FallbackReason::ALL[..index].iter().all(|other| other.name() != reason.name()));
    }
    for (index, reason) in DropReason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
        assert!(DropReason::ALL[..index].iter().all(|other| other.name() != reason.name()));
    }
}
