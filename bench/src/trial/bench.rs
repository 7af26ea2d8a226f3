//! The means to measure.

use std::collections::BTreeMap;
use std::time::Duration;

use mpxdp_ebpf::{AttachMode, Front};

use super::paths::Paths;
use super::place::Place;
use super::programs::Programs;
use super::receiver::Receiver;
use super::recv_report::RecvReport;
use super::sending::Sending;
use super::site::{Hosts, Site};
use crate::document::{Busy, Round};
use crate::environment::{Environment, Nic};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{Ended, Lab, Running, Side};
use crate::measure::counters::Counters;
use crate::measure::cpu::{Snapshot, covers};
use crate::measure::napi::Processing;
use crate::measure::tasks::Tasks;
use crate::remote::{Job, Request};
use crate::traffic::socket::Protocol;
use crate::traffic::{receiver, sender};

/// How long a receiver may take to listen: XDP drivers may reset a link first.
const START: Duration = Duration::from_secs(15);

/// How much longer than the transfer itself a process may run.
pub(crate) const END: Duration = Duration::from_secs(30);

/// A lab, or two hosts, with the means to measure there.
#[derive(Debug)]
pub struct Bench<'a> {
    pub(super) site: Site<'a>,
    /// The programs.
    pub programs: &'a Programs,
    /// Whether to stop.
    pub interrupt: &'a Interrupt,
    processing: Vec<Processing>,
    paths: Paths,
}

/// What is to be measured. The MTU and the links are those of where it is measured.
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
pub(super) struct Moment {
    pub(super) cpu: Snapshot,
    receiver: Tasks,
    napi: Tasks,
}

/// The receiving side of a measurement: its process, and the threads of the NICs' processing.
pub(super) struct Receiving<'a> {
    pub(super) place: &'a Place,
    pub(super) pid: u32,
    pub(super) napi: &'a [u32],
    /// Whether the sender is on this machine.
    pub(super) with_sender: bool,
}

