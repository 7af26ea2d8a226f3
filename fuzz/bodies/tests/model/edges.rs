//! What the engine promises to senders as it leaves the engine, before the network changes the order.

use std::collections::HashMap;
use std::net::SocketAddr;

use mpxdp_proto::segment::{DssNumber, Flags, WindowScale};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::wire::parse_frame;

/// The low halves of the right edges that a connection was told last, by the level that they belong to.
#[derive(Default)]
struct Edges {
    shift: u8,
    subflow: Option<SeqNum>,
    data: Option<SeqNum>,
}

/// The right edges of the windows of connections with one subflow each, by the sender.
#[derive(Default)]
pub(crate) struct RightEdges(HashMap<SocketAddr, Edges>);

impl RightEdges {
    /// Checks that a frame to a sender takes back nothing of its window (RFC 9293, section 3.8.6; RFC
    /// 8684, section 3.3.4), but for less than a unit of the scale (RFC 7323, section 2.4).
    pub(crate) fn note(&mut self, frame: &[u8]) {
        let parsed = parse_frame(frame, frame.len()).expect("what the engine sends is right");
        let segment = &parsed.segment;
        if segment.flags.contains(Flags::RST) {
            return;
        }
        let edges = self.0.entry(parsed.local).or_default();
        if segment.flags.contains(Flags::SYN) {
            // A connection begins. The window of a SYN is never scaled.
            let shift = segment.options.window_scale.map_or(0, WindowScale::shift);
            let subflow = Some(segment.ack + u32::from(segment.window));
            *edges = Edges { shift, subflow, data: None };
            return;
        }
        let acknowledged = segment.options.mptcp.dss.and_then(|dss| dss.ack).map(|ack| match ack {
            DssNumber::Long(number) => SeqNum(number as u32),
            DssNumber::Short(number) => SeqNum(number),
        });
        let (last, ack) = match acknowledged {
            Some(number) => (&mut edges.data, number),
            // Without a DATA_ACK, its window means nothing (RFC 8684, section 3.3.1).
            None if edges.data.is_some() => return,
            None => (&mut edges.subflow, segment.ack),
        };
        let edge = ack + (u32::from(segment.window) << edges.shift);
        let back = last.map_or(0, |last| last.distance_from(edge));
        assert!(back < 1 << edges.shift, "the window of {} lost {back} bytes", parsed.local);
        *last = Some(edge);
    }
}

#[cfg(test)]
mod tests {
    use mpxdp_proto::segment::{Dss, Options, Segment};
    use mpxdp_proto::wire::{IpFields, LinkHeader, MacAddress, emit_frame};

    use super::*;

    /// Notes a SYN/ACK with a scale of 4 units, and then acknowledgements with these windows, of the
    /// subflow or the data level.
    fn note(acks: &[(u32, u16, Option<DssNumber>)]) {
        let mut edges = RightEdges::default();
        let mut note = |segment: &Segment| {
            let link = LinkHeader::new(MacAddress([2; 6]), MacAddress([4; 6]));
            let (from, to) = (([10, 0, 0, 2], 5001).into(), ([10, 0, 0, 1], 50_000).into());
            let mut buf = [0; 200];
            let ip = IpFields::default();
            let len = emit_frame(&mut buf, &link, from, to, ip, segment, &[]).expect("it fits");
            edges.note(&buf[..len]);
        };
        let options = Options { window_scale: Some(WindowScale::new(2)), ..Options::default() };
        let (flags, ack) = (Flags::SYN.with(Flags::ACK), SeqNum(0));
        note(&Segment { flags, ack, window: 1000, options, ..Segment::default() });
        for &(ack, window, data) in acks {
            let mut options = Options::default();
            options.mptcp.dss = data.map(|ack| Dss { ack: Some(ack), ..Dss::default() });
            let (flags, ack) = (Flags::ACK, SeqNum(ack));
            note(&Segment { flags, ack, window, options, ..Segment::default() });
        }
    }

    #[test]
    fn windows_that_only_grow_are_fine() {
        note(&[(0, 250, None), (40, 240, None), (43, 239, None), (43, 300, None)]);
        let data = |n: u64| Some(DssNumber::Long(0xffff_fff0 + n));
        note(&[(0, 250, None), (40, 240, data(40)), (41, 0, None), (40, 239, data(44))]);
    }

    #[test]
    #[should_panic = "lost 4 bytes"]
    fn a_window_that_goes_back_is_seen() {
        note(&[(0, 250, None), (40, 239, None)]);
    }

    #[test]
    #[should_panic = "lost 4 bytes"]
    fn a_window_of_the_data_level_that_goes_back_is_seen() {
        let data = |n: u64| Some(DssNumber::Long(0xffff_fff0 + n));
        note(&[(40, 240, data(40)), (80, 229, data(80))]);
    }
}
