//! Tests of the wire formats: what the RFCs draw, what a Linux kernel sent, and a second
//! implementation as the oracle.

mod captured;
mod frames;
mod option_bytes;
mod option_properties;
mod oracle;
mod robustness;
mod strategies;

use core::net::SocketAddr;

use super::{IpFields, LinkHeader, MacAddress, VlanTag, emit_frame};
use crate::segment::Segment;

/// A link header with `tags` tags.
fn link(tags: u16) -> LinkHeader {
    let mut link = LinkHeader::new(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    for n in 0..tags {
        let protocol = if tags == 2 && n == 0 { 0x88a8 } else { 0x8100 };
        assert!(link.push_tag(VlanTag { protocol, control: 0x2064 + n }));
    }
    link
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A frame with `segment` and `payload` from 10.0.0.2:4000 to 10.0.0.1:80, or the like of IPv6.
fn frame(tags: u16, ipv6: bool, segment: &Segment, payload: &[u8]) -> alloc::vec::Vec<u8> {
    let (from, to) = if ipv6 {
        (address("[fd00::2]:4000"), address("[fd00::1]:80"))
    } else {
        (address("10.0.0.2:4000"), address("10.0.0.1:80"))
    };
    let mut buf = alloc::vec![0xee; 70_000];
    let segment = Segment { payload_len: payload.len() as u32, ..*segment };
    let len = emit_frame(&mut buf, &link(tags), from, to, IpFields::default(), &segment, payload)
        .expect("the frame fits");
    buf.truncate(len);
    buf
}
