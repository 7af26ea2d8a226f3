//! Ethernet II headers with up to two VLAN tags (IEEE 802.1Q, 802.1ad).

use core::fmt;

use super::ParseError;

/// The EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// The tag protocol identifier of a customer VLAN tag (802.1Q).
pub const CUSTOMER_TAG: u16 = 0x8100;
/// The tag protocol identifier of a service VLAN tag (802.1ad).
pub const SERVICE_TAG: u16 = 0x88a8;
/// Octets of a header without tags.
pub const HEADER_LEN: usize = 14;
/// Octets of one tag.
pub const TAG_LEN: usize = 4;
/// The most tags that are taken.
pub const MAX_TAGS: usize = 2;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Whether this is a multicast or the broadcast address.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// One VLAN tag as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct VlanTag {
    /// The tag protocol identifier: [`CUSTOMER_TAG`] or [`SERVICE_TAG`].
    pub protocol: u16,
    /// The tag control information: priority, drop eligibility and VLAN identifier.
    pub control: u16,
}

impl VlanTag {
    /// The VLAN identifier, 0 ..= 4095.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.control & 0x0fff
    }
}

/// The link layer's part of a frame: both addresses and the VLAN tags, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LinkHeader {
    /// Where the frame goes.
    pub destination: MacAddress,
    /// Where it comes from.
    pub source: MacAddress,
    tags: [VlanTag; MAX_TAGS],
    tag_count: u8,
}

impl LinkHeader {
    /// A header without tags.
    #[must_use]
    pub const fn new(destination: MacAddress, source: MacAddress) -> Self {
        let none = VlanTag { protocol: 0, control: 0 };
        Self { destination, source, tags: [none; MAX_TAGS], tag_count: 0 }
    }

    /// Adds `tag` inside the tags that are there, if there are fewer than two; says whether it was
    /// added.
    pub const fn push_tag(&mut self, tag: VlanTag) -> bool {
        let room = (self.tag_count as usize) < MAX_TAGS;
        if room {
            self.tags[self.tag_count as usize] = tag;
            self.tag_count += 1;
        }
        room
    }

    /// The tags, outermost first.
    #[must_use]
    pub fn tags(&self) -> &[VlanTag] {
        &self.tags[..usize::from(self.tag_count)]
    }

    /// Octets of the header on the wire: 14, 18 or 22.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        HEADER_LEN + TAG_LEN * self.tag_count as usize
    }

    /// The header of an answer: the addresses swapped, the tags kept.
    #[must_use]
    pub const fn reply(&self) -> Self {
        Self { destination: self.source, source: self.destination, ..*self }
    }

    /// Reads the header at the start of `frame` into this one, whatever it says already; gives the
    /// EtherType of what follows it.
    #[inline]
    pub(super) fn parse(&mut self, frame: &[u8]) -> Result<u16, ParseError> {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] =
            *frame.first_chunk::<HEADER_LEN>().ok_or(ParseError::EthernetTruncated)?;
        let destination = MacAddress([d0, d1, d2, d3, d4, d5]);
        if destination.is_group() {
            return Err(ParseError::EthernetGroup);
        }
        *self = Self::new(destination, MacAddress([s0, s1, s2, s3, s4, s5]));
        let mut ether_type = u16::from_be_bytes([t0, t1]);
        while matches!(ether_type, CUSTOMER_TAG | SERVICE_TAG) {
            let [c0, c1, t0, t1] = *frame
                .get(self.wire_len()..)
                .and_then(<[u8]>::first_chunk::<TAG_LEN>)
                .ok_or(ParseError::EthernetTruncated)?;
            let control = u16::from_be_bytes([c0, c1]);
            if !self.push_tag(VlanTag { protocol: ether_type, control }) {
                return Err(ParseError::VlanDepth);
            }
            ether_type = u16::from_be_bytes([t0, t1]);
        }
        Ok(ether_type)
    }

    /// Writes the header to the start of `buf`, which must have room for it.
    pub(super) fn emit(&self, ether_type: u16, buf: &mut [u8]) {
        buf[..6].copy_from_slice(&self.destination.0);
        buf[6..12].copy_from_slice(&self.source.0);
        let mut at = 12;
        for tag in self.tags() {
            buf[at..at + 2].copy_from_slice(&tag.protocol.to_be_bytes());
            buf[at + 2..at + 4].copy_from_slice(&tag.control.to_be_bytes());
            at += TAG_LEN;
        }
        buf[at..at + 2].copy_from_slice(&ether_type.to_be_bytes());
    }
}
