//! What the MPTCP options of a valid segment mean: DSS, MP_CAPABLE with data, MP_FASTCLOSE and
//! MP_FAIL (RFC 8684, sections 3.3, 3.1, 3.5 and 3.7).

use super::mapping::{Mapping, Refused};
use super::sums::{Announced, Header, Sums};
use super::timers::Timer;
use super::{
    DropReason, Event, FallbackReason, Heard, Mode, Mptcp, ResetCause, ResetReason, Subflow, View,
};
use crate::connection::LocalKey;
use crate::crypto::{key_to_token_and_idsn, keys_equal};
use crate::segment::{Dss, DssMapping, DssNumber, Key, MpCapableBody, Segment};
use crate::seq::{DataSeq, StreamOffset};
use crate::time::Instant;

/// No stream is longer: what would lie beyond is a number before the stream's first octet.
const LONGEST_STREAM: u64 = 1 << 62;

impl Mptcp {
    pub(super) fn new(local: LocalKey, remote: Key, checksums: bool) -> Self {
        let (_, idsn) = key_to_token_and_idsn(remote);
        Self { local, remote, remote_first: idsn + 1, checksums }
    }

    /// The place in the peer's stream that a data sequence number names. The short form means the
    /// number nearest to `near`, which has to be the in-order edge: RFC 8684, section 3.3.1, has
    /// it extended so that out-of-order packets cause no wrap. `None` if it lies before the first
    /// octet, or absurdly far ahead.
    #[inline]
    pub(super) fn stream_offset(
        &self,
        number: DssNumber,
        near: StreamOffset,
    ) -> Option<StreamOffset> {
        let sequence = match number {
            DssNumber::Long(number) => DataSeq(number),
            DssNumber::Short(low) => (self.remote_first + near.0).nearest(low),
        };
        let offset = sequence.0.wrapping_sub(self.remote_first.0);
        (offset < LONGEST_STREAM).then_some(StreamOffset(offset))
    }

    /// The data sequence number of a place in the peer's stream.
    pub(super) fn remote_seq(&self, offset: StreamOffset) -> DataSeq {
        self.remote_first + offset.0
    }

    /// The data sequence number of a place in our stream.
    pub(super) fn local_seq(&self, offset: StreamOffset) -> DataSeq {
        self.local.idsn + 1 + offset.0
    }
}

impl Subflow {
    /// The position of a relative subflow sequence number (the SYN has 0), near the next expected.
    #[inline]
    pub(super) fn position_of_ssn(&self, ssn: u32) -> u64 {
        let received = self.receive.received;
        let ahead = ssn.wrapping_sub(1).wrapping_sub(received as u32) as i32;
        received.wrapping_add(i64::from(ahead) as u64)
    }

    /// Whether the segment ends the connection: MP_FASTCLOSE with our key. With another it is
    /// ignored.
    pub(super) fn is_fast_close(&self, segment: &Segment) -> bool {
        match (&self.mode, segment.options.mptcp.fast_close) {
            (Mode::Mptcp(mptcp), Some(key)) => keys_equal(key, mptcp.local.key),
            _ => false,
        }
    }

    /// Takes in what the options say; the payload comes later.
    pub(super) fn take_mptcp_options(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
    ) -> Result<(), DropReason> {
        let Mode::Mptcp(mptcp) = self.mode else { return self.resolve_doubt(now, segment, view) };
        let options = &segment.options.mptcp;
        if self.is_fast_close(segment) {
            self.on_fast_close(false);
            return Ok(());
        }
        if options.fail.is_some() {
            self.on_peer_failed(&mptcp, view);
            if !self.sums.agreed {
                return Ok(());
            }
        }
        self.note_heard(segment);
        self.take_signals(&mptcp, segment);
        self.answer_third_ack(segment);
        if let Some(capable) = &options.capable
            && !self.sums.agreed
        {
            // "The data parameters in an MP_CAPABLE are semantically equivalent to those in a DSS
            // option": it maps the first octets of the subflow to those of the stream.
            if let MpCapableBody::Ack { data: Some(data), .. } = capable.body {
                self.confirm();
                let header = self.checked(data.checksum, |checksum| Header {
                    data_seq: mptcp.remote_first,
                    subflow_seq: 1,
                    length: data.length,
                    checksum,
                })?;
                let mapping = Mapping { start: 0, end: u64::from(data.length), shift: 0 };
                self.record(mapping, header, None)?;
            }
        }
        match &options.dss {
            Some(dss) => {
                self.confirm();
                self.take_dss(now, &mptcp, dss, segment, view)
            }
            None => Ok(()),
        }
    }

