//! What brings packets to a receiver, by itself.

use serde::{Deserialize, Serialize};

use crate::measure::Spread;

/// A front end without a receiver behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FrontEndRow {
    /// `xdp-drop`: the XDP program looks at every packet and drops it. `xdp-recycle`: it redirects the
    /// packet to an AF_XDP socket, whose reader gives the frame back without a look at it.
    pub front_end: String,
    /// Bytes of the link's MTU, which every packet fills.
    pub mtu: u32,
    /// Where the NIC's processing and the reader ran.
    pub placement: String,
    /// Seconds of each round.
    pub seconds: f64,
    /// The number of rounds.
    pub rounds: usize,
    /// Packets that came through, a second.
    pub packets_per_second: Spread,
    /// CPU nanoseconds of the receiving side for a packet.
    pub nanoseconds_per_packet: Spread,
    /// The same for a byte of a TCP segment's payload: the median.
    pub nanoseconds_per_byte: f64,
}
