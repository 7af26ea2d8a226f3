//! One connection: from the receive ring to its sink.

use std::io::{self, BufRead};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mpxdp::{Closed, ConnectionStatistics, Stream};
use mpxdp_cli::describe;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::output::Sink;
use crate::report::{self, Connection};
use crate::signals::Stop;

/// What a reader needs of a connection. Reads do not block.
pub(crate) trait Incoming: BufRead + AsFd {
    /// The peer is told that all is well.
    fn close(&mut self) -> io::Result<()>;
    /// The peer is told that it is not.
    fn abort(self);
    /// What it has done so far.
    fn statistics(&self) -> ConnectionStatistics;
}

impl Incoming for Stream {
    fn close(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn abort(self) {
        Self::abort(self);
    }

    fn statistics(&self) -> ConnectionStatistics {
        Self::statistics(self)
    }
}

/// How serving a connection ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Everything came, and is where it should be.
    Complete,
    /// The connection broke.
    Broken(io::Error),
    /// The sink failed, so that the connection was reset.
    NotStored(io::Error),
    /// The run is ending, so that the connection was reset.
    Interrupted,
}

/// Moves a connection's bytes to the sink until either ends, and closes or resets it accordingly.
/// `taken` counts the bytes meanwhile.
pub(crate) fn serve<S: Incoming>(
    number: u64,
    mut stream: S,
    mut sink: Sink,
    taken: &AtomicU64,
    stop: &Stop,
) -> (Outcome, Connection) {
    let start = Instant::now();
    let mut outcome = pump(&mut stream, &mut sink, taken, stop);
    let span = start.elapsed();
    let mut place = sink.place();
    if matches!(outcome, Outcome::Complete) {
        match sink.finish() {
            Ok(complete) => place = complete,
            Err(e) => outcome = Outcome::NotStored(e),
        }
    }
    if matches!(outcome, Outcome::Complete) {
        // All is stored whatever becomes of the closing, so its failure is the peer's concern.
        if let Err(error) = stream.close() {
            tracing::info!(number, %error, "closing");
        }
    }
    let statistics = stream.statistics();
    if matches!(outcome, Outcome::NotStored(_) | Outcome::Interrupted) {
        stream.abort();
    }
    let place = place.map(|place| place.display().to_string());
    let bytes = taken.load(Ordering::Relaxed);
    let connection = Connection {
        closed: closed(&outcome, &statistics).name(),
        error: error(&outcome, place.as_deref()),
        output: place,
        ..unserved(number, bytes, span, statistics)
    };
    (outcome, connection)
}

/// What is to be said of a connection that nothing was done with.
fn unserved(
    number: u64,
    bytes: u64,
    span: Duration,
    statistics: ConnectionStatistics,
) -> Connection {
    Connection {
        number,
        local: statistics.local,
        remote: statistics.remote,
        bytes,
        seconds: report::seconds(span),
        bits_per_second: report::rate(bytes, span),
        mptcp: statistics.mptcp,
        fallback: statistics.fallback,
        checksums: statistics.checksums,
        closed: Closed::Reset.name(),
        error: None,
        output: None,
        subflows: statistics.subflows.into_iter().map(Into::into).collect(),
    }
}

/// Resets a connection that has no sink.
pub(crate) fn refuse<S: Incoming>(
    number: u64,
    stream: S,
    error: io::Error,
) -> (Outcome, Connection) {
    let statistics = stream.statistics();
    stream.abort();
    lost(number, 0, Duration::ZERO, statistics, None, error)
}

/// What is to be said of a connection that its reader cannot say anything of: `error` is why.
pub(crate) fn lost(
    number: u64,
    bytes: u64,
    span: Duration,
    statistics: ConnectionStatistics,
    place: Option<PathBuf>,
    error: io::Error,
) -> (Outcome, Connection) {
    let outcome = Outcome::NotStored(error);
    let place = place.map(|place| place.display().to_string());
    let connection = Connection {
        closed: closed(&outcome, &statistics).name(),
        error: self::error(&outcome, place.as_deref()),
        output: place,
        ..unserved(number, bytes, span, statistics)
    };
    (outcome, connection)
}

fn pump<S: Incoming>(stream: &mut S, sink: &mut Sink, taken: &AtomicU64, stop: &Stop) -> Outcome {
    loop {
        if stop.requested() {
            return Outcome::Interrupted;
        }
        let bytes = match stream.fill_buf() {
            Ok([]) => return Outcome::Complete,
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if let Err(e) = wait(stream, stop) {
                    return Outcome::Broken(e);
                }
                continue;
            }
            Err(e) => return Outcome::Broken(e),
        };
        let n = bytes.len().min(sink.appetite());
        if let Err(e) = sink.write(&bytes[..n]) {
            return Outcome::NotStored(e);
        }
        stream.consume(n);
        // This thread is the only one that writes it.
        taken.store(taken.load(Ordering::Relaxed) + n as u64, Ordering::Relaxed);
    }
}

/// Sleeps until there is something to read, or it is time to stop.
fn wait<S: AsFd>(stream: &S, stop: &Stop) -> io::Result<()> {
    let mut fds = [
        PollFd::new(stream.as_fd(), PollFlags::POLLIN),
        PollFd::new(stop.as_fd(), PollFlags::POLLIN),
    ];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// What ended the connection.
fn closed(outcome: &Outcome, statistics: &ConnectionStatistics) -> Closed {
    match outcome {
        // The end of the stream was read; what may come after it is of no consequence.
        Outcome::Complete if statistics.mptcp => Closed::DataFin,
        Outcome::Complete => Closed::Fin,
        Outcome::Broken(e) => statistics.closed.unwrap_or_else(|| match e.kind() {
            io::ErrorKind::TimedOut => Closed::Timeout,
            _ => Closed::Reset,
        }),
        Outcome::NotStored(_) | Outcome::Interrupted if statistics.mptcp => Closed::FastClose,
        Outcome::NotStored(_) | Outcome::Interrupted => Closed::Reset,
    }
}

/// Why the data is not complete or not stored.
fn error(outcome: &Outcome, place: Option<&str>) -> Option<String> {
    match outcome {
        Outcome::Complete => None,
        Outcome::Broken(e) => Some(describe(e)),
        Outcome::NotStored(e) => {
            Some(format!("writing {}: {}", place.unwrap_or("the output"), describe(e)))
        }
        Outcome::Interrupted => Some("interrupted by the end of the run".to_owned()),
    }
}

#[cfg(test)]
mod tests;
