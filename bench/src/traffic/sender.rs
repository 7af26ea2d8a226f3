//! The kernel's sender.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::pattern::{LARGEST, Pattern};
use super::socket::{self, Protocol, Spoken};
use super::{CpuTime, Hash, bits_per_second};
use crate::error::{Context, Error, Result};

/// How long to pause before another attempt to connect where nobody listens yet.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

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
    /// From connected until the peer had closed too, which it does when it has everything.
    pub seconds: f64,
    /// The two above.
    pub bits_per_second: f64,
    /// What the connection really spoke.
    #[serde(flatten)]
    pub spoken: Spoken,
    /// SHA-256 of what was sent, if asked for.
    pub sha256: Option<String>,
    /// Bytes that the peer sent, which a receiver should not.
    pub received: u64,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Sends, and tells what happened. A connection that fails is in the report; it is no error here.
///
/// # Errors
///
/// If the options make no sense or the file cannot be read.
pub fn run(options: &Options) -> Result<Report> {
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
                    let connection = converse(options, &pattern);
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
fn converse(options: &Options, pattern: &Pattern) -> Connection {
    let mut connection = Connection::default();
    let started = Instant::now();
    let outcome = connect(options).and_then(|stream| {
        let connected = Instant::now();
        let outcome = talk(options, pattern, &stream, &mut connection);
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
) -> io::Result<()> {
    let mut hash = options.hash.then(Hash::default);
    let sent = send(options, pattern, stream, connection, hash.as_mut());
    // Asked before the end: a closed socket no longer tells.
    connection.spoken = socket::spoken(options.protocol, stream);
    connection.sha256 = hash.map(Hash::finish);
    sent?;
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

/// Writes all of the content.
fn send(
    options: &Options,
    pattern: &Pattern,
    mut stream: &TcpStream,
    connection: &mut Connection,
    mut hash: Option<&mut Hash>,
) -> io::Result<()> {
    let started = Instant::now();
    let mut file = match &options.content {
        Content::File(path) => Some((File::open(path)?, vec![0; options.write_size])),
        _ => None,
    };
    loop {
        let part = match (&options.content, &mut file) {
            (_, Some((file, buffer))) => {
                let length = file.read(buffer)?;
                &buffer[..length]
            }
            (Content::Bytes(total), None) => {
                let left = usize::try_from(total - connection.bytes).unwrap_or(usize::MAX);
                pattern.at(connection.bytes, left.min(options.write_size))
            }
            (Content::Time(limit), None) if started.elapsed() < *limit => {
                pattern.at(connection.bytes, options.write_size)
            }
            (Content::Time(_) | Content::File(_), None) => &[],
        };
        if part.is_empty() {
            return Ok(());
        }
        let mut rest = part;
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    connection.bytes += length as u64;
                    if let Some(hash) = &mut hash {
                        hash.update(&rest[..length]);
                    }
                    rest = &rest[length..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(rate) = options.rate {
            let due = Duration::from_secs_f64(connection.bytes as f64 / rate.max(1) as f64);
            thread::sleep(due.saturating_sub(started.elapsed()));
        }
    }
}
