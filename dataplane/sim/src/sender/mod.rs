//! A TCP and MPTCP client that opens one connection and sends one stream.
//!
//! It is small rather than fast: it has no congestion control and goes back to the first byte not
//! acknowledged when something is lost. What it sends is what the standards ask for, so it can
//! stand for a real peer, and it counts what its peer does that they forbid.

mod egress;
mod ingress;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mpxdp_proto::crypto::key_to_token_and_idsn;
use mpxdp_proto::segment::{Key, WindowScale};
use mpxdp_proto::seq::{DataSeq, SeqNum};
use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{LinkHeader, MacAddress};

use crate::Pattern;

/// What is sent.
#[derive(Clone, Debug)]
pub enum Content {
    /// So many bytes of a pattern.
    Pattern {
        /// The pattern.
        pattern: Pattern,
        /// The number of bytes.
        len: u64,
    },
    /// These bytes.
    Bytes(Arc<[u8]>),
}

impl Content {
    /// The number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty stream is nothing special")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Pattern { len, .. } => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    fn fill(&self, offset: u64, out: &mut [u8]) {
        match self {
            Self::Pattern { pattern, .. } => pattern.fill(offset, out),
            Self::Bytes(bytes) => {
                let at = offset as usize;
                out.copy_from_slice(&bytes[at..at + out.len()]);
            }
        }
    }
}

/// How the first mapping of a connection is told (RFC 8684, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FirstData {
    /// In the MP_CAPABLE option of the first data segment, as Linux does.
    #[default]
    Capable,
    /// In a DSS option.
    Dss,
}

/// How MPTCP is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MptcpOptions {
    /// The client's key.
    pub key: Key,
    /// 64-bit data sequence numbers and acknowledgements in DSS options, instead of 32-bit ones.
    pub long_numbers: bool,
    /// Bytes of a mapping, at most 65534; 0 is a mapping for each segment. A mapping of several
    /// segments is told in its first one.
    pub mapping_len: u16,
    /// Cut segments without regard to mappings, so that a segment may end one and begin the next.
    /// Has a meaning if `mapping_len` is at least the MSS.
    pub straddle: bool,
    /// How the first mapping is told.
    pub first_data: FirstData,
    /// Let the last mapping carry DATA_FIN, instead of a segment of its own.
    pub data_fin_with_data: bool,
}

impl Default for MptcpOptions {
    /// A fixed key, 64-bit numbers, and a mapping for each segment.
    fn default() -> Self {
        Self {
            key: Key(0x0123_4567_89ab_cdef),
            long_numbers: true,
            mapping_len: 0,
            straddle: false,
            first_data: FirstData::Capable,
            data_fin_with_data: false,
        }
    }
}

/// What a [`Sender`] sends, where, and how.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The link header of its frames.
    pub link: LinkHeader,
    /// Its own address and port.
    pub local: SocketAddr,
    /// Where it connects to.
    pub remote: SocketAddr,
    /// What it sends.
    pub content: Content,
    /// Whether it ends the stream after the content, or leaves the connection open.
    pub ends: bool,
    /// MPTCP, or plain TCP.
    pub mptcp: Option<MptcpOptions>,
    /// The MSS it announces and observes, options included, at least 200. With the IPv4 or IPv6
    /// header and the Ethernet header, a frame has 54 or 74 bytes more.
    pub mss: u16,
    /// Whether it offers timestamps.
    pub timestamps: bool,
    /// Whether it permits SACK. What it is told that way it does not use.
    pub sack: bool,
    /// The window scale that it offers. Without, its peer's window ends at 65535.
    pub window_scale: Option<WindowScale>,
    /// Its initial sequence number.
    pub isn: SeqNum,
    /// The most bytes that are on their way: what its congestion window would be.
    pub max_in_flight: u64,
    /// Its first retransmission timeout; each further one in a row takes twice as long, up to 64
    /// times.
    pub timeout: Duration,
    /// After so many timeouts in a row it gives up.
    pub max_timeouts: u32,
}

impl SenderOptions {
    /// A client at `local` that sends `content` to `remote` by MPTCP, with an MSS of 1460 bytes,
    /// all options offered, and up to 256 KiB on their way.
    #[must_use]
    pub fn new(local: SocketAddr, remote: SocketAddr, content: Content) -> Self {
        Self {
            link: LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])),
            local,
            remote,
            content,
            ends: true,
            mptcp: Some(MptcpOptions::default()),
            mss: 1460,
            timestamps: true,
            sack: true,
            window_scale: Some(WindowScale::new(7)),
            isn: SeqNum(0xffff_f000),
            max_in_flight: 256 << 10,
            timeout: Duration::from_millis(200),
            max_timeouts: 12,
        }
    }
}

/// How a connection ended that did not end well.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// The peer refused it.
    Refused,
    /// The peer reset it; with the reason code of MP_TCPRST if there was one.
    Reset(Option<u8>),
    /// The peer closed it with MP_FASTCLOSE.
    FastClosed,
    /// Nothing came back for too long.
    TimedOut,
    /// [`Sender::abort`] was called.
    Aborted,
}

/// What a [`Sender`] counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderStatistics {
    /// Segments sent, of all kinds.
    pub segments: u64,
    /// Of them, those with bytes that were sent before.
    pub retransmitted: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Segments received and taken.
    pub received: u64,
    /// Frames received that were not for this connection, malformed or damaged.
    pub ignored: u64,
    /// Acknowledgements that took back a part of the window, which a receiver must not do
    /// (RFC 9293, section 3.8.6.2.1).
    pub window_taken_back: u64,
    /// Acknowledgements of what was never sent.
    pub false_acks: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    SynSent,
    Established,
    Done,
    Failed(Failure),
}

