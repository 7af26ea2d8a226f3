//! The means to measure in a lab.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use mpxdp_ebpf::{AttachMode, Front};

use super::paths::Paths;
use super::place::Place;
use super::programs::Programs;
use super::receiver::Receiver;
use super::recv_report::RecvReport;
use crate::document::{Busy, Round};
use crate::environment::Nic;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{Ended, Family, Lab, Running, Side};
use crate::measure::counters::Counters;
use crate::measure::cpu::Snapshot;
use crate::measure::napi::Processing;
use crate::measure::tasks::Tasks;
use crate::traffic::socket::Protocol;
use crate::traffic::{receiver, sender};

/// The port that receivers listen on.
const PORT: u16 = 5000;

/// How long a receiver may take to listen: XDP drivers may reset a link first.
const START: Duration = Duration::from_secs(15);

/// How much longer than the transfer itself a process may run.
pub(crate) const END: Duration = Duration::from_secs(30);

/// A lab with the means to measure in it.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The programs.
    pub programs: &'a Programs,
    /// Whether to stop.
    pub interrupt: &'a Interrupt,
    processing: Vec<Processing>,
    paths: Paths,
}

/// What is to be measured. The MTU and the links are the lab's.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Who receives.
    pub receiver: Receiver,
    /// Where its parts, and the sender, run.
    pub place: Place,
    /// Subflows of the connection, the first one included: from 1 to
    /// [`MAX_SUBFLOWS`](super::MAX_SUBFLOWS), for TCP 1.
    pub subflows: u32,
    /// Time at full speed before it is measured.
    pub warmup: Duration,
    /// Time that is measured.
    pub time: Duration,
}

/// What one measurement gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures.
    pub round: Round,
    /// How the packets came in, for a person to read.
    pub mode: String,
    /// Whether AF_XDP did without a copy in the kernel; none for the kernel's receivers.
    pub zero_copy: Option<bool>,
    /// Whether the sender's kernel says that it was MPTCP to the end.
    pub mptcp: bool,
}

/// Where everything stood at a moment.
struct Moment {
    cpu: Snapshot,
    receiver: Tasks,
    napi: Tasks,
}

/// The processes of a measurement, and the threads of the NICs' processing.
struct Processes<'a> {
    place: &'a Place,
    receiver: u32,
    napi: &'a [u32],
}

impl Processes<'_> {
    /// Where everything stands now.
    fn now(&self) -> Result<Moment> {
        let Self { place, receiver, napi } = *self;
        let receiver = Tasks::of_process(receiver);
        let napi = Tasks::of_threads(napi);
        // Threads that share the sender's CPU would else count as the sender.
        let mut beside = Tasks::default();
        let all_here = |cpus: &[usize]| cpus.iter().all(|&cpu| cpu == place.sender);
        if place.napi.as_ref().is_some_and(|cpus| all_here(cpus.as_slice())) {
            beside = beside.and(napi.clone());
        }
        if place.reader == place.sender {
            beside = beside.and(receiver.clone());
        }
        let cpu = Snapshot::take(Some(place.sender), beside)?;
        Ok(Moment { cpu, receiver, napi })
    }
}

impl Moment {
    /// A round with what the processes did from this moment to a later one.
    fn round_until(&self, later: &Self, receiver: Receiver) -> Round {
        let cost = self.cpu.cost_until(&later.cpu);
        let busy = |before: &Tasks, after: &Tasks| {
            (!after.is_empty() && cost.wall > 0.0).then(|| before.ran_until(after) / cost.wall)
        };
        let named = |prefix: &'static str| {
            let is = |name: &str| name.starts_with(prefix) && name != "mpxdp-memory";
            busy(&self.receiver.named(is), &later.receiver.named(is))
        };
        let (worker, reader) = match receiver {
            // As the engine and `mpxdp recv` name their threads.
            Receiver::Mpxdp => (named("mpxdp-"), named("reader-")),
            _ => (None, busy(&self.receiver, &later.receiver)),
        };
        let receiving = |moment: &Self| moment.receiver.clone().and(moment.napi.clone());
        Round {
            receiving_cores: cost.cores(),
            cpu_seconds: cost.seconds,
            cpus: cost.cpus,
            busy: Busy {
                nic_processing: busy(&self.napi, &later.napi),
                worker,
                reader,
                sender: None,
            },
            context_switches: receiving(self).switches_until(&receiving(later)),
            ..Round::default()
        }
    }
}

impl<'a> Bench<'a> {
    /// In a lab.
    #[must_use]
    pub fn new(lab: &'a Lab, programs: &'a Programs, interrupt: &'a Interrupt) -> Self {
        let processing = (0..lab.spec().links).map(|_| Processing::default()).collect();
        Self { lab, programs, interrupt, processing, paths: Paths::default() }
    }

