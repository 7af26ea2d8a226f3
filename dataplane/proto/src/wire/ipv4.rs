//! IPv4 headers (RFC 791).

use core::net::{IpAddr, Ipv4Addr};

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::parse::{Network, truncated};
use super::{ParseError, checksum};

/// The protocol number of TCP, in IPv4 and IPv6 alike.
pub const TCP: u8 = 6;
/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// The fixed part of an IPv4 header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version, and the header's length in units of four octets.
    pub version_and_length: u8,
    /// DSCP and, in the low two bits, ECN.
    pub traffic_class: u8,
    /// Octets of header and payload.
    pub total_length: U16,
    /// Identification.
    pub identification: U16,
    /// Flags and fragment offset.
    pub fragment: U16,
    /// Time to live.
    pub time_to_live: u8,
    /// The protocol of the payload.
    pub protocol: u8,
    /// The header's checksum.
    pub checksum: U16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

/// Reads the header at `at`. `first` is the frame's first buffer, `total` the frame's length.
#[inline]
pub(super) fn parse(first: &[u8], at: usize, total: usize) -> Result<Network, ParseError> {
    let Some(bytes) = first.get(at..) else { return Err(ParseError::IpTruncated) };
    let Ok((header, _)) = Ipv4Header::ref_from_prefix(bytes) else {
        return Err(truncated(at + HEADER_LEN, total, ParseError::IpTruncated));
    };
    if header.version_and_length >> 4 != 4 {
        return Err(ParseError::IpVersion);
    }
    let header_len = usize::from(header.version_and_length & 0x0f) * 4;
    let total_length = usize::from(header.total_length.get());
    if header_len < HEADER_LEN || total_length < header_len {
        return Err(ParseError::IpLength);
    }
    let end = at + total_length;
    if end > total {
        return Err(ParseError::IpTruncated);
    }
    let Some(options) = bytes.get(HEADER_LEN..header_len) else {
        return Err(ParseError::HeadersSplit);
    };
    // The fixed part has a length that the compiler knows, and mostly there is no other.
    let mut sum = checksum::sum_inline(header.as_bytes());
    if !options.is_empty() {
        sum += checksum::sum(options);
    }
    if checksum::fold(sum) != 0xffff {
        return Err(ParseError::IpChecksum);
    }
    if header.fragment.get() & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0 {
        return Err(ParseError::IpFragment);
    }
    if header.protocol != TCP {
        return Err(ParseError::IpProtocol);
    }
    let source = Ipv4Addr::from(header.source);
    let destination = Ipv4Addr::from(header.destination);
    if !is_unicast(source) || !is_unicast(destination) {
        return Err(ParseError::IpAddress);
    }
    Ok(Network {
        source: IpAddr::V4(source),
        destination: IpAddr::V4(destination),
        traffic_class: header.traffic_class,
        hop_limit: header.time_to_live,
        tcp_at: at + header_len,
        end,
    })
}

// A broadcast address of a subnet looks like any other from here; the listener's address, which
// the packet must match, keeps it out.
const fn is_unicast(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

impl Ipv4Header {
    /// A header without options for a TCP segment that must not be fragmented, its checksum
    /// filled in. `total_length` counts the header and what follows it.
    #[must_use]
    pub fn for_tcp(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        total_length: u16,
        time_to_live: u8,
        traffic_class: u8,
        identification: u16,
    ) -> Self {
        let mut header = Self {
            version_and_length: 0x45,
            traffic_class,
            total_length: U16::new(total_length),
            identification: U16::new(identification),
            fragment: U16::new(DONT_FRAGMENT),
            time_to_live,
            protocol: TCP,
            checksum: U16::ZERO,
            source: source.octets(),
            destination: destination.octets(),
        };
        header.checksum = U16::new(!checksum::fold(checksum::sum(header.as_bytes())));
        header
    }
}
