//! Loss, duplication and corruption.

use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::ethernet;

use super::{Counters, Direction, Middlebox, Output, Probability, Random};

/// A generator for each direction, so that traffic one way does not change what happens to traffic
/// the other way.
pub(super) fn dice(random: &Random) -> [Random; 2] {
    Direction::BOTH.map(|direction| random.part(direction.index() as u64))
}

/// What befalls a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    Lose,
    Duplicate,
    Corrupt,
}

/// Does harm to some frames.
#[derive(Debug)]
pub(super) struct Impair {
    harm: Harm,
    probability: Probability,
    dice: [Random; 2],
    counters: Counters,
}

impl Impair {
    pub(super) fn new(harm: Harm, probability: Probability, random: &Random) -> Self {
        Self { harm, probability, dice: dice(random), counters: Counters::default() }
    }
}

impl Middlebox for Impair {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let dice = &mut self.dice[direction.index()];
        let mut frame = frame;
        if dice.chance(self.probability) {
            match self.harm {
                Harm::Lose => {
                    self.counters.dropped += 1;
                    return;
                }
                Harm::Duplicate => {
                    self.counters.added += 1;
                    out.push(direction, frame.clone());
                }
                Harm::Corrupt => {
                    if let Some(behind) = ip_packet_at(&frame) {
                        let bit = dice.below((frame.len() - behind) as u64 * 8);
                        frame[behind + (bit / 8) as usize] ^= 1 << (bit % 8);
                        self.counters.changed += 1;
                    }
                }
            }
        }
        out.push(direction, frame);
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// Where the frame's IP packet starts, if it has one. Address resolution has no checksum, so that a
/// damaged answer would put a link out of use for minutes.
fn ip_packet_at(frame: &[u8]) -> Option<usize> {
    let mut at = ethernet::HEADER_LEN;
    loop {
        let ether_type = frame.get(at - 2..at).map(|octets| [octets[0], octets[1]])?;
        match u16::from_be_bytes(ether_type) {
            ethernet::CUSTOMER_TAG | ethernet::SERVICE_TAG => at += ethernet::TAG_LEN,
            ethernet::IPV4 | ethernet::IPV6 if frame.len() > at => return Some(at),
            _ => return None,
        }
    }
}
