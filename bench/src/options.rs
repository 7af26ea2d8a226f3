//! What options may be, the same for all benchmarks, so that all is found out before the work.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::trial::MAX_SUBFLOWS;

/// How often something is measured.
pub const ROUNDS: RangeInclusive<usize> = 1..=1000;
/// The length of a measurement: less than that measures the clock ticks that the kernel counts by, and
/// a sender on another host takes no longer jobs.
pub const SECONDS: RangeInclusive<f64> = 0.1..=3600.0;
/// What of a connection's beginning is left out, in seconds.
pub const WARMUP: RangeInclusive<f64> = 0.0..=60.0;
/// Subflows of a connection.
pub const SUBFLOWS: RangeInclusive<u32> = 1..=MAX_SUBFLOWS;
/// How many placements of a receiver are measured, at most.
pub const LIMIT: RangeInclusive<usize> = 1..=1000;
/// Bytes of a link's MTU: IPv6 needs the least, and veth takes no more.
pub const MTU: RangeInclusive<u32> = 1280..=65535;
/// Links of a lab: each is the third byte of an IPv4 network.
pub const LINKS: RangeInclusive<u32> = 1..=64;
/// Queues of each end of a link: as many as veth takes.
pub const QUEUES: RangeInclusive<u32> = 1..=4096;
/// Numbers of VLANs.
pub const VLAN: RangeInclusive<u16> = 1..=4094;

/// Refuses a list that is empty or has something twice, which would be measured twice.
///
/// # Errors
///
/// Wrong usage.
pub(crate) fn list<T: Display>(option: &str, values: impl IntoIterator<Item = T>) -> Result<()> {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() {
        return Err(Error::Usage(format!("{option}: name at least one")));
    }
    match values.iter().enumerate().find(|(n, value)| values[..*n].contains(value)) {
        Some((_, twice)) => {
            Err(Error::Usage(format!("{option}: {twice} is there twice; name each once")))
        }
        None => Ok(()),
    }
}

/// Refuses a value out of its range.
///
/// # Errors
///
/// Wrong usage.
pub(crate) fn within<T: PartialOrd + Display>(
    option: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(Error::Usage(format!("{option} {value}: from {least} to {most}")))
}

/// How often something is measured: 1 to 1000 times.
///
/// # Errors
///
/// Wrong usage.
pub(crate) fn rounds(rounds: usize) -> Result<()> {
    within("--rounds", rounds, ROUNDS)
}

/// The length of a measurement: 0.1 to 3600 seconds.
///
/// # Errors
///
/// Wrong usage.
pub(crate) fn seconds(time: Duration) -> Result<()> {
    within("--seconds", time.as_secs_f64(), SECONDS)
}

/// Numbers of subflows, each once.
///
/// # Errors
///
/// Wrong usage.
pub(crate) fn subflows(numbers: &[u32]) -> Result<()> {
    list("--subflows", numbers)?;
    numbers.iter().try_for_each(|&number| within("--subflows", number, SUBFLOWS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(result: Result<()>) -> String {
        match result {
            Err(Error::Usage(text)) => text,
            other => panic!("not refused as wrong usage: {other:?}"),
        }
    }

    #[test]
    fn lists_have_something_and_nothing_twice() {
        assert!(list("--mtu", [1500, 9000]).is_ok());
        assert_eq!(
            refused(list("--mtu", [1500, 9000, 1500])),
            "--mtu: 1500 is there twice; name each once"
        );
        assert!(refused(list::<u32>("--mtu", [])).starts_with("--mtu"));
    }

    #[test]
    fn values_out_of_range_are_told_with_the_range() {
        assert_eq!(refused(rounds(0)), "--rounds 0: from 1 to 1000");
        assert_eq!(refused(rounds(1001)), "--rounds 1001: from 1 to 1000");
        assert_eq!(refused(seconds(Duration::ZERO)), "--seconds 0: from 0.1 to 3600");
        assert!(seconds(Duration::from_secs_f64(0.1)).is_ok());
        assert!(seconds(Duration::from_secs(3600)).is_ok());
        assert!(refused(seconds(Duration::from_secs(3601))).contains("3601"));
        assert_eq!(refused(subflows(&[1, 9])), "--subflows 9: from 1 to 8");
        assert!(refused(subflows(&[2, 2])).contains("twice"));
    }
}
