//! A seeded generator: the same seed gives the same numbers, on every machine.

use super::Probability;

/// A generator of pseudo-random numbers (SplitMix64), good enough to throw dice with.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that starts from `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator of its own for part `label`. How much either is used does not change the other.
    #[must_use]
    pub const fn part(&self, label: u64) -> Self {
        Self { state: mix(self.state ^ mix(label.wrapping_add(1))) }
    }

    /// 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "there is no number below 0");
        // The high half of the product; the bias is below bound / 2^64.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: Probability) -> bool {
        self.below(1_000_000) < u64::from(probability.parts_per_million())
    }
}

const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
