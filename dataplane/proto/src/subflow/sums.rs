//! Data-level checksums (RFC 8684, sections 3.3.1 and 3.7).
//!
//! A checksum covers a whole mapping, whose payload comes in any number of segments and in any
//! order. The subflow never sees payload; the driver sums what was placed, piece by piece, and is
//! told when a mapping is proved. A sum of 16-bit words does not depend on their order, only on
//! whether a piece begins at an even or an odd octet of its mapping. What is not proved must be
//! neither read nor acknowledged at the data level, although the subflow acknowledges it.
//!
//! When a checksum fails on the only subflow there ever was, the peer is told by MP_FAIL and agrees
//! to go on as plain TCP, by an MP_FAIL of its own or by an infinite mapping. From the start of the
//! failed mapping on, payload is then part of the stream as it came; until then it is held.
//!
//! An MP_FAIL alone is not yet plain TCP: "This infinite mapping will be a DSS option [...] on the first
//! new packet", and if the peer has no more to send there is none. Until then it speaks MPTCP, so it
//! gets DATA_ACKs, of just what TCP acknowledges: without, it would send its data again as new of the
//! subflow. Its DATA_FIN is the end of the stream, and an answer too if it was sent after MP_FAIL had come.

use alloc::collections::VecDeque;
use core::num::NonZeroU32;

use super::doubt::answers;
use super::egress::Reset;
use super::mapping::Refused;
use super::timers::Timer;
use super::{
    DropReason, Event, FallbackReason, Mode, Placement, ResetCause, ResetReason, State, Subflow,
    View,
};
use crate::segment::{DssMapping, Options, Segment};
use crate::seq::{DataSeq, StreamOffset};
use crate::time::Instant;

/// So many mappings with payload missing are kept, which is as many as there may be gaps.
pub(super) const LIMIT: usize = super::sack::MAX_RANGES;

/// Names a mapping whose payload is being summed, on one subflow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MappingId(NonZeroU32);

/// What became of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Verdict {
    /// Its payload is right, all of it, or needs no proof any more: what is held of it is part of
    /// the stream.
    Proved(MappingId),
    /// Its payload is wrong. The events tell whether the subflow ends by it; if not, what is held
    /// of this mapping and of all others becomes part of the stream with [`Event::Fallback`].
    Failed(MappingId),
}

/// What the checksum of a DSS option covers besides the payload (RFC 8684, figure 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) data_seq: DataSeq,
    pub(super) subflow_seq: u32,
    pub(super) length: u16,
    pub(super) checksum: u16,
}

impl Header {
    /// Whether a mapping with this sum of its payload is right.
    fn proves(&self, payload: u64) -> bool {
        let header = pseudo_header_sum(self.data_seq, self.subflow_seq, self.length);
        fold(payload + header + u64::from(self.checksum)) == 0xffff
    }

    /// Whether a mapping without payload is right.
    pub(super) fn proves_nothing_else(&self) -> bool {
        self.proves(0)
    }
}

/// The checksum of a mapping that has no payload: a DATA_FIN.
pub(super) fn checksum_of_data_fin(data_seq: DataSeq) -> u16 {
    !fold(pseudo_header_sum(data_seq, 0, 1))
}

fn pseudo_header_sum(data_seq: DataSeq, subflow_seq: u32, length: u16) -> u64 {
    let words = |n: u64| (n >> 48) + (n >> 32 & 0xffff) + (n >> 16 & 0xffff) + (n & 0xffff);
    words(data_seq.0) + words(u64::from(subflow_seq)) + u64::from(length)
}

/// Adds the carries back in.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A mapping of which payload is missing, or not summed yet.
#[derive(Debug)]
pub(super) struct Open {
    id: MappingId,
    /// Payload positions.
    start: u64,
    end: u64,
    /// The place of `start` in the stream.
    to: StreamOffset,
    header: Header,
    /// Where the stream ends, if the mapping says so.
    data_fin: Option<StreamOffset>,
    /// Octets that were summed.
    summed: u64,
    sum: u64,
}

/// Where a checksum failed, until the peer agrees to plain TCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    id: MappingId,
    /// Payload positions from here on have no mapping: they are the stream's.
    pub(super) start: u64,
    /// What MP_FAIL says: the data sequence number of the start.
    pub(super) data_seq: u64,
    /// The TSval with which it was first sent, which nothing before had.
    told: Option<u32>,
}

/// The mappings being summed.
#[derive(Debug, Default)]
pub(super) struct Sums {
    open: VecDeque<Open>,
    /// The mapping proved last: the first of a connection may be announced again as a longer one.
    last: Option<Open>,
    /// The number of identifiers given out.
    ids: u32,
    pub(super) failed: Option<Failed>,
    /// The peer has agreed to plain TCP after a failure. All payload is the stream's, but the peer speaks
    /// MPTCP until it has new data.
    pub(super) agreed: bool,
}

