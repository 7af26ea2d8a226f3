//! Loss, duplication, corruption, delay, reordering, rate, MTU, filters, and chains of them.

use super::*;
use crate::middlebox::{Counters, Probability, Random};
use mpxdp_proto::wire::checksum;

/// A frame that can be told from others.
fn numbered(number: u32) -> Vec<u8> {
    frame(Right, Segment { seq: SeqNum(number), ..ack() }, b"")
}

fn number(frame: &[u8]) -> u32 {
    read(frame).0.segment.seq.0
}

#[test]
fn probabilities_are_kept_to() {
    let mut random = Random::new(5);
    for (parts, least, most) in [(0, 0, 0), (1_000_000, 100_000, 100_000), (10_000, 900, 1100)] {
        let probability = Probability::per_million(parts).expect("at most a million");
        let hits = (0..100_000).filter(|_| random.chance(probability)).count();
        assert!((least..=most).contains(&hits), "{hits} of 100000 at {probability}");
    }
}

#[test]
fn loss_and_duplication_happen_as_often_as_they_should_and_keep_the_order() {
    let mut chain = chain(">loss=10%,>dup=10%");
    let mut seen = Vec::new();
    for n in 0..10_000 {
        seen.extend(pass(&mut chain, Right, numbered(n)).iter().map(|(_, f)| number(f)));
    }
    assert!(seen.is_sorted());
    let [(_, loss), (_, dup)] = chain.counters().collect::<Vec<_>>()[..] else { panic!("two") };
    assert!((850..1150).contains(&loss.dropped), "{loss:?}");
    assert!((750..1050).contains(&dup.added), "{dup:?}");
    assert_eq!(seen.len() as u64, 10_000 - loss.dropped + dup.added);

    let back = frame(Left, ack(), b"x");
    for _ in 0..1000 {
        assert_eq!(pass(&mut chain, Left, back.clone()), [(Left, back.clone())]);
    }
}

