//! Data-level checksums: agreed on, proved, failed.

use proptest::prelude::*;

use super::*;
use crate::config::ChecksumPolicy;

fn config(checksums: ChecksumPolicy) -> Config {
    Config { checksums, ..calm() }
}

/// The checksum of a mapping, over its bytes as RFC 8684 (figure 10) lays them out.
fn checksum(data_seq: u64, subflow_seq: u32, length: u16, payload: &[u8]) -> u16 {
    let mut bytes = Vec::new();
    bytes.extend(data_seq.to_be_bytes());
    bytes.extend(subflow_seq.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend([0; 2]);
    bytes.extend(payload);
    !(sum_of(&bytes) as u16)
}

pub(super) fn with_checksum(mut dss: Dss, payload: &[u8]) -> Dss {
    if let Some(mapping) = &mut dss.mapping {
        let DssNumber::Long(data_seq) = mapping.data_seq else { panic!("a long one is expected") };
        mapping.checksum = Some(checksum(data_seq, mapping.subflow_seq, mapping.length, payload));
    }
    dss
}

/// The mapping of the stream's own `at..at + length`, with its checksum.
fn proved(at: u64, length: u16) -> Dss {
    with_checksum(dss(at, at, length), &text(at, u32::from(length)))
}

/// A segment of `len` octets that carries the mapping.
fn under(mapping: Dss, at: u64, len: u32) -> Segment {
    with_dss(seg(at, len), mapping)
}

fn capable_with(body: MpCapableBody, required: bool) -> MptcpOptions {
    let mut options = capable(body);
    if let Some(capable) = &mut options.capable {
        capable.checksum_required = required;
    }
    options
}

fn syn_with(required: bool) -> Segment {
    with_mptcp(syn(), capable_with(MpCapableBody::Syn, required))
}

fn ack_body(data: Option<MpCapableData>) -> MpCapableBody {
    MpCapableBody::Ack { sender: PEER_KEY, receiver: OUR_KEY, data }
}

/// MP_CAPABLE that maps the first `length` octets.
fn first_data(length: u16) -> MptcpOptions {
    let checksum = checksum(peer_dsn(0), 1, length, &text(0, u32::from(length)));
    capable_with(ack_body(Some(MpCapableData { length, checksum: Some(checksum) })), true)
}

/// Established, with checksums.
pub(super) fn checked() -> Trace {
    let mut trace = Trace::listen(config(ChecksumPolicy::Accept), syn_with(true));
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), capable_with(ack_body(None), true)));
    trace.expect_events(&[Event::Established { mptcp: Some(PEER_KEY) }, Event::ChecksumsInUse]);
    assert!(trace.connection.checksums());
    trace.expect_sent(0);
    trace
}

fn data_ack_of(segment: &Segment) -> u64 {
    match segment.options.mptcp.dss.and_then(|dss| dss.ack) {
        Some(DssNumber::Long(number)) => number.wrapping_sub(peer_dsn(0)),
        _ => panic!("no DATA_ACK: {segment:?}"),
    }
}

#[test]
fn checksums_are_used_if_either_side_requires_them() {
    use ChecksumPolicy::{Accept, Refuse, Require};
    for (policy, theirs, used) in [
        (Refuse, false, Some(false)),
        (Refuse, true, None),
        (Accept, false, Some(false)),
        (Accept, true, Some(true)),
        (Require, false, Some(true)),
        (Require, true, Some(true)),
    ] {
        let mut trace = Trace::listen(config(policy), syn_with(theirs));
        let answer = trace.expect_one().options.mptcp.capable;
        assert_eq!(answer.map(|capable| capable.checksum_required), used);
        let Some(used) = used else { continue };
        trace.accept(with_mptcp(seg(0, 0), capable_with(ack_body(None), used)));
        assert!(trace.subflow.is_mptcp());
        assert_eq!(trace.connection.checksums(), used);
    }
}

