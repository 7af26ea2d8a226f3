//! Scripted peers for mpxdp's tests, demonstrations and benchmarks, in memory and in virtual time.
//!
//! [`Sender`] is a small, well-behaved TCP and MPTCP client that opens a connection and sends a
//! stream; [`client`] has one of many subflows; [`Pattern`] is a stream whose every byte is known from its place. [`middlebox`] has what
//! stands between peers, [`network`] moves frames between them in virtual time.
#![forbid(unsafe_code)]

pub mod client;
pub mod middlebox;
pub mod network;
mod pattern;
mod sender;

pub use pattern::{Mismatch, Pattern};
pub use sender::{
    Content, Failure, FirstData, MptcpOptions, Sender, SenderOptions, SenderStatistics,
};
