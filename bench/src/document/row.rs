//! One receiver under one set of conditions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Latency, Pipeline, Placed, Ratio};
use crate::measure::Spread;

/// One receiver under one set of conditions, measured several times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The benchmark: `demo`, `throughput`, `placement`, `latency` or `pipeline`.
    pub benchmark: String,
    /// `mpxdp`, `kernel-mptcp`, `kernel-tcp`, `kernel-mptcp-xdp` or `kernel-tcp-xdp`.
    pub receiver: String,
    /// Bytes of the link's MTU.
    pub mtu: u32,
    /// Subflows of the connection, the first one included.
    pub subflows: u32,
    /// Links between sender and receiver.
    pub links: u32,
    /// Where the NIC's processing, the worker and the reader ran, as `--placement` takes it.
    pub placement: String,
    /// Whether the placement was the best for this receiver of those that were tried, or the only
    /// one.
    #[serde(default)]
    pub best: bool,
    /// How the packets came in, for a person to read: `AF_XDP, native, copy` for instance.
    #[serde(default)]
    pub mode: String,
    /// Whether an AF_XDP socket got its packets without a copy in the kernel; left out for the
    /// kernel's receivers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<bool>,
    /// Whether the connection spoke MPTCP in every round.
    #[serde(default)]
    pub mptcp: bool,
    /// Seconds of each round that were measured.
    #[serde(default)]
    pub seconds: f64,
    /// Seconds before those, in which the connection was already at full speed.
    #[serde(default)]
    pub warmup_seconds: f64,
    /// The number of rounds.
    #[serde(default)]
    pub rounds: usize,
    /// Payload, in the measured seconds, as the sender saw it taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<Spread>,
    /// CPUs kept busy by the receiving side, softirqs included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving_cores: Option<Spread>,
    /// CPU seconds of the receiving side for 10^9 bytes of payload: the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_per_gigabyte: Option<f64>,
    /// The same by kind: the median of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_per_gigabyte_by_kind: Option<CpuSeconds>,
    /// CPU nanoseconds of the receiving side for a packet: the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nanoseconds_per_packet: Option<f64>,
    /// What of this is not the front end, where that was measured at the same place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_front_end: Option<AboveFrontEnd>,
    /// Whether the rounds differ so much that the median says little.
    #[serde(default)]
    pub noisy: bool,
    /// Why it is called noisy, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noisy_reason: Option<String>,
    /// Every round, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measurements: Vec<Round>,
    /// All placements that were tried beforehand, with their rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// Latency, of benchmarks that measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// What each stage of the receive path costs, of benchmarks that measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Pipeline>,
    /// What the placement is and what limited it, of the benchmark that compares placements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Placed>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Seconds that were measured: after the warm-up, until the sender had written everything.
    pub seconds: f64,
    /// Payload bytes that the sender's kernel took in these seconds.
    pub bytes: u64,
    /// The two above.
    pub bits_per_second: f64,
    /// Payload bytes of the whole connection, which the receiver confirmed.
    pub total_bytes: u64,
    /// From connected until the receiver had closed too.
    pub total_seconds: f64,
    /// CPUs kept busy by the receiving side in the measured seconds, softirqs included.
    pub receiving_cores: f64,
    /// Seconds between the two readings of CPU time, which should be the measured ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_span_seconds: Option<f64>,
    /// Whether the CPU figures of this round say nothing, since these seconds were other ones (more than
    /// a tenth and 10 ms off) or no CPU time was booked at all. They are left out of the row's figures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cpu_invalid: bool,
    /// CPU seconds of the receiving side in the measured seconds, by kind. The kernel books them by
    /// clock ticks.
    pub cpu_seconds: CpuSeconds,
    /// The same by CPU; CPUs that did nothing are left out.
    #[serde(default)]
    pub cpus: Vec<OneCpu>,
    /// How busy each stage's threads were.
    #[serde(default)]
    pub busy: Busy,
    /// Context switches of the receiving side's threads in the measured seconds.
    #[serde(default)]
    pub context_switches: ContextSwitches,
    /// What the sender sent again in the measured seconds.
    #[serde(default)]
    pub retransmissions: Retransmissions,
    /// Packets dropped during the whole connection, by where and why: `rcv0:rx_dropped`,
    /// `worker:bad_checksum`, `TcpExt:TCPRcvQDrop` for instance. Only what occurred.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// Packets that the receiver's interfaces got during the whole connection.
    #[serde(default)]
    pub packets: u64,
    /// Payload bytes of each subflow, in the order of their establishment; of mpxdp only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subflow_bytes: Vec<u64>,
    /// Throughput over time, warm-up included.
    #[serde(default)]
    pub timeline: Timeline,
}

