//! What is sent: SYN/ACK, acknowledgements, FIN and DATA_FIN, probes, resets.

use super::accept::{HMAC_SHA256, VERSION};
use super::sums::checksum_of_data_fin;
use super::timers::Timer;
use super::{Heard, Mode, ResetReason, State, Subflow, View, data_ack};
use crate::segment::{
    Dss, DssMapping, DssNumber, Flags, Key, MpCapable, MpCapableBody, Options, Segment, Timestamps,
};
use crate::seq::{SeqNum, StreamOffset};
use crate::time::Instant;
use crate::wire::options::sack_room;

/// When an acknowledgement goes out.
#[derive(Debug)]
pub(super) struct AckState {
    /// At the next poll.
    now: bool,
    /// With the newest DATA_ACK, whatever the peer makes of the window.
    newest: bool,
    /// Segments with payload since the last one.
    segments: u16,
    /// So many segments more are acknowledged without delay.
    quick: u16,
}

impl AckState {
    pub(super) const fn new(quick: u16) -> Self {
        Self { now: false, newest: false, segments: 0, quick }
    }

    pub(super) fn now(&mut self) {
        self.now = true;
    }

    pub(super) fn newest(&mut self) {
        (self.now, self.newest) = (true, true);
    }

    pub(super) const fn is_due(&self) -> bool {
        self.now
    }

    /// Payload came in order. Says whether it is to be acknowledged at the next poll; otherwise
    /// the acknowledgement may wait. RFC 9293, section 3.8.6.3: "there SHOULD be an ACK for at
    /// least every second full-sized segment or 2*RMSS bytes of new data". The driver polls once
    /// a burst, so a burst has one acknowledgement.
    #[inline]
    pub(super) fn on_payload(&mut self) -> bool {
        self.segments = self.segments.saturating_add(1);
        if self.segments >= 2 || self.quick > 0 {
            self.quick = self.quick.saturating_sub(1);
            self.now = true;
        }
        self.now
    }

    fn sent(&mut self) {
        self.now = false;
        self.newest = false;
        self.segments = 0;
    }
}

/// A reset to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reset {
    /// With MP_FASTCLOSE: the peer's key.
    pub(super) fast_close: Option<Key>,
    /// With MP_TCPRST.
    pub(super) reason: Option<ResetReason>,
    /// With MP_FAIL, with this data sequence number.
    pub(super) fail: Option<u64>,
}

/// What is to be sent besides acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The SYN/ACK, for the first time or again.
    pub(super) syn_ack: bool,
    /// The end.
    pub(super) reset: Option<Reset>,
    /// A reset for an acknowledgement of what was never sent, with this sequence number.
    pub(super) bad_ack: Option<SeqNum>,
    /// A keepalive probe.
    pub(super) keepalive: bool,
    /// MP_FAIL, with this data sequence number.
    pub(super) fail: Option<u64>,
}

impl Pending {
    pub(super) fn forget_all_but_reset(&mut self) {
        *self = Self { reset: self.reset, ..Default::default() };
    }
}

impl Subflow {
    /// The next segment to send, if any. It has no payload.
    pub fn poll_transmit(&mut self, now: Instant, view: &View) -> Option<Segment> {
        let segment = self.next_segment(now, view)?;
        self.statistics.segments_sent += 1;
        Some(segment)
    }

    fn next_segment(&mut self, now: Instant, view: &View) -> Option<Segment> {
        if let Some(reset) = self.pending.reset.take() {
            return Some(self.reset_segment(reset));
        }
        if let Some(seq) = self.pending.bad_ack.take() {
            return Some(Segment { seq, flags: Flags::RST, ..Default::default() });
        }
        match self.state {
            State::Closed | State::SynSent => return None,
            State::SynReceived => {
                if core::mem::take(&mut self.pending.syn_ack) {
                    self.ack.sent();
                    return Some(self.syn_ack(now, view));
                }
            }
            State::TimeWait => {}
            _ => self.plan_close(now, view),
        }
        if self.close.fin_due || self.close.data_fin_due {
            return Some(self.closing_segment(now, view));
        }
        if self.ack.is_due() {
            return Some(self.acknowledgement(now, view, false));
        }
        if let Some(signal) = self.next_signal(now, view) {
            return Some(signal);
        }
        if core::mem::take(&mut self.pending.keepalive) {
            // RFC 9293, section 3.8.4: SEG.SEQ = SND.NXT-1, so that it has to be answered.
            let ack = self.acknowledgement(now, view, false);
            return Some(Segment { seq: self.send.next - 1, ..ack });
        }
        None
    }

