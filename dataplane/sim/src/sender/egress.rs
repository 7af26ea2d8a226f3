//! What the sender sends, and when.

use mpxdp_proto::segment::{
    Dss, DssMapping, DssNumber, Flags, MpCapable, MpCapableBody, MpCapableData, Options, Segment,
    Timestamps,
};
use mpxdp_proto::seq::SeqNum;
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{IpFields, emit_frame, options_len};

use super::{Failure, FirstData, Mode, MptcpOptions, Phase, Sender};

/// The window that the sender announces: it throws away what it receives.
const WINDOW: u16 = 0xffff;

impl Sender {
    /// Writes the next frame to be sent to `buf`, and gives its length; `None` if there is none.
    ///
    /// # Panics
    ///
    /// If `buf` is too short for a frame: the MSS and 82 bytes always do.
    pub fn poll_frame(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        let mut segment = match self.phase {
            Phase::SynSent if self.syn_due => self.syn(now),
            Phase::Established if self.reset_due => self.reset(),
            Phase::Established if self.third_ack_due => self.plain(now),
            Phase::Established if self.can_send_data() => self.data(now),
            Phase::Established if self.can_send_data_fin() => self.data_fin(now),
            Phase::Established if self.can_send_fin() => self.fin(now),
            Phase::Established if self.probe_due => {
                self.probe_due = false;
                // One before the next, so that it is answered (RFC 9293, section 3.8.6.1).
                Segment { seq: self.seq_of(self.una) - 1, ..self.plain(now) }
            }
            Phase::Established | Phase::Done if self.ack_due => self.plain(now),
            _ => return None,
        };
        segment.window = WINDOW;
        self.ack_due = false;
        self.third_ack_due = false;
        self.statistics.segments += 1;
        let options = &self.options;
        let payload = &self.payload[..segment.payload_len as usize];
        let (link, local, remote) = (&options.link, options.local, options.remote);
        let len = emit_frame(buf, link, local, remote, IpFields::default(), &segment, payload);
        Some(len.expect("the buffer takes a frame, and the options fit"))
    }