#[test]
fn a_syn_sent_again_may_ask_for_checksums_or_no_longer() {
    let mut trace = Trace::listen(config(ChecksumPolicy::Accept), syn_with(true));
    trace.expect_sent(1);
    for required in [false, true] {
        trace.accept(syn_with(required));
        let answer = trace.expect_one().options.mptcp.capable;
        assert_eq!(answer.map(|capable| capable.checksum_required), Some(required));
    }
}

#[test]
fn a_third_ack_that_does_not_confirm_checksums_means_plain_tcp() {
    for used in [false, true] {
        let policy = if used { ChecksumPolicy::Require } else { ChecksumPolicy::Accept };
        let mut trace = Trace::listen(config(policy), syn_with(false));
        trace.expect_sent(1);
        trace.accept(with_mptcp(seg(0, 0), capable_with(ack_body(None), !used)));
        trace.expect_events(&[
            Event::Established { mptcp: None },
            Event::Fallback(FallbackReason::NoCapableInAck),
        ]);
    }
}

#[test]
fn a_mapping_in_one_segment_is_proved_at_once() {
    let mut trace = checked();
    trace.accept(under(proved(0, 1000), 0, 1000));
    trace.expect_stream(1000);
    trace.subflow.request_ack();
    assert_eq!(data_ack_of(&trace.expect_ack(1000)), 1000);
    assert_eq!(trace.subflow.statistics().checksum_failures, 0);
}

#[test]
fn data_is_acknowledged_at_the_data_level_only_with_its_whole_mapping() {
    let mut trace = checked();
    let mapping = proved(0, 1001);
    // Odd lengths, so that pieces begin at odd octets of the mapping.
    for (at, len) in [(0, 333), (333, 101), (434, 501)] {
        trace.accept(under(mapping, at, len));
        trace.subflow.request_ack();
        assert_eq!(data_ack_of(&trace.expect_ack(at + u64::from(len))), 0);
    }
    // The last comes without the mapping, which is known.
    trace.accept(seg(935, 66));
    trace.expect_stream(1001);
    trace.subflow.request_ack();
    assert_eq!(data_ack_of(&trace.expect_ack(1001)), 1001);
}

#[test]
fn pieces_may_come_in_any_order_and_lie_under_several_mappings() {
    let mut trace = checked();
    let (first, second) = (proved(0, 301), proved(301, 300));
    trace.accept(under(second, 350, 251));
    trace.accept(under(first, 0, 101));
    trace.accept(under(second, 301, 49));
    assert_eq!(trace.have.first(), Some(301..601));
    // Parts of both, the second again.
    trace.accept(under(first, 101, 220));
    trace.expect_stream(601);
    let ack = trace.expect_ack(601);
    assert_eq!(data_ack_of(&ack), 601);
}

#[test]
fn a_repeated_mapping_is_summed_once() {
    let mut trace = checked();
    let mapping = proved(0, 300);
    trace.accept(under(mapping, 0, 100));
    trace.refuse(under(mapping, 0, 100), DropReason::Duplicate);
    trace.accept(under(mapping, 50, 150));
    trace.accept(under(mapping, 250, 50));
    trace.accept(under(mapping, 240, 60));
    trace.accept(under(mapping, 200, 100));
    trace.expect_stream(300);
    assert_eq!(trace.subflow.statistics().checksum_failures, 0);
    trace.accept(under(proved(300, 100), 300, 100));
    trace.expect_stream(400);
}

#[test]
fn data_that_another_subflow_brought_counts_for_the_checksum() {
    let mut trace = checked();
    trace.store(0, &text(0, 500));
    trace.accept(under(proved(0, 700), 0, 300));
    trace.accept(under(proved(0, 700), 300, 400));
    trace.expect_stream(700);
}

#[test]
fn short_data_sequence_numbers_are_summed_as_long_ones() {
    let mut trace = checked();
    let mut mapping = proved(0, 100);
    if let Some(mapping) = &mut mapping.mapping {
        mapping.data_seq = DssNumber::Short(peer_dsn(0) as u32);
    }
    trace.accept(under(mapping, 0, 100));
    trace.expect_stream(100);
}

