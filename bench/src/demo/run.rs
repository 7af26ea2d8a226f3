//! One measurement: one receiver at one place for some seconds.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mpxdp_ebpf::{AttachMode, Front};
use serde::Deserialize;

use super::plan::{Place, Receiver};
use crate::error::{Context, Error, Result};
use crate::interrupt::Interrupt;
use crate::lab::{Family, Lab, Running, Side};
use crate::measure::cpu::{self, Cost, Snapshot};
use crate::measure::napi::Processing;
use crate::report::{Exactness, Idle};
use crate::traffic::{Hash, receiver, sender};

/// The port that receivers listen on.
const PORT: u16 = 5000;

/// How long a receiver may take to listen: XDP drivers may reset a link first.
const START: Duration = Duration::from_secs(15);

/// How much longer than the transfer itself a process may run.
const END: Duration = Duration::from_secs(30);

/// How much an exactness pass sends.
const EXACT_BYTES: u64 = 64 << 20;

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `mpxdp-bench`.
    pub bench: PathBuf,
    /// `mpxdp`, if it is there.
    pub mpxdp: Option<PathBuf>,
}

impl Programs {
    /// This executable, and `mpxdp` in the same folder.
    ///
    /// # Errors
    ///
    /// If the system does not tell where this executable is.
    pub fn find() -> Result<Self> {
        let bench = std::env::current_exe().context(|| "cannot find this executable")?;
        let mpxdp = bench.with_file_name("mpxdp");
        let mpxdp = mpxdp.is_file().then_some(mpxdp);
        Ok(Self { bench, mpxdp })
    }

    fn mpxdp(&self) -> Result<&Path> {
        self.mpxdp.as_deref().ok_or_else(|| {
            let folder = self.bench.parent().unwrap_or_else(|| Path::new("."));
            Error::Missing(format!(
                "no `mpxdp` in {}: build it with `cargo build --release -p mpxdp-control`",
                folder.display()
            ))
        })
    }
}

/// A lab with the means to measure in it.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The programs.
    pub programs: &'a Programs,
    /// Whether to stop.
    pub interrupt: &'a Interrupt,
    processing: Processing,
}

/// What one measurement gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Payload bytes that the sender sent.
    pub bytes: u64,
    /// As the sender saw it: from connected until the receiver had closed too.
    pub bits_per_second: f64,
    /// Whether the sender's kernel says that it was MPTCP to the end.
    pub mptcp: bool,
    /// What the receiving side cost.
    pub cost: Cost,
    /// How the packets came in.
    pub mode: String,
}

/// What is needed of the report of `mpxdp recv`.
#[derive(Debug, Deserialize)]
struct RecvReport {
    connections: Vec<RecvConnection>,
    nics: Vec<RecvNic>,
}

#[derive(Debug, Deserialize)]
struct RecvConnection {
    bytes: u64,
    closed: String,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RecvNic {
    mode: String,
    zero_copy: bool,
}

impl RecvReport {
    /// Whether the one connection had all the bytes.
    fn check(&self, bytes: u64) -> Result<()> {
        match &self.connections[..] {
            [RecvConnection { bytes: got, error: None, .. }] if *got == bytes => Ok(()),
            [RecvConnection { bytes: got, error, closed }] => Err(Error::Failed(format!(
                "mpxdp recv: {got} of {bytes} bytes, closed by {closed}, error {error:?}"
            ))),
            others => {
                Err(Error::Failed(format!("mpxdp recv: {} connections, not one", others.len())))
            }
        }
    }

    fn mode(&self) -> String {
        self.nics.first().map_or_else(String::new, |nic| {
            let copy = if nic.zero_copy { "zero copy" } else { "copy" };
            format!("AF_XDP, {}, {copy}", nic.mode)
        })
    }
}

impl<'a> Bench<'a> {
    /// In a lab.
    #[must_use]
    pub fn new(lab: &'a Lab, programs: &'a Programs, interrupt: &'a Interrupt) -> Self {
        Self { lab, programs, interrupt, processing: Processing::default() }
    }

    fn listen(&self) -> SocketAddr {
        (self.lab.address(Side::Receiver, 0, Family::V4), PORT).into()
    }

    fn start_mpxdp(&self, place: Option<Place>, more: &[&str]) -> Result<Running> {
        let mut command = self.lab.command(Side::Receiver, self.programs.mpxdp()?);
        let interface = self.lab.interface(Side::Receiver, 0);
        command.args(["recv", "--nic", &interface, "--listen", &self.listen().to_string()]);
        command.args(["--report", "-"]).args(more);
        if let Some(Place { worker: Some(worker), reader, .. }) = place {
            command.arg("--placement").arg(format!("worker={worker} reader={reader}"));
        }
        let mut running = Running::start("mpxdp recv", &mut command, &[])?;
        running.wait_for("listening on", START, self.interrupt)?;
        Ok(running)
    }

    fn start_kernel(&self, receiver: Receiver, place: Place) -> Result<Running> {
        let kind = match receiver.protocol() {
            crate::traffic::socket::Protocol::Mptcp => "kernel-mptcp",
            crate::traffic::socket::Protocol::Tcp => "kernel-tcp",
        };
        let mut command = self.lab.command(Side::Receiver, &self.programs.bench);
        let listen = self.listen().to_string();
        command.args(["receiver", "--kind", kind, "--listen", &listen]);
        let mut running = Running::start(receiver.name(), &mut command, &[place.reader])?;
        running.wait_for("listening on", START, self.interrupt)?;
        Ok(running)
    }

