//! The sum over many lanes at once: one safe loop, compiled for several instruction sets.

/// Bytes of a step of the loop: two vectors of AVX-512, four of AVX2.
const STEP: usize = 128;

/// The sum of `bytes` as words in the machine's byte order, a last odd byte being a word's first in
/// memory. It is not folded; 64 bits hold that of 2^48 words.
pub(super) fn sum_native(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // Below some steps the wider vectors have nothing to gain.
        if bytes.len() >= 2 * STEP {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                // SAFETY: the processor has what the function is compiled for.
                return unsafe { sum_avx512(bytes) };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has what the function is compiled for.
                return unsafe { sum_avx2(bytes) };
            }
        }
    }
    sum_portable(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn sum_avx512(bytes: &[u8]) -> u64 {
    sum_portable(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    sum_portable(bytes)
}

#[inline(always)]
fn sum_portable(bytes: &[u8]) -> u64 {
    // Each lane takes eight bytes at a time, as two halves of 32 bits: a half is congruent to the
    // sum of its two words, modulo 2^16 - 1. 64-bit lanes have no carry to lose.
    let mut low = [0_u64; STEP / 8];
    let mut high = [0_u64; STEP / 8];
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for step in steps {
        let (words, _) = step.as_chunks::<8>();
        for ((low, high), word) in low.iter_mut().zip(&mut high).zip(words) {
            let word = u64::from_ne_bytes(*word);
            *low += word & 0xffff_ffff;
            *high += word >> 32;
        }
    }
    let mut sum = low.iter().sum::<u64>() + high.iter().sum::<u64>();

    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}