/// Whether the connection has a data level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Plain,
    Mptcp {
        remote_key: Key,
        /// The data sequence number of the peer's first byte.
        remote_first: DataSeq,
        /// Whether a DSS option has come, so that MP_CAPABLE need not be repeated.
        confirmed: bool,
    },
}

/// A client that opens one connection and sends one stream.
///
/// Its owner passes it frames and the time, and sends what it yields: [`poll_frame`] until `None`,
/// after [`on_frame`] and [`on_timeout`], and once at the start.
///
/// [`poll_frame`]: Self::poll_frame
/// [`on_frame`]: Self::on_frame
/// [`on_timeout`]: Self::on_timeout
#[derive(Debug)]
pub struct Sender {
    options: SenderOptions,
    phase: Phase,
    mode: Mode,
    fell_back: bool,
    /// The data sequence number of the first byte we send.
    local_first: DataSeq,

    // What we send, in stream offsets: the FIN's is the content's length.
    /// The first that is not acknowledged.
    una: u64,
    /// The next to send; behind `highest` while retransmitting.
    next: u64,
    /// The first that was never sent.
    highest: u64,
    /// The first that is not acknowledged at the data level; DATA_FIN counts as one.
    data_una: u64,
    /// The end of the peer's window.
    right_edge: u64,
    syn_due: bool,
    /// The ACK that completes the handshake is due; nothing may come before it.
    third_ack_due: bool,
    data_fin_due: bool,
    fin_allowed: bool,
    probe_due: bool,
    reset_due: bool,
    duplicate_acks: u32,
    /// Going back again because of duplicate acknowledgements makes sense from here on.
    recover: u64,

    // What the peer agreed to.
    mss: usize,
    remote_scale: WindowScale,
    timestamps: bool,

    // What we receive.
    receive_next: SeqNum,
    last_timestamp: u32,
    ack_due: bool,
    fin_received: bool,
    /// The peer's stream: bytes received in order, and where it ends if that is known.
    data_received: u64,
    remote_end: Option<u64>,

    timer: Option<Instant>,
    timeouts_in_a_row: u32,
    statistics: SenderStatistics,
    payload: Vec<u8>,
}

impl Sender {
    /// A sender that is about to connect.
    ///
    /// # Panics
    ///
    /// If the MSS is below 200 or the length of mappings above 65534.
    #[must_use]
    pub fn new(options: SenderOptions) -> Self {
        assert!(options.mss >= 200, "an MSS of {}", options.mss);
        let mapping_len = options.mptcp.map_or(0, |mptcp| mptcp.mapping_len);
        assert!(mapping_len < u16::MAX, "mappings of {mapping_len} bytes");
        let key = options.mptcp.map_or(Key(0), |mptcp| mptcp.key);
        Self {
            local_first: key_to_token_and_idsn(key).1 + 1,
            mss: options.mss.into(),
            payload: vec![0; options.mss.into()],
            options,
            phase: Phase::SynSent,
            mode: Mode::Plain,
            fell_back: false,
            una: 0,
            next: 0,
            highest: 0,
            data_una: 0,
            right_edge: 0,
            syn_due: true,
            third_ack_due: false,
            data_fin_due: false,
            fin_allowed: false,
            probe_due: false,
            reset_due: false,
            duplicate_acks: 0,
            recover: 0,
            remote_scale: WindowScale::ZERO,
            timestamps: false,
            receive_next: SeqNum(0),
            last_timestamp: 0,
            ack_due: false,
            fin_received: false,
            data_received: 0,
            remote_end: None,
            timer: None,
            timeouts_in_a_row: 0,
            statistics: SenderStatistics::default(),
        }
    }

    /// When [`on_timeout`](Self::on_timeout) is due.
    #[must_use]
    pub const fn next_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// Whether the handshake is over and the connection is open.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    /// Whether the connection ended well, in both directions.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// How the connection failed, if it did.
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        match self.phase {
            Phase::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Whether the connection is an MPTCP connection.
    #[must_use]
    pub const fn is_mptcp(&self) -> bool {
        matches!(self.mode, Mode::Mptcp { .. })
    }

    /// Whether the connection became plain TCP after MP_CAPABLE had been agreed on.
    #[must_use]
    pub const fn fell_back(&self) -> bool {
        self.fell_back
    }

    /// How many bytes of the content the peer has acknowledged: at the data level, if there is one.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        let acknowledged = if self.is_mptcp() { self.data_una } else { self.una };
        acknowledged.min(self.total())
    }

    /// How many bytes the peer sent. They are acknowledged and thrown away.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.data_received
    }

    /// Counters.
    #[must_use]
    pub const fn statistics(&self) -> SenderStatistics {
        self.statistics
    }

    /// Ends the stream after the content, where [`SenderOptions::ends`] was not set.
    pub fn finish(&mut self) {
        if !self.options.ends {
            self.options.ends = true;
            self.data_fin_due = self.is_mptcp();
        }
    }

    /// Resets the connection: the next frame is the last.
    pub fn abort(&mut self) {
        match self.phase {
            Phase::Established => self.reset_due = true,
            Phase::SynSent => self.phase = Phase::Failed(Failure::Aborted),
            Phase::Done | Phase::Failed(_) => {}
        }
        self.timer = None;
    }

    fn total(&self) -> u64 {
        self.options.content.len()
    }

    /// Whether everything we had to say at the data level has been acknowledged there.
    fn is_data_acknowledged(&self) -> bool {
        self.data_una > self.total()
    }
}
