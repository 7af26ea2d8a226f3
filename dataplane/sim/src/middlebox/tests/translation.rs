//! NAT and sequence numbers.

use super::*;

#[test]
fn sequence_numbers_are_shifted_and_shifted_back() {
    let mut chain = chain("isn");
    let request = through(&mut chain, Right, frame(Right, syn(), b""));
    let request = read(&request).0.segment;
    let there = request.seq.distance_from(syn().seq) as u32;
    assert_ne!(there, 0);
    assert_eq!(Segment { seq: syn().seq, ..request }, syn(), "nothing else changes");

    let answer = Segment { seq: SeqNum(u32::MAX), ack: request.seq + 1, ..ack() };
    let answer = Segment { flags: Flags::SYN.with(Flags::ACK), ..answer };
    let got = through(&mut chain, Left, frame(Left, answer, b""));
    let got = read(&got).0.segment;
    assert_eq!(got.ack, syn().seq + 1, "the sender sees its own numbers acknowledged");
    let back = got.seq.distance_from(answer.seq) as u32;
    assert_ne!(back, 0);
    assert_ne!(back, there);

    // The receiver acknowledges shifted numbers, the sender sees its own.
    let data = mapped(3);
    let got = through(&mut chain, Right, frame(Right, data, b"abc"));
    let got = read(&got).0.segment;
    assert_eq!((got.seq, got.ack), (data.seq + there, data.ack - back));
    assert_eq!(got.options, data.options, "mappings are relative to the SYN and stay");
    let sacked = with_sack(ack(), &[(5000, 6000), (u32::MAX - 10, 20)]);
    let got = through(&mut chain, Left, frame(Left, sacked, b""));
    let got = read(&got).0.segment;
    assert_eq!((got.seq, got.ack), (sacked.seq + back, sacked.ack - there));
    let shifted =
        |block: &SackBlock| SackBlock { start: block.start - there, end: block.end - there };
    let expected: Vec<_> = sacked.options.sack.as_slice().iter().map(shifted).collect();
    assert_eq!(got.options.sack.as_slice(), expected);

    // A retransmitted SYN is shifted as the first one was; a reset without ACK has no number to
    // shift back.
    let again = through(&mut chain, Right, frame(Right, syn(), b""));
    assert_eq!(read(&again).0.segment, request);
    let reset = Segment { flags: Flags::RST, ack: SeqNum(0), ..ack() };
    let got = through(&mut chain, Right, frame(Right, reset, b""));
    assert_eq!(read(&got).0.segment, Segment { seq: reset.seq + there, ..reset });
}

#[test]
fn two_boxes_that_face_each_other_cancel_out() {
    // What one shifts, its mirror image with the same dice shifts back.
    let mut first = Chain::new(&">isn".parse().expect("a chain"), 3);
    let mut second = Chain::new(&">isn".parse().expect("a chain"), 3);
    let request = through(&mut first, Right, frame(Right, syn(), b""));
    through(&mut second, Right, frame(Right, syn(), b""));
    let there = read(&request).0.segment.seq.distance_from(syn().seq) as u32;
    let sent = with_sack(ack(), &[(5000, 6000)]);
    let reply = Segment { ack: sent.ack + there, ..sent };
    let got = through(&mut first, Left, frame(Left, reply, b""));
    let segment = read(&got).0.segment;
    assert_eq!(segment.ack, sent.ack);
    assert_eq!(segment.seq, sent.seq, "only the numbers that go right are shifted");
    assert_eq!(segment.options.sack.as_slice()[0].start, SeqNum(5000) - there);
}

#[test]
fn connections_have_shifts_of_their_own_and_unknown_ones_have_none() {
    let mut chain = chain("isn");
    let [left, right] = hosts(false);
    let mut shifts = std::collections::HashSet::new();
    for port in 1..100 {
        let sent = frame_between([SocketAddr::new(left.ip(), port), right], false, syn(), b"");
        shifts.insert(read(&through(&mut chain, Right, sent)).0.segment.seq.0);
    }
    assert_eq!(shifts.len(), 99);
    let unknown = frame(Right, mapped(3), b"abc");
    assert_eq!(through(&mut chain, Right, unknown.clone()), unknown);
}

#[test]
fn a_translated_connection_has_another_port_outside_and_its_own_inside() {
    for (text, address, ipv6) in [
        ("nat", None, false),
        ("nat", None, true),
        ("nat=192.0.2.9", Some("192.0.2.9"), false),
        ("nat=2001:db8::9", Some("2001:db8::9"), true),
        ("nat=192.0.2.9", None, true),
    ] {
        let mut chain = chain(text);
        let [inside, remote] = hosts(ipv6);
        let sent = frame_between([inside, remote], false, syn(), b"");
        let out = through(&mut chain, Right, sent);
        let (out, _) = read(&out);
        let outside = out.remote;
        let address = address.map_or_else(|| inside.ip(), |text| text.parse().expect("an address"));
        assert_eq!(outside.ip(), address);
        assert_ne!(outside.port(), inside.port());
        assert_eq!((out.local, out.segment), (remote, syn()));

        let reply = frame_between([remote, outside], true, mapped(5), b"hello");
        let back = through(&mut chain, Left, reply);
        let (back, payload) = read(&back);
        assert_eq!((back.local, back.remote), (inside, remote));
        assert_eq!(payload, b"hello");
        assert_eq!(back.segment, Segment { payload_len: 5, ..mapped(5) });

        let later = frame_between([inside, remote], false, mapped(3), b"abc");
        let later = through(&mut chain, Right, later);
        assert_eq!(read(&later).0.remote, outside, "the translation is kept");
    }
}

#[test]
fn no_two_connections_look_the_same_from_outside() {
    let mut chain = chain("nat=192.0.2.9");
    let [_, remote] = hosts(false);
    let mut seen = std::collections::HashSet::new();
    for host in 1..=4 {
        for port in 1..=1000 {
            let inside = SocketAddr::from(([10, 0, 0, host], port));
            let out =
                through(&mut chain, Right, frame_between([inside, remote], false, syn(), b""));
            let outside = read(&out).0.remote;
            assert!(seen.insert(outside), "{outside} twice");
            let back = frame_between([remote, outside], false, ack(), b"");
            assert_eq!(read(&through(&mut chain, Left, back)).0.local, inside);
        }
    }
}

#[test]
fn connections_from_outside_are_not_translated() {
    let mut chain = chain("nat");
    let [left, right] = hosts(false);
    let answer = Segment { flags: Flags::SYN.with(Flags::ACK), ..syn() };
    for (way, ends, segment) in [
        (Left, [right, left], syn()),
        (Right, [left, right], answer),
        (Left, [right, left], ack()),
        (Right, [left, right], ack()),
        (Left, [right, SocketAddr::new(left.ip(), 25_000)], ack()),
    ] {
        let sent = frame_between(ends, false, segment, b"");
        assert_eq!(through(&mut chain, way, sent.clone()), sent);
    }
    // With the prefix it faces the other way.
    let mut chain = super::chain("<nat");
    let sent = frame_between([right, left], false, syn(), b"");
    assert_ne!(read(&through(&mut chain, Left, sent)).0.remote, right);
}
