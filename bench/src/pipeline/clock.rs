//! The clock of the measurements, and the probe that a worker's stages are timed with.

use std::cell::Cell;
use std::time::Instant;

use mpxdp::stepped::{Probe, Stage};

/// The stages of [`Stage::ALL`], and one more: the reader's.
pub const STAGES: usize = Stage::ALL.len() + 1;

/// The place of the reader's stage.
const READ: usize = STAGES - 1;

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
    /// Ticks that a mark of a [`StageClock`] takes, of one after the other.
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
                std::hint::black_box(ticks());
            }
            ticks() - begin
        });
        let clock = StageClock::default();
        let marks = least(REPEATS, || {
            let begin = ticks();
            for _ in 0..TIMES {
                std::hint::black_box(&clock).mark(Stage::Rest);
            }
            ticks() - begin
        });
        while start.elapsed().as_millis() < 20 {
            std::hint::spin_loop();
        }
        let (last, elapsed) = (ticks(), start.elapsed());
        Self {
            ticks_per_nanosecond: (last - first) as f64 / elapsed.as_nanos() as f64,
            reading: readings as f64 / f64::from(TIMES),
            mark: marks as f64 / f64::from(TIMES),
        }
    }

    /// Nanoseconds of so many ticks.
    #[must_use]
    pub fn nanoseconds(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_nanosecond
    }
}

/// The least of some runs: what others do on the machine only ever adds.
fn least(repeats: usize, mut run: impl FnMut() -> u64) -> u64 {
    (0..repeats).map(|_| run()).min().unwrap_or(0)
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
    /// Ticks of each stage since the last call, less what the marks themselves took.
    #[must_use]
    pub fn take(&self, calibration: &Calibration) -> [f64; STAGES] {
        std::array::from_fn(|at| {
            let Timed { ticks, marks } = &self.stages[at];
            (ticks.take() as f64 - marks.take() as f64 * calibration.mark).max(0.0)
        })
    }

    #[inline(always)]
    fn add(&self, at: usize) {
        let now = ticks();
        let Timed { ticks, marks } = &self.stages[at];
        ticks.set(ticks.get() + now.wrapping_sub(self.last.get()));
        marks.set(marks.get() + 1);
        self.last.set(now);
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
}

impl Watch for () {
    #[inline(always)]
    fn begin(self) {}
    #[inline(always)]
    fn read(self) {}
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
        let stages = clock.take(&calibration);
        assert!(stages[Stage::Copy as usize] >= 1_000_000.0, "{stages:?}");
        assert!(stages[Stage::Parse as usize] == 0.0, "{stages:?}");
        assert!(clock.take(&calibration).iter().all(|&ticks| ticks == 0.0));
    }
}
