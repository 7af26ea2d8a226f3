//! `mpxdp-bench recycle` and `blast`, which `throughput` runs.

use std::net::SocketAddr;

use clap::Args;
use mpxdp_bench::trial::{self, RecycleOptions};
use mpxdp_bench::{Interrupt, Result};

#[derive(Args)]
pub(super) struct RecycleArguments {
    /// The interface; its queue 0 is used.
    #[arg(long, value_name = "IF")]
    nic: String,
    /// TCP packets to there are taken.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Have the XDP program drop them.
    #[arg(long)]
    drop: bool,
}

#[derive(Args)]
pub(super) struct BlastArguments {
    /// The interface.
    #[arg(long, value_name = "IF")]
    nic: String,
    /// The receiver's MAC address.
    #[arg(long, value_name = "MAC", value_parser = mac)]
    to: [u8; 6],
    /// The receiver's address and port.
    #[arg(long, value_name = "ADDR:PORT")]
    address: SocketAddr,
    /// The length of the packets.
    #[arg(long, value_name = "BYTES")]
    mtu: u32,
}

fn mac(text: &str) -> std::result::Result<[u8; 6], String> {
    let bytes = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = bytes.collect::<std::result::Result<_, _>>().map_err(|e| e.to_string())?;
    bytes.try_into().map_err(|_| "it has six parts".to_owned())
}

impl RecycleArguments {
    pub(super) fn run(self) -> Result<u8> {
        let Self { nic, listen, drop } = self;
        trial::recycle(&RecycleOptions { nic, listen, drop }, &Interrupt::install()?)?;
        Ok(0)
    }
}

impl BlastArguments {
    pub(super) fn run(self) -> Result<u8> {
        let Self { nic, to, address, mtu } = self;
        trial::blast(&nic, to, address, mtu, &Interrupt::install()?)?;
        Ok(0)
    }
}
