//! `mpxdp recv`: receives connections and writes what they carry.

mod preflight;
mod reader;

use std::io;
use std::os::fd::AsFd as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use mpxdp::{
    ConnectionStatistics, CpuList, Engine, EngineConfig, Keepalive, Listener, NicReport, Stream,
};
use mpxdp_cli::describe;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::cli::RecvSettings;
use crate::failure::Failure;
use crate::output::Output;
use crate::privileges;
use crate::progress::{INTERVAL, Progress};
use crate::report::{self, Connection, Ended, Environment, Report};
use crate::signals::Stop;
use crate::units;

use self::reader::Outcome;

/// How many connections are read at the same time, one thread each; more wait to be accepted.
const READERS: usize = 256;

/// When a peer that says nothing is asked whether it is still there: a subflow that went without a
/// word is given up after two minutes, long enough for a cable to be put back.
const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 6 };

/// How long connections that are closing are given at the end of the run.
const GRACE: Duration = Duration::from_secs(1);

/// How long readers are given once it is time to stop. One that is still writing then is held up by
/// its output: a pipe that nobody reads, or a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often the workers are looked after where no live line asks for more.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
///
/// A [`Failure`] if it could not begin, or if the engine or the report failed. A connection that
/// fails does not fail the run: it has its line on stderr, and the exit code is 1.
pub(crate) fn run(args: &RecvSettings) -> Result<ExitCode, Failure> {
    raise_descriptor_limit();
    let mut output = args.output.open()?;
    if let Some(report) = &args.report {
        report.check()?;
    }
    preflight::check(args)?;
    let stop = Stop::new()
        .and_then(|stop| stop.on_signals().map(|()| Arc::new(stop)))
        .map_err(|e| Failure::runtime(format!("watching for signals: {}", describe(&e))))?;
    let engine = start(args)?;
    let listener = engine.listen(args.listen)?;
    output.keep();

    let mut receiver = Receiver {
        limit: args.limit(),
        reader_cpus: args.placement.reader.clone(),
        output,
        stop,
        progress: Progress::new(),
        wake: Arc::new(
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|e| Failure::runtime(format!("making an eventfd: {e}")))?,
        ),
        ending: mpsc::channel(),
        open: Vec::new(),
        ended: Vec::new(),
        ended_bytes: 0,
        accepted: 0,
        incomplete: false,
        told_full: false,
        told_checksums: false,
    };
    let start = Instant::now();
    for nic in engine.nics() {
        receiver.progress.line(describe_nic(&nic));
    }
    receiver.progress.line(format_args!("listening on {}", listener.local_addr()));

    let result = receiver.serve(&engine, listener);
    receiver.finish(args, engine, start.elapsed(), result)
}

/// Raises the limit on open files as far as the process may: the low one is for programs that use
/// `select`, and each connection takes a descriptor or two.
fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, "raising the limit on open files");
    }
}

/// Starts the engine. Everything that can be found wrong before something is attached is found
/// wrong there, and whatever was attached is detached if a later step fails.
fn start(args: &RecvSettings) -> Result<Engine, Failure> {
    let default = EngineConfig::default();
    let config = EngineConfig {
        placement: args.placement.clone(),
        announce: args.announce(),
        checksums: args.checksums,
        keepalive: Some(KEEPALIVE),
        hop_limit: args.hop_limit.unwrap_or(default.hop_limit),
        dscp: args.dscp,
        ..default
    };
    let mut builder = Engine::builder().config(config);
    for nic in &args.nics {
        let nic = nic.clone();
        builder = builder.nic(match args.mode {
            Some(mode) => nic.mode(mode),
            None => nic,
        });
    }
    builder.start().map_err(|error| match error {
        mpxdp::Error::Privilege { what } => privileges::refused(&what),
        error => error.into(),
    })
}

/// Which mode a NIC has come to, and why.
fn describe_nic(nic: &NicReport) -> String {
    let NicReport { name, mode, zero_copy, queues, mtu, mode_reason, .. } = nic;
    let copy = if *zero_copy { "zero copy" } else { "copy" };
    let reason = mode_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let queues = units::count(queues.len() as u64, "queue");
    format!("{name}: {mode} XDP, {copy}{reason}, {queues}, MTU {mtu}")
}

