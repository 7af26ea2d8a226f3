//! When messages are due, and sending them then.
//!
//! Message `i` is due at `start + i / rate`, whatever became of those before. A sender that was held
//! up sends what has become due meanwhile at once, one message after the other, and each carries the
//! moment at which it was due. So a stall of the receiver shows in every message that it delayed,
//! not only in the one that happened to be under way: the measurement does not omit, in coordination
//! with the receiver, what it should have sent.

use super::clock::{Clock, Moment};
use super::histogram::{Latencies, empty};
use super::message::Stamp;

/// How long after its due moment a message's write may begin before it counts as late. A sender that
/// spins on a CPU of its own begins within one or two microseconds; what is later by this was held
/// up by the write before it, or off its CPU.
pub const LATE: u64 = 20_000;

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Messages a second, at least 1.
    pub rate: u32,
    /// Messages that come first and are not measured.
    pub warm_up: u64,
    /// Messages that are measured.
    pub measured: u64,
}

impl Plan {
    /// Nanoseconds from the start until a message is due.
    #[must_use]
    pub fn due(&self, index: u64) -> u64 {
        let after = u128::from(index) * 1_000_000_000 / u128::from(self.rate.max(1));
        u64::try_from(after).unwrap_or(u64::MAX)
    }

    /// Messages in all.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.warm_up.saturating_add(self.measured)
    }
}

/// How sending went, the warm-up left out.
#[derive(Clone, Debug)]
pub struct Paced {
    /// Messages that were written.
    pub sent: u64,
    /// Messages whose write began later than [`LATE`] after they were due.
    pub late: u64,
    /// Messages that were not written, since the sender was too far behind.
    pub unsent: u64,
    /// How long after they were due the writes began, in nanoseconds.
    pub lateness: Latencies,
    /// Nanoseconds from when the first was due until the last was written.
    pub took: u64,
}

impl Paced {
    /// Messages a second that were really written.
    #[must_use]
    pub fn achieved(&self, plan: &Plan) -> f64 {
        // The last message's own interval belongs to the time, else one message would be a rate of
        // infinity.
        let time = self.took.saturating_add(plan.due(1));
        if time > 0 { self.sent as f64 * 1e9 / time as f64 } else { 0.0 }
    }
}

