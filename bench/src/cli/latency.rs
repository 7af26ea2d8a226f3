//! The command line of `latency`, and of the two processes that it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mpxdp_bench::document::Target;
use mpxdp_bench::latency::clock::Waiting;
use mpxdp_bench::latency::schedule::Plan;
use mpxdp_bench::latency::{self, Reading, reader, sender};
use mpxdp_bench::traffic::socket::Protocol;
use mpxdp_bench::trial::Receiver;
use mpxdp_bench::{Result, options};

use super::{at_least, number, seconds};

#[derive(Args)]
pub(super) struct LatencyArguments {
    /// Messages a second that are offered, 1 to 10000000 each: a list with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000], value_name = "MSG/S,...")]
    #[arg(value_parser = number(latency::RATE))]
    rate: Vec<u32>,
    /// Bytes of a message, 24 to 1048576 each: a list with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [256], value_name = "BYTES,...")]
    #[arg(value_parser = number(sender::SIZE))]
    size: Vec<usize>,
    /// Seconds of a measurement, at most 3600; 0.3 s of warm-up come before it.
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = number(latency::SECONDS))]
    seconds: f64,
    /// Measurements of each receiver, 1 to 1000; they take turns.
    #[arg(long, default_value_t = 3, value_name = "R", value_parser = number(options::ROUNDS))]
    rounds: usize,
    /// MTUs of the link, 1280 to 65535 each: a list with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1500], value_name = "N,...")]
    #[arg(value_parser = number(options::MTU))]
    mtu: Vec<u32>,
    /// Which receivers: a list with commas.
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_values_t = Receiver::ALL)]
    receivers: Vec<Receiver>,
    /// How the reader waits for the next message: a list with commas.
    #[arg(long, value_name = "HOW,...", value_enum, value_delimiter = ',', default_values_t = [Reading::Sleep, Reading::Spin])]
    reader: Vec<Reading>,
    /// Where the parts run: auto, or "napi=sender worker=1 reader=1" for instance.
    #[arg(long, value_name = "TEXT")]
    placement: Option<String>,
    /// Write one JSON document to a file or (-) standard output.
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// Write each distribution to a folder, as .hgrm for HdrHistogram's plotters.
    #[arg(long, value_name = "DIR")]
    hgrm: Option<PathBuf>,
    /// What the namespaces' names start with.
    #[arg(long, default_value = "mpxdp-lat", value_name = "PREFIX")]
    name: String,
}

impl LatencyArguments {
    pub(super) fn run(self) -> Result<()> {
        latency::run(&latency::Options {
            name: self.name,
            rates: self.rate,
            sizes: self.size,
            time: Duration::from_secs_f64(self.seconds),
            rounds: self.rounds,
            mtus: self.mtu,
            receivers: self.receivers,
            readings: self.reader,
            placement: self.placement,
            json: self.json,
            hgrm: self.hgrm,
        })
    }
}

#[derive(Args)]
pub(super) struct SenderArguments {
    /// Where to connect to.
    #[arg(long, value_name = "ADDR:PORT")]
    connect: SocketAddr,
    /// What to speak.
    #[arg(long, value_enum, default_value_t = Protocol::Mptcp)]
    protocol: Protocol,
    /// Messages a second.
    #[arg(long, value_name = "N", value_parser = number(latency::RATE))]
    rate: u32,
    /// Bytes of a message.
    #[arg(long, value_name = "BYTES", value_parser = number(sender::SIZE))]
    size: usize,
    /// Messages that come first and are not measured.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = at_least(0_u64))]
    warm_up: u64,
    /// Messages that are measured.
    #[arg(long, value_name = "N", value_parser = at_least(0_u64))]
    messages: u64,
    /// Wait for the next message's moment by sleeping, not by spinning.
    #[arg(long)]
    sleeping: bool,
    /// How far behind to give up, and how long the connection may take to be made and to end.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    patience: f64,
}

impl SenderArguments {
    pub(super) fn run(&self) -> Result<sender::Report> {
        let Self { rate, warm_up, messages: measured, .. } = *self;
        sender::run(&sender::Options {
            protocol: self.protocol,
            connect: self.connect,
            plan: Plan { rate, warm_up, measured },
            size: self.size,
            waiting: if self.sleeping { Waiting::Sleeping } else { Waiting::Spinning },
            patience: patience(self.patience),
        })
    }
}

#[derive(Args)]
pub(super) struct ReaderArguments {
    /// Who receives.
    #[arg(long, value_enum)]
    receiver: Kind,
    /// The NIC, of mpxdp.
    #[arg(long, value_name = "IF", required_if_eq("receiver", "mpxdp"), default_value = "")]
    nic: String,
    /// The CPU of mpxdp's worker.
    #[arg(long, value_name = "CPU", value_parser = at_least(0_usize))]
    worker: Option<usize>,
    /// Let mpxdp's worker spin for ever, not sleep at once.
    #[arg(long)]
    worker_spins: bool,
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// How to wait for the next message.
    #[arg(long, value_enum)]
    reading: Reading,
    /// Let others run between the looks of a reader that spins.
    #[arg(long)]
    yielding: bool,
    /// The CPU of the reading thread.
    #[arg(long, value_name = "CPU", value_parser = at_least(0_usize))]
    cpu: Option<usize>,
    /// Bytes of a message.
    #[arg(long, value_name = "BYTES", value_parser = number(sender::SIZE))]
    size: usize,
    /// Messages that come first and are not measured.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = at_least(0_u64))]
    warm_up: u64,
    /// How long the sender may be silent.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", value_parser = seconds)]
    patience: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Mpxdp,
    KernelMptcp,
    KernelTcp,
}

impl ReaderArguments {
    pub(super) fn run(self) -> Result<reader::Report> {
        let receiver = match self.receiver {
            Kind::Mpxdp => reader::Receiver::Mpxdp {
                nic: self.nic,
                worker: self.worker,
                spin: self.worker_spins,
            },
            Kind::KernelMptcp => reader::Receiver::Kernel(Protocol::Mptcp),
            Kind::KernelTcp => reader::Receiver::Kernel(Protocol::Tcp),
        };
        reader::run(&reader::Options {
            receiver,
            listen: self.listen,
            reading: self.reading,
            yielding: self.yielding,
            cpu: self.cpu,
            size: self.size,
            warm_up: self.warm_up,
            patience: patience(self.patience),
        })
    }
}

/// A time that a socket's timeout can have.
fn patience(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.001))
}
