//! The kernel's sender.
//!
//! What is measured of a connection begins after the warm-up and ends when the last byte is written;
//! [`WARM`] and [`WRITTEN`] on standard error tell a benchmark of both moments.

mod measured;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use self::measured::Measuring;
use super::pattern::{LARGEST, Pattern};
use super::socket::{self, Protocol, Spoken};
use super::{CpuTime, Hash, bits_per_second};
use crate::document::{Retransmissions, Timeline};
use crate::error::{Context, Error, Result};

/// How long to pause before another attempt to connect where nobody listens yet.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// How long a connection may take to have all its subflows.
const JOINING: Duration = Duration::from_secs(5);

/// How often it is asked how many it has.
const GLANCE: Duration = Duration::from_millis(1);

/// What is sent before a connection's further subflows are waited for. The kernel's path manager
/// opens them once the peer has acknowledged data.
const PRELUDE: usize = 16 * 1024;

/// How long a connection that somebody watches stays open after everything is written, so that the
/// receiver is still there to be looked at.
const HOLD: Duration = Duration::from_millis(200);

/// What the sender says when the warm-up is over.
pub const WARM: &str = "warmed up";

/// What the sender says when it has written everything.
pub const WRITTEN: &str = "all written";

/// What to send, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// MPTCP or TCP.
    pub protocol: Protocol,
    /// Where to.
    pub connect: SocketAddr,
    /// What each connection carries.
    pub content: Content,
    /// Bytes for a write, at most [`LARGEST`].
    pub write_size: usize,
    /// The number of connections in all.
    pub connections: u32,
    /// How many of them at once.
    pub parallel: u32,
    /// For how long to go on trying while the connection is refused.
    pub retry: Duration,
    /// How long connecting, and waiting for the peer's end afterwards, may take.
    pub patience: Duration,
    /// Bytes a second, at most; none: as fast as it goes.
    pub rate: Option<u64>,
    /// Reset the connection instead of ending it, once all is sent.
    pub reset: bool,
    /// Whether to report SHA-256 of what was sent.
    pub hash: bool,
    /// Subflows that a connection must have, the first one included, before most of its content
    /// flows. That it does not get them is an error.
    pub subflows: u32,
    /// Leave so much of the time after that out of what is measured, and say when it is over; none:
    /// measure all, and say nothing.
    pub warmup: Option<Duration>,
}

/// A moment of a connection that somebody may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The warm-up is over.
    Warm,
    /// Everything is written.
    Written,
}

/// What a connection carries.
#[derive(Clone, Debug)]
pub enum Content {
    /// So many bytes of the pattern of seed 0.
    Bytes(u64),
    /// The pattern of seed 0, for so long.
    Time(Duration),
    /// A file.
    File(PathBuf),
}

/// What was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What was asked for.
    pub protocol: Protocol,
    /// One for each connection, in the order in which they ended.
    pub connections: Vec<Connection>,
    /// The CPU time of the sending process.
    pub cpu: CpuTime,
}

/// One connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Connection {
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// From connected until the peer had closed too, which it does when it has everything; with a
    /// warm-up, that is a fifth of a second after everything was written at the earliest.
    pub seconds: f64,
    /// The two above.
    pub bits_per_second: f64,
    /// What was measured, after the warm-up and until everything was written.
    pub measured: Measured,
    /// Throughput over time, warm-up included.
    pub timeline: Timeline,
    /// What the connection really spoke.
    #[serde(flatten)]
    pub spoken: Spoken,
    /// Established subflows when everything was written.
    pub subflows: u32,
    /// SHA-256 of what was sent, if asked for.
    pub sha256: Option<String>,
    /// Bytes that the peer sent, which a receiver should not.
    pub received: u64,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// What was measured of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// From the end of the warm-up until everything was written.
    pub seconds: f64,
    /// The two above.
    pub bits_per_second: f64,
    /// What was sent again meanwhile.
    pub retransmissions: Retransmissions,
    /// The time that the sending thread ran meanwhile, softirqs that interrupted it included.
    pub ran_seconds: f64,
}

/// Sends, and tells what happened. A connection that fails is in the report; it is no error here. With
/// a warm-up it says [`WARM`] and [`WRITTEN`] on standard error.
///
/// # Errors
///
/// If the options make no sense or the file cannot be read.
pub fn run(options: &Options) -> Result<Report> {
    run_with(options, &|moment| {
        let text = match moment {
            Moment::Warm => WARM,
            Moment::Written => WRITTEN,
        };
        if options.warmup.is_some() {
            // Nobody may be reading; that is no reason not to send.
            let _ = writeln!(io::stderr(), "{text}");
        }
    })
}

/// As [`run`], but each connection's moments are told to `tell`.
///
/// # Errors
///
/// As [`run`].
pub fn run_with(options: &Options, tell: &(dyn Fn(Moment) + Sync)) -> Result<Report> {
    if options.write_size == 0 || options.write_size > LARGEST {
        return Err(Error::Usage(format!("--write-size: from 1 to {LARGEST}")));
    }
    if let Content::File(path) = &options.content {
        File::open(path).context(|| format!("cannot read {}", path.display()))?;
    }
    let pattern = Pattern::new(0);
    let left = AtomicU32::new(options.connections);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..options.parallel.min(options.connections).max(1) {
            scope.spawn(|| {
                let take = |left: u32| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    let connection = converse(options, &pattern, tell);
                    if let Ok(mut done) = done.lock() {
                        done.push(connection);
                    }
                }
            });
        }
    });
    let connections = done.into_inner().map_err(|error| Error::failed("sender", error))?;
    Ok(Report { protocol: options.protocol, connections, cpu: CpuTime::of_this_process() })
}

