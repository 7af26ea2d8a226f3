//! Random operations of several workers and a reader, against a state for each byte.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Offsets that the model follows: some laps of the smallest ring.
const SPACE: usize = 6 * MIN_CAPACITY;

#[derive(Clone, Debug)]
enum Op {
    /// A worker claims a range that begins so far before or after the edge. Its bytes are not those
    /// of any other.
    Claim { worker: usize, from_edge: i64, len: u32 },
    /// A worker copies and commits all that it has claimed.
    Commit { worker: usize },
    /// A worker gives one claim up.
    Abandon { worker: usize, which: Index },
    /// The reader looks, holds on to what it sees while a worker commits, compares and consumes.
    Read { worker: usize, part: u8 },
    /// The ring grows, if it can.
    Grow,
}

fn op() -> impl Strategy<Value = Op> {
    let worker = 0..3_usize;
    // Mostly at the edge, often near it, sometimes anywhere in the window and beyond.
    let from_edge = prop_oneof![3 => Just(0), 3 => -3000..9000_i64, 1 => -9_000..600_000_i64];
    let len = prop_oneof![2 => 0..3000_u32, 2 => 0..40_000_u32];
    prop_oneof![
        6 => (worker.clone(), from_edge, len)
            .prop_map(|(worker, from_edge, len)| Op::Claim { worker, from_edge, len }),
        4 => worker.clone().prop_map(|worker| Op::Commit { worker }),
        1 => (worker.clone(), any::<Index>())
            .prop_map(|(worker, which)| Op::Abandon { worker, which }),
        4 => (worker, any::<u8>()).prop_map(|(worker, part)| Op::Read { worker, part }),
        1 => Just(Op::Grow),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Free,
    Claimed,
    Committed,
}

struct Model {
    origin: u64,
    state: Vec<State>,
    bytes: Vec<u8>,
    edge: usize,
    workers: [Vec<(Claim, u8)>; 3],
}

impl Model {
    fn new(origin: u64) -> Self {
        Self {
            origin,
            state: vec![State::Free; SPACE],
            bytes: vec![0; SPACE],
            edge: 0,
            workers: Default::default(),
        }
    }

    fn claim(&mut self, ring: &Ring, worker: usize, from_edge: i64, len: u32, salt: u8) {
        let start = (self.edge as i64 + from_edge).max(0) as usize;
        let end = (start + len as usize).min(SPACE);
        let start = start.min(end);
        let mut claims = Vec::new();
        let to = self.origin + start as u64;
        let claimed = ring.claim(&[wanted(to, (end - start) as u32)], &mut claims);
        let window = ((ring.right_edge().0 - self.origin) as usize).clamp(start, end);
        let free = self.state[start..window].iter().filter(|s| **s == State::Free).count();
        assert_eq!(claimed.claimed, free as u64);
        assert_eq!(claimed.refused, (end - window) as u64);
        assert_eq!(claims.iter().map(Claim::remaining).sum::<usize>(), free);
        for claim in claims {
            let at = (claim.to().0 - self.origin) as usize;
            let states = &mut self.state[at..at + claim.remaining()];
            assert!(states.iter().all(|s| *s == State::Free));
            states.fill(State::Claimed);
            assert_eq!(claim.at() as usize, at - start);
            self.workers[worker].push((claim, salt));
        }
    }

    fn commit(&mut self, ring: &Ring, worker: usize) {
        let mut claims = Vec::new();
        for (mut claim, salt) in self.workers[worker].drain(..) {
            let at = (claim.to().0 - self.origin) as usize;
            let mut bytes = pattern(claim.to().0, claim.remaining());
            bytes.iter_mut().for_each(|b| *b = b.wrapping_add(salt));
            // In two pieces, as a payload in two buffers comes.
            let (a, b) = bytes.split_at(bytes.len() / 3);
            ring.copy(&mut claim, a);
            ring.copy(&mut claim, b);
            self.state[at..at + bytes.len()].fill(State::Committed);
            self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
            claims.push(claim);
        }
        let before = self.edge;
        while self.state.get(self.edge) == Some(&State::Committed) {
            self.edge += 1;
        }
        let edge = StreamOffset(self.origin + self.edge as u64);
        assert_eq!(ring.commit(&mut claims), Commit { edge, advanced: self.edge > before });
        assert_eq!(ring.edge(), edge);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_of_several_workers_give_the_exact_bytes(
        origin in prop_oneof![Just(0), any::<u32>().prop_map(u64::from)],
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let (ring, mut reader) = new(small(), origin);
        let mut model = Model::new(origin);
        let mut consumed = 0;
        let mut right_edge = ring.right_edge();
        for (n, op) in ops.into_iter().enumerate() {
            match op {
                Op::Claim { worker, from_edge, len } => {
                    model.claim(&ring, worker, from_edge, len, n as u8);
                }
                Op::Commit { worker } => model.commit(&ring, worker),
                Op::Abandon { worker, which } => {
                    let claims = &mut model.workers[worker];
                    if !claims.is_empty() {
                        let (claim, _) = claims.swap_remove(which.index(claims.len()));
                        let at = (claim.to().0 - origin) as usize;
                        model.state[at..at + claim.remaining()].fill(State::Free);
                        ring.abandon(claim);
                    }
                }
                Op::Read { worker, part } => {
                    let (start, edge) = (consumed, model.edge);
                    prop_assert_eq!(reader.available(), edge - start);
                    let seen = reader.peek();
                    prop_assert_eq!(seen, &model.bytes[start..edge]);
                    model.commit(&ring, worker);
                    ring.grow();
                    prop_assert_eq!(seen, &model.bytes[start..edge]);
                    let n = seen.len() * usize::from(part) / 255;
                    let _ = reader.consume(n);
                    consumed += n;
                }
                Op::Grow => {
                    let free = model.workers.iter().all(Vec::is_empty);
                    if ring.capacity() < 4 * MIN_CAPACITY {
                        prop_assert_eq!(ring.grow(), free);
                    }
                }
            }
            prop_assert!(ring.right_edge() >= right_edge);
            right_edge = ring.right_edge();
            prop_assert!(right_edge - reader.position() <= ring.capacity() as u64);
        }
        for worker in 0..3 {
            model.commit(&ring, worker);
        }
        prop_assert_eq!(reader.peek(), &model.bytes[consumed..model.edge]);
    }
}
