//! The command line.

mod front_end;
mod latency;
mod pipeline;
mod placement;
mod report;
mod throughput;

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mpxdp_bench::demo;
use mpxdp_bench::document::Target;
use mpxdp_bench::lab::{self, Family, Lab, Side};
use mpxdp_bench::relay::{self, Relay};
use mpxdp_bench::remote::{self, ServeOptions};
use mpxdp_bench::traffic::socket::Protocol;
use mpxdp_bench::traffic::{pattern, receiver, sender};
use mpxdp_bench::trial::Receiver;
use mpxdp_bench::{Error, Interrupt, Result, options};
use mpxdp_cli::usage::{self, Refused};
use mpxdp_cli::{one_line, say};
use mpxdp_sim::middlebox::ChainSpec;
use serde::Serialize;

/// The lab, the traffic and the benchmarks of mpxdp.
#[derive(Parser)]
#[command(name = "mpxdp-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Two network namespaces joined by veth pairs.
    #[command(subcommand)]
    Lab(LabCommand),
    /// Receive with mpxdp and with the kernel, side by side.
    Demo(DemoArguments),
    /// Measure how fast the receivers are, and what that costs.
    Throughput(throughput::Arguments),
    /// Take the data plane apart: what a packet costs, stage by stage, without a kernel.
    Pipeline(pipeline::PipelineArguments),
    /// Find out where NIC processing, workers and reader should run.
    Placement(placement::Arguments),
    /// Send with the kernel's MPTCP or TCP; one JSON document on standard output.
    Sender(SenderArguments),
    /// Take packets and do nothing with them; `throughput` runs it.
    #[command(hide = true)]
    Recycle(front_end::RecycleArguments),
    /// Send TCP segments that nobody answers; `throughput` runs it.
    #[command(hide = true)]
    Blast(front_end::BlastArguments),
    /// Receive with the kernel's MPTCP or TCP; one JSON document on standard output.
    Receiver(ReceiverArguments),
    /// Pass frames between two interfaces through middleboxes, until SIGINT or SIGTERM.
    Relay(RelayArguments),
    /// How long messages take to the application that reads them.
    Latency(latency::LatencyArguments),
    /// What `latency` sends with; one JSON document on standard output.
    #[command(hide = true)]
    LatencySender(latency::SenderArguments),
    /// What `latency` reads with; one JSON document on standard output.
    #[command(hide = true)]
    LatencyReader(latency::ReaderArguments),
    /// Make one self-contained HTML page with plots from the JSON documents of benchmarks.
    Report(report::ReportArguments),
}

#[derive(Subcommand)]
enum LabCommand {
    /// Make the lab; one that is up already with the same shape is left as it is, and one with another
    /// shape has to be removed first.
    Up {
        #[command(flatten)]
        name: Name,
        /// Number of veth pairs, 1 to 64.
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = number(options::LINKS))]
        links: u32,
        /// Receive and transmit queues of each end, 1 to 4096.
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = number(options::QUEUES))]
        queues: u32,
        /// MTU of the links in bytes, 1280 to 65535.
        #[arg(long, default_value_t = 1500, value_name = "BYTES", value_parser = number(options::MTU))]
        mtu: u32,
        /// Tag all frames on the links with this VLAN, 1 to 4094.
        #[arg(long, value_name = "ID", value_parser = number(options::VLAN))]
        vlan: Option<u16>,
        /// Leave generic receive offload off at the receiver's ends.
        #[arg(long)]
        no_gro: bool,
        #[command(flatten)]
        conditions: Conditions,
        /// Put middleboxes on a link, the sender on their left: `0=delay=40ms,loss=1%` for instance.
        #[arg(long, value_name = "LINK=CHAIN", value_parser = link_and_chain)]
        relay: Vec<(u32, ChainSpec)>,
    },
    /// Remove the lab, with the processes that run in it.
    Down {
        #[command(flatten)]
        name: Name,
    },
    /// Run a command in a namespace of the lab.
    Exec {
        #[command(flatten)]
        name: Name,
        /// Whose namespace.
        side: SideName,
        /// The command and its arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
}

