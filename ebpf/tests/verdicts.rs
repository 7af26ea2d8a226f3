//! One packet after another through the program by BPF test-run: each has a name, the action and
//! the one counter it must move.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod common;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use mpxdp_ebpf::{Action, Program, Verdict};

use crate::common::packet::*;
use crate::common::{privileged, xdp_socket};

/// A listener at our addresses of both families.
const LISTENER: u16 = 5001;
/// IPv4 at any local address.
const ANY_IPV4: u16 = 6001;
/// IPv6 at any local address.
const ANY_IPV6: u16 = 6002;
/// Our end of the connections; nobody listens there.
const FLOW: u16 = 40_000;
/// The peer's end of them.
const FLOW_PEER: u16 = 443;

/// One of this host's addresses that no listener names.
const ALSO_OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 99);
const ALSO_OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ELSEWHERE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x99);
/// An IPv6 address whose first octets are those of [`OURS`].
const LOOKS_LIKE_OURS: Ipv6Addr = Ipv6Addr::new(0xc000, 0x0201, 0, 0, 0, 0, 0, 0);

struct Case {
    name: &'static str,
    frame: Vec<u8>,
    action: Action,
    verdict: Verdict,
}

fn case(name: &'static str, frame: Frame, action: Action, verdict: Verdict) -> Case {
    Case { name, frame: frame.build(), action, verdict }
}

fn program() -> Program {
    let mut program = Program::load().expect("the program loads");
    let tables = program.tables_mut();
    tables
        .set_local_addresses(&[OURS.into(), ALSO_OURS.into(), OURS_V6.into(), ALSO_OURS_V6.into()])
        .unwrap();
    tables.listen((OURS, LISTENER).into()).unwrap();
    tables.listen((OURS_V6, LISTENER).into()).unwrap();
    tables.listen((Ipv4Addr::UNSPECIFIED, ANY_IPV4).into()).unwrap();
    tables.listen((Ipv6Addr::UNSPECIFIED, ANY_IPV6).into()).unwrap();
    tables.add_flow((OURS, FLOW).into(), (PEER, FLOW_PEER).into()).unwrap();
    tables.add_flow((OURS_V6, FLOW).into(), (PEER_V6, FLOW_PEER).into()).unwrap();
    // A connection to the listener's port: it must be found before the listener.
    tables.add_flow((OURS, LISTENER).into(), (PEER, FLOW_PEER).into()).unwrap();
    program
}

/// To the listener over IPv4.
fn segment() -> Segment {
    Segment::to(LISTENER)
}

/// From the peer's port of the connections.
fn of_flow(destination: u16) -> Segment {
    Segment { source: FLOW_PEER, ..Segment::to(destination) }
}

/// The timestamps option as Linux pads it.
fn timestamps() -> Vec<u8> {
    vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0]
}

fn ipv4(change: impl FnOnce(&mut Ipv4)) -> Frame {
    let mut packet = Ipv4::of(TCP, segment().build());
    change(&mut packet);
    packet.frame()
}

fn ipv6(change: impl FnOnce(&mut Ipv6)) -> Frame {
    let mut packet = Ipv6::of(TCP, segment().build());
    change(&mut packet);
    packet.frame()
}

fn extensions(headers: &[(u8, Vec<u8>)]) -> Frame {
    ipv6(|packet| packet.extensions = headers.to_vec())
}

