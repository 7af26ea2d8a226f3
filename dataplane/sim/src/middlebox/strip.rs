//! Removing TCP options.

use mpxdp_proto::segment::Flags;
use mpxdp_proto::time::Instant;

use super::flows::{FlowTable, MAX_FLOWS};
use super::packet::{Packet, Padding};
use super::{Counters, Direction, Middlebox, OptionName, Output, Place};

/// Removes options from some segments.
#[derive(Debug)]
pub(super) struct Strip {
    place: Place,
    what: Vec<OptionName>,
    padding: Padding,
    /// The only direction in which they are removed.
    only: Option<Direction>,
    /// Bytes of payload that passed, both ways, where it matters.
    passed: FlowTable<u64>,
    counters: Counters,
}

impl Strip {
    pub(super) fn new(
        place: Place,
        what: Vec<OptionName>,
        padding: Padding,
        only: Option<Direction>,
    ) -> Self {
        let passed = FlowTable::new(MAX_FLOWS);
        Self { place, what, padding, only, passed, counters: Counters::default() }
    }

    fn concerns(&mut self, packet: &Packet, direction: Direction) -> bool {
        match self.place {
            Place::Syn => packet.has(Flags::SYN),
            Place::Data => packet.payload_len() > 0,
            Place::All => true,
            Place::After(limit) => {
                let (passed, _) = self.passed.get_or_insert(packet.flow(direction), || 0);
                if packet.has(Flags::SYN) && !packet.has(Flags::ACK) {
                    // The ports are used again.
                    *passed = 0;
                }
                let reached = *passed >= limit;
                *passed += packet.payload_len() as u64;
                reached
            }
        }
    }
}

impl Middlebox for Strip {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let frame = match Packet::parse(frame) {
            Ok(mut packet) => {
                if self.concerns(&packet, direction)
                    && self.only.is_none_or(|only| only == direction)
                    && packet.remove_options(&self.what, self.padding)
                {
                    self.counters.changed += 1;
                }
                packet.into_bytes()
            }
            Err(frame) => frame,
        };
        out.push(direction, frame);
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
