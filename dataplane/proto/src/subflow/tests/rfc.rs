//! Single sentences of the RFCs that no other trace comes by. `docs/rfc-coverage.md` has them all.

use core::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::crypto::add_addr_hmac;

fn stamped(segment: Segment, value: u32) -> Segment {
    let timestamps = Some(Timestamps { value, echo: 0 });
    Segment { options: Options { timestamps, ..segment.options }, ..segment }
}

/// RFC 8684, section 3: "standard TCP validity checks [...] MUST be undertaken before processing
/// any MPTCP signals".
#[test]
fn signals_on_segments_that_are_not_valid_do_nothing() {
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    let id = AddressId(4);
    let hmac = Some(add_addr_hmac(PEER_KEY, OUR_KEY, id, address, None));
    let mut removed = RemoveAddr::default();
    assert!(removed.push(id));
    let none = MptcpOptions::default();
    let signals = [
        MptcpOptions { add_addr: Some(AddAddr { id, address, port: None, hmac }), ..none },
        MptcpOptions { remove_addr: Some(removed), ..none },
        MptcpOptions { priority: Some(true), ..none },
        MptcpOptions { fail: Some(our_dsn(0)), ..none },
        MptcpOptions { fast_close: Some(OUR_KEY), ..none },
        data_fin(0, 0).options.mptcp,
    ];
    let beyond = seg(2 * CAPACITY, 0);
    let unsent = Segment { ack: OURS + 1000, ..seg(0, 0) };
    let outdated = stamped(seg(0, 0), 1);
    let unacknowledging = Segment { flags: Flags::PSH, ..seg(0, 0) };
    for options in signals {
        for (segment, reason) in [
            (beyond, DropReason::OutOfWindow),
            (unsent, DropReason::AckUnsent),
            (outdated, DropReason::Paws),
            (unacknowledging, DropReason::NoAck),
        ] {
            let mut trace = Trace::mptcp();
            trace.refuse(with_mptcp(segment, options), reason);
            trace.expect_events(&[]);
            trace.expect_state(State::Established);
            assert!(trace.subflow.is_mptcp());
            for answer in trace.sent() {
                assert_eq!(answer.flags, Flags::ACK);
                assert_eq!(
                    (answer.options.mptcp.add_addr, answer.options.mptcp.fail),
                    (None, None)
                );
            }
        }
        // It is the segment and not the signal that was refused.
        let mut trace = Trace::mptcp();
        trace.accept(with_mptcp(seg(0, 0), options));
        assert!(!trace.events.is_empty(), "{options:?}");
    }
}

/// RFC 8684, section 3.6: the other flags of MP_TCPRST are ignored.
#[test]
fn reserved_flags_of_a_resets_reason_are_ignored() {
    for flags in [0, 1, 0x0e, 0x0f] {
        let mut trace = Trace::mptcp();
        let mptcp =
            MptcpOptions { reset: Some(MpReset { flags, reason: 4 }), ..Default::default() };
        trace.accept(Segment { flags: Flags::RST, ..with_mptcp(seg(0, 0), mptcp) });
        let cause = ResetCause::Peer { reason: Some(4) };
        trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    }
}

/// RFC 8684, section 3.7: "Once MPTCP falls back to regular TCP, it MUST NOT revert to MPTCP".
#[test]
fn nothing_leads_from_plain_tcp_back_to_mptcp() {
    let mut trace = Trace::mptcp();
    trace.accept(seg(0, 100));
    trace.expect_events(&[Event::Fallback(FallbackReason::NoMappingInFirstData)]);
    let none = MptcpOptions::default();
    trace.accept(with_mptcp(seg(100, 100), capable_ack(Some(100))));
    trace.accept(with_dss(seg(200, 100), dss(200, 900_000, 100)));
    trace.accept(with_mptcp(seg(300, 100), MptcpOptions { priority: Some(true), ..none }));
    trace.accept(with_mptcp(seg(400, 0), MptcpOptions { fast_close: Some(OUR_KEY), ..none }));
    trace.accept(with_mptcp(seg(400, 0), MptcpOptions { fail: Some(our_dsn(0)), ..none }));
    trace.expect_events(&[]);
    trace.expect_stream(400);
    assert!(!trace.subflow.is_mptcp());
    for answer in trace.sent() {
        assert_eq!(answer.options.mptcp, none);
    }
}

/// RFC 9293, MUST-66, and SHLD-2 for data on a reset.
#[test]
fn a_reset_counts_with_the_window_closed_and_with_data() {
    let mut trace = Trace::mptcp_with_capacity(1000);
    trace.accept(mapped(0, 1000));
    trace.subflow.request_ack();
    assert_eq!(trace.expect_ack(1000).window, 0);
    trace.accept(Segment { flags: Flags::RST, ..seg(1000, 0) });
    let cause = ResetCause::Peer { reason: None };
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);

    let mut trace = Trace::plain();
    trace.accept(Segment { flags: Flags::RST, ..seg(0, 20) });
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    trace.expect_stream(0);
}

/// RFC 9293, MUST-25 and MUST-28.
#[test]
fn keepalives_are_off_and_come_after_two_hours_unless_told_otherwise() {
    assert_eq!(Config::default().keepalive, None);
    let two_hours = Duration::from_secs(2 * 3600);
    assert!(crate::config::Keepalive::default().idle >= two_hours);
    let mut trace = Trace::mptcp();
    assert_eq!(trace.subflow.next_timeout(), None);
    trace.pass(100 * two_hours);
    trace.expect_sent(0);
}