fn redirected() -> Vec<Case> {
    let take = |name, frame, verdict| case(name, frame, Action::Redirect, verdict);
    let full = Segment { options: vec![1; 40], ..segment() };
    vec![
        take("listener, IPv4", segment().ipv4(), Verdict::Listener),
        take("listener, IPv6", segment().ipv6(), Verdict::Listener),
        take("SYN", Segment { flags: 0x02, payload: 0, ..segment() }.ipv4(), Verdict::Listener),
        take("RST", Segment { flags: 0x04, payload: 0, ..segment() }.ipv4(), Verdict::Listener),
        take(
            "no payload, padded to 60 octets",
            Segment { payload: 0, ..segment() }.ipv4().padded_by(6),
            Verdict::Listener,
        ),
        take(
            "timestamps option",
            Segment { options: timestamps(), ..segment() }.ipv4(),
            Verdict::Listener,
        ),
        take("40 octets of TCP options, IPv4", full.ipv4(), Verdict::Listener),
        take("40 octets of TCP options, IPv6", full.ipv6(), Verdict::Listener),
        take("one VLAN tag, IPv4", segment().ipv4().tagged(&[(VLAN, 7)]), Verdict::Listener),
        take("one VLAN tag, IPv6", segment().ipv6().tagged(&[(VLAN, 7)]), Verdict::Listener),
        take("priority tag", segment().ipv4().tagged(&[(VLAN, 0xe000)]), Verdict::Listener),
        take("802.1ad tag alone", segment().ipv4().tagged(&[(QINQ, 7)]), Verdict::Listener),
        take(
            "two tags, 802.1ad and 802.1Q",
            segment().ipv4().tagged(&[(QINQ, 7), (VLAN, 8)]),
            Verdict::Listener,
        ),
        take(
            "two tags, both 802.1Q, IPv6",
            segment().ipv6().tagged(&[(VLAN, 7), (VLAN, 8)]),
            Verdict::Listener,
        ),
        take("4 octets of IPv4 options", ipv4(|ip| ip.options = vec![1; 4]), Verdict::Listener),
        take("40 octets of IPv4 options", ipv4(|ip| ip.options = vec![1; 40]), Verdict::Listener),
        take("fragmentation allowed", ipv4(|ip| ip.fragment = 0), Verdict::Listener),
        take("the reserved fragment bit", ipv4(|ip| ip.fragment = 0x8000), Verdict::Listener),
        take("hop-by-hop options", extensions(&[(HOP_BY_HOP, options(0))]), Verdict::Listener),
        take(
            "destination options of 264 octets",
            extensions(&[(DESTINATION_OPTIONS, options(32))]),
            Verdict::Listener,
        ),
        take(
            "routing header that ends here",
            extensions(&[(ROUTING, routing(0))]),
            Verdict::Listener,
        ),
        take(
            "all extension headers that end here",
            extensions(&[
                (HOP_BY_HOP, options(0)),
                (DESTINATION_OPTIONS, options(1)),
                (ROUTING, routing(0)),
                (DESTINATION_OPTIONS, options(0)),
            ]),
            Verdict::Listener,
        ),
        take(
            "seven extension headers",
            extensions(&vec![(DESTINATION_OPTIONS, options(0)); 7]),
            Verdict::Listener,
        ),
        take("9000 octets", Segment { payload: 9000 - 40, ..segment() }.ipv4(), Verdict::Listener),
        take(
            "65535 octets, in many buffers",
            Segment { payload: 65_535 - 40, ..segment() }.ipv4(),
            Verdict::Listener,
        ),
        take(
            "65535 octets of IPv6 payload",
            Segment { payload: 65_535 - 20, ..segment() }.ipv6(),
            Verdict::Listener,
        ),
        take("any address, IPv4", Segment::to(ANY_IPV4).ipv4(), Verdict::Listener),
        take(
            "any address, IPv4, another of ours",
            Ipv4 { destination: ALSO_OURS, ..Ipv4::of(TCP, Segment::to(ANY_IPV4).build()) }.frame(),
            Verdict::Listener,
        ),
        take("any address, IPv6", Segment::to(ANY_IPV6).ipv6(), Verdict::Listener),
        take("connection, IPv4", of_flow(FLOW).ipv4(), Verdict::Flow),
        take("connection, IPv6", of_flow(FLOW).ipv6(), Verdict::Flow),
        take("connection before listener", of_flow(LISTENER).ipv4(), Verdict::Flow),
        take(
            "no connection of ours, but the listener's port",
            Segment { source: FLOW_PEER + 1, ..segment() }.ipv4(),
            Verdict::Listener,
        ),
    ]
}