#[test]
fn first_data_with_mp_capable_has_a_checksum_too() {
    let mut trace = checked();
    trace.accept(with_mptcp(seg(0, 100), first_data(200)));
    trace.expect_stream(0);
    trace.accept(with_mptcp(seg(100, 100), first_data(200)));
    trace.expect_stream(200);
}

#[test]
fn first_data_may_grow_before_it_is_sent_again_with_checksums_too() {
    // Nothing of the longer one had come.
    let mut trace = checked();
    trace.accept(with_mptcp(seg(0, 50), first_data(100)));
    trace.accept(with_mptcp(seg(50, 250), first_data(300)));
    trace.expect_stream(300);
    // All of the shorter one had, and was proved.
    let mut trace = checked();
    trace.accept(with_mptcp(seg(0, 101), first_data(101)));
    trace.expect_stream(101);
    trace.accept(with_mptcp(seg(0, 300), first_data(300)));
    trace.expect_stream(300);
    // The shorter one is late.
    trace.accept(under(proved(300, 100), 300, 100));
    trace.refuse(with_mptcp(seg(0, 101), first_data(101)), DropReason::Duplicate);
    trace.expect_stream(400);
    assert_eq!(trace.subflow.statistics().checksum_failures, 0);
}

#[test]
fn a_mapping_without_the_checksum_agreed_on_or_with_one_not_agreed_on_is_fatal() {
    let broken = |mut trace: Trace, segment| {
        trace.refuse(segment, DropReason::UnexpectedChecksum);
        let cause = ResetCause::Violation(ResetReason::MptcpSpecific);
        assert!(trace.events.contains(&Event::Reset(cause)));
        let reset = trace.expect_one().options.mptcp.reset;
        assert_eq!(reset, Some(MpReset { flags: 0, reason: 1 }));
    };
    broken(checked(), mapped(0, 100));
    broken(checked(), data_fin(0, 0));
    let unsummed = ack_body(Some(MpCapableData { length: 100, checksum: None }));
    broken(checked(), with_mptcp(seg(0, 100), capable_with(unsummed, true)));
    let mut half_open = Trace::listen(config(ChecksumPolicy::Accept), syn_with(true));
    half_open.expect_sent(1);
    broken(half_open, with_mptcp(seg(0, 100), capable_with(unsummed, true)));
    broken(Trace::mptcp(), under(proved(0, 100), 0, 100));
    broken(Trace::mptcp(), with_mptcp(seg(0, 100), first_data(100)));
}

#[test]
fn another_checksum_for_a_mapping_is_fatal() {
    let mut trace = checked();
    trace.accept(under(proved(0, 200), 0, 100));
    let other = with_checksum(dss(0, 0, 200), b"something else");
    trace.refuse(under(other, 100, 100), DropReason::MappingConflict);
    trace.expect_state(State::Closed);
    trace.expect_stream(0);
}

#[test]
fn a_mapping_that_overlaps_one_that_is_proved_is_fatal() {
    let mut trace = checked();
    trace.accept(under(proved(100, 100), 100, 100));
    trace.refuse(under(proved(50, 100), 50, 50), DropReason::MappingConflict);
    trace.expect_state(State::Closed);
}

#[test]
fn a_mapping_that_overlaps_others_that_are_not_complete_is_fatal() {
    // One grows over the next.
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 50));
    trace.accept(under(proved(100, 100), 100, 50));
    trace.refuse(under(proved(0, 150), 50, 50), DropReason::MappingConflict);
    // One begins among what came, and goes on beyond.
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    trace.accept(under(proved(300, 100), 300, 100));
    trace.refuse(under(proved(50, 100), 100, 50), DropReason::MappingConflict);
}

#[test]
fn mappings_repeated_ahead_of_a_gap_take_no_room() {
    let mut trace = checked();
    for n in 1..=crate::subflow::sums::LIMIT as u64 + 1 {
        let segment = under(proved(n * 10, 10), n * 10, 10);
        trace.accept(segment);
        trace.refuse(segment, DropReason::Duplicate);
    }
}

