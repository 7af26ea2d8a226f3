//! Real threads at once.

use super::*;

/// Bytes of the stream.
const TOTAL: u64 = 24 << 20;

/// A generator of pseudo-random numbers; each worker has one of its own.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn work(ring: &Ring, seed: u64, source: &[u8], clock: std::time::Instant) {
    let mut random = Random(seed);
    let mut wanteds = Vec::new();
    let mut claims = Vec::new();
    while ring.edge().0 < TOTAL {
        wanteds.clear();
        let edge = ring.edge().0;
        let window = ring.right_edge().0 - edge;
        for _ in 0..1 + random.below(8) {
            let ahead = if random.below(2) == 0 { 0 } else { random.below(window + 2000) };
            let to = (edge + ahead).min(TOTAL);
            let len = random.below(9000).min(TOTAL - to);
            wanteds.push(wanted(to, len as u32));
        }
        ring.claim(&wanteds, &mut claims);
        for claim in &mut claims {
            let from = (claim.to().0 % 65_521) as usize;
            let len = claim.remaining();
            ring.copy(claim, &source[from..from + len]);
        }
        if claims.is_empty() {
            std::thread::yield_now();
        }
        ring.commit(&mut claims);
        ring.advertise(ring.right_edge());
        let now = Instant(clock.elapsed().as_nanos() as u64);
        ring.tune(now, Duration::from_micros(50));
    }
}

#[test]
fn workers_that_race_for_the_same_data_give_the_exact_stream() {
    let source = pattern(0, 2 * 65_521);
    let (ring, mut reader) = new(small(), 0);
    let clock = std::time::Instant::now();
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            let (ring, source) = (&ring, &source);
            scope.spawn(move || work(ring, seed * 0x9e37_79b9, source, clock));
        }
        let mut random = Random(77);
        let mut at = 0;
        ring.set_end(StreamOffset(TOTAL));
        while !reader.is_end() {
            // It sleeps, or polls.
            if random.below(3) > 0 {
                assert!(reader.wait(Some(Duration::from_secs(30))).unwrap(), "stuck at {at}");
            }
            let seen = reader.peek();
            let mut checked = 0;
            while checked < seen.len() {
                let from = ((at + checked as u64) % 65_521) as usize;
                let len = (seen.len() - checked).min(65_521);
                assert!(seen[checked..checked + len] == source[from..from + len], "after {at}");
                checked += len;
            }
            let n = if random.below(2) == 0 { seen.len() } else { seen.len() / 2 };
            let _ = reader.consume(n);
            at += n as u64;
        }
        assert_eq!(at, TOTAL);
    });
    assert!(ring.is_complete());
}
