//! The Internet checksum (RFC 1071), plain and scalar: enough for headers and for tests.
//!
//! A partial sum is the sum of the 16-bit big-endian words, an odd last octet counting as the high
//! half of a word. Partial sums of pieces add up as long as every piece but the last has an even
//! length.

/// The partial sum of `bytes`, folded far enough that thousands of such sums add up in 32 bits.
#[must_use]
pub fn sum(bytes: &[u8]) -> u32 {
    sum_inline(bytes)
}

/// As [`sum`], for a length that is known where it is called: then it is a few additions.
#[inline(always)]
pub(super) fn sum_inline(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    // A 32-bit word is two 16-bit words, and 2^16 is 1 modulo 2^16 - 1.
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    total += match *rest {
        [a] => u64::from(a) << 8,
        [a, b] => u64::from(u16::from_be_bytes([a, b])),
        [a, b, c] => u64::from(u16::from_be_bytes([a, b])) + (u64::from(c) << 8),
        _ => 0,
    };
    total = (total >> 32) + (total & 0xffff_ffff);
    total = (total >> 16) + (total & 0xffff);
    ((total >> 16) + (total & 0xffff)) as u32
}

/// Folds a partial sum into 16 bits. Over data that holds its own right checksum, and the
/// pseudo-header with it, the result is 0xffff.
#[must_use]
pub const fn fold(sum: u32) -> u16 {
    let once = (sum >> 16) + (sum & 0xffff);
    ((once >> 16) + (once & 0xffff)) as u16
}