#[test]
fn a_mapping_may_grow_ahead_of_one_that_is_not_complete() {
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 50));
    trace.accept(under(proved(100, 101), 100, 101));
    assert_eq!(trace.have.last(), Some(100..201));
    trace.accept(under(proved(100, 150), 201, 49));
    trace.accept(seg(50, 50));
    trace.expect_stream(250);
}

#[test]
fn more_mappings_than_are_kept_are_refused_but_never_the_next() {
    let mut trace = checked();
    let limit = crate::subflow::sums::LIMIT as u64;
    // Each lacks its first octet, so none is proved. The gaps that are kept are as many.
    for n in 1..=limit {
        trace.accept(under(proved(n * 10, 10), n * 10 + 1, 9));
    }
    let far = limit * 10 + 10;
    trace.refuse(under(proved(far, 10), far, 10), DropReason::ReorderFull);
    trace.accept(under(proved(0, 10), 0, 10));
    trace.expect_stream(10);
    trace.accept(seg(10, 1));
    trace.expect_stream(20);
    trace.accept(under(proved(far, 10), far, 10));
}

/// The mapping of the DATA_FIN alone of a stream of `at` octets.
fn bare_fin(at: u64) -> Dss {
    let mut fin = dss(0, at, 1);
    fin.data_fin = true;
    if let Some(mapping) = &mut fin.mapping {
        mapping.subflow_seq = 0;
    }
    with_checksum(fin, &[])
}

#[test]
fn the_checksum_of_a_data_fin_alone_covers_the_pseudo_header() {
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    trace.accept(with_dss(seg(100, 0), bare_fin(100)));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(100) }]);
    assert_eq!(data_ack_of(&trace.expect_ack(100)), 101);
}

#[test]
fn a_data_fin_counts_only_once_its_mapping_is_proved() {
    let mut fin = dss(0, 0, 101);
    fin.data_fin = true;
    let fin = with_checksum(fin, &text(0, 100));
    let mut trace = checked();
    trace.accept(under(fin, 0, 50));
    trace.expect_events(&[]);
    trace.accept(under(fin, 50, 50));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(100) }]);
    trace.subflow.request_ack();
    assert_eq!(data_ack_of(&trace.expect_ack(100)), 101);

    // Sent again, the last mapping has the DATA_FIN that it lacked the first time.
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 50));
    trace.accept(under(fin, 0, 100));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(100) }]);
    trace.expect_stream(100);
}

#[test]
fn a_mapping_with_data_fin_on_a_segment_without_its_payload_counts() {
    // As of a peer that repeats its last mapping with the FIN. The payload was proved before.
    let mut fin_mapping = dss(0, 0, 101);
    fin_mapping.data_fin = true;
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    let last = with_dss(seg(100, 0), with_checksum(fin_mapping, &text(0, 100)));
    trace.accept(fin(last));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(100) }, Event::SubflowFin]);
}

#[test]
fn our_data_fin_has_a_checksum() {
    let mut trace = checked();
    trace.connection.shutdown_write(StreamOffset(0));
    let mapping = trace.expect_one().options.mptcp.dss.and_then(|dss| dss.mapping);
    let expected = DssMapping {
        data_seq: DssNumber::Long(our_dsn(0)),
        subflow_seq: 0,
        length: 1,
        checksum: Some(checksum(our_dsn(0), 0, 1, &[])),
    };
    assert_eq!(mapping, Some(expected));
}

/// The stream's `at..at + len` with an octet changed on the way.
fn damaged(at: u64, len: u32) -> Vec<u8> {
    let mut bytes = text(at, len);
    bytes[len as usize / 2] ^= 0x20;
    bytes
}

/// The first 100 octets come well, the next 100 do not.
fn failed() -> Trace {
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    trace.expect_sent(0);
    let segment = under(proved(100, 100), 100, 100);
    assert_eq!(trace.recv_bytes(segment, &damaged(100, 100)), Disposition::Accepted);
    trace.expect_events(&[Event::ChecksumFailed { at: StreamOffset(100), falling_back: true }]);
    let ack = trace.expect_ack(200);
    assert_eq!(ack.options.mptcp.fail, Some(peer_dsn(100)));
    assert_eq!(data_ack_of(&ack), 100);
    trace
}

