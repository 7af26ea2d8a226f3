//! The workers' clock: the time-stamp counter, read once a burst.

use mpxdp_proto::time::Instant;

/// Nanoseconds since the engine started. Clones agree with each other, on whatever thread.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    counter: quanta::Clock,
    origin: u64,
}

impl Clock {
    /// A clock that starts now; calibrating it takes some milliseconds, once in a process.
    pub(crate) fn start() -> Self {
        let counter = quanta::Clock::new();
        let origin = counter.raw();
        Self { counter, origin }
    }

    /// The time now.
    ///
    /// It starts at one hour instead of zero, so that "long ago" can be told by subtracting.
    pub(crate) fn now(&self) -> Instant {
        const HOUR: u64 = 3_600_000_000_000;
        Instant(HOUR + self.counter.delta_as_nanos(self.origin, self.counter.raw()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_keeps_pace_with_the_system_clock() {
        let clock = Clock::start();
        let (before, start) = (clock.now(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (after, elapsed) = (clock.clone().now(), start.elapsed());
        let ours = after.saturating_since(before);
        assert!(ours.abs_diff(elapsed) < Duration::from_millis(5), "{ours:?} for {elapsed:?}");
    }
}
