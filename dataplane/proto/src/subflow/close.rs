//! How a subflow ends: FIN and DATA_FIN both ways, MP_FASTCLOSE, resets.
//!
//! In MPTCP the end of a stream is the DATA_FIN; the FIN ends only the subflow, and goes out when
//! the connection is closed at the data level (RFC 8684, section 3.3.3). In plain TCP, the FIN is
//! the end of the stream.

use super::egress::Reset;
use super::timers::Timer;
use super::{Abort, Event, FallbackReason, Mode, ResetCause, State, Subflow, View};
use crate::segment::Segment;
use crate::seq::StreamOffset;
use crate::time::Instant;

/// Where the endings stand.
#[derive(Debug, Default)]
pub(super) struct Close {
    /// Our FIN went out at least once.
    pub(super) fin_sent: bool,
    /// Our DATA_FIN went out on this subflow at least once.
    data_fin_sent: bool,
    /// Our DATA_FIN is acknowledged on this subflow.
    data_fin_acked: bool,
    /// A FIN, a DATA_FIN is to go out (again).
    pub(super) fin_due: bool,
    pub(super) data_fin_due: bool,
    /// Our stream is known to have ended.
    begun: bool,
    /// The peer's data ended before ours, so the first FIN is left to it for a while.
    peer_first: bool,
    /// That while is over.
    pub(super) grace_over: bool,
    /// The peer's FIN came without options, as after a fallback that nothing else has told of.
    bare_fin: bool,
    /// Where the peer's DATA_FIN said that its stream ends.
    pub(super) remote_data_fin: Option<StreamOffset>,
}

impl Close {
    /// Whether an acknowledgement of our DATA_FIN may come.
    #[inline]
    pub(super) const fn awaits_data_ack(&self, view: &View) -> bool {
        self.data_fin_sent && !self.data_fin_acked && !view.local_fin_acked
    }

    /// Nothing more is to be sent.
    pub(super) fn forget_due(&mut self) {
        self.fin_due = false;
        self.data_fin_due = false;
    }

    /// The timer fired: what is unacknowledged goes out again. Says whether anything is.
    pub(super) fn retransmit(&mut self, fin_unacked: bool, view: &View) -> bool {
        self.fin_due = fin_unacked;
        self.data_fin_due = self.awaits_data_ack(view);
        self.fin_due || self.data_fin_due
    }
}

impl Subflow {
    /// Whether our FIN is under way.
    pub(super) fn fin_unacked(&self) -> bool {
        self.close.fin_sent && self.send.unacked != self.send.next
    }

    /// Decides, before something is sent, whether a DATA_FIN or a FIN goes out for the first time.
    pub(super) fn plan_close(&mut self, now: Instant, view: &View) {
        if matches!(self.mode, Mode::Mptcp(_)) && view.local_fin.is_some() && !self.close.begun {
            self.close.begun = true;
            // Also where the whole end came about on other subflows before this one heard of it:
            // the peer's FIN is under way then, and one of ours would cross it.
            self.close.peer_first = view.remote_complete();
            self.close.data_fin_sent = !view.local_fin_acked;
            self.close.data_fin_due = self.close.data_fin_sent;
        }
        let open = matches!(self.state, State::Established | State::CloseWait);
        if open && !self.close.fin_sent && self.wants_fin(now, view) {
            self.close.fin_due = true;
        }
        if self.state == State::FinWait2
            && !self.timers.is_running(Timer::Linger)
            && (self.is_mptcp() || view.reader_gone)
        {
            self.timers.start(Timer::Linger, now + self.config.fin_wait_2);
        }
        if !self.awaits_data_fin(view) {
            self.timers.stop(Timer::DataFin);
        } else if !self.timers.is_running(Timer::DataFin) {
            self.timers.start(Timer::DataFin, now + self.config.fin_wait_2);
        }
    }

    /// Whether only the peer's end of the stream is missing, for nobody: what FIN-WAIT-2 is in plain
    /// TCP. The subflow itself is open all the while, so no state of its own ends it.
    pub(super) fn awaits_data_fin(&self, view: &View) -> bool {
        let done_here = view.reader_gone && view.local_fin_acked;
        self.state == State::Established && self.is_mptcp() && done_here && !view.remote_complete()
    }

