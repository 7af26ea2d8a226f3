//! Addresses and priorities, both ways.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::*;
use crate::crypto::add_addr_hmac;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const ADDRESS_6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));

/// An ADD_ADDR of ours, as it is to be.
fn ours(id: u8, address: IpAddr, port: Option<u16>) -> AddAddr {
    let id = AddressId(id);
    let hmac = Some(add_addr_hmac(OUR_KEY, PEER_KEY, id, address, port));
    AddAddr { id, address, port, hmac }
}

fn theirs(id: u8, address: IpAddr, port: Option<u16>) -> AddAddr {
    let id = AddressId(id);
    let hmac = Some(add_addr_hmac(PEER_KEY, OUR_KEY, id, address, port));
    AddAddr { id, address, port, hmac }
}

const fn echo(of: AddAddr) -> AddAddr {
    AddAddr { hmac: None, ..of }
}

/// An acknowledgement of the peer that carries ADD_DDR and nothing else, as Linux sends it.
fn carrying(add_addr: AddAddr) -> Segment {
    with_mptcp(seg(0, 0), MptcpOptions { add_addr: Some(add_addr), ..Default::default() })
}

#[test]
fn an_address_is_announced_until_it_is_echoed() {
    let mut trace = Trace::mptcp();
    assert!(trace.subflow.announce(AddressId(2), ADDRESS, None));
    let expected = ours(2, ADDRESS, None);
    // An echo of an earlier announcement of it that comes late is none of this one.
    trace.accept(carrying(echo(expected)));
    trace.expect_events(&[]);
    let first = trace.expect_ack(0);
    assert_eq!(first.options.mptcp.add_addr, Some(expected));
    // With timestamps and a DATA_ACK it just fits.
    assert!(first.options.mptcp.dss.is_some() && first.options.timestamps.is_some());
    trace.expect_sent(0);
    for seconds in [1, 2] {
        assert_eq!(trace.pass_to_timer(), Duration::from_secs(seconds));
        assert_eq!(trace.expect_ack(0).options.mptcp.add_addr, Some(expected));
    }
    // What is no echo of it changes nothing.
    for other in [echo(ours(3, ADDRESS, None)), echo(ours(2, ADDRESS, Some(1)))] {
        trace.accept(carrying(other));
    }
    trace.expect_events(&[]);
    trace.accept(carrying(echo(expected)));
    trace.expect_events(&[Event::AddressEchoed(AddressId(2))]);
    trace.accept(carrying(echo(expected)));
    trace.expect_events(&[]);
    trace.pass(Duration::from_secs(100));
    trace.expect_sent(0);
    assert_eq!(trace.subflow.next_timeout(), None);
}

#[test]
fn an_announcement_that_is_never_echoed_is_given_up() {
    let mut trace = Trace::mptcp();
    assert!(trace.subflow.announce(AddressId(2), ADDRESS, Some(8080)));
    let mut sent = 0;
    loop {
        sent += trace.sent().len();
        if trace.subflow.next_timeout().is_none() {
            break;
        }
        trace.pass_to_timer();
    }
    assert_eq!(sent, 5);
    trace.expect_events(&[Event::AddressUnanswered(AddressId(2))]);
}

#[test]
fn ipv6_announcements_leave_the_data_ack_out_for_want_of_room() {
    for port in [None, Some(443)] {
        let mut trace = Trace::mptcp();
        assert!(trace.subflow.announce(AddressId(9), ADDRESS_6, port));
        let ack = trace.expect_ack(0);
        let expected =
            MptcpOptions { add_addr: Some(ours(9, ADDRESS_6, port)), ..Default::default() };
        assert_eq!(ack.options.mptcp, expected);
    }
}

#[test]
fn what_a_signal_has_no_room_to_acknowledge_is_acknowledged_before_it() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    assert!(trace.subflow.announce(AddressId(9), ADDRESS_6, None));
    // The peer would take an acknowledgement of its first data without a DATA_ACK for a fallback.
    let sent = trace.expect_sent(2);
    assert!(sent[0].options.mptcp.dss.is_some());
    assert_eq!((sent[0].ack, sent[1].ack), (PEER + 101, PEER + 101));
    assert!(sent[1].options.mptcp.add_addr.is_some());
}