    /// Right edge minus edge, as far as the window field can tell it.
    pub(super) fn announceable(&self, view: &View) -> u64 {
        u64::from(self.window_field(view)) << self.receive.scale.shift()
    }

    /// The window field. The right edge has an exact place in the stream, but the field only tells it
    /// to a multiple of the scale, counted from the edge.
    ///
    /// It is rounded down: what is told then never lies beyond the edge, so there is room for
    /// everything that the peer sends, and what was told earlier (by less than one unit more) is still
    /// accepted, as RFC 7323, section 2.4, demands. Rounded up, the edge that the peer sees would creep
    /// forward with each acknowledgement.
    ///
    /// But where less than a segment is left, it is rounded up, to no less than what the peer was told
    /// on any subflow: a sender that goes by the highest edge that it ever saw has given a subflow data
    /// up to there, and the subflow's TCP, which goes by the last one, would keep what is beyond it. The
    /// room for that is the view's slack (docs/decisions/0010).
    pub(super) fn window_field(&self, view: &View) -> u16 {
        let from_edge = |to: StreamOffset| to.0.saturating_sub(view.edge.0);
        let (room, told) = (from_edge(view.right_edge), from_edge(view.told));
        let open = room.saturating_sub(view.slack);
        let shift = self.receive.scale.shift();
        let unit = 1_u64 << shift;
        let closing = open < u64::from(self.receive.largest) + unit || told > open;
        let units =
            if closing { open.max(told).div_ceil(unit).min(room >> shift) } else { open >> shift };
        units.min(u64::from(u16::MAX)) as u16
    }

    /// What an acknowledgement says of the data level: the edge, the DATA_ACK, the window field.
    ///
    /// Mostly what the view says. But TCP takes no smaller window from an acknowledgement of nothing
    /// new (RFC 9293, section 3.10.7.4), while Linux takes its DATA_ACK, and adds to that the window
    /// that it has: it would send past the right edge (docs/decisions/0007). Then what the subflow
    /// told last is repeated.
    fn level(&self, view: &View) -> (StreamOffset, StreamOffset, u16) {
        let (receive, field) = (&self.receive, self.window_field(view));
        let repeats = self.is_mptcp()
            && receive.acknowledged == receive.next
            && field < receive.field
            && !self.ack.newest
            && !view.remote_complete();
        if repeats {
            return (receive.told_ack, receive.told_ack, receive.field);
        }
        (view.edge, data_ack(view), field)
    }

