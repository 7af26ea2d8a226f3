//! The Internet checksum (RFC 1071), as fast as the bytes come out of the cache.
//!
//! A sum here is the ones'-complement sum of 16-bit big-endian words, with a last odd byte taken as
//! the high one of a word. It is a `u32` that is not yet complemented; sums may be added up as long
//! as they do not overflow, which takes 65,536 of those that this module makes. [`fold`] brings
//! them down to 16 bits.

#[cfg(test)]
mod tests;
mod vector;

/// The sum of `bytes`: 0 ..= 0xffff. It is 0 for zeros only.
#[must_use]
pub fn sum(bytes: &[u8]) -> u32 {
    // The sum may be taken in either byte order, and swapped at the end (RFC 1071, section 2).
    let native = fold_wide(vector::sum_native(bytes));
    u32::from(u16::from_ne_bytes(native.to_be_bytes()))
}

/// Folds a sum into 16 bits by adding the carries back in. A segment whose sum, with that of its
/// pseudo-header and its checksum field as it came, folds to `0xffff` is intact.
#[must_use]
pub const fn fold(sum: u32) -> u16 {
    // The first addition leaves at most one carry.
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// The sum of a packet that comes in several pieces, of any lengths.
///
/// ```
/// use mpxdp::checksum::{Pieces, sum};
///
/// let mut pieces = Pieces::new();
/// pieces.add(b"an odd piece ");
/// pieces.add(b"and another");
/// assert_eq!(pieces.sum(), sum(b"an odd piece and another"));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Pieces {
    sum: u64,
    /// Whether an odd number of bytes came so far: the next piece begins with a word's low byte.
    odd: bool,
}

impl Pieces {
    /// No piece yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        let sum = sum(bytes);
        self.sum += u64::from(if self.odd { ((sum & 0xff) << 8) | (sum >> 8) } else { sum });
        self.odd ^= bytes.len() % 2 == 1;
    }

    /// The sum of all pieces: 0 ..= 0xffff.
    #[must_use]
    pub fn sum(&self) -> u32 {
        u32::from(fold_wide(self.sum))
    }
}

/// Folds a 64-bit sum. The result is 0 only if `sum` is.
const fn fold_wide(sum: u64) -> u16 {
    // 33 bits at most, then 32: each carry that is added back in makes no second one.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    fold(sum as u32)
}
