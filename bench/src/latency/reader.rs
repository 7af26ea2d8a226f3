//! The process that reads, as an application would: from mpxdp's receive ring in place, or from a
//! socket of the kernel.
//!
//! A message has arrived when the reading thread holds its last byte: the clock is read right after
//! the call that returned it. If a call returns several messages, they have all arrived then.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mpxdp::{CpuList, Engine, EngineConfig, NicConfig, Stream};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use serde::{Deserialize, Serialize};

use super::clock::{Identity, Moment, Monotonic};
use super::histogram;
use super::message::{Decoder, Recorder};
use crate::error::{Context, Error, Result};
use crate::sys;
use crate::traffic::socket::{self, Protocol};

/// How often a reader that found nothing looks again before it looks at the clock.
const POLLS: u32 = 4096;

/// How long a socket's read polls the NIC's queue before it sleeps, in microseconds: longer than any
/// gap between messages that such polling makes sense for.
const BUSY_POLL_MICROSECONDS: u32 = 1000;

/// How a reader waits for the next message.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// It sleeps, and is woken: by an eventfd, or in the kernel's blocking read.
    Sleep,
    /// It looks again and again.
    Spin,
    /// It reads from a socket with `SO_BUSY_POLL`: the read runs the NIC's receive processing itself.
    BusyPoll,
}

impl Reading {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Sleep, Self::Spin, Self::BusyPoll];

    /// Its name on the command line and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
            Self::BusyPoll => "busy-poll",
        }
    }
}

/// Who receives.
#[derive(Clone, Debug)]
pub enum Receiver {
    /// mpxdp, in this process.
    Mpxdp {
        /// The NIC.
        nic: String,
        /// The CPU of its worker; none: the engine chooses.
        worker: Option<usize>,
        /// Whether the worker spins for ever, or sleeps as soon as there is nothing to do.
        spin: bool,
    },
    /// A socket of the kernel.
    Kernel(Protocol),
}

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who receives.
    pub receiver: Receiver,
    /// Where to listen.
    pub listen: SocketAddr,
    /// How to wait.
    pub reading: Reading,
    /// Whether a reader that spins lets others run between its looks: if it shares its CPU.
    pub yielding: bool,
    /// The CPU of the reading thread; none: wherever.
    pub cpu: Option<usize>,
    /// Octets of a message.
    pub size: usize,
    /// Messages at the beginning that are not measured.
    pub warm_up: u64,
    /// How long the stream may be silent.
    pub patience: Duration,
}

/// What was read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Messages, the warm-up included.
    pub messages: u64,
    /// From when a message was due until it had arrived: a histogram of nanoseconds as
    /// [`encode`](histogram::encode) writes it.
    pub latency: String,
    /// From when its write began until it had arrived.
    pub transit: String,
    /// Whether the connection was MPTCP to its end.
    pub mptcp: bool,
    /// How packets came in.
    pub mode: String,
    /// Why this way of reading does not apply to this receiver; then nothing was measured.
    pub inapplicable: Option<String>,
}

/// Reads one connection to its end and tells what was measured. Says `listening on ADDRESS` on
/// standard error when it does.
///
/// # Errors
///
/// If it cannot listen, or the connection breaks.
pub fn run(options: &Options) -> Result<Report> {
    super::sender::check_size(options.size)?;
    let clock = Identity::of_this_process()?;
    let decoder = Decoder::new(options.size, clock, Recorder::new(options.warm_up));
    match &options.receiver {
        Receiver::Mpxdp { nic, worker, spin } => run_mpxdp(options, decoder, nic, *worker, *spin),
        Receiver::Kernel(protocol) => run_kernel(options, decoder, *protocol),
    }
}

