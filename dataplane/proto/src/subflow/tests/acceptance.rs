//! Which segments count: the window, PAWS, RFC 5961.

use super::*;

fn stamped(segment: Segment, value: u32) -> Segment {
    let timestamps = Some(Timestamps { value, echo: 0 });
    Segment { options: Options { timestamps, ..segment.options }, ..segment }
}

fn rst(at: i64) -> Segment {
    Segment { flags: Flags::RST, seq: PEER + 1 + at as u32, ..Default::default() }
}

#[test]
fn a_reset_at_the_left_edge_counts() {
    let mut trace = Trace::plain();
    trace.accept(seg(0, 100));
    trace.accept(rst(100));
    let cause = ResetCause::Peer { reason: None };
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    trace.expect_sent(0);
    trace.refuse(seg(100, 10), DropReason::Closed);
}

#[test]
fn the_reason_of_a_reset_is_told() {
    let mut trace = Trace::mptcp();
    let mut reset = rst(0);
    reset.options.mptcp.reset = Some(MpReset { flags: 1, reason: 2 });
    trace.accept(reset);
    let cause = ResetCause::Peer { reason: Some(2) };
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
}

#[test]
fn a_reset_elsewhere_in_the_window_is_challenged_and_outside_ignored() {
    let mut trace = Trace::plain();
    trace.refuse(rst(1), DropReason::RstChallenged);
    trace.expect_ack(0);
    trace.refuse(rst(-1), DropReason::OutOfWindow);
    trace.refuse(rst(CAPACITY as i64), DropReason::OutOfWindow);
    trace.expect_sent(0);
    trace.expect_state(State::Established);
    trace.expect_events(&[]);
}

#[test]
fn a_reset_with_the_sequence_number_of_the_fin_counts() {
    let mut trace = Trace::plain();
    trace.accept(fin(seg(0, 0)));
    trace.accept(rst(0));
    trace.expect_state(State::Closed);
}

#[test]
fn a_syn_on_an_established_subflow_is_challenged() {
    let mut trace = Trace::plain();
    trace.refuse(Segment { flags: Flags::SYN, ..seg(500, 0) }, DropReason::SynChallenged);
    trace.expect_ack(0);
    // A late copy of the first one lies before the window; it is acknowledged as such.
    trace.refuse(plain_syn(), DropReason::Paws);
    trace.expect_ack(0);
    trace.expect_state(State::Established);
}

#[test]
fn challenges_are_limited_by_the_second() {
    let mut trace = Trace::plain();
    for n in 0..30 {
        trace.refuse(rst(1), DropReason::RstChallenged);
        trace.expect_sent(usize::from(n < 10));
    }
    assert_eq!(trace.subflow.statistics().challenge_acks, 10);
    trace.pass(ms(1000));
    trace.refuse(rst(1), DropReason::RstChallenged);
    trace.expect_sent(1);
}

#[test]
fn an_acknowledgement_of_the_future_or_the_far_past_is_challenged() {
    let mut trace = Trace::plain();
    trace.refuse(Segment { ack: OURS + 2, ..seg(0, 10) }, DropReason::AckUnsent);
    trace.expect_ack(0);
    let old = OURS + 1 - (u32::from(u16::MAX) << 7);
    trace.refuse(Segment { ack: old, ..seg(0, 10) }, DropReason::AckTooOld);
    trace.expect_ack(0);
    trace.refuse(Segment { flags: Flags::PSH, ..seg(0, 10) }, DropReason::NoAck);
    trace.expect_sent(0);
    trace.expect_stream(0);
}

#[test]
fn an_acknowledgement_within_the_largest_window_we_had_is_taken() {
    let mut trace = Trace::plain();
    trace.accept(Segment { ack: OURS - 1000, ..seg(0, 10) });
    trace.expect_stream(10);
}