#[test]
fn a_failed_checksum_on_the_only_subflow_is_told_by_mp_fail_until_it_is_answered() {
    let mut trace = failed();
    assert_eq!(trace.subflow.statistics().checksum_failures, 1);
    // What comes behind it is held, whatever it claims, and not acknowledged at the data level.
    trace.accept(under(proved(200, 100), 200, 100));
    trace.accept(seg(300, 50));
    let ack = trace.expect_ack(350);
    assert_eq!((data_ack_of(&ack), ack.options.mptcp.fail), (100, Some(peer_dsn(100))));
    trace.expect_stream(100);
    // The peer agrees: from the failed mapping on the stream is what came.
    let answer = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(with_mptcp(seg(350, 0), answer));
    trace.expect_events(&[Event::Fallback(FallbackReason::ChecksumFailed)]);
    assert_eq!(trace.edge(), 350);
    assert_eq!(trace.stream[100..200], damaged(100, 100));
    expect_data_ack_only(&mut trace, 350);
    assert_eq!(trace.subflow.next_timeout(), None);
    // Also if there never is an infinite mapping.
    trace.accept(seg(350, 50));
    trace.accept(fin(seg(400, 0)));
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(400) }]);
}

/// An acknowledgement of so much, at both levels, that says nothing else.
fn expect_data_ack_only(trace: &mut Trace, taken: u64) {
    trace.subflow.request_ack();
    let ack = trace.expect_ack(taken);
    let only = Dss { ack: Some(DssNumber::Long(peer_dsn(taken))), ..Default::default() };
    assert_eq!(ack.options.mptcp, MptcpOptions { dss: Some(only), ..Default::default() });
}

/// The peer has answered MP_FAIL, and has sent nothing since.
fn agreed() -> Trace {
    let mut trace = failed();
    let answer = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(with_mptcp(seg(200, 0), answer));
    trace.expect_events(&[Event::Fallback(FallbackReason::ChecksumFailed)]);
    assert_eq!(trace.edge(), 200);
    expect_data_ack_only(&mut trace, 200);
    trace
}

/// It falls back with its next data only, and sends data again that has no DATA_ACK.
#[test]
fn a_peer_that_answered_mp_fail_gets_data_acks_until_it_falls_back() {
    let mut trace = agreed();
    // What was under way has its mapping still, which proves nothing.
    let segment = under(proved(200, 100), 200, 100);
    assert_eq!(trace.recv_bytes(segment, &damaged(200, 100)), Disposition::Accepted);
    expect_data_ack_only(&mut trace, 300);
    // It answers each MP_FAIL that it hears.
    let answer = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(with_mptcp(seg(300, 0), answer));
    trace.expect_events(&[]);
    trace.accept(with_dss(seg(300, 100), dss(300, 300, 0)));
    assert!(!trace.subflow.is_mptcp());
    assert_eq!(trace.edge(), 400);
    trace.accept(seg(400, 100));
    assert_eq!(trace.expect_ack(500).options.mptcp, MptcpOptions::default());
    trace.accept(fin(seg(500, 0)));
    trace.expect_events(&[Event::StreamEnd { at: StreamOffset(500) }]);
}

/// If it has no more data, it does not fall back at all.
#[test]
fn a_peer_that_answered_mp_fail_may_end_its_stream_by_data_fin() {
    let mut trace = agreed();
    trace.accept(with_dss(seg(200, 0), bare_fin(200)));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(200) }]);
    assert_eq!(data_ack_of(&trace.expect_ack(200)), 201);
    trace.connection.shutdown_write(StreamOffset(0));
    let dss = trace.expect_ack(200).options.mptcp.dss.expect("DATA_FIN");
    assert!(dss.data_fin && dss.mapping.is_some_and(|mapping| mapping.checksum.is_some()));
}

/// The TSval of an acknowledgement of all that came.
fn stamp_of_ack(trace: &mut Trace) -> u32 {
    trace.subflow.request_ack();
    let sent = trace.sent();
    let ack = sent.last().expect("an acknowledgement");
    ack.options.timestamps.expect("they are in use").value
}

