//! Merging segments, as receive offloads and proxies do.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mpxdp_proto::segment::Flags;
use mpxdp_proto::time::Instant;

use super::flows::FlowKey;
use super::packet::Packet;
use super::{Counters, Direction, Middlebox, Output};

/// The most segments that wait at once; more are not held.
const MAX_HELD: usize = 4096;
/// The longest IP packet.
const MAX_PACKET: usize = 65_535;

/// Holds a segment until the next one of its connection comes, and merges the two if they follow
/// each other. What cannot be merged lets the held segment out first, so the order of a connection
/// is kept.
#[derive(Debug)]
pub(super) struct Coalesce {
    size: usize,
    patience: Duration,
    first_only: bool,
    held: HashMap<(Direction, FlowKey), Held>,
    /// When each held segment is due, the first first; with those that have gone since.
    due: VecDeque<(Instant, u64, Direction, FlowKey)>,
    /// Tells a held segment from an earlier one of its connection.
    next_number: u64,
    counters: Counters,
}

#[derive(Debug)]
struct Held {
    packet: Packet,
    number: u64,
}

impl Coalesce {
    pub(super) fn new(size: u64, patience: Duration, first_only: bool) -> Self {
        Self {
            size: usize::try_from(size).unwrap_or(usize::MAX),
            patience,
            first_only,
            held: HashMap::new(),
            due: VecDeque::new(),
            next_number: 0,
            counters: Counters::default(),
        }
    }

    fn may_hold(&self, packet: &Packet) -> bool {
        let flags = packet.segment().flags;
        let plain = Flags::ACK.with(Flags::PSH).0;
        flags.0 & !plain == 0
            && (1..self.size).contains(&packet.payload_len())
            && self.held.len() < MAX_HELD
            && packet.is_intact()
    }

    fn may_append(&self, held: &Packet, next: &Packet) -> bool {
        let (first, second) = (held.segment(), next.segment());
        let plain = Flags::ACK.with(Flags::PSH).with(Flags::FIN).0;
        let length = held.payload_len() + next.payload_len();
        second.flags.0 & !plain == 0
            && second.flags.contains(Flags::ACK)
            && second.payload_len > 0
            && first.seq + first.payload_len == second.seq
            && length <= self.size
            && held.ip_len() + next.payload_len() <= MAX_PACKET
            && (self.first_only || held.mptcp_options().eq(next.mptcp_options()))
            && next.is_intact()
    }

    fn hold(&mut self, now: Instant, key: (Direction, FlowKey), packet: Packet) {
        let number = self.next_number;
        self.next_number += 1;
        self.due.push_back((now + self.patience, number, key.0, key.1));
        self.held.insert(key, Held { packet, number });
    }

    fn forget_those_gone(&mut self) {
        while let Some(&(_, number, direction, flow)) = self.due.front()
            && self.held.get(&(direction, flow)).is_none_or(|held| held.number != number)
        {
            self.due.pop_front();
        }
    }
}

fn let_out(direction: Direction, mut held: Held, out: &mut Output) {
    held.packet.finish();
    out.push(direction, held.packet.into_bytes());
}

impl Middlebox for Coalesce {
    fn on_frame(&mut self, now: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let packet = match Packet::parse(frame) {
            Ok(packet) => packet,
            Err(frame) => return out.push(direction, frame),
        };
        let key = (direction, packet.flow(direction));
        if let Some(mut held) = self.held.remove(&key) {
            if self.may_append(&held.packet, &packet) {
                held.packet.append(&packet);
                self.counters.changed += 1;
                if held.packet.has(Flags::FIN) || held.packet.payload_len() == self.size {
                    let_out(direction, held, out);
                } else {
                    self.held.insert(key, held);
                }
                self.forget_those_gone();
                return;
            }
            let_out(direction, held, out);
        }
        if self.may_hold(&packet) {
            self.hold(now, key, packet);
        } else {
            out.push(direction, packet.into_bytes());
        }
        self.forget_those_gone();
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Output) {
        while let Some((_, number, direction, flow)) =
            self.due.pop_front_if(|(due, ..)| *due <= now)
        {
            if self.held.get(&(direction, flow)).is_some_and(|held| held.number == number)
                && let Some(held) = self.held.remove(&(direction, flow))
            {
                let_out(direction, held, out);
            }
        }
        self.forget_those_gone();
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.due.front().map(|&(due, ..)| due)
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
