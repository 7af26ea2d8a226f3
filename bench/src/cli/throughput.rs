//! `mpxdp-bench throughput`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::Args;
use mpxdp_bench::document::Target;
use mpxdp_bench::throughput::{self, Options};
use mpxdp_bench::trial::{Hosts, Receiver};
use mpxdp_bench::{Error, Result, options};

use super::{Conditions, number};

#[derive(Args)]
pub(super) struct Arguments {
    /// Seconds of a measurement, after the warm-up, 0.1 to 3600.
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = number(options::SECONDS))]
    seconds: f64,
    /// Seconds of a connection's beginning that are left out, 0 to 60 [default: half of --seconds, at
    /// most 0.5].
    #[arg(long, value_name = "S", value_parser = number(options::WARMUP))]
    warmup: Option<f64>,
    /// Measurements of each, 1 to 1000; all take turns.
    #[arg(long, default_value_t = 5, value_name = "R", value_parser = number(options::ROUNDS))]
    rounds: usize,
    /// MTUs of the links, 1280 to 65535 each: a list with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1500, 9000, 65535], value_name = "N,...")]
    #[arg(value_parser = number(options::MTU))]
    mtu: Vec<u32>,
    /// Numbers of subflows, the first one included, 1 to 8 each, spread over the links: a list with
    /// commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1], value_name = "N,...")]
    #[arg(value_parser = number(options::SUBFLOWS))]
    subflows: Vec<u32>,
    /// Links between sender and receiver, 1 to 64.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = number(options::LINKS))]
    links: u32,
    /// Where everything runs: "napi=sender worker=1 reader=1" for instance. Without it, each receiver
    /// runs at the best of some places, and the kernel's also at mpxdp's best.
    #[arg(long, value_name = "TEXT")]
    placement: Option<String>,
    /// Which receivers: a list with commas.
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_values_t = Receiver::ALL)]
    receivers: Vec<Receiver>,
    /// Do not measure what the front ends cost by themselves.
    #[arg(long)]
    no_front_end: bool,
    /// Receive on this NIC from another host, instead of in a lab; may be repeated, for subflows over
    /// several. MTU, addresses, routes and path manager are as they are; not together with --mtu, --links,
    /// --name, --congestion and --sender-cpu, which are a lab's.
    #[arg(long, value_name = "IF", requires = "listen", requires = "sender")]
    #[arg(conflicts_with_all = ["mtu", "links", "name", "congestion", "sender_cpu"])]
    nic: Vec<String>,
    /// With --nic: the address of the NIC that receivers listen on.
    #[arg(long, value_name = "ADDR:PORT", requires = "nic")]
    listen: Option<SocketAddr>,
    /// With --nic: where `mpxdp-bench sender --serve` waits on the other host.
    #[arg(long, value_name = "HOST:PORT", requires = "nic")]
    sender: Option<String>,
    #[command(flatten)]
    conditions: Conditions,
    /// Write one JSON document to a file or (-) standard output.
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// What the namespaces' names start with.
    #[arg(long, default_value = "mpxdp-thru", value_name = "PREFIX")]
    name: String,
}

impl Arguments {
    /// Runs the benchmark and returns the exit code.
    pub(super) fn run(self) -> Result<u8> {
        let time = Duration::from_secs_f64(self.seconds);
        let warmup = self.warmup.map(Duration::from_secs_f64);
        let hosts = match (self.listen, self.sender) {
            (Some(listen), Some(sender)) => {
                Some(Hosts { nics: self.nic, listen, sender: resolved(&sender)? })
            }
            _ => None,
        };
        let complete = throughput::run(&Options {
            name: self.name,
            mtus: self.mtu,
            subflows: self.subflows,
            links: self.links,
            conditions: self.conditions.into(),
            time,
            warmup: warmup.unwrap_or_else(|| (time / 2).min(throughput::DEFAULT_WARMUP)),
            rounds: self.rounds,
            placement: self.placement,
            receivers: self.receivers,
            front_end: !self.no_front_end,
            hosts,
            json: self.json,
        })?;
        Ok(u8::from(!complete))
    }
}

/// The first address of a host and port.
pub(super) fn resolved(text: &str) -> Result<SocketAddr> {
    let failed = |why: &dyn std::fmt::Display| Error::Usage(format!("--sender {text}: {why}"));
    let mut addresses = text.to_socket_addrs().map_err(|error| failed(&error))?;
    addresses.next().ok_or_else(|| failed(&"it has no address"))
}
