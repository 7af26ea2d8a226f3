//! The timers of a subflow. The driver sees one deadline.

use core::time::Duration;

use super::{Abort, Event, ResetReason, State, Subflow, View};
use crate::config::RtoBounds;
use crate::time::Instant;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// SYN/ACK, FIN or DATA_FIN unanswered.
    Retransmit,
    /// An acknowledgement held back.
    DelayedAck,
    /// Idle time, and unanswered keepalive probes.
    Keepalive,
    /// The end of what the state waits for: the peer's FIN before ours, FIN-WAIT-2, TIME-WAIT.
    Linger,
    /// Signals to send (again).
    Signal,
    /// The answer to our MP_FAIL.
    Fail,
    /// The peer's DATA_FIN, once ours is acknowledged and nobody reads any more.
    DataFin,
}

const TIMERS: usize = 7;

/// So many probes check a path, at intervals that double; a lost one or two must not end it.
const PATH_PROBES: u8 = 4;

/// One deadline for each [`Timer`].
#[derive(Debug)]
pub(super) struct Timers([Instant; TIMERS]);

/// A deadline that never comes.
const NEVER: Instant = Instant(u64::MAX);

impl Default for Timers {
    fn default() -> Self {
        Self([NEVER; TIMERS])
    }
}

impl Timers {
    pub(super) fn start(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = NEVER;
    }

    pub(super) fn stop_all(&mut self) {
        self.0 = [NEVER; TIMERS];
    }

    pub(super) fn deadline(&self, timer: Timer) -> Option<Instant> {
        Some(self.0[timer as usize]).filter(|&at| at != NEVER)
    }

    pub(super) fn is_running(&self, timer: Timer) -> bool {
        self.0[timer as usize] != NEVER
    }

    /// Stops `timer` if it is due; says whether it was.
    fn expire(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.0[timer as usize] <= now;
        if due {
            self.stop(timer);
        }
        due
    }
}

/// Round-trip time and what follows from it (RFC 6298), and the receiver's own estimate.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// Smoothed, and its variation; `None` before the first sample.
    smoothed: Option<(Duration, Duration)>,
    /// So many times the timeout is to be doubled.
    pub(super) backoff: u8,
    /// When the segment whose acknowledgement gives a sample was sent, if one is awaited. By
    /// Karn's rule it is forgotten when the segment is sent again.
    pub(super) timed: Option<Instant>,
}

impl RoundTrip {
    /// Takes a sample (RFC 6298, section 2).
    pub(super) fn sample(&mut self, sample: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let off = smoothed.abs_diff(sample);
                ((smoothed * 7 + sample) / 8, (variation * 3 + off) / 4)
            }
        });
    }

    /// Takes the sample that an acknowledgement completes.
    pub(super) fn acknowledged(&mut self, now: Instant) {
        if let Some(sent) = self.timed.take() {
            self.sample(now.saturating_since(sent));
        }
        self.backoff = 0;
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed.map(|(smoothed, _)| smoothed)
    }

    /// The retransmission timeout, backoff included.
    pub(super) fn timeout(&self, bounds: &RtoBounds) -> Duration {
        let base = self.smoothed.map_or(bounds.initial, |(s, v)| s + v * 4);
        let doubled = base.max(bounds.min).saturating_mul(1 << self.backoff.min(16));
        doubled.min(bounds.max)
    }
}

/// A bound on how many answers of one sort go out in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RateLimit {
    since: Option<Instant>,
    count: u16,
}

impl RateLimit {
    /// Whether one more may go out, `limit` being the most in a second; counts it if so.
    pub(super) fn allow(&mut self, now: Instant, limit: u16) -> bool {
        let fresh =
            self.since.is_none_or(|since| now.saturating_since(since) >= Duration::from_secs(1));
        if fresh {
            *self = Self { since: Some(now), count: 0 };
        }
        let allowed = self.count < limit;
        self.count += u16::from(allowed);
        allowed
    }
}

