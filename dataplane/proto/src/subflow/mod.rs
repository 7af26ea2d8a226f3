//! One TCP subflow, opened by the peer: RFC 9293 from LISTEN on, and MPTCP's part of it.
//!
//! A driver owns the subflow and does all IO. What it must do for a burst of packets:
//!
//! 1. [`on_segment`](Subflow::on_segment) for each packet whose checksum is right, with a [`View`]
//!    of the connection; it may be the same for the whole burst.
//! 2. [`poll_event`](Subflow::poll_event) until `None`; tell the connection
//!    ([`Connection::on_event`](crate::connection::Connection::on_event)).
//! 3. Store the placements in the receive ring; with checksums in use, sum them
//!    ([`on_payload_sum`](Subflow::on_payload_sum)) and hold them until they are proved, then poll
//!    events again.
//! 4. [`poll_transmit`](Subflow::poll_transmit) until `None`, with a fresh view, since it is the
//!    new edge that is to be acknowledged.
//! 5. Look at [`next_timeout`](Subflow::next_timeout), and call
//!    [`on_timeout`](Subflow::on_timeout) no earlier, then go on with 2.
//!
//! When the application ends its stream, or reads so much that
//! [`window_update_due`](Subflow::window_update_due), 4 and 5 are due without a packet. So are
//! they, with 2, after [`abort`](Subflow::abort).
//!
//! A subflow in [`State::TimeWait`] is to be replaced by its [`time_wait`](Subflow::time_wait):
//! only that can let a new SYN of the same addresses through.
//!
//! # What is where
//!
//! | file | idea |
//! |---|---|
//! | `state` | the states and every transition |
//! | `accept` | the handshake of a first subflow |
//! | `doubt` | a fallback that the peer may not have made |
//! | `cookie` | the same without remembering the SYN |
//! | `join` | the handshake of a further one |
//! | `ingress` | the way of a segment, fast and slow |
//! | `acceptance` | which segments are valid: window, PAWS, RFC 5961 |
//! | `options` | what MPTCP options of a segment mean |
//! | `mapping` | the mappings known |
//! | `payload` | where payload goes, in order and out of order |
//! | `sums` | data-level checksums |
//! | `sack` | what is told about out-of-order payload |
//! | `signals` | addresses and priorities |
//! | `egress` | what is sent |
//! | `close` | FIN, DATA_FIN, abort |
//! | `timers` | deadlines, round-trip time |
//! | `time_wait` | what is left of a subflow |

mod accept;
mod acceptance;
mod close;
mod cookie;
mod doubt;
mod egress;
mod ingress;
mod join;
mod mapping;
mod options;
mod payload;
mod report;
mod sack;
mod signals;
mod state;
mod sums;
#[cfg(test)]
mod tests;
mod time_wait;
mod timers;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::time::Duration;

use crate::config::Config;
use crate::connection::LocalKey;
pub use crate::connection::View;
use crate::segment::{Key, WindowScale};
use crate::seq::{DataSeq, SeqNum, StreamOffset};
use crate::time::Instant;

pub use accept::PassiveOpening;
pub use cookie::{CookieOpening, CookieSecret};
pub use join::{JoinOpening, refuse_join};
pub use report::{
    Abort, Disposition, DropReason, Event, FallbackReason, Placement, Refusal, RefusalReason,
    ResetCause, ResetReason, SubflowStatistics,
};
pub use state::State;
pub use sums::{MappingId, Verdict};
pub use time_wait::{TimeWait, TimeWaitVerdict, reset_for};

/// One TCP subflow; see the [module](self).
#[derive(Debug)]
pub struct Subflow {
    state: State,
    mode: Mode,
    /// Whether MPTCP options are known to pass.
    confirmed: bool,
    heard: Heard,
    /// While the mode is plain TCP, but the peer may not know.
    doubt: Option<Box<doubt::Doubt>>,
    join: Option<Box<join::Join>>,
    addresses: join::Addresses,
    receive: Receive,
    send: Send,
    stamps: Option<Stamps>,
    mappings: mapping::Mappings,
    sums: sums::Sums,
    reorder: sack::Reorder,
    ack: egress::AckState,
    timers: timers::Timers,
    round_trip: timers::RoundTrip,
    statistics: SubflowStatistics,
    heard_at: Instant,
    probes: u8,
    /// Since when the path is being checked.
    checked_since: Option<Instant>,
    close: close::Close,
    pending: egress::Pending,
    signals: signals::Queue,
    challenges: timers::RateLimit,
    /// Why the connection is plain TCP, to be told once it is established.
    fallback: Option<FallbackReason>,
    events: VecDeque<Event>,
    config: Arc<Config>,
}