    fn start_sender(&self, receiver: Receiver, cpus: &[usize], more: &[&str]) -> Result<Running> {
        let protocol = match receiver.protocol() {
            crate::traffic::socket::Protocol::Mptcp => "mptcp",
            crate::traffic::socket::Protocol::Tcp => "tcp",
        };
        let mut command = self.lab.command(Side::Sender, &self.programs.bench);
        command.args(["sender", "--connect", &self.listen().to_string(), "--protocol", protocol]);
        // Less than we wait for it, so that it says itself what it waited for.
        command.args(["--patience", "15"]);
        command.args(more);
        Running::start("sender", &mut command, cpus)
    }

    /// Measures a receiver at a place.
    ///
    /// # Errors
    ///
    /// If something could not be set up, the transfer failed, or bytes are missing.
    pub fn measure(
        &mut self,
        receiver: Receiver,
        place: Place,
        time: Duration,
    ) -> Result<Measured> {
        self.interrupt.check()?;
        let threads = self.processing.place(self.lab, 0, place.napi)?;
        let front = receiver.behind_front().then(|| self.attach_front()).transpose()?;
        let running = match receiver {
            Receiver::Mpxdp => self.start_mpxdp(Some(place), &["--connections", "1"])?,
            _ => self.start_kernel(receiver, place)?,
        };
        // Threads that share the sender's CPU would else count as the sender.
        let mut beside = if place.napi == Some(place.sender) { threads } else { Vec::new() };
        if place.reader == place.sender {
            beside.push(running.pid());
        }
        let before = Snapshot::take(place.sender, &beside)?;
        let seconds = time.as_secs_f64().to_string();
        let sender = self.start_sender(receiver, &[place.sender], &["--seconds", &seconds])?;
        let sender = sender.wait(time + END, self.interrupt)?.success()?;
        let after = Snapshot::take(place.sender, &beside)?;
        let received = running.wait(END, self.interrupt)?.success()?;

        let sent: sender::Report = sender.json()?;
        let [connection] = &sent.connections[..] else {
            return Err(Error::Failed("the sender had more than one connection".into()));
        };
        let mode = match receiver {
            Receiver::Mpxdp => {
                let report: RecvReport = received.json()?;
                report.check(connection.bytes)?;
                report.mode()
            }
            _ => {
                let report: receiver::Report = received.json()?;
                let bytes: u64 = report.connections.iter().map(|c| c.bytes).sum();
                if bytes != connection.bytes {
                    return Err(Error::Failed(format!(
                        "{}: {bytes} of {} bytes",
                        receiver.name(),
                        connection.bytes
                    )));
                }
                front.as_ref().map_or_else(
                    || "sockets".to_owned(),
                    |front| format!("sockets, XDP {}", front.mode().name()),
                )
            }
        };
        Ok(Measured {
            bytes: connection.bytes,
            bits_per_second: connection.bits_per_second,
            mptcp: connection.spoken.mptcp,
            cost: before.cost_until(&after),
            mode,
        })
    }

    /// Attaches the program that passes everything, native or not at all: with another mode the
    /// comparison would not be a fair one.
    fn attach_front(&self) -> Result<Front> {
        let interface = self.lab.interface(Side::Receiver, 0);
        self.lab
            .within(Side::Receiver, || Front::attach_pass(&interface, AttachMode::Native))?
            .map_err(|error| Error::failed("the XDP front end", error))
    }

    /// Sends 64 MiB to a file through mpxdp and compares.
    ///
    /// # Errors
    ///
    /// If the transfer failed. Bytes that differ are no error but in the result.
    pub fn exactness(&mut self, folder: &Path) -> Result<Exactness> {
        self.interrupt.check()?;
        self.processing.place(self.lab, 0, None)?;
        let path = folder.join("received");
        let output = path.to_string_lossy().into_owned();
        let running = self.start_mpxdp(None, &["--output", &output])?;
        let size = EXACT_BYTES.to_string();
        let sender = self.start_sender(Receiver::Mpxdp, &[], &["--bytes", &size, "--hash"])?;
        let sender = sender.wait(END, self.interrupt)?.success()?;
        running.wait(END, self.interrupt)?.success()?;
        let sent: sender::Report = sender.json()?;
        let sent = sent.connections.into_iter().find_map(|connection| connection.sha256);
        let received = std::fs::read(&path).context(|| format!("cannot read {output}"))?;
        std::fs::remove_file(&path).context(|| format!("cannot remove {output}"))?;
        let mut hash = Hash::default();
        hash.update(&received);
        let (sent, received) = (sent.unwrap_or_default(), hash.finish());
        let exact = sent == received;
        Ok(Exactness { mtu: self.lab.spec().mtu, bytes: EXACT_BYTES, sent, received, exact })
    }

    /// What `mpxdp recv` costs that listens and has no traffic.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn idle(&self, place: Place) -> Result<Idle> {
        /// Until the workers have stopped spinning.
        const SETTLE: Duration = Duration::from_millis(500);
        /// Long enough for one per mille to be seen.
        const WATCH: Duration = Duration::from_secs(2);
        let running = self.start_mpxdp(Some(place), &[])?;
        std::thread::sleep(SETTLE);
        let before = cpu::process_seconds(running.pid());
        let started = std::time::Instant::now();
        std::thread::sleep(WATCH);
        let seconds = started.elapsed().as_secs_f64();
        let used = cpu::process_seconds(running.pid()) - before;
        running.signal(nix::sys::signal::Signal::SIGTERM)?;
        running.wait(END, self.interrupt)?;
        Ok(Idle { seconds, cpu_fraction: (used / seconds).max(0.0) })
    }
}