/// What a reader's thread leaves when it ends: its connection's number, and how that went unless
/// the thread panicked.
type Ending = (u64, Option<(Outcome, Connection)>);

/// A connection that a thread is reading.
struct Open {
    number: u64,
    since: Instant,
    /// As of its acceptance.
    statistics: ConnectionStatistics,
    output: Option<PathBuf>,
    /// The bytes that its sink took so far.
    taken: Arc<AtomicU64>,
}

/// The state of a run.
struct Receiver {
    limit: Option<u64>,
    reader_cpus: CpuList,
    output: Output,
    stop: Arc<Stop>,
    progress: Progress,
    /// Readable after a thread has ended.
    wake: Arc<EventFd>,
    ending: (mpsc::Sender<Ending>, mpsc::Receiver<Ending>),
    open: Vec<Open>,
    ended: Vec<Connection>,
    ended_bytes: u64,
    accepted: u64,
    /// Whether some connection's data is not complete or not stored, so that the exit code is 1.
    incomplete: bool,
    /// Whether it has been said that connections wait because too many are open.
    told_full: bool,
    /// Whether it has been said that packets come with wrong checksums.
    told_checksums: bool,
}

impl Receiver {
    /// Accepts and serves connections until there were as many as were asked for, it is time to
    /// stop, or the engine fails.
    fn serve(&mut self, engine: &Engine, listener: Listener) -> Result<Ended, mpxdp::Error> {
        let result = self.accept_all(engine, listener);
        if result.is_err() {
            self.stop.request();
        }
        // If connections are open, then it is time to stop, which every reader sees.
        let deadline = Instant::now() + PATIENCE;
        while !self.open.is_empty() && Instant::now() < deadline {
            self.wait(None);
            self.collect();
        }
        self.give_up();
        result
    }

    fn accept_all(&mut self, engine: &Engine, listener: Listener) -> Result<Ended, mpxdp::Error> {
        let mut listener = Some(listener);
        loop {
            self.collect();
            if self.stop.requested() {
                return Ok(Ended::Signal);
            }
            if self.limit.is_some_and(|limit| self.accepted >= limit) {
                // Who connects from here on is refused rather than kept waiting in vain.
                listener = None;
                if self.open.is_empty() {
                    return Ok(Ended::Connections);
                }
            }
            self.tell_of_nics(engine);
            engine.check()?;
            let accepting = listener.as_ref().filter(|_| self.open.len() < READERS);
            match accepting.map(Listener::try_accept).transpose()?.flatten() {
                Some(stream) => self.begin(stream),
                None => self.wait(accepting),
            }
            self.show(engine);
            self.look_at_checksums(engine);
        }
    }

    /// Says it, once, if most packets are dropped for their checksums: what is dropped silently
    /// looks like a network that is dead.
    fn look_at_checksums(&mut self, engine: &Engine) {
        /// A first packet may be an accident; a SYN comes again after a second.
        const ENOUGH: u64 = 2;

        if self.told_checksums {
            return;
        }
        let (mut packets, mut wrong) = (0, 0);
        for worker in engine.workers() {
            packets += worker.packets;
            let of_sums = worker.drops.iter().filter(|(reason, _)| *reason == "tcp_checksum");
            wrong += of_sums.map(|(_, n)| n).sum::<u64>();
        }
        if wrong >= ENOUGH && 2 * wrong > packets {
            self.told_checksums = true;
            self.progress.line(format_args!(
                "{wrong} of {packets} packets came with a wrong TCP checksum and were dropped \
                 (counter tcp_checksum); where the sender is on this machine, its offload leaves \
                 them unfilled: `ethtool -K IF tx off` on the sender's interface"
            ));
        }
    }

    /// Says what has become of the NICs.
    fn tell_of_nics(&self, engine: &Engine) {
        for notice in engine.take_notices() {
            self.progress.line(notice);
        }
    }

