//! From the bytes of a frame to values, in one pass.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::ethernet::{self, LinkHeader};
use super::{checksum, ipv4, ipv6, options, tcp};
use crate::segment::{Flags, Segment};
use crate::seq::SeqNum;

/// Why a frame was not taken. Each has a [`name`](Self::name) for the drop counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ParseError {
    /// The frame ends within the Ethernet header or a VLAN tag.
    EthernetTruncated,
    /// The frame was sent to a multicast or the broadcast MAC address (RFC 9293, MUST-57).
    EthernetGroup,
    /// More than two VLAN tags.
    VlanDepth,
    /// Neither IPv4 nor IPv6.
    EtherType,
    /// The IP version field contradicts the EtherType.
    IpVersion,
    /// The frame is shorter than its IP header says, or than an IP header.
    IpTruncated,
    /// The IPv4 header's length fields contradict each other.
    IpLength,
    /// The IPv4 header's checksum is wrong.
    IpChecksum,
    /// A fragment; the kernel gets those.
    IpFragment,
    /// Not TCP.
    IpProtocol,
    /// An IPv6 extension header is malformed, misplaced, or one that a node that does not know it
    /// must not skip.
    IpExtension,
    /// The source or destination address is unspecified, multicast or broadcast.
    IpAddress,
    /// The segment is shorter than a TCP header.
    TcpTruncated,
    /// The data offset is less than 5 or reaches beyond the segment.
    TcpOffset,
    /// The headers reach into the frame's second buffer.
    HeadersSplit,
}

impl ParseError {
    /// Every reason, in the order of their discriminants.
    pub const ALL: [Self; 15] = [
        Self::EthernetTruncated,
        Self::EthernetGroup,
        Self::VlanDepth,
        Self::EtherType,
        Self::IpVersion,
        Self::IpTruncated,
        Self::IpLength,
        Self::IpChecksum,
        Self::IpFragment,
        Self::IpProtocol,
        Self::IpExtension,
        Self::IpAddress,
        Self::TcpTruncated,
        Self::TcpOffset,
        Self::HeadersSplit,
    ];

    /// A stable name for counters and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EthernetTruncated => "ethernet_truncated",
            Self::EthernetGroup => "ethernet_group",
            Self::VlanDepth => "vlan_depth",
            Self::EtherType => "ether_type",
            Self::IpVersion => "ip_version",
            Self::IpTruncated => "ip_truncated",
            Self::IpLength => "ip_length",
            Self::IpChecksum => "ip_checksum",
            Self::IpFragment => "ip_fragment",
            Self::IpProtocol => "ip_protocol",
            Self::IpExtension => "ip_extension",
            Self::IpAddress => "ip_address",
            Self::TcpTruncated => "tcp_truncated",
            Self::TcpOffset => "tcp_offset",
            Self::HeadersSplit => "headers_split",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for ParseError {}

/// What the headers of one frame say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The link header as received; [`LinkHeader::reply`] leads back.
    pub link: LinkHeader,
    /// The packet's destination: our end. The flow information and scope of IPv6 are 0.
    pub local: SocketAddr,
    /// The packet's source: the peer. The flow information and scope of IPv6 are 0.
    pub remote: SocketAddr,
    /// The segment; its `payload_len` is this frame's.
    pub segment: Segment,
    /// The place of the TCP header in the frame.
    pub tcp_at: usize,
    /// The place of the payload in the frame; it may lie in a later buffer than the first.
    pub payload_at: usize,
    /// Octets of payload. Padding behind the IP packet is left out.
    pub payload_len: usize,
    /// The ECN field of the IP header, 0 ..= 3 (RFC 3168).
    pub ecn: u8,
    /// The time to live or hop limit.
    pub hop_limit: u8,
}

impl Frame {
    /// The place in the frame where the segment ends. The TCP checksum covers
    /// `tcp_at .. end()` and the pseudo-header.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.payload_at + self.payload_len
    }

    /// The partial ones'-complement sum of the pseudo-header (RFC 9293, section 3.1; RFC 8200,
    /// section 8.1), over 16-bit big-endian words as in [`checksum::sum`]. It is below 2^21, so
    /// that it adds up with other partial sums.
    #[inline]
    #[must_use]
    pub fn pseudo_header_sum(&self) -> u32 {
        pseudo_header_sum(self.remote.ip(), self.local.ip(), self.end() - self.tcp_at)
    }

    /// Whether the TCP checksum is right, where `bytes` is the whole frame. This is the plain way
    /// for tests and rare paths.
    #[must_use]
    pub fn is_checksum_right(&self, bytes: &[u8]) -> bool {
        bytes.get(self.tcp_at..self.end()).is_some_and(|segment| {
            checksum::fold(self.pseudo_header_sum() + checksum::sum(segment)) == 0xffff
        })
    }
}

