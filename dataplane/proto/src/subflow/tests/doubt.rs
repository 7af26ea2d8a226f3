//! Options are lost after the first DATA_ACK: the peer may have fallen back, or know nothing of it.

use super::*;
use crate::config::{ChecksumPolicy, Keepalive};

/// The segment, sent after `ours` had come.
fn answering(ours: &Segment, segment: Segment) -> Segment {
    let sent = ours.options.timestamps.expect("they are in use");
    let timestamps = Some(Timestamps { value: 102, echo: sent.value });
    Segment { options: Options { timestamps, ..segment.options }, ..segment }
}

/// The segment, sent before any of ours had come, but held up on its way so long that its timestamp is as
/// new as that of others.
fn under_way(segment: Segment) -> Segment {
    let timestamps = Some(Timestamps { value: 102, echo: 0 });
    Segment { options: Options { timestamps, ..segment.options }, ..segment }
}

/// What a peer that speaks MPTCP sends for each MP_FAIL that it hears: nothing, after `at` octets. Its
/// own MP_FAIL got lost.
fn answer(ours: &Segment, at: u64) -> Segment {
    answering(ours, seg(at, 0))
}

/// The first 1000 octets are mapped and have a DATA_ACK, the next 1000 are not mapped. Also what was sent
/// before them, and in answer to them.
fn in_doubt() -> (Trace, Segment, Segment) {
    in_doubt_after(Trace::mptcp())
}

fn in_doubt_after(mut trace: Trace) -> (Trace, Segment, Segment) {
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    let first = trace.expect_ack(1000);
    trace.accept(answering(&first, seg(1000, 1000)));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    let question = trace.expect_ack(2000);
    (trace, first, question)
}

/// DATA_ACK of so many octets, and MP_FAIL.
fn question_after(taken: u64) -> MptcpOptions {
    MptcpOptions { fail: Some(peer_dsn(1000)), ..data_ack_of(taken) }
}

fn data_ack_of(taken: u64) -> MptcpOptions {
    let ack = Some(DssNumber::Long(peer_dsn(taken)));
    let dss = Dss { data_fin: false, ack, mapping: None };
    MptcpOptions { dss: Some(dss), ..Default::default() }
}

/// The next acknowledgement says all this.
fn expect_said(trace: &mut Trace, taken: u64, options: MptcpOptions) -> Segment {
    trace.subflow.request_ack();
    let ack = trace.expect_ack(taken);
    assert_eq!(ack.options.mptcp, options);
    ack
}

/// The connection is over, for a peer that speaks MPTCP too.
fn expect_over(trace: &mut Trace, taken: u64) {
    let cause = ResetCause::Violation(ResetReason::Middlebox);
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    let reset = trace.expect_one();
    assert!(reset.flags.contains(Flags::RST));
    let expected = MptcpOptions {
        fast_close: Some(PEER_KEY),
        reset: Some(MpReset { flags: 0, reason: 6 }),
        ..Default::default()
    };
    assert_eq!(reset.options.mptcp, expected);
    trace.expect_stream(taken);
}

/// Linux falls back by what it does not find on our acknowledgement, without an infinite mapping.
#[test]
fn options_lost_on_our_acknowledgements_mean_plain_tcp() {
    let (mut trace, first, question) = in_doubt();
    assert_eq!(question.options.mptcp, question_after(2000));
    assert!(!trace.subflow.is_mptcp());
    trace.accept(under_way(mapped(2000, 1000)));
    trace.accept(answering(&first, seg(3000, 1000)));
    assert_eq!(trace.expect_ack(4000).options.mptcp, question_after(4000));
    trace.accept(answering(&first, fin(seg(4000, 1000))));
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(5000) }]);
    // The FIN is one more at either level, and for now nothing is asked.
    let ack = trace.expect_one();
    assert_eq!(ack.ack, PEER + 1 + 5001);
    assert_eq!(ack.options.mptcp, data_ack_of(5001));
    trace.expect_stream(5000);
}