    /// "If a checksum is present but its use had not been negotiated in the MP_CAPABLE handshake,
    /// the receiver MUST close the subflow with a RST [...]. If a checksum is not present when its
    /// use has been negotiated, the receiver MUST close the subflow with a RST" (RFC 8684, 3.3).
    fn checked(
        &mut self,
        checksum: Option<u16>,
        header: impl FnOnce(u16) -> Header,
    ) -> Result<Option<Header>, DropReason> {
        if checksum.is_some() != self.uses_checksums() {
            return self.violate(ResetReason::MptcpSpecific, DropReason::UnexpectedChecksum);
        }
        Ok(checksum.map(header))
    }

    fn take_dss(
        &mut self,
        now: Instant,
        mptcp: &Mptcp,
        dss: &Dss,
        segment: &Segment,
        view: &View,
    ) -> Result<(), DropReason> {
        if let Some(ack) = dss.ack {
            self.take_data_ack(mptcp, ack, view);
        }
        // "The mapping [...] MUST apply to some or all of the subflow sequence space in the TCP
        // segment that carries the option": one for data means nothing on a segment without any.
        let idle =
            |mapping: &&DssMapping| segment.payload_len == 0 && mapping.length > 0 && !dss.data_fin;
        let Some(mapping) = dss.mapping.as_ref().filter(|mapping| !idle(mapping)) else {
            return Ok(());
        };
        let Some(to) = mptcp.stream_offset(mapping.data_seq, view.edge) else {
            return self.violate(ResetReason::MptcpSpecific, DropReason::MappingConflict);
        };
        if self.sums.agreed {
            return self.take_agreed_mapping(mapping, dss.data_fin, to, view);
        }
        if mapping.length == 0 {
            return self.take_infinite_mapping(mapping, to, view);
        }
        let header = self.checked(mapping.checksum, |checksum| Header {
            data_seq: mptcp.remote_seq(to),
            subflow_seq: mapping.subflow_seq,
            length: mapping.length,
            checksum,
        })?;
        let mut length = u64::from(mapping.length);
        let start = self.position_of_ssn(mapping.subflow_seq);
        if self.sums.failed.is_some_and(|failed| dss.data_fin || start >= failed.start) {
            // What the peer says of subflow sequence numbers is not to be trusted any more.
            let alone = dss.data_fin && mapping.length == 1;
            if alone && self.may_fall_back(view) && self.is_last_after_failure(segment, to) {
                self.agree_to_fall_back();
                self.take_data_fin(to, view);
            }
            return Ok(());
        }
        let mut data_fin = None;
        if dss.data_fin {
            // The DATA_FIN is the last octet of the mapping, and none of the subflow.
            length -= 1;
            data_fin = Some(to + length);
        }
        if segment.payload_len == 0 || length == 0 {
            // The payload of such a mapping, if it has any, came before.
            let bare = if length == 0 { header } else { None };
            if let Some(at) = data_fin
                && self.check_bare_data_fin(now, bare, at, view)
            {
                self.take_data_fin(at, view);
            }
            return Ok(());
        }
        if let (Some(at), None) = (data_fin, header) {
            self.take_data_fin(at, view);
        }
        let shift = to.0.wrapping_sub(start);
        self.record(Mapping { start, end: start.wrapping_add(length), shift }, header, data_fin)
    }

    /// Records a mapping; with checksums, also what has to be proved of it.
    fn record(
        &mut self,
        mapping: Mapping,
        header: Option<Header>,
        data_fin: Option<StreamOffset>,
    ) -> Result<(), DropReason> {
        let Mapping { start, end, shift } = mapping;
        // What ends before position 0, or begins there after wrapping, is all in the past.
        if end < start || start >= LONGEST_STREAM {
            return Ok(());
        }
        let received = self.receive.received;
        let summed = match header {
            // A copy of what is here, and being summed or proved.
            Some(_) if self.reorder.held.covers(start.max(received)..end) => Ok(()),
            Some(header) => {
                let to = StreamOffset(start.wrapping_add(shift));
                self.sums.announce(Announced { start, end, to, header, data_fin }, received)
            }
            None => Ok(()),
        };
        match summed.and_then(|()| self.mappings.announce(mapping, received)) {
            Ok(()) => Ok(()),
            // "A sender MUST NOT change this mapping after it has been declared."
            Err(Refused::Conflict) => {
                self.violate(ResetReason::MptcpSpecific, DropReason::MappingConflict)
            }
            Err(Refused::Full) => {
                self.ack.now();
                Err(DropReason::ReorderFull)
            }
        }
    }

    /// The peer's stream ends at `at`. The first such signal stands; one that contradicts what
    /// came, or what room there is, is ignored.
    pub(super) fn take_data_fin(&mut self, at: StreamOffset, view: &View) {
        self.ack.now();
        let known = view.remote_fin.or(self.close.remote_data_fin);
        let possible = at >= view.edge && at <= view.right_edge;
        if known.is_none() && possible {
            self.close.remote_data_fin = Some(at);
            self.events.push_back(Event::DataFin { at });
        }
    }

