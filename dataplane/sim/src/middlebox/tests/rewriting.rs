//! Removal of options.

use super::*;
use proptest::prelude::*;

/// The options of a frame after it went through a chain.
fn options_after(chain: &mut Chain, frame: Vec<u8>) -> (Options, usize) {
    let frame = through(chain, Right, frame);
    let (read, _) = read(&frame);
    (read.segment.options, read.payload_at - read.tcp_at - 20)
}

const NO_MPTCP: MptcpOptions = MptcpOptions {
    capable: None,
    join: None,
    dss: None,
    add_addr: None,
    remove_addr: None,
    priority: None,
    fail: None,
    fast_close: None,
    reset: None,
};

#[test]
fn mptcp_options_go_from_the_syn_alone() {
    let mut chain = chain("strip=syn");
    let (options, length) = options_after(&mut chain, frame(Right, syn(), b""));
    assert_eq!(options, Options { mptcp: NO_MPTCP, ..syn().options });
    assert_eq!(length, 24, "NOPs in their place");
    let data = frame(Right, mapped(3), b"abc");
    assert_eq!(through(&mut chain, Right, data.clone()), data);
}

#[test]
fn mptcp_options_go_from_data_alone() {
    let mut chain = chain("strip=data");
    for untouched in [frame(Right, syn(), b""), frame(Right, mapped(3), b"")] {
        assert_eq!(through(&mut chain, Right, untouched.clone()), untouched);
    }
    let (options, _) = options_after(&mut chain, frame(Right, mapped(3), b"abc"));
    assert_eq!(options, ack().options);
}

#[test]
fn mptcp_options_go_in_mid_stream() {
    let mut chain = chain("strip=after-100");
    let data = |length: usize| frame(Right, mapped(3), &bytes(length));
    for untouched in [frame(Right, syn(), b""), data(60), data(39), data(1)] {
        assert_eq!(through(&mut chain, Right, untouched.clone()), untouched);
    }
    // A hundred bytes have passed; from now on nothing keeps its options, either way.
    assert_eq!(options_after(&mut chain, data(1)).0, ack().options);
    let back = through(&mut chain, Left, frame(Left, mapped(3), b""));
    assert_eq!(read(&back).0.segment.options, ack().options);
    // Other connections, and new ones with the same ports, start anew.
    let [left, right] = hosts(true);
    let other = frame_between([left, right], false, mapped(3), b"x");
    assert_eq!(through(&mut chain, Right, other.clone()), other);
    for untouched in [frame(Right, syn(), b""), data(1)] {
        assert_eq!(through(&mut chain, Right, untouched.clone()), untouched);
    }
}

#[test]
fn mptcp_options_go_on_one_way_after_what_passed_on_the_other() {
    let mut chain = chain("<strip=after-100");
    let back = || frame(Left, mapped(3), b"");
    assert_eq!(through(&mut chain, Left, back()), back());
    let data = frame(Right, mapped(3), &bytes(100));
    for _ in 0..2 {
        assert_eq!(through(&mut chain, Right, data.clone()), data);
    }
    let stripped = through(&mut chain, Left, back());
    assert_eq!(read(&stripped).0.segment.options, ack().options);
}

#[test]
fn options_are_removed_by_kind_and_subtype() {
    let sacked = with_sack(ack(), &[(5000, 6000)]);
    let (options, _) = options_after(&mut chain("strip=all:ts"), frame(Right, sacked, b""));
    assert_eq!(options, Options { timestamps: None, ..sacked.options });
    let (options, _) = options_after(&mut chain("strip=all:sack"), frame(Right, sacked, b""));
    assert_eq!(options, ack().options);
    let kept = mapped(3).options;
    let sent = || frame(Right, mapped(3), b"abc");
    let (options, _) = options_after(&mut chain("strip=all:add_addr+kind-99"), sent());
    assert_eq!(options, kept);
    let (options, _) = options_after(&mut chain("strip=all:dss"), sent());
    assert_eq!(options, Options { mptcp: NO_MPTCP, ..kept });
    let (options, _) =
        options_after(&mut chain("strip=all:mss+wscale+sackok"), frame(Right, syn(), b""));
    assert_eq!(
        options,
        Options { mss: None, window_scale: None, sack_permitted: false, ..syn().options }
    );
}

