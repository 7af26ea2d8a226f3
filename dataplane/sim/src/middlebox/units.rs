//! Quantities and how they are written. All are whole numbers of a small unit, so that the text form
//! and the value always agree exactly.

use std::fmt;
use std::time::Duration;

/// A probability in parts per million.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Probability(u32);

impl Probability {
    /// Always.
    pub const ONE: Self = Self(1_000_000);

    /// So many in a million; none if that is more than a million.
    #[must_use]
    pub const fn per_million(parts: u32) -> Option<Self> {
        if parts <= 1_000_000 { Some(Self(parts)) } else { None }
    }

    /// How many in a million, 0 to 1,000,000.
    #[must_use]
    pub const fn parts_per_million(self) -> u32 {
        self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts = decimal(text.strip_suffix('%')?, 10_000)?;
        Self::per_million(u32::try_from(parts).ok()?)
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let digits = format!("{rest:04}");
        write!(f, "{whole}.{}%", digits.trim_end_matches('0'))
    }
}

/// Bits a second, at least 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BitRate(u64);

const RATES: [(&str, u64); 4] =
    [("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("kbit", 1000), ("bit", 1)];

impl BitRate {
    /// So many bits a second; none for 0.
    #[must_use]
    pub const fn bits_per_second(bits: u64) -> Option<Self> {
        if bits > 0 { Some(Self(bits)) } else { None }
    }

    /// How long so many bytes take.
    #[must_use]
    pub fn time_for(self, bytes: usize) -> Duration {
        let nanoseconds = (bytes as u128 * 8_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        RATES
            .iter()
            .find_map(|&(unit, scale)| decimal(text.strip_suffix(unit)?, scale))
            .and_then(Self::bits_per_second)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &RATES)
    }
}

const TIMES: [(&str, u64); 4] = [("ms", 1_000_000), ("us", 1000), ("ns", 1), ("s", 1_000_000_000)];
const TIMES_SHOWN: [(&str, u64); 4] =
    [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

pub(super) fn parse_time(text: &str) -> Option<Duration> {
    TIMES
        .iter()
        .find_map(|&(unit, scale)| decimal(text.strip_suffix(unit)?, scale))
        .map(Duration::from_nanos)
}

/// A time as it is parsed; more than 584 years are written as 584 years.
pub(super) struct Time(pub(super) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX), &TIMES_SHOWN)
    }
}

const SIZES: [(&str, u64); 4] = [("G", 1 << 30), ("M", 1 << 20), ("k", 1 << 10), ("", 1)];

pub(super) fn parse_size(text: &str) -> Option<u64> {
    SIZES.iter().find_map(|&(unit, scale)| decimal(text.strip_suffix(unit)?, scale))
}

/// A number of bytes as it is parsed.
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &SIZES)
    }
}

/// `number` with the largest unit of which it is a whole multiple.
fn scaled(f: &mut fmt::Formatter<'_>, number: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |&&(_, scale): &&(&str, u64)| number.is_multiple_of(scale) && number >= scale;
    let smallest = units.iter().min_by_key(|&&(_, scale)| scale);
    match units.iter().find(fits).or(smallest) {
        Some(&(unit, scale)) => write!(f, "{}{unit}", number / scale),
        None => write!(f, "{number}"),
    }
}

/// A decimal number times `scale`, if that is a whole number that fits.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let number = |digits: &str| -> Option<u64> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { digits.parse().ok() } else { None }
    };
    let (whole, numerator) = (number(whole)?, number(fraction)?);
    let denominator = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u128::from(numerator) * u128::from(scale);
    if !part.is_multiple_of(u128::from(denominator)) {
        return None;
    }
    let part = u64::try_from(part / u128::from(denominator)).ok()?;
    whole.checked_mul(scale)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(decimal("1.5", 1000), Some(1500));
        assert_eq!(decimal("0.001", 1000), Some(1));
        assert_eq!(decimal("0.0001", 1000), None);
        for text in ["", ".", "1.", ".5", "-1", "+1", "1e3", "1.5.5", "18446744073709551616"] {
            assert_eq!(decimal(text, 1000), None, "{text:?}");
        }
        assert_eq!(decimal("18446744073709551615", 1), Some(u64::MAX));
        assert_eq!(decimal("18446744073709551615", 10), None);
    }

    #[test]
    fn quantities_are_written_with_their_largest_whole_unit() {
        let probability = |text| Probability::parse(text).map(|value| value.to_string());
        assert_eq!(probability("0.10%").as_deref(), Some("0.1%"));
        assert_eq!(probability("100%").as_deref(), Some("100%"));
        assert_eq!(probability("0.0001%").as_deref(), Some("0.0001%"));
        assert_eq!(probability("0%").as_deref(), Some("0%"));
        assert_eq!(probability("100.0001%"), None);
        assert_eq!(probability("1"), None);

        let rate = |text| BitRate::parse(text).map(|value| value.to_string());
        assert_eq!(rate("1.5Gbit").as_deref(), Some("1500Mbit"));
        assert_eq!(rate("1000Mbit").as_deref(), Some("1Gbit"));
        assert_eq!(rate("7bit").as_deref(), Some("7bit"));
        assert_eq!(rate("0bit"), None);
        assert_eq!(rate("1GBit"), None);

        let time = |text| parse_time(text).map(|value| Time(value).to_string());
        assert_eq!(time("1500us").as_deref(), Some("1500us"));
        assert_eq!(time("0.04s").as_deref(), Some("40ms"));
        assert_eq!(time("0ms").as_deref(), Some("0ns"));
        assert_eq!(time("40"), None);

        let size = |text| parse_size(text).map(|value| Size(value).to_string());
        assert_eq!(size("2048").as_deref(), Some("2k"));
        assert_eq!(size("1.5M").as_deref(), Some("1536k"));
        assert_eq!(size("0").as_deref(), Some("0"));
    }

    #[test]
    fn a_rate_says_how_long_bytes_take() {
        let gigabit = BitRate::bits_per_second(1_000_000_000).expect("not zero");
        assert_eq!(gigabit.time_for(1514), Duration::from_nanos(12_112));
        assert_eq!(gigabit.time_for(0), Duration::ZERO);
        let slow = BitRate::bits_per_second(3).expect("not zero");
        assert_eq!(slow.time_for(1), Duration::from_nanos(2_666_666_667), "rounded up");
        assert_eq!(slow.time_for(usize::MAX), Duration::from_nanos(u64::MAX));
    }
}
