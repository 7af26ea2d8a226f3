//! One measurement: one receiver that waits in one way, under one load.

use std::net::SocketAddr;
use std::time::Duration;

use mpxdp_ebpf::{AttachMode, Front};

use super::histogram::{self, Latencies};
use super::reader::{self, Reading};
use super::schedule::Plan;
use super::{sender, waits};
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{Family, Lab, Running, Side};
use crate::measure::napi::Processing;
use crate::traffic::socket::Protocol;
use crate::trial::{Place, Receiver};

/// The port that receivers listen on.
const PORT: u16 = 5000;

/// How long a receiver may take to listen: XDP drivers may reset a link first.
const START: Duration = Duration::from_secs(15);

/// How much longer than planned sending may take; then the sender gives up, and says how much it did
/// not send.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much longer than that a process may run.
const END: Duration = Duration::from_secs(15);

/// What is offered to each receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) plan: Plan,
    /// Octets of a message.
    pub(super) size: usize,
}

/// Who is measured.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) receiver: Receiver,
    pub(super) reading: Reading,
    pub(super) place: Place,
}

/// What one measurement gave.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) latency: Latencies,
    pub(super) transit: Latencies,
    pub(super) lateness: Latencies,
    pub(super) late: u64,
    pub(super) unsent: u64,
    pub(super) achieved_rate: f64,
    pub(super) mptcp: bool,
    pub(super) mode: String,
}

/// What became of a measurement.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Measured(Box<Measured>),
    /// Why there is nothing to measure.
    Inapplicable(String),
}

/// A lab with the means to measure in it.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    lab: &'a Lab,
    interrupt: &'a Interrupt,
    program: std::path::PathBuf,
    processing: Processing,
}

impl<'a> Bench<'a> {
    pub(super) fn new(lab: &'a Lab, interrupt: &'a Interrupt) -> Result<Self> {
        let program = std::env::current_exe().context(|| "cannot find this executable")?;
        Ok(Self { lab, interrupt, program, processing: Processing::default() })
    }

    /// Whether a signal came.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }

    fn at(&self) -> SocketAddr {
        (self.lab.address(Side::Receiver, 0, Family::V4), PORT).into()
    }

    /// Measures once.
    ///
    /// # Errors
    ///
    /// If something could not be set up, a connection failed, or messages are missing.
    pub(super) fn measure(&mut self, subject: &Subject, load: &Load) -> Result<Outcome> {
        self.interrupt.check()?;
        let receiver = subject.receiver;
        self.processing.place(self.lab, 0, subject.place.napi_of(0))?;
        let front = receiver.behind_front().then(|| self.attach_front()).transpose()?;
        let reader = self.start_reader(subject, load)?;
        let sender = self.start_sender(subject, load)?;
        let limit = Duration::from_nanos(load.plan.due(load.plan.messages())) + PATIENCE + END;
        let sender = sender.wait(limit, self.interrupt)?;
        // The reader first: if it failed, the sender only saw the consequences.
        let read: reader::Report = reader.wait(END, self.interrupt)?.success()?.json()?;
        if let Some(why) = read.inapplicable {
            return Ok(Outcome::Inapplicable(why));
        }
        let sent: sender::Report = sender.success()?.json()?;
        let latency = histogram::decode(&read.latency)?;
        if latency.len() != sent.sent || read.mptcp != sent.mptcp {
            return Err(Error::Failed(format!(
                "{}: {} of {} messages measured; MPTCP: {} at the sender, {} at the reader",
                receiver.name(),
                latency.len(),
                sent.sent,
                sent.mptcp,
                read.mptcp
            )));
        }
        let front = front.map(|front| format!(", XDP {}", front.mode().name()));
        Ok(Outcome::Measured(Box::new(Measured {
            latency,
            transit: histogram::decode(&read.transit)?,
            lateness: histogram::decode(&sent.lateness)?,
            late: sent.late,
            unsent: sent.unsent,
            achieved_rate: sent.achieved_rate,
            mptcp: read.mptcp,
            mode: read.mode + &front.unwrap_or_default(),
        })))
    }

    fn start_reader(&self, subject: &Subject, load: &Load) -> Result<Running> {
        let Subject { receiver, reading, ref place } = *subject;
        let mut command = self.lab.command(Side::Receiver, &self.program);
        command.args(["latency-reader", "--reading", reading.name()]);
        command.args(["--listen", &self.at().to_string()]);
        command.args(["--size", &load.size.to_string()]);
        command.args(["--warm-up", &load.plan.warm_up.to_string()]);
        command.args(["--cpu", &place.reader.to_string()]);
        if waits::reader_shares(place) {
            command.arg("--yielding");
        }
        match (receiver, receiver.protocol()) {
            (Receiver::Mpxdp, _) => {
                command.args(["--receiver", "mpxdp"]);
                command.args(["--nic", &self.lab.interface(Side::Receiver, 0)]);
                if let Some(worker) = place.workers.as_slice().first() {
                    command.args(["--worker", &worker.to_string()]);
                }
                if waits::worker(place, reading) == Some(Reading::Spin) {
                    command.arg("--worker-spins");
                }
            }
            (_, Protocol::Mptcp) => _ = command.args(["--receiver", "kernel-mptcp"]),
            (_, Protocol::Tcp) => _ = command.args(["--receiver", "kernel-tcp"]),
        }
        // The reading thread pins itself: mpxdp's worker may have another CPU.
        let mut running = Running::start(receiver.name(), &mut command, &[])?;
        running.wait_for("listening on", START, self.interrupt)?;
        Ok(running)
    }

    fn start_sender(&self, subject: &Subject, load: &Load) -> Result<Running> {
        let Plan { rate, warm_up, measured } = load.plan;
        let protocol = match subject.receiver.protocol() {
            Protocol::Mptcp => "mptcp",
            Protocol::Tcp => "tcp",
        };
        let mut command = self.lab.command(Side::Sender, &self.program);
        command.args(["latency-sender", "--protocol", protocol]);
        command.args(["--connect", &self.at().to_string()]);
        command.args(["--rate", &rate.to_string(), "--size", &load.size.to_string()]);
        command.args(["--warm-up", &warm_up.to_string(), "--messages", &measured.to_string()]);
        command.args(["--patience", &PATIENCE.as_secs().to_string()]);
        if waits::sender(&subject.place) == Reading::Sleep {
            command.arg("--sleeping");
        }
        Running::start("sender", &mut command, &[subject.place.sender])
    }

    /// Attaches the program that passes everything, native or not at all: with another mode the
    /// comparison would not be a fair one.
    fn attach_front(&self) -> Result<Front> {
        let interface = self.lab.interface(Side::Receiver, 0);
        self.lab
            .within(Side::Receiver, || Front::attach_pass(&interface, AttachMode::Native))?
            .map_err(|error| Error::failed("the XDP front end", error))
    }
}