/// Its first flight was all it had, with its mapping, and then it fell back. A FIN without options is the
/// end of its stream.
#[test]
fn a_fin_without_options_ends_what_its_peer_fell_back_for() {
    let begin = || {
        let mut trace = Trace::mptcp();
        trace.accept(mapped(0, 1000));
        trace.subflow.request_ack();
        let first = trace.expect_ack(1000);
        (trace, first)
    };
    let ended = [
        Event::Fallback(FallbackReason::NoMappingInFirstData),
        Event::StreamEnd { at: StreamOffset(1000) },
    ];
    let (mut trace, first) = begin();
    trace.accept(answering(&first, fin(seg(1000, 0))));
    trace.expect_events(&ended);
    let ack = trace.expect_one();
    assert_eq!((ack.ack, ack.options.mptcp), (PEER + 1 + 1001, data_ack_of(1001)));

    // It may come before the last payload.
    let (mut trace, first) = begin();
    trace.accept(answering(&first, fin(seg(2000, 0))));
    trace.expect_events(&[]);
    trace.accept(under_way(mapped(1000, 1000)));
    trace.expect_events(&[ended[0], Event::StreamEnd { at: StreamOffset(2000) }]);

    // It ends the subflow alone if it was sent before, has options, or comes after a DATA_FIN; or if
    // another subflow was there.
    let (mut trace, _) = begin();
    trace.accept(under_way(fin(seg(1000, 0))));
    trace.expect_events(&[Event::SubflowFin]);
    let (mut trace, first) = begin();
    trace.accept(answering(&first, fin(with_mptcp(seg(1000, 0), data_ack_of(0)))));
    trace.expect_events(&[Event::SubflowFin]);
    let (mut trace, first) = begin();
    trace.accept(under_way(data_fin(1000, 1000)));
    trace.accept(answering(&first, fin(seg(1000, 0))));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(1000) }, Event::SubflowFin]);
    let (mut trace, first) = begin();
    trace.connection.joined();
    trace.accept(answering(&first, fin(seg(1000, 0))));
    trace.expect_events(&[Event::SubflowFin]);
}

#[test]
fn a_peer_that_answers_the_question_speaks_mptcp() {
    let (mut trace, _, question) = in_doubt();
    trace.refuse(answer(&question, 2000), DropReason::Unmapped);
    expect_over(&mut trace, 2000);
}

/// The answer may be late, and overtaken by data.
#[test]
fn an_answer_to_any_question_counts() {
    let (mut trace, _, question) = in_doubt();
    trace.pass(ms(300));
    trace.accept(answering(&question, seg(2000, 1000)));
    let again = expect_said(&mut trace, 3000, question_after(3000));
    trace.refuse(answer(&again, 3000), DropReason::Unmapped);
    expect_over(&mut trace, 3000);
}

#[test]
fn what_else_acknowledges_nothing_is_no_answer() {
    // Sent before the question came.
    let (mut trace, first, question) = in_doubt();
    let earlier = Timestamps { value: 102, echo: question.options.timestamps.unwrap().value - 1 };
    let mut before = seg(2000, 0);
    before.options.timestamps = Some(earlier);
    trace.accept(before);
    // An acknowledgement of before the last payload, which was overtaken.
    let _ = trace.recv(answering(&first, seg(1000, 0)));
    let _ = trace.recv(answer(&question, 1000));
    trace.expect_events(&[]);
    trace.expect_state(State::Established);

    // After so long it is somebody else's doing.
    let (mut trace, _, question) = in_doubt();
    trace.pass(Config::default().fail_timeout + ms(1));
    trace.accept(answer(&question, 2000));
    trace.expect_events(&[]);

    // A probe of ours is answered by anybody.
    let keepalive = Some(Keepalive { idle: ms(10_000), interval: ms(1000), probes: 2 });
    let mut trace = Trace::listen(Config { keepalive, ..calm() }, syn());
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
    trace.events.clear();
    let (mut trace, ..) = in_doubt_after(trace);
    assert_eq!(trace.pass_to_timer(), ms(10_000));
    let probe = trace.expect_one();
    assert_eq!(probe.seq, OURS);
    trace.accept(answer(&probe, 2000));
    trace.expect_events(&[]);
}