impl Receiving<'_> {
    /// Where everything stands now.
    pub(super) fn now(&self) -> Result<Moment> {
        let Self { place, pid, napi, with_sender } = *self;
        let receiver = Tasks::of_process(pid);
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
        let cpu = Snapshot::take(with_sender.then_some(place.sender), beside)?;
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
            cpu_span_seconds: Some(cost.wall),
            cpu_seconds: cost.seconds,
            cpus: cost.cpus,
            busy: Busy {
                nic_processing: busy(&self.napi, &later.napi),
                worker,
                worker_at_work: None,
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
        let (site, paths) = (Site::Lab(lab), Paths::default());
        Self { site, programs, interrupt, processing, paths }
    }

    /// On this host as the receiver, from a sender on another one.
    #[must_use]
    pub fn between_hosts(
        hosts: &'a Hosts,
        programs: &'a Programs,
        interrupt: &'a Interrupt,
    ) -> Self {
        let (site, paths) = (Site::Hosts(hosts), Paths::default());
        Self { site, programs, interrupt, processing: Vec::new(), paths }
    }

    /// The MTU of the receiver's interfaces.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        match self.site {
            Site::Lab(lab) => lab.spec().mtu,
            Site::Hosts(hosts) => hosts.mtu(),
        }
    }

    /// The number of links between sender and receiver.
    #[must_use]
    pub fn links(&self) -> u32 {
        u32::try_from(self.site.interfaces().len()).unwrap_or(u32::MAX)
    }

    /// Says where it is measured: the receiver's interfaces as they are now, and the lab if it is one.
    pub fn describe(&self, environment: &mut Environment) {
        let interfaces = self.site.interfaces();
        let nic = |name: &String| Nic::read(name, |tool| self.site.command(tool));
        environment.nics = interfaces.iter().map(nic).collect();
        environment.lab = self.site.lab().map(|lab| lab.spec().conditions());
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
        if let Some(lab) = self.site.lab() {
            self.paths.set(lab, subflows)?;
        }
        let napi = self.place_processing(place)?;
        let fronts = if receiver.behind_front() { self.attach_fronts()? } else { Vec::new() };
        let mode = fronts.first().map(|front| format!("sockets, XDP {}", front.mode().name()));
        let mode = mode.unwrap_or_else(|| "sockets".to_owned());
        let before = self.counters()?;
        let running = match receiver {
            Receiver::Mpxdp => self.start_mpxdp(Some(place), &["--connections", "1"])?,
            _ => self.start_kernel(receiver, place)?,
        };
        let with_sender = self.site.lab().is_some();
        let receiving = Receiving { place, pid: running.pid(), napi: &napi, with_sender };
        let limit = warmup + time + END;
        let sending = self.start_sending(trial)?;
        let sending = sending.wait_for(sender::WARM, limit, self.interrupt)?;
        let warm = receiving.now()?;
        let sending = sending.wait_for(sender::WRITTEN, limit, self.interrupt)?;
        let written = receiving.now()?;
        let sent = sending.finish(END, self.interrupt)?;
        let received = running.wait(END, self.interrupt)?.success()?;
        let after = self.counters()?;

        let mut outcome = Outcome {
            round: warm.round_until(&written, receiver),
            mode,
            zero_copy: None,
            mptcp: false,
        };
        outcome.round.drops = before.lost_until(&after);
        outcome.round.packets = before.packets_until(&after, &self.site.interfaces());
        outcome.add_sent(sent, trial)?;
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

    /// Places the receive processing of all links and returns the threads that do it, if any. Between
    /// hosts it is left as it is.
    pub(super) fn place_processing(&mut self, place: &Place) -> Result<Vec<u32>> {
        let Some(lab) = self.site.lab() else { return Ok(Vec::new()) };
        let mut threads = Vec::new();
        for (link, processing) in (0..).zip(&mut self.processing) {
            threads.extend(processing.place(lab, link, place.napi_of(link))?);
        }
        Ok(threads)
    }

    /// Lets the receive processing of all links run in the sender's context.
    pub(crate) fn unplace_processing(&mut self) -> Result<()> {
        let Some(lab) = self.site.lab() else { return Ok(()) };
        for (link, processing) in (0..).zip(&mut self.processing) {
            processing.place(lab, link, None)?;
        }
        Ok(())
    }

    /// Attaches the program that passes everything, native or not at all: with another mode the
    /// comparison would not be a fair one.
    fn attach_fronts(&self) -> Result<Vec<Front>> {
        let attach = |interface: String| {
            self.site
                .within(|| Front::attach_pass(&interface, AttachMode::Native))?
                .map_err(|error| Error::failed("the XDP front end", error))
        };
        self.site.interfaces().into_iter().map(attach).collect()
    }

    /// The counters of the receiver's namespace, and in a lab what the sender's interfaces lost.
    pub(super) fn counters(&self) -> Result<Counters> {
        let receiver = self.site.within(Counters::read)??;
        let Some(lab) = self.site.lab() else { return Ok(receiver) };
        Ok(receiver.and_losses_of(lab.within(Side::Sender, Counters::read)??))
    }

    pub(crate) fn start_mpxdp(&self, place: Option<&Place>, more: &[&str]) -> Result<Running> {
        let mut command = self.site.command(self.programs.mpxdp()?);
        let listen = self.site.listen().to_string();
        command.args(["recv", "--listen", &listen, "--announce", "none"]);
        for interface in self.site.interfaces() {
            command.arg("--nic").arg(interface);
        }
        command.args(["--report", "-"]).args(more);
        if let Some(Place { workers, reader, .. }) = place {
            command.arg("--placement").arg(format!("worker={workers} reader={reader}"));
        }
        self.started("mpxdp recv", command, &[])
    }

    fn start_kernel(&self, receiver: Receiver, place: &Place) -> Result<Running> {
        let kind = match receiver.protocol() {
            Protocol::Mptcp => "kernel-mptcp",
            Protocol::Tcp => "kernel-tcp",
        };
        let mut command = self.site.command(&self.programs.bench);
        let listen = self.site.listen().to_string();
        command.args(["receiver", "--kind", kind, "--listen", &listen]);
        self.started(receiver.name(), command, &[place.reader])
    }

    /// Starts a receiver and waits until it listens.
    pub(super) fn started(
        &self,
        name: &str,
        mut command: std::process::Command,
        cpus: &[usize],
    ) -> Result<Running> {
        let mut running = Running::start(name, &mut command, cpus)?;
        running.wait_for("listening on", START, self.interrupt)?;
        Ok(running)
    }

    fn start_sending(&self, trial: &Trial) -> Result<Sending> {
        let Trial { receiver, ref place, subflows, warmup, time } = *trial;
        if let Site::Hosts(hosts) = self.site {
            let request = Request {
                protocol: receiver.protocol(),
                to: hosts.listen,
                seconds: time.as_secs_f64(),
                warmup: warmup.as_secs_f64(),
                subflows,
            };
            return Job::start(hosts.sender, &request, self.interrupt).map(Sending::Remote);
        }
        let arguments = [
            ("--seconds", time.as_secs_f64().to_string()),
            ("--warmup", warmup.as_secs_f64().to_string()),
            ("--subflows", subflows.to_string()),
        ];
        let arguments: Vec<&str> =
            arguments.iter().flat_map(|(option, value)| [*option, value.as_str()]).collect();
        self.start_sender(receiver, &[place.sender], &arguments).map(Sending::Process)
    }

    /// Starts a sender in the lab.
    pub(crate) fn start_sender(
        &self,
        receiver: Receiver,
        cpus: &[usize],
        more: &[&str],
    ) -> Result<Running> {
        let lab = self.site.lab().ok_or_else(|| Error::Failed("there is no lab".into()))?;
        let protocol = match receiver.protocol() {
            Protocol::Mptcp => "mptcp",
            Protocol::Tcp => "tcp",
        };
        let mut command = lab.command(Side::Sender, &self.programs.bench);
        let to = self.site.listen().to_string();
        command.args(["sender", "--connect", &to, "--protocol", protocol]);
        // Less than we wait for it, so that it says itself what it waited for.
        command.args(["--patience", "15"]);
        command.args(more);
        Running::start("sender", &mut command, cpus)
    }
}

impl Outcome {
    /// Takes what the sender says, which is what it was asked for or an error.
    fn add_sent(&mut self, connection: sender::Connection, trial: &Trial) -> Result<()> {
        let receiver = trial.receiver;
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
        let round = &mut self.round;
        // No data comes without a CPU.
        round.cpu_invalid = round.cpu_seconds.total() == 0.0
            || !round.cpu_span_seconds.is_some_and(|span| covers(span, seconds));
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
            let connected = self.round.total_seconds;
            self.round.busy.worker_at_work =
                (connected > 0.0).then(|| report.seconds_at_work() / connected);
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

fn merge(into: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>) {
    for (name, count) in from {
        *into.entry(name).or_default() += count;
    }
}
