//! Headers and options on the wire: Ethernet, VLAN tags, IPv4, IPv6, TCP, and the options of TCP
//! and Multipath TCP.
//!
//! [`parse_frame`] turns the bytes of one frame into values in one pass, [`parse_frame_into`] does
//! so for every packet of a worker, and [`emit_frame`] does the reverse. None of them allocates,
//! and no input makes one panic. The TCP checksum is not verified by the parser, because the one
//! who has the payload in cache does that better: see [`Frame::pseudo_header_sum`].

pub mod checksum;
mod emit;
pub mod ethernet;
pub mod ipv4;
pub mod ipv6;
pub mod mptcp;
pub mod options;
mod parse;
pub mod tcp;

#[cfg(test)]
mod tests;

pub use self::emit::{EmitError, IpFields, emit_frame};
pub use self::ethernet::{LinkHeader, MacAddress, VlanTag};
pub use self::options::{options_len, sack_room};
pub use self::parse::{Frame, ParseError, parse_frame, parse_frame_into};
