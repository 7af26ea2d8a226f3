//! What a subflow tells its driver: dispositions of segments, events, statistics.

use crate::segment::{AddAddr, AddressId, Key, MpReset, RemoveAddr, Segment};
use crate::seq::StreamOffset;

/// A part of a segment's payload and its place in the stream.
///
/// The subflow has acknowledged these bytes, or will: the driver must store them; at once if
/// `mapping` is `None`, and otherwise when that mapping is [`Proved`](super::Verdict::Proved).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    /// The place of the first byte in the stream.
    pub to: StreamOffset,
    /// Where the bytes start in the segment's payload.
    pub at: u32,
    /// How many bytes there are; never 0.
    pub len: u32,
    /// The mapping whose checksum covers these bytes, where checksums are in use: the sum of the
    /// bytes is to be told by [`on_payload_sum`](super::Subflow::on_payload_sum).
    pub mapping: Option<super::MappingId>,
}

/// What became of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Disposition {
    /// It was processed; its payload, if it has any that is new, is in the placements.
    Accepted,
    /// It, or its payload, was not taken, for this reason. An answer may be due all the same.
    Dropped(DropReason),
}

/// Why a segment or its payload was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// The subflow is closed.
    Closed,
    /// PAWS: the timestamp is older than the newest seen (RFC 7323, section 5).
    Paws,
    /// No part of it lies in the receive window (RFC 9293, section 3.10.7.4).
    OutOfWindow,
    /// All of its payload is here already.
    Duplicate,
    /// RST in the window, but not at its left edge: challenged (RFC 5961, section 3).
    RstChallenged,
    /// SYN on a synchronised subflow: challenged (RFC 5961, section 4).
    SynChallenged,
    /// ACK is not set.
    NoAck,
    /// It acknowledges what is older than any window we had (RFC 5961, section 5).
    AckTooOld,
    /// It acknowledges what we never sent.
    AckUnsent,
    /// The payload does not lie under any mapping known.
    Unmapped,
    /// The payload lies beyond the right edge of the connection's window.
    BeyondWindow,
    /// A mapping differs from an earlier one for the same bytes (RFC 8684, section 3.3.1).
    MappingConflict,
    /// More out-of-order ranges or mappings than are kept.
    ReorderFull,
    /// Payload or FIN past the peer's FIN.
    PastFin,
    /// A data-level checksum where none was negotiated, or none where one was (RFC 8684, section
    /// 3.3).
    UnexpectedChecksum,
    /// Payload that comes when nobody reads the stream any more.
    NoReader,
    /// It came before the MP_CAPABLE that completes the handshake.
    BeforeHandshake,
    /// It should have completed a join, and has no MP_JOIN, a wrong HMAC, or payload (RFC 8684,
    /// section 3.2).
    BadJoin,
}

impl DropReason {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 18] = [
        Self::Closed,
        Self::Paws,
        Self::OutOfWindow,
        Self::Duplicate,
        Self::RstChallenged,
        Self::SynChallenged,
        Self::NoAck,
        Self::AckTooOld,
        Self::AckUnsent,
        Self::Unmapped,
        Self::BeyondWindow,
        Self::MappingConflict,
        Self::ReorderFull,
        Self::PastFin,
        Self::UnexpectedChecksum,
        Self::NoReader,
        Self::BeforeHandshake,
        Self::BadJoin,
    ];

    /// The place of this reason in [`ALL`](Self::ALL), for tables of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the drop counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "subflow_closed",
            Self::Paws => "paws",
            Self::OutOfWindow => "out_of_window",
            Self::Duplicate => "duplicate",
            Self::RstChallenged => "rst_challenged",
            Self::SynChallenged => "syn_challenged",
            Self::NoAck => "no_ack",
            Self::AckTooOld => "ack_too_old",
            Self::AckUnsent => "ack_unsent",
            Self::Unmapped => "unmapped",
            Self::BeyondWindow => "beyond_window",
            Self::MappingConflict => "mapping_conflict",
            Self::ReorderFull => "reorder_full",
            Self::PastFin => "past_fin",
            Self::UnexpectedChecksum => "unexpected_checksum",
            Self::NoReader => "no_reader",
            Self::BeforeHandshake => "before_handshake",
            Self::BadJoin => "bad_join",
        }
    }
}