/// Sends all messages, from `start` on, each when it is due or as soon after as `send` lets it.
/// Gives up what is left once it is `give_up` nanoseconds behind.
///
/// # Errors
///
/// What `send` returns.
pub fn pace<C: Clock, E>(
    clock: &C,
    plan: &Plan,
    start: Moment,
    give_up: u64,
    mut send: impl FnMut(&Stamp) -> Result<(), E>,
) -> Result<Paced, E> {
    let mut paced = Paced { sent: 0, late: 0, unsent: 0, lateness: empty(), took: 0 };
    let first = start.after(plan.due(plan.warm_up));
    for sequence in 0..plan.messages() {
        let due = start.after(plan.due(sequence));
        let written = clock.wait_until(due);
        let lateness = written.since(due);
        if lateness > give_up {
            paced.unsent = plan.messages() - sequence.max(plan.warm_up);
            break;
        }
        send(&Stamp { sequence, due, written })?;
        if sequence >= plan.warm_up {
            paced.sent += 1;
            paced.late += u64::from(lateness > LATE);
            paced.lateness.saturating_record(lateness);
        }
    }
    paced.took = clock.now().since(first);
    Ok(paced)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;
    use crate::document::Percentiles;
    use crate::latency::message::Recorder;

    const MILLISECOND: u64 = 1_000_000;

    /// A clock that moves only when somebody waits for it or spends time.
    struct Fake(Cell<u64>);

    impl Fake {
        fn spend(&self, nanoseconds: u64) {
            self.0.set(self.0.get() + nanoseconds);
        }
    }

    impl Clock for Fake {
        fn now(&self) -> Moment {
            Moment(self.0.get())
        }

        fn wait_until(&self, moment: Moment) -> Moment {
            self.0.set(self.0.get().max(moment.0));
            self.now()
        }
    }

    const PLAN: Plan = Plan { rate: 1000, warm_up: 100, measured: 10_000 };

    /// Sends by `plan`; a write takes what `write` says, and the message is with the reader 5 us
    /// after it.
    fn run(plan: &Plan, write: impl Fn(u64) -> u64) -> (Paced, Recorder) {
        let clock = Fake(Cell::new(7_777));
        let mut recorder = Recorder::new(plan.warm_up);
        let paced = pace(&clock, plan, Moment(10_000), 60_000 * MILLISECOND, |stamp| {
            clock.spend(write(stamp.sequence));
            recorder.record(stamp, clock.now().after(5_000));
            Ok::<_, Infallible>(())
        });
        (paced.expect("cannot fail"), recorder)
    }

    #[test]
    fn messages_are_due_at_the_rate_without_drift() {
        for rate in [1, 3, 7_000, 1_000_003] {
            let plan = Plan { rate, warm_up: 0, measured: 0 };
            assert_eq!(plan.due(0), 0);
            // After a whole number of seconds nothing is left of what was rounded away.
            assert_eq!(plan.due(u64::from(rate) * 3600), 3600 * 1_000_000_000);
        }
    }

    #[test]
    fn nothing_is_late_when_nothing_stalls() {
        let (paced, recorder) = run(&PLAN, |_| 2_000);
        assert_eq!((paced.sent, paced.late, paced.unsent), (10_000, 0, 0));
        assert!((paced.achieved(&PLAN) - 1000.0).abs() < 1.0, "{}", paced.achieved(&PLAN));
        let latency = Percentiles::of(recorder.latency());
        assert_eq!(recorder.latency().len(), 10_000);
        assert!((6_990..=7_010).contains(&latency.max), "{latency:?}");
    }

    #[test]
    fn a_stall_shows_in_every_message_that_it_delayed() {
        // A second in which a write hangs, of ten: 1000 messages become due meanwhile, 10 % of all.
        let stalled = PLAN.warm_up + 4_000;
        let (paced, recorder) =
            run(&PLAN, |sequence| if sequence == stalled { 1000 * MILLISECOND } else { 2_000 });
        let latency = Percentiles::of(recorder.latency());
        // A closed loop would have one bad message in 10,000, and p99.9 would not know of it.
        assert!(latency.p50 < 10_000, "{latency:?}");
        assert!(latency.p99 > 800 * MILLISECOND, "{latency:?}");
        assert!(latency.p99_9 > 900 * MILLISECOND, "{latency:?}");
        assert!(latency.max > 990 * MILLISECOND, "{latency:?}");
        // The one that hung was not late itself; those behind it were, until the backlog was gone.
        assert!((990..=1010).contains(&paced.late), "{}", paced.late);
        assert!(paced.lateness.max() > 990 * MILLISECOND);
        // From the write on, only one was slow: that is what makes the two times worth having.
        let transit = Percentiles::of(recorder.transit());
        assert!(transit.p99_9 < 10_000, "{transit:?}");
        assert!(transit.max > 990 * MILLISECOND, "{transit:?}");
    }

    #[test]
    fn a_sender_that_cannot_keep_up_says_so() {
        // Each write takes twice the interval.
        let (paced, recorder) = run(&PLAN, |_| 2 * MILLISECOND);
        assert!((paced.achieved(&PLAN) - 500.0).abs() < 10.0, "{}", paced.achieved(&PLAN));
        assert_eq!(paced.late, 10_000);
        assert!(Percentiles::of(recorder.latency()).p50 > 4000 * MILLISECOND);
    }

    #[test]
    fn a_sender_too_far_behind_gives_up_and_counts_what_it_left() {
        let clock = Fake(Cell::new(0));
        let paced = pace(&clock, &PLAN, Moment(0), 50 * MILLISECOND, |_| {
            clock.spend(2 * MILLISECOND);
            Ok::<_, Infallible>(())
        });
        let paced = paced.expect("cannot fail");
        assert_eq!(paced.sent + paced.unsent, PLAN.measured);
        assert!(paced.unsent > 9_900, "{}", paced.unsent);
    }
}
