//! Who has which part of the stream: the ring's bookkeeping, without threads and without memory.

use std::ops::Range;

use mpxdp_proto::range_set::RangeSet;

/// How many separate ranges may lie above the first gap.
///
/// A peer decides how many there are: single bytes with gaps between them would make millions in a
/// large window. An honest one needs a range for each lost packet at most, so 16 MiB of segments of
/// 1448 bytes, every other one lost, still fit. At 16 bytes each this is 128 KiB at the worst.
const MAX_RANGES: usize = 8192;

/// The state of every byte of the stream: free, claimed, or committed.
///
/// All below `edge` is committed. All of `edge..tail` is claimed or committed: data that comes in
/// order moves `tail` at its claim and `edge` at its commit, and touches no set.
#[derive(Debug)]
pub(super) struct Ledger {
    edge: u64,
    tail: u64,
    /// Claimed or committed, above `tail` and not touching it.
    beyond: RangeSet,
    /// Committed, above `edge` and not touching it.
    committed: RangeSet,
    /// Claims that are neither committed nor abandoned.
    in_flight: usize,
}

/// Where the bytes of one wanted range went; the three add up to its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shares {
    pub(super) claimed: u64,
    pub(super) duplicate: u64,
    pub(super) refused: u64,
}

impl Ledger {
    /// Nothing but what is below `origin` is there.
    pub(super) fn new(origin: u64) -> Self {
        Self {
            edge: origin,
            tail: origin,
            beyond: RangeSet::new(),
            committed: RangeSet::new(),
            in_flight: 0,
        }
    }

    /// The first byte that is not there yet.
    pub(super) fn edge(&self) -> u64 {
        self.edge
    }

