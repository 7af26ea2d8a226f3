//! Subflows that join: the handshake, what ends it, and the data level of several subflows.

use super::*;
use crate::crypto::JoinHmac;

const THEIR_NONCE: u32 = 0x1234_5678;
const OUR_NONCE: u32 = 0x9abc_def0;

const JOINED: Event = Event::Joined { address_id: AddressId(3), backup: false };

fn join_syn_with(backup: bool, token: Token) -> Segment {
    let join = MpJoin::Syn { backup, address_id: AddressId(3), token, nonce: THEIR_NONCE };
    with_mptcp(syn(), MptcpOptions { join: Some(join), ..Default::default() })
}

pub(super) fn join_syn() -> Segment {
    join_syn_with(false, LocalKey::new(OUR_KEY).token)
}

/// A connection whose first subflow speaks MPTCP.
fn connection() -> Connection {
    let connection = Connection::new(Some(LocalKey::new(OUR_KEY)));
    assert!(connection.on_event(&Event::Established { mptcp: Some(PEER_KEY) }));
    assert!(connection.on_event(&Event::FullyEstablished));
    connection
}

fn opening() -> JoinOpening {
    JoinOpening {
        isn: OURS,
        timestamp_offset: 0,
        mss: MSS,
        nonce: OUR_NONCE,
        address_id: AddressId(2),
        backup: true,
    }
}

#[expect(clippy::result_large_err, reason = "it is the result of what is tested")]
pub(super) fn join(
    connection: &Connection,
    syn: &Segment,
    view: &View,
) -> Result<Subflow, Refusal> {
    let now = Instant(1_000_000_000);
    Subflow::passive_join(now, &Arc::new(calm()), syn, connection, view, &opening())
}

fn view_of(connection: &Connection) -> View {
    connection.view(StreamOffset(0), StreamOffset(CAPACITY))
}

/// A join was begun by `syn`.
fn begun_by(syn: &Segment) -> Trace {
    let connection = connection();
    let subflow = join(&connection, syn, &view_of(&connection));
    Trace::of(subflow.expect("the connection takes it"), connection, CAPACITY)
}

pub(super) fn begun() -> Trace {
    let mut trace = begun_by(&join_syn());
    trace.expect_sent(1);
    trace
}

pub(super) fn joined() -> Trace {
    let mut trace = begun();
    trace.accept(third_ack());
    trace.expect_events(&[JOINED]);
    trace.expect_ack(0);
    trace
}

fn hmac() -> [u8; 20] {
    JoinHmac::new(PEER_KEY, OUR_KEY, THEIR_NONCE, OUR_NONCE).leftmost_160()
}

fn join_ack(hmac: [u8; 20]) -> MptcpOptions {
    MptcpOptions { join: Some(MpJoin::Ack { hmac }), ..Default::default() }
}

pub(super) fn third_ack() -> Segment {
    with_mptcp(seg(0, 0), join_ack(hmac()))
}

/// The subflow was reset, for this reason.
fn expect_reset(trace: &mut Trace, reason: ResetReason) {
    trace.expect_events(&[Event::Reset(ResetCause::Violation(reason)), Event::Closed]);
    let reset = trace.expect_one();
    assert!(reset.flags.contains(Flags::RST));
    assert_eq!((reset.seq, reset.ack), (OURS + 1, trace.subflow.receive.next));
    assert_eq!(reset.options.mptcp.reset, Some(MpReset { flags: 0, reason: reason as u8 }));
}

#[test]
fn the_syn_ack_of_a_join_proves_that_we_know_both_keys() {
    let mut trace = begun_by(&join_syn());
    let syn_ack = trace.expect_one();
    assert_eq!(syn_ack.flags, Flags::SYN.with(Flags::ACK));
    let hmac = JoinHmac::new(OUR_KEY, PEER_KEY, OUR_NONCE, THEIR_NONCE).leftmost_64();
    let expected =
        MpJoin::SynAck { backup: true, address_id: AddressId(2), hmac, nonce: OUR_NONCE };
    let expected = MptcpOptions { join: Some(expected), ..Default::default() };
    assert_eq!(syn_ack.options.mptcp, expected);
    assert!(syn_ack.options.window_scale.is_some() && syn_ack.options.timestamps.is_some());
    assert_eq!(trace.subflow.address_ids(), (AddressId(2), AddressId(3)));
    trace.expect_events(&[]);
}