/// What a receiver costs beyond the front end that brings it the packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AboveFrontEnd {
    /// The front end that was taken off: `xdp-recycle` or `xdp-drop`.
    pub front_end: String,
    /// CPU nanoseconds for a packet.
    pub nanoseconds_per_packet: f64,
    /// CPU nanoseconds for a byte of payload.
    pub nanoseconds_per_byte: f64,
}

/// CPU seconds by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// In user space.
    pub user: f64,
    /// In the kernel on behalf of a thread, those of the kernel included.
    pub system: f64,
    /// In soft interrupts, where the kernel processes packets unless a thread does.
    pub softirq: f64,
    /// In interrupts.
    pub irq: f64,
}

impl CpuSeconds {
    /// All kinds.
    #[must_use]
    pub fn total(&self) -> f64 {
        let Self { user, system, softirq, irq } = self;
        user + system + softirq + irq
    }

    /// Each kind changed in the same way.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(f64) -> f64) -> Self {
        let Self { user, system, softirq, irq } = self;
        Self {
            user: change(user),
            system: change(system),
            softirq: change(softirq),
            irq: change(irq),
        }
    }
}

/// CPU seconds of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OneCpu {
    /// Its number.
    pub cpu: usize,
    /// What it spent on the receiving side.
    #[serde(flatten)]
    pub seconds: CpuSeconds,
}

/// How busy each stage's threads were in the measured seconds: the time that the scheduler ran them,
/// as a fraction of one CPU. A worker that spins before it sleeps counts as running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// The NIC's receive processing, if it has threads of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_processing: Option<f64>,
    /// mpxdp's workers, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<f64>,
    /// The same by the workers' own clocks, over the whole connection: the time in which they had
    /// something to do. Spinning is not in it; time in which others took the CPU away is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_at_work: Option<f64>,
    /// The reading thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<f64>,
    /// The sender, if it is on this machine: near 1, it is the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<f64>,
}

/// How often threads gave up a CPU, or lost it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSwitches {
    /// They went to sleep.
    pub voluntary: u64,
    /// Others took it.
    pub involuntary: u64,
}

/// What the sender sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retransmissions {
    /// Segments, on all subflows.
    pub tcp: u64,
    /// Data that was sent again at the level of the connection, in the kernel's count.
    pub mptcp: u64,
}

/// Throughput over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The length of an interval.
    pub interval_seconds: f64,
    /// Payload bytes that the sender's kernel took in each interval, from the start of the data on.
    /// The last one may be shorter than the others.
    pub bytes: Vec<u64>,
}

/// A placement that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Where the NIC's processing, the worker and the reader ran.
    pub placement: String,
    /// Its rate.
    pub bits_per_second: f64,
}

/// The greatest spread, of greatest less least round against the median, with which a median is let
/// stand alone. A quarter: the receivers that are compared differ by less than that at times, and
/// rounds on a quiet machine stay within a tenth.
pub const NOISY_SPREAD: f64 = 0.25;

impl Row {
    /// Takes the rounds, and sets all fields that are computed from them: the spread of the rates, the
    /// CPU figures, whether it is noisy.
    #[must_use]
    pub fn with_rounds(mut self, measurements: Vec<Round>) -> Self {
        self.rounds = measurements.len();
        self.bits_per_second = Spread::of(measurements.iter().map(|round| round.bits_per_second));
        let valid = measurements.iter().filter(|round| !round.cpu_invalid);
        self.receiving_cores = Spread::of(valid.map(|round| round.receiving_cores));
        let kind = |of: fn(CpuSeconds) -> f64| {
            let all = measurements.iter().filter_map(|r| r.cpu_per_gigabyte().map(of));
            Spread::of(all).map(|spread| spread.median)
        };
        self.cpu_seconds_per_gigabyte = kind(|cpu| cpu.total());
        self.cpu_seconds_per_gigabyte_by_kind = (|| {
            Some(CpuSeconds {
                user: kind(|cpu| cpu.user)?,
                system: kind(|cpu| cpu.system)?,
                softirq: kind(|cpu| cpu.softirq)?,
                irq: kind(|cpu| cpu.irq)?,
            })
        })();
        let per_packet = measurements.iter().filter_map(Round::nanoseconds_per_packet);
        self.nanoseconds_per_packet = Spread::of(per_packet).map(|spread| spread.median);
        self.measurements = measurements;
        self.judged_by_its_spread()
    }

    /// Says whether the row is noisy, by the spread of its rates.
    #[must_use]
    pub fn judged_by_its_spread(mut self) -> Self {
        let relative = self.bits_per_second.map_or(0.0, |spread| spread.relative());
        self.noisy = relative > NOISY_SPREAD;
        self.noisy_reason = self.noisy.then(|| {
            format!(
                "the fastest and the slowest of {} rounds differ by {:.0} % of the median, which is \
                 more than {:.0} %",
                self.rounds,
                relative * 100.0,
                NOISY_SPREAD * 100.0
            )
        });
        self
    }

