//! From values to the bytes of a frame.

use core::fmt;
use core::net::SocketAddr;

use zerocopy::IntoBytes;
use zerocopy::byteorder::network_endian::{U16, U32};

use super::checksum;
use super::ethernet::{self, LinkHeader};
use super::ipv4::{self, Ipv4Header};
use super::ipv6::{self, Ipv6Header};
use super::options;
use super::parse::pseudo_header_sum;
use super::tcp::{self, TcpHeader};
use crate::segment::Segment;

/// Why a frame could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EmitError {
    /// The buffer is shorter than the frame.
    BufferTooSmall,
    /// The options, SACK blocks aside, take more than 40 octets.
    OptionsTooLong,
    /// One address is of IPv4, the other of IPv6.
    AddressFamily,
    /// The packet is longer than the 65535 octets that an IP length field can say.
    PacketTooLong,
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BufferTooSmall => "the frame does not fit its buffer",
            Self::OptionsTooLong => "the TCP options take more than 40 octets",
            Self::AddressFamily => "the two addresses are of different families",
            Self::PacketTooLong => "the packet is longer than IP allows",
        })
    }
}

impl core::error::Error for EmitError {}

/// What the IP header says besides addresses and length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpFields {
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// DSCP in the high six bits, ECN in the low two.
    pub traffic_class: u8,
    /// The IPv4 identification. Packets are never to be fragmented (DF is set), so any value does
    /// (RFC 6864, section 4.1).
    pub identification: u16,
    /// The IPv6 flow label; its low 20 bits count.
    pub flow_label: u32,
}

impl Default for IpFields {
    /// Hop limit 64, everything else 0.
    fn default() -> Self {
        Self { hop_limit: 64, traffic_class: 0, identification: 0, flow_label: 0 }
    }
}

/// Writes a whole frame to the start of `buf`, checksums filled in, and gives its length.
///
/// `link` is written as it stands. The packet goes from `local` to `remote`. `payload` is the
/// segment's payload, and `segment.payload_len` its length. SACK blocks that do not fit beside
/// the other options are left out, the last ones first (see [`options::sack_room`]).
///
/// # Errors
///
/// See [`EmitError`]; then `buf` holds nothing of use.
pub fn emit_frame(
    buf: &mut [u8],
    link: &LinkHeader,
    local: SocketAddr,
    remote: SocketAddr,
    ip: IpFields,
    segment: &Segment,
    payload: &[u8],
) -> Result<usize, EmitError> {
    debug_assert_eq!(segment.payload_len as usize, payload.len());
    let options_len = options::options_len(&segment.options);
    if options_len > options::MAX_LEN {
        return Err(EmitError::OptionsTooLong);
    }
    let header_len = tcp::HEADER_LEN + options_len;
    let tcp_len = header_len + payload.len();
    let network_at = link.wire_len();
    let tcp_at = match (local, remote) {
        (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
            let total =
                u16::try_from(ipv4::HEADER_LEN + tcp_len).map_err(|_| EmitError::PacketTooLong)?;
            let tcp_at = network_at + ipv4::HEADER_LEN;
            let headers = buf.get_mut(..tcp_at).ok_or(EmitError::BufferTooSmall)?;
            link.emit(ethernet::IPV4, headers);
            let IpFields { hop_limit, traffic_class, identification, flow_label: _ } = ip;
            let header = Ipv4Header::for_tcp(
                *local.ip(),
                *remote.ip(),
                total,
                hop_limit,
                traffic_class,
                identification,
            );
            headers[network_at..].copy_from_slice(header.as_bytes());
            tcp_at
        }
        (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
            let total = u16::try_from(tcp_len).map_err(|_| EmitError::PacketTooLong)?;
            let tcp_at = network_at + ipv6::HEADER_LEN;
            let headers = buf.get_mut(..tcp_at).ok_or(EmitError::BufferTooSmall)?;
            link.emit(ethernet::IPV6, headers);
            let IpFields { hop_limit, traffic_class, identification: _, flow_label } = ip;
            let header = Ipv6Header::for_tcp(
                *local.ip(),
                *remote.ip(),
                total,
                hop_limit,
                traffic_class,
                flow_label,
            );
            headers[network_at..].copy_from_slice(header.as_bytes());
            tcp_at
        }
        _ => return Err(EmitError::AddressFamily),
    };
    let tcp = buf.get_mut(tcp_at..tcp_at + tcp_len).ok_or(EmitError::BufferTooSmall)?;
    let mut header = TcpHeader {
        source_port: U16::new(local.port()),
        destination_port: U16::new(remote.port()),
        seq: U32::new(segment.seq.0),
        ack: U32::new(segment.ack.0),
        // At most 60 / 4 in the high half.
        offset_and_reserved: (header_len as u8 / 4) << 4,
        flags: segment.flags.0,
        window: U16::new(segment.window),
        checksum: U16::ZERO,
        urgent: U16::new(segment.urgent),
    };
    options::emit(&segment.options, &mut tcp[tcp::HEADER_LEN..header_len])?;
    tcp[header_len..].copy_from_slice(payload);
    let sum = pseudo_header_sum(local.ip(), remote.ip(), tcp_len)
        + checksum::sum(header.as_bytes())
        + checksum::sum(&tcp[tcp::HEADER_LEN..]);
    header.checksum = U16::new(!checksum::fold(sum));
    tcp[..tcp::HEADER_LEN].copy_from_slice(header.as_bytes());
    Ok(tcp_at + tcp_len)
}