    /// The receiver's interfaces as they are now.
    #[must_use]
    pub fn nics(&self) -> Vec<Nic> {
        let links = 0..self.lab.spec().links;
        let names = links.map(|link| self.lab.interface(Side::Receiver, link));
        names.map(|name| Nic::read(&name, |tool| self.lab.command(Side::Receiver, tool))).collect()
    }

    /// Measures a receiver at a place.
    ///
    /// # Errors
    ///
    /// If something could not be set up, the transfer failed, bytes are missing, or the connection was
    /// not what was asked for.
    pub fn measure(&mut self, trial: &Trial) -> Result<Outcome> {
        let Trial { receiver, ref place, subflows, warmup, time } = *trial;
        self.interrupt.check()?;
        if receiver.protocol() == Protocol::Tcp && subflows != 1 {
            return Err(Error::Usage(format!("{}: TCP has one subflow", receiver.name())));
        }
        self.paths.set(self.lab, subflows)?;
        let napi = self.place_processing(place)?;
        let fronts = if receiver.behind_front() { self.attach_fronts()? } else { Vec::new() };
        let mode = fronts.first().map(|front| format!("sockets, XDP {}", front.mode().name()));
        let mode = mode.unwrap_or_else(|| "sockets".to_owned());
        let before = self.counters()?;
        let running = match receiver {
            Receiver::Mpxdp => self.start_mpxdp(Some(place), &["--connections", "1"])?,
            _ => self.start_kernel(receiver, place)?,
        };
        let arguments = [
            ("--seconds", time.as_secs_f64().to_string()),
            ("--warmup", warmup.as_secs_f64().to_string()),
            ("--subflows", subflows.to_string()),
        ];
        let arguments: Vec<&str> =
            arguments.iter().flat_map(|(option, value)| [*option, value.as_str()]).collect();
        let mut sender = self.start_sender(receiver, &[place.sender], &arguments)?;
        let limit = warmup + time + END;
        let processes = Processes { place, receiver: running.pid(), napi: &napi };
        let mut moments = Vec::new();
        for text in [sender::WARM, sender::WRITTEN] {
            if let Err(error) = sender.wait_for(text, limit, self.interrupt) {
                self.interrupt.check()?;
                // One that failed before has said why in its report.
                let ended = sender.wait(END, self.interrupt)?;
                return Err(failed_sender(receiver, &ended).unwrap_or(error));
            }
            moments.push(processes.now()?);
        }
        let sender = sender.wait(END, self.interrupt)?;
        if let Some(error) = failed_sender(receiver, &sender) {
            return Err(error);
        }
        let sender = sender.success()?;
        let received = running.wait(END, self.interrupt)?.success()?;
        let after = self.counters()?;

        let [warm, written] = &moments[..] else {
            return Err(Error::Failed("the sender said too little".into()));
        };
        let mut outcome = Outcome {
            round: warm.round_until(written, receiver),
            mode,
            zero_copy: None,
            mptcp: false,
        };
        outcome.round.drops = before.lost_until(&after);
        outcome.add_sent(sender.json()?, trial)?;
        outcome.add_received(&received, receiver)?;
        if receiver != Receiver::Mpxdp && subflows > 1 {
            let joins = before.grown("MPTcpExt:MPJoinAckRx", &after);
            if joins < u64::from(subflows - 1) {
                return Err(Error::Failed(format!(
                    "{}: {joins} further subflows joined, not {}",
                    receiver.name(),
                    subflows - 1
                )));
            }
        }
        Ok(outcome)
    }

    /// Places the receive processing of all links and returns the threads that do it, if any.
    fn place_processing(&mut self, place: &Place) -> Result<Vec<u32>> {
        let mut threads = Vec::new();
        for (link, processing) in (0..).zip(&mut self.processing) {
            threads.extend(processing.place(self.lab, link, place.napi_of(link))?);
        }
        Ok(threads)
    }

    /// Lets the receive processing of all links run in the sender's context.
    pub(crate) fn unplace_processing(&mut self) -> Result<()> {
        for (link, processing) in (0..).zip(&mut self.processing) {
            processing.place(self.lab, link, None)?;
        }
        Ok(())
    }

    /// Attaches the program that passes everything, native or not at all: with another mode the
    /// comparison would not be a fair one.
    fn attach_fronts(&self) -> Result<Vec<Front>> {
        let attach = |link| {
            let interface = self.lab.interface(Side::Receiver, link);
            self.lab
                .within(Side::Receiver, || Front::attach_pass(&interface, AttachMode::Native))?
                .map_err(|error| Error::failed("the XDP front end", error))
        };
        (0..self.lab.spec().links).map(attach).collect()
    }

    /// The counters of the receiver's namespace, and what the sender's interfaces lost.
    fn counters(&self) -> Result<Counters> {
        let receiver = self.lab.within(Side::Receiver, Counters::read)??;
        let sender = self.lab.within(Side::Sender, Counters::read)??;
        Ok(receiver.and_interfaces_of(sender))
    }