#[test]
fn no_more_than_two_signals_go_out_in_a_row() {
    let mut trace = Trace::mptcp();
    for id in 1..=5 {
        assert!(trace.subflow.announce(AddressId(id), ADDRESS, None));
    }
    let ids = |sent: Vec<Segment>| -> Vec<u8> {
        sent.iter().filter_map(|s| s.options.mptcp.add_addr).map(|a| a.id.0).collect()
    };
    assert_eq!(ids(trace.sent()), [1, 2]);
    trace.expect_sent(0);
    // An acknowledgement that says something new comes between.
    trace.accept(mapped(0, 100));
    trace.accept(mapped(100, 100));
    assert_eq!(ids(trace.sent()), [3, 4]);
    // Or some time.
    trace.pass_to_timer();
    assert!(ids(trace.sent()).contains(&5));
}

#[test]
fn announcements_are_bounded_and_need_mptcp() {
    let mut trace = Trace::mptcp();
    for id in 1..=8 {
        assert!(trace.subflow.announce(AddressId(id), ADDRESS, None));
    }
    assert!(!trace.subflow.announce(AddressId(9), ADDRESS, None));
    assert!(trace.subflow.announce(AddressId(8), ADDRESS, Some(1)));
    let mut trace = Trace::plain();
    assert!(!trace.subflow.announce(AddressId(1), ADDRESS, None));
    assert!(!trace.subflow.withdraw(&[AddressId(1)]));
    assert!(!trace.subflow.set_backup(true));
    trace.expect_sent(0);
}

#[test]
fn an_address_that_was_withdrawn_is_not_announced_again() {
    let mut trace = Trace::mptcp();
    assert!(trace.subflow.announce(AddressId(2), ADDRESS, None));
    trace.expect_sent(1);
    assert!(trace.subflow.withdraw(&[AddressId(2), AddressId(5)]));
    let removed = trace.expect_ack(0).options.mptcp.remove_addr.expect("REMOVE_ADDR");
    assert_eq!(removed.as_slice(), [AddressId(2), AddressId(5)]);
    while trace.subflow.next_timeout().is_some() {
        trace.pass_to_timer();
        assert!(trace.sent().iter().all(|sent| sent.options.mptcp.add_addr.is_none()));
    }
    // No more than eight fit.
    let many: Vec<AddressId> = (1..=9).map(AddressId).collect();
    assert!(!trace.subflow.withdraw(&many));
    assert!(trace.subflow.withdraw(&many[..8]));
}

/// The identifiers in the next REMOVE_ADDR.
fn expect_removed(trace: &mut Trace) -> Vec<u8> {
    let removed = trace.expect_ack(0).options.mptcp.remove_addr.expect("REMOVE_ADDR");
    removed.as_slice().iter().map(|id| id.0).collect()
}

/// Nothing tells that it came, and nobody else sends it again.
#[test]
fn a_removal_is_sent_three_times() {
    let mut trace = Trace::mptcp();
    assert!(trace.subflow.withdraw(&[AddressId(2), AddressId(5)]));
    assert_eq!(expect_removed(&mut trace), [2, 5]);
    trace.expect_sent(0);
    for seconds in [1, 2] {
        assert_eq!(trace.pass_to_timer(), Duration::from_secs(seconds));
        assert_eq!(expect_removed(&mut trace), [2, 5]);
    }
    assert_eq!(trace.subflow.next_timeout(), None);
    // What was told already gives way to what was not.
    let ids = |ids: core::ops::Range<u8>| -> Vec<AddressId> { ids.map(AddressId).collect() };
    assert!(trace.subflow.withdraw(&ids(0..8)));
    assert_eq!(expect_removed(&mut trace).len(), 8);
    assert!(trace.subflow.withdraw(&ids(8..10)));
    // After two signals in a row there is a pause.
    trace.expect_sent(0);
    assert!(trace.pass_to_timer() < Duration::from_secs(1));
    assert_eq!(expect_removed(&mut trace), [8, 9]);
}