#[derive(Args)]
struct Name {
    /// What the namespaces' names start with.
    #[arg(long, default_value = "mpxdp", value_name = "PREFIX")]
    name: String,
}

/// The options of what a lab has besides its shape.
#[derive(Args)]
struct Conditions {
    /// Congestion control on both sides of the lab; what paces (bbr) makes the sending CPU's timers part
    /// of what is measured.
    #[arg(long, default_value = "reno", value_name = "NAME")]
    congestion: String,
    /// Process what the lab's sender receives on this CPU, not on the one that the receiver sent it on.
    #[arg(long, value_name = "CPU", value_parser = at_least(0_usize))]
    sender_cpu: Option<usize>,
}

impl From<Conditions> for lab::Conditions {
    fn from(Conditions { congestion, sender_cpu }: Conditions) -> Self {
        Self { congestion, sender_cpu }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum SideName {
    Snd,
    Rcv,
}

#[derive(Args)]
struct SenderArguments {
    /// Where to connect to.
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "serve")]
    connect: Option<SocketAddr>,
    /// Wait here for a receiving host to say what to send (`throughput --sender`), until SIGINT or
    /// SIGTERM.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["connect", "content"])]
    serve: Option<SocketAddr>,
    /// With --serve: an address that may be sent to though the receiving host does not ask from there;
    /// may be repeated.
    #[arg(long, value_name = "ADDR", requires = "serve")]
    allow: Vec<std::net::IpAddr>,
    /// What to speak.
    #[arg(long, value_enum, default_value_t = Protocol::Mptcp)]
    protocol: Protocol,
    #[command(flatten)]
    content: ContentArguments,
    /// Bytes for a write, 1 to 262144.
    #[arg(long, default_value_t = 256 * 1024, value_name = "BYTES")]
    #[arg(value_parser = number(1..=pattern::LARGEST))]
    write_size: usize,
    /// Connections in all, 1 or more.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least(1_u32))]
    connections: u32,
    /// Connections at once, 1 to 1024.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = number(1..=1024_u32))]
    parallel: u32,
    /// Go on trying for so long while nobody listens.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS", value_parser = seconds)]
    retry: f64,
    /// How long connecting, and the peer's end afterwards, may take.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS", value_parser = seconds)]
    patience: f64,
    /// Bytes a second at most, 1 or more.
    #[arg(long, value_name = "BYTES", value_parser = at_least(1_u64))]
    rate: Option<u64>,
    /// Reset the connection once all is sent, instead of ending it.
    #[arg(long)]
    reset: bool,
    /// Report SHA-256 of what was sent.
    #[arg(long)]
    hash: bool,
    /// Subflows that a connection must have, the first one included, before its content flows, 1 to 8.
    /// The kernel opens them as `ip mptcp` has set it up.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = number(options::SUBFLOWS))]
    subflows: u32,
    /// Send for so long before what is measured, and say when that begins and ends.
    #[arg(long, value_name = "S", value_parser = seconds)]
    warmup: Option<f64>,
}

#[derive(Args)]
#[group(id = "content", multiple = false)]
struct ContentArguments {
    /// Send so many bytes of a fixed pattern.
    #[arg(long, value_name = "N", value_parser = bytes)]
    bytes: Option<u64>,
    /// Send a fixed pattern for so long.
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Send a file.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args)]
struct ReceiverArguments {
    /// Which receiver.
    #[arg(long, value_enum)]
    kind: Kind,
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Connections after which to end, 1 or more.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least(1_u32))]
    connections: u32,
    /// Report SHA-256 of what arrived.
    #[arg(long)]
    hash: bool,
    /// How long a connection may be silent.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = seconds)]
    patience: f64,
}

