//! A fallback to plain TCP that the peer may not have made.
//!
//! Payload without a mapping in the first window, after a DATA_ACK of ours, has two causes that look
//! alike. Either options get lost on the way to the peer: then it saw data acknowledged without a
//! DATA_ACK, fell back (RFC 8684, section 3.7), and every octet is the next of the stream. Or they get
//! lost on the way to us only, from here on: then it had the DATA_ACK and speaks MPTCP, and what it may
//! send as new of the subflow without one (data that was not acknowledged at the data level, an old octet
//! that probes a closed window) is no part of the stream at all.
//!
//! So the payload is taken as in plain TCP, while acknowledgements say what both kinds of peer need. A
//! DATA_ACK in step with the TCP acknowledgement leaves one that speaks MPTCP nothing to send again. And
//! MP_FAIL asks: who hears it and speaks MPTCP "MUST also respond with an MP_FAIL", which comes without its
//! option where that gets lost, as an acknowledgement of nothing that nobody else would send. A peer that
//! fell back hears neither. One that shows itself is beyond a fallback: its data-level numbers cannot be
//! told any more, so the subflow "SHOULD be treated as broken and closed with a RST".

use super::egress::Reset;
use super::{DropReason, Heard, Mptcp, ResetCause, ResetReason, Subflow, View};
use crate::segment::{Dss, DssNumber, Flags, Key, MptcpOptions, Options, Segment};
use crate::seq::StreamOffset;
use crate::time::Instant;

/// So many acknowledgements ask. One that is heard is enough, and that is so of the first as a rule.
const QUESTIONS: u8 = 16;

/// What is known of a peer that may have fallen back.
#[derive(Debug)]
pub(super) struct Doubt {
    mptcp: Mptcp,
    /// The TSval of the first DATA_ACK. A peer that fell back sends no options in answer to it or later,
    /// though some of before may still come.
    first: u32,
    /// What MP_FAIL says: the data sequence number where the mappings ended.
    data_seq: u64,
    /// MP_FAIL goes on so many acknowledgements more.
    questions: u8,
    /// When it last did, and with what TSval it first did.
    asked: Option<(Instant, u32)>,
    /// The payload position at which the peer was last told of a closed window.
    closed_at: Option<u64>,
}

impl Doubt {
    pub(super) const fn new(mptcp: Mptcp, first: u32, data_seq: u64) -> Self {
        Self { mptcp, first, data_seq, questions: QUESTIONS, asked: None, closed_at: None }
    }

    pub(super) const fn remote_key(&self) -> Key {
        self.mptcp.remote
    }

    /// Whether a segment has to be looked at closely, beyond what every one is.
    pub(super) fn concerns(&self, segment: &Segment) -> bool {
        segment.payload_len <= 1 || segment.options.mptcp != MptcpOptions::default()
    }
}

/// Whether the segment was sent after one of ours with this TSval had come.
pub(super) fn answers(segment: &Segment, stamp: u32) -> bool {
    let theirs = segment.options.timestamps;
    theirs.is_some_and(|theirs| theirs.echo.wrapping_sub(stamp) as i32 >= 0)
}

impl Subflow {
    /// Whether a peer that fell back by what it did not find on our first DATA_ACK may have sent this.
    pub(super) fn may_come_after_fallback(&self, segment: &Segment) -> bool {
        let Heard::Perhaps(first) = self.heard else { return false };
        segment.options.mptcp == MptcpOptions::default() && answers(segment, first)
    }

    /// What an acknowledgement says to a peer in doubt.
    pub(super) fn add_doubt(&mut self, now: Instant, options: &mut Options, view: &View) {
        let closing = self.close.fin_sent || self.close.fin_due || self.receive.fin_taken;
        // There is no room beside SACK blocks, which are for now; the question can wait.
        let room = self.reorder.is_quiet() || !self.reorder.sack;
        let may_ask = room && !closing;
        let Some(doubt) = &mut self.doubt else { return };
        // What TCP acknowledges, no more and no less, wherever the reader is.
        let taken = StreamOffset(self.receive.received) + u64::from(view.remote_complete());
        let ack = doubt.mptcp.remote_seq(taken);
        options.mptcp.dss =
            Some(Dss { data_fin: false, ack: Some(DssNumber::Long(ack.0)), mapping: None });
        if may_ask
            && doubt.questions > 0
            && let Some(ours) = options.timestamps
        {
            doubt.questions -= 1;
            doubt.asked = Some((now, doubt.asked.map_or(ours.value, |(_, first)| first)));
            options.mptcp.fail = Some(doubt.data_seq);
        }
    }

