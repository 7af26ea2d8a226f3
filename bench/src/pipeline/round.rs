//! Rounds: blocks are measured until there are enough that nothing disturbed.

use super::clock::{Calibration, STAGES, StageTimes};
use super::plan::Amount;
use crate::Result;
use crate::measure::Spread;

/// How many times the amount may be lost to disturbances before what was disturbed has to do.
const PATIENCE: u32 = 8;

/// What was measured of some blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) ticks: u64,
    pub(super) packets: u64,
    /// Readings of the clock that belong to the measurement and not to what was measured.
    pub(super) readings: u64,
    /// How often another thread took the CPU meanwhile.
    pub(super) switches: u64,
    /// Where the ticks went, if that was watched.
    pub(super) stages: StageTimes,
}

impl Measured {
    pub(super) fn add(&mut self, other: Self) {
        let Self { ticks, packets, readings, switches, stages } = other;
        self.ticks += ticks;
        self.packets += packets;
        self.readings += readings;
        self.switches += switches;
        self.stages.add(&stages);
    }

    /// Ticks of a packet, without those of reading the clock.
    fn per_packet(&self, calibration: &Calibration) -> f64 {
        let reading = self.readings as f64 * calibration.reading;
        (self.ticks as f64 - reading).max(0.0) / self.packets.max(1) as f64
    }
}

/// The blocks of a round, and apart from them those during which another thread had the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blocks {
    kept: Measured,
    disturbed: Measured,
}

impl Blocks {
    pub(super) fn add(&mut self, block: Measured) {
        if block.switches == 0 {
            self.kept.add(block);
        } else {
            self.disturbed.add(block);
        }
    }

    /// How many packets more are wanted at most; 0 if there are enough.
    pub(super) fn wanted(&self, amount: Amount, calibration: &Calibration) -> usize {
        let done = |measured: &Measured, times: u32| match amount {
            Amount::Packets(packets) => measured.packets >= packets.saturating_mul(times.into()),
            Amount::Time(time) => {
                let passed = calibration.nanoseconds(measured.ticks as f64);
                passed >= (time * times).as_nanos() as f64
            }
        };
        if done(&self.kept, 1) || done(&self.disturbed, PATIENCE) {
            return 0;
        }
        match amount {
            Amount::Packets(packets) => {
                usize::try_from(packets - self.kept.packets).unwrap_or(usize::MAX)
            }
            Amount::Time(_) => usize::MAX,
        }
    }

    /// Those that count: where all were disturbed, these.
    fn counting(&self) -> &Measured {
        if self.kept.packets > 0 { &self.kept } else { &self.disturbed }
    }

    /// Packets that count.
    pub(super) fn packets(&self) -> u64 {
        self.counting().packets
    }

    /// Packets of blocks that were measured in vain.
    pub(super) fn lost(&self) -> u64 {
        self.kept.packets + self.disturbed.packets - self.packets()
    }

    /// Ticks of a packet.
    pub(super) fn per_packet(&self, calibration: &Calibration) -> f64 {
        self.counting().per_packet(calibration)
    }

    /// Ticks of a packet by stage, without those of the marks.
    pub(super) fn stages_per_packet(&self, calibration: &Calibration) -> [f64; STAGES] {
        let Measured { stages, packets, .. } = self.counting();
        stages.net(calibration).map(|ticks| ticks / (*packets).max(1) as f64)
    }
}

/// Measures blocks until there are enough; `block` is told how many packets are wanted at most.
///
/// # Errors
///
/// Those of `block`.
pub(super) fn repeat(
    amount: Amount,
    calibration: &Calibration,
    mut block: impl FnMut(usize) -> Result<Measured>,
) -> Result<Blocks> {
    let mut blocks = Blocks::default();
    loop {
        match blocks.wanted(amount, calibration) {
            0 => return Ok(blocks),
            most => blocks.add(block(most)?),
        }
    }
}

/// Measures blocks of two kinds in turn, so that whatever else the machine does meets both alike.
///
/// # Errors
///
/// Those of the blocks.
pub(super) fn alternate(
    amount: Amount,
    calibration: &Calibration,
    mut block: impl FnMut(bool, usize) -> Result<Measured>,
) -> Result<[Blocks; 2]> {
    let mut blocks = [Blocks::default(); 2];
    loop {
        let mut enough = true;
        for (kind, blocks) in blocks.iter_mut().enumerate() {
            let most = blocks.wanted(amount, calibration);
            if most > 0 {
                enough = false;
                blocks.add(block(kind == 1, most)?);
            }
        }
        if enough {
            return Ok(blocks);
        }
    }
}

/// What a round says of a packet, in ticks.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// Without the stage clock.
    pub(super) total: f64,
    /// With it.
    pub(super) stages: [f64; STAGES],
    /// Packets that `total` is of.
    pub(super) packets: u64,
    /// Packets of both kinds that were measured in vain.
    pub(super) disturbed: u64,
}

impl Round {
    /// Of blocks without and with the stage clock.
    pub(super) fn of(bare: &Blocks, watched: &Blocks, calibration: &Calibration) -> Self {
        Self {
            total: bare.per_packet(calibration),
            stages: watched.stages_per_packet(calibration),
            packets: bare.packets(),
            disturbed: bare.lost() + watched.lost(),
        }
    }
}

/// What the rounds of a case say, in ticks for a packet.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) total: Spread,
    /// The median of each.
    pub(super) stages: [f64; STAGES],
    /// The stages' sum divided by the total: the median of the rounds, each of which was measured
    /// under conditions of its own.
    pub(super) explained_fraction: f64,
    /// Packets that the totals are of.
    pub(super) packets: u64,
    pub(super) disturbed: u64,
}

