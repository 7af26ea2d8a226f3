//! What a placement is, and what to take.

use serde::{Deserialize, Serialize};

use crate::measure::Spread;
use crate::placement::bottleneck::Bottleneck;
use crate::placement::class::Scenario;
use crate::placement::recommend::Why;
use crate::topology::Relation;

/// What a placement is up to which CPUs it names, and what limited it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// What the stages share, in words: those joined by `+` have one CPU, and for the others follows
    /// what they share with the first: `nic+worker, reader same-llc`.
    pub class: String,
    /// 1 to 4, if it is one of the scenarios of the first table: one (1, 3) or several subflows (2, 4),
    /// NIC processing and reader on the same CPU (1, 2) or on different ones (3, 4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<Scenario>,
    /// What the NIC's processing and the reader share; with several links, those of the first.
    pub nic_reader: Relation,
    /// What the NIC's processing and the worker share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_worker: Option<Relation>,
    /// What the worker and the reader share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_reader: Option<Relation>,
    /// The CPU of a sender on the same machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_cpu: Option<usize>,
    /// What limited the rate, by the median load of each stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
}

/// The placement to take for a receiver under some conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The receiver.
    pub receiver: String,
    /// Bytes of the link's MTU.
    pub mtu: u32,
    /// Subflows of the connection.
    pub subflows: u32,
    /// The placement.
    pub placement: String,
    /// Its rate.
    pub bits_per_second: Spread,
    /// CPU seconds of the receiving side for 10^9 bytes: the median.
    pub cpu_seconds_per_gigabyte: f64,
    /// Why this one.
    #[serde(flatten)]
    pub why: Why,
    /// The same in words.
    pub reason: String,
}
