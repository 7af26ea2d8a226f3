//! A rate and a queue before it.

use mpxdp_proto::time::Instant;

use super::delay::{Waiting, next_due, release};
use super::{BitRate, Counters, Direction, Middlebox, Output};

/// Passes frames at a rate, as a slower link would. A frame comes out when its last bit has been
/// sent; what does not fit the queue is lost.
#[derive(Debug)]
pub(super) struct Rate {
    rate: BitRate,
    queue: usize,
    waiting: [Waiting; 2],
    counters: Counters,
}

impl Rate {
    pub(super) fn new(rate: BitRate, queue: u64) -> Self {
        let queue = usize::try_from(queue).unwrap_or(usize::MAX);
        Self { rate, queue, waiting: Default::default(), counters: Counters::default() }
    }
}

impl Middlebox for Rate {
    fn on_frame(&mut self, now: Instant, direction: Direction, frame: Vec<u8>, _: &mut Output) {
        let waiting = &mut self.waiting[direction.index()];
        // One frame may always be on the wire, or nothing would pass a small queue.
        if waiting.bytes() > 0 && waiting.bytes() + frame.len() > self.queue {
            self.counters.dropped += 1;
            return;
        }
        let start = waiting.last_due().map_or(now, |last| last.max(now));
        waiting.push(start + self.rate.time_for(frame.len()), frame);
        self.counters.changed += 1;
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Output) {
        release(&mut self.waiting, now, out);
    }

    fn next_timeout(&self) -> Option<Instant> {
        next_due(&self.waiting)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