#[test]
fn a_header_shrinks_to_what_is_left() {
    for (ipv6, tagged) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut chain = chain("strip=all:mptcp:shrink");
        let payload = bytes(777);
        let sent = frame_between(hosts(ipv6), tagged, mapped(777), &payload);
        let got = through(&mut chain, Right, sent.clone());
        let (parsed, got_payload) = read(&got);
        assert_eq!(parsed.segment, Segment { payload_len: 777, ..ack() });
        assert_eq!(got_payload, payload);
        assert_eq!(sent.len() - got.len(), 28, "timestamps take 12 bytes, the mapping took 28");
        assert_eq!(parsed.end(), got.len());
    }
}

#[test]
fn a_damaged_packet_stays_damaged_when_its_header_is_edited() {
    for text in ["strip=all", "strip=all:mptcp:shrink", "nat", "nat=10.0.0.9"] {
        let mut sent = frame(Right, mapped(3), b"abc");
        *sent.last_mut().expect("payload") ^= 1;
        let got = through(&mut chain(text), Right, sent);
        let parsed = parse_frame(&got, got.len()).expect("headers are right");
        assert!(!parsed.is_checksum_right(&got), "{text}");
    }
}

#[test]
fn ethernet_padding_stays_behind_the_packet() {
    let mut sent = frame(Right, mapped(1), b"x");
    let length = sent.len();
    sent.extend_from_slice(&[0xee; 9]);
    for text in ["strip=all", "strip=all:mptcp:shrink", "isn", "nat"] {
        let mut chain = chain(text);
        let got = through(&mut chain, Right, sent.clone());
        assert_eq!(read(&got).1, b"x", "{text}");
        assert_eq!(got[got.len() - 9..], [0xee; 9], "{text}");
        assert!(got.len() <= length + 9);
    }
}

#[test]
fn what_is_no_tcp_passes_every_box_as_it_is() {
    let every = "isn,nat,strip=all,split=8,coalesce=9000,alter=100%,drop=data,mtu=1500,alter=at-0";
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    for sent in [arp, vec![], vec![1], vec![0; 14], bytes(64)] {
        assert_eq!(through(&mut chain(every), Right, sent.clone()), sent);
    }
}

proptest! {
    /// Whatever octets the option list has, the rest of the packet is as before, and right.
    #[test]
    fn any_option_list_can_be_edited(
        words in prop::collection::vec(any::<[u8; 4]>(), 0..10),
        shrink in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let list: Vec<u8> = words.concat();
        let sent = with_options(&list, &payload);
        let text = if shrink { "strip=all:mptcp+kind-2+ts:shrink" } else { "strip=all:mptcp+kind-2+ts" };
        let got = through(&mut chain(text), Right, sent.clone());
        let (before, _) = read(&sent);
        let (after, got_payload) = read(&got);
        prop_assert_eq!(got_payload, payload);
        let Options { sack, mptcp, mss, timestamps, .. } = after.segment.options;
        prop_assert_eq!((mptcp, mss, timestamps), (NO_MPTCP, None, None));
        prop_assert_eq!(sack, before.segment.options.sack);
        prop_assert!(shrink || got.len() == sent.len());
        prop_assert_eq!(
            Segment { options: Options::default(), ..before.segment },
            Segment { options: Options::default(), ..after.segment },
        );
    }
}

/// An acknowledgement whose option list is `list`, a multiple of four octets.
fn with_options(list: &[u8], payload: &[u8]) -> Vec<u8> {
    use mpxdp_proto::wire::checksum;
    let plain = Segment { options: Options::default(), ..ack() };
    // Built with as much payload, which then becomes options.
    let mut frame = frame(Right, plain, &[list, payload].concat());
    let tcp_at = 34;
    frame[tcp_at + 12] = ((20 + list.len()) as u8 / 4) << 4;
    frame[tcp_at + 16..tcp_at + 18].fill(0);
    let parsed = parse_frame(&frame, frame.len()).expect("headers");
    let sum = parsed.pseudo_header_sum() + checksum::sum(&frame[tcp_at..]);
    let sum = !checksum::fold(sum);
    frame[tcp_at + 16..tcp_at + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}