fn passed() -> Vec<Case> {
    let pass = |name, frame, verdict| case(name, frame, Action::Pass, verdict);
    let udp = || vec![0x10, 0, 0x13, 0x89, 0, 8, 0, 0];
    vec![
        // Not for us, by what they are.
        pass("broadcast MAC", segment().ipv4().to([0xff; 6]), Verdict::GroupMac),
        pass("IPv4 multicast MAC", segment().ipv4().to([1, 0, 0x5e, 0, 0, 1]), Verdict::GroupMac),
        pass(
            "IPv6 multicast MAC",
            segment().ipv6().to([0x33, 0x33, 0, 0, 0, 1]),
            Verdict::GroupMac,
        ),
        pass("ARP", Frame::of(0x0806, vec![0; 28]), Verdict::NotIp),
        pass("LLDP", Frame::of(0x88cc, vec![0; 46]), Verdict::NotIp),
        pass("802.3 length in place of a type", Frame::of(46, vec![0; 46]), Verdict::NotIp),
        pass("ARP in a VLAN", Frame::of(0x0806, vec![0; 28]).tagged(&[(VLAN, 7)]), Verdict::NotIp),
        pass(
            "three VLAN tags",
            segment().ipv4().tagged(&[(QINQ, 7), (VLAN, 8), (VLAN, 9)]),
            Verdict::VlanDepth,
        ),
        pass("UDP over IPv4", Ipv4::of(UDP, udp()).frame(), Verdict::NotTcp),
        pass("UDP over IPv6", Ipv6::of(UDP, udp()).frame(), Verdict::NotTcp),
        pass("ICMP echo", Ipv4::of(1, vec![8, 0, 0, 0, 0, 1, 0, 1]).frame(), Verdict::NotTcp),
        pass("neighbour discovery", Ipv6::of(ICMPV6, vec![135; 24]).frame(), Verdict::NotTcp),
        pass(
            "authentication header, IPv4",
            ipv4(|ip| ip.protocol = AUTHENTICATION),
            Verdict::NotTcp,
        ),
        pass(
            "authentication header, IPv6",
            extensions(&[(AUTHENTICATION, authentication())]),
            Verdict::NotTcp,
        ),
        pass("ESP", ipv6(|ip| ip.protocol = ESP), Verdict::NotTcp),
        pass("no next header", ipv6(|ip| ip.protocol = NO_NEXT_HEADER), Verdict::NotTcp),
        pass(
            "UDP behind an extension header",
            Ipv6 { extensions: vec![(HOP_BY_HOP, options(0))], ..Ipv6::of(UDP, udp()) }.frame(),
            Verdict::NotTcp,
        ),
        // Fragments.
        pass("first IPv4 fragment", ipv4(|ip| ip.fragment = 0x2000), Verdict::Fragment),
        pass("later IPv4 fragment", ipv4(|ip| ip.fragment = 0x20b9), Verdict::Fragment),
        pass("last IPv4 fragment", ipv4(|ip| ip.fragment = 0x00b9), Verdict::Fragment),
        pass("first IPv6 fragment", extensions(&[(FRAGMENT, fragment(1))]), Verdict::Fragment),
        pass("later IPv6 fragment", extensions(&[(FRAGMENT, fragment(0x5a9))]), Verdict::Fragment),
        pass("atomic IPv6 fragment", extensions(&[(FRAGMENT, fragment(0))]), Verdict::Fragment),
        pass(
            "IPv6 fragment behind hop-by-hop options",
            extensions(&[(HOP_BY_HOP, options(0)), (FRAGMENT, fragment(1))]),
            Verdict::Fragment,
        ),
        // The kernel's to route.
        pass(
            "routing header with a segment left",
            extensions(&[(ROUTING, routing(1))]),
            Verdict::SourceRoute,
        ),
        pass(
            "eight extension headers",
            extensions(&vec![(DESTINATION_OPTIONS, options(0)); 8]),
            Verdict::Extension,
        ),
        // Truncated, at every layer.
        pass(
            "ends after the Ethernet header, IPv4",
            segment().ipv4().cut_to(14),
            Verdict::Truncated,
        ),
        pass(
            "ends after the Ethernet header, IPv6",
            segment().ipv6().cut_to(14),
            Verdict::Truncated,
        ),
        pass("ends in the IPv4 header", segment().ipv4().cut_to(14 + 19), Verdict::Truncated),
        pass("ends in the IPv6 header", segment().ipv6().cut_to(14 + 39), Verdict::Truncated),
        pass(
            "ends in a VLAN tag",
            segment().ipv4().tagged(&[(VLAN, 7)]).cut_to(14 + 3),
            Verdict::Truncated,
        ),
        pass(
            "ends after the inner VLAN tag",
            segment().ipv4().tagged(&[(QINQ, 7), (VLAN, 8)]).cut_to(14 + 8),
            Verdict::Truncated,
        ),
        pass(
            "ends in the IPv4 options",
            ipv4(|ip| ip.options = vec![1; 40]).cut_to(14 + 50),
            Verdict::Truncated,
        ),
        pass("ends in the TCP header", segment().ipv4().cut_to(14 + 20 + 19), Verdict::Truncated),
        pass(
            "ends in the TCP payload",
            segment().ipv4().cut_to(14 + 20 + 20 + 50),
            Verdict::Truncated,
        ),
        pass("one octet short, IPv6", segment().ipv6().cut_to(14 + 40 + 119), Verdict::Truncated),
        pass(
            "total length one beyond the frame",
            ipv4(|ip| ip.total_length = Some(20 + 120 + 1)),
            Verdict::Truncated,
        ),
        pass(
            "total length one beyond a frame in many buffers",
            Ipv4 {
                total_length: Some(65_535),
                ..Ipv4::of(TCP, Segment { payload: 65_535 - 41, ..segment() }.build())
            }
            .frame(),
            Verdict::Truncated,
        ),
        pass(
            "payload length beyond the frame",
            ipv6(|ip| ip.payload_length = Some(121)),
            Verdict::Truncated,
        ),
        pass(
            "ends in an extension header",
            extensions(&[(HOP_BY_HOP, options(4))]).cut_to(14 + 40 + 6),
            Verdict::Truncated,
        ),
        // Malformed.
        pass("IPv4 with version 5", ipv4(|ip| ip.version = 5), Verdict::Malformed),
        pass("IPv6 in an IPv4 frame", Frame::of(IPV4, segment().ipv6().packet), Verdict::Malformed),
        pass("IPv4 in an IPv6 frame", Frame::of(IPV6, segment().ipv4().packet), Verdict::Malformed),
        pass("IPv4 header length of 16", ipv4(|ip| ip.header_length = Some(4)), Verdict::Malformed),
        pass("IPv4 header length of 0", ipv4(|ip| ip.header_length = Some(0)), Verdict::Malformed),
        pass(
            "IPv4 header longer than the datagram",
            ipv4(|ip| {
                ip.header_length = Some(15);
                ip.total_length = Some(59);
            }),
            Verdict::Malformed,
        ),
        pass("total length of 0", ipv4(|ip| ip.total_length = Some(0)), Verdict::Malformed),
        pass("no room for TCP, IPv4", ipv4(|ip| ip.total_length = Some(39)), Verdict::Malformed),
        pass("no room for TCP, IPv6", ipv6(|ip| ip.payload_length = Some(19)), Verdict::Malformed),
        pass("payload length of 0", ipv6(|ip| ip.payload_length = Some(0)), Verdict::Malformed),
        pass(
            "data offset of 16",
            Segment { offset: Some(4), ..segment() }.ipv4(),
            Verdict::Malformed,
        ),
        pass(
            "data offset of 0",
            Segment { offset: Some(0), ..segment() }.ipv6(),
            Verdict::Malformed,
        ),
        pass(
            "TCP header longer than the datagram",
            Segment { offset: Some(15), payload: 39, ..segment() }.ipv4(),
            Verdict::Malformed,
        ),
        pass(
            "TCP header that reaches into the padding",
            Segment { offset: Some(15), payload: 0, ..segment() }.ipv4().padded_by(60),
            Verdict::Malformed,
        ),
        pass(
            "extension header longer than the datagram",
            ipv6(|ip| {
                ip.extensions = vec![(HOP_BY_HOP, vec![0, 255, 1, 4, 0, 0, 0, 0])];
            }),
            Verdict::Malformed,
        ),
        pass(
            "extension header with no room for itself",
            Ipv6 {
                extensions: vec![(HOP_BY_HOP, options(0))],
                payload_length: Some(4),
                ..Ipv6::of(TCP, segment().build())
            }
            .frame(),
            Verdict::Malformed,
        ),
        pass(
            "no room for TCP behind an extension header",
            Ipv6 {
                extensions: vec![(HOP_BY_HOP, options(0))],
                payload_length: Some(8 + 19),
                ..Ipv6::of(TCP, segment().build())
            }
            .frame(),
            Verdict::Malformed,
        ),
        pass(
            "extension header that reaches into the padding",
            Ipv6 {
                extensions: vec![(HOP_BY_HOP, options(1))],
                payload_length: Some(8),
                ..Ipv6::of(TCP, segment().build())
            }
            .frame(),
            Verdict::Malformed,
        ),
        pass(
            "hop-by-hop options that are not the first",
            extensions(&[(DESTINATION_OPTIONS, options(0)), (HOP_BY_HOP, options(0))]),
            Verdict::Malformed,
        ),
        // Somebody else's.
        pass("another port", Segment::to(LISTENER + 1).ipv4(), Verdict::NoMatch),
        pass("port 0", Segment::to(0).ipv4(), Verdict::NoMatch),
        pass("port 65535", Segment::to(65_535).ipv6(), Verdict::NoMatch),
        pass(
            "from the listener's port",
            Segment { source: LISTENER, ..Segment::to(9) }.ipv4(),
            Verdict::NoMatch,
        ),
        pass(
            "listener's port, another address",
            ipv4(|ip| ip.destination = ALSO_OURS),
            Verdict::NoMatch,
        ),
        pass(
            "listener's port, another IPv6 address",
            ipv6(|ip| ip.destination = ALSO_OURS_V6),
            Verdict::NoMatch,
        ),
        pass(
            "an IPv6 address that begins as ours",
            ipv6(|ip| ip.destination = LOOKS_LIKE_OURS),
            Verdict::NoMatch,
        ),
        pass(
            "our IPv4 address mapped into IPv6",
            ipv6(|ip| ip.destination = OURS.to_ipv6_mapped()),
            Verdict::NoMatch,
        ),
        pass(
            "any address, but not of this host",
            Ipv4 { destination: ELSEWHERE, ..Ipv4::of(TCP, Segment::to(ANY_IPV4).build()) }.frame(),
            Verdict::NoMatch,
        ),
        pass(
            "any IPv6 address, but not of this host",
            Ipv6 { destination: ELSEWHERE_V6, ..Ipv6::of(TCP, Segment::to(ANY_IPV6).build()) }
                .frame(),
            Verdict::NoMatch,
        ),
        pass("any IPv4 address, over IPv6", Segment::to(ANY_IPV4).ipv6(), Verdict::NoMatch),
        pass("any IPv6 address, over IPv4", Segment::to(ANY_IPV6).ipv4(), Verdict::NoMatch),
        pass("connection's port, another peer's port", Segment::to(FLOW).ipv4(), Verdict::NoMatch),
        pass(
            "connection's ports, another peer",
            Ipv4 { source: ELSEWHERE, ..Ipv4::of(TCP, of_flow(FLOW).build()) }.frame(),
            Verdict::NoMatch,
        ),
        pass(
            "connection's ports, another address of ours",
            Ipv4 { destination: ALSO_OURS, ..Ipv4::of(TCP, of_flow(FLOW).build()) }.frame(),
            Verdict::NoMatch,
        ),
        pass(
            "connection the other way round",
            Ipv4 {
                source: OURS,
                destination: PEER,
                ..Ipv4::of(TCP, Segment { source: FLOW, ..Segment::to(FLOW_PEER) }.build())
            }
            .frame(),
            Verdict::NoMatch,
        ),
    ]
}

