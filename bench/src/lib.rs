//! The lab, the traffic and the measurements of mpxdp.
//!
//! * [`lab`] makes two network namespaces joined by veth pairs, and takes them away again whatever
//!   happens.
//! * [`relay`] puts middleboxes between two interfaces, of the lab for instance.
//! * [`traffic`] is the Linux kernel's own MPTCP and TCP, as a sender and as a receiver.
//! * [`measure`] places the NIC's processing on a CPU and says what a receiver cost.
//! * [`topology`] is what the machine's CPUs share, [`placement`] the ways to place a receiver on them.
//! * [`remote`] is a sender on another host.
//! * [`trial`] measures one receiver at one place, which the benchmarks are made of.
//! * [`latency`] measures how long messages take.
//! * [`demo`] puts the receivers side by side, [`throughput`] measures them in detail.
//! * [`pipeline`] takes the data plane apart, without a kernel.
//! * [`options`] are the ranges of what they are told.
//! * [`document`] is what every benchmark writes, [`environment`] what it says about the machine, and
//!   [`page`] shows it.
//!
//! Everything here is for tests and benchmarks; an application links the crate `mpxdp` instead.

#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

mod conclude;
pub mod demo;
pub mod document;
pub mod environment;
mod error;
mod interrupt;
pub mod lab;
pub mod latency;
pub mod measure;
pub mod options;
mod owner;
pub mod page;
pub mod pipeline;
pub mod placement;
mod progress;
pub mod relay;
pub mod remote;
mod sys;
mod table;
mod text;
pub mod throughput;
pub mod topology;
pub mod traffic;
pub mod trial;

pub use error::{Error, Result};
pub use interrupt::Interrupt;