    pub(super) fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.stamps
            .as_ref()
            .map(|stamps| Timestamps { value: stamps.clock(now), echo: stamps.recent })
    }

    fn syn_ack(&mut self, now: Instant, view: &View) -> Segment {
        let mut options = Options {
            mss: Some(self.receive.mss),
            window_scale: self.send.scale.map(|_| self.receive.scale),
            sack_permitted: self.reorder.sack,
            timestamps: self.timestamps(now),
            ..Default::default()
        };
        options.mptcp.join = self.join_in_syn_ack();
        if let Mode::Offered { local, in_syn: true, checksums } = self.mode {
            options.mptcp.capable = Some(MpCapable {
                version: VERSION,
                checksum_required: checksums,
                extensibility: false,
                no_join_to_initial_address: self.config.deny_joins_to_initial_address,
                algorithms: HMAC_SHA256,
                body: MpCapableBody::SynAck { sender: local.key },
            });
        }
        let first = !self.timers.is_running(Timer::Retransmit) && self.round_trip.backoff == 0;
        self.round_trip.timed = first.then_some(now);
        self.statistics.retransmitted_bytes += u64::from(!first);
        self.start_retransmit(now);
        // RFC 7323, section 2.2: "The window field in a segment where the SYN bit is set (i.e., a
        // <SYN> or <SYN,ACK>) MUST NOT be scaled."
        let room = view.right_edge.0.saturating_sub(view.edge.0).min(u64::from(u16::MAX));
        self.receive.told_position = self.receive.told_position.max(room);
        self.receive.told = self.receive.told.max(view.edge + room);
        Segment {
            seq: self.send.initial,
            ack: self.receive.next,
            flags: Flags::SYN.with(Flags::ACK),
            window: room as u16,
            options,
            ..Default::default()
        }
    }

    /// An acknowledgement, with our DATA_FIN if `data_fin`.
    pub(super) fn acknowledgement(&mut self, now: Instant, view: &View, data_fin: bool) -> Segment {
        if let (Heard::Nothing { bare }, Mode::Mptcp(_)) = (self.heard, &self.mode) {
            self.heard = match &mut self.stamps {
                Some(stamps) if !bare => {
                    stamps.offset = stamps.offset.wrapping_add(1);
                    Heard::Perhaps(stamps.clock(now))
                }
                _ => Heard::DataAck,
            };
        }
        let (edge, data_ack, window) = self.level(view);
        let mut options = Options { timestamps: self.timestamps(now), ..Default::default() };
        // MP_FAIL has no acknowledgement but its answer, so ours is on all until that comes.
        // A DATA_FIN leaves it no room.
        if !data_fin {
            let failed = self.failed_seq(now, &mut options);
            options.mptcp.fail = self.pending.fail.take().or(failed);
        }
        if let Mode::Mptcp(mptcp) = &self.mode {
            // On every acknowledgement, and always with 64 bits: a DATA_ACK must have the length
            // of the data sequence numbers it answers, and an acknowledgement of the first data
            // that lacks one makes the peer fall back.
            let mapping = view.local_fin.filter(|_| data_fin).map(|fin| {
                let data_seq = mptcp.local_seq(fin);
                DssMapping {
                    data_seq: DssNumber::Long(data_seq.0),
                    subflow_seq: 0,
                    length: 1,
                    checksum: mptcp.checksums.then(|| checksum_of_data_fin(data_seq)),
                }
            });
            options.mptcp.dss = Some(Dss {
                data_fin: mapping.is_some(),
                ack: Some(DssNumber::Long(mptcp.remote_seq(data_ack).0)),
                mapping,
            });
        }
        if self.doubt.is_some() {
            self.add_doubt(now, &mut options, view);
        }
        if self.reorder.sack && !self.reorder.is_quiet() {
            let receive = &self.receive;
            options.sack = self.reorder.blocks(sack_room(&options), |p| receive.seq_of(p));
        }
        if window == 0 {
            self.note_closed_window();
        }
        self.note_acknowledged(edge, data_ack, window);
        Segment {
            seq: self.send.next,
            ack: self.receive.next,
            flags: Flags::ACK,
            window,
            options,
            ..Default::default()
        }
    }

    fn note_acknowledged(&mut self, edge: StreamOffset, data_ack: StreamOffset, field: u16) {
        let window = u64::from(field) << self.receive.scale.shift();
        let receive = &mut self.receive;
        if receive.acknowledged != receive.next
            && let Some(signals) = &mut self.signals
        {
            signals.on_progress();
        }
        receive.acknowledged = receive.next;
        receive.field = field;
        receive.told_ack = receive.told_ack.max(data_ack);
        receive.told = receive.told.max(edge + window);
        receive.told_position = receive.told_position.max(receive.position() + window);
        self.ack.sent();
        self.timers.stop(Timer::DelayedAck);
    }

    /// A segment with FIN or DATA_FIN or both.
    fn closing_segment(&mut self, now: Instant, view: &View) -> Segment {
        let data_fin = core::mem::take(&mut self.close.data_fin_due);
        let mut segment = self.acknowledgement(now, view, data_fin);
        if data_fin && (self.pending.fail.is_some() || self.sums.failed.is_some()) {
            // It had no room.
            self.ack.now();
        }
        let again = self.round_trip.backoff > 0;
        self.statistics.retransmitted_bytes += u64::from(again && data_fin);
        if core::mem::take(&mut self.close.fin_due) {
            segment.flags = segment.flags.with(Flags::FIN);
            if self.close.fin_sent {
                segment.seq = self.send.next - 1;
                self.statistics.retransmitted_bytes += 1;
            } else {
                self.close.fin_sent = true;
                self.send.next += 1;
                self.round_trip.timed = Some(now);
                self.move_to_fin_sent();
            }
        }
        self.start_retransmit(now);
        segment
    }

    /// Has a reset sent, with MP_TCPRST if there is a reason and the subflow speaks MPTCP.
    pub(super) fn queue_reset(&mut self, reason: Option<ResetReason>) {
        let reason = reason.filter(|_| self.is_mptcp());
        self.pending.reset = Some(Reset { fast_close: None, reason, fail: None });
    }

    fn reset_segment(&self, reset: Reset) -> Segment {
        let mut options = Options::default();
        options.mptcp.fast_close = reset.fast_close;
        options.mptcp.reset = reset.reason.map(ResetReason::option);
        options.mptcp.fail = reset.fail;
        Segment {
            seq: self.send.next,
            ack: self.receive.next,
            flags: Flags::RST.with(Flags::ACK),
            options,
            ..Default::default()
        }
    }
}