#[test]
fn an_older_timestamp_is_refused_and_acknowledged() {
    let mut trace = Trace::plain();
    trace.accept(stamped(seg(0, 10), 200));
    trace.subflow.request_ack();
    trace.expect_ack(10);
    trace.refuse(stamped(seg(10, 10), 199), DropReason::Paws);
    let ack = trace.expect_ack(10);
    assert_eq!(ack.options.timestamps.map(|t| t.echo), Some(200));
    trace.accept(stamped(seg(10, 10), 200));
    trace.expect_stream(20);
}

#[test]
fn timestamps_compare_on_the_circle() {
    let mut syn = plain_syn();
    syn.options.timestamps = Some(Timestamps { value: u32::MAX - 1, echo: 0 });
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    trace.accept(stamped(seg(0, 10), 3));
    trace.refuse(stamped(seg(10, 10), u32::MAX), DropReason::Paws);
    trace.expect_stream(10);
}

#[test]
fn a_timestamp_of_24_days_ago_is_forgotten() {
    let mut trace = Trace::plain();
    trace.accept(stamped(seg(0, 10), 200));
    trace.pass(Duration::from_secs(25 * 24 * 3600));
    trace.accept(stamped(seg(10, 10), 100));
    trace.expect_stream(20);
}

#[test]
fn a_timestamp_ahead_of_a_gap_is_not_echoed() {
    let mut trace = Trace::plain();
    trace.accept(stamped(seg(0, 10), 200));
    trace.subflow.request_ack();
    trace.expect_ack(10);
    trace.accept(stamped(seg(20, 10), 300));
    // RFC 7323, section 4.3 (B): it is the last in-order segment that is echoed.
    assert_eq!(trace.expect_ack(10).options.timestamps.map(|t| t.echo), Some(200));
    trace.accept(stamped(seg(10, 10), 301));
    assert_eq!(trace.expect_ack(30).options.timestamps.map(|t| t.echo), Some(301));
}

#[test]
fn the_first_timestamp_since_the_last_acknowledgement_is_echoed() {
    let mut trace = Trace::plain();
    trace.accept(stamped(seg(0, 10), 200));
    trace.accept(stamped(seg(10, 10), 210));
    assert_eq!(trace.expect_ack(20).options.timestamps.map(|t| t.echo), Some(200));
}

#[test]
fn a_segment_without_timestamps_is_taken() {
    let mut trace = Trace::plain();
    trace.accept(Segment { options: Options::default(), ..seg(0, 10) });
    trace.expect_stream(10);
}

#[test]
fn a_reset_needs_no_timestamp() {
    let mut trace = Trace::plain();
    trace.accept(stamped(rst(0), 1));
    trace.expect_state(State::Closed);
}

#[test]
fn payload_before_the_window_is_acknowledged_again() {
    let mut trace = Trace::plain();
    trace.accept(seg(0, 100));
    trace.expect_sent(0);
    trace.refuse(seg(0, 100), DropReason::Duplicate);
    trace.expect_ack(100);
    trace.expect_stream(100);
    assert_eq!(trace.subflow.statistics().duplicate_bytes, 100);
}

#[test]
fn payload_beyond_the_window_is_not_taken_but_acknowledged() {
    let mut trace = Trace::plain();
    trace.refuse(seg(CAPACITY, 100), DropReason::OutOfWindow);
    trace.expect_ack(0);
    // Of a segment across the edge, what fits is taken.
    trace.accept(seg(CAPACITY - 50, 100));
    trace.expect_one();
    assert_eq!(trace.have.last(), Some(CAPACITY - 50..CAPACITY));
}

#[test]
fn a_keepalive_is_answered() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.subflow.request_ack();
    trace.expect_ack(100);
    trace.refuse(Segment { seq: PEER + 100, ..seg(0, 0) }, DropReason::OutOfWindow);
    trace.expect_ack(100);
    // Some send an octet with it.
    let probe = Segment { seq: PEER + 100, payload_len: 1, ..seg(0, 0) };
    assert_eq!(trace.recv_bytes(probe, &[0]), Disposition::Dropped(DropReason::Duplicate));
    trace.expect_ack(100);
    trace.expect_stream(100);
}

