//! A rate limit.

use std::time::Duration;

use mpxdp_proto::time::Instant;

/// Allows so many events a second, and as many at once after a quiet second.
#[derive(Debug)]
pub(super) struct RateLimit {
    interval: Duration,
    /// When the allowance would have been used up evenly; it lags behind `now` by a second at most.
    reached: Instant,
}

impl RateLimit {
    pub(super) fn per_second(events: u32) -> Self {
        Self { interval: Duration::from_secs(1) / events, reached: Instant(0) }
    }

    /// Whether one more event is allowed at `now`.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        let from = self.reached.max(now - Duration::from_secs(1));
        let allowed = from + self.interval <= now;
        if allowed {
            self.reached = from + self.interval;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_no_more_than_the_rate() {
        let mut limit = RateLimit::per_second(10);
        let start = Instant(5_000_000_000);
        let at_once = (0..100).filter(|_| limit.allow(start)).count();
        assert_eq!(at_once, 10);
        let later = start + Duration::from_millis(300);
        assert_eq!((0..100).filter(|_| limit.allow(later)).count(), 3);
        let quiet = later + Duration::from_secs(60);
        assert_eq!((0..100).filter(|_| limit.allow(quiet)).count(), 10);
    }
}
