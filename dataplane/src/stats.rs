//! What the engine tells about itself: plain values, copied when they are asked for.

use std::net::SocketAddr;
use std::time::Duration;

use crate::nic::NicFacts;
use crate::port::{FrameAccount, PortMode, PortStatistics};

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closed {
    /// Both sides closed the data level with DATA_FIN (RFC 8684, section 3.3.3).
    DataFin,
    /// Plain TCP, or after fallback: closed with FIN.
    Fin,
    /// A RST came or had to be sent.
    Reset,
    /// MP_FASTCLOSE came or was sent (RFC 8684, section 3.5).
    FastClose,
    /// The peer was silent for too long.
    Timeout,
}

impl Closed {
    /// The name in reports: `data_fin`, `fin`, `reset`, `fastclose`, `timeout`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DataFin => "data_fin",
            Self::Fin => "fin",
            Self::Reset => "reset",
            Self::FastClose => "fastclose",
            Self::Timeout => "timeout",
        }
    }
}

/// What a connection has done so far. The counters of a connection that still lives are as of
/// the last burst of its worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionStatistics {
    /// Our address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Bytes of the stream received in order.
    pub bytes: u64,
    /// Time since the connection was established, up to its end if it ended.
    pub age: Duration,
    /// Whether MPTCP is in use; false for plain TCP and after a fallback.
    pub mptcp: bool,
    /// Why MPTCP is not in use although the peer asked for it.
    pub fallback: Option<&'static str>,
    /// Whether data-level checksums are in use (RFC 8684, section 3.3.1).
    pub checksums: bool,
    /// How it ended; `None` while it lives.
    pub closed: Option<Closed>,
    /// The connection's subflows in the order in which they were established: all that live, and of
    /// those that ended the last, as far as there is room in a list of 64.
    pub subflows: Vec<SubflowStatistics>,
}

/// What one subflow has done so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubflowStatistics {
    /// Our address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The NIC that its packets came in on.
    pub nic: String,
    /// The receive queue that its last packet came in on.
    pub queue: u32,
    /// The worker that owns it.
    pub worker: usize,
    /// Whether it still lives.
    pub live: bool,
    /// Whether the peer asked for it to be used as a backup only, at its join or since (RFC 8684,
    /// section 3.3.8).
    pub backup: bool,
    /// Bytes of payload accepted, each counted once.
    pub bytes: u64,
    /// Segments accepted that carried payload.
    pub segments: u64,
    /// Segments that came ahead of a gap.
    pub out_of_order: u64,
    /// Bytes that had been received before.
    pub duplicate_bytes: u64,
    /// Bytes of ours that were sent again; SYN and FIN count as one each.
    pub retransmitted_bytes: u64,
}

/// Whether a NIC can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NicState {
    /// It is up, with a carrier.
    Up,
    /// It is up, and its link has no carrier.
    NoCarrier,
    /// It was set down.
    Down,
    /// It was deleted, or moved to another network namespace.
    Gone,
}

impl NicState {
    /// The name in reports: `up`, `no_carrier`, `down`, `gone`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::NoCarrier => "no_carrier",
            Self::Down => "down",
            Self::Gone => "gone",
        }
    }

    /// The state of a NIC that is there.
    pub(crate) const fn of(facts: &NicFacts) -> Self {
        match (facts.up, facts.carrier) {
            (true, true) => Self::Up,
            (true, false) => Self::NoCarrier,
            (false, _) => Self::Down,
        }
    }
}

/// What runs on one NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicReport {
    /// The interface.
    pub name: String,
    /// How packets come: `native`, `generic` (XDP modes) or `memory`.
    pub mode: &'static str,
    /// Why the mode is not a better one, where the engine chose.
    pub mode_reason: Option<String>,
    /// Whether every queue is bound without a copy in the kernel.
    pub zero_copy: bool,
    /// The queues that are bound.
    pub queues: Vec<u32>,
    /// Its MTU now, in octets.
    pub mtu: u32,
    /// Whether it can be used now.
    pub state: NicState,
    /// How much has become of it since the engine started, as told by
    /// [`Engine::take_notices`](crate::Engine::take_notices).
    pub changes: u64,
    /// The id of the attached XDP program; 0 if there is none.
    pub program_id: u32,
    /// The steering program's verdicts, by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// One receive queue of a NIC, and the port on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortReport {
    /// The interface.
    pub nic: String,
    /// The receive queue.
    pub queue: u32,
    /// The worker that polls it.
    pub worker: usize,
    /// What moves its frames.
    pub mode: PortMode,
    /// Its counters.
    pub statistics: PortStatistics,
    /// Where its frames are.
    pub frames: FrameAccount,
}

/// The memory of receive rings and of payload that waits for its checksum; sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryReport {
    /// The [limit](crate::EngineConfig::memory_limit).
    pub limit: usize,
    /// What connections take now.
    pub in_use: usize,
    /// What is kept now for the next ring, by all engines of the process together. It is given up
    /// where the limit would be passed otherwise.
    pub spare: usize,
    /// The most that was ever taken, spare memory included.
    pub peak: usize,
}

/// What one worker has done since it started.
#[derive(Clone, PartialEq, Debug)]
pub struct WorkerReport {
    /// The CPU that it is pinned to; `None` if it floats.
    pub cpu: Option<usize>,
    /// The part of the time since its start, 0.0 to 1.0, that it had something to do.
    pub busy_fraction: f64,
    /// Packets received.
    pub packets: u64,
    /// Bytes received, headers included.
    pub bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bursts that were not empty.
    pub bursts: u64,
    /// Packets of its subflows that came in at another worker and were handed over to it.
    pub handed_over: u64,
    /// Connections opened by a SYN cookie, as too many others were half open.
    pub opened_by_cookie: u64,
    /// Packets that changed nothing, by reason; only reasons that occurred.
    pub drops: Vec<(&'static str, u64)>,
    /// How full its tables are.
    pub tables: TableSizes,
}

/// How many entries the tables hold. All are zero once every connection has ended and every
/// TIME_WAIT has run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableSizes {
    /// Subflows that are not yet established.
    pub half_open: usize,
    /// Subflows, half-open ones included, without those in TIME_WAIT.
    pub subflows: usize,
    /// Subflows in TIME_WAIT (RFC 9293, section 3.6.1).
    pub time_wait: usize,
    /// Frames that the worker holds outside the rings of its ports.
    pub frames_held: usize,
}