    /// The window that goes with an acknowledgement leaves no room.
    pub(super) fn note_closed_window(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.closed_at = Some(self.receive.received);
        }
    }

    /// Looks for a sign of what the peer is, in a valid segment.
    pub(super) fn resolve_doubt(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
    ) -> Result<(), DropReason> {
        let Some(doubt) = &self.doubt else { return Ok(()) };
        let options = &segment.options.mptcp;
        // One for data says nothing on a segment without any, and a DATA_FIN alone has no place.
        let mapping = options.dss.as_ref().filter(|dss| !dss.data_fin).and_then(|dss| {
            dss.mapping.filter(|mapping| segment.payload_len > 0 || mapping.length == 0)
        });
        let shift = mapping.map(|mapping| {
            let to = doubt.mptcp.stream_offset(mapping.data_seq, view.edge)?;
            Some(to.0.wrapping_sub(self.position_of_ssn(mapping.subflow_seq)))
        });
        match shift {
            // It fell back, and says so.
            Some(Some(0)) if mapping.is_some_and(|mapping| mapping.length == 0) => {
                self.doubt = None;
                return Ok(());
            }
            Some(Some(0)) | None => {}
            // This is no stream without mappings.
            Some(_) => return self.end_in_doubt(),
        }
        if options.fail.is_some() {
            // It agrees to fall back, and will do so with its next data. Until then it needs DATA_ACKs.
            if let Some(doubt) = &mut self.doubt {
                doubt.questions = 0;
                doubt.asked = None;
            }
            return Ok(());
        }
        // MP_CAPABLE comes from one that had no DATA_ACK yet.
        let speaks = *options != MptcpOptions::default() && options.capable.is_none();
        if speaks && answers(segment, doubt.first) {
            return self.end_in_doubt();
        }
        if self.answers_question(now, segment, doubt) || self.probes_with_old_data(segment, doubt) {
            return self.end_in_doubt();
        }
        Ok(())
    }

    /// Whether this is an acknowledgement of nothing that only MP_FAIL can have been the reason for.
    fn answers_question(&self, now: Instant, segment: &Segment, doubt: &Doubt) -> bool {
        let Some((asked, stamp)) = doubt.asked else { return false };
        let bare = segment.payload_len == 0
            && segment.flags.0 == Flags::ACK.0
            && segment.seq == self.receive.next
            && segment.ack == self.send.unacked;
        // An end or a probe of ours may be the reason too; and who answers so late that it gave no
        // answer may be one whom a stranger challenged (RFC 5961).
        let other = self.close.fin_sent
            || self.receive.fin_taken
            || self.probes > 0
            || self.checked_since.is_some();
        let in_time = now.saturating_since(asked) <= self.config.fail_timeout;
        bare && !other && in_time && answers(segment, stamp)
    }

    /// Whether this is what Linux probes a closed window with while it speaks MPTCP: the last octet of the
    /// stream once more, as new of the subflow.
    fn probes_with_old_data(&self, segment: &Segment, doubt: &Doubt) -> bool {
        let at = u64::try_from(self.position_of(segment)).ok();
        segment.payload_len == 1 && at.is_some() && at == doubt.closed_at
    }

    /// The peer speaks MPTCP. It is told that it is all over, as a connection, since there is no way back
    /// from plain TCP either.
    fn end_in_doubt(&mut self) -> Result<(), DropReason> {
        let fast_close = self.doubt.as_ref().map(|doubt| doubt.remote_key());
        let reason = Some(ResetReason::Middlebox);
        self.pending.reset = Some(Reset { fast_close, reason, fail: None });
        self.move_to_reset(ResetCause::Violation(ResetReason::Middlebox));
        Err(DropReason::Unmapped)
    }
}
