//! Which segments are valid: the receive window, PAWS, and RFC 5961's challenges.

use core::time::Duration;

use super::{DropReason, ResetCause, State, Subflow, View};
use crate::segment::{Flags, Segment, WindowScale};
use crate::time::Instant;

/// RFC 7323, section 5.5: a TS.Recent older than 24 days says nothing any more.
const RECENT_TOO_OLD: Duration = Duration::from_secs(24 * 24 * 3600);

/// The largest window that RFC 7323 allows, and so the most that a valid segment can lie ahead.
const MAX_WINDOW: u64 = 1 << 30;

impl Subflow {
    /// Where `segment` starts, as a position; it may be before 0.
    pub(super) fn position_of(&self, segment: &Segment) -> i64 {
        let ahead = segment.seq.distance_from(self.receive.next);
        self.receive.position() as i64 + i64::from(ahead)
    }

    /// The position of the right edge of the window.
    ///
    /// RFC 7323, section 2.4: "the receiver MUST honor, as in window, any segment that would have
    /// been in window for any ACK sent by the receiver". Beyond that, the connection's window
    /// counts, which other subflows may have raised; whether a byte has room is decided by its
    /// place in the stream.
    fn right_position(&self, view: &View) -> u64 {
        let room = view.right_edge.0.saturating_sub(view.edge.0).min(MAX_WINDOW);
        self.receive.told_position.max(self.receive.position() + room)
    }

    /// PAWS (RFC 7323, section 5.3): a segment that is older than the newest is dropped and
    /// acknowledged.
    pub(super) fn check_timestamps(
        &mut self,
        now: Instant,
        segment: &Segment,
    ) -> Result<(), DropReason> {
        // A segment without the option is taken, although RFC 7323 (section 3.2) would rather
        // have it dropped: Linux leaves it out of an ADD_ADDR that would not fit with it.
        let (Some(stamps), Some(theirs)) = (&self.stamps, segment.options.timestamps) else {
            return Ok(());
        };
        let older = (theirs.value.wrapping_sub(stamps.recent) as i32) < 0;
        let stale = now.saturating_since(stamps.recent_at) > RECENT_TOO_OLD;
        if !older || stale || segment.flags.contains(Flags::RST) {
            return Ok(());
        }
        self.acknowledge_invalid(now, segment);
        Err(DropReason::Paws)
    }

    /// Takes TSval of an acceptable segment over (RFC 7323, section 4.3), and a round-trip sample
    /// from TSecr.
    pub(super) fn take_timestamps(&mut self, now: Instant, segment: &Segment) {
        let (Some(stamps), Some(theirs)) = (&mut self.stamps, segment.options.timestamps) else {
            return;
        };
        if !segment.seq.after(self.receive.acknowledged) {
            stamps.recent = theirs.value;
            stamps.recent_at = now;
        }
        // Data that echoes a new timestamp of ours was sent a round trip after it at the earliest.
        // Ticks of a millisecond cannot tell 0 from 1, so the handshake's sample, which has no
        // such grain, stands until they say more.
        if theirs.echo != stamps.echoed && segment.payload_len > 0 {
            stamps.echoed = theirs.echo;
            let ticks = stamps.clock(now).wrapping_sub(theirs.echo);
            let sample = Duration::from_millis(u64::from(ticks));
            let fine = self.round_trip.smoothed().is_some_and(|s| s < Duration::from_millis(2));
            let forged = sample > Duration::from_secs(60);
            let no_news = ticks <= 1 && fine;
            if !forged && !no_news {
                self.round_trip.sample(sample.max(Duration::from_millis(1)));
            }
        }
    }

    /// RFC 9293, section 3.10.7.4, first check; RFC 5961, section 3, for RST.
    pub(super) fn check_sequence(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
    ) -> Result<(), DropReason> {
        let start = self.position_of(segment);
        let end = start + i64::from(segment.seq_len());
        let next = self.receive.position() as i64;
        let right = self.right_position(view) as i64;
        if segment.flags.contains(Flags::RST) {
            return self.check_reset(now, start, right);
        }
        let empty = start == end;
        // An empty segment may be as old as our last acknowledgement: it was overtaken by data
        // that is not acknowledged yet. Sequence number RCV.NXT is always in order, so that the
        // acknowledgement of a probe against a zero window is seen.
        let oldest = next - i64::from(self.receive.next.distance_from(self.receive.acknowledged));
        let acceptable = if empty {
            start >= oldest && start <= right
        } else {
            end > next && (start < right || start == next)
        };
        if acceptable {
            return Ok(());
        }
        if segment.payload_len > 0 && end <= next {
            self.note_duplicate(start, end.min(self.receive.received as i64));
            return Err(DropReason::Duplicate);
        }
        self.acknowledge_invalid(now, segment);
        Err(DropReason::OutOfWindow)
    }