impl Subflow {
    /// Does what is due at `now`; a call before [`next_timeout`](Self::next_timeout) does nothing.
    pub fn on_timeout(&mut self, now: Instant, view: &View) {
        if self.timers.expire(Timer::DelayedAck, now) {
            self.ack.now();
        }
        if self.timers.expire(Timer::Retransmit, now) {
            self.on_retransmit_timeout(view);
        }
        if self.timers.expire(Timer::Keepalive, now) {
            self.on_keepalive_timeout(now);
        }
        if self.timers.expire(Timer::Signal, now) {
            self.on_signal_timeout(now);
        }
        if self.timers.expire(Timer::Fail, now) {
            self.on_fail_timeout();
        }
        if self.timers.expire(Timer::DataFin, now) && self.awaits_data_fin(view) {
            self.abort(Abort::Connection);
        }
        if self.timers.expire(Timer::Linger, now) {
            match self.state {
                State::Established => self.close.grace_over = true,
                _ => self.move_to_closed(),
            }
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called; `None`: nothing is to be waited for.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.0.iter().copied().min().filter(|&at| at != NEVER)
    }

    fn on_retransmit_timeout(&mut self, view: &View) {
        let handshake = self.state == State::SynReceived;
        if handshake {
            self.pending.syn_ack = true;
        } else if !self.close.retransmit(self.fin_unacked(), view) {
            return;
        }
        let retries = if handshake { self.config.syn_ack_retries } else { self.config.fin_retries };
        if self.round_trip.backoff >= retries {
            return self.give_up(handshake);
        }
        self.round_trip.backoff += 1;
        self.round_trip.timed = None;
    }

    /// The peer does not answer. A half-open subflow goes silently; for the rest, a reset tells a
    /// peer that can still hear.
    fn give_up(&mut self, silently: bool) {
        self.events.push_back(Event::TimedOut);
        if silently {
            self.move_to_closed();
        } else {
            self.abort(Abort::Subflow(ResetReason::Performance));
        }
    }

    /// Starts the retransmission timer for what was just sent.
    pub(super) fn start_retransmit(&mut self, now: Instant) {
        let timeout = self.round_trip.timeout(&self.config.rto);
        self.timers.start(Timer::Retransmit, now + timeout);
    }

    /// Starts the idle time anew.
    pub(super) fn restart_keepalive(&mut self, now: Instant) {
        self.heard_at = now;
        self.probes = 0;
        if let Some(keepalive) = self.config.keepalive {
            self.timers.start(Timer::Keepalive, now + keepalive.idle);
        }
    }

    /// Finds out whether the peer still answers on this subflow; if not, it is given up
    /// ([`Event::TimedOut`]). This is what a REMOVE_ADDR is to be met with: "The receipt of
    /// REMOVE_ADDR SHOULD first trigger the sending of a TCP keepalive on the path, and if a
    /// response is received, the path SHOULD NOT be removed" (RFC 8684, section 3.4.2).
    pub fn check_path(&mut self, now: Instant) {
        let open = !matches!(self.state, State::SynReceived | State::TimeWait | State::Closed);
        if open && self.checked_since.is_none() {
            self.checked_since = Some(now);
            self.probes = 0;
            self.on_path_timeout(now, now);
        }
    }

    fn on_path_timeout(&mut self, now: Instant, since: Instant) {
        if self.heard_at > since {
            self.checked_since = None;
            self.restart_keepalive(self.heard_at);
        } else if self.probes >= PATH_PROBES {
            self.give_up(false);
        } else {
            let timeout = self.round_trip.timeout(&self.config.rto);
            self.timers.start(Timer::Keepalive, now + timeout * (1 << self.probes));
            self.probes += 1;
            self.pending.keepalive = true;
        }
    }

    /// RFC 9293, section 3.8.4: probes go out only if nothing came for the whole interval. The
    /// timer is not moved for every segment; it is when it fires that the idle time is looked at.
    fn on_keepalive_timeout(&mut self, now: Instant) {
        if let Some(since) = self.checked_since {
            return self.on_path_timeout(now, since);
        }
        let Some(keepalive) = self.config.keepalive else { return };
        let idle_until = self.heard_at + keepalive.idle;
        if idle_until > now {
            self.probes = 0;
            self.timers.start(Timer::Keepalive, idle_until);
        } else if self.probes >= keepalive.probes {
            self.give_up(false);
        } else {
            self.probes += 1;
            self.pending.keepalive = true;
            self.timers.start(Timer::Keepalive, now + keepalive.interval);
        }
    }
}