/// One connection from beginning to end.
fn converse(options: &Options, pattern: &Pattern, tell: &dyn Fn(Moment)) -> Connection {
    let mut connection = Connection::default();
    let started = Instant::now();
    let outcome = connect(options).and_then(|stream| {
        let connected = Instant::now();
        let outcome = talk(options, pattern, &stream, &mut connection, tell);
        let time = connected.elapsed();
        connection.seconds = time.as_secs_f64();
        connection.bits_per_second = bits_per_second(connection.bytes, time);
        outcome
    });
    if let Err(error) = outcome {
        connection.error = Some(error.to_string());
        if connection.seconds == 0.0 {
            connection.seconds = started.elapsed().as_secs_f64();
        }
    }
    connection
}

fn connect(options: &Options) -> io::Result<TcpStream> {
    let until = Instant::now() + options.retry;
    loop {
        match socket::connect(options.protocol, options.connect, options.patience) {
            Err(error)
                if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < until =>
            {
                thread::sleep(RETRY_PAUSE);
            }
            other => return other,
        }
    }
}

fn talk(
    options: &Options,
    pattern: &Pattern,
    stream: &TcpStream,
    connection: &mut Connection,
    tell: &dyn Fn(Moment),
) -> io::Result<()> {
    let hash = options.hash.then(Hash::default);
    let mut writing = Writing { options, pattern, stream, connection, hash, tell };
    let sent = writing.all();
    let hash = writing.hash.take();
    // Asked before the end: a closed socket no longer tells.
    connection.spoken = socket::spoken(options.protocol, stream);
    connection.subflows = socket::subflows(options.protocol, stream).established;
    connection.sha256 = hash.map(Hash::finish);
    sent?;
    if options.warmup.is_some() {
        thread::sleep(HOLD);
    }
    if options.reset {
        return socket::reset_on_close(stream);
    }
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(options.patience))?;
    let mut buffer = [0; 4096];
    let mut reader = stream;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => connection.received += length as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(io::Error::new(ErrorKind::TimedOut, "the peer does not close"));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The writing of a connection's content.
struct Writing<'a> {
    options: &'a Options,
    pattern: &'a Pattern,
    stream: &'a TcpStream,
    connection: &'a mut Connection,
    hash: Option<Hash>,
    tell: &'a dyn Fn(Moment),
}

impl Writing<'_> {
    /// Writes all of the content.
    fn all(&mut self) -> io::Result<()> {
        self.join()?;
        let options = self.options;
        let begin = self.connection.bytes;
        let mut measuring = Measuring::new(options.warmup, options.protocol, self.stream, begin);
        let mut file = match &options.content {
            Content::File(path) => Some((File::open(path)?, vec![0; options.write_size])),
            _ => None,
        };
        let sent = loop {
            measuring.before_write(self.connection.bytes, self.tell);
            let part = match (&options.content, &mut file) {
                (_, Some((file, buffer))) => {
                    let length = file.read(buffer)?;
                    &buffer[..length]
                }
                (Content::Bytes(total), None) => {
                    let left = total.saturating_sub(self.connection.bytes);
                    let left = usize::try_from(left).unwrap_or(usize::MAX);
                    self.pattern.at(self.connection.bytes, left.min(options.write_size))
                }
                (Content::Time(limit), None) if measuring.measured() < *limit => {
                    self.pattern.at(self.connection.bytes, options.write_size)
                }
                (Content::Time(_) | Content::File(_), None) => &[],
            };
            if part.is_empty() {
                break Ok(());
            }
            if let Err(error) = self.write(part, |length| measuring.wrote(length)) {
                break Err(error);
            }
            if let Some(rate) = options.rate {
                let bytes = self.connection.bytes as f64;
                let due = Duration::from_secs_f64(bytes / rate.max(1) as f64);
                thread::sleep(due.saturating_sub(measuring.elapsed()));
            }
        };
        let (measured, timeline) = measuring.finish(self.connection.bytes);
        (self.tell)(Moment::Written);
        self.connection.measured = measured;
        self.connection.timeline = timeline;
        sent
    }

    /// Sends a little and waits for the further subflows, if there are to be any.
    fn join(&mut self) -> io::Result<()> {
        let wanted = self.options.subflows;
        if wanted <= 1 || matches!(self.options.content, Content::File(_)) {
            return Ok(());
        }
        let length = match self.options.content {
            Content::Bytes(total) => usize::try_from(total).unwrap_or(PRELUDE).min(PRELUDE),
            _ => PRELUDE,
        };
        self.write(self.pattern.at(0, length), |_| ())?;
        let until = Instant::now() + JOINING;
        loop {
            let there = socket::subflows(self.options.protocol, self.stream).established;
            if there >= wanted {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    format!("{there} subflows, not {wanted}, {} s on", JOINING.as_secs()),
                ));
            }
            thread::sleep(GLANCE);
        }
    }

    /// Writes a part, telling of each piece that the kernel took.
    fn write(&mut self, part: &[u8], mut wrote: impl FnMut(usize)) -> io::Result<()> {
        let mut stream = self.stream;
        let mut rest = part;
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    wrote(length);
                    self.connection.bytes += length as u64;
                    if let Some(hash) = &mut self.hash {
                        hash.update(&rest[..length]);
                    }
                    rest = &rest[length..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
