//! `mpxdp recv` against the Linux kernel's own MPTCP and TCP, over veth.
//!
//! All of these need root. Without it they are skipped and say so; with
//! `MPXDP_REQUIRE_PRIVILEGES=1` they fail instead.

mod bystanders;
mod changes;
mod damage;
mod disk;
mod endings;
mod flood;
mod harness;
mod lab;
mod latency;
mod many;
mod net;
mod paths;
mod placement;
mod relay;
mod stop;
mod subflows;
mod throughput;
mod transfers;
mod trial;
mod usage;
mod window;
