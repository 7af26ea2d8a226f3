//! Whole frames: what is taken, what is refused and under which name.

use alloc::vec::Vec;

use super::{address, frame, link};
use crate::segment::{Flags, Options, Segment, Timestamps};
use crate::seq::SeqNum;
use crate::wire::ethernet::HEADER_LEN as ETHERNET;
use crate::wire::{
    EmitError, IpFields, LinkHeader, MacAddress, ParseError, checksum, emit_frame, parse_frame,
};

/// An acknowledgement with timestamps: a header of 32 octets.
fn ack() -> Segment {
    Segment {
        seq: SeqNum(1000),
        ack: SeqNum(2000),
        flags: Flags::ACK,
        window: 512,
        options: Options {
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ..Options::default()
        },
        ..Segment::default()
    }
}

#[track_caller]
fn refused(bytes: &[u8], reason: ParseError) {
    assert_eq!(parse_frame(bytes, bytes.len()).map(|frame| frame.segment), Err(reason));
}

/// Puts a right header checksum into the IPv4 header at `at`.
fn fix_ipv4_checksum(bytes: &mut [u8], at: usize) {
    let len = usize::from(bytes[at] & 0x0f) * 4;
    bytes[at + 10..at + 12].fill(0);
    let sum = !checksum::fold(checksum::sum(&bytes[at..at + len]));
    bytes[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
}

/// A frame over IPv4 with the octet at `at` of the IP header set to `octet`.
fn ipv4_with(at: usize, octet: u8) -> Vec<u8> {
    let mut bytes = frame(0, false, &ack(), b"data");
    bytes[ETHERNET + at] = octet;
    fix_ipv4_checksum(&mut bytes, ETHERNET);
    bytes
}

/// A frame over IPv6 with `extensions` between the IPv6 header and TCP; the first is of the kind
/// `kind`.
fn ipv6_with(kind: u8, extensions: &[u8]) -> Vec<u8> {
    let mut bytes = frame(0, true, &ack(), b"data");
    let at = ETHERNET + 40;
    bytes[ETHERNET + 6] = kind;
    let len = (bytes.len() - at + extensions.len()) as u16;
    bytes[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&len.to_be_bytes());
    bytes.splice(at..at, extensions.iter().copied());
    bytes
}

#[test]
fn what_is_emitted_is_what_is_parsed() {
    for tags in 0..=2 {
        for ipv6 in [false, true] {
            let bytes = frame(tags, ipv6, &ack(), b"some data");
            let frame = parse_frame(&bytes, bytes.len()).expect("it parses");
            assert_eq!(frame.segment, Segment { payload_len: 9, ..ack() });
            assert_eq!(frame.link, link(tags));
            assert_eq!(&bytes[frame.payload_at..frame.end()], b"some data");
            assert_eq!(frame.end(), bytes.len());
            assert_eq!((frame.hop_limit, frame.ecn), (64, 0));
            assert!(frame.is_checksum_right(&bytes));
        }
    }
}

#[test]
fn a_reply_goes_back_through_the_same_tags() {
    let there = link(2);
    let back = there.reply();
    assert_eq!(back.destination, there.source);
    assert_eq!(back.source, there.destination);
    assert_eq!(back.tags(), there.tags());
    assert_eq!(back.reply(), there);
}

#[test]
fn any_damage_to_the_segment_shows_in_the_checksum() {
    for ipv6 in [false, true] {
        let bytes = frame(0, ipv6, &ack(), b"some data");
        let frame = parse_frame(&bytes, bytes.len()).expect("it parses");
        for at in frame.tcp_at..frame.end() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(!frame.is_checksum_right(&damaged), "octet {at}");
        }
        assert!(!frame.is_checksum_right(&bytes[..bytes.len() - 1]));
    }
}

#[test]
fn padding_behind_the_packet_is_not_payload() {
    for ipv6 in [false, true] {
        let mut bytes = frame(1, ipv6, &ack(), b"");
        let end = bytes.len();
        bytes.resize(end + 6, 0xff);
        let frame = parse_frame(&bytes, bytes.len()).expect("it parses");
        assert_eq!((frame.payload_len, frame.end()), (0, end));
        assert!(frame.is_checksum_right(&bytes));
    }
}

/// With the headers in the first buffer the rest may be anywhere; otherwise the frame is refused
/// for that reason. Without the rest it is too short.
#[test]
fn frames_of_several_buffers_and_truncated_frames() {
    for tags in 0..=2 {
        for ipv6 in [false, true] {
            let bytes = frame(tags, ipv6, &ack(), &[7; 300]);
            let whole = parse_frame(&bytes, bytes.len()).expect("it parses");
            let network_at = ETHERNET + 4 * usize::from(tags);
            for cut in 0..bytes.len() {
                let split = parse_frame(&bytes[..cut], bytes.len());
                if cut >= whole.payload_at {
                    assert_eq!(split, Ok(whole), "first buffer of {cut}");
                } else if cut >= network_at {
                    assert_eq!(split, Err(ParseError::HeadersSplit), "first buffer of {cut}");
                } else {
                    assert_eq!(split, Err(ParseError::EthernetTruncated), "first buffer of {cut}");
                }
                let expected = if cut < network_at {
                    ParseError::EthernetTruncated
                } else {
                    ParseError::IpTruncated
                };
                assert_eq!(parse_frame(&bytes[..cut], cut), Err(expected), "frame of {cut}");
                // A buffer that is longer than the frame says no more than the frame.
                assert_eq!(parse_frame(&bytes, cut), Err(expected), "frame of {cut}");
            }
        }
    }
}

