//! A link with a smaller MTU than the ends believe.

use mpxdp_proto::time::Instant;
use mpxdp_proto::wire::{LinkHeader, checksum, ethernet, ipv4, ipv6, parse_frame};

use super::{Counters, Direction, Middlebox, Output};

/// The protocol numbers of ICMP and ICMPv6.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Octets of an ICMP header.
const ICMP_LEN: usize = 8;
/// What is quoted of the packet: in IPv4 its header and 8 octets at least (RFC 792) but no more than
/// makes 576 octets in all (RFC 1812, section 4.3.2.3), in IPv6 no more than makes 1280 (RFC 4443,
/// section 3.2).
const QUOTE_IPV4: usize = 576 - ipv4::HEADER_LEN - ICMP_LEN;
const QUOTE_IPV6: usize = 1280 - ipv6::HEADER_LEN - ICMP_LEN;

/// Loses packets that are too long.
#[derive(Debug)]
pub(super) struct Mtu {
    mtu: usize,
    icmp: bool,
    counters: Counters,
}

impl Mtu {
    pub(super) fn new(mtu: u64, icmp: bool) -> Self {
        let mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
        Self { mtu, icmp, counters: Counters::default() }
    }
}

impl Middlebox for Mtu {
    fn on_frame(&mut self, _: Instant, direction: Direction, frame: Vec<u8>, out: &mut Output) {
        let Some(packet) = IpPacket::find(&frame).filter(|packet| packet.bytes.len() > self.mtu)
        else {
            return out.push(direction, frame);
        };
        self.counters.dropped += 1;
        if self.icmp
            && let Ok(parsed) = parse_frame(&frame, frame.len())
        {
            self.counters.added += 1;
            out.push(direction.reverse(), packet.too_big(parsed.link, self.mtu));
        }
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

/// An IP packet in a frame, without padding.
struct IpPacket<'a> {
    bytes: &'a [u8],
    is_ipv6: bool,
}

impl<'a> IpPacket<'a> {
    fn find(frame: &'a [u8]) -> Option<Self> {
        let mut at = ethernet::HEADER_LEN;
        let is_ipv6 = loop {
            let octets = frame.get(at - 2..at)?;
            match u16::from_be_bytes([octets[0], octets[1]]) {
                ethernet::CUSTOMER_TAG | ethernet::SERVICE_TAG => at += ethernet::TAG_LEN,
                ethernet::IPV4 => break false,
                ethernet::IPV6 => break true,
                _ => return None,
            }
        };
        let bytes = frame.get(at..)?;
        let (length_at, fixed) = if is_ipv6 { (4, ipv6::HEADER_LEN) } else { (2, 0) };
        let length = bytes.get(length_at..length_at + 2)?;
        let length = fixed + usize::from(u16::from_be_bytes([length[0], length[1]]));
        Some(Self { bytes: bytes.get(..length).unwrap_or(bytes), is_ipv6 })
    }

    /// The message to the packet's sender, as if its destination had sent it: it needs an address,
    /// and this one is sure to have a route. `link` is the header of the packet's frame; the packet
    /// has been parsed as TCP.
    fn too_big(&self, link: LinkHeader, mtu: usize) -> Vec<u8> {
        let link = link.reply();
        let mut frame = Vec::new();
        frame.extend_from_slice(&link.destination.0);
        frame.extend_from_slice(&link.source.0);
        for tag in link.tags() {
            frame.extend_from_slice(&tag.protocol.to_be_bytes());
            frame.extend_from_slice(&tag.control.to_be_bytes());
        }
        let ether_type = if self.is_ipv6 { ethernet::IPV6 } else { ethernet::IPV4 };
        frame.extend_from_slice(&ether_type.to_be_bytes());
        let network_at = frame.len();
        let mtu = mtu.min(65_535) as u16;
        if self.is_ipv6 {
            let quote = &self.bytes[..self.bytes.len().min(QUOTE_IPV6)];
            let length = (ICMP_LEN + quote.len()) as u16;
            frame.extend_from_slice(&[0x60, 0, 0, 0]);
            frame.extend_from_slice(&length.to_be_bytes());
            frame.extend_from_slice(&[ICMPV6, 64]);
            frame.extend_from_slice(&self.bytes[24..40]);
            frame.extend_from_slice(&self.bytes[8..24]);
            let pseudo =
                checksum::sum(&frame[network_at + 8..]) + u32::from(length) + u32::from(ICMPV6);
            // Packet Too Big (RFC 4443, section 3.2).
            push_message(&mut frame, [2, 0], u32::from(mtu), quote, pseudo);
        } else {
            let quote = &self.bytes[..self.bytes.len().min(QUOTE_IPV4)];
            let total = (ipv4::HEADER_LEN + ICMP_LEN + quote.len()) as u16;
            frame.extend_from_slice(&[0x45, 0]);
            frame.extend_from_slice(&total.to_be_bytes());
            frame.extend_from_slice(&[0, 0, 0, 0, 64, ICMP, 0, 0]);
            frame.extend_from_slice(&self.bytes[16..20]);
            frame.extend_from_slice(&self.bytes[12..16]);
            let sum = !checksum::fold(checksum::sum(&frame[network_at..]));
            frame[network_at + 10..network_at + 12].copy_from_slice(&sum.to_be_bytes());
            // Fragmentation needed and DF set, with the MTU (RFC 1191, section 4).
            push_message(&mut frame, [3, 4], u32::from(mtu), quote, 0);
        }
        frame
    }
}

/// Appends an ICMP message with `word` behind its checksum. `pseudo` is the sum of a pseudo-header.
fn push_message(frame: &mut Vec<u8>, head: [u8; 2], word: u32, quote: &[u8], pseudo: u32) {
    let at = frame.len();
    frame.extend_from_slice(&head);
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&word.to_be_bytes());
    frame.extend_from_slice(quote);
    let sum = !checksum::fold(pseudo + checksum::sum(&frame[at..]));
    frame[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
}
