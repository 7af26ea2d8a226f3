//! A TCP segment as values: what a parsed packet says, and what is to be sent.
//!
//! The payload is not here. A segment says how long it is; where it lies is the driver's business.

use core::net::IpAddr;

use crate::seq::SeqNum;

/// The control bits of a TCP header (RFC 9293, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether every bit of `other` is set in `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A window scale shift count, 0 ..= 14 (RFC 7323, section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WindowScale(u8);

impl WindowScale {
    /// The largest shift that RFC 7323 allows.
    pub const MAX: Self = Self(14);
    /// No scaling.
    pub const ZERO: Self = Self(0);

    /// A shift of `shift`; a larger one than 14 is taken as 14 (RFC 7323, section 2.3).
    #[must_use]
    pub const fn new(shift: u8) -> Self {
        if shift > 14 { Self::MAX } else { Self(shift) }
    }

    /// The shift count.
    #[must_use]
    pub const fn shift(self) -> u8 {
        self.0
    }
}

/// The timestamps option (RFC 7323, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the value echoed; meaningful if ACK is set.
    pub echo: u32,
}

/// One block of a SACK option: `start` up to but not including `end` (RFC 2018, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBlock {
    /// The first sequence number of the block.
    pub start: SeqNum,
    /// The sequence number after the block's last.
    pub end: SeqNum,
}

/// Up to four SACK blocks, the most that fit the option space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; 4],
    len: u8,
}

impl SackBlocks {
    /// Adds `block` if fewer than four are held; says whether it was added.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let room = usize::from(self.len) < self.blocks.len();
        if room {
            self.blocks[usize::from(self.len)] = block;
            self.len += 1;
        }
        room
    }

    /// The blocks, in the order of the option.
    #[must_use]
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..usize::from(self.len)]
    }
}

/// A key of an MPTCP connection (RFC 8684, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(pub u64);

/// The token that names a connection in MP_JOIN: the top 32 bits of the key's SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u32);

/// An address identifier (RFC 8684, section 3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AddressId(pub u8);

/// MP_CAPABLE (RFC 8684, section 3.1). One that is parsed offers HMAC-SHA256 (H), has B clear, and
/// is of version 1, or of a later one in a SYN; others are ignored (see [`crate::wire::mptcp`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MpCapable {
    /// The version field, 0 ..= 15.
    pub version: u8,
    /// A: the sender requires data-level checksums.
    pub checksum_required: bool,
    /// B: extensibility; an option with it set is to be ignored.
    pub extensibility: bool,
    /// C: no further subflows to this address and port.
    pub no_join_to_initial_address: bool,
    /// D to H as they stand on the wire, the low five bits; H is 0x01 (HMAC-SHA256).
    pub algorithms: u8,
    /// What follows the flags; its form goes by the option's length.
    pub body: MpCapableBody,
}

/// The four forms of MP_CAPABLE, told apart by the option's length (RFC 8684, figure 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MpCapableBody {
    /// SYN, 4 octets.
    Syn,
    /// SYN/ACK, 12 octets: the sender's key.
    SynAck {
        /// The key of the option's sender.
        sender: Key,
    },
    /// Third ACK, 20 octets; with data 22 octets, or 24 with a checksum.
    Ack {
        /// The key of the option's sender.
        sender: Key,
        /// The key that the option's sender was given.
        receiver: Key,
        /// The data-level length and checksum, where the segment carries data.
        data: Option<MpCapableData>,
    },
}

/// The mapping that MP_CAPABLE on the first data segment stands for (RFC 8684, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MpCapableData {
    /// Data-level length in octets.
    pub length: u16,
    /// The data-level checksum, where checksums are in use.
    pub checksum: Option<u16>,
}

/// MP_JOIN (RFC 8684, section 3.2); the form goes by the option's length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MpJoin {
    /// SYN, 12 octets.
    Syn {
        /// B: this subflow is for backup.
        backup: bool,
        /// The identifier of the sender's address.
        address_id: AddressId,
        /// The receiver's token.
        token: Token,
        /// The sender's nonce.
        nonce: u32,
    },
    /// SYN/ACK, 16 octets.
    SynAck {
        /// B: this subflow is for backup.
        backup: bool,
        /// The identifier of the sender's address.
        address_id: AddressId,
        /// The leftmost 64 bits of the sender's HMAC.
        hmac: u64,
        /// The sender's nonce.
        nonce: u32,
    },
    /// Third ACK, 24 octets.
    Ack {
        /// The leftmost 160 bits of the sender's HMAC.
        hmac: [u8; 20],
    },
}

