//! The clock of the measurements, and the probe that a worker's stages are timed with.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use mpxdp::checksum;
use mpxdp::stepped::{Probe, Stage};
use mpxdp_proto::wire::parse_frame;
use nix::sys::resource::{UsageWho, getrusage};

use super::peer::{Peer, Shape};

/// The stages of [`Stage::ALL`], and one more: the reader's.
pub const STAGES: usize = Stage::ALL.len() + 1;

/// The place of the reader's stage.
const READ: usize = STAGES - 1;

/// What the stages are called, in their order.
pub const STAGE_NAMES: [&str; STAGES] = {
    let mut names = ["read"; STAGES];
    let mut at = 0;
    while at < Stage::ALL.len() {
        names[at] = Stage::ALL[at].name();
        at += 1;
    }
    names
};

/// Ticks of the time-stamp counter on x86-64, nanoseconds elsewhere. The counter has a rate of its
/// own, whatever the frequency of the core is at the moment.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since the first call.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn ticks() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// What a tick is, and what it costs to read the clock.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// Ticks in a nanosecond.
    pub ticks_per_nanosecond: f64,
    /// Ticks from one reading of the clock to the next with nothing in between.
    pub reading: f64,
    /// Ticks by which a mark of a [`StageClock`] makes work longer that it stands in. That is not what
    /// one of many in a row takes.
    pub mark: f64,
}

impl Calibration {
    /// Measures for some tens of milliseconds.
    #[must_use]
    pub fn measure() -> Self {
        const TIMES: u32 = 20_000;
        const REPEATS: usize = 9;
        let (start, first) = (Instant::now(), ticks());
        let readings = least(REPEATS, || {
            let begin = ticks();
            for _ in 1..TIMES {
                black_box(ticks());
            }
            ticks() - begin
        });
        let (clock, frame) = (StageClock::default(), sample_frame());
        let (mut bare, mut marked) = (u64::MAX, u64::MAX);
        for _ in 0..REPEATS {
            bare = bare.min(work(&frame, TIMES, ()));
            marked = marked.min(work(&frame, TIMES, black_box(&clock)));
        }
        let marks = marked.saturating_sub(bare);
        while start.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let (last, elapsed) = (ticks(), start.elapsed());
        Self {
            ticks_per_nanosecond: (last - first) as f64 / elapsed.as_nanos() as f64,
            reading: readings as f64 / f64::from(TIMES),
            mark: marks as f64 / f64::from(MARKS * TIMES),
        }
    }

    /// Nanoseconds of so many ticks.
    #[must_use]
    pub fn nanoseconds(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_nanosecond
    }
}

/// Marks that each turn of [`work`] makes.
const MARKS: u32 = 2;

/// The ticks of so many turns of what stages do with a short packet.
fn work(frame: &[u8], times: u32, probe: impl Probe) -> u64 {
    let begin = ticks();
    for _ in 0..times {
        let frame = black_box(frame);
        let _ = black_box(parse_frame(frame, frame.len()));
        probe.mark(Stage::Parse);
        black_box(checksum::sum(frame));
        probe.mark(Stage::Checksum);
    }
    ticks() - begin
}

/// A packet of 64 octets of payload.
fn sample_frame() -> Vec<u8> {
    let mut peer =
        Peer::new(Shape { connections: 1, subflows: 1, payload: 64, reorder: 0.0, mptcp: true });
    peer.pretend();
    let mut frame = Vec::new();
    let (len, _) = peer.next_packet(&mut frame);
    frame.truncate(len);
    frame
}

/// The least of some runs: what others do on the machine only ever adds.
fn least(repeats: usize, mut run: impl FnMut() -> u64) -> u64 {
    (0..repeats).map(|_| run()).min().unwrap_or(0)
}

/// Ticks of each stage, and how many marks are in them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    ticks: [u64; STAGES],
    marks: [u64; STAGES],
}

impl StageTimes {
    /// Adds others to these.
    pub fn add(&mut self, other: &Self) {
        for at in 0..STAGES {
            self.ticks[at] += other.ticks[at];
            self.marks[at] += other.marks[at];
        }
    }

    /// Ticks of each stage, less what the marks themselves took.
    #[must_use]
    pub fn net(&self, calibration: &Calibration) -> [f64; STAGES] {
        std::array::from_fn(|at| {
            (self.ticks[at] as f64 - self.marks[at] as f64 * calibration.mark).max(0.0)
        })
    }
}

/// Ticks by stage.
#[derive(Debug, Default)]
pub struct StageClock {
    last: Cell<u64>,
    stages: [Timed; STAGES],
}

#[derive(Debug, Default)]
struct Timed {
    ticks: Cell<u64>,
    marks: Cell<u64>,
}

impl StageClock {
    /// What was counted since the last call.
    #[must_use]
    pub fn take(&self) -> StageTimes {
        StageTimes {
            ticks: std::array::from_fn(|at| self.stages[at].ticks.take()),
            marks: std::array::from_fn(|at| self.stages[at].marks.take()),
        }
    }

    #[inline(always)]
    fn add(&self, at: usize) {
        let now = ticks();
        self.count(at, now.wrapping_sub(self.last.get()));
        self.last.set(now);
    }

    /// A mark with so many ticks.
    #[inline(always)]
    pub(super) fn count(&self, at: usize, passed: u64) {
        let Timed { ticks, marks } = &self.stages[at];
        ticks.set(ticks.get() + passed);
        marks.set(marks.get() + 1);
    }
}

impl Probe for &StageClock {
    #[inline(always)]
    fn mark(self, stage: Stage) {
        self.add(stage as usize);
    }
}

/// What is told of a measurement as it runs: nothing, or every stage.
pub trait Watch: Probe {
    /// The measured time begins.
    fn begin(self);
    /// The reader has read.
    fn read(self);
    /// What was seen since the last call.
    fn take(self) -> StageTimes;
}

impl Watch for () {
    #[inline(always)]
    fn begin(self) {}
    #[inline(always)]
    fn read(self) {}
    fn take(self) -> StageTimes {
        StageTimes::default()
    }
}

impl Watch for &StageClock {
    #[inline(always)]
    fn begin(self) {
        self.last.set(ticks());
    }

    #[inline(always)]
    fn read(self) {
        self.add(READ);
    }

    fn take(self) -> StageTimes {
        StageClock::take(self)
    }
}

/// How often another thread took the CPU from this one so far.
pub(super) fn switches() -> u64 {
    // Without the figure nothing counts as disturbed.
    getrusage(UsageWho::RUSAGE_THREAD)
        .map_or(0, |usage| usage.involuntary_context_switches() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_ticks_at_a_steady_rate_and_marks_cost_something() {
        let calibration = Calibration::measure();
        assert!(calibration.ticks_per_nanosecond > 0.01, "{calibration:?}");
        assert!(calibration.mark > 0.0 && calibration.reading > 0.0, "{calibration:?}");
    }

    #[test]
    fn each_stage_has_its_own_time() {
        let calibration = Calibration { ticks_per_nanosecond: 1.0, reading: 0.0, mark: 0.0 };
        let clock = StageClock::default();
        (&clock).begin();
        let until = ticks() + 1_000_000;
        while ticks() < until {}
        (&clock).mark(Stage::Copy);
        (&clock).read();
        let stages = clock.take().net(&calibration);
        assert!(stages[Stage::Copy as usize] >= 1_000_000.0, "{stages:?}");
        assert!(stages[Stage::Parse as usize] == 0.0, "{stages:?}");
        assert!(clock.take().net(&calibration).iter().all(|&ticks| ticks == 0.0));
    }
}