/// How the subflow's payload finds its place in the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// We can answer MP_CAPABLE; the third ACK decides.
    Offered {
        local: LocalKey,
        /// Whether the SYN last seen had MP_CAPABLE, so that our SYN/ACK has it.
        in_syn: bool,
        /// Whether data-level checksums are to be used.
        checksums: bool,
    },
    /// By mappings.
    Mptcp(Mptcp),
    /// Plain TCP, from the start or by fallback: it is the payload position itself.
    Plain,
}

/// Whether the peer had a DATA_ACK of ours, which decides whether it may still fall back: "if [...] an
/// ACK is received for data [...] without a DSS option containing a Data ACK, the sender determines
/// that the path is not MPTCP capable" (RFC 8684, section 3.7). Linux does so without a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heard {
    /// None was sent.
    Nothing {
        /// Payload came without a mapping of its own: options get lost on the way to us.
        bare: bool,
    },
    /// The first was sent with this TSval, which none before had. What the peer sends in answer to it has
    /// options if the DATA_ACK was there, unless they get lost on the way.
    Perhaps(u32),
    /// It had, or may have had and would not be told from one that had not.
    DataAck,
}

/// What identifies an MPTCP connection on one of its subflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mptcp {
    local: LocalKey,
    remote: Key,
    /// The data sequence number of the first octet of the peer's stream: its IDSN + 1.
    remote_first: DataSeq,
    /// Whether data-level checksums are in use.
    checksums: bool,
}

/// The receive side of the sequence space. Positions are payload octets, see [`mapping`].
#[derive(Debug)]
struct Receive {
    /// RCV.NXT.
    next: SeqNum,
    /// The payload position that RCV.NXT stands for; one less once the FIN is taken.
    received: u64,
    /// IRS: the peer's initial sequence number.
    initial: SeqNum,
    /// RCV.NXT of the last acknowledgement sent (RFC 7323: Last.ACK.sent).
    acknowledged: SeqNum,
    /// The highest right edge told to the peer, as a payload position.
    told_position: u64,
    /// The right edge last told to the peer, in the stream.
    told: StreamOffset,
    /// The DATA_ACK last told to the peer, in the stream; a DATA_FIN counts.
    told_ack: StreamOffset,
    /// The window field last told to the peer, with our shift.
    field: u16,
    /// Our shift, in use if the peer sent one too.
    scale: WindowScale,
    /// The payload position of the peer's FIN, once seen.
    fin_at: Option<u64>,
    /// Whether that FIN is acknowledged, or to be.
    fin_taken: bool,
    /// The largest payload seen.
    largest: u32,
    /// The MSS we announce.
    mss: u16,
    /// How often the next payload expected came without a mapping.
    unmapped: u8,
}

/// The send side of the sequence space. Our stream has no bytes yet, so only SYN and FIN move it.
#[derive(Debug)]
struct Send {
    /// ISS.
    initial: SeqNum,
    /// SND.UNA.
    unacked: SeqNum,
    /// SND.NXT.
    next: SeqNum,
    /// SND.WND in octets.
    window: u32,
    /// The largest SND.WND so far (RFC 5961, section 5: MAX.SND.WND).
    max_window: u32,
    /// The peer's shift, if both sides scale.
    scale: Option<WindowScale>,
    /// SND.WL1 and SND.WL2.
    window_seq: SeqNum,
    window_ack: SeqNum,
}

/// The timestamps option in use (RFC 7323, section 3).
#[derive(Debug)]
struct Stamps {
    /// What is added to our clock.
    offset: u32,
    /// TS.Recent, and when it was set.
    recent: u32,
    recent_at: Instant,
    /// The TSecr that last gave a round-trip sample.
    echoed: u32,
}