/// Linux has no room for MP_FAIL beside the DATA_FIN, and sends nothing else any more.
#[test]
fn a_data_fin_that_answers_mp_fail_agrees_to_it() {
    let checked = |answers: bool, position: u64, at: u64| {
        let mut trace = checked();
        trace.accept(under(proved(0, 100), 0, 100));
        let before = stamp_of_ack(&mut trace);
        let segment = under(proved(100, 100), 100, 100);
        assert_eq!(trace.recv_bytes(segment, &damaged(100, 100)), Disposition::Accepted);
        trace.expect_events(&[Event::ChecksumFailed { at: StreamOffset(100), falling_back: true }]);
        let told = stamp_of_ack(&mut trace);
        // Nothing before has its timestamp, though they went out in the same millisecond.
        assert!(told.wrapping_sub(before) as i32 > 0);
        let echo = if answers { told } else { before };
        let mut end = with_dss(seg(position, 0), bare_fin(at));
        end.options.timestamps = Some(Timestamps { value: 102, echo });
        let _ = trace.recv(end);
        trace
    };
    let mut trace = checked(true, 200, 200);
    trace.expect_events(&[
        Event::Fallback(FallbackReason::ChecksumFailed),
        Event::DataFin { at: StreamOffset(200) },
    ]);
    assert_eq!(trace.edge(), 200);
    assert_eq!(data_ack_of(&trace.expect_ack(200)), 201);
    // One that was under way says nothing, nor does one with data missing before it, nor one of a
    // stream that is not as long as what came.
    for (answers, position, at) in [(false, 200, 200), (true, 300, 300), (true, 200, 190)] {
        let mut trace = checked(answers, position, at);
        trace.expect_events(&[]);
        assert_eq!(trace.edge(), 100);
    }
}

/// It had no DATA_ACK for too long: what it sends now is no part of the stream, though it thinks so.
#[test]
fn data_that_comes_again_as_new_after_the_answer_ends_the_connection() {
    for length in [0, 100] {
        let mut trace = agreed();
        let again = with_checksum(dss(200, 100, length), &text(100, 100));
        let again = if length == 0 { dss(200, 100, 0) } else { again };
        let _ = trace.recv(with_dss(seg(200, 100), again));
        let resets = |event: &Event| matches!(event, Event::Reset(ResetCause::Violation(_)));
        assert!(trace.events.iter().any(resets), "{length}: {:?}", trace.events);
        assert!(trace.expect_one().flags.contains(Flags::RST));
        assert_eq!(trace.edge(), 200);
    }
}

#[test]
fn mp_fail_and_our_data_fin_take_a_segment_each() {
    let mut trace = failed();
    trace.connection.shutdown_write(StreamOffset(0));
    let sent = trace.sent();
    let [end, fail] = &sent[..] else { panic!("{sent:?}") };
    assert!(end.options.mptcp.dss.expect("it is there").data_fin);
    assert_eq!(end.options.mptcp.fail, None);
    assert!(fail.options.mptcp.fail.is_some());
}

#[test]
fn an_infinite_mapping_answers_mp_fail_too() {
    let mut trace = failed();
    let infinite = Dss { ack: Some(DssNumber::Long(our_dsn(0))), ..dss(100, 100, 0) };
    trace.accept(with_dss(seg(200, 100), infinite));
    trace.expect_events(&[Event::Fallback(FallbackReason::ChecksumFailed)]);
    assert_eq!(trace.edge(), 300);
    assert_eq!(trace.stream[100..200], damaged(100, 100));
}

#[test]
fn payload_that_a_middlebox_made_longer_passes_after_the_fallback() {
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    // Ten octets more than the peer sent: its mappings are no longer where its data is.
    let first = [&text(100, 50)[..], b"0123456789", &text(150, 40)].concat();
    let segment = under(proved(100, 100), 100, 100);
    assert_eq!(trace.recv_bytes(segment, &first), Disposition::Accepted);
    let rest = under(proved(200, 100), 200, 110);
    let _ = trace.recv_bytes(rest, &text(190, 110));
    trace.expect_events(&[Event::ChecksumFailed { at: StreamOffset(100), falling_back: true }]);
    trace.expect_ack(310);
    // The peer's numbers are ten less than ours.
    trace.accept(with_dss(seg(310, 20), dss(300, 300, 0)));
    trace.expect_events(&[Event::Fallback(FallbackReason::ChecksumFailed)]);
    assert_eq!(trace.edge(), 330);
    assert_eq!(trace.stream[150..160], *b"0123456789");
}