/// An end of ours is acknowledged by anybody.
#[test]
fn an_acknowledgement_of_our_fin_is_no_answer() {
    let (mut trace, _, question) = in_doubt();
    trace.connection.shutdown_write(StreamOffset(0));
    let end = trace.expect_one();
    assert!(end.flags.contains(Flags::FIN));
    assert_eq!(end.options.mptcp, data_ack_of(2000), "nothing is asked");
    trace.accept(answer(&question, 2000));
    trace.accept(Segment { ack: OURS + 2, ..answer(&question, 2000) });
    trace.accept(Segment { ack: OURS + 2, ..answer(&question, 2000) });
    trace.expect_events(&[Event::LocalFinAcked]);
    trace.expect_state(State::FinWait2);
}

#[test]
fn questions_come_to_an_end_but_data_acks_go_on() {
    let (mut trace, first, _) = in_doubt();
    let mut asked = 1;
    for at in 2..40 {
        trace.accept(answering(&first, seg(at * 1000, 1000)));
        let taken = (at + 1) * 1000;
        trace.subflow.request_ack();
        let ack = trace.expect_ack(taken);
        asked += usize::from(ack.options.mptcp.fail.is_some());
        assert_eq!(ack.options.mptcp.dss, data_ack_of(taken).dss);
    }
    assert_eq!(asked, 16);
    trace.expect_stream(40_000);
}

/// SACK blocks have the room: what is missing is urgent, the question is not. With timestamps and a
/// DATA_ACK two fit.
#[test]
fn sack_blocks_come_before_questions() {
    let (mut trace, first, _) = in_doubt();
    for at in [3000, 5000] {
        trace.accept(answering(&first, seg(at, 1000)));
        let ack = trace.expect_ack(2000);
        assert_eq!(ack.options.mptcp, data_ack_of(2000));
        assert_eq!(ack.options.sack.as_slice().len(), (at as usize - 1000) / 2000);
    }
    trace.accept(answering(&first, seg(2000, 1000)));
    trace.accept(answering(&first, seg(4000, 1000)));
    assert_eq!(trace.expect_ack(6000).options.mptcp, question_after(6000));
    // What came again is told of like that too, with the DATA_ACK.
    trace.refuse(answering(&first, seg(2000, 1000)), DropReason::Duplicate);
    assert_eq!(trace.expect_ack(6000).options.mptcp, data_ack_of(6000));
}

/// Whatever the reader does: a DATA_ACK behind the TCP acknowledgement would have the peer send again.
#[test]
fn the_data_ack_is_in_step_though_the_reader_is_slow() {
    let mut trace = Trace::mptcp_with_capacity(10_000);
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    let first = trace.expect_ack(1000);
    for at in 1..10 {
        trace.accept(answering(&first, seg(at * 1000, 1000)));
        let taken = (at + 1) * 1000;
        expect_said(&mut trace, taken, question_after(taken));
    }
    // Full. What comes all the same is not taken, and neither is acknowledged.
    trace.refuse(answering(&first, seg(10_000, 1000)), DropReason::BeyondWindow);
    let ack = trace.expect_ack(10_000);
    assert_eq!((ack.window, ack.options.mptcp), (0, question_after(10_000)));
    trace.read();
    trace.accept(answering(&first, seg(10_000, 1000)));
    expect_said(&mut trace, 11_000, question_after(11_000));
    trace.expect_stream(11_000);
}

