//! One TCP subflow, opened by the peer: RFC 9293 from LISTEN on, and MPTCP's part of it.
//!
//! A driver owns the subflow and does all IO. What it must do for a burst of packets:
//!
//! 1. [`on_segment`](Subflow::on_segment) for each packet whose checksum is right, with a [`View`]
//!    of the connection; it may be the same for the whole burst.
//! 2. [`poll_event`](Subflow::poll_event) until `None`; tell the connection
//!    ([`Connection::on_event`](crate::connection::Connection::on_event)).
//! 3. Store the placements in the receive ring.
//! 4. [`poll_transmit`](Subflow::poll_transmit) until `None`, with a fresh view, since it is the
//!    new edge that is to be acknowledged.
//! 5. Look at [`next_timeout`](Subflow::next_timeout), and call
//!    [`on_timeout`](Subflow::on_timeout) no earlier, then go on with 2.
//!
//! When the application ends its stream, or reads so much that
//! [`window_update_due`](Subflow::window_update_due), 4 and 5 are due without a packet.

mod report;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::config::Config;
use crate::connection::LocalKey;
pub use crate::connection::View;
use crate::segment::{Key, Segment};
use crate::seq::SeqNum;
use crate::time::Instant;

pub use report::{
    Abort, Disposition, DropReason, Event, FallbackReason, Placement, Refusal, RefusalReason,
    ResetCause, ResetReason, SubflowStatistics,
};

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

/// What the driver decides about a subflow that a SYN opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassiveOpening {
    /// Our initial sequence number (RFC 6528).
    pub isn: SeqNum,
    /// What is added to our timestamp clock for this peer (RFC 7323, section 5.4).
    pub timestamp_offset: u32,
    /// Our key; `None` where the connection can only be plain TCP.
    pub local: Option<LocalKey>,
    /// The largest segment we can take, without headers: MTU - 40 for IPv4, - 60 for IPv6.
    pub mss: u16,
}

/// One TCP subflow; see the [module](self).
#[derive(Debug)]
pub struct Subflow {
    state: State,
}

impl Subflow {
    /// Opens a subflow by a SYN that came to a listener (RFC 9293, section 3.10.7.2).
    ///
    /// # Errors
    ///
    /// A [`Refusal`], with the reset to send where one is due, if the segment opens nothing.
    pub fn passive_open(
        now: Instant,
        config: &Arc<Config>,
        syn: &Segment,
        opening: &PassiveOpening,
    ) -> Result<Self, Refusal> {
        let _ = (now, config, syn, opening);
        Ok(Self { state: State::SynReceived })
    }

    /// Takes a segment in, and adds to `placements` where its payload belongs.
    ///
    /// No allocation is made as long as `placements` has capacity.
    pub fn on_segment(
        &mut self,
        now: Instant,
        segment: &Segment,
        view: &View,
        placements: &mut Vec<Placement>,
    ) -> Disposition {
        let _ = (now, segment, view, placements);
        Disposition::Dropped(DropReason::Closed)
    }

    /// Does what is due at `now`; a call before [`next_timeout`](Self::next_timeout) does nothing.
    pub fn on_timeout(&mut self, now: Instant, view: &View) {
        let _ = (now, view);
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called; `None`: nothing is to be waited for.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The next segment to send, if any. It has no payload.
    pub fn poll_transmit(&mut self, now: Instant, view: &View) -> Option<Segment> {
        let _ = (now, view);
        None
    }

    /// The next thing that happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// Has an acknowledgement sent at the next poll, for the data level moved without a packet.
    pub fn request_ack(&mut self) {}

    /// Whether the window grew enough, against what the peer was told, to tell it so
    /// (RFC 9293, section 3.8.6.2.2).
    #[must_use]
    pub fn window_update_due(&self, view: &View) -> bool {
        let _ = view;
        false
    }

    /// Ends the subflow, or with it the connection, by a reset.
    pub fn abort(&mut self, how: Abort) {
        let _ = how;
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether MPTCP is in use on this subflow now.
    #[must_use]
    pub const fn is_mptcp(&self) -> bool {
        false
    }

    /// The peer's key.
    #[must_use]
    pub const fn remote_key(&self) -> Option<Key> {
        None
    }

    /// Our key, where the handshake uses or used one; its token may be given up otherwise.
    #[must_use]
    pub const fn local_key(&self) -> Option<LocalKey> {
        None
    }

    /// Counters.
    #[must_use]
    pub const fn statistics(&self) -> SubflowStatistics {
        SubflowStatistics {
            bytes: 0,
            segments: 0,
            out_of_order: 0,
            duplicate_bytes: 0,
            segments_sent: 0,
            retransmitted_bytes: 0,
            challenge_acks: 0,
        }
    }

    /// The round-trip time as the receiver sees it: from the handshake, then from timestamp
    /// echoes, whose clock ticks in milliseconds.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Once in TIME-WAIT with nothing left to tell or send: the little that has to be kept, so
    /// that the subflow itself can be dropped.
    #[must_use]
    pub fn time_wait(&self) -> Option<TimeWait> {
        None
    }
}

/// All that TIME-WAIT needs (RFC 9293, section 3.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeWait {
    expires: Instant,
}

/// What a segment that meets TIME-WAIT leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeWaitVerdict {
    /// Nothing.
    Ignore,
    /// This acknowledgement is to be sent.
    Reply(Segment),
    /// A new SYN that is safely later: the entry is to be dropped and the SYN given to the
    /// listener (RFC 6191); the new ISN is at least this one.
    Reopen(SeqNum),
    /// The entry is to be dropped.
    Done,
}

impl TimeWait {
    /// When the entry is to be dropped; segments may move it.
    #[must_use]
    pub const fn expires(&self) -> Instant {
        self.expires
    }

    /// Takes a segment in.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment) -> TimeWaitVerdict {
        let _ = (now, segment);
        TimeWaitVerdict::Ignore
    }
}

/// The reset that answers a segment which belongs to no subflow and no listener (RFC 9293,
/// section 3.10.7.1), or `None` if it is itself a reset.
#[must_use]
pub fn reset_for(segment: &Segment) -> Option<Segment> {
    let _ = segment;
    None
}