/// A data sequence number or data acknowledgement as it stands in a DSS option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DssNumber {
    /// The low 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

/// The mapping part of a DSS option (RFC 8684, section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DssMapping {
    /// Data sequence number of the first octet.
    pub data_seq: DssNumber,
    /// Subflow sequence number of the first octet, relative to the SYN (which is 0).
    pub subflow_seq: u32,
    /// Data-level length; a DATA_FIN counts as one octet; 0 is an infinite mapping.
    pub length: u16,
    /// The checksum, where the option carries one.
    pub checksum: Option<u16>,
}

/// A DSS option (RFC 8684, section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Dss {
    /// F: the data ends after this mapping.
    pub data_fin: bool,
    /// The data acknowledgement.
    pub ack: Option<DssNumber>,
    /// The mapping.
    pub mapping: Option<DssMapping>,
}

/// ADD_ADDR (RFC 8684, section 3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddAddr {
    /// The identifier of the address.
    pub id: AddressId,
    /// The address.
    pub address: IpAddr,
    /// The port, where it differs from the connection's.
    pub port: Option<u16>,
    /// The truncated HMAC of an announcement; `None` is an echo (E is set).
    pub hmac: Option<u64>,
}

/// REMOVE_ADDR (RFC 8684, section 3.4.2): up to eight identifiers are kept of a longer list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RemoveAddr {
    ids: [AddressId; 8],
    len: u8,
}

impl RemoveAddr {
    /// Adds `id` if fewer than eight are held; says whether it was added.
    pub fn push(&mut self, id: AddressId) -> bool {
        let room = usize::from(self.len) < self.ids.len();
        if room {
            self.ids[usize::from(self.len)] = id;
            self.len += 1;
        }
        room
    }

    /// The identifiers, in the order of the option.
    #[must_use]
    pub fn as_slice(&self) -> &[AddressId] {
        &self.ids[..usize::from(self.len)]
    }
}

/// MP_TCPRST (RFC 8684, section 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MpReset {
    /// U, V and W as they stand on the wire, then T: the low four bits; T is 0x01 (transient).
    pub flags: u8,
    /// The reason code.
    pub reason: u8,
}

/// The MPTCP options of one segment. A kind that comes twice counts once, the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MptcpOptions {
    /// MP_CAPABLE.
    pub capable: Option<MpCapable>,
    /// MP_JOIN.
    pub join: Option<MpJoin>,
    /// DSS.
    pub dss: Option<Dss>,
    /// ADD_ADDR.
    pub add_addr: Option<AddAddr>,
    /// REMOVE_ADDR.
    pub remove_addr: Option<RemoveAddr>,
    /// MP_PRIO: the backup bit.
    pub priority: Option<bool>,
    /// MP_FAIL: the data sequence number at which the data failed.
    pub fail: Option<u64>,
    /// MP_FASTCLOSE: the receiver's key.
    pub fast_close: Option<Key>,
    /// MP_TCPRST.
    pub reset: Option<MpReset>,
}

/// The options of one segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Options {
    /// Maximum segment size (RFC 9293, section 3.7.1), octets.
    pub mss: Option<u16>,
    /// Window scale (RFC 7323, section 2).
    pub window_scale: Option<WindowScale>,
    /// SACK permitted (RFC 2018, section 2).
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// MPTCP options.
    pub mptcp: MptcpOptions,
}

/// A TCP segment without its payload and without its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Segment {
    /// Sequence number of the first octet, or of SYN.
    pub seq: SeqNum,
    /// Acknowledgement number; meaningful if ACK is set.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// The window field as it stands on the wire, unscaled.
    pub window: u16,
    /// The urgent pointer; meaningful if URG is set.
    pub urgent: u16,
    /// Octets of payload.
    pub payload_len: u32,
    /// Options.
    pub options: Options,
}

impl Segment {
    /// The sequence space that the segment takes: payload, SYN and FIN (RFC 9293, SEG.LEN).
    #[must_use]
    pub const fn seq_len(&self) -> u32 {
        self.payload_len
            + self.flags.contains(Flags::SYN) as u32
            + self.flags.contains(Flags::FIN) as u32
    }
}