#[test]
fn data_before_the_failed_mapping_still_has_to_be_proved() {
    let mut trace = checked();
    let segment = under(proved(100, 100), 100, 100);
    assert_eq!(trace.recv_bytes(segment, &damaged(100, 100)), Disposition::Accepted);
    trace.accept(under(proved(0, 100), 0, 60));
    trace.expect_stream(0);
    trace.accept(under(proved(0, 100), 60, 40));
    trace.expect_stream(100);
    assert_eq!(data_ack_of(&trace.expect_ack(200)), 100);
}

#[test]
fn nothing_behind_the_failed_mapping_is_proved_any_more() {
    // The sum of a later mapping comes after the failure of an earlier one.
    let mut trace = checked();
    let view = trace.view();
    let mut later = Vec::new();
    let segment = under(proved(100, 100), 100, 100);
    let _ = trace.subflow.on_segment(trace.now, &segment, &view, &mut later);
    let first = under(proved(0, 100), 0, 100);
    assert_eq!(trace.recv_bytes(first, &damaged(0, 100)), Disposition::Accepted);
    let sum = sum_of(&text(100, 100));
    assert_eq!(trace.subflow.on_payload_sum(trace.now, &later[0], sum, &view), None);
    trace.expect_events(&[Event::ChecksumFailed { at: StreamOffset(0), falling_back: true }]);
    assert_eq!(data_ack_of(&trace.expect_ack(200)), 0);
}

#[test]
fn an_mp_fail_that_is_not_answered_ends_the_subflow() {
    let mut trace = failed();
    trace.accept(under(proved(200, 100), 200, 100));
    trace.pass(Duration::from_secs(30));
    let cause = ResetCause::Violation(ResetReason::Middlebox);
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    let reset = trace.expect_one().options.mptcp.reset;
    assert_eq!(reset, Some(MpReset { flags: 0, reason: 6 }));
    trace.expect_stream(100);
}

#[test]
fn a_data_fin_behind_a_failed_mapping_is_not_believed() {
    let mut trace = failed();
    trace.accept(with_dss(seg(200, 0), bare_fin(200)));
    trace.expect_events(&[]);
    let answer = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(with_mptcp(seg(200, 0), answer));
    trace.accept(fin(seg(200, 0)));
    trace.expect_events(&[
        Event::Fallback(FallbackReason::ChecksumFailed),
        Event::StreamEnd { at: StreamOffset(200) },
    ]);
}

#[test]
fn a_wrong_checksum_of_a_data_fin_is_a_failure_as_any() {
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    let mut wrong = bare_fin(100);
    if let Some(mapping) = &mut wrong.mapping {
        mapping.checksum = mapping.checksum.map(|checksum| checksum ^ 1);
    }
    trace.accept(with_dss(seg(100, 0), wrong));
    trace.expect_events(&[Event::ChecksumFailed { at: StreamOffset(100), falling_back: true }]);
    assert_eq!(trace.expect_ack(100).options.mptcp.fail, Some(peer_dsn(100)));
}

/// The subflow is reset with MP_FAIL for `at`.
fn expect_failed_reset(trace: &mut Trace, at: u64) {
    trace.expect_events(&[
        Event::ChecksumFailed { at: StreamOffset(at), falling_back: false },
        Event::Reset(ResetCause::Violation(ResetReason::Middlebox)),
        Event::Closed,
    ]);
    let reset = trace.expect_one();
    assert!(reset.flags.contains(Flags::RST));
    let expected = MptcpOptions {
        fail: Some(peer_dsn(at)),
        reset: Some(MpReset { flags: 0, reason: 6 }),
        ..Default::default()
    };
    assert_eq!(reset.options.mptcp, expected);
}

