//! `mpxdp-bench placement`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mpxdp_bench::document::Target;
use mpxdp_bench::placement::{self, Options};
use mpxdp_bench::trial::{Hosts, Receiver};
use mpxdp_bench::{Result, options};

use super::number;
use super::throughput::resolved;

#[derive(Args)]
pub(super) struct Arguments {
    /// Which receivers: a list with commas.
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_values_t = Receiver::ALL)]
    receivers: Vec<Receiver>,
    /// MTUs of the links, 1280 to 65535 each: a list with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1500], value_name = "N,...")]
    #[arg(value_parser = number(options::MTU))]
    mtu: Vec<u32>,
    /// Numbers of subflows, the first one included, 1 to 8 each: a list with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_name = "N,...")]
    #[arg(value_parser = number(options::SUBFLOWS))]
    subflows: Vec<u32>,
    /// Links between sender and receiver, 1 to 64 [default: 2, or 1 if there is one subflow only].
    #[arg(long, value_name = "N", value_parser = number(options::LINKS))]
    links: Option<u32>,
    /// Seconds of a measurement, 0.1 to 3600.
    #[arg(long, default_value_t = 0.5, value_name = "S", value_parser = number(options::SECONDS))]
    seconds: f64,
    /// Measurements of each placement, 1 to 1000; all placements take turns.
    #[arg(long, default_value_t = 3, value_name = "R", value_parser = number(options::ROUNDS))]
    rounds: usize,
    /// Placements of each receiver at each number of subflows, at most, 1 to 1000; those
    /// beyond are listed.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = number(options::LIMIT))]
    limit: usize,
    /// Measure this placement only, `napi=0 worker=1 reader=1` for instance; may be repeated.
    #[arg(long, value_name = "TEXT")]
    placement: Vec<String>,
    /// A real NIC instead of a lab; may be repeated. With --listen and --sender the placements are
    /// measured on it. Without these they are listed, or with --placement the NIC's processing is moved
    /// there until SIGINT or SIGTERM. Not together with --mtu, --links and --name, which are a lab's.
    #[arg(long, value_name = "IF", conflicts_with_all = ["mtu", "links", "name"])]
    nic: Vec<String>,
    /// With --nic: the address of the NIC that receivers listen on.
    #[arg(long, value_name = "ADDR:PORT", requires = "nic", requires = "sender")]
    listen: Option<SocketAddr>,
    /// With --nic: where `mpxdp-bench sender --serve` waits on the other host.
    #[arg(long, value_name = "HOST:PORT", requires = "nic", requires = "listen")]
    sender: Option<String>,
    /// Write one JSON document to a file or (-) standard output.
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// Put the recommended placement of mpxdp into a configuration for `mpxdp recv --config`. The file
    /// is replaced as a whole with its owner and mode, or written in place if it has other names (hard
    /// links) or its owner cannot be kept.
    #[arg(long, value_name = "FILE")]
    write_config: Option<PathBuf>,
    /// What the namespaces' names start with.
    #[arg(long, default_value = "mpxdp-place", value_name = "PREFIX")]
    name: String,
}

impl Arguments {
    /// Runs the benchmark and returns the exit code.
    pub(super) fn run(self) -> Result<u8> {
        let (nics, hosts) = match (self.listen, self.sender) {
            (Some(listen), Some(sender)) => {
                (Vec::new(), Some(Hosts { nics: self.nic, listen, sender: resolved(&sender)? }))
            }
            _ => (self.nic, None),
        };
        let complete = placement::run(&Options {
            name: self.name,
            receivers: self.receivers,
            mtus: self.mtu,
            subflows: self.subflows,
            links: self.links,
            time: Duration::from_secs_f64(self.seconds),
            rounds: self.rounds,
            limit: self.limit,
            placements: self.placement,
            nics,
            hosts,
            json: self.json,
            write_config: self.write_config,
        })?;
        Ok(u8::from(!complete))
    }
}
