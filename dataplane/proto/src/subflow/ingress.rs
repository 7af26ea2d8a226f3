//! The way of a segment through a subflow: a short one for what a sender sends all the time, and
//! the order of RFC 9293, section 3.10.7, for everything else.

use alloc::vec::Vec;

use super::mapping::Mapping;
use super::{
    Disposition, DropReason, Heard, Mode, Mptcp, Placement, State, Subflow, TimeWaitVerdict, View,
};
use crate::segment::{Flags, Segment};
use crate::seq::StreamOffset;
use crate::time::Instant;

impl Subflow {
    /// Takes a segment in, and adds to `placements` where its payload belongs.
    ///
    /// No allocation is made for it as long as `placements` has capacity, but for the first
    /// out-of-order segments of a subflow.
    pub fn on_segment(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
        placements: &mut Vec<Placement>,
    ) -> Disposition {
        self.statistics.segments += 1;
        if self.take_predicted(now, segment, view, placements) {
            return Disposition::Accepted;
        }
        match self.take(now, segment, view, placements) {
            Ok(()) => Disposition::Accepted,
            Err(reason) => Disposition::Dropped(reason),
        }
    }

    /// The short way: the next payload expected on an established subflow, with nothing else in
    /// the segment that would change any state. Says whether the segment was such a one; if not,
    /// nothing was changed. What is checked here is what [`take`](Self::take) checks, in the form
    /// it has for this case.
    #[inline]
    fn take_predicted(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
        placements: &mut Vec<Placement>,
    ) -> bool {
        let len = u64::from(segment.payload_len);
        let plain = self.state == State::Established
            && segment.seq == self.receive.next
            && len > 0
            && segment.flags.0 & !Flags::PSH.0 == Flags::ACK.0
            && segment.ack == self.send.next
            && self.send.unacked == self.send.next
            && self.reorder.is_quiet()
            && self.receive.fin_at.is_none()
            && view.remote_fin.is_none()
            && !view.reader_gone;
        if !plain {
            return false;
        }
        let received = self.receive.received;
        let (shift, mapping) = match &self.mode {
            Mode::Plain if self.doubt.as_ref().is_some_and(|doubt| doubt.concerns(segment)) => {
                return false;
            }
            Mode::Plain => (0, None),
            Mode::Mptcp(mptcp) => {
                let options = &segment.options.mptcp;
                let other = options.capable.is_some()
                    || options.fail.is_some()
                    || options.fast_close.is_some()
                    || options.add_addr.is_some()
                    || options.remove_addr.is_some()
                    || options.priority.is_some()
                    || !self.confirmed
                    || self.heard != Heard::DataAck
                    || mptcp.checksums
                    || self.close.awaits_data_ack(view);
                let known = if other { None } else { self.predict(mptcp, segment, view) };
                match known {
                    Some(known) => known,
                    None => return false,
                }
            }
            Mode::Offered { .. } => return false,
        };
        let to = received.wrapping_add(shift);
        if view.right_edge.0.saturating_sub(to) < len {
            return false;
        }
        if let (Some(stamps), Some(theirs)) = (&self.stamps, segment.options.timestamps) {
            if (theirs.value.wrapping_sub(stamps.recent) as i32) < 0 {
                return false;
            }
            self.take_timestamps(now, segment);
        }
        if let Some(mapping) = mapping {
            if self.mappings.agrees(&mapping) {
                self.mappings.extend_current(&mapping);
            } else {
                self.mappings.replace_current(mapping);
            }
        }
        self.heard_at = now;
        self.place(StreamOffset(to), 0, segment.payload_len, None, view, placements);
        self.receive.received = received + len;
        self.receive.next += segment.payload_len;
        self.receive.unmapped = 0;
        self.statistics.bytes += len;
        self.on_in_order(now, segment.payload_len);
        true
    }

