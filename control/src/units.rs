//! Numbers for people.

use std::time::Duration;

/// A quantity with a decimal prefix: three significant digits or a little more.
fn scaled(value: f64, unit: &str) -> String {
    let mut value = value;
    // 999.95 would be printed as 1000.0, so it already takes the next prefix.
    for prefix in ["", "k", "M", "G", "T"] {
        if value < 999.95 {
            return match prefix {
                "" => format!("{value:.0} {unit}"),
                _ if value < 9.995 => format!("{value:.2} {prefix}{unit}"),
                _ => format!("{value:.1} {prefix}{unit}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} P{unit}")
}

/// A rate in bits a second.
pub(crate) fn rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, "bit/s")
}

/// A number of bytes.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, "B")
}

/// A time span.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => format!("{:.2} s", span.as_secs_f64()),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// A time below which a rate says nothing: it would be that of copying what had come already.
const TOO_SHORT: Duration = Duration::from_millis(10);

/// Bytes in a time, with their rate if the time is long enough to mean something.
pub(crate) fn transfer(amount: u64, time: Duration) -> String {
    let amount_text = bytes(amount);
    if time < TOO_SHORT {
        return format!("{amount_text} in less than 0.01 s");
    }
    format!("{amount_text} in {}, {}", span(time), rate(bits_per_second(amount, time)))
}

/// `1 connection`, `2 connections`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Bits a second of `bytes` in `span`; 0 if no time went by.
#[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
pub(crate) fn bits_per_second(bytes: u64, span: Duration) -> f64 {
    if span.is_zero() { 0.0 } else { bytes as f64 * 8.0 / span.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_three_digits_or_so() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1448), "1.45 kB");
        assert_eq!(bytes(268_435_456), "268.4 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(rate(12_345_678_901.0), "12.3 Gbit/s");
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
    }

    #[test]
    fn spans_are_short() {
        assert_eq!(span(Duration::from_millis(1234)), "1.23 s");
        assert_eq!(span(Duration::from_secs(61)), "1:01");
        assert_eq!(span(Duration::from_secs(3600 + 62)), "1:01:02");
    }

    #[test]
    fn a_rate_is_told_only_of_a_time_that_means_something() {
        let told = |bytes, micros| transfer(bytes, Duration::from_micros(micros));
        assert_eq!(told(100_000, 2), "100.0 kB in less than 0.01 s");
        assert_eq!(told(100_000, 9_999), "100.0 kB in less than 0.01 s");
        assert_eq!(told(0, 0), "0 B in less than 0.01 s");
        assert_eq!(told(100_000, 10_000), "100.0 kB in 0.01 s, 80.0 Mbit/s");
    }

    #[test]
    fn no_time_makes_no_rate() {
        assert_eq!(bits_per_second(5, Duration::ZERO).to_bits(), 0.0_f64.to_bits());
        assert!((bits_per_second(125, Duration::from_millis(1)) - 1e6).abs() < 1e-6);
    }
}
