//! The protocol of mpxdp: TCP's receive side and Multipath TCP version 1 (RFC 8684).
//!
//! Nothing here does IO, reads a clock, starts a thread or draws a random number: packets, time
//! and secrets come in as arguments, and what should be sent comes out as values. The methods of
//! the state machines fall into four kinds: getters; `on_*`, which take an event in; calls of the
//! application (`close`, `abort`); and `poll_*`, which the driver calls until they have no more.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;
pub mod connection;
pub mod crypto;
pub mod range_set;
pub mod segment;
pub mod seq;
pub mod subflow;
mod sync;
pub mod time;
pub mod wire;