/// With all of its data acknowledged and the window closed, Linux sends the last octet again as new of the
/// subflow. Its mapping would tell.
#[test]
fn an_octet_that_may_be_an_old_one_is_not_taken() {
    for reopened in [false, true] {
        let (mut trace, first, _) = in_doubt_after(Trace::mptcp_with_capacity(2000));
        if reopened {
            trace.read();
            trace.subflow.request_ack();
            assert!(trace.expect_ack(2000).window > 0);
        }
        let probe = answering(&first, seg(2000, 1));
        assert_eq!(trace.recv_at(probe, 1999), Disposition::Dropped(DropReason::Unmapped));
        expect_over(&mut trace, 2000);
    }

    // One octet anywhere else is data, and so is more than one here.
    let (mut trace, first, _) = in_doubt_after(Trace::mptcp_with_capacity(2000));
    trace.read();
    trace.accept(answering(&first, seg(2000, 2)));
    trace.accept(answering(&first, seg(2002, 1)));
    trace.expect_events(&[]);
    trace.expect_stream(2003);
}

#[test]
fn an_infinite_mapping_ends_the_doubt() {
    let (mut trace, _, question) = in_doubt();
    let infinite = with_dss(seg(2000, 1000), dss(1000, 1000, 0));
    trace.accept(answering(&question, infinite));
    trace.expect_events(&[]);
    expect_said(&mut trace, 3000, MptcpOptions::default());
    // There is nothing to ask any more.
    trace.accept(answer(&question, 3000));
    trace.accept(answering(&question, seg(3000, 1000)));
    trace.expect_events(&[]);
    trace.expect_stream(4000);
}

#[test]
fn mappings_that_contradict_plain_tcp_end_the_connection() {
    for length in [0, 1000] {
        let (mut trace, first, _) = in_doubt();
        let elsewhere = with_dss(seg(2000, 1000), dss(2000, 1000, length));
        trace.refuse(answering(&first, elsewhere), DropReason::Unmapped);
        expect_over(&mut trace, 2000);
    }
}

/// The peer agrees to fall back, which Linux does with its next data.
#[test]
fn an_mp_fail_ends_the_questions() {
    let (mut trace, _, question) = in_doubt();
    let agreed = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(answering(&question, with_mptcp(seg(2000, 0), agreed)));
    expect_said(&mut trace, 2000, data_ack_of(2000));
    trace.accept(answer(&question, 2000));
    trace.accept(answering(&question, with_dss(seg(2000, 1000), dss(2000, 2000, 0))));
    expect_said(&mut trace, 3000, MptcpOptions::default());
    trace.expect_events(&[]);
    trace.expect_stream(3000);
}

/// Options come through again, and say that the peer never fell back. No data-level number of what came
/// between can be trusted; and there is no way back to MPTCP.
#[test]
fn options_in_answer_to_a_data_ack_end_the_connection() {
    let signal = MptcpOptions { priority: Some(true), ..Default::default() };
    let ordinary = MptcpOptions { dss: Some(dss(2000, 2000, 1000)), ..Default::default() };
    for (len, options) in [(1000, ordinary), (0, data_ack_of(0)), (0, signal)] {
        let (mut trace, first, _) = in_doubt();
        let segment = with_mptcp(seg(2000, len), options);
        trace.refuse(answering(&first, segment), DropReason::Unmapped);
        expect_over(&mut trace, 2000);
    }
    let (mut trace, first, _) = in_doubt();
    trace.refuse(answering(&first, data_fin(2000, 2000)), DropReason::Unmapped);
    expect_over(&mut trace, 2000);

    // From before it, they are what was under way.
    let (mut trace, ..) = in_doubt();
    trace.accept(under_way(mapped(2000, 1000)));
    trace.accept(under_way(with_mptcp(seg(3000, 0), signal)));
    trace.accept(under_way(data_fin(3000, 3000)));
    trace.expect_events(&[]);
    trace.expect_stream(3000);
}

/// Within a mapping nothing is missing at once.
#[test]
fn the_doubt_begins_where_the_mapping_ends() {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 500), dss(0, 0, 1000)));
    trace.subflow.request_ack();
    let first = trace.expect_ack(500);
    trace.accept(answering(&first, seg(500, 500)));
    expect_said(&mut trace, 1000, data_ack_of(1000));
    trace.expect_events(&[]);
    trace.accept(answering(&first, seg(1000, 500)));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    expect_said(&mut trace, 1500, question_after(1500));
}