/// All cases that do not end as named, so that one run shows them all.
fn failures(program: &Program, cases: &[Case]) -> Vec<String> {
    let mut failures = Vec::new();
    for Case { name, frame, action, verdict } in cases {
        let before = program.tables().counters().unwrap();
        let run = program.test_run(frame, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
        let counted = program.tables().counters().unwrap().since(&before);
        let moved: Vec<_> = counted.iter().filter(|&(_, packets)| packets != 0).collect();
        if run.action != *action || moved != [(*verdict, 1)] {
            failures.push(format!(
                "{name}: expected {action:?} {verdict}, got {:?} {moved:?}",
                run.action
            ));
        }
    }
    failures
}

#[test]
fn each_packet_meets_its_verdict_and_counter() {
    if !privileged("each_packet_meets_its_verdict_and_counter") {
        return;
    }
    let mut program = program();
    let socket = xdp_socket();
    program.tables_mut().bind_queue(0, socket.as_fd()).unwrap();
    let mut cases = redirected();
    cases.extend(passed());
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let failures = failures(&program, &cases);
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn what_would_be_redirected_is_dropped_where_the_queue_has_no_socket() {
    if !privileged("what_would_be_redirected_is_dropped_where_the_queue_has_no_socket") {
        return;
    }
    let program = program();
    let dropped: Vec<Case> = redirected()
        .into_iter()
        .map(|case| Case { action: Action::Drop, verdict: Verdict::NoSocket, ..case })
        .collect();
    let mut failures = failures(&program, &dropped);
    // What is not ours is not the queue's matter.
    failures.extend(self::failures(&program, &passed()));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_cut_of_a_good_frame_passes() {
    if !privileged("every_cut_of_a_good_frame_passes") {
        return;
    }
    let mut program = program();
    let socket = xdp_socket();
    program.tables_mut().bind_queue(0, socket.as_fd()).unwrap();
    let options = Segment { options: timestamps(), payload: 5, ..segment() };
    let frames = [
        options.ipv4().tagged(&[(QINQ, 7), (VLAN, 8)]).build(),
        Ipv6 {
            extensions: vec![(HOP_BY_HOP, common::packet::options(1)), (ROUTING, routing(0))],
            ..Ipv6::of(TCP, options.build())
        }
        .frame()
        .build(),
    ];
    for frame in frames {
        assert_eq!(program.test_run(&frame, 1).unwrap().action, Action::Redirect);
        for length in 14..frame.len() {
            let before = program.tables().counters().unwrap();
            let run = program.test_run(&frame[..length], 1).unwrap();
            let counted = program.tables().counters().unwrap().since(&before);
            assert_eq!(run.action, Action::Pass, "cut to {length}");
            assert_eq!(counted.get(Verdict::Truncated), 1, "cut to {length}: {counted:?}");
        }
    }
}

#[test]
fn with_empty_tables_everything_passes() {
    if !privileged("with_empty_tables_everything_passes") {
        return;
    }
    let program = Program::load().unwrap();
    let cases: Vec<Case> = redirected()
        .into_iter()
        .map(|case| Case { action: Action::Pass, verdict: Verdict::NoMatch, ..case })
        .collect();
    let failures = failures(&program, &cases);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