    /// Sleeps until something happens, or the live line is due.
    fn wait(&self, listener: Option<&Listener>) {
        let mut fds = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        if !self.stop.requested() {
            fds.push(PollFd::new((*self.stop).as_fd(), PollFlags::POLLIN));
        }
        if let Some(listener) = listener {
            fds.push(PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        }
        let span = if self.progress.is_live() { INTERVAL } else { LOOK };
        let timeout = PollTimeout::try_from(span).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Nothing but a lack of kernel memory is left; the next round may do better.
            Err(error) => {
                tracing::warn!(%error, "poll");
                thread::sleep(INTERVAL);
            }
        }
    }

    /// Gives a connection a thread.
    fn begin(&mut self, mut stream: Stream) {
        self.accepted += 1;
        let number = self.accepted;
        let peer = stream.peer_addr();
        stream.set_nonblocking(true);
        let sink = match self.output.sink(number, peer) {
            Ok(sink) => sink,
            Err(e) => {
                let (outcome, connection) = reader::refuse(number, stream, e);
                return self.end(&outcome, connection);
            }
        };
        let taken = Arc::new(AtomicU64::new(0));
        let open = Open {
            number,
            since: Instant::now(),
            statistics: stream.statistics(),
            output: sink.place(),
            taken: Arc::clone(&taken),
        };
        let stop = Arc::clone(&self.stop);
        let (sender, wake) = (self.ending.0.clone(), Arc::clone(&self.wake));
        let cpus = self.reader_cpus.clone();
        let serve = move || {
            let served = panic::catch_unwind(AssertUnwindSafe(|| {
                if let Err(error) = cpus.pin_this_thread() {
                    tracing::warn!(%error, "a reader floats");
                }
                reader::serve(number, stream, sink, &taken, &stop)
            }));
            // The receiver is gone only if the run has given up on its readers.
            let _ = sender.send((number, served.ok()));
            let _ = wake.write(1);
        };
        match thread::Builder::new().name(format!("reader-{number}")).spawn(serve) {
            Ok(_) => {
                self.open.push(open);
                if self.open.len() == READERS && !std::mem::replace(&mut self.told_full, true) {
                    self.progress.line(format_args!(
                        "{READERS} connections are open, the most that are read at once; others \
                         wait until one ends"
                    ));
                }
            }
            // The stream went with the closure, which resets the connection.
            Err(e) => {
                let error = format!("no thread to read it: {}", describe(&e));
                self.lose(open, io::Error::other(error));
            }
        }
    }

    /// Takes in the connections that have ended.
    fn collect(&mut self) {
        // It only counts; EAGAIN says that it is at zero already.
        let _ = self.wake.read();
        while let Ok((number, served)) = self.ending.1.try_recv() {
            let open = self.open.iter().position(|open| open.number == number);
            let open = open.map(|place| self.open.swap_remove(place));
            match (served, open) {
                (Some((outcome, connection)), _) => self.end(&outcome, connection),
                (None, Some(open)) => {
                    let error = "its reader panicked, which is a defect: please report it";
                    self.lose(open, io::Error::other(error));
                }
                (None, None) => {}
            }
        }
    }

    /// Ends the connections whose readers do not. The engine resets them when it goes, and the
    /// threads go with the process.
    fn give_up(&mut self) {
        for open in std::mem::take(&mut self.open) {
            let error = "the output does not take the data, and the run is ending";
            self.lose(open, io::Error::new(io::ErrorKind::TimedOut, error));
        }
    }

    /// Ends a connection that its reader says nothing of.
    fn lose(&mut self, open: Open, error: io::Error) {
        let Open { number, since, statistics, output, taken } = open;
        let bytes = taken.load(Ordering::Relaxed);
        let (outcome, connection) =
            reader::lost(number, bytes, since.elapsed(), statistics, output, error);
        self.end(&outcome, connection);
    }