    /// Acts on the timeout, if it is due.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.timer.is_none_or(|timer| now < timer) {
            return;
        }
        self.timer = None;
        self.statistics.timeouts += 1;
        self.timeouts_in_a_row += 1;
        if self.timeouts_in_a_row > self.options.max_timeouts {
            self.phase = Phase::Failed(Failure::TimedOut);
            return;
        }
        match self.phase {
            Phase::SynSent => self.syn_due = true,
            Phase::Established => {
                // Until it is confirmed, the third ACK may be what was lost.
                self.third_ack_due = matches!(self.mode, Mode::Mptcp { confirmed: false, .. });
                // A window that is closed is asked for again and again, without an end.
                let closed = self.next < self.total() && self.next >= self.right_edge;
                if self.una < self.highest {
                    self.go_back();
                } else if closed {
                    self.probe_due = true;
                    self.timeouts_in_a_row -= 1;
                }
                self.data_fin_due |= self.is_data_fin_outstanding();
                self.arm(now);
            }
            Phase::Done | Phase::Failed(_) => {}
        }
    }

    /// Sends again from the first byte that is not acknowledged.
    pub(super) fn go_back(&mut self) {
        self.next = self.una;
        self.recover = self.highest;
        self.duplicate_acks = 0;
    }

    /// Starts the timer if something waits for an answer, stops it otherwise.
    pub(super) fn arm(&mut self, now: Instant) {
        let waits = match self.phase {
            Phase::SynSent => true,
            Phase::Established => {
                self.una < self.highest
                    || self.is_data_fin_outstanding()
                    || (self.next < self.total() && self.next >= self.right_edge)
            }
            Phase::Done | Phase::Failed(_) => false,
        };
        let backoff = 1 << self.timeouts_in_a_row.min(6);
        self.timer = waits.then(|| now + self.options.timeout * backoff);
    }

    fn syn(&mut self, now: Instant) -> Segment {
        self.syn_due = false;
        self.arm(now);
        let options = &self.options;
        let mut syn = Segment { seq: options.isn, flags: Flags::SYN, ..Segment::default() };
        syn.options.mss = Some(options.mss);
        syn.options.window_scale = options.window_scale;
        syn.options.sack_permitted = options.sack;
        syn.options.timestamps = options.timestamps.then(|| self.stamp(now));
        if options.mptcp.is_some() {
            syn.options.mptcp.capable = Some(capable(MpCapableBody::Syn));
        }
        syn
    }

    fn reset(&mut self) -> Segment {
        self.phase = Phase::Failed(Failure::Aborted);
        let (seq, ack) = (self.seq_of(self.next), self.receive_next);
        Segment { seq, ack, flags: Flags::RST.with(Flags::ACK), ..Segment::default() }
    }

    /// A segment without payload, with everything that each segment says.
    fn plain(&self, now: Instant) -> Segment {
        let timestamps = self.timestamps.then(|| self.stamp(now));
        let mut options = Options { timestamps, ..Options::default() };
        if let (Mode::Mptcp { remote_key, confirmed, .. }, Some(mptcp)) =
            (self.mode, self.options.mptcp)
        {
            if confirmed {
                options.mptcp.dss = Some(self.acknowledgement());
            } else {
                let (sender, receiver) = (mptcp.key, remote_key);
                let body = MpCapableBody::Ack { sender, receiver, data: None };
                options.mptcp.capable = Some(capable(body));
            }
        }
        let (seq, ack) = (self.seq_of(self.next), self.receive_next);
        Segment { seq, ack, flags: Flags::ACK, options, ..Segment::default() }
    }

    fn can_send_data(&self) -> bool {
        self.next < self.total()
            && self.next < self.right_edge
            && self.next - self.una < self.options.max_in_flight
    }

    /// The next segment with payload, which is written to `payload`.
    fn data(&mut self, now: Instant) -> Segment {
        let mut segment = self.plain(now);
        let room = self.right_edge.min(self.total()) - self.next;
        let mut end = self.next + room;
        if self.is_mptcp() {
            // Whether there is a mapping, and thereby the options' length, depends on the bytes
            // that the segment covers; the longest it can be decides.
            if let Some(mptcp) = self.options.mptcp {
                end = self.map(&mptcp, end, &mut segment);
            }
        } else {
            end = end.min(self.next + (self.mss - options_len(&segment.options)) as u64);
        }
        let len = (end - self.next) as usize;
        self.options.content.fill(self.next, &mut self.payload[..len]);
        segment.payload_len = len as u32;
        if end == self.total() {
            segment.flags = segment.flags.with(Flags::PSH);
        }
        self.statistics.retransmitted += u64::from(self.next < self.highest);
        self.next = end;
        self.highest = self.highest.max(end);
        if self.timer.is_none() {
            self.arm(now);
        }
        segment
    }

    /// Chooses what a segment with payload from `next` up to `limit` at most covers, gives it the
    /// mapping that belongs to it, and gives its end.
    fn map(&mut self, mptcp: &MptcpOptions, limit: u64, segment: &mut Segment) -> u64 {
        // The longest options there can be, also longer than MP_CAPABLE with short numbers.
        let long = DssNumber::Long(0);
        let longest = DssMapping { data_seq: long, subflow_seq: 0, length: 0, checksum: None };
        segment.options.mptcp.capable = None;
        segment.options.mptcp.dss =
            Some(Dss { data_fin: false, ack: Some(long), mapping: Some(longest) });
        let most = (self.mss - options_len(&segment.options)) as u64;
        let mut end = limit.min(self.next + most);

        let each = u64::from(mptcp.mapping_len);
        let mapping = if each == 0 {
            Some((self.next, end))
        } else if mptcp.straddle && each >= most {
            // The mapping that begins in this segment. The one that it goes on with is known, since
            // what comes before this segment was taken or comes again.
            let begin = self.next.next_multiple_of(each);
            (begin < end).then_some((begin, begin + each))
        } else {
            let begin = self.next / each * each;
            end = end.min(begin + each);
            // Told in the first segment, and again when that may not have arrived.
            (begin == self.next || self.next < self.highest).then_some((begin, begin + each))
        };
        let Some((begin, mapping_end)) = mapping else {
            segment.options.mptcp.dss = Some(self.acknowledgement());
            return end;
        };
        let mapping_end = mapping_end.min(self.total());
        let with_fin = self.options.ends && mptcp.data_fin_with_data && mapping_end == self.total();
        let length = (mapping_end - begin) as u16;
        let Mode::Mptcp { remote_key, confirmed, .. } = self.mode else {
            return end;
        };
        if begin == 0 && !confirmed && !with_fin && mptcp.first_data == FirstData::Capable {
            let data = Some(MpCapableData { length, checksum: None });
            let body = MpCapableBody::Ack { sender: mptcp.key, receiver: remote_key, data };
            segment.options.mptcp.dss = None;
            segment.options.mptcp.capable = Some(capable(body));
            return end;
        }
        segment.options.mptcp.dss = Some(Dss {
            data_fin: with_fin,
            mapping: Some(DssMapping {
                data_seq: number(mptcp, (self.local_first + begin).0),
                subflow_seq: (begin as u32).wrapping_add(1),
                length: length + u16::from(with_fin),
                checksum: None,
            }),
            ..self.acknowledgement()
        });
        end
    }

    fn is_data_fin_outstanding(&self) -> bool {
        self.is_mptcp()
            && self.options.ends
            && self.highest >= self.total()
            && !self.is_data_acknowledged()
    }

    fn can_send_data_fin(&self) -> bool {
        let alone = self.options.mptcp.is_some_and(|mptcp| !mptcp.data_fin_with_data);
        self.data_fin_due
            && self.next >= self.total()
            && self.is_data_fin_outstanding()
            // Sent with the data, it needs a segment of its own only if there is no data.
            && (alone || self.total() == 0 || self.una >= self.total())
    }

    fn data_fin(&mut self, now: Instant) -> Segment {
        self.data_fin_due = false;
        let mut segment = self.plain(now);
        let mptcp = self.options.mptcp.unwrap_or_default();
        segment.options.mptcp.capable = None;
        segment.options.mptcp.dss = Some(Dss {
            data_fin: true,
            // A DATA_FIN without data has no subflow sequence number (RFC 8684, section 3.3.3).
            mapping: Some(DssMapping {
                data_seq: number(&mptcp, (self.local_first + self.total()).0),
                subflow_seq: 0,
                length: 1,
                checksum: None,
            }),
            ..self.acknowledgement()
        });
        if self.timer.is_none() {
            self.arm(now);
        }
        segment
    }

    fn can_send_fin(&self) -> bool {
        // With a data level, the subflow ends when both sides are done there.
        let may = if self.is_mptcp() { self.fin_allowed } else { self.options.ends };
        may && self.next == self.total()
    }

    fn fin(&mut self, now: Instant) -> Segment {
        let mut segment = self.plain(now);
        segment.flags = segment.flags.with(Flags::FIN);
        self.statistics.retransmitted += u64::from(self.next < self.highest);
        self.next += 1;
        self.highest = self.highest.max(self.next);
        if self.timer.is_none() {
            self.arm(now);
        }
        segment
    }

    /// A DSS option with the data acknowledgement only.
    fn acknowledgement(&self) -> Dss {
        let Mode::Mptcp { remote_first, .. } = self.mode else {
            return Dss::default();
        };
        let end_received = self.remote_end == Some(self.data_received);
        let acknowledged = remote_first + self.data_received + u64::from(end_received);
        let mptcp = self.options.mptcp.unwrap_or_default();
        Dss { ack: Some(number(&mptcp, acknowledged.0)), ..Dss::default() }
    }

    fn stamp(&self, now: Instant) -> Timestamps {
        Timestamps { value: (now.0 / 1_000_000) as u32, echo: self.last_timestamp }
    }

    /// The sequence number of the byte at a stream offset.
    pub(super) fn seq_of(&self, offset: u64) -> SeqNum {
        self.options.isn + 1 + offset as u32
    }
}

const fn capable(body: MpCapableBody) -> MpCapable {
    MpCapable {
        version: 1,
        checksum_required: false,
        extensibility: false,
        no_join_to_initial_address: false,
        algorithms: 1,
        body,
    }
}

const fn number(mptcp: &MptcpOptions, value: u64) -> DssNumber {
    if mptcp.long_numbers { DssNumber::Long(value) } else { DssNumber::Short(value as u32) }
}
