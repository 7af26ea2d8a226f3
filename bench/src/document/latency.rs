//! Latency of single messages.

use serde::{Deserialize, Serialize};

use crate::latency::Reading;

/// The latency of single messages that came at a fixed rate. All times are in nanoseconds.
///
/// They are free of coordinated omission: a message's latency begins at the moment when it was due,
/// also if the sender was held up and wrote it later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How the reader waits for the next message.
    pub reader: Reading,
    /// Whether mpxdp's worker spins (`spin`), or sleeps as soon as there is nothing to do (`sleep`);
    /// left out for the kernel's receivers, which have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Reading>,
    /// How the sender waits for the next message's moment: `spin`, or `sleep` if another thread needs
    /// its CPU; then the kernel's timers are in the latency.
    pub sender: Reading,
    /// Messages a second that were offered.
    pub rate: u32,
    /// Messages a second that were sent: the median of the rounds. Less than offered: the receiver or
    /// the sender could not keep up, and latency grew as long as the round lasted.
    pub achieved_rate: f64,
    /// Bytes of a message.
    pub size: usize,
    /// Messages that were measured, of all rounds.
    pub messages: u64,
    /// How many of these were late: their write began more than 20 us after they were due.
    pub late: u64,
    /// Messages that were due and not sent at all, as the sender was seconds behind.
    pub unsent: u64,
    /// From when a message was due until the application had all of it.
    pub latency_ns: Percentiles,
    /// From when the message's write began until the application had all of it: without the time that
    /// it waited for the sender.
    pub transit_ns: Percentiles,
    /// From when a message was due until its write began: what is in the latency that is not in the
    /// transit.
    pub lateness_ns: Percentiles,
    /// `latency_ns` of each round, in order.
    pub rounds_ns: Vec<Percentiles>,
    /// The whole distribution of the latency: HdrHistogram's V2 encoding, deflated, in base64.
    pub histogram: String,
    /// The same of the transit.
    pub transit_histogram: String,
}

/// What one looks at first, in nanoseconds. With few messages the last ones are the maximum: p99.99
/// says something from some 100,000 messages on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Half of the messages took no longer.
    pub p50: u64,
    /// Of 10 messages, 9 took no longer.
    pub p90: u64,
    /// Of 100 messages, 99 took no longer.
    pub p99: u64,
    /// Of 1000 messages, 999 took no longer.
    pub p99_9: u64,
    /// Of 10,000 messages, 9999 took no longer.
    pub p99_99: u64,
    /// None took longer.
    pub max: u64,
}