#[test]
fn corruption_flips_one_bit_which_a_checksum_finds() {
    for (ipv6, tagged) in [(false, false), (true, false), (false, true)] {
        let mut chain = chain("corrupt=100%");
        let original = frame_between(hosts(ipv6), tagged, mapped(100), &bytes(100));
        let ip_at = link(tagged).wire_len();
        let mut undetected = 0;
        for _ in 0..2000 {
            let damaged = through(&mut chain, Right, original.clone());
            let flipped: u32 =
                original.iter().zip(&damaged).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(flipped, 1);
            assert_eq!(original[..ip_at], damaged[..ip_at], "the Ethernet header is left alone");
            let found = parse_frame(&damaged, damaged.len())
                .map_or(true, |parsed| !parsed.is_checksum_right(&damaged));
            if !found {
                undetected += 1;
            }
        }
        // Traffic class, flow label and hop limit of IPv6 are under no checksum: 4.5 of 194 bytes.
        assert!(undetected <= if ipv6 { 120 } else { 0 }, "{undetected} undetected");
    }
    // Address resolution has no checksum.
    let mut arp = vec![0xff; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(through(&mut chain("corrupt=100%"), Right, arp.clone()), arp);
}

#[test]
fn a_delay_is_exact_and_a_jitter_stays_in_its_range_and_keeps_the_order() {
    let mut chain = chain("delay=40ms");
    for n in 0..3 {
        assert!(pass_at(&mut chain, Instant(n), Right, numbered(n as u32)).is_empty());
    }
    let out: Vec<_> = drain(&mut chain).into_iter().map(|(at, _, f)| (at, number(&f))).collect();
    assert_eq!(out, [0, 1, 2].map(|n| (Instant(40_000_000 + n), n as u32)));

    let mut chain = super::chain("delay=1ms:3ms");
    for n in 0..1000 {
        let now = Instant(n * 10_000_000);
        assert!(pass_at(&mut chain, now, Left, numbered(n as u32)).is_empty());
        let late = drain(&mut chain)[0].0.saturating_since(now);
        assert!((ms(1)..=ms(4)).contains(&late), "{late:?}");
    }
    for n in 0..1000 {
        pass_at(&mut chain, Instant(1 << 40), Left, numbered(n));
    }
    let order: Vec<_> = drain(&mut chain).iter().map(|(_, _, frame)| number(frame)).collect();
    assert!(order.is_sorted() && order.len() == 1000);
}

#[test]
fn frames_that_are_held_back_are_overtaken_and_then_come() {
    let mut chain = chain("reorder=20%:2ms");
    let (mut at_once, mut later) = (Vec::new(), Vec::new());
    for n in 0..1000 {
        let out = pass_at(&mut chain, Instant(u64::from(n)), Right, numbered(n));
        at_once.extend(out.iter().map(|(_, frame)| number(frame)));
    }
    for (at, _, frame) in drain(&mut chain) {
        assert_eq!(at, Instant(2_000_000 + u64::from(number(&frame))));
        later.push(number(&frame));
    }
    assert!((150..250).contains(&later.len()), "{}", later.len());
    let mut all = [at_once, later].concat();
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_rate_spaces_frames_and_its_queue_has_an_end() {
    // A frame of 66 bytes takes 528 us at 1 Mbit/s, and 15 of them fit a queue of 1000 bytes.
    let mut chain = chain("rate=1Mbit:1000");
    assert_eq!(numbered(0).len(), 66);
    for n in 0..20 {
        assert!(pass(&mut chain, Right, numbered(n)).is_empty());
    }
    assert_eq!(Middlebox::counters(&chain), Counters { dropped: 5, changed: 15, added: 0 });
    let out = drain(&mut chain);
    for (n, (at, _, frame)) in out.iter().enumerate() {
        assert_eq!((*at, number(frame)), (Instant(528_000 * (n as u64 + 1)), n as u32));
    }
    assert_eq!(out.len(), 15);

    // After a pause the rate does not catch up.
    pass_at(&mut chain, Instant(1_000_000_000), Right, numbered(0));
    assert_eq!(chain.next_timeout(), Some(Instant(1_000_528_000)));
    // Both directions have the rate to themselves.
    pass_at(&mut chain, Instant(1_000_000_000), Left, numbered(0));
    assert_eq!(drain(&mut chain).len(), 2);
}

#[test]
fn boxes_are_passed_in_the_order_of_the_text_or_the_opposite() {
    let mut chain = chain("delay=1ms,rate=1Mbit,delay=2ms");
    pass(&mut chain, Right, numbered(1));
    pass_at(&mut chain, Instant(0), Left, numbered(2));
    let mut out: Vec<_> = drain(&mut chain).into_iter().map(|(at, way, _)| (way, at)).collect();
    out.sort_unstable();
    assert_eq!(out, [(Right, Instant(3_528_000)), (Left, Instant(3_528_000))]);
}

#[test]
fn calls_that_come_late_keep_the_order() {
    let mut chain = chain("delay=1ms,rate=1Mbit,delay=2ms");
    for n in 0..5 {
        assert!(pass(&mut chain, Right, numbered(n)).is_empty());
    }
    let mut order = Vec::new();
    for late in 1..10 {
        let now = Instant(late * 50_000_000);
        let mut out = Output::default();
        chain.on_timeout(now, &mut out);
        chain.on_frame(now, Right, numbered(4 + late as u32), &mut out);
        order.extend(std::iter::from_fn(|| out.pop()).map(|(_, frame)| number(&frame)));
    }
    order.extend(drain(&mut chain).iter().map(|(_, _, frame)| number(frame)));
    assert_eq!(order, (0..14).collect::<Vec<_>>());
}

#[test]
fn filters_lose_their_kind_of_traffic_and_nothing_else() {
    let join = {
        use mpxdp_proto::segment::{AddressId, MpJoin, Token};
        let join =
            MpJoin::Syn { backup: false, address_id: AddressId(1), token: Token(1), nonce: 1 };
        let mptcp = MptcpOptions { join: Some(join), ..MptcpOptions::default() };
        Segment { options: Options { mptcp, ..Options::default() }, ..syn() }
    };
    let fin = Segment { flags: Flags::FIN.with(Flags::ACK), ..ack() };
    let rst = Segment { flags: Flags::RST, ..ack() };
    let kinds = [
        frame(Right, mapped(3), b"abc"),
        frame(Right, ack(), b""),
        frame(Right, syn(), b""),
        frame(Right, join, b""),
        frame(Right, fin, b""),
        frame(Right, rst, b""),
        vec![0; 60],
    ];
    for (name, lost) in [
        ("data", vec![0]),
        ("acks", vec![1]),
        ("syn", vec![2, 3]),
        ("join", vec![3]),
        ("fin", vec![4]),
        ("rst", vec![5]),
        ("all", vec![0, 1, 2, 3, 4, 5, 6]),
    ] {
        let mut chain = chain(&format!(">drop={name}"));
        for (at, frame) in kinds.iter().enumerate() {
            let out = pass(&mut chain, Right, frame.clone());
            assert_eq!(out.is_empty(), lost.contains(&at), "{name}: {at}");
        }
        assert_eq!(pass(&mut chain, Left, kinds[0].clone()).len(), 1);
    }
}

#[test]
fn a_cut_begins_after_the_first_segment_and_ends() {
    let mut chain = chain("cut=2s:500ms");
    let passes = |chain: &mut Chain, milliseconds: u64, frame: Vec<u8>| {
        !pass_at(chain, Instant(milliseconds * 1_000_000), Right, frame).is_empty()
    };
    assert!(passes(&mut chain, 3_000, vec![0; 60]), "no TCP yet");
    for (at, expected) in
        [(10_000, true), (11_999, true), (12_000, false), (12_499, false), (12_500, true)]
    {
        assert_eq!(passes(&mut chain, at, numbered(1)), expected, "{at} ms");
    }
    assert_eq!(Middlebox::counters(&chain).dropped, 2);
}

#[test]
fn an_mtu_loses_what_is_longer_and_tells_the_sender_if_it_should() {
    for (ipv6, tagged) in [(false, false), (true, true)] {
        let headers = if ipv6 { 60 } else { 40 } + 12;
        let fits = frame_between(hosts(ipv6), tagged, ack(), &bytes(1300 - headers));
        let long = frame_between(hosts(ipv6), tagged, ack(), &bytes(1301 - headers));
        let mut silent = chain("mtu=1300");
        assert_eq!(through(&mut silent, Right, fits.clone()), fits);
        assert!(pass(&mut silent, Right, long.clone()).is_empty());

        let mut out = pass(&mut chain("mtu=1300:icmp"), Right, long.clone());
        let (Left, message) = out.remove(0) else { panic!("to its sender") };
        assert!(out.is_empty());
        let ip_at = link(tagged).wire_len();
        let (theirs, ours) = (&long[..ip_at], &message[..ip_at]);
        assert_eq!(
            [&ours[6..12], &ours[..6], &ours[12..]],
            [&theirs[..6], &theirs[6..12], &theirs[12..]]
        );
        let (packet, original) = (&message[ip_at..], &long[ip_at..]);
        if ipv6 {
            assert_eq!(packet.len(), 1280);
            assert_eq!(
                (packet[6], &packet[40..42], &packet[44..48]),
                (58, &[2, 0][..], &[0, 0, 5, 20][..])
            );
            assert_eq!((&packet[8..24], &packet[24..40]), (&original[24..40], &original[8..24]));
            assert_eq!(packet[48..], original[..1232]);
            let sum = checksum::sum(&packet[8..]) + 58 + (packet.len() as u32 - 40);
            assert_eq!(checksum::fold(sum), 0xffff);
        } else {
            assert_eq!(packet.len(), 576);
            assert_eq!(
                (packet[9], &packet[20..22], &packet[26..28]),
                (1, &[3, 4][..], &[5, 20][..])
            );
            assert_eq!((&packet[12..16], &packet[16..20]), (&original[16..20], &original[12..16]));
            assert_eq!(packet[28..], original[..548]);
            assert_eq!(checksum::fold(checksum::sum(&packet[..20])), 0xffff);
            assert_eq!(checksum::fold(checksum::sum(&packet[20..])), 0xffff);
        }
    }
}

#[test]
fn a_message_of_a_box_in_the_middle_passes_the_boxes_on_its_side_only() {
    let mut chain = chain("delay=1ms,mtu=1300:icmp,delay=7ms");
    let long = frame(Right, ack(), &bytes(1400));
    assert!(pass(&mut chain, Right, long).is_empty());
    let [(at, Left, _)] = drain(&mut chain)[..] else { panic!("one message") };
    assert_eq!(at, Instant(2_000_000));
}

#[test]
fn the_same_seed_does_the_same_and_another_one_does_not() {
    let spec = "loss=5%,dup=5%,corrupt=5%,reorder=5%,delay=1ms:1ms,alter=5%";
    let trace = |seed| {
        let mut chain = Chain::new(&spec.parse().expect("a chain"), seed);
        let mut trace = Vec::new();
        for n in 0..500 {
            let way = if n % 3 == 0 { Left } else { Right };
            let payload = bytes(n as usize);
            let sent = frame(way, Segment { seq: SeqNum(n), ..mapped(1) }, &payload);
            let now = Instant(u64::from(n) * 10_000);
            trace.extend(pass_at(&mut chain, now, way, sent).into_iter().map(|(w, f)| (now, w, f)));
        }
        trace.extend(drain(&mut chain));
        trace
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn traffic_one_way_does_not_change_what_happens_the_other_way() {
    let lost = |noise: bool| {
        let mut chain = chain("loss=20%");
        let mut lost = Vec::new();
        for n in 0..200 {
            if noise {
                pass(&mut chain, Left, numbered(n));
            }
            if pass(&mut chain, Right, numbered(n)).is_empty() {
                lost.push(n);
            }
        }
        lost
    };
    assert_eq!(lost(false), lost(true));
}