#[test]
fn the_right_third_ack_completes_the_join_and_is_answered_with_a_data_ack() {
    let mut trace = begun();
    trace.have.insert(0..700);
    trace.stream = text(0, 700);
    trace.accept(third_ack());
    trace.expect_events(&[JOINED]);
    trace.expect_state(State::Established);
    let fourth = trace.expect_ack(0);
    let dss = Dss { ack: Some(DssNumber::Long(peer_dsn(700))), ..Default::default() };
    assert_eq!(fourth.options.mptcp, MptcpOptions { dss: Some(dss), ..Default::default() });
    assert!(!trace.view().may_fall_back);
}

#[test]
fn a_join_without_timestamps_window_scale_and_sack_works() {
    let mut syn = join_syn();
    syn.options = Options { mptcp: syn.options.mptcp, ..Default::default() };
    let mut trace = begun_by(&syn);
    let options = trace.expect_one().options;
    assert_eq!(
        (options.timestamps, options.window_scale, options.sack_permitted),
        (None, None, false)
    );
    let bare = |mut segment: Segment| {
        segment.options.timestamps = None;
        segment
    };
    trace.accept(bare(third_ack()));
    trace.expect_events(&[JOINED]);
    // The whole window of 1 MiB cannot be told, but all that can.
    assert_eq!(trace.expect_ack(0).window, u16::MAX);
    trace.accept(bare(mapped(0, 100)));
    trace.expect_stream(100);
}

#[test]
fn a_join_tells_nothing_that_the_first_subflow_told() {
    let mut trace = begun();
    let view = trace.view();
    for segment in [third_ack(), mapped(0, 100)] {
        let _ = trace.subflow.on_segment(trace.now, &segment, &view, &mut Vec::new());
    }
    assert_eq!(trace.subflow.poll_event(), Some(JOINED));
    assert_eq!(trace.subflow.poll_event(), None);
}

#[test]
fn a_backup_flag_of_the_peer_is_told() {
    let mut trace = begun_by(&join_syn_with(true, LocalKey::new(OUR_KEY).token));
    trace.expect_sent(1);
    trace.accept(third_ack());
    trace.expect_events(&[Event::Joined { address_id: AddressId(3), backup: true }]);
    assert_eq!(trace.subflow.backup(), (true, true));
}

#[test]
fn a_third_ack_that_comes_again_is_answered_again() {
    let mut trace = joined();
    for _ in 0..3 {
        trace.accept(third_ack());
        trace.expect_events(&[]);
        assert!(trace.expect_ack(0).options.mptcp.dss.is_some());
    }
    // It may come behind data that the peer sent when our answer had arrived after all.
    trace.accept(with_dss(seg(0, 100), dss(0, 0, 100)));
    trace.accept(third_ack());
    trace.expect_ack(100);
}

#[test]
fn a_third_ack_without_mp_join_or_with_a_wrong_hmac_is_reset() {
    let mut wrong = hmac();
    wrong[19] ^= 1;
    let other = JoinHmac::new(OUR_KEY, PEER_KEY, OUR_NONCE, THEIR_NONCE).leftmost_160();
    let plain_dss = with_dss(seg(0, 0), Dss { ack: Some(DssNumber::Long(1)), ..dss(0, 0, 0) });
    for ack in [
        seg(0, 0),
        plain_dss,
        with_mptcp(seg(0, 0), join_ack(wrong)),
        with_mptcp(seg(0, 0), join_ack(other)),
        with_mptcp(seg(0, 0), capable_ack(None)),
        fin(third_ack()),
    ] {
        let mut trace = begun();
        trace.refuse(ack, DropReason::BadJoin);
        expect_reset(&mut trace, ResetReason::MptcpSpecific);
    }
}

#[test]
fn data_before_the_join_completes_is_reset() {
    let with_proof = with_mptcp(seg(0, 100), join_ack(hmac()));
    let out_of_order = with_dss(seg(100, 100), dss(100, 100, 100));
    for data in [mapped(0, 100), seg(0, 100), with_proof, out_of_order] {
        let mut trace = begun();
        trace.refuse(data, DropReason::BadJoin);
        expect_reset(&mut trace, ResetReason::MptcpSpecific);
        trace.expect_stream(0);
    }
}

