//! SYN, SYN/ACK, and the ACK that decides.

use super::*;

const MPTCP: Event = Event::Established { mptcp: Some(PEER_KEY) };
const PLAIN: Event = Event::Established { mptcp: None };

#[test]
fn the_syn_ack_answers_what_the_syn_offers() {
    let mut trace = Trace::with_syn(syn());
    let syn_ack = trace.expect_one();
    assert_eq!(syn_ack.flags, Flags::SYN.with(Flags::ACK));
    assert_eq!((syn_ack.seq, syn_ack.ack), (OURS, PEER + 1));
    let options = syn_ack.options;
    assert_eq!(options.mss, Some(MSS));
    assert_eq!(options.window_scale, Some(Config::scale_for(16 << 20)));
    assert!(options.sack_permitted);
    assert_eq!(options.timestamps, Some(Timestamps { value: 1000, echo: 100 }));
    let expected = capable(MpCapableBody::SynAck { sender: OUR_KEY });
    assert_eq!(options.mptcp, expected);
    trace.expect_state(State::SynReceived);
    trace.expect_events(&[]);
}

#[test]
fn the_syn_ack_offers_nothing_that_the_syn_did_not() {
    let bare = Segment { options: Options::default(), ..syn() };
    let mut trace = Trace::with_syn(bare);
    let options = trace.expect_one().options;
    assert_eq!(options, Options { mss: Some(MSS), ..Default::default() });
}

#[test]
fn the_syn_ack_offers_nothing_that_is_switched_off() {
    let config =
        Config { mptcp: false, sack: false, timestamps: false, window_scale: None, ..calm() };
    let mut trace = Trace::listen(config, syn());
    let options = trace.expect_one().options;
    assert_eq!(options, Options { mss: Some(MSS), ..Default::default() });
    trace.accept(seg(0, 0));
    trace.expect_events(&[PLAIN, Event::Fallback(FallbackReason::Disabled)]);
}

#[test]
fn the_window_is_not_scaled_before_the_third_ack() {
    let mut trace = Trace::with_syn(plain_syn());
    assert_eq!(trace.expect_one().window, u16::MAX);
    trace.accept(seg(0, 0));
    trace.accept(seg(0, 1000));
    trace.subflow.request_ack();
    let ack = trace.expect_ack(1000);
    let scale = Config::scale_for(16 << 20).shift();
    assert_eq!(u64::from(ack.window), (CAPACITY - 1000) >> scale);
}

#[test]
fn the_window_of_the_syn_ack_counts_as_told() {
    let mut trace = Trace::mptcp_with_capacity(10_000);
    let view = trace.view();
    assert_eq!(trace.subflow.advertised(), StreamOffset(10_000));
    assert!(!trace.subflow.window_update_due(&view));
}

#[test]
fn without_window_scaling_at_the_peer_the_window_field_is_in_octets() {
    let mut syn = plain_syn();
    syn.options.window_scale = None;
    let mut trace = Trace::with_syn(syn);
    assert_eq!(trace.expect_one().options.window_scale, None);
    trace.accept(seg(0, 0));
    trace.subflow.request_ack();
    assert_eq!(trace.expect_one().window, u16::MAX);
    trace.right_edge = 5000;
    trace.capacity = 5000;
    trace.subflow.request_ack();
    assert_eq!(trace.expect_one().window, 5000);
}

#[test]
fn a_peer_with_window_scale_zero_is_answered_with_ours() {
    let mut syn = plain_syn();
    syn.options.window_scale = Some(WindowScale::ZERO);
    let mut trace = Trace::with_syn(syn);
    assert_eq!(trace.expect_one().options.window_scale, Some(Config::scale_for(16 << 20)));
}

#[test]
fn the_third_ack_with_both_keys_establishes_mptcp() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
    trace.expect_events(&[MPTCP]);
    trace.expect_state(State::Established);
    assert!(trace.subflow.is_mptcp());
    assert_eq!(trace.subflow.remote_key(), Some(PEER_KEY));
    assert_eq!(trace.connection.remote_key(), Some(PEER_KEY));
    assert_eq!(trace.connection.mode(), crate::connection::Mode::Mptcp);
    // Nothing is due for it.
    trace.expect_sent(0);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn when_the_third_ack_is_lost_the_first_data_completes_the_handshake() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 100), capable_ack(Some(100))));
    trace.expect_events(&[MPTCP]);
    trace.expect_stream(100);
    trace.subflow.request_ack();
    let ack = trace.expect_ack(100);
    let dss = ack.options.mptcp.dss.expect("data is acknowledged with a DATA_ACK");
    assert_eq!(dss.ack, Some(DssNumber::Long(peer_dsn(100))));
}

#[test]
fn first_data_maps_itself_by_mp_capable_also_when_the_third_ack_came() {
    let mut trace = Trace::mptcp();
    trace.accept(with_mptcp(seg(0, 100), capable_ack(Some(100))));
    trace.accept(mapped(100, 50));
    trace.expect_stream(150);
}