fn run_mpxdp(
    options: &Options,
    decoder: Decoder,
    nic: &str,
    worker: Option<usize>,
    spin: bool,
) -> Result<Report> {
    if options.reading == Reading::BusyPoll {
        return Err(Error::Usage("--reading busy-poll is for the kernel's sockets".into()));
    }
    let failed = |error: mpxdp::Error| Error::failed("mpxdp", error);
    let config = EngineConfig {
        spin: if spin { Duration::MAX } else { Duration::ZERO },
        ..EngineConfig::default()
    };
    let nic = NicConfig::new(nic).cpus(worker);
    let engine = Engine::builder().nic(nic).config(config).start().map_err(failed)?;
    let listener = engine.listen(options.listen).map_err(failed)?;
    let mode = engine.nics().first().map_or_else(String::new, |nic| {
        let copy = if nic.zero_copy { "zero copy" } else { "copy" };
        format!("AF_XDP, {}, {copy}", nic.mode)
    });
    // After the workers, which would inherit it.
    pin(options)?;
    announce(listener.local_addr());
    let stream = listener.accept_timeout(options.patience).map_err(failed)?;
    let mut stream = stream.ok_or_else(|| Error::Failed("nobody connected".into()))?;
    stream.set_read_timeout(Some(options.patience));
    let mut source = InRing { stream, spin: Spin::of(options) };
    let (recorder, messages) = drain(&mut source, decoder)?;
    let InRing { mut stream, .. } = source;
    let mptcp = stream.is_mptcp();
    stream.shutdown(Shutdown::Write).context(|| "closing")?;
    drop(stream);
    drop(listener);
    engine.shutdown(Duration::from_secs(2)).map_err(failed)?;
    report(&recorder, messages, mptcp, mode)
}

fn run_kernel(options: &Options, decoder: Decoder, protocol: Protocol) -> Result<Report> {
    pin(options)?;
    let at = options.listen;
    let listener = socket::listen(protocol, at).context(|| format!("cannot listen on {at}"))?;
    announce(listener.local_addr().context(|| "cannot listen")?);
    let stream = accept(&listener, options.patience).context(|| "cannot accept")?;
    if options.reading == Reading::BusyPoll
        && let Some(why) = busy_poll(&stream).context(|| "SO_BUSY_POLL")?
    {
        return Ok(Report {
            inapplicable: Some(why),
            ..report(&Recorder::new(0), 0, false, String::new())?
        });
    }
    let mut source = InSocket::new(stream, options).context(|| "cannot read")?;
    let (recorder, messages) = drain(&mut source, decoder)?;
    let mptcp = socket::spoken(protocol, &source.stream).mptcp;
    report(&recorder, messages, mptcp, "sockets".into())
}

fn pin(options: &Options) -> Result<()> {
    let cpus: CpuList = options.cpu.into_iter().collect();
    cpus.pin_this_thread().map_err(|error| Error::failed("cannot pin the reader", error))
}

fn announce(at: SocketAddr) {
    // Nobody may be reading; that is no reason not to receive.
    let _ = writeln!(io::stderr(), "listening on {at}");
}

/// Accepts one connection.
fn accept(listener: &TcpListener, patience: Duration) -> io::Result<TcpStream> {
    // A listening socket's receive timeout bounds its accept.
    let limit = TimeVal::milliseconds(i64::try_from(patience.as_millis()).unwrap_or(i64::MAX));
    setsockopt(listener, sockopt::ReceiveTimeout, &limit)?;
    listener.accept().map(|(stream, _)| stream)
}

/// Turns on busy polling; or says why that would come to nothing.
fn busy_poll(stream: &TcpStream) -> io::Result<Option<String>> {
    sys::set_busy_poll(stream.as_fd(), BUSY_POLL_MICROSECONDS)?;
    // What a read polls is the queue that the socket's last packet came in on.
    let queue = sys::incoming_napi_id(stream.as_fd())?;
    Ok((queue == 0).then(|| {
        "the kernel knows no queue for this socket (SO_INCOMING_NAPI_ID is 0), so its read does not \
         poll any"
            .to_owned()
    }))
}