/// The partial sum of the pseudo-header of a TCP segment of `tcp_len` octets with its header.
#[inline]
#[must_use]
pub(super) fn pseudo_header_sum(source: IpAddr, destination: IpAddr, tcp_len: usize) -> u32 {
    let address = |address: IpAddr| match address {
        // In two halves, as a call would take longer than the sum.
        IpAddr::V4(address) => (address.to_bits() >> 16) + (address.to_bits() & 0xffff),
        IpAddr::V6(address) => checksum::sum(&address.octets()),
    };
    address(source) + address(destination) + u32::from(ipv4::TCP) + tcp_len as u32
}

/// What the network layer's headers say.
pub(super) struct Network {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) tcp_at: usize,
    pub(super) end: usize,
}

/// The reason for headers that the first buffer lacks: they are in the next buffer if the frame
/// has them at all.
pub(super) const fn truncated(needed: usize, has: usize, reason: ParseError) -> ParseError {
    if needed <= has { ParseError::HeadersSplit } else { reason }
}

impl Default for Frame {
    /// A frame that says nothing, for [`parse_frame_into`].
    fn default() -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self {
            link: LinkHeader::default(),
            local: nowhere,
            remote: nowhere,
            segment: Segment::default(),
            tcp_at: 0,
            payload_at: 0,
            payload_len: 0,
            ecn: 0,
            hop_limit: 0,
        }
    }
}

/// Parses the headers of one frame: Ethernet with up to two VLAN tags, IPv4 with options or IPv6
/// with extension headers, TCP with its options.
///
/// `first` is the first buffer of the frame and must hold all headers; `total` is the frame's
/// length over all its buffers. The IPv4 header's checksum is verified, the TCP checksum is not:
/// the caller does that, with [`Frame::pseudo_header_sum`], before it believes anything.
///
/// # Errors
///
/// The reason why the frame is not a TCP segment that can be taken.
pub fn parse_frame(first: &[u8], total: usize) -> Result<Frame, ParseError> {
    let mut frame = Frame::default();
    parse_frame_into(first, total, &mut frame)?;
    Ok(frame)
}

/// As [`parse_frame`], into `frame`, whatever it says already. This is the way for every packet: a
/// frame has some 400 octets, and to return them took longer than to parse them (44 against 21 ns
/// for a segment with timestamps and a mapping; virtual machine on AMD EPYC, 2026-11).
///
/// # Errors
///
/// As [`parse_frame`]; then `frame` says nothing of use.
#[inline]
pub fn parse_frame_into(first: &[u8], total: usize, frame: &mut Frame) -> Result<(), ParseError> {
    let first = first.get(..total).unwrap_or(first);
    let ether_type = frame.link.parse(first)?;
    let network = match ether_type {
        ethernet::IPV4 => ipv4::parse(first, frame.link.wire_len(), total)?,
        ethernet::IPV6 => ipv6::parse(first, frame.link.wire_len(), total)?,
        _ => return Err(ParseError::EtherType),
    };
    let (header, option_bytes) = tcp::parse(first, network.tcp_at, network.end)?;
    frame.local = SocketAddr::new(network.destination, header.destination_port.get());
    frame.remote = SocketAddr::new(network.source, header.source_port.get());
    frame.tcp_at = network.tcp_at;
    frame.payload_at = network.tcp_at + tcp::HEADER_LEN + option_bytes.len();
    frame.payload_len = network.end - frame.payload_at;
    frame.ecn = network.traffic_class & 3;
    frame.hop_limit = network.hop_limit;
    let Segment { seq, ack, flags, window, urgent, payload_len, options } = &mut frame.segment;
    *seq = SeqNum(header.seq.get());
    *ack = SeqNum(header.ack.get());
    *flags = Flags(header.flags);
    *window = header.window.get();
    *urgent = header.urgent.get();
    // At most 65535, by the IP length fields.
    *payload_len = frame.payload_len as u32;
    options::parse_into(option_bytes, *flags, options);
    Ok(())
}