#[test]
fn first_data_may_be_sent_again_with_a_greater_length() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 100), capable_ack(Some(100))));
    // The peer did not see the acknowledgement, and has more to send.
    trace.accept(with_mptcp(seg(0, 300), capable_ack(Some(300))));
    trace.expect_stream(300);
    assert_eq!(trace.subflow.statistics().duplicate_bytes, 100);
    // Segments cut from one larger by the peer's NIC carry copies of the option.
    trace.accept(with_mptcp(seg(300, 200), capable_ack(Some(500))));
    trace.expect_stream(500);
}

#[test]
fn data_that_overtakes_the_mp_capable_waits_for_it() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.refuse(mapped(100, 100), DropReason::BeforeHandshake);
    trace.expect_state(State::SynReceived);
    trace.accept(with_mptcp(seg(0, 100), capable_ack(Some(100))));
    trace.accept(mapped(100, 100));
    trace.expect_stream(200);
    trace.expect_events(&[MPTCP]);
}

#[test]
fn a_third_ack_without_mp_capable_means_plain_tcp() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(seg(0, 0));
    trace.expect_events(&[PLAIN, Event::Fallback(FallbackReason::NoCapableInAck)]);
    assert_eq!(trace.subflow.local_key(), None);
    // No MPTCP option goes out any more, and none that comes counts.
    trace.accept(seg(0, 100));
    trace.accept(with_dss(seg(100, 100), dss(100, 7777, 100)));
    assert_eq!(trace.expect_ack(200).options.mptcp, MptcpOptions::default());
    trace.expect_stream(200);
}

#[test]
fn a_third_ack_with_wrong_keys_or_flags_means_plain_tcp() {
    let wrong_key =
        capable(MpCapableBody::Ack { sender: PEER_KEY, receiver: Key(OUR_KEY.0 ^ 1), data: None });
    let mut checksum = capable_ack(None);
    checksum.capable.as_mut().expect("it is there").checksum_required = true;
    let mut version = capable_ack(None);
    version.capable.as_mut().expect("it is there").version = 2;
    for options in [wrong_key, checksum, version] {
        let mut trace = Trace::with_syn(syn());
        trace.expect_sent(1);
        trace.accept(with_mptcp(seg(0, 0), options));
        trace.expect_events(&[PLAIN, Event::Fallback(FallbackReason::NoCapableInAck)]);
    }
}

#[test]
fn an_unusable_mp_capable_in_the_syn_is_ignored() {
    type Change = fn(&mut MpCapable);
    let changes: [(Change, FallbackReason); 5] = [
        (|c| c.version = 0, FallbackReason::UnusableCapable),
        (|c| c.extensibility = true, FallbackReason::UnusableCapable),
        (|c| c.algorithms = 0, FallbackReason::UnusableCapable),
        (|c| c.body = MpCapableBody::SynAck { sender: PEER_KEY }, FallbackReason::UnusableCapable),
        (|c| c.checksum_required = true, FallbackReason::ChecksumRequired),
    ];
    for (change, reason) in changes {
        let mut syn = syn();
        change(syn.options.mptcp.capable.as_mut().expect("it is there"));
        let mut trace = Trace::with_syn(syn);
        assert_eq!(trace.expect_one().options.mptcp, MptcpOptions::default());
        trace.accept(seg(0, 100));
        trace.expect_events(&[PLAIN, Event::Fallback(reason)]);
        trace.expect_stream(100);
    }
}

#[test]
fn a_later_version_or_further_algorithms_are_answered_with_ours() {
    let mut syn = syn();
    let offer = syn.options.mptcp.capable.as_mut().expect("it is there");
    offer.version = 2;
    offer.algorithms = 0x05;
    offer.no_join_to_initial_address = true;
    let mut trace = Trace::with_syn(syn);
    let answer = trace.expect_one().options.mptcp.capable.expect("it is answered");
    assert_eq!((answer.version, answer.algorithms), (1, 1));
}

#[test]
fn a_syn_sent_again_without_mp_capable_is_plain_tcp() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(plain_syn());
    let again = trace.expect_one();
    assert_eq!((again.seq, again.options.mptcp), (OURS, MptcpOptions::default()));
    trace.accept(seg(0, 0));
    trace.expect_events(&[PLAIN, Event::Fallback(FallbackReason::NoCapableInSyn)]);
}

#[test]
fn the_third_ack_decides_when_syns_of_both_sorts_came() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(plain_syn());
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
    trace.expect_events(&[MPTCP]);
}

#[test]
fn a_repeated_syn_is_answered_by_the_same_syn_ack() {
    let mut trace = Trace::with_syn(syn());
    let first = trace.expect_one();
    trace.accept(syn());
    assert_eq!(trace.expect_one(), first);
}

