//! Address and port translation.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use mpxdp_proto::segment::Flags;
use mpxdp_proto::time::Instant;

use super::flows::{FlowKey, FlowTable};
use super::packet::Packet;
use super::{Counters, Direction, Middlebox, Output, Random};

/// The first port that is given out, and how many there are.
const FIRST_PORT: u16 = 20_000;
const PORTS: u64 = 40_000;
/// The most connections that are translated at once; far fewer than there are ports, so that a free
/// one is soon found.
const MAX_TRANSLATED: usize = 16_384;

/// How a connection is seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Translation {
    outside: SocketAddr,
    remote: SocketAddr,
}

/// Gives connections from inside another source port, and another source address if it has one. A
/// connection is translated from its first segment on, whichever that is, unless its SYN came from
/// outside. What belongs to no translated connection passes as it is. ICMP messages are not
/// translated.
#[derive(Debug)]
pub(super) struct Nat {
    /// The direction that leads out.
    outward: Direction,
    address: Option<IpAddr>,
    random: Random,
    translations: FlowTable<Translation>,
    /// From (outside, remote) to inside.
    back: HashMap<(SocketAddr, SocketAddr), SocketAddr>,
    counters: Counters,
}

impl Nat {
    pub(super) fn new(outward: Direction, address: Option<IpAddr>, random: &Random) -> Self {
        Self {
            outward,
            address,
            random: random.clone(),
            translations: FlowTable::new(MAX_TRANSLATED),
            back: HashMap::new(),
            counters: Counters::default(),
        }
    }

    /// What the source of a packet from inside becomes.
    fn outside(&mut self, packet: &Packet) -> SocketAddr {
        let (inside, remote) = (packet.source(), packet.destination());
        let key = FlowKey { left: inside, right: remote };
        if let Some(translation) = self.translations.get_mut(&key) {
            return translation.outside;
        }
        // The family of a packet cannot change.
        let address = self
            .address
            .filter(|address| address.is_ipv6() == inside.is_ipv6())
            .unwrap_or_else(|| inside.ip());
        let outside = loop {
            let port = FIRST_PORT + self.random.below(PORTS) as u16;
            let outside = SocketAddr::new(address, port);
            if !self.back.contains_key(&(outside, remote)) {
                break outside;
            }
        };
        self.remember(key, outside);
        outside
    }

    fn remember(&mut self, FlowKey { left: inside, right: remote }: FlowKey, outside: SocketAddr) {
        let key = FlowKey { left: inside, right: remote };
        let (_, evicted) = self.translations.get_or_insert(key, || Translation { outside, remote });
        if let Some(Translation { outside, remote }) = evicted {
            self.back.remove(&(outside, remote));
        }
        self.back.insert((outside, remote), inside);
    }
}

impl Middlebox for Nat {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let mut packet = match Packet::parse(frame) {
            Ok(packet) => packet,
            Err(frame) => return out.push(direction, frame),
        };
        if direction == self.outward {
            let outside = self.outside(&packet);
            if outside != packet.source() {
                packet.set_source(outside);
                self.counters.changed += 1;
            }
        } else {
            let (outside, remote) = (packet.destination(), packet.source());
            match self.back.get(&(outside, remote)) {
                Some(&inside) if inside != outside => {
                    packet.set_destination(inside);
                    self.counters.changed += 1;
                }
                None if packet.has(Flags::SYN) && !packet.has(Flags::ACK) => {
                    self.remember(FlowKey { left: outside, right: remote }, outside);
                }
                _ => {}
            }
        }
        out.push(direction, packet.into_bytes());
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