    /// The shift of the segment's payload, which is the next expected, if its own DSS tells it
    /// without contradiction or, where it has none, an earlier one did; with it the DSS's mapping.
    #[inline]
    fn predict(
        &self,
        mptcp: &Mptcp,
        segment: &Segment,
        view: &View,
    ) -> Option<(u64, Option<Mapping>)> {
        let received = self.receive.received;
        let end = received + u64::from(segment.payload_len);
        let dss = segment.options.mptcp.dss.as_ref();
        if dss.is_some_and(|dss| dss.data_fin) {
            return None;
        }
        let Some(theirs) = dss.and_then(|dss| dss.mapping.as_ref()) else {
            let (shift, known) = self.mappings.find(received)?;
            return (known >= end).then_some((shift, None));
        };
        if theirs.length == 0 || theirs.checksum.is_some() {
            return None;
        }
        let to = mptcp.stream_offset(theirs.data_seq, view.edge)?;
        let start = self.position_of_ssn(theirs.subflow_seq);
        let shift = to.0.wrapping_sub(start);
        let new = Mapping { start, end: start.wrapping_add(u64::from(theirs.length)), shift };
        let covers = new.start <= received && new.end >= end;
        let fits = self.mappings.agrees(&new) || self.mappings.next_is(received);
        (covers && fits).then_some((shift, Some(new)))
    }

    /// The whole way.
    fn take(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
        placements: &mut Vec<Placement>,
    ) -> Result<(), DropReason> {
        match self.state {
            State::Closed | State::SynSent => return Err(DropReason::Closed),
            State::TimeWait => return self.take_in_time_wait(now, segment),
            State::SynReceived if self.is_syn_again(segment) => {
                self.on_syn_again(segment);
                return Ok(());
            }
            _ => {}
        }
        self.check_timestamps(now, segment)?;
        self.check_sequence(now, segment, view)?;
        if segment.flags.contains(Flags::RST) {
            if self.is_fast_close(segment) {
                self.on_fast_close(true);
            } else {
                self.on_reset(segment);
            }
            return Ok(());
        }
        self.check_syn(now, segment)?;
        self.check_ack(now, segment)?;
        if self.state == State::SynReceived {
            self.complete_handshake(now, segment)?;
        }
        self.take_timestamps(now, segment);
        self.heard_at = now;
        // The data level first: the acknowledgement may be the last that this subflow takes.
        self.take_mptcp_options(now, segment, view)?;
        if self.state != State::Closed {
            self.take_ack(now, segment);
        }
        if self.state == State::Closed {
            return Ok(());
        }
        // The urgent pointer changes nothing: urgent data is part of the stream (RFC 8684,
        // section 3.3.1).
        let payload = if segment.payload_len > 0 {
            self.take_payload(now, segment, view, placements)
        } else {
            Ok(())
        };
        if segment.flags.contains(Flags::FIN) {
            self.note_fin(segment);
        }
        self.take_fin_in_order(now, view);
        payload
    }

    /// A copy of the SYN that opened the subflow.
    fn is_syn_again(&self, segment: &Segment) -> bool {
        segment.seq == self.receive.initial
            && segment.flags.contains(Flags::SYN)
            && segment.flags.0 & (Flags::ACK.0 | Flags::RST.0 | Flags::FIN.0) == 0
    }

    fn take_in_time_wait(&mut self, now: Instant, segment: &Segment) -> Result<(), DropReason> {
        // The driver keeps a `TimeWait` instead of the subflow as soon as it is quiet, so this is
        // for what comes in the same burst.
        let Some(expires) = self.timers.deadline(super::timers::Timer::Linger) else {
            return Err(DropReason::Closed);
        };
        let mut rest = super::TimeWait::of(self, expires);
        match rest.on_segment(now, segment) {
            TimeWaitVerdict::Reply(_) => self.ack.now(),
            TimeWaitVerdict::Ignore | TimeWaitVerdict::Reopen(_) | TimeWaitVerdict::Done => {}
        }
        self.timers.start(super::timers::Timer::Linger, rest.expires());
        Err(DropReason::Closed)
    }
}