/// A mapping as announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) to: StreamOffset,
    pub(super) header: Header,
    pub(super) data_fin: Option<StreamOffset>,
}

impl Sums {
    fn next_id(&mut self) -> MappingId {
        self.ids = self.ids.wrapping_add(1);
        MappingId(NonZeroU32::new(self.ids).unwrap_or(NonZeroU32::MIN))
    }

    /// Records an announcement; `received` is the next position expected. Positions are mapped once,
    /// but for a mapping that grows: data is appended to the first of a connection, which waits to
    /// be sent again, and MP_CAPABLE has the new length then.
    pub(super) fn announce(&mut self, new: Announced, received: u64) -> Result<(), Refused> {
        let overlaps = |known: &Open| known.start < new.end && new.start < known.end;
        let grown = self.last.take_if(|last| overlaps(last) && new.end > last.end);
        if let Some(last) = grown {
            let at = self.open.partition_point(|known| known.start < last.start);
            self.open.insert(at, last);
        } else if self.last.as_ref().is_some_and(overlaps) {
            return Err(Refused::Conflict);
        }
        // They are in order and apart.
        let at = self.open.partition_point(|known| known.end <= new.start);
        let Some(first) = self.open.get(at).filter(|known| overlaps(known)) else {
            return self.add(at, new, received);
        };
        let alone = self.open.get(at + 1).is_none_or(|known| !overlaps(known));
        let same_start = first.start == new.start && first.to == new.to;
        let other =
            first.end == new.end && first.data_fin == new.data_fin && first.header != new.header;
        if !same_start || !alone || other {
            return Err(Refused::Conflict);
        }
        // Sent again, the last mapping of a stream may come with the DATA_FIN that it lacked.
        let more = |known: &&mut Open| {
            known.end < new.end || (known.end == new.end && new.data_fin.is_some())
        };
        if let Some(first) = self.open.get_mut(at).filter(more) {
            first.end = new.end;
            first.header = new.header;
            first.data_fin = new.data_fin;
        }
        Ok(())
    }

    /// Records an announcement that overlaps no other, at its place.
    fn add(&mut self, at: usize, new: Announced, received: u64) -> Result<(), Refused> {
        if new.end <= received {
            return Ok(());
        }
        if new.start < received {
            return Err(Refused::Conflict);
        }
        // The next mapping is always taken, or those that are kept would never be complete.
        if self.open.len() >= LIMIT && new.start > received {
            return Err(Refused::Full);
        }
        let id = self.next_id();
        let Announced { start, end, to, header, data_fin } = new;
        let open = Open { id, start, end, to, header, data_fin, summed: 0, sum: 0 };
        self.open.insert(at, open);
        Ok(())
    }

    /// The mapping of `position`, and where it ends.
    pub(super) fn find(&self, position: u64) -> Option<(MappingId, u64)> {
        if let Some(failed) = self.failed.filter(|failed| failed.start <= position) {
            return Some((failed.id, u64::MAX));
        }
        let at = self.open.partition_point(|known| known.end <= position);
        let known = self.open.get(at).filter(|known| known.start <= position)?;
        Some((known.id, known.end))
    }
}

impl Subflow {
    /// Takes the sum of a placement's bytes: the ones'-complement sum of their 16-bit big-endian
    /// words, a last odd byte being the high one of a word, not complemented.
    ///
    /// To be called for every placement that has a mapping, once, whenever the bytes are summed;
    /// events are to be polled afterwards. It tells what becomes of the mapping, if that was its
    /// last piece.
    pub fn on_payload_sum(
        &mut self,
        now: Instant,
        placement: &Placement,
        sum: u32,
        view: &View,
    ) -> Option<Verdict> {
        let id = placement.mapping?;
        if !self.is_mptcp() || self.sums.agreed {
            return Some(Verdict::Proved(id));
        }
        let at = self.sums.open.iter().position(|open| open.id == id)?;
        let open = &mut self.sums.open[at];
        let sum = u64::from(sum);
        let odd = placement.to.0.wrapping_sub(open.to.0) % 2 == 1;
        open.sum += if odd { u64::from(fold(sum).swap_bytes()) } else { sum };
        open.summed += u64::from(placement.len);
        if open.summed < open.end - open.start {
            return None;
        }
        let open = self.sums.open.remove(at)?;
        if self.sums.failed.is_some_and(|failed| open.start >= failed.start) {
            return None;
        }
        if !open.header.proves(open.sum) {
            self.on_checksum_failed(now, id, open.start, open.to, view);
            return Some(Verdict::Failed(id));
        }
        if let Some(at) = open.data_fin {
            self.take_data_fin(at, view);
        }
        self.sums.last = Some(open);
        Some(Verdict::Proved(id))
    }

    /// Whether payload has to be proved by checksums.
    pub(super) const fn uses_checksums(&self) -> bool {
        matches!(&self.mode, Mode::Mptcp(mptcp) if mptcp.checksums) && !self.sums.agreed
    }

