//! Streams: one connection each, as the application sees it.

use std::io::{self, BufRead, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::stats::ConnectionStatistics;

/// A connection. It reads like any stream; [`BufRead`] reads in place: `fill_buf` gives
/// everything that has come in order as one slice of the receive ring.
///
/// Its descriptor is readable while a read would not wait.
///
/// Dropping a stream that was read to its end closes it in the background. Dropping it earlier
/// resets the connection, so that the peer does not take unread data for delivered.
#[derive(Debug)]
pub struct Stream {
    wake: OwnedFd,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Stream {
    /// The peer's address.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Our address.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether MPTCP is in use; false for plain TCP and after a fallback.
    #[must_use]
    pub fn is_mptcp(&self) -> bool {
        false
    }

    /// Lets reads return [`WouldBlock`](io::ErrorKind::WouldBlock) instead of waiting.
    pub fn set_nonblocking(&mut self, _nonblocking: bool) {}

    /// How long a read waits before it returns [`TimedOut`](io::ErrorKind::TimedOut); `None`:
    /// for ever.
    pub fn set_read_timeout(&mut self, _timeout: Option<Duration>) {}

    /// How many bytes can be read without waiting.
    #[must_use]
    pub fn available(&self) -> usize {
        0
    }

    /// Closes a direction. `Write` tells the peer that we are done; `Read` lets later reads
    /// return the end of the stream.
    ///
    /// # Errors
    ///
    /// None at present; closing twice is no error.
    pub fn shutdown(&mut self, _how: Shutdown) -> io::Result<()> {
        Ok(())
    }

    /// Resets the connection: MP_FASTCLOSE, or RST for plain TCP.
    pub fn abort(self) {}

    /// What the connection has done so far.
    #[must_use]
    pub fn statistics(&self) -> Option<ConnectionStatistics> {
        None
    }
}

impl Read for Stream {
    fn read(&mut self, _out: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(&[])
    }

    fn consume(&mut self, _n: usize) {}
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