/// An address may come back before its removal was told for the last time. Told then, it would take the
/// announcement back.
#[test]
fn a_removal_is_not_sent_again_once_the_address_is_ours_again() {
    let mut trace = Trace::mptcp();
    assert!(trace.subflow.withdraw(&[AddressId(2), AddressId(5), AddressId(6)]));
    assert_eq!(expect_removed(&mut trace), [2, 5, 6]);
    assert!(trace.subflow.announce(AddressId(2), ADDRESS, None));
    let ack = trace.expect_ack(0);
    assert_eq!(ack.options.mptcp.add_addr, Some(ours(2, ADDRESS, None)));
    trace.accept(carrying(echo(ours(2, ADDRESS, None))));
    // Another subflow announces that one.
    trace.subflow.keep_addresses(|id| id == AddressId(5));
    trace.pass_to_timer();
    assert_eq!(expect_removed(&mut trace), [6]);
}

#[test]
fn the_priority_of_a_subflow_is_told_and_heard() {
    let mut trace = Trace::mptcp();
    assert!(trace.subflow.set_backup(true));
    assert_eq!(trace.expect_ack(0).options.mptcp.priority, Some(true));
    assert_eq!(trace.subflow.backup(), (true, false));
    let priority = |backup| MptcpOptions { priority: Some(backup), ..Default::default() };
    trace.accept(with_mptcp(seg(0, 0), priority(true)));
    trace.expect_events(&[Event::PriorityChanged { backup: true }]);
    assert_eq!(trace.subflow.backup(), (true, true));
}

#[test]
fn signals_on_data_are_heard() {
    let mut trace = Trace::mptcp();
    trace.accept(mapped(0, 100));
    let mut data = mapped(100, 100);
    data.options.mptcp.priority = Some(true);
    trace.accept(data);
    trace.expect_events(&[Event::PriorityChanged { backup: true }]);
    let mut data = mapped(200, 100);
    data.options.mptcp.add_addr = Some(theirs(4, ADDRESS, None));
    trace.accept(data);
    trace.expect_events(&[Event::AddressAnnounced(theirs(4, ADDRESS, None))]);
    let mut data = mapped(300, 100);
    let mut removed = RemoveAddr::default();
    assert!(removed.push(AddressId(4)));
    data.options.mptcp.remove_addr = Some(removed);
    trace.accept(data);
    trace.expect_events(&[Event::AddressesRemoved(removed)]);
    trace.expect_stream(400);
}

#[test]
fn an_address_of_the_peer_is_echoed() {
    for (address, port) in
        [(ADDRESS, None), (ADDRESS, Some(5)), (ADDRESS_6, None), (ADDRESS_6, Some(5))]
    {
        let mut trace = Trace::mptcp();
        let theirs = theirs(4, address, port);
        // Twice in a burst is as once.
        trace.accept(carrying(theirs));
        trace.accept(carrying(theirs));
        trace.expect_events(&[Event::AddressAnnounced(theirs)]);
        let answer = trace.expect_ack(0).options.mptcp;
        assert_eq!(answer.add_addr, Some(echo(theirs)));
        trace.expect_sent(0);
        // The echo was lost.
        trace.accept(carrying(theirs));
        trace.expect_events(&[Event::AddressAnnounced(theirs)]);
        assert_eq!(trace.expect_ack(0).options.mptcp.add_addr, Some(echo(theirs)));
    }
}

#[test]
fn an_address_with_a_wrong_hmac_is_ignored_and_counted() {
    let mut trace = Trace::mptcp();
    let right = theirs(4, ADDRESS, None);
    for wrong in [
        AddAddr { hmac: right.hmac.map(|hmac| hmac ^ 1), ..right },
        AddAddr { id: AddressId(5), ..right },
        AddAddr { address: ADDRESS_6, ..right },
        AddAddr { port: Some(80), ..right },
        ours(4, ADDRESS, None),
    ] {
        trace.accept(carrying(wrong));
    }
    trace.expect_events(&[]);
    trace.expect_sent(0);
    assert_eq!(trace.subflow.statistics().forged_addresses, 5);
    assert!(!trace.connection.is_fully_established());
}

