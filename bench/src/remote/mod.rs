//! A sender on another host, so that two real hosts can be measured.
//!
//! `mpxdp-bench sender --serve ADDR:PORT` waits there, and the receiving host tells it over a TCP
//! connection what to send. The protocol is lines of text, at most [`LONGEST_LINE`] bytes, each ended
//! by a newline:
//!
//! ```text
//! sender:    mpxdp-bench sender 1 0.1.0
//! receiver:  send protocol=mptcp to=192.0.2.2:5000 seconds=2 warmup=0.5 subflows=1
//! sender:    warmed up
//! sender:    all written
//! sender:    report {"protocol":"mptcp","connections":[...],...}
//! ```
//!
//! The first line has the protocol's version, 1, and the program's. `send` names what to speak, where
//! to connect, for how long to send after the warm-up, and how many subflows the connection must have:
//! that the kernel's path manager opens them is up to who sets up the host. The report, which may be
//! longer than other lines, is that of `mpxdp-bench sender`. Instead of any line of the sender
//! `error TEXT` may come, and the connection ends. After a report another `send` may follow.
//!
//! There is one job at a time; who asks meanwhile is told so. What is sent goes to the address that
//! the control connection came from, or to one that `--allow` names, and nowhere else: else the
//! service could be made to flood somebody. It asks for no password, so it is for networks whose hosts
//! are trusted.

mod client;
mod request;
mod server;

pub(crate) use client::Job;
pub use request::Request;
pub use server::{ServeOptions, serve};

/// The version of the protocol.
const VERSION: u32 = 1;

/// What the sender's first line begins with.
const GREETING: &str = "mpxdp-bench sender";

/// The most bytes of a line, but for reports.
pub const LONGEST_LINE: usize = 512;
