//! No frame makes a box panic, and nothing is held without end.

use super::*;
use proptest::prelude::*;

const EVERY: &str = "loss=1%,dup=5%,reorder=10%,rate=1Gbit,isn,nat=10.0.0.9,strip=after-100:dss:shrink,\
                     split=20:first,coalesce=100:first,alter=10%,alter=at-5,drop=fin,mtu=1280:icmp,\
                     coalesce=2000,strip=data,corrupt=5%,delay=1ms:1ms";

proptest! {
    #[test]
    fn any_frames_pass_any_boxes(
        inputs in prop::collection::vec(
            (any::<bool>(), any::<u32>(), any::<u8>(), 0..3000_usize, any::<Option<(u16, u8)>>()),
            1..60,
        ),
        junk in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10),
    ) {
        let mut chain = chain(EVERY);
        let mut now = Instant(0);
        for (left, seq, flags, length, damage) in inputs {
            let way = if left { Left } else { Right };
            let segment = Segment { seq: SeqNum(seq % 5000), flags: Flags(flags), ..mapped(9) };
            let mut frame = frame(way, segment, &bytes(length));
            if let Some((place, with)) = damage {
                let at = usize::from(place) % frame.len();
                frame[at] ^= with;
            }
            now = now + Duration::from_micros(50);
            let mut out = Output::default();
            if chain.next_timeout().is_some_and(|due| due <= now) {
                chain.on_timeout(now, &mut out);
            }
            chain.on_frame(now, way, frame, &mut out);
        }
        for frame in junk {
            pass_at(&mut chain, now, Right, frame);
        }
        drain(&mut chain);
    }
}