impl Summary {
    /// Of some rounds; none if there are none.
    pub(super) fn of(rounds: &[Round]) -> Option<Self> {
        let mut stages = [0.0; STAGES];
        for (at, stage) in stages.iter_mut().enumerate() {
            *stage = Spread::of(rounds.iter().map(|round| round.stages[at]))?.median;
        }
        let fraction = |round: &Round| round.stages.iter().sum::<f64>() / round.total;
        Some(Self {
            total: Spread::of(rounds.iter().map(|round| round.total))?,
            stages,
            explained_fraction: Spread::of(rounds.iter().map(fraction))?.median,
            packets: rounds.iter().map(|round| round.packets).sum(),
            disturbed: rounds.iter().map(|round| round.disturbed).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reading of the clock takes two ticks, and a mark three.
    const CALIBRATION: Calibration =
        Calibration { ticks_per_nanosecond: 2.0, reading: 2.0, mark: 3.0 };

    fn block(packets: u64, ticks: u64) -> Measured {
        Measured { ticks, packets, readings: 1, ..Measured::default() }
    }

    fn disturbed(packets: u64, ticks: u64) -> Measured {
        Measured { switches: 1, ..block(packets, ticks) }
    }

    #[test]
    fn a_packet_s_time_is_without_the_readings_of_the_clock() {
        let mut blocks = Blocks::default();
        blocks.add(block(10, 102));
        blocks.add(block(10, 302));
        assert_eq!(blocks.per_packet(&CALIBRATION), 20.0);
        assert_eq!(blocks.packets(), 20);
    }

    #[test]
    fn what_was_disturbed_counts_only_if_there_is_nothing_else() {
        let mut blocks = Blocks::default();
        blocks.add(disturbed(10, 1002));
        assert_eq!((blocks.per_packet(&CALIBRATION), blocks.lost()), (100.0, 0));
        blocks.add(block(10, 102));
        assert_eq!((blocks.per_packet(&CALIBRATION), blocks.lost()), (10.0, 10));
    }

    #[test]
    fn disturbed_blocks_are_measured_again_but_not_for_ever() {
        let amount = Amount::Packets(20);
        let mut given =
            [disturbed(10, 1), block(10, 1), disturbed(10, 1), block(10, 1)].into_iter();
        let mut wanted = Vec::new();
        let blocks = repeat(amount, &CALIBRATION, |most| {
            wanted.push(most);
            Ok(given.next().expect("enough is known to be enough"))
        });
        assert_eq!(blocks.expect("no block fails").packets(), 20);
        assert_eq!(wanted, [20, 20, 10, 10]);

        let mut times = 0;
        let blocks = repeat(amount, &CALIBRATION, |_| {
            times += 1;
            Ok(disturbed(20, 1))
        });
        assert_eq!((blocks.expect("no block fails").packets(), times), (20 * 8, 8));
    }

    #[test]
    fn a_time_is_of_what_was_measured() {
        let amount = Amount::Time(std::time::Duration::from_nanos(100));
        let mut times = 0;
        let blocks = repeat(amount, &CALIBRATION, |_| {
            times += 1;
            Ok(block(1, 80))
        });
        // 40 ns each.
        assert_eq!((blocks.expect("no block fails").packets(), times), (3, 3));
    }

    #[test]
    fn both_kinds_take_turns_until_both_are_enough() {
        let mut order = Vec::new();
        let measured = alternate(Amount::Packets(20), &CALIBRATION, |watched, _| {
            order.push(watched);
            // The second block of those that are watched is disturbed.
            let bad = watched && order.len() == 4;
            Ok(if bad { disturbed(10, 1) } else { block(10, 1) })
        });
        let [bare, watched] = measured.expect("no block fails");
        assert_eq!((bare.packets(), watched.packets(), watched.lost()), (20, 20, 10));
        assert_eq!(order, [false, true, false, true, true]);
    }

    #[test]
    fn marks_are_taken_off_the_stages_and_off_nothing_else() {
        let clock = super::super::StageClock::default();
        let mut measured = Measured { packets: 2, ..block(2, 0) };
        // Three marks of one stage, with no time given to them: nothing is left, and not less.
        for _ in 0..3 {
            clock.count(1, 1);
        }
        clock.count(4, 103);
        measured.stages = clock.take();
        let mut blocks = Blocks::default();
        blocks.add(measured);
        let stages = blocks.stages_per_packet(&CALIBRATION);
        assert_eq!(stages[4], 50.0);
        assert_eq!(stages.iter().sum::<f64>(), 50.0);
    }

    #[test]
    fn a_fraction_is_of_a_round_and_its_median_is_told() {
        let round = |total: f64, first: f64, last: f64| {
            let mut stages = [0.0; STAGES];
            (stages[0], stages[STAGES - 1]) = (first, last);
            Round { total, stages, packets: 10, disturbed: 1 }
        };
        // The machine was three times as slow in the last one, for both.
        let rounds =
            [round(100.0, 60.0, 38.0), round(100.0, 61.0, 39.0), round(300.0, 200.0, 97.0)];
        let summary = Summary::of(&rounds).expect("there are rounds");
        assert_eq!(summary.total, Spread { median: 100.0, min: 100.0, max: 300.0 });
        assert_eq!((summary.stages[0], summary.stages[STAGES - 1]), (61.0, 39.0));
        assert_eq!(summary.explained_fraction, 0.99);
        assert_eq!((summary.packets, summary.disturbed), (30, 3));
        // What no stage has is missing.
        let summary = Summary::of(&[round(100.0, 40.0, 20.0)]).expect("there is a round");
        assert_eq!(summary.explained_fraction, 0.6);
        assert!(Summary::of(&[]).is_none());
    }
}