    /// The end of what anybody has claimed.
    pub(super) fn highest(&self) -> u64 {
        self.beyond.last().map_or(self.tail, |last| last.end)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The committed ranges that lie above the edge.
    pub(super) fn committed_beyond(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.committed.iter()
    }

    /// Claims those parts of `wanted` that are free and below `limit`, and passes each to `take`.
    pub(super) fn claim(
        &mut self,
        wanted: Range<u64>,
        limit: u64,
        mut take: impl FnMut(Range<u64>),
    ) -> Shares {
        // What is there already is not refused, even where nothing more is taken.
        let end = wanted.end.min(limit.max(self.edge)).max(wanted.start);
        let start = wanted.start.max(self.tail);
        let mut shares = Shares { claimed: 0, duplicate: 0, refused: wanted.end - end };
        if start == self.tail && start < end && self.beyond.is_empty() {
            self.tail = end;
            self.in_flight += 1;
            shares.claimed = end - start;
            take(start..end);
        } else {
            self.claim_around(start..end, &mut shares, take);
        }
        shares.duplicate = wanted.end - wanted.start - shares.claimed - shares.refused;
        shares
    }

    /// Claims what is free of `wanted`, none of which is below `tail`, where there are gaps.
    fn claim_around(
        &mut self,
        wanted: Range<u64>,
        shares: &mut Shares,
        mut take: impl FnMut(Range<u64>),
    ) {
        let mut at = wanted.start;
        loop {
            let Some(part) = self.beyond.missing(at..wanted.end).next() else { return };
            at = part.end;
            if part.start == self.tail {
                self.tail = part.end;
                if let Some(next) = self.beyond.first()
                    && next.start == self.tail
                {
                    self.tail = next.end;
                    self.beyond.pop_first();
                    at = self.tail;
                }
            } else if self.beyond.try_insert(part.clone(), MAX_RANGES).is_err() {
                shares.refused += part.end - part.start;
                continue;
            }
            self.in_flight += 1;
            shares.claimed += part.end - part.start;
            take(part);
        }
    }

    /// The bytes of a claim are there.
    pub(super) fn commit(&mut self, claim: Range<u64>) {
        self.in_flight -= 1;
        if claim.start != self.edge {
            // Bounded: each range here is part of one in `beyond`, or of `edge..tail`, where a gap
            // is a claim in flight.
            self.committed.insert(claim);
            return;
        }
        self.edge = claim.end;
        if let Some(next) = self.committed.first()
            && next.start == self.edge
        {
            self.edge = next.end;
            self.committed.pop_first();
        }
    }

    /// A claim is given up: its range is free again.
    pub(super) fn abandon(&mut self, claim: Range<u64>) {
        self.in_flight -= 1;
        if claim.start >= self.tail {
            self.beyond.remove(claim);
            return;
        }
        // Past the limit of ranges, if need be: there are as many as there were claims in flight.
        self.beyond.insert(claim.end..self.tail);
        self.tail = claim.start;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claims(ledger: &mut Ledger, wanted: Range<u64>, limit: u64) -> (Vec<Range<u64>>, Shares) {
        let mut out = Vec::new();
        let shares = ledger.claim(wanted, limit, |r| out.push(r));
        (out, shares)
    }

    #[test]
    fn data_in_order_touches_no_set() {
        let mut ledger = Ledger::new(0);
        for start in [0, 10, 20] {
            let (got, _) = claims(&mut ledger, start..start + 10, 100);
            assert_eq!(got.first(), Some(&(start..start + 10)));
        }
        assert!(ledger.beyond.is_empty());
        for start in [0, 10, 20] {
            ledger.commit(start..start + 10);
            assert_eq!(ledger.edge(), start + 10);
        }
        assert!(ledger.committed.is_empty());
    }

    #[test]
    fn what_is_there_is_a_duplicate_whatever_the_limit() {
        let mut ledger = Ledger::new(0);
        claims(&mut ledger, 0..10, 100);
        ledger.commit(0..10);
        let (got, shares) = claims(&mut ledger, 3..12, 0);
        assert!(got.is_empty());
        assert_eq!(shares, Shares { claimed: 0, duplicate: 7, refused: 2 });
    }

    #[test]
    fn ranges_past_the_limit_are_refused_and_the_rest_goes_on() {
        let mut ledger = Ledger::new(0);
        for n in 0..MAX_RANGES as u64 {
            let (got, _) = claims(&mut ledger, 2 * n + 1..2 * n + 2, u64::MAX);
            assert_eq!(got.len(), 1);
        }
        let far = 4 * MAX_RANGES as u64;
        let (got, shares) = claims(&mut ledger, far..far + 3, u64::MAX);
        assert!(got.is_empty());
        assert_eq!(shares, Shares { claimed: 0, duplicate: 0, refused: 3 });
        // What joins a range that is there makes none, and what is in order needs none.
        assert_eq!(claims(&mut ledger, 2..3, u64::MAX).1.claimed, 1);
        assert_eq!(claims(&mut ledger, 0..1, u64::MAX).1.claimed, 1);
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Byte {
        Free,
        Claimed,
        Committed,
    }

    proptest! {
        /// Every byte goes from free to claimed to committed, as in a model that keeps a state
        /// for each.
        #[test]
        fn agrees_with_a_state_for_each_byte(
            ops in proptest::collection::vec(
                (0..4_u8, 0..60_u64, 0..14_u64, any::<prop::sample::Index>()), 1..120),
        ) {
            const LIMIT: u64 = 64;
            let mut ledger = Ledger::new(0);
            let mut model = [Byte::Free; 80];
            let mut open: Vec<Range<u64>> = Vec::new();
            for (op, start, len, which) in ops {
                match op {
                    0 | 1 => {
                        let wanted = start..start + len;
                        let (got, shares) = claims(&mut ledger, wanted.clone(), LIMIT);
                        let mut free: Vec<u64> = wanted
                            .clone()
                            .filter(|&b| b < LIMIT && model[b as usize] == Byte::Free)
                            .collect();
                        let mut taken: Vec<u64> = got.iter().cloned().flatten().collect();
                        free.sort_unstable();
                        taken.sort_unstable();
                        prop_assert_eq!(&taken, &free);
                        let refused = wanted.clone().filter(|&b| b >= LIMIT).count() as u64;
                        prop_assert_eq!(shares.claimed, free.len() as u64);
                        prop_assert_eq!(shares.refused, refused);
                        prop_assert_eq!(shares.claimed + shares.duplicate + shares.refused, len);
                        for byte in taken {
                            model[byte as usize] = Byte::Claimed;
                        }
                        open.extend(got);
                    }
                    _ if open.is_empty() => {}
                    2 => {
                        let claim = open.swap_remove(which.index(open.len()));
                        for byte in claim.clone() {
                            model[byte as usize] = Byte::Committed;
                        }
                        ledger.commit(claim);
                    }
                    _ => {
                        let claim = open.swap_remove(which.index(open.len()));
                        for byte in claim.clone() {
                            model[byte as usize] = Byte::Free;
                        }
                        ledger.abandon(claim);
                    }
                }
                let edge = model.iter().position(|&b| b != Byte::Committed).unwrap() as u64;
                prop_assert_eq!(ledger.edge(), edge);
                prop_assert_eq!(ledger.in_flight(), open.len());
                let there: Vec<u64> = ledger.committed_beyond().flatten().collect();
                let expected: Vec<u64> =
                    (edge..80).filter(|&b| model[b as usize] == Byte::Committed).collect();
                prop_assert_eq!(there, expected);
            }
        }
    }
}