fn report(recorder: &Recorder, messages: u64, mptcp: bool, mode: String) -> Result<Report> {
    Ok(Report {
        messages,
        latency: histogram::encode(recorder.latency())?,
        transit: histogram::encode(recorder.transit())?,
        mptcp,
        mode,
        inapplicable: None,
    })
}

/// Takes what a source gave, and when it did.
type Take<'a> = &'a mut dyn FnMut(&[u8], Moment) -> io::Result<()>;

/// Where the bytes are read from.
trait Source {
    /// Waits for more bytes and hands them over. False: the end.
    fn next(&mut self, take: Take<'_>) -> io::Result<bool>;
}

/// Reads to the end.
fn drain(source: &mut dyn Source, mut decoder: Decoder) -> Result<(Recorder, u64)> {
    let read = || "reading";
    while source.next(&mut |bytes, now| decoder.take(bytes, now)).context(read)? {}
    decoder.finish().context(read)
}

/// Waits by looking again and again.
#[derive(Debug)]
struct Spin {
    yielding: bool,
    patience: Duration,
    /// Looks in vain since the clock was last looked at.
    polls: u32,
    /// When it was, if nothing has come since.
    since: Option<Instant>,
}

impl Spin {
    /// If the options want it.
    fn of(options: &Options) -> Option<Self> {
        let Options { reading, yielding, patience, .. } = *options;
        (reading == Reading::Spin).then_some(Self { yielding, patience, polls: 0, since: None })
    }

    /// Nothing was there.
    fn pause(&mut self) -> io::Result<()> {
        if self.yielding {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        self.polls += 1;
        if self.polls == POLLS {
            self.polls = 0;
            if self.since.get_or_insert_with(Instant::now).elapsed() > self.patience {
                return Err(io::Error::new(ErrorKind::TimedOut, "the sender is silent"));
            }
        }
        Ok(())
    }

    /// Something was.
    const fn found(&mut self) {
        self.polls = 0;
        self.since = None;
    }
}

/// mpxdp's receive ring, read in place.
struct InRing {
    stream: Stream,
    spin: Option<Spin>,
}

impl Source for InRing {
    fn next(&mut self, take: Take<'_>) -> io::Result<bool> {
        if let Some(spin) = &mut self.spin {
            while !self.stream.is_ready() {
                spin.pause()?;
            }
            spin.found();
        }
        let bytes = self.stream.fill_buf()?;
        let now = Monotonic::read();
        let length = bytes.len();
        take(bytes, now)?;
        self.stream.consume(length);
        Ok(length > 0)
    }
}

/// A socket of the kernel.
struct InSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
    spin: Option<Spin>,
}

impl InSocket {
    /// Bytes of a read at least: as many as a server would offer that does not know what comes.
    const READ: usize = 64 << 10;

    fn new(stream: TcpStream, options: &Options) -> io::Result<Self> {
        let spin = Spin::of(options);
        if spin.is_some() {
            stream.set_nonblocking(true)?;
        } else {
            stream.set_read_timeout(Some(options.patience))?;
        }
        Ok(Self { stream, buffer: vec![0; Self::READ.max(options.size)], spin })
    }
}

impl Source for InSocket {
    fn next(&mut self, take: Take<'_>) -> io::Result<bool> {
        loop {
            match (self.stream.read(&mut self.buffer), &mut self.spin) {
                (Ok(length), spin) => {
                    let now = Monotonic::read();
                    if let Some(spin) = spin {
                        spin.found();
                    }
                    take(&self.buffer[..length], now)?;
                    return Ok(length > 0);
                }
                (Err(error), _) if error.kind() == ErrorKind::Interrupted => {}
                (Err(error), Some(spin)) if error.kind() == ErrorKind::WouldBlock => {
                    spin.pause()?;
                }
                (Err(error), None) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(io::Error::new(ErrorKind::TimedOut, "the sender is silent"));
                }
                (Err(error), _) => return Err(error),
            }
        }
    }
}
