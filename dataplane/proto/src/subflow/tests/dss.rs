//! Mappings and DATA_ACKs in all their forms.

use super::*;

/// `segment` with its mapping changed.
fn remapped(segment: Segment, change: impl Fn(&mut DssMapping)) -> Segment {
    let mut dss = segment.options.mptcp.dss.expect("the segment has a DSS");
    change(dss.mapping.as_mut().expect("the DSS has a mapping"));
    with_dss(segment, dss)
}

/// `segment` with a 32-bit data sequence number.
fn short(segment: Segment) -> Segment {
    remapped(segment, |mapping| {
        if let DssNumber::Long(number) = mapping.data_seq {
            mapping.data_seq = DssNumber::Short(number as u32);
        }
    })
}

fn expect_violation(trace: &mut Trace, reason: ResetReason) {
    let cause = ResetCause::Violation(reason);
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
    let reset = trace.expect_one();
    assert_eq!(reset.flags, Flags::RST.with(Flags::ACK));
    let option = MpReset { flags: 0, reason: reason as u8 };
    assert_eq!(reset.options.mptcp.reset, Some(option));
    trace.expect_state(State::Closed);
}

#[test]
fn every_form_of_a_dss_is_understood() {
    let mut trace = Trace::mptcp();
    let acks = [None, Some(DssNumber::Short(our_dsn(0) as u32)), Some(DssNumber::Long(our_dsn(0)))];
    let mut at = 0;
    for ack in acks {
        for shorten in [false, true] {
            let mut segment = mapped(at, 100);
            if shorten {
                segment = short(segment);
            }
            let dss = segment.options.mptcp.dss.as_mut().expect("it has one");
            dss.ack = ack;
            trace.accept(segment);
            at += 100;
        }
    }
    trace.expect_stream(600);
    let ack = trace.expect_ack(600).options.mptcp.dss.and_then(|dss| dss.ack);
    assert_eq!(ack, Some(DssNumber::Long(peer_dsn(600))));
}

#[test]
fn one_mapping_covers_many_segments() {
    // The peer's NIC copies the option to every segment it cuts.
    let mut trace = Trace::mptcp();
    for n in 0..10 {
        trace.accept(with_dss(seg(n * 100, 100), dss(0, 0, 1000)));
    }
    trace.expect_stream(1000);
    // Others send it once.
    trace.accept(with_dss(seg(1000, 100), dss(1000, 1000, 1000)));
    for n in 11..20 {
        trace.accept(seg(n * 100, 100));
    }
    trace.expect_stream(2000);
}

#[test]
fn a_mapping_learnt_ahead_of_a_gap_counts_when_the_gap_is_filled() {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(500, 100), dss(0, 0, 1000)));
    trace.accept(seg(0, 500));
    trace.accept(seg(600, 400));
    trace.expect_stream(1000);
}

#[test]
fn one_segment_may_lie_under_two_mappings() {
    // The first mapping ends in the middle of the second segment, whose own DSS is of what follows.
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 100), dss(0, 0, 150)));
    trace.accept(with_dss(seg(100, 100), dss(150, 150, 200)));
    trace.accept(seg(200, 150));
    trace.expect_stream(350);
}

#[test]
fn of_a_segment_that_its_mapping_covers_in_part_that_part_is_taken() {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 200), dss(0, 0, 100)));
    trace.expect_ack(100);
    trace.expect_stream(100);
    trace.accept(mapped(100, 100));
    trace.expect_stream(200);
}

#[test]
fn one_segment_under_two_mappings_goes_to_two_places() {
    // As a peer with several subflows maps: the stream does not go on where the subflow does.
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 100), dss(0, 0, 150)));
    let mut payload = text(100, 50);
    payload.extend(text(1000, 50));
    let segment = with_dss(seg(100, 100), dss(150, 1000, 200));
    assert_eq!(trace.recv_bytes(segment, &payload), Disposition::Accepted);
    assert_eq!(trace.recv_at(seg(200, 150), 1050), Disposition::Accepted);
    trace.expect_stream(150);
    assert_eq!(trace.have.last(), Some(1000..1200));
    assert!(trace.stream[1000..1200] == text(1000, 200));
    // The DATA_ACK stays at the gap, the acknowledgement of the subflow does not.
    let ack = trace.expect_ack(350).options.mptcp.dss.and_then(|dss| dss.ack);
    assert_eq!(ack, Some(DssNumber::Long(peer_dsn(150))));
}

#[test]
fn the_same_mapping_again_is_no_news() {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 100), dss(0, 0, 300)));
    trace.accept(with_dss(seg(100, 100), dss(0, 0, 300)));
    trace.accept(with_dss(seg(200, 100), dss(200, 200, 100)));
    trace.accept(with_dss(seg(100, 300), dss(100, 100, 300)));
    trace.expect_stream(400);
}