    /// The peer acknowledges at the data level. Of ours there is only the DATA_FIN to acknowledge,
    /// and what we did not send cannot be.
    fn take_data_ack(&mut self, mptcp: &Mptcp, ack: DssNumber, view: &View) {
        let Some(fin) = view.local_fin.filter(|_| self.close.awaits_data_ack(view)) else {
            return;
        };
        let behind_fin = mptcp.local_seq(fin) + 1;
        let acknowledged = match ack {
            DssNumber::Long(number) => DataSeq(number) == behind_fin,
            DssNumber::Short(low) => low == behind_fin.low(),
        };
        if acknowledged {
            self.on_local_data_fin_acked();
        }
    }

    /// RFC 8684, section 3.3.1: with length 0, "an infinite mapping can be used to fall back to
    /// regular TCP by mapping the subflow-level data to the connection-level data for the remainder
    /// of the connection".
    pub(super) fn take_infinite_mapping(
        &mut self,
        mapping: &DssMapping,
        to: StreamOffset,
        view: &View,
    ) -> Result<(), DropReason> {
        let start = self.position_of_ssn(mapping.subflow_seq);
        let shift = to.0.wrapping_sub(start);
        // It may act retroactively, so it need not begin at the next octet.
        if shift != 0 || !self.may_fall_back(view) {
            return self.violate(ResetReason::MptcpSpecific, DropReason::MappingConflict);
        }
        self.fall_back(FallbackReason::InfiniteMapping);
        Ok(())
    }

    /// The peer saw a checksum of ours fail. "The receiver of an MP_FAIL MUST also respond with an
    /// MP_FAIL in the reverse direction and entirely revert to a regular TCP session."
    fn on_peer_failed(&mut self, mptcp: &Mptcp, view: &View) {
        if self.may_fall_back(view) {
            // It may answer more than one copy of ours.
            if self.sums.failed.is_some() {
                self.agree_to_fall_back();
            } else if !self.sums.agreed {
                self.pending.fail = Some(mptcp.remote_seq(view.edge).0);
                self.fall_back(FallbackReason::PeerFailed);
            }
        } else {
            let _ = self.violate::<()>(ResetReason::Middlebox, DropReason::Unmapped);
        }
    }

    /// Finds out whether our first DATA_ACK reached the peer.
    #[inline]
    fn note_heard(&mut self, segment: &Segment) {
        if self.heard == Heard::DataAck {
            return;
        }
        let options = &segment.options.mptcp;
        let mapped = options.capable.is_some() || options.dss.is_some_and(|d| d.mapping.is_some());
        let bare = segment.payload_len > 0 && !mapped;
        match self.heard {
            // "A sender MUST include a DSS option with Data Sequence Mapping in every segment until one
            // of the sent segments has been acknowledged with a DSS option containing a Data ACK." So
            // this one got lost on the way to us, while the way back may be better.
            Heard::Nothing { .. } if bare => self.heard = Heard::Nothing { bare },
            Heard::Perhaps(first) => {
                let theirs = segment.options.timestamps;
                let answers =
                    theirs.is_some_and(|theirs| theirs.echo.wrapping_sub(first) as i32 >= 0);
                if (answers && options.dss.is_some()) || (!answers && bare) {
                    self.heard = Heard::DataAck;
                }
            }
            Heard::Nothing { .. } | Heard::DataAck => {}
        }
    }

    /// RFC 8684, section 3.7: falling back takes a single subflow whose data is contiguous.
    pub(super) fn may_fall_back(&self, view: &View) -> bool {
        view.may_fall_back && !self.is_joined() && self.mappings.is_identity()
    }

    /// The connection goes on as plain TCP, which it [may](Self::may_fall_back).
    pub(super) fn fall_back(&mut self, reason: FallbackReason) {
        let Sums { failed, agreed, .. } = core::mem::take(&mut self.sums);
        let reason = if failed.is_some() { FallbackReason::ChecksumFailed } else { reason };
        self.mode = Mode::Plain;
        self.signals = None;
        self.timers.stop(Timer::Fail);
        self.timers.stop(Timer::Signal);
        // Otherwise that was told already.
        if !agreed {
            self.events.push_back(Event::Fallback(reason));
        }
        self.ack.now();
    }

    /// The peer broke the protocol: the subflow is reset, with MP_TCPRST where it speaks MPTCP.
    pub(super) fn violate<T>(
        &mut self,
        reset: ResetReason,
        reason: DropReason,
    ) -> Result<T, DropReason> {
        self.queue_reset(Some(reset));
        self.move_to_reset(ResetCause::Violation(reset));
        Err(reason)
    }
}
