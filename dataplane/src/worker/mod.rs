//! A worker: one thread, the ports it polls, and the subflows it owns.
//!
//! `turn` is the way of a packet, on two pages. Around it: `open` is what a SYN leads to, `cookies`
//! the same without keeping anything, `events` what a subflow tells, `held` the detour of payload
//! that has to be proved by a checksum, `inbox` what other threads ask for, `addresses` what changes
//! of NICs lead to, `thread` the loop that takes turns and sleeps, `probe` how a benchmark looks into
//! a turn. The rest are parts: the table of flows, timers, counters, and what workers and other
//! threads share.

mod addresses;
mod bell;
mod cookies;
mod counters;
mod entropy;
mod events;
mod flows;
mod handle;
mod held;
mod inbox;
mod limit;
mod open;
mod probe;
mod shared;
mod sources;
#[cfg(test)]
mod tests;
mod thread;
mod timers;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use mpxdp_proto::segment::Segment;
use mpxdp_proto::subflow::Placement;
use mpxdp_proto::time::Instant;

use self::flows::{Flows, Path};
use self::limit::RateLimit;
use self::shared::KeySource;
use self::timers::Timers;
use crate::connection::Connection;
#[cfg(feature = "virtual-time")]
use crate::port::FrameAccount;
use crate::port::{Port, RxFrame};
use crate::receive::{Claim, Wanted};

pub(crate) use self::counters::Counter;
pub(crate) use self::entropy::Entropy;
pub(crate) use self::flows::{FlowId, FlowKey};
pub(crate) use self::handle::{Command, Handle, Inbox};
pub use self::probe::{Probe, Stage};
pub(crate) use self::shared::{JoinLimits, Shared, TokenInUse};
pub(crate) use self::thread::run;

/// How many resets a worker sends in a second to packets that belong to no connection. A scan of
/// our ports gets its answers as from a kernel, and a flood does not get one for each packet.
const RESETS_PER_SECOND: u32 = 1000;

/// A port of a worker.
pub(crate) struct Attached<P> {
    pub(crate) port: P,
    pub(crate) facts: PortFacts,
}

/// What a worker must know of a port besides the port itself.
#[derive(Clone, Debug)]
pub(crate) struct PortFacts {
    /// The NIC.
    pub(crate) nic: Arc<str>,
    /// The NIC's receive queue.
    pub(crate) queue: u32,
    /// The NIC's MTU.
    pub(crate) mtu: u32,
    /// Whether the NIC is gone. Its port is left alone then: its descriptor would end every sleep.
    pub(crate) gone: bool,
}

/// One worker.
pub(crate) struct Worker<P: Port> {
    ports: Vec<Attached<P>>,
    core: Core,
    /// The frames of a burst; empty between bursts.
    frames: Vec<RxFrame>,
}

/// What came of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    /// How many packets came in.
    pub(crate) packets: usize,
    /// There was something to do.
    pub(crate) busy: bool,
    /// The worker was told to stop, and has: nothing is left.
    pub(crate) done: bool,
}

/// Everything of a worker but its ports and their frames.
struct Core {
    handle: Arc<Handle>,
    inbox: Inbox,
    shared: Arc<Shared>,
    facts: Vec<PortFacts>,
    flows: Flows,
    timers: Timers,
    /// How many flows are half open.
    half_open: usize,
    keys: KeySource,
    resets: RateLimit,
    /// Connections whose last subflow was this worker's, since when, and in that order. A subflow
    /// may have joined them since.
    orphans: VecDeque<(Instant, Weak<Connection>)>,
    /// When the flows that are left are to be reset, once the worker was told to stop.
    stop_at: Option<Instant>,

    // What follows is filled and emptied within a turn, and kept for its memory.
    /// Flows that have something to be done at the end of the turn.
    touched: Vec<FlowId>,
    /// Answers of no flow: resets, and acknowledgements from TIME-WAIT.
    answers: Vec<Answer>,
    placements: Vec<Placement>,
    /// What is to be stored, and of which flow.
    wanted: Vec<(FlowId, Wanted)>,
    /// What is to be stored of one flow.
    wanted_of_one: Vec<Wanted>,
    claims: Vec<Claim>,
}

/// A segment to send for no flow.
struct Answer {
    key: FlowKey,
    path: Path,
    segment: Segment,
}

impl PortFacts {
    /// The largest segment that fits the MTU (RFC 9293, section 3.7.1; RFC 6691).
    fn mss(&self, key: &FlowKey) -> u16 {
        let headers = if key.local.is_ipv4() { 40 } else { 60 };
        u16::try_from(self.mtu.saturating_sub(headers)).unwrap_or(u16::MAX)
    }
}

impl<P: Port> Worker<P> {
    /// Worker number `index`, with its ports, and what other threads hold of it.
    ///
    /// # Errors
    ///
    /// No descriptor is left.
    pub(crate) fn new(
        index: usize,
        cpu: Option<usize>,
        ports: Vec<Attached<P>>,
        shared: Arc<Shared>,
    ) -> io::Result<(Self, Arc<Handle>)> {
        let (handle, inbox) = Handle::new(index, cpu)?;
        let handle = Arc::new(handle);
        let core = Core {
            handle: Arc::clone(&handle),
            inbox,
            facts: ports.iter().map(|attached| attached.facts.clone()).collect(),
            flows: Flows::new(shared.flow_hash()),
            shared,
            timers: Timers::default(),
            half_open: 0,
            keys: KeySource::default(),
            resets: RateLimit::per_second(RESETS_PER_SECOND),
            orphans: VecDeque::new(),
            stop_at: None,
            touched: Vec::new(),
            answers: Vec::new(),
            placements: Vec::new(),
            wanted: Vec::new(),
            wanted_of_one: Vec::new(),
            claims: Vec::new(),
        };
        Ok((Self { ports, core, frames: Vec::new() }, handle))
    }

    /// When the next turn is due although nothing comes in.
    #[cfg(feature = "virtual-time")]
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.core.next_due()
    }

    /// Where the frames of the ports are.
    #[cfg(feature = "virtual-time")]
    pub(crate) fn frames(&self) -> impl Iterator<Item = FrameAccount> + '_ {
        self.ports.iter().map(|attached| attached.port.frames())
    }
}