/// What happened on a subflow, once each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// The handshake is complete. Placements of the same segment come after it.
    Established {
        /// The peer's key, where the connection speaks MPTCP; `None` means plain TCP.
        mptcp: Option<Key>,
    },
    /// MPTCP was under way or asked for, and the connection goes on as plain TCP. Payload that is
    /// held for its checksum is part of the stream as it is. A peer that has agreed to it after a
    /// checksum failed may still end its stream by [`DataFin`](Self::DataFin), if it has no more data.
    Fallback(FallbackReason),
    /// Data-level checksums are in use; right after [`Established`](Self::Established).
    ChecksumsInUse,
    /// A subflow that joined is proved to be of the same peer. If the connection does not take it
    /// any more ([`Connection::on_event`](crate::connection::Connection::on_event)), it is to be
    /// aborted.
    Joined {
        /// The peer's identifier of its address.
        address_id: AddressId,
        /// Whether the peer wants the subflow to be used as a backup only.
        backup: bool,
    },
    /// MPTCP options pass in both directions of the first subflow: further ones may join.
    FullyEstablished,
    /// ADD_ADDR with the right HMAC; its echo is on its way. A copy that comes later is told again.
    AddressAnnounced(AddAddr),
    /// The peer has echoed an ADD_ADDR of ours.
    AddressEchoed(AddressId),
    /// The peer has not echoed an ADD_ADDR of ours, however often it was sent.
    AddressUnanswered(AddressId),
    /// REMOVE_ADDR: the peer gives up these addresses. Subflows of theirs may still work; see
    /// [`check_path`](super::Subflow::check_path).
    AddressesRemoved(RemoveAddr),
    /// MP_PRIO: whether the peer wants this subflow to be used as a backup only.
    PriorityChanged {
        /// The B flag.
        backup: bool,
    },
    /// The checksum of a mapping failed.
    ChecksumFailed {
        /// Where the mapping begins in the stream.
        at: StreamOffset,
        /// Whether the connection now waits for the peer to agree to plain TCP, so that no further
        /// subflow may join it; otherwise the subflow is reset.
        falling_back: bool,
    },
    /// The peer's DATA_FIN: its data ends at this offset. The data before it may be missing yet.
    DataFin {
        /// The length of the stream.
        at: StreamOffset,
    },
    /// The peer's FIN where it ends the stream: in plain TCP, and after a fallback.
    StreamEnd {
        /// The length of the stream.
        at: StreamOffset,
    },
    /// The peer's FIN on an MPTCP subflow: it sends nothing more here.
    SubflowFin,
    /// The peer has acknowledged that our data ended (DATA_FIN; FIN in plain TCP).
    LocalFinAcked,
    /// MP_FASTCLOSE with the right key: the whole connection is aborted by the peer.
    FastClose,
    /// The subflow was reset.
    Reset(ResetCause),
    /// The peer stopped answering: retransmissions or keepalive probes ran out.
    TimedOut,
    /// The subflow is in CLOSED: it has no timer left, and once
    /// [`poll_transmit`](super::Subflow::poll_transmit) returns `None` it can be dropped. Always
    /// the last event.
    Closed,
}

/// Why a connection goes on as plain TCP (RFC 8684, section 3.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FallbackReason {
    /// The client's SYN came without MP_CAPABLE, or a later copy of it did, and so did the ACK.
    NoCapableInSyn,
    /// The SYN's MP_CAPABLE is of a version or form that is to be ignored.
    UnusableCapable,
    /// The peer requires checksums, which we refuse.
    ChecksumRequired,
    /// The endpoint is configured for, or had only the means for, plain TCP.
    Disabled,
    /// The third ACK came without MP_CAPABLE, or with wrong keys.
    NoCapableInAck,
    /// The first data came without a mapping, or the end right behind it without a DATA_FIN.
    NoMappingInFirstData,
    /// The peer signalled an infinite mapping.
    InfiniteMapping,
    /// The peer sent MP_FAIL.
    PeerFailed,
    /// A checksum failed, and the peer answered our MP_FAIL.
    ChecksumFailed,
}

impl FallbackReason {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 9] = [
        Self::NoCapableInSyn,
        Self::UnusableCapable,
        Self::ChecksumRequired,
        Self::Disabled,
        Self::NoCapableInAck,
        Self::NoMappingInFirstData,
        Self::InfiniteMapping,
        Self::PeerFailed,
        Self::ChecksumFailed,
    ];

    /// The place of this reason in [`ALL`](Self::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A stable name, for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoCapableInSyn => "no_mp_capable_in_syn",
            Self::UnusableCapable => "unusable_mp_capable",
            Self::ChecksumRequired => "checksum_required",
            Self::Disabled => "mptcp_disabled",
            Self::NoCapableInAck => "no_mp_capable_in_ack",
            Self::NoMappingInFirstData => "no_mapping_in_first_data",
            Self::InfiniteMapping => "infinite_mapping",
            Self::PeerFailed => "mp_fail",
            Self::ChecksumFailed => "checksum_failed",
        }
    }
}

/// Who reset a subflow, and why.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResetCause {
    /// The peer did; the reason is that of its MP_TCPRST, if it sent one.
    Peer {
        /// The reason code (RFC 8684, section 3.6).
        reason: Option<u8>,
    },
    /// The peer broke the protocol, and we did.
    Violation(ResetReason),
    /// Our side called [`abort`](super::Subflow::abort).
    Local,
}