#[derive(Args)]
struct RelayArguments {
    /// The interface on the left.
    #[arg(long, value_name = "IF")]
    left: String,
    /// The interface on the right.
    #[arg(long, value_name = "IF")]
    right: String,
    /// What stands between them, from left to right: `delay=40ms,rate=1Gbit,>loss=1%,strip=syn` for
    /// instance. Items: loss=P dup=P corrupt=P reorder=P[:TIME] delay=TIME[:JITTER]
    /// rate=RATE[:BYTES] strip=syn|data|all|after-N[:OPTION+...][:shrink] isn nat[=ADDR]
    /// split=N[:first] coalesce=N[:TIME][:first] drop=data|acks|syn|join|fin|rst|all
    /// cut=TIME:LENGTH alter=P|at-N mtu=N[:icmp]; `>` or `<` before an item makes it act in one direction only.
    #[arg(long, default_value = "", value_name = "CHAIN")]
    chain: ChainSpec,
    /// What all chance comes from.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = at_least(0_u64))]
    seed: u64,
    /// In the end, write what was done as one JSON document to a file or (-) standard output.
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
}

#[derive(Args)]
struct DemoArguments {
    /// Seconds of a measurement, 0.1 to 3600.
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = number(options::SECONDS))]
    seconds: f64,
    /// Measurements of each receiver at its best placement, 1 to 1000; they take turns.
    #[arg(long, default_value_t = 5, value_name = "R", value_parser = number(options::ROUNDS))]
    rounds: usize,
    /// MTUs of the link, 1280 to 65535 each: a list with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1500, 9000, 65535], value_name = "N,...")]
    #[arg(value_parser = number(options::MTU))]
    mtu: Vec<u32>,
    /// Which receivers: a list with commas.
    #[arg(long, value_name = "NAME,...", value_enum, value_delimiter = ',', default_values_t = Receiver::ALL)]
    receivers: Vec<Receiver>,
    /// Write one JSON document to a file or (-) standard output.
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    #[command(flatten)]
    conditions: Conditions,
    /// Draw the result as an SVG picture, in a file or (-) on standard output.
    #[arg(long, value_name = "FILE|-")]
    plot: Option<Target>,
    /// What the namespaces' names start with.
    #[arg(long, default_value = "mpxdp-demo", value_name = "PREFIX")]
    name: String,
    /// Show the receive path over the port in memory, as without root.
    #[arg(long)]
    unprivileged: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    KernelMptcp,
    KernelTcp,
}

/// A time in seconds that a [`Duration`] can hold.
fn seconds(text: &str) -> std::result::Result<f64, String> {
    number(0.0..=1e6)(text)
}

/// A number of a range, whole if its type is; whatever else it is, the range is told.
fn number<T: FromStr + PartialOrd + Display>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> std::result::Result<T, String> + Clone
where
    RangeInclusive<T>: Clone,
{
    move |text| {
        let value = text.parse().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
    }
}

/// A whole number that is not less than another one.
fn at_least<T: FromStr + PartialOrd + Display + Clone>(
    least: T,
) -> impl Fn(&str) -> std::result::Result<T, String> + Clone {
    move |text| {
        let value = text.parse().ok().filter(|value| *value >= least);
        value.ok_or_else(|| format!("a whole number, {least} or more"))
    }
}

/// A number of bytes.
fn bytes(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| "a whole number of bytes, without a unit".to_owned())
}

/// A link of the lab and what is on it.
fn link_and_chain(text: &str) -> std::result::Result<(u32, ChainSpec), String> {
    let (link, chain) = text.split_once('=').ok_or("LINK=CHAIN is expected")?;
    let link = link.parse().map_err(|_| format!("{link:?} is no number of a link"))?;
    chain
        .parse()
        .map(|chain| (link, chain))
        .map_err(|error: mpxdp_sim::middlebox::SpecError| error.to_string())
}