    /// The peer answered our MP_FAIL. What is held is part of the stream, as is all that comes.
    pub(super) fn agree_to_fall_back(&mut self) {
        self.sums = Sums { agreed: true, ..Sums::default() };
        self.signals = None;
        self.timers.stop(Timer::Fail);
        self.timers.stop(Timer::Signal);
        self.events.push_back(Event::Fallback(FallbackReason::ChecksumFailed));
        self.ack.newest();
    }

    /// What MP_FAIL on an acknowledgement says, as long as the peer has not answered.
    pub(super) fn failed_seq(&mut self, now: Instant, options: &mut Options) -> Option<u64> {
        let failed = self.sums.failed.as_mut()?;
        if failed.told.is_none()
            && let Some(stamps) = &mut self.stamps
        {
            stamps.offset = stamps.offset.wrapping_add(1);
            failed.told = Some(stamps.clock(now));
            options.timestamps = self.timestamps(now);
        }
        self.sums.failed.map(|failed| failed.data_seq)
    }

    /// Whether the DATA_FIN at `at`, on a segment of its own, is an answer to MP_FAIL. Linux has no room
    /// for MP_FAIL beside a DATA_FIN, and no new data for an infinite mapping any more. But it has heard
    /// it, all that it sent is here, and as much as it says: the stream is what came.
    pub(super) fn is_last_after_failure(&self, segment: &Segment, at: StreamOffset) -> bool {
        let told = self.sums.failed.and_then(|failed| failed.told);
        told.is_some_and(|stamp| answers(segment, stamp))
            && segment.payload_len == 0
            && segment.seq == self.receive.next
            && self.reorder.held.is_empty()
            && at.0 == self.receive.received
    }

    /// Takes a mapping from a peer that has agreed to plain TCP. The payload has its place without it;
    /// what matters is whether it says otherwise. Octets that a middlebox added or took away change nothing
    /// of that, since both numbers are the peer's own.
    pub(super) fn take_agreed_mapping(
        &mut self,
        mapping: &DssMapping,
        data_fin: bool,
        to: StreamOffset,
        view: &View,
    ) -> Result<(), DropReason> {
        let length = u64::from(mapping.length);
        if mapping.length == 0 {
            return self.take_infinite_mapping(mapping, to, view);
        }
        if data_fin {
            self.take_data_fin(to + (length - 1), view);
        }
        // The DATA_FIN alone is no octet of the subflow.
        let alone = data_fin && length == 1;
        if !alone && to.0 != self.position_of_ssn(mapping.subflow_seq) {
            // It sends data again as new of the subflow, and will take that for a part of the stream as
            // soon as it has fallen back.
            return self.violate(ResetReason::Middlebox, DropReason::MappingConflict);
        }
        Ok(())
    }

    /// A DATA_FIN without payload has a checksum too. Says whether it is right.
    pub(super) fn check_bare_data_fin(
        &mut self,
        now: Instant,
        header: Option<Header>,
        at: StreamOffset,
        view: &View,
    ) -> bool {
        let right = header.is_none_or(|header| header.proves_nothing_else());
        if !right {
            let id = self.sums.next_id();
            let start = self.reorder.held.last().map_or(self.receive.received, |last| last.end);
            self.on_checksum_failed(now, id, start, at, view);
        }
        right
    }

    /// The mapping that begins at `start` is not what the peer sent.
    fn on_checksum_failed(
        &mut self,
        now: Instant,
        id: MappingId,
        start: u64,
        to: StreamOffset,
        view: &View,
    ) {
        let Mode::Mptcp(mptcp) = self.mode else { return };
        if self.state == State::Closed {
            return;
        }
        self.statistics.checksum_failures += 1;
        let data_seq = mptcp.remote_seq(to).0;
        // "If it is known that all unacknowledged data in flight is contiguous [...], an infinite
        // mapping can be applied to the subflow without the need to close it first."
        let falling_back = self.may_fall_back(view);
        self.events.push_back(Event::ChecksumFailed { at: to, falling_back });
        if falling_back {
            self.sums.failed = Some(Failed { id, start, data_seq, told: None });
            self.ack.now();
            self.timers.start(Timer::Fail, now + self.config.fail_timeout);
        } else {
            // "The affected subflow must be immediately closed with a RST that includes an MP_FAIL
            // option", and the reason is that of a middlebox (section 3.6).
            self.pending.reset = Some(Reset {
                fast_close: None,
                reason: Some(ResetReason::Middlebox),
                fail: Some(data_seq),
            });
            self.move_to_reset(ResetCause::Violation(ResetReason::Middlebox));
        }
    }

    /// The peer did not answer our MP_FAIL.
    pub(super) fn on_fail_timeout(&mut self) {
        if self.sums.failed.is_some() {
            let _ = self.violate::<()>(ResetReason::Middlebox, DropReason::Unmapped);
        }
    }
}
