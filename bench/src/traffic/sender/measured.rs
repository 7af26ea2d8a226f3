//! How fast a connection is, after its warm-up and over time.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::{Measured, Moment};
use crate::document::{Retransmissions, Timeline};
use crate::traffic::bits_per_second;
use crate::traffic::socket::{self, Protocol};

/// The length of an interval of the timeline.
const INTERVAL: Duration = Duration::from_millis(100);

/// The most intervals that are kept: an hour's.
const MOST_INTERVALS: usize = 36_000;

/// Watches one connection while it is written to.
#[derive(Debug)]
pub(super) struct Measuring<'a> {
    protocol: Protocol,
    stream: &'a TcpStream,
    warmup: Duration,
    /// What had been written by the end of the warm-up, once that is over.
    warm: Option<Mark>,
    /// Where it stood when it started.
    begin: Mark,
    intervals: Vec<u64>,
}

/// Where a connection stood at a moment.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    bytes: u64,
    retransmissions: Retransmissions,
    /// The time that this thread has run.
    ran: Duration,
}

/// The time that this thread has run.
fn ran() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}

fn mark(protocol: Protocol, stream: &TcpStream, bytes: u64) -> Mark {
    let subflows = socket::subflows(protocol, stream);
    let retransmissions =
        Retransmissions { tcp: subflows.retransmissions, mptcp: subflows.data_retransmissions };
    Mark { at: Instant::now(), bytes, retransmissions, ran: ran() }
}

impl<'a> Measuring<'a> {
    /// Starts now, `bytes` having been written before.
    pub(super) fn new(
        warmup: Option<Duration>,
        protocol: Protocol,
        stream: &'a TcpStream,
        bytes: u64,
    ) -> Self {
        let begin = mark(protocol, stream, bytes);
        let warmup = warmup.unwrap_or_default();
        Self { protocol, stream, warmup, warm: None, begin, intervals: Vec::new() }
    }

    /// The time since it started.
    pub(super) fn elapsed(&self) -> Duration {
        self.begin.at.elapsed()
    }

    /// The time since the warm-up was over; zero before.
    pub(super) fn measured(&self) -> Duration {
        self.warm.map_or(Duration::ZERO, |warm| warm.at.elapsed())
    }

    /// Tells of the end of the warm-up once it is over; to be called before each write, with what has
    /// been written so far.
    pub(super) fn before_write(&mut self, bytes: u64, tell: &dyn Fn(Moment)) {
        if self.warm.is_none() && self.elapsed() >= self.warmup {
            self.warm = Some(mark(self.protocol, self.stream, bytes));
            tell(Moment::Warm);
        }
    }

    /// Takes note of bytes that were just written.
    pub(super) fn wrote(&mut self, bytes: usize) {
        let interval = (self.elapsed().as_nanos() / INTERVAL.as_nanos()) as usize;
        if interval < MOST_INTERVALS {
            if self.intervals.len() <= interval {
                self.intervals.resize(interval + 1, 0);
            }
            self.intervals[interval] += bytes as u64;
        }
    }

    /// Ends it, so many bytes having been written in all. Where the warm-up was not over yet, all is
    /// what was measured.
    pub(super) fn finish(self, bytes: u64) -> (Measured, Timeline) {
        let end = mark(self.protocol, self.stream, bytes);
        let begin = self.warm.unwrap_or(self.begin);
        let time = end.at.duration_since(begin.at);
        let bytes = end.bytes - begin.bytes;
        let (from, to) = (begin.retransmissions, end.retransmissions);
        let measured = Measured {
            bytes,
            seconds: time.as_secs_f64(),
            bits_per_second: bits_per_second(bytes, time),
            retransmissions: Retransmissions {
                tcp: to.tcp.saturating_sub(from.tcp),
                mptcp: to.mptcp.saturating_sub(from.mptcp),
            },
            ran_seconds: end.ran.saturating_sub(begin.ran).as_secs_f64(),
        };
        let interval_seconds = INTERVAL.as_secs_f64();
        (measured, Timeline { interval_seconds, bytes: self.intervals })
    }
}
