//! The sum over many words at once.
//!
//! A number of 32 bits is congruent to the sum of its two halves, modulo 2^16 - 1, so 32 bits are
//! added at a time; in lanes of 64 bits, which have no carry to lose. Left to itself the compiler
//! makes gathers of such a loop, hence the intrinsics. Wider vectors than AVX2's gain nothing: one
//! step of 32 bytes in each cycle is as much as the second-level cache delivers.

/// The sum of `bytes` as words in the machine's byte order, a last odd byte being a word's first in
/// memory. It is not folded; 64 bits hold that of 16 GiB.
pub(super) fn sum_native(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= avx2::STEP && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::sum(bytes) };
    }
    sum_portable(bytes)
}

/// The same without vectors, for what is short and for other processors.
pub(super) fn sum_portable(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_extract_epi64, _mm256_loadu_si256,
        _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_srli_epi64,
    };

    /// Bytes of a step of the loop: four vectors, to have as many additions under way.
    pub(super) const STEP: usize = 128;

    #[target_feature(enable = "avx2")]
    pub(super) fn sum(bytes: &[u8]) -> u64 {
        let mut lanes = [_mm256_setzero_si256(); 8];
        let [a, b, c, d, e, f, g, h] = &mut lanes;
        let (vectors, rest) = bytes.as_chunks::<32>();
        let (steps, vectors) = vectors.as_chunks::<4>();
        for [first, second, third, fourth] in steps {
            add(a, b, first);
            add(c, d, second);
            add(e, f, third);
            add(g, h, fourth);
        }
        for vector in vectors {
            add(a, b, vector);
        }
        let [a, b, c, d, e, f, g, h] = lanes;
        let ab = _mm256_add_epi64(a, b);
        let cd = _mm256_add_epi64(c, d);
        let ef = _mm256_add_epi64(e, f);
        let gh = _mm256_add_epi64(g, h);
        let all = _mm256_add_epi64(_mm256_add_epi64(ab, cd), _mm256_add_epi64(ef, gh));
        let vectors = (_mm256_extract_epi64::<0>(all) as u64)
            + (_mm256_extract_epi64::<1>(all) as u64)
            + (_mm256_extract_epi64::<2>(all) as u64)
            + (_mm256_extract_epi64::<3>(all) as u64);
        vectors + super::sum_portable(rest)
    }

    /// Adds the even 32-bit numbers of `bytes` to `low` and the odd ones to `high`.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(low: &mut __m256i, high: &mut __m256i, bytes: &[u8; 32]) {
        // SAFETY: the load takes 32 bytes, of any alignment.
        let vector = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
        let lower_halves = _mm256_set1_epi64x(0xffff_ffff);
        *low = _mm256_add_epi64(*low, _mm256_and_si256(vector, lower_halves));
        *high = _mm256_add_epi64(*high, _mm256_srli_epi64::<32>(vector));
    }
}
