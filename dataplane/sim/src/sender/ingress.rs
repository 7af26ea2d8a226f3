//! What the sender makes of what it receives.

use mpxdp_proto::crypto::key_to_token_and_idsn;
use mpxdp_proto::segment::{
    Dss, DssNumber, Flags, Key, MpCapable, MpCapableBody, Segment, WindowScale,
};
use mpxdp_proto::seq::DataSeq;
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::parse_frame;

use super::{Failure, Mode, Phase, Sender};

impl Sender {
    /// Takes a frame, complete and in one piece. One that is not this connection's is ignored.
    pub fn on_frame(&mut self, now: Instant, bytes: &[u8]) {
        let ours = parse_frame(bytes, bytes.len()).ok().filter(|frame| {
            frame.local == self.options.local
                && frame.remote == self.options.remote
                && frame.is_checksum_right(bytes)
        });
        let Some(frame) = ours else {
            self.statistics.ignored += 1;
            return;
        };
        self.statistics.received += 1;
        match self.phase {
            Phase::SynSent => self.on_syn_ack(now, &frame.segment),
            Phase::Established | Phase::Done => self.on_segment(now, &frame.segment),
            Phase::Failed(_) => {}
        }
    }

    fn on_syn_ack(&mut self, now: Instant, segment: &Segment) {
        let acks_syn = segment.flags.contains(Flags::ACK) && segment.ack == self.options.isn + 1;
        if segment.flags.contains(Flags::RST) {
            if acks_syn {
                self.fail(Failure::Refused);
            }
            return;
        }
        if !acks_syn || !segment.flags.contains(Flags::SYN) {
            return;
        }
        let options = &segment.options;
        self.receive_next = segment.seq + 1;
        self.mss = self.mss.min(options.mss.unwrap_or(536).into());
        self.timestamps = self.options.timestamps && options.timestamps.is_some();
        self.last_timestamp = options.timestamps.map_or(0, |stamps| stamps.value);
        if let (Some(scale), true) = (options.window_scale, self.options.window_scale.is_some()) {
            self.remote_scale = scale;
        }
        // The window of a SYN is never scaled (RFC 7323, section 2.2).
        self.right_edge = segment.window.into();
        if let (Some(_), Some(remote_key)) = (self.options.mptcp, accepted(options.mptcp.capable)) {
            let remote_first = key_to_token_and_idsn(remote_key).1 + 1;
            self.mode = Mode::Mptcp { remote_key, remote_first, confirmed: false };
            self.data_fin_due = self.options.ends;
        }
        self.phase = Phase::Established;
        self.third_ack_due = true;
        self.timeouts_in_a_row = 0;
        self.arm(now);
    }

    fn on_segment(&mut self, now: Instant, segment: &Segment) {
        let ahead = segment.seq.distance_from(self.receive_next);
        if segment.flags.contains(Flags::RST) {
            // Of a connection that has ended in both directions it ends TIME-WAIT, and that is no
            // failure (RFC 9293, section 3.10.7.4): a server that has forgotten it already answers a
            // late copy of our last acknowledgement so.
            if ahead == 0 && self.phase != Phase::Done {
                let reset = segment.options.mptcp.reset;
                self.fail(Failure::Reset(reset.map(|reset| reset.reason)));
            }
            return;
        }
        if segment.options.mptcp.fast_close.is_some() {
            self.fail(Failure::FastClosed);
            return;
        }
        if segment.flags.contains(Flags::SYN) {
            // Our third ACK was lost.
            self.third_ack_due = true;
            return;
        }
        if ahead <= 0
            && let Some(stamps) = segment.options.timestamps
        {
            self.last_timestamp = stamps.value;
        }
        self.take_ack(now, segment);
        self.take_payload(ahead, segment);
        if let Some(dss) = segment.options.mptcp.dss {
            self.take_data_fin(&dss);
        }
        self.conclude(now);
    }