#[test]
fn ethernet_headers_that_are_refused() {
    let mut group = frame(0, false, &ack(), b"");
    group[0] = 0x01;
    refused(&group, ParseError::EthernetGroup);
    group[..6].fill(0xff);
    refused(&group, ParseError::EthernetGroup);

    let mut arp = frame(0, false, &ack(), b"");
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    refused(&arp, ParseError::EtherType);
    arp[12..14].copy_from_slice(&[0x00, 0x2c]);
    refused(&arp, ParseError::EtherType);

    let mut third_tag = frame(2, false, &ack(), b"");
    third_tag.splice(12..12, [0x88, 0xa8, 0, 1]);
    refused(&third_tag, ParseError::VlanDepth);

    let mut mixed = frame(0, true, &ack(), b"");
    mixed[12..14].copy_from_slice(&[0x08, 0x00]);
    refused(&mixed, ParseError::IpVersion);
    let mut mixed = frame(0, false, &ack(), &[0; 40]);
    mixed[12..14].copy_from_slice(&[0x86, 0xdd]);
    refused(&mixed, ParseError::IpVersion);
}

#[test]
fn ipv4_headers_that_are_refused() {
    refused(&ipv4_with(0, 0x44), ParseError::IpLength);
    refused(&ipv4_with(3, 19), ParseError::IpLength);
    refused(&ipv4_with(2, 1), ParseError::IpTruncated);
    refused(&ipv4_with(3, 20 + 19), ParseError::TcpTruncated);
    refused(&ipv4_with(3, 20 + 31), ParseError::TcpOffset);
    refused(&ipv4_with(6, 0x20), ParseError::IpFragment);
    refused(&ipv4_with(7, 1), ParseError::IpFragment);
    refused(&ipv4_with(9, 17), ParseError::IpProtocol);
    let mut bytes = frame(0, false, &ack(), b"");
    bytes[ETHERNET + 8] ^= 1;
    refused(&bytes, ParseError::IpChecksum);
}

#[test]
fn addresses_that_are_refused() {
    for at in [12, 16] {
        for address in [[224, 0, 0, 1], [239, 9, 9, 9], [255; 4], [0; 4]] {
            let mut bytes = frame(0, false, &ack(), b"");
            bytes[ETHERNET + at..ETHERNET + at + 4].copy_from_slice(&address);
            fix_ipv4_checksum(&mut bytes, ETHERNET);
            refused(&bytes, ParseError::IpAddress);
        }
    }
    for at in [8, 24] {
        let mut bytes = frame(0, true, &ack(), b"");
        bytes[ETHERNET + at..ETHERNET + at + 16].fill(0);
        refused(&bytes, ParseError::IpAddress);
        bytes[ETHERNET + at..ETHERNET + at + 2].copy_from_slice(&[0xff, 0x02]);
        refused(&bytes, ParseError::IpAddress);
    }
}

#[test]
fn tcp_headers_that_are_refused() {
    for ipv6 in [false, true] {
        let bytes = frame(0, ipv6, &ack(), b"data");
        let tcp_at = parse_frame(&bytes, bytes.len()).expect("it parses").tcp_at;
        for words in 0..=15_u8 {
            let mut bytes = bytes.clone();
            bytes[tcp_at + 12] = words << 4;
            let result = parse_frame(&bytes, bytes.len());
            // The segment has 36 octets.
            if (5..=9).contains(&words) {
                let frame = result.expect("it parses");
                assert_eq!(frame.payload_at, tcp_at + 4 * usize::from(words));
                assert_eq!(frame.payload_len, 36 - 4 * usize::from(words));
            } else {
                assert_eq!(result, Err(ParseError::TcpOffset), "offset {words}");
            }
        }
    }
}

#[test]
fn ipv6_extension_headers_are_skipped() {
    let pad = [1, 4, 0, 0, 0, 0];
    let options = |next: u8| [&[next, 0][..], &pad].concat();
    let all =
        [options(60), options(43), [&[60, 2, 4, 0][..], &[9; 20]].concat(), options(6)].concat();
    let bytes = ipv6_with(0, &all);
    let frame = parse_frame(&bytes, bytes.len()).expect("it parses");
    assert_eq!(frame.tcp_at, ETHERNET + 40 + all.len());
    assert_eq!(&bytes[frame.payload_at..frame.end()], b"data");
    assert!(frame.is_checksum_right(&bytes));
    // The router alert is to be skipped by those who do not know it, and so is Pad1.
    let alert = ipv6_with(0, &[6, 0, 5, 2, 0, 0, 0, 0]);
    assert!(parse_frame(&alert, alert.len()).is_ok());
}