    fn listen(&self) -> SocketAddr {
        (self.lab.address(Side::Receiver, 0, Family::V4), PORT).into()
    }

    pub(crate) fn start_mpxdp(&self, place: Option<&Place>, more: &[&str]) -> Result<Running> {
        let mut command = self.lab.command(Side::Receiver, self.programs.mpxdp()?);
        command.args(["recv", "--listen", &self.listen().to_string(), "--announce", "none"]);
        for link in 0..self.lab.spec().links {
            command.arg("--nic").arg(self.lab.interface(Side::Receiver, link));
        }
        command.args(["--report", "-"]).args(more);
        if let Some(Place { workers, reader, .. }) = place {
            command.arg("--placement").arg(format!("worker={workers} reader={reader}"));
        }
        let mut running = Running::start("mpxdp recv", &mut command, &[])?;
        running.wait_for("listening on", START, self.interrupt)?;
        Ok(running)
    }

    fn start_kernel(&self, receiver: Receiver, place: &Place) -> Result<Running> {
        let kind = match receiver.protocol() {
            Protocol::Mptcp => "kernel-mptcp",
            Protocol::Tcp => "kernel-tcp",
        };
        let mut command = self.lab.command(Side::Receiver, &self.programs.bench);
        let listen = self.listen().to_string();
        command.args(["receiver", "--kind", kind, "--listen", &listen]);
        let mut running = Running::start(receiver.name(), &mut command, &[place.reader])?;
        running.wait_for("listening on", START, self.interrupt)?;
        Ok(running)
    }

    pub(crate) fn start_sender(
        &self,
        receiver: Receiver,
        cpus: &[usize],
        more: &[&str],
    ) -> Result<Running> {
        let protocol = match receiver.protocol() {
            Protocol::Mptcp => "mptcp",
            Protocol::Tcp => "tcp",
        };
        let mut command = self.lab.command(Side::Sender, &self.programs.bench);
        command.args(["sender", "--connect", &self.listen().to_string(), "--protocol", protocol]);
        // Less than we wait for it, so that it says itself what it waited for.
        command.args(["--patience", "15"]);
        command.args(more);
        Running::start("sender", &mut command, cpus)
    }
}

impl Outcome {
    /// Takes what the sender says, which is what it was asked for or an error.
    fn add_sent(&mut self, sent: sender::Report, trial: &Trial) -> Result<()> {
        let receiver = trial.receiver;
        let [connection] = <[sender::Connection; 1]>::try_from(sent.connections)
            .map_err(|_| Error::Failed("the sender had more than one connection".into()))?;
        let wanted = if receiver.protocol() == Protocol::Mptcp { trial.subflows } else { 1 };
        if connection.subflows != wanted {
            return Err(Error::Failed(format!(
                "{}: the connection ended with {} subflows, not {wanted}",
                receiver.name(),
                connection.subflows
            )));
        }
        if let Some(why) = connection.spoken.fallback {
            return Err(Error::Failed(format!("{}: {why}", receiver.name())));
        }
        let sender::Measured { bytes, seconds, bits_per_second, retransmissions, ran_seconds } =
            connection.measured;
        self.mptcp = connection.spoken.mptcp;
        self.round.busy.sender = (seconds > 0.0).then(|| ran_seconds / seconds);
        self.round = Round {
            seconds,
            bytes,
            bits_per_second,
            total_bytes: connection.bytes,
            total_seconds: connection.seconds,
            retransmissions,
            timeline: connection.timeline,
            ..std::mem::take(&mut self.round)
        };
        Ok(())
    }

    /// Takes what the receiver says, which has all bytes or is an error.
    fn add_received(&mut self, received: &Ended, receiver: Receiver) -> Result<()> {
        let sent = self.round.total_bytes;
        if receiver == Receiver::Mpxdp {
            let report: RecvReport = received.json()?;
            report.check(sent)?;
            self.mode = report.mode();
            self.zero_copy = Some(report.zero_copy());
            self.round.subflow_bytes = report.subflow_bytes();
            merge(&mut self.round.drops, report.drops());
            return Ok(());
        }
        let report: receiver::Report = received.json()?;
        let bytes: u64 = report.connections.iter().map(|connection| connection.bytes).sum();
        if bytes != sent {
            let name = receiver.name();
            return Err(Error::Failed(format!("{name}: {bytes} of {sent} bytes")));
        }
        Ok(())
    }
}

/// Why a sender's connection failed, if it did.
fn failed_sender(receiver: Receiver, ended: &Ended) -> Option<Error> {
    let report: sender::Report = ended.json().ok()?;
    let why = report.connections.into_iter().find_map(|connection| connection.error)?;
    Some(Error::failed(format!("sending to {}", receiver.name()), why))
}

fn merge(into: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>) {
    for (name, count) in from {
        *into.entry(name).or_default() += count;
    }
}