#[test]
fn a_probe_of_the_zero_window_is_answered_and_not_taken() {
    let mut trace = Trace::mptcp_with_capacity(1000);
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    assert_eq!(trace.expect_ack(1000).window, 0);
    trace.refuse(mapped(1000, 1), DropReason::BeyondWindow);
    assert_eq!(trace.expect_ack(1000).window, 0);
    // Linux probes with the sequence number before the edge.
    trace.refuse(Segment { seq: PEER + 1000, ..seg(0, 0) }, DropReason::OutOfWindow);
    trace.expect_ack(1000);
    // The reader goes on.
    trace.read();
    trace.accept(mapped(1000, 1));
    trace.expect_stream(1001);
}

#[test]
fn an_empty_segment_that_data_overtook_is_taken() {
    let mut trace = Trace::plain();
    trace.accept(seg(0, 100));
    trace.accept(seg(0, 0));
    trace.expect_sent(0);
}

#[test]
fn sequence_numbers_may_wrap_anywhere() {
    let mut trace = Trace::plain();
    for at in (0..4000).step_by(100) {
        trace.accept(seg(at, 100));
    }
    trace.expect_stream(4000);
    trace.expect_ack(4000);
}

#[test]
fn idle_subflows_are_probed_if_told_so_and_given_up() {
    let keepalive = crate::config::Keepalive { idle: ms(10_000), interval: ms(1000), probes: 2 };
    let config = Config { keepalive: Some(keepalive), ..calm() };
    let mut trace = Trace::listen(config, syn());
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
    trace.pass(ms(6000));
    trace.accept(mapped(0, 10));
    trace.subflow.request_ack();
    trace.expect_sent(1);
    // What came meanwhile counts.
    assert_eq!(trace.pass_to_timer(), ms(4000));
    trace.expect_sent(0);
    assert_eq!(trace.pass_to_timer(), ms(6000));
    let probe = trace.expect_one();
    assert_eq!((probe.seq, probe.ack, probe.flags), (OURS, PEER + 11, Flags::ACK));
    // An answer starts it anew.
    trace.accept(seg(10, 0));
    assert_eq!(trace.pass_to_timer(), ms(1000));
    trace.expect_sent(0);
    assert_eq!(trace.pass_to_timer(), ms(9000));
    trace.expect_sent(1);
    assert_eq!(trace.pass_to_timer(), ms(1000));
    trace.expect_sent(1);
    trace.events.clear();
    assert_eq!(trace.pass_to_timer(), ms(1000));
    let local = Event::Reset(ResetCause::Local);
    trace.expect_events(&[Event::TimedOut, local, Event::Closed]);
    assert!(trace.expect_one().flags.contains(Flags::RST));
}

#[test]
fn the_round_trip_is_measured_by_echoes_that_say_more_than_the_handshake() {
    let mut trace = Trace::with_syn(plain_syn());
    trace.expect_sent(1);
    trace.pass(Duration::from_micros(100));
    trace.accept(seg(0, 0));
    let echo = |at, echo| {
        let timestamps = Some(Timestamps { value: 101, echo });
        let segment = seg(at, 10);
        Segment { options: Options { timestamps, ..segment.options }, ..segment }
    };
    trace.accept(echo(0, 1000));
    assert_eq!(trace.subflow.round_trip(), Some(Duration::from_micros(100)));
    trace.pass(ms(80));
    trace.accept(echo(10, 1001));
    let smoothed = trace.subflow.round_trip().expect("there are samples");
    assert_eq!(smoothed, (Duration::from_micros(100) * 7 + ms(79)) / 8);
    // The same echo again is no further sample; nor is one from before the connection.
    trace.accept(echo(20, 1001));
    trace.accept(echo(30, 0x8000_0000));
    assert_eq!(trace.subflow.round_trip(), Some(smoothed));
}
