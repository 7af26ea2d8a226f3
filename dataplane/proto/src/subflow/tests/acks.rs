//! When acknowledgements go out, and the window in them.

use super::*;

#[test]
fn a_burst_has_one_acknowledgement() {
    let mut trace = Trace::mptcp();
    for n in 0..64 {
        trace.accept(mapped(n * 1000, 1000));
    }
    let ack = trace.expect_ack(64_000);
    let dss = ack.options.mptcp.dss.expect("a DATA_ACK is on every acknowledgement");
    assert_eq!(dss, Dss { ack: Some(DssNumber::Long(peer_dsn(64_000))), ..Default::default() });
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn a_lone_segment_waits_for_the_second_or_the_timer() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 1000));
    trace.expect_sent(0);
    assert_eq!(trace.pass_to_timer(), ms(40));
    trace.expect_ack(1000);
    trace.accept(mapped(1000, 1000));
    trace.expect_sent(0);
    trace.accept(mapped(2000, 1000));
    trace.expect_ack(3000);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn the_delay_counts_from_the_first_segment() {
    let mut trace = Trace::plain();
    trace.accept(seg(0, 10));
    trace.pass(ms(39));
    trace.expect_sent(0);
    trace.pass(ms(1));
    trace.expect_ack(10);
}

#[test]
fn the_first_segments_are_acknowledged_at_once() {
    let mut trace = Trace::listen(Config::default(), plain_syn());
    trace.expect_sent(1);
    trace.accept(seg(0, 0));
    for n in 0..16 {
        trace.accept(seg(n * 10, 10));
        trace.expect_ack(n * 10 + 10);
    }
    trace.accept(seg(160, 10));
    trace.expect_sent(0);
}

#[test]
fn a_pure_acknowledgement_is_not_acknowledged() {
    let mut trace = Trace::mptcp();
    trace.accept(seg(0, 0));
    trace.accept(data_ack(seg(0, 0), our_dsn(0)));
    trace.expect_sent(0);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn an_acknowledgement_can_be_asked_for() {
    let mut trace = Trace::mptcp();
    trace.subflow.request_ack();
    trace.expect_ack(0);
    trace.expect_sent(0);
}

#[test]
fn the_window_is_what_the_connection_has_room_for() {
    let mut trace = Trace::mptcp();
    let scale = Config::scale_for(16 << 20).shift();
    for n in 1..=16 {
        trace.accept(mapped((n - 1) * 1000, 1000));
        trace.subflow.request_ack();
        let ack = trace.expect_ack(n * 1000);
        assert_eq!(u64::from(ack.window), (CAPACITY - n * 1000) >> scale);
    }
}

#[test]
fn the_window_told_never_lies_beyond_the_right_edge_and_what_was_told_is_honoured() {
    // With a unit of some hundred octets and segments of 100, the edge that the field can tell
    // differs from one acknowledgement to the next.
    let mut trace = Trace::mptcp_with_capacity(10_000);
    let scale = Config::scale_for(16 << 20).shift();
    let mut highest = 0;
    let mut at = 0;
    while at + 100 <= highest || at == 0 {
        trace.accept(mapped(at, 100));
        at += 100;
        trace.subflow.request_ack();
        let told = at + (u64::from(trace.expect_ack(at).window) << scale);
        assert!(told <= 10_000, "there is no room for what was told");
        assert!(
            told + (1 << scale) > highest,
            "the edge moved back by more than the field's grain"
        );
        highest = highest.max(told);
    }
    // The peer may use the highest edge it ever saw.
    assert!(highest >= 9_800);
    trace.expect_stream(at);
}

#[test]
fn reopening_the_window_is_worth_telling_once_it_doubles() {
    let mut trace = Trace::mptcp_with_capacity(100_000);
    for n in 0..60 {
        trace.accept(mapped(n * 1000, 1000));
    }
    trace.expect_ack(60_000);
    // 40000 octets are left, as far as the field can tell; the reader makes room for 39000 more,
    // then for 2000 more still.
    trace.consumed = 39_000;
    let view = trace.view();
    assert!(!trace.subflow.window_update_due(&view));
    trace.consumed = 41_000;
    let view = trace.view();
    assert!(trace.subflow.window_update_due(&view));
    trace.subflow.request_ack();
    trace.expect_ack(60_000);
    let view = trace.view();
    assert!(!trace.subflow.window_update_due(&view));
}

#[test]
fn a_window_that_cannot_be_told_in_full_is_not_told_again() {
    let mut syn = plain_syn();
    syn.options.window_scale = None;
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    trace.accept(seg(0, 0));
    trace.subflow.request_ack();
    assert_eq!(trace.expect_one().window, u16::MAX);
    let view = trace.view();
    assert!(!trace.subflow.window_update_due(&view));
    trace.accept(seg(0, 1000));
    let view = trace.view();
    assert!(trace.subflow.window_update_due(&view));
}

#[test]
fn plain_tcp_has_no_data_acks_to_tell() {
    let mut trace = Trace::plain();
    trace.accept(seg(0, 1000));
    let view = trace.view();
    assert!(!trace.subflow.data_ack_due(&view));
}

#[test]
fn a_closed_window_is_not_reopened_by_less_than_a_segment() {
    let mut trace = Trace::mptcp_with_capacity(10_000);
    for n in 0..10 {
        trace.accept(mapped(n * 1000, 1000));
    }
    assert_eq!(trace.expect_ack(10_000).window, 0);
    trace.consumed = 900;
    let view = trace.view();
    assert!(!trace.subflow.window_update_due(&view));
    trace.consumed = 1024;
    let view = trace.view();
    assert!(trace.subflow.window_update_due(&view));
}

#[test]
fn fast_and_slow_ways_agree() {
    // The same stream, once in segments that the short way takes and once with a detail in each
    // that it leaves to the long one.
    let mut fast = Trace::mptcp();
    let mut slow = Trace::mptcp();
    for n in 0..50 {
        fast.accept(mapped(n * 100, 100));
        let segment = mapped(n * 100, 100);
        slow.accept(Segment { flags: segment.flags.with(Flags::URG), urgent: 5, ..segment });
        assert_eq!(fast.sent(), slow.sent());
        assert_eq!(fast.subflow.statistics(), slow.subflow.statistics());
        assert_eq!(fast.subflow.next_timeout(), slow.subflow.next_timeout());
    }
    fast.expect_stream(5000);
    slow.expect_stream(5000);
}