#[test]
fn a_third_ack_of_what_we_did_not_send_changes_nothing() {
    let mut trace = begun();
    trace.refuse(Segment { ack: OURS + 2, ..third_ack() }, DropReason::AckUnsent);
    assert_eq!(trace.expect_one().seq, OURS + 2);
    trace.accept(third_ack());
    trace.expect_events(&[JOINED]);
}

#[test]
fn a_half_open_join_repeats_its_syn_ack_and_is_forgotten_silently() {
    let mut trace = begun();
    trace.accept(join_syn());
    let again = trace.expect_one();
    assert!(matches!(again.options.mptcp.join, Some(MpJoin::SynAck { nonce: OUR_NONCE, .. })));
    for _ in 0..5 {
        trace.pass_to_timer();
        trace.expect_sent(1);
    }
    trace.pass_to_timer();
    trace.expect_events(&[Event::TimedOut, Event::Closed]);
    trace.expect_sent(0);
}

/// The refusal of a join, and the code of its reset.
fn refused(connection: &Connection, syn: &Segment, view: &View) -> (RefusalReason, Option<u8>) {
    let refusal = join(connection, syn, view).expect_err("it is to be refused");
    let code = refusal.reply.map(|reset| {
        assert_eq!(reset.flags, Flags::RST.with(Flags::ACK));
        assert_eq!((reset.seq, reset.ack), (SeqNum(0), PEER + 1));
        let option = reset.options.mptcp.reset.expect("MP_TCPRST");
        assert_survives_the_wire(&reset);
        option.reason
    });
    (refusal.reason, code)
}

#[test]
fn a_join_with_a_token_of_no_connection_is_an_mptcp_error() {
    let connection = connection();
    let LocalKey { token: Token(token), .. } = LocalKey::new(OUR_KEY);
    let syn = join_syn_with(false, Token(token ^ 1));
    let expected = (RefusalReason::JoinUnknownToken, Some(1));
    assert_eq!(refused(&connection, &syn, &view_of(&connection)), expected);
}

#[test]
fn a_join_before_the_first_subflow_is_proved_is_left_for_later() {
    let connection = Connection::new(Some(LocalKey::new(OUR_KEY)));
    let expected = (RefusalReason::JoinTooEarly, None);
    assert_eq!(refused(&connection, &join_syn(), &view_of(&connection)), expected);
    assert!(connection.on_event(&Event::Established { mptcp: Some(PEER_KEY) }));
    assert_eq!(refused(&connection, &join_syn(), &view_of(&connection)), expected);
    assert!(connection.on_event(&Event::FullyEstablished));
    assert!(join(&connection, &join_syn(), &view_of(&connection)).is_ok());
}

#[test]
fn a_connection_that_fell_back_takes_no_joins() {
    let connection = connection();
    assert!(connection.on_event(&Event::Fallback(FallbackReason::InfiniteMapping)));
    let expected = (RefusalReason::JoinFellBack, Some(3));
    assert_eq!(refused(&connection, &join_syn(), &view_of(&connection)), expected);
}

#[test]
fn a_connection_on_its_way_to_plain_tcp_takes_no_joins() {
    let connection = connection();
    let failed = Event::ChecksumFailed { at: StreamOffset(0), falling_back: true };
    assert!(connection.on_event(&failed));
    let expected = (RefusalReason::JoinFellBack, Some(3));
    assert_eq!(refused(&connection, &join_syn(), &view_of(&connection)), expected);
    assert!(!connection.on_event(&JOINED));
}

#[test]
fn a_closing_connection_takes_joins_only_while_data_is_missing() {
    let connection = connection();
    connection.on_event(&Event::DataFin { at: StreamOffset(1000) });
    connection.shutdown_write(StreamOffset(0));
    let view = |edge| connection.view(StreamOffset(edge), StreamOffset(CAPACITY));
    assert!(join(&connection, &join_syn(), &view(999)).is_ok());
    let expected = (RefusalReason::JoinClosing, Some(3));
    assert_eq!(refused(&connection, &join_syn(), &view(1000)), expected);
    connection.reader_gone();
    assert_eq!(refused(&connection, &join_syn(), &view(0)), expected);
}