/// RFC 7323, section 3.2.
#[test]
fn timestamps_are_on_every_segment_once_agreed_on() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(mapped(200, 100));
    assert!(trace.expect_ack(100).options.timestamps.is_some());
    assert!(trace.subflow.set_backup(true));
    assert!(trace.expect_ack(100).options.timestamps.is_some());
    trace.connection.shutdown_write(StreamOffset(0));
    for sent in trace.expect_sent(1) {
        assert!(sent.options.timestamps.is_some());
    }
    trace.pass_to_timer();
    for sent in trace.sent() {
        assert!(sent.options.timestamps.is_some());
    }
}

/// RFC 7323, section 3.2.
#[test]
fn timestamps_that_were_not_agreed_on_are_ignored() {
    let mut syn = plain_syn();
    syn.options.timestamps = None;
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    for (n, value) in [500, 100, 0x8000_0000].into_iter().enumerate() {
        trace.accept(stamped(seg(n as u64 * 10, 10), value));
    }
    assert_eq!(trace.expect_ack(30).options.timestamps, None);
    trace.expect_stream(30);
}

/// RFC 7323, section 4.1: the clock is proportional to real time. Its unit is the millisecond.
#[test]
fn our_timestamps_tell_the_time() {
    let mut trace = Trace::with_syn(plain_syn());
    let stamp = |segment: Segment| segment.options.timestamps.map(|stamps| stamps.value);
    assert_eq!(stamp(trace.expect_one()), Some(1000));
    trace.accept(seg(0, 0));
    for (wait, expected) in [(500, 1500), (1, 1501), (0, 1501), (60_000, 61_501)] {
        trace.pass(ms(wait));
        trace.subflow.request_ack();
        assert_eq!(stamp(trace.expect_one()), Some(expected));
    }
}

/// RFC 7323, section 5.2: the timestamps of a reset "MUST NOT be used to update" anything.
#[test]
fn the_timestamp_of_a_reset_is_not_remembered() {
    let mut trace = Trace::plain();
    let reset = Segment { flags: Flags::RST, ..seg(1, 0) };
    trace.refuse(stamped(reset, 5000), DropReason::RstChallenged);
    assert_eq!(trace.expect_ack(0).options.timestamps.map(|stamps| stamps.echo), Some(101));
    trace.accept(stamped(seg(0, 10), 102));
    trace.expect_stream(10);
}

/// RFC 7323, section 5.3: PAWS comes before the window check.
#[test]
fn an_older_timestamp_is_what_a_segment_outside_the_window_is_refused_for() {
    let mut trace = Trace::plain();
    trace.refuse(stamped(seg(2 * CAPACITY, 10), 1), DropReason::Paws);
    assert_eq!(trace.expect_ack(0).options.timestamps.map(|stamps| stamps.echo), Some(101));
}

/// RFC 2018, section 8: what a block told of is still there.
#[test]
fn what_was_selectively_acknowledged_is_kept() {
    let mut trace = Trace::plain();
    trace.capacity = 1000;
    trace.accept(seg(500, 500));
    trace.expect_ack(0);
    // Copies, resets that do not count, and data beyond the window change nothing of it.
    trace.refuse(seg(500, 500), DropReason::Duplicate);
    trace.refuse(Segment { flags: Flags::RST, ..seg(1, 0) }, DropReason::RstChallenged);
    trace.pass(Duration::from_secs(3600));
    trace.sent();
    trace.accept(seg(0, 500));
    trace.expect_ack(1000);
    trace.expect_stream(1000);
}

/// RFC 9293, MUST-1.
#[test]
fn a_window_above_32767_is_no_negative_one() {
    let mut syn = plain_syn();
    syn.options.window_scale = None;
    syn.window = u16::MAX;
    let mut trace = Trace::with_syn(syn);
    trace.expect_sent(1);
    trace.accept(Segment { window: u16::MAX, ..seg(0, 0) });
    // So far back may an acknowledgement lie that data of this window could have overtaken.
    trace.accept(Segment { ack: OURS + 1 - 65_535, window: u16::MAX, ..seg(0, 10) });
    trace.expect_stream(10);
    let too_old = Segment { ack: OURS - 65_535, window: u16::MAX, ..seg(10, 10) };
    trace.refuse(too_old, DropReason::AckTooOld);
}

/// RFC 7323, section 2.3: what the window field says is shifted, but for that of the SYN.
#[test]
fn the_peers_window_is_shifted_once_the_handshake_is_over() {
    let mut trace = Trace::plain();
    // 65535 << 7 octets, where the SYN, which is not shifted, said 64240.
    let far = OURS + 1 - (65_535 << 7);
    trace.refuse(Segment { ack: far, ..seg(0, 10) }, DropReason::AckTooOld);
    trace.accept(Segment { window: u16::MAX, ..seg(0, 0) });
    trace.accept(Segment { ack: far, ..seg(0, 10) });
    trace.refuse(Segment { ack: far - 1, ..seg(10, 10) }, DropReason::AckTooOld);

    let mut trace = Trace::with_syn(Segment { window: u16::MAX, ..plain_syn() });
    trace.expect_sent(1);
    trace.accept(seg(0, 0));
    trace.refuse(Segment { ack: far, ..seg(0, 10) }, DropReason::AckTooOld);
}
