//! Shifting sequence numbers, as firewalls do that do not trust a host's initial sequence numbers.

use mpxdp_proto::segment::Flags;
use mpxdp_proto::time::Instant;

use super::flows::{FlowTable, MAX_FLOWS};
use super::packet::Packet;
use super::{Counters, Direction, Middlebox, Output, Random};

/// Adds a number of the connection's own to all sequence numbers of a direction, and takes it off
/// the acknowledgements and SACK blocks that come back. MPTCP's options stay as they are: their
/// subflow sequence numbers are relative to the SYN, for this reason (RFC 8684, section 3.3).
/// Connections whose SYN was not seen are left alone.
#[derive(Debug)]
pub(super) struct Sequence {
    only: Option<Direction>,
    random: Random,
    /// What is added, by the direction.
    shifts: FlowTable<[u32; 2]>,
    counters: Counters,
}

impl Sequence {
    pub(super) fn new(only: Option<Direction>, random: &Random) -> Self {
        Self {
            only,
            random: random.clone(),
            shifts: FlowTable::new(MAX_FLOWS),
            counters: Counters::default(),
        }
    }
}

impl Middlebox for Sequence {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let mut packet = match Packet::parse(frame) {
            Ok(packet) => packet,
            Err(frame) => return out.push(direction, frame),
        };
        let flow = packet.flow(direction);
        if packet.has(Flags::SYN) && !packet.has(Flags::ACK) {
            let Self { only, random, .. } = self;
            self.shifts.get_or_insert(flow, || {
                Direction::BOTH.map(|direction| {
                    let shift = random.bits() as u32;
                    if only.is_none_or(|only| only == direction) { shift } else { 0 }
                })
            });
        }
        if let Some(shifts) = self.shifts.get_mut(&flow) {
            let back = shifts[direction.reverse().index()];
            packet.shift(shifts[direction.index()], back.wrapping_neg());
            self.counters.changed += 1;
        }
        out.push(direction, packet.into_bytes());
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
