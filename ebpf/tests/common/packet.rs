//! Builders of frames, sound ones and such as no sender should send.
//!
//! What a builder leaves `None` is filled with what is right for the rest.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub(crate) const OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(crate) const PEER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 7);

pub(crate) const OUR_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
pub(crate) const PEER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x07];

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const QINQ: u16 = 0x88a8;

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const ESP: u8 = 50;
pub(crate) const AUTHENTICATION: u8 = 51;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const NO_NEXT_HEADER: u8 = 59;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;

/// The Ethernet layer around a packet.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) destination: [u8; 6],
    /// Type and control of each VLAN tag, the outer first.
    pub(crate) tags: Vec<(u16, u16)>,
    pub(crate) ethertype: u16,
    pub(crate) packet: Vec<u8>,
    /// Octets after the packet, as the padding to 60 octets is.
    pub(crate) padding: usize,
    /// Cuts the frame to this length.
    pub(crate) cut: Option<usize>,
}

impl Frame {
    pub(crate) fn build(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend_from_slice(&self.destination);
        frame.extend_from_slice(&PEER_MAC);
        for &(kind, control) in &self.tags {
            frame.extend_from_slice(&kind.to_be_bytes());
            frame.extend_from_slice(&control.to_be_bytes());
        }
        frame.extend_from_slice(&self.ethertype.to_be_bytes());
        frame.extend_from_slice(&self.packet);
        frame.resize(frame.len() + self.padding, 0);
        if let Some(length) = self.cut {
            assert!(length < frame.len(), "a cut that cuts nothing");
            frame.truncate(length);
        }
        frame
    }

    pub(crate) fn of(ethertype: u16, packet: Vec<u8>) -> Self {
        Self { destination: OUR_MAC, tags: Vec::new(), ethertype, packet, padding: 0, cut: None }
    }

    pub(crate) fn tagged(self, tags: &[(u16, u16)]) -> Self {
        Self { tags: tags.to_vec(), ..self }
    }

    pub(crate) fn cut_to(self, length: usize) -> Self {
        Self { cut: Some(length), ..self }
    }

    pub(crate) fn padded_by(self, padding: usize) -> Self {
        Self { padding, ..self }
    }

    pub(crate) fn to(self, destination: [u8; 6]) -> Self {
        Self { destination, ..self }
    }
}

/// A TCP segment; its checksum is left zero, since XDP leaves it to the worker.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    pub(crate) options: Vec<u8>,
    /// The data offset field, in 4-octet units.
    pub(crate) offset: Option<u8>,
    pub(crate) flags: u8,
    pub(crate) payload: usize,
}

impl Segment {
    pub(crate) fn to(destination: u16) -> Self {
        Self {
            source: 35_000,
            destination,
            options: Vec::new(),
            offset: None,
            flags: 0x10,
            payload: 100,
        }
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let offset =
            self.offset.unwrap_or_else(|| u8::try_from((20 + self.options.len()) / 4).unwrap());
        let mut segment = Vec::new();
        segment.extend_from_slice(&self.source.to_be_bytes());
        segment.extend_from_slice(&self.destination.to_be_bytes());
        segment.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
        segment.extend_from_slice(&[offset << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend_from_slice(&self.options);
        segment.resize(segment.len() + self.payload, 0x5a);
        segment
    }

    /// In the usual IPv4 frame from the peer to us.
    pub(crate) fn ipv4(&self) -> Frame {
        Ipv4::of(TCP, self.build()).frame()
    }

    /// In the usual IPv6 frame from the peer to us.
    pub(crate) fn ipv6(&self) -> Frame {
        Ipv6::of(TCP, self.build()).frame()
    }
}

#[derive(Clone)]
pub(crate) struct Ipv4 {
    pub(crate) version: u8,
    pub(crate) options: Vec<u8>,
    /// The header length field, in 4-octet units.
    pub(crate) header_length: Option<u8>,
    pub(crate) total_length: Option<u16>,
    /// Flags and offset as on the wire.
    pub(crate) fragment: u16,
    pub(crate) protocol: u8,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    pub(crate) payload: Vec<u8>,
}

impl Ipv4 {
    pub(crate) fn of(protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            version: 4,
            options: Vec::new(),
            header_length: None,
            total_length: None,
            fragment: 0x4000,
            protocol,
            source: PEER,
            destination: OURS,
            payload,
        }
    }

    pub(crate) fn frame(&self) -> Frame {
        let header = 20 + self.options.len();
        let header_length = self.header_length.unwrap_or_else(|| u8::try_from(header / 4).unwrap());
        let total_length = self
            .total_length
            .unwrap_or_else(|| u16::try_from(header + self.payload.len()).unwrap());
        let mut packet = vec![self.version << 4 | header_length, 0];
        packet.extend_from_slice(&total_length.to_be_bytes());
        packet.extend_from_slice(&[0x12, 0x34]);
        packet.extend_from_slice(&self.fragment.to_be_bytes());
        packet.extend_from_slice(&[64, self.protocol, 0, 0]);
        packet.extend_from_slice(&self.source.octets());
        packet.extend_from_slice(&self.destination.octets());
        packet.extend_from_slice(&self.options);
        fill_header_checksum(&mut packet);
        packet.extend_from_slice(&self.payload);
        Frame::of(IPV4, packet)
    }
}

/// Fills the checksum of an IPv4 header (RFC 791), which is all that `header` holds.
pub(crate) fn fill_header_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let mut sum: u32 =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
}