#[test]
fn echoes_wait_for_each_other_and_are_bounded() {
    let mut trace = Trace::mptcp();
    for id in 0..20 {
        trace.accept(carrying(theirs(id, ADDRESS, None)));
    }
    assert_eq!(trace.events.len(), 8);
    let mut echoed = trace.sent().len();
    while trace.subflow.next_timeout().is_some() {
        trace.pass_to_timer();
        echoed += trace.sent().len();
    }
    assert_eq!(echoed, 8);
}

#[test]
fn an_announcement_without_a_dss_is_an_acknowledgement_and_shows_that_options_pass() {
    let mut trace = Trace::mptcp();
    trace.connection.shutdown_write(StreamOffset(0));
    trace.expect_sent(1);
    trace.accept(carrying(theirs(4, ADDRESS, None)));
    assert!(trace.connection.is_fully_established());
    assert!(trace.subflow.is_mptcp());
    // It says nothing of the data level.
    assert!(!trace.view().local_fin_acked);

    let mut trace = Trace::mptcp();
    assert!(trace.subflow.announce(AddressId(2), ADDRESS, None));
    trace.expect_sent(1);
    trace.accept(carrying(echo(ours(2, ADDRESS, None))));
    assert!(trace.connection.is_fully_established());
}

#[test]
fn addresses_that_the_peer_takes_back_are_told() {
    let mut trace = Trace::mptcp();
    let mut removed = RemoveAddr::default();
    assert!(removed.push(AddressId(0)) && removed.push(AddressId(7)));
    let options = MptcpOptions { remove_addr: Some(removed), ..Default::default() };
    trace.accept(with_mptcp(seg(0, 0), options));
    trace.expect_events(&[Event::AddressesRemoved(removed)]);
    trace.expect_state(State::Established);
}

#[test]
fn the_path_of_a_removed_address_is_kept_if_the_peer_still_answers() {
    let mut trace = Trace::mptcp();
    let before = trace.now;
    trace.subflow.check_path(before);
    let probe = trace.expect_one();
    assert_eq!((probe.seq, probe.payload_len), (OURS, 0));
    trace.pass(ms(10));
    trace.accept(seg(0, 0));
    while trace.subflow.next_timeout().is_some() {
        trace.pass_to_timer();
        trace.expect_sent(0);
    }
    trace.expect_state(State::Established);
    // It can be checked again.
    trace.subflow.check_path(trace.now);
    trace.expect_sent(1);
}

#[test]
fn the_path_of_a_removed_address_is_given_up_if_nobody_answers() {
    let mut trace = Trace::mptcp();
    trace.subflow.check_path(trace.now);
    let mut probes = trace.sent().len();
    let mut intervals = Vec::new();
    while trace.subflow.state() == State::Established {
        // To be asked again is no reason to begin anew.
        trace.subflow.check_path(trace.now);
        intervals.push(trace.pass_to_timer());
        probes += trace.sent().iter().filter(|sent| !sent.flags.contains(Flags::RST)).count();
    }
    assert_eq!(probes, 4);
    assert_eq!(intervals, [200, 400, 800, 1600].map(ms));
    trace.expect_events(&[Event::TimedOut, Event::Reset(ResetCause::Local), Event::Closed]);
}

#[test]
fn signals_end_with_mptcp() {
    let mut trace = Trace::mptcp();
    trace.accept(carrying(theirs(4, ADDRESS, None)));
    assert!(trace.subflow.announce(AddressId(2), ADDRESS, None));
    trace.expect_sent(2);
    trace.accept(carrying(theirs(4, ADDRESS, None)));
    trace.accept(with_dss(seg(0, 100), dss(0, 0, 0)));
    let fallback = Event::Fallback(FallbackReason::InfiniteMapping);
    assert!(trace.events.contains(&fallback));
    let ack = trace.expect_ack(100);
    assert_eq!(ack.options.mptcp, MptcpOptions::default());
    assert_eq!(trace.subflow.next_timeout(), None);
    trace.pass(Duration::from_secs(10));
    trace.expect_sent(0);
}
