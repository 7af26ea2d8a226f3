//! Where the payload of a valid segment goes: in order, ahead of a gap, or nowhere.
//!
//! The subflow takes (and so acknowledges) a byte only if it knows the byte's place in the stream
//! and that place has room. The bytes of a packet are gone when the burst is over, so payload
//! whose mapping may yet come is left for the peer to send again rather than held.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::doubt::Doubt;
use super::timers::Timer;
use super::{
    DropReason, FallbackReason, Heard, MappingId, Mode, Placement, ResetReason, Subflow, View,
};
use crate::segment::Segment;
use crate::seq::StreamOffset;
use crate::time::Instant;

/// After so many copies of the next payload expected, none of which was mapped, the options are
/// taken to be lost on the way: the subflow is broken (RFC 8684, section 3.7). More than one,
/// because a mapping may be carried by a later segment than the first that it covers.
const UNMAPPED_LIMIT: u8 = 3;

/// An initial window (RFC 6928) in segments: so much may be under way before the peer knows
/// whether our DATA_ACKs come through.
const INITIAL_WINDOW: u64 = 10;

impl Subflow {
    /// Adds a placement, without the part that the connection has already, unless its sum is
    /// wanted.
    #[inline]
    pub(super) fn place(
        &self,
        to: StreamOffset,
        at: u32,
        len: u32,
        mapping: Option<MappingId>,
        view: &View,
        placements: &mut Vec<Placement>,
    ) {
        let had = match mapping {
            None => view.edge.0.saturating_sub(to.0).min(u64::from(len)) as u32,
            Some(_) => 0,
        };
        if had < len {
            let (to, at, len) = (to + u64::from(had), at + had, len - had);
            placements.push(Placement { to, at, len, mapping });
        }
    }

    /// Decides about the acknowledgement after in-order payload.
    #[inline]
    pub(super) fn on_in_order(&mut self, now: Instant, len: u32) {
        self.receive.largest = self.receive.largest.max(len);
        if !self.ack.on_payload() && !self.timers.is_running(Timer::DelayedAck) {
            self.timers.start(Timer::DelayedAck, now + self.config.acks.delay);
        }
    }

    /// Payload that is here already: it is acknowledged at once, and reported by D-SACK (RFC 2883).
    pub(super) fn note_duplicate(&mut self, start: i64, end: i64) {
        self.ack.now();
        let (Ok(start), Ok(end)) = (u64::try_from(start), u64::try_from(end)) else { return };
        if start < end {
            self.statistics.duplicate_bytes += end - start;
            self.reorder.note_duplicate(start..end);
        }
    }

    /// The shift at `position`, and up to where it holds.
    fn shift_at(&self, position: u64) -> Option<(u64, u64)> {
        match &self.mode {
            Mode::Plain => Some((0, u64::MAX)),
            Mode::Mptcp(_) if self.sums.agreed => Some((0, u64::MAX)),
            Mode::Mptcp(_) => match self.sums.failed {
                Some(failed) if position >= failed.start => Some((0, u64::MAX)),
                _ => self.mappings.find(position),
            },
            Mode::Offered { .. } => None,
        }
    }

    pub(super) fn take_payload(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
        placements: &mut Vec<Placement>,
    ) -> Result<(), DropReason> {
        let start = self.position_of(segment);
        let end = start + i64::from(segment.payload_len);
        let received = self.receive.received;
        if end <= received as i64 {
            self.note_duplicate(start, end);
            return Err(DropReason::Duplicate);
        }
        if start < received as i64 {
            self.note_duplicate(start, received as i64);
        }
        let last = self.receive.fin_at.unwrap_or(u64::MAX);
        let (from, until) = (start.max(received as i64) as u64, (end as u64).min(last));
        if self.receive.fin_taken || from >= until {
            self.ack.now();
            return Err(DropReason::PastFin);
        }
        if view.reader_gone && !view.remote_complete() {
            // RFC 9293, section 3.10.4: data after CLOSE that nobody will read is answered by a
            // reset, so that the peer knows it was not delivered. Once the stream is complete,
            // payload can only repeat it: MPTCP may send old data again as new of the subflow.
            self.abort(super::Abort::Connection);
            return Err(DropReason::NoReader);
        }
        let ordered = from == received;
        if self.shift_at(from).is_none() {
            self.on_unmapped(ordered, view)?;
        }
        let payload = Payload { start, until, ordered };
        let before = self.statistics.bytes;
        let (taken_to, refused) = self.take_parts(&payload, from, view, placements);
        if self.statistics.bytes == before {
            self.ack.now();
            return Err(refused.unwrap_or(DropReason::Duplicate));
        }
        if ordered {
            self.receive.unmapped = 0;
            self.advance_to(now, taken_to, segment.payload_len);
        } else {
            self.statistics.out_of_order += 1;
            self.receive.largest = self.receive.largest.max(segment.payload_len);
            // RFC 5681, section 4.2: "A TCP receiver SHOULD send an immediate duplicate ACK when
            // an out-of-order segment arrives."
            self.ack.now();
        }
        if refused.is_some() {
            self.ack.now();
        }
        Ok(())
    }

