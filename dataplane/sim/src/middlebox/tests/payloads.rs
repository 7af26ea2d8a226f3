//! Splitting, coalescing and altering payload.

use super::*;
use crate::middlebox::Counters;
use proptest::prelude::*;

fn parts(chain: &mut Chain, frame: Vec<u8>) -> Vec<(Frame, Vec<u8>)> {
    pass(chain, Right, frame).iter().map(|(_, frame)| read(frame)).collect()
}

#[test]
fn a_long_segment_is_cut_and_every_part_has_the_mapping() {
    for ipv6 in [false, true] {
        let payload = bytes(1000);
        let flags = Flags::ACK.with(Flags::PSH).with(Flags::FIN).with(Flags::CWR);
        let sent = frame_between(hosts(ipv6), true, Segment { flags, ..mapped(1000) }, &payload);
        let parts = parts(&mut chain("split=301"), sent);
        assert_eq!(
            parts.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(),
            [301, 301, 301, 97]
        );
        assert_eq!(parts.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), payload);
        for (at, (part, bytes)) in parts.iter().enumerate() {
            assert_eq!(part.segment.seq, mapped(0).seq + 301 * at as u32);
            assert_eq!(part.segment.options, mapped(1000).options);
            assert_eq!(part.segment.ack, mapped(0).ack);
            assert_eq!(part.segment.flags.contains(Flags::FIN.with(Flags::PSH)), bytes.len() == 97);
            assert_eq!(part.segment.flags.contains(Flags::CWR), at == 0);
            assert_eq!(part.link, link(true));
        }
    }
}

#[test]
fn the_mapping_can_stay_on_the_first_part() {
    let parts = parts(&mut chain("split=400:first"), frame(Right, mapped(1000), &bytes(1000)));
    let options: Vec<_> = parts.iter().map(|(part, _)| part.segment.options).collect();
    assert_eq!(options, [mapped(1000).options, ack().options, ack().options]);
}

#[test]
fn what_is_short_a_syn_or_damaged_is_not_cut() {
    let mut chain = chain("split=8");
    let mut damaged = frame(Right, mapped(20), &bytes(20));
    *damaged.last_mut().expect("payload") ^= 1;
    for whole in [
        frame(Right, mapped(8), &bytes(8)),
        frame(Right, syn(), &bytes(20)),
        frame(Right, ack(), b""),
        damaged,
    ] {
        assert_eq!(through(&mut chain, Right, whole.clone()), whole);
    }
}

/// A segment of the stream `bytes`, from `at` on.
fn piece(segment: Segment, at: usize, length: usize) -> Vec<u8> {
    let seq = segment.seq + at as u32;
    frame(Right, Segment { seq, ..segment }, &bytes(at + length)[at..])
}

#[test]
fn segments_of_one_mapping_are_merged_until_they_are_long_enough() {
    let mut chain = chain("coalesce=300");
    assert!(pass(&mut chain, Right, piece(mapped(400), 0, 100)).is_empty());
    assert!(pass(&mut chain, Right, piece(mapped(400), 100, 100)).is_empty());
    let newer = Segment { ack: SeqNum(2500), window: 900, ..mapped(400) };
    let out = pass(&mut chain, Right, piece(newer, 200, 100));
    let [(Right, merged)] = &out[..] else { panic!("one frame") };
    let (merged, payload) = read(merged);
    assert_eq!(payload, bytes(300));
    assert_eq!(merged.segment, Segment { payload_len: 300, ..newer });
    assert_eq!(chain.next_timeout(), None, "nothing is held");
    assert_eq!(Middlebox::counters(&chain), Counters { changed: 2, ..Counters::default() });
}

#[test]
fn a_segment_waits_for_the_next_one_for_a_while_only() {
    let mut chain = chain("coalesce=9000:5ms");
    pass_at(&mut chain, Instant(10), Right, piece(mapped(400), 0, 100));
    pass_at(&mut chain, Instant(4_000_000), Right, piece(mapped(400), 100, 50));
    let [(at, Right, ref merged)] = drain(&mut chain)[..] else { panic!("one frame") };
    assert_eq!(at, Instant(5_000_010), "from the first on");
    assert_eq!(read(merged).1, bytes(150));
}

#[test]
fn different_mappings_are_merged_only_when_told_and_then_the_later_ones_are_lost() {
    let second = {
        let mut segment = mapped(100);
        segment.options.mptcp.dss.as_mut().expect("a DSS").ack = Some(DssNumber::Long(78));
        segment
    };
    let mut careful = chain("coalesce=9000");
    assert!(pass(&mut careful, Right, piece(mapped(100), 0, 100)).is_empty());
    let out = pass(&mut careful, Right, piece(second, 100, 100));
    assert_eq!(out, [(Right, piece(mapped(100), 0, 100))], "the first goes, the second is held");
    assert_eq!(drain(&mut careful)[0].2, piece(second, 100, 100));

    let mut careless = chain("coalesce=9000:first");
    assert!(pass(&mut careless, Right, piece(mapped(100), 0, 100)).is_empty());
    assert!(pass(&mut careless, Right, piece(second, 100, 100)).is_empty());
    let (merged, payload) = read(&drain(&mut careless)[0].2);
    assert_eq!(payload, bytes(200));
    assert_eq!(merged.segment.options, mapped(100).options);
}

