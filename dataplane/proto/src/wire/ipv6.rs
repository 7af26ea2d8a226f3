//! IPv6 headers and extension headers (RFC 8200).

use core::net::{IpAddr, Ipv6Addr};

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ParseError;
use super::ipv4::TCP;
use super::parse::{Network, truncated};

/// Octets of the fixed header.
pub const HEADER_LEN: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// The fixed IPv6 header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version, traffic class and flow label.
    pub version_class_flow: U32,
    /// Octets that follow this header.
    pub payload_length: U16,
    /// The kind of what follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

/// Reads the header at `at` and the extension headers behind it. `first` is the frame's first
/// buffer, `total` the frame's length.
#[inline]
pub(super) fn parse(first: &[u8], at: usize, total: usize) -> Result<Network, ParseError> {
    let Some(bytes) = first.get(at..) else { return Err(ParseError::IpTruncated) };
    let Ok((header, _)) = Ipv6Header::ref_from_prefix(bytes) else {
        return Err(truncated(at + HEADER_LEN, total, ParseError::IpTruncated));
    };
    let version_class_flow = header.version_class_flow.get();
    if version_class_flow >> 28 != 6 {
        return Err(ParseError::IpVersion);
    }
    let end = at + HEADER_LEN + usize::from(header.payload_length.get());
    if end > total {
        return Err(ParseError::IpTruncated);
    }
    let mut tcp_at = at + HEADER_LEN;
    if header.next_header != TCP {
        tcp_at = skip_extensions(first, tcp_at, end, header.next_header)?;
    }
    let source = Ipv6Addr::from(header.source);
    let destination = Ipv6Addr::from(header.destination);
    if !is_unicast(source) || !is_unicast(destination) {
        return Err(ParseError::IpAddress);
    }
    Ok(Network {
        source: IpAddr::V6(source),
        destination: IpAddr::V6(destination),
        traffic_class: (version_class_flow >> 20) as u8,
        hop_limit: header.hop_limit,
        tcp_at,
        end,
    })
}

const fn is_unicast(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// Walks the extension headers from `at` on, the first of which is of the kind `next`; gives the
/// place of the TCP header. Each takes at least 8 octets, so the frame's length bounds the walk.
#[cold]
fn skip_extensions(
    first: &[u8],
    mut at: usize,
    end: usize,
    mut next: u8,
) -> Result<usize, ParseError> {
    let mut is_first = true;
    while next != TCP {
        match next {
            // Elsewhere than right behind the fixed header it counts as unknown (section 4.1).
            HOP_BY_HOP if !is_first => return Err(ParseError::IpExtension),
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {}
            FRAGMENT => return Err(ParseError::IpFragment),
            _ => return Err(ParseError::IpProtocol),
        }
        let Some(&[following, units, _, segments_left]) =
            first.get(at..).and_then(<[u8]>::first_chunk)
        else {
            return Err(truncated(at + 4, end, ParseError::IpExtension));
        };
        let next_at = at + 8 + 8 * usize::from(units);
        if next_at > end {
            return Err(ParseError::IpExtension);
        }
        let Some(extension) = first.get(at..next_at) else { return Err(ParseError::HeadersSplit) };
        let acceptable = match next {
            // What is left of a route leads elsewhere, and then the destination is not the last.
            ROUTING => segments_left == 0,
            _ => may_skip_options(&extension[2..]),
        };
        if !acceptable {
            return Err(ParseError::IpExtension);
        }
        next = following;
        at = next_at;
        is_first = false;
    }
    Ok(at)
}

/// Whether every option of a hop-by-hop or destination options header is one that a node which
/// does not know it skips (section 4.2: the two high bits of its type are 00).
fn may_skip_options(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        if *kind == 0 {
            options = rest;
            continue;
        }
        let [len, rest @ ..] = rest else { return false };
        let Some(rest) = rest.get(usize::from(*len)..) else { return false };
        if kind >> 6 != 0 {
            return false;
        }
        options = rest;
    }
    true
}

impl Ipv6Header {
    /// A header for a TCP segment of `payload_length` octets; the low 20 bits of `flow_label`
    /// count.
    #[must_use]
    pub fn for_tcp(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        payload_length: u16,
        hop_limit: u8,
        traffic_class: u8,
        flow_label: u32,
    ) -> Self {
        let class = u32::from(traffic_class) << 20;
        Self {
            version_class_flow: U32::new(6 << 28 | class | flow_label & 0x000f_ffff),
            payload_length: U16::new(payload_length),
            next_header: TCP,
            hop_limit,
            source: source.octets(),
            destination: destination.octets(),
        }
    }
}