    /// Takes the payload from position `from` on, part by part as mappings and gaps divide it.
    /// Returns up to where it is here now, and why it went no further than that.
    fn take_parts(
        &mut self,
        payload: &Payload,
        from: u64,
        view: &View,
        placements: &mut Vec<Placement>,
    ) -> (u64, Option<DropReason>) {
        let mut position = from;
        while position < payload.until {
            if let Some(held) = self.reorder.held.range_of(position) {
                let end = held.end.min(payload.until);
                self.note_duplicate(position as i64, end as i64);
                self.reorder.touch(position);
                position = end;
                continue;
            }
            let Some((shift, mapped_to)) = self.shift_at(position) else {
                return (position, Some(DropReason::Unmapped));
            };
            // Each mapping is proved by itself, so a placement lies under one only.
            let proof = self.sums.find(position);
            if proof.is_none() && self.uses_checksums() {
                return (position, Some(DropReason::Unmapped));
            }
            let mapping = proof.map(|(mapping, _)| mapping);
            let mapped_to = proof.map_or(mapped_to, |(_, end)| mapped_to.min(end));
            let gap_end = self.reorder.held.missing(position..payload.until).next();
            let gap_end = gap_end.map_or(payload.until, |gap| gap.end);
            let wanted = gap_end.min(mapped_to) - position;
            let to = position.wrapping_add(shift);
            let (limit, beyond) = match view.remote_fin.or(self.close.remote_data_fin) {
                Some(fin) if fin <= view.right_edge => (fin, DropReason::PastFin),
                _ => (view.right_edge, DropReason::BeyondWindow),
            };
            let len = wanted.min(limit.0.saturating_sub(to));
            if len == 0 {
                return (position, Some(beyond));
            }
            if !payload.ordered && !self.reorder.insert(position..position + len) {
                return (position, Some(DropReason::ReorderFull));
            }
            let at = (position as i64 - payload.start) as u32;
            self.place(StreamOffset(to), at, len as u32, mapping, view, placements);
            self.statistics.bytes += len;
            position += len;
        }
        (position, None)
    }

    /// Moves RCV.NXT to `position`, and over what was held beyond it.
    fn advance_to(&mut self, now: Instant, position: u64, len: u32) {
        let filled = !self.reorder.held.is_empty();
        let position = self.reorder.absorb(position);
        self.receive.next += (position - self.receive.received) as u32;
        self.receive.received = position;
        self.mappings.advance(position);
        self.on_in_order(now, len);
        if filled {
            // RFC 5681, section 4.2: also "when the incoming segment fills in all or part of a gap".
            self.ack.now();
        }
    }

    /// Falls back if a peer may do so that does not know yet whether our DATA_ACKs get through, in doubt if
    /// one was sent. Its last mapping may reach beyond its first window.
    pub(super) fn fall_back_early(&mut self, view: &View) -> bool {
        let first_window = INITIAL_WINDOW * u64::from(self.receive.mss) + u64::from(u16::MAX);
        let may = self.receive.received < first_window && self.may_fall_back(view);
        if may {
            if let (Heard::Perhaps(first), Mode::Mptcp(mptcp)) = (self.heard, self.mode) {
                let unmapped = mptcp.remote_seq(StreamOffset(self.receive.received));
                self.doubt = Some(Box::new(Doubt::new(mptcp, first, unmapped.0)));
            }
            self.fall_back(FallbackReason::NoMappingInFirstData);
        }
        may
    }

    /// Payload at a position that no mapping covers. `Ok` means that the connection fell back, and
    /// the payload has its place now.
    fn on_unmapped(&mut self, ordered: bool, view: &View) -> Result<(), DropReason> {
        self.ack.now();
        if !ordered {
            return Err(DropReason::Unmapped);
        }
        // RFC 8684, section 3.7: every segment has a mapping until the sender has seen a DATA_ACK, so
        // payload without one means that options get lost. If none was sent yet, then the peer gets none
        // and knows it. Where one was and nothing has told what became of it, both kinds of peer get what
        // they need. A peer that did see one goes on speaking MPTCP, and is beyond a fallback: as it gets
        // no more of them, it sends its data again and again as new of the subflow.
        if self.heard != Heard::DataAck && self.fall_back_early(view) {
            return Ok(());
        }
        self.receive.unmapped += 1;
        if self.receive.unmapped >= UNMAPPED_LIMIT {
            return self.violate(ResetReason::Middlebox, DropReason::Unmapped);
        }
        Err(DropReason::Unmapped)
    }
}

/// The part of a segment's payload that is in question.
struct Payload {
    /// The position of the payload's first octet.
    start: i64,
    /// The position after the last octet that counts.
    until: u64,
    /// Whether it begins with the next octet expected.
    ordered: bool,
}
