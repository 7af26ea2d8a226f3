//! The bytes that are sent: deterministic, and free to make.

use std::io::{self, Read};

use super::Hash;

/// The pattern repeats after so many bytes. A prime, so that a segment put at another segment's
/// place does not look right: offsets in a stream are multiples of segment and window sizes.
pub const PERIOD: usize = 1_048_573;

/// The largest slice that [`Pattern::at`] gives.
pub const LARGEST: usize = 256 * 1024;

/// An endless stream of bytes whose every part can be had at once.
#[derive(Clone, Debug)]
pub struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// The pattern that belongs to a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut bytes = Vec::with_capacity(PERIOD + LARGEST + 8);
        // SplitMix64: good bits from any seed, zero too.
        let mut state = seed;
        while bytes.len() < PERIOD {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
        }
        bytes.truncate(PERIOD);
        bytes.extend_from_within(..LARGEST);
        Self { bytes }
    }

    /// Up to [`LARGEST`] bytes of the stream from an offset on.
    #[must_use]
    pub fn at(&self, offset: u64, length: usize) -> &[u8] {
        // The remainder is below PERIOD, so it fits.
        let start = (offset % PERIOD as u64) as usize;
        &self.bytes[start..start + length.min(LARGEST)]
    }

    /// SHA-256 of the first `length` bytes.
    #[must_use]
    pub fn hash(&self, length: u64) -> String {
        let mut hash = Hash::default();
        let mut offset = 0;
        while offset < length {
            let part = self.at(offset, usize::try_from(length - offset).unwrap_or(LARGEST));
            hash.update(part);
            offset += part.len() as u64;
        }
        hash.finish()
    }

    /// Compares a stream with the pattern; the offset of the first byte that differs, if one does,
    /// and the length of the stream.
    ///
    /// # Errors
    ///
    /// What reading gives.
    pub fn compare(&self, mut stream: impl Read) -> io::Result<(Option<u64>, u64)> {
        let mut buffer = vec![0; LARGEST];
        let mut offset = 0;
        let mut differs = None;
        loop {
            let length = match stream.read(&mut buffer) {
                Ok(0) => return Ok((differs, offset)),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (got, wanted) = (&buffer[..length], self.at(offset, length));
            if differs.is_none() && got != wanted {
                let at = got.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(0);
                differs = Some(offset + at as u64);
            }
            offset += length as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_stream_fit_together_across_the_period() {
        let pattern = Pattern::new(1);
        let near = PERIOD as u64 - 3;
        let across = pattern.at(near, 6).to_vec();
        assert_eq!(&across[..3], pattern.at(near, 3));
        assert_eq!(&across[3..], pattern.at(PERIOD as u64, 3));
        assert_eq!(&across[3..], pattern.at(0, 3));
        assert_eq!(pattern.at(0, usize::MAX).len(), LARGEST);
    }

    #[test]
    fn seeds_give_different_streams() {
        assert_ne!(Pattern::new(0).at(0, 64), Pattern::new(1).at(0, 64));
        assert_eq!(Pattern::new(5).at(77, 64), Pattern::new(5).at(77, 64));
    }

    #[test]
    fn a_wrong_byte_is_found_at_its_place() {
        let pattern = Pattern::new(3);
        let mut bytes = pattern.at(0, 1000).to_vec();
        assert_eq!(pattern.compare(&bytes[..]).expect("memory"), (None, 1000));
        bytes[617] ^= 1;
        assert_eq!(pattern.compare(&bytes[..]).expect("memory"), (Some(617), 1000));
        // A segment's worth of bytes, one segment late.
        let mut bytes = pattern.at(0, 2896).to_vec();
        bytes.copy_within(0..1448, 1448);
        assert_eq!(pattern.compare(&bytes[..]).expect("memory").0, Some(1448));
    }

    #[test]
    fn hash_is_that_of_the_bytes() {
        let pattern = Pattern::new(9);
        let mut hash = Hash::default();
        hash.update(pattern.at(0, 1000));
        assert_eq!(pattern.hash(1000), hash.finish());
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(pattern.hash(0), empty);
    }
}
