//! Frames that etherparse builds are parsed, and frames that are built here are what etherparse
//! reads.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use etherparse::{
    DoubleVlanHeader, EtherType, IpHeaders, Ipv4Extensions, Ipv4Header, Ipv4Options,
    Ipv6Extensions, Ipv6FlowLabel, Ipv6Header, Ipv6RawExtHeader, Ipv6RoutingExtensions, LinkSlice,
    NetSlice, PacketBuilder, SingleVlanHeader, SlicedPacket, TcpHeader, TcpOptionElement,
    TransportSlice, VlanHeader, ip_number,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::strategies::segment;
use crate::segment::{Flags, Options, Segment, Timestamps, WindowScale};
use crate::seq::SeqNum;
use crate::wire::options::{self, options_len};
use crate::wire::{IpFields, LinkHeader, MacAddress, VlanTag, emit_frame, parse_frame};

fn unicast_mac() -> impl Strategy<Value = [u8; 6]> {
    any::<[u8; 6]>().prop_map(|mut mac| {
        mac[0] &= !1;
        mac
    })
}

fn unicast_v4() -> impl Strategy<Value = [u8; 4]> {
    (1..=223_u8, any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| [a, b, c, d])
}

fn unicast_v6() -> impl Strategy<Value = [u8; 16]> {
    (0x20..=0xfe_u8, any::<[u8; 15]>()).prop_map(|(first, rest)| {
        let mut address = [first; 16];
        address[1..].copy_from_slice(&rest);
        address
    })
}

fn tag(control: u16) -> SingleVlanHeader {
    SingleVlanHeader {
        pcp: ((control >> 13) as u8).try_into().expect("3 bits"),
        drop_eligible_indicator: control & 0x1000 != 0,
        vlan_id: (control & 0xfff).try_into().expect("12 bits"),
        ether_type: EtherType(0),
    }
}

fn ipv4() -> impl Strategy<Value = IpHeaders> {
    let options = (0..=10_usize).prop_flat_map(|words| vec(any::<u8>(), 4 * words));
    let bits = (0..64_u8, 0..4_u8, any::<bool>());
    (unicast_v4(), unicast_v4(), any::<u8>(), any::<u16>(), bits, options).prop_map(
        |(source, destination, ttl, identification, (dscp, ecn, dont_fragment), options)| {
            let mut header =
                Ipv4Header::new(0, ttl, ip_number::TCP, source, destination).expect("a header");
            header.identification = identification;
            header.dscp = dscp.try_into().expect("6 bits");
            header.ecn = ecn.try_into().expect("2 bits");
            header.dont_fragment = dont_fragment;
            header.options = Ipv4Options::try_from(&options[..]).expect("up to 40 octets");
            IpHeaders::Ipv4(header, Ipv4Extensions::default())
        },
    )
}

/// A hop-by-hop or destination options header: PadN, then options of an unknown kind to skip.
fn options_header() -> impl Strategy<Value = Ipv6RawExtHeader> {
    (0..=20_usize, 2..64_u8).prop_map(|(units, unknown)| {
        let mut payload = alloc::vec![1, 2, 0, 0, 0, 0];
        for _ in 0..units {
            payload.extend([unknown, 6, 1, 2, 3, 4, 5, 6]);
        }
        Ipv6RawExtHeader::new_raw(ip_number::TCP, &payload).expect("whole units")
    })
}

fn ipv6() -> impl Strategy<Value = IpHeaders> {
    let routing = (any::<u8>(), 0..=4_usize, option::of(options_header())).prop_map(
        |(kind, units, final_destination_options)| {
            let mut payload = alloc::vec![kind, 0, 9, 9, 9, 9];
            payload.resize(6 + 8 * units, 9);
            let routing = Ipv6RawExtHeader::new_raw(ip_number::TCP, &payload).expect("whole units");
            Ipv6RoutingExtensions { routing, final_destination_options }
        },
    );
    let extensions =
        (option::of(options_header()), option::of(options_header()), option::of(routing)).prop_map(
            |(hop_by_hop_options, destination_options, routing)| Ipv6Extensions {
                hop_by_hop_options,
                destination_options,
                routing,
                fragment: None,
                auth: None,
            },
        );
    let extensions = prop_oneof![Just(Ipv6Extensions::default()), extensions];
    (unicast_v6(), unicast_v6(), any::<u8>(), any::<u8>(), 0..=0xf_ffff_u32, extensions).prop_map(
        |(source, destination, hop_limit, traffic_class, flow_label, extensions)| {
            let header = Ipv6Header {
                traffic_class,
                flow_label: Ipv6FlowLabel::try_new(flow_label).expect("20 bits"),
                payload_length: 0,
                next_header: ip_number::TCP,
                hop_limit,
                source,
                destination,
            };
            IpHeaders::Ipv6(header, extensions)
        },
    )
}

