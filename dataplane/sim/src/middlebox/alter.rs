//! Changing payload the way an application-level gateway does: the TCP checksum is right afterwards,
//! so that only MPTCP's own checksum can tell.

use mpxdp_proto::segment::Flags;
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::time::Instant;

use super::flows::{FlowTable, MAX_FLOWS};
use super::impair::dice;
use super::packet::Packet;
use super::{Alteration, Counters, Direction, Middlebox, Output, Random};

/// Changes octets of payload. Damaged segments are left alone.
#[derive(Debug)]
pub(super) struct Alter {
    what: Alteration,
    dice: [Random; 2],
    /// The sequence number of the first octet of each stream, by the direction.
    starts: FlowTable<[Option<SeqNum>; 2]>,
    counters: Counters,
}

impl Alter {
    pub(super) fn new(what: Alteration, random: &Random) -> Self {
        let starts = FlowTable::new(MAX_FLOWS);
        Self { what, dice: dice(random), starts, counters: Counters::default() }
    }

    /// The octet of the payload to change, and the bits to flip in it.
    fn choose(&mut self, packet: &Packet, direction: Direction) -> Option<(usize, u8)> {
        let length = packet.payload_len();
        match self.what {
            Alteration::Random(probability) => {
                let dice = &mut self.dice[direction.index()];
                if length == 0 || !dice.chance(probability) {
                    return None;
                }
                Some((dice.below(length as u64) as usize, 1 + dice.below(255) as u8))
            }
            Alteration::At(place) => {
                let flow = packet.flow(direction);
                if packet.has(Flags::SYN) {
                    let (starts, _) = self.starts.get_or_insert(flow, || [None; 2]);
                    starts[direction.index()] = Some(packet.segment().seq + 1);
                    return None;
                }
                let start = (*self.starts.get_mut(&flow)?)[direction.index()]?;
                let at = (start + place).distance_from(packet.segment().seq);
                let at = usize::try_from(at).ok().filter(|&at| at < length)?;
                Some((at, 1))
            }
        }
    }
}

impl Middlebox for Alter {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let frame = match Packet::parse(frame) {
            Ok(mut packet) => {
                if let Some((at, by)) = self.choose(&packet, direction)
                    && packet.is_intact()
                {
                    packet.alter(at, by);
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
