//! Losing one kind of traffic, or all of it for a time.

use std::time::Duration;

use mpxdp_proto::segment::Flags;
use mpxdp_proto::time::Instant;

use super::packet::Packet;
use super::{Counters, Direction, Middlebox, Output, Traffic};

/// Loses all frames of one kind.
#[derive(Debug)]
pub(super) struct Filter {
    traffic: Traffic,
    counters: Counters,
}

impl Filter {
    pub(super) fn new(traffic: Traffic) -> Self {
        Self { traffic, counters: Counters::default() }
    }

    fn concerns(&self, packet: &Packet) -> bool {
        let has_any = |flags: Flags| packet.segment().flags.0 & flags.0 != 0;
        match self.traffic {
            Traffic::Data => packet.payload_len() > 0,
            Traffic::Acks => {
                packet.payload_len() == 0 && !has_any(Flags::SYN.with(Flags::FIN).with(Flags::RST))
            }
            Traffic::Syn => has_any(Flags::SYN),
            Traffic::Join => packet.segment().options.mptcp.join.is_some(),
            Traffic::Fin => has_any(Flags::FIN),
            Traffic::Rst => has_any(Flags::RST),
            Traffic::All => true,
        }
    }
}

impl Middlebox for Filter {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let frame = match Packet::parse(frame) {
            Ok(packet) if self.concerns(&packet) => {
                self.counters.dropped += 1;
                return;
            }
            Ok(packet) => packet.into_bytes(),
            Err(_) if self.traffic == Traffic::All => {
                self.counters.dropped += 1;
                return;
            }
            Err(frame) => frame,
        };
        out.push(direction, frame);
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// Loses everything for a time, as a path does whose middle is cut: neither end sees its link go down.
#[derive(Debug)]
pub(super) struct Cut {
    after: Duration,
    length: Duration,
    /// When the first TCP segment came.
    started: Option<Instant>,
    counters: Counters,
}

impl Cut {
    pub(super) fn new(after: Duration, length: Duration) -> Self {
        Self { after, length, started: None, counters: Counters::default() }
    }
}

impl Middlebox for Cut {
    fn on_frame(&mut self, now: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let mut frame = frame;
        let started = match self.started {
            Some(started) => started,
            None => match Packet::parse(frame) {
                Ok(packet) => {
                    frame = packet.into_bytes();
                    *self.started.insert(now)
                }
                Err(frame) => return out.push(direction, frame),
            },
        };
        let age = now.saturating_since(started);
        if age >= self.after && age - self.after < self.length {
            self.counters.dropped += 1;
        } else {
            out.push(direction, frame);
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
