//! Where secrets, keys and nonces come from.

use std::io;
#[cfg(any(test, feature = "virtual-time"))]
use std::sync::Mutex;

/// A source of bytes that no peer can foresee, except in tests.
#[derive(Debug)]
pub(crate) enum Entropy {
    /// The system's random numbers.
    System,
    /// What follows from a seed, the same every time: anybody can foresee it.
    #[cfg(any(test, feature = "virtual-time"))]
    Seeded(Mutex<u64>),
}

impl Entropy {
    /// What follows from `seed`.
    #[cfg(any(test, feature = "virtual-time"))]
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self::Seeded(Mutex::new(seed))
    }

    /// The next bytes.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub(super) fn draw<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        match self {
            Self::System => {
                let failed = |e: getrandom::Error| {
                    let unknown = || io::ErrorKind::Unsupported.into();
                    e.raw_os_error().map_or_else(unknown, io::Error::from_raw_os_error)
                };
                getrandom::fill(&mut bytes).map_err(failed)?;
            }
            #[cfg(any(test, feature = "virtual-time"))]
            Self::Seeded(state) => {
                let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                for chunk in bytes.chunks_mut(8) {
                    let word = split_mix(&mut state).to_le_bytes();
                    chunk.copy_from_slice(&word[..chunk.len()]);
                }
            }
        }
        Ok(bytes)
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[cfg(any(test, feature = "virtual-time"))]
const fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