#[derive(Clone)]
pub(crate) struct Ipv6 {
    pub(crate) version: u8,
    pub(crate) payload_length: Option<u16>,
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    /// The extension headers with their numbers; the `next` fields are filled when building.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    pub(crate) protocol: u8,
    pub(crate) payload: Vec<u8>,
}

impl Ipv6 {
    pub(crate) fn of(protocol: u8, payload: Vec<u8>) -> Self {
        Self {
            version: 6,
            payload_length: None,
            source: PEER_V6,
            destination: OURS_V6,
            extensions: Vec::new(),
            protocol,
            payload,
        }
    }

    pub(crate) fn frame(&self) -> Frame {
        let mut body = Vec::new();
        let numbers: Vec<u8> = self.extensions.iter().map(|(number, _)| *number).collect();
        for (index, (_, header)) in self.extensions.iter().enumerate() {
            let at = body.len();
            body.extend_from_slice(header);
            body[at] = numbers.get(index + 1).copied().unwrap_or(self.protocol);
        }
        body.extend_from_slice(&self.payload);
        let payload_length =
            self.payload_length.unwrap_or_else(|| u16::try_from(body.len()).unwrap());
        let mut packet = vec![self.version << 4, 0, 0, 0];
        packet.extend_from_slice(&payload_length.to_be_bytes());
        packet.push(numbers.first().copied().unwrap_or(self.protocol));
        packet.push(64);
        packet.extend_from_slice(&self.source.octets());
        packet.extend_from_slice(&self.destination.octets());
        packet.extend_from_slice(&body);
        Frame::of(IPV6, packet)
    }
}

/// An options header of `units` 8-octet units beyond the first, holding padding.
pub(crate) fn options(units: u8) -> Vec<u8> {
    let mut header = vec![0, units, 1, 4, 0, 0, 0, 0];
    header.resize(8 + usize::from(units) * 8, 0);
    header
}

/// A routing header of type 4 with one address.
pub(crate) fn routing(segments_left: u8) -> Vec<u8> {
    let mut header = vec![0, 2, 4, segments_left, 0, 0, 0, 0];
    header.extend_from_slice(&OURS_V6.octets());
    header
}

/// A fragment header with its offset-and-more field.
pub(crate) fn fragment(field: u16) -> Vec<u8> {
    let mut header = vec![0, 0];
    header.extend_from_slice(&field.to_be_bytes());
    header.extend_from_slice(&[0, 0, 0, 9]);
    header
}

/// An authentication header with a check value of 12 octets: 24 in all.
pub(crate) fn authentication() -> Vec<u8> {
    let mut header = vec![0, 4, 0, 0];
    header.resize(24, 0xaa);
    header
}