/// Runs what the command line asks for and returns the exit code.
pub(crate) fn run() -> Result<ExitCode> {
    match usage::parse::<Cli>("mpxdp-bench") {
        Ok(cli) => dispatch(cli.command).map(ExitCode::from),
        Err(Refused::Wrong(line)) => Err(Error::Usage(line)),
        Err(Refused::Shown(code)) => Ok(code),
        Err(Refused::NotShown(line)) => Err(Error::Failed(line)),
    }
}

fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Lab(command) => run_lab(command),
        Command::Demo(arguments) => {
            let exact = demo::run(&demo::Options {
                name: arguments.name,
                time: Duration::from_secs_f64(arguments.seconds),
                rounds: arguments.rounds,
                mtus: arguments.mtu,
                receivers: arguments.receivers,
                conditions: arguments.conditions.into(),
                json: arguments.json,
                plot: arguments.plot,
                unprivileged: arguments.unprivileged,
            })?;
            Ok(u8::from(!exact))
        }
        Command::Throughput(arguments) => arguments.run(),
        Command::Pipeline(arguments) => pipeline::run(arguments),
        Command::Recycle(arguments) => arguments.run(),
        Command::Blast(arguments) => arguments.run(),
        Command::Sender(SenderArguments { serve: Some(at), allow, .. }) => {
            let interrupt = Interrupt::install()?;
            remote::serve(ServeOptions { at, allow }, &interrupt)?;
            Ok(0)
        }
        Command::Placement(arguments) => arguments.run(),
        Command::Sender(arguments) => {
            let options = arguments.options()?;
            let report = sender::run(&options)?;
            print(&report)?;
            let errors = report.connections.iter().map(|connection| connection.error.as_deref());
            Ok(failures(&format!("sending to {}", options.connect), errors))
        }
        Command::Receiver(arguments) => {
            let options = arguments.options();
            let report = receiver::run(&options)?;
            print(&report)?;
            let errors = report.connections.iter().map(|connection| connection.error.as_deref());
            Ok(failures(&format!("receiving on {}", options.listen), errors))
        }
        Command::Report(arguments) => arguments.run().map(|()| 0),
        Command::Relay(arguments) => relay(arguments),
        Command::Latency(arguments) => arguments.run().map(|()| 0),
        Command::LatencySender(arguments) => print(&arguments.run()?).map(|()| 0),
        Command::LatencyReader(arguments) => print(&arguments.run()?).map(|()| 0),
    }
}

/// Says how many connections failed, and why the first of them did; the exit code.
fn failures<'a>(what: &str, errors: impl ExactSizeIterator<Item = Option<&'a str>>) -> u8 {
    let all = errors.len();
    let failed: Vec<&str> = errors.flatten().collect();
    let Some(first) = failed.first() else { return 0 };
    let number = match (failed.len(), all) {
        (_, 1) => String::new(),
        (failed, all) => format!("{failed} of {all} connections failed: "),
    };
    say::line(format_args!("mpxdp-bench: {what}: {number}{}", one_line(first)));
    1
}

fn relay(arguments: RelayArguments) -> Result<u8> {
    let RelayArguments { left, right, chain, seed, json } = arguments;
    let interrupt = Interrupt::install()?;
    if let Some(json) = &json {
        json.check("--json")?;
    }
    let options = relay::Options { left, right, chain, seed };
    let relay = Relay::open(&options)?;
    // Whoever started this may be gone, and then there is nobody to tell.
    let mut stderr = io::stderr();
    let relay::Options { left, right, chain, .. } = options;
    let _ = writeln!(stderr, "{} {left} -- {right} {chain}", relay::READY);
    let report = relay.run(&interrupt)?;
    let _ = write!(stderr, "{report}");
    if let Some(json) = &json {
        json.put(&report)?;
    }
    Ok(0)
}

