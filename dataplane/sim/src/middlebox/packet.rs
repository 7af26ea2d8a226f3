//! Editing the TCP packets in frames.
//!
//! Headers are edited so that the TCP checksum changes by the difference (RFC 1624): a packet that
//! was damaged on its way stays damaged. Only what cuts, merges or alters payload computes it anew,
//! and leaves damaged packets alone.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use mpxdp_proto::segment::{Flags, Segment};
use mpxdp_proto::wire::{Frame, checksum, ipv4, ipv6, mptcp, parse_frame, tcp};

use super::flows::FlowKey;
use super::{Direction, OptionName};

/// What comes in the place of TCP options that are removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Padding {
    /// NOP options: the header keeps its length.
    Nops,
    /// Nothing: the header gets shorter, to the next multiple of four octets.
    Shrink,
}

const END: u8 = 0;
const NOP: u8 = 1;
const SACK: u8 = 5;

// Places in the headers.
const IPV4_TOTAL_LENGTH: usize = 2;
const IPV4_CHECKSUM: usize = 10;
const IPV4_SOURCE: usize = 12;
const IPV4_DESTINATION: usize = 16;
const IPV6_PAYLOAD_LENGTH: usize = 4;
const IPV6_SOURCE: usize = 8;
const IPV6_DESTINATION: usize = 24;
const TCP_SEQ: usize = 4;
const TCP_ACK: usize = 8;
const TCP_OFFSET: usize = 12;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;

/// A frame that holds a TCP segment.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    bytes: Vec<u8>,
    source: SocketAddr,
    destination: SocketAddr,
    segment: Segment,
    network_at: usize,
    tcp_at: usize,
    payload_at: usize,
    end: usize,
}

impl Packet {
    /// Looks into a frame; gives it back if it holds no whole TCP segment.
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, Vec<u8>> {
        let Ok(frame) = parse_frame(&bytes, bytes.len()) else { return Err(bytes) };
        let Frame { link, local, remote, segment, tcp_at, payload_at, .. } = frame;
        Ok(Self {
            source: remote,
            destination: local,
            segment,
            network_at: link.wire_len(),
            tcp_at,
            payload_at,
            end: frame.end(),
            bytes,
        })
    }

    /// The frame.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The segment, as it was when the frame was parsed.
    pub(super) const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Where it comes from, as it was when the frame was parsed.
    pub(super) const fn source(&self) -> SocketAddr {
        self.source
    }

    /// Where it goes, as it was when the frame was parsed.
    pub(super) const fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// The connection it belongs to.
    pub(super) const fn flow(&self, direction: Direction) -> FlowKey {
        match direction {
            Direction::Right => FlowKey { left: self.source, right: self.destination },
            Direction::Left => FlowKey { left: self.destination, right: self.source },
        }
    }

    pub(super) fn has(&self, flags: Flags) -> bool {
        self.segment.flags.contains(flags)
    }

    pub(super) const fn payload_len(&self) -> usize {
        self.end - self.payload_at
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[self.payload_at..self.end]
    }

    /// Octets of the IP packet.
    pub(super) const fn ip_len(&self) -> usize {
        self.end - self.network_at
    }

    const fn is_ipv6(&self) -> bool {
        self.destination.is_ipv6()
    }

    /// Whether the TCP checksum is right.
    pub(super) fn is_intact(&self) -> bool {
        checksum::fold(self.pseudo_header_sum() + checksum::sum(&self.bytes[self.tcp_at..self.end]))
            == 0xffff
    }

    /// The octets of the addresses.
    fn addresses(&self) -> Range<usize> {
        if self.is_ipv6() {
            self.network_at + IPV6_SOURCE..self.network_at + ipv6::HEADER_LEN
        } else {
            self.network_at + IPV4_SOURCE..self.network_at + ipv4::HEADER_LEN
        }
    }

    fn pseudo_header_sum(&self) -> u32 {
        let length = (self.end - self.tcp_at) as u32;
        checksum::sum(&self.bytes[self.addresses()]) + u32::from(ipv4::TCP) + length
    }

    /// The sum of all that edits of headers may change.
    fn header_sum(&self) -> u32 {
        self.pseudo_header_sum() + checksum::sum(&self.bytes[self.tcp_at..self.payload_at])
    }