#[test]
fn each_refusal_of_a_join_has_its_reason_code() {
    for reason in RefusalReason::ALL {
        let expected = match reason {
            RefusalReason::NotSyn | RefusalReason::BadFlags | RefusalReason::JoinTooEarly => None,
            RefusalReason::JoinUnknownToken => Some(MpReset { flags: 0, reason: 1 }),
            // There may be room again.
            RefusalReason::JoinResources => Some(MpReset { flags: 1, reason: 2 }),
            _ => Some(MpReset { flags: 0, reason: 3 }),
        };
        let refusal = refuse_join(&join_syn(), reason);
        assert_eq!(refusal.reply.and_then(|reset| reset.options.mptcp.reset), expected);
        assert_eq!(RefusalReason::ALL[reason.index()], reason);
    }
}

#[test]
fn a_segment_that_is_no_syn_joins_nothing() {
    let connection = connection();
    let view = view_of(&connection);
    for (flags, reply) in [(Flags::ACK, true), (Flags::SYN.with(Flags::RST), false)] {
        let refusal = join(&connection, &Segment { flags, ..join_syn() }, &view);
        assert_eq!(refusal.expect_err("it is no SYN").reply.is_some(), reply);
    }
    let refusal = join(&connection, &syn(), &view).expect_err("it has no MP_JOIN");
    assert_eq!(refusal.reason, RefusalReason::Join);
}

#[test]
fn joining_and_falling_back_exclude_each_other() {
    let connection = connection();
    assert!(connection.on_event(&JOINED));
    assert!(!connection.on_event(&Event::Fallback(FallbackReason::InfiniteMapping)));
    assert_eq!(connection.mode(), crate::connection::Mode::Mptcp);

    let connection = self::connection();
    assert!(connection.on_event(&Event::Fallback(FallbackReason::InfiniteMapping)));
    assert!(connection.on_event(&Event::Fallback(FallbackReason::PeerFailed)));
    assert!(!connection.on_event(&JOINED));
}

#[test]
fn a_joined_subflow_never_falls_back() {
    // Options are stripped from its data: even in its first window there is no plain TCP.
    let mut trace = joined();
    for _ in 0..2 {
        trace.refuse(seg(0, 100), DropReason::Unmapped);
        trace.expect_ack(0);
    }
    trace.refuse(seg(0, 100), DropReason::Unmapped);
    expect_reset(&mut trace, ResetReason::Middlebox);

    let mut trace = joined();
    trace.refuse(with_dss(seg(0, 100), dss(0, 0, 0)), DropReason::MappingConflict);
    expect_reset(&mut trace, ResetReason::MptcpSpecific);

    let mut trace = joined();
    let fail = MptcpOptions { fail: Some(our_dsn(0)), ..Default::default() };
    trace.accept(with_mptcp(seg(0, 0), fail));
    expect_reset(&mut trace, ResetReason::Middlebox);
}

#[test]
fn a_joined_subflow_does_not_fall_back_even_if_the_view_is_an_old_one() {
    let mut trace = joined();
    let old = View { may_fall_back: true, ..trace.view() };
    let data = seg(0, 100);
    let disposition = trace.subflow.on_segment(trace.now, &data, &old, &mut Vec::new());
    assert_eq!(disposition, Disposition::Dropped(DropReason::Unmapped));
}

#[test]
fn data_of_a_joined_subflow_goes_where_it_is_mapped() {
    let mut trace = joined();
    trace.have.insert(0..5000);
    trace.stream = text(0, 5000);
    assert_eq!(trace.recv_at(with_dss(seg(0, 100), dss(0, 5000, 100)), 5000), ACCEPTED);
    assert_eq!(trace.recv_at(with_dss(seg(100, 100), dss(100, 6000, 100)), 6000), ACCEPTED);
    let ack = trace.expect_ack(200);
    let data_ack = ack.options.mptcp.dss.and_then(|dss| dss.ack);
    assert_eq!(data_ack, Some(DssNumber::Long(peer_dsn(5100))));
    trace.expect_stream(5100);
    assert_eq!(trace.have.last(), Some(6000..6100));
}

const ACCEPTED: Disposition = Disposition::Accepted;

#[test]
fn reinjected_data_is_acknowledged_and_only_what_is_new_of_it_is_stored() {
    let mut trace = joined();
    trace.have.insert(0..5000);
    trace.stream = text(0, 5000);
    // All old; old and new; new with old behind it.
    assert_eq!(trace.recv_at(with_dss(seg(0, 100), dss(0, 4000, 100)), 0), ACCEPTED);
    assert_eq!(trace.recv_at(with_dss(seg(100, 200), dss(100, 4900, 200)), 4900), ACCEPTED);
    trace.have.insert(5200..5300);
    trace.stream.extend(text(5100, 200));
    assert_eq!(trace.recv_at(with_dss(seg(300, 150), dss(300, 5100, 150)), 5100), ACCEPTED);
    trace.expect_ack(450);
    trace.expect_stream(5300);
    let counts = trace.subflow.statistics();
    assert_eq!((counts.bytes, counts.duplicate_bytes), (450, 0));
}

