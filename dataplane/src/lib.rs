//! Multipath TCP (RFC 8684) in user space on AF_XDP: what an application links.
//!
//! An [`Engine`] takes over the TCP packets of chosen ports on chosen NICs; everything else on
//! those NICs stays with the kernel. A [`Listener`] accepts connections. A [`Stream`] is one of
//! them: it reads like any other stream, or in place through [`BufRead`](std::io::BufRead), with
//! no copy between the receive ring and the reader.
//!
//! ```no_run
//! use std::io::Read;
//!
//! use mpxdp::{Engine, NicConfig};
//!
//! let engine = Engine::builder().nic(NicConfig::new("eth0")).start()?;
//! let listener = engine.listen("192.0.2.1:5001".parse()?)?;
//! let mut stream = listener.accept()?;
//! let mut text = String::new();
//! stream.read_to_string(&mut text)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! That takes the privileges that AF_XDP takes. The same engine runs without any over
//! [ports in memory](port::MemoryPort), as tests do it; here with a scripted client at the far
//! end, and a reader that reads in place:
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/peer.rs"));
//! use std::io::BufRead;
//! use std::time::Duration;
//!
//! use mpxdp::port::{MemoryOptions, MemoryPort};
//! use mpxdp::{Closed, Engine, PortNic};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = MemoryPort::pair(MemoryOptions::default());
//! let nic = PortNic::new("mem0", [near]).addresses(["10.0.0.2".parse()?]);
//! let engine = Engine::builder().ports(nic).start()?;
//! let listener = engine.listen("10.0.0.2:5001".parse()?)?;
//!
//! # let peer = peer::run(far, vec![peer::says("one\ntwo\n")]);
//! let mut stream = listener.accept()?;
//! let mut lines = 0;
//! loop {
//!     let bytes = stream.fill_buf()?; // a part of the receive ring
//!     if bytes.is_empty() {
//!         break; // the end
//!     }
//!     lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
//!     let n = bytes.len();
//!     stream.consume(n); // the window opens
//! }
//! assert_eq!(lines, 2);
//! assert!(stream.is_mptcp());
//! assert_eq!(stream.statistics().closed, Some(Closed::DataFin));
//!
//! drop(stream); // read to its end, so it is closed in good order
//! engine.shutdown(Duration::from_secs(1))?;
//! # assert!(peer.join().expect("no panic")[0].is_done());
//! # Ok(())
//! # }
//! ```

#[cfg(test)]
extern crate self as mpxdp;

pub mod checksum;
mod clock;
mod connection;
mod engine;
mod error;
mod event;
mod listener;
#[cfg(test)]
#[cfg(loom)]
mod loom_model;
mod nic;
mod placement;
pub mod port;
pub mod receive;
mod stats;
pub mod stepped;
mod stream;
mod sync;
mod worker;

#[cfg(feature = "virtual-time")]
pub use engine::virtual_time;
pub use engine::{
    Announce, Checksums, Dscp, Engine, EngineBuilder, EngineConfig, Keepalive, NicChange, Notice,
};
pub use error::{Error, ErrorKind, Result};
pub use listener::Listener;
pub use nic::{Mode, NicConfig, NicFacts, PortNic};
pub use placement::{CpuList, Placement};
pub use stats::{
    Closed, ConnectionStatistics, MemoryReport, NicReport, NicState, PortReport, SubflowStatistics,
    TableSizes, WorkerReport,
};
pub use stream::Stream;