fn tcp() -> impl Strategy<Value = TcpHeader> {
    let options = (0..=10_usize).prop_flat_map(|words| vec(any::<u8>(), 4 * words));
    (any::<(u16, u16, u32, u32, u16, u16)>(), any::<u8>(), any::<bool>(), options).prop_map(
        |((from, to, seq, ack, window, urgent), flags, ns, options)| {
            let mut header = TcpHeader::new(from, to, seq, window);
            header.acknowledgment_number = ack;
            header.urgent_pointer = urgent;
            header.ns = ns;
            header.fin = flags & 1 != 0;
            header.syn = flags & 2 != 0;
            header.rst = flags & 4 != 0;
            header.psh = flags & 8 != 0;
            header.ack = flags & 16 != 0;
            header.urg = flags & 32 != 0;
            header.ece = flags & 64 != 0;
            header.cwr = flags & 128 != 0;
            header.set_options_raw(&options).expect("up to 40 octets");
            header
        },
    )
}

fn flags_of(header: &TcpHeader) -> Flags {
    let bits = [
        header.fin, header.syn, header.rst, header.psh, header.ack, header.urg, header.ece,
        header.cwr,
    ];
    Flags(bits.iter().rev().fold(0, |all, bit| all << 1 | u8::from(*bit)))
}