fn run_lab(command: LabCommand) -> Result<u8> {
    match command {
        LabCommand::Up { name, links, queues, mtu, vlan, no_gro, conditions, relay } => {
            let interrupt = Interrupt::install()?;
            let mut relayed = relay.iter().map(|(link, _)| link);
            if let Some(twice) =
                relayed.find(|link| relay.iter().filter(|(l, _)| l == *link).count() > 1)
            {
                return Err(Error::Usage(format!(
                    "--relay {twice}=...: link {twice} is there twice; put all its middleboxes in one chain"
                )));
            }
            let builder = relay
                .iter()
                .fold(Lab::builder(), |builder, (link, chain)| builder.relay(*link, chain));
            let lab = builder
                .name(name.name)
                .links(links)
                .queues(queues)
                .mtu(mtu)
                .vlan(vlan)
                .gro(!no_gro)
                .conditions(&conditions.into())
                .kept()
                .interrupt(&interrupt)
                .up()?;
            describe(&lab);
            Ok(0)
        }
        LabCommand::Down { name } => {
            let there = Lab::down(&name.name)?;
            say::line(format_args!("{}", if there { "lab removed" } else { "no lab was up" }));
            Ok(0)
        }
        LabCommand::Exec { name, side, command } => {
            let lab = Lab::open(&name.name)?;
            let side = match side {
                SideName::Snd => Side::Sender,
                SideName::Rcv => Side::Receiver,
            };
            let (program, arguments) =
                command.split_first().ok_or_else(|| Error::Usage("no command".into()))?;
            let error = lab.command(side, program).args(arguments).exec();
            Err(Error::failed("cannot run `ip`: install the package iproute2", error))
        }
    }
}

/// What there is to use, for the user who typed `lab up`.
fn describe(lab: &Lab) {
    for link in 0..lab.spec().links {
        let [sender, receiver] = Side::BOTH.map(|side| {
            format!(
                "{} {} {} {}",
                lab.namespace(side),
                lab.interface(side, link),
                lab.address(side, link, Family::V4),
                lab.address(side, link, Family::V6)
            )
        });
        say::line(format_args!("{sender} -- {receiver}"));
    }
}

impl SenderArguments {
    fn options(self) -> Result<sender::Options> {
        let content = match self.content {
            ContentArguments { bytes: Some(bytes), .. } => sender::Content::Bytes(bytes),
            ContentArguments { seconds: Some(seconds), .. } => {
                sender::Content::Time(Duration::from_secs_f64(seconds))
            }
            ContentArguments { file: Some(file), .. } => sender::Content::File(file),
            _ => return Err(Error::Usage("one of --bytes, --seconds and --file is needed".into())),
        };
        Ok(sender::Options {
            protocol: self.protocol,
            connect: self.connect.ok_or_else(|| Error::Usage("--connect is missing".into()))?,
            content,
            write_size: self.write_size,
            connections: self.connections,
            parallel: self.parallel,
            retry: Duration::from_secs_f64(self.retry),
            patience: Duration::from_secs_f64(self.patience.max(0.001)),
            rate: self.rate,
            reset: self.reset,
            hash: self.hash,
            subflows: self.subflows,
            warmup: self.warmup.map(Duration::from_secs_f64),
        })
    }
}

impl ReceiverArguments {
    fn options(&self) -> receiver::Options {
        receiver::Options {
            protocol: match self.kind {
                Kind::KernelMptcp => Protocol::Mptcp,
                Kind::KernelTcp => Protocol::Tcp,
            },
            listen: self.listen,
            connections: self.connections,
            hash: self.hash,
            patience: Duration::from_secs_f64(self.patience.max(0.001)),
        }
    }
}

fn print(report: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(report)
        .map_err(|error| Error::failed("cannot write the report", error))?;
    writeln!(io::stdout(), "{text}")
        .map_err(|error| Error::failed("cannot write the report", error))
}
