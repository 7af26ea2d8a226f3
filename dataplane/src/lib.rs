//! Multipath TCP (RFC 8684) in user space on AF_XDP: what an application links.
//!
//! An [`Engine`] takes over the TCP packets of chosen ports on chosen NICs; everything else on
//! those NICs stays with the kernel. A [`Listener`] accepts connections, a [`Stream`] is one of
//! them: it reads like any other stream, or in place through [`BufRead`](std::io::BufRead), with
//! no copy between the receive ring and the reader.

pub mod checksum;
mod clock;
mod connection;
mod engine;
mod error;
mod listener;
mod nic;
mod placement;
pub mod port;
pub mod receive;
mod stats;
mod stream;
mod worker;

pub use engine::{Engine, EngineBuilder, EngineConfig};
pub use error::{Error, ErrorKind, Result};
pub use listener::Listener;
pub use nic::{Mode, NicConfig, NicFacts, PortNic};
pub use placement::{CpuList, Placement};
pub use stats::{
    Closed, ConnectionStatistics, NicReport, PortReport, SubflowStatistics, TableSizes,
    WorkerReport,
};
pub use stream::Stream;