    /// Says how a connection ended.
    fn end(&mut self, outcome: &Outcome, connection: Connection) {
        let Connection { number, remote, bytes, mptcp, fallback, closed, .. } = &connection;
        let amount = units::bytes(*bytes);
        let place = connection.output.as_deref();
        match outcome {
            Outcome::Complete => {
                let protocol = match (mptcp, fallback) {
                    (true, _) => match connection.subflows.len() {
                        0 | 1 => "MPTCP".to_owned(),
                        n => format!("MPTCP by {n} subflows"),
                    },
                    (false, None) => "TCP".to_owned(),
                    (false, Some(reason)) => format!("TCP after fallback: {reason}"),
                };
                let span = Duration::try_from_secs_f64(connection.seconds).unwrap_or_default();
                self.progress.line(format_args!(
                    "connection {number} from {remote}: {}, {protocol}, {closed}",
                    units::transfer(*bytes, span),
                ));
            }
            Outcome::Interrupted if place.is_none() => {
                self.progress.line(format_args!(
                    "connection {number} from {remote}: reset after {amount}, as the run is ending"
                ));
            }
            Outcome::Broken(_) | Outcome::NotStored(_) | Outcome::Interrupted => {
                self.incomplete = true;
                let error = connection.error.as_deref().unwrap_or_default();
                let advice = match outcome {
                    Outcome::NotStored(e) if e.raw_os_error() == Some(libc::ENOSPC) => {
                        "the connection was reset; free space there and send again"
                    }
                    Outcome::NotStored(_) => "the connection was reset; mend that and send again",
                    _ => "the data is not complete; send it again",
                };
                self.progress.line(format_args!(
                    "connection {number} from {remote}: {error}, after {amount}; {advice}"
                ));
            }
        }
        self.ended_bytes += bytes;
        self.ended.push(connection);
    }

    /// The bytes of all connections so far.
    fn bytes(&self) -> u64 {
        let open = self.open.iter().map(|open| open.taken.load(Ordering::Relaxed));
        self.ended_bytes + open.sum::<u64>()
    }

    fn show(&mut self, engine: &Engine) {
        if self.progress.is_live() {
            let bytes = self.bytes();
            let (open, ended) = (self.open.len() as u64, self.ended.len() as u64);
            let subflows: usize =
                engine.workers().iter().map(|worker| worker.tables.subflows).sum();
            self.progress.update(Instant::now(), bytes, open, subflows as u64, ended);
        }
    }

    /// Gives subflows that are closing the time to do so, so that the report has them in no table.
    fn settle(&self, engine: &Engine) {
        let deadline = Instant::now() + GRACE;
        let closing = || {
            engine.workers().iter().any(|worker| {
                let mpxdp::TableSizes { half_open, subflows, .. } = worker.tables;
                half_open + subflows > 0
            })
        };
        while closing() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes everything down and tells how it was.
    fn finish(
        mut self,
        args: &RecvSettings,
        engine: Engine,
        span: Duration,
        result: Result<Ended, mpxdp::Error>,
    ) -> Result<ExitCode, Failure> {
        self.progress.clear();
        self.ended.sort_by_key(|connection| connection.number);
        self.progress.line(format_args!(
            "{}, {}",
            units::count(self.ended.len() as u64, "connection"),
            units::transfer(self.ended_bytes, span),
        ));
        self.settle(&engine);
        let (nics, ports, workers) = (engine.nics(), engine.ports(), engine.workers());
        let memory = engine.memory();
        // The NICs are given back before the report appears: who waits for it can go on from there.
        let down = engine.shutdown(GRACE);
        let result = result.and_then(|ended| down.map(|()| ended));
        let written = args.report.as_ref().map_or(Ok(()), |spec| {
            spec.write(&Report {
                command: "recv",
                version: env!("CARGO_PKG_VERSION"),
                environment: Environment::of_this_machine(),
                listen: args.listen,
                mode: args.mode.unwrap_or_default().name(),
                placement: args.placement.to_string(),
                seconds: report::seconds(span),
                ended: *result.as_ref().unwrap_or(&Ended::Error),
                error: result.as_ref().err().map(ToString::to_string),
                connections: self.ended,
                nics: nics.into_iter().map(Into::into).collect(),
                ports: ports.into_iter().map(Into::into).collect(),
                workers: workers.into_iter().map(Into::into).collect(),
                memory: memory.into(),
            })
        });
        result?;
        written?;
        Ok(if self.incomplete { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}
