//! Cutting segments, as segmentation in hardware and some proxies do.

use mpxdp_proto::segment::Flags;
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::mptcp;

use super::packet::{Packet, Padding};
use super::{Counters, Direction, Middlebox, OptionName, Output};

/// Cuts segments whose payload is too long. Every part gets the options, so that several segments
/// carry the same mapping; or only the first part keeps MPTCP's, and the others are in a mapping
/// that they do not tell. Segments with SYN and damaged ones stay whole.
#[derive(Debug)]
pub(super) struct Split {
    size: usize,
    first_only: bool,
    counters: Counters,
}

impl Split {
    pub(super) fn new(size: u64, first_only: bool) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX).max(1);
        Self { size, first_only, counters: Counters::default() }
    }

    fn cut(&mut self, direction: Direction, packet: &Packet, out: &mut Output) {
        let length = packet.payload_len();
        let flags = packet.segment().flags;
        for start in (0..length).step_by(self.size) {
            let end = length.min(start + self.size);
            let mut part_flags = flags;
            if end < length {
                part_flags = without(part_flags, Flags::FIN.with(Flags::PSH));
            }
            if start > 0 {
                // The window was reduced once (RFC 3168, section 6.1.2).
                part_flags = without(part_flags, Flags::CWR);
                self.counters.added += 1;
            }
            let mut part = packet.part(start..end, part_flags);
            if start > 0 && self.first_only {
                part.remove_options(&[OptionName::Kind(mptcp::KIND)], Padding::Nops);
            }
            out.push(direction, part.into_bytes());
        }
        self.counters.changed += 1;
    }
}

const fn without(flags: Flags, gone: Flags) -> Flags {
    Flags(flags.0 & !gone.0)
}

impl Middlebox for Split {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        match Packet::parse(frame) {
            Ok(packet)
                if packet.payload_len() > self.size
                    && !packet.has(Flags::SYN)
                    && packet.is_intact() =>
            {
                self.cut(direction, &packet, out);
            }
            Ok(packet) => out.push(direction, packet.into_bytes()),
            Err(frame) => out.push(direction, frame),
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