#[test]
fn another_mapping_for_mapped_bytes_is_fatal() {
    let mut trace = Trace::mptcp();
    trace.accept(with_dss(seg(0, 100), dss(0, 0, 300)));
    let conflicting = with_dss(seg(100, 100), dss(100, 5000, 100));
    trace.refuse(conflicting, DropReason::MappingConflict);
    expect_violation(&mut trace, ResetReason::MptcpSpecific);
}

#[test]
fn another_mapping_for_mapped_bytes_ahead_of_a_gap_is_fatal() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(500, 100));
    let conflicting = with_dss(seg(400, 200), dss(400, 0, 200));
    trace.refuse(conflicting, DropReason::MappingConflict);
    expect_violation(&mut trace, ResetReason::MptcpSpecific);
}

#[test]
fn what_a_late_mapping_says_of_received_bytes_does_not_matter() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(with_dss(seg(100, 100), dss(50, 50, 150)));
    trace.expect_stream(200);
}

#[test]
fn a_mapping_on_a_segment_without_payload_means_nothing() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.accept(with_dss(seg(100, 0), dss(100, 9999, 100)));
    trace.accept(mapped(100, 100));
    trace.expect_stream(200);
}

#[test]
fn a_data_sequence_number_before_the_stream_is_fatal() {
    let mut trace = Trace::mptcp();
    let segment = remapped(mapped(0, 100), |mapping| {
        mapping.data_seq = DssNumber::Long(peer_dsn(0).wrapping_sub(1));
    });
    trace.refuse(segment, DropReason::MappingConflict);
    expect_violation(&mut trace, ResetReason::MptcpSpecific);
}

#[test]
fn a_checksum_that_was_not_agreed_on_is_fatal() {
    let mut trace = Trace::mptcp();
    let segment = remapped(mapped(0, 100), |mapping| mapping.checksum = Some(0x1234));
    trace.refuse(segment, DropReason::UnexpectedChecksum);
    expect_violation(&mut trace, ResetReason::MptcpSpecific);

    let mut trace = Trace::mptcp();
    let mut options = capable_ack(Some(100));
    let capable = options.capable.as_mut().expect("it is there");
    if let MpCapableBody::Ack { data: Some(data), .. } = &mut capable.body {
        data.checksum = Some(1);
    }
    trace.refuse(with_mptcp(seg(0, 100), options), DropReason::UnexpectedChecksum);
    expect_violation(&mut trace, ResetReason::MptcpSpecific);
}

#[test]
fn short_numbers_are_extended_across_the_wrap_in_any_order() {
    // Out-of-order segments around the place where the low 32 bits wrap cause no wrap of their
    // own. The wrap is that of the data sequence number, so the stream starts close before it.
    let mut trace = Trace::mptcp();
    let wrap = 0x1_0000_0000 - u64::from(peer_dsn(0) as u32);
    trace.capacity = wrap + CAPACITY;
    // Everything up to near the wrap was read already.
    let near = wrap - 250;
    trace.have.insert(0..near);
    trace.consumed = near;
    let at =
        |position: u64| short(with_dss(seg(position, 100), dss(position, near + position, 100)));
    let bytes = |position: u64| text(near + position, 100);
    trace.stream = Vec::new();
    let mut placed = Vec::new();
    for position in [300, 100, 200, 0] {
        let view = trace.view();
        let segment = at(position);
        let mut placements = Vec::new();
        let taken = trace.subflow.on_segment(trace.now, &segment, &view, &mut placements);
        assert_eq!(taken, Disposition::Accepted);
        placed.extend(placements.iter().map(|p| (position, p.to.0, p.len as usize)));
        assert_eq!(bytes(position).len(), 100);
    }
    let expected: Vec<_> = [300, 100, 200, 0].map(|p| (p, near + p, 100)).into();
    assert_eq!(placed, expected);
}

#[test]
fn payload_without_a_mapping_ahead_of_a_gap_is_not_taken() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    trace.refuse(seg(200, 100), DropReason::Unmapped);
    assert_eq!(trace.expect_ack(100).options.sack, SackBlocks::default());
    // It is taken once it comes with its mapping.
    trace.accept(mapped(200, 100));
    trace.accept(mapped(100, 100));
    trace.expect_stream(300);
}

#[test]
fn payload_beyond_the_right_edge_is_not_acknowledged() {
    let mut trace = Trace::mptcp();
    let beyond = CAPACITY - 50;
    let segment = with_dss(seg(0, 100), dss(0, beyond, 100));
    assert_eq!(trace.recv_at(segment, beyond), Disposition::Accepted);
    trace.expect_ack(50);
    assert_eq!(
        trace.recv_at(seg(50, 50), CAPACITY),
        Disposition::Dropped(DropReason::BeyondWindow)
    );
    trace.expect_ack(50);
}