#[test]
fn a_gap_that_another_subflow_closed_is_worth_a_data_ack() {
    let mut trace = joined();
    assert_eq!(trace.recv_at(with_dss(seg(0, 100), dss(0, 500, 100)), 500), ACCEPTED);
    trace.subflow.request_ack();
    trace.expect_ack(100);
    let view = trace.view();
    assert!(!trace.subflow.data_ack_due(&view));
    trace.store(0, &text(0, 500));
    let view = trace.view();
    assert!(trace.subflow.data_ack_due(&view));
    trace.subflow.request_data_ack();
    let ack = trace.expect_ack(100).options.mptcp.dss.and_then(|dss| dss.ack);
    assert_eq!(ack, Some(DssNumber::Long(peer_dsn(600))));
    assert!(!trace.subflow.data_ack_due(&view));
    // The end of the stream counts as an octet.
    trace.connection.on_event(&Event::DataFin { at: StreamOffset(600) });
    let view = trace.view();
    assert!(trace.subflow.data_ack_due(&view));
}

#[test]
fn when_the_window_reopens_a_subflow_that_was_told_of_a_full_one_has_news() {
    let mut trace = joined();
    // Another subflow fills the window.
    trace.store(0, &text(0, CAPACITY as u32));
    trace.subflow.request_data_ack();
    assert_eq!(trace.expect_ack(0).window, 0);
    let view = trace.view();
    assert!(!trace.subflow.window_update_due(&view));
    trace.read();
    let view = trace.view();
    assert!(trace.subflow.window_update_due(&view));
    trace.subflow.request_ack();
    assert!(trace.expect_ack(0).window > 0);
}

/// RFC 9293, section 3.10.7.4: a sender takes a smaller window only with an acknowledgement of
/// something new. Linux takes the DATA_ACK of any, and would add the larger window to it.
#[test]
fn an_acknowledgement_of_nothing_new_tells_no_smaller_window() {
    let mut trace = joined();
    let told = |ack: &Segment| (ack.options.mptcp.dss.and_then(|dss| dss.ack), ack.window);
    assert_eq!(trace.recv_at(with_dss(seg(0, 100), dss(0, 0, 100)), 0), ACCEPTED);
    trace.subflow.request_ack();
    let before = told(&trace.expect_ack(100));
    // Another subflow takes half of the window. Here the same segment comes again.
    trace.store(100, &text(100, CAPACITY as u32 / 2));
    assert_eq!(
        trace.recv_at(with_dss(seg(0, 100), dss(0, 0, 100)), 0),
        Disposition::Dropped(DropReason::Duplicate)
    );
    assert_eq!(told(&trace.expect_ack(100)), before);
    let view = trace.view();
    assert!(trace.subflow.data_ack_due(&view));
    // Once the window is no smaller, and with what is new, the DATA_ACK moves.
    trace.read();
    trace.subflow.request_ack();
    let ack = trace.expect_ack(100);
    assert_eq!(told(&ack).0, Some(DssNumber::Long(peer_dsn(100 + CAPACITY / 2))));
    let to = 100 + CAPACITY / 2;
    assert_eq!(trace.recv_at(with_dss(seg(100, 100), dss(100, to, 100)), to), ACCEPTED);
    trace.store(to + 100, &text(to + 100, 5000));
    trace.subflow.request_ack();
    let ack = trace.expect_ack(200);
    assert_eq!(told(&ack).0, Some(DssNumber::Long(peer_dsn(to + 5100))));
    // And where nobody else would tell it.
    trace.store(to + 5100, &text(to + 5100, 5000));
    trace.subflow.request_data_ack();
    let ack = trace.expect_ack(200);
    assert_eq!(told(&ack).0, Some(DssNumber::Long(peer_dsn(to + 10_100))));
}

