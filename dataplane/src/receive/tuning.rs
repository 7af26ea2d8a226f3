//! When the ring should grow: dynamic right-sizing, from what the reader consumes.
//!
//! A sender that is in slow start sends twice as much in the next round trip. So where the reader
//! has consumed more than half a window within one, the window may be what limits the stream, and
//! the ring doubles. Nothing else counts: a reader that does not keep up gets no larger ring, and
//! whether it sleeps, polls or spins makes no difference, since the workers do the measuring.

use std::time::Duration;

use mpxdp_proto::time::Instant;

/// The shortest round. Estimates below it are those of an idle path, from the handshake: timestamps
/// tick in milliseconds. Under load a round trip contains the batches and queues of both hosts, and
/// a round that is too short never sees half a window go by. Too long a one costs a ring of two or
/// four times what was needed: at 40 Gb/s this one leads to 4 MiB.
const SHORTEST_ROUND: Duration = Duration::from_micros(500);

/// How long a refusal of memory stands before it is asked for again.
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// The measurement of one ring.
#[derive(Debug, Default)]
pub(super) struct Tuning {
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    since: Instant,
    consumed: u64,
}

/// What to do now, and when to look again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Advice {
    pub(super) grow: bool,
    pub(super) next: Instant,
}

impl Tuning {
    /// `consumed` is the reader's place in the stream, `window` the ring's capacity.
    pub(super) fn look(
        &mut self,
        now: Instant,
        rtt: Duration,
        consumed: u64,
        window: usize,
    ) -> Advice {
        let rtt = rtt.max(SHORTEST_ROUND);
        let mut grow = false;
        if let Some(round) = self.round {
            let elapsed = now.saturating_since(round.since);
            if elapsed < rtt {
                return Advice { grow, next: round.since + rtt };
            }
            // Bursts seldom end at a round trip exactly; a round that took longer counts in
            // proportion.
            let consumed = u128::from(consumed - round.consumed);
            let in_one_rtt = consumed * rtt.as_nanos() / elapsed.as_nanos();
            grow = in_one_rtt > window as u128 / 2;
        }
        self.round = Some(Round { since: now, consumed });
        Advice { grow, next: now + rtt }
    }

    /// Memory was refused: no measuring until some time later.
    pub(super) fn refused(&mut self, now: Instant) -> Instant {
        self.round = None;
        now + AFTER_REFUSAL
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(1);

    fn at(micros: u64) -> Instant {
        Instant(micros * 1000)
    }

    #[test]
    fn grows_where_more_than_half_a_window_is_consumed_in_a_round_trip() {
        let mut tuning = Tuning::default();
        assert!(!tuning.look(at(0), RTT, 0, 1000).grow);
        assert!(!tuning.look(at(1000), RTT, 500, 1000).grow);
        assert!(tuning.look(at(2000), RTT, 1001, 1000).grow);
    }

    #[test]
    fn a_round_lasts_a_round_trip() {
        let mut tuning = Tuning::default();
        assert_eq!(tuning.look(at(0), RTT, 0, 1000).next, at(1000));
        let early = tuning.look(at(999), RTT, 1000, 1000);
        assert_eq!(early, Advice { grow: false, next: at(1000) });
        assert!(tuning.look(at(1000), RTT, 1000, 1000).grow);
    }

    #[test]
    fn a_longer_round_counts_in_proportion() {
        let mut tuning = Tuning::default();
        tuning.look(at(0), RTT, 0, 1000);
        assert!(!tuning.look(at(4000), RTT, 2000, 1000).grow);
        assert!(tuning.look(at(8000), RTT, 4004, 1000).grow);
    }

    #[test]
    fn a_reader_that_does_not_read_gets_no_larger_ring() {
        let mut tuning = Tuning::default();
        for n in 0..100 {
            assert!(!tuning.look(at(n * 1000), RTT, 7, 1000).grow);
        }
    }

    #[test]
    fn no_round_trip_time_is_taken_as_a_short_one() {
        let mut tuning = Tuning::default();
        let advice = tuning.look(at(0), Duration::ZERO, 0, 1000);
        assert_eq!(advice.next, at(500));
        assert!(tuning.look(at(500), Duration::ZERO, 501, 1000).grow);
    }
}