    /// This receiver's rate against another's, round by round; none without rounds of both.
    #[must_use]
    pub fn against(&self, other: &Self, placement: &str) -> Option<Ratio> {
        let pairs = self.measurements.iter().zip(&other.measurements);
        let pairs = pairs.filter(|(_, against)| against.bits_per_second > 0.0);
        let ratios = pairs.map(|(of, against)| of.bits_per_second / against.bits_per_second);
        let Spread { median, min, max } = Spread::of(ratios)?;
        Some(Ratio {
            mtu: self.mtu,
            subflows: self.subflows,
            placement: placement.to_owned(),
            of: self.receiver.clone(),
            against: other.receiver.clone(),
            against_subflows: None,
            median,
            min,
            max,
            noisy: self.noisy || other.noisy,
        })
    }
}

impl Round {
    /// CPU nanoseconds of the receiving side for a packet; none if no packet was counted.
    #[must_use]
    pub fn nanoseconds_per_packet(&self) -> Option<f64> {
        if self.packets == 0 {
            return None;
        }
        let bytes_per_packet = self.total_bytes as f64 / self.packets as f64;
        // A nanosecond for a byte is a second for a gigabyte.
        Some(self.cpu_per_gigabyte()?.total() * bytes_per_packet)
    }

    /// CPU seconds of the receiving side for 10^9 bytes of payload; none if nothing came, or the CPU
    /// figures are not valid.
    #[must_use]
    pub fn cpu_per_gigabyte(&self) -> Option<CpuSeconds> {
        if self.cpu_invalid {
            return None;
        }
        let total = self.cpu_seconds.total();
        // The cores and the rate are of the same seconds, within the few milliseconds that it takes
        // to hear of their end; a plain quotient would have those few in it.
        let seconds = if self.receiving_cores > 0.0 { total / self.receiving_cores } else { 0.0 };
        let gigabytes = self.bits_per_second / 8e9 * seconds;
        if gigabytes > 0.0 {
            Some(self.cpu_seconds.map(|kind| kind / gigabytes))
        } else {
            (self.bytes > 0).then(CpuSeconds::default)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(bits_per_second: f64) -> Round {
        Round {
            seconds: 2.0,
            bytes: (bits_per_second / 4.0) as u64,
            bits_per_second,
            receiving_cores: 1.5,
            cpu_seconds: CpuSeconds { user: 1.0, system: 0.5, softirq: 1.25, irq: 0.25 },
            ..Round::default()
        }
    }

    #[test]
    fn a_row_is_computed_from_its_rounds() {
        let row = Row::default().with_rounds(vec![round(8e9), round(8.8e9), round(8e9)]);
        assert_eq!(row.rounds, 3);
        assert_eq!(row.bits_per_second, Some(Spread { median: 8e9, min: 8e9, max: 8.8e9 }));
        // 3 CPU seconds in 2 seconds, in which 2 gigabytes came.
        assert_eq!(row.cpu_seconds_per_gigabyte, Some(1.5));
        let by_kind = row.cpu_seconds_per_gigabyte_by_kind.expect("rounds");
        assert_eq!((by_kind.user, by_kind.irq), (0.5, 0.125));
        assert!(!row.noisy);
        assert_eq!(row.noisy_reason, None);
    }

    #[test]
    fn rounds_that_differ_too_much_are_called_noisy() {
        let row = Row::default().with_rounds(vec![round(8e9), round(11e9)]);
        assert!(row.noisy);
        assert!(row.noisy_reason.is_some_and(|why| why.contains("32 %")));
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let row =
            |rates: &[f64]| Row::default().with_rounds(rates.iter().copied().map(round).collect());
        let ratio = row(&[2e9, 4e9, 9e9]).against(&row(&[1e9, 4e9, 3e9]), "best").expect("rounds");
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 1.0, 3.0));
        assert!(ratio.noisy);
        assert_eq!(row(&[1e9]).against(&row(&[]), "best"), None);
    }

    #[test]
    fn rounds_whose_cpu_time_is_of_other_seconds_count_for_the_rate_alone() {
        let invalid = Round { cpu_invalid: true, receiving_cores: 0.0, ..round(8e9) };
        let row = Row::default().with_rounds(vec![invalid.clone(), round(8e9)]);
        assert_eq!(row.receiving_cores, Some(Spread { median: 1.5, min: 1.5, max: 1.5 }));
        assert_eq!((row.rounds, row.cpu_seconds_per_gigabyte), (2, Some(1.5)));
        let row = Row::default().with_rounds(vec![invalid]);
        assert_eq!((row.receiving_cores, row.cpu_seconds_per_gigabyte), (None, None));
        assert!(row.bits_per_second.is_some());
    }

    #[test]
    fn no_rounds_give_no_figures() {
        let row = Row::default().with_rounds(Vec::new());
        assert_eq!((row.bits_per_second, row.cpu_seconds_per_gigabyte), (None, None));
    }
}