#[test]
fn ipv6_extension_headers_that_are_refused() {
    let pad = [1, 4, 0, 0, 0, 0];
    let options = |next: u8| [&[next, 0][..], &pad].concat();
    let rows: [(u8, Vec<u8>, ParseError, &str); 12] = [
        (44, [6, 0, 0, 0, 0, 0, 0, 0].to_vec(), ParseError::IpFragment, "an atomic fragment"),
        (44, [6, 0, 0, 1, 0, 0, 0, 9].to_vec(), ParseError::IpFragment, "a fragment"),
        (0, [options(44), options(6)].concat(), ParseError::IpFragment, "behind options"),
        (17, options(6), ParseError::IpProtocol, "UDP"),
        (59, options(6), ParseError::IpProtocol, "no next header"),
        (51, options(6), ParseError::IpProtocol, "an authentication header"),
        (60, [options(0), options(6)].concat(), ParseError::IpExtension, "a late hop-by-hop"),
        (43, [6, 0, 0, 1, 0, 0, 0, 0].to_vec(), ParseError::IpExtension, "a route not at its end"),
        (0, [6, 0, 0xc2, 4, 0, 1, 0, 0].to_vec(), ParseError::IpExtension, "a jumbogram"),
        (60, [6, 0, 0x40, 4, 0, 0, 0, 0].to_vec(), ParseError::IpExtension, "discard if unknown"),
        (60, [6, 0, 1, 5, 0, 0, 0, 0].to_vec(), ParseError::IpExtension, "an option too long"),
        (60, [6, 9, 1, 4, 0, 0, 0, 0].to_vec(), ParseError::IpExtension, "a header too long"),
    ];
    for (kind, extensions, reason, what) in rows {
        let bytes = ipv6_with(kind, &extensions);
        assert_eq!(parse_frame(&bytes, bytes.len()), Err(reason), "{what}");
    }
    // The packet ends within an extension header.
    let mut bytes = frame(0, true, &ack(), b"");
    bytes.truncate(ETHERNET + 40 + 3);
    bytes[ETHERNET + 5] = 3;
    bytes[ETHERNET + 6] = 60;
    refused(&bytes, ParseError::IpExtension);
}

#[test]
fn extension_headers_in_the_second_buffer() {
    let options = [60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
    let bytes = ipv6_with(0, &options);
    let whole = parse_frame(&bytes, bytes.len()).expect("it parses");
    for cut in ETHERNET..whole.payload_at {
        let split = parse_frame(&bytes[..cut], bytes.len());
        assert_eq!(split, Err(ParseError::HeadersSplit), "first buffer of {cut}");
    }
}

#[test]
fn names_of_reasons_are_distinct_and_in_order() {
    for (n, reason) in ParseError::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, n);
        let same = ParseError::ALL.iter().filter(|other| other.name() == reason.name());
        assert_eq!(same.count(), 1, "{reason}");
    }
}

#[test]
fn frames_that_cannot_be_written() {
    let (v4, v6) = (address("10.0.0.1:1"), address("[fd00::1]:1"));
    let link = LinkHeader::new(MacAddress([2; 6]), MacAddress([4; 6]));
    let fields = IpFields::default();
    let mut buf = alloc::vec![0; 70_000];
    assert_eq!(
        emit_frame(&mut buf, &link, v4, v6, fields, &ack(), &[]),
        Err(EmitError::AddressFamily)
    );
    for (end, headers) in [(v4, 20 + 32), (v6, 32)] {
        let most = alloc::vec![1; 65535 - headers];
        let more = alloc::vec![1; 65536 - headers];
        let segment = |payload: &[u8]| Segment { payload_len: payload.len() as u32, ..ack() };
        let len = emit_frame(&mut buf, &link, end, end, fields, &segment(&most), &most)
            .expect("the longest packet");
        let frame = parse_frame(&buf[..len], len).expect("it parses");
        assert!(frame.is_checksum_right(&buf));
        assert_eq!(
            emit_frame(&mut buf, &link, end, end, fields, &segment(&more), &more),
            Err(EmitError::PacketTooLong)
        );
        let len = emit_frame(&mut buf, &link, end, end, fields, &ack(), &[]).expect("it fits");
        for short in 0..len {
            assert_eq!(
                emit_frame(&mut buf[..short], &link, end, end, fields, &ack(), &[]),
                Err(EmitError::BufferTooSmall)
            );
        }
    }
}

/// The sum of RFC 1071, section 3, and its properties at odd lengths.
#[test]
fn the_checksum_of_rfc_1071() {
    assert_eq!(checksum::sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    assert_eq!(checksum::fold(checksum::sum(&[0xff; 9])), 0xff00);
    for len in 0..100 {
        let bytes: Vec<u8> = (0..len).map(|n| (n * 37 + 11) as u8).collect();
        let mut words: u64 = 0;
        for pair in bytes.chunks(2) {
            words += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
        }
        while words > 0xffff {
            words = (words >> 16) + (words & 0xffff);
        }
        assert_eq!(u64::from(checksum::fold(checksum::sum(&bytes))), words, "{len} octets");
    }
    assert_eq!(checksum::fold(u32::MAX), 0xffff);
}