#[test]
fn a_failed_checksum_among_several_subflows_ends_this_one() {
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    trace.connection.joined();
    let segment = under(proved(100, 100), 100, 100);
    assert_eq!(trace.recv_bytes(segment, &damaged(100, 100)), Disposition::Accepted);
    expect_failed_reset(&mut trace, 100);
    trace.expect_stream(100);
    // The others go on.
    assert!(trace.connection.accepts_joins(&View::initial(0)).is_ok());
}

#[test]
fn a_failed_checksum_on_data_that_is_not_contiguous_ends_the_subflow() {
    let mut trace = checked();
    trace.accept(under(proved(0, 100), 0, 100));
    // Sent again by the peer, as it does when another subflow was lost.
    let again = with_checksum(dss(100, 50, 50), &text(50, 50));
    assert_eq!(trace.recv_at(under(again, 100, 50), 50), Disposition::Accepted);
    let wrong = with_checksum(dss(150, 100, 50), &text(100, 50));
    assert_eq!(trace.recv_bytes(under(wrong, 150, 50), &damaged(100, 50)), Disposition::Accepted);
    expect_failed_reset(&mut trace, 100);
}

#[test]
fn a_sum_that_comes_after_the_fallback_proves_nothing_but_releases() {
    let mut trace = checked();
    let mut placements = Vec::new();
    let view = trace.view();
    let data = under(proved(0, 200), 0, 100);
    let _ = trace.subflow.on_segment(trace.now, &data, &view, &mut placements);
    trace.accept(with_dss(seg(100, 100), dss(0, 0, 0)));
    let verdict = trace.subflow.on_payload_sum(trace.now, &placements[0], 0, &view);
    assert_eq!(verdict, placements[0].mapping.map(Verdict::Proved));
}

proptest! {
    /// Mappings of any length in segments of any length, some of which come late or again.
    #[test]
    fn any_stream_is_proved_and_a_changed_octet_is_found(
        mappings in prop::collection::vec(1..400_u16, 1..12),
        segments in prop::collection::vec(1..300_u32, 1..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
        change in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let len: u64 = mappings.iter().copied().map(u64::from).sum();
        let mut chunks = Vec::new();
        let mut at = 0;
        for length in mappings {
            chunks.push((at, proved(at, length)));
            at += u64::from(length);
        }
        let mut cuts = Vec::new();
        let (mut at, mut lens) = (0, segments.iter().cycle());
        while at < len {
            let cut = u64::from(*lens.next().expect("it is a cycle")).min(len - at);
            cuts.push((at, cut));
            at += cut;
        }
        let changed = change.map(|index| index.index(len as usize) as u64);
        let mut trace = checked();
        let some = order.iter().map(|index| index.index(cuts.len()));
        for cut in some.chain(0..cuts.len()).collect::<Vec<_>>() {
            let (at, len) = cuts[cut];
            let mut payload = text(at, len as u32);
            if let Some(octet) = changed.filter(|octet| (at..at + len).contains(octet)) {
                payload[(octet - at) as usize] ^= 1;
            }
            // All mappings that the segment lies under, each in a copy of its own.
            for (_, mapping) in chunks.iter().filter(|(start, mapping)| {
                let end = start + mapping.mapping.map_or(0, |mapping| u64::from(mapping.length));
                *start < at + len && at < end
            }) {
                let _ = trace.recv_bytes(under(*mapping, at, len as u32), &payload);
            }
        }
        let failures = trace.subflow.statistics().checksum_failures;
        match changed {
            None => {
                prop_assert_eq!(failures, 0);
                prop_assert_eq!(trace.edge(), len);
                trace.expect_stream(len);
            }
            Some(octet) => {
                prop_assert_eq!(failures, 1);
                // Up to the mapping that failed, everything is right; beyond, nothing is told.
                let start = chunks.iter().map(|&(start, _)| start).rfind(|&start| start <= octet);
                prop_assert_eq!(Some(trace.edge()), start);
                trace.expect_stream(trace.edge());
            }
        }
    }
}
