//! The states of a subflow, and every transition between them.

use super::timers::Timer;
use super::{Event, ResetCause, Subflow, TimeWait};
use crate::time::Instant;

/// The states of RFC 9293, section 3.3.2. LISTEN is not here: a listener has no subflow yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// We sent a SYN.
    SynSent,
    /// We answered a SYN, or are about to.
    SynReceived,
    /// Open both ways.
    Established,
    /// We sent a FIN.
    FinWait1,
    /// Our FIN is acknowledged.
    FinWait2,
    /// The peer sent its FIN.
    CloseWait,
    /// Both sent a FIN before seeing the other's acknowledged.
    Closing,
    /// The peer's FIN came first, and we sent ours.
    LastAck,
    /// Closed, but old segments may still come.
    TimeWait,
    /// Closed.
    Closed,
}

impl Subflow {
    /// Our SYN is acknowledged.
    pub(super) fn move_to_established(&mut self, now: Instant) {
        self.state = State::Established;
        self.timers.stop(Timer::Retransmit);
        self.restart_keepalive(now);
    }

    /// Our FIN goes out.
    pub(super) fn move_to_fin_sent(&mut self) {
        self.state = match self.state {
            State::CloseWait => State::LastAck,
            _ => State::FinWait1,
        };
        self.timers.stop(Timer::Linger);
    }

    /// Our FIN is acknowledged.
    pub(super) fn move_to_fin_acked(&mut self, now: Instant) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.timers.stop(Timer::Retransmit);
            }
            State::Closing => self.move_to_time_wait(now),
            State::LastAck => self.move_to_closed(),
            _ => {}
        }
    }

    /// The peer's FIN is in order.
    pub(super) fn move_to_fin_received(&mut self, now: Instant) {
        match self.state {
            State::Established => {
                self.state = State::CloseWait;
                self.timers.stop(Timer::Linger);
            }
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.move_to_time_wait(now),
            _ => {}
        }
    }

    fn move_to_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers.stop_all();
        self.timers.start(Timer::Linger, now + self.config.time_wait);
    }

    /// The end, whatever its cause: no timer runs any more, and nothing comes but a reset that is
    /// still to be sent.
    pub(super) fn move_to_closed(&mut self) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.timers.stop_all();
            self.reorder.held.clear();
            self.pending.forget_all_but_reset();
            self.close.forget_due();
            self.events.push_back(Event::Closed);
        }
    }

    /// The end by a reset, ours or the peer's.
    pub(super) fn move_to_reset(&mut self, cause: ResetCause) {
        if self.state != State::Closed {
            self.events.push_back(Event::Reset(cause));
            self.move_to_closed();
        }
    }

    /// Once in TIME-WAIT with nothing left to tell or send: the little that has to be kept, so
    /// that the subflow itself can be dropped. Events and segments have to be polled first.
    #[must_use]
    pub fn time_wait(&self) -> Option<TimeWait> {
        let expires = self.timers.deadline(Timer::Linger)?;
        let quiet = self.events.is_empty() && !self.ack.is_due();
        (self.state == State::TimeWait && quiet).then(|| TimeWait::of(self, expires))
    }
}