    fn take_ack(&mut self, now: Instant, segment: &Segment) {
        if !segment.flags.contains(Flags::ACK) {
            return;
        }
        let advance = i64::from(segment.ack.distance_from(self.seq_of(self.una)));
        let Some(acknowledged) = self.una.checked_add_signed(advance) else {
            // It is of before the first byte.
            return;
        };
        if acknowledged > self.highest {
            self.statistics.false_acks += 1;
            return;
        }
        let data_acknowledged = self.data_acknowledged(segment, acknowledged);
        let window = u64::from(segment.window) << self.remote_scale.shift();
        let level = data_acknowledged.unwrap_or(acknowledged);
        let newest = acknowledged >= self.una && level >= self.data_una;
        let edge = level + window;
        let unchanged = edge == self.right_edge;
        // Less than one unit of the scale is rounding (RFC 7323, section 2.4).
        let unit = 1 << self.remote_scale.shift();
        let taken_back = newest && edge + unit <= self.right_edge;
        self.statistics.window_taken_back += u64::from(taken_back);
        self.right_edge = self.right_edge.max(edge);

        let progress = acknowledged > self.una || level > self.data_una;
        self.una = self.una.max(acknowledged);
        self.next = self.next.max(self.una);
        self.data_una = self.data_una.max(level);
        if progress {
            self.duplicate_acks = 0;
            self.timeouts_in_a_row = 0;
            self.arm(now);
        } else if !unchanged {
            self.arm(now);
        } else if advance == 0 && self.una < self.highest && segment.seq_len() == 0 {
            self.duplicate_acks += 1;
            if self.duplicate_acks == 3 && self.una >= self.recover {
                self.go_back();
            }
        }
    }

    /// What the segment acknowledges at the data level. Also notices that there is none (any more).
    fn data_acknowledged(&mut self, segment: &Segment, acknowledged: u64) -> Option<u64> {
        let Mode::Mptcp { confirmed, .. } = &mut self.mode else {
            return None;
        };
        let Some(dss) = segment.options.mptcp.dss else {
            // Data was acknowledged without a DSS option before one ever came: the peer fell back,
            // and so do we (RFC 8684, section 3.7).
            if !*confirmed && acknowledged > 0 {
                self.mode = Mode::Plain;
                self.fell_back = true;
            }
            return self.is_mptcp().then_some(self.data_una);
        };
        *confirmed = true;
        let expected = self.local_first + self.data_una;
        let number = match dss.ack? {
            DssNumber::Long(number) => DataSeq(number),
            DssNumber::Short(low) => expected.nearest(low),
        };
        let offset = self.data_una.checked_add_signed(number.distance_from(expected))?;
        // DATA_FIN takes one number.
        if offset > self.highest.min(self.total()) + u64::from(self.highest >= self.total()) {
            self.statistics.false_acks += 1;
            return Some(self.data_una);
        }
        Some(offset)
    }

    fn take_payload(&mut self, ahead: i32, segment: &Segment) {
        self.ack_due |= segment.seq_len() > 0;
        let end = i64::from(ahead) + i64::from(segment.payload_len);
        if ahead > 0 || self.fin_received || end < 0 {
            return;
        }
        // Its bytes are not kept, so of those that came before there is nothing to compare.
        self.receive_next += end as u32;
        self.data_received += end as u64;
        if segment.flags.contains(Flags::FIN) {
            self.receive_next += 1;
            self.fin_received = true;
        }
    }

    fn take_data_fin(&mut self, dss: &Dss) {
        let Mode::Mptcp { remote_first, .. } = self.mode else {
            return;
        };
        if let (true, Some(mapping)) = (dss.data_fin, dss.mapping) {
            let expected = remote_first + self.data_received;
            let begin = match mapping.data_seq {
                DssNumber::Long(number) => DataSeq(number),
                DssNumber::Short(low) => expected.nearest(low),
            };
            let end = begin + u64::from(mapping.length) - 1;
            self.remote_end = Some(end.distance_from(remote_first).max(0) as u64);
            self.ack_due = true;
        }
    }

    /// Looks whether an end is reached.
    fn conclude(&mut self, now: Instant) {
        let remote_ended = self.remote_end == Some(self.data_received) || self.fin_received;
        if self.is_data_acknowledged() && remote_ended && !self.fin_allowed {
            self.fin_allowed = true;
        }
        if self.phase == Phase::Established && self.una > self.total() && self.fin_received {
            self.phase = Phase::Done;
            self.arm(now);
        }
    }

    const fn fail(&mut self, failure: Failure) {
        self.phase = Phase::Failed(failure);
        self.timer = None;
    }
}

/// The peer's key, if its MP_CAPABLE is one that we can go on with (RFC 8684, section 3.1).
fn accepted(capable: Option<MpCapable>) -> Option<Key> {
    match capable? {
        MpCapable {
            version: 1,
            checksum_required: false,
            algorithms,
            body: MpCapableBody::SynAck { sender },
            ..
        } if algorithms & 1 != 0 => Some(sender),
        _ => None,
    }
}

const _: () = assert!(WindowScale::MAX.shift() < 32, "a window is shifted without overflow");