    /// Edits headers and corrects the TCP checksum by the difference.
    fn edit(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.header_sum();
        change(self);
        // With the old checksum still in the header, the new one is the old one plus what the sum
        // of all else lost.
        let lost =
            u32::from(checksum::fold(before)) + u32::from(!checksum::fold(self.header_sum()));
        let at = self.tcp_at + TCP_CHECKSUM;
        let old = u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        self.put(at, &checksum::fold(u32::from(old) + lost).to_be_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Computes the TCP checksum anew.
    fn fill_checksum(&mut self) {
        let at = self.tcp_at + TCP_CHECKSUM;
        self.put(at, &[0, 0]);
        let sum = self.pseudo_header_sum() + checksum::sum(&self.bytes[self.tcp_at..self.end]);
        self.put(at, &(!checksum::fold(sum)).to_be_bytes());
    }

    /// Makes the length field of IP say what is there.
    fn fill_ip_length(&mut self) {
        if self.is_ipv6() {
            let length = (self.ip_len() - ipv6::HEADER_LEN) as u16;
            self.put(self.network_at + IPV6_PAYLOAD_LENGTH, &length.to_be_bytes());
        } else {
            let length = self.ip_len() as u16;
            self.put(self.network_at + IPV4_TOTAL_LENGTH, &length.to_be_bytes());
            self.fill_ip_checksum();
        }
    }

    fn fill_ip_checksum(&mut self) {
        let at = self.network_at + IPV4_CHECKSUM;
        self.put(at, &[0, 0]);
        // The parser has verified the header's length.
        let length = usize::from(self.bytes[self.network_at] & 0x0f) * 4;
        let sum = checksum::sum(&self.bytes[self.network_at..self.network_at + length]);
        self.put(at, &(!checksum::fold(sum)).to_be_bytes());
    }

    /// Changes the source; the address must be of the same family.
    pub(super) fn set_source(&mut self, to: SocketAddr) {
        self.set_end(to, IPV4_SOURCE, IPV6_SOURCE, 0);
    }

    /// Changes the destination; the address must be of the same family.
    pub(super) fn set_destination(&mut self, to: SocketAddr) {
        self.set_end(to, IPV4_DESTINATION, IPV6_DESTINATION, 2);
    }

    fn set_end(&mut self, to: SocketAddr, ipv4_at: usize, ipv6_at: usize, port_at: usize) {
        debug_assert_eq!(to.is_ipv6(), self.is_ipv6(), "the packet keeps its family");
        self.edit(|packet| {
            match to.ip() {
                IpAddr::V4(address) => packet.put(packet.network_at + ipv4_at, &address.octets()),
                IpAddr::V6(address) => packet.put(packet.network_at + ipv6_at, &address.octets()),
            }
            packet.put(packet.tcp_at + port_at, &to.port().to_be_bytes());
        });
        if !self.is_ipv6() {
            self.fill_ip_checksum();
        }
    }

    /// Adds to the sequence number, and to the acknowledgement number and SACK blocks; modulo 2^32.
    pub(super) fn shift(&mut self, seq: u32, ack: u32) {
        let acknowledges = self.has(Flags::ACK);
        self.edit(|packet| {
            packet.add(packet.tcp_at + TCP_SEQ, seq);
            if acknowledges {
                packet.add(packet.tcp_at + TCP_ACK, ack);
                let sacks = packet.options().filter(|option| option.kind == SACK);
                for at in sacks.map(|option| option.at).collect::<Vec<_>>() {
                    for number in (at.start + 2..at.end).step_by(4) {
                        if number + 4 <= at.end {
                            packet.add(number, ack);
                        }
                    }
                }
            }
        });
    }

    fn add(&mut self, at: usize, number: u32) {
        if let Some(field) = self.bytes[at..].first_chunk_mut() {
            *field = u32::from_be_bytes(*field).wrapping_add(number).to_be_bytes();
        }
    }

    /// The TCP options, padding left out. A list whose lengths do not add up ends early.
    fn options(&self) -> impl Iterator<Item = TcpOption> {
        let list = &self.bytes[..self.payload_at];
        let mut at = self.tcp_at + tcp::HEADER_LEN;
        std::iter::from_fn(move || {
            while list.get(at) == Some(&NOP) {
                at += 1;
            }
            let (kind, length) = (*list.get(at)?, *list.get(at + 1)?);
            let end = at + usize::from(length);
            if kind == END || length < 2 || end > list.len() {
                return None;
            }
            let first = list[at..end].get(2).copied();
            let option = TcpOption { kind, subtype: first.map(|byte| byte >> 4), at: at..end };
            at = end;
            Some(option)
        })
    }

    /// The MPTCP options, one behind the other.
    pub(super) fn mptcp_options(&self) -> impl Iterator<Item = u8> {
        self.options()
            .filter(|option| option.kind == mptcp::KIND)
            .flat_map(|option| option.at)
            .map(|at| self.bytes[at])
    }

    /// Removes options; says whether there were any.
    pub(super) fn remove_options(&mut self, what: &[OptionName], padding: Padding) -> bool {
        let (gone, kept): (Vec<_>, Vec<_>) = self.options().partition(|option| {
            what.iter().any(|name| match *name {
                OptionName::Kind(kind) => option.kind == kind,
                OptionName::Subtype(subtype) => {
                    option.kind == mptcp::KIND && option.subtype == Some(subtype)
                }
            })
        });
        if gone.is_empty() {
            return false;
        }
        match padding {
            Padding::Nops => self.edit(|packet| {
                for option in gone {
                    packet.bytes[option.at].fill(NOP);
                }
            }),
            Padding::Shrink => self.replace_options(&kept),
        }
        true
    }

    /// Leaves only these options.
    fn replace_options(&mut self, kept: &[TcpOption]) {
        let mut list: Vec<u8> =
            kept.iter().flat_map(|option| &self.bytes[option.at.clone()]).copied().collect();
        list.resize(list.len().next_multiple_of(4), NOP);
        self.edit(|packet| {
            let start = packet.tcp_at + tcp::HEADER_LEN;
            let shorter = packet.payload_at - start - list.len();
            let header_words = (tcp::HEADER_LEN + list.len()) as u8 / 4;
            packet.bytes.splice(start..packet.payload_at, list);
            packet.payload_at -= shorter;
            packet.end -= shorter;
            let offset = &mut packet.bytes[packet.tcp_at + TCP_OFFSET];
            *offset = header_words << 4 | *offset & 0x0f;
        });
        self.fill_ip_length();
    }

    /// Changes one octet of the payload, and corrects the TCP checksum. The packet must be intact.
    pub(super) fn alter(&mut self, at: usize, by: u8) {
        self.bytes[self.payload_at + at] ^= by;
        self.fill_checksum();
    }

    /// A segment with a part of this one's payload and these control bits. The packet must be
    /// intact.
    pub(super) fn part(&self, payload: Range<usize>, flags: Flags) -> Self {
        let skipped = payload.start as u32;
        let mut bytes = Vec::with_capacity(self.payload_at + payload.len());
        bytes.extend_from_slice(&self.bytes[..self.payload_at]);
        bytes.extend_from_slice(&self.payload()[payload]);
        let mut part = Self { end: bytes.len(), bytes, ..self.clone_without_bytes() };
        part.add(part.tcp_at + TCP_SEQ, skipped);
        part.bytes[part.tcp_at + TCP_FLAGS] = flags.0;
        part.segment.flags = flags;
        part.fill_ip_length();
        part.fill_checksum();
        part
    }

    fn clone_without_bytes(&self) -> Self {
        Self { bytes: Vec::new(), ..*self }
    }

    /// Appends the payload of the segment that follows this one, and takes its acknowledgement,
    /// window, and the control bits of both. Both must be intact.
    pub(super) fn append(&mut self, next: &Self) {
        self.bytes.truncate(self.end);
        self.bytes.extend_from_slice(next.payload());
        self.end = self.bytes.len();
        let flags = self.segment.flags.with(next.segment.flags);
        self.segment.flags = flags;
        self.segment.payload_len += next.segment.payload_len;
        self.put(self.tcp_at + TCP_ACK, &next.segment.ack.0.to_be_bytes());
        self.bytes[self.tcp_at + TCP_FLAGS] = flags.0;
        self.put(self.tcp_at + TCP_FLAGS + 1, &next.segment.window.to_be_bytes());
    }

    /// Makes lengths and checksums right after [`append`](Self::append).
    pub(super) fn finish(&mut self) {
        self.fill_ip_length();
        self.fill_checksum();
    }
}

/// Where an option lies in the frame.
#[derive(Clone, Debug)]
struct TcpOption {
    kind: u8,
    /// The high half of the first octet of its body: the subtype, if it is one of MPTCP's.
    subtype: Option<u8>,
    at: Range<usize>,
}