#[test]
fn the_syn_ack_is_sent_again_with_backoff_and_then_given_up() {
    let mut trace = Trace::with_syn(syn());
    let first = trace.expect_one();
    for doubling in 0..5 {
        assert_eq!(trace.pass_to_timer(), ms(1000 << doubling));
        let again = trace.expect_one();
        assert_eq!((again.seq, again.flags), (first.seq, first.flags));
    }
    assert_eq!(trace.pass_to_timer(), ms(32_000));
    trace.expect_events(&[Event::TimedOut, Event::Closed]);
    trace.expect_sent(0);
    assert_eq!(trace.subflow.next_timeout(), None);
    assert_eq!(trace.subflow.statistics().retransmitted_bytes, 5);
}

#[test]
fn the_handshake_gives_the_first_round_trip_unless_it_was_sent_again() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.pass(Duration::from_micros(70));
    trace.accept(seg(0, 0));
    assert_eq!(trace.subflow.round_trip(), Some(Duration::from_micros(70)));

    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.pass_to_timer();
    trace.expect_sent(1);
    trace.accept(seg(0, 0));
    assert_eq!(trace.subflow.round_trip(), None);
}

#[test]
fn an_ack_of_what_was_not_sent_is_reset_and_changes_nothing() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    for ack in [OURS, OURS + 2] {
        trace.refuse(Segment { ack, ..seg(0, 0) }, DropReason::AckUnsent);
        let reset = trace.expect_one();
        assert_eq!((reset.flags, reset.seq), (Flags::RST, ack));
    }
    trace.accept(with_mptcp(seg(0, 0), capable_ack(None)));
    trace.expect_events(&[MPTCP]);
}

#[test]
fn a_reset_ends_a_half_open_subflow() {
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(Segment { flags: Flags::RST, ..seg(0, 0) });
    let cause = ResetCause::Peer { reason: None };
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn a_plain_client_gets_plain_tcp() {
    let mut trace = Trace::plain();
    trace.accept(seg(0, 1000));
    trace.accept(seg(1000, 1000));
    assert_eq!(trace.expect_ack(2000).options.mptcp, MptcpOptions::default());
    trace.expect_stream(2000);
    assert_eq!(trace.connection.mode(), crate::connection::Mode::Plain(None));
}

#[test]
fn data_of_a_syn_is_left_for_the_peer_to_send_again() {
    let mut trace = Trace::with_syn(Segment { payload_len: 10, ..syn() });
    assert_eq!(trace.expect_one().ack, PEER + 1);
}

/// What `passive_open` makes of a segment that opens nothing.
fn refusal(segment: Segment) -> Refusal {
    let opening = PassiveOpening { isn: OURS, timestamp_offset: 0, local: None, mss: MSS };
    let opened = Subflow::passive_open(Instant(0), &Arc::new(calm()), &segment, &opening);
    opened.expect_err("the segment opens nothing")
}

#[test]
fn a_listener_refuses_what_is_no_syn() {
    let refused = refusal(Segment { flags: Flags::RST, ..syn() });
    assert_eq!((refused.reason, refused.reply), (RefusalReason::NotSyn, None));
    let refused = refusal(Segment { flags: Flags::PSH, ..syn() });
    assert_eq!((refused.reason, refused.reply), (RefusalReason::NotSyn, None));
    let refused = refusal(Segment { flags: Flags::SYN.with(Flags::FIN), ..syn() });
    assert_eq!((refused.reason, refused.reply), (RefusalReason::BadFlags, None));

    let refused = refusal(seg(0, 10));
    let reset = refused.reply.expect("an ACK to a listener is reset");
    assert_eq!(
        (refused.reason, reset.flags, reset.seq),
        (RefusalReason::NotSyn, Flags::RST, OURS + 1)
    );
}

#[test]
fn a_join_is_refused_with_its_reason() {
    let join = MpJoin::Syn { backup: false, address_id: AddressId(1), token: Token(1), nonce: 1 };
    let options = MptcpOptions { join: Some(join), ..Default::default() };
    let refused = refusal(with_mptcp(syn(), options));
    let reset = refused.reply.expect("a join is reset");
    assert_eq!(refused.reason, RefusalReason::Join);
    assert_eq!((reset.flags, reset.ack), (Flags::RST.with(Flags::ACK), PEER + 1));
    assert_eq!(reset.options.mptcp.reset, Some(MpReset { flags: 0, reason: 3 }));
    assert_survives_the_wire(&reset);
}

#[test]
fn what_belongs_to_nobody_is_reset_but_a_reset() {
    let reset = reset_for(&seg(0, 10)).expect("it is reset");
    assert_eq!((reset.seq, reset.flags), (OURS + 1, Flags::RST));
    let reset = reset_for(&syn()).expect("it is reset");
    assert_eq!((reset.seq, reset.ack), (SeqNum(0), PEER + 1));
    assert_eq!(reset.flags, Flags::RST.with(Flags::ACK));
    assert_eq!(reset_for(&Segment { flags: Flags::RST, ..syn() }), None);
}