    fn wants_fin(&mut self, now: Instant, view: &View) -> bool {
        if !self.is_mptcp() {
            return view.local_fin.is_some();
        }
        let closed = view.remote_complete() && view.local_fin_acked;
        if self.state == State::CloseWait {
            // The peer sends nothing more here. Unless its stream is complete and ours still open,
            // nothing is left to do on this subflow.
            return closed || !view.remote_complete() || view.local_fin.is_some();
        }
        if !closed {
            return false;
        }
        if self.close.peer_first && !self.close.grace_over {
            if !self.timers.is_running(Timer::Linger) {
                self.timers.start(Timer::Linger, now + self.config.fin_grace);
            }
            return false;
        }
        true
    }

    /// The peer acknowledged our FIN.
    pub(super) fn on_fin_acked(&mut self, now: Instant) {
        self.close.fin_due = false;
        if !self.is_mptcp() {
            self.events.push_back(Event::LocalFinAcked);
        }
        self.move_to_fin_acked(now);
    }

    /// The peer acknowledged our DATA_FIN.
    pub(super) fn on_local_data_fin_acked(&mut self) {
        self.close.data_fin_acked = true;
        self.close.data_fin_due = false;
        if !self.fin_unacked() {
            self.timers.stop(Timer::Retransmit);
        }
        self.round_trip.backoff = 0;
        self.events.push_back(Event::LocalFinAcked);
    }

    /// Notes where the peer's FIN is; it counts once everything before it is here.
    pub(super) fn note_fin(&mut self, segment: &Segment) {
        let at = self.position_of(segment) + i64::from(segment.payload_len);
        let Ok(at) = u64::try_from(at) else { return };
        let held_to = self.reorder.held.last().map_or(0, |last| last.end);
        if self.receive.fin_at.is_none() && at >= self.receive.received.max(held_to) {
            self.receive.fin_at = Some(at);
            self.close.bare_fin = self.may_come_after_fallback(segment);
        }
    }

    /// Takes the peer's FIN if it is the next thing expected.
    pub(super) fn take_fin_in_order(&mut self, now: Instant, view: &View) {
        let next_is_fin = self.receive.fin_at == Some(self.receive.received);
        if !next_is_fin || self.receive.fin_taken || self.state == State::Closed {
            return;
        }
        // A peer that fell back ends its stream so, if it had nothing more to send than its first flight;
        // and one that speaks MPTCP closes its only subflow after its DATA_FIN was acknowledged.
        let ended = view.remote_fin.or(self.close.remote_data_fin).is_some();
        if self.close.bare_fin && self.is_mptcp() && !ended {
            self.fall_back_early(view);
        }
        if self.sums.agreed && !ended {
            self.fall_back(FallbackReason::ChecksumFailed);
        }
        self.receive.fin_taken = true;
        self.receive.next += 1;
        self.ack.now();
        match self.mode {
            Mode::Plain => {
                let at = StreamOffset(self.receive.received);
                self.events.push_back(Event::StreamEnd { at });
            }
            Mode::Mptcp(_) | Mode::Offered { .. } => self.events.push_back(Event::SubflowFin),
        }
        self.move_to_fin_received(now);
    }

    /// MP_FASTCLOSE came, on a reset or else on an acknowledgement. "Upon receipt of a MP_FASTCLOSE
    /// with the valid key, Host B answers on the same subflow with a TCP RST" (RFC 8684, section 3.5).
    pub(super) fn on_fast_close(&mut self, on_reset: bool) {
        self.events.push_back(Event::FastClose);
        if !on_reset {
            self.queue_reset(None);
        }
        self.move_to_closed();
    }

    /// Ends the subflow, or with it the connection, by a reset.
    pub fn abort(&mut self, how: Abort) {
        match self.state {
            State::Closed => return,
            // Both sides are done; there is nobody to tell.
            State::TimeWait => return self.move_to_closed(),
            _ => {}
        }
        match how {
            Abort::Connection => {
                let in_doubt = self.doubt.as_ref().map(|doubt| doubt.remote_key());
                let fast_close = self.remote_key().or(in_doubt);
                self.pending.reset = Some(Reset { fast_close, reason: None, fail: None });
            }
            Abort::Subflow(reason) => self.queue_reset(Some(reason)),
        }
        self.move_to_reset(ResetCause::Local);
    }
}
