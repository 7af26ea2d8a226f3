//! Delay, and reordering by holding some frames back.

use std::collections::VecDeque;
use std::time::Duration;

use mpxdp_proto::time::Instant;

use super::impair::dice;
use super::{Counters, Direction, Middlebox, Output, Probability, Random};

/// The most bytes a box holds for one direction: a second of half a gigabit.
const MAX_HELD: usize = 64 << 20;

/// Frames that wait, in the order in which they are due.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    frames: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Waiting {
    /// Adds a frame that is due no earlier than those that wait already.
    pub(super) fn push(&mut self, due: Instant, frame: Vec<u8>) {
        debug_assert!(self.frames.back().is_none_or(|(last, _)| *last <= due), "out of order");
        self.bytes += frame.len();
        self.frames.push_back((due, frame));
    }

    /// The next frame that is due at `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (_, frame) = self.frames.pop_front_if(|(due, _)| *due <= now)?;
        self.bytes -= frame.len();
        Some(frame)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.frames.front().map(|(due, _)| *due)
    }

    /// When the last frame that waits is due.
    pub(super) fn last_due(&self) -> Option<Instant> {
        self.frames.back().map(|(due, _)| *due)
    }

    /// The bytes of the frames that wait.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Lets out what is due.
pub(super) fn release(waiting: &mut [Waiting; 2], now: Instant, out: &mut Output) {
    for direction in Direction::BOTH {
        while let Some(frame) = waiting[direction.index()].pop(now) {
            out.push(direction, frame);
        }
    }
}

/// When the first of the frames in both directions is due.
pub(super) fn next_due(waiting: &[Waiting; 2]) -> Option<Instant> {
    waiting.iter().filter_map(Waiting::next_due).min()
}

/// Delays all frames and keeps their order.
#[derive(Debug)]
pub(super) struct Delay {
    by: Duration,
    jitter: Duration,
    dice: [Random; 2],
    waiting: [Waiting; 2],
    counters: Counters,
}

impl Delay {
    pub(super) fn new(by: Duration, jitter: Duration, random: &Random) -> Self {
        Self {
            by,
            jitter,
            dice: dice(random),
            waiting: Default::default(),
            counters: Counters::default(),
        }
    }
}

impl Middlebox for Delay {
    fn on_frame(&mut self, now: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let waiting = &mut self.waiting[direction.index()];
        if waiting.bytes() + frame.len() > MAX_HELD {
            self.counters.dropped += 1;
            return;
        }
        let jitter = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        let extra = match jitter {
            0 => 0,
            jitter => self.dice[direction.index()].below(jitter.saturating_add(1)),
        };
        let due = now + self.by + Duration::from_nanos(extra);
        let due = waiting.last_due().map_or(due, |last| last.max(due));
        if due <= now && waiting.bytes() == 0 {
            out.push(direction, frame);
        } else {
            waiting.push(due, frame);
            self.counters.changed += 1;
        }
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

/// Holds some frames back for a time while others pass.
#[derive(Debug)]
pub(super) struct Reorder {
    probability: Probability,
    by: Duration,
    dice: [Random; 2],
    waiting: [Waiting; 2],
    counters: Counters,
}

impl Reorder {
    pub(super) fn new(probability: Probability, by: Duration, random: &Random) -> Self {
        Self {
            probability,
            by,
            dice: dice(random),
            waiting: Default::default(),
            counters: Counters::default(),
        }
    }
}

impl Middlebox for Reorder {
    fn on_frame(&mut self, now: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let waiting = &mut self.waiting[direction.index()];
        let held = self.dice[direction.index()].chance(self.probability);
        if held && waiting.bytes() + frame.len() <= MAX_HELD {
            waiting.push(now + self.by, frame);
            self.counters.changed += 1;
        } else {
            out.push(direction, frame);
        }
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