/// The reason codes of MP_TCPRST (RFC 8684, section 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ResetReason {
    /// Unspecified.
    Unspecified = 0,
    /// An error of MPTCP itself.
    MptcpSpecific = 1,
    /// A lack of resources.
    Resources = 2,
    /// Administratively prohibited.
    Prohibited = 3,
    /// Too much outstanding data.
    OutstandingData = 4,
    /// Unacceptable performance.
    Performance = 5,
    /// A middlebox interferes.
    Middlebox = 6,
}

impl ResetReason {
    /// The option that gives this reason. T is set where a later attempt may succeed.
    pub(super) const fn option(self) -> MpReset {
        let transient = matches!(self, Self::Resources | Self::OutstandingData | Self::Performance);
        MpReset { flags: transient as u8, reason: self as u8 }
    }
}

/// How a subflow is aborted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Abort {
    /// The connection ends: RST with MP_FASTCLOSE in MPTCP mode, RST in plain TCP.
    Connection,
    /// Only this subflow ends: RST, with MP_TCPRST in MPTCP mode.
    Subflow(ResetReason),
}

/// What a SYN that opens nothing is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// The reset to send, where one is due.
    pub reply: Option<Segment>,
}

/// Why a segment that came to a listener opened no subflow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RefusalReason {
    /// It is not a SYN: RST where it has ACK, silence otherwise (RFC 9293, section 3.10.7.2).
    NotSyn,
    /// SYN with RST or FIN.
    BadFlags,
    /// MP_JOIN came to a listener that takes none.
    Join,
    /// MP_JOIN with a token of no connection.
    JoinUnknownToken,
    /// MP_JOIN before the connection's first subflow is known to work in both directions. There
    /// is no reset: the SYN will come again, and by then it may be.
    JoinTooEarly,
    /// MP_JOIN of a connection that is plain TCP, or on its way there.
    JoinFellBack,
    /// MP_JOIN of a connection that is closing.
    JoinClosing,
    /// MP_JOIN to an address or port that was not announced.
    JoinNotAnnounced,
    /// MP_JOIN to the first subflow's address and port, which the peer was told not to try
    /// ([`Config::deny_joins_to_initial_address`](crate::config::Config)).
    JoinInitialAddress,
    /// MP_JOIN of a connection that has as many subflows as it may.
    JoinTooMany,
    /// MP_JOIN while there are too many half-open ones, or too little memory.
    JoinResources,
}

impl RefusalReason {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: [Self; 11] = [
        Self::NotSyn,
        Self::BadFlags,
        Self::Join,
        Self::JoinUnknownToken,
        Self::JoinTooEarly,
        Self::JoinFellBack,
        Self::JoinClosing,
        Self::JoinNotAnnounced,
        Self::JoinInitialAddress,
        Self::JoinTooMany,
        Self::JoinResources,
    ];

    /// The place of this reason in [`ALL`](Self::ALL), for tables of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of the drop counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotSyn => "listen_not_syn",
            Self::BadFlags => "listen_bad_flags",
            Self::Join => "join_refused",
            Self::JoinUnknownToken => "join_unknown_token",
            Self::JoinTooEarly => "join_too_early",
            Self::JoinFellBack => "join_fell_back",
            Self::JoinClosing => "join_closing",
            Self::JoinNotAnnounced => "join_not_announced",
            Self::JoinInitialAddress => "join_initial_address",
            Self::JoinTooMany => "join_too_many",
            Self::JoinResources => "join_resources",
        }
    }

    /// The reason that the reset of a refused MP_JOIN gives (RFC 8684, sections 3.2 and 3.6), if
    /// there is one.
    pub(super) const fn reset_reason(self) -> Option<ResetReason> {
        match self {
            Self::NotSyn | Self::BadFlags | Self::JoinTooEarly => None,
            Self::JoinUnknownToken => Some(ResetReason::MptcpSpecific),
            Self::JoinResources => Some(ResetReason::Resources),
            Self::Join
            | Self::JoinFellBack
            | Self::JoinClosing
            | Self::JoinNotAnnounced
            | Self::JoinInitialAddress
            | Self::JoinTooMany => Some(ResetReason::Prohibited),
        }
    }
}

/// Counts of one subflow since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SubflowStatistics {
    /// Bytes of payload taken, each sequence number once.
    pub bytes: u64,
    /// Segments that came in, whatever became of them.
    pub segments: u64,
    /// Segments that came ahead of a missing one and were taken.
    pub out_of_order: u64,
    /// Bytes of payload that came again on this subflow.
    pub duplicate_bytes: u64,
    /// Segments sent.
    pub segments_sent: u64,
    /// Bytes of ours that were sent again; SYN, FIN and DATA_FIN count as one each.
    pub retransmitted_bytes: u64,
    /// Challenge ACKs sent.
    pub challenge_acks: u64,
    /// Challenge ACKs that were due, and not sent as there had been so many (RFC 5961, section 7).
    pub challenges_withheld: u64,
    /// ADD_ADDR options ignored for their HMAC.
    pub forged_addresses: u64,
    /// Mappings whose checksum was wrong.
    pub checksum_failures: u64,
}
