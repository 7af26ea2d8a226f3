//! Streams: one connection each, as the application sees it.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use mpxdp_proto::connection::Mode;
use mpxdp_proto::seq::StreamOffset;

use crate::connection::{Connection, Wishes};
use crate::receive::{Failure, Reader};
use crate::stats::ConnectionStatistics;

/// A connection. It reads like any stream; [`BufRead`] reads in place: `fill_buf` gives
/// everything that has come in order as one slice of the receive ring.
///
/// A read fails with [`ConnectionReset`](io::ErrorKind::ConnectionReset),
/// [`TimedOut`](io::ErrorKind::TimedOut), [`InvalidData`](io::ErrorKind::InvalidData) (the peer
/// broke the protocol) or [`ConnectionAborted`](io::ErrorKind::ConnectionAborted) (the engine was
/// shut down) once the connection failed and everything before that was read.
///
/// Its descriptor is for programs with a loop of their own: once a read has returned
/// [`WouldBlock`](io::ErrorKind::WouldBlock), it is readable as soon as reading makes sense.
///
/// Dropping a stream that was read to its end closes it in the background. Dropping it earlier
/// resets the connection, so that the peer does not take unread data for delivered; except after
/// [`shutdown`](Self::shutdown) for writing with nothing unread, which leaves it to the peer to
/// end its side.
pub struct Stream {
    reader: Reader,
    connection: Arc<Connection>,
    nonblocking: bool,
    timeout: Option<Duration>,
    shut_read: bool,
    shut_write: bool,
}

impl Stream {
    pub(crate) const fn new(reader: Reader, connection: Arc<Connection>) -> Self {
        Self {
            reader,
            connection,
            nonblocking: false,
            timeout: None,
            shut_read: false,
            shut_write: false,
        }
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.remote()
    }

    /// Our address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.local()
    }

    /// Whether MPTCP is in use; false for plain TCP and after a fallback.
    #[must_use]
    pub fn is_mptcp(&self) -> bool {
        self.connection.level.mode() == Mode::Mptcp
    }

    /// Lets reads return [`WouldBlock`](io::ErrorKind::WouldBlock) instead of waiting.
    pub const fn set_nonblocking(&mut self, nonblocking: bool) {
        self.nonblocking = nonblocking;
    }

    /// How long a read waits before it returns [`WouldBlock`](io::ErrorKind::WouldBlock), as the
    /// kernel's sockets do; `None`: for ever.
    pub const fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// How many bytes can be read without waiting.
    #[must_use]
    pub fn available(&self) -> usize {
        if self.shut_read { 0 } else { self.reader.available() }
    }

    /// Whether a read would return at once: with bytes, the end, or an error. It makes no system
    /// call and asks for no wake-up, so it is what a reader that spins looks at.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shut_read || self.reader.is_ready()
    }

    /// Closes a direction. `Write` tells the peer that we send nothing more; `Read` lets later
    /// reads return the end of the stream. Closing twice is no error.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        self.shut_read |= matches!(how, Shutdown::Read | Shutdown::Both);
        if matches!(how, Shutdown::Write | Shutdown::Both) && !self.shut_write {
            self.shut_write = true;
            // Nothing is sent yet, so our stream is empty.
            self.connection.level.shutdown_write(StreamOffset::ZERO);
            self.connection.ask(Wishes::TELL);
        }
        Ok(())
    }

    /// Resets the connection: MP_FASTCLOSE, or RST for plain TCP.
    pub fn abort(self) {
        // Reading nothing more tells `drop` enough, unless the end was read.
        self.connection.ask(Wishes::ABORT);
    }

    /// What the connection has done so far.
    #[must_use]
    pub fn statistics(&self) -> ConnectionStatistics {
        self.connection.statistics()
    }

    /// Waits until there is something to be had. `false`: the end.
    fn wait(&mut self) -> io::Result<bool> {
        if self.shut_read {
            return Ok(false);
        }
        loop {
            if self.reader.available() > 0 {
                return Ok(true);
            }
            if self.reader.is_end() {
                return Ok(false);
            }
            if let Some(failure) = self.reader.failure() {
                // What came before the failure may have come since the look above.
                if self.reader.available() > 0 {
                    return Ok(true);
                }
                return Err(failed(failure));
            }
            let ready = if self.nonblocking {
                self.reader.arm()
            } else {
                self.reader.wait(self.timeout)?
            };
            if !ready {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }
}

fn failed(failure: Failure) -> io::Error {
    let what = match failure {
        Failure::Reset => "the peer reset the connection",
        Failure::FastClose => "the peer aborted the connection",
        Failure::TimedOut => "the peer stopped answering",
        Failure::Protocol => "the peer broke the protocol",
        Failure::Aborted => "the connection was aborted on our side",
    };
    io::Error::new(failure.into(), what)
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let bytes = self.fill_buf()?;
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.wait()? { Ok(self.reader.peek()) } else { Ok(&[]) }
    }

    fn consume(&mut self, n: usize) {
        if self.reader.consume(n).window_update_due {
            self.connection.ask(Wishes::WINDOW);
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("local", &self.local_addr())
            .field("remote", &self.peer_addr())
            .field("position", &self.reader.position())
            .finish_non_exhaustive()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.reader.failure().is_some() {
            return;
        }
        let left_to_peer = self.shut_write && self.reader.available() == 0;
        if self.reader.is_end() || left_to_peer {
            self.connection.level.shutdown_write(StreamOffset::ZERO);
            self.connection.level.reader_gone();
            self.connection.ask(Wishes::TELL);
        } else {
            self.connection.ask(Wishes::ABORT);
        }
    }
}
