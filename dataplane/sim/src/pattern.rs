//! A stream whose every byte is known from its place, to be made and checked at any offset.

use std::fmt;

/// A stream of bytes that look random. Two places hold the same eight bytes only by chance, so data
/// that is missing, doubled or out of place shows at once.
///
/// ```
/// let pattern = mpxdp_sim::Pattern::new(7);
/// let mut bytes = [0; 100];
/// pattern.fill(1000, &mut bytes);
/// assert_eq!(bytes[3], pattern.byte(1003));
/// assert!(pattern.check(1000, &bytes).is_ok());
/// assert_eq!(pattern.check(1001, &bytes).unwrap_err().offset, 1001);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    seed: u64,
}

/// The first byte that is not the pattern's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// Where in the stream.
    pub offset: u64,
    /// What the pattern has there.
    pub expected: u8,
    /// What was found.
    pub found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, expected, found } = self;
        write!(f, "byte {offset} of the stream is {found:#04x} and not {expected:#04x}")
    }
}

impl std::error::Error for Mismatch {}

const WORD: usize = 8;

impl Pattern {
    /// The pattern of `seed`; each seed makes another stream.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed: mix(seed.wrapping_add(1)) }
    }

    /// The byte at `offset`.
    #[must_use]
    pub const fn byte(&self, offset: u64) -> u8 {
        self.word(offset / WORD as u64)[(offset % WORD as u64) as usize]
    }

    /// Writes the bytes from `offset` on.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        let (head, words) = self.split(offset, out.len());
        let (first, rest) = out.split_at_mut(head);
        for (at, byte) in (offset..).zip(first) {
            *byte = self.byte(at);
        }
        let (whole, last) = rest.as_chunks_mut::<WORD>();
        for (index, bytes) in (words..).zip(whole.iter_mut()) {
            *bytes = self.word(index);
        }
        let left = self.word(words + whole.len() as u64);
        last.copy_from_slice(&left[..last.len()]);
    }

    /// Compares `bytes` with those from `offset` on.
    ///
    /// # Errors
    ///
    /// The first that differs.
    pub fn check(&self, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let (head, words) = self.split(offset, bytes.len());
        let (first, rest) = bytes.split_at(head);
        let (whole, last) = rest.as_chunks::<WORD>();
        let left = self.word(words + whole.len() as u64);
        // Without a way out of the loop the compiler makes vector code of it.
        let mut differs = 0;
        for (index, bytes) in (words..).zip(whole) {
            differs |= u64::from_le_bytes(*bytes) ^ u64::from_le_bytes(self.word(index));
        }
        let same = differs == 0
            && last == &left[..last.len()]
            && (offset..).zip(first).all(|(at, byte)| *byte == self.byte(at));
        if same { Ok(()) } else { Err(self.mismatch(offset, bytes)) }
    }

    #[cold]
    fn mismatch(&self, offset: u64, bytes: &[u8]) -> Mismatch {
        (offset..)
            .zip(bytes)
            .map(|(offset, &found)| Mismatch { offset, expected: self.byte(offset), found })
            .find(|mismatch| mismatch.expected != mismatch.found)
            .expect("some byte differs")
    }

    /// How many bytes of `len` at `offset` come before a word begins, and which word that is.
    fn split(&self, offset: u64, len: usize) -> (usize, u64) {
        let head = (offset.next_multiple_of(WORD as u64) - offset) as usize;
        (head.min(len), offset.div_ceil(WORD as u64))
    }

    const fn word(&self, index: u64) -> [u8; WORD] {
        mix(index.wrapping_add(self.seed)).to_le_bytes()
    }
}

/// A bijection of 64-bit words that spreads a counter's bits: one multiplication, for speed.
const fn mix(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ (n >> 29)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn filling_agrees_with_the_single_bytes(seed: u64, offset in 0..1u64 << 60, len in 0..100usize) {
            let pattern = Pattern::new(seed);
            let mut bytes = vec![0; len];
            pattern.fill(offset, &mut bytes);
            for (at, byte) in (offset..).zip(&bytes) {
                prop_assert_eq!(*byte, pattern.byte(at));
            }
            prop_assert_eq!(pattern.check(offset, &bytes), Ok(()));
        }

        #[test]
        fn one_wrong_bit_is_found(offset in 0..1u64 << 60, len in 1..100usize, at: prop::sample::Index, bit in 0..8u8) {
            let pattern = Pattern::new(1);
            let mut bytes = vec![0; len];
            pattern.fill(offset, &mut bytes);
            let at = at.index(len);
            bytes[at] ^= 1 << bit;
            let mismatch = pattern.check(offset, &bytes).unwrap_err();
            prop_assert_eq!(mismatch.offset, offset + at as u64);
            prop_assert_eq!(mismatch.found, bytes[at]);
        }
    }

    #[test]
    fn no_eight_bytes_come_twice() {
        let pattern = Pattern::new(0);
        let mut bytes = vec![0; 1 << 16];
        pattern.fill(0, &mut bytes);
        let mut windows: Vec<&[u8]> = bytes.windows(8).collect();
        windows.sort_unstable();
        assert!(windows.is_sorted_by(|a, b| a < b));
    }
}