#[test]
fn the_right_edge_of_two_subflows_is_one_and_never_moves_back() {
    let mut first = Trace::mptcp_with_capacity(10_240);
    first.subflow.confirm();
    first.poll_events();
    let view = first.view();
    let subflow = join(&first.connection, &join_syn(), &view).expect("it is taken");
    let mut second = subflow;
    let told = |ack: &Segment| {
        let number = ack.options.mptcp.dss.and_then(|dss| dss.ack);
        let Some(DssNumber::Long(number)) = number else { panic!("no DATA_ACK: {ack:?}") };
        number.wrapping_sub(peer_dsn(0)) + (u64::from(ack.window) << 9)
    };
    core::mem::swap(&mut first.subflow, &mut second);
    first.expect_sent(1);
    first.accept(third_ack());
    first.expect_events(&[JOINED]);
    let mut edge = told(&first.expect_ack(0));
    assert_eq!(edge, 10_240);
    // Both fill the window in turns; what either is told reaches as far as for the other.
    for n in 0..8 {
        core::mem::swap(&mut first.subflow, &mut second);
        let at = n / 2 * 1024;
        let to = n * 1024;
        let data = with_dss(seg(at, 1024), dss(at, to, 1024));
        assert_eq!(first.recv_at(data, to), ACCEPTED);
        first.subflow.request_ack();
        let ack = first.expect_ack(at + 1024);
        assert!(told(&ack) >= edge.saturating_sub(511), "the right edge moved back");
        edge = edge.max(told(&ack));
        assert!(edge <= first.right_edge);
    }
    first.expect_stream(8192);
}

#[test]
fn a_reset_of_a_subflow_with_data_held_out_of_order_leaves_what_was_stored() {
    let mut trace = joined();
    trace.accept(mapped(500, 100));
    trace.expect_sent(1);
    let reset = Segment { flags: Flags::RST.with(Flags::ACK), ..seg(0, 0) };
    trace.accept(reset);
    let cause = ResetCause::Peer { reason: None };
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    assert_eq!(trace.have.last(), Some(500..600));
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn a_data_fin_on_a_joined_subflow_waits_for_data_of_another() {
    let mut trace = joined();
    trace.accept(data_fin(0, 1000));
    trace.expect_events(&[Event::DataFin { at: StreamOffset(1000) }]);
    let number = |ack: Segment| ack.options.mptcp.dss.and_then(|dss| dss.ack);
    assert_eq!(number(trace.expect_ack(0)), Some(DssNumber::Long(peer_dsn(0))));
    trace.store(0, &text(0, 1000));
    let view = trace.view();
    assert!(trace.subflow.data_ack_due(&view));
    trace.subflow.request_ack();
    assert_eq!(number(trace.expect_ack(0)), Some(DssNumber::Long(peer_dsn(1001))));
}

#[test]
fn a_fin_of_one_subflow_ends_that_one_only() {
    let mut trace = joined();
    trace.accept(fin(seg(0, 0)));
    trace.expect_events(&[Event::SubflowFin]);
    let last = trace.expect_one();
    assert_eq!(last.flags, Flags::ACK.with(Flags::FIN));
    trace.accept(Segment { ack: OURS + 2, ..seg(1, 0) });
    trace.expect_events(&[Event::Closed]);
    assert_eq!(trace.connection.mode(), crate::connection::Mode::Mptcp);
}

#[test]
fn the_connection_is_fully_established_once_options_are_known_to_pass() {
    // A bare third ACK is not enough.
    let mut trace = Trace::mptcp();
    assert!(!trace.connection.is_fully_established());
    trace.accept(with_dss(
        seg(0, 0),
        Dss { ack: Some(DssNumber::Long(our_dsn(0))), ..Dss::default() },
    ));
    assert!(trace.connection.is_fully_established());

    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    assert!(trace.connection.is_fully_established());

    // MP_CAPABLE with data is as good as a DSS.
    let mut trace = Trace::with_syn(syn());
    trace.expect_sent(1);
    trace.accept(with_mptcp(seg(0, 100), capable_ack(Some(100))));
    assert!(trace.connection.is_fully_established());
}

#[test]
fn the_peer_can_be_told_not_to_join_at_the_first_address() {
    let config = Config { deny_joins_to_initial_address: true, ..calm() };
    let mut trace = Trace::listen(config, syn());
    let capable = trace.expect_one().options.mptcp.capable;
    assert!(capable.is_some_and(|capable| capable.no_join_to_initial_address));
}
