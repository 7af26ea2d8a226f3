//! What `pipeline` says about one case.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::measure::Spread;
use crate::pipeline::{Case, STAGE_NAMES, STAGES};

/// Within these, the stages count as the explanation of the total.
const EXPLAINED: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// What a packet takes from the port to the reader. All times are for one packet, and medians of the
/// rounds where they are one number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// What the packets were.
    pub case: Case,
    /// Octets of a packet, from its Ethernet header on.
    pub packet_bytes: u32,
    /// Buffers of the port that a packet takes.
    pub buffers_per_packet: u32,
    /// Packets of all rounds without the stage clock.
    pub packets: u64,
    /// Packets that were measured in vain, of all rounds: another thread took the CPU meanwhile.
    #[serde(default)]
    pub disturbed_packets: u64,
    /// From the port to the reader, measured without a clock in between.
    pub total_nanoseconds_per_packet: Spread,
    /// The stages, measured in turn with it with a clock in between, whose own cost is subtracted.
    pub nanoseconds_per_packet: Stages,
    /// Cycles of the time-stamp counter, whose rate is fixed, not of the core; left out where there
    /// is no such counter. This is the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_cycles_per_packet: Option<Spread>,
    /// The same by stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<Stages>,
    /// The sum of the stages divided by the total, round by round: between 0.9 and 1.1 the stages
    /// explain it.
    pub explained_fraction: f64,
    /// Whether they do.
    pub explained: bool,
    /// Packets that one core takes in a second.
    pub packets_per_second: f64,
    /// What the machine could do with the same frames.
    pub limits: Limits,
    /// What was measured with.
    pub clock: Clock,
}

/// The clock of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// `tsc`, or `monotonic` where there is no time-stamp counter.
    pub source: String,
    /// Its ticks in a second.
    pub ticks_per_second: f64,
    /// Nanoseconds that a mark between two stages takes. They are subtracted.
    pub mark_nanoseconds: f64,
}

/// Times of a packet by stage, in the order of [`STAGE_NAMES`]. In JSON, an object with these names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages([f64; STAGES]);

/// Nanoseconds for a packet that something else takes, over the same frames.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// To copy the payload into a ring.
    pub memcpy: f64,
    /// To verify the TCP checksum.
    pub checksum: f64,
    /// Both: the least for a receiver that verifies and copies once.
    pub checksum_copy: f64,
    /// smoltcp, for the same payload by plain TCP on one connection, in order; left out of cases that
    /// differ from that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smoltcp: Option<f64>,
}

impl Stages {
    /// In the order of [`STAGE_NAMES`].
    #[must_use]
    pub const fn new(times: [f64; STAGES]) -> Self {
        Self(times)
    }

    /// Each with its name, in order.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        STAGE_NAMES.into_iter().zip(self.0)
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

impl Serialize for Stages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}

impl<'de> Deserialize<'de> for Stages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named = BTreeMap::<String, f64>::deserialize(deserializer)?;
        let mut times = [0.0; STAGES];
        for (time, name) in times.iter_mut().zip(STAGE_NAMES) {
            *time = *named.get(name).ok_or_else(|| D::Error::missing_field(name))?;
        }
        Ok(Self(times))
    }
}

impl Pipeline {
    /// Whether stages that add up to this part of the total explain it.
    #[must_use]
    pub fn is_explained(fraction: f64) -> bool {
        EXPLAINED.contains(&fraction)
    }
}