#[test]
fn what_does_not_follow_lets_the_held_segment_out_first() {
    let held = || piece(mapped(400), 0, 100);
    for next in [
        piece(mapped(400), 200, 100),
        frame(Right, ack(), b""),
        piece(Segment { flags: Flags::RST.with(Flags::ACK), ..mapped(400) }, 100, 10),
        piece(mapped(400), 100, 9000),
    ] {
        let mut chain = chain("coalesce=9000");
        assert!(pass(&mut chain, Right, held()).is_empty());
        let mut out = pass(&mut chain, Right, next.clone());
        out.extend(drain(&mut chain).into_iter().map(|(_, way, frame)| (way, frame)));
        assert_eq!(out, [(Right, held()), (Right, next)]);
    }
    // FIN ends the waiting; other connections and the other direction are not concerned.
    let mut chain = chain("coalesce=9000");
    pass(&mut chain, Right, held());
    assert_eq!(pass(&mut chain, Left, frame(Left, ack(), b"")).len(), 1);
    let fin = Segment { flags: Flags::ACK.with(Flags::FIN), ..mapped(400) };
    let out = pass(&mut chain, Right, piece(fin, 100, 10));
    assert_eq!(read(&out[0].1).0.segment.flags, Flags::ACK.with(Flags::FIN));
    assert_eq!(read(&out[0].1).1, bytes(110));
}

proptest! {
    /// What is cut and merged again is the same stream with the same mapping.
    #[test]
    fn cutting_and_merging_keep_the_stream(
        lengths in prop::collection::vec(1..3000_usize, 1..12),
        cut in 8..2000_u64,
        merge in 0..5000_u64,
    ) {
        let mut chain = chain(&format!("split={cut},coalesce={merge},split={cut},coalesce={merge}:2ms"));
        let mut got = Vec::new();
        let mut at = 0;
        for &length in &lengths {
            got.extend(pass(&mut chain, Right, piece(mapped(9), at, length)));
            at += length;
        }
        got.extend(drain(&mut chain).into_iter().map(|(_, way, frame)| (way, frame)));
        let mut next = mapped(9).seq;
        let mut stream = Vec::new();
        for (_, frame) in got {
            let (parsed, payload) = read(&frame);
            prop_assert_eq!(parsed.segment.seq, next);
            prop_assert_eq!(parsed.segment.options, mapped(9).options);
            next += payload.len() as u32;
            stream.extend(payload);
        }
        prop_assert_eq!(stream, bytes(at));
    }
}

#[test]
fn an_altered_byte_has_a_right_checksum() {
    let mut chain = chain("alter=100%");
    for length in [1, 2, 99, 1400] {
        let sent = frame(Right, mapped(9), &bytes(length));
        let got = through(&mut chain, Right, sent.clone());
        let (parsed, payload) = read(&got);
        assert_eq!(parsed, read(&sent).0);
        let differ = payload.iter().zip(bytes(length)).filter(|(a, b)| **a != *b).count();
        assert_eq!(differ, 1);
    }
    let empty = frame(Right, ack(), b"");
    assert_eq!(through(&mut chain, Right, empty.clone()), empty);
}

#[test]
fn one_byte_of_a_stream_is_altered_whenever_it_passes() {
    let mut chain = chain("alter=at-150");
    let [left, right] = hosts(false);
    // Without its SYN, a stream's places are not known.
    let early = piece(mapped(9), 100, 100);
    assert_eq!(through(&mut chain, Right, early.clone()), early);
    through(&mut chain, Right, frame_between([left, right], false, syn(), b""));
    for (at, length, hit) in
        [(0, 100, None), (100, 100, Some(50)), (150, 1, Some(0)), (151, 9, None), (100, 50, None)]
    {
        // The SYN has number 999, so the stream starts at 1000, as in `piece`.
        let got = through(&mut chain, Right, piece(mapped(9), at, length));
        let mut expected = bytes(at + length)[at..].to_vec();
        if let Some(hit) = hit {
            expected[hit] ^= 1;
        }
        assert_eq!(read(&got).1, expected, "{at} {length}");
    }
    // The other direction is another stream.
    let back = frame(Left, ack(), &bytes(300));
    assert_eq!(through(&mut chain, Left, back.clone()), back);
}

#[test]
fn a_damaged_segment_is_not_altered() {
    let mut damaged = frame(Right, mapped(20), &bytes(20));
    *damaged.last_mut().expect("payload") ^= 1;
    assert_eq!(through(&mut chain("alter=100%"), Right, damaged.clone()), damaged);
}