#[test]
fn the_connections_window_counts_although_the_subflow_was_told_less() {
    let mut trace = Trace::mptcp();
    trace.capacity = 2000;
    trace.right_edge = 2000;
    trace.subflow.request_ack();
    trace.expect_sent(1);
    trace.capacity = 100_000;
    trace.accept(mapped(50_000, 100));
    assert_eq!(trace.have.last(), Some(50_000..50_100));
}

#[test]
fn what_the_subflow_was_told_counts_although_another_took_the_room() {
    let mut trace = Trace::mptcp_with_capacity(10_000);
    // Another subflow brings most of what there is room for, and with it what is on its way here.
    trace.have.insert(0..8000);
    trace.stream = text(0, 8000);
    trace.subflow.request_ack();
    trace.expect_ack(0);
    for n in 0..6 {
        trace.accept(mapped(n * 1000, 1000));
    }
    trace.accept(mapped(7000, 1000));
    assert_eq!(trace.expect_ack(6000).options.sack.as_slice().len(), 1);
}

#[test]
fn mappings_that_are_used_up_make_room_for_others() {
    // Each pair of segments lies in the stream the other way round, and comes the other way round.
    let mut trace = Trace::mptcp();
    for n in 0..2 * crate::subflow::mapping::LIMIT as u64 {
        let at = n * 200;
        let later = with_dss(seg(at + 100, 100), dss(at + 100, at, 100));
        assert_eq!(trace.recv_at(later, at), Disposition::Accepted);
        let earlier = with_dss(seg(at, 100), dss(at, at + 100, 100));
        assert_eq!(trace.recv_at(earlier, at + 100), Disposition::Accepted);
        assert_eq!(trace.edge(), at + 200);
        trace.expect_ack(at + 200);
    }
    trace.expect_stream(2 * crate::subflow::mapping::LIMIT as u64 * 200);
}

#[test]
fn data_that_another_subflow_brought_is_acknowledged_and_not_placed() {
    let mut trace = Trace::mptcp();
    trace.stream = text(0, 150);
    trace.have.insert(0..150);
    let view = trace.view();
    let mut placements = Vec::new();
    let taken = trace.subflow.on_segment(trace.now, &mapped(0, 100), &view, &mut placements);
    assert_eq!((taken, placements.len()), (Disposition::Accepted, 0));
    let taken = trace.subflow.on_segment(trace.now, &mapped(100, 100), &view, &mut placements);
    assert_eq!(taken, Disposition::Accepted);
    assert_eq!(placements, [Placement { to: StreamOffset(150), at: 50, len: 50, mapping: None }]);
    trace.expect_ack(200);
}

#[test]
fn the_urgent_pointer_changes_nothing() {
    let mut trace = Trace::mptcp();
    let urgent = mapped(0, 100);
    trace.accept(Segment { flags: urgent.flags.with(Flags::URG), urgent: 50, ..urgent });
    trace.expect_stream(100);
}

#[test]
fn fast_close_with_our_key_ends_the_connection_with_another_nothing() {
    let fast_close = |key| MptcpOptions { fast_close: Some(key), ..Default::default() };
    let mut trace = Trace::mptcp();
    trace.accept(with_mptcp(seg(0, 0), fast_close(PEER_KEY)));
    trace.expect_events(&[]);
    trace.accept(with_mptcp(seg(0, 0), fast_close(OUR_KEY)));
    trace.expect_events(&[Event::FastClose, Event::Closed]);
    let reset = trace.expect_one();
    assert!(reset.flags.contains(Flags::RST));
    assert_eq!(reset.options.mptcp, MptcpOptions::default());

    // On a reset, no answer is due.
    let mut trace = Trace::mptcp();
    let reset = Segment { flags: Flags::RST.with(Flags::ACK), ..seg(0, 0) };
    trace.accept(with_mptcp(reset, fast_close(OUR_KEY)));
    trace.expect_events(&[Event::FastClose, Event::Closed]);
    trace.expect_sent(0);

    // With another key it is a plain reset, of the subflow alone.
    let mut trace = Trace::mptcp();
    trace.accept(with_mptcp(reset, fast_close(PEER_KEY)));
    let cause = ResetCause::Peer { reason: None };
    trace.expect_events(&[Event::Reset(cause), Event::Closed]);
}

#[test]
fn address_signals_do_no_harm() {
    let mut trace = Trace::mptcp();
    let add_addr = AddAddr {
        id: AddressId(1),
        address: core::net::IpAddr::V4(core::net::Ipv4Addr::LOCALHOST),
        port: None,
        hmac: Some(1),
    };
    let options = MptcpOptions { add_addr: Some(add_addr), ..Default::default() };
    trace.accept(with_mptcp(seg(0, 0), options));
    let options = MptcpOptions { priority: Some(true), ..Default::default() };
    trace.accept(with_mptcp(seg(0, 0), options));
    trace.accept(mapped(0, 100));
    trace.expect_stream(100);
}