fn control_of(header: &SingleVlanHeader) -> u16 {
    u16::from(header.pcp.value()) << 13
        | u16::from(header.drop_eligible_indicator) << 12
        | header.vlan_id.value()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn frames_of_etherparse_are_understood(
        (source, destination) in (unicast_mac(), unicast_mac()),
        tags in vec(any::<u16>(), 0..=2),
        ip in prop_oneof![ipv4(), ipv6()],
        tcp in tcp(),
        payload in vec(any::<u8>(), 0..200),
        padding in 0..50_usize,
    ) {
        let link = PacketBuilder::ethernet2(source, destination);
        let builder = match tags[..] {
            [] => link.ip(ip.clone()),
            [one] => link.vlan(VlanHeader::Single(tag(one))).ip(ip.clone()),
            [outer, inner, ..] => link
                .vlan(VlanHeader::Double(DoubleVlanHeader { outer: tag(outer), inner: tag(inner) }))
                .ip(ip.clone()),
        };
        let mut bytes = Vec::new();
        builder.tcp_header(tcp.clone()).write(&mut bytes, &payload).expect("a packet");
        let end = bytes.len();
        bytes.resize(end + padding, 0xaa);

        let frame = parse_frame(&bytes, bytes.len()).expect("etherparse's frame parses");
        prop_assert_eq!(frame.link.source, MacAddress(source));
        prop_assert_eq!(frame.link.destination, MacAddress(destination));
        let controls: Vec<_> = frame.link.tags().iter().map(|tag| tag.control).collect();
        prop_assert_eq!(controls, tags);
        let (from, to, class, hop_limit) = match &ip {
            IpHeaders::Ipv4(header, _) => (
                IpAddr::from(header.source),
                IpAddr::from(header.destination),
                header.ecn.value(),
                header.time_to_live,
            ),
            IpHeaders::Ipv6(header, _) => (
                IpAddr::from(header.source),
                IpAddr::from(header.destination),
                header.traffic_class & 3,
                header.hop_limit,
            ),
        };
        prop_assert_eq!(frame.remote, SocketAddr::new(from, tcp.source_port));
        prop_assert_eq!(frame.local, SocketAddr::new(to, tcp.destination_port));
        prop_assert_eq!((frame.ecn, frame.hop_limit), (class, hop_limit));
        prop_assert_eq!(frame.segment, Segment {
            seq: SeqNum(tcp.sequence_number),
            ack: SeqNum(tcp.acknowledgment_number),
            flags: flags_of(&tcp),
            window: tcp.window_size,
            urgent: tcp.urgent_pointer,
            payload_len: payload.len() as u32,
            options: options::parse(tcp.options.as_slice(), flags_of(&tcp)),
        });
        prop_assert_eq!(frame.end(), end);
        prop_assert_eq!(&bytes[frame.payload_at..frame.end()], &payload[..]);
        prop_assert_eq!(frame.tcp_at + tcp.header_len(), frame.payload_at);
        prop_assert!(frame.is_checksum_right(&bytes));
    }

    #[test]
    fn etherparse_understands_the_frames_built_here(
        (source, destination) in (any::<[u8; 6]>(), any::<[u8; 6]>()),
        tags in vec(any::<u16>(), 0..=2),
        (local, remote) in prop_oneof![
            (any::<[u8; 4]>(), any::<[u8; 4]>()).prop_map(|(a, b)| (a.into(), b.into())),
            (any::<[u8; 16]>(), any::<[u8; 16]>()).prop_map(|(a, b)| (a.into(), b.into())),
        ],
        (local_port, remote_port) in any::<(u16, u16)>(),
        (hop_limit, traffic_class, identification, flow_label) in any::<(u8, u8, u16, u32)>(),
        segment in segment(),
        payload in vec(any::<u8>(), 0..200),
    ) {
        let (local, remote): (IpAddr, IpAddr) = (local, remote);
        let ip = IpFields { hop_limit, traffic_class, identification, flow_label };
        let mut link = LinkHeader::new(MacAddress(destination), MacAddress(source));
        for control in &tags {
            let protocol = if tags.len() == 2 && link.tags().is_empty() { 0x88a8 } else { 0x8100 };
            link.push_tag(VlanTag { protocol, control: *control });
        }
        let segment = Segment { payload_len: payload.len() as u32, ..segment };
        let mut bytes = alloc::vec![0xee; 600];
        let len = emit_frame(
            &mut bytes,
            &link,
            SocketAddr::new(local, local_port),
            SocketAddr::new(remote, remote_port),
            ip,
            &segment,
            &payload,
        )
        .expect("the frame fits");
        prop_assert!(bytes[len..].iter().all(|octet| *octet == 0xee));
        bytes.truncate(len);

        let packet = SlicedPacket::from_ethernet(&bytes).expect("etherparse reads the frame");
        let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link else { panic!("not Ethernet") };
        prop_assert_eq!(ethernet.source(), source);
        prop_assert_eq!(ethernet.destination(), destination);
        let controls: Vec<_> = match packet.vlan().map(|vlan| vlan.to_header()) {
            None => Vec::new(),
            Some(VlanHeader::Single(one)) => alloc::vec![control_of(&one)],
            Some(VlanHeader::Double(two)) => {
                alloc::vec![control_of(&two.outer), control_of(&two.inner)]
            }
        };
        prop_assert_eq!(controls, tags);
        let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("not TCP") };
        match packet.net.as_ref().expect("IP") {
            NetSlice::Ipv4(ipv4) => {
                let header = ipv4.header().to_header();
                prop_assert_eq!(IpAddr::from(header.source), local);
                prop_assert_eq!(IpAddr::from(header.destination), remote);
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                prop_assert_eq!(header.time_to_live, hop_limit);
                prop_assert_eq!(header.identification, identification);
                prop_assert_eq!(header.dscp.value() << 2 | header.ecn.value(), traffic_class);
                prop_assert!(header.dont_fragment && !header.is_fragmenting_payload());
                let sum = tcp.calc_checksum_ipv4(header.source, header.destination);
                prop_assert_eq!(Ok(tcp.checksum()), sum);
            }
            NetSlice::Ipv6(ipv6) => {
                let header = ipv6.header().to_header();
                prop_assert_eq!(IpAddr::from(header.source), local);
                prop_assert_eq!(IpAddr::from(header.destination), remote);
                prop_assert_eq!(header.hop_limit, hop_limit);
                prop_assert_eq!(header.traffic_class, traffic_class);
                prop_assert_eq!(header.flow_label.value(), flow_label & 0xf_ffff);
                let sum = tcp.calc_checksum_ipv6(header.source, header.destination);
                prop_assert_eq!(Ok(tcp.checksum()), sum);
            }
            NetSlice::Arp(_) => panic!("not IP"),
        }
        let header = tcp.to_header();
        prop_assert_eq!((header.source_port, header.destination_port), (local_port, remote_port));
        prop_assert_eq!(header.sequence_number, segment.seq.0);
        prop_assert_eq!(header.acknowledgment_number, segment.ack.0);
        prop_assert_eq!(flags_of(&header), segment.flags);
        prop_assert!(!header.ns);
        prop_assert_eq!(header.window_size, segment.window);
        prop_assert_eq!(header.urgent_pointer, segment.urgent);
        prop_assert_eq!(header.options.len(), options_len(&segment.options));
        prop_assert_eq!(tcp.payload(), &payload[..]);

        // etherparse stops at an option it does not know; those of MPTCP come last.
        let mut sack = Vec::new();
        let mut found = Options::default();
        for element in header.options_iterator().map_while(Result::ok) {
            match element {
                TcpOptionElement::Noop => {}
                TcpOptionElement::MaximumSegmentSize(mss) => found.mss = Some(mss),
                TcpOptionElement::WindowScale(shift) => {
                    found.window_scale = Some(WindowScale::new(shift));
                }
                TcpOptionElement::SelectiveAcknowledgementPermitted => found.sack_permitted = true,
                TcpOptionElement::Timestamp(value, echo) => {
                    found.timestamps = Some(Timestamps { value, echo });
                }
                TcpOptionElement::SelectiveAcknowledgement(first, others) => {
                    sack.push(first);
                    sack.extend(others.into_iter().flatten());
                }
            }
        }
        prop_assert_eq!(found.mss, segment.options.mss);
        prop_assert_eq!(found.window_scale, segment.options.window_scale);
        prop_assert_eq!(found.sack_permitted, segment.options.sack_permitted);
        prop_assert_eq!(found.timestamps, segment.options.timestamps);
        let expected: Vec<_> =
            segment.options.sack.as_slice().iter().map(|b| (b.start.0, b.end.0)).collect();
        prop_assert!(expected.starts_with(&sack));
    }
}