    /// RFC 5961, section 3.2: at the left edge a RST counts; elsewhere in the window it is
    /// challenged; outside it is dropped silently.
    fn check_reset(&mut self, now: Instant, start: i64, right: i64) -> Result<(), DropReason> {
        let next = self.receive.position() as i64;
        // A peer whose FIN we took may have sent its RST before it, as Linux does when data is
        // left unread: the RST then has the FIN's sequence number.
        let at_edge = start == next || (self.receive.fin_taken && start == next - 1);
        if at_edge {
            return Ok(());
        }
        if start > next && start < right {
            self.challenge(now);
            return Err(DropReason::RstChallenged);
        }
        Err(DropReason::OutOfWindow)
    }

    /// RFC 5961, section 4.2: "If the SYN bit is set, irrespective of the sequence number, TCP
    /// MUST send an ACK (also referred to as challenge ACK) to the remote peer".
    pub(super) fn check_syn(&mut self, now: Instant, segment: &Segment) -> Result<(), DropReason> {
        if !segment.flags.contains(Flags::SYN) {
            return Ok(());
        }
        self.challenge(now);
        Err(DropReason::SynChallenged)
    }

    /// RFC 5961, section 5.2: acceptable is SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT.
    pub(super) fn check_ack(&mut self, now: Instant, segment: &Segment) -> Result<(), DropReason> {
        if !segment.flags.contains(Flags::ACK) {
            return Err(DropReason::NoAck);
        }
        if self.state == State::SynReceived {
            // RFC 9293, section 3.10.7.4: "If the segment acknowledgment is not acceptable, form
            // a reset segment <SEQ=SEG.ACK><CTL=RST> and send it."
            if segment.ack != self.send.next {
                if self.may_challenge(now) {
                    self.pending.bad_ack = Some(segment.ack);
                }
                return Err(DropReason::AckUnsent);
            }
            return Ok(());
        }
        if segment.ack.after(self.send.next) {
            self.challenge(now);
            return Err(DropReason::AckUnsent);
        }
        let behind = self.send.unacked.distance_from(segment.ack);
        if i64::from(behind) > i64::from(self.send.max_window) {
            self.challenge(now);
            return Err(DropReason::AckTooOld);
        }
        Ok(())
    }

    /// Takes a valid acknowledgement over: SND.UNA and SND.WND (RFC 9293, section 3.10.7.4).
    pub(super) fn take_ack(&mut self, now: Instant, segment: &Segment) {
        if segment.ack.before(self.send.unacked) {
            return;
        }
        let newer = segment.seq.after(self.send.window_seq)
            || (segment.seq == self.send.window_seq && !segment.ack.before(self.send.window_ack));
        if newer {
            let shift = self.send.scale.map_or(0, WindowScale::shift);
            self.send.window = u32::from(segment.window) << shift;
            self.send.max_window = self.send.max_window.max(self.send.window);
            self.send.window_seq = segment.seq;
            self.send.window_ack = segment.ack;
        }
        if segment.ack.after(self.send.unacked) {
            self.send.unacked = segment.ack;
            self.round_trip.acknowledged(now);
            if self.close.fin_sent && self.send.unacked == self.send.next {
                self.on_fin_acked(now);
            }
        }
    }

    /// The peer reset the subflow, validly.
    pub(super) fn on_reset(&mut self, segment: &Segment) {
        let reason = segment.options.mptcp.reset.map(|reset| reset.reason);
        self.move_to_reset(ResetCause::Peer { reason });
    }

    /// A challenge ACK, unless so many went out in the last second (RFC 5961, section 7).
    pub(super) fn challenge(&mut self, now: Instant) {
        if self.may_challenge(now) {
            self.statistics.challenge_acks += 1;
            self.ack.now();
        }
    }

    fn may_challenge(&mut self, now: Instant) -> bool {
        let allowed = self.challenges.allow(now, self.config.challenge_acks_per_second);
        self.statistics.challenges_withheld += u64::from(!allowed);
        allowed
    }

    /// "If an incoming segment is not acceptable, an acknowledgment should be sent in reply"
    /// (RFC 9293, section 3.10.7.4). That answers keepalive and window probes too. Segments that
    /// take no sequence space may be such answers themselves; so that two confused ends do not
    /// answer each other for ever, these count as challenges.
    fn acknowledge_invalid(&mut self, now: Instant, segment: &Segment) {
        if segment.payload_len > 0 {
            self.ack.now();
        } else {
            self.challenge(now);
        }
    }
}