impl Stamps {
    /// TSval now.
    fn clock(&self, now: Instant) -> u32 {
        timestamp_clock(now, self.offset)
    }
}

/// Our timestamp clock for a peer whose offset is `offset`: it ticks once a millisecond.
const fn timestamp_clock(now: Instant, offset: u32) -> u32 {
    ((now.0 / 1_000_000) as u32).wrapping_add(offset)
}

/// What a DATA_ACK says, as a place in the stream: the edge, and one more with the DATA_FIN.
fn data_ack(view: &View) -> StreamOffset {
    view.edge + u64::from(view.remote_complete())
}

impl Receive {
    /// The position that RCV.NXT stands for, with the FIN as one octet.
    fn position(&self) -> u64 {
        self.received + u64::from(self.fin_taken)
    }

    /// The sequence number of a position.
    fn seq_of(&self, position: u64) -> SeqNum {
        self.initial + 1 + position as u32
    }
}

impl Subflow {
    /// The next thing that happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Has an acknowledgement sent at the next poll, for the data level moved without a packet. It
    /// tells the newest DATA_ACK where the peer takes the window that goes with it, see
    /// [`request_data_ack`](Self::request_data_ack).
    pub fn request_ack(&mut self) {
        if self.state != State::SynReceived {
            self.ack.now();
        }
    }

    /// Has an acknowledgement sent at the next poll that tells the newest DATA_ACK in any case, for
    /// nobody else may tell it. Linux may take more from it than the window there is
    /// (docs/decisions/0007).
    pub fn request_data_ack(&mut self) {
        if self.state != State::SynReceived {
            self.ack.newest();
        }
    }

    /// Whether the window grew enough, against what the peer was told, to tell it so
    /// (RFC 9293, section 3.8.6.2.2): by a segment at least, and by as much as is left of it.
    #[must_use]
    pub fn window_update_due(&self, view: &View) -> bool {
        let open = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        let left = self.receive.told.0.saturating_sub(view.edge.0);
        let gained = view.right_edge.0.saturating_sub(self.receive.told.0);
        // The peer's TCP takes no smaller window than it has, if nothing new is acknowledged; where it
        // has so much, it can send, and another subflow tells of the rest.
        open && gained >= left.max(u64::from(self.receive.largest))
            && self.announceable(view) > left
            && (!self.is_mptcp() || self.window_field(view) > self.receive.field)
    }

    /// Whether the data level has moved past the DATA_ACK that this subflow sent last: the gap before
    /// an edge was closed on another subflow, say. If no other subflow will tell the peer,
    /// [`request_ack`](Self::request_ack) does.
    #[must_use]
    pub fn data_ack_due(&self, view: &View) -> bool {
        let open = !matches!(self.state, State::SynReceived | State::TimeWait | State::Closed);
        open && self.is_mptcp() && data_ack(view) > self.receive.told_ack
    }

    /// The right edge that the peer was last told, in the stream.
    #[must_use]
    pub const fn advertised(&self) -> StreamOffset {
        self.receive.told
    }

    /// The state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether MPTCP is in use on this subflow now.
    #[must_use]
    pub const fn is_mptcp(&self) -> bool {
        matches!(self.mode, Mode::Mptcp(_))
    }

    /// The peer's key, while MPTCP is in use.
    #[must_use]
    pub const fn remote_key(&self) -> Option<Key> {
        match &self.mode {
            Mode::Mptcp(mptcp) => Some(mptcp.remote),
            _ => None,
        }
    }

    /// Our key, as long as the connection speaks MPTCP or still may; its token can be given up
    /// otherwise.
    #[must_use]
    pub const fn local_key(&self) -> Option<LocalKey> {
        match &self.mode {
            Mode::Mptcp(mptcp) => Some(mptcp.local),
            Mode::Offered { local, .. } => Some(*local),
            Mode::Plain => None,
        }
    }

    /// Counters.
    #[must_use]
    pub const fn statistics(&self) -> SubflowStatistics {
        self.statistics
    }

    /// The round-trip time as the receiver sees it: from the handshake, then from timestamp
    /// echoes, whose clock ticks in milliseconds.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.smoothed()
    }
}
