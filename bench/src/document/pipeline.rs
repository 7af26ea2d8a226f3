//! What `pipeline` says about one case.

use serde::{Deserialize, Serialize};

use crate::measure::Spread;
use crate::pipeline::{Case, STAGES};

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
    /// From the port to the reader, measured without a clock in between.
    pub total_nanoseconds_per_packet: Spread,
    /// The stages, measured with one, whose own cost is subtracted.
    pub nanoseconds_per_packet: Stages,
    /// Cycles of the time-stamp counter, whose rate is fixed, not of the core; left out where there
    /// is no such counter. This is the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_cycles_per_packet: Option<Spread>,
    /// The same by stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<Stages>,
    /// The sum of the stages divided by the total: between 0.9 and 1.1 the stages explain it.
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

/// The stages of a packet; see [`Stage`](mpxdp::stepped::Stage).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// The port gives a burst.
    pub receive: f64,
    /// Headers and options.
    pub parse: f64,
    /// The TCP checksum.
    pub checksum: f64,
    /// The look-up of the flow, and what the subflow does.
    pub subflow: f64,
    /// A place in the ring.
    pub claim: f64,
    /// The copy into the ring.
    pub copy: f64,
    /// The ring's edge, and counters.
    pub commit: f64,
    /// The frames go back.
    pub recycle: f64,
    /// Acknowledgements and deadlines.
    pub acknowledge: f64,
    /// Commands, wishes, timers, and the worker's numbers.
    pub rest: f64,
    /// The reader.
    pub read: f64,
}

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
    /// From the order of [`Stage::ALL`](mpxdp::stepped::Stage::ALL), and the reader.
    #[must_use]
    pub const fn new(times: [f64; STAGES]) -> Self {
        let [
            receive,
            parse,
            checksum,
            subflow,
            claim,
            copy,
            commit,
            recycle,
            acknowledge,
            rest,
            read,
        ] = times;
        Self {
            receive,
            parse,
            checksum,
            subflow,
            claim,
            copy,
            commit,
            recycle,
            acknowledge,
            rest,
            read,
        }
    }

    /// Each with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, f64); STAGES] {
        let Self {
            receive,
            parse,
            checksum,
            subflow,
            claim,
            copy,
            commit,
            recycle,
            acknowledge,
            rest,
            read,
        } = *self;
        [
            ("receive", receive),
            ("parse", parse),
            ("checksum", checksum),
            ("subflow", subflow),
            ("claim", claim),
            ("copy", copy),
            ("commit", commit),
            ("recycle", recycle),
            ("ack", acknowledge),
            ("rest", rest),
            ("read", read),
        ]
    }

    /// All of them.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.named().iter().map(|(_, time)| time).sum()
    }
}

impl Pipeline {
    /// Whether stages that add up to this part of the total explain it.
    #[must_use]
    pub fn is_explained(fraction: f64) -> bool {
        EXPLAINED.contains(&fraction)
    }
}
