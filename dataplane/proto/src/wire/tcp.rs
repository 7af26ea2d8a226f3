//! TCP headers (RFC 9293, section 3.1).

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ParseError;
use super::parse::truncated;

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Octets of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

/// The fixed part of a TCP header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub source_port: U16,
    /// Destination port.
    pub destination_port: U16,
    /// Sequence number.
    pub seq: U32,
    /// Acknowledgement number.
    pub ack: U32,
    /// The header's length in units of four octets (high half), and reserved bits.
    pub offset_and_reserved: u8,
    /// Control bits.
    pub flags: u8,
    /// Window, unscaled.
    pub window: U16,
    /// Checksum over the pseudo-header, the header and the payload.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent: U16,
}

/// The header at `at` and the octets of its options. `first` is the frame's first buffer, `end`
/// the place in the frame where the segment ends.
#[inline]
pub(super) fn parse(
    first: &[u8],
    at: usize,
    end: usize,
) -> Result<(&TcpHeader, &[u8]), ParseError> {
    if at + HEADER_LEN > end {
        return Err(ParseError::TcpTruncated);
    }
    let Some((header, rest)) =
        first.get(at..).and_then(|bytes| TcpHeader::ref_from_prefix(bytes).ok())
    else {
        return Err(truncated(at + HEADER_LEN, end, ParseError::TcpTruncated));
    };
    let Some(options_len) =
        (usize::from(header.offset_and_reserved >> 4) * 4).checked_sub(HEADER_LEN)
    else {
        return Err(ParseError::TcpOffset);
    };
    if at + HEADER_LEN + options_len > end {
        return Err(ParseError::TcpOffset);
    }
    let Some(options) = rest.get(..options_len) else { return Err(ParseError::HeadersSplit) };
    Ok((header, options))
}