/// A peer that had no DATA_ACK knows without being asked.
#[test]
fn before_the_first_data_ack_there_is_no_doubt() {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 1000), dss(0, 0, 2000)));
    trace.accept(seg(1000, 1000));
    trace.accept(seg(2000, 1000));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    let ack = trace.expect_ack(3000);
    assert_eq!(ack.options.mptcp, MptcpOptions::default());
    trace.accept(answer(&ack, 3000));
    trace.expect_events(&[]);
}

/// An announcement of ours has no DATA_ACK beside it, but tells Linux as well that options get through.
#[test]
fn an_announcement_before_the_first_data_ack_is_enough_for_doubt() {
    let mut trace = Trace::mptcp();
    let address = "192.0.2.7".parse().unwrap();
    assert!(trace.subflow.announce(AddressId(1), address, None));
    let sent = trace.expect_one();
    assert!(sent.options.mptcp.add_addr.is_some());
    trace.accept(answering(&sent, seg(0, 1000)));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    let expected = MptcpOptions { fail: Some(peer_dsn(0)), ..data_ack_of(1000) };
    expect_said(&mut trace, 1000, expected);
}

/// The application goes: a peer that speaks MPTCP is told that this is no matter of one subflow.
#[test]
fn an_abort_in_doubt_is_one_for_either_kind_of_peer() {
    let (mut trace, ..) = in_doubt();
    trace.subflow.abort(Abort::Connection);
    let reset = trace.expect_one();
    assert!(reset.flags.contains(Flags::RST));
    assert_eq!(reset.options.mptcp.fast_close, Some(PEER_KEY));
    trace.expect_events(&[Event::Reset(ResetCause::Local), Event::Closed]);

    let mut trace = Trace::plain();
    trace.subflow.abort(Abort::Connection);
    assert_eq!(trace.expect_one().options.mptcp, MptcpOptions::default());
}

#[test]
fn a_reset_by_the_peer_ends_the_connection_in_doubt() {
    let (mut trace, first, _) = in_doubt();
    trace.accept(Segment { flags: Flags::RST, ..answering(&first, seg(2000, 0)) });
    let cause = ResetCause::Peer { reason: None };
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    trace.expect_sent(0);
    trace.expect_stream(2000);
}

/// What waits for its checksum needs none in plain TCP: an infinite mapping has none.
#[test]
fn with_checksums_what_was_held_is_part_of_the_stream() {
    let mut required = syn();
    let with_checksums = |mut options: MptcpOptions| {
        if let Some(capable) = &mut options.capable {
            capable.checksum_required = true;
        }
        options
    };
    required.options.mptcp = with_checksums(required.options.mptcp);
    let config = Config { checksums: ChecksumPolicy::Accept, ..calm() };
    let mut trace = Trace::listen(config, required);
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), with_checksums(capable_ack(None))));
    let whole = sums::with_checksum(dss(0, 0, 1000), &text(0, 1000));
    trace.accept(with_dss(seg(0, 1000), whole));
    let half = sums::with_checksum(dss(1000, 1000, 1000), &text(1000, 1000));
    trace.accept(with_dss(seg(1000, 500), half));
    trace.subflow.request_ack();
    let first = trace.expect_ack(1500);
    assert_eq!(first.options.mptcp.dss, data_ack_of(1000).dss, "half a mapping proves nothing");
    trace.events.clear();
    trace.accept(answering(&first, seg(1500, 500)));
    trace.accept(answering(&first, seg(2000, 500)));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    let ack = trace.expect_ack(2500);
    let expected = MptcpOptions { fail: Some(peer_dsn(2000)), ..data_ack_of(2500) };
    assert_eq!(ack.options.mptcp, expected);
    trace.expect_stream(2500);
    trace.refuse(answer(&ack, 2500), DropReason::Unmapped);
    expect_over(&mut trace, 2500);
}
